//! The configuration: which file, what it says, and whether it is trusted.

pub mod file;
pub mod limits;
pub mod providers;
pub mod sampling;
pub mod sources;
pub mod trust;

use std::path::{Path, PathBuf};

use crate::env::Environment;
use crate::exit::Stop;
pub use file::Loaded;

/// The file that is looked for in the working directory.
pub const FILE_NAME: &str = "dsh.toml";

/// The configuration of a run: the file that was named, else the one in the working directory if there is one. The latter must be
/// trusted, or hold only what no stranger can do harm with.
pub fn find(named: Option<&Path>, environment: &Environment) -> Result<Option<Loaded>, Stop> {
    if let Some(named) = named {
        return Loaded::read(&environment.path(named), named.display().to_string()).map(Some);
    }
    let path = environment.path(FILE_NAME);
    if std::fs::symlink_metadata(&path).is_err() {
        return Ok(None);
    }
    let mut loaded = Loaded::read(&path, FILE_NAME.into())?;
    loaded.pinned = trust::check(&loaded, environment)?;
    Ok(Some(loaded))
}

/// The file that `config check` and `config trust` are about: named or in the working directory, trusted or not.
pub fn read_any(named: Option<&PathBuf>, environment: &Environment) -> Result<Loaded, Stop> {
    match named {
        Some(named) => Loaded::read(&environment.path(named), named.display().to_string()),
        None => Loaded::read(&environment.path(FILE_NAME), FILE_NAME.into()),
    }
}
