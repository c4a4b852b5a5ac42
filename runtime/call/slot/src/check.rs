//! The check whether routines can be loaded, in a process of its own: a library runs code when it is opened.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use kumi_idl::Interface;
use nix::unistd::{dup, dup2_stdout};
use serde::{Deserialize, Serialize};

use crate::confine::end_with_server;
use crate::native::{Routine, end_now};

/// Longest time of a check. A library that hangs while it is opened ends it.
const MOST: Duration = Duration::from_secs(60);

/// A routine, and the libraries in which it is looked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Loadable {
    /// Its description as JSON.
    pub interface: String,
    /// The libraries, in order.
    pub libraries: Vec<PathBuf>,
}

/// Names of routines by the reason for which they cannot be loaded.
pub type Reasons = BTreeMap<String, Vec<String>>;

/// Reads routines from standard input, and writes to standard output which cannot be loaded and why.
///
/// # Errors
/// The input is no list of routines, or the output is closed.
pub fn check() -> io::Result<()> {
    end_with_server()?;
    std::thread::spawn(|| {
        std::thread::sleep(MOST);
        end_now();
    });
    let mut json = Vec::new();
    io::stdin().read_to_end(&mut json)?;
    let routines: Vec<Loadable> = serde_json::from_slice(&json)?;
    let answer = dup(io::stdout())?;
    // What libraries print is no part of the answer.
    dup2_stdout(io::stderr())?;
    let mut reasons = Reasons::new();
    for Loadable { interface, libraries } in routines {
        let interface = Interface::from_json(interface.as_bytes())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        if let Err(error) = Routine::load(&interface, &libraries) {
            reasons.entry(error.to_string()).or_default().push(interface.name);
        }
    }
    std::fs::File::from(answer).write_all(&serde_json::to_vec(&reasons)?)?;
    // The destructors of libraries have nothing to do here.
    Ok(())
}
