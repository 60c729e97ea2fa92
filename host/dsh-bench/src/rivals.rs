//! The same policy in several engines, over histories of three sizes, measured in turns: ours with a handle on the history, and by value,
//! as JSON, in Extism, in QuickJS and in a process that is started for each call; and the same in plain Rust behind the same trait.
//!
//! The policy looks at the last tool call and its result, or at every text. What the others are handed is ready: making the text of the
//! history is not counted, though a host has to do it again in each step.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use dsh_seam::draft::RequestDraft;
use dsh_seam::event::{AssistantMessage, Event, Source, ToolResultEvent, UserMessage};
use dsh_seam::failure::{FailureKind, PluginError, Seam};
use dsh_seam::ids::PluginName;
use dsh_seam::message::{ContentBlock, Message, ResultBlock, ResultText, ToolCall};
use dsh_seam::view::History;
use dsh_seam::waterfall::{Listener, Next, RunContext};
use dsh_seam::waterfalls::Request;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::calls::{Onion, request};
use crate::measure::{Pair, micros_each};
use crate::normalised::normalised;
use crate::report::Row;
use crate::wasm::{engine, load};
use crate::{Fallible, Places, Rows};

/// Bytes of history, about, and what a person calls it.
const SIZES: [(usize, &str); 3] = [(1 << 10, "1 KiB"), (100 << 10, "100 KiB"), (1 << 20, "1 MiB")];
/// Bytes of text of one message.
const TEXT_BYTES: usize = 400;
/// How many rounds of each, and about how long one takes.
const ROUNDS: usize = 9;
const ROUND_MICROS: f64 = 20_000.0;
/// The most calls of a round.
const MOST_CALLS: u32 = 2_000;
/// What may not be in a text.
const SECRET: &str = "BEGIN PRIVATE KEY";
/// The engines that `dsh-rivals` runs, and what they are called in a row.
const ENGINES: [(&str, &str); 2] = [("extism", "an Extism plugin"), ("quickjs", "JavaScript in QuickJS")];
/// How much of the history is looked at, and how a row says it.
const READS: [(&str, &str); 2] = [("last", "the last call and its result"), ("all", "every text")];

/// A history of about so many bytes, with a tool call and its result at the end.
fn history(bytes: usize) -> History {
    let mut history = History::default();
    let (mut said, mut step) = (0, 1);
    while said + 3 * TEXT_BYTES / 2 < bytes {
        let content = vec![ContentBlock::text("words ".repeat(TEXT_BYTES / 6))];
        history.apply(&if step % 2 == 1 {
            Event::UserMessage(UserMessage { content, source: Source::User })
        } else {
            Event::AssistantMessage(AssistantMessage { turn: 1, step, content, interrupted: None })
        });
        (said, step) = (said + TEXT_BYTES + 70, step + 1);
    }
    let call = ToolCall {
        id: "call".into(),
        name: "read".into(),
        arguments: r#"{"path":"src/deep/../main.rs"}"#.into(),
        opaque: None,
    };
    let content = vec![ContentBlock::ToolCall(call)];
    history.apply(&Event::AssistantMessage(AssistantMessage { turn: 1, step, content, interrupted: None }));
    history.apply(&Event::ToolResult(ToolResultEvent {
        turn: 1,
        step,
        call_id: "call".into(),
        content: vec![ResultBlock::Text(ResultText { text: "fn main() {}\n".repeat(20) })],
        is_error: false,
        code: None,
        plugin: None,
    }));
    history
}

/// The policy in plain Rust.
struct Native {
    all: bool,
}

fn is_clean(message: &Message) -> bool {
    message.content.iter().all(|block| match block {
        ContentBlock::Text(block) => !block.text.contains(SECRET),
        ContentBlock::ToolResult(result) => result.content.iter().all(|block| match block {
            ResultBlock::Text(text) => !text.text.contains(SECRET),
            _ => true,
        }),
        _ => true,
    })
}

impl Native {
    fn allows(&self, draft: &RequestDraft) -> Fallible<bool> {
        let count = draft.message_count();
        let last = count.saturating_sub(2);
        let from = if self.all { 0 } else { last };
        let messages = draft.messages(from, count - from).map_err(|failure| failure.message)?;
        if !messages.iter().all(|message| is_clean(&message.message)) {
            return Ok(false);
        }
        let looked_at = messages[(last - from) as usize..].iter().flat_map(|message| message.message.tool_calls());
        let Some(call) = looked_at.into_iter().next() else { return Ok(false) };
        let arguments: serde_json::Value = serde_json::from_str(&call.arguments)?;
        let path = normalised(arguments["path"].as_str().unwrap_or_default());
        Ok(call.name == "read" && path.starts_with("src/"))
    }
}

#[async_trait]
impl Listener<Request> for Native {
    async fn handle(
        &self,
        _cx: &RunContext<Request>,
        draft: Arc<RequestDraft>,
        next: Next<Request>,
    ) -> Result<(), PluginError> {
        let failed = |message: String| PluginError {
            plugin: PluginName::new("native").expect("invariant: a valid name"),
            seam: Seam::Request,
            kind: FailureKind::Error,
            message,
            code: None,
        };
        match self.allows(&draft) {
            Ok(true) => next.run(draft).await.map_err(|error| failed(error.to_string())),
            Ok(false) => Err(failed("refused".to_owned())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// One of the things that are compared.
enum Contender {
    Listener(Onion),
    Engine(&'static str),
    Process,
}

/// The other engines, in a process of their own that measures when it is told to.
struct Rivals {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Rivals {
    fn start(folder: &Path, history: &Path) -> Fallible<Self> {
        let guest = folder.join("wasm32-wasip2/release/dsh_rivals_guest.wasm");
        let mut child = Command::new(folder.join("release/dsh-rivals"))
            .args([&guest, history])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no standard input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        Ok(Self { child, input, output })
    }

    fn round(&mut self, engine: &str, reads: &str, calls: u32) -> Fallible<f64> {
        writeln!(self.input, "{engine} {reads} {calls}")?;
        self.input.flush()?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim().parse().map_err(|_| format!("`dsh-rivals` ended in a call of `{engine}`").into())
    }
}

impl Drop for Rivals {
    fn drop(&mut self) {
        // It has nothing to put in order, and it is ours.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One size of history and one way to read it.
struct Contest<'a> {
    draft: Arc<RequestDraft>,
    text: String,
    reads: &'static str,
    folder: &'a Path,
    rivals: Rivals,
}

impl Contest<'_> {
    /// Microseconds of one call.
    async fn round(&mut self, contender: &Contender, calls: u32) -> Fallible<f64> {
        match contender {
            Contender::Engine(engine) => self.rivals.round(engine, self.reads, calls),
            Contender::Process => {
                let start = Instant::now();
                (0..calls).try_for_each(|_| self.spawn())?;
                Ok(micros_each(start, calls))
            }
            Contender::Listener(onion) => {
                let cancel = CancellationToken::new();
                let start = Instant::now();
                for _ in 0..calls {
                    onion.run(&self.draft, &cancel).await?;
                }
                Ok(micros_each(start, calls))
            }
        }
    }

    fn spawn(&self) -> Fallible<()> {
        let mut command = Command::new(self.folder.join("release/dsh-rivals-process"));
        let mut child = command.arg(self.reads).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("no standard input")?.write_all(self.text.as_bytes())?;
        let output = child.wait_with_output()?;
        if output.stdout == b"1" { Ok(()) } else { Err("the process refused what the policy allows".into()) }
    }

    /// How many calls make a round of the usual length.
    async fn calls(&mut self, contender: &Contender) -> Fallible<u32> {
        let once = self.round(contender, 1).await?.min(self.round(contender, 3).await?);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a small number")]
        let calls = (ROUND_MICROS / once).clamp(1.0, f64::from(MOST_CALLS)) as u32;
        Ok(calls)
    }

    /// `this` against `other`, in turns.
    async fn compare(&mut self, rounds: usize, this: &Contender, other: &Contender) -> Fallible<Pair> {
        let (this_calls, other_calls) = (self.calls(this).await?, self.calls(other).await?);
        let mut pair = Pair::default();
        for _ in 0..rounds {
            let one = self.round(this, this_calls).await?;
            pair.push(one, self.round(other, other_calls).await?);
        }
        Ok(pair)
    }
}

/// Where `cargo xtask bench rivals` builds them.
fn folder(places: &Places) -> PathBuf {
    places.plugins.with_file_name("rivals")
}

pub async fn rows(places: &Places) -> Rows {
    let folder = folder(places);
    if !folder.join("release/dsh-rivals").exists() {
        return Ok(vec![Row::missing(
            "the same policy in other engines",
            "×",
            "NOT BUILT: `cargo xtask bench rivals` builds Extism and QuickJS, which takes many minutes, and measures",
        )]);
    }
    let engine = engine()?;
    let mut rows = Vec::new();
    let scratch = tempfile::tempdir()?;
    for (bytes, size) in SIZES {
        let draft = request(history(bytes));
        let messages = draft.messages(0, draft.message_count()).map_err(|failure| failure.message)?;
        let text = serde_json::to_string(&messages.iter().map(|message| &message.message).collect::<Vec<_>>())?;
        let file = scratch.path().join("history.json");
        std::fs::write(&file, &text)?;
        for (reads, what) in READS {
            let component = load(&engine, &places.guests, "judge", "judge", json!({ "all": reads == "all" })).await?;
            let ours = Contender::Listener(Onion::new(&component)?);
            let native = Native { all: reads == "all" };
            let native = Contender::Listener(Onion::around(PluginName::new("native")?, Arc::new(native)));
            let rivals = Rivals::start(&folder, &file)?;
            let mut contest = Contest { draft: draft.clone(), text: text.clone(), reads, folder: &folder, rivals };
            let others = [("plain Rust", native), ("a process started for each call", Contender::Process)];
            let engines = ENGINES.map(|(engine, name)| (name, Contender::Engine(engine)));
            for (name, other) in others.into_iter().chain(engines) {
                let title = format!("a policy that reads {what} of {size}: {name} against a component here");
                rows.push(match contest.compare(places.rounds(ROUNDS), &other, &ours).await {
                    Ok(pair) => Row::plain(title, "×", pair.ratios()).detail(shown(&pair, text.len())),
                    Err(error) => Row::missing(title, "×", format!("FAILED: {error}")),
                });
            }
        }
    }
    Ok(rows)
}

fn shown(pair: &Pair, bytes: usize) -> String {
    let (other, ours) = (pair.this.median(), pair.other.median());
    format!("{other:.2} µs against {ours:.2} µs, {} KiB of JSON", bytes.div_ceil(1024))
}
