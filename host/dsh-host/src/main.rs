//! `dsh-host`: the command line. Parse, then mean, then do.
//!
//! | step | file |
//! |---|---|
//! | arguments, as typed | `args.rs` |
//! | the environment | `env.rs` |
//! | the configuration, and trust in it | `config/` |
//! | what they mean together: a plan | `resolve/`, `providers.rs` |
//! | which plugins somebody agreed to, and to what | `lock/` |
//! | from a plan to services, plugins and a loop | `compose.rs` |
//! | near names for hints, hashes as they are shown, who may write the cache | `names.rs`, `hash.rs`, `reach.rs` |
//! | running it: headless, or a chat | `run/` |
//! | plugins whose files change while it runs | `reload/` |
//! | standard input and output | `input/`, `output/`, `approve.rs` |
//! | the other commands | `commands/` |
//! | standard error | `diagnostics.rs`, `progress.rs` |
//! | exit codes, all of them; what decided one | `exit.rs`, `why.rs` |

mod added;
mod approve;
mod args;
mod budget;
mod commands;
mod compose;
mod config;
mod diagnostics;
mod env;
mod exit;
mod hash;
mod input;
mod lock;
mod names;
mod output;
mod progress;
mod providers;
mod reach;
mod reload;
mod resolve;
mod run;
mod why;

use std::io;
use std::sync::RwLock;

use args::Request;
use diagnostics::Loudness;
use env::Environment;
use exit::{Code, Stop};
use output::chat::tame;

/// Threads that serve tasks: one agent needs one, the second keeps signals and streams going. Compiling has threads of its own.
const WORKERS: usize = 2;
/// Threads that there must be: the workers, the engine's clock, those that read, load and wait, and what compiling starts.
const THREADS: usize = 16;
/// The stack of a thread that does nothing.
const SMALL_STACK: usize = 16 * 1024;

fn main() {
    if let Some(code) = compile_for_parent() {
        std::process::exit(code);
    }
    exit::install_panic_hook();
    env::hide();
    let request = args::parse(env::arguments()).unwrap_or_else(|error| error.exit());
    let code = std::panic::catch_unwind(|| carry_out(request)).unwrap_or_else(|_| Err(Stop::new(Code::Internal, "")));
    let code = code.unwrap_or_else(|stop| {
        if !stop.message.is_empty() {
            eprintln!("{}", tame(&stop.to_string()));
        }
        stop.code
    });
    // A bug of ours decides, wherever it happened. Threads that wait for standard input are left behind.
    let code = if exit::panicked() { Code::Internal } else { code };
    std::process::exit(code.number().into());
}

/// What this process does when the host started it to compile a component.
fn compile_for_parent() -> Option<i32> {
    let mut arguments = env::arguments().skip(1);
    if arguments.next()? != dsh_wasm::COMPILE_ARGUMENT {
        return None;
    }
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    Some(match dsh_wasm::compile_for_parent(arguments, input, output) {
        Ok(()) => Code::Success.number().into(),
        Err(error) => {
            eprintln!("error: {error}");
            Code::Usage.number().into()
        }
    })
}

fn carry_out(request: Request) -> Result<Code, Stop> {
    let environment = Environment::of_this_process()
        .map_err(|error| Stop::usage(format!("the working directory cannot be used: {error}")))?;
    diagnostics::start(loudness(&request), &environment);
    check_threads().map_err(no_threads)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.map_err(no_threads)?;
    let done = runtime.block_on(async {
        match request {
            Request::Command(command) => commands::run(command, &environment).await,
            Request::Run(run) => {
                let (plan, source) = resolve::run(&run, &environment)?;
                run::run(plan, source, &environment).await
            }
        }
    });
    runtime.shutdown_background();
    done
}

/// Finds out whether this process may have threads, before anything is begun: libraries that are refused one break off, or wait for
/// ever.
fn check_threads() -> io::Result<()> {
    let gate = RwLock::new(());
    std::thread::scope(|scope| {
        let closed = gate.write();
        let start = || std::thread::Builder::new().stack_size(SMALL_STACK).spawn_scoped(scope, || drop(gate.read()));
        let started = (0..THREADS).try_for_each(|_| start().map(drop));
        drop(closed);
        started
    })
}

fn no_threads(error: io::Error) -> Stop {
    Stop::new(Code::Sandbox, format!("this process cannot have the threads it needs: {error}"))
        .hint("look at `ulimit -u`, `ulimit -n`, and at the limit on processes of the container")
}

fn loudness(request: &Request) -> Loudness {
    match request {
        Request::Run(run) => Loudness { verbose: run.options.verbose, quiet: run.options.quiet },
        Request::Command(command) => commands::loudness(command),
    }
}
