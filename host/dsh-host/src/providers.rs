//! Providers of models by name: what is built in, where its key is, and which model a text names.

use crate::exit::Stop;
use crate::names;

/// The model that answers with what it is told.
pub const ECHO: &str = "echo";
/// Before the file of a scripted model.
pub const SCRIPT: &str = "script:";

/// A provider that every host knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its name, before the `/` of a model.
    pub name: &'static str,
    /// The variable that holds its key.
    pub key_variable: &'static str,
    /// Whether it is of no use without one.
    pub needs_key: bool,
}

/// All of them.
pub const BUILT_IN: [BuiltIn; 4] = [
    BuiltIn { name: "openai", key_variable: "OPENAI_API_KEY", needs_key: true },
    BuiltIn { name: "anthropic", key_variable: "ANTHROPIC_API_KEY", needs_key: true },
    BuiltIn { name: "deepseek", key_variable: "DEEPSEEK_API_KEY", needs_key: true },
    BuiltIn { name: "compatible", key_variable: "DSH_API_KEY", needs_key: false },
];

/// What a model's name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelRef<'a> {
    /// `echo`.
    Echo,
    /// `script:FILE[#LINE]`.
    Script {
        /// The file as typed.
        file: &'a str,
        /// The first line, from 1.
        line: Option<u32>,
    },
    /// `PROVIDER/MODEL`.
    Network {
        /// The provider.
        provider: &'a str,
    },
}

impl<'a> ModelRef<'a> {
    /// Reads a model's name; `configured` are the providers of the configuration.
    pub fn parse(text: &'a str, configured: &[&str]) -> Result<Self, Stop> {
        if text == ECHO {
            return Ok(Self::Echo);
        }
        if let Some(script) = text.strip_prefix(SCRIPT) {
            return Self::parse_script(script);
        }
        let (provider, model) = text.split_once('/').unwrap_or((text, ""));
        if !BUILT_IN.iter().any(|built_in| built_in.name == provider) && !configured.contains(&provider) {
            let known = [ECHO, "script"]
                .into_iter()
                .chain(BUILT_IN.iter().map(|known| known.name))
                .chain(configured.iter().copied().filter(|name| BUILT_IN.iter().all(|known| known.name != *name)));
            let hint = names::hint(provider, known.collect::<Vec<_>>());
            return Err(Stop::usage(format!("unknown provider `{provider}` in the model `{text}`")).hint(hint));
        }
        if model.is_empty() {
            return Err(Stop::usage(format!("the model `{text}` names only a provider"))
                .hint(format!("write `{provider}/MODEL`")));
        }
        Ok(Self::Network { provider })
    }

    fn parse_script(script: &'a str) -> Result<Self, Stop> {
        let (file, line) = match script.rsplit_once('#') {
            Some((file, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => {
                let number = line.parse().ok().filter(|number| *number > 0);
                let number = number
                    .ok_or_else(|| Stop::usage(format!("`#{line}` is no line of a script; lines count from 1")))?;
                (file, Some(number))
            }
            _ => (script, None),
        };
        if file.is_empty() {
            return Err(
                Stop::usage("the model `script:` needs a file").hint("write `script:FILE` or `script:FILE#LINE`")
            );
        }
        Ok(Self::Script { file, line })
    }
}

/// Whether a model is one that a provider behind a network answers: neither `echo` nor a script.
pub fn is_network(model: &str) -> bool {
    model != ECHO && !model.starts_with(SCRIPT)
}

/// Whether a model is `echo` or one of a built-in provider. A script is not: its file says which tools run.
pub fn is_built_in(model: &str) -> bool {
    ModelRef::parse(model, &[]).is_ok_and(|model| !matches!(model, ModelRef::Script { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_name_their_provider() {
        let check =
            |text: &str, expect: ModelRef<'_>| assert_eq!(ModelRef::parse(text, &["local"]), Ok(expect), "{text}");
        check("echo", ModelRef::Echo);
        check("script:s.jsonl", ModelRef::Script { file: "s.jsonl", line: None });
        check("script:a#b/s.jsonl#5", ModelRef::Script { file: "a#b/s.jsonl", line: Some(5) });
        check("local/llama:7b/x", ModelRef::Network { provider: "local" });
        check("openai/gpt", ModelRef::Network { provider: "openai" });
    }

    #[test]
    fn wrong_models_get_the_nearest_provider() {
        let check = |text: &str, expect: &str| {
            assert_eq!(ModelRef::parse(text, &["openai", "local"]).expect_err(text).to_string(), expect);
        };
        check("opnai/gpt", "error: unknown provider `opnai` in the model `opnai/gpt`\nhint: did you mean `openai`?");
        check("ecko", "error: unknown provider `ecko` in the model `ecko`\nhint: did you mean `echo`?");
        check(
            "zzz/m",
            "error: unknown provider `zzz` in the model `zzz/m`\nhint: there is `echo`, `script`, `openai`, `anthropic`, `deepseek`, `compatible`, `local`",
        );
        check("openai/", "error: the model `openai/` names only a provider\nhint: write `openai/MODEL`");
        check("script:", "error: the model `script:` needs a file\nhint: write `script:FILE` or `script:FILE#LINE`");
        check("script:s#0", "error: `#0` is no line of a script; lines count from 1");
    }
}
