//! `plugin check`: whether files can be plugins of this host, in the words that a load would use. Nothing of them is compiled or run.

use dsh_wasm::{CeilingEntry, Inspection, Refusal};
use serde::Serialize;

use super::{columns, print, print_json};
use crate::args::Shape;
use crate::config::sources::{self, Unread};
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::output::chat::tame;

/// What a program reads about one file: what it is when it fits, what is wrong with it when it does not.
#[derive(Serialize)]
struct Report<'a> {
    file: &'a str,
    fits: bool,
    problems: Vec<Problem>,
    hooks: Vec<&'a str>,
    capabilities: &'a [String],
    ceiling: Option<&'a [CeilingEntry]>,
    size: Option<usize>,
    sha256: Option<&'a str>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Problem {
    code: &'static str,
    message: String,
    hint: Option<String>,
}

/// Checks each file and tells everything that is wrong with all of them.
pub fn check(files: &[String], shape: Shape, environment: &Environment) -> Result<Code, Stop> {
    let looked: Vec<_> = files.iter().map(|file| (file.as_str(), look(file, environment))).collect();
    if shape == Shape::Json {
        let reports: Vec<Report<'_>> = looked.iter().map(|(file, found)| report(file, found)).collect();
        match reports.as_slice() {
            [one] => print_json(one)?,
            several => print_json(&several)?,
        }
        let fits = reports.iter().all(|report| report.fits);
        return Ok(if fits { Code::Success } else { Code::Usage });
    }
    let mut stops = Vec::new();
    for (file, found) in looked {
        match found {
            Ok(inspection) => print(&text(file, &inspection))?,
            Err(problems) => stops.extend(problems.into_iter().map(|problem| {
                Stop::usage(format!("`{file}`: {}", problem.message)).hint(problem.hint.unwrap_or_default())
            })),
        }
    }
    Stop::together(stops).map_or(Ok(Code::Success), Err)
}

fn look(file: &str, environment: &Environment) -> Result<Inspection, Vec<Problem>> {
    let unreadable = |stop: Stop| {
        // The file is named by whoever prints it.
        let message = match stop.message.strip_prefix(&format!("`{file}`")) {
            Some(rest) => rest.strip_prefix(": ").map_or_else(|| format!("it{rest}"), str::to_owned),
            None => stop.message,
        };
        vec![Problem { code: "unreadable", message, hint: stop.hint }]
    };
    let path = sources::locate_file(file, environment).map_err(unreadable)?;
    let bytes = sources::read(&path).map_err(|unread| match unread {
        Unread::Refused(refusal) => problems(&refusal),
        other => unreadable(other.stop(file, file.as_ref())),
    })?;
    dsh_wasm::inspect(&bytes).map_err(|refusal| problems(&refusal))
}

fn problems(refusal: &Refusal) -> Vec<Problem> {
    let problem = |one: &Refusal| Problem { code: one.code(), message: one.to_string(), hint: Some(one.hint()) };
    refusal.each().iter().map(problem).collect()
}

fn report<'a>(file: &'a str, found: &'a Result<Inspection, Vec<Problem>>) -> Report<'a> {
    let inspection = found.as_ref().ok();
    Report {
        file,
        fits: inspection.is_some(),
        problems: found.as_ref().err().cloned().unwrap_or_default(),
        hooks: inspection.map(|known| known.seams.iter().map(|seam| seam.as_str()).collect()).unwrap_or_default(),
        capabilities: inspection.map_or(&[], |known| &known.capabilities),
        ceiling: inspection.and_then(|known| known.ceiling.as_deref()),
        size: inspection.map(|known| known.size),
        sha256: inspection.map(|known| known.sha256.as_str()),
    }
}

fn text(file: &str, inspection: &Inspection) -> String {
    let hooks: Vec<&str> = inspection.seams.iter().map(|seam| seam.as_str()).collect();
    let mut rows = vec![vec!["  capabilities".to_owned(), listed(&inspection.capabilities)]];
    rows.extend(ceiling(inspection.ceiling.as_deref()).into_iter().map(|line| vec!["  ceiling".into(), line]));
    rows.push(vec!["  sha256".into(), inspection.sha256.clone()]);
    tame(&format!("`{file}` fits this host; hooks: {}\n{}", hooks.join(", "), columns(&rows)))
}

/// Names, or that there is none.
pub fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A plugin's ceiling, a line for each capability with its reason.
pub fn ceiling(entries: Option<&[CeilingEntry]>) -> Vec<String> {
    // A reason is a stranger's text: it gets one line.
    let line = |entry: &CeilingEntry| {
        format!("{}: {}", entry.capability, entry.reason.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    match entries {
        None => vec!["none declared: it gets whatever is granted".into()],
        Some([]) => vec!["nothing: it will never need a grant".into()],
        Some(entries) => entries.iter().map(line).collect(),
    }
}
