//! What can happen to the bytes of an answer on their way.

use super::gzip::gzip;
use super::{Fault, TEXT, half, piece, text, whole};
use crate::provider_server::{Answer, Protocol, Reply, Stage, WireEvent};

/// A long event that is no fault, and one that is longer than any may be.
const LONG: usize = 10 << 20;
const TOO_LONG: usize = 33 << 20;

/// How deep JSON may be nested before nobody means it.
const DEEP: usize = 100_000;

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("crlf", "ends lines with CR LF", |protocol| whole(protocol).crlf()),
    Fault::new("cr", "ends lines with CR", |protocol| whole(protocol).cr()),
    Fault::new("bytewise", "sends one byte a packet", |protocol| whole(protocol).crlf().bytewise()),
    Fault::new("packed", "sends all events in one packet", |protocol| whole(protocol).packed()),
    Fault::new("comments", "sends comments between the events and in them", |protocol| {
        whole(protocol).changed(|bytes| {
            let text = String::from_utf8_lossy(&bytes).replace("data: ", ": OPENROUTER PROCESSING\ndata: ");
            format!(": hello\n\n:\n\n{text}: bye\n\n").into_bytes()
        })
    }),
    Fault::new("byte-order-mark", "sends a byte order mark first", |protocol| {
        whole(protocol).changed(|bytes| [b"\xef\xbb\xbf", bytes.as_slice()].concat())
    }),
    Fault::new("other-fields", "sends ids, times to reconnect and fields that nobody knows", |protocol| {
        whole(protocol).changed(|bytes| {
            String::from_utf8_lossy(&bytes).replace("data: ", "id: 7\nretry: 10\nfuture: x\nalone\ndata:").into_bytes()
        })
    }),
    Fault::new("data-in-lines", "cuts the data of an event into several lines", |protocol| {
        whole(protocol).changed(|bytes| String::from_utf8_lossy(&bytes).replace(":{", ":\ndata: {").into_bytes())
    }),
    Fault::new("half-character", "ends in the middle of a character", |protocol| {
        half(protocol).changed(|mut bytes| {
            let at = bytes.iter().rposition(|byte| *byte >= 0xc0).expect("the text has such a character");
            bytes.truncate(at + 1);
            bytes
        })
    }),
    Fault::new("half-json", "ends in the middle of an event", |protocol| {
        half(protocol).changed(|mut bytes| {
            bytes.truncate(bytes.len() - 20);
            bytes
        })
    }),
    Fault::new("no-empty-line", "leaves the empty line behind the last event out", |protocol| {
        whole(protocol).changed(|mut bytes| {
            bytes.truncate(bytes.len() - 2);
            bytes
        })
    }),
    Fault::new("broken-json", "sends an event whose JSON is cut", |protocol| {
        half(protocol).bytes(&broken(piece(protocol, "x"))).and(&rest(protocol))
    }),
    Fault::new("no-json", "sends an event that is no JSON", |protocol| half(protocol).data(["hello"])),
    Fault::new("no-object", "sends an event that is JSON and no object", |protocol| half(protocol).data(["[1]"])),
    Fault::new("no-utf-8", "sends bytes that are no text", |protocol| {
        half(protocol).bytes(b"data: {\"a\": \"\xff\xfe\"}\n\n").and(&rest(protocol))
    }),
    Fault::new("nul", "sends NUL between the events", |protocol| half(protocol).bytes(b"\0\0\n").and(&rest(protocol))),
    Fault::new("nul-in-json", "sends NUL in a JSON text", |protocol| {
        half(protocol)
            .bytes(&piece(protocol, "x").iter().map(|byte| if *byte == b'x' { 0 } else { *byte }).collect::<Vec<_>>())
    }),
    Fault::new("deep-json", "nests JSON a hundred thousand times", |protocol| {
        half(protocol).data([format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP))])
    }),
    Fault::new("deep-json-in-a-whole", "nests the JSON of an answer that is not streamed", |_| {
        Reply::status(200, &format!("{}1{}", "{\"error\":".repeat(DEEP), "}".repeat(DEEP)))
    }),
    Fault::new("long-event", "sends an event of ten mebibytes", |protocol| {
        Reply::answer(protocol, &Answer::new().text(&"x".repeat(LONG)))
    }),
    Fault::new("event-too-long", "sends an event of thirty-three mebibytes", |protocol| {
        let events = protocol.events(&Answer::new().text(&"x".repeat(TOO_LONG)));
        Reply::wire(&events)
    }),
    Fault::new("gzip", "compresses the answer and says so", |protocol| {
        whole(protocol).changed(|bytes| gzip(&bytes)).header("content-encoding", "gzip")
    }),
    Fault::new("gzip-in-secret", "compresses the answer and does not say so", |protocol| {
        whole(protocol).changed(|bytes| gzip(&bytes))
    }),
    Fault::new("brotli", "says that the answer is compressed in a way that was not asked for", |protocol| {
        whole(protocol).header("content-encoding", "br")
    }),
    Fault::new("trailing-garbage", "sends nonsense behind the end", |protocol| {
        whole(protocol).bytes(b"\n\ndata: {\"choices\": [{\n\nevent: x\n\n\xff\xfe")
    }),
    Fault::new("wrong-type", "calls the stream plain text", |protocol| {
        whole(protocol).content_type("text/plain; charset=utf-8")
    }),
    Fault::new("stream-as-json", "calls the stream JSON", |protocol| whole(protocol).content_type("application/json")),
    Fault::new("json-as-stream", "calls an answer that is not streamed a stream", |protocol| {
        Reply::status(200, &protocol.whole(&Answer::new().text(TEXT)).to_string()).content_type("text/event-stream")
    }),
    Fault::new("not-streamed", "answers with one JSON document", |protocol| {
        Reply::status(200, &protocol.whole(&Answer::new().text(TEXT)).to_string())
    }),
    Fault::new("half-not-streamed", "answers with half a JSON document", |protocol| {
        let document = protocol.whole(&Answer::new().text(TEXT)).to_string();
        Reply::status(200, &document[..document.len() / 2])
    }),
];

/// The same piece with a part of its JSON cut away.
fn broken(piece: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8_lossy(&piece).into_owned();
    format!("{}\n\n", &text.trim_end()[..text.trim_end().len() - 3]).into_bytes()
}

/// The events of an answer from the one that says that it is whole.
fn rest(protocol: Protocol) -> Vec<WireEvent> {
    protocol.events(&text()).into_iter().skip_while(|event| event.stage < Stage::Close).collect()
}
