//! `kumi-docs`: writes the generated reference, manual pages and scripts for shells.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use kumi_docs::{DocsError, command, reference, repository};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes the reference documentation from the code
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Write the generated parts of docs/reference
    Reference,
    /// Write a manual page for each subcommand of kumi into a folder
    Man {
        /// The folder
        folder: PathBuf,
    },
    /// Write scripts by which bash, zsh and fish complete command lines into a folder
    Completions {
        /// The folder
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(&Args::parse().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kumi-docs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(what: &What) -> Result<(), DocsError> {
    match what {
        What::Reference => {
            for (page, text) in reference(repository())? {
                let path = repository().join(page);
                std::fs::write(&path, text).map_err(|source| failed(&path, source))?;
            }
            Ok(())
        }
        What::Man { folder } => {
            make(folder)?;
            clap_mangen::generate_to(command(), folder).map_err(|source| failed(folder, source))
        }
        What::Completions { folder } => {
            make(folder)?;
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
                let written = clap_complete::generate_to(shell, &mut command(), "kumi", folder);
                written.map_err(|source| failed(folder, source))?;
            }
            Ok(())
        }
    }
}

fn make(folder: &Path) -> Result<(), DocsError> {
    std::fs::create_dir_all(folder).map_err(|source| failed(folder, source))
}

fn failed(path: &Path, source: std::io::Error) -> DocsError {
    DocsError::File { path: path.display().to_string(), source }
}
