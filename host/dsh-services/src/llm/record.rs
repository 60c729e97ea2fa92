//! `--record`: every answer as a line of a script, in the form `chunks`, so that `script:FILE` streams the same again.
//!
//! The lines of an agent stand in the order of its requests, as a script takes them, whatever is over first. Those of the agent that
//! asked first are for whoever replays them; those of every other agent have its name.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use dsh_seam::llm::{ChunkStream, Model, ModelRequest};
use dsh_seam::message::Chunk;
use dsh_seam::{AgentId, ModelFailure};
use futures::{Stream, StreamExt};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::log::Lines;

/// Waits below this are added to the next: nobody sees them, and a replay should not sleep a thousand times.
const SHORTEST_DELAY: Duration = Duration::from_millis(10);

/// The file of `--record`.
pub(super) struct Recording {
    lines: Lines,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whose lines need no name.
    first: Option<AgentId>,
    agents: HashMap<AgentId, Queue>,
    /// Why nothing is written any more.
    problem: Option<String>,
}

/// The answers of one agent that are not in the file yet.
#[derive(Default)]
struct Queue {
    /// The number of the first.
    first: u64,
    /// None: it is still coming.
    lines: VecDeque<Option<Value>>,
}

impl Recording {
    pub fn new(lines: Lines) -> Self {
        Self { lines, state: Mutex::default() }
    }

    /// Why the file is not whole; none when it is.
    pub fn problem(&self) -> Option<String> {
        self.state().problem.clone()
    }

    /// Keeps a place for the answer to an agent's next request.
    fn open(&self, agent: &AgentId) -> u64 {
        let mut state = self.state();
        state.first.get_or_insert_with(|| agent.clone());
        let queue = state.agents.entry(agent.clone()).or_default();
        queue.lines.push_back(None);
        queue.first + queue.lines.len() as u64 - 1
    }

    /// Puts an answer in its place, and writes what has no other before it any more.
    fn close(&self, agent: &AgentId, place: u64, line: Value) {
        let mut state = self.state();
        let State { first, agents, problem } = &mut *state;
        let Some(queue) = agents.get_mut(agent) else { return };
        if let Some(kept) = queue.lines.get_mut((place - queue.first) as usize) {
            *kept = Some(line);
        }
        while let Some(Some(line)) = queue.lines.front_mut() {
            if problem.is_none() {
                if first.as_ref() != Some(agent) {
                    line["agent"] = agent.as_str().into();
                }
                // Behind a line that is not whole there is nothing to be added.
                *problem = self.lines.write(line.to_string()).err();
            }
            queue.lines.pop_front();
            queue.first += 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A model whose answers are written down.
pub(super) struct Recorded {
    model: Arc<dyn Model>,
    recording: Arc<Recording>,
    /// Whether the times between the chunks are worth anything: those of a network are.
    timed: bool,
}

impl Recorded {
    pub fn new(model: Arc<dyn Model>, recording: Arc<Recording>, timed: bool) -> Self {
        Self { model, recording, timed }
    }
}

#[async_trait]
impl Model for Recorded {
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
        let mut line = Line::new(self.recording.clone(), request.agent.clone(), self.timed);
        let begun = Instant::now();
        let answer = self.model.stream(request).await;
        line.waited += begun.elapsed();
        match answer {
            Ok(stream) => Ok(Tee { stream, line: Some(line), waiting: None }.boxed()),
            Err(failure) => {
                line.end(End::Failed(failure.clone()));
                Err(failure)
            }
        }
    }
}

/// One answer. It is written when it is dropped, so that one that was given up has its line too and later ones keep their place.
struct Line {
    recording: Arc<Recording>,
    agent: AgentId,
    place: u64,
    timed: bool,
    /// The chunks, and the waits between them.
    items: Vec<Value>,
    chunks: u64,
    /// Waited, and not written yet.
    waited: Duration,
    end: Option<End>,
}

enum End {
    Whole,
    Failed(ModelFailure),
}

impl Line {
    fn new(recording: Arc<Recording>, agent: AgentId, timed: bool) -> Self {
        let place = recording.open(&agent);
        Self { recording, agent, place, timed, items: vec![], chunks: 0, waited: Duration::ZERO, end: None }
    }

    fn push(&mut self, chunk: &Chunk) {
        self.wait();
        self.items.push(serde_json::to_value(chunk).expect("a chunk has string keys and finite numbers"));
        self.chunks += 1;
        if matches!(chunk, Chunk::Finish { .. }) {
            self.end = Some(End::Whole);
        }
    }

    fn end(&mut self, end: End) {
        if matches!(end, End::Failed(_)) {
            self.wait();
        }
        self.end = Some(end);
    }

    fn wait(&mut self) {
        if self.timed && self.waited >= SHORTEST_DELAY {
            self.items.push(json!({ "delayMs": self.waited.as_millis() as u64 }));
            self.waited = Duration::ZERO;
        }
    }

    /// The line of the script.
    fn written(&mut self) -> Value {
        let mut line = Map::new();
        let failed = match self.end.take() {
            Some(End::Whole) => None,
            Some(End::Failed(failure)) => Some(failure),
            None => Some(ModelFailure::new("aborted", "the answer was given up here when it was recorded")),
        };
        let only_a_wait = self.chunks == 0 && failed.is_some();
        let items = std::mem::take(&mut self.items);
        if !only_a_wait {
            line.insert("chunks".into(), items.into());
        } else if let Some(wait) = items.first() {
            line.insert("delayMs".into(), wait["delayMs"].clone());
        }
        if let Some(failure) = failed {
            line.insert("error".into(), error(failure));
            if self.chunks > 0 {
                line.insert("afterChunks".into(), self.chunks.into());
            }
        }
        Value::Object(line)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = self.written();
        self.recording.close(&self.agent, self.place, line);
    }
}

fn error(failure: ModelFailure) -> Value {
    let mut error = json!({ "code": failure.code, "message": failure.message });
    if let Some(status) = failure.status {
        error["status"] = status.into();
    }
    if let Some(ms) = failure.retry_after_ms {
        error["retryAfterMs"] = ms.into();
    }
    error
}

struct Tee {
    stream: ChunkStream,
    /// None once it is written.
    line: Option<Line>,
    /// Since when there is nothing to read. How long a reader takes is its own affair.
    waiting: Option<Instant>,
}

impl Stream for Tee {
    type Item = Result<Chunk, ModelFailure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Poll::Ready(next) = self.stream.poll_next_unpin(cx) else {
            self.waiting.get_or_insert_with(Instant::now);
            return Poll::Pending;
        };
        let waited = self.waiting.take().map_or(Duration::ZERO, |since| since.elapsed());
        if let Some(line) = &mut self.line {
            line.waited += waited;
            match &next {
                Some(Ok(chunk)) => line.push(chunk),
                Some(Err(failure)) => line.end(End::Failed(failure.clone())),
                None => {
                    line.end.get_or_insert(End::Whole);
                }
            }
        }
        if next.is_none() {
            self.line = None;
        }
        Poll::Ready(next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::support::{Shared, all, request, request_of};
    use super::super::{Models, ModelsConfig};
    use super::*;
    use dsh_seam::llm::Llm;
    use dsh_seam::message::{FinishReason, Message};
    use std::io::Write;
    use tokio::sync::mpsc;
    use tokio::time::sleep;

    fn file_of(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("it can be written");
        file
    }

    #[tokio::test]
    async fn a_recording_replays_the_same() {
        let script = concat!(
            r#"{"reasoning":"hm","text":"hällo","toolCalls":[{"name":"t","arguments":{"b":1,"a":2}}],"chunkSize":2,"usage":{"input":3}}"#,
            "\n",
            r#"{"error":{"code":"rate-limit","message":"slow down","status":429,"retryAfterMs":10}}"#,
            "\n",
            r#"{"text":"abc","chunkSize":1,"error":{"code":"server","message":"gone"},"afterChunks":3}"#,
            "\n",
        );
        let source = file_of(script);
        let recording = Shared::default();
        let config = ModelsConfig { record: Some(Box::new(recording.clone())), ..ModelsConfig::default() };
        let name = format!("script:{}", source.path().display());
        let first = answers(&Models::new(config), &name, 4).await;
        let copy = file_of(&recording.text());
        let second =
            answers(&Models::new(ModelsConfig::default()), &format!("script:{}", copy.path().display()), 3).await;
        assert_eq!(first[..3], second[..]);
        assert_eq!(
            recording.text().lines().nth(1),
            Some(r#"{"error":{"code":"rate-limit","message":"slow down","status":429,"retryAfterMs":10}}"#)
        );
        assert!(recording.text().lines().nth(3).expect("a fourth line").contains("script-exhausted"));
    }

    async fn answers(models: &Models, name: &str, count: usize) -> Vec<String> {
        let model = models.model(name).expect("the script is there");
        let mut out = Vec::new();
        for _ in 0..count {
            out.push(all(model.stream(request(name, vec![Message::user_text("hi")], &[])).await).await);
        }
        out
    }

    #[tokio::test]
    async fn an_answer_that_was_given_up_has_its_line() {
        let source = file_of(r#"{"text":"abc","chunkSize":1}"#);
        let recording = Shared::default();
        let config = ModelsConfig { record: Some(Box::new(recording.clone())), ..ModelsConfig::default() };
        let name = format!("script:{}", source.path().display());
        let model = Models::new(config).model(&name).expect("the script is there");
        let mut stream = model.stream(request(&name, vec![], &[])).await.expect("it answers");
        stream.next().await;
        drop(stream);
        let given_up = r#""error":{"code":"aborted","message":"the answer was given up here when it was recorded"}"#;
        let start = r#"{"type":"block-start","index":0,"blockType":"text"}"#;
        assert_eq!(recording.text(), format!("{{\"chunks\":[{start}],{given_up},\"afterChunks\":1}}\n"));
    }

    /// A model whose answers each come when they are sent.
    struct Sent(Mutex<VecDeque<mpsc::UnboundedReceiver<Result<Chunk, ModelFailure>>>>);

    #[async_trait]
    impl Model for Sent {
        async fn stream(&self, _: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
            let mut answer = self.0.lock().expect("unpoisoned").pop_front().expect("one is left");
            Ok(futures::stream::poll_fn(move |cx| answer.poll_recv(cx)).boxed())
        }
    }

    type Sender = mpsc::UnboundedSender<Result<Chunk, ModelFailure>>;

    /// A recorded model with so many answers, and what sends them.
    fn sent(count: usize, timed: bool) -> (Recorded, Arc<Recording>, Shared, Vec<Sender>) {
        let (senders, answers): (Vec<_>, VecDeque<_>) = (0..count).map(|_| mpsc::unbounded_channel()).unzip();
        let file = Shared::default();
        let recording = Arc::new(Recording::new(Lines::new("--record", Box::new(file.clone()))));
        let model = Recorded::new(Arc::new(Sent(Mutex::new(answers))), recording.clone(), timed);
        (model, recording, file, senders)
    }

    fn text(text: &str) -> Result<Chunk, ModelFailure> {
        Ok(Chunk::TextDelta { index: 0, text: text.into() })
    }

    fn stop() -> Result<Chunk, ModelFailure> {
        Ok(Chunk::Finish { reason: FinishReason::Stop })
    }

    #[tokio::test]
    async fn lines_stand_in_the_order_of_the_requests_of_an_agent() {
        let (model, _, file, senders) = sent(4, false);
        let ask = async |agent: &str| model.stream(request_of(agent, "m", vec![], &[])).await.expect("it answers");
        let (first, second) = (ask("main").await, ask("main").await);
        let (child, third) = (ask("main.1").await, ask("main").await);
        senders.into_iter().for_each(|sender| drop(sender.send(stop())));
        let line = r#"{"chunks":[{"type":"finish","reason":"stop"}]}"#;
        let of_child = r#"{"chunks":[{"type":"finish","reason":"stop"}],"agent":"main.1"}"#;
        let given_up = r#"{"error":{"code":"aborted","message":"the answer was given up here when it was recorded"}}"#;
        all(Ok(second)).await;
        assert_eq!(file.text(), "");
        all(Ok(child)).await;
        assert_eq!(file.text(), format!("{of_child}\n"));
        drop(first);
        assert_eq!(file.text(), format!("{of_child}\n{given_up}\n{line}\n"));
        all(Ok(third)).await;
        assert_eq!(file.text(), format!("{of_child}\n{given_up}\n{line}\n{line}\n"));
        // Replayed, each agent gets its own.
        let copy = file_of(&file.text());
        let models = Models::new(ModelsConfig::default());
        let name = format!("script:{}", copy.path().display());
        let replayed = models.model(&name).expect("the script is there");
        let play = async |agent: &str| all(replayed.stream(request_of(agent, "m", vec![], &[])).await).await;
        let finish = r#"{"type":"finish","reason":"stop"}"#;
        assert_eq!(play("main").await, "!aborted the answer was given up here when it was recorded");
        assert_eq!([play("main.1").await, play("main").await, play("main").await], [finish; 3]);
        let none = "!script-exhausted the script ";
        assert!(play("main.1").await.starts_with(none) && play("main").await.starts_with(none));
    }

    #[tokio::test(start_paused = true)]
    async fn times_are_those_of_the_provider() {
        let (model, _, file, senders) = sent(1, true);
        let mut answer = model.stream(request("m", vec![], &[])).await.expect("it answers");
        let sender = senders.into_iter().next().expect("one");
        let pace = tokio::spawn(async move {
            for (wait, item) in
                [(30, text("a")), (4, text("b")), (7, text("c")), (500, Err(ModelFailure::new("server", "gone")))]
            {
                sleep(Duration::from_millis(wait)).await;
                sender.send(item).expect("it is read");
            }
        });
        answer.next().await;
        answer.next().await;
        answer.next().await;
        // A reader that falls behind is no slow provider.
        sleep(Duration::from_millis(2000)).await;
        answer.next().await;
        pace.await.expect("it has sent all");
        drop(answer);
        let expect = concat!(
            r#"{"chunks":[{"delayMs":30},{"type":"text-delta","index":0,"text":"a"},{"type":"text-delta","index":0,"text":"b"},"#,
            r#"{"delayMs":11},{"type":"text-delta","index":0,"text":"c"}],"error":{"code":"server","message":"gone"},"afterChunks":3}"#,
            "\n"
        );
        assert_eq!(file.text(), expect);
        let begun = Instant::now();
        let copy = file_of(&file.text());
        let models = Models::new(ModelsConfig::default());
        let replayed = answers(&models, &format!("script:{}", copy.path().display()), 1).await;
        assert!(replayed[0].ends_with("!server gone"), "{replayed:?}");
        assert_eq!(begun.elapsed(), Duration::from_millis(41));
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_is_not_forgotten() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let source = file_of("{\"text\":\"abc\",\"repeat\":3}");
        let models = Models::new(ModelsConfig { record: Some(Box::new(Full(300))), ..ModelsConfig::default() });
        assert_eq!(models.record_problem(), None);
        answers(&models, &format!("script:{}", source.path().display()), 3).await;
        let expect = "the file of `--record` could not be written: no storage space";
        assert_eq!(models.record_problem().as_deref(), Some(expect));
    }
}
