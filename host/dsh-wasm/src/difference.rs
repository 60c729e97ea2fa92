//! One place where a component's interface and this host's differ, in words: who has what, and what to change.

use std::fmt;

use crate::shape::{OWN_RESOURCE, Ty};

/// What one of the two has at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// Not a thing.
    Nothing,
    /// No function of that name.
    NoFunction,
    /// No resource of that name.
    NoResource,
    /// A resource of that name.
    Resource,
    /// A handle to a resource that the component defines itself.
    OwnResource,
    /// A type or a function, in WIT.
    Wit(String),
}

impl Side {
    /// A type, told whole.
    pub(crate) fn of(ty: &Ty) -> Self {
        match ty {
            Ty::Own(None) | Ty::Borrow(None) => Self::OwnResource,
            ty => Self::Wit(ty.words(true)),
        }
    }

    /// What this host does with it.
    fn verb(&self) -> &'static str {
        match self {
            Self::NoFunction | Self::NoResource => "has",
            Self::Nothing | Self::Resource | Self::OwnResource | Self::Wit(_) => "takes",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::NoFunction => f.write_str("no such function"),
            Self::NoResource => f.write_str("no such resource"),
            Self::Resource => f.write_str("one"),
            Self::OwnResource => f.write_str(OWN_RESOURCE),
            Self::Wit(words) => write!(f, "`{words}`"),
        }
    }
}

/// Where a component's interface differs from this host's. Types are in WIT words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The function, or empty for the interface itself.
    pub function: String,
    /// The place inside it, outermost first.
    pub place: Vec<String>,
    /// What this host takes there.
    pub expected: Side,
    /// What the component has there.
    pub found: Side,
    /// What exactly is different, where the two do not show it at a glance.
    pub remark: Option<String>,
    /// What to change.
    pub change: String,
    /// In how many more places of the interface the same is different.
    pub elsewhere: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = Some(format!("function `{}`", self.function)).filter(|_| !self.function.is_empty());
        let place: Vec<&str> = function.as_deref().into_iter().chain(self.place.iter().map(String::as_str)).collect();
        let (place, verb) = (place.join(", "), self.expected.verb());
        write!(f, "{place}: this host {verb} {}, the component has {}", self.expected, self.found)?;
        if let Some(remark) = &self.remark {
            write!(f, ": {remark}")?;
        }
        match self.elsewhere {
            0 => Ok(()),
            1 => write!(f, " (and the same in one more place)"),
            more => write!(f, " (and the same in {more} more places)"),
        }
    }
}

impl Difference {
    /// One difference of a type that many functions use is one thing to change, so it is told once.
    pub(crate) fn once(all: Vec<Difference>) -> Vec<Difference> {
        let mut told: Vec<Difference> = Vec::new();
        for difference in all {
            let same = |known: &&mut Difference| {
                known.place.last() == difference.place.last()
                    && known.expected == difference.expected
                    && known.found == difference.found
                    && !difference.place.is_empty()
            };
            match told.iter_mut().find(same) {
                Some(known) => known.elsewhere += 1,
                None => told.push(difference),
            }
        }
        told
    }
}

/// Two lists of names that should be the same.
pub(crate) struct Lists<'a> {
    /// What one of them is called.
    pub what: &'static str,
    /// This host's.
    pub want: &'a [&'a str],
    /// The component's.
    pub have: &'a [&'a str],
}

impl Lists<'_> {
    /// How the component's differs, and what to change; none when it does not.
    pub(crate) fn compare(&self) -> Option<(String, String)> {
        if self.want == self.have {
            return None;
        }
        let without = |all: &[&str], some: &[&str]| -> Vec<String> {
            all.iter().filter(|one| !some.contains(one)).map(|one| (*one).to_owned()).collect()
        };
        let (missing, extra) = (without(self.want, self.have), without(self.have, self.want));
        if let ([missing], [extra]) = (missing.as_slice(), extra.as_slice())
            && self.want.len() == self.have.len()
        {
            let remark = format!("the {} `{missing}` is called `{extra}`", self.what);
            return Some((remark, format!("rename `{extra}` to `{missing}`")));
        }
        let lacks = (!missing.is_empty()).then(|| format!("it lacks {}", self.listed(&missing)));
        let adds = (!extra.is_empty()).then(|| format!("it has {} beyond this host's", self.listed(&extra)));
        let add = (!missing.is_empty()).then(|| format!("add {}", self.listed(&missing)));
        let remove = (!extra.is_empty()).then(|| format!("remove {}", self.listed(&extra)));
        let joined = |parts: [Option<String>; 2]| parts.into_iter().flatten().collect::<Vec<_>>().join(" and ");
        Some(if missing.is_empty() && extra.is_empty() {
            let order = format!("the {}s are in another order", self.what);
            (order, format!("put the {}s in this host's order", self.what))
        } else {
            (joined([lacks, adds]), joined([add, remove]))
        })
    }

    fn listed(&self, names: &[String]) -> String {
        const SHOWN: usize = 8;
        let mut shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        if names.len() > SHOWN {
            shown.push(format!("{} more", names.len() - SHOWN));
        }
        let plural = if names.len() == 1 { "" } else { "s" };
        format!("the {}{plural} {}", self.what, shown.join(", "))
    }
}

/// The name that is most like `name`, if any is like it at all.
pub(crate) fn nearest_name<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    const LIKE: usize = 3;
    let scored = known.map(|known| (distance(name, known), known));
    // A short name is near to any other short name.
    scored
        .min()
        .filter(|(distance, known)| *distance <= LIKE && *distance * 2 < known.len().max(name.len()))
        .map(|(_, known)| known)
}

/// Levenshtein's distance, on bytes: names here are short ASCII.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 128;
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_differ_in_words() {
        let check = |want: &[&str], have: &[&str], expect: Option<(&str, &str)>| {
            let found = Lists { what: "field", want, have }.compare();
            assert_eq!(
                found,
                expect.map(|(remark, change)| (remark.to_owned(), change.to_owned())),
                "{want:?} {have:?}"
            );
        };
        check(&["a", "b"], &["a", "b"], None);
        check(&["a", "b"], &["a"], Some(("it lacks the field `b`", "add the field `b`")));
        check(
            &["a"],
            &["a", "b", "c"],
            Some(("it has the fields `b`, `c` beyond this host's", "remove the fields `b`, `c`")),
        );
        check(
            &["a", "b"],
            &["b", "a"],
            Some(("the fields are in another order", "put the fields in this host's order")),
        );
        check(&["a", "b"], &["a", "c"], Some(("the field `b` is called `c`", "rename `c` to `b`")));
        check(
            &["a", "b"],
            &["c"],
            Some((
                "it lacks the fields `a`, `b` and it has the field `c` beyond this host's",
                "add the fields `a`, `b` and remove the field `c`",
            )),
        );
    }

    #[test]
    fn the_nearest_name_is_like_the_wrong_one() {
        let check =
            |name: &str, expect: Option<&str>| assert_eq!(nearest_name(name, ["check", "run"].into_iter()), expect);
        check("chekc", Some("check"));
        check("rnu", None);
        check("runs", Some("run"));
        check("frobnicate", None);
    }
}
