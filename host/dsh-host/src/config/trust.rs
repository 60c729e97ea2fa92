//! Trust in a `dsh.toml` that lies in the working directory.
//!
//! A cloned repository brings one along. Until a person has said that they trust it, it may only describe agents, with models of
//! built-in providers: it cannot load code, loosen a policy or lead a key anywhere. Trust is per absolute path and SHA-256 of the file
//! and of its plugins; a change ends it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use dsh_seam::view::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use toml::de::DeTable;

use super::file::Loaded;
use super::sources;
use crate::env::Environment;
use crate::exit::Stop;
use crate::providers;

/// The file in the data directory.
const STORE: &str = "trust.json";
/// The one table that an untrusted file may have.
const HARMLESS: &str = "agents";

type Hash = sha2::digest::Output<Sha256>;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Store {
    trusted: BTreeMap<String, String>,
}

/// Lets a file pass that is trusted, or harmless. Returns the hashes that its plugins are trusted with, in order: what is loaded is read
/// once more, and has to have them still.
pub fn check(loaded: &Loaded, environment: &Environment) -> Result<Vec<String>, Stop> {
    let Some(stop) = harm(loaded) else { return Ok(Vec::new()) };
    trusted(loaded, environment).ok_or_else(|| {
        stop.hint(format!(
            "look at it, then run `dsh-host config trust`, or name it with `--config {}`; trust ends when the file or a plugin of it changes",
            loaded.shown
        ))
    })
}

/// What in the file needs trust, if anything does.
pub fn harm(loaded: &Loaded) -> Option<Stop> {
    let table = DeTable::parse(&loaded.text).ok()?;
    let other = table.get_ref().iter().map(|(key, _)| key).filter(|key| key.get_ref().as_ref() != HARMLESS);
    if let Some(key) = other.min_by_key(|key| key.span().start) {
        let message = format!("`{}` needs a trusted file: untrusted, it may only have `[[{HARMLESS}]]`", key.get_ref());
        return Some(loaded.stop_at(key.span(), message));
    }
    if let Some(sampling) = loaded.file.agents.iter().find_map(|agent| agent.sampling.as_ref()) {
        let message = "`sampling` of an agent needs a trusted file: untrusted, it may not say what a request holds";
        return Some(loaded.stop_at(sampling.span(), message));
    }
    let models = loaded.file.agents.iter().filter_map(|agent| agent.model.as_ref());
    let foreign = models.into_iter().find(|model| !providers::is_built_in(model.get_ref()))?;
    let message = format!(
        "the model `{}` needs a trusted file: untrusted, it may only name built-in providers",
        foreign.get_ref()
    );
    Some(loaded.stop_at(foreign.span(), message))
}

/// Whether a person has trusted exactly this.
pub fn is_trusted(loaded: &Loaded, environment: &Environment) -> bool {
    trusted(loaded, environment).is_some()
}

/// The hashes of the plugins of a file that a person has trusted with exactly these.
fn trusted(loaded: &Loaded, environment: &Environment) -> Option<Vec<String>> {
    let store = store_path(environment).and_then(|path| read(&path))?;
    // The plugins of a file that nobody trusted are not even read.
    let kept = store.trusted.get(&key(loaded).ok()?)?;
    let hashes = hashes(loaded, environment).ok()?;
    (*kept == digest(loaded, &hashes)).then(|| hashes.iter().map(|hash| hex(hash)).collect())
}

/// Trusts the file and its plugins as they are now. Returns the plugins' files.
pub fn trust(loaded: &Loaded, environment: &Environment) -> Result<Vec<PathBuf>, Stop> {
    let path = store_path(environment)
        .ok_or_else(|| Stop::usage("there is no data directory to keep trust in").hint("set `DSH_HOME`"))?;
    let digest = digest(loaded, &hashes(loaded, environment)?);
    let mut store = read(&path).unwrap_or_default();
    store.trusted.insert(key(loaded)?, digest);
    write(&path, &store).map_err(|error| Stop::io(&path, &error))?;
    plugin_files(loaded, environment)
}

fn store_path(environment: &Environment) -> Option<PathBuf> {
    Some(environment.data_directory()?.join(STORE))
}

fn key(loaded: &Loaded) -> Result<String, Stop> {
    let path = fs::canonicalize(&loaded.path).map_err(|error| Stop::io(&loaded.path, &error))?;
    Ok(path.to_string_lossy().into_owned())
}

fn plugin_files(loaded: &Loaded, environment: &Environment) -> Result<Vec<PathBuf>, Stop> {
    let sources = loaded.file.plugins.iter().map(|plugin| plugin.source.get_ref());
    sources.map(|source| sources::locate(source, sources::Place::File, loaded.folder(), environment)).collect()
}

/// The hashes of its plugins as they are now, in order.
fn hashes(loaded: &Loaded, environment: &Environment) -> Result<Vec<Hash>, Stop> {
    let hash = |file: PathBuf| {
        let bytes = sources::read(&file).map_err(|unread| unread.stop(&format!("`{}`", file.display()), &file))?;
        Ok(Sha256::digest(&bytes))
    };
    plugin_files(loaded, environment)?.into_iter().map(hash).collect()
}

/// Over the file's text and the hashes of its plugins.
fn digest(loaded: &Loaded, plugins: &[Hash]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(Sha256::digest(loaded.text.as_bytes()));
    plugins.iter().for_each(|hash| hasher.update(hash));
    hex(&hasher.finalize())
}

fn read(path: &Path) -> Option<Store> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write(path: &Path, store: &Store) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let temporary = folder.join(format!("{STORE}.{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(serde_json::to_string_pretty(store)?.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(text: &str) -> (tempfile::TempDir, Environment) {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("dsh.toml"), text).expect("a file");
        let home = folder.path().join("home");
        let environment = Environment::of(&[("DSH_HOME", home.to_str().expect("UTF-8"))], folder.path());
        (folder, environment)
    }

    fn outcome(environment: &Environment) -> String {
        super::super::find(None, environment).map_or_else(|stop| stop.message, |_| "taken".into())
    }

    #[test]
    fn an_untrusted_file_may_describe_agents_only() {
        let check = |text: &str, expect: &str| assert_eq!(outcome(&folder(text).1), expect, "{text}");
        check("[[agents]]\nid = \"a\"\nmodel = \"openai/x\"\nsystem-prompt = \"s\"\nqueue-mode = \"one\"", "taken");
        check("[[agents]]\nid = \"a\"\nmodel = \"openai/gpt\"", "taken");
        check(
            "[[agents]]\nid = \"a\"\nmodel = \"script:s.jsonl\"",
            "dsh.toml:3:9: the model `script:s.jsonl` needs a trusted file: untrusted, it may only name built-in providers",
        );
        check(
            "[[agents]]\nid = \"a\"\nmodel = \"local/x\"",
            "dsh.toml:3:9: the model `local/x` needs a trusted file: untrusted, it may only name built-in providers",
        );
        check(
            "approve = \"allow\"",
            "dsh.toml:1:1: `approve` needs a trusted file: untrusted, it may only have `[[agents]]`",
        );
        check(
            "[[agents]]\nid = \"a\"\n[[plugins]]\nsource = \"x\"",
            "dsh.toml:3:3: `plugins` needs a trusted file: untrusted, it may only have `[[agents]]`",
        );
    }

    #[test]
    fn a_change_of_the_file_or_of_a_plugin_ends_trust() {
        let (folder, environment) = folder("[[plugins]]\nsource = \"./p.wasm\"\n");
        let refused = "dsh.toml:1:3: `plugins` needs a trusted file: untrusted, it may only have `[[agents]]`";
        fs::write(folder.path().join("p.wasm"), "one").expect("a file");
        assert_eq!(outcome(&environment), refused);
        let trust_it =
            || trust(&super::super::read_any(None, &environment).expect("parses"), &environment).expect("is kept");
        trust_it();
        assert_eq!(outcome(&environment), "taken");
        let pinned = super::super::find(None, &environment).expect("it is trusted").expect("it is there").pinned;
        assert_eq!(pinned, [dsh_wasm::sha256(b"one")], "what is loaded later is compared with what was looked at now");
        fs::write(folder.path().join("p.wasm"), "two").expect("a file");
        assert_eq!(outcome(&environment), refused);
        trust_it();
        fs::write(folder.path().join("dsh.toml"), "[[plugins]]\nsource = \"./p.wasm\"\n# more\n").expect("a file");
        assert_eq!(outcome(&environment), refused);
    }
}
