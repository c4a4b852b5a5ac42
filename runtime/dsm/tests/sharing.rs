//! Memory that processes of a node share.
#![allow(clippy::single_range_in_vec_init)] // None is meant as a list of numbers.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use common::{alone, case, collect, mechanism_of, mechanisms, memory, process, read, view, write};
use kumi_dsm::node_memory::{MemoryError, NodeMemory, Offer, UnitSize};

const UNIT: u32 = 16 << 10;
const PAGES: u64 = 64;

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = (0..hexadecimal.len()).step_by(2);
    digits.map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).expect("digits")).collect()
}

/// The second rank of a node. It says each step, and goes on when it reads a line.
fn second_rank(case: &str) {
    let step = |name: &str| {
        println!("step {name}");
        std::io::stdout().flush().expect("flush");
        std::io::stdin().lock().read_line(&mut String::new()).expect("a line");
    };
    let offer = case.split(' ').nth(1).expect("an offer");
    let offer = Offer::decode(&bytes(offer)).expect("an offer");
    let memory = Arc::new(NodeMemory::accept(offer).expect("accept"));
    assert_eq!((memory.pages(), memory.unit().bytes()), (PAGES, UNIT));
    let (view, _) = view(&memory, mechanism_of(case), PAGES);
    assert_eq!(read(&view, 7, 100), 42, "the first rank's write");
    write(&view, 7, 101, 43);
    write(&view, PAGES - 1, UNIT as usize - 1, 44);
    memory.word(PAGES - 1).expect("word").fetch_add(5, SeqCst);
    memory.write_twin(3, 9, b"twin").expect("twin");
    step("written");
    assert_eq!(read(&view, 7, 102), 45, "a write to a unit that both have mapped");
    assert_eq!(collect(&view), [7..8, PAGES - 1..PAGES], "only this rank's writes");
    step("seen");
}

#[test]
fn two_processes_see_what_the_other_writes() {
    let name = "two_processes_see_what_the_other_writes";
    if let Some(case) = case() {
        return second_rank(&case);
    }
    let _alone = alone();
    for mechanism in mechanisms(name) {
        let memory = memory(PAGES * u64::from(UNIT), UNIT);
        let (view, _) = view(&memory, mechanism, PAGES);
        write(&view, 7, 100, 42);
        memory.word(PAGES - 1).expect("word").store(1000, SeqCst);
        let case = format!("{mechanism} {}", hexadecimal(&memory.offer().encode()));
        let mut command = process(name, &case);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start");
        let mut input = child.stdin.take().expect("stdin");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
        let mut wait_for = |step: &str| {
            let found = lines.by_ref().map_while(Result::ok).any(|line| line.ends_with(step));
            assert!(found, "{mechanism}: the second rank ended before \"{step}\"");
        };
        wait_for("step written");
        let last = (PAGES - 1, UNIT as usize - 1);
        assert_eq!((read(&view, 7, 101), read(&view, last.0, last.1)), (43, 44));
        assert_eq!(memory.word(PAGES - 1).expect("word").load(SeqCst), 1005);
        let mut twin = [0; 13];
        memory.read_twin(3, &mut twin).expect("twin");
        assert_eq!(&twin, b"\0\0\0\0\0\0\0\0\0twin");
        assert_eq!(collect(&view), [7..8], "only this rank's writes");
        write(&view, 7, 102, 45);
        writeln!(input, "go on").expect("the second rank reads");
        wait_for("step seen");
        writeln!(input, "end").expect("the second rank reads");
        assert!(child.wait().expect("it ends").success(), "{mechanism}");
    }
}

#[test]
fn offers_survive_their_encoding_and_other_bytes_are_none() {
    let offer =
        Offer { pid: 0xfedc_ba98, fds: [3, -1, i32::MAX], bytes: 1 << 45 | 1 << 12, unit: 1 << 16 };
    let encoded = offer.encode();
    assert_eq!(Offer::decode(&encoded), Ok(offer));
    assert!(Offer::decode(&encoded[1..]).is_err() && Offer::decode(&[]).is_err());
    let other = [b"KDM1", &encoded[4..]].concat();
    assert!(Offer::decode(&other).expect_err("another version").to_string().contains("version"));
}

/// A memory file of this test's, with these seals.
fn file(name: &std::ffi::CStr, bytes: u64, seals: i32) -> OwnedFd {
    // SAFETY: plain calls on a new descriptor.
    unsafe {
        let raw = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert_eq!(libc::ftruncate(raw, bytes as libc::off_t), 0);
        assert_eq!(libc::fcntl(raw, libc::F_ADD_SEALS, seals), 0);
        OwnedFd::from_raw_fd(raw)
    }
}

#[test]
fn an_offer_is_not_believed() {
    const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    let _alone = alone();
    let memory = memory(4 << 20, 4096);
    let right = memory.offer();
    NodeMemory::accept(right).expect("the memory as it is offered");
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    let unsealed = file(c"kumi-dsm-copy", 4 << 20, 0);
    let other_name = file(c"kumi-dsm-cope", 4 << 20, SEALS);
    let short = file(c"kumi-dsm-copy", 1 << 19, SEALS);
    let closed = file(c"kumi-dsm-copy", 4 << 20, SEALS | libc::F_SEAL_WRITE);
    let with_copy = |raw| Offer { fds: [raw, right.fds[1], right.fds[2]], ..right };
    let wrong = [
        (with_copy(right.fds[1]), "it has another name"),
        (with_copy(unsealed.as_raw_fd()), "its length is not sealed"),
        (with_copy(other_name.as_raw_fd()), "it has another name"),
        (with_copy(short.as_raw_fd()), "it has another length"),
        (with_copy(closed.as_raw_fd()), "it cannot be written"),
        (Offer { bytes: 8 << 20, ..right }, "it has another length"),
        (Offer { unit: 8192, ..right }, "it has another length"),
    ];
    for (offer, reason) in wrong {
        let error = NodeMemory::accept(offer).expect_err(reason);
        assert!(matches!(error, MemoryError::NotOffered { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let refused = NodeMemory::accept(with_copy(null.as_raw_fd())).expect_err("no memory");
    let text = refused.to_string();
    assert!(text.contains("no memory file") || text.contains("offered descriptor"), "{text}");
    let sizes = [
        Offer { bytes: 0, ..right },
        Offer { bytes: 4097, ..right },
        Offer { bytes: u64::MAX - 4095, ..right },
    ];
    for offer in sizes {
        assert!(matches!(NodeMemory::accept(offer), Err(MemoryError::Size { .. })), "{offer:?}");
    }
    for unit in [0, 1, 4095, 6144, 68 << 10, u32::MAX] {
        let refused = NodeMemory::accept(Offer { unit, ..right });
        assert!(matches!(refused, Err(MemoryError::Unit { .. })), "{unit}");
    }
    let nobody = Offer { pid: u32::MAX, ..right };
    assert!(NodeMemory::accept(nobody).expect_err("nobody").to_string().contains("same user"));
}

#[test]
fn its_length_is_final() {
    let _alone = alone();
    let memory = memory(1 << 20, 4096);
    for raw in memory.offer().fds {
        // SAFETY: a descriptor that is open as long as `memory` is.
        let cut = unsafe { [libc::ftruncate(raw, 2048), libc::ftruncate(raw, 1 << 30)] };
        assert_eq!(cut, [-1, -1]);
    }
}

#[test]
fn bytes_outside_of_a_page_are_refused() {
    let _alone = alone();
    let memory = memory(16 << 12, 4096);
    let last = usize::MAX;
    let refused = [
        memory.write(15, 4095, b"ab"),
        memory.write(16, 0, b""),
        memory.write(u64::MAX, 0, b"a"),
        memory.write(0, last, b"ab"),
        memory.write_twin(0, 4096, b"a"),
        memory.read_page(3, &mut [0; 4097]),
        memory.read_twin(16, &mut [0]),
        memory.page(16).map(drop),
        memory.twin(1 << 60).map(drop),
        memory.word(16).map(drop),
    ];
    for (at, result) in refused.into_iter().enumerate() {
        assert!(matches!(result, Err(MemoryError::Outside { .. })), "{at}: {result:?}");
    }
    memory.write(15, 4095, b"z").expect("the last byte");
    memory.word(15).expect("the last word").store(9, SeqCst);
    let mut page = [0; 4096];
    memory.read_page(15, &mut page).expect("the last page");
    assert_eq!((page[4094], page[4095]), (0, b'z'));
    memory.read_twin(15, &mut page).expect("its twin");
    assert_eq!(page, [0; 4096]);
}

#[test]
fn much_address_space_takes_no_memory() {
    let _alone = alone();
    let unit = UnitSize::new(4096).expect("unit");
    let memory = NodeMemory::create(1 << 40, unit).expect("a terabyte");
    assert_eq!(memory.pages(), 1 << 28);
    for page in [0, 1 << 27, (1 << 28) - 1] {
        memory.write(page, 7, b"here").expect("write");
        memory.word(page).expect("word").store(page, SeqCst);
    }
    for (raw, pages) in memory.offer().fds.into_iter().zip([3, 0, 3]) {
        let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the kernel fills the structure in, for which zeros are valid, too.
        let status = unsafe {
            assert_eq!(libc::fstat(raw, status.as_mut_ptr()), 0);
            status.assume_init()
        };
        assert_eq!(status.st_blocks * 512, pages * 4096);
    }
}
