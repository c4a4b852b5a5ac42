//! Python functions as routines of a server; the interpreter describes them.

use crate::error::Error;
use clap::Args;
use kumi_call::server::Registry;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// How the interpreter ends if there is no such file or module.
const NO_SOURCE: i32 = 66;

/// Options of `kumi call serve` for Python functions.
#[derive(Clone, Debug, Args)]
pub struct PythonArgs {
    /// Functions with the decorator `kumi.call.routine` from a module or file: SOURCE, or SOURCE:NAME,… for
    /// some of them; repeatable
    #[arg(long, value_name = "MODULE|FILE.py")]
    pub python: Vec<String>,
    /// Python interpreter that runs them, with the package kumi
    #[arg(long, value_name = "PROGRAM", default_value = "python3", env = "KUMI_PYTHON")]
    pub interpreter: String,
}

impl PythonArgs {
    /// Offers the functions of the sources.
    ///
    /// # Errors
    /// The interpreter cannot be run, or reports an error.
    pub fn apply(&self, registry: &mut Registry) -> Result<(), Error> {
        for source in &self.python {
            registry.add_said(source, &self.describe(source)?)?;
        }
        Ok(())
    }

    /// Asks the interpreter for the description of a source.
    fn describe(&self, source: &str) -> Result<Vec<u8>, Error> {
        let ran = Command::new(&self.interpreter)
            .args(["-P", "-m", "kumi._slot", "--describe", source])
            .stdin(Stdio::null())
            .output();
        let wrong = |why: String| Error::Usage(format!("--python {source}: {why}"));
        let answer =
            ran.map_err(|error| wrong(format!("{} cannot be run: {error}", self.interpreter)))?;
        if answer.status.success() {
            // Warnings, and output of the source. Standard error may be closed.
            let _unread = std::io::stderr().write_all(&answer.stderr);
            return Ok(answer.stdout);
        }
        let said = String::from_utf8_lossy(&answer.stderr);
        // The last line has the error; the lines before have its place in the user's files.
        let last = said.trim_end().lines().last().unwrap_or("it printed nothing").to_owned();
        if last.contains("No module named 'kumi'") || last.contains("No module named kumi") {
            return Err(wrong(format!(
                "{} has no package kumi; install it there, or name another with --interpreter",
                self.interpreter
            )));
        }
        if answer.status.code() == Some(NO_SOURCE) {
            return Err(Error::NoSource(format!("{source}: {last}")));
        }
        Err(wrong(if said.trim_end().lines().count() > 1 {
            format!("{last}\n{}", said.trim_end())
        } else {
            last
        }))
    }
}
