//! The body of a request as text: a frame that is the same from step to step, and the messages at its end.
//!
//! A message is written once and kept with it, so that a step costs what it adds and the copying of the rest, and a request begins with
//! the bytes of the one before.

use std::borrow::Cow;
use std::collections::HashMap;

use dsh_seam::message::{ImageBlock, ImageSource};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::Target;

/// What stands between frame, tools and messages and around them, in bytes, for the first allocation.
const ROOM_BETWEEN: usize = 128;

/// A body under way: the frame is written, and the messages follow.
pub(in super::super) struct Body(String);

impl Body {
    /// Writes all members of `frame`, then a list of tools that is written already, and opens the list of messages under `name` with
    /// room for that many bytes.
    pub fn sized(frame: Map<String, Value>, tools: Option<&str>, name: &str, room: usize) -> Self {
        let frame = Value::Object(frame).to_string();
        let open = frame.strip_suffix('}').expect("invariant: an object ends in a brace");
        let mut out = String::with_capacity(frame.len() + tools.map_or(0, str::len) + room + ROOM_BETWEEN);
        out.push_str(open);
        if let Some(tools) = tools {
            comma(&mut out, '{');
            out.push_str("\"tools\":");
            out.push_str(tools);
        }
        comma(&mut out, '{');
        out.push('"');
        out.push_str(name);
        out.push_str("\":[");
        Self(out)
    }

    /// One more element, or several with commas between them; nothing when it is empty.
    pub fn push(&mut self, written: &str) {
        self.push_parts(&[written]);
    }

    /// The same from parts that follow each other.
    pub fn push_parts(&mut self, parts: &[&str]) {
        if parts.iter().all(|part| part.is_empty()) {
            return;
        }
        comma(&mut self.0, '[');
        for part in parts {
            self.0.push_str(part);
        }
    }

    /// What ends an element that was pushed in pieces, its beginning first.
    pub fn shut(&mut self, end: &str) {
        self.0.push_str(end);
    }

    /// The whole body.
    pub fn close(mut self) -> Vec<u8> {
        self.0.push_str("]}");
        self.0.into_bytes()
    }
}

/// What stands between two members, unless the first one comes.
fn comma(out: &mut String, open: char) {
    if !out.ends_with(open) {
        out.push(',');
    }
}

/// Elements of a list as [`Body::push`] takes them.
pub(in super::super) fn joined(values: &[Value]) -> String {
    values.iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}

/// The arguments of a call as every server takes them back: most read them for the model's template, and would refuse the whole
/// conversation for ever when they are no object.
pub(in super::super) fn arguments(raw: &str) -> Cow<'_, str> {
    if raw.trim().is_empty() {
        return "{}".into();
    }
    match serde_json::from_str::<HashMap<Cow<'_, str>, IgnoredAny>>(raw) {
        Ok(_) => raw.into(),
        Err(_) => json!({ "invalid": raw }).to_string().into(),
    }
}

/// The members of a request's `extra`, and of the provider's own, that are sent beside those of the protocol; the request's win.
/// `reserved` are those that cannot be replaced: the adapter could not read the answer, or would send another conversation.
pub(in super::super) fn extra<'a>(
    configured: &'a Map<String, Value>,
    request: &'a Map<String, Value>,
    reserved: &'a [&str],
) -> impl Iterator<Item = (String, Value)> + 'a {
    let own = configured.iter().filter(|(name, _)| !request.contains_key(*name));
    own.chain(request)
        .filter(|(name, _)| !reserved.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
}

/// Puts `more` into a frame, where it wins over what is there and `null` takes a member away, and leaves out what the configuration does
/// not want sent. What is `reserved` stays.
pub(in super::super) fn complete(
    frame: &mut Map<String, Value>,
    more: impl IntoIterator<Item = (String, Value)>,
    target: &Target,
    reserved: &[&str],
) {
    for (name, value) in more {
        match value {
            Value::Null => drop(frame.shift_remove(&name)),
            value => drop(frame.insert(name, value)),
        }
    }
    frame.retain(|name, _| reserved.contains(&name.as_str()) || !target.omits(name));
}

/// What an image without a type most probably is.
const DEFAULT_IMAGE_TYPE: &str = "image/png";

/// The type of an image that is sent as data.
pub(in super::super) fn image_type(block: &ImageBlock) -> &str {
    block.mime_type.as_deref().unwrap_or(DEFAULT_IMAGE_TYPE)
}

/// Where an image is, or all of it as a URL.
pub(in super::super) fn image_url(block: &ImageBlock) -> String {
    match &block.source {
        ImageSource::Url(url) => url.clone(),
        ImageSource::Data(data) => format!("data:{};base64,{data}", image_type(block)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn arguments_are_an_object() {
        let check = |raw: &str, expect: &str| assert_eq!(super::arguments(raw), expect);
        check("", "{}");
        check(" ", "{}");
        check(r#"{"a":  "ä\n"}"#, r#"{"a":  "ä\n"}"#);
        check(r#"{"a": b"#, r#"{"invalid":"{\"a\": b"}"#);
        check("[1]", r#"{"invalid":"[1]"}"#);
    }
}
