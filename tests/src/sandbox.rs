//! The temporary folder that a case lives in, and the placeholders for what lies in it.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::case::Case;

/// Folders of one case. They are removed when it is dropped.
pub struct Sandbox {
    dir: TempDir,
    /// The working directory of every run.
    pub workspace: PathBuf,
    /// A copy of the case's folder.
    pub case: PathBuf,
    /// The data directory.
    pub data: PathBuf,
}

impl Sandbox {
    /// Empty folders.
    pub fn new() -> std::io::Result<Sandbox> {
        let dir = tempfile::Builder::new().prefix("dsh-case-").tempdir()?;
        let root = dir.path().canonicalize()?;
        let made =
            Sandbox { workspace: root.join("workspace"), case: root.join("case"), data: root.join("xdg/dsh"), dir };
        for dir in [&made.workspace, &made.case, &made.data, &made.root().join("home"), &made.root().join("tmp")] {
            std::fs::create_dir_all(dir)?;
        }
        Ok(made)
    }

    /// What a case asks for: a copy of its folder, its files and links.
    pub fn fill(&self, dir: &Path, case: &Case) -> std::io::Result<()> {
        copy(dir, &self.case)?;
        for (name, text) in &case.files {
            let path = self.place(name);
            std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
            std::fs::write(path, self.expand(text))?;
        }
        for (name, target) in &case.links {
            let path = self.place(name);
            std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
            std::os::unix::fs::symlink(self.expand(target), path)?;
        }
        Ok(())
    }

    /// The folder that holds everything.
    pub fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap_or_else(|_| self.dir.path().to_owned())
    }

    /// Where session logs live unless an option says otherwise.
    pub fn sessions(&self) -> PathBuf {
        self.data.join("sessions")
    }

    /// The path that `name`, with placeholders, stands for; a relative one is below the workspace.
    pub fn place(&self, name: &str) -> PathBuf {
        self.workspace.join(self.expand(name))
    }

    /// `text` with its placeholders replaced.
    pub fn expand(&self, text: &str) -> String {
        let target = crate::target_dir();
        let places = [
            ("{plugins}", target.join("plugins")),
            ("{guests}", target.join("test-guests")),
            ("{case}", self.case.clone()),
            ("{workspace}", self.workspace.clone()),
            ("{sessions}", self.sessions()),
            ("{data}", self.data.clone()),
            ("{outside}", self.root()),
        ];
        places.iter().fold(text.to_owned(), |text, (name, path)| text.replace(name, &path.to_string_lossy()))
    }

    /// The environment of every run: nothing of the machine but `PATH`.
    pub fn environment(&self) -> Vec<(String, String)> {
        let root = self.root();
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        [
            ("PATH", std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned())),
            ("HOME", path(root.join("home"))),
            ("TMPDIR", path(root.join("tmp"))),
            ("XDG_DATA_HOME", path(root.join("xdg"))),
            // Shared by all cases, so that a component is compiled once.
            ("XDG_CACHE_HOME", path(crate::target_dir().join("test-cache"))),
            ("LANG", "C.UTF-8".to_owned()),
            ("TZ", "UTC".to_owned()),
            ("NO_COLOR", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// Copies a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
