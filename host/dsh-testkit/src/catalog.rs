//! A catalog with one model.

use std::sync::Arc;

use dsh_seam::draft::ModelCatalog;
use dsh_seam::failure::{Failure, ModelFailure};
use dsh_seam::llm::{Llm, Model};

/// What the names of models begin with that plugins may name, as if a network provider had them.
const FOR_PLUGINS: &str = "net/";

/// One model, whatever its name.
pub struct OneModel {
    model: Arc<dyn Model>,
    context_window: Option<u32>,
}

impl OneModel {
    /// A model whose context window nobody knows.
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self { model, context_window: None }
    }

    /// A model with a context window of so many tokens.
    pub fn with_context_window(model: Arc<dyn Model>, tokens: u32) -> Self {
        Self { model, context_window: Some(tokens) }
    }
}

impl ModelCatalog for OneModel {
    fn check_for_plugin(&self, model: &str) -> Result<(), Failure> {
        match model.starts_with(FOR_PLUGINS) {
            true => Ok(()),
            false => Err(Failure::invalid_argument(format!("`{model}` is no model that a plugin may name"))),
        }
    }

    fn context_window(&self, _model: &str) -> Option<u32> {
        self.context_window
    }
}

impl Llm for OneModel {
    fn model(&self, _name: &str) -> Result<Arc<dyn Model>, ModelFailure> {
        Ok(self.model.clone())
    }
}
