//! The job and its memory.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::load::elapsed;
use kumi_dsm::{Config, SharedMemory};
use kumi_mem::Context;

/// What there is between `jia_init` and `jia_exit`.
pub(crate) struct Jia {
    // Before the context, which it uses.
    pub(crate) memory: SharedMemory,
    pub(crate) context: Arc<Context>,
}

static JIA: RwLock<Option<Arc<Jia>>> = RwLock::new(None);

/// This host's number, for messages of errors.
static HOST: AtomicI32 = AtomicI32::new(-1);

/// The program has called `jia_exit`, and nothing has failed since.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Says what is wrong and ends the process, which ends the job.
pub(crate) fn fail(function: &str, what: impl Display) -> ! {
    LEFT.store(false, Ordering::Relaxed);
    match HOST.load(Ordering::Relaxed) {
        -1 => eprintln!("{function}: {what}"),
        host => eprintln!("{function} at host {host}: {what}"),
    }
    std::process::exit(1)
}

/// The job's state, for a function that needs it.
pub(crate) fn running(function: &str) -> Arc<Jia> {
    let slot = JIA.read().unwrap_or_else(PoisonError::into_inner);
    slot.clone().unwrap_or_else(|| fail(function, "call jia_init first"))
}

/// The result, or the end.
pub(crate) fn good<T, E: Display>(function: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| fail(function, error))
}

/// `jia_pid` of `jia.h`. A program may have a copy of its own in its place, see `publish`.
#[unsafe(no_mangle)]
pub static jia_pid: AtomicI32 = AtomicI32::new(0);

/// `hostc` of `jia.h`.
#[unsafe(no_mangle)]
pub static hostc: AtomicI32 = AtomicI32::new(1);

/// `jia_lock_index` of `jia.h`: the next lock of `LOCKINIT`.
#[unsafe(no_mangle)]
pub static jia_lock_index: AtomicI32 = AtomicI32::new(0);

/// Sets a variable where the program reads it. The linker copies variables of libraries into programs, and the loader lets all
/// use that copy; code of this library may have the address of its own bound in.
fn publish(name: &CStr, own: &AtomicI32, value: c_int) {
    own.store(value, Ordering::Relaxed);
    // SAFETY: a name that ends with a zero.
    let used = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if !used.is_null() {
        // SAFETY: the variable of that name, which `jia.h` declares as an int; the program's threads only read it.
        unsafe { AtomicI32::from_ptr(used.cast()) }.store(value, Ordering::Relaxed);
    }
}

fn start() -> Result<Jia, kumi_dsm::Error> {
    let context = Arc::new(Context::init()?);
    let memory = SharedMemory::new(Arc::clone(&context), Config::from_environment()?)?;
    Ok(Jia { memory, context })
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_init(_: c_int, _: *mut *mut c_char) {
    elapsed();
    let mut slot = JIA.write().unwrap_or_else(PoisonError::into_inner);
    if slot.is_some() {
        fail("jia_init", "call it once");
    }
    let jia = good("jia_init", start());
    let host = |number: u32| c_int::try_from(number).unwrap_or(c_int::MAX);
    HOST.store(host(jia.context.rank()), Ordering::Relaxed);
    publish(c"jia_pid", &jia_pid, host(jia.context.rank()));
    publish(c"hostc", &hostc, host(jia.context.ranks()));
    *slot = Some(Arc::new(jia));
    drop(slot);
    // SAFETY: the function lives as long as the library, which is not unloaded: it has thread-local values with destructors.
    unsafe { on_exit(at_exit, std::ptr::null_mut()) };
}

unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// A program that ends well without `jia_exit` still has pages that others need. One that has called it has done its work:
/// in C of that time `main` may return nothing, so its exit code is any.
extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    if status == 0 {
        end();
    } else if LEFT.load(Ordering::Relaxed) {
        // SAFETY: all streams are flushed, as the rest of this exit would do. No code of the program runs any more.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(0);
        }
    }
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_exit() {
    end();
    LEFT.store(true, Ordering::Relaxed);
}

fn end() {
    let taken = JIA.write().unwrap_or_else(PoisonError::into_inner).take();
    let Some(jia) = taken else { return };
    let Some(Jia { memory, context }) = Arc::into_inner(jia) else {
        fail("jia_exit", "other threads are in functions of JIAJIA; let them return first");
    };
    drop(memory);
    if let Some(context) = Arc::into_inner(context) {
        good("jia_exit", context.finalize());
    }
}

/// Ends the process and with it the job, after `jia_error` has said why.
#[unsafe(no_mangle)]
pub extern "C" fn jia_fail() {
    LEFT.store(false, Ordering::Relaxed);
    std::process::exit(1)
}
