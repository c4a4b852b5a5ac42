//! What was done about SIGBUS and SIGSEGV before this library's handler, for faults that are not its own.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

struct Previous {
    action: OnceLock<libc::sigaction>,
    /// It was to be used once, and was.
    used: AtomicBool,
}

static BUS: Previous = Previous { action: OnceLock::new(), used: AtomicBool::new(false) };
static SEGV: Previous = Previous { action: OnceLock::new(), used: AtomicBool::new(false) };

fn of(signal: libc::c_int) -> &'static Previous {
    if signal == libc::SIGBUS { &BUS } else { &SEGV }
}

/// Keeps what is done about a signal now. Called before this library's handler is there.
pub(super) fn remember(signal: libc::c_int) -> io::Result<()> {
    let action = super::current(signal)?;
    of(signal).action.get_or_init(|| action);
    Ok(())
}

/// Does what would have been done without this library.
///
/// # Safety
/// The arguments of a handler with SA_SIGINFO.
pub(super) unsafe fn forward(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the caller's promise.
    let sent = unsafe { (*info).si_code } <= 0;
    let previous = of(signal);
    let Some(action) = previous.action.get() else { return by_default(signal, sent) };
    let once = action.sa_flags & libc::SA_RESETHAND != 0;
    match action.sa_sigaction {
        libc::SIG_DFL => by_default(signal, sent),
        // The kernel ignores only signals that somebody sent; a fault would come again for ever.
        libc::SIG_IGN if sent => {}
        libc::SIG_IGN => by_default(signal, sent),
        _ if once && previous.used.swap(true, Relaxed) => by_default(signal, sent),
        // SAFETY: the caller's promise, and the action that was installed for this signal.
        _ => unsafe { call(action, signal, info, context) },
    }
}

/// Calls an earlier handler as the kernel would have: with its signals blocked. The return from this library's handler
/// restores them.
///
/// # Safety
/// The action of a handler for `signal`, and its arguments.
unsafe fn call(
    action: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let mut blocked = action.sa_mask;
    if action.sa_flags & libc::SA_NODEFER == 0 {
        // SAFETY: a set of this function's.
        unsafe { libc::sigaddset(&raw mut blocked, signal) };
    }
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut()) };
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with this flag the number is the address of such a function.
        let handler = unsafe {
            std::mem::transmute::<
                libc::sighandler_t,
                extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void),
            >(action.sa_sigaction)
        };
        handler(signal, info, context);
    } else {
        // SAFETY: without the flag it is the address of a function of the signal's number.
        let handler = unsafe {
            std::mem::transmute::<libc::sighandler_t, extern "C" fn(libc::c_int)>(
                action.sa_sigaction,
            )
        };
        handler(signal);
    }
}

/// The default action: the process ends. A fault happens again at once, with the registers of the instruction that has it; a
/// signal that was sent is sent again.
fn by_default(signal: libc::c_int, sent: bool) {
    set_default(signal);
    if sent {
        send_to_this_thread(signal);
    }
}

fn set_default(signal: libc::c_int) {
    let default = libc::sigaction {
        sa_sigaction: libc::SIG_DFL,
        sa_mask: crate::view::gate::empty(),
        sa_flags: 0,
        sa_restorer: None,
    };
    // SAFETY: the default action, which needs nothing of this process.
    unsafe { libc::sigaction(signal, &raw const default, std::ptr::null_mut()) };
}

fn send_to_this_thread(signal: libc::c_int) {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal) };
}

/// Ends the process by the default action of a signal.
pub(super) fn end_by(signal: libc::c_int) -> ! {
    set_default(signal);
    let mut only = crate::view::gate::empty();
    // SAFETY: a set of this function's.
    unsafe {
        libc::sigaddset(&raw mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
    }
    send_to_this_thread(signal);
    // The signal is handled before the call above returns.
    std::process::abort()
}
