//! What `bindgen!` makes of the world `everything`: one Rust type per WIT type, one trait per imported interface, one set of export
//! indices per seam. Only `add_to_linker` and the per-interface `GuestIndices` are used; no component has to export all of it.
//!
//! Imports that wait are `async` (the guest's fiber is suspended meanwhile), methods of handles may trap (a handle of an earlier
//! call is refused that way), everything else is a plain function.

#![allow(missing_docs, clippy::all, reason = "generated from wit/, where each item is documented")]

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "dsh:plugin/everything",
    imports: {
        "dsh:agent/agent-types.[method]request-next.run": async | trappable,
        "dsh:agent/agent-types.[method]request-error-next.run": async | trappable,
        "dsh:agent/agent-types.[method]step-result-next.run": async | trappable,
        "dsh:agent/agent-types.[method]turn-continuation-next.run": async | trappable,
        "dsh:tools/tool-types.[method]execute-next.run": async | trappable,
        // What these take or give may be large, and is then converted elsewhere.
        "dsh:agent/agent-types.[method]llm-request.tools": async | trappable,
        "dsh:agent/agent-types.[method]llm-request.set-tools": async | trappable,
        "dsh:agent/agent-types.[method]llm-request.set-sampling": async | trappable,
        "dsh:agent/agent-types.[method]llm-request.outline": async | trappable,
        "dsh:agent/agent-types.[method]llm-request.messages": async | trappable,
        "dsh:agent/agent-types.[method]llm-request.splice": async | trappable,
        "dsh:agent/agent-types.[method]llm-request.compact": async | trappable,
        "dsh:tools/tool-types.[method]tool-outcome.content": async | trappable,
        "dsh:plugin/state.set": async | trappable,
        "dsh:llm/model.generate": async | trappable,
        "dsh:tools/approval.ask": async | trappable,
        "dsh:tools/process.run": async | trappable,
        "dsh:session/log": async | trappable,
        "dsh:agent/inbox": async | trappable,
        "dsh:agent/agents": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: {
        "dsh:agent/agent-types.llm-request": crate::handles::LlmRequest,
        "dsh:agent/agent-types.request-next": crate::handles::RequestNext,
        "dsh:agent/agent-types.request-error-next": crate::handles::RequestErrorNext,
        "dsh:agent/agent-types.step-result-next": crate::handles::StepResultNext,
        "dsh:agent/agent-types.turn-continuation-next": crate::handles::TurnContinuationNext,
        "dsh:tools/tool-types.execute-next": crate::handles::ExecuteNext,
        "dsh:tools/tool-types.tool-outcome": crate::handles::ToolOutcome,
    },
    require_store_data_send: true,
    include_component_type: true,
});
