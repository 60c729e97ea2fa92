//! What each plugin's calls cost together, as a table for a person.

use std::collections::BTreeMap;
use std::time::Duration;

use dsh_seam::PluginName;
use dsh_wasm::Receipt;

use crate::commands::columns;

/// Totals by plugin.
#[derive(Default)]
pub struct Totals(BTreeMap<PluginName, Total>);

#[derive(Default)]
struct Total {
    calls: u64,
    failures: u64,
    wall: Duration,
    guest: Duration,
    host: Duration,
    excluded: Duration,
    slowest: Option<(Duration, String)>,
    peak_memory: u64,
    bytes_in: u64,
    bytes_out: u64,
    host_calls: u64,
}

const HEAD: [&str; 12] = [
    "plugin",
    "calls",
    "failed",
    "wall",
    "guest",
    "host",
    "excluded",
    "memory",
    "in",
    "out",
    "host calls",
    "slowest call",
];

impl Totals {
    /// Adds a call.
    pub fn add(&mut self, receipt: &Receipt) {
        let total = self.0.entry(receipt.plugin.clone()).or_default();
        total.calls += 1;
        total.failures += u64::from(receipt.verdict.is_failure());
        total.wall += receipt.wall;
        total.guest += receipt.guest + receipt.instance;
        total.host += receipt.host;
        total.excluded += receipt.excluded;
        total.peak_memory = total.peak_memory.max(receipt.peak_memory);
        total.bytes_in += receipt.bytes_in;
        total.bytes_out += receipt.bytes_out;
        total.host_calls += u64::from(receipt.host_calls);
        // What others took is not this plugin's.
        let own = receipt.wall.saturating_sub(receipt.excluded);
        if total.slowest.as_ref().is_none_or(|(slowest, _)| own > *slowest) {
            total.slowest = Some((own, format!("{} in `{}`, number {}", time(own), receipt.seam, receipt.number)));
        }
    }

    /// The table; none when there was no call.
    pub fn table(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
        rows.extend(self.0.iter().map(|(plugin, total)| total.row(plugin)));
        Some(columns(&rows))
    }
}

impl Total {
    fn row(&self, plugin: &PluginName) -> Vec<String> {
        vec![
            plugin.to_string(),
            self.calls.to_string(),
            self.failures.to_string(),
            time(self.wall),
            time(self.guest),
            time(self.host),
            time(self.excluded),
            bytes(self.peak_memory),
            bytes(self.bytes_in),
            bytes(self.bytes_out),
            self.host_calls.to_string(),
            self.slowest.as_ref().map(|(_, words)| words.clone()).unwrap_or_default(),
        ]
    }
}

/// A time with three digits or so.
fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        _ if time.is_zero() => "0".into(),
        _ if seconds < 0.001 => format!("{:.1} µs", seconds * 1e6),
        _ if seconds < 1.0 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

/// A size with three digits or so.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_short() {
        assert_eq!(time(Duration::ZERO), "0");
        assert_eq!(time(Duration::from_nanos(12_340)), "12.3 µs");
        assert_eq!(time(Duration::from_micros(12_340)), "12.34 ms");
        assert_eq!(time(Duration::from_millis(12_340)), "12.34 s");
        assert_eq!(
            (bytes(0), bytes(1_023), bytes(1_536), bytes(3 << 20)),
            ("0 B".into(), "1023 B".into(), "1.5 KiB".into(), "3.0 MiB".into())
        );
    }
}
