//! Registry of the routines that a server offers.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kumi_idl::{Interface, JsonError, Module};
use thiserror::Error;

use super::super::program::Program;
use kumi_call_generator::Manifest;
use kumi_call_slot::native::{LoadError, check};

/// A routine that a server offers.
#[derive(Debug)]
pub struct OfferedRoutine {
    /// Its description.
    pub interface: Interface,
    /// The description's canonical JSON.
    pub json: String,
    /// The hash of the JSON.
    pub hash: u64,
    /// Libraries with the symbol.
    pub libraries: Vec<PathBuf>,
    /// The program of its slots, if it is not in a library.
    pub program: Option<Program>,
}

/// Why a routine cannot be offered.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// A file cannot be read.
    #[error("the description {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file is not a description.
    #[error("{}: {source}", path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<JsonError>,
    },
    /// A text is not a valid description.
    #[error("{} is not an interface description:\n{what}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The errors, each with its position.
        what: String,
    },
    /// A description cannot be used.
    #[error(transparent)]
    Invalid(Box<JsonError>),
    /// A description is too long for clients.
    #[error(
        "the description of `{routine}` has {bytes} bytes in JSON, and clients read {most} at most: shorten its texts or \
         its body",
        most = Interface::MOST_JSON
    )]
    TooLong {
        /// The routine.
        routine: String,
        /// Bytes of its JSON.
        bytes: usize,
    },
    /// Two routines have the same name.
    #[error("the routine `{0}` is described twice")]
    DuplicateRoutine(String),
    /// Only the description of a server can contain this.
    #[error("`{0}` has the name of its class: methods are called `class.method`")]
    Constructor(String),
    /// The methods of one class come from two programs.
    #[error("the class `{0}` is served by two programs: give one of them another name")]
    DuplicateClass(String),
    /// The manifest of an executable cannot be used.
    #[error("{}: {why}", path.display())]
    Executable {
        /// The manifest.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A sandbox cannot show the routine's files.
    #[error(
        "`{routine}` is imported from {}, in whose place routines in a sandbox have an empty folder: put its files into a \
         folder of its own, or leave --sandbox away",
        folder.display()
    )]
    HiddenInSandbox {
        /// The routine.
        routine: String,
        /// The folder.
        folder: PathBuf,
    },
    /// The routine cannot be run in this way.
    #[error(transparent)]
    NotRunnable(#[from] LoadError),
}

/// The routines of a server, by name.
#[derive(Debug, Default)]
pub struct Registry {
    routines: BTreeMap<String, Arc<OfferedRoutine>>,
}

/// The shared library for a linker's word. Static libraries are the generator's business.
fn shared(required: &str) -> Option<PathBuf> {
    match required.strip_prefix("-l") {
        Some(name) => Some(PathBuf::from(format!("lib{name}.so"))),
        None => required.contains(".so").then(|| PathBuf::from(required)),
    }
}

/// The routines of a module, and the methods of its classes.
fn all(module: Module) -> Vec<Interface> {
    let methods = module.classes.into_iter().flat_map(|class| class.methods);
    module.interfaces.into_iter().chain(methods).collect()
}

/// The descriptions of a file.
fn read(path: &Path, bytes: &[u8]) -> Result<Vec<Interface>, RegistryError> {
    let wrong =
        |source| RegistryError::Description { path: path.to_owned(), source: Box::new(source) };
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => {
            serde_json::from_slice(bytes).map_err(|error| wrong(JsonError::Form(error.to_string())))
        }
        Some(b'{') if is_module(bytes) => {
            Module::from_json_within(bytes, MOST_FILE).map(all).map_err(wrong)
        }
        Some(b'{') => Interface::from_json(bytes).map(|interface| vec![interface]).map_err(wrong),
        _ => {
            let parsed = kumi_idl::parse(bytes);
            let said = || parsed.diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>();
            parsed.module.map(all).ok_or_else(|| RegistryError::Text {
                path: path.to_owned(),
                what: said().join("\n"),
            })
        }
    }
}

/// The end of an error message: names that are similar to an unknown one.
fn meant(near: &[&str]) -> String {
    match near {
        [] => String::new(),
        near => format!("; did you mean {}?", near.join(" or ")),
    }
}

/// Whether this is JSON of a kind.
fn is(json: &[u8], kind: impl FnOnce(&serde_json::Value) -> bool) -> bool {
    let value: Result<serde_json::Value, _> = serde_json::from_slice(json);
    value.is_ok_and(|value| kind(&value))
}

/// Whether this JSON is a module of descriptions, rather than one description.
fn is_module(json: &[u8]) -> bool {
    is(json, |value| value.get("interfaces").is_some())
}

fn validate(interface: &Interface) -> Result<(), RegistryError> {
    if interface.is_constructor() {
        return Err(RegistryError::Constructor(interface.name.clone()));
    }
    interface.validate().map_err(|problem| {
        let routine = interface.name.clone();
        RegistryError::Invalid(Box::new(JsonError::Invalid { routine, problem }))
    })
}

/// Most bytes of a module in JSON.
const MOST_FILE: usize = 64 << 20;

impl Registry {
    /// Offers a routine of these libraries, in addition to those that its description requires.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn add(
        &mut self,
        interface: Interface,
        libraries: &[PathBuf],
    ) -> Result<(), RegistryError> {
        validate(&interface)?;
        check(&interface)?;
        // Static libraries are the generator's business.
        let shared = interface.target.required.iter().filter_map(|name| shared(name));
        let libraries = shared.chain(libraries.iter().cloned()).collect();
        self.offer(interface, libraries, None)
    }

    fn offer(
        &mut self,
        interface: Interface,
        libraries: Vec<PathBuf>,
        program: Option<Program>,
    ) -> Result<(), RegistryError> {
        let json = interface.to_json().map_err(|e| RegistryError::Invalid(Box::new(e)))?;
        if json.len() > Interface::MOST_JSON {
            return Err(RegistryError::TooLong { routine: interface.name, bytes: json.len() });
        }
        if !(interface.class.is_empty() || interface.is_constructor()) {
            match self.routines.get(&interface.class) {
                None => {
                    let class = &interface.class;
                    let constructor = Interface::constructor(class, interface.target.language);
                    self.offer(constructor, libraries.clone(), program.clone())?;
                }
                Some(known) if !known.interface.is_constructor() => {
                    return Err(RegistryError::DuplicateRoutine(interface.class));
                }
                Some(known) if known.program != program => {
                    return Err(RegistryError::DuplicateClass(interface.class));
                }
                Some(_) => {}
            }
        }
        let hash = kumi_call_wire::description::hash(&json);
        let name = interface.name.clone();
        let offered = Arc::new(OfferedRoutine { interface, json, hash, libraries, program });
        if self.routines.insert(name.clone(), offered).is_some() {
            return Err(RegistryError::DuplicateRoutine(name));
        }
        Ok(())
    }

    /// Offers the routines of a file. The file is one of:
    ///
    /// - interface descriptions as text,
    /// - a module in JSON, as `kumi call check --json` prints it,
    /// - one description or an array of them in canonical JSON,
    /// - the manifest that `kumi call build` writes beside an executable.
    ///
    /// Returns why some routines cannot be offered here, as long as one can.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn add_file(
        &mut self,
        path: &Path,
        libraries: &[PathBuf],
    ) -> Result<Vec<LoadError>, RegistryError> {
        let bytes = std::fs::read(path)
            .map_err(|source| RegistryError::Unreadable { path: path.to_owned(), source })?;
        if is(&bytes, Manifest::is) {
            return self.add_executable(path, &bytes).map(|()| Vec::new());
        }
        self.add_text(path, &bytes, libraries)
    }

    /// Offers the routines of a text with interface descriptions, whose errors name this file.
    ///
    /// Returns why some routines cannot be offered here, as long as one can.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn add_text(
        &mut self,
        path: &Path,
        text: &[u8],
        libraries: &[PathBuf],
    ) -> Result<Vec<LoadError>, RegistryError> {
        let interfaces = read(path, text)?;
        let mut left_out = Vec::new();
        let mut offered = false;
        for interface in interfaces {
            match self.add(interface, libraries) {
                Ok(()) => offered = true,
                Err(RegistryError::NotRunnable(error)) => left_out.push(error),
                Err(error) => return Err(error),
            }
        }
        match left_out.pop() {
            Some(error) if !offered => Err(error.into()),
            last => Ok(left_out.into_iter().chain(last).collect()),
        }
    }

    /// Offers the routines of a linked executable.
    fn add_executable(&mut self, path: &Path, json: &[u8]) -> Result<(), RegistryError> {
        let wrong = |why| RegistryError::Executable { path: path.to_owned(), why };
        let manifest = Manifest::read(json).map_err(wrong)?;
        let executable = manifest.executable(path).map_err(wrong)?;
        let program = Program { path: executable, arguments: Vec::new(), folder: None };
        self.add_program(manifest.interfaces, &program)
    }

    /// Offers a routine of a program that speaks the slot protocol.
    pub(crate) fn offer_program(
        &mut self,
        interface: Interface,
        program: Program,
    ) -> Result<(), RegistryError> {
        validate(&interface)?;
        self.offer(interface, Vec::new(), Some(program))
    }

    /// The routine of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<OfferedRoutine>> {
        self.routines.get(name)
    }

    /// The methods of this class, in order.
    #[must_use]
    pub fn methods(&self, class: &str) -> Vec<Arc<OfferedRoutine>> {
        let is_of = |offered: &&Arc<OfferedRoutine>| {
            let interface = &offered.interface;
            !interface.class.is_empty() && interface.class == class && !interface.is_constructor()
        };
        self.routines.values().filter(is_of).cloned().collect()
    }

    /// The end of an error message: classes similar to an unknown name that have a permitted method.
    pub(crate) fn near_class(&self, name: &str, may: impl Fn(&str) -> bool) -> String {
        let all = self.routines.values().map(|offered| &offered.interface);
        let methods = all.filter(|it| !it.class.is_empty() && may(&it.name));
        let mut classes: Vec<&str> = methods.map(|interface| interface.class.as_str()).collect();
        classes.dedup();
        meant(&kumi_idl::nearest(name, classes))
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.routines.keys().map(String::as_str)
    }

    /// The end of an error message: permitted names similar to an unknown one.
    pub(crate) fn near(&self, name: &str, may: impl Fn(&str) -> bool) -> String {
        meant(&kumi_idl::nearest(name, self.names().filter(|name| may(name))))
    }
}
