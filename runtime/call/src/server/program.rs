//! Programs that are slots of routines: what they say of themselves.

use std::ffi::OsString;
use std::path::PathBuf;

use kumi_idl::Interface;
use serde::Deserialize;

use super::registry::{Registry, RegistryError};

/// What the process of a slot runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// What it is given.
    pub arguments: Vec<OsString>,
}

/// What an interpreter says of the routines that it can run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    version: u32,
    program: Vec<String>,
    interfaces: Vec<Interface>,
}

/// Version of what is said.
const VERSION: u32 = 1;

impl Registry {
    /// Offers routines of a program that speaks as slots do.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn add_program(
        &mut self,
        interfaces: Vec<Interface>,
        program: &Program,
    ) -> Result<(), RegistryError> {
        for interface in interfaces {
            self.offer_program(interface, program.clone())?;
        }
        Ok(())
    }

    /// Offers what an interpreter has said of `source` in JSON: its `version`, its `program` with arguments, and the
    /// `interfaces` of routines.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn add_said(&mut self, source: &str, json: &[u8]) -> Result<(), RegistryError> {
        let wrong = |why| RegistryError::Executable { path: PathBuf::from(source), why };
        let said: Said = serde_json::from_slice(json)
            .map_err(|error| wrong(format!("the interpreter's answer cannot be used: {error}")))?;
        if said.version != VERSION {
            let version = said.version;
            return Err(wrong(format!(
                "its package kumi speaks version {version}, this command {VERSION}: install both of one version"
            )));
        }
        let mut words = said.program.into_iter();
        let path = words.next().ok_or_else(|| wrong("no program was named".to_owned()))?;
        let arguments = words.map(OsString::from).collect();
        self.add_program(said.interfaces, &Program { path: path.into(), arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interpreter_says() {
        let one = r#"{"version":1,"name":"f","params":[],"target":{"language":"python","symbol":"m.f","arguments":[]}}"#;
        let json = |version, program| {
            format!(r#"{{"version":{version},"program":[{program}],"interfaces":[{one}]}}"#)
        };
        let mut registry = Registry::default();
        registry.add_said("m", json(1, r#""/bin/python","-P""#).as_bytes()).unwrap();
        let offered = registry.find("f").and_then(|offered| offered.program.clone());
        let program = Program { path: "/bin/python".into(), arguments: vec!["-P".into()] };
        assert_eq!(offered, Some(program));
        for wrong in [json(2, r#""/bin/python""#), json(1, ""), "{}".to_owned(), String::new()] {
            let mut registry = Registry::default();
            assert!(registry.add_said("m", wrong.as_bytes()).is_err(), "{wrong}");
            assert_eq!(registry.names().count(), 0);
        }
    }
}
