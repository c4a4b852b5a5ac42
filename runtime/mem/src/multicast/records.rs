//! Multicast of a record, the members' side: append it where there is room, forward it, combine the
//! answers. Nobody waits for room here: the sender does.

use kumi_net::{Attachment, CopySource, Delivery};
use kumi_proto::Rank;
use kumi_proto::frame::{
    self, MULTICAST_APPEND_BYTES, MulticastAppend, MulticastAppendDone, WindowKey,
};

use super::relay::{self, PendingForward};
use crate::engine::{Engine, MOST_ANSWERS, QueuedAnswer};
use crate::error::Refusal;
use crate::fifo::queue::{MARK_FIFO, MARK_SIGNAL, PushOutcome};
use crate::fifo::queue_in;
use crate::fifo::table::{AppendOutcome, IncomingRecord, announce};
use crate::window::key::is_open;
use crate::window::mapped_piece::MappedPiece;
use crate::window::table::counter_index;

/// Members that did not take a record, and why.
#[derive(Debug, Default)]
pub(crate) struct RecordRefusals {
    /// The first rank that refused it, and why.
    pub(crate) refused: Option<(Rank, Refusal)>,
    /// Ranks that had no room.
    pub(crate) full: Vec<Rank>,
}

/// An own record on its way to one member that had no room.
#[derive(Debug)]
struct DirectAppend {
    to: Rank,
    token: u64,
    /// The answer: whether there is room now and the record is to be sent again (otherwise it has
    /// been taken), or why not.
    answer: Option<Result<bool, Refusal>>,
}

/// All of these, of the one record that the program waits for.
#[derive(Debug, Default)]
pub(crate) struct DirectAppends(Vec<DirectAppend>);

impl DirectAppends {
    pub(super) fn add(&mut self, to: Rank, token: u64) {
        self.0.push(DirectAppend { to, token, answer: None });
    }

    /// Takes those that were answered.
    pub(super) fn take_answered(&mut self) -> Vec<(Rank, Result<bool, Refusal>)> {
        let answered = self.0.extract_if(.., |direct| direct.answer.is_some());
        answered.filter_map(|direct| Some((direct.to, direct.answer?))).collect()
    }

    /// Takes an answer; false if none of these waits for it.
    fn answered(&mut self, from: Rank, token: u64, answer: Result<bool, Refusal>) -> bool {
        let mine = |direct: &&mut DirectAppend| {
            direct.to == from && direct.token == token && direct.answer.is_none()
        };
        let Some(direct) = self.0.iter_mut().find(mine) else { return false };
        direct.answer = Some(answer);
        true
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Engine {
    /// A record for several ranks has come. An error is a sender's fault.
    pub(crate) fn multicast_append(
        &mut self,
        attachment: &Attachment,
        from: Rank,
        cast: &MulticastAppend<'_, impl CopySource>,
    ) -> Result<Delivery, String> {
        let MulticastAppend { token, window, offset, signal, source, members, data } = *cast;
        if source >= attachment.ranks() {
            return Err(format!("a record of rank {source}, which does not exist"));
        }
        let keys = self.windows.keys(window);
        let (mapped, by_frames) = relay::sort(attachment, &keys, frame::members(members), is_open)?;
        let length = MULTICAST_APPEND_BYTES + members.len() + data.len();
        if !by_frames.is_empty() && length > self.longest {
            return Err("a record for many ranks that is too long to be forwarded".into());
        }
        let cost = relay::cost(data.len(), &by_frames);
        if self.answers.len() >= MOST_ANSWERS
            || !by_frames.is_empty() && !self.multicasts.has_room(attachment, cost)
        {
            return Ok(Delivery::Full);
        }
        let (mut refusals, most) = (RecordRefusals::default(), mapped.len() + by_frames.len());
        if keys.is_empty() {
            // The other ranks' keys went with the window: nobody behind this rank has the record.
            self.refused_here += 1;
            let refused = Some((attachment.rank(), Refusal::Window));
            self.answers
                .push_back((from, QueuedAnswer::MulticastAppend { token, refused, full: vec![] }));
            return Ok(Delivery::Taken);
        }
        for rank in mapped {
            match self.append_mapped(attachment, rank, keys[rank as usize], cast) {
                Ok(()) => {}
                Err(Refusal::Full) => refusals.full.push(rank),
                Err(reason) => {
                    refusals.refused.get_or_insert((rank, reason));
                    self.refused_here += 1;
                }
            }
        }
        if by_frames.is_empty() {
            let RecordRefusals { refused, full } = refusals;
            self.answers.push_back((from, QueuedAnswer::MulticastAppend { token, refused, full }));
            return Ok(Delivery::Taken);
        }
        let (children, above) = (relay::split(&by_frames), token);
        let token = self.token();
        let ranks = children.iter().map(|child| child.0);
        self.multicasts.begin_record(token, Some((from, above)), ranks, refusals, most);
        let children =
            children.into_iter().map(|(rank, rest)| (rank, relay::list(&rest))).collect();
        let (mut kept, record) = (Vec::new(), Some((source, signal)));
        data.append_to(&mut kept);
        let data = kept;
        let notify = None;
        let forward = PendingForward { token, keys, offset, notify, record, children, data, cost };
        self.multicasts.keep(forward);
        Ok(Delivery::Taken)
    }

    /// Appends to the FIFO of a rank of this node, the own one or another, if there is room.
    fn append_mapped(
        &mut self,
        attachment: &Attachment,
        rank: Rank,
        window: WindowKey,
        cast: &MulticastAppend<'_, impl CopySource>,
    ) -> Result<(), Refusal> {
        let MulticastAppend { offset, signal, source, data, .. } = *cast;
        let local = attachment.local_of(rank).ok_or(Refusal::Window)?;
        if local == attachment.local() {
            let record = IncomingRecord { from: source, token: 0, wait: false, signal, data };
            return match self.fifos.append(attachment, (window, offset), record) {
                AppendOutcome::Taken => Ok(()),
                AppendOutcome::Refused(reason) => Err(reason),
                // Only what waits is.
                AppendOutcome::Waiting => Err(Refusal::Full),
            };
        }
        let mapped = MappedPiece::find(attachment, local, window).ok_or(Refusal::Window)?;
        let mark = if signal { MARK_SIGNAL } else { MARK_FIFO };
        let (queue, notify) = queue_in(&mapped, offset, mark)?;
        match queue.push(source, data) {
            Ok(PushOutcome::Taken) => {
                let counter = (!signal).then(|| counter_index(window, notify));
                announce(attachment, local, &queue, counter);
                Ok(())
            }
            Ok(PushOutcome::Full) => Err(Refusal::Full),
            Ok(PushOutcome::TooLong) => Err(Refusal::Record),
            Err(_) => Err(Refusal::Damage),
        }
    }

    /// A child says what became of a record for it and those behind it. An error is its fault.
    pub(crate) fn multicast_append_done(
        &mut self,
        attachment: &Attachment,
        from: Rank,
        done: &MulticastAppendDone<'_>,
    ) -> Result<(), String> {
        let full: Vec<Rank> = frame::members(done.full).collect();
        // Without anybody who waits for it the answer is dropped below.
        let most = self.multicasts.may_be_full(done.token).unwrap_or(full.len());
        if full.len() > most || full.iter().any(|rank| *rank >= attachment.ranks()) {
            return Err("an answer for ranks that it did not get as members".into());
        }
        self.child_answered(from, done.token, done.refused, &full);
        Ok(())
    }

    /// Takes the answer to an append; false if no own record for many waits for it.
    pub(crate) fn direct_answered(
        &mut self,
        from: Rank,
        token: u64,
        answer: Result<bool, Refusal>,
    ) -> bool {
        self.multicasts.directs.answered(from, token, answer)
    }
}
