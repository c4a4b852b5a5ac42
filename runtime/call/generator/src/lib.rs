//! Generator of executables that run as call slots, from interface descriptions (`kumi call build`), and the
//! descriptions that are shipped.
#![forbid(unsafe_code)]

mod compile;
mod manifest;
pub mod shipped;
mod stub;

use std::io;
use std::path::{Path, PathBuf};

use kumi_idl::{CodeLines, Module};
use thiserror::Error;

use compile::Tools;
pub use manifest::Manifest;
use stub::Unit;

/// Options of a build.
#[derive(Debug)]
pub struct Options {
    /// The output folder.
    pub out: PathBuf,
    /// The compiler. `None`: that of the description, or that of `CC`, or `cc`.
    pub compiler: Option<String>,
    /// The path of `libkumi_slot.a`.
    pub library: PathBuf,
    /// Whether to keep the generated sources beside the executables.
    pub keep: bool,
}

/// Why an executable was not built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The routine or class cannot be linked.
    #[error("`{routine}` cannot be built: {why}")]
    Unusable {
        /// The routine or class.
        routine: String,
        /// The reason.
        why: String,
    },
    /// The compiler or linker cannot be started.
    #[error("`{program}` cannot be run: {source}; install a C compiler, or name one with --cc")]
    Compiler {
        /// The program.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The compiler or linker failed; its messages went to standard error.
    #[error("`{routine}` does not {what}")]
    Failed {
        /// The routine or class.
        routine: String,
        /// `compile` or `link`.
        what: &'static str,
    },
    /// A file cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Headers of the ranks' library, which executables link with the slot's `main`.
const HEADERS: [(&str, &str); 4] = [
    ("kumi.h", include_str!("../../../../bindings/c/include/kumi.h")),
    ("kumi_onesided.h", include_str!("../../../../bindings/c/include/kumi_onesided.h")),
    ("kumi_requests.h", include_str!("../../../../bindings/c/include/kumi_requests.h")),
    ("kumi_groups.h", include_str!("../../../../bindings/c/include/kumi_groups.h")),
];

/// Builds an executable for each routine and class of a module, whose text is the file at `path`. Returns for
/// each its manifest, or the error.
#[must_use]
pub fn build(
    module: &Module,
    lines: &CodeLines,
    path: &Path,
    options: &Options,
) -> Vec<Result<PathBuf, BuildError>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let tools = Tools::new(module, folder, options);
    let units = module.interfaces.iter().map(Unit::of_routine);
    let units = units.chain(module.classes.iter().map(Unit::of_class));
    // A class without methods has nothing to run.
    let units = units.filter(|unit| !unit.routines.is_empty());
    units.map(|unit| build_one(&unit, module, lines, path, options, &tools)).collect()
}

fn build_one(
    unit: &Unit<'_>,
    module: &Module,
    lines: &CodeLines,
    path: &Path,
    options: &Options,
    tools: &Tools<'_>,
) -> Result<PathBuf, BuildError> {
    // Names contain no `-`, so file names stay unique.
    let name = unit.name.replace('/', "-");
    let in_folder = |extension: &str| options.out.join(format!("{name}{extension}"));
    let (executable, beside) = (in_folder(""), in_folder(".routine"));
    let unusable = |why: String| BuildError::Unusable { routine: unit.name.to_owned(), why };
    if executable.exists() && !beside.exists() {
        let executable = executable.display();
        return Err(unusable(format!(
            "{executable} is there and was not built by this; remove it, or name another folder with --out"
        )));
    }
    // Intermediate files go to a private folder.
    let work = tempfile::Builder::new().prefix(".kumi-build-").tempdir_in(&options.out);
    let work = work.map_err(|source| BuildError::Write { path: options.out.clone(), source })?;
    let file = format!("{name}.stub.c");
    let (source, object) = (work.path().join(&file), work.path().join("stub.o"));
    let made = work.path().join("executable");
    let text = stub::source(unit, module, lines, &file, &shown(path)).map_err(unusable)?;
    write(&source, text.as_bytes())?;
    for (name, header) in HEADERS.iter().filter(|_| unit.is_parallel()) {
        write(&work.path().join(name), header.as_bytes())?;
    }
    if options.keep {
        write(&in_folder(".stub.c"), text.as_bytes())?;
    }
    tools.compile(unit.name, &source, &object)?;
    tools.link(unit.name, &object, &required(unit), &made)?;
    let manifest = Manifest {
        version: Manifest::VERSION,
        executable: name.clone(),
        hash: manifest::hash(&made)
            .map_err(|source| BuildError::Write { path: made.clone(), source })?,
        interfaces: unit.routines.iter().map(|interface| (*interface).clone()).collect(),
    };
    let json = serde_json::to_vec(&manifest).map_err(|error| unusable(error.to_string()))?;
    // Replaced by renaming: a running executable keeps its file.
    let moved = std::fs::rename(&made, &executable);
    moved.map_err(|source| BuildError::Write { path: executable, source })?;
    write(&beside, &json)?;
    Ok(beside)
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    std::fs::write(path, bytes)
        .map_err(|source| BuildError::Write { path: path.to_owned(), source })
}

/// All libraries that the routines of a unit require, each once.
fn required<'a>(unit: &Unit<'a>) -> Vec<&'a str> {
    let mut required: Vec<&str> = Vec::new();
    for interface in &unit.routines {
        for word in &interface.target.required {
            if !required.contains(&word.as_str()) {
                required.push(word);
            }
        }
    }
    required
}
