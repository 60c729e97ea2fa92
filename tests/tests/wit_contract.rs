//! The contract in `wit/`: it parses, every item is documented, and what was released stays as it was.
//!
//! Within one version records, variants, enums and functions are frozen; an interface may be added, and so may a method of a
//! resource. Two gates hold this: the files of a released version are compared byte by byte with sums that are pinned here, and
//! the working copy is compared with them item by item.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use wit_parser::{
    Docs, Function, FunctionKind, Handle, Interface, Resolve, Type, TypeDef, TypeDefKind, TypeId, World, WorldItem,
};

/// Every released version and the SHA-256 of its `SHA256SUMS`. A new one is made by `cargo xtask freeze VERSION`, which prints its line.
const RELEASED: &[(&str, &str)] = &[("0.1.0", "e270e54187ae6ca4d5959642faae919530a90f1ae762a761a69123b734097a7a")];

/// The packages of the contract; those of others (`wasi:…`) are not ours to freeze.
const NAMESPACE: &str = "dsh";

/// One item of the contract, by its path (`dsh:llm/llm-types@0.1.0 record message`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    /// The whole shape as text; two items with equal shapes are the same to every plugin.
    shape: String,
    documented: bool,
    /// Whether it may be added to a released interface.
    may_grow: bool,
}

type Items = BTreeMap<String, Item>;

fn wit() -> PathBuf {
    dsh_tests::root().join("wit")
}

fn read_contract(folder: &Path) -> Resolve {
    let mut resolve = Resolve::default();
    let plugin = std::fs::read_to_string(folder.join("plugin.wit")).expect("the contract has a `plugin.wit`");
    assert!(plugin.contains("package dsh:plugin@"), "`plugin.wit` names its package");
    if let Err(error) = resolve.push_dir(folder) {
        panic!("{} does not parse: {error:?}", folder.display());
    }
    resolve
}

/// Every item of our packages.
fn items(resolve: &Resolve) -> Items {
    let mut found = Items::new();
    for (_, package) in resolve.packages.iter().filter(|(_, package)| package.name.namespace == NAMESPACE) {
        add(&mut found, format!("package {}", package.name), String::new(), &package.docs, true);
        for (name, id) in &package.interfaces {
            let path = package.name.interface_id(name);
            add_interface(&mut found, resolve, &path, &resolve.interfaces[*id]);
        }
        for (name, id) in &package.worlds {
            add_world(&mut found, resolve, &package.name.interface_id(name), &resolve.worlds[*id]);
        }
    }
    found
}

fn add(found: &mut Items, path: String, shape: String, docs: &Docs, may_grow: bool) {
    let documented = docs.contents.as_ref().is_some_and(|text| !text.trim().is_empty());
    found.insert(path, Item { shape, documented, may_grow });
}

fn add_interface(found: &mut Items, resolve: &Resolve, path: &str, interface: &Interface) {
    add(found, format!("{path} interface"), String::new(), &interface.docs, true);
    for (name, id) in &interface.types {
        add_type(found, resolve, &format!("{path} type {name}"), &resolve.types[*id]);
    }
    for (name, function) in &interface.functions {
        let may_grow = !matches!(function.kind, FunctionKind::Freestanding | FunctionKind::AsyncFreestanding);
        add(found, format!("{path} func {name}"), function_shape(resolve, function), &function.docs, may_grow);
    }
}

/// A type and its fields or cases. A type taken from another interface (`use`) is documented where it is defined.
fn add_type(found: &mut Items, resolve: &Resolve, path: &str, definition: &TypeDef) {
    if let TypeDefKind::Type(Type::Id(target)) = definition.kind
        && resolve.types[target].owner != definition.owner
    {
        return;
    }
    add(found, path.to_owned(), kind_shape(resolve, &definition.kind), &definition.docs, false);
    let mut member = |name: &str, docs: &Docs| add(found, format!("{path}.{name}"), String::new(), docs, false);
    match &definition.kind {
        TypeDefKind::Record(record) => record.fields.iter().for_each(|field| member(&field.name, &field.docs)),
        TypeDefKind::Variant(variant) => variant.cases.iter().for_each(|case| member(&case.name, &case.docs)),
        TypeDefKind::Enum(cases) => cases.cases.iter().for_each(|case| member(&case.name, &case.docs)),
        TypeDefKind::Flags(flags) => flags.flags.iter().for_each(|flag| member(&flag.name, &flag.docs)),
        _ => {}
    }
}

/// A world and what it imports and exports. A world may grow: an old plugin has its own.
fn add_world(found: &mut Items, resolve: &Resolve, path: &str, world: &World) {
    add(found, format!("{path} world"), String::new(), &world.docs, true);
    for (verb, entries) in [("import", &world.imports), ("export", &world.exports)] {
        for (key, item) in entries {
            // What stands in a world is a name; its documentation is at the interface.
            let shape = if matches!(item, WorldItem::Interface { .. }) { "interface" } else { "item" };
            let docs = Docs { contents: Some("at the interface".to_owned()) };
            add(found, format!("{path} {verb} {}", resolve.name_world_key(key)), shape.to_owned(), &docs, true);
        }
    }
}

fn function_shape(resolve: &Resolve, function: &Function) -> String {
    let params: Vec<_> =
        function.params.iter().map(|param| format!("{}: {}", param.name, type_shape(resolve, &param.ty))).collect();
    let result =
        function.result.as_ref().map_or(String::new(), |result| format!(" -> {}", type_shape(resolve, result)));
    let kind = match function.kind {
        FunctionKind::Freestanding => "func",
        FunctionKind::AsyncFreestanding => "async func",
        FunctionKind::Method(_) => "method",
        FunctionKind::AsyncMethod(_) => "async method",
        FunctionKind::Static(_) => "static func",
        FunctionKind::AsyncStatic(_) => "static async func",
        FunctionKind::Constructor(_) => "constructor",
        _ => panic!("`{}` is a function of a kind that the contract does not use", function.name),
    };
    format!("{kind}({}){result}", params.join(", "))
}

fn type_shape(resolve: &Resolve, ty: &Type) -> String {
    match ty {
        Type::Id(id) => named_shape(resolve, *id),
        plain => format!("{plain:?}").to_lowercase(),
    }
}

/// A named type is its name: its own shape is compared where it is defined.
fn named_shape(resolve: &Resolve, id: TypeId) -> String {
    let definition = &resolve.types[id];
    match (&definition.name, &definition.kind) {
        (Some(_), TypeDefKind::Type(Type::Id(target))) if resolve.types[*target].name.is_some() => {
            named_shape(resolve, *target)
        }
        (Some(name), _) => name.clone(),
        (None, kind) => kind_shape(resolve, kind),
    }
}

fn kind_shape(resolve: &Resolve, kind: &TypeDefKind) -> String {
    let of = |ty: &Type| type_shape(resolve, ty);
    let maybe = |ty: &Option<Type>| ty.as_ref().map_or("_".to_owned(), of);
    match kind {
        TypeDefKind::Record(record) => {
            let fields = record.fields.iter().map(|field| format!("{}: {}", field.name, of(&field.ty)));
            braces("record", fields)
        }
        TypeDefKind::Variant(variant) => {
            let cases = variant.cases.iter().map(|case| match &case.ty {
                Some(ty) => format!("{}({})", case.name, of(ty)),
                None => case.name.clone(),
            });
            braces("variant", cases)
        }
        TypeDefKind::Enum(cases) => braces("enum", cases.cases.iter().map(|case| case.name.clone())),
        TypeDefKind::Flags(flags) => braces("flags", flags.flags.iter().map(|flag| flag.name.clone())),
        TypeDefKind::Tuple(tuple) => format!("tuple<{}>", tuple.types.iter().map(of).collect::<Vec<_>>().join(", ")),
        TypeDefKind::Option(ty) => format!("option<{}>", of(ty)),
        TypeDefKind::List(ty) => format!("list<{}>", of(ty)),
        TypeDefKind::FixedLengthList(ty, length) => format!("list<{}, {length}>", of(ty)),
        TypeDefKind::Map(key, value) => format!("map<{}, {}>", of(key), of(value)),
        TypeDefKind::Result(result) => format!("result<{}, {}>", maybe(&result.ok), maybe(&result.err)),
        TypeDefKind::Future(ty) => format!("future<{}>", maybe(ty)),
        TypeDefKind::Stream(ty) => format!("stream<{}>", maybe(ty)),
        TypeDefKind::Handle(Handle::Own(id)) => format!("own<{}>", named_shape(resolve, *id)),
        TypeDefKind::Handle(Handle::Borrow(id)) => format!("borrow<{}>", named_shape(resolve, *id)),
        TypeDefKind::Type(ty) => of(ty),
        TypeDefKind::Resource => "resource".to_owned(),
        TypeDefKind::Unknown => "unknown".to_owned(),
    }
}

fn braces(word: &str, parts: impl Iterator<Item = String>) -> String {
    format!("{word} {{ {} }}", parts.collect::<Vec<_>>().join(", "))
}

/// The paths of items that nobody has documented.
fn undocumented(items: &Items) -> Vec<&str> {
    items.iter().filter(|(_, item)| !item.documented).map(|(path, _)| path.as_str()).collect()
}

/// What the working copy does to a released version that breaks its plugins, a line each.
fn breaks(released: &Items, now: &Items) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, item) in released {
        match now.get(path) {
            None => faults.push(format!("{path}: was released and is gone")),
            Some(other) if other.shape != item.shape => {
                faults.push(format!("{path}: was released as `{}` and is `{}`", item.shape, other.shape));
            }
            Some(_) => {}
        }
    }
    for (path, _) in now.iter().filter(|(path, item)| !item.may_grow && !released.contains_key(*path)) {
        let interface = path.split(' ').next().unwrap_or_default();
        if released.contains_key(&format!("{interface} interface")) {
            faults.push(format!("{path}: added to a released interface; put it into a new one"));
        }
    }
    faults
}

/// All files of a frozen version but the sums, with `/`, sorted.
fn frozen_files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("a frozen folder can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).expect("below the folder").to_string_lossy().replace('\\', "/");
            if name != "SHA256SUMS" && name != "README.md" {
                found.push((name, std::fs::read(&path).expect("a frozen file can be read")));
            }
        }
    }
    found.sort();
    found
}

/// The text of `SHA256SUMS` for these files, as `sha256sum` writes it.
fn sums(files: &[(String, Vec<u8>)]) -> String {
    files.iter().fold(String::new(), |mut text, (name, bytes)| {
        writeln!(text, "{}  {name}", hex(bytes)).expect("writing to a string does not fail");
        text
    })
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
        text
    })
}

/// What differs between the files and their pinned sums.
fn check_frozen(files: &[(String, Vec<u8>)], recorded: &str, pinned: &str) -> Result<(), String> {
    if hex(recorded.as_bytes()) != pinned {
        return Err("`SHA256SUMS` is not the one that was released".to_owned());
    }
    let now = sums(files);
    if now == recorded {
        return Ok(());
    }
    let (before, after): (Vec<_>, Vec<_>) = (recorded.lines().collect(), now.lines().collect());
    let name = |line: &&str| line.split("  ").nth(1).unwrap_or_default().to_owned();
    let mut changed: Vec<_> = before.iter().filter(|line| !after.contains(line)).map(name).collect();
    changed.extend(after.iter().filter(|line| !before.contains(line)).map(name));
    changed.sort();
    changed.dedup();
    Err(format!("released files were changed, added or removed: {}", changed.join(", ")))
}

#[test]
fn the_contract_parses_and_every_item_is_documented() {
    let items = items(&read_contract(&wit()));
    assert!(items.len() > 300, "the walk over the contract found only {} items", items.len());
    assert_eq!(undocumented(&items), Vec::<&str>::new());
}

#[test]
fn released_files_are_unchanged() {
    for (version, pinned) in RELEASED {
        let folder = wit().join("frozen").join(version);
        let recorded = std::fs::read_to_string(folder.join("SHA256SUMS")).expect("a frozen version has its sums");
        assert_eq!(check_frozen(&frozen_files(&folder), &recorded, pinned), Ok(()), "version {version}");
    }
}

#[test]
fn the_working_copy_breaks_no_released_version() {
    let now = items(&read_contract(&wit()));
    for (version, _) in RELEASED {
        let released = items(&read_contract(&wit().join("frozen").join(version)));
        assert_eq!(breaks(&released, &now), Vec::<String>::new(), "version {version}");
    }
}

#[test]
fn every_frozen_folder_is_pinned() {
    let Ok(entries) = std::fs::read_dir(wit().join("frozen")) else {
        assert!(RELEASED.is_empty(), "a version is pinned and `wit/frozen` is not there");
        return;
    };
    let folders = entries.map(|entry| entry.expect("an entry can be read").path()).filter(|path| path.is_dir());
    for folder in folders {
        let name = folder.file_name().expect("a folder has a name").to_string_lossy().into_owned();
        assert!(RELEASED.iter().any(|(version, _)| *version == name), "`wit/frozen/{name}` is not pinned in RELEASED");
    }
}

const SAMPLE: &str = "
/// A package.
package dsh:sample@0.1.0;
/// An interface.
interface one {
  /// A record.
  record pair { 
    /// Left.
    left: u32 }
  /// A resource.
  resource thing { 
    /// A method.
    get: func() -> pair; }
  /// A function.
  run: func(at: pair) -> result<option<string>, pair>;
}
/// A world.
world all { export one; }
";

fn sample(text: &str) -> Items {
    let mut resolve = Resolve::default();
    resolve.push_str("sample.wit", text).expect("the sample parses");
    items(&resolve)
}

#[test]
fn a_missing_comment_is_reported() {
    assert_eq!(undocumented(&sample(SAMPLE)), Vec::<&str>::new());
    let check = |comment: &str, expect: &str| {
        let bare = SAMPLE.replace(comment, "");
        assert_eq!(undocumented(&sample(&bare)), [expect]);
    };
    check("/// A package.", "package dsh:sample@0.1.0");
    check("/// An interface.", "dsh:sample/one@0.1.0 interface");
    check("/// A record.", "dsh:sample/one@0.1.0 type pair");
    check("/// Left.", "dsh:sample/one@0.1.0 type pair.left");
    check("/// A method.", "dsh:sample/one@0.1.0 func [method]thing.get");
    check("/// A function.", "dsh:sample/one@0.1.0 func run");
    check("/// A world.", "dsh:sample/all@0.1.0 world");
}

#[test]
fn a_breaking_change_is_reported() {
    let check = |from: &str, to: &str, expect: &[&str]| {
        assert!(SAMPLE.contains(from));
        assert_eq!(breaks(&sample(SAMPLE), &sample(&SAMPLE.replace(from, to))), expect);
    };
    check(
        "left: u32",
        "left: u64",
        &["dsh:sample/one@0.1.0 type pair: was released as `record { left: u32 }` and is `record { left: u64 }`"],
    );
    check(
        "option<string>",
        "string",
        &["dsh:sample/one@0.1.0 func run: was released as `func(at: pair) -> result<option<string>, pair>` and is \
           `func(at: pair) -> result<string, pair>`"],
    );
    check("get: func() -> pair;", "", &["dsh:sample/one@0.1.0 func [method]thing.get: was released and is gone"]);
    check(
        "/// A function.",
        "more: func();",
        &["dsh:sample/one@0.1.0 func more: added to a released interface; put it into a new one"],
    );
}

#[test]
fn growth_by_methods_and_interfaces_is_no_break() {
    let check = |from: &str, to: &str| {
        assert_eq!(breaks(&sample(SAMPLE), &sample(&SAMPLE.replace(from, to))), Vec::<String>::new());
    };
    check("get: func() -> pair;", "get: func() -> pair; more: func();");
    check("/// A world.", "interface two { record new { left: u32 } run: func(); }");
    check("export one;", "export one; import two: interface { run: func(); }");
}

#[test]
fn a_changed_released_file_is_noticed() {
    let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    let released = [file("deps/llm/llm.wit", "a"), file("plugin.wit", "b")];
    let recorded = sums(&released);
    let pinned = hex(recorded.as_bytes());
    let check = |files: &[(String, Vec<u8>)], recorded: &str, expect: Result<(), &str>| {
        assert_eq!(check_frozen(files, recorded, &pinned), expect.map_err(str::to_owned));
    };
    check(&released, &recorded, Ok(()));
    let changed = [file("deps/llm/llm.wit", "a"), file("plugin.wit", "c")];
    check(&changed, &recorded, Err("released files were changed, added or removed: plugin.wit"));
    check(&changed, &sums(&changed), Err("`SHA256SUMS` is not the one that was released"));
    check(&released[1..], &recorded, Err("released files were changed, added or removed: deps/llm/llm.wit"));
}
