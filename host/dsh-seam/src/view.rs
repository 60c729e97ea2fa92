//! The model's view: the list of messages that a session's log stands for, kept incrementally.
//!
//! Each `user/message`, `steering/message`, `context/message`, `assistant/message` and `tool/result` is one message, in log order;
//! `compaction/applied` replaces a range of the list as it was just before. Nothing else counts, and nothing of turn 0. A message
//! without content is skipped. [`History::apply`] costs what it adds; a [`MessageList`] is a cheap view with splices in it.

use std::sync::{Arc, OnceLock};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::canonical::{canonical_json, canonical_message};
use crate::event::{CompactionApplied, Event};
use crate::message::{ContentBlock, Message, ResultBlock, Role, Sampling, ToolResult, ToolSchema};

/// Where a message of the view came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// `user/message`.
    User,
    /// `steering/message`.
    Steering,
    /// `context/message`.
    Context,
    /// `assistant/message`.
    Assistant,
    /// `tool/result`.
    Tool,
    /// A compaction put it there.
    Summary,
    /// A listener put it there for one request.
    Edit,
}

/// Tokens that one message costs beside its text (role, separators), by the host's estimate.
const TOKENS_PER_MESSAGE: u32 = 4;
/// Bytes of UTF-8 text that make a token, by the host's estimate; English prose has about four, code and JSON fewer.
const BYTES_PER_TOKEN: u32 = 4;
/// What an image costs, by the host's estimate: providers bill 85 to 1,600.
const TOKENS_PER_IMAGE: u32 = 1_200;

/// One message of the view, with what is worth computing once.
#[derive(Debug)]
pub struct ModelMessage {
    /// The message.
    pub message: Message,
    /// Where it came from.
    pub origin: Origin,
    /// Bytes of all texts, arguments and data in it.
    pub bytes: u32,
    /// The host's estimate of its tokens.
    pub tokens: u32,
    wire: OnceLock<(Arc<str>, Arc<str>)>,
}

impl ModelMessage {
    /// Weighs `message`.
    pub fn new(message: Message, origin: Origin) -> Self {
        let weight = message.content.iter().map(block_weight).fold(Weight::default(), Weight::plus);
        let tokens = TOKENS_PER_MESSAGE
            .saturating_add(weight.bytes.div_ceil(BYTES_PER_TOKEN))
            .saturating_add(weight.images.saturating_mul(TOKENS_PER_IMAGE));
        Self { message, origin, bytes: weight.bytes.saturating_add(weight.image_bytes), tokens, wire: OnceLock::new() }
    }

    /// The message as a provider wants it, made once. `dialect` names the way of writing: the text is kept for the first that asks, and
    /// made anew for any other, since an agent seldom changes providers.
    pub fn wire(&self, dialect: &Arc<str>, write: impl FnOnce(&Message) -> String) -> Arc<str> {
        if let Some((known, text)) = self.wire.get()
            && (Arc::ptr_eq(known, dialect) || known == dialect)
        {
            return text.clone();
        }
        let text: Arc<str> = write(&self.message).into();
        // Lost when another dialect was first.
        let _ = self.wire.set((dialect.clone(), text.clone()));
        text
    }
}

#[derive(Default)]
struct Weight {
    bytes: u32,
    images: u32,
    image_bytes: u32,
}

impl Weight {
    fn text(bytes: usize) -> Self {
        Self { bytes: clamp(bytes), ..Self::default() }
    }

    fn image(bytes: usize) -> Self {
        Self { images: 1, image_bytes: clamp(bytes), ..Self::default() }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            images: self.images.saturating_add(other.images),
            image_bytes: self.image_bytes.saturating_add(other.image_bytes),
        }
    }
}

fn clamp(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn image_bytes(image: &crate::message::ImageBlock) -> usize {
    match &image.source {
        crate::message::ImageSource::Url(text) | crate::message::ImageSource::Data(text) => text.len(),
    }
}

fn block_weight(block: &ContentBlock) -> Weight {
    match block {
        ContentBlock::Text(block) => Weight::text(block.text.len()),
        ContentBlock::Reasoning(block) => Weight::text(block.text.len()),
        ContentBlock::ToolCall(call) => Weight::text(call.name.len() + call.arguments.len()),
        ContentBlock::ToolResult(result) => {
            result.content.iter().map(result_weight).fold(Weight::default(), Weight::plus)
        }
        ContentBlock::Image(image) => Weight::image(image_bytes(image)),
        ContentBlock::Other(value) => Weight::text(value.to_string().len()),
    }
}

fn result_weight(block: &ResultBlock) -> Weight {
    match block {
        ResultBlock::Text(block) => Weight::text(block.text.len()),
        ResultBlock::Image(image) => Weight::image(image_bytes(image)),
        ResultBlock::Other(value) => Weight::text(value.to_string().len()),
    }
}

/// The host's estimate for a text that is not a message: the system prompt, a tool's schema.
pub fn estimate_tokens(bytes: usize) -> u32 {
    clamp(bytes).div_ceil(BYTES_PER_TOKEN)
}

/// A link of the chain of hashes over messages.
pub type ChainHash = [u8; 32];

fn extend_chain(before: &ChainHash, message: &ModelMessage) -> ChainHash {
    let mut hasher = Sha256::new();
    hasher.update(before);
    hasher.update(canonical_message(&message.message));
    hasher.finalize().into()
}

/// A tool call and its result stand apart, or one of them is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Parted {
    /// A call without its result directly after it.
    #[error("tool call `{0}` has no result directly after its message")]
    CallWithoutResult(String),
    /// A result without its call directly before it.
    #[error("tool result `{0}` has no call directly before it")]
    ResultWithoutCall(String),
    /// Two results for one call, or two calls with one id in a message.
    #[error("tool call `{0}` is there twice")]
    Twice(String),
    /// A message that no history may hold.
    #[error("a message of role `system` in the history")]
    SystemMessage,
}

/// Checks message after message that calls and results stay together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PairCheck {
    open: Vec<String>,
}

impl PairCheck {
    /// Looks at the next message.
    pub fn next(&mut self, message: &Message) -> Result<(), Parted> {
        if message.role == Role::System {
            return Err(Parted::SystemMessage);
        }
        for result in message.tool_results() {
            match self.open.iter().position(|id| *id == result.call_id) {
                Some(at) => drop(self.open.remove(at)),
                None => return Err(Parted::ResultWithoutCall(result.call_id.clone())),
            }
        }
        let other_content = message.content.iter().any(|block| !matches!(block, ContentBlock::ToolResult(_)));
        if other_content && let Some(id) = self.open.first() {
            return Err(Parted::CallWithoutResult(id.clone()));
        }
        for call in message.tool_calls() {
            if self.open.contains(&call.id) {
                return Err(Parted::Twice(call.id.clone()));
            }
            self.open.push(call.id.clone());
        }
        Ok(())
    }

    /// Nothing more comes: every call must have its result.
    pub fn end(&self) -> Result<(), Parted> {
        self.open.first().map_or(Ok(()), |id| Err(Parted::CallWithoutResult(id.clone())))
    }

    /// Checks a whole list.
    pub fn all<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Result<(), Parted> {
        let mut check = PairCheck::default();
        for message in messages {
            check.next(message)?;
        }
        check.end()
    }
}

/// The model's view of a session, kept while its log grows.
///
/// Cloning copies as many pointers as there are messages; share it as `Arc<History>` and use [`Arc::make_mut`].
#[derive(Debug, Clone, Default)]
pub struct History {
    messages: Vec<Arc<ModelMessage>>,
    /// `tokens[i]`: estimate of the messages before i.
    tokens: Vec<u64>,
    /// `chain[i]`: hash over messages 0 to i, once somebody asked for it. What a compaction takes out is never hashed on a resume.
    chain: Vec<OnceLock<ChainHash>>,
    pairs: PairCheck,
    parted: Option<Parted>,
}

impl History {
    /// Takes the log's next event into account. An event that is no message changes nothing.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::UserMessage(data) => self.push(Message::user(data.content.clone()), Origin::User),
            Event::ContextMessage(data) => self.push(Message::user(data.content.clone()), Origin::Context),
            Event::SteeringMessage(data) => self.push(Message::user(data.content.clone()), Origin::Steering),
            Event::AssistantMessage(data) if data.turn > 0 => {
                self.push(Message::assistant(data.content.clone()), Origin::Assistant)
            }
            Event::ToolResult(data) if data.turn > 0 => {
                let result = ToolResult {
                    call_id: data.call_id.clone(),
                    content: data.content.clone(),
                    is_error: data.is_error,
                    cache: None,
                };
                self.push(Message::user(vec![ContentBlock::ToolResult(result)]), Origin::Tool);
            }
            Event::CompactionApplied(data) => self.compact(data),
            _ => {}
        }
    }

    fn push(&mut self, message: Message, origin: Origin) {
        if message.content.iter().any(ContentBlock::is_content) {
            self.push_weighed(Arc::new(ModelMessage::new(message, origin)));
        }
    }

    fn push_weighed(&mut self, message: Arc<ModelMessage>) {
        if self.parted.is_none() {
            self.parted = self.pairs.next(&message.message).err();
        }
        let before =
            self.tokens.last().copied().unwrap_or(0) + self.messages.last().map_or(0, |last| u64::from(last.tokens));
        self.tokens.push(before);
        self.chain.push(OnceLock::new());
        self.messages.push(message);
    }

    /// Replaces a range for good. A range beyond the end (a log of a broken writer) is cut to what is there.
    fn compact(&mut self, data: &CompactionApplied) {
        let start = (data.start as usize).min(self.messages.len());
        let end = start.saturating_add(data.count as usize).min(self.messages.len());
        let tail = self.messages.split_off(end);
        self.messages.truncate(start);
        self.tokens.truncate(start);
        self.chain.truncate(start);
        self.pairs = PairCheck::default();
        self.parted = None;
        for message in &self.messages {
            if self.parted.is_none() {
                self.parted = self.pairs.next(&message.message).err();
            }
        }
        for message in &data.replacement {
            self.push(message.clone(), Origin::Summary);
        }
        for message in tail {
            self.push_weighed(message);
        }
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// All messages.
    pub fn messages(&self) -> &[Arc<ModelMessage>] {
        &self.messages
    }

    /// Whether every tool call has its result and the other way round.
    pub fn check_pairs(&self) -> Result<(), Parted> {
        self.parted.clone().map_or_else(|| self.pairs.end(), Err)
    }

    /// The same for the messages from `start` to before `end`, after what `check` has seen; of a history in which nothing is parted.
    fn check_part(&self, check: &mut PairCheck, start: usize, end: usize) -> Result<(), Parted> {
        let mut at = start;
        // From where both wait for the same results, what follows was checked when it came.
        while at < end && check.open != self.open_before(at) {
            check.next(&self.messages[at].message)?;
            at += 1;
        }
        if at < end {
            check.open = self.open_before(end);
        }
        Ok(())
    }

    /// The calls that wait for their results before message `at`; of a history in which nothing is parted.
    fn open_before(&self, at: usize) -> Vec<String> {
        let is_result = |message: &&Arc<ModelMessage>| message.message.tool_results().next().is_some();
        let results = self.messages[..at].iter().rev().take_while(is_result).count();
        let first = at - results;
        let mut check = PairCheck::default();
        for message in &self.messages[first.saturating_sub(1)..at] {
            // Results of calls before that are not among these have been checked.
            let _ = check.next(&message.message);
        }
        check.open
    }

    /// The hash over the messages before `end`; costs what was added since it was last asked for.
    fn chain_before(&self, end: usize) -> ChainHash {
        let known = self.chain[..end].iter().enumerate().rev().find_map(|(at, link)| Some((at + 1, *link.get()?)));
        let (from, link) = known.unwrap_or((0, [0; 32]));
        (from..end).fold(link, |link, at| *self.chain[at].get_or_init(|| extend_chain(&link, &self.messages[at])))
    }

    /// The host's estimate for the messages from `start` to before `end`.
    fn tokens_between(&self, start: usize, end: usize) -> u64 {
        let before = |at: usize| match self.tokens.get(at) {
            Some(tokens) => *tokens,
            None => {
                self.tokens.last().copied().unwrap_or(0) + self.messages.last().map_or(0, |last| u64::from(last.tokens))
            }
        };
        before(end) - before(start)
    }
}

/// A stretch of a [`MessageList`].
#[derive(Debug, Clone)]
pub(crate) enum Segment {
    /// Messages `start` to before `end` of the base.
    Base { start: usize, end: usize },
    /// Messages of its own.
    Own(Arc<[Arc<ModelMessage>]>),
}

impl Segment {
    pub(crate) fn len(&self) -> usize {
        match self {
            Segment::Base { start, end } => end - start,
            Segment::Own(messages) => messages.len(),
        }
    }
}

/// A list of messages: a history with stretches replaced. Cloning it is cheap whatever its length.
#[derive(Debug, Clone)]
pub struct MessageList {
    base: Arc<History>,
    segments: Vec<Segment>,
}

impl MessageList {
    /// The whole of `base`.
    pub fn new(base: Arc<History>) -> Self {
        let segments = if base.is_empty() { vec![] } else { vec![Segment::Base { start: 0, end: base.len() }] };
        Self { base, segments }
    }

    /// A list of its own, without a history behind it.
    pub fn of(messages: impl IntoIterator<Item = Message>) -> Self {
        let own: Arc<[_]> =
            messages.into_iter().map(|message| Arc::new(ModelMessage::new(message, Origin::Edit))).collect();
        Self { base: Arc::default(), segments: vec![Segment::Own(own)] }
    }

    pub(crate) fn from_segments(base: Arc<History>, segments: Vec<Segment>) -> Self {
        Self { base, segments }
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The message at `index`.
    pub fn get(&self, index: usize) -> Option<&Arc<ModelMessage>> {
        let mut left = index;
        for segment in &self.segments {
            if left < segment.len() {
                return Some(match segment {
                    Segment::Base { start, .. } => &self.base.messages[start + left],
                    Segment::Own(messages) => &messages[left],
                });
            }
            left -= segment.len();
        }
        None
    }

    /// All messages in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<ModelMessage>> {
        self.segments.iter().flat_map(|segment| match segment {
            Segment::Base { start, end } => self.base.messages[*start..*end].iter(),
            Segment::Own(messages) => messages.iter(),
        })
    }

    /// The messages from `start`, `count` of them; none when the range goes beyond the end.
    pub fn range(&self, start: usize, count: usize) -> Option<Vec<Arc<ModelMessage>>> {
        let end = start.checked_add(count)?;
        if end > self.len() {
            return None;
        }
        let mut out = Vec::with_capacity(count);
        let mut at = 0;
        for segment in &self.segments {
            let (from, to) = (start.max(at), end.min(at + segment.len()));
            if from < to {
                match segment {
                    Segment::Base { start, .. } => {
                        out.extend_from_slice(&self.base.messages[start + from - at..start + to - at])
                    }
                    Segment::Own(messages) => out.extend_from_slice(&messages[from - at..to - at]),
                }
            }
            at += segment.len();
        }
        Some(out)
    }

    /// The host's estimate of all messages' tokens.
    pub fn tokens(&self) -> u64 {
        self.segments
            .iter()
            .map(|segment| match segment {
                Segment::Base { start, end } => self.base.tokens_between(*start, *end),
                Segment::Own(messages) => messages.iter().map(|message| u64::from(message.tokens)).sum(),
            })
            .sum()
    }

    /// The hash over all messages; costs what lies behind the first change of the history.
    pub fn chain(&self) -> ChainHash {
        let mut link = [0; 32];
        let mut untouched = true;
        let mut at = 0;
        for segment in &self.segments {
            match segment {
                Segment::Base { start, end } if untouched && *start == at => {
                    link = self.base.chain_before(*end);
                    at = *end;
                }
                Segment::Base { start, end } => {
                    untouched = false;
                    link = self.base.messages[*start..*end]
                        .iter()
                        .fold(link, |link, message| extend_chain(&link, message));
                }
                Segment::Own(messages) => {
                    untouched = untouched && messages.is_empty();
                    link = messages.iter().fold(link, |link, message| extend_chain(&link, message));
                }
            }
        }
        link
    }

    /// Whether every tool call has its result and the other way round; looks at what was changed and at what stands next to it.
    pub fn check_pairs(&self) -> Result<(), Parted> {
        if self.base.parted.is_some() {
            return PairCheck::all(self.iter().map(|message| &message.message));
        }
        let mut check = PairCheck::default();
        for segment in &self.segments {
            match segment {
                Segment::Base { start, end } => self.base.check_part(&mut check, *start, *end)?,
                Segment::Own(messages) => messages.iter().try_for_each(|message| check.next(&message.message))?,
            }
        }
        check.end()
    }
}

impl Serialize for MessageList {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(|message| &message.message))
    }
}

/// All of a request but its messages.
#[derive(Debug, Clone, Serialize)]
pub struct Frame<'a> {
    /// `PROVIDER/MODEL`.
    pub model: &'a str,
    /// The sampling.
    pub sampling: &'a Sampling,
    /// The system prompt.
    pub system: &'a str,
    /// The tools.
    pub tools: &'a [ToolSchema],
}

/// The hash over a frame, ready to be ended by any chain: a frame changes seldom, a chain with every request.
#[derive(Clone)]
pub struct FrameHash(Sha256);

impl FrameHash {
    /// Hashes the frame's canonical JSON.
    pub fn new(frame: &Frame<'_>) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(canonical_json(frame).as_bytes());
        Self(hasher)
    }

    /// SHA-256(frame ‖ chain) in lower-case hex: the `hash` of `request/sent`.
    pub fn request(&self, chain: &ChainHash) -> String {
        let mut hasher = self.0.clone();
        hasher.update(chain);
        hex(&hasher.finalize())
    }
}

/// SHA-256 over a text in lower-case hex.
pub fn text_hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// Bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        use std::fmt::Write;
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{AssistantMessage, Source, ToolResultEvent, UserMessage};
    use crate::ids::PluginName;
    use crate::message::ToolCall;

    fn user(text: &str) -> Event {
        Event::UserMessage(UserMessage { content: vec![ContentBlock::text(text)], source: Source::User })
    }

    fn assistant(turn: u32, content: Vec<ContentBlock>) -> Event {
        Event::AssistantMessage(AssistantMessage { turn, step: 1, content, interrupted: None })
    }

    fn call(id: &str) -> ContentBlock {
        ContentBlock::ToolCall(ToolCall { id: id.into(), name: "echo".into(), arguments: "{}".into(), opaque: None })
    }

    fn result(turn: u32, id: &str) -> Event {
        Event::ToolResult(ToolResultEvent {
            turn,
            step: 1,
            call_id: id.into(),
            content: vec![ResultBlock::text("ok")],
            is_error: false,
            code: None,
            plugin: None,
        })
    }

    fn texts(list: &MessageList) -> String {
        let text = |message: &Arc<ModelMessage>| {
            let calls: String = message.message.tool_calls().map(|call| format!("call {} ", call.id)).collect();
            let results: String =
                message.message.tool_results().map(|result| format!("result {} ", result.call_id)).collect();
            format!("{}{calls}{results}", message.message.text().unwrap_or_default()).trim().to_owned()
        };
        list.iter().map(text).collect::<Vec<_>>().join(" | ")
    }

    fn check(events: &[Event], expect: &str, pairs: Result<(), Parted>) {
        let mut history = History::default();
        events.iter().for_each(|event| history.apply(event));
        assert_eq!(history.check_pairs(), pairs);
        let list = MessageList::new(Arc::new(history));
        assert_eq!(texts(&list), expect);
        assert_eq!(list.check_pairs(), pairs);
        let again = MessageList::of(list.iter().map(|message| message.message.clone()));
        assert_eq!(again.chain(), list.chain(), "the chain kept on the way is the chain computed at once");
        assert_eq!(again.tokens(), list.tokens());
    }

    #[test]
    fn messages_come_in_log_order() {
        check(
            &[
                user("a"),
                assistant(1, vec![ContentBlock::text("b"), call("1"), call("2")]),
                result(1, "1"),
                result(1, "2"),
                user("c"),
            ],
            "a | bcall 1 call 2 | result 1 | result 2 | c",
            Ok(()),
        );
    }

    #[test]
    fn empty_messages_and_turn_0_are_skipped() {
        check(
            &[
                user("a"),
                assistant(1, vec![]),
                assistant(1, vec![ContentBlock::reasoning("hm")]),
                assistant(0, vec![call("x")]),
                result(0, "x"),
            ],
            "a",
            Ok(()),
        );
    }

    #[test]
    fn parted_pairs_are_found() {
        check(
            &[user("a"), assistant(1, vec![call("1")]), user("b")],
            "a | call 1 | b",
            Err(Parted::CallWithoutResult("1".into())),
        );
        check(&[user("a"), result(1, "1")], "a | result 1", Err(Parted::ResultWithoutCall("1".into())));
        check(&[user("a"), assistant(1, vec![call("1")])], "a | call 1", Err(Parted::CallWithoutResult("1".into())));
    }

    /// What is checked piece by piece is what is checked message by message: lists of stretches of a history with others between.
    #[test]
    fn pairs_are_checked_in_any_list() {
        let mut dice: u64 = 1;
        let mut roll = |sides: usize| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(dice >> 33).expect("31 bits") % sides
        };
        let (mut good, mut bad) = (0, 0);
        for round in 0..5_000 {
            let mut history = History::default();
            for _ in 0..roll(8) {
                history.apply(&user("a"));
                let ids: Vec<String> = (0..roll(4)).map(|n| n.to_string()).collect();
                let text = (roll(2) == 0).then(|| ContentBlock::text("b"));
                history.apply(&assistant(1, text.into_iter().chain(ids.iter().map(|id| call(id))).collect()));
                // Now and then a result is missing.
                ids.iter().filter(|_| roll(20) > 0).for_each(|id| history.apply(&result(1, id)));
            }
            let length = history.len();
            let (mut segments, mut at) = (Vec::new(), 0);
            while at < length {
                let end = at + 1 + roll(length - at);
                segments.push(Segment::Base { start: at, end });
                at = end + roll(3).min(length - end) * roll(2);
                let own: Vec<Message> = match roll(6) {
                    0 => vec![Message::user_text("own")],
                    1 => vec![Message::assistant(vec![call("0")]), results(&["0"])],
                    2 => vec![Message::assistant(vec![call("x")])],
                    3 => vec![results(&["0"])],
                    _ => continue,
                };
                let own = own.into_iter().map(|message| Arc::new(ModelMessage::new(message, Origin::Edit)));
                segments.push(Segment::Own(own.collect()));
            }
            let list = MessageList::from_segments(Arc::new(history), segments);
            let expect = PairCheck::all(list.iter().map(|message| &message.message));
            assert_eq!(list.check_pairs(), expect, "round {round}: {}", texts(&list));
            *(if expect.is_ok() { &mut good } else { &mut bad }) += 1;
        }
        assert!(good > 500 && bad > 500, "{good} good ones, {bad} bad ones");
    }

    fn results(ids: &[&str]) -> Message {
        let result = |id: &&str| {
            ContentBlock::ToolResult(ToolResult {
                call_id: (*id).to_owned(),
                content: vec![ResultBlock::text("ok")],
                is_error: false,
                cache: None,
            })
        };
        Message::user(ids.iter().map(result).collect())
    }

    #[test]
    fn a_compaction_replaces_its_range() {
        let compaction = Event::CompactionApplied(CompactionApplied {
            turn: 1,
            step: 1,
            start: 1,
            count: 2,
            replacement: vec![Message::user_text("left out")],
            plugin: PluginName::new("compaction").expect("valid"),
        });
        check(&[user("a"), user("b"), user("c"), user("d"), compaction, user("e")], "a | left out | d | e", Ok(()));
    }

    /// Whenever it is asked for, the chain is that over all messages, computed anew.
    #[test]
    fn the_chain_grows_with_the_history() {
        let compaction = |start, count| {
            Event::CompactionApplied(CompactionApplied {
                turn: 1,
                step: 1,
                start,
                count,
                replacement: vec![Message::user_text("left out")],
                plugin: PluginName::new("compaction").expect("valid"),
            })
        };
        let events: Vec<Event> = (0..20)
            .map(|n| match n {
                7 => compaction(0, 3),
                12 => compaction(2, 4),
                13 => compaction(0, 0),
                _ => user(&n.to_string()),
            })
            .collect();
        // Asked after each event, after every third, and only at the end.
        for asked in [1, 3, 100] {
            let mut history = Arc::new(History::default());
            for (n, event) in events.iter().enumerate() {
                Arc::make_mut(&mut history).apply(event);
                if n % asked == 0 || n + 1 == events.len() {
                    let list = MessageList::new(history.clone());
                    let again = MessageList::of(list.iter().map(|message| message.message.clone()));
                    assert_eq!(list.chain(), again.chain(), "after event {n}");
                    let part = MessageList::from_segments(history.clone(), vec![Segment::Base { start: 0, end: 1 }]);
                    let again = MessageList::of(part.iter().map(|message| message.message.clone()));
                    assert_eq!(part.chain(), again.chain(), "the first message after event {n}");
                }
            }
        }
    }

    #[test]
    fn ranges_cross_segments() {
        let mut history = History::default();
        ["a", "b", "c", "d"].iter().for_each(|text| history.apply(&user(text)));
        let own: Arc<[_]> = [Arc::new(ModelMessage::new(Message::user_text("x"), Origin::Edit))].into();
        let list = MessageList::from_segments(
            Arc::new(history),
            vec![Segment::Base { start: 0, end: 2 }, Segment::Own(own), Segment::Base { start: 3, end: 4 }],
        );
        assert_eq!(texts(&list), "a | b | x | d");
        let range = |start, count| list.range(start, count).map(|found| found.len());
        assert_eq!((range(1, 3), range(0, 4), range(4, 0), range(3, 2)), (Some(3), Some(4), Some(0), None));
        assert_eq!(list.get(2).map(|message| message.origin), Some(Origin::Edit));
        let again = MessageList::of(list.iter().map(|message| message.message.clone()));
        assert_eq!(again.chain(), list.chain());
    }
}
