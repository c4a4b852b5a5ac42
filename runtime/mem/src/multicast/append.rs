//! Multicast of a record to the FIFOs or signal ports of many ranks: the sender's side. The members'
//! side is in `records`.

use std::sync::atomic::Ordering::{Acquire, SeqCst};

use kumi_net::layout::ROOM;
use kumi_net::{CopySource, Guard, SharedBytes, Wait};
use kumi_proto::Rank;
use kumi_proto::frame::{
    Frame, MULTICAST_APPEND_BYTES, MULTICAST_APPEND_DONE_BYTES, MulticastAppend,
};

use super::records::RecordRefusals;
use super::{MOST_MEMBERS, MulticastCleanup, TreeChild, relay};
use crate::engine::Engine;
use crate::error::{Error, Refusal};
use crate::fifo::append_refused;
use crate::fifo::queue::{MARK_FIFO, MARK_SIGNAL};
use crate::window::Window;

/// The part of the multicast that is the same for all members.
#[derive(Clone, Copy)]
struct MulticastRecord<S> {
    offset: usize,
    data: S,
    mark: u64,
}

/// The members that do not have the record, and the first error.
#[derive(Default)]
struct MissingMembers {
    /// Of this node, in memory that this process has mapped, without room.
    mapped: Vec<Rank>,
    /// Reached by frames, to be sent to without a tree.
    by_frames: Vec<Rank>,
    /// Without room, and not waited for.
    full: Vec<Rank>,
    failed: Option<Error>,
}

impl MissingMembers {
    fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }
}

impl Window<'_> {
    /// Appends a record (0 to [`crate::Context::max_record`] bytes) to the FIFOs of several ranks at
    /// the same offset, and waits until all have it. Each rank is listed once; the own one may be among
    /// them.
    ///
    /// It goes along a tree, as [`Window::multicast`] does, with the same demands on the members. A
    /// member whose FIFO is full gets it when there is room, whatever becomes of the others. At
    /// each member it is behind all that was appended or put there before, and before what follows.
    ///
    /// ```
    /// # fn main() -> Result<(), kumi_mem::Error> {
    /// let context = kumi_mem::Context::init_singleton()?;
    /// let window = context.window(4096)?;
    /// let fifo = window.fifo(0, 1024, 0)?;
    /// context.barrier()?;
    /// let all: Vec<u32> = (0..context.ranks()).collect();
    /// window.multicast_append(&all, 0, b"to everybody")?;
    /// let (from, record) = fifo.pop_vec()?;
    /// # assert_eq!((from, &record[..]), (0, &b"to everybody"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// These errors mean that nothing was appended anywhere: [`Error::BadRank`],
    /// [`Error::RecordTooLong`], [`Error::HandlerPanicked`], and [`Error::FifoFull`] if the own FIFO is
    /// a full member, which nobody would empty meanwhile.
    ///
    /// [`Error::NoFifo`], [`Error::BadWindow`], [`Error::FifoTooSmall`] and [`Error::FifoDamaged`] name
    /// a member that did not take it. The other members have it, except those with the same error, and
    /// those to which a member without the window would have forwarded it.
    pub fn multicast_append(&self, to: &[u32], offset: usize, record: &[u8]) -> Result<(), Error> {
        self.append_to_all(to, MulticastRecord { offset, data: record, mark: MARK_FIFO }, true)
            .map(drop)
    }

    /// As [`Window::multicast_append`], or without `wait` as [`Window::try_multicast_append`], of bytes that others may
    /// write meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Window::multicast_append`].
    pub fn multicast_append_shared(
        &self,
        to: &[u32],
        offset: usize,
        record: SharedBytes<'_>,
        wait: bool,
    ) -> Result<Vec<u32>, Error> {
        self.append_to_all(to, MulticastRecord { offset, data: record, mark: MARK_FIFO }, wait)
    }

    /// As [`Window::multicast_append_shared`], to signal ports.
    ///
    /// # Errors
    /// As [`Window::multicast_signal`].
    pub fn multicast_signal_shared(
        &self,
        to: &[u32],
        offset: usize,
        record: SharedBytes<'_>,
        wait: bool,
    ) -> Result<Vec<u32>, Error> {
        self.append_to_all(to, MulticastRecord { offset, data: record, mark: MARK_SIGNAL }, wait)
    }

    /// As [`Window::multicast_append`], without waiting for room: the ranks whose FIFO is full, in
    /// rising order. There nothing was appended, at all others it was.
    ///
    /// # Errors
    /// As [`Window::multicast_append`] but [`Error::FifoFull`].
    pub fn try_multicast_append(
        &self,
        to: &[u32],
        offset: usize,
        record: &[u8],
    ) -> Result<Vec<u32>, Error> {
        self.append_to_all(to, MulticastRecord { offset, data: record, mark: MARK_FIFO }, false)
    }

    /// Sends a signal to the ports that several ranks have at the same offset, as
    /// [`Window::multicast_append`] appends to FIFOs; does not wait for handlers.
    ///
    /// # Errors
    /// As [`Window::multicast_append`] but [`Error::FifoFull`].
    pub fn multicast_signal(&self, to: &[u32], offset: usize, record: &[u8]) -> Result<(), Error> {
        self.append_to_all(to, MulticastRecord { offset, data: record, mark: MARK_SIGNAL }, true)
            .map(drop)
    }

    /// As [`Window::multicast_signal`], without waiting for room: the ranks whose port is full, in
    /// rising order. There nothing was sent, to all others it was.
    ///
    /// # Errors
    /// As [`Window::multicast_signal`].
    pub fn try_multicast_signal(
        &self,
        to: &[u32],
        offset: usize,
        record: &[u8],
    ) -> Result<Vec<u32>, Error> {
        self.append_to_all(to, MulticastRecord { offset, data: record, mark: MARK_SIGNAL }, false)
    }

    /// The ranks without room, if they are not waited for.
    fn append_to_all(
        &self,
        to: &[u32],
        record: MulticastRecord<impl CopySource>,
        wait: bool,
    ) -> Result<Vec<Rank>, Error> {
        self.context.check_handlers()?;
        let (length, most) = (record.data.len(), self.context.max_record());
        if length > most {
            return Err(Error::RecordTooLong { length, most });
        }
        for rank in to {
            self.context.check_rank(*rank)?;
        }
        let _one = self.context.one_multicast();
        let me = self.context.rank();
        let mut members = to.to_vec();
        // The own one first: if it is full nothing is sent.
        members.sort_unstable_by_key(|rank| (*rank != me, *rank));
        members.dedup();
        let (mapped, by_frames): (Vec<Rank>, Vec<Rank>) =
            members.into_iter().partition(|rank| self.mapped_queues(*rank).is_some());
        let mut missing = MissingMembers::default();
        self.context.confirm(&mapped)?;
        for rank in mapped {
            let full = self.append_once(rank, record, &mut missing, false);
            if full && wait && rank == me && record.mark == MARK_FIFO {
                return Err(Error::FifoFull { rank, offset: record.offset as u64 });
            }
        }
        if !wait {
            missing.full.append(&mut missing.mapped);
        }
        if !by_frames.is_empty() {
            self.append_through_trees(&by_frames, record, wait, &mut missing)?;
        }
        if !missing.mapped.is_empty() || !missing.by_frames.is_empty() {
            self.append_directly(record, wait, &mut missing)?;
        }
        if let Some(error) = missing.failed {
            return Err(error);
        }
        missing.full.sort_unstable();
        Ok(missing.full)
    }

    /// Appends to a FIFO of this node if there is room; true if there is none. If `ask` is set, its
    /// taker will then report room.
    fn append_once(
        &self,
        rank: Rank,
        MulticastRecord { offset, data, mark }: MulticastRecord<impl CopySource>,
        missing: &mut MissingMembers,
        ask: bool,
    ) -> bool {
        let Some((local, mapped)) = self.mapped_queues(rank) else { return false };
        let full = mapped.and_then(|mapped| {
            loop {
                let Some(queue) = self.push_mapped(mapped, local, (rank, offset), data, mark)?
                else {
                    return Ok(false);
                };
                if !ask || !self.ask_for_room(&queue, (rank, offset), data.len())? {
                    return Ok(true);
                }
            }
        });
        match full {
            Ok(full) => {
                missing.mapped.extend(full.then_some(rank));
                full
            }
            Err(error) => {
                missing.fail(error);
                false
            }
        }
    }

    /// Sends through the trees; members without room are missing afterwards.
    fn append_through_trees(
        &self,
        by_frames: &[Rank],
        record: MulticastRecord<impl CopySource>,
        wait: bool,
        missing: &mut MissingMembers,
    ) -> Result<(), Error> {
        // It goes another way than what was put there before, which must not come later.
        self.context.confirm(by_frames)?;
        // Conditions of every way of sending.
        let Some(members) = largest_tree(self.context.longest, record.data.len()) else {
            missing.by_frames = by_frames.to_vec();
            return Ok(());
        };
        let child =
            |(rank, members): (Rank, Vec<Rank>)| TreeChild { rank, list: relay::list(&members) };
        let children: Vec<TreeChild> =
            by_frames.chunks(members).flat_map(relay::split).map(child).collect();
        let over = MulticastCleanup(self.context);
        let token = {
            let mut guard = self.context.channel.lock()?;
            let engine = guard.handler();
            let (token, ranks) = (engine.token(), children.iter().map(|child| child.rank));
            engine.multicasts.begin_record(
                token,
                None,
                ranks,
                RecordRefusals::default(),
                by_frames.len(),
            );
            token
        };
        self.send_record(&children, token, record)?;
        let refusals = self.context.drive(Wait::Frames, |guard| {
            let engine = guard.handler();
            let waiting = engine.multicasts.waiting(token);
            // The awaited answer may be behind messages that nobody has received.
            engine.mailbox.awaited = waiting;
            Ok(if waiting.is_none() { Some(engine.multicasts.take_record(token)) } else { None })
        })?;
        drop(over);
        if let Some((rank, reason)) = refusals.refused {
            missing.fail(append_refused(rank, record.offset as u64, record.data.len(), reason));
        }
        if let Some(stranger) = refusals.full.iter().find(|rank| !by_frames.contains(rank)) {
            let text = format!("rank {stranger} had no room for a record that it was not sent");
            return Err(Error::Fault(text));
        }
        if wait { &mut missing.by_frames } else { &mut missing.full }.extend(refusals.full);
        Ok(())
    }

    fn send_record(
        &self,
        children: &[TreeChild],
        token: u64,
        MulticastRecord { offset, data, mark }: MulticastRecord<impl CopySource>,
    ) -> Result<(), Error> {
        let mut sent_to = 0;
        self.context.drive(Wait::Room, |guard| {
            for TreeChild { rank, list } in &children[sent_to..] {
                let frame = Frame::MulticastAppend(MulticastAppend {
                    token,
                    window: self.keys[*rank as usize],
                    offset: offset as u64,
                    signal: mark == MARK_SIGNAL,
                    source: self.context.rank(),
                    members: list,
                    data,
                });
                if !guard.send_parts(*rank, &[&frame.header(), list], &[data])? {
                    guard.transmit()?;
                    return Ok(None);
                }
                sent_to += 1;
            }
            guard.transmit()?;
            Ok(Some(()))
        })
    }

    /// Appends at those that are missing, to each by itself and all at the same time.
    fn append_directly(
        &self,
        record: MulticastRecord<impl CopySource>,
        wait: bool,
        missing: &mut MissingMembers,
    ) -> Result<(), Error> {
        let over = MulticastCleanup(self.context);
        let room = &self.context.attachment().own_lines().notifies.0[ROOM].count;
        let mut under_way = 0;
        loop {
            let seen = room.load(SeqCst);
            for rank in std::mem::take(&mut missing.mapped) {
                self.append_once(rank, record, missing, true);
            }
            let (mapped, unsent) = (!missing.mapped.is_empty(), !missing.by_frames.is_empty());
            let until = if unsent {
                Wait::Room
            } else if mapped {
                Wait::Counter { index: ROOM, at_least: seen.saturating_add(1) }
            } else {
                Wait::Frames
            };
            let done = self.context.drive(until, |guard| {
                self.exchange_directly(guard, record, wait, missing, &mut under_way)?;
                let done = !mapped && under_way == 0 && missing.by_frames.is_empty();
                let look = mapped && room.load(Acquire) > seen;
                // Another kind of wait is needed.
                let turn = missing.by_frames.is_empty() == unsent;
                Ok((done || look || turn).then_some(done))
            })?;
            if done {
                drop(over);
                return Ok(());
            }
        }
    }

    /// Sends what can be sent and takes the answers.
    fn exchange_directly(
        &self,
        guard: &mut Guard<'_, Engine>,
        MulticastRecord { offset, data, mark }: MulticastRecord<impl CopySource>,
        wait: bool,
        missing: &mut MissingMembers,
        under_way: &mut usize,
    ) -> Result<(), Error> {
        let (offset, signal) = (offset as u64, mark == MARK_SIGNAL);
        for (rank, answer) in guard.handler().multicasts.directs.take_answered() {
            guard.handler().mailbox.awaited_too.retain(|awaited| *awaited != rank);
            *under_way -= 1;
            match answer {
                Ok(false) => {}
                // There is room now: once more.
                Ok(true) => missing.by_frames.push(rank),
                Err(Refusal::Full) => missing.full.push(rank),
                Err(reason) => missing.fail(append_refused(rank, offset, data.len(), reason)),
            }
        }
        let mut sent = false;
        for to in std::mem::take(&mut missing.by_frames) {
            let (token, window) = (guard.handler().token(), self.keys[to as usize]);
            let frame = Frame::Append { token, window, offset, wait, signal, data };
            if guard.send_parts(to, &[&frame.header()], &[data])? {
                guard.handler().multicasts.directs.add(to, token);
                // The awaited answer may be behind messages that nobody has received.
                guard.handler().mailbox.awaited_too.push(to);
                *under_way += 1;
                sent = true;
            } else {
                missing.by_frames.push(to);
            }
        }
        if sent {
            guard.transmit()?;
        }
        Ok(())
    }
}

/// Most members of a tree, so that their lists fit into frames with a record of this length, and all of
/// them into an answer. `None` if the record fits into no such frame.
fn largest_tree(most: usize, length: usize) -> Option<usize> {
    let room = most.checked_sub(MULTICAST_APPEND_BYTES + length)?;
    // The longest list is that of the first child: half of the members, but for itself.
    let by_list = 2 * (room / 4 + 1);
    let by_answer = most.checked_sub(MULTICAST_APPEND_DONE_BYTES)? / 4;
    Some(by_list.min(by_answer).min(MOST_MEMBERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_answers_fit() {
        for most in [100, 300, 600, 1440] {
            for length in 0..most {
                let Some(members) = largest_tree(most, length) else {
                    assert!(MULTICAST_APPEND_BYTES + length > most);
                    continue;
                };
                let all: Vec<Rank> = (0..members as Rank).collect();
                let longest = relay::split(&all).iter().map(|child| child.1.len()).max();
                assert!(members > 0 && members <= MOST_MEMBERS);
                let longest = longest.expect("somebody");
                assert!(MULTICAST_APPEND_BYTES + 4 * longest + length <= most);
                assert!(MULTICAST_APPEND_DONE_BYTES + 4 * members <= most);
            }
        }
    }
}
