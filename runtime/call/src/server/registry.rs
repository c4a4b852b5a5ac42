//! The routines that a server offers.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kumi_idl::{Interface, JsonError};
use thiserror::Error;

use super::nearest::nearest;
use crate::native::{LoadError, check};

/// A routine that is offered.
#[derive(Debug)]
pub struct Offered {
    /// Its description.
    pub interface: Interface,
    /// The description's canonical JSON.
    pub json: String,
    /// The JSON's hash.
    pub hash: u64,
    /// Libraries with the symbol.
    pub libraries: Vec<PathBuf>,
}

/// Why a routine cannot be offered.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// A file that cannot be read.
    #[error("the description {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file that is no description.
    #[error("{}: {source}", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<JsonError>,
    },
    /// A description that cannot be used.
    #[error(transparent)]
    Invalid(Box<JsonError>),
    /// Two routines of one name.
    #[error("the routine `{0}` is described twice")]
    Twice(String),
    /// A routine that cannot be run so.
    #[error(transparent)]
    NotRunnable(#[from] LoadError),
}

/// The routines of a server, by name.
#[derive(Debug, Default)]
pub struct Registry {
    routines: BTreeMap<String, Arc<Offered>>,
}

/// The hash by which client and server compare descriptions.
pub(crate) fn hash(json: &str) -> u64 {
    twox_hash::XxHash3_64::oneshot(json.as_bytes())
}

impl Registry {
    /// Offers a routine of these libraries, beside those that its description requires.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn add(
        &mut self,
        interface: Interface,
        libraries: &[PathBuf],
    ) -> Result<(), RegistryError> {
        let invalid = |error| RegistryError::Invalid(Box::new(error));
        interface.validate().map_err(|problem| {
            let routine = interface.name.clone();
            invalid(JsonError::Invalid { routine, problem })
        })?;
        check(&interface)?;
        let json = interface.to_json().map_err(invalid)?;
        let hash = hash(&json);
        // What is to be linked statically is the generator's business.
        let shared = interface.target.required.iter().filter(|name| name.contains(".so"));
        let libraries = shared.map(PathBuf::from).chain(libraries.iter().cloned()).collect();
        let name = interface.name.clone();
        let offered = Arc::new(Offered { interface, json, hash, libraries });
        if self.routines.insert(name.clone(), offered).is_some() {
            return Err(RegistryError::Twice(name));
        }
        Ok(())
    }

    /// Offers the routine of a file with canonical JSON, or those of an array of such.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn add_file(&mut self, path: &Path, libraries: &[PathBuf]) -> Result<(), RegistryError> {
        let json = std::fs::read(path)
            .map_err(|source| RegistryError::Unreadable { path: path.to_owned(), source })?;
        let wrong =
            |source| RegistryError::Description { path: path.to_owned(), source: Box::new(source) };
        let many: Result<Vec<Interface>, _> = serde_json::from_slice(&json);
        match many {
            Ok(many) => many.into_iter().try_for_each(|interface| self.add(interface, libraries)),
            Err(_) => self.add(Interface::from_json(&json).map_err(wrong)?, libraries),
        }
    }

    /// The routine of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<Offered>> {
        self.routines.get(name)
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.routines.keys().map(String::as_str)
    }

    /// What is said of a name that nothing has.
    pub(crate) fn unknown(&self, name: &str) -> String {
        let near = nearest(name, self.names());
        if near.is_empty() {
            return format!("the server has no routine `{name}`");
        }
        format!("the server has no routine `{name}`; did you mean {}?", near.join(" or "))
    }
}
