//! What holds for every protocol: every behaviour of a server ends, nothing stays open, and who hangs up is noticed at once.

use std::time::Duration;

use dsh_seam::ModelFailure;
use dsh_seam::llm::{ChunkStream, Llm};
use dsh_seam::message::Message;
use dsh_testkit::provider_server::faults::{self, Fault, Wait};
use dsh_testkit::provider_server::{Answer, Protocol, ProviderServer, Reply, Stage};
use futures::StreamExt;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use super::super::support::{all, request, shown};
use super::super::{Models, ModelsConfig, ProviderConfig};

/// Where nothing comes, and where something must come first on a busy machine.
const SHORT_MS: u64 = 80;
const LONG_MS: u64 = 600;
/// How many chunks of an endless answer are enough.
const ENOUGH: usize = 100;
/// How many servers there are at once.
const TOGETHER: usize = 16;
/// In which time a server sees that its client is gone.
const AT_ONCE: Duration = Duration::from_millis(100);
/// How often that is tried: a busy machine may be late, and not every time.
const TRIES: usize = 5;
/// How often other tasks get their turn until all that can be done is done.
const TURNS: usize = 100;
/// When a test has hung.
const DEADLINE: Duration = Duration::from_secs(30);

fn models(protocol: Protocol, base_url: String, change: impl FnOnce(&mut ProviderConfig)) -> Models {
    let kind = protocol.kind().parse().expect("a kind");
    let mut provider = ProviderConfig { base_url: Some(base_url), ..ProviderConfig::new("p", kind) };
    change(&mut provider);
    Models::new(ModelsConfig { providers: vec![provider], ..ModelsConfig::default() })
}

async fn ask(models: &Models) -> Result<ChunkStream, ModelFailure> {
    let model = models.model("p/m").expect("it is configured");
    model.stream(request("p/m", vec![Message::user_text("hi")], &[])).await
}

/// The code of what came, or `whole`, `cut` and `endless`.
async fn outcome(models: &Models) -> String {
    let mut chunks = match ask(models).await {
        Ok(chunks) => chunks,
        Err(failure) => return failure.code,
    };
    let mut last = String::new();
    for _ in 0..ENOUGH {
        match chunks.next().await {
            None if last.contains("\"finish\"") => return "whole".into(),
            None => return "cut".into(),
            Some(Err(failure)) => {
                assert!(chunks.next().await.is_none(), "a failure is the last item");
                return failure.code;
            }
            Some(Ok(chunk)) => last = serde_json::to_string(&chunk).expect("JSON"),
        }
    }
    "endless".into()
}

/// Floods are for the binary to stand: without optimisation they take minutes.
const FLOODS: [&str; 7] = [
    "endless-comments",
    "endless-line",
    "endless-events",
    "endless-calls",
    "event-too-long",
    "long-event",
    "refusal-endless",
];

#[tokio::test]
async fn every_behaviour_ends_and_leaves_nothing_open() {
    let quick = faults::groups().into_iter().flat_map(|(_, faults)| faults.iter());
    let quick = quick.filter(|fault| !FLOODS.contains(&fault.name));
    let each = quick.flat_map(|fault| Protocol::ALL.map(|protocol| (fault, protocol)));
    futures::stream::iter(each).for_each_concurrent(TOGETHER, |(fault, protocol)| end(fault, protocol)).await;
}

async fn end(fault: &Fault, protocol: Protocol) {
    let server = ProviderServer::start(vec![(fault.reply)(protocol)]).await;
    let models = models(protocol, server.base_url(), |provider| match fault.wait {
        Wait::No => {}
        Wait::FirstByte => provider.first_byte_timeout_ms = SHORT_MS,
        Wait::Idle => provider.idle_timeout_ms = LONG_MS,
        Wait::Total => provider.total_timeout_ms = LONG_MS,
    });
    let what = format!("{} in {}", fault.name, protocol.name());
    let came = timeout(DEADLINE, outcome(&models)).await.expect(&what);
    assert_ne!(came, "no-adapter", "{what}");
    timeout(DEADLINE, server.left_alone()).await.expect(&what);
}

/// Hangs up once `until` says so, and measures how long the server does not know.
async fn hang_up(reply: Reply, until: impl AsyncFn(&Models, &ProviderServer), protocol: Protocol) {
    let mut shortest = Duration::MAX;
    for _ in 0..TRIES {
        let server = ProviderServer::start(vec![reply.clone()]).await;
        let models = models(protocol, server.base_url(), |_| {});
        until(&models, &server).await;
        let begun = Instant::now();
        timeout(DEADLINE, server.hung_up(1)).await.expect("the server sees it");
        shortest = shortest.min(begun.elapsed());
        if shortest < AT_ONCE {
            return;
        }
    }
    panic!("{protocol:?}: the server saw it after {shortest:?}");
}

/// Polls `future` until the server was asked, then drops it.
async fn drop_when_asked(future: impl Future, server: &ProviderServer) {
    tokio::select! {
        biased;
        _ = future => panic!("the server does not answer"),
        () = server.asked(1) => {}
    }
}

#[tokio::test]
async fn whoever_hangs_up_is_noticed_at_once() {
    for protocol in Protocol::ALL {
        // Before the head.
        hang_up(Reply::stall_before(), async |models, server| drop_when_asked(ask(models), server).await, protocol)
            .await;
        // In the body of an error.
        let refused = Reply::status(500, "{\"error\":").stall();
        hang_up(refused, async |models, server| drop_when_asked(ask(models), server).await, protocol).await;
        // In the stream, before any chunk and behind one.
        hang_up(
            Reply::stream().bytes(b": ping\n\n").stall(),
            async |models, _| drop(ask(models).await.map(|_| ()).map_err(|failure| shown(&failure))),
            protocol,
        )
        .await;
        let half = Reply::until(protocol, &Answer::new().text("half").cut(1), Stage::Close);
        let read = async |models: &Models, _: &ProviderServer| {
            let mut chunks = ask(models).await.map_err(|failure| shown(&failure)).expect("it answers");
            assert!(chunks.next().await.is_some_and(|chunk| chunk.is_ok()));
        };
        hang_up(half.clone().stall(), read, protocol).await;
        // While the server sends as fast as it can.
        hang_up(half.endless(b": on and on\n\n", Duration::ZERO), read, protocol).await;
    }
}

#[tokio::test]
async fn a_connection_under_way_is_dropped_and_has_its_end() {
    // Nobody accepts TLS here: the connection is never made.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be listened on");
    let url = format!("https://{}/v1", listener.local_addr().expect("an address"));
    let models = models(Protocol::Chat, url, |provider| provider.connect_timeout_ms = LONG_MS);
    let failure = all(ask(&models).await).await;
    assert!(failure.starts_with("!timeout ") && failure.contains("(`connect-timeout-ms`)"), "{failure}");
    let accepted = async {
        let (first, _) = listener.accept().await.expect("a client");
        let (second, _) = listener.accept().await.expect("a client");
        (first, second)
    };
    let (_, mut second) = tokio::select! {
        biased;
        _ = ask(&models) => panic!("there is no answer"),
        accepted = accepted => accepted,
    };
    let mut hello = Vec::new();
    let closed = tokio::io::AsyncReadExt::read_to_end(&mut second, &mut hello);
    let closed = timeout(DEADLINE, closed).await.expect("it is closed");
    assert!(closed.is_ok() || closed.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_connection_is_used_again_once_its_answer_was_read() {
    /// How much later than the answer the end of its body comes.
    const LATER: Duration = Duration::from_millis(20);
    for protocol in Protocol::ALL {
        let whole = || Reply::answer(protocol, &Answer::new().text("whole")).after(LATER).keep_alive();
        let half = Reply::until(protocol, &Answer::new().text("half").cut(1), Stage::Close).keep_alive();
        let refused = Reply::status(429, "{}").keep_alive();
        let replies = vec![whole(), refused, whole(), half.stall(), whole(), whole()];
        let server = ProviderServer::start(replies).await;
        let models = models(protocol, server.base_url(), |_| {});
        let connection = async |answered: usize| {
            let came = outcome(&models).await;
            timeout(DEADLINE, server.answered(answered)).await.expect("the end of the body is read");
            // The end of a body is read behind the answer, by a task of this thread.
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            (came, server.received().last().expect("it was asked").connection)
        };
        assert_eq!(connection(1).await, ("whole".into(), 1), "{protocol:?}");
        assert_eq!(connection(2).await, ("rate-limit".into(), 1), "{protocol:?}");
        assert_eq!(connection(3).await, ("whole".into(), 1), "{protocol:?}");
        let mut chunks = ask(&models).await.map_err(|failure| shown(&failure)).expect("it answers");
        assert!(chunks.next().await.is_some_and(|chunk| chunk.is_ok()));
        drop(chunks);
        server.hung_up(1).await;
        assert_eq!(connection(4).await, ("whole".into(), 2), "{protocol:?}");
        assert_eq!(connection(5).await, ("whole".into(), 2), "{protocol:?}");
    }
}
