//! The model `script:FILE[#LINE]`: answers from JSON lines, for tests, demonstrations and replays.
//!
//! The n-th request of an agent in this process gets the n-th line; calls by plugins on the agent's behalf take lines too. An agent that
//! lines name takes those, every other agent those that name nobody. Every line is read and checked before the first request.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dsh_seam::llm::{ChunkStream, Model, ModelRequest};
use dsh_seam::message::{Chunk, FinishReason, Role, ToolCall, Usage};
use dsh_seam::{AgentId, ModelFailure};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::blocks;

/// What the names of these models begin with.
pub(super) const PREFIX: &str = "script:";

/// A script that was read whole.
pub(super) struct Script {
    file: String,
    /// Those from the first on, by the agent they name.
    lists: HashMap<Option<String>, List>,
    total: u64,
    first: u64,
    taken: Mutex<HashMap<AgentId, u64>>,
}

/// Lines that are taken one after the other.
#[derive(Default)]
struct List {
    /// Each with how many stand before it.
    lines: Vec<(u64, Line)>,
    total: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line {
    reasoning: Option<String>,
    text: Option<String>,
    tool_calls: Option<Vec<Call>>,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    delay_ms: Option<u64>,
    chunk_size: Option<NonZeroUsize>,
    chunks: Option<Vec<Box<RawValue>>>,
    error: Option<ErrorSpec>,
    after_chunks: Option<u64>,
    repeat: Option<u64>,
    expect: Option<Expect>,
    agent: Option<String>,
    #[serde(skip)]
    plan: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    id: Option<String>,
    name: String,
    arguments: Box<RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ErrorSpec {
    code: String,
    message: String,
    status: Option<u16>,
    retry_after_ms: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expect {
    last_user: Option<String>,
    tools: Option<Vec<String>>,
    messages: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Delay {
    delay_ms: u64,
}

/// What a line does, one after the other.
#[derive(Clone)]
enum Step {
    Wait(u64),
    Give(Chunk),
    Fail(ModelFailure),
}

impl Script {
    /// Reads the file of `FILE[#LINE]`.
    pub fn open(reference: &str) -> Result<Self, ModelFailure> {
        let (file, first) = match reference.rsplit_once('#') {
            Some((file, line)) if !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()) => {
                (file, line.parse().unwrap_or(u64::MAX))
            }
            _ => (reference, 1),
        };
        if first == 0 {
            return Err(invalid(format!("`{PREFIX}{reference}`: lines count from 1")));
        }
        let text = std::fs::read_to_string(file)
            .map_err(|error| invalid(format!("the script `{file}` cannot be read: {error}")))?;
        Self::parse(file, first, &text)
    }

    fn parse(file: &str, first: u64, text: &str) -> Result<Self, ModelFailure> {
        let mut lists: HashMap<Option<String>, List> = HashMap::new();
        let mut total: u64 = 0;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let mut line =
                Line::parse(line).map_err(|what| invalid(format!("the script `{file}`, line {}: {what}", at + 1)))?;
            let start = total + 1;
            total = total.saturating_add(line.repeat.unwrap_or(1));
            let count = (total + 1).saturating_sub(start.max(first));
            let list = lists.entry(line.agent.take()).or_default();
            if count > 0 {
                list.lines.push((list.total, line));
                list.total = list.total.saturating_add(count);
            }
        }
        Ok(Self { file: file.to_owned(), lists, total, first, taken: Mutex::default() })
    }

    /// The line for the agent's next request.
    fn take(&self, agent: &AgentId) -> Result<&Line, ModelFailure> {
        let named = self.lists.get(&Some(agent.as_str().to_owned()));
        let before = {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let count = taken.entry(agent.clone()).or_default();
            *count += 1;
            *count - 1
        };
        let found = named.or_else(|| self.lists.get(&None)).filter(|list| before < list.total).and_then(|list| {
            let at = list.lines.partition_point(|(start, _)| *start <= before);
            Some(&list.lines[at.checked_sub(1)?].1)
        });
        found.ok_or_else(|| {
            let (file, total) = (&self.file, self.total);
            let text = match named {
                Some(_) => format!("the script `{file}` has no line left for the agent `{agent}`"),
                None => {
                    let number = self.first.saturating_add(before);
                    format!("the script `{file}` has no line {number}: it has {total} lines")
                }
            };
            ModelFailure::new("script-exhausted", text)
        })
    }
}

impl Line {
    fn parse(text: &str) -> Result<Line, String> {
        let mut line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if line.after_chunks.is_some() && line.error.is_none() {
            return Err("`afterChunks` needs an `error`".into());
        }
        let made = line.reasoning.is_some()
            || line.text.is_some()
            || line.tool_calls.is_some()
            || line.finish.is_some()
            || line.usage.is_some()
            || line.chunk_size.is_some();
        let steps = match &line.chunks {
            Some(_) if made => {
                return Err("`chunks` goes with `delayMs`, `error`, `repeat`, `expect` and `agent` only".into());
            }
            Some(chunks) => chunks.iter().map(|item| step(item)).collect::<Result<Vec<_>, _>>()?,
            None if !made && line.error.is_some() => vec![],
            None => line.made()?.into_iter().map(Step::Give).collect(),
        };
        line.plan = line.delay_ms.map(Step::Wait).into_iter().collect();
        line.plan.extend(steps);
        if let Some(error) = &line.error {
            fail_after(&mut line.plan, line.after_chunks.unwrap_or(0), error);
        }
        Ok(line)
    }

    /// Reasoning, text, calls, usage, finish.
    fn made(&self) -> Result<Vec<Chunk>, String> {
        let size = self.chunk_size.map(NonZeroUsize::get);
        let mut chunks = Vec::new();
        let mut index = 0..;
        let mut next = || index.next().expect("more numbers than blocks fit in memory");
        if let Some(text) = &self.reasoning {
            chunks.extend(blocks::reasoning(next(), text, size));
        }
        if let Some(text) = &self.text {
            chunks.extend(blocks::text(next(), text, size));
        }
        for call in self.tool_calls.iter().flatten() {
            let call = ToolCall {
                id: call.id.clone().unwrap_or_default(),
                name: call.name.clone(),
                arguments: arguments(&call.arguments)?,
                opaque: None,
            };
            chunks.extend(blocks::tool_call(next(), call, size));
        }
        chunks.extend(self.usage.map(|usage| Chunk::Usage { usage }));
        let calls = self.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
        let default = if calls { FinishReason::ToolCalls } else { FinishReason::Stop };
        chunks.push(Chunk::Finish { reason: self.finish.clone().unwrap_or(default) });
        Ok(chunks)
    }
}

/// Cuts the plan before the chunk after the `after`-th, and fails there.
fn fail_after(plan: &mut Vec<Step>, after: u64, error: &ErrorSpec) {
    let mut given = 0;
    let mut cut = plan.len();
    for (at, step) in plan.iter().enumerate() {
        if matches!(step, Step::Give(_)) {
            if given == after {
                cut = at;
                break;
            }
            given += 1;
        }
    }
    plan.truncate(cut);
    plan.push(Step::Fail(ModelFailure {
        code: error.code.clone(),
        message: error.message.clone(),
        status: error.status,
        retry_after_ms: error.retry_after_ms,
    }));
}

/// The members of each type of chunk. A chunk is read leniently from a session log, strictly from a script.
const CHUNK_MEMBERS: [(&str, &[&str]); 7] = [
    ("block-start", &["type", "index", "blockType"]),
    ("text-delta", &["type", "index", "text"]),
    ("reasoning-delta", &["type", "index", "text"]),
    ("tool-call-delta", &["type", "index", "id", "name", "argumentsDelta"]),
    ("block-end", &["type", "index", "block"]),
    ("usage", &["type", "usage"]),
    ("finish", &["type", "reason"]),
];

fn step(item: &RawValue) -> Result<Step, String> {
    let value: Value = serde_json::from_str(item.get()).map_err(|error| error.to_string())?;
    let Some(kind) = value.get("type").and_then(Value::as_str) else {
        let delay: Delay = serde_json::from_value(value)
            .map_err(|error| format!("an item of `chunks` is neither a chunk nor `{{\"delayMs\": n}}`: {error}"))?;
        return Ok(Step::Wait(delay.delay_ms));
    };
    if let Some((_, members)) = CHUNK_MEMBERS.iter().find(|(known, _)| *known == kind) {
        let unknown = value.as_object().and_then(|chunk| chunk.keys().find(|key| !members.contains(&key.as_str())));
        if let Some(key) = unknown {
            return Err(format!("unknown field `{key}` in a chunk of type `{kind}`"));
        }
    }
    serde_json::from_value(value).map(Step::Give).map_err(|error| error.to_string())
}

/// A raw string as it is; an object as compact JSON, in its own order and with its own numbers.
fn arguments(raw: &RawValue) -> Result<String, String> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'"') => serde_json::from_str(text).map_err(|error| error.to_string()),
        Some(b'{') => Ok(compact(text)),
        _ => Err(format!("the `arguments` of a call are an object or a raw string, not `{text}`")),
    }
}

/// Valid JSON without white space between its tokens.
fn compact(json: &str) -> String {
    let (mut inside, mut escaped) = (false, false);
    json.chars()
        .filter(|c| {
            if inside {
                inside = escaped || *c != '"';
                escaped = !escaped && *c == '\\';
                return true;
            }
            inside = *c == '"';
            !c.is_ascii_whitespace()
        })
        .collect()
}

impl Expect {
    fn check(&self, request: &ModelRequest) -> Result<(), ModelFailure> {
        let mismatch = |what: String| Err(ModelFailure::new("script-mismatch", what));
        if let Some(wanted) = &self.last_user {
            let mut users = request.messages.iter().rev().filter(|message| message.message.role == Role::User);
            let last = users.find_map(|message| message.message.text());
            if last.as_ref() != Some(wanted) {
                let last = last.map(|text| format!("{text:?}")).unwrap_or_else(|| "missing".into());
                return mismatch(format!("the last user text should be {wanted:?} and is {last}"));
            }
        }
        if let Some(wanted) = &self.tools {
            let sorted = |mut names: Vec<String>| {
                names.sort();
                names.dedup();
                names
            };
            let there = sorted(request.tools.iter().map(|tool| tool.name.clone()).collect());
            let wanted = sorted(wanted.clone());
            if there != wanted {
                return mismatch(format!("the tools should be {wanted:?} and are {there:?}"));
            }
        }
        match self.messages {
            Some(wanted) if wanted != request.messages.len() as u64 => {
                mismatch(format!("there should be {wanted} messages and there are {}", request.messages.len()))
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Model for Script {
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
        let line = self.take(&request.agent)?;
        if let Err(parted) = request.messages.check_pairs() {
            return Err(ModelFailure::new("invalid-request", parted.to_string()));
        }
        if let Some(expect) = &line.expect {
            expect.check(&request)?;
        }
        play(line.plan.clone()).await
    }
}

/// Waits, then streams; a failure before the first chunk is the request's.
async fn play(plan: Vec<Step>) -> Result<ChunkStream, ModelFailure> {
    let mut steps = plan.into_iter().peekable();
    loop {
        match steps.peek() {
            Some(Step::Wait(ms)) => {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
                steps.next();
            }
            Some(Step::Fail(failure)) => return Err(failure.clone()),
            Some(Step::Give(_)) | None => break,
        }
    }
    let stream = futures::stream::unfold(steps, |mut steps| async move {
        loop {
            match steps.next()? {
                Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                Step::Give(chunk) => return Some((Ok(chunk), steps)),
                Step::Fail(failure) => return Some((Err(failure), steps)),
            }
        }
    });
    Ok(stream.boxed())
}

fn invalid(message: String) -> ModelFailure {
    ModelFailure::new("invalid-script", message)
}

#[cfg(test)]
mod tests {
    use super::super::support::{all, request, request_of};
    use super::*;
    use dsh_seam::message::{ContentBlock, Message};
    use tokio::time::Instant;

    fn script(text: &str) -> Script {
        Script::parse("s.jsonl", 1, text).expect("a good script")
    }

    async fn next(script: &Script) -> String {
        all(script.stream(request("script:s", vec![Message::user_text("hi")], &["a"])).await).await
    }

    async fn check(line: &str, expect: &[&str]) {
        assert_eq!(next(&script(line)).await, expect.join(" "), "{line}");
    }

    #[tokio::test]
    async fn a_line_is_streamed_in_order() {
        check(
            r#"{"reasoning":"hm","text":"hällo","toolCalls":[{"id":"x","name":"t","arguments":{"b": 1.0, "a": "q\" s"}},{"name":"u","arguments":"{"}],"usage":{"output":2},"chunkSize":3}"#,
            &[
                r#"{"type":"block-start","index":0,"blockType":"reasoning"}"#,
                r#"{"type":"reasoning-delta","index":0,"text":"hm"}"#,
                r#"{"type":"block-end","index":0,"block":{"type":"reasoning","text":"hm"}}"#,
                r#"{"type":"block-start","index":1,"blockType":"text"}"#,
                r#"{"type":"text-delta","index":1,"text":"häl"}"#,
                r#"{"type":"text-delta","index":1,"text":"lo"}"#,
                r#"{"type":"block-end","index":1,"block":{"type":"text","text":"hällo"}}"#,
                r#"{"type":"block-start","index":2,"blockType":"tool-call"}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"x","name":"t","argumentsDelta":"{\"b"}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"x","argumentsDelta":"\":1"}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"x","argumentsDelta":".0,"}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"x","argumentsDelta":"\"a\""}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"x","argumentsDelta":":\"q"}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"x","argumentsDelta":"\\\" "}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"x","argumentsDelta":"s\"}"}"#,
                r#"{"type":"block-end","index":2,"block":{"type":"tool-call","id":"x","name":"t","arguments":"{\"b\":1.0,\"a\":\"q\\\" s\"}"}}"#,
                r#"{"type":"block-start","index":3,"blockType":"tool-call"}"#,
                r#"{"type":"tool-call-delta","index":3,"id":"","name":"u","argumentsDelta":"{"}"#,
                r#"{"type":"block-end","index":3,"block":{"type":"tool-call","id":"","name":"u","arguments":"{"}}"#,
                r#"{"type":"usage","usage":{"input":0,"output":2,"cacheRead":0,"cacheWrite":0,"reasoning":0}}"#,
                r#"{"type":"finish","reason":"tool-calls"}"#,
            ],
        )
        .await;
        check("{}", &[r#"{"type":"finish","reason":"stop"}"#]).await;
        check(
            r#"{"finish":{"error":{"code":"c","message":"m"}}}"#,
            &[r#"{"type":"finish","reason":{"error":{"code":"c","message":"m"}}}"#],
        )
        .await;
        check(
            r#"{"chunks":[{"type":"usage","usage":{"input":1}},{"delayMs":0},{"type":"finish","reason":"max-tokens"}]}"#,
            &[
                r#"{"type":"usage","usage":{"input":1,"output":0,"cacheRead":0,"cacheWrite":0,"reasoning":0}}"#,
                r#"{"type":"finish","reason":"max-tokens"}"#,
            ],
        )
        .await;
    }

    #[tokio::test]
    async fn an_error_comes_after_so_many_chunks() {
        let error = r#""error":{"code":"server","message":"gone","status":503,"retryAfterMs":5}"#;
        let failed = "!server gone status=503 retry=5";
        let start = r#"{"type":"block-start","index":0,"blockType":"text"}"#;
        check(&format!("{{{error}}}"), &[failed]).await;
        check(&format!(r#"{{"text":"x",{error}}}"#), &[failed]).await;
        check(&format!(r#"{{"text":"x","afterChunks":1,{error}}}"#), &[start, failed]).await;
        check(
            &format!(r#"{{"chunks":[{{"delayMs":1}},{{"type":"finish","reason":"stop"}}],"afterChunks":9,{error}}}"#),
            &[r#"{"type":"finish","reason":"stop"}"#, failed],
        )
        .await;
    }

    #[tokio::test]
    async fn lines_are_counted_per_agent() {
        let finish = |word: &str| format!(r#"{{"type":"finish","reason":"{word}"}}"#);
        let text =
            "{\"finish\":\"stop\",\"repeat\":2}\n\n{\"finish\":\"refused\"}\n{\"finish\":\"aborted\",\"repeat\":0}\n";
        let script = script(text);
        assert_eq!(next(&script).await, finish("stop"));
        let other = all(script.stream(request_of("other", "m", vec![], &[])).await).await;
        assert_eq!(other, finish("stop"));
        assert_eq!(next(&script).await, finish("stop"));
        assert_eq!(next(&script).await, finish("refused"));
        let exhausted = "!script-exhausted the script `s.jsonl` has no line 4: it has 3 lines";
        assert_eq!(next(&script).await, exhausted);
        let third = Script::parse("s.jsonl", 3, text).expect("a good script");
        assert_eq!((next(&third).await, next(&third).await.as_str()), (finish("refused"), exhausted));
    }

    #[tokio::test]
    async fn an_agent_that_is_named_takes_its_own_lines() {
        let text = "{\"finish\":\"stop\"}\n{\"finish\":\"refused\",\"agent\":\"main.1\",\"repeat\":3}\n{\"finish\":\"max-tokens\"}\n";
        let finish = |word: &str| format!(r#"{{"type":"finish","reason":"{word}"}}"#);
        let play = async |script: &Script, agent: &str, expect: &[&str]| {
            for expect in expect {
                let got = all(script.stream(request_of(agent, "m", vec![], &[])).await).await;
                assert_eq!(got, if expect.starts_with('!') { (*expect).to_owned() } else { finish(expect) });
            }
        };
        let whole = script(text);
        let none = "!script-exhausted the script `s.jsonl` has no line left for the agent `main.1`";
        play(&whole, "main.1", &["refused", "refused", "refused", none]).await;
        play(&whole, "main", &["stop", "max-tokens"]).await;
        play(&whole, "main.2", &["stop", "max-tokens"]).await;
        // From a line on, that of another agent counted.
        let rest = Script::parse("s.jsonl", 4, text).expect("a good script");
        play(&rest, "main.1", &["refused", none]).await;
        play(&rest, "main", &["max-tokens", "!script-exhausted the script `s.jsonl` has no line 5: it has 5 lines"])
            .await;
        let end = Script::parse("s.jsonl", 5, text).expect("a good script");
        play(&end, "main.1", &[none]).await;
    }

    #[tokio::test]
    async fn expectations_are_checked() {
        let finish = r#"{"type":"finish","reason":"stop"}"#;
        check(r#"{"expect":{"lastUser":"hi","tools":["a"],"messages":1}}"#, &[finish]).await;
        check(
            r#"{"expect":{"lastUser":"ho"}}"#,
            &["!script-mismatch the last user text should be \"ho\" and is \"hi\""],
        )
        .await;
        check(
            r#"{"expect":{"tools":["b","a"]}}"#,
            &["!script-mismatch the tools should be [\"a\", \"b\"] and are [\"a\"]"],
        )
        .await;
        check(r#"{"expect":{"messages":2}}"#, &["!script-mismatch there should be 2 messages and there are 1"]).await;
        let call = ToolCall { id: "c".into(), name: "t".into(), arguments: "{}".into(), opaque: None };
        let parted = request("m", vec![Message::assistant(vec![ContentBlock::ToolCall(call)])], &[]);
        assert_eq!(
            all(script("{}").stream(parted).await).await,
            "!invalid-request tool call `c` has no result directly after its message"
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        let check = |text: &str, expect: &str| {
            let message = Script::parse("s.jsonl", 1, text).err().expect("a bad script").message;
            assert_eq!(message, format!("the script `s.jsonl`, line {expect}"));
        };
        check(
            "{}\n\n{\"txt\":1}",
            "3: unknown field `txt`, expected one of `reasoning`, `text`, `toolCalls`, `finish`, `usage`, `delayMs`, `chunkSize`, `chunks`, `error`, `afterChunks`, `repeat`, `expect`, `agent` at line 1 column 6",
        );
        check("nonsense", "1: expected ident at line 1 column 2");
        check(
            r#"{"toolCalls":[{"name":"t","arguments":3}]}"#,
            "1: the `arguments` of a call are an object or a raw string, not `3`",
        );
        check(
            r#"{"chunks":[{"type":"finish","reason":"stop","x":1}]}"#,
            "1: unknown field `x` in a chunk of type `finish`",
        );
        check(
            r#"{"chunks":[],"text":"x"}"#,
            "1: `chunks` goes with `delayMs`, `error`, `repeat`, `expect` and `agent` only",
        );
        check(r#"{"text":"x","afterChunks":1}"#, "1: `afterChunks` needs an `error`");
        assert!(
            Script::open("/nowhere/s.jsonl")
                .err()
                .expect("no file")
                .message
                .starts_with("the script `/nowhere/s.jsonl` cannot be read")
        );
        assert_eq!(
            Script::open("s.jsonl#0").err().expect("no line 0").message,
            "`script:s.jsonl#0`: lines count from 1"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn delays_are_waited() {
        let script = script(r#"{"delayMs":70,"text":"abc","chunkSize":1}"#);
        let begun = Instant::now();
        next(&script).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(70));
    }
}
