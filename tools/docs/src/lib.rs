//! Documentation tools: reference pages made from the code, and checks of every document in the repository.
#![forbid(unsafe_code)]

pub mod check;
pub mod command_line;
pub mod configuration;
pub mod errors;
pub mod markdown;
pub mod region;
pub mod rust;
pub mod simulations;

use std::path::Path;

/// Why documentation could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocsError {
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Our own Rust source does not have what a page is made from.
    #[error("{0}")]
    Source(String),
    /// A simulation, or a trace that it needs, failed.
    #[error("{0}")]
    Simulation(#[from] kumi_sim::SimError),
    /// A trace is not where it was looked for.
    #[error("there is no {}; KUMI_TRACES or --traces names its folder", path.display())]
    Trace {
        /// Its compressed form, which may be there instead of the plain one.
        path: std::path::PathBuf,
    },
    /// No table of that name is made by simulations.
    #[error("no simulation makes a region `{0}`")]
    UnknownRegion(String),
    /// A page lacks the place for a generated part.
    #[error(
        "{page} has no region `{region}`: <!-- generated: {region} --> and <!-- end of {region} -->"
    )]
    Region {
        /// The page.
        page: String,
        /// The region's name.
        region: String,
    },
}

/// Reads a file of the repository.
///
/// # Errors
/// When it cannot be read.
pub fn read(root: &Path, path: &str) -> Result<String, DocsError> {
    std::fs::read_to_string(root.join(path))
        .map_err(|source| DocsError::File { path: path.to_owned(), source })
}

/// Makes the generated regions of all pages anew: path and whole text of each page.
///
/// # Errors
/// When a source or a page is not as expected.
pub fn reference(root: &Path) -> Result<Vec<(&'static str, String)>, DocsError> {
    let pages = [
        ("docs/reference/command-line.md", command_line::regions(root)?),
        ("docs/reference/configuration.md", configuration::regions(root)?),
        ("docs/reference/errors.md", errors::regions(root)?),
    ];
    pages
        .into_iter()
        .map(|(page, regions)| {
            let mut text = read(root, page)?;
            for (name, content) in regions {
                text = region::replace(&text, &name, &content)
                    .ok_or_else(|| DocsError::Region { page: page.to_owned(), region: name })?;
            }
            Ok((page, text))
        })
        .collect()
}

/// Documents whose blocks of Rust are compiled, as tests of documentation.
pub const COMPILED: &[&str] = &["docs/reference/rust.md"];

#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/rust.md")]
struct RustReference;

/// The definition of the command line, complete.
pub fn command() -> clap::Command {
    let mut command = kumi_command::command();
    command.build();
    command
}

/// The root of the repository that this crate was built in.
pub fn repository() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own)
}
