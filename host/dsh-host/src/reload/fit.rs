//! Which of several new versions can come into use together: the tools of all plugins must go together.

use std::collections::BTreeSet;

use dsh_seam::Failure;

/// A new version, by the place of its plugin, that cannot come into use yet, and why.
pub type Left = (usize, Failure);

/// Chooses among `newer`, by place, those that go together with each other and with the versions `in_use` of the other plugins: all, or
/// as many as there are when one after the other is added.
pub fn choose<T>(
    in_use: &[T],
    newer: &[Option<T>],
    fits: impl Fn(&[&T]) -> Result<(), Failure>,
) -> (BTreeSet<usize>, Vec<Left>) {
    let together = |chosen: &BTreeSet<usize>| {
        let versions = in_use.iter().zip(newer).enumerate().map(|(place, (old, new))| match new {
            Some(new) if chosen.contains(&place) => new,
            _ => old,
        });
        fits(&versions.collect::<Vec<_>>())
    };
    let all: BTreeSet<usize> = (0..newer.len()).filter(|place| newer[*place].is_some()).collect();
    if together(&all).is_ok() {
        return (all, Vec::new());
    }
    let mut chosen = BTreeSet::new();
    loop {
        let (before, mut left) = (chosen.len(), Vec::new());
        for place in &all {
            if chosen.insert(*place)
                && let Err(failure) = together(&chosen)
            {
                chosen.remove(place);
                left.push((*place, failure));
            }
        }
        // One that came in may have made room for another.
        if chosen.len() == before || left.is_empty() {
            return (chosen, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions are the names of their tools, a letter each; no letter may be there twice.
    fn check(in_use: &[&str], newer: &[Option<&str>], chosen: &[usize], left: &[(usize, &str)]) {
        let fits = |versions: &[&&str]| {
            let all: Vec<char> = versions.iter().flat_map(|version| version.chars()).collect();
            let twice = all.iter().enumerate().find(|(n, tool)| all[..*n].contains(tool));
            twice.map_or(Ok(()), |(_, tool)| Err(Failure::new("duplicate-tool", tool.to_string())))
        };
        let (is_chosen, is_left) = choose(in_use, newer, fits);
        let is_left: Vec<_> = is_left.iter().map(|(place, failure)| (*place, failure.message.as_str())).collect();
        assert_eq!((is_chosen.into_iter().collect::<Vec<_>>(), is_left.as_slice()), (chosen.to_vec(), left));
    }

    #[test]
    fn new_versions_come_in_together_or_as_many_as_fit() {
        check(&["a", "b"], &[None, None], &[], &[]);
        check(&["a", "b"], &[Some("ac"), None], &[0], &[]);
        // Each alone would clash with what the other was.
        check(&["a", "b"], &[Some("b"), Some("a")], &[0, 1], &[]);
        // One clashes with a third, and the other comes in all the same.
        check(&["a", "b", "c"], &[Some("c"), Some("bd"), None], &[1], &[(0, "c")]);
        // The first fits only beside the second.
        check(&["a", "b", "c"], &[Some("b"), Some("d"), Some("cc")], &[0, 1], &[(2, "c")]);
    }
}
