//! Services with reserved numbers between real processes: messages that leave at once, registered memory, transfers that a
//! service begins, and waits with an end in time.

mod common;

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::time::Duration;

use common::{Job, fewer, run, start};
use kumi_mem::{
    ArrivedMessage, Context, Error, Outbox, PutEnd, Refusal, RegisteredMemory, ReservedService,
    Rights, Service, ServiceHandle, SharedBytes, SharedBytesMut, Source, Tag,
};

const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1], &[3], &[2, 2]];
const NUMBER: ReservedService = ReservedService::TEST;

/// Memory that ranks share, by its address.
struct Memory(Vec<u64>);

impl Memory {
    fn new(bytes: usize) -> Memory {
        Memory(vec![0; bytes.div_ceil(8)])
    }

    fn shared(&mut self) -> SharedBytesMut<'static> {
        let start = NonNull::from(&mut self.0[..]).cast();
        // SAFETY: the vector stays where it is as long as the test uses this, and is looked at through this only.
        unsafe { SharedBytesMut::new(start, 8 * self.0.len()) }
    }
}

/// Private bytes, which nobody writes.
fn private(bytes: &[u8]) -> SharedBytes<'_> {
    // SAFETY: borrowed for the result's life, by a shared reference.
    unsafe { SharedBytes::new(NonNull::from(bytes).cast(), bytes.len()) }
}

/// Keeps what comes. Of a message in one frame it takes 16 bytes into private memory and the rest to where it belongs.
#[derive(Default)]
struct Endpoint {
    heads: VecDeque<(u32, Vec<u8>)>,
    place: Option<SharedBytesMut<'static>>,
    /// Messages in one frame, and in several.
    counts: [u64; 2],
    ended: Vec<(u64, Result<(), Error>)>,
}

impl Service for Endpoint {
    fn message(&mut self, from: u32, message: &[u8], _: &mut Outbox<'_>) {
        self.counts[1] += 1;
        self.heads.push_back((from, message.to_vec()));
    }

    fn arrived(&mut self, from: u32, message: &ArrivedMessage<'_>, _: &mut Outbox<'_>) -> bool {
        let mut head = [0; 16];
        let length = message.copy_prefix(&mut head);
        if head[0] == b'!' {
            return false;
        }
        if let Some(place) = self.place.filter(|_| message.len() > 16) {
            message.copy_to(16, place.slice(0, message.len() - 16));
        }
        self.counts[0] += 1;
        self.heads.push_back((from, head[..length].to_vec()));
        true
    }

    fn transferred(&mut self, token: u64, result: Result<(), Error>, _: &mut Outbox<'_>) {
        self.ended.push((token, result));
    }
}

type Handle<'c> = ServiceHandle<'c, Endpoint>;

fn serve(context: &Context) -> Handle<'_> {
    context.serve_locally(NUMBER, Endpoint::default()).expect("service")
}

fn receive(service: &Handle<'_>) -> (u32, Vec<u8>) {
    service.wait(&[], |endpoint, _| endpoint.heads.pop_front()).expect("a message")
}

/// Polls until a message is there.
fn poll(service: &Handle<'_>) -> (u32, Vec<u8>) {
    loop {
        let taken = service.poll_then(|endpoint, _| endpoint.heads.pop_front());
        if let Some(message) = taken.expect("service") {
            return message;
        }
    }
}

fn send(service: &Handle<'_>, to: u32, header: &[u8], payload: &[u8]) {
    while !service.try_send(to, header, private(payload)).expect("a service") {
        service.poll().expect("service");
    }
}

fn ends(service: &Handle<'_>, count: usize) -> Vec<(u64, Result<(), Error>)> {
    let ready = |endpoint: &mut Endpoint, _: &mut Outbox<'_>| {
        (endpoint.ended.len() >= count).then(|| std::mem::take(&mut endpoint.ended))
    };
    service.wait(&[], ready).expect("ends")
}

/// Tokens go round, by all ways of sending; each rank takes them by polls and by waits.
fn round(context: &Context) {
    let rounds = fewer(60, 4);
    let (me, ranks) = (context.rank(), context.ranks());
    let service = serve(context);
    let mut memory = Memory::new(512);
    let place = memory.shared();
    service.call(|endpoint, _| endpoint.place = Some(place)).expect("service");
    context.barrier().expect("barrier");
    let next = (me + 1) % ranks;
    let payload = |number: usize| vec![number as u8 + 1; number * 3 % 400];
    for number in 0..rounds {
        let header = (number as u64).to_be_bytes();
        let send_now = || match number % 2 {
            0 => send(&service, next, &header, &[&[0; 8][..], &payload(number)].concat()),
            _ => {
                let parts = [&header[..4], &header[4..], &[0; 8]];
                let sent = service
                    .call(|_, outbox| outbox.send_parts(next, &parts, private(&payload(number))));
                sent.expect("service").expect("sent");
            }
        };
        if me == 0 {
            send_now();
        }
        let (from, head) = if number % 3 == 0 { receive(&service) } else { poll(&service) };
        assert_eq!((from, &head[..8]), ((me + ranks - 1) % ranks, &header[..]));
        let rest = payload(number);
        let came = place.shared().slice(0, rest.len()).to_vec();
        assert_eq!(came, rest, "the payload of {number}");
        if me != 0 {
            send_now();
        }
    }
    let counts = service.call(|endpoint, _| endpoint.counts).expect("service");
    assert_eq!(counts, [rounds as u64, 0], "each came in one frame");
    context.barrier().expect("barrier");
}

#[test]
fn messages_are_taken_from_where_they_lie() {
    run("messages_are_taken_from_where_they_lie", LAYOUTS, round);
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn messages_are_taken_over_a_bad_wire() {
    let env: &[(&str, &str)] = &[("KUMI_FAULTS", "loss=30,double=30,late=20,seed=7")];
    let job = Job { layout: &[2, 1], env, ..Job::default() };
    start("messages_are_taken_over_a_bad_wire", &job, round).finish_on_a_bad_wire();
}

/// Long messages, those that the service does not take at once, and short ones behind them come in their order.
#[test]
fn long_messages_and_those_left_come_as_copies_in_order() {
    run("long_messages_and_those_left_come_as_copies_in_order", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let service = serve(context);
        let long = vec![b'l'; fewer(100_000, 9_000)];
        context.barrier().expect("barrier");
        for to in 0..ranks {
            let sent = service.call(|_, outbox| {
                outbox.send_parts(to, &[b"!left"], private(b"over"))?;
                outbox.send_parts(to, &[b"a", b"b"], private(&long))?;
                outbox.send(to, b"!old".to_vec())?;
                outbox.send_parts(to, &[&b"a"[..]; 9], SharedBytes::default())?;
                outbox.send_parts(to, &[b"last"], private(b""))
            });
            sent.expect("service").expect("sent");
        }
        let wanted: [Vec<u8>; 5] = [
            b"!leftover".to_vec(),
            [b"ab", &long[..]].concat(),
            b"!old".to_vec(),
            vec![b'a'; 9],
            b"last".to_vec(),
        ];
        let mut next = vec![0; ranks as usize];
        for _ in 0..5 * ranks {
            let (from, message) = receive(&service);
            let number = &mut next[from as usize];
            // To itself a long message is taken where it lies, too.
            let wanted = &wanted[*number];
            let length = if from == me { message.len() } else { wanted.len() };
            assert_eq!(message, wanted[..length], "{number} of rank {from}");
            *number += 1;
        }
        context.barrier().expect("barrier");
    });
}

/// Two ranks answer each other while both compute, and a flood finds an end.
#[test]
fn what_finds_no_room_is_refused_and_nothing_of_it_is_sent() {
    let layouts: &[&[u32]] = &[&[2], &[1, 1]];
    run("what_finds_no_room_is_refused_and_nothing_of_it_is_sent", layouts, |context| {
        let service = serve(context);
        let most = service.max_frame_payload().expect("bytes");
        context.barrier().expect("barrier");
        if context.rank() == 0 {
            let long = vec![1; most + 1];
            let result = service.try_send(1, &[], private(&long));
            let length = most + 1;
            assert!(
                matches!(&result, Err(Error::ServiceMessageTooLong { length: found, most: limit })
                    if (*found, *limit) == (length, most)),
                "{result:?}"
            );
            let result = service.try_send(2, &[], SharedBytes::default());
            assert!(matches!(result, Err(Error::BadRank { rank: 2, ranks: 2 })), "{result:?}");
            let mut sent = 0u64;
            let frame = &long[..most.min(1000) - 8];
            while service.try_send(1, &sent.to_le_bytes(), private(frame)).expect("service") {
                sent += 1;
                assert!(sent < 1 << 20, "no way is so long");
            }
            // Behind what is on its way. The number of frames tells the other what to expect.
            let end = [&b"end"[..], &[0; 5]].concat();
            let told = service.call(|_, outbox| {
                outbox.send_parts(1, &[&end, &sent.to_le_bytes()], SharedBytes::default())
            });
            told.expect("service").expect("queued");
            assert_eq!(receive(&service).1, b"all");
        } else {
            // Nobody takes anything before the other has found the way full: it is told when.
            for number in 0.. {
                let (from, head) = receive(&service);
                assert_eq!(from, 0);
                if head.starts_with(b"end") {
                    assert_eq!(head[8..], u64::to_le_bytes(number));
                    break;
                }
                assert_eq!(head[..8], u64::to_le_bytes(number), "in order, each once");
            }
            send(&service, 0, b"all", &[]);
        }
        context.barrier().expect("barrier");
    });
}

/// Rank 1 makes its service late: what came before waits, in a ring and with the sender. After its end messages are dropped.
#[test]
fn messages_wait_for_a_service_that_is_made_later_and_are_dropped_after_its_end() {
    let name = "messages_wait_for_a_service_that_is_made_later_and_are_dropped_after_its_end";
    run(name, &[&[2], &[1, 1]], |context| {
        if context.rank() == 0 {
            let service = serve(context);
            for number in 0..3u8 {
                send(&service, 1, &[number], b"early");
            }
            assert_eq!(receive(&service).1, b"taken");
            send(&service, 1, b"late", &[]);
            context.send(1, 5, b"behind").expect("send");
            assert_eq!(receive(&service).1, b"again");
            send(&service, 1, b"new", &[]);
        } else {
            // The first frames are refused now.
            for _ in 0..fewer(50, 5) {
                context.progress().expect("progress");
                std::thread::sleep(Duration::from_millis(1));
            }
            let service = serve(context);
            let second = context.serve_locally(NUMBER, Endpoint::default());
            assert!(matches!(second, Err(Error::ServiceTaken { service: 0xfff0 })), "{second:?}");
            for number in 0..3u8 {
                assert_eq!(receive(&service), (0, [&[number], &b"early"[..]].concat()));
            }
            send(&service, 0, b"taken", &[]);
            drop(service);
            let mut rest = [0; 6];
            context.recv(Source::Rank(0), Tag::Is(5), &mut rest).expect("behind what is dropped");
            let service = serve(context);
            send(&service, 0, b"again", &[]);
            assert_eq!(receive(&service).1, b"new", "the late one was dropped");
        }
    });
}

/// Says that a word has come, and answers each message while its program computes.
struct Answering(Arc<AtomicU64>);

impl Service for Answering {
    fn message(&mut self, _: u32, _: &[u8], _: &mut Outbox<'_>) {
        panic!("it takes all where they lie");
    }

    fn arrived(
        &mut self,
        from: u32,
        message: &ArrivedMessage<'_>,
        outbox: &mut Outbox<'_>,
    ) -> bool {
        let mut word = [0; 8];
        message.copy_prefix(&mut word);
        self.0.store(u64::from_le_bytes(word), Release);
        if from == answered(message) {
            outbox.send_parts(from, &[&word], private(b"answer")).expect("a rank");
        }
        true
    }
}

/// Who is to be answered.
fn answered(message: &ArrivedMessage<'_>) -> u32 {
    let mut bytes = [0xff; 12];
    message.copy_prefix(&mut bytes);
    u32::from_le_bytes(bytes[8..].try_into().expect("four bytes"))
}

#[test]
fn a_service_answers_while_its_program_computes() {
    let layouts: &[&[u32]] = &[&[2], &[1, 1]];
    run("a_service_answers_while_its_program_computes", layouts, |context| {
        let last = fewer(100, 3) as u64;
        let seen = Arc::new(AtomicU64::new(0));
        let service = context.serve_locally(NUMBER, Answering(Arc::clone(&seen)));
        let service = service.expect("service");
        context.barrier().expect("barrier");
        if context.rank() == 0 {
            // Computes until the other has had its answers.
            while seen.load(Acquire) != last {
                std::thread::yield_now();
            }
        }
        for number in (1..=last).filter(|_| context.rank() == 1) {
            let header = [&number.to_le_bytes()[..], &1u32.to_le_bytes()].concat();
            assert!(service.try_send(0, &header, SharedBytes::default()).expect("sent"));
            let answered = |_: &mut Answering, _: &mut Outbox<'_>| {
                (seen.load(Acquire) == number).then_some(())
            };
            service.wait(&[0], answered).expect("an answer");
        }
        context.barrier().expect("barrier");
    });
}

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
    let mut ended = ends(&service, 5 * ranks as usize);
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
    for (rank, at) in (0..ranks).flat_map(|rank| (0..words).map(move |at| (rank, at))) {
        assert_eq!(into.shared().load_u64(rank as usize * part + 8 * at), word(rank, at));
    }
    // Those that were only sent are in place after this.
    context.barrier().expect("barrier");
    send_to_all_and_wait(&service, context);
    for (rank, at) in (0..ranks).flat_map(|rank| (0..words).map(move |at| (rank, at))) {
        let found = target.1.shared().load_u64(rank as usize * part + 8 * at);
        assert_eq!(found, word(rank + 100, at));
    }
    source.end().expect("ended");
    drop(target);
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

#[test]
fn a_wait_ends_in_time_and_a_message_ends_it_earlier() {
    run("a_wait_ends_in_time_and_a_message_ends_it_earlier", LAYOUTS, |context| {
        let service = serve(context);
        let soon = Duration::from_millis(fewer(20, 2) as u64);
        let begun = context.time();
        let none = service.wait_for(soon, |endpoint, _| endpoint.heads.pop_front());
        assert!(none.expect("no error").is_none());
        assert!(context.time() - begun >= soon.as_secs_f64());
        context.barrier().expect("barrier");
        let next = (context.rank() + 1) % context.ranks();
        send(&service, next, b"one", &[]);
        let long = Duration::from_secs(1 << 40);
        let some = service.wait_for(long, |endpoint, _| endpoint.heads.pop_front());
        assert_eq!(some.expect("no error").expect("in time").1, b"one");
        let zero = service.wait_for(Duration::ZERO, |endpoint, _| endpoint.heads.pop_front());
        assert!(zero.expect("no error").is_none());
        context.barrier().expect("barrier");
    });
}

/// Threads that wait beside one that drives wait no longer than they say either.
#[test]
fn waits_of_several_threads_end_in_time() {
    run("waits_of_several_threads_end_in_time", &[&[1], &[2], &[1, 1]], |context| {
        let service = serve(context);
        std::thread::scope(|scope| {
            for time in [1, 5, 9] {
                let service = &service;
                scope.spawn(move || {
                    let none = service.wait_for(Duration::from_millis(time), |_, _| None::<()>);
                    assert!(none.expect("no error").is_none());
                });
            }
        });
        context.barrier().expect("barrier");
    });
}

/// A context and its service may be everywhere in a process, for ever.
#[test]
fn a_service_lives_as_long_as_its_process() {
    const fn anywhere<T: Send + Sync + 'static>() {}
    const {
        anywhere::<Context>();
        anywhere::<ServiceHandle<'static, Endpoint>>();
        anywhere::<RegisteredMemory<'static>>();
    }
    let context: &'static Context =
        Box::leak(Box::new(Context::init_singleton().expect("singleton")));
    let service: &'static Handle<'static> = Box::leak(Box::new(serve(context)));
    let sent = std::thread::spawn(|| service.try_send(0, b"to", private(b"self")));
    assert!(sent.join().expect("no panic").expect("sent"));
    assert_eq!(receive(service), (0, b"toself".to_vec()));
    let count = AtomicU64::new(0);
    service.call(|_, _| count.fetch_add(1, SeqCst)).expect("service");
    assert_eq!(count.into_inner(), 1);
}

/// The daemon's descriptors are taken over once.
#[test]
#[cfg_attr(miri, ignore = "ranks are threads here and join otherwise")]
fn a_process_joins_its_job_once() {
    run("a_process_joins_its_job_once", &[&[1]], |context| {
        let second = Context::init().expect_err("it has joined");
        let text = second.to_string();
        assert!(text.contains("already"), "{text}");
        assert_eq!(context.rank(), 0);
    });
}
