//! The canonical JSON of descriptions: the same description gives the same bytes.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::model::{Interface, Module};
use crate::validate::{Place, Problem, ProblemKind, is_name, shortened};

/// Why JSON is no description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The JSON is longer than the reader accepts.
    #[error("a description of {bytes} bytes is more than the {most} that are read")]
    TooLong {
        /// Its bytes.
        bytes: usize,
        /// The most that are read.
        most: usize,
    },
    /// The text is not JSON, or not of this form.
    #[error("this is no interface description: {0}")]
    Form(String),
    /// The description is not valid.
    #[error("the interface description of `{routine}` cannot be used: {problem}")]
    Invalid {
        /// The routine.
        routine: String,
        /// The first problem.
        problem: Problem,
    },
}

/// The fields that every version of a description or module has.
#[derive(Deserialize)]
struct Head {
    version: u32,
    #[serde(default)]
    name: String,
}

/// Decodes at most `most` bytes of JSON. Additional fields of another version give an error about the version, not about the text.
fn read<T: DeserializeOwned>(json: &[u8], most: usize) -> Result<T, JsonError> {
    if json.len() > most {
        return Err(JsonError::TooLong { bytes: json.len(), most });
    }
    serde_json::from_slice(json).map_err(|error| match serde_json::from_slice::<Head>(json) {
        Ok(head) if head.version != Interface::VERSION => {
            invalid(&head.name, ProblemKind::Version(head.version))
        }
        _ => JsonError::Form(crate::excerpt::shortened(&error.to_string(), 256)),
    })
}

/// Checks a description.
fn checked(interface: &Interface) -> Result<(), JsonError> {
    interface
        .validate()
        .map_err(|problem| JsonError::Invalid { routine: shortened(&interface.name), problem })
}

/// An error about the whole description.
fn invalid(routine: &str, fault: ProblemKind) -> JsonError {
    let problem = Problem { place: Place::Routine, name: String::new(), fault };
    JsonError::Invalid { routine: shortened(routine), problem }
}

impl Interface {
    /// Bytes of JSON that are read at most, unless the reader says otherwise.
    pub const MOST_JSON: usize = 1 << 20;

    /// The canonical JSON: no blanks, members in the order of the types, nothing that has its usual value but
    /// `idempotent`.
    ///
    /// # Errors
    /// [`JsonError::Form`] of a number that is not finite, which [`Interface::validate`] finds too.
    pub fn to_json(&self) -> Result<String, JsonError> {
        serde_json::to_string(self).map_err(|error| JsonError::Form(error.to_string()))
    }

    /// A description from elsewhere: not longer than [`Interface::MOST_JSON`], and valid.
    ///
    /// # Errors
    /// [`JsonError`]: what it is instead.
    pub fn from_json(json: &[u8]) -> Result<Interface, JsonError> {
        Interface::from_json_within(json, Interface::MOST_JSON)
    }

    /// [`Interface::from_json`] of at most `most` bytes.
    ///
    /// # Errors
    /// [`JsonError`]: what it is instead.
    pub fn from_json_within(json: &[u8], most: usize) -> Result<Interface, JsonError> {
        let interface = read(json, most)?;
        checked(&interface)?;
        Ok(interface)
    }
}

impl Module {
    /// The canonical JSON, as [`Interface::to_json`].
    ///
    /// # Errors
    /// [`JsonError::Form`] of a number that is not finite.
    pub fn to_json(&self) -> Result<String, JsonError> {
        serde_json::to_string(self).map_err(|error| JsonError::Form(error.to_string()))
    }

    /// A module from a file of at most `most` bytes, all of whose routines are valid and have names of their own.
    ///
    /// # Errors
    /// [`JsonError`]: what it is instead.
    pub fn from_json_within(json: &[u8], most: usize) -> Result<Module, JsonError> {
        let module: Module = read(json, most)?;
        if module.version != Interface::VERSION {
            return Err(invalid(&module.name, ProblemKind::Version(module.version)));
        }
        if !module.name.is_empty() && !is_name(&module.name) {
            return Err(invalid(&module.name, ProblemKind::Name(shortened(&module.name))));
        }
        let foreign = |class: &crate::model::Class| {
            class.methods.iter().find(|method| method.class != class.name).map(|it| it.name.clone())
        };
        if let Some((class, method)) =
            module.classes.iter().find_map(|class| Some((class, foreign(class)?)))
        {
            return Err(invalid(&method, ProblemKind::Class(shortened(&class.name))));
        }
        let mut names = BTreeSet::new();
        for interface in module.routines() {
            checked(interface)?;
            if !names.insert(interface.name.as_str()) {
                let twice = ProblemKind::Twice(shortened(&interface.name));
                return Err(invalid(&interface.name, twice));
            }
        }
        Ok(module)
    }

    /// Its routines and those of its classes.
    pub fn routines(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().chain(self.classes.iter().flat_map(|class| &class.methods))
    }
}
