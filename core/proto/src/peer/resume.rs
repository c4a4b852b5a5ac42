//! State of a peer that was copied from elsewhere: checked, then put into this endpoint's time.

use super::send_ring::{PacketState, SendRing, Slot};
use super::{PeerRecord, Receiver, Sender};
use crate::context::{ContextError, Flag};
use crate::wire::HEADER_BYTES;
use crate::{Config, Micros, Rank};

/// What the checks need to know of the endpoint.
pub(crate) struct RecordCheck<'c, L> {
    pub(crate) config: &'c Config,
    /// Bytes behind an encrypted packet's body.
    pub(crate) trailer: usize,
    /// Finds what was lent to a packet to this rank: its place, and the room for its bytes.
    pub(crate) lent: L,
}

/// Flags, each 0 or 1.
fn valid(flags: &[Flag]) -> bool {
    flags.iter().all(|flag| flag.is_valid())
}

impl PeerRecord {
    /// Checks how many slots its ring has.
    ///
    /// # Errors
    /// What no endpoint writes.
    pub(crate) fn check_slots(&self, config: &Config) -> Result<(), ContextError> {
        let slots = self.sender.slots();
        if (2..=config.window).contains(&slots) && slots.is_power_of_two() {
            return Ok(());
        }
        Err(ContextError::of_peer("the slots of a send ring", self.rank))
    }

    /// Checks everything but the numbers of its blocks and the place in the table of counters.
    ///
    /// # Errors
    /// What no endpoint writes; data that was lent and cannot be found.
    pub(crate) fn check<L: FnMut(Rank, u64, &mut [u8]) -> bool>(
        &mut self,
        ring: &mut SendRing<'_>,
        early: &[Slot],
        check: &mut RecordCheck<'_, L>,
    ) -> Result<(), ContextError> {
        let rank = self.rank;
        self.sender.check_numbers(ring, rank)?;
        self.sender.check_ring(ring, check, rank)?;
        self.receiver.check(early, check.config, check.trailer, rank)
    }

    /// Puts everything into the time and onto the paths of this endpoint, whose clock shows `now`.
    pub(crate) fn restart(&mut self, now: Micros, ring: &mut SendRing<'_>, config: &Config) {
        (self.queued, self.listed) = (Flag::CLEAR, Flag::CLEAR);
        self.sender.restart(now, ring, config);
        self.receiver.restart(config);
    }
}

impl Sender {
    fn check_numbers(&self, ring: &SendRing<'_>, rank: Rank) -> Result<(), ContextError> {
        let unacked = self.tail.wrapping_sub(self.oldest);
        let sent = self.next.wrapping_sub(self.oldest);
        if unacked as usize > self.slots() || sent > unacked {
            return Err(ContextError::of_peer("numbers outside the window", rank));
        }
        if unacked > 0 && ring.is_none() {
            return Err(ContextError::of_peer("unacked packets without a ring", rank));
        }
        let flags =
            [self.postponed, self.recovering, self.hold, self.probe.due, self.probe.at_once];
        if !valid(&flags) || self.full > super::sender::MOST_FULL {
            return Err(ContextError::of_peer("a flag of the sender", rank));
        }
        Ok(())
    }

    /// Checks the slots that are used, and copies what was lent.
    fn check_ring<L: FnMut(Rank, u64, &mut [u8]) -> bool>(
        &mut self,
        ring: &mut SendRing<'_>,
        check: &mut RecordCheck<'_, L>,
        rank: Rank,
    ) -> Result<(), ContextError> {
        let stride = check.config.max_datagram;
        let most = stride - check.trailer;
        let (mut held, mut in_flight, mut lost, mut lent) = (0, 0, 0, 0);
        let mut sequence = self.oldest;
        let mut sent = self.next.wrapping_sub(self.oldest);
        while sequence != self.tail {
            let index = ring.index(sequence);
            let slot = &mut ring.slots[index];
            let (head, length) = (usize::from(slot.head), usize::from(slot.length));
            if !(HEADER_BYTES..=most).contains(&length) || !(HEADER_BYTES..=length).contains(&head)
            {
                return Err(ContextError::of_peer("a packet's length", rank));
            }
            if !slot.state.is_valid(sent > 0) {
                return Err(ContextError::of_peer("a packet's state", rank));
            }
            held += u32::from(slot.length);
            in_flight += u32::from(slot.state == PacketState::FLIGHT);
            lost += u32::from(slot.state == PacketState::LOST);
            if slot.is_lent() {
                lent += 1;
                let (place, packet) = (slot.place, &mut ring.bytes[index * stride..]);
                if !(check.lent)(rank, place, &mut packet[head..length]) {
                    return Err(ContextError::Lent { to: rank, place });
                }
                slot.head = slot.length;
            }
            sent = sent.saturating_sub(1);
            sequence = sequence.wrapping_add(1);
        }
        let counted = (held, in_flight, lost, lent);
        if counted != (self.held, self.in_flight, self.lost, self.lent_slots) {
            return Err(ContextError::of_peer("the counts of a send ring", rank));
        }
        self.lent_slots = 0;
        Ok(())
    }

    /// What was in flight is asked for by a probe: nobody knows what has arrived.
    fn restart(&mut self, now: Micros, ring: &mut SendRing<'_>, config: &Config) {
        let mut sequence = self.oldest;
        while sequence != self.next {
            ring.slot(sequence).sent_at = 0;
            sequence = sequence.wrapping_add(1);
        }
        self.forget_path(config);
        let asks = self.oldest != self.next;
        self.probe.restart(asks);
        self.timeout = super::NEVER;
        if asks {
            self.arm(now, config);
        }
    }
}

impl Receiver {
    fn check(
        &self,
        early: &[Slot],
        config: &Config,
        trailer: usize,
        rank: Rank,
    ) -> Result<(), ContextError> {
        let window = config.window;
        if !valid(&self.flags()) {
            return Err(ContextError::of_peer("a flag of the receiver", rank));
        }
        if usize::from(self.owed) > window || usize::from(self.patience) > window {
            return Err(ContextError::of_peer("the counts of the receiver", rank));
        }
        let most = config.max_datagram - HEADER_BYTES - trailer;
        if !early.iter().all(|slot| slot.is_valid_early(most)) {
            return Err(ContextError::of_peer("an early packet", rank));
        }
        let kept = early.iter().filter(|slot| slot.state == PacketState::ARRIVED).count();
        if kept != usize::from(self.kept()) {
            return Err(ContextError::of_peer("the number of its early packets", rank));
        }
        Ok(())
    }
}
