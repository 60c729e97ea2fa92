//! Why a file cannot be a plugin of this host: one catalogue of messages for the load and for `plugin check`.
//!
//! Each refusal says in the author's words what the file is or has, what this host takes, and what to change. `Display` gives the
//! first two; [`Refusal::hint`] the third.

use std::fmt;

use crate::compile::CompileFault;
use crate::limits::{MAX_COMPONENT_BYTES, MIB};
use crate::shape::Difference;

/// Why a file was refused before any of its code was compiled or run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It is no file.
    NotAFile {
        /// What it is.
        what: &'static str,
    },
    /// The file has no bytes.
    Empty,
    /// It is something else than WebAssembly.
    NotWasm(Foreign),
    /// It is WebAssembly's text format.
    Text,
    /// It is a core module, not a component.
    CoreModule {
        /// It imports WASI preview 1, so it only lacks an adapter.
        preview1: bool,
    },
    /// It is machine code that some wasmtime compiled before.
    Precompiled,
    /// Its header names a binary format that this host does not know.
    OtherBinaryVersion {
        /// The four bytes after the magic number.
        version: [u8; 4],
    },
    /// It is larger than any component that this host takes.
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It ends in the middle.
    Truncated {
        /// What the reader met.
        detail: String,
    },
    /// It is a component, but not a valid one.
    Invalid {
        /// What the validator met.
        detail: String,
    },
    /// It uses a part of WebAssembly that this host leaves off.
    Feature {
        /// What the validator met.
        detail: String,
    },
    /// It exports none of the seams.
    NoSeam {
        /// What it exports.
        exports: Vec<String>,
    },
    /// It exports a seam in another version.
    OtherVersion {
        /// What it exports.
        found: String,
        /// What this host takes.
        expected: String,
    },
    /// It exports something under `dsh:` that is no seam.
    UnknownSeam {
        /// What it exports.
        found: String,
        /// The seam with the nearest name.
        nearest: Option<String>,
    },
    /// It imports something that this host never provides.
    UnknownImport {
        /// What it imports.
        found: String,
        /// What this host has under a like name.
        nearest: Option<String>,
    },
    /// It imports or exports one of our interfaces in another shape.
    Shape {
        /// `exports` or `imports`.
        direction: &'static str,
        /// The interface.
        interface: String,
        /// Where and how the two differ.
        difference: Box<Difference>,
    },
    /// It cannot be compiled.
    Compile(CompileFault),
    /// Everything looked right, and yet it cannot be linked.
    Link {
        /// What the linker met.
        detail: String,
    },
}

/// What a file that is not WebAssembly seems to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// JavaScript or TypeScript source.
    JavaScript,
    /// Python source.
    Python,
    /// Rust source.
    Rust,
    /// A web page, often a download that failed.
    Html,
    /// JSON or a configuration file.
    Json,
    /// A pointer of git's large file storage.
    GitLfs,
    /// An archive or compressed file.
    Archive,
    /// A native program or library.
    Native,
    /// Anything else.
    Unknown,
}

impl Foreign {
    fn what(self) -> &'static str {
        match self {
            Self::JavaScript => "JavaScript source",
            Self::Python => "Python source",
            Self::Rust => "Rust source",
            Self::Html => "a web page",
            Self::Json => "JSON or another text",
            Self::GitLfs => "a pointer of git's large file storage",
            Self::Archive => "an archive or a compressed file",
            Self::Native => "a native program or library",
            Self::Unknown => "something else",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::JavaScript => {
                "make a component of it first: `jco componentize plugin.js --wit wit -n plugin -o plugin.wasm`"
            }
            Self::Python => {
                "make a component of it first: `componentize-py -d wit -w plugin componentize plugin -o plugin.wasm`"
            }
            Self::Rust => {
                "build it first: `cargo build --release --target wasm32-wasip2`, then give the `.wasm` file under `target/`"
            }
            Self::Html => "the download probably failed: open the file and read it, then fetch the component again",
            Self::GitLfs => "run `git lfs pull` to fetch the file itself",
            Self::Archive => "unpack it first and give the `.wasm` file inside",
            Self::Native => "build the plugin for the target `wasm32-wasip2` instead of for this machine",
            Self::Json | Self::Unknown => {
                "give the `.wasm` file that your build made; for Rust that is `cargo build --target wasm32-wasip2`"
            }
        }
    }
}

impl Refusal {
    /// What to change, in one sentence.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NotAFile { .. } => "give the `.wasm` file itself".into(),
            Self::Empty => "build the plugin again, or fetch it again if it was downloaded".into(),
            Self::NotWasm(foreign) => foreign.hint().into(),
            Self::Text => "turn it into the binary format: `wasm-tools parse plugin.wat -o plugin.wasm`".into(),
            Self::CoreModule { preview1: true } => {
                "build for `wasm32-wasip2` instead of `wasm32-wasip1`, or wrap it: `wasm-tools component new plugin.wasm --adapt wasi_snapshot_preview1.wasm -o plugin.wasm`".into()
            }
            Self::CoreModule { preview1: false } => {
                "build for `wasm32-wasip2` instead of `wasm32-unknown-unknown`, or wrap it: `wasm-tools component new plugin.wasm -o plugin.wasm`".into()
            }
            Self::Precompiled => "give the `.wasm` component it was made from; this host compiles and caches it by itself".into(),
            Self::OtherBinaryVersion { .. } => "build the plugin with current tools (wit-bindgen 0.40 or newer, Rust's target `wasm32-wasip2`)".into(),
            Self::TooLarge { .. } => "strip it (`wasm-tools strip`), or move data out of the component".into(),
            Self::Truncated { .. } => "the file was cut: build or copy it again and compare its size".into(),
            Self::Invalid { .. } => "check it with `wasm-tools validate --features all plugin.wasm`, and build it with current tools".into(),
            Self::Feature { .. } => "build it without that feature: our interfaces are synchronous and need none beyond the component model".into(),
            Self::NoSeam { exports } if exports.iter().any(|name| name.starts_with("wasi:cli/run")) => {
                "it was built as a program: make the crate a library (`crate-type = [\"cdylib\"]`) and export a seam".into()
            }
            Self::NoSeam { .. } => "export at least one seam in the plugin's world, for example `export dsh:tools/provider@0.1.0;`".into(),
            Self::OtherVersion { expected, .. } => format!("build it against the WIT of this host (`{expected}`), or use a host that takes the other version"),
            Self::UnknownSeam { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::UnknownSeam { nearest: None, .. } => "leave the export out, or use a host that has it".into(),
            Self::UnknownImport { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`? Otherwise build the plugin without it"),
            Self::UnknownImport { found, .. } if found == "env" || !found.contains(':') => {
                "a C library is missing at link time: link it statically, or build with the WASI SDK".into()
            }
            Self::UnknownImport { .. } => "build the plugin without it (a feature of a library, or a line of the plugin's world)".into(),
            Self::Shape { .. } => "build it again against the WIT of this host".into(),
            Self::Compile(fault) => fault.hint(),
            Self::Link { .. } => "build it again with current tools and against the WIT of this host".into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAFile { what } => write!(f, "it is {what}, not a file"),
            Self::Empty => write!(f, "the file is empty; this host takes WebAssembly components"),
            Self::NotWasm(foreign) => {
                let what = foreign.what();
                write!(f, "not a WebAssembly component: it looks like {what}; this host takes WebAssembly components")
            }
            Self::Text => write!(
                f,
                "not a WebAssembly component: it is WebAssembly's text format; this host takes the binary format"
            ),
            Self::CoreModule { preview1 } => {
                let with = if *preview1 { " for WASI preview 1" } else { "" };
                write!(f, "it is a core module{with}, not a component; this host takes WebAssembly components")
            }
            Self::Precompiled => {
                write!(
                    f,
                    "it is precompiled machine code, not a component; this host runs no machine code that it has not compiled itself"
                )
            }
            Self::OtherBinaryVersion { version } => {
                write!(
                    f,
                    "its binary format {version:02x?} is not known here; this host takes components (`0d 00 01 00`)"
                )
            }
            Self::TooLarge { bytes } => {
                let (has, most) = (bytes / MIB, MAX_COMPONENT_BYTES / MIB);
                write!(f, "it has {has} MiB; this host takes components of at most {most} MiB")
            }
            Self::Truncated { detail } => write!(f, "the component is cut off: {detail}"),
            Self::Invalid { detail } => write!(f, "not a valid WebAssembly component: {detail}"),
            Self::Feature { detail } => write!(f, "it uses a part of WebAssembly that this host leaves off: {detail}"),
            Self::NoSeam { exports } => {
                let (exports, seams) = (list(exports), seams());
                write!(
                    f,
                    "the component exports none of this host's seams: it exports {exports}; this host takes any of {seams}"
                )
            }
            Self::OtherVersion { found, expected } => {
                write!(f, "the component exports `{found}`, and this host takes `{expected}`")
            }
            Self::UnknownSeam { found, .. } => {
                let seams = seams();
                write!(f, "the component exports `{found}`, which is no seam of this host; it takes any of {seams}")
            }
            Self::UnknownImport { found, .. } => {
                write!(
                    f,
                    "the component imports `{found}`, which this host never provides; it provides {}",
                    list(&crate::contract::provided_packages())
                )
            }
            Self::Shape { direction, interface, difference } => {
                write!(f, "the component {direction} `{interface}` in another shape: {difference}")
            }
            Self::Compile(fault) => write!(f, "{fault}"),
            Self::Link { detail } => write!(f, "the component does not fit this host: {detail}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<CompileFault> for Refusal {
    fn from(fault: CompileFault) -> Self {
        match fault {
            CompileFault::Component { detail } => Self::Link { detail },
            fault => Self::Compile(fault),
        }
    }
}

/// The seams that this host takes.
fn seams() -> String {
    list(&crate::contract::seam_interfaces())
}

/// Names in backticks, joined by commas; at most a dozen.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 12;
    if names.is_empty() {
        return "nothing".into();
    }
    let mut text = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

/// Says what `bytes` are when they are no component, from their first bytes alone.
pub(crate) fn classify(bytes: &[u8]) -> Result<(), Refusal> {
    match bytes {
        [] => return Err(Refusal::Empty),
        [0, b'a', b's', b'm', rest @ ..] => return classify_wasm(rest),
        _ => {}
    }
    if bytes.starts_with(b"\x7fELF") {
        // wasmtime's machine code is an ELF file with sections of its own.
        let precompiled = bytes.windows(9).take(64 * 1024).any(|window| window == b".wasmtime");
        return Err(if precompiled { Refusal::Precompiled } else { Refusal::NotWasm(Foreign::Native) });
    }
    let native: [&[u8]; 4] = [b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"!<arch>"];
    if native.iter().any(|magic| bytes.starts_with(magic)) {
        return Err(Refusal::NotWasm(Foreign::Native));
    }
    let archives: [&[u8]; 5] = [b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ"];
    if archives.iter().any(|magic| bytes.starts_with(magic)) {
        return Err(Refusal::NotWasm(Foreign::Archive));
    }
    let head = &bytes[..bytes.len().min(8 * 1024)];
    Err(match std::str::from_utf8(head) {
        Ok(text) => classify_text(text),
        // A cut in the middle of a character is still text.
        Err(error) if error.error_len().is_none() => {
            classify_text(std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or(""))
        }
        Err(_) => Refusal::NotWasm(Foreign::Unknown),
    })
}

fn classify_wasm(after_magic: &[u8]) -> Result<(), Refusal> {
    match after_magic {
        [0x0d, 0, 1, 0, ..] => Ok(()),
        [1, 0, 0, 0, rest @ ..] => {
            let preview1 = rest.windows(22).any(|window| window == b"wasi_snapshot_preview1");
            Err(Refusal::CoreModule { preview1 })
        }
        [a, b, c, d, ..] => Err(Refusal::OtherBinaryVersion { version: [*a, *b, *c, *d] }),
        _ => Err(Refusal::Truncated { detail: "it ends inside its header".into() }),
    }
}

fn classify_text(text: &str) -> Refusal {
    let code = without_leading_comments(text);
    let starts = |words: &[&str]| words.iter().any(|word| code.starts_with(word));
    if starts(&["(component", "(module", "(;"]) || text.trim_start().starts_with(";;") {
        return Refusal::Text;
    }
    let lower = code.get(..64.min(code.len())).unwrap_or("").to_ascii_lowercase();
    Refusal::NotWasm(if lower.starts_with("<!doctype") || lower.starts_with("<html") {
        Foreign::Html
    } else if starts(&["version https://git-lfs"]) {
        Foreign::GitLfs
    } else if starts(&["#!/usr/bin/env python", "from ", "def ", "class "]) && !code.contains('{')
        || text.contains("import wit_world")
    {
        Foreign::Python
    } else if starts(&["use ", "fn ", "pub ", "mod ", "#!["]) || text.contains("wit_bindgen::generate!") {
        Foreign::Rust
    } else if is_javascript(code) {
        Foreign::JavaScript
    } else if starts(&["{", "[", "\""]) {
        Foreign::Json
    } else {
        Foreign::Unknown
    })
}

fn is_javascript(code: &str) -> bool {
    let words = [
        "import ",
        "import{",
        "export ",
        "const ",
        "let ",
        "var ",
        "function ",
        "async function",
        "class ",
        "module.exports",
        "\"use strict\"",
        "'use strict'",
        "#!/usr/bin/env node",
    ];
    code.lines().map(str::trim_start).any(|line| words.iter().any(|word| line.starts_with(word))) || code.contains("=>")
}

/// The text after blank lines, `//`, `/* */` and `#` comments (but not after `#!`).
fn without_leading_comments(mut text: &str) -> &str {
    loop {
        text = text.trim_start_matches('\u{feff}').trim_start();
        if let Some(rest) = text.strip_prefix("/*") {
            text = rest.split_once("*/").map_or("", |(_, rest)| rest);
        } else if text.starts_with("//") || (text.starts_with('#') && !text.starts_with("#!")) || text.starts_with(";;")
        {
            text = text.split_once('\n').map_or("", |(_, rest)| rest);
        } else {
            return text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_component_are_named() {
        let check = |bytes: &[u8], expect: Refusal| {
            assert_eq!(classify(bytes), Err(expect), "{:?}", String::from_utf8_lossy(bytes))
        };
        check(b"", Refusal::Empty);
        check(b"\0asm\x01\0\0\0", Refusal::CoreModule { preview1: false });
        check(b"\0asm\x01\0\0\0\x02 wasi_snapshot_preview1", Refusal::CoreModule { preview1: true });
        check(b"\0asm\x0c\0\x01\0", Refusal::OtherBinaryVersion { version: [0x0c, 0, 1, 0] });
        check(b"\0asm", Refusal::Truncated { detail: "it ends inside its header".into() });
        check(b"(component)", Refusal::Text);
        check(b"  ;; a comment\n(module)", Refusal::Text);
        check(b"\x7fELF\x02\x01\x01", Refusal::NotWasm(Foreign::Native));
        check(b"\x7fELF........wasmtime.engine", Refusal::Precompiled);
        check(b"PK\x03\x04zip", Refusal::NotWasm(Foreign::Archive));
        check(b"\xff\xfe\x00junk\xff", Refusal::NotWasm(Foreign::Unknown));
        check(b"// a plugin\nexport const request = { handle() {} };\n", Refusal::NotWasm(Foreign::JavaScript));
        check(b"import { readFile } from 'fs';\n", Refusal::NotWasm(Foreign::JavaScript));
        check(b"/* hi */ function handle() {}\n", Refusal::NotWasm(Foreign::JavaScript));
        check(b"from wit_world import exports\nclass Request:\n    pass\n", Refusal::NotWasm(Foreign::Python));
        check(b"use wit_bindgen::generate;\n", Refusal::NotWasm(Foreign::Rust));
        check(b"<!DOCTYPE html><html>", Refusal::NotWasm(Foreign::Html));
        check(b"{\"name\": \"x\"}", Refusal::NotWasm(Foreign::Json));
        check(b"version https://git-lfs.github.com/spec/v1\n", Refusal::NotWasm(Foreign::GitLfs));
        check(b"hello", Refusal::NotWasm(Foreign::Unknown));
    }

    #[test]
    fn a_component_header_is_accepted() {
        assert_eq!(classify(b"\0asm\x0d\0\x01\0"), Ok(()));
    }

    #[test]
    fn every_refusal_has_a_hint() {
        let refusals = [
            Refusal::Empty,
            Refusal::Text,
            Refusal::CoreModule { preview1: true },
            Refusal::Precompiled,
            Refusal::NoSeam { exports: vec!["wasi:cli/run@0.2.6".into()] },
            Refusal::UnknownImport { found: "wasi:nn/graph@0.2.0".into(), nearest: None },
        ];
        for refusal in refusals {
            assert!(!refusal.hint().is_empty(), "{refusal:?}");
            assert!(!refusal.to_string().ends_with('.'), "{refusal}");
        }
    }
}
