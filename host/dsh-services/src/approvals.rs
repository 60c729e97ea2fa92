//! Approvals: one question at a time per agent, question and answer logged, answers for the session remembered.
//!
//! Whoever answers is an [`Approver`]. The two that need nobody are here: [`FixedApprover`] for `--approve allow|deny` and
//! [`HeadlessApprover`] for a run where nobody is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use dsh_seam::AgentInfo;
use dsh_seam::event::{ApprovalAnswer, ApprovalAsked, ApprovalBy, ApprovalDecided, AskedCall, AskedQuestion};
use dsh_seam::services::ApprovalsFactory;
use dsh_seam::tools::{ApprovalRequest, Approvals, Approver, ToolEvent, ToolLog};
use dsh_seam::waterfall::RunError;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};
use tokio_util::sync::CancellationToken;

/// Makes the desk of each agent.
#[derive(Debug, Clone, Copy, Default)]
pub struct ApprovalDesks;

impl ApprovalsFactory for ApprovalDesks {
    fn for_agent(&self, agent: AgentInfo, approver: Arc<dyn Approver>, log: Arc<dyn ToolLog>) -> Arc<dyn Approvals> {
        Arc::new(ApprovalDesk { agent, approver, log, asked: AtomicU64::new(0), turn: Arc::default() })
    }
}

/// The approvals of one agent.
pub struct ApprovalDesk {
    agent: AgentInfo,
    approver: Arc<dyn Approver>,
    log: Arc<dyn ToolLog>,
    asked: AtomicU64,
    /// Held while a question is open.
    turn: Arc<Mutex<()>>,
}

#[async_trait]
impl Approvals for ApprovalDesk {
    async fn ask(&self, request: ApprovalRequest, cancel: &CancellationToken) -> Result<ApprovalDecided, RunError> {
        let turn = tokio::select! {
            biased;
            // One at a time, also now: what was not asked yet is not asked any more.
            () = cancel.cancelled() => return Err(RunError::Aborted),
            turn = self.turn.clone().lock_owned() => turn,
        };
        // Looked up under the lock: the question before this one may have been answered with "always".
        let open: Vec<AskedQuestion> =
            request.questions.iter().filter(|question| !self.remembers(question)).cloned().collect();
        if open.is_empty() && !request.questions.is_empty() {
            let asked = self.asked(&request, request.questions.clone());
            return self.put(asked, Answering::Known(ApprovalAnswer::AllowAlways, ApprovalBy::Remembered)).await;
        }
        let asked = self.asked(&request, open);
        self.put(asked, Answering::Ask { approver: self.approver.clone(), cancel: cancel.clone(), _turn: turn }).await
    }
}

/// Where an answer comes from.
enum Answering {
    /// It is clear without asking.
    Known(ApprovalAnswer, ApprovalBy),
    /// From the approver, unless cancelled.
    Ask { approver: Arc<dyn Approver>, cancel: CancellationToken, _turn: OwnedMutexGuard<()> },
}

impl ApprovalDesk {
    fn remembers(&self, question: &AskedQuestion) -> bool {
        question.remember.as_deref().is_some_and(|key| self.log.remembers(&question.plugin, key))
    }

    /// Logs the question, gets the answer, logs it. A question that is logged has an answer that is logged, also when whoever asked is
    /// gone: an abort drops a waterfall and with it a plugin that waits inside of it.
    async fn put(&self, asked: ApprovalAsked, how: Answering) -> Result<ApprovalDecided, RunError> {
        let gone = CancellationToken::new();
        let _asker = gone.clone().drop_guard();
        let (tell, told) = oneshot::channel();
        let decided = decide(self.log.clone(), self.agent.clone(), asked, how, gone);
        // Nobody hears it when the asker is gone.
        self.log.owe(Box::pin(async move { drop(tell.send(decided.await)) }));
        // Without an answer the runtime is going down.
        told.await.unwrap_or(Err(RunError::Aborted))
    }

    fn asked(&self, request: &ApprovalRequest, questions: Vec<AskedQuestion>) -> ApprovalAsked {
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let call = request.call.as_ref();
        ApprovalAsked {
            turn: request.at.turn,
            step: request.at.step,
            call_id: call.map(|call| call.id.clone()),
            id: format!("approval-{number}"),
            call: call.map(|call| AskedCall { name: call.name.clone(), arguments: call.arguments.clone() }),
            questions,
        }
    }
}

/// One question from the log's entry to its answer's; `gone` is cancelled when nobody waits for the answer.
async fn decide(
    log: Arc<dyn ToolLog>,
    agent: AgentInfo,
    asked: ApprovalAsked,
    how: Answering,
    gone: CancellationToken,
) -> Result<ApprovalDecided, RunError> {
    log.append(ToolEvent::Asked(asked.clone())).await?;
    let (answer, by) = match &how {
        Answering::Known(answer, by) => (*answer, *by),
        Answering::Ask { approver, cancel, .. } => tokio::select! {
            biased;
            () = cancel.cancelled() => (ApprovalAnswer::Aborted, ApprovalBy::Abort),
            () = gone.cancelled() => (ApprovalAnswer::Aborted, ApprovalBy::Abort),
            decided = approver.decide(&agent, &asked) => decided,
        },
    };
    let answer = offered(answer, &asked.questions);
    let ApprovalAsked { turn, step, call_id, id, .. } = asked;
    let decided = ApprovalDecided { turn, step, call_id, id, answer, by };
    log.append(ToolEvent::Decided(decided.clone())).await?;
    Ok(decided)
}

/// "Always" counts only when it was on offer: when every asker named what to remember.
fn offered(answer: ApprovalAnswer, questions: &[AskedQuestion]) -> ApprovalAnswer {
    let all_named = !questions.is_empty() && questions.iter().all(|question| question.remember.is_some());
    match answer {
        ApprovalAnswer::AllowAlways if !all_named => ApprovalAnswer::AllowOnce,
        answer => answer,
    }
}

/// Answers as the option `--approve` says.
#[derive(Debug, Clone, Copy)]
pub struct FixedApprover {
    answer: ApprovalAnswer,
}

impl FixedApprover {
    /// `--approve allow`.
    pub fn allow() -> Self {
        Self { answer: ApprovalAnswer::AllowOnce }
    }

    /// `--approve deny`.
    pub fn deny() -> Self {
        Self { answer: ApprovalAnswer::Deny }
    }
}

#[async_trait]
impl Approver for FixedApprover {
    async fn decide(&self, _agent: &AgentInfo, _asked: &ApprovalAsked) -> (ApprovalAnswer, ApprovalBy) {
        (self.answer, ApprovalBy::Option)
    }
}

/// Nobody is there to answer: no, at once, never a wait.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadlessApprover;

#[async_trait]
impl Approver for HeadlessApprover {
    async fn decide(&self, _agent: &AgentInfo, _asked: &ApprovalAsked) -> (ApprovalAnswer, ApprovalBy) {
        (ApprovalAnswer::Deny, ApprovalBy::Headless)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;

    use dsh_seam::message::ToolCall;
    use dsh_seam::waterfall::FailureReport;
    use dsh_seam::{AgentId, PluginError, PluginName, SessionId, StepRef};
    use futures::future::BoxFuture;
    use tokio::sync::Notify;

    use super::*;

    #[derive(Default)]
    struct Log {
        lines: StdMutex<Vec<String>>,
        kept: StdMutex<Vec<(PluginName, String)>>,
    }

    #[async_trait]
    impl FailureReport for Log {
        async fn plugin_failed(&self, _error: &PluginError) -> Result<(), RunError> {
            unreachable!("no plugin fails here")
        }
    }

    #[async_trait]
    impl ToolLog for Log {
        async fn append(&self, event: ToolEvent) -> Result<(), RunError> {
            let line = match event {
                ToolEvent::Asked(asked) => {
                    let who: Vec<&str> = asked.questions.iter().map(|question| question.plugin.as_str()).collect();
                    format!(
                        "{} asked by {} for {}",
                        asked.id,
                        who.join(","),
                        asked.call_id.as_deref().unwrap_or("nothing")
                    )
                }
                ToolEvent::Decided(decided) => {
                    let word = |value: serde_json::Value| value.as_str().unwrap().to_owned();
                    let (answer, by) =
                        (serde_json::to_value(decided.answer).unwrap(), serde_json::to_value(decided.by).unwrap());
                    format!("{} {} by {}", decided.id, word(answer), word(by))
                }
                other => panic!("{other:?}"),
            };
            self.lines.lock().unwrap().push(line);
            Ok(())
        }

        fn remembers(&self, plugin: &PluginName, key: &str) -> bool {
            self.kept.lock().unwrap().contains(&(plugin.clone(), key.to_owned()))
        }

        fn progress(&self, _: StepRef, _: &str, _: &PluginName, _: &str, _: Option<f32>) {}

        async fn before_tool(&self, _read_only: bool) -> Result<(), RunError> {
            Ok(())
        }

        fn owe(&self, work: BoxFuture<'static, ()>) {
            tokio::spawn(work);
        }

        fn for_call(&self, _: StepRef, _: &str) -> Arc<dyn ToolLog> {
            unreachable!("the desk writes to the agent's log")
        }
    }

    struct Says(ApprovalAnswer);

    #[async_trait]
    impl Approver for Says {
        async fn decide(&self, _: &AgentInfo, _: &ApprovalAsked) -> (ApprovalAnswer, ApprovalBy) {
            (self.0, ApprovalBy::Person)
        }
    }

    /// Answers when it is told to, and tells when it was asked.
    #[derive(Default)]
    struct Waits {
        asked: Notify,
        go: Notify,
    }

    #[async_trait]
    impl Approver for Waits {
        async fn decide(&self, _: &AgentInfo, _: &ApprovalAsked) -> (ApprovalAnswer, ApprovalBy) {
            self.asked.notify_one();
            self.go.notified().await;
            (ApprovalAnswer::AllowOnce, ApprovalBy::Input)
        }
    }

    fn plugin(name: &str) -> PluginName {
        PluginName::new(name).unwrap()
    }

    fn question(name: &str, remember: Option<&str>) -> AskedQuestion {
        AskedQuestion {
            plugin: plugin(name),
            title: "t".into(),
            detail: "d".into(),
            remember: remember.map(Into::into),
        }
    }

    fn desk(approver: Arc<dyn Approver>, log: &Arc<Log>) -> Arc<dyn Approvals> {
        let agent =
            AgentInfo { agent: AgentId::new("main").unwrap(), session: SessionId::new("s").unwrap(), lineage: vec![] };
        ApprovalDesks.for_agent(agent, approver, log.clone())
    }

    fn request(call: Option<&str>, questions: &[AskedQuestion]) -> ApprovalRequest {
        ApprovalRequest {
            at: StepRef { turn: 1, step: 2 },
            call: call.map(|id| ToolCall { id: id.into(), name: "shell".into(), arguments: "{}".into(), opaque: None }),
            questions: questions.to_vec(),
        }
    }

    async fn check(approver: impl Approver + 'static, questions: &[AskedQuestion], expect: &[&str]) {
        let log = Arc::new(Log::default());
        log.kept.lock().unwrap().push((plugin("known"), "key".into()));
        desk(Arc::new(approver), &log).ask(request(Some("c1"), questions), &CancellationToken::new()).await.unwrap();
        assert_eq!(*log.lines.lock().unwrap(), expect);
    }

    #[tokio::test]
    async fn question_and_answer_are_logged_whoever_answers() {
        let plain = [question("a", None)];
        check(FixedApprover::allow(), &plain, &["approval-1 asked by a for c1", "approval-1 allow-once by option"])
            .await;
        check(FixedApprover::deny(), &plain, &["approval-1 asked by a for c1", "approval-1 deny by option"]).await;
        check(HeadlessApprover, &plain, &["approval-1 asked by a for c1", "approval-1 deny by headless"]).await;
    }

    #[tokio::test]
    async fn always_counts_only_when_every_asker_named_what_to_remember() {
        let always = || Says(ApprovalAnswer::AllowAlways);
        let named = [question("a", Some("k")), question("b", Some("k"))];
        check(always(), &named, &["approval-1 asked by a,b for c1", "approval-1 allow-always by person"]).await;
        let half = [question("a", Some("k")), question("b", None)];
        check(always(), &half, &["approval-1 asked by a,b for c1", "approval-1 allow-once by person"]).await;
    }

    #[tokio::test]
    async fn what_is_remembered_is_not_asked_again() {
        let known = question("known", Some("key"));
        let deny = || Says(ApprovalAnswer::Deny);
        check(
            deny(),
            std::slice::from_ref(&known),
            &["approval-1 asked by known for c1", "approval-1 allow-always by remembered"],
        )
        .await;
        check(deny(), &[known, question("a", None)], &["approval-1 asked by a for c1", "approval-1 deny by person"])
            .await;
        check(
            deny(),
            &[question("known", Some("other"))],
            &["approval-1 asked by known for c1", "approval-1 deny by person"],
        )
        .await;
    }

    #[tokio::test]
    async fn one_question_at_a_time() {
        let (log, waits) = (Arc::new(Log::default()), Arc::new(Waits::default()));
        let desk = desk(waits.clone(), &log);
        let token = CancellationToken::new();
        let questions = [question("a", None)];
        let first = desk.ask(request(Some("c1"), &questions), &token);
        let second = desk.ask(request(Some("c2"), &questions), &token);
        let answers = async {
            for _ in 0..2 {
                waits.asked.notified().await;
                waits.go.notify_one();
            }
        };
        let (first, second, ()) = tokio::join!(first, second, answers);
        assert_eq!(
            (first.unwrap().answer, second.unwrap().answer),
            (ApprovalAnswer::AllowOnce, ApprovalAnswer::AllowOnce)
        );
        let expect = [
            "approval-1 asked by a for c1",
            "approval-1 allow-once by input",
            "approval-2 asked by a for c2",
            "approval-2 allow-once by input",
        ];
        assert_eq!(*log.lines.lock().unwrap(), expect);
    }

    #[tokio::test]
    async fn an_abort_decides_the_open_question_and_waiting_ones_are_not_asked() {
        let (log, waits) = (Arc::new(Log::default()), Arc::new(Waits::default()));
        let desk = desk(waits.clone(), &log);
        let token = CancellationToken::new();
        let questions = [question("a", Some("k"))];
        let first = desk.ask(request(Some("c1"), &questions), &token);
        let second = desk.ask(request(None, &questions), &token);
        let abort = async {
            waits.asked.notified().await;
            token.cancel();
        };
        let (first, second, ()) = tokio::join!(first, second, abort);
        let decided = first.unwrap();
        assert_eq!((decided.answer, decided.by), (ApprovalAnswer::Aborted, ApprovalBy::Abort));
        assert_eq!(second, Err(RunError::Aborted));
        assert_eq!(desk.ask(request(Some("c2"), &questions), &token).await, Err(RunError::Aborted));
        assert_eq!(*log.lines.lock().unwrap(), ["approval-1 asked by a for c1", "approval-1 aborted by abort"]);
    }

    #[tokio::test]
    async fn a_question_whose_asker_is_gone_is_decided() {
        let (log, waits) = (Arc::new(Log::default()), Arc::new(Waits::default()));
        let desk = desk(waits.clone(), &log);
        let (token, questions) = (CancellationToken::new(), [question("a", None)]);
        tokio::select! {
            decided = desk.ask(request(None, &questions), &token) => panic!("{decided:?}"),
            () = waits.asked.notified() => {}
        }
        while log.lines.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*log.lines.lock().unwrap(), ["approval-1 asked by a for nothing", "approval-1 aborted by abort"]);
    }
}
