//! What `wit-bindgen` makes of `wit/`: one module with all types and imports, and one module per seam with its export.
//!
//! A seam has a world of its own (`sdk/wit/worlds.wit`), so that a component exports exactly the seams it was told to. All of
//! them use the types of [`base`]. Imports that a plugin never calls are dropped when the component is linked.
#![expect(missing_docs, reason = "generated; the documentation is in `wit/`")]

/// All types and every import: what a plugin always has, and the capabilities it may be granted.
pub mod base {
    wit_bindgen::generate!({
        path: ["../../wit", "wit"],
        world: "dsh:sdk/sdk-base",
        pub_export_macro: true,
        generate_all,
    });
}

/// A seam's module: its world exports one interface and takes all types from [`base`].
macro_rules! seam {
    ($name:ident, $world:literal) => {
        pub mod $name {
            wit_bindgen::generate!({
                path: ["../../wit", "wit"],
                world: $world,
                pub_export_macro: true,
                with: {
                    "dsh:llm/llm-types@0.1.0": crate::bindings::base::dsh::llm::llm_types,
                    "dsh:session/session-types@0.1.0": crate::bindings::base::dsh::session::session_types,
                    "dsh:agent/agent-types@0.1.0": crate::bindings::base::dsh::agent::agent_types,
                    "dsh:tools/tool-types@0.1.0": crate::bindings::base::dsh::tools::tool_types,
                },
            });
        }
    };
}

seam!(request, "dsh:sdk/sdk-request");
seam!(request_error, "dsh:sdk/sdk-request-error");
seam!(step_result, "dsh:sdk/sdk-step-result");
seam!(turn_continuation, "dsh:sdk/sdk-turn-continuation");
seam!(execute, "dsh:sdk/sdk-execute");
seam!(guard, "dsh:sdk/sdk-guard");
seam!(tools, "dsh:sdk/sdk-tools");
seam!(observer, "dsh:sdk/sdk-observer");
seam!(flush, "dsh:sdk/sdk-flush");
seam!(sections, "dsh:sdk/sdk-sections");
seam!(configure, "dsh:sdk/sdk-configure");
