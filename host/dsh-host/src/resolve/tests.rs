//! From words to a plan, or to the message that a newcomer can act on.

use std::ffi::OsString;

use super::*;
use crate::args::{self, Request};

/// A folder with shipped plugins, a component, and a `dsh.toml` that is named by `--config`.
pub(super) struct World {
    folder: tempfile::TempDir,
    environment: Environment,
}

pub(super) fn world(config: &str) -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    std::fs::create_dir_all(root.join("release/plugins")).expect("a folder");
    for name in ["echo", "compaction"] {
        std::fs::write(root.join(format!("release/plugins/{name}.wasm")), "x").expect("a file");
    }
    std::fs::create_dir(root.join("work")).expect("a folder");
    std::fs::write(root.join("work/my_tool.wasm"), "x").expect("a file");
    std::fs::write(root.join("work/c.toml"), config).expect("a file");
    let home = root.join("home");
    let mut environment =
        Environment::of(&[("DSH_HOME", home.to_str().expect("UTF-8")), ("OPENAI_API_KEY", "k")], &root.join("work"));
    environment.executable = Some(root.join("release/dsh-host"));
    World { folder, environment }
}

impl World {
    fn resolve(&self, line: &str) -> Result<(Plan, Source), Stop> {
        let words = ["dsh-host"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty())).map(OsString::from);
        match args::parse(words).expect("arguments") {
            Request::Run(run) => super::run(&run, &self.environment),
            Request::Command(_) => unreachable!("a run"),
        }
    }

    pub(super) fn plan(&self, line: &str) -> Plan {
        self.resolve(line).unwrap_or_else(|stop| panic!("{line}: {stop}")).0
    }

    fn error(&self, line: &str) -> String {
        let message = self.resolve(line).expect_err(line).to_string();
        message.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

pub(super) fn check(config: &str, line: &str, expect: &str) {
    assert_eq!(world(config).error(line), expect, "{line}");
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let world = world("");
    let (plan, source) = world.resolve("hi there").expect("a plan");
    assert_eq!(source, Source::Prompts(vec![Prompt::Text("hi".into()), Prompt::Text("there".into())]));
    let agent = plan.prompted();
    assert_eq!((agent.id.as_str(), agent.model.as_str(), agent.one_by_one), ("main", "echo", false));
    assert_eq!((plan.max_steps, plan.max_turns, plan.max_sub_agents), (200, 100, 16));
    assert_eq!((plan.strict, plan.stream), (false, true));
    assert_eq!((plan.approve, plan.output, plan.durability), (Approve::Ask, Output::Text, Durability::Turn));
    assert_eq!(plan.store, Store::Files(world.folder.path().join("home/sessions")));
    assert_eq!(plan.session, SessionChoice::New);
    assert_eq!(plan.notices, ["no model was chosen, so `echo` answers; choose one with `--model`"]);
}

#[test]
fn options_win_over_the_configuration() {
    let config = "max-steps = 3\nmodel = \"echo\"\nstrict = true\nsession = \"logs\"\nsystem = \"from the file\"\n[[agents]]\nid = \"a\"\nqueue-mode = \"one\"\n";
    let world = world(config);
    let plan = world.plan("--config c.toml hi");
    assert_eq!((plan.max_steps, plan.strict, plan.prompted().one_by_one), (3, true, true));
    assert_eq!(plan.prompted().system, "from the file");
    assert_eq!(plan.store, Store::Files(world.folder.path().join("work/logs")));
    assert!(plan.notices.is_empty());
    let plan = world.plan("--config c.toml --max-steps 5 --session s --model openai/x --system mine hi");
    assert_eq!(
        (plan.max_steps, plan.prompted().model.as_str(), plan.prompted().system.as_str()),
        (5, "openai/x", "mine")
    );
    assert_eq!(plan.store, Store::Files(world.folder.path().join("work/s")));
}

#[test]
fn plugins_of_the_command_line_come_last_or_replace() {
    let config = "[[plugins]]\nname = \"tool\"\nsource = \"compaction\"\ngrants = [\"llm\"]\nconfig = { a = [1, 2.5, \"x\"] }\non-failure = \"open\"\nlimits = { cpu-ms = 7 }\nseams = [\"tools/guard\"]\n";
    let world = world(config);
    let plan = world.plan(
        "--config c.toml --plugin echo --plugin tool=my_tool.wasm --grant echo=fs:read:. --grant tool=env:TERM hi",
    );
    let names: Vec<&str> = plan.plugins.iter().map(|plugin| plugin.name.as_str()).collect();
    assert_eq!(names, ["tool", "echo"]);
    let tool = &plan.plugins[0];
    assert!(tool.path.ends_with("work/my_tool.wasm"));
    assert_eq!((tool.config.as_str(), tool.mode, tool.limits.cpu_ms), (r#"{"a":[1,2.5,"x"]}"#, FailureMode::Open, 7));
    assert_eq!(tool.seams, Some(vec![Seam::Guard]));
    assert_eq!(tool.grants.iter().map(ToString::to_string).collect::<Vec<_>>(), ["llm", "env:TERM"]);
    let plan = world.plan("--plugin ./my_tool.wasm --plugin-config my-tool={\"k\":1} --on-failure my-tool=open hi");
    assert_eq!((plan.plugins[0].name.as_str(), plan.plugins[0].config.as_str()), ("my-tool", r#"{"k":1}"#));
    assert_eq!(plan.plugins[0].mode, FailureMode::Open);
}

#[test]
fn retry_is_added_innermost_for_models_behind_a_network() {
    let agents = "[[agents]]\nid = \"main\"\nmodel = \"echo\"\n[[agents]]\nid = \"other\"\nmodel = \"openai/gpt\"\n";
    let check = |config: &str, line: &str, expect: &[(&str, bool)]| {
        let world = world(config);
        std::fs::write(world.folder.path().join("release/plugins/retry.wasm"), "x").expect("a file");
        let plan = world.plan(line);
        let found: Vec<_> = plan.plugins.iter().map(|plugin| (plugin.name.as_str(), plugin.added)).collect();
        assert_eq!((found.as_slice(), plan.notices.len()), (expect, 0), "{line}");
    };
    check("", "--model openai/gpt --plugin echo hi", &[("echo", false), ("retry", true)]);
    check("", "--model openai/gpt --plugin retry --plugin echo hi", &[("retry", false), ("echo", false)]);
    check("", "--model openai/gpt --plugin retry=my_tool.wasm hi", &[("retry", false)]);
    check("", "--model openai/gpt --no-default-plugins hi", &[]);
    check("no-default-plugins = true", "--config c.toml --model openai/gpt hi", &[]);
    check("", "--model echo hi", &[]);
    check(agents, "--config c.toml hi", &[("retry", true)]);
    check(agents, "--config c.toml --plugin-config retry={} --on-failure retry=open hi", &[("retry", true)]);
    let plan = world("").plan("--model openai/gpt hi");
    assert!(plan.plugins.is_empty() && plan.notices[0].contains("`--no-default-plugins`"), "{:?}", plan.notices);
}

#[test]
fn mistakes_on_the_command_line_name_the_right_word() {
    let two = "error: there are two plugins `echo`\nhint: give one another name: `--plugin NAME=REF`";
    check("", "--plugin echo --plugin echo hi", two);
    check(
        "",
        "--plugin echo --grant ecko=llm hi",
        "error: `--grant ecko=llm`: no plugin `ecko` is loaded\nhint: did you mean `echo`?",
    );
    check(
        "",
        "--plugin-config echo={} hi",
        "error: `--plugin-config echo={}`: no plugin `echo` is loaded\nhint: no plugin is loaded",
    );
    check(
        "",
        "--on-failure x hi",
        "error: `--on-failure x` names no plugin\nhint: write `--on-failure NAME=closed|open`",
    );
    check(
        "",
        "--plugin echo --on-failure echo=opne hi",
        "error: `--on-failure echo=opne`: `opne` is neither `closed` nor `open`\nhint: did you mean `open`?",
    );
    check(
        "",
        "--plugin echo --grant echo=fs:raed:docs hi",
        "error: `--grant echo=fs:raed:docs`: `fs:raed:docs` is no capability: `fs:raed` is unknown; write `fs:read:PATH` or `fs:write:PATH`\nhint: did you mean `--grant echo=fs:read:docs`?",
    );
    check("", "--agent mian hi", "error: there is no agent `mian`\nhint: did you mean `main`?");
    check(
        "",
        "--model deepseek/x hi",
        "error: the model `deepseek/x` needs a key, and `DEEPSEEK_API_KEY` is not set\nhint: set the environment variable `DEEPSEEK_API_KEY`",
    );
    check(
        "",
        "--model compatible/x hi",
        "error: the model `compatible/x` needs an address\nhint: add `--base-url URL`",
    );
    check(
        "",
        "--fork a@x hi",
        "error: `x` in `--fork a@x` is no sequence number\nhint: write `--fork ID@SEQ`, SEQ as in the log",
    );
    check("", "- -", "error: `-` stands for the whole of standard input and can be given once");
    check("", "--input jsonl -", "error: standard input cannot be both a message (`-`) and commands (`--input jsonl`)");
    check(
        "",
        "--plugin echo --grant echo=env:OPENAI_API_KEY hi",
        "error: `OPENAI_API_KEY` is the key of a provider and cannot be granted to `echo`",
    );
}

#[test]
fn mistakes_in_the_configuration_have_a_place() {
    let line = "--config c.toml hi";
    check("[[agents]]\nid = \"a\"\n[[agents]]\nid = \"a\"", line, "error: c.toml:4:6: there are two agents `a`");
    let several = "error: there are several agents and none is `main`\nhint: choose one with `--agent`: `a`, `b`";
    check("[[agents]]\nid = \"a\"\n[[agents]]\nid = \"b\"", line, several);
    check(
        "agent = \"b\"\n[[agents]]\nid = \"a\"",
        line,
        "error: c.toml:1:9: there is no agent `b`\nhint: there is `a`",
    );
    check(
        "[[plugins]]\nsource = \"echo\"\n[[plugins]]\nsource = \"echo\"",
        line,
        "error: c.toml:4:10: there are two plugins `echo`",
    );
    check(
        "[[plugins]]\nsource = \"echo\"\ngrants = [\"llm\", \"proces\"]",
        line,
        "error: c.toml:3:18: `proces` is no capability: did you mean `process`? There are `llm`, `session`, `inbox`, `agents`, `approval`, `process`, `fs:read:PATH`, `fs:write:PATH`, `net:HOST[:PORT]`, `env:NAME`\nhint: did you mean `process`?",
    );
    check(
        "[[plugins]]\nsource = \"echo\"\nseams = [\"tools/guards\"]",
        line,
        "error: c.toml:3:10: unknown seam `tools/guards`\nhint: did you mean `tools/guard`?",
    );
    check(
        "[[plugins]]\nsource = \"ecko\"",
        line,
        "error: c.toml:2:10: there is no shipped plugin `ecko`\nhint: did you mean `echo`? (a path has a `/` or ends in `.wasm`)",
    );
    check(
        "[providers.echo]\nkind = \"compatible\"\nbase-url = \"u\"",
        line,
        "error: c.toml:1:12: `echo` is no name for a provider: use letters, digits, `-`, `_` and `.`; `echo` and `script` are taken",
    );
    check(
        "[providers.local]\nkind = \"compatible\"",
        line,
        "error: c.toml:1:12: the provider `local` is `compatible` and needs a `base-url`",
    );
    check(
        "[providers.local]\nkind = \"openai\"\napi-key-env = \"K\"\n[[plugins]]\nsource = \"echo\"\ngrants = [\"env:K\"]",
        line,
        "error: c.toml:6:11: `K` is the key of a provider and cannot be granted to `echo`",
    );
}

#[test]
fn only_the_very_variable_of_a_key_cannot_be_granted() {
    let world = world("[providers.mine]\nkind = \"compatible\"\nbase-url = \"http://u\"\napi-key-env = \"MY_KEY\"\n");
    let line = |name: &str| format!("--config c.toml --model echo --plugin echo --grant echo=env:{name} hi");
    for key in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY", "DSH_API_KEY", "MY_KEY"] {
        let expect = format!("error: `{key}` is the key of a provider and cannot be granted to `echo`");
        assert_eq!(world.error(&line(key)), expect);
    }
    // These are other variables.
    for name in ["my_key", "MY_KEY_", "MY_KE", "openai_api_key", "OPENAI_API_KEY_FILE", "XOPENAI_API_KEY"] {
        world.plan(&line(name));
    }
    for name in ["MY_KEY*", "MY_KEY=x", "", "*", "$MY_KEY"] {
        let error = world.error(&line(name));
        let expect = format!("`env:{name}` is no capability: write the name of one variable: `env:TERM`");
        assert!(error.contains(&expect), "{error}");
    }
}

#[test]
fn several_agents_are_all_made() {
    let config = "model = \"echo\"\n[[agents]]\nid = \"helper\"\nmodel = \"openai/x\"\n[[agents]]\nid = \"main\"\n";
    let world = world(config);
    let plan = world.plan("--config c.toml hi");
    let models: Vec<(&str, &str)> = plan.agents.iter().map(|agent| (agent.id.as_str(), agent.model.as_str())).collect();
    assert_eq!((models, plan.prompted), (vec![("helper", "openai/x"), ("main", "echo")], 1));
    let plan = world.plan("--config c.toml --agent helper --model echo hi");
    assert_eq!((plan.prompted().id.as_str(), plan.prompted().model.as_str()), ("helper", "echo"));
}

#[test]
fn sessions_are_chosen() {
    let world = world("");
    let id = |text: &str| SessionId::new(text).expect("valid");
    let check = |line: &str, session: SessionChoice, store: fn(PathBuf) -> Store| {
        let plan = world.plan(line);
        let folder = world.folder.path().join("work/s");
        assert_eq!((plan.session, plan.store), (session, store(folder)), "{line}");
    };
    check("--session s --resume a hi", SessionChoice::Resume(id("a")), Store::Files);
    check("--session s --continue --no-save hi", SessionChoice::Continue, Store::Unsaved);
    check("--session s --fork a@7 hi", SessionChoice::Fork { id: id("a"), at: Some(7) }, Store::Files);
    check("--session s --no-save hi", SessionChoice::New, |_| Store::Memory);
}
