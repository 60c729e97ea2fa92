//! The ways to misbehave.

use dsh_sdk::{ContentBlock, Failure, Level, Message, Outcome, ResultBlock, Role, ToolCall, log, runtime, state};
use schemars::JsonSchema;
use serde::Deserialize;
use std::hint::black_box;
use std::time::Duration;

/// How much `output` answers: more than the default limit of 16 MiB.
pub const OUTPUT_BYTES: usize = 24 * 1024 * 1024;
/// How many lines a flood has; standard error costs more of the CPU time that is allowed.
const NOISY_LOG_LINES: u32 = 100_000;
const NOISY_STDERR_LINES: u32 = 10_000;
/// How much is allocated at a time.
const MEMORY_PIECE_BYTES: usize = 1024 * 1024;
/// How often `rerun` runs the rest: more than the host allows.
const RERUNS: usize = 20;
/// One value of `state`: the most that a key may hold.
const STATE_VALUE_BYTES: usize = 1024 * 1024 - 16;

/// One way to misbehave. Those with `-after` run the rest of the waterfall first; where there is no rest, they act at once.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Panics, with a message on standard error.
    Trap,
    TrapAfter,
    /// Spins for ever.
    Loop,
    LoopAfter,
    /// Allocates until it is stopped.
    Memory,
    /// Recurses until it is stopped.
    Stack,
    /// Ends the process it is not.
    Exit,
    /// Waits an hour in the host.
    Sleep,
    SleepAfter,
    /// Appends `plugin/<name>/hangs` (with the grant `session`), then waits an hour in the host.
    Hang,
    HangAfter,
    /// Answers a failure with the code `faulty`.
    Fail,
    FailAfter,
    /// Answers a failure without code and message.
    FailEmpty,
    /// Edits the request, then fails or traps (`request` only).
    EditThenFail,
    EditThenTrap,
    /// Does not run the rest and answers something else.
    Skip,
    /// Runs the rest, ignores whether it failed, and answers something else.
    Swallow,
    /// Runs the rest twice.
    Twice,
    /// Runs the rest twenty times.
    Rerun,
    /// Floods the log, then goes on.
    NoisyLog,
    /// Floods standard error, then goes on.
    NoisyStderr,
    /// Calls the host for ever.
    HostCalls,
    /// Fills its state until it is refused, and answers that failure.
    State,
    /// Sets a value in its state, then traps.
    StateThenTrap,
    /// Answers a value that no host can take: a result block that is not JSON, a message of the wrong role, a schema that is not
    /// JSON.
    BadValue,
    /// `list-tools` only: a schema that is JSON, but no schema.
    BadSchema,
    /// `list-tools` only: a name with blanks.
    BadName,
    /// `call-tool` only: a code with blanks; a code of the host.
    BadCode,
    ForeignCode,
    /// `call-tool` only: 24 MiB of text.
    Output,
}

impl Fault {
    /// Whether the request is edited before.
    pub fn edits_first(self) -> bool {
        matches!(self, Self::EditThenFail | Self::EditThenTrap)
    }
}

/// Misbehaves where there is no rest to run.
pub fn strike(fault: Fault) -> Result<(), Failure> {
    match fault {
        Fault::Trap | Fault::TrapAfter | Fault::EditThenTrap => panic!("faulty traps, as it was told to"),
        Fault::Loop | Fault::LoopAfter => spin(),
        Fault::Memory => eat_memory(),
        Fault::Stack => {
            black_box(recurse(black_box(1)));
            Ok(())
        }
        Fault::Exit => std::process::exit(3),
        Fault::Sleep | Fault::SleepAfter => sleep(),
        Fault::Hang | Fault::HangAfter => log::append("hangs", "{}").and_then(|_seq| sleep()),
        Fault::Fail | Fault::FailAfter | Fault::EditThenFail => {
            Err(Failure::new("faulty", "faulty fails, as it was told to"))
        }
        Fault::FailEmpty => Err(Failure::new("", "")),
        Fault::NoisyLog => {
            for number in 0..NOISY_LOG_LINES {
                runtime::log(Level::Warn, &format!("noise {number}"));
            }
            Ok(())
        }
        Fault::NoisyStderr => {
            for number in 0..NOISY_STDERR_LINES {
                eprintln!("noise {number}");
            }
            Ok(())
        }
        Fault::HostCalls => loop {
            black_box(runtime::cancelled());
        },
        Fault::State => fill_state(),
        Fault::StateThenTrap => {
            state::set("kept", &true)?;
            panic!("faulty traps after it set its state, as it was told to")
        }
        Fault::Skip
        | Fault::Swallow
        | Fault::Twice
        | Fault::Rerun
        | Fault::BadValue
        | Fault::BadSchema
        | Fault::BadName
        | Fault::BadCode
        | Fault::ForeignCode
        | Fault::Output => Ok(()),
    }
}

/// Misbehaves around the rest of a waterfall.
pub fn around<T>(
    fault: Fault,
    run: impl Fn() -> Result<T, Failure>,
    instead: impl FnOnce() -> T,
) -> Result<T, Failure> {
    match fault {
        Fault::TrapAfter | Fault::LoopAfter | Fault::SleepAfter | Fault::HangAfter | Fault::FailAfter => {
            let outcome = run()?;
            strike(fault)?;
            Ok(outcome)
        }
        Fault::Skip => Ok(instead()),
        Fault::Swallow => {
            let _ = run();
            Ok(instead())
        }
        Fault::Twice => {
            run()?;
            run()
        }
        Fault::Rerun => {
            for _ in 1..RERUNS {
                run()?;
            }
            run()
        }
        _ => {
            strike(fault)?;
            run()
        }
    }
}

/// A message that no assistant can have sent: a role of the user, and a block that is not JSON.
pub fn bad_message() -> Message {
    let call = ToolCall {
        id: String::new(),
        name: String::new(),
        arguments: String::new(),
        opaque: Some("{no json".to_owned()),
    };
    Message {
        role: Role::User,
        content: vec![ContentBlock::Other("{no json".to_owned()), ContentBlock::ToolCall(call)],
    }
}

/// An outcome with a block that is not JSON.
pub fn bad_outcome() -> Outcome {
    Outcome { content: vec![ResultBlock::Other("{no json".to_owned())], is_error: false, code: None }
}

fn sleep() -> Result<(), Failure> {
    std::thread::sleep(Duration::from_secs(3_600));
    Ok(())
}

fn spin() -> ! {
    let mut number: u64 = 0;
    loop {
        number = black_box(number.wrapping_add(1));
    }
}

fn eat_memory() -> ! {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    loop {
        pieces.push(black_box(vec![1; MEMORY_PIECE_BYTES]));
    }
}

#[expect(unconditional_recursion, reason = "that is the fault")]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    recurse(black_box(depth + 1)) + frame[0]
}

fn fill_state() -> Result<(), Failure> {
    for number in 0_u32.. {
        state::set(&format!("key-{number}"), &"x".repeat(STATE_VALUE_BYTES))?;
    }
    Ok(())
}
