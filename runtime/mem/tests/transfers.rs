//! Transfers that services begin, and registered memory, between real processes.

mod common;
#[path = "common/endpoint.rs"]
mod endpoint;

use std::collections::VecDeque;

use common::{Job, fewer, run, start};
use endpoint::{Handle, Memory, NUMBER, ends, receive, send, serve};
use kumi_mem::{
    ArrivedMessage, Context, Error, Outbox, PutEnd, Refusal, RegisteredMemory, Rights, Service,
    SharedBytes, SharedBytesMut,
};

const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1], &[3], &[2, 2]];

fn key_of(memory: &RegisteredMemory<'_>) -> [u8; 8] {
    memory.key().to_le_bytes()
}

/// Each rank tells all others the key of its memory.
fn keys(service: &Handle<'_>, context: &Context, memory: &RegisteredMemory<'_>) -> Vec<u64> {
    let (me, ranks) = (context.rank(), context.ranks());
    context.barrier().expect("barrier");
    let mut keys = vec![memory.key(); ranks as usize];
    for to in (0..ranks).filter(|to| *to != me) {
        send(service, to, &key_of(memory), &[]);
    }
    for _ in 1..ranks {
        let (from, key) = receive(service);
        keys[from as usize] = u64::from_le_bytes(key.try_into().expect("a key"));
    }
    keys
}

fn word(rank: u32, at: usize) -> u64 {
    u64::from(rank) << 32 | at as u64
}

/// Of five transfers with each rank the first two are done, and the others refused, each for its reason.
fn expect_ends(service: &Handle<'_>, ranks: u32) {
    let mut ended = ends(service, 5 * ranks as usize);
    ended.sort_by_key(|(token, _)| *token);
    assert_eq!(ended.len(), 5 * ranks as usize);
    for (token, result) in &ended {
        let reason = match token / 100 {
            0 | 1 => {
                assert!(result.is_ok(), "{token}: {result:?}");
                continue;
            }
            2 => Refusal::Right,
            3 => Refusal::Bounds,
            _ => Refusal::Window,
        };
        let refused = matches!(result, Err(Error::Refused { rank, count: 1, reason: found })
            if u64::from(*rank) == token % 100 && *found == reason);
        assert!(refused, "{token}: {result:?}");
    }
}

/// Every rank reads from and writes to every rank, itself included.
fn transfers(context: &Context) {
    let words = fewer(40_000, 500);
    let (me, ranks) = (context.rank(), context.ranks());
    let service = serve(context);
    let (mut source, mut target) =
        (Memory::new(8 * words), Memory::new(8 * words * ranks as usize));
    let (mut into, mut data) = (Memory::new(8 * words * ranks as usize), Memory::new(8 * words));
    let [source, target, into, data] =
        [&mut source, &mut target, &mut into, &mut data].map(Memory::shared);
    for at in 0..words {
        source.store_u64(8 * at, word(me, at));
        data.store_u64(8 * at, word(me + 100, at));
    }
    // SAFETY: the memory stays until the registrations have ended, which end first.
    let source = unsafe { context.register(source, Rights { write: false, ..Rights::ALL }) };
    let source = source.expect("registered");
    // SAFETY: as above.
    let target = (unsafe { context.register(target, Rights::ALL) }.expect("registered"), target);
    let (sources, targets) = (keys(&service, context, &source), keys(&service, context, &target.0));
    let part = 8 * words;
    let begun = service.call(|_, outbox| {
        for rank in 0..ranks {
            let (number, place) = (u64::from(rank), rank as usize * part);
            let end = if rank % 2 == 0 { PutEnd::Placed } else { PutEnd::Sent };
            let (offset, key) = (u64::from(me) * part as u64, targets[rank as usize]);
            // SAFETY: the memory stays until all ends have been told.
            unsafe {
                outbox.get(rank, sources[rank as usize], 0, into.slice(place, part), number)?;
                outbox.put(rank, key, offset, data.shared(), number + 100, end)?;
                let few = into.slice(0, 16);
                outbox.put(
                    rank,
                    sources[rank as usize],
                    0,
                    few.shared(),
                    number + 200,
                    PutEnd::Placed,
                )?;
                outbox.get(
                    rank,
                    sources[rank as usize],
                    part as u64,
                    into.slice(0, 8),
                    number + 300,
                )?;
                outbox.get(rank, 1 | 3 << 8, 0, into.slice(0, 0), number + 400)?;
            }
        }
        Ok::<(), Error>(())
    });
    begun.expect("service").expect("begun");
    expect_ends(&service, ranks);
    expect_words(into, ranks, word);
    // Those that were only sent are in place after this.
    context.barrier().expect("barrier");
    send_to_all_and_wait(&service, context);
    expect_words(target.1, ranks, |rank, at| word(rank + 100, at));
    source.end().expect("ended");
    drop(target);
}

/// Each rank's part of the memory has its words.
fn expect_words(memory: SharedBytesMut<'_>, ranks: u32, word: impl Fn(u32, usize) -> u64) {
    let words = memory.len() / 8 / ranks as usize;
    for rank in 0..ranks {
        for at in 0..words {
            let found = memory.shared().load_u64(8 * (rank as usize * words + at));
            assert_eq!(found, word(rank, at), "word {at} of rank {rank}");
        }
    }
}

/// A message behind the puts of each rank.
fn send_to_all_and_wait(service: &Handle<'_>, context: &Context) {
    let (me, ranks) = (context.rank(), context.ranks());
    let others = || (0..ranks).filter(move |to| *to != me);
    others().for_each(|to| send(service, to, b"behind", &[]));
    others().for_each(|_| assert_eq!(receive(service).1, b"behind"));
    context.barrier().expect("barrier");
}

#[test]
fn a_service_reads_and_writes_registered_memory() {
    run("a_service_reads_and_writes_registered_memory", LAYOUTS, transfers);
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn a_service_reads_and_writes_over_a_bad_wire() {
    let env: &[(&str, &str)] = &[("KUMI_FAULTS", "loss=30,double=30,late=20,seed=3")];
    let job = Job { layout: &[2, 1], env, ..Job::default() };
    start("a_service_reads_and_writes_over_a_bad_wire", &job, transfers).finish_on_a_bad_wire();
}

/// Rendezvous: a message names memory, its receiver's service reads it, and tells its sender, which ends the registration.
#[derive(Default)]
struct Rendezvous {
    into: Option<SharedBytesMut<'static>>,
    under_way: VecDeque<(u32, [u8; 8])>,
    done: u64,
    freed: u64,
}

impl Service for Rendezvous {
    fn message(&mut self, _: u32, _: &[u8], _: &mut Outbox<'_>) {
        panic!("all messages are short");
    }

    fn arrived(
        &mut self,
        from: u32,
        message: &ArrivedMessage<'_>,
        outbox: &mut Outbox<'_>,
    ) -> bool {
        let mut words = [0; 17];
        let length = message.copy_prefix(&mut words);
        let key: [u8; 8] = words[..8].try_into().expect("eight bytes");
        if length == 8 {
            assert!(outbox.deregister(u64::from_le_bytes(key)), "it was there");
            self.freed += 1;
            return true;
        }
        let (place, bytes) = (usize::from(words[16]), words[8..16].try_into().expect("eight"));
        let bytes = u64::from_le_bytes(bytes) as usize;
        let into = self.into.expect("a place").slice(place * bytes, bytes);
        self.under_way.push_back((from, key));
        // SAFETY: the place stays as long as the service.
        unsafe { outbox.get(from, u64::from_le_bytes(key), 0, into, place as u64) }.expect("begun");
        true
    }

    fn transferred(&mut self, _: u64, result: Result<(), Error>, outbox: &mut Outbox<'_>) {
        result.expect("allowed");
        // Those of one rank end in their order.
        let (from, key) = self.under_way.pop_front().expect("one was under way");
        outbox.send_parts(from, &[&key], SharedBytes::default()).expect("a rank");
        self.done += 1;
    }
}

#[test]
fn services_move_long_data_between_themselves() {
    let layouts: &[&[u32]] = &[&[2], &[1, 1]];
    run("services_move_long_data_between_themselves", layouts, |context| {
        let (bytes, count) = (fewer(300_000, 4_000), 4);
        let reader = Rights { write: false, read: true, atomic: false };
        let mut memory = Memory::new(bytes * count);
        let memory = memory.shared();
        let into = (context.rank() == 1).then_some(memory);
        let service = context.serve_locally(NUMBER, Rendezvous { into, ..Rendezvous::default() });
        let service = service.expect("service");
        if context.rank() == 0 {
            for at in 0..bytes * count / 8 {
                memory.store_u64(8 * at, word(7, at));
            }
            let offered = service.call(|_, outbox| {
                for place in 0..count {
                    let part = memory.slice(place * bytes, bytes);
                    // SAFETY: it stays until the other has read it and the registration has ended.
                    let key = unsafe { outbox.register(part, reader) }?;
                    let bytes = (bytes as u64).to_le_bytes();
                    let parts = [&key.to_le_bytes()[..], &bytes, &[place as u8]];
                    outbox.send_parts(1, &parts, SharedBytes::default())?;
                }
                Ok::<(), Error>(())
            });
            offered.expect("service").expect("offered");
            let freed = |service: &mut Rendezvous, _: &mut Outbox<'_>| {
                (service.freed == count as u64).then_some(())
            };
            service.wait(&[1], freed).expect("all are read");
        } else {
            let done = |service: &mut Rendezvous, _: &mut Outbox<'_>| {
                (service.done == count as u64).then_some(())
            };
            service.wait(&[0], done).expect("all are here");
            for at in 0..bytes * count / 8 {
                assert_eq!(memory.shared().load_u64(8 * at), word(7, at));
            }
        }
        context.barrier().expect("barrier");
    });
}

#[test]
fn what_is_no_longer_registered_is_refused() {
    let layouts: &[&[u32]] = &[&[1], &[2], &[1, 1]];
    run("what_is_no_longer_registered_is_refused", layouts, |context| {
        let service = serve(context);
        let mut memory = Memory::new(64);
        let memory = memory.shared();
        // SAFETY: the memory stays until the end of the test.
        let registered = unsafe { context.register(memory, Rights::ALL) }.expect("registered");
        let keys = keys(&service, context, &registered);
        drop(registered);
        context.barrier().expect("barrier");
        let next = (context.rank() + 1) % context.ranks();
        let mut into = Memory::new(8);
        let into = into.shared();
        // SAFETY: it stays until the end is told.
        let begun =
            service.call(|_, outbox| unsafe { outbox.get(next, keys[next as usize], 0, into, 9) });
        begun.expect("service").expect("begun");
        let ended = ends(&service, 1);
        assert!(
            matches!(ended[..], [(9, Err(Error::Refused { reason: Refusal::Window, .. }))]),
            "{ended:?}"
        );
        context.barrier().expect("barrier");
    });
}

/// A service that goes gives the memory of its transfers back.
#[test]
fn a_service_that_is_gone_is_told_nothing() {
    let layouts: &[&[u32]] = &[&[2], &[1, 1]];
    run("a_service_that_is_gone_is_told_nothing", layouts, |context| {
        let service = serve(context);
        let mut memory = Memory::new(fewer(100_000, 4_000));
        let memory = memory.shared();
        // SAFETY: the memory stays until the end of the test.
        let registered = unsafe { context.register(memory, Rights::ALL) }.expect("registered");
        let keys = keys(&service, context, &registered);
        let other = 1 - context.rank();
        let mut into = vec![0u8; memory.len()];
        let place = SharedBytesMut::from(&mut into[..]);
        let begun = service.call(|_, outbox| {
            // SAFETY: it stays until the service is gone.
            unsafe {
                outbox.get(other, keys[other as usize], 0, place, 1)?;
                outbox.put(other, keys[other as usize], 0, place.shared(), 2, PutEnd::Placed)
            }
        });
        begun.expect("service").expect("begun");
        drop(service);
        assert!(!context.lends(into.as_ptr(), into.len()));
        drop(into);
        context.barrier().expect("barrier");
        context.flush_all().expect("nothing was refused");
        context.barrier().expect("barrier");
    });
}

/// Of two transfers with tokens of their own the released one ends at once, and only the other one is told.
#[test]
fn a_released_transfer_gives_its_memory_back() {
    let layouts: &[&[u32]] = &[&[1], &[2], &[1, 1]];
    run("a_released_transfer_gives_its_memory_back", layouts, |context| {
        let service = serve(context);
        let mut memory = Memory::new(fewer(100_000, 4_000));
        let memory = memory.shared();
        (0..memory.len() / 8).for_each(|at| memory.store_u64(8 * at, 7));
        // SAFETY: the memory stays until the end of the test.
        let registered = unsafe { context.register(memory, Rights::ALL) }.expect("registered");
        let keys = keys(&service, context, &registered);
        let other = (context.rank() + 1) % context.ranks();
        let key = keys[other as usize];
        let (mut given_back, mut kept) = (vec![0_u8; memory.len()], vec![0_u8; memory.len()]);
        let [first, second] =
            [&mut given_back, &mut kept].map(|into| SharedBytesMut::from(&mut into[..]));
        let begun = service.call(|_, outbox| {
            // SAFETY: the first is released in this call, and the end of the second is told.
            unsafe {
                outbox.get(other, key, 0, first, 1)?;
                outbox.get(other, key, 0, second, 2)?;
            }
            outbox.release(1);
            Ok::<(), Error>(())
        });
        begun.expect("service").expect("begun");
        assert!(!context.lends(given_back.as_ptr(), given_back.len()));
        let alone = other == context.rank();
        given_back.fill(0);
        let ended = ends(&service, 1);
        assert!(matches!(ended[..], [(2, Ok(()))]), "{ended:?}");
        assert!(given_back.iter().all(|byte| *byte == 0), "alone: {alone}");
        assert!(kept.as_chunks().0.iter().all(|word| u64::from_ne_bytes(*word) == 7));
        context.barrier().expect("barrier");
    });
}
