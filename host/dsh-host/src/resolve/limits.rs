//! Limits of plugins: those of the configuration, then `--limit`. One that cannot be enforced is refused where it was declared.

use dsh_wasm::{LimitError, Limits};

use super::plugins::named;
use super::{PluginPlan, Scope};
use crate::config::Loaded;
use crate::config::limits::LimitsEntry;
use crate::exit::Stop;
use crate::names;

const OPTION: &str = "--limit";

/// What a plugin's entry declares, over the defaults.
pub fn of_entry(config: &Loaded, entry: &LimitsEntry) -> Result<Limits, Stop> {
    let mut limits = Limits::default();
    for (key, value) in &entry.0 {
        let wrong = |error: LimitError| config.stop_at(value.span(), &error).hint(error.hint());
        limits.set(key, *value.get_ref()).map_err(wrong)?;
    }
    Ok(limits)
}

/// Applies the options, and looks at the limits of each plugin together. The first of `plugins` are those of the configuration.
pub fn apply(scope: &Scope<'_>, plugins: &mut [PluginPlan]) -> Result<(), Stop> {
    let mut typed: Vec<(String, String, &str)> = Vec::new();
    for text in &scope.options.limits {
        let (plugin, rest) = named(plugins, OPTION, text, "NAME=KEY=VALUE")?;
        let stop = |message: &str| Stop::usage(format!("`{OPTION} {text}`: {message}"));
        let Some((key, value)) = rest.split_once('=') else {
            return Err(stop("it names no value").hint(format!("write `{OPTION} NAME=KEY=VALUE`")));
        };
        let number: i64 =
            value.parse().map_err(|_| stop(&format!("`{value}` is no whole number")).hint(unit_hint(key)))?;
        plugin.limits.set(key, number).map_err(|error| {
            let hint = match &error {
                LimitError::Unknown(wrong) => names::hint(wrong, Limits::KEYS.iter().copied()),
                _ => error.hint(),
            };
            stop(&error.to_string()).hint(hint)
        })?;
        let name = plugin.name.to_string();
        if typed.iter().any(|(other, known, _)| *other == name && known == key) {
            return Err(Stop::usage(format!("`{OPTION} {name}={key}=…` is given twice")));
        }
        typed.push((name, key.to_owned(), text));
    }
    let entries = scope.config.map(|config| config.file.plugins.as_slice()).unwrap_or_default();
    for (n, plugin) in plugins.iter().enumerate() {
        let declared = entries.get(n).map(|entry| entry.limits.0.as_slice()).unwrap_or_default();
        let typed: Vec<_> = typed.iter().filter(|(name, ..)| *name == plugin.name.as_str()).collect();
        let keys: Vec<&str> =
            declared.iter().map(|(key, _)| *key).chain(typed.iter().map(|(_, key, _)| key.as_str())).collect();
        let Err(error) = plugin.limits.check_beside(&keys) else { continue };
        let stop = match (typed.iter().find(|(_, key, _)| key == error.key()), scope.config) {
            (None, Some(config)) => {
                let value = declared.iter().find(|(key, _)| *key == error.key());
                config.stop_at(value.map(|(_, value)| value.span()).unwrap_or_default(), &error)
            }
            (Some((.., text)), _) => Stop::usage(format!("`{OPTION} {text}`: {error}")),
            (None, None) => Stop::usage(error.to_string()),
        };
        return Err(stop.hint(error.hint()));
    }
    Ok(())
}

/// What a number of this limit counts.
fn unit_hint(key: &str) -> String {
    let units = [("-ms", "milliseconds"), ("-mib", "MiB"), ("-kib", "KiB")];
    match units.iter().find(|(end, _)| key.ends_with(end)) {
        Some((_, unit)) => format!("the unit is in the key: `{key}` is in {unit}"),
        None => "it takes a number without a unit".into(),
    }
}

#[cfg(test)]
mod tests {
    use dsh_wasm::Limits;

    use super::super::tests::{check, world};

    #[test]
    fn options_set_limits_over_those_of_the_configuration() {
        let config = "[[plugins]]\nname = \"p\"\nsource = \"compaction\"\nlimits = { cpu-ms = 7, memory-mib = 4 }\n";
        let plan = world(config).plan("--config c.toml --limit p=memory-mib=8 --limit p=stack-kib=64 hi");
        let expect = Limits { cpu_ms: 7, memory_mib: 8, stack_kib: 64, ..Limits::default() };
        assert_eq!(plan.plugins[0].limits, expect);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let check = |options: &str, expect: &str| {
            check("", &format!("--plugin p=compaction {options} hi"), &format!("error: {expect}"));
        };
        check(
            "--limit p=memory-mib=0",
            "`--limit p=memory-mib=0`: the limit `memory-mib` cannot be 0: it takes 1 to 4096\nhint: a guest has 32-bit addresses and cannot use more than 4 GiB",
        );
        check("--limit p=memory=8", "`--limit p=memory=8`: unknown limit `memory`\nhint: did you mean `memory-mib`?");
        check("--limit p=tables", "`--limit p=tables`: it names no value\nhint: write `--limit NAME=KEY=VALUE`");
        check(
            "--limit p=cpu-ms=1s",
            "`--limit p=cpu-ms=1s`: `1s` is no whole number\nhint: the unit is in the key: `cpu-ms` is in milliseconds",
        );
        check(
            "--limit p=tables=1k",
            "`--limit p=tables=1k`: `1k` is no whole number\nhint: it takes a number without a unit",
        );
        check("--limit p=cpu-ms=10 --limit p=cpu-ms=20", "`--limit p=cpu-ms=…` is given twice");
        check("--limit q=cpu-ms=10", "`--limit q=cpu-ms=10`: no plugin `q` is loaded\nhint: there is `p`");
    }

    #[test]
    fn a_limit_that_can_never_bite_is_refused() {
        check(
            "",
            "--plugin p=compaction --limit p=cpu-ms=60000 hi",
            "error: `--limit p=cpu-ms=60000`: the limit `cpu-ms` of 60000 can never bite beside `wall-ms` of 30000\nhint: computing is part of the time from call to return: set `cpu-ms` to 30000 or less, or raise `wall-ms`",
        );
        let plan = world("").plan("--plugin p=compaction --limit p=cpu-ms=60000 --limit p=wall-ms=60000 hi");
        assert_eq!((plan.plugins[0].limits.cpu_ms, plan.plugins[0].limits.wall_ms), (60_000, 60_000));
    }

    #[test]
    fn a_limit_of_the_configuration_is_refused_at_its_place() {
        let check = |limits: &str, line: &str, expect: &str| {
            let config = format!("[[plugins]]\nname = \"p\"\nsource = \"compaction\"\nlimits = {{ {limits} }}\n");
            check(&config, &format!("--config c.toml {line} hi"), &format!("error: c.toml:4:{expect}"));
        };
        check(
            "cpu-ms = 7, wall-ms = 0",
            "",
            "34: the limit `wall-ms` cannot be 0: it takes 5 to 86400000\nhint: the clock of a computing guest is looked at every 5 ms, and no call may take more than a day",
        );
        check(
            "log-lines = 10, log-kib = 1000",
            "",
            "38: the limit `log-kib` of 1000 can never bite beside `log-lines` of 10\nhint: a line keeps 4 KiB at most: set `log-kib` to 40 or less, or raise `log-lines`",
        );
        // Declared in the file, and made useless by an option.
        check(
            "cpu-ms = 500",
            "--limit p=wall-ms=100",
            "21: the limit `cpu-ms` of 500 can never bite beside `wall-ms` of 100\nhint: computing is part of the time from call to return: set `cpu-ms` to 100 or less, or raise `wall-ms`",
        );
        check("cpu-ms = \"7\"", "", "21: invalid type: string \"7\", expected i64");
    }
}
