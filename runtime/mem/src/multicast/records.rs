//! What members do with a record for the FIFOs or signal ports of many ranks: append it where there
//! is room, forward it, combine the answers. Nobody waits for room here: the sender does.

use kumi_net::{Delivery, Place};
use kumi_proto::Rank;
use kumi_proto::frame::{
    self, MULTICAST_APPEND_BYTES, MulticastAppend, MulticastAppendDone, WindowKey,
};

use super::relay::{self, Forward};
use crate::engine::{Answer, Engine, MOST_ANSWERS};
use crate::error::Refusal;
use crate::fifo::queue::{MARK_FIFO, MARK_SIGNAL, Push};
use crate::fifo::queue_in;
use crate::fifo::table::{Arrived, Outcome, announce};
use crate::window::mapped_piece::Near;
use crate::window::table::counter_index;

/// What became of a record where it was not taken.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    /// Who refused it first, and why.
    pub(crate) refused: Option<(Rank, Refusal)>,
    /// Ranks that had no room.
    pub(crate) full: Vec<Rank>,
}

/// An own record on its way to one member that had no room.
#[derive(Debug)]
struct Direct {
    to: Rank,
    token: u64,
    /// The answer: whether there is room now and the record is to be sent again (otherwise it has
    /// been taken), or why not.
    answer: Option<Result<bool, Refusal>>,
}

/// All of these, of the one record that the program waits for.
#[derive(Debug, Default)]
pub(crate) struct Directs(Vec<Direct>);

impl Directs {
    pub(super) fn add(&mut self, to: Rank, token: u64) {
        self.0.push(Direct { to, token, answer: None });
    }

    /// Those that were answered.
    pub(super) fn take_answered(&mut self) -> Vec<(Rank, Result<bool, Refusal>)> {
        let answered = self.0.extract_if(.., |direct| direct.answer.is_some());
        answered.filter_map(|direct| Some((direct.to, direct.answer?))).collect()
    }

    /// An answer has come; false if it is none to these.
    fn answered(&mut self, from: Rank, token: u64, answer: Result<bool, Refusal>) -> bool {
        let mine = |direct: &&mut Direct| {
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
        place: &Place,
        from: Rank,
        cast: &MulticastAppend<'_>,
    ) -> Result<Delivery, String> {
        let MulticastAppend { token, window, offset, signal, source, .. } = *cast;
        if source >= place.ranks() {
            return Err(format!("a record of rank {source}, which does not exist"));
        }
        let (members, data) = frame::members(cast.members, cast.tail);
        let keys = self.windows.keys(window);
        let (near, far) = relay::sort(place, &keys, members)?;
        if !far.is_empty() && MULTICAST_APPEND_BYTES + cast.tail.len() > self.longest {
            return Err("a record for many that is too long to be forwarded".into());
        }
        let cost = relay::cost(data, &far);
        if self.answers.len() >= MOST_ANSWERS
            || !far.is_empty() && !self.multicasts.has_room(place, cost)
        {
            return Ok(Delivery::Full);
        }
        let (mut fate, most) = (Fate::default(), near.len() + far.len());
        if keys.is_empty() {
            // What the others call the window is known to the window that is gone: nobody behind
            // this rank has it.
            self.refused_here += 1;
            let refused = Some((place.rank(), Refusal::Window));
            self.answers
                .push_back((from, Answer::MulticastAppend { token, refused, full: vec![] }));
            return Ok(Delivery::Taken);
        }
        for rank in near {
            match self.append_near(place, rank, keys[rank as usize], cast, data) {
                Ok(()) => {}
                Err(Refusal::Full) => fate.full.push(rank),
                Err(reason) => {
                    fate.refused.get_or_insert((rank, reason));
                    self.refused_here += 1;
                }
            }
        }
        if far.is_empty() {
            let Fate { refused, full } = fate;
            self.answers.push_back((from, Answer::MulticastAppend { token, refused, full }));
            return Ok(Delivery::Taken);
        }
        let (children, above) = (relay::split(&far), token);
        let token = self.token();
        let ranks = children.iter().map(|child| child.0);
        self.multicasts.begin_record(token, Some((from, above)), ranks, fate, most);
        let children =
            children.into_iter().map(|(rank, rest)| (rank, relay::list(&rest))).collect();
        let (data, record) = (data.to_vec(), Some((source, signal)));
        let notify = None;
        let forward = Forward { token, keys, offset, notify, record, children, data, cost };
        self.multicasts.keep(forward);
        Ok(Delivery::Taken)
    }

    /// Appends to the FIFO of a rank of this node, the own one or another, if there is room.
    fn append_near(
        &mut self,
        place: &Place,
        rank: Rank,
        window: WindowKey,
        cast: &MulticastAppend<'_>,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let MulticastAppend { offset, signal, source, .. } = *cast;
        let local = place.local_of(rank).ok_or(Refusal::Window)?;
        if local == place.local() {
            let record = Arrived { from: source, token: 0, wait: false, signal, data };
            return match self.fifos.append(place, (window, offset), record) {
                Outcome::Taken => Ok(()),
                Outcome::Refused(reason) => Err(reason),
                // Only what waits is.
                Outcome::Parked => Err(Refusal::Full),
            };
        }
        let near = Near::find(place, local, window).ok_or(Refusal::Window)?;
        let mark = if signal { MARK_SIGNAL } else { MARK_FIFO };
        let (queue, notify) = queue_in(&near, offset, mark)?;
        match queue.push(source, data) {
            Ok(Push::Taken) => {
                let counter = (!signal).then(|| counter_index(window, notify));
                announce(place, local, &queue, counter);
                Ok(())
            }
            Ok(Push::Full) => Err(Refusal::Full),
            Ok(Push::TooLong) => Err(Refusal::Record),
            Err(_) => Err(Refusal::Damage),
        }
    }

    /// A child says what became of a record for it and those behind it. An error is its fault.
    pub(crate) fn multicast_append_done(
        &mut self,
        place: &Place,
        from: Rank,
        done: &MulticastAppendDone<'_>,
    ) -> Result<(), String> {
        let count = (done.full.len() / 4) as u16;
        let full: Vec<Rank> = frame::members(count, done.full).0.collect();
        // Without anybody who waits for it the answer is dropped below.
        let most = self.multicasts.may_be_full(done.token).unwrap_or(full.len());
        if full.len() > most || full.iter().any(|rank| *rank >= place.ranks()) {
            return Err("an answer for ranks that it was not asked to see to".into());
        }
        self.child_answered(from, done.token, done.refused, &full);
        Ok(())
    }

    /// An answer to an append has come; false if it is none to an own record for many.
    pub(crate) fn direct_answered(
        &mut self,
        from: Rank,
        token: u64,
        answer: Result<bool, Refusal>,
    ) -> bool {
        self.multicasts.directs.answered(from, token, answer)
    }
}
