//! How an agent ends when its driver does not unwind by itself, and what reaches a driver that waits.

use dsh_seam::services::Agents;

use super::*;

#[tokio::test(start_paused = true)]
async fn what_comes_from_outside_reaches_a_tool_that_runs() {
    let bench = Bench::new(vec![Answer::Calls(&[("wait", "{}")])])
        .on("agent/queued from outside steering", |agent| async move { agent.abort("enough") }.boxed());
    let agent = bench.held().await;
    agent.send(text("go"), Source::User).expect("room");
    agent.release();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(bench.transcript().ends_with("tool/call c1"), "the tool runs: {}", bench.transcript());
    agent.steer(text("from outside"), Source::User).expect("room");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let transcript = bench.transcript();
    check(
        from(&transcript, "tool/call"),
        "
        tool/call c1
        agent/queued from outside steering
        tool/result c1 aborted
        step/end
        turn/end aborted enough
        user/message from outside
        turn/start
        step/start
        request/sent
        request/failed script-exhausted
        step/end
        error script-exhausted
        agent/error script-exhausted
        turn/end error script-exhausted
        agent/status idle",
    );
    agent.dispose("done").await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_unwind_is_dropped_and_its_turn_is_closed() {
    let bench = Bench::new(vec![Answer::Calls(&[("ok", "{}"), ("ok", "{}")])])
        .on("tool/result c1 ok", |_| async { std::future::pending().await }.boxed());
    let agent = bench.held().await;
    agent.send(text("go"), Source::User).expect("room");
    agent.release();
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.send(text("never read"), Source::User).expect("room");
    agent.inject(text("held"), Source::User).await.expect("room");
    agent.dispose("bye").await;
    let transcript = bench.transcript();
    check(
        from(&transcript, "tool/result"),
        "
        tool/result c1 ok
        agent/queued never read
        agent/status disposed
        tool/call c2
        tool/result c2 aborted-before-dispatch
        context/message held
        step/end
        turn/end disposed bye
        agent/error internal
        agent/disposed 1",
    );
    assert!(bench.agents.list().is_empty(), "the id is free again");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_leaves_a_closed_turn() {
    let bench = Bench::new(vec![Answer::Hangs(&["par", "tial"])])
        .on("assistant/chunk", |_| async { panic!("on purpose") }.boxed());
    let agent = bench.held().await;
    agent.send(text("go"), Source::User).expect("room");
    agent.release();
    agent.idle().await;
    agent.dispose("done").await;
    let transcript = bench.transcript();
    check(
        from(&transcript, "request/sent"),
        "
        request/sent
        assistant/message par interrupted
        step/end
        error internal
        turn/end error internal
        agent/error internal
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_be_repaired_is_not_left_behind() {
    let bench = Bench::new(vec![]).failing_at(4);
    let torn = bench.sessions.create(dsh_seam::session::NewSession {
        id: None,
        agent: AgentId::new("main").expect("valid"),
        workspace: "/w".into(),
        model: None,
        lineage: vec![],
        parent: None,
    });
    let mut torn = torn.await.expect("a new session");
    for (seq, kind, data) in [
        (
            0,
            "user/message",
            serde_json::json!({"content": [{"type": "text", "text": "go"}], "source": {"type": "user"}}),
        ),
        (1, "turn/start", serde_json::json!({"turn": 1, "trigger": {"type": "message", "source": {"type": "user"}}})),
        (2, "step/start", serde_json::json!({"turn": 1, "step": 1})),
    ] {
        let entry = serde_json::json!({"type": kind, "seq": seq, "time": 1, "session": torn.header.id, "agent": "main", "data": data});
        let entry = dsh_seam::event::Entry::parse(&entry.to_string()).expect("an entry");
        torn.writer.append(&entry).expect("there is space");
    }
    drop(torn.writer);
    let options = dsh_loop::AgentOptions { session: SessionChoice::Resume(torn.header.id), ..bench.options.clone() };
    let made = bench.agent_loop().create(AgentId::new("main").expect("valid"), options).await;
    assert!(matches!(made, Err(CreateError::Write(_))), "the second entry of the repair finds no space");
    check(
        &bench.transcript(),
        "
        agent/created
        step/end
        agent/error session-write-failed
        agent/status disposed
        agent/disposed 0",
    );
    assert!(bench.agents.list().is_empty(), "the id is free again");
}
