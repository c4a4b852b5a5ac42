//! Routines linked into the executable of a slot.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use kumi_idl::{Interface, Language, Type};

use super::closure::Closures;
use super::{Arena, Routine};
use crate::job::{Job, JobStarter};
use crate::layout::Slot;

/// An entry of the routine table in a linked executable.
#[repr(C)]
#[derive(Debug)]
pub struct Linked {
    /// Its description in canonical JSON, `length` bytes.
    description: *const c_char,
    length: usize,
    /// Calls the routine with the addresses of its arguments and the lengths of its texts.
    call: unsafe extern "C" fn(at: *const *mut c_void, text: *const usize),
}

impl Linked {
    /// The description from which it was generated.
    pub fn description(&self) -> &[u8] {
        // SAFETY: whoever called `main` has promised that so many bytes are there, and they are constants.
        unsafe { std::slice::from_raw_parts(self.description.cast(), self.length) }
    }
}

/// A routine that a slot can run.
pub(crate) enum Runner<'a> {
    /// A routine of a library.
    Bound(Routine),
    /// A routine of the slot's own executable.
    Linked(LinkedRoutine<'a>),
    /// A routine of an interpreter that hosts the slot.
    Hosted(Hosted<'a>),
    /// A routine that is a job of a cluster.
    Job(RefCell<Box<dyn Job>>),
}

/// A routine of the slot's own executable, with the client functions that it calls.
pub struct LinkedRoutine<'a> {
    linked: &'a Linked,
    /// For each parameter the function pointer. 0: it is not a function.
    functions: Vec<usize>,
    _closures: Closures,
}

impl<'a> LinkedRoutine<'a> {
    /// The routine, which has this description.
    ///
    /// # Errors
    /// An argument that cannot be passed to a function.
    pub fn new(linked: &'a Linked, interface: &Interface) -> Result<LinkedRoutine<'a>, String> {
        let fortran = interface.target.language == Language::Fortran;
        let closures = Closures::new(interface, fortran).map_err(str::to_owned)?;
        let each = interface.params.iter().enumerate();
        let functions = each.map(|(index, param)| match param.ty {
            Type::Callback(_) => closures.address(index),
            _ => 0,
        });
        Ok(LinkedRoutine { linked, functions: functions.collect(), _closures: closures })
    }

    /// Calls it with the arguments in the arena.
    pub fn call(&self, arena: &Arena, slots: &[Slot]) {
        let at = |(index, slot): (usize, &Slot)| match self.functions.get(index) {
            Some(function) if *function != 0 => std::ptr::with_exposed_provenance_mut(*function),
            _ => arena.at(slot.offset, slot.bytes).cast(),
        };
        let at: Vec<*mut c_void> = slots.iter().enumerate().map(at).collect();
        let text: Vec<usize> = slots.iter().map(|slot| slot.text).collect();
        // SAFETY: the function was generated from the same description as the layout and the closures. So each address
        // points to a value or function of the expected type. Should its own code be wrong, only this process may fail,
        // which holds nothing but this call.
        unsafe { (self.linked.call)(at.as_ptr(), text.as_ptr()) };
    }
}

/// Calls a routine of an interpreter. An error is the exception that it raised.
pub type Hosted<'a> = Box<dyn Fn(&Arc<Arena>, &[Slot]) -> Result<(), String> + 'a>;

/// The `main` of a linked executable: runs as a slot until the server closes its socket.
///
/// # Safety
/// `routines` is the address of `count` routines that are there, with their descriptions, until the process ends.
pub unsafe fn main(routines: *const Linked, count: usize) -> c_int {
    // SAFETY: as the caller has promised.
    unsafe { main_with_jobs(routines, count, None) }
}

/// [`main`] of an executable that may have parallel routines.
///
/// # Safety
/// As [`main`].
pub unsafe fn main_with_jobs(
    routines: *const Linked,
    count: usize,
    jobs: Option<&dyn JobStarter>,
) -> c_int {
    // SAFETY: as the caller has promised.
    let routines = unsafe { table(routines, count) };
    ended(std::panic::catch_unwind(|| crate::run_linked(routines, jobs)))
}

/// The table of routines at an address.
///
/// # Safety
/// As [`main`].
#[must_use]
pub unsafe fn table<'a>(routines: *const Linked, count: usize) -> &'a [Linked] {
    // SAFETY: as the caller has promised.
    unsafe { std::slice::from_raw_parts(routines, count) }
}

/// The exit code of an executable's `main`.
pub fn ended<E: std::fmt::Display>(result: std::thread::Result<Result<(), E>>) -> c_int {
    match result {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            eprintln!("this is a routine, which `kumi call serve` starts: {error}");
            1
        }
        Err(_panic) => 1,
    }
}
