//! Faults: those of views, those of others, and the ends of processes. Each case is a process of its own.
#![allow(clippy::single_range_in_vec_init)] // None is meant as a list of numbers.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::ptr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI32, AtomicUsize};
use std::sync::{Arc, Mutex};

use common::{at, case, mechanism_of, mechanisms, memory, read, run, succeed, view, write};
use kumi_dsm::node_memory::MemoryError;
use kumi_dsm::view::{FaultRefusal, FaultResolver, Mechanism, View, ViewError};

const PAGE: usize = 4096;

/// The process ended by a signal after it wrote one line with these texts.
fn died_by(output: &Output, signal: i32, texts: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(signal), "{:?}\n{error}", output.status);
    let lines: Vec<&str> = error.lines().filter(|line| line.starts_with("kumi: ")).collect();
    let right = match lines[..] {
        [line] => texts.iter().all(|text| line.contains(text)),
        [] => texts.is_empty(),
        _ => false,
    };
    assert!(right, "not exactly one line with {texts:?}:\n{error}");
}

/// Runs this program's test once for each mechanism; inside of such a process, the body, which ends it.
fn in_processes(name: &str, body: impl FnOnce(Mechanism), check: impl Fn(&Output)) {
    if let Some(case) = case() {
        no_core_file();
        body(mechanism_of(&case));
        std::process::exit(0);
    }
    for mechanism in mechanisms(name) {
        check(&run(name, &mechanism.to_string()));
    }
}

fn succeeded(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{text}", output.status);
}

/// Processes that end as they should leave nothing behind.
fn no_core_file() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is this function's.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
}

#[test]
fn an_address_that_is_refused_ends_the_process() {
    let body = |mechanism| {
        let memory = memory(1 << 20, 4096);
        let (view, _) = view(&memory, mechanism, 16);
        write(&view, 15, 0, 1);
        write(&view, 16, 5, 1);
    };
    in_processes("an_address_that_is_refused_ends_the_process", body, |output| {
        let texts = ["address 0x", "byte 65541 of the shared memory", "it is not allocated"];
        died_by(output, libc::SIGSEGV, &texts);
    });
}

#[test]
fn a_view_without_a_resolver_ends_the_process() {
    let body = |mechanism| {
        let memory = memory(1 << 20, 4096);
        let view = View::new(&memory, mechanism).expect("view");
        view.map(3..4).expect("map");
        write(&view, 3, 0, 1);
        read(&view, 4, 0);
    };
    in_processes("a_view_without_a_resolver_ends_the_process", body, |output| {
        died_by(output, libc::SIGSEGV, &["nobody provides units"]);
    });
}

#[test]
fn running_into_shared_memory_ends_the_process() {
    let body = |mechanism| {
        let memory = memory(1 << 20, 4096);
        let (view, _) = view(&memory, mechanism, 16);
        view.map(0..1).expect("map");
        // SAFETY: it is no code and no page that can be executed: the processor raises a fault, which ends the process.
        let code: extern "C" fn() = unsafe { std::mem::transmute(view.base()) };
        code();
    };
    in_processes("running_into_shared_memory_ends_the_process", body, |output| {
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV));
        if cfg!(target_arch = "x86_64") {
            died_by(output, libc::SIGSEGV, &["cannot be executed"]);
        }
    });
}

#[test]
fn resolvers_learn_of_writes() {
    let body = |mechanism| {
        let memory = memory(1 << 20, 4096);
        let (view, shower) = view(&memory, mechanism, 256);
        read(&view, 4, 0);
        write(&view, 4, 0, 1);
        write(&view, 9, 0, 1);
        read(&view, 9, 0);
        let faults = shower.faults.lock().expect("faults").clone();
        assert_eq!(faults, [(4, false), (9, cfg!(target_arch = "x86_64"))]);
    };
    in_processes("resolvers_learn_of_writes", body, succeeded);
}

/// Shows a unit after it has read the one before, which is not visible either.
struct Nested {
    view: std::sync::Weak<View>,
    order: Mutex<Vec<u64>>,
}

impl FaultResolver for Nested {
    fn resolve(&self, unit: u64, _: bool) -> Result<(), FaultRefusal> {
        let view = self.view.upgrade().ok_or(FaultRefusal::new("the view is gone"))?;
        if unit > 0 {
            read(&view, unit - 1, 0);
        }
        self.order.lock().expect("order").push(unit);
        // A thread elsewhere does the work.
        let answer = std::thread::spawn(move || view.map(unit..unit + 1));
        Ok(answer.join().expect("it does not panic")?)
    }
}

#[test]
fn a_resolver_may_block_and_reach_for_other_units() {
    let body = |mechanism| {
        let memory = memory(1 << 20, 4096);
        let view = Arc::new(View::new(&memory, mechanism).expect("view"));
        let resolver = Arc::new(Nested { view: Arc::downgrade(&view), order: Mutex::default() });
        assert!(view.serve(resolver.clone()));
        assert!(!view.serve(resolver.clone()), "a second resolver");
        read(&view, 4, 0);
        assert_eq!(*resolver.order.lock().expect("order"), [0, 1, 2, 3, 4]);
    };
    in_processes("a_resolver_may_block_and_reach_for_other_units", body, succeeded);
}

/// Shows a unit, and needs much of the stack for it.
struct Deep(std::sync::Weak<View>);

impl FaultResolver for Deep {
    fn resolve(&self, unit: u64, _: bool) -> Result<(), FaultRefusal> {
        let room = std::hint::black_box([1u8; 512 << 10]);
        let view = self.0.upgrade().ok_or(FaultRefusal::new("the view is gone"))?;
        let end = unit + u64::from(room[usize::try_from(unit).unwrap_or(0)]);
        Ok(view.map(unit..end)?)
    }
}

#[test]
fn a_resolver_has_the_stack_of_its_thread() {
    let body = |mechanism| {
        let memory = memory(1 << 20, 4096);
        let view = Arc::new(View::new(&memory, mechanism).expect("view"));
        view.serve(Arc::new(Deep(Arc::downgrade(&view))));
        write(&view, 4, 0, 1);
        assert_eq!(common::collect(&view), [4..5]);
    };
    in_processes("a_resolver_has_the_stack_of_its_thread", body, succeeded);
}

#[test]
fn a_fault_leaves_errno_alone() {
    let body = |mechanism| {
        let memory = memory(1 << 20, 4096);
        let (view, shower) = view(&memory, mechanism, 256);
        // SAFETY: this thread's errno.
        unsafe { *libc::__errno_location() = 77 };
        write(&view, 3, 0, 1);
        // SAFETY: as above.
        let after = unsafe { *libc::__errno_location() };
        assert_eq!((after, shower.count.load(SeqCst)), (77, 1));
    };
    in_processes("a_fault_leaves_errno_alone", body, succeeded);
}

#[test]
fn a_system_call_on_a_unit_that_is_not_there_is_refused() {
    let body = |mechanism| {
        let memory = memory(1 << 20, 4096);
        let (view, shower) = view(&memory, mechanism, 256);
        let mut pipe = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let send = |unit| {
            // SAFETY: the kernel checks the address.
            unsafe { libc::write(pipe[1], at(&view, unit, 0).cast(), 8) }
        };
        assert_eq!(send(2), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
        view.map(2..3).expect("map");
        assert_eq!(send(2), 8);
        assert_eq!(shower.count.load(SeqCst), 0);
        // The kernel's write to a unit that is open for writing counts as one of the program.
        write(&view, 3, 100, 1);
        // SAFETY: eight bytes of a unit of the view.
        assert_eq!(unsafe { libc::read(pipe[0], at(&view, 3, 0).cast(), 8) }, 8);
        assert_eq!(common::collect(&view), [3..4]);
    };
    in_processes("a_system_call_on_a_unit_that_is_not_there_is_refused", body, succeeded);
}

// ---- handlers of others ---------------------------------------------------------------------

static HANDLED: AtomicI32 = AtomicI32::new(0);
static LAST_ADDRESS: AtomicUsize = AtomicUsize::new(0);
static FILE: AtomicI32 = AtomicI32::new(-1);

/// What a program may have: it makes the page accessible.
extern "C" fn earlier(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: of the kernel, or of the library that hands it on.
    let address = unsafe { (*info).si_addr() }.addr();
    let page = ptr::without_provenance_mut(address & !(PAGE - 1));
    // SAFETY: a page of the test's mapping, or a file of the test.
    unsafe {
        if signal == libc::SIGSEGV {
            libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE);
        } else {
            libc::ftruncate(FILE.load(SeqCst), PAGE as libc::off_t);
        }
        // The signal is blocked as if this handler had been called by the kernel.
        let mut blocked = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut blocked);
        let is_blocked =
            [signal, libc::SIGUSR2].map(|one| libc::sigismember(&raw const blocked, one));
        HANDLED.fetch_add(if is_blocked == [1, 1] { 1 } else { 1000 }, SeqCst);
    }
    LAST_ADDRESS.store(address, SeqCst);
}

fn install(signal: i32, handler: libc::sighandler_t, flags: i32) {
    // SAFETY: zeros are valid; the handler has the signature that the flags demand.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaddset(&raw mut action.sa_mask, libc::SIGUSR2);
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

/// A page that cannot be accessed.
fn closed_page() -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    unsafe { libc::mmap(ptr::null_mut(), PAGE, libc::PROT_NONE, flags, -1, 0).cast() }
}

/// A page behind the end of an empty memory file.
fn page_behind_a_file() -> *mut u8 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new file and a new mapping.
    unsafe {
        let file = libc::memfd_create(c"test".as_ptr(), 0);
        FILE.store(file, SeqCst);
        libc::mmap(ptr::null_mut(), PAGE, rights, libc::MAP_SHARED, file, 0).cast()
    }
}

#[test]
fn other_faults_reach_the_handler_that_was_there() {
    let body = |mechanism| {
        let handler = earlier as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            install(signal, handler as libc::sighandler_t, libc::SA_SIGINFO);
        }
        let memory = memory(1 << 20, 4096);
        let (view, shower) = view(&memory, mechanism, 256);
        for (count, page) in [(1, closed_page()), (2, page_behind_a_file())] {
            write(&view, count, 0, 1);
            let place = page.wrapping_add(123);
            // SAFETY: the handler makes it accessible.
            unsafe { place.write_volatile(1) };
            assert_eq!(
                (HANDLED.load(SeqCst), LAST_ADDRESS.load(SeqCst)),
                (count as i32, place.addr())
            );
        }
        assert_eq!(shower.count.load(SeqCst), 2);
        // Signals that somebody sends come through, too.
        // SAFETY: no pointers.
        unsafe { libc::raise(libc::SIGBUS) };
        assert_eq!(HANDLED.load(SeqCst), 3);
    };
    in_processes("other_faults_reach_the_handler_that_was_there", body, succeeded);
}

/// A fault of a process whose signals have this disposition when the first view is made.
fn fault_elsewhere(name: &str, disposition: libc::sighandler_t, signal: i32) {
    let body = |mechanism| {
        install(signal, disposition, 0);
        let memory = memory(1 << 20, 4096);
        let (view, _) = view(&memory, mechanism, 256);
        write(&view, 1, 0, 1);
        if disposition == libc::SIG_IGN {
            // SAFETY: no pointers.
            unsafe { libc::raise(signal) };
        }
        let place = if signal == libc::SIGSEGV { closed_page() } else { page_behind_a_file() };
        // SAFETY: nobody makes it accessible; the process ends here.
        unsafe { place.write_volatile(1) };
    };
    in_processes(name, body, |output| died_by(output, signal, &[]));
}

#[test]
fn without_another_handler_a_closed_page_ends_the_process() {
    let name = "without_another_handler_a_closed_page_ends_the_process";
    fault_elsewhere(name, libc::SIG_DFL, libc::SIGSEGV);
}

#[test]
fn without_another_handler_the_end_of_a_file_ends_the_process() {
    let name = "without_another_handler_the_end_of_a_file_ends_the_process";
    fault_elsewhere(name, libc::SIG_DFL, libc::SIGBUS);
}

#[test]
fn an_ignored_signal_is_ignored_and_a_fault_is_not() {
    fault_elsewhere(
        "an_ignored_signal_is_ignored_and_a_fault_is_not",
        libc::SIG_IGN,
        libc::SIGSEGV,
    );
}

#[test]
fn a_signal_that_is_sent_ends_the_process_by_default() {
    let body = |mechanism| {
        install(libc::SIGBUS, libc::SIG_DFL, 0);
        let memory = memory(1 << 20, 4096);
        let (_view, _) = view(&memory, mechanism, 256);
        // SAFETY: no pointers.
        unsafe { libc::raise(libc::SIGBUS) };
    };
    in_processes("a_signal_that_is_sent_ends_the_process_by_default", body, |output| {
        died_by(output, libc::SIGBUS, &[]);
    });
}

#[test]
fn an_overflow_of_the_stack_is_still_explained_beside_userfaultfd() {
    fn deep(depth: u64) -> u64 {
        let room = std::hint::black_box([depth; 512]);
        if depth == u64::MAX { 0 } else { deep(depth + 1) + room[17] }
    }
    let name = "an_overflow_of_the_stack_is_still_explained_beside_userfaultfd";
    if case().is_some() {
        no_core_file();
        let memory = memory(1 << 20, 4096);
        let (view, _) = view(&memory, Mechanism::UserFault, 256);
        write(&view, 1, 0, 1);
        println!("{}", deep(0));
        return;
    }
    if mechanisms(name).contains(&Mechanism::UserFault) {
        let output = run(name, "userfault");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("has overflowed its stack"), "{text}");
    }
}

// ---- children -------------------------------------------------------------------------------

fn fork() -> i32 {
    // SAFETY: the child only uses what the test is about, and ends.
    unsafe { libc::fork() }
}

fn wait(child: i32) -> i32 {
    let mut status = -1;
    // SAFETY: the number is this function's.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

#[test]
fn a_fork_has_no_view_and_is_told() {
    let body = |mechanism| {
        let memory = memory(1 << 20, 4096);
        let (view, shower) = view(&memory, mechanism, 256);
        write(&view, 1, 0, 1);
        let child = fork();
        if child == 0 {
            let refused = [
                view.map(0..1).err(),
                view.collect(0..1, &mut Vec::new()).err(),
                view.drop_units(0..1, &mut Vec::new()).err(),
                View::new(&memory, mechanism).err(),
            ];
            let right = refused.iter().all(|error| matches!(error, Some(ViewError::Forked)))
                && matches!(memory.word(0), Err(MemoryError::Forked))
                && matches!(memory.read_page(0, &mut [0]), Err(MemoryError::Forked));
            let base = view.base();
            drop((view, shower, memory));
            if right {
                // SAFETY: there is nothing: the process ends here.
                unsafe { base.wrapping_add(PAGE).read_volatile() };
            }
            std::process::exit(1);
        }
        let status = wait(child);
        assert!(
            libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV,
            "{status:#x}"
        );
        // This process goes on.
        write(&view, 2, 0, 1);
        assert_eq!((read(&view, 1, 0), common::collect(&view)), (1, vec![1..3]));
    };
    in_processes("a_fork_has_no_view_and_is_told", body, |output| {
        succeeded(output);
        let text = String::from_utf8_lossy(&output.stderr);
        let told = text.lines().filter(|line| line.contains("is a fork of the rank's process"));
        assert_eq!(told.count(), 1, "{text}");
    });
}

#[test]
fn views_of_a_process_are_limited_and_give_their_place_back() {
    let name = "views_of_a_process_are_limited_and_give_their_place_back";
    if case().is_none() {
        return succeed(name, "mprotect");
    }
    let memory = memory(1 << 20, 4096);
    let mut views: Vec<_> =
        (0..kumi_dsm::view::MOST_VIEWS).map(|_| view(&memory, Mechanism::Protect, 256)).collect();
    let refused = View::new(&memory, Mechanism::Protect).expect_err("one more");
    assert!(matches!(refused, ViewError::TooManyViews { most: 16 }), "{refused}");
    drop(views.remove(7));
    views.push(view(&memory, Mechanism::Protect, 256));
    for (view, shower) in &views {
        write(view, 3, 0, 1);
        assert_eq!((shower.count.load(SeqCst), common::collect(view)), (1, vec![3..4]));
    }
}
