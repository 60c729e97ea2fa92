//! A conversation with a person at a terminal. Lines go to the agent: as a message when it waits, as steering while it works.

use std::collections::VecDeque;

use dsh_loop::LoopAgent;
use dsh_seam::event::{ApprovalAnswer, Source, Status};
use dsh_seam::message::ContentBlock;
use tokio::sync::mpsc;

use super::signals::{self, Asked};
use super::{DONE, End, Running};
use crate::approve::PersonAsked;
use crate::exit::{Code, Stop};
use crate::input::stdin::{Lines, Stdin};
use crate::names;
use crate::output::chat::{offers_always, question};

/// What stands where a person may type.
pub const PROMPT: &str = "> ";
const COMMANDS: [&str; 2] = ["/help", "/quit"];
const HELP: &str = "\
What you type goes to the agent; while it works it is read between two of its steps.
/help   this
/quit   end the conversation (also Ctrl-D)
Ctrl-C  stop the agent; twice in a row ends the conversation";

/// Talks until the person leaves.
pub async fn run(
    mut run: Running,
    questions: mpsc::UnboundedReceiver<PersonAsked>,
    mut end: End,
) -> Result<Code, Stop> {
    run.pump.open();
    let mut chat = Chat::new(&run);
    chat.greet(&run.plan.prompted().model);
    run.prompted().release();
    let reason = chat.talk(questions, &mut end, &run).await;
    drop(chat);
    run.commands = None;
    tokio::select! {
        code = run.finish(&reason) => Ok(code),
        _ = end.signals.next() => signals::exit_now(),
    }
}

/// What is on the screen and what the person is asked.
struct Chat<'a> {
    run: &'a Running,
    agent: &'a LoopAgent,
    open: VecDeque<PersonAsked>,
    interrupts: u32,
}

/// What follows from a line or a signal.
enum Next {
    GoOn,
    Leave(String),
}

impl<'a> Chat<'a> {
    fn new(run: &'a Running) -> Self {
        Self { run, agent: run.prompted(), open: VecDeque::new(), interrupts: 0 }
    }

    fn greet(&self, model: &str) {
        let version = env!("CARGO_PKG_VERSION");
        self.print(&format!("dsh-host {version}, model {model}, session {}; /help says more\n", self.agent.session()));
        if !self.agent.has_pending() {
            self.print(PROMPT);
        }
    }

    /// Returns the reason why the conversation is over.
    async fn talk(
        &mut self,
        mut questions: mpsc::UnboundedReceiver<PersonAsked>,
        end: &mut End,
        run: &Running,
    ) -> String {
        let (mut stdin, mut lines) = (Stdin::start(), Lines::default());
        let mut status = run.watch.status();
        loop {
            let next = tokio::select! {
                piece = stdin.next() => match piece {
                    Some(Ok(piece)) => self.lines(lines.feed(&piece)),
                    Some(Err(_)) | None => Next::Leave(DONE.into()),
                },
                asked = end.signals.next() => self.asked(asked),
                Some(question) = questions.recv() => self.ask(question),
                () = withdrawn(self.open.front_mut()) => self.withdraw(),
                Ok(()) = status.changed() => match *status.borrow_and_update() {
                    Status::Idle => self.print_prompt(),
                    Status::Running => Next::GoOn,
                    Status::Disposed => Next::Leave(DONE.into()),
                },
            };
            if let Next::Leave(reason) = next {
                self.print("\n");
                return reason;
            }
        }
    }

    fn lines(&mut self, lines: Vec<crate::input::stdin::NumberedLine>) -> Next {
        for line in lines {
            let next = match line.text {
                Ok(text) => self.line(text.trim_end_matches('\r')),
                Err(problem) => self.say(&problem),
            };
            if let Next::Leave(_) = next {
                return next;
            }
        }
        Next::GoOn
    }

    fn line(&mut self, text: &str) -> Next {
        self.interrupts = 0;
        if !self.open.is_empty() {
            return self.answer(text.trim());
        }
        match text.trim() {
            "" => self.print_prompt(),
            "/quit" => Next::Leave(DONE.into()),
            "/help" => self.say(HELP),
            word if word.starts_with('/') && !word[1..].contains(['/', ' ']) => {
                self.say(&format!("there is no command `{word}`; {}", names::hint(word, COMMANDS)))
            }
            _ => match self.agent.steer(vec![ContentBlock::text(text)], Source::User) {
                Ok(()) => Next::GoOn,
                Err(failure) => self.say(&failure.message),
            },
        }
    }

    fn ask(&mut self, question: PersonAsked) -> Next {
        self.open.push_back(question);
        if self.open.len() == 1 { self.put_question() } else { Next::GoOn }
    }

    fn put_question(&self) -> Next {
        if let Some(open) = self.open.front() {
            let whose =
                if open.agent == *self.agent.id() { String::new() } else { format!("agent `{}`: ", open.agent) };
            self.print(&format!("{whose}{}", question(&open.asked)));
        }
        Next::GoOn
    }

    fn answer(&mut self, text: &str) -> Next {
        let Some(open) = self.open.pop_front() else { return Next::GoOn };
        let answer = match text.to_lowercase().as_str() {
            "y" | "yes" => ApprovalAnswer::AllowOnce,
            "a" | "always" if offers_always(&open.asked.questions) => ApprovalAnswer::AllowAlways,
            "n" | "no" => ApprovalAnswer::Deny,
            _ => {
                self.open.push_front(open);
                return self.put_question();
            }
        };
        // Withdrawn in this very moment: then nobody waits for the answer.
        let _ = open.answer.send(answer);
        self.put_question()
    }

    fn withdraw(&mut self) -> Next {
        self.open.pop_front();
        self.print("(the question was withdrawn)\n");
        self.put_question()
    }

    fn asked(&mut self, asked: Asked) -> Next {
        self.interrupts += 1;
        if asked != Asked::Interrupt || self.interrupts > 1 {
            self.run.watch.earn(Code::Interrupted);
            return Next::Leave(format!("interrupted by {}", asked.name()));
        }
        if self.agent.status() == Status::Running {
            self.agent.abort("interrupted by the person");
            self.print("(Ctrl-C: stopping; once more ends the conversation)\n");
        } else {
            self.print("(Ctrl-C once more ends the conversation)\n");
            self.print(PROMPT);
        }
        Next::GoOn
    }

    fn say(&self, text: &str) -> Next {
        self.print(&format!("{text}\n"));
        self.print_prompt()
    }

    fn print_prompt(&self) -> Next {
        if self.agent.status() == Status::Idle && !self.agent.has_pending() {
            self.print(PROMPT);
        }
        Next::GoOn
    }

    /// Shows what is not the agent's: beside the text when that goes to a terminal, and else on standard error.
    fn print(&self, text: &str) {
        if self.run.shows_chat {
            self.run.watch.end_line();
            self.run.pump.write(|out| out.extend_from_slice(text.as_bytes()));
        } else {
            self.run.pump.drain();
            eprint!("{text}");
        }
    }
}

/// Returns when nobody waits for the answer any more.
async fn withdrawn(open: Option<&mut PersonAsked>) {
    match open {
        Some(open) => open.answer.closed().await,
        None => std::future::pending().await,
    }
}
