//! `kumi-docs`: writes the generated reference, manual pages and scripts for shells.
#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use kumi_docs::{DocsError, command, reference, repository, simulations};
use kumi_sim::figures::ReferenceTable;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

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
    /// Write the tables of docs/guide that simulations make; some take minutes
    Simulations {
        /// Only these regions [default: all that can be made]
        regions: Vec<String>,
        /// Folder of traces that the project does not carry
        #[arg(long, env = "KUMI_TRACES", value_name = "DIR")]
        traces: Option<PathBuf>,
    },
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
        What::Simulations { regions, traces } => simulate(regions, traces.as_deref()),
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

/// Makes the tables one after the other. Each is written when it is there.
fn simulate(regions: &[String], traces: Option<&Path>) -> Result<(), DocsError> {
    let mut left = regions.to_vec();
    let mut wanted = |name: &str| {
        let asked = left.iter().any(|region| region == name);
        left.retain(|region| region != name);
        asked || regions.is_empty()
    };
    for table in ReferenceTable::ALL.into_iter().filter(|table| wanted(table.name())) {
        let begin = Instant::now();
        let content = simulations::reference_table(table)?;
        simulations::write(repository(), simulations::CHECKS, table.name(), &content)?;
        println!("{}: {:.0} s", table.name(), begin.elapsed().as_secs_f64());
    }
    if wanted(simulations::TRACE_REGION) {
        match simulations::trace(traces.unwrap_or(Path::new(""))) {
            Ok(trace) => {
                let content = simulations::trace_table(&trace)?;
                let region = simulations::TRACE_REGION;
                simulations::write(repository(), simulations::SCHEDULING, region, &content)?;
                println!("{region}: done");
            }
            Err(missing) if regions.is_empty() => {
                eprintln!("{} stays as it is: {missing}", simulations::TRACE_REGION);
            }
            Err(missing) => return Err(missing),
        }
    }
    match left.first() {
        Some(region) => Err(DocsError::UnknownRegion(region.clone())),
        None => Ok(()),
    }
}

fn make(folder: &Path) -> Result<(), DocsError> {
    std::fs::create_dir_all(folder).map_err(|source| failed(folder, source))
}

fn failed(path: &Path, source: std::io::Error) -> DocsError {
    DocsError::File { path: path.display().to_string(), source }
}
