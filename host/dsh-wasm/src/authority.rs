//! What a plugin may do and where it takes part, once its file, its ceiling and the operator's choice are put together, and whether
//! that is more than what somebody agreed to before.

use crate::ceiling::CeilingEntry;
use crate::grants::{Grant, GrantPath, Grants, NetRule};
use crate::inspect::Inspection;
use crate::plugin::LoadError;
use crate::words::Seam;

/// What is in force for one plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// What it may do.
    pub grants: Grants,
    /// What its ceiling took away.
    pub taken: Vec<Taken>,
    /// The seams that it takes part in, in their own order.
    pub seams: Vec<Seam>,
}

/// A grant of which a plugin's ceiling leaves less or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// As it was granted.
    pub grant: Grant,
    /// What is left of it.
    pub left: Vec<Grant>,
}

impl Inspection {
    /// What is in force for this file under `grants` and `seams` (none: all that it exports).
    ///
    /// # Errors
    /// When `seams` names one that it does not export.
    pub fn authority(&self, grants: Grants, seams: Option<&[Seam]>) -> Result<Authority, LoadError> {
        let seams = self.chosen_seams(seams)?;
        let (grants, taken) = below(grants, self.ceiling.as_deref());
        Ok(Authority { grants, taken, seams })
    }

    fn chosen_seams(&self, chosen: Option<&[Seam]>) -> Result<Vec<Seam>, LoadError> {
        let exports = &self.seams;
        let Some(chosen) = chosen else { return Ok(exports.clone()) };
        if let Some(seam) = chosen.iter().find(|seam| !exports.contains(seam)) {
            return Err(LoadError::NoSuchSeam { seam: *seam, exports: exports.clone() });
        }
        // The configuration is checked whatever it may take part in.
        Ok(exports.iter().copied().filter(|seam| chosen.contains(seam) || *seam == Seam::Configure).collect())
    }
}

impl Grants {
    /// Those of these grants that let through more than `allowed` does, each once.
    ///
    /// Of overlapping directories the longest prefix decides, so leaving out `fs:read:docs` beside `fs:write:.` is asking for more.
    #[must_use]
    pub fn beyond(&self, allowed: &Grants) -> Vec<Grant> {
        let paths = || self.iter().chain(allowed.iter()).filter_map(directory);
        let beyond = |asked: &Grant| match asked {
            Grant::FsRead(_) | Grant::FsWrite(_) => {
                paths().any(|at| decides(self, at) == Some(asked) && access(decides(allowed, at)) < access(Some(asked)))
            }
            Grant::Net(asked) => {
                !allowed.iter().any(|allowed| matches!(allowed, Grant::Net(rule) if includes(rule, asked)))
            }
            _ => !allowed.has(asked),
        };
        self.iter().filter(|asked| beyond(asked)).cloned().collect()
    }
}

/// What is left below a plugin's ceiling, and of which grants it took something away.
fn below(grants: Grants, ceiling: Option<&[CeilingEntry]>) -> (Grants, Vec<Taken>) {
    let Some(ceiling) = ceiling else { return (grants, Vec::new()) };
    let mut kept = directories_below(&grants, ceiling);
    for grant in grants.iter() {
        match grant {
            Grant::FsRead(_) | Grant::FsWrite(_) => {}
            Grant::Net(rule) => kept.extend(ceiling.iter().filter_map(|entry| net_below(grant, rule, entry))),
            _ => kept.extend(ceiling.iter().any(|entry| begins(entry, grant)).then(|| grant.clone())),
        }
    }
    let kept = Grants::new(kept);
    let left = |grant: &Grant| {
        let within = Grants::new([grant.clone()]);
        kept.iter().filter(|kept| Grants::new([(*kept).clone()]).beyond(&within).is_empty()).cloned().collect()
    };
    let taken = grants.beyond(&kept).into_iter().map(|grant| Taken { left: left(&grant), grant }).collect();
    (kept, taken)
}

/// Whether a line of a ceiling is the grant or its first words.
fn begins(entry: &CeilingEntry, grant: &Grant) -> bool {
    let (grant, entry) = (grant.to_string(), entry.capability.as_str());
    grant.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

fn net_below(grant: &Grant, rule: &NetRule, entry: &CeilingEntry) -> Option<Grant> {
    if begins(entry, grant) {
        return Some(grant.clone());
    }
    match entry.capability.parse() {
        Ok(Grant::Net(most)) if includes(&most, rule) => Some(grant.clone()),
        Ok(Grant::Net(most)) if includes(rule, &most) => Some(Grant::Net(most)),
        _ => None,
    }
}

/// The lesser of what was granted and what the ceiling has, directory by directory: at each that either of them names.
fn directories_below(grants: &Grants, ceiling: &[CeilingEntry]) -> Vec<Grant> {
    let named: Vec<Grant> = ceiling.iter().filter_map(|entry| entry.capability.parse().ok()).collect();
    let most = |at: &GrantPath| {
        let by_word = ceiling.iter().map(|entry| match entry.capability.as_str() {
            "fs" | "fs:write" => 2,
            "fs:read" => 1,
            _ => 0,
        });
        let covers = |grant: &&Grant| directory(grant).is_some_and(|path| is_below(&at.normal, &path.normal));
        by_word.chain(named.iter().filter(covers).map(|grant| access(Some(grant)))).max().unwrap_or(0)
    };
    let least = |at: &GrantPath| most(at).min(access(decides(grants, at)));
    let granted: Vec<&GrantPath> = grants.iter().filter_map(directory).collect();
    // A directory of the ceiling inside a granted one counts where it is more than what is left around it.
    let around = |at: &GrantPath| decides(grants, at).and_then(directory).map_or(0, least);
    let inside = named.iter().filter_map(directory).filter(|at| least(at) > around(at));
    let all = granted.iter().copied().chain(inside);
    let grant = |at: &GrantPath| match least(at) {
        2 => Some(Grant::FsWrite(at.clone())),
        1 => Some(Grant::FsRead(at.clone())),
        _ => None,
    };
    all.filter_map(grant).collect()
}

fn directory(grant: &Grant) -> Option<&GrantPath> {
    match grant {
        Grant::FsRead(path) | Grant::FsWrite(path) => Some(path),
        _ => None,
    }
}

fn access(grant: Option<&Grant>) -> u8 {
    match grant {
        Some(Grant::FsWrite(_)) => 2,
        Some(Grant::FsRead(_)) => 1,
        _ => 0,
    }
}

/// The grant that decides about a path: that of the longest prefix, and of two for the same directory the wider.
fn decides<'g>(grants: &'g Grants, at: &GrantPath) -> Option<&'g Grant> {
    let covering = grants.iter().filter_map(|grant| Some((grant, directory(grant)?)));
    let covering = covering.filter(|(_, path)| is_below(&at.normal, &path.normal));
    covering.max_by_key(|(grant, path)| (depth(&path.normal), access(Some(grant)))).map(|(grant, _)| grant)
}

fn is_below(path: &str, directory: &str) -> bool {
    directory == "." || path == directory || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

fn depth(directory: &str) -> usize {
    if directory == "." { 0 } else { directory.len() }
}

/// Whether one rule lets through all that another does.
fn includes(allowed: &NetRule, asked: &NetRule) -> bool {
    let ports = match (allowed.port, asked.port) {
        (None, None) | (Some(443), None) => true,
        (allowed, asked) => allowed == asked,
    };
    let below = |host: &str| host.strip_suffix(&allowed.host).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'));
    let hosts = match (allowed.subdomains, asked.subdomains) {
        (false, false) => allowed.host == asked.host,
        (false, true) => false,
        (true, false) => below(&asked.host),
        (true, true) => allowed.host == asked.host || below(&asked.host),
    };
    ports && hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_for_more_is_noticed_and_less_is_not() {
        let grants = |list: &[&str]| Grants::new(list.iter().map(|text| text.parse::<Grant>().expect("a grant")));
        let check = |allowed: &[&str], asked: &[&str], expect: &[&str]| {
            let beyond: Vec<String> = grants(asked).beyond(&grants(allowed)).iter().map(ToString::to_string).collect();
            assert_eq!(beyond, expect, "{allowed:?} {asked:?}");
        };
        check(&[], &[], &[]);
        check(&["llm", "process"], &["llm"], &[]);
        check(&["llm"], &["process"], &["process"]);
        check(&["env:TERM"], &["env:TERM", "env:HOME"], &["env:HOME"]);
        check(&["fs:read:."], &["fs:read:docs"], &[]);
        check(&["fs:write:."], &["fs:read:docs", "fs:write:target/"], &[]);
        check(&["fs:read:docs"], &["fs:read:."], &["fs:read:."]);
        check(&["fs:read:docs"], &["fs:read:docs2"], &["fs:read:docs2"]);
        check(&["fs:read:docs"], &["fs:write:docs"], &["fs:write:docs"]);
        check(&["fs:read:docs"], &["fs:read:./docs/"], &[]);
        check(&["fs:write:.", "fs:read:docs"], &["fs:write:."], &["fs:write:."]);
        check(&["fs:write:.", "fs:read:docs"], &["fs:write:src", "fs:read:."], &[]);
        check(&["net:a.com"], &["net:a.com"], &[]);
        check(&["net:a.com:443"], &["net:a.com"], &[]);
        check(&["net:a.com"], &["net:a.com:443"], &["net:a.com:443"]);
        check(&["net:*.a.com"], &["net:b.a.com", "net:*.b.a.com"], &[]);
        check(&["net:*.a.com"], &["net:a.com", "net:evila.com"], &["net:a.com", "net:evila.com"]);
        check(&["net:a.com"], &["net:*.a.com"], &["net:*.a.com"]);
        check(&["net:a.com:80"], &["net:a.com:81"], &["net:a.com:81"]);
    }

    #[test]
    fn a_ceiling_only_takes_away() {
        let check = |ceiling: &[&str], granted: &[&str], expect: &[&str], taken: &[&str]| {
            let entry = |text: &&str| CeilingEntry { capability: (*text).into(), reason: String::new() };
            let ceiling: Vec<_> = ceiling.iter().map(entry).collect();
            let grants = Grants::new(granted.iter().map(|text| text.parse::<Grant>().expect("a grant")));
            let (kept, lost) = below(grants, Some(&ceiling));
            let words = |grants: Vec<&Grant>| grants.iter().map(ToString::to_string).collect::<Vec<_>>();
            assert_eq!(words(kept.iter().collect()), expect, "{ceiling:?} {granted:?}");
            assert_eq!(words(lost.iter().map(|taken| &taken.grant).collect()), taken, "{ceiling:?} {granted:?}");
        };
        check(&["llm"], &["llm", "process"], &["llm"], &["process"]);
        check(&[], &["llm"], &[], &["llm"]);
        check(&["env"], &["env:TERM"], &["env:TERM"], &[]);
        check(&["env:TERM"], &["env:TERM", "env:HOME"], &["env:TERM"], &["env:HOME"]);
        check(&["fs"], &["fs:write:."], &["fs:write:."], &[]);
        check(&["fs:read"], &["fs:read:docs"], &["fs:read:docs"], &[]);
        check(&["fs:read"], &["fs:write:docs"], &["fs:read:docs"], &["fs:write:docs"]);
        check(&["fs:write"], &["fs:read:docs"], &["fs:read:docs"], &[]);
        check(&["fs:write:docs"], &["fs:write:."], &["fs:write:docs"], &["fs:write:."]);
        check(&["fs:write:docs"], &["fs:write:.", "fs:read:docs"], &["fs:read:docs"], &["fs:write:."]);
        check(&["fs:read", "fs:write:docs"], &["fs:write:."], &["fs:read:.", "fs:write:docs"], &["fs:write:."]);
        check(&["fs:read:docs"], &["fs:read:docs/deep"], &["fs:read:docs/deep"], &[]);
        check(&["fs:read:docs"], &["fs:read:src"], &[], &["fs:read:src"]);
        check(&["net"], &["net:a.com:80"], &["net:a.com:80"], &[]);
        check(&["net:a.com"], &["net:a.com:80"], &["net:a.com:80"], &[]);
        check(&["net:a.com"], &["net:b.com"], &[], &["net:b.com"]);
        check(&["net:*.a.com"], &["net:b.a.com"], &["net:b.a.com"], &[]);
        check(&["net:b.a.com"], &["net:*.a.com"], &["net:b.a.com"], &["net:*.a.com"]);
    }
}
