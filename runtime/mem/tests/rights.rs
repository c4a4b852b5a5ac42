//! Rights in windows between ranks of a node, of which the kernel keeps what it can.

mod common;

use std::sync::mpsc::channel;

use common::run;
use kumi_mem::{Context, Error, Refusal, Rights};

const READER: Rights = Rights { write: false, read: true, atomic: false };
const NONE: Rights = Rights { read: false, ..READER };

/// Where this process has mapped memory files of this name, and whether for writing.
fn maps(name: &str) -> Vec<(usize, bool)> {
    let text = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let found = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let start = words.next()?.split('-').next()?;
        let writable = words.next()?.as_bytes()[1] == b'w';
        let path = words.nth(3)?.strip_prefix("/memfd:")?;
        path.starts_with(name).then_some((usize::from_str_radix(start, 16).ok()?, writable))
    });
    found.collect()
}

/// The signal that ends a child of this process which writes there.
fn fate_of_a_writer(place: *mut u8) -> i32 {
    // SAFETY: the child only writes one byte and ends; it takes no lock.
    unsafe {
        match libc::fork() {
            0 => {
                place.write_volatile(9);
                libc::_exit(0)
            }
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child, "fork and waitpid");
                if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "mappings of the system")]
fn a_rank_cannot_write_what_it_may_only_read() {
    run("a_rank_cannot_write_what_it_may_only_read", &[&[2]], |context: &Context| {
        let (me, other) = (context.rank(), 1 - context.rank());
        let window = context.window_with(4096, READER).expect("window");
        window.write(0, &[me as u8 + 1; 4096]).expect("the own piece");
        context.barrier().expect("barrier");
        let others: Vec<_> = maps("kumi-segment").into_iter().filter(|(_, write)| !write).collect();
        assert_eq!(others.len(), 3, "job file, the peer's rank file and its arena file");
        for (place, _) in others {
            let place = place as *mut u8;
            // SAFETY: a page of the segment, to which this program has no reference.
            let changed =
                unsafe { libc::mprotect(place.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) };
            let reason = std::io::Error::last_os_error().raw_os_error();
            assert_eq!((changed, reason), (-1, Some(libc::EACCES)));
            assert_eq!(fate_of_a_writer(place), libc::SIGSEGV);
        }
        assert!(matches!(window.put(other, 0, &[9]), Err(Error::NoRight { .. })));
        assert!(matches!(window.fetch_add(other, 0, 1), Err(Error::NoRight { .. })));
        let mut seen = [0; 4096];
        window.get(other, 0, &mut seen).expect("it may read");
        assert_eq!(seen, [other as u8 + 1; 4096]);
        context.barrier().expect("barrier");
        window.read(0, &mut seen).expect("the own piece");
        assert_eq!(seen, [me as u8 + 1; 4096], "nothing was written");
    });
}

#[test]
fn without_rights_nothing_is_mapped_and_all_is_refused() {
    let name = "without_rights_nothing_is_mapped_and_all_is_refused";
    run(name, &[&[2], &[1, 1]], |context: &Context| {
        let other = 1 - context.rank();
        let window = context.window_with(4096, NONE).expect("window");
        window.write(0, &[7; 64]).expect("the own piece");
        context.barrier().expect("barrier");
        if !cfg!(miri) {
            assert_eq!(maps("kumi-private").len(), 1, "that of the own piece");
        }
        assert!(matches!(window.get(other, 0, &mut [0; 8]), Err(Error::NoRight { .. })));
        assert!(matches!(window.fetch_add(other, 0, 1), Err(Error::NoRight { .. })));
        window.put(other, 0, &[9; 8]).expect("refused later");
        let flush = context.flush(other);
        let refused = matches!(flush, Err(Error::Refused { reason: Refusal::Right, .. }));
        assert!(refused, "{flush:?}");
        context.barrier().expect("barrier");
        let mut seen = [0; 64];
        window.read(0, &mut seen).expect("the own piece");
        assert_eq!(seen, [7; 64], "nothing was written");
        drop(window);
        let again = context.window_with(4096, NONE).expect("window");
        again.read(0, &mut seen).expect("the own piece");
        assert_eq!(seen, [0; 64], "its memory was given back");
    });
}

/// Records get there although their senders cannot write there.
#[test]
fn fifos_and_ports_in_memory_that_others_may_only_read() {
    let name = "fifos_and_ports_in_memory_that_others_may_only_read";
    run(name, &[&[3], &[2, 1]], |context: &Context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let next = (me + 1) % ranks;
        let before = (me + ranks - 1) % ranks;
        let window = context.window_with(8192, READER).expect("window");
        let fifo = window.fifo(0, 1024, 0).expect("fifo");
        let (told, heard) = channel();
        let handler = move |signal: kumi_mem::Signal<'_>| {
            told.send((signal.from, signal.data.to_vec())).expect("it is heard");
        };
        window.on_signal(4096, 1024, handler).expect("port");
        context.barrier().expect("barrier");
        let all: Vec<u32> = (0..ranks).collect();
        window.append(next, 0, b"one").expect("append");
        window.multicast_append(&all, 0, b"all").expect("append");
        window.signal(next, 4096, b"signal").expect("signal");
        let mut records: Vec<_> = (0..=ranks).map(|_| fifo.pop_vec().expect("a record")).collect();
        // Stable: records of one sender stay in their order.
        records.sort_by_key(|record| record.0);
        let mut expected = Vec::new();
        for from in 0..ranks {
            expected.extend((from == before).then(|| (from, b"one".to_vec())));
            expected.push((from, b"all".to_vec()));
        }
        assert_eq!(records, expected);
        assert_eq!(heard.recv().expect("handled"), (before, b"signal".to_vec()));
        context.barrier().expect("barrier");
    });
}
