//! Programs that act as slots, and the descriptions that interpreters give of their routines.

use std::ffi::OsString;
use std::path::PathBuf;

use kumi_idl::Interface;
use serde::Deserialize;

use super::super::registry::{Registry, RegistryError};
use crate::confine::is_own_folder;

/// The program of a slot's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// Its command-line arguments.
    pub arguments: Vec<OsString>,
    /// The folder from which it imports, if it is an interpreter.
    pub folder: Option<PathBuf>,
}

/// An interpreter's description of its routines.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramDescription {
    version: u32,
    program: Vec<String>,
    folder: Option<PathBuf>,
    interfaces: Vec<Interface>,
}

/// Version of that description.
const VERSION: u32 = 2;

impl Registry {
    /// Offers routines of a program that speaks the slot protocol.
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

    /// Offers the routines that an interpreter describes in JSON for `source`. Its keys are `version`,
    /// `program` with arguments, the `folder` for imports (null: only installed modules), and `interfaces`.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn add_said(&mut self, source: &str, json: &[u8]) -> Result<(), RegistryError> {
        let wrong = |why| RegistryError::Executable { path: PathBuf::from(source), why };
        let said: ProgramDescription = serde_json::from_slice(json)
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
        let folder = said.folder;
        self.add_program(said.interfaces, &Program { path: path.into(), arguments, folder })
    }

    /// Checks that sandboxes can show every routine its program.
    ///
    /// # Errors
    /// [`RegistryError::HiddenInSandbox`].
    pub fn check_sandbox(&self) -> Result<(), RegistryError> {
        for name in self.names() {
            let program = self.find(name).and_then(|offered| offered.program.as_ref());
            let folder = program.and_then(|program| program.folder.as_ref());
            if let Some(folder) = folder.filter(|folder| is_own_folder(folder)) {
                return Err(RegistryError::HiddenInSandbox {
                    routine: name.to_owned(),
                    folder: folder.clone(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interpreter_says() {
        let one = r#"{"version":1,"name":"f","params":[],"target":{"language":"python","symbol":"m.f","arguments":[]}}"#;
        let json = |version, program, folder| {
            format!(
                r#"{{"version":{version},"program":[{program}],"folder":{folder},"interfaces":[{one}]}}"#
            )
        };
        let mut registry = Registry::default();
        let said = json(2, r#""/bin/python","-P""#, r#""/home/m""#);
        registry.add_said("m", said.as_bytes()).unwrap();
        registry.check_sandbox().unwrap();
        let offered = registry.find("f").and_then(|offered| offered.program.clone());
        let program = Program {
            path: "/bin/python".into(),
            arguments: vec!["-P".into()],
            folder: Some("/home/m".into()),
        };
        assert_eq!(offered, Some(program));
        let python = r#""/bin/python""#;
        for wrong in [json(1, python, "null"), json(2, "", "null"), "{}".to_owned(), String::new()]
        {
            let mut registry = Registry::default();
            assert!(registry.add_said("m", wrong.as_bytes()).is_err(), "{wrong}");
            assert_eq!(registry.names().count(), 0);
        }
        // Installed, but in folders that a sandbox covers, by whatever name.
        for (folder, can) in [
            ("null", true),
            (r#""/tmp/m""#, true),
            (r#""/tmp""#, false),
            (r#""/usr/../tmp/""#, false),
        ] {
            let mut registry = Registry::default();
            registry.add_said("m", json(2, python, folder).as_bytes()).unwrap();
            let checked = registry.check_sandbox().map_err(|error| error.to_string());
            assert_eq!(checked.is_ok(), can, "{folder}");
            assert!(
                checked.is_ok() || checked.is_err_and(|text| text.contains("folder of its own"))
            );
        }
    }
}
