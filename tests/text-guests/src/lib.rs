//! Components of a few lines of WebAssembly text, for tests: what a guest does wrong is often a thing that no compiler would write.
//!
//! [`component`] makes one of a world and a core module; a [`TextGuest`] is a file that holds both, with what is to come of it.

mod chaos;
mod guest;
mod prelude;
mod repeat;

pub use chaos::{WORDS, WORDS_BYTES, chaos};
pub use guest::{Expected, TextGuest, find};
use std::path::Path;
use std::sync::OnceLock;

pub use wit_parser::Resolve;

/// The contract of this repository, to add packages to.
///
/// # Panics
/// When `wit/` does not parse.
#[must_use]
pub fn contract() -> Resolve {
    static PARSED: OnceLock<Resolve> = OnceLock::new();
    let parse = || {
        let mut resolve = Resolve::default();
        let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
        resolve.push_dir(&wit).expect("the contract parses");
        resolve
    };
    PARSED.get_or_init(parse).clone()
}

/// A component whose core module is `core` and whose world has the lines `world`.
///
/// # Panics
/// When they do not fit.
#[must_use]
pub fn component(world: &str, core: &str) -> Vec<u8> {
    component_with(contract(), world, core)
}

/// The same with the lines of `core` as debug information, as if it were the file `file`.
///
/// # Panics
/// When they do not fit.
#[must_use]
pub fn component_with_lines(world: &str, core: &str, file: &str) -> Vec<u8> {
    let parse = |core: &str| {
        wat::Parser::new().generate_dwarf(wat::GenerateDwarf::Lines).parse_str(Some(Path::new(file)), core)
    };
    encode_as(contract(), world, |_, _| core.to_owned(), parse).unwrap_or_else(|error| panic!("{error}"))
}

/// The same with more WIT packages beside the contract.
///
/// # Panics
/// When they do not fit.
#[must_use]
pub fn component_with(resolve: Resolve, world: &str, core: &str) -> Vec<u8> {
    encode(resolve, world, |_, _| core.to_owned()).unwrap_or_else(|error| panic!("{error}"))
}

/// Makes a component; `core` gets the world to write imports from.
fn encode(
    resolve: Resolve,
    world: &str,
    core: impl FnOnce(&Resolve, wit_parser::WorldId) -> String,
) -> Result<Vec<u8>, String> {
    encode_as(resolve, world, core, |core| wat::parse_str(core))
}

fn encode_as(
    mut resolve: Resolve,
    world: &str,
    core: impl FnOnce(&Resolve, wit_parser::WorldId) -> String,
    parse: impl FnOnce(&str) -> wat::Result<Vec<u8>>,
) -> Result<Vec<u8>, String> {
    let text = format!("package test:guest;\nworld guest {{\n{world}\n}}\n");
    let package = resolve.push_str("guest.wit", &text).map_err(|error| format!("the world: {error:#}"))?;
    let world = resolve.select_world(&[package], Some("guest")).map_err(|error| format!("the world: {error:#}"))?;
    let core = core(&resolve, world);
    let mut module = parse(&core).map_err(|error| format!("the core module: {error}"))?;
    wit_component::embed_component_metadata(&mut module, &resolve, world, wit_component::StringEncoding::UTF8, false)
        .map_err(|error| format!("the metadata: {error:#}"))?;
    let mut encoder = wit_component::ComponentEncoder::default();
    encoder.validate(true).module(&module).map_err(|error| format!("the module in its world: {error:#}"))?;
    encoder.encode().map_err(|error| format!("the module in its world: {error:#}"))
}
