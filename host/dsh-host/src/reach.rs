//! Whether a plugin may write where the host keeps machine code, which it runs.

use std::path::{Path, PathBuf};

use dsh_seam::PluginName;
use dsh_wasm::Grant;

use crate::resolve::PluginPlan;

/// The first plugin that may write what is in `cache`, and by which grant.
pub fn writer<'a>(plugins: &'a [PluginPlan], workspace: &Path, cache: &Path) -> Option<(&'a PluginName, &'a Grant)> {
    let cache = real(cache);
    let grants = plugins.iter().flat_map(|plugin| plugin.grants.iter().map(move |grant| (&plugin.name, grant)));
    grants.into_iter().find(|(_, grant)| match grant {
        Grant::FsWrite(path) => cache.starts_with(real(&workspace.join(&path.normal))),
        // What its programs may write is at least the workspace, unless a profile says less.
        Grant::Process => cache.starts_with(real(workspace)),
        _ => false,
    })
}

/// A path without links and `.`; what is not there yet stays as it is.
fn real(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let joined = found.and_then(|(ancestor, real)| Some(real.join(path.strip_prefix(ancestor).ok()?)));
    joined.unwrap_or_else(|| path.to_owned()).components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_yet_is_below_what_is() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let folder = home.path().canonicalize().expect("it is there");
        std::fs::create_dir(folder.join("a")).expect("to make it");
        std::os::unix::fs::symlink(folder.join("a"), folder.join("link")).expect("to link");
        let check = |path: &str, expect: &str| assert_eq!(real(&folder.join(path)), folder.join(expect), "{path}");
        check("a", "a");
        check("link/b/c", "a/b/c");
        check("no/./b", "no/b");
        check(".", "");
    }
}
