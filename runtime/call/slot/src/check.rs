//! The check whether routines can be loaded, in a process of its own, confined as that of a routine: a library runs code when
//! it is opened.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use kumi_idl::Interface;
use nix::unistd::{dup, dup2_stdout};
use serde::{Deserialize, Serialize};

use crate::confine::{Level, RunAs, confine, end_with_server};
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

/// What the server asks for: the libraries and symbols of its routines are to be looked at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckRequest {
    /// The routines.
    pub routines: Vec<Loadable>,
    /// Whether routines run in a sandbox. Then their libraries are opened in one.
    pub sandbox: bool,
    /// Bytes that its temporary folders hold.
    pub room: u64,
}

impl CheckRequest {
    /// Gives up the rights that routines do not have.
    fn confine(&self) -> io::Result<()> {
        let libraries = self.routines.iter().flat_map(|routine| &routine.libraries);
        let needed: Vec<PathBuf> = libraries.cloned().collect();
        let level = if self.sandbox { Level::Sandbox } else { Level::Plain };
        let run_as = RunAs::of(None, self.sandbox)?;
        confine(run_as.as_ref(), level, &needed, None, self.room).map_err(io::Error::other)
    }
}

/// Names of routines by the reason for which they cannot be loaded.
pub type Reasons = BTreeMap<String, Vec<String>>;

/// Reads routines from standard input, and writes to standard output which cannot be loaded and why.
///
/// # Errors
/// The input is not [`CheckRequest`], or the output is closed.
pub fn check() -> io::Result<()> {
    end_with_server()?;
    let mut json = Vec::new();
    io::stdin().read_to_end(&mut json)?;
    let checked: CheckRequest = serde_json::from_slice(&json)?;
    // While it has one thread.
    let confined = checked.confine();
    std::thread::spawn(|| {
        std::thread::sleep(MOST);
        end_now();
    });
    let answer = dup(io::stdout())?;
    // What libraries print is no part of the answer.
    dup2_stdout(io::stderr())?;
    let mut reasons = Reasons::new();
    for Loadable { interface, libraries } in checked.routines {
        let interface = Interface::from_json(interface.as_bytes())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        // What cannot be confined opens no library, and cannot be called either.
        let why = match &confined {
            Ok(()) => Routine::load(&interface, &libraries).err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            reasons.entry(why).or_default().push(interface.name);
        }
    }
    std::fs::File::from(answer).write_all(&serde_json::to_vec(&reasons)?)?;
    // The destructors of libraries have nothing to do here.
    Ok(())
}
