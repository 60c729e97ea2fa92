//! Agents, their models and the providers of these.

use dsh_seam::AgentId;
use dsh_seam::message::Sampling;

use super::{AgentPlan, BaseUrl, ProviderPlan, Scope, absolute_model, text_or_file};
use crate::args::Conversation;
use crate::config::file::{AgentEntry, QueueMode};
use crate::config::sampling::SamplingEntry;
use crate::exit::Stop;
use crate::names;
use crate::providers::{ECHO, ModelRef};

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
            sampling: sampling(scope, conversation, entry, index == prompted)?,
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

/// What the option says, over what the agent's table says, over what the whole file says.
fn sampling(
    scope: &Scope<'_>,
    conversation: &Conversation,
    entry: Option<&AgentEntry>,
    is_prompted: bool,
) -> Result<Sampling, Stop> {
    let mut sampling = Sampling::default();
    if let Some(config) = scope.config {
        let own = entry.and_then(|entry| entry.sampling.as_ref());
        for entry in config.file.sampling.iter().chain(own) {
            let wrong = |what: String| config.stop_at(entry.span(), format!("`sampling`: {what}"));
            entry.get_ref().check().map_err(wrong)?;
            sampling = entry.get_ref().over(sampling);
        }
    }
    if let Some(text) = conversation.sampling.as_ref().filter(|_| is_prompted) {
        let json = text_or_file(text, &scope.environment.working_directory)?;
        sampling = SamplingEntry::parse(&json)?.over(sampling);
    }
    Ok(sampling)
}

/// Refuses members of `extra` that the adapter of the agent's provider writes itself.
pub fn check_sampling(agents: &[AgentPlan], providers: &[ProviderPlan]) -> Result<(), Stop> {
    let names = names_of(providers);
    for agent in agents {
        let ModelRef::Network { provider } = ModelRef::parse(&agent.model, &names)? else { continue };
        let Some(plan) = providers.iter().find(|plan| plan.config.name == provider) else { continue };
        let reserved = plan.config.kind.reserved();
        if let Some(name) = agent.sampling.extra.keys().find(|name| reserved.contains(&name.as_str())) {
            let message =
                format!("`{name}` in `extra` of `sampling` is a member of the request that the host writes itself");
            return Err(Stop::usage(message));
        }
    }
    Ok(())
}

/// Checks the models of a configuration where they stand in it.
pub fn check_models(scope: &Scope<'_>, providers: &[ProviderPlan]) -> Result<(), Stop> {
    let Some(config) = scope.config else { return Ok(()) };
    let configured = names_of(providers);
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
    let configured = names_of(providers);
    let provider = match ModelRef::parse(&prompted.model, &configured) {
        Ok(ModelRef::Network { provider }) => provider.to_owned(),
        _ => "compatible".into(),
    };
    Some(BaseUrl { provider, url })
}

/// Checks that every agent's provider is there, has its key and, where it must, an address.
pub fn check_providers(agents: &[AgentPlan], providers: &[ProviderPlan], keys: Keys) -> Result<(), Stop> {
    let names = names_of(providers);
    for agent in agents {
        let ModelRef::Network { provider } = ModelRef::parse(&agent.model, &names)? else { continue };
        let Some(plan) = providers.iter().find(|plan| plan.config.name == provider) else { continue };
        if plan.config.base_url.is_none() {
            return Err(
                Stop::usage(format!("the model `{}` needs an address", agent.model)).hint("add `--base-url URL`")
            );
        }
        let missing = plan.config.missing_variables().next().filter(|_| keys == Keys::Needed);
        if let Some((variable, what)) = missing {
            return Err(Stop::usage(format!("the model `{}` needs {what}, and `{variable}` is not set", agent.model))
                .hint(format!("set the environment variable `{variable}`")));
        }
    }
    Ok(())
}

fn names_of(providers: &[ProviderPlan]) -> Vec<&str> {
    providers.iter().map(|plan| plan.config.name.as_str()).collect()
}
