//! Functions of Python that are served: the interpreter says what there is.

use crate::error::Error;
use clap::Args;
use kumi_call::server::Registry;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Options of `kumi call serve` for functions of Python.
#[derive(Clone, Debug, Args)]
pub struct PythonArgs {
    /// Functions with the decorator `kumi.call.routine` of a module or file, or only some: SOURCE:NAME,…; may be given again
    #[arg(long, value_name = "MODULE|FILE.py")]
    pub python: Vec<String>,
    /// The Python that runs them, with the package kumi
    #[arg(long, value_name = "PROGRAM", default_value = "python3", env = "KUMI_PYTHON")]
    pub interpreter: String,
}

impl PythonArgs {
    /// Offers what the sources have.
    ///
    /// # Errors
    /// The interpreter is not there, or says why not.
    pub fn apply(&self, registry: &mut Registry) -> Result<(), Error> {
        for source in &self.python {
            registry.add_said(source, &self.describe(source)?)?;
        }
        Ok(())
    }

    /// What the interpreter says of a source.
    fn describe(&self, source: &str) -> Result<Vec<u8>, Error> {
        let ran = Command::new(&self.interpreter)
            .args(["-P", "-m", "kumi._slot", "--describe", source])
            .stdin(Stdio::null())
            .output();
        let wrong = |why: String| Error::Usage(format!("--python {source}: {why}"));
        let answer =
            ran.map_err(|error| wrong(format!("{} cannot be run: {error}", self.interpreter)))?;
        if answer.status.success() {
            // Warnings, and what the source prints. There may be nobody who reads it.
            let _unread = std::io::stderr().write_all(&answer.stderr);
            return Ok(answer.stdout);
        }
        let said = String::from_utf8_lossy(&answer.stderr);
        // The last line of a traceback is what happened; the lines before it say where.
        let last = said.trim_end().lines().last().unwrap_or("it says nothing").to_owned();
        if last.contains("No module named 'kumi'") || last.contains("No module named kumi") {
            return Err(wrong(format!(
                "{} has no package kumi; install it there, or name another with --interpreter",
                self.interpreter
            )));
        }
        Err(wrong(if said.contains("Traceback") {
            format!("{last}\n{}", said.trim_end())
        } else {
            last
        }))
    }
}
