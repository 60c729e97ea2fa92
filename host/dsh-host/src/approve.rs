//! Who answers questions: a program through commands, or a person at the terminal. Nobody and the options are in `dsh_services`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dsh_seam::event::{ApprovalAnswer, ApprovalAsked, ApprovalBy, Emitted, Event};
use dsh_seam::tools::Approver;
use dsh_seam::{AgentId, AgentInfo};
use dsh_services::approvals::{FixedApprover, HeadlessApprover};
use tokio::sync::{mpsc, oneshot, watch};

use crate::args::Approve;

/// The approver that the option `--approve` asks for, or `whoever` is there.
pub fn approver(option: Approve, whoever: Option<Arc<dyn Approver>>) -> Arc<dyn Approver> {
    match option {
        Approve::Allow => Arc::new(FixedApprover::allow()),
        Approve::Deny => Arc::new(FixedApprover::deny()),
        Approve::Ask => whoever.unwrap_or_else(|| Arc::new(HeadlessApprover)),
    }
}

/// Answers with the commands of `--input jsonl`. A question is open from its `approval/asked` to its `approval/decided`.
#[derive(Default)]
pub struct InputApprover {
    /// The oldest first. An agent has at most one.
    open: Mutex<Vec<OpenQuestion>>,
    ended: watch::Sender<bool>,
}

struct OpenQuestion {
    agent: AgentId,
    id: String,
    answer: watch::Sender<Option<ApprovalAnswer>>,
}

impl OpenQuestion {
    fn is(&self, agent: &AgentId, id: &str) -> bool {
        self.agent == *agent && self.id == id
    }
}

impl InputApprover {
    /// Keeps track of what is open.
    pub fn observe(&self, emitted: &Emitted) {
        let Emitted::Durable(entry) = emitted else { return };
        match &entry.event {
            Event::ApprovalAsked(asked) => {
                let (agent, id) = (entry.agent.clone(), asked.id.clone());
                self.open().push(OpenQuestion { agent, id, answer: watch::Sender::new(None) });
            }
            Event::ApprovalDecided(decided) => {
                self.open().retain(|question| !question.is(&entry.agent, &decided.id));
            }
            _ => {}
        }
    }

    /// Answers the oldest open question, of those of `agent` and with `id` when these are given.
    ///
    /// # Errors
    /// When there is no such open question.
    pub fn answer(&self, agent: Option<&str>, id: Option<&str>, answer: ApprovalAnswer) -> Result<(), String> {
        let open = self.open();
        let meant = |question: &&OpenQuestion| {
            question.answer.borrow().is_none()
                && agent.is_none_or(|agent| question.agent.as_str() == agent)
                && id.is_none_or(|id| question.id == id)
        };
        let Some(question) = open.iter().find(meant) else {
            let which = id.map(|id| format!(" `{id}`")).unwrap_or_default();
            let whose = agent.map(|agent| format!(" of agent `{agent}`")).unwrap_or_default();
            return Err(format!("no question{which}{whose} is open"));
        };
        question.answer.send_replace(Some(answer));
        Ok(())
    }

    /// No more commands will come: what is open, and all that follows, is denied.
    pub fn end(&self) {
        self.ended.send_replace(true);
    }

    fn open(&self) -> MutexGuard<'_, Vec<OpenQuestion>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Approver for InputApprover {
    async fn decide(&self, agent: &AgentInfo, asked: &ApprovalAsked) -> (ApprovalAnswer, ApprovalBy) {
        let answer = self
            .open()
            .iter()
            .find(|question| question.is(&agent.agent, &asked.id))
            .map(|question| question.answer.subscribe());
        let Some(mut answer) = answer else { return (ApprovalAnswer::Deny, ApprovalBy::Headless) };
        let mut ended = self.ended.subscribe();
        tokio::select! {
            biased;
            answer = answer.wait_for(Option::is_some) => match answer.ok().and_then(|answer| *answer) {
                Some(answer) => (answer, ApprovalBy::Input),
                None => (ApprovalAnswer::Deny, ApprovalBy::Headless),
            },
            _ = ended.wait_for(|ended| *ended) => (ApprovalAnswer::Deny, ApprovalBy::Headless),
        }
    }
}

/// A question to the person at the terminal.
pub struct PersonAsked {
    /// Which agent's.
    pub agent: AgentId,
    /// The question.
    pub asked: ApprovalAsked,
    /// Where the answer goes; closed when the question was withdrawn.
    pub answer: oneshot::Sender<ApprovalAnswer>,
}

/// Asks the person at the terminal: the chat puts the question and sends the answer back.
pub struct PersonApprover {
    questions: mpsc::UnboundedSender<PersonAsked>,
}

impl PersonApprover {
    /// An approver and the questions that it asks. There is at most one open per agent, so the queue is bounded by them.
    pub fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<PersonAsked>) {
        let (questions, asked) = mpsc::unbounded_channel();
        (Arc::new(Self { questions }), asked)
    }
}

#[async_trait]
impl Approver for PersonApprover {
    async fn decide(&self, agent: &AgentInfo, asked: &ApprovalAsked) -> (ApprovalAnswer, ApprovalBy) {
        let (sender, answer) = oneshot::channel();
        let question = PersonAsked { agent: agent.agent.clone(), asked: asked.clone(), answer: sender };
        let put = self.questions.send(question);
        match (put, answer.await) {
            (Ok(()), Ok(answer)) => (answer, ApprovalBy::Person),
            // The chat is over: nobody is there any more.
            _ => (ApprovalAnswer::Deny, ApprovalBy::Headless),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsh_seam::SessionId;
    use dsh_seam::event::Entry;

    fn info(agent: &str) -> AgentInfo {
        let id = |text: &str| AgentId::new(text).expect("valid");
        AgentInfo { agent: id(agent), session: SessionId::new("s").expect("valid"), lineage: vec![] }
    }

    fn asked(approver: &InputApprover, agent: &str, id: &str) -> ApprovalAsked {
        let line = format!(
            r#"{{"type":"approval/asked","seq":0,"time":0,"session":"s","agent":"{agent}","data":{{"turn":1,"step":1,"id":"{id}","questions":[]}}}}"#
        );
        let entry = Arc::new(Entry::parse(&line).expect("an entry"));
        approver.observe(&Emitted::Durable(entry.clone()));
        match &entry.event {
            Event::ApprovalAsked(asked) => asked.clone(),
            _ => unreachable!("it is one"),
        }
    }

    #[tokio::test]
    async fn an_answer_may_come_before_the_approver_is_asked() {
        let approver = InputApprover::default();
        let main = info("main");
        let asked = asked(&approver, "main", "approval-1");
        assert_eq!(
            approver.answer(None, Some("approval-2"), ApprovalAnswer::Deny),
            Err("no question `approval-2` is open".into())
        );
        assert_eq!(approver.answer(None, None, ApprovalAnswer::AllowOnce), Ok(()));
        assert_eq!(
            approver.answer(None, None, ApprovalAnswer::Deny),
            Err("no question is open".into()),
            "it is answered"
        );
        assert_eq!(approver.decide(&main, &asked).await, (ApprovalAnswer::AllowOnce, ApprovalBy::Input));
    }

    #[tokio::test]
    async fn an_answer_is_for_the_oldest_question_or_the_named_one() {
        let approver = InputApprover::default();
        let (first, second) = (asked(&approver, "main.1", "approval-1"), asked(&approver, "main.2", "approval-1"));
        let third = asked(&approver, "main.3", "approval-2");
        assert_eq!(approver.answer(Some("main.2"), None, ApprovalAnswer::Deny), Ok(()));
        assert_eq!(approver.answer(None, Some("approval-2"), ApprovalAnswer::AllowAlways), Ok(()));
        assert_eq!(approver.answer(None, None, ApprovalAnswer::AllowOnce), Ok(()));
        for (agent, asked, answer) in [
            ("main.1", first, ApprovalAnswer::AllowOnce),
            ("main.2", second, ApprovalAnswer::Deny),
            ("main.3", third, ApprovalAnswer::AllowAlways),
        ] {
            assert_eq!(approver.decide(&info(agent), &asked).await, (answer, ApprovalBy::Input), "{agent}");
        }
        let none = approver.answer(Some("main.2"), Some("approval-1"), ApprovalAnswer::Deny);
        assert_eq!(none, Err("no question `approval-1` of agent `main.2` is open".into()));
    }

    #[tokio::test]
    async fn after_the_end_of_the_input_the_answer_is_no() {
        let approver = InputApprover::default();
        let child = info("child");
        let first = asked(&approver, "child", "approval-1");
        assert_eq!(approver.answer(None, None, ApprovalAnswer::AllowAlways), Ok(()), "a descendant's question");
        approver.end();
        assert_eq!(approver.decide(&child, &first).await, (ApprovalAnswer::AllowAlways, ApprovalBy::Input));
        let second = asked(&approver, "child", "approval-2");
        assert_eq!(approver.decide(&child, &second).await, (ApprovalAnswer::Deny, ApprovalBy::Headless));
    }
}
