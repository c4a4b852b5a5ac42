//! Output of ranks, and its copies at heads that wait: the real [`Copies`], and logs as heads have them on their disks.
//!
//! What a node was told that is kept is in the log of the last leader. It may be marked as missing instead, if a head has led that
//! was not in sync.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kumi_control::head::{HeadEvent, LinkId};
use kumi_control::message::{Command, JobRecord, JobState, NodeSet, Outcome, Stream};
use kumi_leadership::{Copies, TermEnds, common_end};
use kumi_sched::JobId;

use crate::store::Loaded;
use crate::world::{Event, MS, World};

/// A standby that takes nothing for so long is not waited for.
const PATIENCE: u64 = 2_000 * MS;
/// Offsets of a log in a term.
const TERM: u64 = 1 << 32;
/// Between counts of what jobs have written, for the next head.
const COUNT: u64 = 1_000 * MS;

/// Output of a rank in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    offset: u64,
    /// Bytes of output before it, missing ones included.
    before: u64,
    stream: (u32, Stream),
    at: u64,
    length: u64,
}

/// The log of a job.
#[derive(Debug, Default)]
struct Log {
    pieces: Vec<Piece>,
    end: u64,
    total: u64,
    /// Marked as missing, before it is known which bytes that are.
    presumed: u64,
    /// Something was missing before this when the term began.
    lenient: u64,
    streams: BTreeMap<(u32, Stream), u64>,
}

impl Log {
    /// What another process finds on the disk.
    fn open_again(&mut self) {
        while self.pieces.last().is_some_and(|piece| piece.length == 0) {
            self.pieces.pop();
        }
        let last = self.pieces.last();
        self.end = last.map_or(0, |piece| piece.offset + 1);
        self.total = last.map_or(0, |piece| piece.before + piece.length);
        (self.presumed, self.lenient) = (0, 0);
        self.streams.clear();
        for piece in &self.pieces {
            self.streams.insert(piece.stream, piece.at + piece.length);
        }
    }

    fn begin_term(&mut self, base: u64, written: u64) {
        self.end = self.end.max(base);
        self.presumed = written.saturating_sub(self.total);
        self.total += self.presumed;
        self.lenient = if self.presumed > 0 { base } else { 0 };
    }

    fn push(&mut self, stream: (u32, Stream), at: u64, length: u64) {
        let position = self.streams.entry(stream).or_default();
        let gap = at - *position;
        let presumed = gap.min(self.presumed);
        self.presumed -= presumed;
        self.total += gap - presumed;
        *position = at + length;
        let (offset, before) = (self.end, self.total);
        self.pieces.push(Piece { offset, before, stream, at, length });
        self.end += 1;
        self.total += length;
    }

    /// What comes next stands there in the log of the head that leads.
    fn go_to(&mut self, offset: u64, before: u64) {
        assert!(offset >= self.end, "a leader goes on behind what was copied");
        (self.end, self.total) = (offset, before);
    }

    /// What is behind this goes: the leader does not have it.
    fn cut(&mut self, end: u64) {
        self.pieces.retain(|piece| piece.offset < end);
        self.open_again();
    }

    fn term_ends(&self) -> TermEnds {
        let mut here = TermEnds::default();
        for piece in self.pieces.iter().filter(|piece| piece.length > 0) {
            if here.ends.is_empty() && piece.before > 0 {
                here.first = piece.offset;
            }
            here.ends.insert(piece.offset / TERM, piece.offset + 1);
        }
        here
    }

    fn data_end(&self) -> u64 {
        self.term_ends().ends.values().copied().max().unwrap_or(0)
    }

    fn copy(&mut self, piece: Piece) {
        self.go_to(piece.offset, piece.before);
        self.pieces.push(piece);
        self.streams.insert(piece.stream, piece.at + piece.length);
        (self.end, self.total) = (piece.offset + 1, piece.before + piece.length);
    }

    /// Bytes of a stream before `end` that are here. If they are to be `whole`, each is here once, and in order.
    fn kept(&self, stream: (u32, Stream), end: u64, whole: bool) -> u64 {
        let (mut next, mut kept) = (0, 0);
        for piece in self.pieces.iter().filter(|piece| piece.stream == stream) {
            assert!(!whole || piece.at == next, "a byte comes twice: {piece:?} behind {next}");
            let behind = piece.at + piece.length;
            kept += behind.min(end).saturating_sub(piece.at.max(next));
            next = behind.max(next);
        }
        kept
    }

    /// Bytes that a reader is told are missing.
    fn marked(&self) -> u64 {
        let kept: u64 = self.pieces.iter().map(|piece| piece.length).sum();
        self.total.saturating_sub(kept)
    }
}

/// What a machine has of the output of jobs.
#[derive(Debug, Default)]
pub struct Disk {
    logs: BTreeMap<JobId, Log>,
    /// The latest term that it has heard of.
    term: u64,
    /// The machine is gone for good, and its successor not there yet.
    pub lost: bool,
}

/// An acknowledgement that waits: the end of the log then, the command, and the streams of which the log has that much. What nobody
/// wants is acknowledged, too.
struct HeldKept {
    end: u64,
    link: LinkId,
    nodes: NodeSet,
    command: Command,
    kept: Vec<((u32, Stream), u64)>,
}

/// What a process has of the copies.
#[derive(Default)]
pub struct OutputSide {
    copies: Option<Copies<usize, JobId>>,
    held: BTreeMap<JobId, VecDeque<HeldKept>>,
    /// The list of those in sync, and the write with it; how much jobs had written.
    pub list: Option<(u64, BTreeSet<usize>)>,
    pub written: BTreeMap<JobId, u64>,
    counts: BTreeMap<JobId, (u64, u64)>,
    counted: u64,
    /// Jobs whose count at their end is recorded.
    ended: BTreeSet<JobId>,
    /// The head that leads, as it was found last.
    pub follows: Option<usize>,
    /// Since when it has found that nobody leads.
    pub free_since: Option<u64>,
}

/// A connection of a head that waits to one that leads.
pub struct CopySession {
    pub leader: (usize, u64),
    pub standby: (usize, u64),
    term: u64,
    open: bool,
    /// How far the standby was sent each log; none before it has said what it has.
    sent: Option<BTreeMap<JobId, u64>>,
    last: [u64; 2],
    /// Messages that were sent each way, and that have arrived.
    numbers: [(u64, u64); 2],
}

#[derive(Clone, Debug)]
pub enum CopyMessage {
    Has(BTreeMap<JobId, TermEnds>),
    Pieces(JobId, Vec<Piece>),
    Cut { job: JobId, end: u64 },
    Tail { job: JobId, end: u64, before: u64 },
    Taken(JobId, u64),
}

impl World {
    /// A head begins to lead, with what it has.
    pub fn output_begins(&mut self, number: usize, loaded: &Loaded) {
        let Loaded { records, term, in_sync, written } = loaded.clone();
        self.forced |= term > 1 && !in_sync.contains(&number);
        self.trace(format_args!("head {number} leads in term {term}; in sync"), &in_sync);
        let disk = &mut self.disks[number];
        disk.term = term;
        for record in &records {
            let job = record.spec.job;
            let log = disk.logs.entry(job).or_default();
            log.open_again();
            log.begin_term(term * TERM, written.get(&job).copied().unwrap_or(0));
        }
        let mut copies = Copies::new(number, in_sync, PATIENCE, self.now);
        for (&job, log) in &disk.logs {
            copies.extended(job, log.end, self.now);
        }
        let process = &mut self.heads[number];
        process.output.copies = Some(copies);
        let head = process.head_mut().expect("it leads");
        for record in records.iter().filter(|record| !matches!(record.state, JobState::Ended(_))) {
            let streams = disk.logs[&record.spec.job].streams.iter();
            let streams = streams.map(|(&(rank, stream), &next)| (rank, stream, next));
            head.restore_output(record.spec.job, streams);
        }
    }

    /// The leader's spool takes output.
    pub fn spool(
        &mut self,
        number: usize,
        job: JobId,
        stream: (u32, Stream),
        at: u64,
        length: u64,
    ) {
        let Disk { logs, term, .. } = &mut self.disks[number];
        let log = logs.entry(job).or_default();
        log.end = log.end.max(*term * TERM);
        log.push(stream, at, length);
        let end = log.end;
        let process = &mut self.heads[number];
        if let Some(copies) = &mut process.output.copies {
            copies.extended(job, end, self.now);
        }
        let epoch = process.epoch;
        self.soon(0, 3 * MS, Event::Spooled { head: number, epoch, job });
        self.send_copies(number);
    }

    /// An acknowledgement goes when all have it who are in sync.
    pub fn hold_kept(&mut self, number: usize, (link, nodes): (LinkId, NodeSet), command: Command) {
        let Command::OutputKept { job, kept, .. } = &command else { unreachable!("it is one") };
        let job = job.number();
        let log = self.disks[number].logs.get(&job);
        let end = log.map_or(0, Log::data_end);
        let has = |stream: (u32, Stream), next| {
            log.is_some_and(|log| log.streams.get(&stream).is_some_and(|&at| at >= next))
        };
        let kept = kept.iter().map(|kept| ((kept.rank, kept.stream), kept.next));
        let kept = kept.filter(|&(stream, next)| has(stream, next)).collect();
        let held = self.heads[number].output.held.entry(job).or_default();
        held.push_back(HeldKept { end, link, nodes, command, kept });
        self.release_kept(number);
    }

    fn release_kept(&mut self, number: usize) {
        let now = self.now;
        let process = &mut self.heads[number];
        if !process.is_sure(now) {
            return;
        }
        let OutputSide { copies: Some(copies), held, .. } = &mut process.output else { return };
        let mut free = Vec::new();
        for (&job, waiting) in held {
            while waiting.front().is_some_and(|one| copies.acknowledge(job, one.end)) {
                free.extend(waiting.pop_front().map(|one| (job, one)));
            }
        }
        for (job, HeldKept { link, nodes, command, kept, .. }) in free {
            for (stream, next) in kept {
                let known = self.kept.entry((job, stream)).or_default();
                *known = next.max(*known);
            }
            self.send_down(link.0, nodes, command);
        }
    }

    /// How much a job had written is recorded with its end.
    pub fn count_at_end(&mut self, number: usize, record: &JobRecord) {
        let job = record.spec.job;
        let total = self.disks[number].logs.get(&job).map_or(0, |log| log.total);
        if matches!(record.state, JobState::Ended(_)) && total > 0 {
            let output = &mut self.heads[number].output;
            output.written.insert(job, total);
            output.counts.remove(&job);
            output.ended.insert(job);
        }
    }

    /// What a head does now and then for copies.
    pub fn output_ticks(&mut self, number: usize) {
        if self.heads[number].output.copies.is_none() {
            return self.follow(number);
        }
        let sessions = self.copies.values_mut().filter(|one| one.open && one.leader.0 == number);
        for session in sessions {
            let (standby, epoch) = session.standby;
            if self.heads[standby].epoch != epoch || self.parted_heads.contains(&(number, standby))
            {
                session.open = false;
                let copies = self.heads[number].output.copies.as_mut().expect("it leads");
                copies.gone(&standby, self.now);
            }
        }
        let (now, disk, process) = (self.now, &self.disks[number], &mut self.heads[number]);
        let next = process.next_write();
        let output = &mut process.output;
        let copies = output.copies.as_mut().expect("it leads");
        copies.advance(now);
        if let Some(list) = copies.next_list() {
            output.list = Some((next, list));
        }
        if now >= output.counted + COUNT {
            output.counted = now;
            let ended = &output.ended;
            for (&job, log) in disk.logs.iter().filter(|(job, _)| !ended.contains(job)) {
                output.counts.entry(job).or_insert((log.data_end(), log.total));
            }
        }
        let written = &mut output.written;
        output.counts.retain(|&job, &mut (end, total)| {
            let is_acknowledged = copies.acknowledge(job, end);
            if is_acknowledged {
                let known = written.entry(job).or_default();
                *known = total.max(*known);
            }
            !is_acknowledged
        });
        self.release_kept(number);
        self.send_copies(number);
    }

    /// A write is in the store.
    pub fn output_is_written(&mut self, number: usize, write: u64) {
        let output = &mut self.heads[number].output;
        if output.list.take_if(|(with, _)| *with <= write).is_some() {
            let copies = output.copies.as_mut().expect("it leads");
            copies.recorded();
            let list = copies.in_sync().clone();
            self.trace(format_args!("head {number} has recorded in sync"), &list);
        }
    }

    /// One that waits connects to the head that leads, as far as it knows.
    fn follow(&mut self, number: usize) {
        let own = (number, self.heads[number].epoch);
        let Some(leader) = self.heads[number].output.follows.filter(|&leader| leader != number)
        else {
            return;
        };
        let process = &self.heads[leader];
        let session = (leader, process.epoch);
        let parted = self.parted_heads.contains(&(leader, number));
        let is_there = |one: &CopySession| one.open && one.standby == own && one.leader == session;
        if !process.listens() || process.frozen_until > self.now || parted {
            return;
        }
        let term = self.disks[leader].term;
        if self.copies.values().any(is_there) || term < self.disks[number].term {
            return;
        }
        self.trace(format_args!("head {number} copies from"), &leader);
        // It has one connection at a time.
        self.copies.retain(|_, one| one.standby.0 != number);
        self.disks[number].term = term;
        let now = self.now;
        let copies = self.heads[leader].output.copies.as_mut().expect("it leads");
        copies.connected(number, now);
        self.next_id += 1;
        let one = CopySession {
            leader: session,
            standby: own,
            term,
            open: true,
            sent: None,
            last: [0; 2],
            numbers: [(0, 0); 2],
        };
        self.copies.insert(self.next_id, one);
        let logs = &mut self.disks[number].logs;
        logs.values_mut().for_each(Log::open_again);
        let has = logs.iter().map(|(&job, log)| (job, log.term_ends())).collect();
        self.send_copy(self.next_id, true, CopyMessage::Has(has));
    }

    fn send_copy(&mut self, id: u64, to_leader: bool, message: CopyMessage) {
        let time = self.now + self.random.within(MS / 10, 20 * MS);
        let Some(session) = self.copies.get_mut(&id).filter(|session| session.open) else { return };
        let last = &mut session.last[usize::from(to_leader)];
        *last = time.max(*last);
        let delay = *last - self.now;
        let sent = &mut session.numbers[usize::from(to_leader)].0;
        *sent += 1;
        let number = *sent;
        self.at(delay, Event::Copy { session: id, to_leader, number, message });
    }

    /// Sends what standbys lack.
    fn send_copies(&mut self, number: usize) {
        let mut messages = Vec::new();
        for (&id, session) in &mut self.copies {
            let Some(sent) = session.sent.as_mut().filter(|_| session.leader.0 == number) else {
                continue;
            };
            for (&job, log) in &self.disks[number].logs {
                let sent = sent.entry(job).or_default();
                if log.end <= *sent {
                    continue;
                }
                let pieces: Vec<Piece> =
                    log.pieces.iter().filter(|piece| piece.offset >= *sent).copied().collect();
                let behind = pieces.last().map(|piece| piece.offset + 1);
                if !pieces.is_empty() {
                    messages.push((id, CopyMessage::Pieces(job, pieces)));
                }
                if behind != Some(log.end) {
                    let (end, before) = (log.end, log.total);
                    messages.push((id, CopyMessage::Tail { job, end, before }));
                }
                *sent = log.end;
            }
        }
        for (id, message) in messages {
            self.send_copy(id, false, message);
        }
    }

    /// A message of copies arrives.
    pub fn copy_arrives(
        &mut self,
        id: u64,
        (to_leader, number): (bool, u64),
        message: CopyMessage,
    ) {
        let Some(session) = self.copies.get_mut(&id).filter(|session| session.open) else { return };
        let arrived = &mut session.numbers[usize::from(to_leader)].1;
        if number != *arrived + 1 {
            // Those before it wait for a process that stands still.
            return self.at(MS, Event::Copy { session: id, to_leader, number, message });
        }
        *arrived = number;
        let ((leader, _), (standby, _), now) = (session.leader, session.standby, self.now);
        let term = session.term;
        self.trace(format_args!("copies of head {leader} at head {standby}"), &message);
        // Who has heard of a later term takes nothing of this one.
        if self.disks[standby].term > term {
            return;
        }
        let logs = &mut self.disks[standby].logs;
        let taken = match message {
            CopyMessage::Has(has) => return self.compare((id, leader, standby), &has),
            CopyMessage::Cut { job, end } => return logs.entry(job).or_default().cut(end),
            CopyMessage::Taken(job, end) => {
                let copies = self.heads[leader].output.copies.as_mut().expect("it leads");
                copies.taken(&standby, job, end, now);
                return self.release_kept(leader);
            }
            CopyMessage::Pieces(job, pieces) => {
                let log = logs.entry(job).or_default();
                pieces.into_iter().for_each(|piece| log.copy(piece));
                (job, log.end)
            }
            CopyMessage::Tail { job, end, before } => {
                logs.entry(job).or_default().go_to(end, before);
                (job, end)
            }
        };
        self.send_copy(id, true, CopyMessage::Taken(taken.0, taken.1));
    }

    /// A standby has said what it has: what the leader has not goes.
    fn compare(
        &mut self,
        (id, leader, standby): (u64, usize, usize),
        has: &BTreeMap<JobId, TermEnds>,
    ) {
        let (now, logs) = (self.now, &mut self.disks[leader].logs);
        for &job in has.keys() {
            logs.entry(job).or_default();
        }
        let copies = self.heads[leader].output.copies.as_mut().expect("it leads");
        let (mut sent, mut cuts) = (BTreeMap::new(), Vec::new());
        for (&job, log) in &*logs {
            let Some(theirs) = has.get(&job) else { continue };
            let common = common_end(&log.term_ends(), theirs, log.lenient);
            copies.taken(&standby, job, common, now);
            sent.insert(job, common);
            if theirs.ends.values().any(|&end| end > common) {
                cuts.push(CopyMessage::Cut { job, end: common });
            }
        }
        copies.introduced(&standby);
        cuts.into_iter().for_each(|cut| self.send_copy(id, false, cut));
        if let Some(session) = self.copies.get_mut(&id) {
            session.sent = Some(sent);
        }
        self.send_copies(leader);
    }

    /// Some heads do not hear of each other.
    pub fn part_heads(&mut self) {
        for one in 0..self.heads.len() {
            for other in 0..self.heads.len() {
                if one != other && self.random.chance(30) {
                    self.parted_heads.extend([(one, other), (other, one)]);
                }
            }
        }
    }

    /// The machine of a head that is gone may be lost for good, as long as another one is in sync.
    pub fn may_lose_disk(&mut self, number: usize) {
        let fit = |head: &usize| *head != number && !self.disks[*head].lost;
        if !self.calm && self.store.in_sync.iter().any(fit) && self.random.chance(50) {
            self.trace(format_args!("head {number}"), &"loses its machine");
            self.disks[number] = Disk { lost: true, ..Disk::default() };
            self.lost_disks += 1;
        }
    }

    /// Whether another machine can take the place of one that was lost: nobody must take it for one in sync.
    pub fn may_start(&mut self, number: usize) -> bool {
        let waits = self.disks[number].lost && self.store.in_sync.contains(&number);
        self.disks[number].lost = waits;
        !waits
    }

    /// What nodes were told that is kept is here, or is marked if a head has led that did not have all.
    pub fn check_output(&self, leader: usize) {
        for (&job, record) in &self.store.records {
            let streams = self.kept.iter().filter(|((of, _), _)| *of == job);
            let (mut told, mut kept) = (0, 0);
            let none = Log::default();
            let log = self.disks[leader].logs.get(&job).unwrap_or(&none);
            for (&(_, stream), &end) in streams {
                told += end;
                kept += log.kept(stream, end, !self.forced);
            }
            let succeeded = record.state == JobState::Ended(Outcome::Success);
            if self.forced {
                // Nodes that are given up do not say what they were told.
                assert!(
                    !succeeded || kept + log.marked() >= told,
                    "{job}: {kept} of {told} are here: {log:?}"
                );
                continue;
            }
            assert_eq!(kept, told, "{job}: acknowledged output is lost: {log:?}");
            if succeeded {
                assert_eq!(log.marked(), 0, "{job}: nothing is missing, and something is marked");
            }
        }
    }

    /// The spool has taken what came of a job.
    pub fn spooled(&mut self, head: usize, job: JobId) {
        self.head_event(head, HeadEvent::Spooled { job });
    }
}
