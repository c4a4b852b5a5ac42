//! A service that brings pages of memory when the program first touches them, from a handler of SIGSEGV, as distributed shared
//! memory does.
#![cfg(not(miri))] // There are no signals.

mod common;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use common::run;
use kumi_mem::{Context, Outbox, Service, ServiceHandle, SharedBytesMut};

const PAGE: usize = 4096;
const PAGES: usize = 64;

/// Gives pages to others, and takes those that it has asked for.
struct Pager {
    over: Arc<AtomicBool>,
    page: Option<Vec<u8>>,
}

impl Service for Pager {
    fn message(&mut self, from: u32, message: &[u8], outbox: &mut Outbox) {
        match message {
            [] => self.over.store(true, SeqCst),
            [number] => outbox.send(from, vec![number + 1; PAGE]).expect("a rank"),
            page => self.page = Some(page.to_vec()),
        }
    }
}

/// Where the pages are, and the address of the service's handle.
static PAGED: OnceLock<(usize, usize)> = OnceLock::new();

extern "C" fn bring(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let Some(&(base, service)) = PAGED.get() else { std::process::abort() };
    // SAFETY: the kernel gives the handler a whole structure, of a fault, which has an address.
    let touched = unsafe { (*info).si_addr() } as usize;
    if !(base..base + PAGES * PAGE).contains(&touched) {
        std::process::abort();
    }
    // SAFETY: the test's body keeps the handle while it touches the pages, and any thread may use it.
    let service = unsafe { &*(service as *const ServiceHandle<'_, Pager>) };
    let number = (touched - base) / PAGE;
    let ask = |_: &mut Pager, outbox: &mut Outbox| outbox.send(0, vec![number as u8]);
    service.call(ask).expect("service").expect("a rank");
    let page = service.wait(&[0], |pager, _| pager.page.take()).expect("a page");
    let place = (base + number * PAGE) as *mut libc::c_void;
    // SAFETY: a page of the test's own mapping.
    let opened = unsafe { libc::mprotect(place, PAGE, libc::PROT_READ | libc::PROT_WRITE) };
    assert_eq!(opened, 0);
    let place = NonNull::new(place.cast()).expect("not at address 0");
    // SAFETY: the page is there until the process ends, and nobody has a reference to it.
    unsafe { SharedBytesMut::new(place, PAGE) }.copy_from(&page[..]);
}

/// Maps the pages, of which none may be touched, and has `bring` called for each.
fn pages(service: &ServiceHandle<'_, Pager>) -> usize {
    // SAFETY: a fresh mapping at an address of the kernel's choice, which stays. The handler is a function of this signature.
    let base = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let none = libc::PROT_NONE;
        let base = libc::mmap(std::ptr::null_mut(), PAGES * PAGE, none, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = bring as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()), 0);
        base as usize
    };
    PAGED.set((base, (&raw const *service) as usize)).expect("once");
    base
}

/// Rank 0 computes meanwhile. A second thread of the other rank waits in the library.
fn touch_all(context: &Context) {
    let over = Arc::new(AtomicBool::new(false));
    let pager = Pager { over: Arc::clone(&over), page: None };
    let service = context.serve_with(pager).expect("service");
    if context.rank() == 0 {
        while !over.load(SeqCst) {
            std::hint::spin_loop();
        }
    } else {
        let base = pages(&service);
        let touch = || {
            for number in 0..PAGES {
                let at = base + number * PAGE + number;
                // SAFETY: in the mapping; what may not be touched yet the handler brings.
                let byte = unsafe { (at as *const u8).read_volatile() };
                assert_eq!(usize::from(byte), number + 1);
            }
            let end = |_: &mut Pager, outbox: &mut Outbox| {
                outbox.send(0, vec![]).expect("a rank");
                outbox.send(1, vec![]).expect("a rank");
            };
            service.call(end).expect("service");
        };
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let told = service.wait(&[], |pager, _| pager.over.load(SeqCst).then_some(()));
                told.expect("told");
            });
            touch();
        });
    }
    context.barrier().expect("barrier");
}

#[test]
fn pages_come_when_they_are_touched() {
    run("pages_come_when_they_are_touched", &[&[2], &[1, 1]], touch_all);
}
