//! Ends a program with all it started.
//!
//! A program leads a process group and is the reaper of its orphans, so that as long as it lives every process it started, also one
//! that left the group, is below it in the process table.

use std::fs;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How often the process table is read to find what was started meanwhile: each round can find only children that were made before
/// their parent was killed in the round before.
const MAX_ROUNDS: u32 = 16;

/// A process, known again by when it started, because numbers are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    id: i32,
    parent: i32,
    started: u64,
}

/// The group that `root` leads gets `signal`.
pub(super) fn signal_group(root: u32, signal: Signal) {
    if let Some(root) = pid(root) {
        // The group may be gone already, which is what is wanted.
        let _ = kill_process_group(root, signal);
    }
}

/// Kills `root` and all below it. It is stopped first, so that it stays the parent of orphans until they are found.
pub(super) fn kill_tree(root: u32) {
    let Some(root_pid) = pid(root) else { return };
    let _ = kill_process(root_pid, Signal::STOP);
    let mut killed: Vec<Process> = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let new: Vec<Process> = below(root).into_iter().filter(|process| !killed.contains(process)).collect();
        if new.is_empty() {
            break;
        }
        kill_all(&new);
        killed.extend(new);
    }
    signal_group(root, Signal::KILL);
}

/// Kills those of `processes` that are still the same.
pub(super) fn kill_same(processes: &[Process]) {
    let same: Vec<Process> = processes
        .iter()
        .filter(|process| read(process.id).is_some_and(|now| now.started == process.started))
        .copied()
        .collect();
    kill_all(&same);
}

fn kill_all(processes: &[Process]) {
    for process in processes.iter().filter_map(|process| Pid::from_raw(process.id)) {
        let _ = kill_process(process, Signal::KILL);
    }
}

/// All processes below `root`.
pub(super) fn below(root: u32) -> Vec<Process> {
    let Ok(root) = i32::try_from(root) else { return Vec::new() };
    let all = table();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|process| process.parent == parent && process.id != root) {
            parents.push(process.id);
            found.push(*process);
        }
    }
    found
}

fn table() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter_map(read).collect()
}

/// Reads `/proc/ID/stat`: `id (name) state parent … started …`; the name may hold anything.
fn read(id: i32) -> Option<Process> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    // Counted from `state`, which is field 3 of proc_pid_stat(5): the parent is field 4, the start time is field 22.
    Some(Process { id, parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()? })
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}
