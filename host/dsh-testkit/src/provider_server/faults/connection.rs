//! What can happen to a connection, and to the head of an answer.

use std::time::Duration;

use super::{Fault, Wait, half, piece, text, whole};
use crate::provider_server::{Protocol, Reply};

/// The pace of a slow server: slow enough that no answer is complete in a short total time-out.
const PACE: Duration = Duration::from_millis(20);
/// The pace of a server that only shows that it lives.
const PING: Duration = Duration::from_millis(5);

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("reset-before", "resets the connection instead of answering", |_| Reply::reset_before()),
    Fault::new("close-before", "closes the connection instead of answering", |_| Reply::raw().close()),
    Fault::new("stall-before", "never answers", |_| Reply::stall_before()).waits(Wait::FirstByte),
    Fault::new("half-head", "closes the connection in the middle of the head", |_| {
        Reply::raw().bytes(b"HTTP/1.1 200 OK\r\ncontent-ty").close()
    }),
    Fault::new("stall-after-head", "sends the head and nothing else", |_| Reply::stream().stall())
        .waits(Wait::FirstByte),
    Fault::new("stall", "stops sending in the middle of the answer", |protocol| half(protocol).stall())
        .waits(Wait::Idle),
    Fault::new("slow", "sends one byte at a time, slowly, and is never done", |protocol| {
        Reply::answer(protocol, &text()).slowly(PACE)
    })
    .waits(Wait::Total),
    Fault::new("pings", "sends comments and pings for ever", |protocol| {
        let ping: &[u8] = match protocol {
            Protocol::Messages => b"event: ping\ndata: {\"type\": \"ping\"}\n\n",
            _ => b": ping\n\n",
        };
        Reply::stream().endless(ping, PING)
    })
    .waits(Wait::Total),
    Fault::new("reset", "resets the connection in the middle of the answer", |protocol| half(protocol).reset()),
    Fault::new("close", "closes the connection in the middle of a chunked body", |protocol| half(protocol).close()),
    Fault::new("close-without-length", "closes the connection where only that ends the body", |protocol| {
        half(protocol).until_close()
    }),
    Fault::new("length-too-large", "promises more bytes than it sends", |protocol| {
        let reply = half(protocol).packed();
        let length = reply.body().len() + 100;
        reply.length(length)
    }),
    Fault::new("length-too-small", "promises fewer bytes than it sends", |protocol| {
        let reply = half(protocol).packed();
        let length = reply.body().len() - 20;
        reply.length(length)
    }),
    Fault::new("chunk-of-nonsense", "sends a chunk whose length is no number", |protocol| {
        Reply::raw()
            .bytes(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            .bytes(&chunk(&half(protocol).body()))
            .bytes(b"zz\r\nnonsense\r\n")
            .close()
    }),
    Fault::new("informational-heads", "sends heads of status 100 and 103 first", |protocol| {
        whole(protocol).preceded_by("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")
    }),
    Fault::new("bytewise-head", "sends the head one byte at a time", |protocol| {
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        Reply::raw().bytes(head).bytewise().bytes(&whole(protocol).body()).close()
    }),
    Fault::new("many-headers", "sends a hundred and fifty headers", |protocol| {
        (0..150).fold(whole(protocol), |reply, number| reply.header(&format!("x-{number}"), "of no use"))
    }),
    Fault::new("endless-head", "sends headers for ever", |_| {
        Reply::raw().bytes(b"HTTP/1.1 200 OK\r\n").endless(format!("x-a: {}\r\n", "a".repeat(1000)).as_bytes(), NONE)
    }),
    Fault::new("no-http", "speaks another protocol than HTTP", |_| {
        Reply::raw().bytes(b"SSH-2.0-OpenSSH_9.6\r\n").close()
    }),
    Fault::new("kept-open", "sends the whole answer and leaves the connection open", |protocol| {
        whole(protocol).stall()
    }),
    Fault::new("reset-after", "sends the whole answer and resets the connection", |protocol| whole(protocol).reset()),
    Fault::new("endless", "sends text for ever", |protocol| {
        half(protocol).endless(&piece(protocol, &"on and on ".repeat(20_000)), NONE)
    }),
    Fault::new("endless-comments", "sends comments for ever, as fast as it can", |_| {
        Reply::stream().endless(format!(": {}\n", "c".repeat(100_000)).as_bytes(), NONE)
    }),
    Fault::new("endless-line", "sends a line that never ends", |_| {
        Reply::stream().bytes(b"data: \"").endless("d".repeat(100_000).as_bytes(), NONE)
    }),
    Fault::new("endless-events", "sends events without a word in them for ever", |protocol| {
        let event = match protocol {
            Protocol::Chat => "data: {\"choices\": []}\n\n",
            _ => "event: future\ndata: {\"type\": \"future\"}\n\n",
        };
        Reply::stream().endless(event.repeat(2000).as_bytes(), NONE)
    }),
    Fault::new("endless-calls", "begins tool calls for ever", |protocol| {
        let begun = |number: usize| begun_call(protocol, number);
        let many: Vec<u8> = (0..2000).flat_map(begun).collect();
        Reply::stream().endless(&many, NONE)
    }),
];

const NONE: Duration = Duration::ZERO;

/// The bytes as one chunk of a chunked body.
fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// The events with which a tool call begins.
fn begun_call(protocol: Protocol, number: usize) -> Vec<u8> {
    let id = format!("call_{number}");
    match protocol {
        Protocol::Chat => format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"id\":\"{id}\",\"function\":{{\"name\":\"t\",\"arguments\":\"\"}}}}]}}}}]}}\n\n"
        ),
        Protocol::Responses => format!(
            "event: response.output_item.added\ndata: {{\"type\":\"response.output_item.added\",\"output_index\":{number},\"item\":{{\"id\":\"{id}\",\"type\":\"function_call\",\"call_id\":\"{id}\",\"name\":\"t\",\"arguments\":\"\"}}}}\n\n"
        ),
        Protocol::Messages => format!(
            "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":{number},\"content_block\":{{\"type\":\"tool_use\",\"id\":\"{id}\",\"name\":\"t\",\"input\":{{}}}}}}\n\n"
        ),
    }
    .into_bytes()
}
