//! Manifest of a linked executable: the file `NAME.routine` beside it.

use std::io;
use std::path::{Path, PathBuf};

use kumi_idl::Interface;
use serde::{Deserialize, Serialize};

/// A manifest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The format version.
    pub version: u32,
    /// The file name of the executable in the same folder.
    pub executable: String,
    /// The hash of its bytes: 16 hexadecimal digits.
    pub hash: String,
    /// The descriptions of its routines.
    pub interfaces: Vec<Interface>,
}

impl Manifest {
    /// The version that this program reads and writes.
    pub const VERSION: u32 = 1;

    /// Whether JSON is a manifest.
    pub fn is(json: &serde_json::Value) -> bool {
        json.get("executable").is_some()
    }

    /// Reads a manifest from JSON.
    ///
    /// # Errors
    /// Why the manifest cannot be used.
    pub fn read(json: &[u8]) -> Result<Manifest, String> {
        let manifest: Manifest = serde_json::from_slice(json)
            .map_err(|error| format!("it is not a manifest: {error}"))?;
        if manifest.version != Manifest::VERSION {
            let (version, known) = (manifest.version, Manifest::VERSION);
            return Err(format!("it is of version {version}; version {known} is understood"));
        }
        Ok(manifest)
    }

    /// The path of the executable, if it is the one that the manifest describes.
    ///
    /// # Errors
    /// Why the executable cannot be used.
    pub fn executable(&self, path: &Path) -> Result<PathBuf, String> {
        let name = Path::new(&self.executable);
        if name.file_name() != Some(name.as_os_str()) {
            return Err(format!("`{}` is no name of a file beside it", self.executable));
        }
        let executable = std::path::absolute(path.with_file_name(name))
            .map_err(|error| format!("its folder is not known: {error}"))?;
        let found = hash(&executable).map_err(|error| {
            format!("its executable {} cannot be read: {error}", executable.display())
        })?;
        if found != self.hash {
            let executable = executable.display();
            return Err(format!(
                "{executable} is not the executable that was built with it; build both again"
            ));
        }
        Ok(executable)
    }
}

/// The hash of a file.
pub(super) fn hash(path: &Path) -> io::Result<String> {
    let bytes = std::fs::read(path)?;
    Ok(format!("{:016x}", twox_hash::XxHash3_64::oneshot(&bytes)))
}
