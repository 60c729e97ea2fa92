//! The plugin `plan-mode`: look first, change only after a person approved a plan.
//!
//! A guard, so that it judges the final call; a prompt section that explains the mode; the tool `exit-plan`, whose approval is the
//! guard's own question.

use dsh_sdk::{
    Failure, Guard, Outcome, Part, Plugin, Question, Sections, Step, Tool, ToolCall, ToolInfo, ToolProvider, Verdict,
    state, tool,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The tool that ends the mode.
const EXIT_PLAN: &str = "exit-plan";
/// Whether the mode is on, in the plugin's state; none until it was ended.
const ACTIVE: &str = "active";
/// Where the section stands among those of other plugins: behind what describes the agent.
const SECTION_ORDER: i32 = 100;

/// Whether a session starts in plan mode.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Config {
    /// Whether the mode is on at the start of a session.
    #[serde(default = "yes")]
    active: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExitPlan {
    /// The plan, in Markdown: what will be changed, in which order, and how it will be checked.
    plan: String,
}

struct PlanMode {
    active_at_start: bool,
}

impl Plugin for PlanMode {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        Ok(Self { active_at_start: config.active })
    }
}

impl PlanMode {
    fn is_active(&self) -> Result<bool, Failure> {
        Ok(state::get(ACTIVE)?.unwrap_or(self.active_at_start))
    }
}

impl Guard for PlanMode {
    fn check(&self, _at: Step, call: &ToolCall, tool: &ToolInfo) -> Result<Verdict, Failure> {
        if !self.is_active()? {
            return Ok(Verdict::Abstain);
        }
        Ok(judge(&call.arguments, &tool.name, tool.annotations.read_only))
    }
}

/// The verdict while the mode is on.
fn judge(arguments: &str, tool: &str, read_only: bool) -> Verdict {
    if tool == EXIT_PLAN {
        return match plan_of(arguments) {
            Some(plan) => Verdict::Ask(Question {
                title: "Approve this plan and leave plan mode?".to_owned(),
                detail: plan,
                remember: None,
            }),
            None => Verdict::Deny("`plan-mode` needs a plan: call `exit-plan` with a text in `plan`".to_owned()),
        };
    }
    if read_only {
        return Verdict::Abstain;
    }
    Verdict::Deny(format!(
        "plan mode is on, and `{tool}` is not a read-only tool: `plan-mode` lets only those run. Look around with read-only tools, then \
         call `exit-plan` with your plan; once it is approved, everything may run"
    ))
}

/// The plan in the arguments of `exit-plan`, if it says anything.
fn plan_of(arguments: &str) -> Option<String> {
    let args: ExitPlan = serde_json::from_str(arguments).ok()?;
    Some(args.plan).filter(|plan| !plan.trim().is_empty())
}

impl Sections for PlanMode {
    fn sections(&self, _at: Step) -> Result<Vec<Part>, Failure> {
        if !self.is_active()? {
            return Ok(Vec::new());
        }
        Ok(vec![Part { name: "plan-mode".to_owned(), order: SECTION_ORDER, text: section() }])
    }
}

fn section() -> String {
    "# Plan mode\n\nPlan mode is on. Only read-only tools run; every other call is denied. Find out what you need to know, then call \
     `exit-plan` with your plan. A person reads it: if it is approved, plan mode ends and you carry the plan out; if not, improve it."
        .to_owned()
}

impl ToolProvider for PlanMode {
    fn tools(&self) -> Vec<Tool<'_>> {
        let exit_plan = tool(
            EXIT_PLAN,
            "Asks for approval of your plan. Once it is approved, plan mode ends and all tools may run.",
        );
        vec![exit_plan.typed(|_args: ExitPlan, _call| self.exit())]
    }
}

impl PlanMode {
    /// Runs only when the guard's question was answered with yes.
    fn exit(&self) -> Result<Outcome, Failure> {
        if !self.is_active()? {
            return Ok(Outcome::failed("plan mode is not on: there is nothing to leave; go on with the work"));
        }
        state::set(ACTIVE, &false)?;
        Ok(Outcome::text("The plan is approved and plan mode is off. Carry the plan out now; all tools may run."))
    }
}

dsh_sdk::export!(PlanMode: guard, sections, tools, configure);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tool: &str, read_only: bool, arguments: &str, expect: &str) {
        let got = match judge(arguments, tool, read_only) {
            Verdict::Abstain => "abstain".to_owned(),
            Verdict::Ask(question) => format!("ask: {}", question.detail),
            Verdict::Deny(text) => format!("deny: {text}"),
        };
        assert!(got.starts_with(expect), "{tool}: {got}");
    }

    #[test]
    fn verdicts() {
        check("read", true, "{}", "abstain");
        check("write", false, "{}", "deny: plan mode is on, and `write` is not a read-only tool");
        check("exit-plan", false, r#"{"plan":"1. do it"}"#, "ask: 1. do it");
        check("exit-plan", false, r#"{"plan":" "}"#, "deny: `plan-mode` needs a plan");
    }
}
