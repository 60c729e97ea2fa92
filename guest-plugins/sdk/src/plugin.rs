//! What a plugin is, and how its one instance comes to be.

use crate::{Failure, schema};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A plugin: a value made once per instance from its configuration. Its seams are the traits it implements beside this one.
pub trait Plugin: Sized + 'static {
    /// The configuration: what it may hold is derived from this type, so let it `deny_unknown_fields`. [`NoConfig`] for none.
    type Config: DeserializeOwned + JsonSchema;

    /// Makes the plugin, or says what is wrong with the configuration. Runs outside of any session when the configuration is
    /// checked, so it must call no capability.
    fn new(config: Self::Config) -> Result<Self, Failure>;
}

/// The configuration of a plugin that has none: `{}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// The one value of a plugin in this instance of the component; [`crate::export!`] implements it.
#[doc(hidden)]
pub trait Instance: Plugin {
    /// Calls `body` with the plugin, or says why there is none.
    fn with<R>(body: impl FnOnce(&Self) -> R) -> Result<R, Failure>;
}

/// Makes a plugin from a configuration's text.
#[doc(hidden)]
pub fn build<P: Plugin>(config: &str) -> Result<P, Failure> {
    let config = if config.trim().is_empty() { "{}" } else { config };
    let parsed = serde_json::from_str(config).map_err(|error| Failure::invalid_config(config_message(&error)))?;
    P::new(parsed)
}

/// The schema of a plugin's configuration, as text.
pub(crate) fn config_schema<P: Plugin>() -> String {
    schema::schema_of::<P::Config>().to_string()
}

/// Serde's message without the position, which means nothing to somebody who wrote TOML.
fn config_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    struct Config {
        max_size: u32,
    }

    struct Sized(u32);

    impl Plugin for Sized {
        type Config = Config;
        fn new(config: Config) -> Result<Self, Failure> {
            if config.max_size == 0 {
                return Err(Failure::invalid_config("`max-size` must not be 0"));
            }
            Ok(Self(config.max_size))
        }
    }

    fn check(config: &str, expect: Result<u32, &str>) {
        let got = build::<Sized>(config).map(|plugin| plugin.0).map_err(|failure| failure.message);
        assert_eq!(got, expect.map_err(str::to_owned), "{config}");
    }

    #[test]
    fn configurations() {
        check(r#"{"max-size":3}"#, Ok(3));
        check(r#"{"max-size":0}"#, Err("`max-size` must not be 0"));
        check(r#"{"max_size":3}"#, Err("unknown field `max_size`, expected `max-size`"));
        check("", Err("missing field `max-size`"));
    }
}
