//! A rank's windows and their expected contents.

use kumi_mem::{Context, Fifo, OnPlacement, Op, Piece, Source, Strided, Tag, Window};
use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::script::{COUNTERS, Numbers, SLOT, STEPS, Step, pieces, steps};

/// Errors of the program.
pub type Done<T = ()> = Result<T, Box<dyn Error>>;

/// Bytes of the longest multicast.
const CAST: usize = 20_000;
/// Bytes of the FIFO and of the port; short, so that they are sometimes full.
const QUEUE: usize = 512;
const FIFO_NOTIFY: u32 = 0;
const PUT_NOTIFY: u32 = 1;
const CAST_NOTIFY: u32 = 2;
const DONE_NOTIFY: u32 = 3;

/// Offsets in each rank's piece of the window, after the slots.
#[derive(Clone, Copy)]
struct Places {
    counters: usize,
    cast: usize,
    fifo: usize,
    port: usize,
    end: usize,
}

impl Places {
    fn new(ranks: u32) -> Self {
        let counters = SLOT * ranks as usize;
        let cast = counters + COUNTERS * 8;
        let fifo = (cast + CAST).next_multiple_of(kumi_mem::FIFO_ALIGNMENT);
        let port = fifo + QUEUE + kumi_mem::FIFO_OVERHEAD;
        Self { counters, cast, fifo, port, end: port + QUEUE + kumi_mem::FIFO_OVERHEAD }
    }
}

/// Bytes of the window at each rank.
pub fn bytes(ranks: u32) -> usize {
    Places::new(ranks).end
}

/// The signals that the port's handler has seen: their number and their sum.
#[derive(Default)]
struct Signals(AtomicU64, AtomicU64);

/// Windows, expected contents, and progress of this rank; see the module.
pub struct State<'c> {
    context: &'c Context,
    seed: u64,
    places: Places,
    fifo: Option<Fifo<'c>>,
    window: &'c Window<'c>,
    signals: Arc<Signals>,
    /// Expected contents of the own piece's slots, and of the own slot at each rank.
    slots: Vec<u8>,
    elsewhere: Vec<Vec<u8>>,
    counters: [u64; COUNTERS],
    signalled: (u64, u64),
    notified: u64,
    casts: u64,
    /// Records that came before the check of their round.
    popped: Vec<(u32, Vec<u8>)>,
    steps: u64,
}

impl<'c> State<'c> {
    /// Makes FIFO and port in a window of [`bytes`]; all ranks call it.
    pub fn new(context: &'c Context, window: &'c Window<'c>, seed: u64) -> Done<Self> {
        let ranks = context.ranks();
        let places = Places::new(ranks);
        let signals = Arc::new(Signals::default());
        let seen = Arc::clone(&signals);
        window.on_signal(places.port, QUEUE, move |signal| {
            let value = signal.data.try_into().map_or(0, u64::from_le_bytes);
            seen.1.fetch_add(value.wrapping_add(u64::from(signal.from)), SeqCst);
            seen.0.fetch_add(1, SeqCst);
        })?;
        let fifo = Some(window.fifo(places.fifo, QUEUE, FIFO_NOTIFY)?);
        context.barrier()?;
        Ok(Self {
            context,
            seed,
            places,
            fifo,
            window,
            signals,
            slots: vec![0; SLOT * ranks as usize],
            elsewhere: vec![vec![0; SLOT]; ranks as usize],
            counters: [0; COUNTERS],
            signalled: (0, 0),
            notified: 0,
            casts: 0,
            popped: Vec::new(),
            steps: 0,
        })
    }

    /// Steps done so far by this rank.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Removes FIFO and port; all ranks call it.
    pub fn end(mut self) -> Done {
        self.context.barrier()?;
        self.fifo = None;
        self.window.remove_signal(self.places.port)?;
        Ok(())
    }

    /// Runs and checks one round.
    pub fn round(&mut self, round: u64) -> Done {
        let (me, ranks) = (self.context.rank(), self.context.ranks());
        let completion = self.context.completion()?;
        for (to, step) in steps(self.seed, round, me, ranks) {
            match step {
                Step::Put { offset, data, how } => {
                    let at = self.own_slot() + offset;
                    let after = match how {
                        0 => OnPlacement::default(),
                        1 => OnPlacement { notify: Some(PUT_NOTIFY), completion: None },
                        _ => OnPlacement { notify: None, completion: Some(&completion) },
                    };
                    self.window.put_with(to, at, &data, after)?;
                    self.elsewhere[to as usize][offset..offset + data.len()].copy_from_slice(&data);
                }
                other => self.perform(round, to, &other)?,
            }
        }
        self.steps += STEPS;
        completion.wait_all()?;
        drop(completion);
        self.context.flush_all()?;
        // A rank that has not finished its steps may wait for room in the FIFO here.
        for to in 0..ranks {
            self.window.put_notify(to, self.own_slot(), &[], DONE_NOTIFY)?;
        }
        while self.window.notified(DONE_NOTIFY)? < u64::from(ranks) * (round + 1) {
            if !self.pop()? {
                self.context.progress()?;
                std::thread::yield_now();
            }
        }
        self.together(round)?;
        self.check(round)?;
        self.context.barrier()?;
        Ok(())
    }

    fn own_slot(&self) -> usize {
        SLOT * self.context.rank() as usize
    }

    fn perform(&mut self, round: u64, to: u32, step: &Step) -> Done {
        match *step {
            Step::Put { .. } => {}
            Step::Strided { offset, stride, block, ref data } => {
                let count = data.len() / block;
                let shape = Strided { offset: self.own_slot() + offset, stride, block, count };
                self.window.put_strided(to, shape, data, OnPlacement::default())?;
                scatter(&mut self.elsewhere[to as usize], (offset, stride, block), data);
            }
            Step::Atomic { counter, operand } => {
                let at = self.places.counters + 8 * counter;
                match counter % 3 {
                    0 => drop(self.window.fetch_add(to, at, operand)?),
                    1 => drop(self.window.fetch_xor(to, at, operand)?),
                    _ => {
                        let mut seen = 0;
                        loop {
                            let found =
                                self.window.compare_swap(to, at, seen, seen.wrapping_add(1))?;
                            if found == seen {
                                break;
                            }
                            seen = found;
                        }
                    }
                }
            }
            Step::Append(ref record) => {
                // A rank with a full FIFO may also wait for this rank's FIFO.
                while !self.window.try_append(to, self.places.fifo, record)? {
                    self.pop()?;
                }
            }
            Step::Signal(value) => {
                self.window.signal(to, self.places.port, &value.to_le_bytes())?;
            }
            Step::Send(ref data) => self.context.send(to, tag(round), data)?,
            Step::List { ref pieces, ref data } => {
                let there = self.there(pieces);
                self.window.put_list(to, &there, data, OnPlacement::default())?;
                scatter_list(&mut self.elsewhere[to as usize], 0, pieces, data);
            }
            Step::AppendMany { ref record, .. } => {
                let mut left = step.members(to, self.context.ranks());
                while !left.is_empty() {
                    left = self.window.try_multicast_append(&left, self.places.fifo, record)?;
                    self.pop()?;
                }
            }
            Step::SignalMany { value, .. } => {
                let members = step.members(to, self.context.ranks());
                self.window.multicast_signal(&members, self.places.port, &value.to_le_bytes())?;
            }
        }
        Ok(())
    }

    /// Pieces of a slot as pieces of the own slot of the window.
    fn there(&self, pieces: &[(usize, usize)]) -> Vec<Piece> {
        let base = self.own_slot();
        pieces.iter().map(|&(at, length)| Piece { offset: base + at, length }).collect()
    }

    fn pop(&mut self) -> Done<bool> {
        let fifo = self.fifo.as_ref().ok_or("the FIFO is gone")?;
        let taken = fifo.try_pop_vec()?;
        let some = taken.is_some();
        self.popped.extend(taken);
        Ok(some)
    }

    /// Collectives with each rank as the root in turn, and checks of their results.
    fn together(&mut self, round: u64) -> Done {
        let (context, me, ranks) = (self.context, self.context.rank(), self.context.ranks());
        let root = u32::try_from(round % u64::from(ranks))?;
        let mut numbers = Numbers::of(self.seed, [round, u64::MAX]);
        let length = 1 + numbers.below(CAST);
        let data = numbers.bytes(length);
        if me == root {
            let all: Vec<u32> = (0..ranks).collect();
            self.window.multicast(&all, self.places.cast, &data, Some(CAST_NOTIFY))?;
        }
        self.casts += 1;
        self.window.wait_notify(CAST_NOTIFY, self.casts)?;
        let mut found = vec![0; data.len()];
        self.window.read(self.places.cast, &mut found)?;
        same("a multicast", round, found == data)?;
        let mut sent = if me == root { data.clone() } else { vec![0; data.len()] };
        context.broadcast(root, &mut sent)?;
        same("a broadcast", round, sent == data)?;
        let value = |from: u32, to: u32| round * 1_000_000 + u64::from(from * 1_000 + to);
        let mut sum = [value(me, 0); 5];
        context.allreduce(Op::Sum, &mut sum)?;
        same("a sum", round, sum == [(0..ranks).map(|rank| value(rank, 0)).sum(); 5])?;
        let send: Vec<u64> = (0..ranks).map(|to| value(me, to)).collect();
        let mut recv = vec![0; ranks as usize];
        context.alltoall(&send, &mut recv)?;
        same(
            "an all-to-all",
            round,
            recv == (0..ranks).map(|from| value(from, me)).collect::<Vec<_>>(),
        )?;
        if me != root {
            recv.clear();
        }
        context.gather(root, &send[..1], &mut recv)?;
        let right: Vec<u64> = (0..ranks).map(|from| value(from, 0)).collect();
        same("a gather", round, me != root || recv == right)
    }

    /// Compares the memory here with the operations that the others' scripts contain.
    fn check(&mut self, round: u64) -> Done {
        let (me, ranks) = (self.context.rank(), self.context.ranks());
        let mut records: Vec<VecDeque<Vec<u8>>> = vec![VecDeque::new(); ranks as usize];
        let mut count = 0;
        for from in 0..ranks {
            let all = steps(self.seed, round, from, ranks);
            for (_, step) in all.into_iter().filter(|(to, step)| step.reaches(*to, me)) {
                if let Step::Append(record) | Step::AppendMany { record, .. } = step {
                    records[from as usize].push_back(record);
                    count += 1;
                } else {
                    self.expect(round, from, step)?;
                }
            }
        }
        while self.popped.len() < count {
            self.pop()?;
        }
        for (from, record) in std::mem::take(&mut self.popped) {
            same("a FIFO", round, records[from as usize].pop_front() == Some(record))?;
        }
        while self.signals.0.load(SeqCst) < self.signalled.0 {
            self.context.progress()?;
            std::thread::yield_now();
        }
        let seen = (self.signals.0.load(SeqCst), self.signals.1.load(SeqCst));
        same("the signals", round, seen == self.signalled)?;
        let notified = self.window.notified(PUT_NOTIFY)?;
        same("notifications", round, notified == self.notified)?;
        let mut found = vec![0; self.slots.len()];
        self.window.read(0, &mut found)?;
        same("the own piece", round, found == self.slots)?;
        for (counter, right) in self.counters.iter().enumerate() {
            let found = self.window.load_u64(self.places.counters + 8 * counter)?;
            same("a counter", round, found == *right)?;
        }
        self.look_elsewhere(round)
    }

    /// Applies one step of another rank to the reference.
    fn expect(&mut self, round: u64, from: u32, step: Step) -> Done {
        let base = SLOT * from as usize;
        match step {
            Step::Put { offset, data, how } => {
                self.slots[base + offset..base + offset + data.len()].copy_from_slice(&data);
                self.notified += u64::from(how == 1);
            }
            Step::Strided { offset, stride, block, data } => {
                scatter(&mut self.slots, (base + offset, stride, block), &data);
            }
            Step::Atomic { counter, operand } => {
                let place = &mut self.counters[counter];
                *place = match counter % 3 {
                    0 => place.wrapping_add(operand),
                    1 => *place ^ operand,
                    _ => place.wrapping_add(1),
                };
            }
            Step::Append(_) | Step::AppendMany { .. } => {}
            Step::List { pieces, data } => scatter_list(&mut self.slots, base, &pieces, &data),
            Step::Signal(value) | Step::SignalMany { value, .. } => {
                self.signalled.0 += 1;
                let value = value.wrapping_add(u64::from(from));
                self.signalled.1 = self.signalled.1.wrapping_add(value);
            }
            Step::Send(data) => {
                let (_, found) = self.context.recv_vec(Source::Rank(from), Tag::Is(tag(round)))?;
                same("a message", round, found == data)?;
            }
        }
        Ok(())
    }

    /// Reads the own slot of another rank, whole and in pieces.
    fn look_elsewhere(&self, round: u64) -> Done {
        let (me, ranks) = (u64::from(self.context.rank()), u64::from(self.context.ranks()));
        let from = u32::try_from((me + round) % ranks)?;
        let right = &self.elsewhere[from as usize];
        let mut found = vec![0; SLOT];
        self.window.get(from, self.own_slot(), &mut found)?;
        same("what was got", round, found == *right)?;
        let (stride, block, count) = (257, 100, 90);
        let mut found = vec![0; block * count];
        let shape = Strided { offset: self.own_slot(), stride, block, count };
        self.window.get_strided(from, shape, &mut found)?;
        let blocks = (0..count).flat_map(|at| &right[at * stride..at * stride + block]);
        same("what was got in blocks", round, blocks.eq(&found))?;
        let list = pieces(&mut Numbers::of(self.seed, [round, u64::MAX - 1 - me]));
        let of = |&(at, length): &(usize, usize)| &right[at..at + length];
        let right = list.iter().map(of).collect::<Vec<_>>().concat();
        let mut found = vec![0; right.len()];
        self.window.get_list(from, &self.there(&list), &mut found)?;
        same("what was got of a list", round, found == right)
    }
}

fn tag(round: u64) -> i32 {
    i32::try_from(round % 1_000).unwrap_or(0)
}

fn scatter(into: &mut [u8], (offset, stride, block): (usize, usize, usize), data: &[u8]) {
    for (at, data) in data.chunks(block).enumerate() {
        let start = offset + at * stride;
        into[start..start + data.len()].copy_from_slice(data);
    }
}

fn scatter_list(into: &mut [u8], base: usize, pieces: &[(usize, usize)], data: &[u8]) {
    let mut rest = data;
    for &(at, length) in pieces {
        let (piece, behind) = rest.split_at(length);
        into[base + at..base + at + length].copy_from_slice(piece);
        rest = behind;
    }
}

fn same(what: &str, round: u64, same: bool) -> Done {
    if same {
        Ok(())
    } else {
        Err(format!("{what} of round {round} is not as it should be").into())
    }
}
