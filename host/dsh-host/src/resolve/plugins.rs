//! Plugins: those of the configuration, then those of the command line, and the options that name them.

use std::path::Path;

use dsh_seam::{FailureMode, PluginName, Seam};
use dsh_wasm::{Grant, Limits};
use serde_json::Value;

use super::{AgentPlan, PluginPlan, ProviderPlan, Scope, limits};
use crate::config::file::{OnFailure, PluginEntry};
use crate::config::sources::Place;
use crate::config::{Loaded, sources};
use crate::exit::Stop;
use crate::names;
use crate::providers::{BUILT_IN, is_network};

/// The plugin that the host adds by itself for models behind a network.
const RETRY: &str = "retry";

/// The plugins that were asked for, in waterfall order, before any option that names one.
pub fn listed(scope: &Scope<'_>) -> Result<Vec<PluginPlan>, Stop> {
    let mut plugins = Vec::new();
    if let Some(config) = scope.config {
        for (place, entry) in config.file.plugins.iter().enumerate() {
            let mut plugin = of_entry(scope, config, entry)?;
            plugin.pinned = config.pinned.get(place).filter(|_| !is_replaced(scope, &plugin.name)).cloned();
            if plugins.iter().any(|known: &PluginPlan| known.name == plugin.name) {
                let span = entry.name.as_ref().unwrap_or(&entry.source).span();
                return Err(config.stop_at(span, format!("there are two plugins `{}`", plugin.name)));
            }
            plugins.push(plugin);
        }
    }
    let mut typed: Vec<PluginName> = Vec::new();
    for text in &scope.options.plugins {
        let (name, reference) = split_name(text)?;
        let path = sources::locate(reference, Place::Option, &scope.environment.working_directory, scope.environment)?;
        if typed.contains(&name) {
            return Err(Stop::usage(format!("there are two plugins `{name}`"))
                .hint("give one another name: `--plugin NAME=REF`"));
        }
        typed.push(name.clone());
        match plugins.iter_mut().find(|plugin| plugin.name == name) {
            Some(plugin) => (plugin.source, plugin.path) = (reference.to_owned(), path),
            None => plugins.push(plain(name, reference, path)),
        }
    }
    Ok(plugins)
}

/// Applies the options that name a plugin; all plugins are there.
pub fn apply_options(scope: &Scope<'_>, plugins: &mut [PluginPlan]) -> Result<(), Stop> {
    apply_configs(scope, plugins)?;
    apply_grants(scope, plugins)?;
    apply_modes(scope, plugins)?;
    limits::apply(scope, plugins)
}

fn plain(name: PluginName, source: &str, path: std::path::PathBuf) -> PluginPlan {
    PluginPlan {
        name,
        source: source.to_owned(),
        path,
        added: false,
        pinned: None,
        config: "{}".into(),
        grants: Vec::new(),
        mode: FailureMode::Closed,
        seams: None,
        limits: Limits::default(),
    }
}

/// `[NAME=]REF`; what stands before a `=` is a name unless it has a `/`.
fn split_name(text: &str) -> Result<(PluginName, &str), Stop> {
    match text.split_once('=') {
        Some((name, reference)) if !name.contains('/') => {
            let name = PluginName::new(name)
                .map_err(|error| Stop::usage(error.to_string()).hint("write `--plugin NAME=REF`"))?;
            Ok((name, reference))
        }
        _ => Ok((sources::name_of(text)?, text)),
    }
}

/// Whether another source of the plugin was typed.
fn is_replaced(scope: &Scope<'_>, name: &PluginName) -> bool {
    scope.options.plugins.iter().any(|text| split_name(text).is_ok_and(|(typed, _)| typed == *name))
}

fn of_entry(scope: &Scope<'_>, config: &Loaded, entry: &PluginEntry) -> Result<PluginPlan, Stop> {
    let source = &entry.source;
    let at_source = |stop: Stop| Stop { message: config.stop_at(source.span(), &stop.message).message, ..stop };
    let name = match &entry.name {
        Some(name) => PluginName::new(name.get_ref()).map_err(|error| config.stop_at(name.span(), error))?,
        None => sources::name_of(source.get_ref()).map_err(|stop| Stop {
            message: config.stop_at(source.span(), stop.message).message,
            hint: Some("add a `name`".into()),
            ..stop
        })?,
    };
    let path = if is_replaced(scope, &name) {
        config.resolve(source.get_ref())
    } else {
        sources::locate(source.get_ref(), Place::File, config.folder(), scope.environment).map_err(at_source)?
    };
    let mut plugin = plain(name, source.get_ref(), path);
    for grant in &entry.grants {
        let wrong = |error: dsh_wasm::GrantError| config.stop_at(grant.span(), error).hint(meant(grant.get_ref(), ""));
        plugin.grants.push(grant.get_ref().parse().map_err(wrong)?);
    }
    if let Some(seams) = &entry.seams {
        plugin.seams = Some(parse_seams(config, seams)?);
    }
    if let Some(value) = &entry.config {
        let json = to_json(value.get_ref()).map_err(|problem| config.stop_at(value.span(), problem))?;
        plugin.config = json.to_string();
    }
    plugin.mode = entry.on_failure.map_or(FailureMode::Closed, mode);
    plugin.limits = limits::of_entry(config, &entry.limits)?;
    Ok(plugin)
}

fn mode(entry: OnFailure) -> FailureMode {
    match entry {
        OnFailure::Closed => FailureMode::Closed,
        OnFailure::Open => FailureMode::Open,
    }
}

fn parse_seams(config: &Loaded, seams: &[toml::Spanned<String>]) -> Result<Vec<Seam>, Stop> {
    let parse = |seam: &toml::Spanned<String>| {
        Seam::parse(seam.get_ref()).ok_or_else(|| {
            let hint = names::hint(seam.get_ref(), Seam::ALL.map(Seam::as_str));
            config.stop_at(seam.span(), format!("unknown seam `{}`", seam.get_ref())).hint(hint)
        })
    };
    seams.iter().map(parse).collect()
}

/// TOML as JSON: a date becomes its text.
pub(super) fn to_json(value: &toml::Value) -> Result<Value, String> {
    Ok(match value {
        toml::Value::String(text) => Value::String(text.clone()),
        toml::Value::Integer(number) => (*number).into(),
        toml::Value::Float(number) => serde_json::Number::from_f64(*number)
            .map(Value::Number)
            .ok_or_else(|| format!("`{number}` is no number in JSON"))?,
        toml::Value::Boolean(value) => Value::Bool(*value),
        toml::Value::Datetime(date) => Value::String(date.to_string()),
        toml::Value::Array(items) => Value::Array(items.iter().map(to_json).collect::<Result<_, _>>()?),
        toml::Value::Table(table) => {
            let members = table.iter().map(|(key, value)| Ok((key.clone(), to_json(value)?)));
            Value::Object(members.collect::<Result<_, String>>()?)
        }
    })
}

/// Splits `NAME=REST` and finds the plugin of that name.
pub(super) fn named<'p, 't>(
    plugins: &'p mut [PluginPlan],
    option: &str,
    text: &'t str,
    form: &str,
) -> Result<(&'p mut PluginPlan, &'t str), Stop> {
    let Some((name, rest)) = text.split_once('=') else {
        return Err(Stop::usage(format!("`{option} {text}` names no plugin")).hint(format!("write `{option} {form}`")));
    };
    let known: Vec<String> = plugins.iter().map(|plugin| plugin.name.to_string()).collect();
    match plugins.iter_mut().find(|plugin| plugin.name.as_str() == name) {
        Some(plugin) => Ok((plugin, rest)),
        None => {
            let hint = if known.is_empty() {
                "no plugin is loaded".into()
            } else {
                names::hint(name, known.iter().map(String::as_str))
            };
            Err(Stop::usage(format!("`{option} {text}`: no plugin `{name}` is loaded")).hint(hint))
        }
    }
}

fn once(seen: &mut Vec<PluginName>, option: &str, name: &PluginName) -> Result<(), Stop> {
    if seen.contains(name) {
        return Err(Stop::usage(format!("`{option} {name}=…` is given twice")));
    }
    seen.push(name.clone());
    Ok(())
}

fn apply_configs(scope: &Scope<'_>, plugins: &mut [PluginPlan]) -> Result<(), Stop> {
    let option = "--plugin-config";
    let mut seen = Vec::new();
    for text in &scope.options.plugin_configs {
        let (plugin, rest) = named(plugins, option, text, "NAME=JSON")?;
        once(&mut seen, option, &plugin.name)?;
        let (json, shown) = match rest.strip_prefix('@') {
            Some(file) => {
                let path = scope.environment.path(file);
                (std::fs::read_to_string(&path).map_err(|error| Stop::io(Path::new(file), &error))?, file)
            }
            None => (rest.to_owned(), "it"),
        };
        let value: Value = serde_json::from_str(&json).map_err(|error| {
            Stop::usage(format!("the configuration of `{}`: {shown} is no JSON: {error}", plugin.name))
        })?;
        plugin.config = value.to_string();
    }
    Ok(())
}

fn apply_grants(scope: &Scope<'_>, plugins: &mut [PluginPlan]) -> Result<(), Stop> {
    for text in &scope.options.grants {
        let (plugin, capability) = named(plugins, "--grant", text, "NAME=CAPABILITY")?;
        let grant: Grant = capability.parse().map_err(|error: dsh_wasm::GrantError| {
            Stop::usage(format!("`--grant {text}`: {error}"))
                .hint(meant(capability, &format!("--grant {}=", plugin.name)))
        })?;
        plugin.grants.push(grant);
    }
    Ok(())
}

/// What was probably meant when a word of a capability was mistyped, as it is written behind `before`.
fn meant(capability: &str, before: &str) -> String {
    let forms = ["llm", "session", "inbox", "approval", "process", "fs:read", "fs:write", "net", "env"];
    let words: Vec<&str> = capability.splitn(3, ':').collect();
    let (head, rest) = match words.as_slice() {
        ["fs", access, path] => (format!("fs:{access}"), Some((*path).to_owned())),
        [word, rest @ ..] => ((*word).to_owned(), Some(rest.join(":")).filter(|rest| !rest.is_empty())),
        [] => return String::new(),
    };
    // A right word with something missing behind it is told by the error itself.
    let is_right = forms.iter().any(|form| *form == head || form.split(':').next() == Some(&*head));
    let near = names::nearest(&head, forms).filter(|_| !is_right);
    let Some(near) = near else { return String::new() };
    let rest = rest.map(|rest| format!(":{rest}")).unwrap_or_default();
    let grant = format!("{near}{rest}");
    if grant.parse::<Grant>().is_ok() { format!("did you mean `{before}{grant}`?") } else { String::new() }
}

fn apply_modes(scope: &Scope<'_>, plugins: &mut [PluginPlan]) -> Result<(), Stop> {
    let option = "--on-failure";
    let mut seen = Vec::new();
    for text in &scope.options.on_failure {
        let (plugin, mode) = named(plugins, option, text, "NAME=closed|open")?;
        once(&mut seen, option, &plugin.name)?;
        plugin.mode = match mode {
            "closed" => FailureMode::Closed,
            "open" => FailureMode::Open,
            other => {
                let hint = names::hint(other, ["closed", "open"]);
                return Err(
                    Stop::usage(format!("`{option} {text}`: `{other}` is neither `closed` nor `open`")).hint(hint)
                );
            }
        };
    }
    Ok(())
}

/// No grant may hand a provider's key to a plugin.
pub fn check_grants(scope: &Scope<'_>, plugins: &[PluginPlan], providers: &[ProviderPlan]) -> Result<(), Stop> {
    let keys = super::providers::secret_variables(providers, scope.environment);
    for plugin in plugins {
        let leaked = plugin.grants.iter().find_map(|grant| match grant {
            Grant::Env(name) if keys.contains(&name.as_str()) => Some(name),
            _ => None,
        });
        if let Some(name) = leaked {
            let is_key = |plan: &ProviderPlan| plan.config.key_variable.as_ref() == Some(name);
            let is_key = providers.iter().any(is_key) || BUILT_IN.iter().any(|known| known.key_variable == name);
            let what = if is_key { "is the key" } else { "holds a secret" };
            let message = format!("`{name}` {what} of a provider and cannot be granted to `{}`", plugin.name);
            let place = scope.config.and_then(|config| {
                let grants = config.file.plugins.iter().flat_map(|entry| &entry.grants);
                let span = grants.into_iter().find(|grant| *grant.get_ref() == format!("env:{name}"))?.span();
                Some(config.stop_at(span, &message))
            });
            return Err(place.unwrap_or_else(|| Stop::usage(message)));
        }
    }
    Ok(())
}

/// Adds the plugins that the host adds by itself, innermost: `retry` when the model of an agent is behind a network. Returns whether it
/// did. A run can do without it, so that it is missing is only told.
pub fn add_defaults(
    scope: &Scope<'_>,
    agents: &[AgentPlan],
    plugins: &mut Vec<PluginPlan>,
    notices: &mut Vec<String>,
) -> bool {
    let off = scope.options.no_default_plugins || scope.key(|file| file.no_default_plugins).unwrap_or(false);
    let wanted = agents.iter().any(|agent| is_network(&agent.model));
    if off || !wanted || plugins.iter().any(|plugin| plugin.name.as_str() == RETRY) {
        return false;
    }
    let Ok(path) = sources::locate(RETRY, Place::Option, Path::new("."), scope.environment) else {
        notices.push(format!(
            "the shipped plugin `{RETRY}` is not there, so a model request that fails is not tried again; put `{RETRY}.wasm` into a folder `plugins` beside the executable, or say that this is meant with `--no-default-plugins`"
        ));
        return false;
    };
    let name = PluginName::new(RETRY).expect("invariant: `retry` is a valid name");
    plugins.push(PluginPlan { added: true, ..plain(name, RETRY, path) });
    true
}
