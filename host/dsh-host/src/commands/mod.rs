//! The commands that are no run: each looks at something or makes one tool call.

mod cache;
mod check;
mod compile;
mod config;
mod doctor;
mod lock;
mod models;
mod plugin;
mod replay;
mod session;
mod tool;

use std::io::Write as _;

use crate::args::{self, Command, ConfigCommand, Options, PluginCommand, SessionCommand, ToolCommand};
use crate::diagnostics::Loudness;
use crate::env::Environment;
use crate::exit::{Code, Stop};

/// How much a command says on standard error.
pub fn loudness(command: &Command) -> Loudness {
    match command {
        Command::Tool(ToolCommand::List { options } | ToolCommand::Call { options, .. })
        | Command::Plugin(PluginCommand::Lock { options }) => {
            Loudness { verbose: options.verbose, quiet: options.quiet }
        }
        Command::Plugin(PluginCommand::Compile(command)) => Loudness { verbose: 0, quiet: command.quiet },
        _ => Loudness::default(),
    }
}

/// Carries a command out.
pub async fn run(command: Command, environment: &Environment) -> Result<Code, Stop> {
    match command {
        Command::Tool(ToolCommand::List { options }) => tool::list(&options, environment).await,
        Command::Tool(ToolCommand::Call { options, name, arguments }) => {
            tool::call(&options, &name, &arguments, environment).await
        }
        Command::Plugin(PluginCommand::Inspect { file, output, compiling }) => {
            plugin::inspect(&file, output, &compiling, environment).await
        }
        Command::Plugin(PluginCommand::Compile(command)) => compile::run(&command, environment).await,
        Command::Cache { command, output } => cache::run(command.as_ref(), output, environment),
        Command::Plugin(PluginCommand::Check { files, output }) => check::check(&files, output, environment),
        Command::Session(SessionCommand::List { place, output }) => session::list(&place, output, environment).await,
        Command::Session(SessionCommand::Show { id, place, salvage, output }) => {
            session::show(&id, &place, salvage, output, environment).await
        }
        Command::Session(SessionCommand::Export { id, place, salvage }) => {
            session::export(&id, &place, salvage, environment).await
        }
        Command::Session(SessionCommand::Requests { id, place, which }) => {
            session::requests(&id, &place, &which, environment).await
        }
        Command::Session(SessionCommand::Usage { id, place, output }) => {
            session::usage(&id, &place, output, environment).await
        }
        Command::Session(SessionCommand::Cache { id, place, output }) => {
            session::cache(&id, &place, output, environment).await
        }
        Command::Plugin(PluginCommand::Lock { options }) => lock::write(&options, environment),
        Command::Config(ConfigCommand::Check { file, config, locked, lock_file }) => {
            config::check(Options { config: file.or(config), locked, lock_file, ..Options::default() }, environment)
        }
        Command::Config(ConfigCommand::Trust { file, config }) => config::trust(file.or(config).as_ref(), environment),
        Command::Config(ConfigCommand::Schema) => config::schema(),
        Command::Models(command) => models::run(&command, environment).await,
        Command::Doctor { config } => doctor::run(config.as_deref(), environment),
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<Code, Stop> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::whole(), "dsh-host", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Code::Success)
}

/// Prints to standard output.
fn print(text: &str) -> Result<(), Stop> {
    let mut stdout = std::io::stdout().lock();
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// What came of printing. Whoever closed our standard output wants no more, and that is no error; anything else is one.
fn written(result: std::io::Result<()>) -> Result<(), Stop> {
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Stop::new(Code::Interrupted, format!("standard output could not be written: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The same, as a line.
fn print_line(text: &str) -> Result<(), Stop> {
    print(&format!("{text}\n"))
}

/// One JSON value, for a program or a curious person.
fn print_json(value: &impl serde::Serialize) -> Result<(), Stop> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Stop::new(Code::Internal, error.to_string()))?;
    print_line(&text)
}

/// Rows as columns of equal width, two blanks apart.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.push_str(&" ".repeat(width - cell.chars().count() + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        assert_eq!(columns(&[row(&["a", "long", ""]), row(&["ää", "b", "c"])]), "a   long\nää  b     c\n");
        assert_eq!(columns(&[]), "");
    }
}
