//! Random programs of requests, against a reference, on a good wire and on a bad one; and what memory requests use.

mod common;

use common::{Job, Numbers, fewer, run, start};
use kumi_mem::{
    Atomic, Completion, Context, Error, Outcome, PutEnd, PutOptions, Report, RequestHandle,
    SharedBytes, SharedBytesMut, Source, Tag, Window,
};

const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1], &[2, 1, 2]];

/// The bytes of a slice, for requests by address.
fn shared(data: &[u8]) -> SharedBytes<'_> {
    // SAFETY: only read; the tests keep it until the request is over.
    unsafe { SharedBytes::new(std::ptr::NonNull::from(data).cast(), data.len()) }
}

/// Random programs on all ranks, against what must come of them.
fn random_programs(context: &Context) {
    let window = context.window(PART * context.ranks() as usize).expect("window");
    let completion = context.completion().expect("completion");
    for seed in 0..fewer(4, 2) as u64 {
        random_program(context, &window, &completion, seed);
    }
}

#[test]
fn random_programs_do_what_a_reference_does() {
    run("random_programs_do_what_a_reference_does", LAYOUTS, random_programs);
}

/// The wire loses and doubles packets.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn random_programs_do_the_same_over_a_bad_wire() {
    let name = "random_programs_do_the_same_over_a_bad_wire";
    let env: &[(&str, &str)] = &[("KUMI_FAULTS", "loss=50,double=50,late=20,seed=3")];
    let layout = &[1, 1, 1];
    start(name, &Job { layout, env, ..Job::default() }, random_programs).finish_on_a_bad_wire();
}

/// Bytes of a rank's part of each window.
const PART: usize = 512;

/// A rank's part of the window at another, as it must be, and what was begun and not waited for.
struct Program<'c> {
    context: &'c Context,
    window: &'c Window<'c>,
    parts: Vec<Vec<u8>>,
    begun: Vec<(RequestHandle, Expected)>,
    /// Puts that a counter tells of, with their data: their handles are spent when they end.
    counted: Vec<(RequestHandle, Vec<u8>)>,
    base: usize,
}

enum Expected {
    Done(Vec<u8>),
    /// Found, right, where; cleared when something later is written there, which may be found too.
    Bytes(Box<[u8]>, Vec<u8>, Option<(u32, std::ops::Range<usize>)>),
    Value(u64),
}

impl Program<'_> {
    fn step(&mut self, numbers: &mut Numbers, completion: &Completion<'_>) {
        let to = numbers.below(self.parts.len() as u64) as u32;
        let length = numbers.below(PART as u64 / 2) as usize;
        let offset = numbers.below((PART - length) as u64) as usize;
        let part = &mut self.parts[to as usize];
        match numbers.below(4) {
            0 => {
                let data: Vec<u8> = (0..length).map(|_| numbers.next() as u8).collect();
                part[offset..offset + length].copy_from_slice(&data);
                self.writes(to, &(offset..offset + length));
                let end = if numbers.below(2) == 0 { PutEnd::Sent } else { PutEnd::Placed };
                let counted = numbers.below(3) == 0;
                let report = if counted { Report::Counter(completion) } else { Report::Handle };
                let options = PutOptions { notify: None, end, report };
                // SAFETY: kept until the request has been waited for; those that are counted too.
                let handle = unsafe {
                    self.window.start_put(to, self.base + offset, shared(&data), options)
                };
                let handle = handle.expect("begun");
                match counted {
                    true => self.counted.push((handle, data)),
                    false => self.begun.push((handle, Expected::Done(data))),
                }
            }
            1 => {
                let expected = part[offset..offset + length].to_vec();
                let mut into = vec![0; length].into_boxed_slice();
                // SAFETY: as above; used by its address only until then.
                let handle = unsafe {
                    let into =
                        SharedBytesMut::new(std::ptr::NonNull::from(&mut into[..]).cast(), length);
                    self.window.start_get(to, self.base + offset, into, Report::Handle)
                };
                let place = Some((to, offset..offset + length));
                self.begun.push((handle.expect("begun"), Expected::Bytes(into, expected, place)));
            }
            2 => {
                let at = offset / 8 * 8;
                let word: &mut [u8] = &mut part[at..at + 8];
                let before = u64::from_ne_bytes(word.try_into().expect("eight"));
                let add = numbers.next();
                word.copy_from_slice(&before.wrapping_add(add).to_ne_bytes());
                self.writes(to, &(at..at + 8));
                let atomic = Atomic::Add64(add);
                let handle = self.window.start_atomic(to, self.base + at, atomic, Report::Handle);
                self.begun.push((handle.expect("begun"), Expected::Value(before)));
            }
            _ => self.wait_for_some(numbers),
        }
    }

    /// Gets that are under way may find what is written now.
    fn writes(&mut self, to: u32, range: &std::ops::Range<usize>) {
        for (_, expected) in &mut self.begun {
            if let Expected::Bytes(_, _, place) = expected
                && place.as_ref().is_some_and(|(rank, read)| {
                    *rank == to && read.start < range.end && range.start < read.end
                })
            {
                *place = None;
            }
        }
    }

    /// Waits for one, in one of many ways.
    fn wait_for_some(&mut self, numbers: &mut Numbers) {
        let live: Vec<_> = self.begun.iter().map(|one| one.0).collect();
        if live.is_empty() {
            return;
        }
        let one = live[numbers.below(live.len() as u64) as usize];
        match numbers.below(4) {
            0 => {
                let result = self.context.wait(one);
                self.check(one, result);
            }
            1 => {
                let (index, result) = self.context.wait_any(&live).expect("any");
                self.check(live[index], result);
            }
            2 => {
                for (index, result) in self.context.wait_some(&live).expect("some") {
                    self.check(live[index], result);
                }
            }
            _ => {
                let index = self.context.ready_any(&live).expect("ready");
                let result = self.context.test(live[index]).transpose().expect("over");
                self.check(live[index], result);
            }
        }
    }

    fn check(&mut self, handle: RequestHandle, result: Result<Outcome, Error>) {
        let at = self.begun.iter().position(|one| one.0 == handle).expect("begun");
        match (self.begun.swap_remove(at).1, result.expect("ended well")) {
            (Expected::Done(data), Outcome::Done) => drop(data),
            (Expected::Bytes(_, _, None), Outcome::Done) => {}
            (Expected::Bytes(found, right, _), Outcome::Done) => assert_eq!(found[..], right),
            (Expected::Value(right), Outcome::Value(found)) => assert_eq!(found, right),
            (_, outcome) => panic!("{outcome:?}"),
        }
    }
}

fn random_program(context: &Context, window: &Window<'_>, completion: &Completion<'_>, seed: u64) {
    let (me, ranks) = (context.rank(), context.ranks());
    let base = PART * me as usize;
    let mut parts = Vec::new();
    for to in 0..ranks {
        let mut part = vec![0; PART];
        window.get(to, base, &mut part).expect("get");
        parts.push(part);
    }
    let mut program =
        Program { context, window, parts, begun: Vec::new(), counted: Vec::new(), base };
    let mut numbers = Numbers(seed * 1000 + u64::from(me));
    for _ in 0..if cfg!(miri) { 15 } else { 300 } {
        program.step(&mut numbers, completion);
    }
    completion.wait_all().expect("all that are counted");
    for (handle, _) in program.counted.drain(..) {
        assert!(matches!(context.test(handle), Err(Error::StaleRequest { .. })), "spent");
    }
    let rest: Vec<_> = program.begun.iter().map(|one| one.0).collect();
    let ended = context.wait_all(&rest).expect("all");
    for (handle, result) in rest.into_iter().zip(ended) {
        program.check(handle, result);
    }
    context.flush_all().expect("flush");
    for to in 0..ranks {
        let mut part = vec![0; PART];
        window.get(to, base, &mut part).expect("get");
        assert!(part == program.parts[to as usize], "the part at rank {to}");
    }
    context.barrier().expect("barrier");
}

/// The library says what memory its requests use, whatever they do.
#[test]
#[cfg_attr(miri, ignore = "sends megabytes")]
fn memory_is_lent_until_its_request_is_over() {
    let body = |context: &Context| {
        let window = context.window(4096).expect("window");
        match context.rank() {
            0 => {
                let (long, mut memory) = (vec![1; 8 << 20], vec![0; 256]);
                let memory = SharedBytesMut::from(&mut memory[..]);
                let place = |at| memory.slice(at, 16);
                let (put, report) = (PutOptions::default(), Report::Handle);
                // Rank 1 does not take the message yet, and what follows waits behind it.
                // SAFETY: all memory stays until the requests are over.
                let begun = unsafe {
                    [
                        context.start_send(1, 1, shared(&long), report),
                        window.start_put(1, 0, place(0).shared(), put),
                        window.start_get(1, 0, place(64), report),
                        context.start_receive(Source::Rank(2), Tag::Is(2), place(128), report),
                    ]
                };
                let begun = begun.map(|request| request.expect("begun"));
                let lends =
                    |at: usize, length| context.lends(memory.as_ptr().wrapping_add(at), length);
                let all = |lent| {
                    assert_eq!(context.lends(long.as_ptr(), 1), lent);
                    for at in [0, 64, 128] {
                        assert_eq!((lends(at, 1), lends(at + 15, 9)), (lent, lent), "{at}");
                        assert!(!lends(at + 16, 48) && !lends(at + 1, 0));
                    }
                };
                all(true);
                context.send(2, 3, &[]).expect("send");
                for ended in context.wait_all(&begun).expect("all") {
                    ended.expect("done");
                }
                all(false);
            }
            1 => {
                context.recv(Source::Rank(2), Tag::Is(4), &mut []).expect("receive");
                context.recv_vec(Source::Rank(0), Tag::Is(1)).expect("receive");
            }
            _ => {
                context.recv(Source::Rank(0), Tag::Is(3), &mut []).expect("receive");
                context.send(0, 2, &[7; 16]).expect("send");
                context.send(1, 4, &[]).expect("send");
            }
        }
        context.barrier().expect("barrier");
    };
    let env = &[("KUMI_UNEXPECTED_BYTES", "65536")];
    let job = Job { layout: &[1, 1, 1], env, ..Job::default() };
    start("memory_is_lent_until_its_request_is_over", &job, body).finish();
}
