//! Which routines of a server cannot be loaded, told when it starts rather than at the first call.

use std::io::{self, Read, Write};
use std::process::Stdio;

use super::super::Config;
use super::super::process::check_command;
use super::registry::Registry;
use kumi_call_slot::check::{CheckRequest, Loadable, Reasons};

/// The routines of a server that lie in libraries.
#[derive(Debug, Clone)]
pub struct LibraryCheck {
    routines: Vec<Loadable>,
}

/// A reason, and the routines that cannot be loaded for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unloadable {
    /// What is missing.
    pub why: String,
    /// The routines, in order.
    pub routines: Vec<String>,
}

impl Registry {
    /// A check of the routines that lie in libraries.
    #[must_use]
    pub fn library_check(&self) -> LibraryCheck {
        let offered = self.names().filter_map(|name| self.find(name));
        let in_libraries = offered
            .filter(|offered| offered.program.is_none() && !offered.interface.is_constructor());
        let routines = in_libraries.map(|offered| Loadable {
            interface: offered.json.clone(),
            libraries: offered.libraries.clone(),
        });
        LibraryCheck { routines: routines.collect() }
    }
}

impl LibraryCheck {
    /// Opens the libraries in a process of the slot's program, confined as routines are. Waits for its end.
    ///
    /// # Errors
    /// The program cannot be run, or a library ended its process. Some user's routines run as another user of the system: then
    /// nothing is opened.
    pub fn run(&self, config: &Config) -> io::Result<Vec<Unloadable>> {
        if self.routines.is_empty() {
            return Ok(Vec::new());
        }
        if config.users.as_ref().is_some_and(|users| users.some_run_as()) {
            let text = "they are opened only as the users of `run_as`, at the first call";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let (mut command, room) = check_command(config);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let checked =
            CheckRequest { routines: self.routines.clone(), sandbox: config.sandbox, room };
        let json = serde_json::to_vec(&checked)?;
        // It reads all of it before it answers. If it has ended, its status says more.
        let _ended = child.stdin.take().map(|mut input| input.write_all(&json));
        let mut answer = Vec::new();
        if let Some(mut output) = child.stdout.take() {
            output.read_to_end(&mut answer)?;
        }
        let status = child.wait()?;
        if !status.success() {
            let text = format!("a library ended the process that opened it: {status}");
            return Err(io::Error::other(text));
        }
        let reasons: Reasons = serde_json::from_slice(&answer)?;
        Ok(reasons.into_iter().map(|(why, routines)| Unloadable { why, routines }).collect())
    }
}
