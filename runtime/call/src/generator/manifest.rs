//! What lies beside a linked executable and says what it is: `NAME.routine`.

use std::io;
use std::path::{Path, PathBuf};

use kumi_idl::Interface;
use serde::{Deserialize, Serialize};

/// A manifest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// The version of this form.
    pub version: u32,
    /// The file's name of the executable, which lies beside the manifest.
    pub executable: String,
    /// The hash of its bytes: 16 hexadecimal digits.
    pub hash: String,
    /// The descriptions of its routines.
    pub interfaces: Vec<Interface>,
}

impl Manifest {
    /// The version that is written and read.
    pub const VERSION: u32 = 1;

    /// Whether a file's JSON is a manifest.
    pub fn is(json: &serde_json::Value) -> bool {
        json.get("executable").is_some()
    }

    /// The manifest of this JSON.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn read(json: &[u8]) -> Result<Manifest, String> {
        let manifest: Manifest =
            serde_json::from_slice(json).map_err(|error| format!("it is no manifest: {error}"))?;
        if manifest.version != Manifest::VERSION {
            let (version, known) = (manifest.version, Manifest::VERSION);
            return Err(format!("it is of version {version}; version {known} is understood"));
        }
        Ok(manifest)
    }

    /// Where the executable is, if it is the one that the manifest was made for.
    ///
    /// # Errors
    /// Why it cannot be used.
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
