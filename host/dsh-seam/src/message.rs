//! The vocabulary of models: messages and their blocks, chunks of a stream, usage, sampling.
//!
//! The JSON shapes are those of the session log and of `--log-requests`: camelCase keys, kebab-case values. A block or a chunk this
//! version does not know is kept as it is (`Other`).

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::cost::Cost;
use crate::failure::Failure;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Refused in a history: the system prompt has a place of its own.
    System,
    /// A person, a plugin, a tool's result.
    User,
    /// The model.
    Assistant,
}

/// Asks the provider to cache the prompt up to and including a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheHint {
    /// For the provider's usual short time.
    Ephemeral,
}

/// Text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TextBlock {
    /// The text.
    pub text: String,
    /// A cache hint for the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheHint>,
    /// Provider state that must travel back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

/// What the model thought before it answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReasoningBlock {
    /// The text.
    pub text: String,
    /// Provider state that must travel back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

/// A call of a tool that the model asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The model's id for the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The raw text the model produced; it may be invalid JSON.
    pub arguments: String,
    /// Provider state that must travel back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// The answer.
    pub content: Vec<ResultBlock>,
    /// Whether the call failed.
    pub is_error: bool,
    /// A cache hint for the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheHint>,
}

/// Where an image is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageSource {
    /// At an address.
    Url(String),
    /// Here, in base64.
    Data(String),
}

/// An image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageBlock {
    /// For example `image/png`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Where it is.
    #[serde(flatten)]
    pub source: ImageSource,
    /// A cache hint for the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheHint>,
    /// Provider state that must travel back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opaque: Option<Value>,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ContentBlock {
    /// Text.
    Text(TextBlock),
    /// Reasoning.
    Reasoning(ReasoningBlock),
    /// A tool call.
    ToolCall(ToolCall),
    /// A tool result.
    ToolResult(ToolResult),
    /// An image.
    Image(ImageBlock),
    /// A block this version does not know: an object with a `type`, passed through untouched.
    #[serde(untagged)]
    Other(Value),
}

/// A piece of a tool's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ResultBlock {
    /// Text.
    Text(ResultText),
    /// An image.
    Image(ImageBlock),
    /// A block this version does not know: an object with a `type`, passed through untouched.
    #[serde(untagged)]
    Other(Value),
}

/// Text of a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultText {
    /// The text.
    pub text: String,
}

/// A block is read member by member. What `serde` derives for values with a `type` among their members copies all of them first, which
/// would be most of the work of reading a log.
trait Block: Sized {
    /// The types this version knows; a block of any other is kept as it is.
    const KNOWN: [&str; 5] = ["text", "reasoning", "tool-call", "tool-result", "image"];

    /// Reads a block of a known type from its other members.
    fn known<'de, D: Deserializer<'de>>(kind: &str, members: D) -> Result<Self, D::Error>;
    /// A block of an unknown type.
    fn other(value: Value) -> Self;
}

impl Block for ContentBlock {
    fn known<'de, D: Deserializer<'de>>(kind: &str, members: D) -> Result<Self, D::Error> {
        match kind {
            "text" => Deserialize::deserialize(members).map(Self::Text),
            "reasoning" => Deserialize::deserialize(members).map(Self::Reasoning),
            "tool-call" => Deserialize::deserialize(members).map(Self::ToolCall),
            "tool-result" => Deserialize::deserialize(members).map(Self::ToolResult),
            "image" => Deserialize::deserialize(members).map(Self::Image),
            _ => Err(out_of_place(kind)),
        }
    }

    fn other(value: Value) -> Self {
        Self::Other(value)
    }
}

impl Block for ResultBlock {
    fn known<'de, D: Deserializer<'de>>(kind: &str, members: D) -> Result<Self, D::Error> {
        match kind {
            "text" => Deserialize::deserialize(members).map(Self::Text),
            "image" => Deserialize::deserialize(members).map(Self::Image),
            _ => Err(out_of_place(kind)),
        }
    }

    fn other(value: Value) -> Self {
        Self::Other(value)
    }
}

fn out_of_place<E: Error>(kind: &str) -> E {
    Error::custom(format!("a block of type `{kind}` cannot stand here"))
}

impl<'de> Deserialize<'de> for ContentBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(BlockVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for ResultBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(BlockVisitor(PhantomData))
    }
}

/// A text that is copied only where it cannot be borrowed.
#[derive(Deserialize)]
#[serde(transparent)]
struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

struct BlockVisitor<B>(PhantomData<B>);

impl<'de, B: Block> Visitor<'de> for BlockVisitor<B> {
    type Value = B;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block, which is an object with a `type`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<B, A::Error> {
        let mut members = Map::new();
        if let Some(Word(key)) = map.next_key()? {
            if key == "type" {
                let Word(kind) = map.next_value()?;
                if B::KNOWN.contains(&&*kind) {
                    return B::known(&kind, MapAccessDeserializer::new(map));
                }
                members.insert(key.into_owned(), kind.into());
            } else {
                members.insert(key.into_owned(), map.next_value()?);
            }
        }
        while let Some((key, value)) = map.next_entry()? {
            members.insert(key, value);
        }
        match members.get("type").and_then(Value::as_str).map(str::to_owned) {
            None => Err(Error::custom("a block needs a `type`")),
            Some(kind) if B::KNOWN.contains(&&*kind) => B::known(&kind, Value::Object(members)).map_err(Error::custom),
            Some(_) => Ok(B::other(Value::Object(members))),
        }
    }
}

impl ContentBlock {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock { text: text.into(), ..TextBlock::default() })
    }

    /// A reasoning block.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::Reasoning(ReasoningBlock { text: text.into(), opaque: None })
    }

    /// The block's text, if it is a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(block) => Some(&block.text),
            _ => None,
        }
    }

    /// Whether a message made of this block alone says anything to a model: empty text does not, nor does reasoning that carries
    /// no provider state.
    pub fn is_content(&self) -> bool {
        match self {
            Self::Text(block) => !block.text.is_empty(),
            Self::Reasoning(block) => block.opaque.is_some(),
            Self::ToolCall(_) | Self::ToolResult(_) | Self::Image(_) | Self::Other(_) => true,
        }
    }
}

impl ResultBlock {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(ResultText { text: text.into() })
    }
}

/// The text blocks of a result, joined by newlines.
pub fn result_text(content: &[ResultBlock]) -> String {
    let mut out = String::new();
    for block in content {
        if let ResultBlock::Text(block) = block {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&block.text);
        }
    }
    out
}

/// One message of a conversation. A tool result is a `user` message with that one block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Vec<ContentBlock>,
}

impl Message {
    /// A message of role `user`.
    pub fn user(content: Vec<ContentBlock>) -> Self {
        Self { role: Role::User, content }
    }

    /// A message of role `user` with one text.
    pub fn user_text(text: impl Into<String>) -> Self {
        Self::user(vec![ContentBlock::text(text)])
    }

    /// A message of role `assistant`.
    pub fn assistant(content: Vec<ContentBlock>) -> Self {
        Self { role: Role::Assistant, content }
    }

    /// The tool calls in it, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            ContentBlock::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// The tool results in it, in order.
    pub fn tool_results(&self) -> impl Iterator<Item = &ToolResult> {
        self.content.iter().filter_map(|block| match block {
            ContentBlock::ToolResult(result) => Some(result),
            _ => None,
        })
    }

    /// Its text blocks, joined without separator; none when it has no text block.
    pub fn text(&self) -> Option<String> {
        let mut texts = self.content.iter().filter_map(ContentBlock::as_text).peekable();
        texts.peek()?;
        Some(texts.collect())
    }
}

/// Disjoint counts of tokens, saturating: `input` excludes cached ones, `output` excludes reasoning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Usage {
    /// Prompt tokens that were neither read from nor written to a cache.
    pub input: u32,
    /// Completion tokens without reasoning.
    pub output: u32,
    /// Prompt tokens read from a cache.
    pub cache_read: u32,
    /// Prompt tokens written to a cache.
    pub cache_write: u32,
    /// Completion tokens spent on reasoning.
    pub reasoning: u32,
    /// What they cost; none when unknown. Of a sum, what is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// The host has reckoned them from what was sent, because the provider did not count. Of a sum: some of them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Usage {
    /// Both together, saturating.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            cost: Cost::plus_known(self.cost, other.cost),
            estimated: self.estimated || other.estimated,
        }
    }

    /// All tokens, whatever they were for.
    pub fn tokens(&self) -> u64 {
        [self.input, self.output, self.cache_read, self.cache_write, self.reasoning].into_iter().map(u64::from).sum()
    }
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    /// It was done.
    Stop,
    /// It wants tools to run.
    ToolCalls,
    /// Its output was cut.
    MaxTokens,
    /// The provider stopped it.
    Aborted,
    /// It refused.
    Refused,
    /// It failed in mid-answer.
    Error(Failure),
    /// A reason this version does not know.
    Other(String),
}

/// What kind of block a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockType {
    /// Text.
    Text,
    /// Reasoning.
    Reasoning,
    /// A tool call.
    ToolCall,
    /// An image.
    Image,
    /// Anything else.
    Other,
}

/// One piece of a model's streamed answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase", try_from = "AnyChunk")]
pub enum Chunk {
    /// A block begins.
    BlockStart {
        /// The block's place in the message, from 0.
        index: u32,
        /// What it is.
        block_type: BlockType,
    },
    /// More text.
    TextDelta {
        /// The block's place.
        index: u32,
        /// What is added.
        text: String,
    },
    /// More reasoning.
    ReasoningDelta {
        /// The block's place.
        index: u32,
        /// What is added.
        text: String,
    },
    /// More of a tool call.
    ToolCallDelta {
        /// The block's place.
        index: u32,
        /// The call's id, empty when the provider gave none.
        id: String,
        /// The tool's name, in the first piece.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// What is added to the raw arguments.
        arguments_delta: String,
    },
    /// A block is complete.
    BlockEnd {
        /// The block's place.
        index: u32,
        /// The whole block.
        block: ContentBlock,
    },
    /// What the provider counted; a later one replaces an earlier one.
    Usage {
        /// The counts.
        usage: Usage,
    },
    /// The end.
    Finish {
        /// Why.
        reason: FinishReason,
    },
}

/// The members of all chunks: read in one go, since most of a log is chunks. A whole block is rare and large, and so in a box.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyChunk {
    r#type: ChunkType,
    index: Option<u32>,
    block_type: Option<BlockType>,
    text: Option<String>,
    id: Option<String>,
    name: Option<String>,
    arguments_delta: Option<String>,
    block: Option<Box<ContentBlock>>,
    usage: Option<Usage>,
    reason: Option<FinishReason>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ChunkType {
    BlockStart,
    TextDelta,
    ReasoningDelta,
    ToolCallDelta,
    BlockEnd,
    Usage,
    Finish,
}

impl TryFrom<AnyChunk> for Chunk {
    type Error = String;

    fn try_from(any: AnyChunk) -> Result<Self, String> {
        fn given<T>(member: Option<T>, name: &str) -> Result<T, String> {
            member.ok_or_else(|| format!("missing field `{name}`"))
        }
        let index = || given(any.index, "index");
        Ok(match any.r#type {
            ChunkType::BlockStart => {
                Chunk::BlockStart { index: index()?, block_type: given(any.block_type, "blockType")? }
            }
            ChunkType::TextDelta => Chunk::TextDelta { index: index()?, text: given(any.text, "text")? },
            ChunkType::ReasoningDelta => Chunk::ReasoningDelta { index: index()?, text: given(any.text, "text")? },
            ChunkType::ToolCallDelta => Chunk::ToolCallDelta {
                index: index()?,
                id: given(any.id, "id")?,
                name: any.name,
                arguments_delta: given(any.arguments_delta, "argumentsDelta")?,
            },
            ChunkType::BlockEnd => Chunk::BlockEnd { index: index()?, block: *given(any.block, "block")? },
            ChunkType::Usage => Chunk::Usage { usage: given(any.usage, "usage")? },
            ChunkType::Finish => Chunk::Finish { reason: given(any.reason, "reason")? },
        })
    }
}

/// A tool as the model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSchema {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// A JSON Schema (2020-12) object.
    pub parameters: Value,
    /// Ask the provider to enforce the schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

/// How the model is to answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sampling {
    /// Randomness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The most tokens to produce.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Texts at which to stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// `auto`, `none`, `required` or a tool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<String>,
    /// For example `low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// Members for the request's body that only some providers know, in the order given.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra: serde_json::Map<String, Value>,
}

/// `PROVIDER/MODEL`, as typed; `echo` and `script:FILE` are providers without a slash.
pub type ModelName = std::sync::Arc<str>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check<T: Serialize + for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug>(value: T, expect: Value) {
        assert_eq!(serde_json::to_value(&value).expect("serializes"), expect);
        assert_eq!(serde_json::from_value::<T>(expect).expect("parses"), value);
    }

    #[test]
    fn blocks_have_the_promised_shape() {
        check(ContentBlock::text("hi"), json!({"type": "text", "text": "hi"}));
        check(ContentBlock::reasoning("hm"), json!({"type": "reasoning", "text": "hm"}));
        check(
            ContentBlock::ToolCall(ToolCall {
                id: "1".into(),
                name: "echo".into(),
                arguments: "{".into(),
                opaque: Some(json!({"s": 1})),
            }),
            json!({"type": "tool-call", "id": "1", "name": "echo", "arguments": "{", "opaque": {"s": 1}}),
        );
        check(
            ContentBlock::ToolResult(ToolResult {
                call_id: "1".into(),
                content: vec![ResultBlock::text("x")],
                is_error: true,
                cache: None,
            }),
            json!({"type": "tool-result", "callId": "1", "content": [{"type": "text", "text": "x"}], "isError": true}),
        );
        check(
            ContentBlock::Image(ImageBlock {
                mime_type: Some("image/png".into()),
                source: ImageSource::Data("AA==".into()),
                cache: None,
                opaque: None,
            }),
            json!({"type": "image", "mimeType": "image/png", "data": "AA=="}),
        );
        check(ContentBlock::Other(json!({"type": "video", "x": [1]})), json!({"type": "video", "x": [1]}));
    }

    #[test]
    fn a_known_block_with_wrong_members_is_refused() {
        let check = |text: &str, expect: &str| {
            let error = serde_json::from_str::<ContentBlock>(text).expect_err(text).to_string();
            assert!(error.starts_with(expect), "{text}: {error}");
            let value: Value = serde_json::from_str(text).expect("JSON");
            assert!(serde_json::from_value::<ContentBlock>(value).is_err(), "{text}");
        };
        check(r#"{"type": "text"}"#, "missing field `text`");
        check(r#"{"x": 1, "type": "text"}"#, "missing field `text`");
        check(r#"{"type": "tool-call", "id": 1}"#, "invalid type: integer `1`, expected a string");
        check(r#"{"text": "no type"}"#, "a block needs a `type`");
        check(r#"{"type": 1}"#, "invalid type: integer `1`");
        check(r#""text""#, "invalid type: string \"text\", expected a block");
        let error = serde_json::from_str::<ResultBlock>(r#"{"type": "reasoning", "text": "x"}"#).expect_err("refused");
        assert!(error.to_string().starts_with("a block of type `reasoning` cannot stand here"), "{error}");
    }

    #[test]
    fn the_type_may_stand_anywhere() {
        let check = |text: &str, expect: Value| {
            let block: ContentBlock = serde_json::from_str(text).expect(text);
            assert_eq!(json!(block), expect, "{text}");
        };
        check(r#"{"text": "a", "more": 1, "type": "text"}"#, json!({"type": "text", "text": "a"}));
        check(r#"{"x": [1], "type": "video", "b": 2}"#, json!({"x": [1], "type": "video", "b": 2}));
        check(r#"{"\u0074ype": "t\u0065xt", "text": "a"}"#, json!({"type": "text", "text": "a"}));
        let chunk: Chunk = serde_json::from_str(r#"{"text": "a", "index": 1, "type": "text-delta"}"#).expect("a chunk");
        assert_eq!(chunk, Chunk::TextDelta { index: 1, text: "a".into() });
    }

    #[test]
    fn a_chunk_with_wrong_members_is_refused() {
        let check = |value: Value, expect: &str| {
            let error = serde_json::from_value::<Chunk>(value.clone()).expect_err("refused").to_string();
            assert_eq!(error, expect, "{value}");
        };
        check(json!({"index": 1, "text": "a"}), "missing field `type`");
        check(json!({"type": "text-delta", "index": 0}), "missing field `text`");
        check(json!({"type": "text-delta", "text": "a"}), "missing field `index`");
        check(json!({"type": "finish"}), "missing field `reason`");
        check(
            json!({"type": "text"}),
            "unknown variant `text`, expected one of `block-start`, `text-delta`, `reasoning-delta`, `tool-call-delta`, `block-end`, `usage`, `finish`",
        );
    }

    #[test]
    fn chunks_and_finishes_have_the_promised_shape() {
        check(
            Chunk::BlockStart { index: 0, block_type: BlockType::ToolCall },
            json!({"type": "block-start", "index": 0, "blockType": "tool-call"}),
        );
        check(
            Chunk::ToolCallDelta { index: 1, id: String::new(), name: None, arguments_delta: "{}".into() },
            json!({"type": "tool-call-delta", "index": 1, "id": "", "argumentsDelta": "{}"}),
        );
        check(Chunk::Finish { reason: FinishReason::ToolCalls }, json!({"type": "finish", "reason": "tool-calls"}));
        check(
            Chunk::Finish { reason: FinishReason::Error(Failure::new("server", "no")) },
            json!({"type": "finish", "reason": {"error": {"code": "server", "message": "no"}}}),
        );
        assert_eq!(
            serde_json::from_value::<Usage>(json!({"input": 3})).expect("missing counts are 0"),
            Usage { input: 3, ..Usage::default() }
        );
    }

    #[test]
    fn usage_says_what_it_cost_when_that_is_known() {
        let counts = json!({"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "reasoning": 5});
        let usage = Usage { input: 1, output: 2, cache_read: 3, cache_write: 4, reasoning: 5, ..Usage::default() };
        check(usage, counts.clone());
        let mut more = counts;
        more["cost"] = json!(0.001_234);
        more["estimated"] = json!(true);
        let priced = Usage { cost: Some(Cost::from_parts(1_234_000)), estimated: true, ..usage };
        check(priced, more);
        assert_eq!(priced.plus(usage).plus(priced).cost, Some(Cost::from_parts(2_468_000)));
        assert!(usage.plus(priced).estimated);
        assert_eq!(
            usage.plus(usage),
            Usage { input: 2, output: 4, cache_read: 6, cache_write: 8, reasoning: 10, ..Usage::default() }
        );
        assert_eq!(usage.tokens(), 15);
        assert!(serde_json::from_value::<Usage>(json!({"cost": -1})).is_err());
    }
}
