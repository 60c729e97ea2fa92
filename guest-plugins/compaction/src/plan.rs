//! Which messages go. Pure: outlines in, a range out.

use dsh_sdk::{MessageOutline, Origin, Role};

/// A marker without anything weighs about this much, in tokens: less is not worth replacing.
const MARKER_TOKENS: u32 = 24;

/// What planning needs to know of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outline {
    /// The host's estimate.
    pub tokens: u32,
    /// Said by the user, at the start of a turn or by steering.
    pub is_user: bool,
    /// A message of the assistant.
    pub is_assistant: bool,
    /// Asks for tool calls.
    pub has_calls: bool,
    /// Answers a tool call.
    pub has_results: bool,
    /// An earlier compaction put it there.
    pub is_summary: bool,
    /// In this request only, so that it cannot be compacted.
    pub is_edit: bool,
}

impl From<&MessageOutline> for Outline {
    fn from(outline: &MessageOutline) -> Self {
        Self {
            tokens: outline.estimated_tokens,
            is_user: matches!(outline.origin, Origin::User | Origin::Steering),
            is_assistant: matches!(outline.role, Role::Assistant),
            has_calls: !outline.tool_calls.is_empty(),
            has_results: !outline.tool_results.is_empty(),
            is_summary: matches!(outline.origin, Origin::Summary),
            is_edit: matches!(outline.origin, Origin::Edit),
        }
    }
}

/// The range to replace.
#[derive(Debug, PartialEq)]
pub struct Plan {
    /// The first message that goes.
    pub start: u32,
    /// The first one that stays again.
    pub end: u32,
    /// What the range weighs.
    pub removed_tokens: u32,
    /// What no compaction touches: system prompt and tools.
    pub fixed_tokens: u32,
    /// The last message of the user in the range, when none comes after it.
    pub last_user: Option<u32>,
    /// The message of an earlier compaction in the range.
    pub earlier: Option<u32>,
}

impl Plan {
    /// How many messages go.
    pub fn count(&self) -> u32 {
        self.end - self.start
    }
}

/// Plans a compaction: the opening stays, and the end of the history within `keep_tokens`, or within half of the room that is left
/// below the trigger when that is less, so that there is progress. None: nothing can go.
pub fn plan(outlines: &[Outline], tokens: u32, trigger: u32, keep_tokens: u32) -> Option<Plan> {
    let messages_tokens = outlines.iter().fold(0_u32, |sum, outline| sum.saturating_add(outline.tokens));
    let fixed_tokens = tokens.saturating_sub(messages_tokens);
    let room = trigger.saturating_sub(fixed_tokens);
    let (head, head_tokens) = head_end(outlines, if room == 0 { u32::MAX } else { room });
    let keep = if room == 0 { keep_tokens } else { keep_tokens.min(room.saturating_sub(head_tokens) / 2) };
    let tail = tail_start(outlines, keep);
    let (start, end) = longest_without_edits(outlines, head, tail)?;
    let removed_tokens = outlines[start..end].iter().fold(0_u32, |sum, outline| sum.saturating_add(outline.tokens));
    let only_a_marker = end - start == 1 && outlines[start].is_summary;
    if removed_tokens <= MARKER_TOKENS || only_a_marker {
        return None;
    }
    let last_user = outlines.iter().rposition(|outline| outline.is_user).filter(|at| (start..end).contains(at));
    let earlier = outlines[start..end].iter().position(|outline| outline.is_summary).map(|at| start + at);
    Some(Plan {
        start: index(start),
        end: index(end),
        removed_tokens,
        fixed_tokens,
        last_user: last_user.map(index),
        earlier: earlier.map(index),
    })
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("invariant: the host counts messages in 32 bits")
}

/// The opening, up to the first answer or the first marker, and what it weighs. Its first message stays when it takes at most
/// half of the room below the trigger, more of them while they take at most a quarter together.
fn head_end(outlines: &[Outline], room: u32) -> (usize, u32) {
    let is_opening = |outline: &Outline| !outline.is_assistant && !outline.is_summary && !outline.has_results;
    let mut head = (0, 0_u32);
    for outline in outlines.iter().take_while(|outline| is_opening(outline)) {
        let tokens = head.1.saturating_add(outline.tokens);
        if tokens > if head.0 == 0 { room / 2 } else { room / 4 } {
            break;
        }
        head = (head.0 + 1, tokens);
    }
    head
}

/// The first message of the end that stays: as much as fits in `keep`, at least the last message, and whole batches only.
fn tail_start(outlines: &[Outline], keep: u32) -> usize {
    let mut start = outlines.len();
    let mut tokens = 0_u32;
    while start > 0 {
        tokens = tokens.saturating_add(outlines[start - 1].tokens);
        if tokens > keep && start < outlines.len() {
            break;
        }
        start -= 1;
        if tokens > keep {
            break;
        }
    }
    // A result stays with its call: leave the rest of the batch out, or, when nothing comes after it, keep all of it.
    let after_batch = (start..outlines.len()).find(|at| !outlines[*at].has_results);
    match after_batch {
        Some(at) => at,
        None => outlines[..start].iter().rposition(|outline| !outline.has_results).unwrap_or(0),
    }
}

/// The longest run of messages in a range that may be compacted, cut so that no call is parted from its result.
fn longest_without_edits(outlines: &[Outline], start: usize, end: usize) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    let mut from = start;
    for at in start..=end {
        if at < end && !outlines[at].is_edit {
            continue;
        }
        if let Some((start, end)) = whole_batches(outlines, from, at)
            && best.is_none_or(|(a, b)| end - start > b - a)
        {
            best = Some((start, end));
        }
        from = at + 1;
    }
    best
}

/// Shrinks a range until it neither starts with results of calls before it nor ends with calls whose results come after it.
fn whole_batches(outlines: &[Outline], mut start: usize, mut end: usize) -> Option<(usize, usize)> {
    while start < end && outlines[start].has_results {
        start += 1;
    }
    while start < end && outlines.get(end).is_some_and(|next| next.has_results) {
        end -= 1;
    }
    // The batch's assistant message has calls, and their results were just left outside.
    while start < end && outlines[end - 1].has_calls {
        end -= 1;
    }
    (start < end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `u` user, `a` answer, `c` calls, `r` result, `s` summary, `e` edit, `x` context; each weighs `weight`.
    fn history(kinds: &str, weight: u32) -> Vec<Outline> {
        let outline = |kind| Outline {
            tokens: weight,
            is_user: kind == 'u',
            is_assistant: matches!(kind, 'a' | 'c'),
            has_calls: kind == 'c',
            has_results: kind == 'r',
            is_summary: kind == 's',
            is_edit: kind == 'e',
        };
        kinds.chars().map(outline).collect()
    }

    /// Each message weighs 100; what goes is shown by `.`.
    fn check(kinds: &str, fixed: u32, trigger: u32, keep: u32, expect: &str) {
        let outlines = history(kinds, 100);
        let tokens = fixed + 100 * outlines.len() as u32;
        let shown = match plan(&outlines, tokens, trigger, keep) {
            None => "nothing".to_owned(),
            Some(plan) => {
                let goes = |at: usize| (plan.start as usize..plan.end as usize).contains(&at);
                kinds.chars().enumerate().map(|(at, kind)| if goes(at) { '.' } else { kind }).collect()
            }
        };
        assert_eq!(shown, expect, "{kinds}");
    }

    #[test]
    fn ranges() {
        check("uauauaua", 0, 800, 200, "u.....ua");
        check("ucrcrcra", 0, 800, 200, "u......a");
        check("ucrrcrru", 0, 800, 100, "u......u");
        // The tail would start inside of a batch that is the end: the whole batch stays.
        check("uaucrrr", 0, 700, 200, "u..crrr");
        check("ucrrr", 0, 500, 100, "nothing");
        // An earlier marker goes with the rest and does not count as opening.
        check("usauaua", 0, 700, 200, "u....ua");
        check("usa", 0, 300, 100, "nothing");
        // Keep is cut to half of the room below the trigger.
        check("uauauaua", 400, 1_000, 20_000, "u.....ua");
        check("uauauaua", 0, 1_000, 20_000, "u...uaua");
        check("uauauaua", 2_000, 1_000, 200, "u.....ua");
        // An edit of this request cannot be compacted.
        check("uaueuaua", 0, 800, 200, "u..euaua");
        check("u", 0, 50, 10, "nothing");
        check("", 100, 50, 10, "nothing");
        // Of a long opening the first message stays, and none that is too large by itself.
        check("uuuuaua", 0, 500, 200, "u....ua");
        check("uuuuaua", 0, 1_200, 200, "uuu..ua");
        check("uauaua", 0, 150, 200, ".....a");
    }

    #[test]
    fn the_last_words_of_the_user() {
        let outlines = history("uaucrcrcr", 100);
        let plan = plan(&outlines, 900, 900, 200).expect("a plan");
        assert_eq!((plan.start, plan.end, plan.last_user), (1, 7, Some(2)));
    }

    #[test]
    fn a_small_middle_stays() {
        assert_eq!(plan(&history("uauaua", 5), 30, 20, 10), None);
    }
}
