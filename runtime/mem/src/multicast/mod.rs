//! Multicast: a put to many ranks through a tree, the caller's side. The members' side is in `relay`.

mod append;
mod records;
mod relay;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use kumi_net::{CopySource, SharedBytes, Wait};
use kumi_proto::Rank;
use kumi_proto::frame::{Frame, MULTICAST_BYTES};

use crate::context::{Context, LINGER};
use crate::error::{Error, Refusal};
use crate::window::table::{Access, Rights, check};
use crate::window::{Window, check_notify};

pub(crate) use relay::{MulticastFrame, MulticastTable, list};

/// Most members of one tree: their list is in every frame.
const MOST_MEMBERS: usize = 64;
/// Bytes that are answered together.
const BATCH_BYTES: usize = 32 * 1024;
/// Batches that are unanswered at the same time.
const BATCHES: usize = 2;
/// Frames queued before they are put on the wire together.
const RUN: u32 = 40;

/// A child in the tree, and its members as a frame lists them.
struct TreeChild {
    rank: Rank,
    list: Vec<u8>,
}

/// The part of the multicast that is the same for all members.
#[derive(Clone, Copy)]
struct MulticastContent<S> {
    offset: usize,
    data: S,
    notify: Option<u32>,
}

/// Forgets the own multicast; answers that come later are dropped.
struct MulticastCleanup<'c>(&'c Context);

impl Drop for MulticastCleanup<'_> {
    fn drop(&mut self) {
        // Without the lock the channel is broken, and nothing comes any more.
        if let Ok(mut guard) = self.0.channel.lock() {
            guard.handler().multicasts.give_up();
            guard.handler().mailbox.awaited = None;
            guard.handler().mailbox.awaited_too.clear();
        }
    }
}

impl Window<'_> {
    /// Writes the same data into the pieces of several ranks and waits until all have it. Each rank is
    /// listed once; the own one may be among them. If `notify` names a notification counter, it rises
    /// by one at each rank that has all data.
    ///
    /// The data goes along a binomial tree: members reached by frames (see [`Window`]) forward it
    /// without their programs' help, and their answers are combined on the way back.
    ///
    /// - Nobody sends the data more than about log2(members) times.
    /// - Earlier puts and messages of the caller to a member are in place before it.
    /// - A member must not end during a multicast.
    /// - A member that has not received messages for so long that their senders wait may hold it up.
    ///
    /// # Errors
    /// - [`Error::BadRank`], [`Error::BadNotify`], and [`Error::OutOfBounds`] if the data is outside of
    ///   a member's piece: nothing is written anywhere.
    /// - [`Error::NoRight`] and [`Error::BadWindow`] name a member that refused it. Nothing is written
    ///   there, nor at members to which a member without the window would have forwarded it. Others may
    ///   have it.
    pub fn multicast(
        &self,
        to: &[u32],
        offset: usize,
        data: &[u8],
        notify: Option<u32>,
    ) -> Result<(), Error> {
        self.multicast_bytes(to, offset, data, notify)
    }

    /// As [`Window::multicast`], of bytes that others may write meanwhile, such as those of a window.
    ///
    /// # Errors
    /// As [`Window::multicast`].
    pub fn multicast_shared(
        &self,
        to: &[u32],
        offset: usize,
        data: SharedBytes<'_>,
        notify: Option<u32>,
    ) -> Result<(), Error> {
        self.multicast_bytes(to, offset, data, notify)
    }

    fn multicast_bytes(
        &self,
        to: &[u32],
        offset: usize,
        data: impl CopySource,
        notify: Option<u32>,
    ) -> Result<(), Error> {
        self.context.check_handlers()?;
        if let Some(notify) = notify {
            check_notify(notify)?;
        }
        let _one = self.context.one_multicast();
        let (mapped, by_frames) = self.members(to, offset, data.len())?;
        for rank in mapped {
            match notify {
                Some(notify) => self.put_bytes_notify(rank, offset, data, notify)?,
                None => self.put_bytes(rank, offset, data)?,
            }
        }
        if by_frames.is_empty() {
            return Ok(());
        }
        // It goes another way than what was put there before, which must not come later.
        self.context.confirm(&by_frames)?;
        match self.multicast_by_frames(&by_frames, MulticastContent { offset, data, notify })? {
            None => Ok(()),
            Some((rank, reason)) => Err(self.refused(rank, offset, data.len(), reason)),
        }
    }

    /// Those whose memory this process has mapped and the others, in order, once all that can be
    /// checked here has been.
    fn members(
        &self,
        to: &[u32],
        offset: usize,
        length: usize,
    ) -> Result<(Vec<Rank>, Vec<Rank>), Error> {
        let mut members = to.to_vec();
        members.sort_unstable();
        members.dedup();
        let (at, bytes) = (offset as u64, length as u64);
        for rank in &members {
            self.context.check_rank(*rank)?;
            check(Rights::ALL, self.sizes[*rank as usize], at, bytes, Access::Write)
                .map_err(|_| self.out_of_bounds(*rank, offset, length))?;
        }
        let (mut mapped, mut by_frames) = (Vec::new(), Vec::new());
        for rank in members {
            let Some((_, piece)) = self.mapped(rank) else {
                by_frames.push(rank);
                continue;
            };
            let piece = piece?;
            check(piece.rights, piece.size, at, bytes, Access::Write)
                .map_err(|reason| self.refused(rank, offset, length, reason))?;
            mapped.push(rank);
        }
        Ok((mapped, by_frames))
    }

    /// Sends to ranks that are reached by frames and waits for all. Returns the first refusal: rank and
    /// reason.
    fn multicast_by_frames(
        &self,
        by_frames: &[Rank],
        content: MulticastContent<impl CopySource>,
    ) -> Result<Option<(Rank, Refusal)>, Error> {
        let children: Vec<TreeChild> = by_frames
            .chunks(MOST_MEMBERS)
            .flat_map(relay::split)
            .map(|(rank, members)| TreeChild { rank, list: relay::list(&members) })
            .collect();
        let over = MulticastCleanup(self.context);
        let (mut unanswered, mut refused) = (VecDeque::new(), None);
        let length = content.data.len();
        // One without bytes has one batch too.
        for start in (0..length.max(1)).step_by(BATCH_BYTES) {
            if unanswered.len() == BATCHES {
                refused = refused.or(self.batch_answered(&mut unanswered)?);
            }
            let token = {
                let mut guard = self.context.channel.lock()?;
                let engine = guard.handler();
                let token = engine.token();
                engine.multicasts.begin(token, None, children.iter().map(|child| child.rank));
                token
            };
            unanswered.push_back(token);
            self.send_batch(&children, token, content, start..length.min(start + BATCH_BYTES))?;
        }
        while !unanswered.is_empty() {
            refused = refused.or(self.batch_answered(&mut unanswered)?);
        }
        drop(over);
        Ok(refused)
    }

    fn send_batch(
        &self,
        children: &[TreeChild],
        token: u64,
        MulticastContent { offset, data, notify }: MulticastContent<impl CopySource>,
        batch: Range<usize>,
    ) -> Result<(), Error> {
        let longest = children.iter().map(|child| child.list.len()).max().unwrap_or(0);
        let notify = notify.filter(|_| batch.end == data.len());
        let (mut done, mut begun, mut sent_to) = (batch.start, false, 0);
        self.context.drive(Wait::Room, |guard| {
            let mut queued = 0;
            while !begun || done < batch.end {
                // Conditions of every way of sending.
                let most = self.context.longest - MULTICAST_BYTES - longest;
                let piece = data.slice(done, (batch.end - done).min(most));
                let last = done + piece.len() == batch.end;
                for TreeChild { rank, list } in &children[sent_to..] {
                    let frame = Frame::Multicast {
                        token: if last { token } else { 0 },
                        window: self.keys[*rank as usize],
                        offset: (offset + done) as u64,
                        notify: notify.filter(|_| last),
                        members: list,
                        data: piece,
                    };
                    if !guard.send_parts(*rank, &[&frame.header(), list], &[piece])? {
                        guard.transmit()?;
                        return Ok(None);
                    }
                    sent_to += 1;
                    queued += 1;
                    if queued % RUN == 0 {
                        guard.transmit()?;
                    }
                }
                (begun, sent_to) = (true, 0);
                done += piece.len();
            }
            guard.transmit()?;
            Ok(Some(()))
        })
    }

    /// Waits for the answers to the oldest batch.
    fn batch_answered(
        &self,
        unanswered: &mut VecDeque<u64>,
    ) -> Result<Option<(Rank, Refusal)>, Error> {
        let Some(token) = unanswered.pop_front() else { return Ok(None) };
        self.context.drive(Wait::Frames, |guard| {
            let engine = guard.handler();
            let waiting = engine.multicasts.waiting(token);
            // The awaited answer may be behind messages that nobody has received.
            engine.mailbox.awaited = waiting;
            Ok(if waiting.is_none() { Some(engine.multicasts.take(token)) } else { None })
        })
    }
}

impl Context {
    /// A thread's turn to multicast.
    pub(crate) fn one_multicast(&self) -> MutexGuard<'_, ()> {
        self.multicasting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stays until the multicasts that others send through this rank are over, for at most
    /// [`LINGER`].
    pub(crate) fn finish_relays(&self) -> Result<(), Error> {
        let end = self.time() + LINGER.as_secs_f64();
        loop {
            let mut guard = self.channel.lock()?;
            guard.progress()?;
            if !guard.handler().multicasts.relaying() {
                return Ok(());
            }
            drop(guard);
            if self.time() > end {
                let text = "a multicast through this rank was not over before its end: members synchronise before they end";
                return Err(Error::Fault(text.into()));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
