//! Making a [`Failure`].

use crate::Failure;

impl Failure {
    /// A failure with a stable kebab-case `code` and one sentence for a person.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }

    /// The code `invalid-argument`.
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new("invalid-argument", message)
    }

    /// The code `invalid-config`: what `configure` answers to a configuration that cannot be used.
    pub fn invalid_config(message: impl Into<String>) -> Self {
        Self::new("invalid-config", message)
    }
}

impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code && self.message == other.message
    }
}
