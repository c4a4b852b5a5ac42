//! The handler of SIGBUS and SIGSEGV of this process.
//!
//! ```text
//! fault ─► on_fault ─► by its address: which view? ── none ─► the handler that was there before, or the default
//!                                        │
//!                      mapped meanwhile? ├─ yes ─► make it right, try the access again
//!                                        └─ no ──► resolver ── Ok ─► try again
//!                                                           └─ Err ─► a line on stderr, SIGSEGV
//! ```
//!
//! Flags: SA_NODEFER, since a resolver may reach for another unit. SA_ONSTACK only for SIGSEGV, and only while no view has its
//! faults by SIGSEGV: a resolver needs more stack than alternate ones have.

mod previous;
mod report;
pub(super) mod table;

use std::io;
use std::sync::{Mutex, PoisonError};

use super::backend::Access;
use table::Found;

/// Kinds of SIGSEGV: nothing is mapped there; not with these rights.
const SEGV_MAPERR: libc::c_int = 1;
const SEGV_ACCERR: libc::c_int = 2;

/// Installs the handlers, once. From the first call with `own_stack` on, SIGSEGV is handled on the stack of the thread that
/// has the fault.
pub(super) fn install(own_stack: bool) -> io::Result<()> {
    struct Installed {
        any: bool,
        own_stack: bool,
    }
    static STATE: Mutex<Installed> = Mutex::new(Installed { any: false, own_stack: false });
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if !state.any {
        for (signal, flags) in [(libc::SIGBUS, 0), (libc::SIGSEGV, libc::SA_ONSTACK)] {
            previous::remember(signal)?;
            set(signal, flags)?;
        }
        state.any = true;
    }
    if own_stack && !state.own_stack {
        // A handler that the program has installed since then stays, and has to call this one.
        if current(libc::SIGSEGV)?.sa_sigaction == handler() {
            set(libc::SIGSEGV, 0)?;
        }
        state.own_stack = true;
    }
    Ok(())
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

fn handler() -> libc::sighandler_t {
    on_fault as Handler as libc::sighandler_t
}

/// What is done about a signal.
fn current(signal: libc::c_int) -> io::Result<libc::sigaction> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the kernel fills in the structure, for which zeros are valid, too.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: as above.
    if result == 0 { Ok(unsafe { action.assume_init() }) } else { Err(io::Error::last_os_error()) }
}

fn set(signal: libc::c_int, flags: libc::c_int) -> io::Result<()> {
    let action = libc::sigaction {
        sa_sigaction: handler(),
        sa_mask: super::gate::empty(),
        sa_flags: libc::SA_SIGINFO | libc::SA_NODEFER | flags,
        sa_restorer: None,
    };
    // SAFETY: the handler has the signature that SA_SIGINFO demands, and keeps to what may be done in the thread that has a
    // fault.
    let result = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the place of this thread's errno, which always exists.
    let errno = unsafe { &raw mut *libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    // SAFETY: the kernel hands over both structures, and they stay until the handler returns.
    if !unsafe { serve(signal, info, context) } {
        // SAFETY: as above.
        unsafe { previous::forward(signal, info, context) };
    }
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

/// Whether the fault was in a view. If it was, the access can be tried again; a refused one does not return.
///
/// # Safety
/// The arguments of a handler with SA_SIGINFO.
unsafe fn serve(
    signal: libc::c_int,
    info: *const libc::siginfo_t,
    context: *const libc::c_void,
) -> bool {
    // SAFETY: the caller's promise.
    let code = unsafe { (*info).si_code };
    let of_page = match signal {
        libc::SIGBUS => code == libc::BUS_ADRERR,
        _ => code == SEGV_MAPERR || code == SEGV_ACCERR,
    };
    if !of_page {
        return false;
    }
    // SAFETY: these codes come with an address.
    let address = unsafe { (*info).si_addr() }.addr();
    let Some(found) = Found::at(address) else { return false };
    // SAFETY: the caller's promise.
    let access = unsafe { access(context) };
    if let Err(refusal) = found.pages().fault(address, access) {
        let offset = address - found.pages().space.addresses().start;
        report::write_line(address, offset, &refusal);
        previous::end_by(libc::SIGSEGV);
    }
    true
}

/// Why the processor wanted the page, from the error code of its exception.
///
/// # Safety
/// The context that a handler with SA_SIGINFO gets.
#[cfg(target_arch = "x86_64")]
unsafe fn access(context: *const libc::c_void) -> Access {
    const WRITE: i64 = 1 << 1;
    const FETCH: i64 = 1 << 4;
    // SAFETY: the caller's promise.
    let registers = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let code = registers[libc::REG_ERR as usize];
    if code & FETCH != 0 {
        Access::Execute
    } else if code & WRITE != 0 {
        Access::Write
    } else {
        Access::Read
    }
}

/// # Safety
/// None needed: nothing is read.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn access(_: *const libc::c_void) -> Access {
    Access::Unknown
}
