//! Entry points of the fuzz targets, and tests with inputs from a seed: frames of a hostile rank, and
//! the memory of a FIFO that a hostile peer writes to.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::SeqCst;

use kumi_net::layout::ArenaKind;
use kumi_net::{Attachment, Delivery, Handler, SharedBytes};
use kumi_proto::frame::{
    Frame, GetList, MulticastAppend, MulticastAppendDone, Operation, PutList, ServiceMessage,
    Width, WindowKey,
};

use crate::engine::Engine;
use crate::fifo::queue::{ALIGNMENT, MARK_FIFO, MARK_SIGNAL, OVERHEAD, Queue, need};
use crate::service::{Outbox, Service};
use crate::window::key::RandomSource;
use crate::window::table::{Rights, WindowMemory};

/// Bytes of each window.
const WINDOW: usize = 1024;
/// Where the FIFO and the port are in the first, and their capacity.
const QUEUES: [(u64, u64, bool); 2] = [(256, 64, false), (576, 128, true)];
const BOUND: usize = 4_000;

/// Services of the rank, of which the last is gone.
const SERVICES: u16 = 3;

/// Sends what it gets to the rank that its first byte names. (A panic ends a fuzzer, though a service's is caught.)
struct Echo;

impl Service for Echo {
    fn message(&mut self, from: u32, message: &[u8], outbox: &mut Outbox) {
        // Also to ranks that there are not, which is refused.
        let to = message.first().map_or(from, |first| u32::from(*first) % 4);
        let _ = outbox.send(to, message.to_vec());
    }
}

/// The input, byte by byte; zeros when it is used up.
struct InputReader<'i>(&'i [u8]);

impl<'i> InputReader<'i> {
    fn next(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.next()))
    }

    /// Mostly a small number, sometimes any.
    fn number(&mut self) -> u64 {
        match self.next() {
            255 => self.u64(),
            254 => u64::MAX - u64::from(self.next()),
            200..=253 => 4 * u64::from(self.next()),
            small => u64::from(small) / 8,
        }
    }

    fn bit(&mut self) -> bool {
        self.next() % 2 == 1
    }

    fn data(&mut self, most: usize) -> &'i [u8] {
        let length = (usize::from(self.next()) % (most + 1)).min(self.0.len());
        let (data, rest) = self.0.split_at(length);
        self.0 = rest;
        data
    }
}

/// A list of pieces, and what a put has for them: mostly as many bytes as they have together.
fn pieces(input: &mut InputReader<'_>) -> (Vec<u8>, Vec<u8>) {
    let (mut list, mut bytes) = (Vec::new(), usize::from(input.next() == 255));
    for _ in 0..input.next() % 6 {
        let (distance, length) = (input.number() as u32, input.number() as u32);
        list.extend([distance.to_le_bytes(), length.to_le_bytes()].concat());
        bytes += length.min(50) as usize;
    }
    (list, vec![7; bytes])
}

/// Frames with a list of pieces, or for many ranks: mostly ones that there are.
fn list_frame(
    kind: u8,
    input: &mut InputReader<'_>,
    (window, offset): (WindowKey, u64),
) -> Vec<u8> {
    let (token, last, signal) = (input.number(), input.bit(), input.bit());
    let notify = input.bit().then(|| input.number() as u32);
    let (list, bytes) = pieces(input);
    let source = if last { 0 } else { input.number() as u32 };
    let refused = signal.then(|| (source, input.next()));
    let ranks =
        if input.bit() { vec![0; 4 * (usize::from(input.next()) % 11)] } else { list.clone() };
    let record = if kind == 0 { &[] } else { input.data(100) };
    let made = match kind {
        0 => Frame::PutList(PutList {
            token,
            last,
            window,
            offset,
            notify,
            pieces: &list,
            data: &bytes[..],
        }),
        1 => Frame::GetList(GetList { token, window, offset, pieces: &list }),
        2 => Frame::MulticastAppend(MulticastAppend {
            token,
            window,
            offset,
            signal,
            source,
            members: &ranks,
            data: record,
        }),
        _ => Frame::MulticastAppendDone(MulticastAppendDone { token, refused, full: &ranks }),
    };
    [&made.header(), made.list(), made.data()].concat()
}

/// A frame of any kind with such numbers; small ones for a window name one of these.
fn frame(input: &mut InputReader<'_>, windows: &[WindowMemory; 4]) -> Vec<u8> {
    let kind = input.next() % 24;
    let (token, offset, stride) = (input.number(), input.number(), input.number());
    let (number, last, wait) = (input.number(), input.bit(), input.bit());
    let window = windows.get(number as usize).map_or(number, |window| window.key);
    let (block, count) = (input.number() as u32, input.number() as u32);
    let notify = input.bit().then(|| input.number() as u32);
    let (operand, operand2) = (input.number(), input.number());
    let widths = [Width::Four, Width::Eight];
    let width = widths[usize::from(last)];
    let operations = [Operation::FetchAdd, Operation::Swap, Operation::CompareSwap];
    let operation = operations[usize::from(input.next() % 3)];
    let data = input.data(200);
    let made = match kind {
        0 => Frame::Message { tag: count, total: operand, data },
        1 => Frame::MessagePart { data },
        2 => Frame::Put { window, offset, notify, data },
        3 => Frame::GetRequest { token, window, offset, len: count },
        4 => Frame::GetReply { token, offset_in_request: count, data },
        5 => Frame::AtomicRequest { token, window, offset, operation, width, operand, operand2 },
        6 => Frame::AtomicReply { token, value: operand },
        7 => Frame::Refused { token, code: operand as u8 },
        8 => Frame::PutCounted { token, last, window, offset, notify, data },
        9 => Frame::PutDone { token },
        10 => Frame::PutStrided { token, last, window, offset, stride, block, notify, data },
        11 => Frame::GetStrided { token, window, offset, stride, block, count },
        12 => {
            let members = usize::from((data.len() as u16 / 8).min(operand as u16));
            let (members, data) = data.split_at(4 * members);
            Frame::Multicast { token, window, offset, notify, members, data }
        }
        13 => Frame::MulticastDone { token, refused: last.then_some((count, operand as u8)) },
        14 => Frame::Append { token, window, offset, wait, signal: last, data },
        15 => Frame::AppendReply { token, again: last },
        16..20 => return list_frame(kind - 16, input, (window, offset)),
        20 => Frame::Service(ServiceMessage { service: number as u16, total: count, data }),
        21 => Frame::ServicePart { data },
        // Bytes as they come, and a kind of frame with any length.
        22 => return data.to_vec(),
        _ => return [&[token as u8, 0, 0, 0], data].concat(),
    };
    [&made.header(), made.list(), made.data()].concat()
}

/// Windows of a rank alone, between bytes that nobody may write: one with all rights, a FIFO and a
/// port; one with the right to atomics only; one without rights; and one with all rights in the given
/// memory.
fn rank(lent: &mut [u64]) -> (Attachment, Engine, [WindowMemory; 4]) {
    let attachment = Attachment::singleton(1 << 20).expect("memory");
    let mut engine = Engine::new(BOUND, attachment.arena_bytes(), RandomSource::Seeded(5));
    let none = Rights { write: false, read: false, atomic: false };
    let rights = [Rights::ALL, Rights { atomic: true, ..none }, none];
    let [open, atomic, none] =
        rights.map(|rights| engine.windows.create(&attachment, WINDOW, rights).expect("room"));
    let own = lent.as_mut_ptr().cast();
    // SAFETY: the caller uses the memory only when the engine has gone.
    let own = unsafe { engine.windows.lend(&attachment, own, size_of_val(lent), Rights::ALL) };
    let pieces = [open, atomic, none, own.expect("a slot")];
    for piece in &pieces {
        engine.windows.know(piece.key, [piece.key].into());
    }
    for (offset, capacity, signal) in QUEUES {
        // SAFETY: inside of the first window, at a multiple of 64, with its capacity.
        let queue = unsafe { Queue::at(pieces[0].base.add(offset as usize), capacity) };
        queue.open(if signal { MARK_SIGNAL } else { MARK_FIFO }, 3);
        drop(engine.fifos.add((pieces[0].key, offset), queue, capacity, signal, 3).expect("free"));
    }
    // Of two ranks, of which the other one asks.
    engine.services.join(1, 2, Default::default());
    for _ in 0..SERVICES {
        engine.services.add(Box::new(Echo)).expect("a number");
    }
    engine.services.remove(SERVICES - 1);
    (attachment, engine, pieces)
}

/// Applies frames of a rank that keeps to no rule, for a rank with windows, a FIFO and a port. Checks:
/// no panic, answers that are frames, bounded memory, and no write where nobody may write. Returns how
/// many frames were no fault.
pub fn engine(input: &[u8]) -> usize {
    let mut input = InputReader(input);
    let mut lent = [GUARD; WINDOW / 8 + 2 * GUARDS];
    let (attachment, mut engine, pieces) = rank(&mut lent[GUARDS..][..WINDOW / 8]);
    let arena = attachment.open_arena(0);
    let private = attachment.own_arena(ArenaKind::Private).expect("made for a window");
    let (mut good, mut frames) = (0, 0);
    while !input.0.is_empty() && frames < 200 {
        frames += 1;
        let bytes = frame(&mut input, &pieces);
        // A job of one has no other ranks; its own number is as good.
        engine.fault = None;
        let delivery = engine.frame(&attachment, 0, &bytes[..]);
        good += usize::from(engine.fault.is_none() && delivery == Delivery::Taken);
        if input.next() % 4 > 0 {
            let mut room = usize::from(input.next());
            let mut send = |to, parts: &[&[u8]], data: SharedBytes<'_>| {
                assert_eq!(to, 0, "an answer goes to who asked");
                let answer = [parts.concat(), data.to_vec()].concat();
                assert!(answer.len() <= 200 && Frame::decode(&answer).is_ok(), "{answer:?}");
                let taken = room > 0;
                room = room.saturating_sub(1);
                Ok(taken)
            };
            engine.answer(200, &mut send).expect("sending does not fail here");
        }
        assert!(engine.answers.len() <= 4096);
    }
    // SAFETY: the arena is mapped and nobody else uses it; windows lie in its first pages.
    let memory = unsafe { std::slice::from_raw_parts(arena.as_ptr(), 16 * 4096) };
    let inside = |at: usize| {
        let address = arena.as_ptr() as usize + at;
        pieces[..2].iter().any(|piece| {
            let start = piece.base.as_ptr() as usize;
            (start..start + WINDOW).contains(&address)
        })
    };
    let wrong = memory.iter().enumerate().find(|(at, byte)| **byte != 0 && !inside(*at));
    assert_eq!(wrong, None, "written outside of the windows that may be written");
    // SAFETY: as above.
    let memory = unsafe { std::slice::from_raw_parts(private.as_ptr(), 16 * 4096) };
    assert!(memory.iter().all(|byte| *byte == 0), "written into a window without rights");
    drop(engine);
    let around = lent[..GUARDS].iter().chain(&lent[GUARDS + WINDOW / 8..]);
    assert!(around.into_iter().all(|word| *word == GUARD), "written outside of lent memory");
    good
}

const GUARD: u64 = 0x5a5a_5a5a_5a5a_5a5a;
/// Words before and behind lent memory.
const GUARDS: usize = 64;

/// A FIFO in memory that holds the input: positions, waiting ranks, records. Appends and takes then: errors or
/// records that fit, never a panic, nothing outside is touched.
pub fn queue(input: &[u8]) {
    let mut input = InputReader(input);
    let capacity = 8 * (2 + u64::from(input.next() % 38));
    let words = (OVERHEAD + capacity as usize) / 8;
    let mut memory = vec![GUARD; words + 2 * ALIGNMENT / 8];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    let base = NonNull::from(&mut memory[start]).cast();
    // SAFETY: aligned by `start`, and so many bytes are there until the end of this function.
    let queue = unsafe { Queue::at(base, capacity) };
    queue.open(MARK_FIFO, 5);
    let mut head = 8 * (input.number() % 64);
    while !input.0.is_empty() {
        match input.next() % 4 {
            0 => {
                // Behind mark and capacity, which are read only when a FIFO is looked for.
                let at = 8 + usize::from(input.next()) % (words - 8);
                let word = if input.bit() { input.u64() } else { input.number() };
                // SAFETY: inside of the queue, where others of the node may write too.
                unsafe { base.cast::<u64>().add(at).write_volatile(word) };
            }
            1 => {
                let record = input.data(100);
                let _ = (queue.push(1, record), queue.has_room(record.len()));
            }
            2 => {
                let _ = queue.take_waiting(usize::from(input.next() % 8));
                queue.positions().sleeping.store(0, SeqCst);
                queue.wake_taker();
            }
            _ => {
                if let Ok(Some(next)) = queue.peek(head, 8) {
                    assert!(next.from < 8 && need(next.length) <= capacity);
                    let mut data = vec![0; next.length];
                    head = queue.take(head, next, (&mut data[..]).into());
                }
            }
        }
    }
    let outside = memory[..start].iter().chain(&memory[start + words..]);
    assert!(outside.into_iter().all(|word| *word == GUARD), "written outside of the queue");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Frame, InputReader, WINDOW, frame, rank};

    /// Inputs that look random, the same in every run (splitmix64).
    fn inputs(mut seed: u64, count: usize, most: u64) -> impl Iterator<Item = Vec<u8>> {
        let mut next = move || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let input = move || (0..next() % most).map(|_| next() as u8).collect();
        std::iter::repeat_with(input).take(count)
    }

    #[test]
    fn frames_of_all_kinds_are_made() {
        let (attachment, _, pieces) = rank(&mut [0; WINDOW / 8]);
        let count = if cfg!(miri) { 100 } else { 4_000 };
        let made = inputs(3, count, 300).map(|input| frame(&mut InputReader(&input), &pieces));
        let good = made.filter(|bytes| Frame::decode(bytes).is_ok());
        let kinds = good.map(|bytes| bytes[0]).collect::<BTreeSet<_>>().len();
        assert!(kinds == 22 || cfg!(miri) && kinds > 10, "{kinds}");
        drop(attachment);
    }

    #[test]
    fn frames_of_a_hostile_rank() {
        let count = if cfg!(miri) { 4 } else { 400 };
        let good: usize = inputs(1, count, 3_000).map(|input| super::engine(&input)).sum();
        assert!(good > count * 5 / 2, "only {good} frames were no fault");
    }

    #[test]
    fn fifos_in_hostile_memory() {
        inputs(2, if cfg!(miri) { 20 } else { 4_000 }, 400).for_each(|input| super::queue(&input));
    }
}
