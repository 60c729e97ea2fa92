//! The shapes of a component's interfaces, read with wasmparser before anything is compiled, and every place where two differ.
//!
//! The host's own side is a tree ([`Ty`]); the component's side is walked along it, so that a component with enormous types costs no
//! more than the host's own types are large. A shape fits when it is equal: within one version records and variants are frozen.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentDefinedType, ComponentDefinedTypeId, ComponentEntityType, ComponentFuncTypeId,
    ComponentInstanceTypeId, ComponentValType, ResourceId,
};
use wasmparser::types::TypesRef;

use crate::difference::{Difference, Lists, Side, nearest_name};

/// A value's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ty {
    Primitive(String),
    Record(Name, Vec<(String, Ty)>),
    Variant(Name, Vec<(String, Option<Ty>)>),
    Flags(Name, Vec<String>),
    Enum(Name, Vec<String>),
    List(Box<Ty>),
    Tuple(Vec<Ty>),
    Option(Box<Ty>),
    Result(Option<Box<Ty>>, Option<Box<Ty>>),
    Own(Resource),
    Borrow(Resource),
    /// A kind of type that none of our interfaces has, in WIT words, or one that is not walked into.
    Other(String),
}

/// The name under which an interface has a type, if it has one.
type Name = Option<String>;

/// A resource, by the name under which an imported interface has it; none: the component's own.
type Resource = Option<String>;

/// A function's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FuncTy {
    pub params: Vec<(String, Ty)>,
    pub result: Option<Ty>,
}

/// What is in one interface.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interface {
    pub functions: BTreeMap<String, FuncTy>,
    pub resources: BTreeSet<String>,
}

/// Which way an interface goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The component imports it.
    Imports,
    /// The component exports it.
    Exports,
}

impl Direction {
    /// As a verb.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Imports => "imports",
            Self::Exports => "exports",
        }
    }
}

/// Fields, cases or parameters that are shown of one type, and levels that are walked into, when a type is put into words.
const SHOWN: usize = 16;
const DEPTH: Extent = Extent::Levels(4);

/// How much of a type is read.
#[derive(Debug, Clone, Copy)]
enum Extent {
    /// All of it: for what is this host's own, whose size is known.
    Whole,
    /// So many levels, and of each no more than is shown.
    Levels(usize),
}

impl Extent {
    /// How many parts of one type are read; one more than is shown tells that there are more.
    fn breadth(self) -> usize {
        match self {
            Self::Whole => usize::MAX,
            Self::Levels(_) => SHOWN + 1,
        }
    }

    /// What is read of the parts; none when they are not looked at.
    fn below(self) -> Option<Self> {
        match self {
            Self::Whole => Some(Self::Whole),
            Self::Levels(levels) => levels.checked_sub(1).map(Self::Levels),
        }
    }
}

impl Ty {
    /// In WIT words. What has a name and is not `whole` is only named.
    pub(crate) fn words(&self, whole: bool) -> String {
        let inner = |ty: &Ty| ty.words(false);
        let part = |ty: &Option<Box<Ty>>| ty.as_ref().map_or_else(|| "_".to_owned(), |ty| inner(ty));
        match self {
            Self::Primitive(name) | Self::Other(name) => name.clone(),
            Self::Record(name, fields) => braced("record", name, whole, fields, |(name, ty)| {
                if whole { format!("{name}: {}", inner(ty)) } else { name.clone() }
            }),
            Self::Variant(name, cases) => braced("variant", name, whole, cases, |(name, ty)| match ty {
                Some(ty) if whole => format!("{name}({})", inner(ty)),
                _ => name.clone(),
            }),
            Self::Flags(name, flags) => braced("flags", name, whole, flags, Clone::clone),
            Self::Enum(name, cases) => braced("enum", name, whole, cases, Clone::clone),
            Self::List(item) => format!("list<{}>", inner(item)),
            Self::Tuple(items) => format!("tuple<{}>", joined(items, inner)),
            Self::Option(item) => format!("option<{}>", inner(item)),
            Self::Result(None, None) => "result".into(),
            Self::Result(Some(ok), None) => format!("result<{}>", inner(ok)),
            Self::Result(ok, err) => format!("result<{}, {}>", part(ok), part(err)),
            Self::Own(Some(name)) => format!("own<{name}>"),
            Self::Borrow(Some(name)) => format!("borrow<{name}>"),
            Self::Own(None) | Self::Borrow(None) => OWN_RESOURCE.into(),
        }
    }
}

/// A handle to what is no resource of this host's, which has no name in WIT.
pub(crate) const OWN_RESOURCE: &str = "a resource of the component's own";

impl FuncTy {
    /// In WIT words.
    pub(crate) fn words(&self) -> String {
        let params = joined(&self.params, |(name, ty)| format!("{name}: {}", ty.words(false)));
        match &self.result {
            Some(result) => format!("func({params}) -> {}", result.words(false)),
            None => format!("func({params})"),
        }
    }
}

fn braced<T>(kind: &str, name: &Name, whole: bool, items: &[T], word: impl Fn(&T) -> String) -> String {
    match name {
        Some(name) if !whole => name.clone(),
        Some(name) => format!("{kind} {name} {{ {} }}", joined(items, word)),
        None => format!("{kind} {{ {} }}", joined(items, word)),
    }
}

/// The first of a list that a stranger may have made long.
fn joined<T>(items: &[T], word: impl Fn(&T) -> String) -> String {
    let mut words: Vec<String> = items.iter().take(SHOWN).map(word).collect();
    if items.len() > SHOWN {
        words.push("…".into());
    }
    words.join(", ")
}

/// Reads types out of one validated component.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    types: TypesRef<'a>,
    resources: BTreeMap<ResourceId, String>,
    names: HashMap<ComponentDefinedTypeId, String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(types: TypesRef<'a>) -> Self {
        Self { types, resources: BTreeMap::new(), names: HashMap::new() }
    }

    /// Learns the names that an interface gives to its types, and, of an imported one, to its resources.
    pub(crate) fn learn(&mut self, instance: ComponentInstanceTypeId, direction: Direction) {
        for (name, item) in &self.types[instance].exports {
            match item {
                ComponentEntityType::Type { created: ComponentAnyTypeId::Resource(id), .. }
                    if direction == Direction::Imports =>
                {
                    self.resources.entry(id.resource()).or_insert_with(|| name.clone());
                }
                ComponentEntityType::Type { created: ComponentAnyTypeId::Defined(id), .. } => {
                    self.names.entry(*id).or_insert_with(|| name.clone());
                }
                _ => {}
            }
        }
    }

    /// An interface as a tree. For the host's own, whose size is known.
    pub(crate) fn interface(&self, instance: ComponentInstanceTypeId) -> Interface {
        let mut interface = Interface::default();
        for (name, item) in &self.types[instance].exports {
            match item {
                ComponentEntityType::Func(id) => {
                    drop(interface.functions.insert(name.clone(), self.func(*id, Extent::Whole)))
                }
                item if is_resource(item) => drop(interface.resources.insert(name.clone())),
                _ => {}
            }
        }
        interface
    }

    fn func(&self, id: ComponentFuncTypeId, extent: Extent) -> FuncTy {
        let func = &self.types[id];
        let params = func.params.iter().take(extent.breadth());
        let params = params.map(|(name, ty)| (name.to_string(), self.ty(*ty, extent))).collect();
        FuncTy { params, result: func.result.map(|ty| self.ty(ty, extent)) }
    }

    /// A type as a tree.
    fn ty(&self, ty: ComponentValType, extent: Extent) -> Ty {
        let id = match ty {
            ComponentValType::Primitive(primitive) => return Ty::Primitive(primitive.to_string()),
            ComponentValType::Type(id) => id,
        };
        let name = self.name(id);
        let Some(less) = extent.below() else {
            return Ty::Other(name.unwrap_or_else(|| "…".into()));
        };
        let shown = extent.breadth();
        let below = |ty: ComponentValType| self.ty(ty, less);
        match &self.types[id] {
            ComponentDefinedType::Primitive(primitive) => Ty::Primitive(primitive.to_string()),
            ComponentDefinedType::Record(record) => Ty::Record(
                name,
                record.fields.iter().take(shown).map(|(name, ty)| (name.to_string(), below(*ty))).collect(),
            ),
            ComponentDefinedType::Variant(variant) => {
                let cases = variant.cases.iter().take(shown);
                Ty::Variant(name, cases.map(|(name, case)| (name.to_string(), case.ty.map(below))).collect())
            }
            ComponentDefinedType::Flags(flags) => {
                Ty::Flags(name, flags.iter().take(shown).map(ToString::to_string).collect())
            }
            ComponentDefinedType::Enum(cases) => {
                Ty::Enum(name, cases.iter().take(shown).map(ToString::to_string).collect())
            }
            ComponentDefinedType::List(item) => Ty::List(Box::new(below(*item))),
            ComponentDefinedType::Tuple(tuple) => {
                Ty::Tuple(tuple.types.iter().take(shown).map(|ty| below(*ty)).collect())
            }
            ComponentDefinedType::Option(inner) => Ty::Option(Box::new(below(*inner))),
            ComponentDefinedType::Result { ok, err } => {
                Ty::Result(ok.map(|ty| Box::new(below(ty))), err.map(|ty| Box::new(below(ty))))
            }
            ComponentDefinedType::Own(resource) => Ty::Own(self.resource(resource.resource())),
            ComponentDefinedType::Borrow(resource) => Ty::Borrow(self.resource(resource.resource())),
            ComponentDefinedType::Future(inner) => Ty::Other(self.around("future", *inner)),
            ComponentDefinedType::Stream(inner) => Ty::Other(self.around("stream", *inner)),
            ComponentDefinedType::Map(key, value) => {
                Ty::Other(format!("map<{}, {}>", below(*key).words(false), below(*value).words(false)))
            }
            ComponentDefinedType::FixedLengthList(item, length) => {
                Ty::Other(format!("list<{}, {length}>", below(*item).words(false)))
            }
        }
    }

    fn around(&self, kind: &str, inner: Option<ComponentValType>) -> String {
        match inner {
            Some(ty) => format!("{kind}<{}>", self.ty(ty, Extent::Levels(1)).words(false)),
            None => kind.to_owned(),
        }
    }

    fn name(&self, mut id: ComponentDefinedTypeId) -> Name {
        loop {
            if let Some(name) = self.names.get(&id) {
                return Some(name.clone());
            }
            id = self.types.peel_alias(id)?;
        }
    }

    fn resource(&self, id: ResourceId) -> Resource {
        self.resources.get(&id).cloned()
    }

    /// Every difference between an interface of the host and the component's. An exported one must have every function of ours, and what
    /// it has beyond is its own affair; of an imported one each function must be known.
    pub(crate) fn compare(
        &self,
        expected: &Interface,
        found: ComponentInstanceTypeId,
        direction: Direction,
    ) -> Vec<Difference> {
        let mut comparison = Comparison { reader: self, function: String::new(), place: Vec::new(), found: Vec::new() };
        let exports = &self.types[found].exports;
        let functions = || exports.iter().filter(|(_, item)| matches!(item, ComponentEntityType::Func(_)));
        let names = || functions().map(|(name, _)| name.as_str());
        if direction == Direction::Exports {
            for (name, function) in &expected.functions {
                if !names().any(|have| have == name) {
                    let strange = names().filter(|have| !expected.functions.contains_key(*have));
                    comparison.missing(name, function, nearest_name(name, strange));
                }
            }
        }
        for (name, item) in exports {
            match item {
                ComponentEntityType::Func(id) => match expected.functions.get(name.as_str()) {
                    Some(function) => comparison.function(name, function, *id),
                    None if direction == Direction::Imports => {
                        let near = nearest_name(name, expected.functions.keys().map(String::as_str));
                        comparison.unknown(name, &self.func(*id, DEPTH), near);
                    }
                    None => {}
                },
                item if is_resource(item)
                    && direction == Direction::Imports
                    && !expected.resources.contains(name.as_str()) =>
                {
                    comparison
                        .unknown_resource(name, nearest_name(name, expected.resources.iter().map(String::as_str)));
                }
                _ => {}
            }
        }
        Difference::once(comparison.found)
    }
}

fn is_resource(item: &ComponentEntityType) -> bool {
    matches!(item, ComponentEntityType::Type { created: ComponentAnyTypeId::Resource(_), .. })
}

/// One comparison of two interfaces.
struct Comparison<'r, 'a> {
    reader: &'r Reader<'a>,
    function: String,
    place: Vec<String>,
    found: Vec<Difference>,
}

/// How a function is called in WIT: `llm-request.model` for a resource's method.
fn shown(function: &str) -> String {
    match function.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some(("constructor", resource)) => format!("{resource}.constructor"),
        Some((_, name)) => name.to_owned(),
        None => function.to_owned(),
    }
}

impl Comparison<'_, '_> {
    fn put(&mut self, expected: Side, found: Side, remark: Option<String>, change: String) {
        let (function, place) = (self.function.clone(), self.place.clone());
        self.found.push(Difference { function, place, expected, found, remark, change, elsewhere: 0 });
    }

    fn missing(&mut self, name: &str, function: &FuncTy, near: Option<&str>) {
        self.function = shown(name);
        let name = shown(name);
        let (remark, change) = match near.map(shown) {
            Some(near) => (Some(format!("it has `{near}`")), format!("rename `{near}` to `{name}`")),
            None => (None, format!("export the function `{name}`")),
        };
        self.put(Side::Wit(function.words()), Side::NoFunction, remark, change);
    }

    fn unknown(&mut self, name: &str, function: &FuncTy, near: Option<&str>) {
        self.function = shown(name);
        let change = match near.map(shown) {
            Some(near) => format!("did you mean `{near}`? Otherwise build the plugin without it"),
            None => "build the plugin without it".into(),
        };
        self.found.push(Difference {
            function: shown(name),
            place: Vec::new(),
            expected: Side::NoFunction,
            found: Side::Wit(function.words()),
            remark: None,
            change,
            elsewhere: 0,
        });
    }

    fn unknown_resource(&mut self, name: &str, near: Option<&str>) {
        let change = match near {
            Some(near) => format!("did you mean `{near}`? Otherwise build the plugin without it"),
            None => "build the plugin without it".into(),
        };
        self.function.clear();
        self.place = vec![format!("resource `{name}`")];
        self.put(Side::NoResource, Side::Resource, None, change);
        self.place.clear();
    }

    fn function(&mut self, name: &str, expected: &FuncTy, id: ComponentFuncTypeId) {
        self.function = shown(name);
        let types = self.reader.types;
        let found = &types[id];
        let words = || self.reader.func(id, DEPTH).words();
        if found.async_ {
            let (expected, found) = (expected.words(), format!("async {}", words()));
            return self.put(Side::Wit(expected), Side::Wit(found), None, "make it a plain `func`".into());
        }
        let want: Vec<&str> = expected.params.iter().map(|(name, _)| name.as_str()).collect();
        let have: Vec<&str> = found.params.iter().map(|(name, _)| name.as_str()).collect();
        if let Some((remark, change)) = (Lists { what: "parameter", want: &want, have: &have }).compare() {
            let words = words();
            self.put(Side::Wit(expected.words()), Side::Wit(words), Some(remark), change);
        }
        for (name, want) in &expected.params {
            if let Some((_, have)) = found.params.iter().find(|(have, _)| have.as_str() == name) {
                self.at(format!("parameter `{name}`"), |this| this.ty(want, *have));
            }
        }
        self.at("result".into(), |this| this.option(expected.result.as_ref(), found.result));
    }

    fn at(&mut self, place: String, inside: impl FnOnce(&mut Self)) {
        self.place.push(place);
        inside(self);
        self.place.pop();
    }

    fn option(&mut self, want: Option<&Ty>, have: Option<ComponentValType>) {
        match (want, have) {
            (None, None) => {}
            (Some(want), Some(have)) => self.ty(want, have),
            (Some(want), None) => {
                self.put(Side::of(want), Side::Nothing, None, format!("make it `{}`", want.words(false)))
            }
            (None, Some(have)) => {
                let have = Side::of(&self.reader.ty(have, DEPTH));
                self.put(Side::Nothing, have, None, "leave it out".into());
            }
        }
    }

    fn differ(&mut self, want: &Ty, have: ComponentValType, why: Option<(String, String)>) {
        let have = self.reader.ty(have, DEPTH);
        let (remark, change) = match why {
            Some((remark, change)) => (Some(remark), change),
            None => resource_words(want, &have).map_or_else(
                || (None, format!("make it `{}`", want.words(false))),
                |(remark, change)| (Some(remark), change),
            ),
        };
        self.put(Side::of(want), Side::of(&have), remark, change);
    }

    /// Compares the names of two lists, reports how they differ, and says whether they are worth walking into.
    fn names<'n>(
        &mut self,
        what: &'static str,
        sides: (&Ty, ComponentValType),
        want: impl Iterator<Item = &'n str>,
        have: impl Iterator<Item = &'n str>,
    ) {
        let (want, have): (Vec<&str>, Vec<&str>) = (want.collect(), have.take(MOST_NAMES).collect());
        if let Some(why) = (Lists { what, want: &want, have: &have }).compare() {
            self.differ(sides.0, sides.1, Some(why));
        }
    }

    fn ty(&mut self, want: &Ty, have: ComponentValType) {
        let id = match have {
            ComponentValType::Primitive(primitive) => {
                if !matches!(want, Ty::Primitive(name) if *name == primitive.to_string()) {
                    self.differ(want, have, None);
                }
                return;
            }
            ComponentValType::Type(id) => id,
        };
        let (sides, types) = ((want, have), self.reader.types);
        match (want, &types[id]) {
            (Ty::Primitive(want), ComponentDefinedType::Primitive(have)) if *want == have.to_string() => {}
            (Ty::Record(_, want), ComponentDefinedType::Record(record)) => {
                let names = want.iter().map(|(name, _)| name.as_str());
                self.names("field", sides, names, record.fields.keys().map(|name| name.as_str()));
                for (name, want) in want {
                    if let Some(have) = record.fields.iter().find(|(have, _)| have.as_str() == name).map(|(_, ty)| ty) {
                        self.at(format!("field `{name}`"), |this| this.ty(want, *have));
                    }
                }
            }
            (Ty::Variant(_, want), ComponentDefinedType::Variant(variant)) => {
                let names = want.iter().map(|(name, _)| name.as_str());
                self.names("case", sides, names, variant.cases.keys().map(|name| name.as_str()));
                for (name, want) in want {
                    if let Some(have) =
                        variant.cases.iter().find(|(have, _)| have.as_str() == name).map(|(_, case)| case)
                    {
                        self.at(format!("case `{name}`"), |this| this.option(want.as_ref(), have.ty));
                    }
                }
            }
            (Ty::Flags(_, want), ComponentDefinedType::Flags(have)) => {
                self.names("flag", sides, want.iter().map(String::as_str), have.iter().map(|name| name.as_str()));
            }
            (Ty::Enum(_, want), ComponentDefinedType::Enum(have)) => {
                self.names("case", sides, want.iter().map(String::as_str), have.iter().map(|name| name.as_str()));
            }
            (Ty::Tuple(want), ComponentDefinedType::Tuple(tuple)) if want.len() == tuple.types.len() => {
                for (n, (want, have)) in want.iter().zip(tuple.types.iter()).enumerate() {
                    self.at(format!("part {}", n + 1), |this| this.ty(want, *have));
                }
            }
            (Ty::Result(ok, err), ComponentDefinedType::Result { ok: have_ok, err: have_err }) => {
                self.at("`ok`".into(), |this| this.option(ok.as_deref(), *have_ok));
                self.at("`err`".into(), |this| this.option(err.as_deref(), *have_err));
            }
            (Ty::List(want), ComponentDefinedType::List(have)) => self.at("item".into(), |this| this.ty(want, *have)),
            (Ty::Option(want), ComponentDefinedType::Option(have)) => self.ty(want, *have),
            (Ty::Own(Some(want)), ComponentDefinedType::Own(have))
            | (Ty::Borrow(Some(want)), ComponentDefinedType::Borrow(have))
                if self.reader.resource(have.resource()).as_deref() == Some(want) => {}
            _ => self.differ(want, have, None),
        }
    }
}

/// Names that are looked at of a list that a stranger may have made long: no interface of ours has as many.
const MOST_NAMES: usize = 1_000;

/// What is to be said when a handle is not the one that is meant.
fn resource_words(want: &Ty, have: &Ty) -> Option<(String, String)> {
    match (want, have) {
        (Ty::Own(Some(want)), Ty::Borrow(Some(have))) if want == have => Some((
            "the handle is borrowed, and this host passes it owned".into(),
            format!("write `{want}` instead of `borrow<{want}>`"),
        )),
        (Ty::Borrow(Some(want)), Ty::Own(Some(have))) if want == have => {
            Some(("the handle is owned, and this host lends it".into(), format!("write `borrow<{want}>`")))
        }
        (Ty::Own(Some(want)), Ty::Own(None) | Ty::Borrow(None)) => Some((
            format!("the component defines the resource itself instead of taking this host's `{want}`"),
            format!("`use` the resource `{want}` from the imported interface that has it"),
        )),
        _ => None,
    }
}
