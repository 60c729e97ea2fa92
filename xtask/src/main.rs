//! The commands of this repository, one file each. `cargo xtask --help` lists them.

mod bench;
mod demo;
mod dist;
mod freeze;
mod guests;
mod progress;
mod repo;
mod setup;
mod sums;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::repo::Repo;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The commands of this repository", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the compiler's target for plugins available
    Setup,
    /// Build the plugins and the tests' guests
    Guests,
    /// Set up, build everything and show two agents at work
    Demo(demo::Options),
    /// Set up, build everything and run every check and test
    Test,
    /// Measure what the host costs, beside what it should cost
    Bench(bench::Options),
    /// Check the repository's own rules: READMEs, links, paragraphs, left-overs
    Tidy,
    /// Copy the contract of a version that is about to be released
    Freeze(freeze::Options),
    /// Build the archive that users get
    Dist,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = Repo::find().and_then(|repo| match arguments.command {
        Command::Setup => setup::run(&repo),
        Command::Guests => guests::run(&repo),
        Command::Demo(options) => demo::run(&repo, &options),
        Command::Test => test::run(&repo),
        Command::Bench(options) => bench::run(&repo, &options),
        Command::Tidy => tidy::run(&repo),
        Command::Freeze(options) => freeze::run(&repo, &options),
        Command::Dist => dist::run(&repo),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
