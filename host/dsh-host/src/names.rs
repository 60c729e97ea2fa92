//! The nearest right name for a wrong one.

/// The candidate that is most like `wrong`, if one is like it at all.
pub fn nearest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Below this likeness a guess only confuses: `model` for `max-steps`.
    const LIKE: f64 = 0.65;
    let like = |known: &str| strsim::jaro_winkler(&wrong.to_ascii_lowercase(), known);
    let scored = candidates.into_iter().map(|known| (like(known), known)).filter(|(likeness, _)| *likeness >= LIKE);
    scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// What to say after a wrong name: the nearest right one, and else all there are.
pub fn hint<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(near) = nearest(wrong, candidates.clone()) {
        return format!("did you mean `{near}`?");
    }
    let all: Vec<String> = candidates.into_iter().map(|known| format!("`{known}`")).collect();
    if all.is_empty() { "there is none".into() } else { format!("there is {}", all.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word() {
        let known = ["max-steps", "max-turns", "model", "approve"];
        let check = |wrong: &str, expect: &str| assert_eq!(hint(wrong, known), expect);
        check("max-step", "did you mean `max-steps`?");
        check("max_turns", "did you mean `max-turns`?");
        check("modle", "did you mean `model`?");
        check("xyz", "there is `max-steps`, `max-turns`, `model`, `approve`");
        assert_eq!(hint("xyz", []), "there is none");
    }
}
