//! The plugin `files`: read, write, edit, list, find and search files under the directories that were granted.
//!
//! WASI keeps the plugin inside of what was granted; this code says clearly what was refused and which grant would allow it.

mod edit;
mod grep;
mod preopens;
mod problem;
mod read;
mod root;
mod walk;
mod write;

use dsh_sdk::{Access, Call, Failure, NoConfig, Outcome, PathGrant, Plugin, Tool, ToolProvider, registry, tool};
use problem::Problem;
use root::{Root, Verb, Who};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Read {
    /// The file, relative to the workspace.
    path: String,
    /// The first line to read, counted from 1.
    #[schemars(range(min = 1))]
    start_line: Option<u64>,
    /// How many lines to read.
    #[schemars(range(min = 1))]
    lines: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Write {
    /// The file, relative to the workspace; directories on the way are made.
    path: String,
    /// The whole new content.
    content: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The file, relative to the workspace.
    path: String,
    /// Made one after the other; when one does not fit, the file stays as it was.
    #[schemars(length(min = 1))]
    edits: Vec<edit::Replacement>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// The directory, relative to the workspace.
    path: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GlobArgs {
    /// `*`, `?`, `[a-z]`, `{a,b}` inside of a name, `**` for any number of directories; relative to `path`.
    pattern: String,
    /// The directory to look in, relative to the workspace; all that is granted when it is left out.
    path: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Grep {
    /// A regular expression, searched for in each line.
    pattern: String,
    /// The file or directory to search, relative to the workspace; all that is granted when it is left out.
    path: Option<String>,
    /// Only files that match this glob; without a `/` it is matched with the file's name.
    glob: Option<String>,
}

struct Files;

impl Plugin for Files {
    type Config = NoConfig;

    fn new(_config: NoConfig) -> Result<Self, Failure> {
        Ok(Self)
    }
}

impl ToolProvider for Files {
    fn tools(&self) -> Vec<Tool<'_>> {
        let looks = |name, description| tool(name, description).read_only().idempotent().parallel_safe();
        vec![
            looks("read", "Reads a text file: its content as it is, or some of its lines.")
                .typed(|args: Read, call| answer(read::read(&root(call), &args.path, args.start_line, args.lines))),
            tool("write", "Writes a whole text file, new or over an existing one.")
                .destructive()
                .idempotent()
                .typed(|args: Write, call| answer(write::write(&root(call), &args.path, &args.content))),
            tool("edit", "Replaces texts in a file. Each `old` must occur exactly once; all edits are made, or none.")
                .destructive()
                .typed(|args: Edit, call| answer(edit::edit(&root(call), &args.path, &args.edits))),
            looks("list", "Lists a directory, sorted; directories end in `/`.")
                .typed(|args: List, call| answer(walk::list(&root(call), &args.path))),
            looks("glob", "Finds files by a glob, sorted.")
                .typed(|args: GlobArgs, call| answer(walk::glob(&root(call), &args.pattern, args.path.as_deref()))),
            looks("grep", "Searches files by a regular expression; answers with lines `path:line:text`.").typed(
                |args: Grep, call| {
                    answer(grep::grep(&root(call), &args.pattern, args.path.as_deref(), args.glob.as_deref()))
                },
            ),
        ]
    }
}

/// The workspace as this call sees it.
fn root(call: &Call) -> Root<'_> {
    Root::new(
        "",
        Who {
            granted: Box::new(preopens::names),
            is_granted: Box::new(preopens::hold),
            in_profile: Box::new(|path, verb| in_profile(call, path, verb)),
            plugin: Box::new(|| own_name(call)),
            cancelled: Box::new(|| call.cancelled()),
        },
    )
}

/// Whether the profile in force lets a path be read or written; grants are another matter.
fn in_profile(call: &Call, path: &str, verb: Verb) -> bool {
    let Some(profile) = call.limits() else { return true };
    let covers = |grant: &PathGrant| grant.path == "." || Path::new(path).starts_with(&grant.path);
    let writable = |grant: &PathGrant| matches!(grant.access, Access::Write);
    let writes = verb == Verb::Write;
    let given = profile.paths.iter().any(|grant| covers(grant) && (writable(grant) || !writes));
    given && !profile.denied.iter().any(|grant| covers(grant) && (writes || !writable(grant)))
}

/// The name this plugin was loaded under, for the option in a message.
fn own_name(call: &Call) -> String {
    let tools = registry::tools();
    tools.into_iter().find(|tool| tool.name == call.call.name).map_or_else(|| "files".to_owned(), |tool| tool.plugin)
}

fn answer(result: Result<String, Problem>) -> Result<Outcome, Failure> {
    Ok(match result {
        Ok(text) => Outcome::text(text),
        Err(problem) => Outcome::error(problem.code(), problem.to_string()),
    })
}

dsh_sdk::ceiling!("fs": "to read and write the files you grant");
dsh_sdk::export!(Files: tools, configure);
