//! Agents, their models and the providers of these.

use dsh_seam::AgentId;

use super::{AgentPlan, BaseUrl, ProviderPlan, Scope, absolute_model, text_or_file};
use crate::args::Conversation;
use crate::config::file::{AgentEntry, ProviderKind, QueueMode};
use crate::exit::Stop;
use crate::names;
use crate::providers::{BUILT_IN, ECHO, ModelRef};

/// The agent there is when none is listed.
const MAIN: &str = "main";

/// Whether the keys of providers must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// For a run.
    Needed,
    /// To look at a configuration.
    NotNeeded,
}

/// The agents and which of them gets the prompts.
pub fn resolve(
    scope: &Scope<'_>,
    conversation: &Conversation,
    notices: &mut Vec<String>,
) -> Result<(Vec<AgentPlan>, usize), Stop> {
    let entries = scope.config.map(|config| config.file.agents.as_slice()).unwrap_or_default();
    let ids = ids(scope, entries)?;
    let prompted = prompted(scope, &ids)?;
    let default_model = scope.options.model.clone().or_else(|| {
        let config = scope.config?;
        Some(absolute_model(config.file.model.as_ref()?.get_ref(), config, scope.environment))
    });
    let mut agents = Vec::new();
    for (index, id) in ids.into_iter().enumerate() {
        let entry = entries.get(index);
        let own_model = entry.and_then(|entry| entry.model.as_ref()).zip(scope.config);
        let own_model = own_model.map(|(model, config)| absolute_model(model.get_ref(), config, scope.environment));
        let option = scope.options.model.clone().filter(|_| index == prompted);
        let model = option.or(own_model).or_else(|| default_model.clone());
        if model.is_none() && index == prompted {
            notices.push(format!("no model was chosen, so `{ECHO}` answers; choose one with `--model`"));
        }
        agents.push(AgentPlan {
            id,
            model: model.unwrap_or_else(|| ECHO.into()),
            system: system(scope, conversation, entry, index == prompted)?,
            one_by_one: entry.and_then(|entry| entry.queue_mode) == Some(QueueMode::One),
        });
    }
    Ok((agents, prompted))
}

fn ids(scope: &Scope<'_>, entries: &[AgentEntry]) -> Result<Vec<AgentId>, Stop> {
    let Some(config) = scope.config.filter(|_| !entries.is_empty()) else {
        return Ok(vec![AgentId::new(MAIN).expect("invariant: `main` is a valid id")]);
    };
    let mut ids: Vec<AgentId> = Vec::new();
    for entry in entries {
        let at = |message: String| config.stop_at(entry.id.span(), message);
        let id = AgentId::new(entry.id.get_ref()).map_err(|error| at(error.to_string()))?;
        if ids.contains(&id) {
            return Err(at(format!("there are two agents `{id}`")));
        }
        ids.push(id);
    }
    Ok(ids)
}

fn prompted(scope: &Scope<'_>, ids: &[AgentId]) -> Result<usize, Stop> {
    let names = || ids.iter().map(AgentId::as_str).collect::<Vec<_>>();
    let position = |wanted: &str| ids.iter().position(|id| id.as_str() == wanted);
    if let Some(wanted) = &scope.options.agent {
        return position(wanted)
            .ok_or_else(|| Stop::usage(format!("there is no agent `{wanted}`")).hint(names::hint(wanted, names())));
    }
    if let Some((config, wanted)) = scope.config.and_then(|config| Some((config, config.file.agent.as_ref()?))) {
        let missing = || {
            let stop = config.stop_at(wanted.span(), format!("there is no agent `{}`", wanted.get_ref()));
            stop.hint(names::hint(wanted.get_ref(), names()))
        };
        return position(wanted.get_ref()).ok_or_else(missing);
    }
    match ids {
        [_] => Ok(0),
        _ => position(MAIN).ok_or_else(|| {
            let all: Vec<String> = names().into_iter().map(|name| format!("`{name}`")).collect();
            Stop::usage("there are several agents and none is `main`")
                .hint(format!("choose one with `--agent`: {}", all.join(", ")))
        }),
    }
}

fn system(
    scope: &Scope<'_>,
    conversation: &Conversation,
    entry: Option<&AgentEntry>,
    is_prompted: bool,
) -> Result<String, Stop> {
    if let Some(text) = conversation.system.as_ref().filter(|_| is_prompted) {
        return text_or_file(text, &scope.environment.working_directory);
    }
    // The text of an untrusted file is never a path: it would carry any file to a provider.
    if let Some(text) = entry.and_then(|entry| entry.system_prompt.clone()) {
        return Ok(text);
    }
    match scope.config.and_then(|config| Some((config, config.file.system.as_ref()?))) {
        Some((config, text)) => text_or_file(text, config.folder()),
        None => Ok(String::new()),
    }
}

/// The configured providers, each name checked.
pub fn providers(scope: &Scope<'_>) -> Result<Vec<ProviderPlan>, Stop> {
    let Some(config) = scope.config else { return Ok(Vec::new()) };
    let mut providers = Vec::new();
    for (name, entry) in &config.file.providers {
        let text = name.get_ref();
        let valid = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if !valid || text == ECHO || text == "script" {
            let message = format!(
                "`{text}` is no name for a provider: use letters, digits, `-`, `_` and `.`; `echo` and `script` are taken"
            );
            return Err(config.stop_at(name.span(), message));
        }
        if entry.kind == ProviderKind::Compatible && entry.base_url.is_none() {
            return Err(
                config.stop_at(name.span(), format!("the provider `{text}` is `compatible` and needs a `base-url`"))
            );
        }
        providers.push(ProviderPlan { name: text.clone(), entry: entry.clone() });
    }
    Ok(providers)
}

/// Checks the models of a configuration where they stand in it.
pub fn check_models(scope: &Scope<'_>, providers: &[ProviderPlan]) -> Result<(), Stop> {
    let Some(config) = scope.config else { return Ok(()) };
    let configured: Vec<&str> = providers.iter().map(|provider| provider.name.as_str()).collect();
    let of_agents = config.file.agents.iter().filter_map(|agent| agent.model.as_ref());
    for model in of_agents.chain(&config.file.model) {
        ModelRef::parse(model.get_ref(), &configured)
            .map_err(|stop| Stop { message: config.stop_at(model.span(), stop.message).message, ..stop })?;
    }
    Ok(())
}

/// The address that `--base-url` replaces: that of the prompted agent's provider, else of `compatible`.
pub fn base_url(scope: &Scope<'_>, prompted: &AgentPlan, providers: &[ProviderPlan]) -> Option<BaseUrl> {
    let url = scope.options.base_url.clone().or_else(|| scope.key(|file| file.base_url.clone()))?;
    let configured: Vec<&str> = providers.iter().map(|provider| provider.name.as_str()).collect();
    let provider = match ModelRef::parse(&prompted.model, &configured) {
        Ok(ModelRef::Network { provider }) => provider.to_owned(),
        _ => "compatible".into(),
    };
    Some(BaseUrl { provider, url })
}

/// Checks that every agent's provider is there, has its key and, where it must, an address.
pub fn check_providers(
    scope: &Scope<'_>,
    agents: &[AgentPlan],
    providers: &[ProviderPlan],
    base_url: Option<&BaseUrl>,
    keys: Keys,
) -> Result<(), Stop> {
    let configured: Vec<&str> = providers.iter().map(|provider| provider.name.as_str()).collect();
    for agent in agents {
        let ModelRef::Network { provider } = ModelRef::parse(&agent.model, &configured)? else { continue };
        let variable = match providers.iter().find(|known| known.name == provider) {
            Some(known) => known.entry.api_key_env.as_ref().map(|variable| variable.get_ref().clone()),
            None => {
                if provider == "compatible" && base_url.is_none_or(|base| base.provider != provider) {
                    return Err(Stop::usage(format!("the model `{}` needs an address", agent.model))
                        .hint("add `--base-url URL`"));
                }
                let built_in = BUILT_IN.iter().find(|known| known.name == provider && known.needs_key);
                built_in.map(|known| known.key_variable.to_owned())
            }
        };
        if let Some(variable) =
            variable.filter(|name| keys == Keys::Needed && scope.environment.variable(name).is_none())
        {
            return Err(Stop::usage(format!("the model `{}` needs a key, and `{variable}` is not set", agent.model))
                .hint(format!("set the environment variable `{variable}`")));
        }
    }
    Ok(())
}
