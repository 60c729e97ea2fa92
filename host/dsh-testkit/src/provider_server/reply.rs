//! What the server does with one request.

use std::time::Duration;

use super::wire::{Answer, Protocol, Stage, WireEvent};

/// What the server does with a connection, one after the other.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// Sends bytes in a packet of their own, as far as that can be had.
    Bytes(Vec<u8>),
    /// Sends nothing for so long.
    Pause(Duration),
    /// Sends bytes one at a time, with so much time before each.
    Slowly(Vec<u8>, Duration),
    /// Sends the bytes again and again until the client hangs up, with so much time between.
    Endless(Vec<u8>, Duration),
    /// Sends nothing more and waits until the client hangs up.
    Stall,
    /// Resets the connection.
    Reset,
    /// Closes the connection in the middle of the body.
    Close,
}

/// How the end of the body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// In chunks, one for each part.
    Chunked,
    /// By a length, true or not.
    Length(usize),
    /// By the end of the connection.
    Close,
    /// There is not even a head: the parts are all that is sent.
    Raw,
}

/// One answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) status: u16,
    pub(super) framing: Framing,
    pub(super) headers: Vec<(String, String)>,
    /// Bytes before the head.
    pub(super) before: Vec<u8>,
    pub(super) parts: Vec<Part>,
    /// Whether another request may come on the same connection.
    pub(super) keeps: bool,
}

impl Reply {
    fn new(status: u16, framing: Framing) -> Self {
        Self { status, framing, headers: vec![], before: vec![], parts: vec![], keeps: false }
    }

    /// An answer in a protocol.
    pub fn answer(protocol: Protocol, answer: &Answer) -> Self {
        Self::wire(&protocol.events(answer))
    }

    /// The same as far as it has come before `stage`.
    pub fn until(protocol: Protocol, answer: &Answer, stage: Stage) -> Self {
        let events: Vec<_> = protocol.events(answer).into_iter().take_while(|event| event.stage < stage).collect();
        Self::wire(&events)
    }

    /// A stream of these events.
    pub fn wire(events: &[WireEvent]) -> Self {
        events.iter().fold(Self::stream(), |reply, event| reply.bytes(&event.bytes()))
    }

    /// A stream of events with these data, without `[DONE]`.
    pub fn events<T: ToString>(data: impl IntoIterator<Item = T>) -> Self {
        Self::stream().data(data)
    }

    /// A stream that has no event yet.
    pub fn stream() -> Self {
        Self::new(200, Framing::Chunked).header("content-type", "text/event-stream")
    }

    /// A status with a JSON body.
    pub fn status(status: u16, body: &str) -> Self {
        Self::new(status, Framing::Chunked).header("content-type", "application/json").bytes(body.as_bytes())
    }

    /// A status with a body of another type.
    pub fn page(status: u16, content_type: &str, body: &str) -> Self {
        Self::new(status, Framing::Chunked).header("content-type", content_type).bytes(body.as_bytes())
    }

    /// Nothing but what is added: neither a head nor the end of a body.
    pub fn raw() -> Self {
        Self::new(0, Framing::Raw)
    }

    /// No answer: the connection is reset.
    pub fn reset_before() -> Self {
        Self::raw().reset()
    }

    /// No answer: the server waits until the client hangs up.
    pub fn stall_before() -> Self {
        Self::raw().stall()
    }

    /// One more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with another type of content.
    #[must_use]
    pub fn content_type(mut self, value: &str) -> Self {
        self.headers.retain(|(name, _)| name != "content-type");
        self.header("content-type", value)
    }

    /// Bytes before the head, such as an informational head.
    #[must_use]
    pub fn preceded_by(mut self, bytes: &str) -> Self {
        self.before.extend_from_slice(bytes.as_bytes());
        self
    }

    /// The body has this `content-length`, whatever is sent.
    #[must_use]
    pub fn length(mut self, length: usize) -> Self {
        self.framing = Framing::Length(length);
        self
    }

    /// The body ends with the connection.
    #[must_use]
    pub fn until_close(mut self) -> Self {
        self.framing = Framing::Close;
        self
    }

    /// Another request may come on the same connection.
    #[must_use]
    pub fn keep_alive(mut self) -> Self {
        self.keeps = true;
        self
    }

    /// More events without a name.
    #[must_use]
    pub fn data<T: ToString>(self, data: impl IntoIterator<Item = T>) -> Self {
        data.into_iter().fold(self, |reply, data| reply.bytes(format!("data: {}\n\n", data.to_string()).as_bytes()))
    }

    /// More events.
    #[must_use]
    pub fn and(self, events: &[WireEvent]) -> Self {
        events.iter().fold(self, |reply, event| reply.bytes(&event.bytes()))
    }

    /// The event `[DONE]`.
    #[must_use]
    pub fn done(self) -> Self {
        self.data(["[DONE]"])
    }

    /// More bytes, as they are.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.part(Part::Bytes(bytes.to_vec()))
    }

    /// What follows comes so much later.
    #[must_use]
    pub fn after(self, pause: Duration) -> Self {
        self.part(Part::Pause(pause))
    }

    /// These bytes until the client hangs up, with so much time between.
    #[must_use]
    pub fn endless(self, bytes: &[u8], every: Duration) -> Self {
        self.part(Part::Endless(bytes.to_vec(), every))
    }

    /// From here on nothing comes.
    #[must_use]
    pub fn stall(self) -> Self {
        self.part(Part::Stall)
    }

    /// Here the connection is reset.
    #[must_use]
    pub fn reset(self) -> Self {
        self.part(Part::Reset)
    }

    /// Here the connection is closed in the middle of the body.
    #[must_use]
    pub fn close(self) -> Self {
        self.part(Part::Close)
    }

    /// All bytes so far with `\r\n` for `\n`.
    #[must_use]
    pub fn crlf(self) -> Self {
        self.map(|bytes| vec![String::from_utf8_lossy(&bytes).replace('\n', "\r\n").into_bytes()])
    }

    /// All bytes so far with `\r` for `\n`.
    #[must_use]
    pub fn cr(self) -> Self {
        self.map(|bytes| vec![String::from_utf8_lossy(&bytes).replace('\n', "\r").into_bytes()])
    }

    /// All bytes so far one at a time, so that characters and line ends are cut.
    #[must_use]
    pub fn bytewise(self) -> Self {
        self.map(|bytes| bytes.into_iter().map(|byte| vec![byte]).collect())
    }

    /// All bytes so far one at a time, with so much time before each.
    #[must_use]
    pub fn slowly(mut self, every: Duration) -> Self {
        for part in &mut self.parts {
            if let Part::Bytes(bytes) = part {
                *part = Part::Slowly(std::mem::take(bytes), every);
            }
        }
        self
    }

    /// All bytes so far in one packet.
    #[must_use]
    pub fn packed(mut self) -> Self {
        let packed = vec![Part::Bytes(self.body())];
        let others = std::mem::replace(&mut self.parts, packed).into_iter();
        self.parts.extend(others.filter(|part| !matches!(part, Part::Bytes(_))));
        self
    }

    /// All bytes so far through `change`.
    #[must_use]
    pub fn changed(mut self, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> Self {
        self = self.packed();
        if let Some(Part::Bytes(bytes)) = self.parts.first_mut() {
            *bytes = change(std::mem::take(bytes));
        }
        self
    }

    /// The bytes so far.
    pub fn body(&self) -> Vec<u8> {
        let bytes = self.parts.iter().filter_map(|part| match part {
            Part::Bytes(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        bytes.collect::<Vec<_>>().concat()
    }

    fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    fn map(mut self, split: impl Fn(Vec<u8>) -> Vec<Vec<u8>>) -> Self {
        self.parts = self
            .parts
            .into_iter()
            .flat_map(|part| match part {
                Part::Bytes(bytes) => split(bytes).into_iter().map(Part::Bytes).collect(),
                other => vec![other],
            })
            .collect();
        self
    }
}
