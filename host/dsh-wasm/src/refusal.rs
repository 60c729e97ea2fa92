//! Why a file cannot be a plugin of this host: one catalogue of messages for the load and for `plugin check`.
//!
//! Each refusal says in the author's words what the file is or has, what this host takes, and what to change. `Display` gives the
//! first two; [`Refusal::hint`] the third. What a stranger wrote into the file is shortened and shown without control characters.

use std::fmt;

use crate::compile::CompileFault;
use crate::contract;
use crate::difference::Difference;
use crate::foreign::{Foreign, MadeFor};
use crate::limits::{MAX_COMPONENT_BYTES, MIB, MOST_INSTANCES};
use crate::shape::Direction;

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
        /// Whom it was made for.
        made_for: MadeFor,
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
        /// Which parts, when that could be found out.
        names: Vec<&'static str>,
        /// What the validator met.
        detail: String,
    },
    /// It instantiates its modules more often than any plugin may.
    TooManyInstances {
        /// How often.
        count: u64,
    },
    /// It exports none of the seams.
    NoSeam {
        /// What it exports.
        exports: Vec<String>,
        /// What it imports.
        imports: Vec<String>,
    },
    /// It imports or exports an interface of this host in another version.
    OtherVersion {
        /// Which way.
        direction: Direction,
        /// What it has.
        found: String,
        /// What this host has.
        expected: String,
    },
    /// It exports something under `dsh:` that is no seam, or something that is almost one.
    UnknownSeam {
        /// What it exports.
        found: String,
        /// The seam with the nearest name.
        nearest: Option<String>,
    },
    /// It exports one seam in two versions that both fit.
    SeamTwice {
        /// The one.
        first: String,
        /// The other.
        second: String,
    },
    /// It imports something that this host never provides.
    UnknownImport {
        /// What it imports.
        found: String,
        /// What this host has under a like name.
        nearest: Option<String>,
    },
    /// It imports or exports something else than an interface under an interface's name.
    NoInterface {
        /// Which way.
        direction: Direction,
        /// Under which name.
        name: String,
    },
    /// It imports or exports one of our interfaces in another shape.
    Shape {
        /// Which way.
        direction: Direction,
        /// The interface.
        interface: String,
        /// Where and how the two differ.
        difference: Box<Difference>,
    },
    /// What it says about the most it will ask for cannot be understood.
    Ceiling {
        /// What is wrong.
        why: String,
        /// What to change.
        change: String,
    },
    /// It cannot be compiled.
    Compile(CompileFault),
    /// Everything looked right, and yet it cannot be linked.
    Link {
        /// What the linker met.
        detail: String,
    },
    /// Several of these; [`Refusal::each`] gives them one by one.
    Several(Vec<Refusal>),
}

impl Refusal {
    /// One refusal of many; none of none.
    pub(crate) fn of(mut all: Vec<Refusal>) -> Option<Refusal> {
        if all.len() > 1 { Some(Self::Several(all)) } else { all.pop() }
    }

    /// Everything that is wrong, one by one.
    #[must_use]
    pub fn each(&self) -> &[Refusal] {
        match self {
            Self::Several(all) => all,
            one => std::slice::from_ref(one),
        }
    }

    /// What kind of refusal it is, for a program.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotAFile { .. } => "not-a-file",
            Self::Empty => "empty",
            Self::NotWasm(_) => "not-wasm",
            Self::Text => "text-format",
            Self::CoreModule { .. } => "core-module",
            Self::Precompiled => "precompiled",
            Self::OtherBinaryVersion { .. } => "binary-version",
            Self::TooLarge { .. } => "too-large",
            Self::Truncated { .. } => "truncated",
            Self::Invalid { .. } => "invalid",
            Self::Feature { .. } => "feature",
            Self::TooManyInstances { .. } => "too-many-instances",
            Self::NoSeam { .. } => "no-seam",
            Self::OtherVersion { .. } => "other-version",
            Self::UnknownSeam { .. } => "unknown-seam",
            Self::SeamTwice { .. } => "seam-twice",
            Self::UnknownImport { .. } => "unknown-import",
            Self::NoInterface { .. } => "no-interface",
            Self::Shape { .. } => "other-shape",
            Self::Ceiling { .. } => "ceiling",
            Self::Compile(_) => "compile",
            Self::Link { .. } => "link",
            Self::Several(_) => "several",
        }
    }

    /// What to change, in one sentence.
    #[must_use]
    pub fn hint(&self) -> String {
        let text = match self {
            Self::NotAFile { .. } => "give the `.wasm` file itself".into(),
            Self::Empty => "build the plugin again, or fetch it again if it was downloaded".into(),
            Self::NotWasm(foreign) => foreign.hint().into(),
            Self::Text => "turn it into the binary format: `wasm-tools parse plugin.wat -o plugin.wasm`".into(),
            Self::CoreModule { made_for } => made_for.hint().into(),
            Self::Precompiled => {
                "give the `.wasm` component it was made from; this host compiles and caches it by itself".into()
            }
            Self::OtherBinaryVersion { .. } => {
                "build the plugin with current tools (wit-bindgen 0.40 or newer, Rust's target `wasm32-wasip2`)".into()
            }
            Self::TooLarge { .. } => "strip it (`wasm-tools strip`), or move data out of the component".into(),
            Self::Truncated { .. } => "the file was cut: build or copy it again and compare its size".into(),
            Self::Invalid { .. } => {
                "check it with `wasm-tools validate --features all plugin.wasm`, and build it with current tools".into()
            }
            Self::Feature { .. } => {
                "build it without that: our interfaces are synchronous and need nothing beyond the component model"
                    .into()
            }
            Self::TooManyInstances { .. } => {
                "instantiate each component inside it once and share it; what toolchains make has fewer than ten".into()
            }
            Self::NoSeam { exports, imports } => no_seam_hint(exports, imports),
            Self::OtherVersion { found, expected, .. } => other_version_hint(found, expected),
            Self::UnknownSeam { nearest: Some(nearest), .. } => format!("did you mean `{nearest}`?"),
            Self::UnknownSeam { found, nearest: None } if contract::is_provided(found) => {
                "this host provides it to plugins: import it instead".into()
            }
            Self::UnknownSeam { .. } => "leave the export out, or use a host that has it".into(),
            Self::SeamTwice { first, .. } => format!("keep one of them, for example `{first}`"),
            Self::UnknownImport { found, nearest } => unknown_import_hint(found, nearest.as_deref()),
            Self::NoInterface { .. } => "write it as an interface, as in the WIT of this host".into(),
            Self::Shape { difference, .. } => {
                format!("{}; the bindings are best made from the WIT of this host", difference.change)
            }
            Self::Ceiling { change, .. } => change.clone(),
            Self::Compile(fault) => fault.hint(),
            Self::Link { .. } => "build it again with current tools and against the WIT of this host".into(),
            Self::Several(all) => all.iter().map(Self::hint).collect::<Vec<_>>().join("; "),
        };
        tame(&text)
    }

    fn words(&self) -> String {
        match self {
            Self::NotAFile { what } => format!("it is {what}, not a file"),
            Self::Empty => "the file is empty; this host takes WebAssembly components".into(),
            Self::NotWasm(foreign) => {
                let what = foreign.what();
                format!("not a WebAssembly component: it looks like {what}; this host takes WebAssembly components")
            }
            Self::Text => {
                "not a WebAssembly component: it is WebAssembly's text format; this host takes the binary format".into()
            }
            Self::CoreModule { made_for } => {
                let made_for = made_for.words();
                format!("it is a core module{made_for}, not a component; this host takes WebAssembly components")
            }
            Self::Precompiled => {
                "it is precompiled machine code, not a component; this host runs no machine code that it has not compiled itself"
                    .into()
            }
            Self::OtherBinaryVersion { version } => other_binary_version(*version),
            Self::TooLarge { bytes } => {
                let (has, most) = (bytes / MIB, MAX_COMPONENT_BYTES / MIB);
                format!("it has {has} MiB; this host takes components of at most {most} MiB")
            }
            Self::Truncated { detail } => format!("the component is cut off: {detail}"),
            Self::Invalid { detail } => format!("not a valid WebAssembly component: {detail}"),
            Self::Feature { names, detail } if names.is_empty() => {
                format!("it uses a part of WebAssembly that this host leaves off: {detail}")
            }
            Self::Feature { names, detail } => {
                format!("it uses {}, which this host leaves off: {detail}", names.join(" and "))
            }
            Self::TooManyInstances { count } => {
                format!("it makes {count} instances of its modules; this host takes components that make at most {MOST_INSTANCES}")
            }
            Self::NoSeam { exports, .. } => {
                let (exports, seams) = (list(exports), seams());
                format!("the component exports none of this host's seams: it exports {exports}; this host takes any of {seams}")
            }
            Self::OtherVersion { direction: Direction::Exports, found, expected } => {
                format!("the component exports {}, and this host takes `{expected}`", name(found))
            }
            Self::OtherVersion { direction: Direction::Imports, found, expected } => {
                format!("the component imports {}, and this host provides `{expected}`", name(found))
            }
            Self::UnknownSeam { found, .. } => {
                let seams = seams();
                format!("the component exports {}, which is no seam of this host; it takes any of {seams}", name(found))
            }
            Self::SeamTwice { first, second } => {
                format!("the component exports one seam twice, as {} and as {}", name(first), name(second))
            }
            Self::UnknownImport { found, .. } => {
                let provided = list(&contract::provided_packages());
                format!("the component imports {}, which this host never provides; it provides {provided}", name(found))
            }
            Self::NoInterface { direction, name: under } => {
                format!("the component {} {} as something else than an interface", direction.verb(), name(under))
            }
            Self::Shape { direction, interface, difference } => {
                format!("the component {} {} in another shape: {difference}", direction.verb(), name(interface))
            }
            Self::Ceiling { why, .. } => why.clone(),
            Self::Compile(fault) => fault.to_string(),
            Self::Link { detail } => format!("the component does not fit this host: {detail}"),
            Self::Several(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; and "),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&tame(&self.words()))
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

fn other_binary_version([a, b, c, d]: [u8; 4]) -> String {
    // The number of the format, then 1 for components and 0 for core modules.
    let what = match (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])) {
        (..=0x0c, 1) => "is one of the component format before it was settled",
        (_, 1) => "is a newer one of components",
        (_, 0) => "is an unknown one of core modules",
        _ => "is not known here",
    };
    format!("its binary format `{a:02x} {b:02x} {c:02x} {d:02x}` {what}; this host takes components (`0d 00 01 00`)")
}

fn no_seam_hint(exports: &[String], imports: &[String]) -> String {
    const EXPORT_ONE: &str =
        "export at least one seam in the plugin's world, for example `export dsh:tools/provider@0.1.0;`";
    let has = |start: &str| exports.iter().chain(imports).any(|name| name.starts_with(start));
    if let Some(host) = other_host(has) {
        return format!("it was made for {host}, which has other interfaces: {EXPORT_ONE}");
    }
    if exports.iter().any(|name| name.starts_with("wasi:cli/run")) {
        return "it was built as a program: make the crate a library (`crate-type = [\"cdylib\"]`) and export a seam"
            .into();
    }
    if exports.iter().any(|name| name.starts_with("wasi:http/incoming-handler")) {
        return format!("it was made to answer web requests (`wasi:http/proxy`): {EXPORT_ONE}");
    }
    if exports.is_empty() {
        return format!("{EXPORT_ONE}; if it did, the file may be cut off: compare its size");
    }
    EXPORT_ONE.into()
}

/// Whose component it is, from the names of packages.
fn other_host(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let hosts =
        [("fermyon:", "Spin"), ("spin:", "Spin"), ("zed:", "Zed"), ("wasmcloud:", "wasmCloud"), ("golem:", "Golem")];
    hosts.iter().find(|(start, _)| has(start)).map(|(_, host)| *host)
}

fn other_version_hint(found: &str, expected: &str) -> String {
    if found.starts_with("wasi:") {
        return "build it for WASI 0.2 (Rust's target `wasm32-wasip2`)".into();
    }
    match contract::age(found) {
        contract::Age::Unknown => format!("name the version: `{expected}`"),
        contract::Age::Newer => format!("build it against the WIT of this host (`{expected}`), or use a newer host"),
        contract::Age::Older => format!("build it against the WIT of this host (`{expected}`)"),
    }
}

fn unknown_import_hint(found: &str, nearest: Option<&str>) -> String {
    if let Some(nearest) = nearest {
        return format!("did you mean `{nearest}`? Otherwise build the plugin without it");
    }
    if contract::is_seam(found) {
        return "it is a seam: export it instead".into();
    }
    if let Some(host) = other_host(|start| found.starts_with(start)) {
        return format!("it was made for {host}, which has other interfaces: build the plugin without it");
    }
    let instead = [
        ("wasi:keyvalue", "keep values with `dsh:plugin/state`"),
        ("wasi:nn", "ask a model with `dsh:llm/model`"),
        ("wasi:logging", "write lines with `log` of `dsh:plugin/runtime`"),
        ("wasi:config", "read the configuration with `config` of `dsh:plugin/runtime`"),
        ("wasi:runtime-config", "read the configuration with `config` of `dsh:plugin/runtime`"),
        ("wasi:blobstore", "use files below a granted directory (`wasi:filesystem`)"),
        ("wasi:messaging", "send to the agent with `dsh:agent/inbox`"),
        ("wasi:tls", "make https requests with `wasi:http/outgoing-handler`"),
    ];
    match instead.iter().find(|(package, _)| found.strip_prefix(package).is_some_and(|rest| rest.starts_with('/'))) {
        Some((_, instead)) => format!("{instead} instead"),
        None if !found.contains(':') => {
            "a C library is missing at link time: link it statically, or build with the WASI SDK".into()
        }
        None => "build the plugin without it (a feature of a library, or a line of the plugin's world)".into(),
    }
}

/// The seams that this host takes.
fn seams() -> String {
    list(&contract::seam_interfaces())
}

/// Names in backticks, joined by commas; at most a dozen.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 12;
    if names.is_empty() {
        return "nothing".into();
    }
    let mut text = names.iter().take(SHOWN).map(|known| name(known)).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

/// A name that a stranger may have made long.
fn name(name: &str) -> String {
    const SHOWN: usize = 128;
    let mut shown: String = name.chars().take(SHOWN).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// What a library said, on one line.
pub(crate) fn one_line(error: &impl fmt::Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text without what would change how a terminal shows the rest: control characters and marks of direction.
pub(crate) fn tame(text: &str) -> String {
    let wild = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if wild(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_wrote_cannot_draw() {
        let refusal =
            Refusal::NoSeam { exports: vec!["\x1b[2Jfits\n\u{202e}".into(), "x".repeat(300)], imports: vec![] };
        let text = refusal.to_string();
        assert!(text.contains(r"`\u{1b}[2Jfits\u{a}\u{202e}`"), "{text}");
        assert!(text.contains(&format!("`{}…`", "x".repeat(128))), "{text}");
    }

    #[test]
    fn several_are_told_one_by_one() {
        let both = Refusal::of(vec![Refusal::Empty, Refusal::Text]).expect("two");
        assert_eq!(both.each(), [Refusal::Empty, Refusal::Text]);
        assert_eq!(Refusal::of(vec![Refusal::Empty]), Some(Refusal::Empty));
        assert_eq!(Refusal::of(vec![]), None);
        assert!(both.to_string().contains("; and not a WebAssembly component"), "{both}");
    }
}
