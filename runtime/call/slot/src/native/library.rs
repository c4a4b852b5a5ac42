//! Routines in shared libraries, called by their descriptions through libffi.

use std::ffi::c_void;
use std::path::{Path, PathBuf};

use kumi_call_ffi::number;
use kumi_idl::{Expr, Interface, Language, Mode, Param, Type};
use libffi::middle::{Arg, Cif, CodePtr, Ret, Type as Native};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use thiserror::Error;

use super::Arena;
use super::closure::Closures;
use crate::layout::Slot;

/// Runs a slot until the server closes the socket, which is this process's standard input.
///
/// ```compile_fail,E0133
/// fn slot() -> std::io::Result<()> {
///     kumi_call_slot::run()
/// }
/// ```
///
/// # Safety
/// Whoever writes to the socket has this process open libraries and call their functions. So the descriptions that
/// arrive must fit the libraries that they name, and nothing else of this process may use what these touch.
///
/// # Errors
/// The socket fails, or this version does not know an order.
pub unsafe fn run() -> std::io::Result<()> {
    crate::run_bound()
}

/// Why a routine cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoadError {
    /// A library cannot be opened.
    #[error("the library {path} cannot be opened: {why}")]
    Library {
        /// Its name.
        path: String,
        /// The dynamic linker's message.
        why: String,
    },
    /// No library has the symbol.
    #[error("none of the libraries has the symbol `{symbol}`: {why}")]
    Symbol {
        /// The symbol.
        symbol: String,
        /// The dynamic linker's message.
        why: String,
    },
    /// The routine needs a linked executable, or another server.
    #[error("`{routine}` cannot be bound to a library at run time: {why}")]
    Unsupported {
        /// The routine.
        routine: String,
        /// What it needs.
        why: String,
    },
}

/// The source of an argument of the symbol.
#[derive(Debug)]
enum Source {
    /// The value of a parameter or expression in the arena.
    Value(usize),
    /// The address of a parameter or expression in the arena.
    Address(usize),
    /// The address of a constant text with a terminating zero.
    AddressOf(Box<[u8]>),
    /// The length of a parameter's text.
    Length(usize),
    /// A function of the client.
    Function(usize),
    /// The length of a constant text.
    LengthOf(usize),
}

/// A loaded routine.
#[derive(Debug)]
pub struct Routine {
    cif: Cif,
    code: CodePtr,
    sources: Vec<Source>,
    /// The parameter that receives the returned value, and its bytes.
    result: Option<ReturnPlace>,
    functions: Closures,
    /// Never closed: what a library has registered with the process outlives every call.
    _libraries: Vec<Library>,
}

/// Checks that all arguments of a routine can be passed.
pub fn check(interface: &Interface) -> Result<(), LoadError> {
    if interface.parallel.is_some() {
        let why = "it is a parallel job: build an executable of it with `kumi call build`, and serve that";
        return Err(LoadError::Unsupported {
            routine: interface.name.clone(),
            why: why.to_owned(),
        });
    }
    signature(interface).map(|_| ())
}

impl Routine {
    /// Opens the libraries in order and finds the symbol.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load(interface: &Interface, libraries: &[PathBuf]) -> Result<Routine, LoadError> {
        let (cif, sources, result) = signature(interface)?;
        let fortran = interface.target.language == Language::Fortran;
        let functions = Closures::new(interface, fortran).map_err(|why| {
            LoadError::Unsupported { routine: interface.name.clone(), why: why.to_owned() }
        })?;
        let mut opened = Vec::new();
        for path in libraries {
            opened.push(open(path)?);
        }
        opened.push(Library::this());
        let symbol = interface.target.linked();
        let mut why = String::new();
        for library in &opened {
            // SAFETY: the address is only stored; the description is responsible for its type.
            match unsafe { library.get::<*mut c_void>(symbol.as_bytes()) } {
                Ok(found) => {
                    let code = CodePtr::from_ptr(found.as_raw_ptr());
                    return Ok(Routine {
                        cif,
                        code,
                        sources,
                        result,
                        functions,
                        _libraries: opened,
                    });
                }
                Err(error) => why = error.to_string(),
            }
        }
        Err(LoadError::Symbol { symbol, why })
    }

    /// Calls the routine with the arguments in the arena.
    pub fn call(&self, arena: &Arena, slots: &[Slot]) {
        let at = |parameter: usize| {
            let slot = &slots[parameter];
            arena.at(slot.offset, slot.bytes)
        };
        let words: Vec<usize> = self
            .sources
            .iter()
            .map(|source| match source {
                Source::Value(_) => 0,
                Source::Address(parameter) => at(*parameter).addr(),
                Source::AddressOf(bytes) => bytes.as_ptr().addr(),
                Source::Length(parameter) => slots[*parameter].text,
                Source::Function(parameter) => self.functions.address(*parameter),
                Source::LengthOf(length) => *length,
            })
            .collect();
        let addresses: Vec<*mut u8> = self
            .sources
            .iter()
            .zip(&words)
            .map(|(source, word)| match source {
                Source::Value(parameter) => at(*parameter),
                _ => std::ptr::from_ref(word).cast_mut().cast(),
            })
            .collect();
        // SAFETY: each address points to a value of the type that the call's description has at this place. The value
        // lies in the arena, with room and alignment from the layout, or in `words`. Both live on.
        let arguments: Vec<Arg<'_>> =
            addresses.iter().map(|address| Arg::new(unsafe { &**address })).collect();
        // Integers shorter than a word are returned as a word, little-endian.
        let mut returned = 0_u128;
        let into = if self.result.is_some() { Ret::new(&mut returned) } else { Ret::void() };
        // SAFETY: the server's owner vouches that the symbol has the signature of its description. Should
        // that be wrong, only this process may fail, which holds nothing but this call.
        unsafe { self.cif.call_return_into(self.code, &arguments, into) };
        if let Some((parameter, bytes)) = self.result {
            arena.write(slots[parameter].offset, &returned.to_le_bytes()[..bytes]);
        }
    }
}

/// Opens a library. For a bare name without a version, which only development packages install, it also tries
/// versions 0 to 9.
fn open(path: &Path) -> Result<Library, LoadError> {
    let name = path.to_string_lossy();
    let versions = if name.ends_with(".so") && !name.contains('/') { 0..10 } else { 0..0 };
    let others = versions.map(|version| PathBuf::from(format!("{name}.{version}")));
    let mut why = String::new();
    for path in std::iter::once(path.to_owned()).chain(others) {
        // SAFETY: opening runs the library's initialisers; the server's owner has named it, and nothing else runs in
        // this process yet.
        match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => return Ok(library),
            Err(error) if why.is_empty() => why = error.to_string(),
            Err(_) => {}
        }
    }
    Err(LoadError::Library { path: name.into_owned(), why })
}

/// A parameter, and its bytes.
type ReturnPlace = (usize, usize);

/// The description of the call for libffi.
type Signature = (Cif, Vec<Source>, Option<ReturnPlace>);

fn signature(interface: &Interface) -> Result<Signature, LoadError> {
    let unsupported =
        |why: &str| LoadError::Unsupported { routine: interface.name.clone(), why: why.to_owned() };
    let target = &interface.target;
    if !target.body.is_empty() {
        return Err(unsupported("it has a body in C; `kumi call build` makes an executable of it"));
    }
    if target.language == Language::Python {
        return Err(unsupported("it is a function of Python; serve it with --python"));
    }
    let fortran = target.language == Language::Fortran;
    let mut types = Vec::new();
    let mut sources = Vec::new();
    let mut lengths = Vec::new();
    let mut expressions = interface.params.len()..;
    for argument in &target.arguments {
        let (native, source) = match argument {
            Expr::Param(index) => {
                let index = *index as usize;
                let param = interface.params.get(index);
                let param =
                    param.ok_or_else(|| unsupported("an argument that is not a parameter"))?;
                if fortran && matches!(param.ty, Type::String | Type::File) {
                    lengths.push(Source::Length(index));
                }
                parameter(index, param, fortran).map_err(&unsupported)?
            }
            Expr::Text(text) => {
                if fortran {
                    lengths.push(Source::LengthOf(text.len()));
                }
                let bytes = text.bytes().chain([0]).collect();
                (Native::pointer(), Source::AddressOf(bytes))
            }
            other => {
                let place = expressions.next().unwrap_or(usize::MAX);
                match interface.passed_as(other) {
                    Some(element) if !fortran => (number(element), Source::Value(place)),
                    _ => (Native::pointer(), Source::Address(place)),
                }
            }
        };
        types.push(native);
        sources.push(source);
    }
    types.extend(lengths.iter().map(|_| Native::usize()));
    sources.extend(lengths);
    let (result, returned) = result(interface).map_err(&unsupported)?;
    Ok((Cif::new(types, returned), sources, result))
}

/// The place of the returned value, and its type.
fn result(interface: &Interface) -> Result<(Option<ReturnPlace>, Native), &'static str> {
    let Some(index) = interface.target.result else { return Ok((None, Native::void())) };
    let index = index as usize;
    let element = interface.params.get(index).and_then(Param::scalar);
    let element = element.ok_or("a returned value that is not a scalar")?;
    Ok((Some((index, element.size() as usize)), number(element)))
}

/// How a parameter is passed.
fn parameter(index: usize, param: &Param, fortran: bool) -> Result<(Native, Source), &'static str> {
    let by_address = (Native::pointer(), Source::Address(index));
    match &param.ty {
        Type::Callback(params) => {
            kumi_call_ffi::passed(params, fortran)?;
            Ok((Native::pointer(), Source::Function(index)))
        }
        Type::String | Type::File => Ok(by_address),
        Type::Number(_) if fortran || !param.dims.is_empty() || param.mode != Mode::In => {
            Ok(by_address)
        }
        Type::Number(element) => Ok((number(*element), Source::Value(index))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The libraries named by the shipped descriptions contain all their routines.
    #[test]
    fn what_is_described_is_in_openblas() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interfaces");
        let library = PathBuf::from("libopenblas.so");
        if let Err(error) = open(&library) {
            return kumi_skip::skip("what_is_described_is_in_openblas", &error.to_string());
        }
        let mut count = 0;
        for name in ["blas1.idl", "blas2.idl", "blas3.idl", "lapack.idl"] {
            let text = std::fs::read(folder.join(name)).expect("a description");
            for interface in kumi_idl::parse(&text).module.expect("descriptions").interfaces {
                let loaded = Routine::load(&interface, std::slice::from_ref(&library));
                assert!(loaded.is_ok(), "{}: {loaded:?}", interface.name);
                count += 1;
            }
        }
        assert_eq!(count, 140);
    }
}
