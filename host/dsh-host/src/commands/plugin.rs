//! `plugin inspect`: what a component is.

use dsh_seam::PluginName;
use dsh_seam::tools::ToolDefinition;
use dsh_wasm::{CeilingEntry, Description, Inspection};
use serde::Serialize;
use serde_json::Value;

use super::{check, columns, print, print_json};
use crate::args::{CompileArgs, Shape};
use crate::compose;
use crate::config::sources;
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::output::chat::tame;
use crate::resolve::Compiling;

/// What a program reads. `hooks` are the seams among the exports, `capabilities` what the imports could use.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    name: &'a str,
    file: String,
    size: usize,
    sha256: &'a str,
    hooks: Vec<&'a str>,
    exports: &'a [String],
    capabilities: &'a [String],
    imports: &'a [String],
    ceiling: Option<&'a [CeilingEntry]>,
    tools: &'a [ToolDefinition],
    config_schema: Option<&'a Value>,
}

/// Looks at a file: its bytes are checked, then it is compiled and asked about its tools and its configuration, without any grant.
pub async fn inspect(
    file: &str,
    shape: Shape,
    compiling: &CompileArgs,
    environment: &Environment,
) -> Result<Code, Stop> {
    let path = sources::locate_file(file, environment)?;
    // A file may have any name; what counts here is what is in it.
    let name = sources::name_of(file)
        .unwrap_or_else(|_| PluginName::new("plugin").expect("invariant: `plugin` is a valid name"));
    let bytes = sources::read(&path).map_err(|unread| unread.stop(&format!("`{file}`"), &path))?;
    let described =
        compose::engine(None, environment, None, &Compiling::new(compiling, None))?.describe(bytes, name.clone()).await;
    let mut description = described.map_err(|error| compose::refused(&format!("`{file}`"), &error))?;
    // The order of exports means nothing, and is another one whenever a component is built anew.
    description.inspection.exports.sort_unstable();
    if shape == Shape::Json {
        let Inspection { seams, exports, imports, capabilities, ceiling, size, sha256 } = &description.inspection;
        let shown = Shown {
            name: name.as_str(),
            file: path.display().to_string(),
            size: *size,
            sha256,
            hooks: seams.iter().map(|seam| seam.as_str()).collect(),
            exports,
            capabilities,
            imports,
            ceiling: ceiling.as_deref(),
            tools: description.tools.as_deref().unwrap_or_default(),
            config_schema: description.config_schema.as_ref(),
        };
        return print_json(&shown).map(|()| Code::Success);
    }
    print(&text(&name, &path.display().to_string(), &description))?;
    Ok(Code::Success)
}

fn text(name: &PluginName, file: &str, description: &Description) -> String {
    let Inspection { seams, exports, imports, capabilities, ceiling, size, sha256 } = &description.inspection;
    let seams: Vec<String> = seams.iter().map(ToString::to_string).collect();
    let mut rows = vec![
        row("name", name.as_str()),
        row("file", file),
        row("size", &format!("{size} bytes")),
        row("sha256", sha256),
        row("hooks", &check::listed(&seams)),
        row("capabilities", &check::listed(capabilities)),
    ];
    rows.extend(check::ceiling(ceiling.as_deref()).iter().map(|line| row("ceiling", line)));
    for tool in description.tools.as_deref().unwrap_or_default() {
        let first_line = tool.description.trim().lines().next().unwrap_or_default();
        rows.push(row("tool", &format!("{}: {first_line}", tool.name)));
    }
    rows.extend(exports.iter().map(|export| row("export", export)));
    rows.extend(imports.iter().map(|import| row("import", import)));
    if let Some(schema) = &description.config_schema {
        rows.push(row("config", &schema.to_string()));
    }
    tame(&columns(&rows))
}

fn row(key: &str, value: &str) -> Vec<String> {
    vec![key.to_owned(), value.to_owned()]
}
