//! Running an agent: everything is put together, the prompts are queued, and at the end everything is taken apart in order.

mod chat;
mod headless;
pub mod signals;
mod unanswered;
pub mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use dsh_loop::{AgentLoop, AgentOwner, LoopAgent, SessionChoice};
use dsh_seam::event::{Source as MessageSource, Status};
use dsh_seam::message::ContentBlock;
use dsh_seam::plugin::Plugin as _;
use dsh_seam::tools::Approver;
use dsh_services::llm::Models;

use crate::approve::{self, InputApprover, PersonApprover, PersonAsked};
use crate::args::{Approve, Output};
use crate::compose;
use crate::diagnostics;
use crate::env::Environment;
use crate::exit::{Code, Ledger, Stop};
use crate::input::desk::Desk;
use crate::input::stdin::Stdin;
use crate::output::Sink;
use crate::output::chat::ChatSink;
use crate::output::pump::Pump;
use crate::output::receipts::Recorder;
use crate::reload::Reloader;
use crate::resolve::{Plan, Prompt, Source};
use signals::Signals;
use watch::Watch;

/// The reason of a dispose when nobody reads any more.
const OUTPUT_CLOSED: &str = "output-closed";
/// The reason of a dispose at the end of a run.
const DONE: &str = "done";

/// Runs a plan to its end.
pub async fn run(plan: Plan, source: Source, environment: &Environment) -> Result<Code, Stop> {
    for notice in &plan.notices {
        diagnostics::note(notice);
    }
    let signals = Signals::listen().map_err(|error| Stop::new(Code::Internal, error.to_string()))?;
    let mut end = End { signals };
    let recorder = compose::recorder(&plan)?;
    let prepared = end.unless_asked(prepare(plan, source, environment, recorder.as_ref())).await??;
    match prepared {
        Prepared::Headless(run) => headless::run(*run, end).await,
        Prepared::Chat(run, questions) => chat::run(*run, questions, end).await,
    }
}

/// A run with its agents made, nothing said yet.
pub struct Running {
    plan: Plan,
    agents: Vec<AgentOwner>,
    watch: Arc<Watch>,
    pump: Pump,
    writer: JoinHandle<()>,
    prompts: Vec<String>,
    commands: Option<(Arc<Desk>, Arc<InputApprover>, Stdin)>,
    /// Whether standard output shows a chat, and not only the text or the events of one.
    shows_chat: bool,
    closing: Closing,
    /// Watches the plugins' files, where that was asked for.
    reloader: Option<Reloader>,
    models: Arc<Models>,
}

enum Prepared {
    Headless(Box<Running>),
    Chat(Box<Running>, tokio::sync::mpsc::UnboundedReceiver<PersonAsked>),
}

/// What can end a run from outside.
pub struct End {
    signals: Signals,
}

impl End {
    /// Awaits `work`; a signal before any agent is there ends the run at once.
    async fn unless_asked<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            done = work => Ok(done),
            _ = self.signals.next() => Err(Stop::new(Code::Interrupted, "")),
        }
    }
}

/// The agents that a closed standard output ends; they are made after it was opened.
#[derive(Clone, Default)]
struct Closing {
    state: Arc<Mutex<ClosingState>>,
}

#[derive(Default)]
struct ClosingState {
    agents: Vec<Arc<LoopAgent>>,
    closed: bool,
    /// Whether there was something left to do.
    interrupted: bool,
}

impl Closing {
    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let works = |agent: &Arc<LoopAgent>| agent.status() == Status::Running || agent.has_pending();
        state.interrupted = state.agents.iter().any(works);
        state.agents.iter().for_each(|agent| agent.start_dispose(OUTPUT_CLOSED));
    }

    fn add(&self, agent: Arc<LoopAgent>) {
        let mut state = self.state();
        if state.closed {
            state.interrupted = true;
            agent.start_dispose(OUTPUT_CLOSED);
        }
        state.agents.push(agent);
    }

    fn interrupted(&self) -> bool {
        self.state().interrupted
    }

    fn state(&self) -> MutexGuard<'_, ClosingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn prepare(
    plan: Plan,
    source: Source,
    environment: &Environment,
    recorder: Option<&Recorder>,
) -> Result<Prepared, Stop> {
    let is_chat = source == Source::Terminal;
    let (prompts, mut stdin) = prompts(source).await?;
    let models = compose::models(&plan)?;
    let plugins = compose::plugins(&plan, environment, recorder).await?;
    if !is_chat {
        let sessions = compose::sessions(&plan.store, &plan.workspace);
        headless::some_message(&prompts, stdin.as_mut(), &plan, sessions.as_ref()).await?;
    }
    let prompted = plan.prompted().id.clone();
    let modes = plugins.iter().map(|plugin| (plugin.name().clone(), plugin.failure_mode()));
    let ledger = Ledger::new(prompted.clone(), plan.strict, modes);
    let closing = Closing::default();
    let (pump, writer) = Pump::start(Box::new({
        let closing = closing.clone();
        move || closing.close()
    }));
    let commands = stdin.map(|stdin| {
        let approver = Arc::new(InputApprover::default());
        let asks = (plan.approve == Approve::Ask).then(|| approver.clone());
        (Desk::new(prompted.clone(), asks), approver, stdin)
    });
    let (person, questions) = PersonApprover::new();
    let whoever: Option<Arc<dyn Approver>> = match &commands {
        Some((_, approver, _)) => Some(approver.clone()),
        None if is_chat => Some(person),
        None => None,
    };
    let sink = sink(&plan, is_chat, environment);
    let shows_chat = matches!(sink, Sink::Chat(_));
    let witness = recorder.map(Recorder::witness);
    let mut watch = Watch::new(prompted, ledger, sink, pump.clone()).with_witness(witness);
    let commands = commands.map(|(desk, approver, stdin)| (Arc::new(desk), approver, stdin));
    if let Some((desk, approver, _)) = &commands {
        watch = watch.with_commands(desk.clone(), Some(approver.clone()));
    }
    let watch = Arc::new(watch);
    let services = compose::services(&plan, models.clone(), approve::approver(plan.approve, whoever), watch.clone());
    let agent_loop = AgentLoop::new(services, compose::as_listeners(&plan, &plugins));
    let agents = create(&plan, &agent_loop, &closing).await?;
    let reloader = match plan.watch {
        true => Reloader::start(&plan, &plugins, agent_loop, watch.clone(), environment)?,
        false => None,
    };
    let run = Running { plan, agents, watch, pump, writer, prompts, commands, shows_chat, closing, reloader, models };
    Ok(if is_chat { Prepared::Chat(Box::new(run), questions) } else { Prepared::Headless(Box::new(run)) })
}

/// The messages of the command line, standard input read where it is one.
async fn prompts(source: Source) -> Result<(Vec<String>, Option<Stdin>), Stop> {
    // Without a PROMPT an empty input is no message: a resumed session may hold one.
    let may_be_empty = source == Source::Stdin;
    let (list, stdin) = match source {
        Source::Prompts(list) => (list, None),
        Source::Stdin => (vec![Prompt::Stdin], None),
        Source::Commands(list) => (list, Some(Stdin::start())),
        Source::Terminal => (Vec::new(), None),
    };
    let mut texts = Vec::new();
    for prompt in list {
        let text = match prompt {
            Prompt::Text(text) => text,
            Prompt::Stdin => {
                let read = Stdin::start().read_whole().await;
                read.map_err(|error| Stop::usage(format!("standard input cannot be read: {error}")))?
            }
        };
        if !(may_be_empty && text.trim().is_empty()) {
            texts.push(text);
        }
    }
    Ok((texts, stdin))
}

fn sink(plan: &Plan, is_chat: bool, environment: &Environment) -> Sink {
    let prompted = plan.prompted().id.clone();
    if is_chat && plan.output == Output::Text && environment.stdout_is_terminal {
        return Sink::Chat(ChatSink::new(prompted, plan.stream, environment.shows_colours()));
    }
    Sink::new(plan.output, prompted, plan.stream, environment.stdout_is_terminal)
}

/// Makes every agent, the prompted one held until its prompts are queued.
async fn create(plan: &Plan, agents: &AgentLoop, closing: &Closing) -> Result<Vec<AgentOwner>, Stop> {
    let mut owners = Vec::new();
    for (index, agent) in plan.agents.iter().enumerate() {
        let is_prompted = index == plan.prompted;
        let session = if is_prompted { plan.session.clone() } else { SessionChoice::New };
        let options = compose::agent_options(plan, agent, session, is_prompted);
        let owner = agents.create(agent.id.clone(), options).await?;
        closing.add(owner.agent());
        owners.push(owner);
    }
    Ok(owners)
}

impl Running {
    fn prompted(&self) -> &AgentOwner {
        &self.agents[self.plan.prompted]
    }

    /// Queues the messages of the command line.
    fn send_prompts(&mut self) -> Result<(), Stop> {
        for prompt in std::mem::take(&mut self.prompts) {
            let sent = self.prompted().send(vec![ContentBlock::text(prompt)], MessageSource::User);
            sent.map_err(|failure| match failure.code.as_str() {
                "disposed" => Stop::new(Code::Interrupted, "standard output was closed before the run began"),
                _ => Stop::usage(format!("a message was refused: {}", failure.message)),
            })?;
        }
        Ok(())
    }

    /// Takes everything apart: agents in reverse order, then what stands at the end of the output.
    async fn finish(mut self, reason: &str) -> Code {
        self.reloader = None;
        self.prompted().dispose(reason).await;
        for agent in self.agents.iter().rev() {
            agent.dispose(reason).await;
        }
        if self.closing.interrupted() {
            self.watch.earn(Code::Interrupted);
        }
        if let Some(problem) = self.models.record_problem() {
            diagnostics::complain(format!("the recording is not complete: {problem}"));
            self.watch.earn(Code::Session);
        }
        self.watch.finish();
        // The reader may be slow, and waiting for it must not hold a thread that serves signals.
        let (pump, writer) = (self.pump.clone(), self.writer);
        if let Ok(Err(problem)) = tokio::task::spawn_blocking(move || pump.end(writer)).await {
            diagnostics::complain(problem);
            self.watch.earn(Code::Interrupted);
        }
        self.watch.explain();
        self.watch.say_usage();
        self.watch.ledger().code()
    }

    /// The same after an error before the first turn: nothing was printed and nothing will be.
    async fn give_up(self, stop: Stop) -> Stop {
        for agent in self.agents.iter().rev() {
            agent.dispose(DONE).await;
        }
        stop
    }
}
