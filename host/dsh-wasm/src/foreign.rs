//! What a file is when it is no component, told from its bytes.

use wasmparser::{Parser, Payload};

use crate::refusal::Refusal;

/// What a file that is not WebAssembly seems to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Foreign {
    /// JavaScript source.
    JavaScript,
    /// TypeScript source.
    TypeScript,
    /// Python source.
    Python,
    /// Rust source.
    Rust,
    /// The WIT of an interface or a world.
    Wit,
    /// A web page, often a download that failed.
    Html,
    /// JSON.
    Json,
    /// Some other text.
    PlainText,
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
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::JavaScript => "JavaScript source",
            Self::TypeScript => "TypeScript source",
            Self::Python => "Python source",
            Self::Rust => "Rust source",
            Self::Wit => "WIT, the description of an interface",
            Self::Html => "a web page",
            Self::Json => "JSON",
            Self::PlainText => "plain text",
            Self::GitLfs => "a pointer of git's large file storage",
            Self::Archive => "an archive or a compressed file",
            Self::Native => "a native program or library",
            Self::Unknown => "binary data of no kind that is known here",
        }
    }

    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::JavaScript => {
                "make a component of it first: `jco componentize plugin.js --wit wit -n plugin -o plugin.wasm`"
            }
            Self::TypeScript => {
                "compile it to JavaScript (`tsc`), then make a component of that: `jco componentize plugin.js --wit wit -n plugin -o plugin.wasm`"
            }
            Self::Python => {
                "make a component of it first: `componentize-py -d wit -w plugin componentize plugin -o plugin.wasm`"
            }
            Self::Rust => {
                "build it first: `cargo build --release --target wasm32-wasip2`, then give the `.wasm` file under `target/`"
            }
            Self::Wit => "build a component that implements it, and give that `.wasm` file",
            Self::Html => "the download probably failed: open the file and read it, then fetch the component again",
            Self::GitLfs => "run `git lfs pull` to fetch the file itself",
            Self::Archive => "unpack it first and give the `.wasm` file inside",
            Self::Native => "build the plugin for the target `wasm32-wasip2` instead of for this machine",
            Self::Json | Self::PlainText | Self::Unknown => {
                "give the `.wasm` file that your build made; for Rust that is `cargo build --target wasm32-wasip2`"
            }
        }
    }
}

/// Whom a core module was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MadeFor {
    /// WASI preview 1: it only lacks an adapter.
    Preview1,
    /// This host: it has the types of our interfaces and only has to be wrapped.
    Components,
    /// Extism.
    Extism,
    /// A web page, by wasm-bindgen.
    WasmBindgen,
    /// A web page, by Emscripten.
    Emscripten,
    /// A web page, by Go.
    Go,
    /// AssemblyScript's own runtime.
    AssemblyScript,
    /// Nobody in particular.
    Nobody,
}

impl MadeFor {
    /// The words behind "a core module".
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Preview1 => " for WASI preview 1",
            Self::Extism => " for Extism",
            Self::WasmBindgen => " for a web page (wasm-bindgen)",
            Self::Emscripten => " for a web page (Emscripten)",
            Self::Go => " for a web page (Go)",
            Self::AssemblyScript => " of AssemblyScript",
            Self::Components | Self::Nobody => "",
        }
    }

    pub(crate) fn hint(self) -> &'static str {
        match self {
            Self::Preview1 => {
                "build for `wasm32-wasip2` instead of `wasm32-wasip1`, or wrap it: `wasm-tools component new plugin.wasm --adapt wasi_snapshot_preview1.wasm -o plugin.wasm`"
            }
            Self::Components => "it only has to be wrapped: `wasm-tools component new plugin.wasm -o plugin.wasm`",
            Self::Extism => {
                "a plugin of Extism has other functions than ours: write it against `wit/`, and build for `wasm32-wasip2`"
            }
            Self::WasmBindgen => "build for `wasm32-wasip2` instead of `wasm32-unknown-unknown`, without wasm-bindgen",
            Self::Emscripten => "build it with the WASI SDK for `wasm32-wasip2` instead of with Emscripten",
            Self::Go => "build it with TinyGo for `wasip2` instead of with `GOOS=js`",
            Self::AssemblyScript => "AssemblyScript cannot make components; use a language that can",
            Self::Nobody => {
                "build for `wasm32-wasip2` instead of `wasm32-unknown-unknown`, or wrap it: `wasm-tools component new plugin.wasm -o plugin.wasm`"
            }
        }
    }

    /// From the modules that it imports, and from the types that wit-bindgen leaves in it.
    fn of(module: &[u8]) -> Self {
        let mut found = Self::Nobody;
        for payload in Parser::new(0).parse_all(module) {
            match payload {
                Ok(Payload::ImportSection(section)) => {
                    for import in section.into_imports().map_while(Result::ok) {
                        found = found.or(Self::of_import(import.module, import.name));
                    }
                }
                Ok(Payload::CustomSection(section)) if section.name().starts_with("component-type") => {
                    found = found.or(Self::Components);
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
        found
    }

    fn of_import(module: &str, name: &str) -> Self {
        match (module, name) {
            ("wasi_snapshot_preview1" | "wasi_unstable", _) => Self::Preview1,
            (module, _) if module.starts_with("extism:") => Self::Extism,
            (module, _) if module.starts_with("dsh:") => Self::Components,
            ("gojs" | "go", _) => Self::Go,
            ("wbg" | "__wbindgen_placeholder__", _) => Self::WasmBindgen,
            (module, _) if module.ends_with("_bg.js") => Self::WasmBindgen,
            ("env", name) if name.starts_with("emscripten") || name.starts_with("invoke_") => Self::Emscripten,
            ("env", "abort") => Self::AssemblyScript,
            _ => Self::Nobody,
        }
    }

    /// The first that says something; a module for Extism may import WASI preview 1 as well, and one of ours too.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nobody, other) => other,
            (Self::Preview1, other @ (Self::Extism | Self::Emscripten)) => other,
            (known, _) => known,
        }
    }
}

/// How much of a file is looked at to see whether it is precompiled: the names of its sections stand at one end of it.
const LOOKED_AT: usize = 256 * 1024;
/// How much of a text is looked at.
const HEAD: usize = 8 * 1024;

/// Says what `bytes` are when they are no component.
pub(crate) fn classify(bytes: &[u8]) -> Result<(), Refusal> {
    const MAGIC: &[u8] = b"\0asm";
    match bytes {
        [] => return Err(Refusal::Empty),
        [0, b'a', b's', b'm', rest @ ..] => return classify_wasm(bytes, rest),
        _ if MAGIC.starts_with(bytes) => return Err(in_header()),
        _ => {}
    }
    if bytes.starts_with(b"\x7fELF") {
        // wasmtime's machine code is an ELF file with sections of its own.
        let (head, tail) = (&bytes[..bytes.len().min(LOOKED_AT)], &bytes[bytes.len().saturating_sub(LOOKED_AT)..]);
        let precompiled = [head, tail].iter().any(|part| part.windows(9).any(|window| window == b".wasmtime"));
        return Err(if precompiled { Refusal::Precompiled } else { Refusal::NotWasm(Foreign::Native) });
    }
    let native: [&[u8]; 6] =
        [b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"!<arch>", b"BC\xc0\xde"];
    if native.iter().any(|magic| bytes.starts_with(magic)) {
        return Err(Refusal::NotWasm(Foreign::Native));
    }
    let archives: [&[u8]; 5] = [b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ"];
    let is_tar = bytes.get(257..262) == Some(b"ustar");
    if is_tar || archives.iter().any(|magic| bytes.starts_with(magic)) {
        return Err(Refusal::NotWasm(Foreign::Archive));
    }
    let head = &bytes[..bytes.len().min(HEAD)];
    Err(match std::str::from_utf8(head) {
        Ok(text) => classify_text(text),
        // A cut in the middle of a character is still text.
        Err(error) if error.error_len().is_none() => {
            classify_text(std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or(""))
        }
        Err(_) => Refusal::NotWasm(Foreign::Unknown),
    })
}

fn in_header() -> Refusal {
    Refusal::Truncated { detail: "it ends inside its header".into() }
}

fn classify_wasm(bytes: &[u8], after_magic: &[u8]) -> Result<(), Refusal> {
    match after_magic {
        [0x0d, 0, 1, 0, ..] => Ok(()),
        [1, 0, 0, 0, ..] => Err(Refusal::CoreModule { made_for: MadeFor::of(bytes) }),
        [a, b, c, d, ..] => Err(Refusal::OtherBinaryVersion { version: [*a, *b, *c, *d] }),
        _ => Err(in_header()),
    }
}

fn classify_text(text: &str) -> Refusal {
    let code = without_leading_comments(text);
    let starts = |words: &[&str]| words.iter().any(|word| code.starts_with(word));
    if starts(&["(component", "(module", "(;"]) || text.trim_start().starts_with(";;") {
        return Refusal::Text;
    }
    if text.contains('\0') {
        return Refusal::NotWasm(Foreign::Unknown);
    }
    let lower = code.chars().take(64).collect::<String>().to_ascii_lowercase();
    let is_page = ["<!doctype", "<html", "<?xml", "<head", "<error"].iter().any(|tag| lower.starts_with(tag));
    Refusal::NotWasm(if is_page {
        Foreign::Html
    } else if starts(&["version https://git-lfs"]) {
        Foreign::GitLfs
    } else if is_wit(code) {
        Foreign::Wit
    } else if starts(&["#!/usr/bin/env python", "#!/usr/bin/python", "from ", "def ", "class "]) && !code.contains('{')
        || text.contains("import wit_world")
    {
        Foreign::Python
    } else if starts(&["use ", "fn ", "pub ", "mod ", "#![", "extern crate "])
        || text.contains("wit_bindgen::generate!")
    {
        Foreign::Rust
    } else if starts(&["{", "["]) {
        Foreign::Json
    } else if is_typescript(code) {
        Foreign::TypeScript
    } else if is_javascript(code) {
        Foreign::JavaScript
    } else {
        Foreign::PlainText
    })
}

/// It begins with `package ns:name;`, or with an interface or a world in braces.
fn is_wit(code: &str) -> bool {
    let first = code.lines().next().unwrap_or("");
    let package =
        first.strip_prefix("package ").is_some_and(|rest| rest.contains(':') && rest.trim_end().ends_with(';'));
    let world = first.starts_with("world ") && first.trim_end().ends_with('{');
    package || world || first.starts_with("interface ") && code.contains(": func(")
}

fn is_typescript(code: &str) -> bool {
    let words =
        ["import type ", "export type ", "export interface ", "interface ", "type ", "declare ", "enum ", "namespace "];
    let typed = [": string", ": number", ": boolean", ": void", ": Promise<", " as const"];
    let lines = || code.lines().map(str::trim_start);
    lines().any(|line| words.iter().any(|word| line.starts_with(word)))
        || is_javascript(code) && typed.iter().any(|word| code.contains(word))
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

    fn check(bytes: &[u8], expect: Refusal) {
        assert_eq!(classify(bytes), Err(expect), "{:?}", String::from_utf8_lossy(bytes));
    }

    #[test]
    fn files_that_are_no_component_are_named() {
        check(b"", Refusal::Empty);
        check(b"\0asm\x0c\0\x01\0", Refusal::OtherBinaryVersion { version: [0x0c, 0, 1, 0] });
        check(b"\0", in_header());
        check(b"\0as", in_header());
        check(b"\0asm", in_header());
        check(b"\0asm\x0d\0\x01", in_header());
        check(b"(component)", Refusal::Text);
        check(b"  ;; a comment\n(module)", Refusal::Text);
        check(b"\x7fELF\x02\x01\x01", Refusal::NotWasm(Foreign::Native));
        check(b"\x7fELF........wasmtime.engine", Refusal::Precompiled);
        check(b"PK\x03\x04zip", Refusal::NotWasm(Foreign::Archive));
        check(b"\xff\xfe\x00junk\xff", Refusal::NotWasm(Foreign::Unknown));
        check(b"\0\x01\x02\x03", Refusal::NotWasm(Foreign::Unknown));
        check(b"// a plugin\nexport const request = { handle() {} };\n", Refusal::NotWasm(Foreign::JavaScript));
        check(b"import { readFile } from 'fs';\n", Refusal::NotWasm(Foreign::JavaScript));
        check(b"/* hi */ function handle() {}\n", Refusal::NotWasm(Foreign::JavaScript));
        check(b"export function handle(at: number): string { return ''; }\n", Refusal::NotWasm(Foreign::TypeScript));
        check(b"import type { Step } from './wit';\n", Refusal::NotWasm(Foreign::TypeScript));
        check(b"from wit_world import exports\nclass Request:\n    pass\n", Refusal::NotWasm(Foreign::Python));
        check(b"use wit_bindgen::generate;\n", Refusal::NotWasm(Foreign::Rust));
        check(b"package dsh:tools@0.1.0;\n\ninterface guard {}\n", Refusal::NotWasm(Foreign::Wit));
        check(b"<!DOCTYPE html><html>", Refusal::NotWasm(Foreign::Html));
        check(b"<?xml version='1.0'?><Error/>", Refusal::NotWasm(Foreign::Html));
        check(b"{\"name\": \"x\"}", Refusal::NotWasm(Foreign::Json));
        check(b"version https://git-lfs.github.com/spec/v1\n", Refusal::NotWasm(Foreign::GitLfs));
        check(b"hello", Refusal::NotWasm(Foreign::PlainText));
        let cut = [&b"hello "[..], &"ä".as_bytes()[..1]].concat();
        check(&cut, Refusal::NotWasm(Foreign::PlainText));
    }

    #[test]
    fn core_modules_are_told_apart() {
        let check = |text: &str, expect: MadeFor| {
            let module = wat::parse_str(text).expect("a module");
            check(&module, Refusal::CoreModule { made_for: expect });
        };
        let import = |module: &str, name: &str| format!("(module (import \"{module}\" \"{name}\" (func)))");
        check("(module)", MadeFor::Nobody);
        check(&import("env", "puts"), MadeFor::Nobody);
        check(&import("wasi_snapshot_preview1", "fd_write"), MadeFor::Preview1);
        check(&import("extism:host/env", "input_length"), MadeFor::Extism);
        check(&import("dsh:llm/model@0.1.0", "generate"), MadeFor::Components);
        check(&import("./plugin_bg.js", "x"), MadeFor::WasmBindgen);
        check(&import("env", "emscripten_notify_memory_growth"), MadeFor::Emscripten);
        check(&import("gojs", "runtime.wasmExit"), MadeFor::Go);
        check(&import("env", "abort"), MadeFor::AssemblyScript);
    }

    #[test]
    fn a_component_header_is_accepted() {
        assert_eq!(classify(b"\0asm\x0d\0\x01\0"), Ok(()));
    }
}
