//! Runs that nobody thought of: scripts, commands at any event, one process or two on one session, each compared event by event with
//! `dsh_tests::reference`, the lifecycle as a program.
//!
//! A seed that differs is printed with its command line. `DSH_TESTS_SEEDS=FROM..TO` runs others.

use std::ops::Range;

use dsh_testkit::Chance;
use dsh_tests::host::{self, Run};
use dsh_tests::reference::{Agent, Answer, Call, Command, Do, Tool, shown};
use dsh_tests::sandbox::Sandbox;
use serde_json::Value;

/// Seeds of an ordinary run: a few seconds' worth.
const SEEDS: Range<u64> = 0..150;

/// Events that a command may wait for.
const EVENTS: [&str; 23] = [
    "user/message",
    "turn/start",
    "agent/turn-start",
    "step/start",
    "agent/step-start",
    "request/sent",
    "assistant/chunk",
    "agent/stream-chunk",
    "assistant/message",
    "usage",
    "tool/call",
    "tool/result",
    "steering/message",
    "agent/steering",
    "context/message",
    "step/end",
    "agent/step-end",
    "turn/end",
    "agent/turn-end",
    "agent/status",
    "request/failed",
    "error",
    "agent/queued",
];

const TEXTS: [&str; 6] = ["go", "weiter", "ещё", "続けて", "two\nlines", "a \"quoted\" 🙂"];

/// What is made up for a seed.
struct Numbers(Chance);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(u32::try_from(bound).expect("few")) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        self.0.pick(values)
    }

    fn answer(&mut self, ids: &mut u32) -> Answer {
        let mut answer = Answer { piece: self.one_in(3).then(|| 1 + self.below(4)), ..Answer::default() };
        if !self.one_in(4) {
            answer.text = self.of(&["done", "größer", "a longer answer"]).to_owned();
        }
        if self.one_in(2) {
            let count = self.of(&[1, 2, 2, 3, 4, 10]);
            let tools = [Tool::Say, Tool::Say, Tool::Say, Tool::Change, Tool::Fail, Tool::Unknown, Tool::BadArguments];
            let call = |_| {
                *ids += 1;
                Call { id: format!("c{ids}"), tool: self.of(&tools) }
            };
            answer.calls = (0..count).map(call).collect();
        }
        answer.cut = self.one_in(10);
        answer.usage = self.one_in(3).then(|| 1 + self.below(9) as u32);
        answer.fails_after = self.one_in(8).then(|| self.below(4));
        answer
    }

    fn command(&mut self, number: usize, waits: bool) -> Command {
        let text = format!("{} {number}", self.of(&TEXTS));
        let what = match (waits, self.below(20)) {
            (false, 0..=13) | (true, 0..=3) => Do::Send(text),
            (false, 14..=17) | (true, 4..=9) => Do::Steer(text),
            (false, _) | (true, 10..=13) => Do::Inject(text),
            (true, 14..=16) => Do::Abort(text),
            (true, 17..=18) => Do::Cancel(self.one_in(2)),
            (true, _) => Do::Dispose,
        };
        let after = waits.then(|| {
            let event = self.of(&EVENTS);
            let count = self.of(&[1, 1, 1, 2, 2, 3, 4, 7]);
            (event, count)
        });
        Command { what, after }
    }

    fn process(&mut self, ids: &mut u32) -> (Vec<Answer>, Vec<Command>) {
        let script = (0..1 + self.below(7)).map(|_| self.answer(ids)).collect();
        let at_once = 1 + self.below(3);
        let mut commands = vec![Command { what: Do::Send("first".into()), after: None }];
        commands.extend((1..at_once).map(|number| self.command(number, false)));
        commands.extend((0..self.below(7)).map(|number| self.command(at_once + number, true)));
        (script, commands)
    }
}

/// One process of an agent against the reference; the difference, if there is one.
fn compare(sandbox: &Sandbox, agent: &mut Agent, process: (Vec<Answer>, Vec<Command>)) -> Option<String> {
    let (script, commands) = process;
    let lines = |values: Vec<Value>| values.iter().map(|value| format!("{value}\n")).collect::<String>();
    let script_text = lines(script.iter().map(Answer::line).collect());
    let stdin = lines(commands.iter().map(Command::line).collect());
    let mode = if agent.one_at_a_time { "one" } else { "all" };
    let put = |name: &str, text: &str| std::fs::write(sandbox.workspace.join(name), text).expect("a file");
    put("script.jsonl", &script_text);
    put("host.toml", &format!("[[agents]]\nid = \"main\"\nqueue-mode = \"{mode}\"\n"));
    let toolbox = sandbox.expand("{guests}/toolbox.wasm");
    let max_steps = agent.max_steps.to_string();
    let mut args = vec!["--output", "jsonl", "--input", "jsonl", "--model", "script:script.jsonl"];
    args.extend(["--config", "host.toml", "--plugin", &toolbox, "--max-steps", &max_steps]);
    // A session is made at the first append.
    args.extend((agent.view > 0).then_some("--continue"));
    let run = Run {
        args: args.into_iter().map(str::to_owned).collect(),
        env: sandbox.environment(),
        dir: sandbox.workspace.clone(),
        stdin: stdin.clone(),
        ..Run::default()
    };
    let outcome = host::run(&run).expect("it ends");
    let event = |line: &str| shown(&serde_json::from_str::<Value>(line).expect("an event"));
    let mut got: Vec<String> = outcome.stdout.lines().map(event).collect();
    let (mut expected, exit) = agent.run(script, commands);
    got.push(format!("exit {}", outcome.exit));
    expected.push(format!("exit {exit}"));
    let same = got.iter().zip(&expected).take_while(|(got, expected)| got == expected).count();
    (got != expected).then(|| {
        let part = |events: &[String]| {
            events[same.saturating_sub(5)..].iter().take(12).cloned().collect::<Vec<_>>().join("\n    ")
        };
        let (got, expected) = (part(&got), part(&expected));
        format!(
            "{args}\n{script_text}\n{stdin}\n  got\n    {got}\n  expected\n    {expected}\n{}",
            outcome.stderr,
            args = run.args.join(" ")
        )
    })
}

fn run_seed(seed: u64) -> Option<String> {
    let mut numbers = Numbers(Chance::new(seed));
    let mut agent = Agent::new(numbers.of(&[0, 0, 1, 2, 3]), numbers.one_in(3));
    let sandbox = Sandbox::new().expect("a folder");
    let mut ids = 0;
    let first = numbers.process(&mut ids);
    let second = numbers.one_in(3).then(|| numbers.process(&mut ids));
    let process = |process| compare(&sandbox, &mut agent, process);
    let difference = std::iter::once(first).chain(second).find_map(process);
    difference.map(|difference| format!("seed {seed}: {difference}"))
}

fn seeds() -> Range<u64> {
    let Ok(given) = std::env::var("DSH_TESTS_SEEDS") else { return SEEDS };
    let (from, to) = given.split_once("..").expect("FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn what_nobody_thought_of_happens_as_the_page_says() {
    let differences: Vec<String> = seeds().filter_map(run_seed).take(3).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}
