//! What can be wrong with what a provider says.

use serde_json::{Value, json};

use super::{Fault, TEXT, half, text, whole};
use crate::provider_server::{Answer, Counts, Protocol, Reply, Stage, Stopped, WireEvent};

const ARGUMENTS: &str = "{\"text\":\"one\"}";

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("everything", "answers with reasoning, text and two calls, in small pieces", |protocol| {
        let answer = Answer::new().reasoning("so so", Some("proof")).text("Let me see.");
        Reply::answer(protocol, &two_calls(answer).cut(5))
    }),
    Fault::new("interleaved", "sends the pieces of two calls in turns", |protocol| {
        Reply::answer(protocol, &two_calls(Answer::new()).cut(5).interleaved())
    }),
    Fault::new("duplicate-ids", "gives two calls one id", |protocol| {
        let answer = Answer::new().call("same", "echo", ARGUMENTS).call("same", "echo", "{\"text\":\"two\"}");
        Reply::answer(protocol, &answer)
    }),
    Fault::new("missing-ids", "gives nothing an id", |protocol| without(protocol, &["id", "call_id", "item_id"])),
    Fault::new("missing-names", "gives calls no name", |protocol| without(protocol, &["name"])),
    Fault::new("missing-numbers", "gives nothing a number", |protocol| {
        without(protocol, &["index", "output_index", "content_index", "sequence_number"])
    }),
    Fault::new("late-begin", "sends pieces of a call before it begins", |protocol| {
        let mut events = protocol.events(&Answer::new().call("a", "echo", ARGUMENTS));
        let first = events.iter().position(|event| event.stage == Stage::Piece).expect("a call has pieces");
        events.swap(first, first + 1);
        Reply::wire(&events)
    }),
    Fault::new("arguments-cut", "sends half the arguments of a call and says that it is whole", |protocol| {
        Reply::answer(protocol, &Answer::new().call("a", "echo", "{\"text\":\"o"))
    }),
    Fault::new("arguments-of-nonsense", "sends arguments that are no JSON", |protocol| {
        Reply::answer(protocol, &Answer::new().call("a", "echo", "text=one"))
    }),
    Fault::new("call-cut", "says that the answer was cut at the most tokens in a call", |protocol| {
        let answer = Answer::new().text(TEXT).call("a", "echo", "{\"text\":\"o").stopped(Stopped::Length);
        Reply::answer(protocol, &answer)
    }),
    Fault::new("refused", "says that it refuses to answer", |protocol| {
        Reply::answer(protocol, &text().stopped(Stopped::Filter))
    }),
    Fault::new("no-end", "ends the body without a word that the answer is whole", half),
    Fault::new("no-last-event", "leaves the last event out", |protocol| Reply::until(protocol, &text(), Stage::Last)),
    Fault::new("no-last-event-calls", "leaves the last event of an answer with a call out", |protocol| {
        Reply::until(protocol, &Answer::new().call("a", "echo", ARGUMENTS), Stage::Last)
    }),
    Fault::new("done-only", "sends `[DONE]` and nothing else", |_| Reply::stream().done()),
    Fault::new("nothing", "sends a stream without an event", |_| Reply::stream()),
    Fault::new("empty", "sends an answer with nothing in it", |protocol| Reply::answer(protocol, &Answer::new())),
    Fault::new("empty-text", "sends an empty text", |protocol| Reply::answer(protocol, &Answer::new().text(""))),
    Fault::new("usage-only", "sends what was used and nothing else", |protocol| {
        let counts = match protocol {
            Protocol::Chat => json!({ "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 0 } }),
            Protocol::Responses => {
                json!({ "type": "response.in_progress", "response": { "usage": { "input_tokens": 10, "output_tokens": 0 } } })
            }
            Protocol::Messages => {
                json!({ "type": "message_start", "message": { "usage": { "input_tokens": 10, "output_tokens": 0 } } })
            }
        };
        Reply::wire(&[WireEvent::typed(Stage::Begin, counts)])
    }),
    Fault::new("done-twice", "says twice that the answer is whole", |protocol| {
        let events = protocol.events(&text());
        let end: Vec<WireEvent> = events.iter().filter(|event| event.stage >= Stage::Finish).cloned().collect();
        Reply::wire(&events).and(&end)
    }),
    Fault::new("text-after-the-end", "goes on after the answer was said to be whole", |protocol| {
        whole(protocol).bytes(&super::piece(protocol, "and another thing"))
    }),
    Fault::new("negative-usage", "says that less than nothing was used", |protocol| counted(protocol, json!(-7))),
    Fault::new("huge-usage", "says that more was used than there is", |protocol| {
        counted(protocol, json!(99_999_999_999_999_999_999_f64))
    }),
    Fault::new("usage-as-text", "says what was used in words", |protocol| counted(protocol, json!("many"))),
    Fault::new("no-usage", "says nothing about what was used", |protocol| Reply::answer(protocol, &text().usage(None))),
    Fault::new("unknown-fields", "sends members that nobody knows in every object", |protocol| {
        changed(protocol, |value| {
            each_object(value, &|object| drop(object.insert("x_future".into(), json!({ "a": [1] }))))
        })
    }),
    Fault::new("null-fields", "sends null for what it has nothing for", |protocol| {
        changed(protocol, |value| {
            each_object(value, &|object| {
                for name in
                    ["tool_calls", "function_call", "refusal", "reasoning_content", "audio", "logprobs", "error"]
                {
                    object.entry(name).or_insert(Value::Null);
                }
            });
        })
    }),
    Fault::new("unknown-events", "sends events that nobody knows", |protocol| {
        let unknown = WireEvent::typed(Stage::Begin, json!({ "type": "future.event", "choices": [], "x": { "y": 1 } }));
        let events = protocol.events(&text());
        Reply::wire(&events.iter().flat_map(|event| [unknown.clone(), event.clone()]).collect::<Vec<_>>())
    }),
    Fault::new("unknown-blocks", "sends a block of a type that nobody knows", |protocol| {
        let mut events = protocol.events(&text());
        let at = events.iter().position(|event| event.stage == Stage::Piece).expect("an answer has a piece");
        events.splice(at..at, unknown_block(protocol));
        Reply::wire(&events)
    }),
    Fault::new("other-types", "sends numbers for texts and texts for lists", |protocol| {
        changed(protocol, |value| {
            each_object(value, &|object| {
                for (name, member) in object.iter_mut() {
                    match (name.as_str(), &member) {
                        ("content", Value::String(_)) | ("text" | "delta", Value::String(_)) => *member = json!(5),
                        ("output" | "annotations" | "logprobs", _) => *member = json!("none"),
                        _ => {}
                    }
                }
            });
        })
    }),
];

fn two_calls(answer: Answer) -> Answer {
    answer.call("a", "echo", ARGUMENTS).call("b", "echo", "{\"text\":\"two\"}")
}

/// A whole answer whose events went through `change`.
fn changed(protocol: Protocol, change: impl Fn(&mut Value)) -> Reply {
    let events: Vec<_> = protocol.events(&text()).into_iter().map(|event| event.map(&change)).collect();
    Reply::wire(&events)
}

/// An answer with two calls, without these members anywhere.
fn without(protocol: Protocol, names: &[&str]) -> Reply {
    let strip = |object: &mut serde_json::Map<String, Value>| names.iter().for_each(|name| drop(object.remove(*name)));
    let events = protocol.events(&two_calls(Answer::new())).into_iter();
    Reply::wire(&events.map(|event| event.map(|value| each_object(value, &strip))).collect::<Vec<_>>())
}

fn counted(protocol: Protocol, count: Value) -> Reply {
    let counts = Counts { input: count.clone(), output: count.clone(), cache_read: count.clone(), reasoning: count };
    Reply::answer(protocol, &text().usage(Some(counts)))
}

fn each_object(value: &mut Value, change: &impl Fn(&mut serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            object.values_mut().for_each(|member| each_object(member, change));
            change(object);
        }
        Value::Array(list) => list.iter_mut().for_each(|member| each_object(member, change)),
        _ => {}
    }
}

/// The events of a block that is yet to be invented, in a place of its own.
fn unknown_block(protocol: Protocol) -> Vec<WireEvent> {
    let events = match protocol {
        Protocol::Chat => vec![json!({ "choices": [{ "index": 0, "delta": { "hologram": { "data": "x" } } }] })],
        Protocol::Responses => {
            let item = json!({ "id": "hg_1", "type": "hologram_call", "status": "completed" });
            vec![
                json!({ "type": "response.output_item.added", "output_index": 90, "item": item }),
                json!({ "type": "response.hologram.delta", "output_index": 90, "item_id": "hg_1", "delta": "x" }),
                json!({ "type": "response.output_item.done", "output_index": 90, "item": item }),
            ]
        }
        Protocol::Messages => vec![
            json!({ "type": "content_block_start", "index": 90, "content_block": { "type": "hologram", "data": "" } }),
            json!({ "type": "content_block_delta", "index": 90, "delta": { "type": "hologram_delta", "data": "x" } }),
            json!({ "type": "content_block_stop", "index": 90 }),
        ],
    };
    events
        .into_iter()
        .map(|data| match protocol {
            Protocol::Chat => WireEvent::plain(Stage::Piece, &data),
            _ => WireEvent::typed(Stage::Piece, data),
        })
        .collect()
}
