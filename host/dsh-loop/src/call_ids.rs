//! Call ids: every call of a message has one, and no two calls of the model's view share one.

use std::sync::Arc;

use dsh_seam::ids::StepRef;
use dsh_seam::message::{ContentBlock, Message, ToolCall};

/// Gives ids to calls without one, keeps the first of two equal calls, and renames a call whose id is taken, by the rule
/// `call_<turn>_<step>_<n>`, n the call's place in its message from 1, with `_2`, … when that is taken too.
pub(crate) fn make_unique(message: Arc<Message>, at: StepRef, in_view: impl Fn(&str) -> bool) -> Arc<Message> {
    let calls: Vec<&ToolCall> = message.tool_calls().collect();
    let fine = |place: usize, call: &ToolCall| {
        !call.id.is_empty() && !in_view(&call.id) && calls[..place].iter().all(|earlier| earlier.id != call.id)
    };
    if calls.iter().enumerate().all(|(place, call)| fine(place, call)) {
        return message;
    }
    let mut kept: Vec<ToolCall> = Vec::new();
    let mut original: Vec<ToolCall> = Vec::new();
    let mut content = Vec::with_capacity(message.content.len());
    let mut place = 0;
    for block in &message.content {
        let ContentBlock::ToolCall(call) = block else {
            content.push(block.clone());
            continue;
        };
        place += 1;
        let same = |earlier: &ToolCall| {
            earlier.id == call.id && earlier.name == call.name && earlier.arguments == call.arguments
        };
        if !call.id.is_empty() && original.iter().any(same) {
            continue;
        }
        original.push(call.clone());
        let taken = |id: &str| in_view(id) || kept.iter().any(|earlier| earlier.id == id);
        let mut call = call.clone();
        if call.id.is_empty() || taken(&call.id) {
            // An id that a later call of this message brings along is taken as well.
            let later = |id: &str| calls.iter().any(|other| other.id == id);
            call.id = generated(at, place, |id| taken(id) || later(id));
        }
        kept.push(call.clone());
        content.push(ContentBlock::ToolCall(call));
    }
    Arc::new(Message { role: message.role, content })
}

fn generated(at: StepRef, place: usize, taken: impl Fn(&str) -> bool) -> String {
    let base = format!("call_{}_{}_{place}", at.turn, at.step);
    if !taken(&base) {
        return base;
    }
    (2..).map(|n| format!("{base}_{n}")).find(|id| !taken(id)).expect("invariant: a message has finitely many calls")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `calls` and `expect` are `id:arguments` words; `-` is an empty id.
    fn check(calls: &str, in_view: &[&str], expect: &str) {
        let call = |word: &str| {
            let (id, arguments) = word.split_once(':').expect("id:arguments");
            let id = if id == "-" { "" } else { id };
            ContentBlock::ToolCall(ToolCall {
                id: id.into(),
                name: "t".into(),
                arguments: arguments.into(),
                opaque: None,
            })
        };
        let message = Arc::new(Message::assistant(calls.split_whitespace().map(call).collect()));
        let unique = make_unique(message, StepRef { turn: 3, step: 2 }, |id| in_view.contains(&id));
        let words: Vec<String> = unique.tool_calls().map(|call| format!("{}:{}", call.id, call.arguments)).collect();
        assert_eq!(words.join(" "), expect, "{calls}");
    }

    #[test]
    fn ids_are_there_and_unique() {
        check("a:1 b:2", &[], "a:1 b:2");
        check("-:1 -:2", &[], "call_3_2_1:1 call_3_2_2:2");
        check("-:1 -:1", &[], "call_3_2_1:1 call_3_2_2:1");
        check("a:1 a:1", &[], "a:1");
        check("a:1 a:2", &[], "a:1 call_3_2_2:2");
        check("a:1", &["a"], "call_3_2_1:1");
        check("a:1 a:1", &["a"], "call_3_2_1:1");
        check("a:1", &["a", "call_3_2_1"], "call_3_2_1_2:1");
        check("-:1 call_3_2_1:2", &[], "call_3_2_1_2:1 call_3_2_1:2");
    }
}
