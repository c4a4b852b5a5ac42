//! Typed stubs: sources by which a compiler checks calls of routines (`kumi call stubs`).
//!
//! A stub names the parameters and their types, and calls the routine through the library of its language. It is a convenience:
//! clients check each call against the server's description anyway.

mod c;
mod fortran;
mod java;
mod names;
mod python;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use thiserror::Error;

use crate::model::{Class, Interface, Mode, Module, Param, Type};
use names::{Names, identifier};

/// A language that stubs are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StubLanguage {
    /// A header over the GridRPC interface.
    C,
    /// A module over `kumi_grpc`.
    Fortran,
    /// A module over `kumi.call`, and its types in a `.pyi`.
    Python,
    /// A class over `kumi.call.KumiClient`.
    Java,
}

impl StubLanguage {
    /// All of them, with the names that commands use.
    pub const ALL: [(&'static str, StubLanguage); 4] = [
        ("c", StubLanguage::C),
        ("fortran", StubLanguage::Fortran),
        ("python", StubLanguage::Python),
        ("java", StubLanguage::Java),
    ];
}

/// A source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StubFile {
    /// Its name.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// Why a routine has no stub.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{routine}` has no stub: {why}")]
pub struct NoStub {
    /// The routine.
    pub routine: String,
    /// The reason.
    pub why: String,
}

/// The stubs of a module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stubs {
    /// The sources.
    pub files: Vec<StubFile>,
    /// The routines that are left out.
    pub left_out: Vec<NoStub>,
}

/// Writes the stubs of all routines and classes of a module. `name` is that of its file without the ending; letters that no
/// language has in names are replaced.
#[must_use]
pub fn stubs(module: &Module, name: &str, language: StubLanguage) -> Stubs {
    let unit = format!("{}_stubs", identifier(name));
    match language {
        StubLanguage::C => c::stubs(module, &unit),
        StubLanguage::Fortran => fortran::stubs(module, &unit),
        StubLanguage::Python => python::stubs(module, &unit),
        StubLanguage::Java => java::stubs(module, &unit),
    }
}

/// The first words of each file.
fn made(unit: &str) -> String {
    format!(
        "{unit}: typed calls of routines. Made by `kumi call stubs`, which makes it anew with the next run."
    )
}

/// A text of a description as lines of a comment: without control characters, and without what would end the comment.
fn comment(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| {
        let clean: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        // First what becomes a slash: it may end the comment.
        let clean = clean.replace('\\', "/");
        clean.replace("*/", "* /").replace("/*", "/ *").replace("\"\"\"", "'''")
    });
    lines.collect()
}

/// The lines of documentation of a routine: its own, and one for each parameter that callers see.
fn documentation(interface: &Interface) -> Vec<String> {
    let mut lines = comment(&interface.doc);
    for param in interface.params.iter().filter(|param| param.mode != Mode::Work) {
        let mode = param.mode.name().trim_start_matches("mode_");
        let mut line = format!("  {mode} {} {}", kind(&param.ty), param.name);
        for dimension in &param.dims {
            line += &format!("[{}]", interface.shown(&dimension.size));
        }
        if let Some(default) = &param.default {
            line += &format!(" = {}", interface.shown(default));
        }
        if !param.doc.is_empty() {
            line += &format!(": {}", param.doc);
        }
        lines.extend(comment(&line.replace('\n', " ")));
    }
    lines
}

fn kind(ty: &Type) -> String {
    match ty {
        Type::Number(element) => element.to_string(),
        Type::String => "string".to_string(),
        Type::File => "filename".to_string(),
        Type::Callback(_) => "function".to_string(),
    }
}

/// The parameters that a call in C or Fortran has: all but work arrays.
fn passed(interface: &Interface) -> impl Iterator<Item = &Param> {
    interface.params.iter().filter(|param| param.mode != Mode::Work)
}

/// Whether a scalar is passed by value.
fn is_value(param: &Param) -> bool {
    param.scalar().is_some() && param.mode == Mode::In
}

/// All routines that are not methods, then the classes. A class without methods has nothing to call.
fn parts(module: &Module) -> (Vec<&Interface>, Vec<&Class>) {
    let classes = module.classes.iter().filter(|class| !class.methods.is_empty());
    (module.interfaces.iter().collect(), classes.collect())
}
