//! The shapes of a component's interfaces, read with wasmparser before anything is compiled, and the first place where two differ.
//!
//! The host's own side is a tree ([`Ty`]); the component's side is walked in place, so that a component with enormous types costs no
//! more than the host's own types are large. A shape fits when it is equal: within one version records and variants are frozen.

use std::collections::BTreeMap;
use std::fmt;

use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentDefinedType, ComponentEntityType, ComponentFuncTypeId, ComponentInstanceTypeId,
    ComponentValType, ResourceId,
};
use wasmparser::types::TypesRef;

/// A value's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ty {
    Primitive(String),
    Record(Vec<(String, Ty)>),
    Variant(Vec<(String, Option<Ty>)>),
    List(Box<Ty>),
    Tuple(Vec<Ty>),
    Flags(Vec<String>),
    Enum(Vec<String>),
    Option(Box<Ty>),
    Result(Option<Box<Ty>>, Option<Box<Ty>>),
    Own(String),
    Borrow(String),
    /// A kind of type that none of our interfaces has.
    Foreign(&'static str),
}

/// A function's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FuncTy {
    pub params: Vec<(String, Ty)>,
    pub result: Option<Ty>,
}

/// The functions of one interface, by name.
pub(crate) type Interface = BTreeMap<String, FuncTy>;

/// Where a component's interface differs from this host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The function, or empty for the interface itself.
    pub function: String,
    /// The place inside it, outermost first.
    pub place: Vec<String>,
    /// What this host takes there.
    pub expected: String,
    /// What the component has there.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "function `{}`", self.function)?;
        for place in &self.place {
            write!(f, ", {place}")?;
        }
        write!(f, ": this host takes {}, the component has {}", self.expected, self.found)
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |names: &[String]| names.join(", ");
        match self {
            Self::Primitive(name) => write!(f, "`{name}`"),
            Self::Record(fields) => write!(
                f,
                "a record {{{}}}",
                fields.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
            ),
            Self::Variant(cases) => write!(
                f,
                "a variant {{{}}}",
                cases.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
            ),
            Self::List(item) => write!(f, "a list of {item}"),
            Self::Tuple(items) => write!(f, "a tuple of {}", items.len()),
            Self::Flags(flags) => write!(f, "flags {{{}}}", names(flags)),
            Self::Enum(cases) => write!(f, "an enum {{{}}}", names(cases)),
            Self::Option(inner) => write!(f, "an option of {inner}"),
            Self::Result(..) => write!(f, "a result"),
            Self::Own(name) => write!(f, "a handle of `{name}`"),
            Self::Borrow(name) => write!(f, "a borrowed handle of `{name}`"),
            Self::Foreign(what) => write!(f, "{what}"),
        }
    }
}

/// Reads types out of one validated component.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    types: TypesRef<'a>,
    resources: BTreeMap<ResourceId, String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(types: TypesRef<'a>) -> Self {
        Self { types, resources: BTreeMap::new() }
    }

    /// Learns the names of the resources that an imported interface has.
    pub(crate) fn learn_resources(&mut self, instance: ComponentInstanceTypeId) {
        let exports = self.types[instance].exports.iter();
        let names = exports.filter_map(|(name, item)| resource_of(item).map(|id| (id, name.clone())));
        for (id, name) in names.collect::<Vec<_>>() {
            self.resources.entry(id).or_insert(name);
        }
    }

    /// The functions of an interface, as a tree. For the host's own interfaces, whose size is known.
    pub(crate) fn interface(&self, instance: ComponentInstanceTypeId) -> Interface {
        let functions = self.types[instance].exports.iter().filter_map(|(name, item)| match item {
            ComponentEntityType::Func(id) => Some((name.clone(), self.func(*id))),
            _ => None,
        });
        functions.collect()
    }

    fn func(&self, id: ComponentFuncTypeId) -> FuncTy {
        let func = &self.types[id];
        let params = func.params.iter().map(|(name, ty)| (name.to_string(), self.ty(*ty))).collect();
        FuncTy { params, result: func.result.map(|ty| self.ty(ty)) }
    }

    fn ty(&self, ty: ComponentValType) -> Ty {
        let id = match ty {
            ComponentValType::Primitive(primitive) => return Ty::Primitive(primitive.to_string()),
            ComponentValType::Type(id) => id,
        };
        match &self.types[id] {
            ComponentDefinedType::Primitive(primitive) => Ty::Primitive(primitive.to_string()),
            ComponentDefinedType::Record(record) => {
                Ty::Record(record.fields.iter().map(|(name, ty)| (name.to_string(), self.ty(*ty))).collect())
            }
            ComponentDefinedType::Variant(variant) => Ty::Variant(
                variant.cases.iter().map(|(name, case)| (name.to_string(), case.ty.map(|ty| self.ty(ty)))).collect(),
            ),
            ComponentDefinedType::List(item) => Ty::List(Box::new(self.ty(*item))),
            ComponentDefinedType::Tuple(tuple) => Ty::Tuple(tuple.types.iter().map(|ty| self.ty(*ty)).collect()),
            ComponentDefinedType::Flags(flags) => Ty::Flags(flags.iter().map(ToString::to_string).collect()),
            ComponentDefinedType::Enum(cases) => Ty::Enum(cases.iter().map(ToString::to_string).collect()),
            ComponentDefinedType::Option(inner) => Ty::Option(Box::new(self.ty(*inner))),
            ComponentDefinedType::Result { ok, err } => {
                Ty::Result(ok.map(|ty| Box::new(self.ty(ty))), err.map(|ty| Box::new(self.ty(ty))))
            }
            ComponentDefinedType::Own(resource) => Ty::Own(self.resource(resource.resource())),
            ComponentDefinedType::Borrow(resource) => Ty::Borrow(self.resource(resource.resource())),
            ComponentDefinedType::Future(_) => Ty::Foreign("a future"),
            ComponentDefinedType::Stream(_) => Ty::Foreign("a stream"),
            ComponentDefinedType::Map(..) => Ty::Foreign("a map"),
            ComponentDefinedType::FixedLengthList(..) => Ty::Foreign("a list of fixed length"),
        }
    }

    fn resource(&self, id: ResourceId) -> String {
        self.resources.get(&id).cloned().unwrap_or_else(|| "a resource of its own".into())
    }

    /// The first difference between an interface of the host and the component's. With `all`, the component must have every function
    /// of it (an export); otherwise each that it has must be known (an import).
    pub(crate) fn compare(
        &self,
        expected: &Interface,
        found: ComponentInstanceTypeId,
        all: bool,
    ) -> Option<Difference> {
        let exports = &self.types[found].exports;
        if all {
            for name in expected.keys() {
                if !matches!(exports.get(name.as_str()), Some(ComponentEntityType::Func(_))) {
                    return Some(difference(name, Vec::new(), "it", "no such function"));
                }
            }
        }
        for (name, item) in exports {
            let ComponentEntityType::Func(id) = item else { continue };
            match expected.get(name.as_str()) {
                Some(expected) => {
                    let mut place = Vec::new();
                    if let Some((want, have)) = self.compare_func(expected, *id, &mut place) {
                        place.reverse();
                        return Some(difference(name, place, &want, &have));
                    }
                }
                // What an exported interface has beyond ours is its own affair.
                None if all => {}
                None => {
                    let known = expected.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                    return Some(difference(name, Vec::new(), &format!("only {known}"), "this one"));
                }
            }
        }
        None
    }

    fn compare_func(
        &self,
        expected: &FuncTy,
        id: ComponentFuncTypeId,
        place: &mut Vec<String>,
    ) -> Option<(String, String)> {
        let found = &self.types[id];
        if found.async_ {
            return Some(("a plain `func`".into(), "an `async func`".into()));
        }
        if expected.params.len() != found.params.len()
            || expected.params.iter().zip(&found.params).any(|((a, _), (b, _))| a != b.as_str())
        {
            let want = expected.params.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            let have = found.params.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
            return Some((format!("the parameters ({})", want.join(", ")), format!("({})", have.join(", "))));
        }
        for ((name, want), (_, have)) in expected.params.iter().zip(&found.params) {
            if let Some(found) = self.compare_ty(want, *have, place) {
                place.push(format!("parameter `{name}`"));
                return Some(found);
            }
        }
        let found = self.compare_option(expected.result.as_ref(), found.result, place);
        if found.is_some() {
            place.push("result".into());
        }
        found
    }

    fn compare_option(
        &self,
        want: Option<&Ty>,
        have: Option<ComponentValType>,
        place: &mut Vec<String>,
    ) -> Option<(String, String)> {
        match (want, have) {
            (None, None) => None,
            (Some(want), Some(have)) => self.compare_ty(want, have, place),
            (Some(want), None) => Some((want.to_string(), "nothing".into())),
            (None, Some(have)) => Some(("nothing".into(), self.brief(have))),
        }
    }

    fn compare_ty(&self, want: &Ty, have: ComponentValType, place: &mut Vec<String>) -> Option<(String, String)> {
        let differs = || Some((want.to_string(), self.brief(have)));
        let id = match have {
            ComponentValType::Primitive(primitive) => {
                return if matches!(want, Ty::Primitive(name) if *name == primitive.to_string()) {
                    None
                } else {
                    differs()
                };
            }
            ComponentValType::Type(id) => id,
        };
        match (want, &self.types[id]) {
            (Ty::Primitive(want), ComponentDefinedType::Primitive(have)) if *want == have.to_string() => None,
            (Ty::Record(want), ComponentDefinedType::Record(have)) => {
                if !want.iter().map(|(name, _)| name.as_str()).eq(have.fields.keys().map(|name| name.as_str())) {
                    return differs();
                }
                let fields = want.iter().zip(have.fields.values());
                self.first(
                    fields.map(|((name, want), have)| (format!("field `{name}`"), Some(want), Some(*have))),
                    place,
                )
            }
            (Ty::Variant(want), ComponentDefinedType::Variant(have)) => {
                if !want.iter().map(|(name, _)| name.as_str()).eq(have.cases.keys().map(|name| name.as_str())) {
                    return differs();
                }
                let cases = want.iter().zip(have.cases.values());
                self.first(cases.map(|((name, want), have)| (format!("case `{name}`"), want.as_ref(), have.ty)), place)
            }
            (Ty::Tuple(want), ComponentDefinedType::Tuple(have)) if want.len() == have.types.len() => {
                let items = want.iter().zip(have.types.iter()).enumerate();
                self.first(items.map(|(n, (want, have))| (format!("part {}", n + 1), Some(want), Some(*have))), place)
            }
            (Ty::Result(ok, err), ComponentDefinedType::Result { ok: have_ok, err: have_err }) => {
                let parts =
                    [("`ok`".to_owned(), ok.as_deref(), *have_ok), ("`err`".to_owned(), err.as_deref(), *have_err)];
                self.first(parts.into_iter(), place)
            }
            (Ty::List(want), ComponentDefinedType::List(have)) => {
                self.first([("item".to_owned(), Some(&**want), Some(*have))].into_iter(), place)
            }
            (Ty::Option(want), ComponentDefinedType::Option(have)) => self.compare_ty(want, *have, place),
            (Ty::Flags(want), ComponentDefinedType::Flags(have))
                if want.iter().map(String::as_str).eq(have.iter().map(|name| name.as_str())) =>
            {
                None
            }
            (Ty::Enum(want), ComponentDefinedType::Enum(have))
                if want.iter().map(String::as_str).eq(have.iter().map(|name| name.as_str())) =>
            {
                None
            }
            (Ty::Own(want), ComponentDefinedType::Own(have)) if *want == self.resource(have.resource()) => None,
            (Ty::Borrow(want), ComponentDefinedType::Borrow(have)) if *want == self.resource(have.resource()) => None,
            _ => differs(),
        }
    }

    fn first<'t>(
        &self,
        parts: impl Iterator<Item = (String, Option<&'t Ty>, Option<ComponentValType>)>,
        place: &mut Vec<String>,
    ) -> Option<(String, String)> {
        for (name, want, have) in parts {
            if let Some(found) = self.compare_option(want, have, place) {
                place.push(name);
                return Some(found);
            }
        }
        None
    }

    /// A type in a few words, without walking into it.
    fn brief(&self, ty: ComponentValType) -> String {
        let ComponentValType::Type(id) = ty else {
            return self.ty(ty).to_string();
        };
        match &self.types[id] {
            ComponentDefinedType::List(_) => "a list".into(),
            ComponentDefinedType::Option(_) => "an option".into(),
            ComponentDefinedType::Tuple(tuple) => format!("a tuple of {}", tuple.types.len()),
            ComponentDefinedType::Record(record) => {
                format!("a record {{{}}}", some(record.fields.keys().map(|name| name.as_str())))
            }
            ComponentDefinedType::Variant(variant) => {
                format!("a variant {{{}}}", some(variant.cases.keys().map(|name| name.as_str())))
            }
            ComponentDefinedType::Enum(cases) => {
                format!("an enum {{{}}}", some(cases.iter().map(|name| name.as_str())))
            }
            ComponentDefinedType::Flags(flags) => format!("flags {{{}}}", some(flags.iter().map(|name| name.as_str()))),
            ComponentDefinedType::Result { .. } => "a result".into(),
            _ => self.ty(ty).to_string(),
        }
    }
}

/// The first names of a list that a stranger may have made long.
fn some<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 16;
    let mut names: Vec<&str> = names.take(SHOWN + 1).collect();
    if names.len() > SHOWN {
        names[SHOWN] = "…";
    }
    names.join(", ")
}

fn difference(function: &str, place: Vec<String>, expected: &str, found: &str) -> Difference {
    Difference { function: function.to_owned(), place, expected: expected.to_owned(), found: found.to_owned() }
}

fn resource_of(item: &ComponentEntityType) -> Option<ResourceId> {
    match item {
        ComponentEntityType::Type { created: ComponentAnyTypeId::Resource(id), .. } => Some(id.resource()),
        _ => None,
    }
}
