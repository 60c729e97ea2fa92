//! Everything else that a machine could tell: variables, arguments, streams, clocks, sockets.

use super::*;

#[tokio::test]
async fn only_granted_variables_are_seen() {
    let env = [("SHOWN", "value"), ("EMPTY", "")];
    let intruder = Intruder::enter(Entry { grants: &["env:SHOWN", "env:EMPTY"], env: &env, ..Entry::default() }).await;
    let told = intruder.step(json!({ "do": "environment" })).await;
    assert_eq!(told, ok(json!([["SHOWN", "value"], ["EMPTY", ""]])));
    let narrow = |names: &[&str]| Profile {
        env: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Profile::unrestricted()
    };
    let check = async |names: &[&str], expect: Value| {
        let told = intruder.take_under(narrow(names), json!([{ "do": "environment" }])).await;
        assert_eq!(told, [ok(expect)], "{names:?}");
    };
    check(&[], json!([])).await;
    check(&["SHOWN"], json!([["SHOWN", "value"]])).await;
    check(&["SHO*"], json!([["SHOWN", "value"]])).await;
    check(&["shown", "SHOWN2", "SHOW"], json!([])).await;
    check(&["*"], json!([["SHOWN", "value"], ["EMPTY", ""]])).await;
}

#[tokio::test]
async fn nothing_of_the_process_is_seen() {
    let intruder = Intruder::enter(Entry::default()).await;
    let check = async |what: &str, expect: Value| {
        assert_eq!(intruder.step(json!({ "do": what })).await, expect, "{what}");
    };
    check("environment", ok(json!([]))).await;
    check("arguments", ok(json!([]))).await;
    check("working-directory", ok(Value::Null)).await;
    check("standard-input", ok("closed")).await;
    check("terminals", ok(json!([false, false, false]))).await;
    check("preopens", ok(json!([]))).await;
    check("clocks", ok(json!({ "wall": true, "monotonic": true, "resolution-ns": 1 }))).await;
    check("randomness", ok(json!({ "bytes": true, "insecure": true, "seed": true }))).await;
}

#[tokio::test]
async fn sockets_are_never_there() {
    let grants = ["net:localhost:80", "net:127.0.0.1:80"];
    let intruder = Intruder::enter(Entry { grants: &grants, ..Entry::default() }).await;
    let check = async |step: Value, code: &str| assert_eq!(intruder.step(step.clone()).await, error(code), "{step}");
    check(json!({ "do": "tcp", "port": 80 }), "access-denied").await;
    check(json!({ "do": "udp", "port": 80 }), "access-denied").await;
    check(json!({ "do": "look-up", "name": "localhost" }), "permanent-resolver-failure").await;
    check(json!({ "do": "look-up", "name": "127.0.0.1" }), "permanent-resolver-failure").await;
}
