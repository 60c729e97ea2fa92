//! The tools of one agent by name, each with its compiled schema.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dsh_seam::printable::quoted;
use dsh_seam::tools::{ToolDefinition, ToolInfo, ToolProvider};
use dsh_seam::{Failure, PluginName};
use jsonschema::{Draft, Validator};

/// Longest name of a tool: the rule of the strictest provider.
const MAX_NAME_CHARS: usize = 64;

/// One tool and where it comes from.
pub(super) struct Entry {
    pub definition: ToolDefinition,
    pub plugin: PluginName,
    pub provider: Arc<dyn ToolProvider>,
    pub validator: Validator,
}

impl Entry {
    /// The tool as policies see it.
    pub fn info(&self) -> ToolInfo {
        ToolInfo {
            name: self.definition.name.clone(),
            plugin: self.plugin.clone(),
            annotations: self.definition.annotations,
        }
    }
}

/// The tools in the order the model sees them.
pub(super) struct Registry {
    entries: Vec<Arc<Entry>>,
    definitions: Arc<[ToolDefinition]>,
}

impl Registry {
    /// Collects the tools of all providers, or those of them that are named in `only`; fails on a name that is not allowed or is there
    /// twice, and on a schema that is none.
    pub fn new(
        providers: &[(PluginName, Arc<dyn ToolProvider>)],
        only: Option<&BTreeSet<String>>,
    ) -> Result<Self, Failure> {
        let mut entries: Vec<Arc<Entry>> = Vec::new();
        for (plugin, provider) in providers {
            for definition in provider.definitions() {
                check_name(plugin, &definition.name)?;
                if let Some(other) = entries.iter().find(|entry| entry.definition.name == definition.name) {
                    return Err(twice(&definition.name, &other.plugin, plugin));
                }
                if only.is_some_and(|only| !only.contains(&definition.name)) {
                    continue;
                }
                let validator = compile(plugin, definition)?;
                entries.push(Arc::new(Entry {
                    definition: definition.clone(),
                    plugin: plugin.clone(),
                    provider: provider.clone(),
                    validator,
                }));
            }
        }
        Ok(Self::of(entries))
    }

    fn of(entries: Vec<Arc<Entry>>) -> Self {
        let definitions = entries.iter().map(|entry| entry.definition.clone()).collect();
        Self { entries, definitions }
    }

    /// The tool with that name.
    pub fn find(&self, name: &str) -> Option<Arc<Entry>> {
        self.entries.iter().find(|entry| entry.definition.name == name).cloned()
    }

    /// All definitions.
    pub fn definitions(&self) -> Arc<[ToolDefinition]> {
        self.definitions.clone()
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.definition.name.as_str())
    }

    /// Takes a plugin's tools away. Whoever holds an entry keeps it.
    pub fn remove(&mut self, plugin: &PluginName) {
        *self = Self::of(self.entries.iter().filter(|entry| entry.plugin != *plugin).cloned().collect());
    }
}

/// Whether the tools of these plugins can be one agent's. Fails as [`dsh_seam::tools::Tools::for_agent`] does, without an agent.
///
/// # Errors
/// A name that is not allowed or is there twice, a schema that is none.
pub fn check_tools<'a>(
    plugins: impl IntoIterator<Item = (&'a PluginName, &'a [ToolDefinition])>,
) -> Result<(), Failure> {
    let mut known: BTreeMap<&str, &PluginName> = BTreeMap::new();
    for (plugin, tools) in plugins {
        for tool in tools {
            check_name(plugin, &tool.name)?;
            if let Some(other) = known.insert(&tool.name, plugin) {
                return Err(twice(&tool.name, other, plugin));
            }
            compile(plugin, tool)?;
        }
    }
    Ok(())
}

fn check_name(plugin: &PluginName, name: &str) -> Result<(), Failure> {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.len() <= MAX_NAME_CHARS && name.chars().all(ok) {
        return Ok(());
    }
    Err(Failure::new(
        "invalid-tool",
        format!(
            "plugin `{plugin}`: `{}` is not a valid tool name: use letters, digits, `_` and `-`, at most {MAX_NAME_CHARS}",
            quoted(name, MAX_NAME_CHARS)
        ),
    ))
}

fn twice(name: &str, first: &PluginName, second: &PluginName) -> Failure {
    let who = if first == second {
        format!("plugin `{first}` has it twice")
    } else {
        format!("plugins `{first}` and `{second}` both have it")
    };
    Failure::new("duplicate-tool", format!("the tool `{name}` is there twice: {who}"))
}

fn compile(plugin: &PluginName, definition: &ToolDefinition) -> Result<Validator, Failure> {
    let problem = |what: String| {
        Failure::new(
            "invalid-tool",
            format!(
                "plugin `{plugin}`: the parameters of the tool `{}` are no usable JSON Schema: {what}",
                definition.name
            ),
        )
    };
    let Some(schema) = definition.parameters.as_object() else {
        return Err(problem("it must be an object".into()));
    };
    if schema.get("type").and_then(|kind| kind.as_str()) != Some("object") {
        return Err(problem("it must have `\"type\": \"object\"`".into()));
    }
    // Offline: a schema must not make the host fetch anything.
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .build(&definition.parameters)
        .map_err(|error| problem(error.to_string()))
}
