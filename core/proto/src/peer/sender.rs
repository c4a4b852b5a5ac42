//! Sender of one peer: ring, retransmission timer, probes, refusals. `acks` evaluates the peer's
//! answers.

mod acks;
mod transmission;

pub(crate) use transmission::{CompletedRun, RunPlace};

use super::pacer::Pacer;
use super::path_mtu::PathMtu;
use super::probes::ProbeState;
use super::send_ring::{LentPart, PacketState, SendRing};
use super::{NEVER, SharedState};
use crate::congestion_window::CongestionWindow;
use crate::context::{Block, Flag, PeerReport};
use crate::reordering::ReorderingEstimate;
use crate::retransmission_timeout::RetransmissionTimeout;
use crate::wire::HEADER_BYTES;
use crate::{Config, Micros};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most datagrams of one transmit.
const MOST_SEGMENTS: usize = 64;
/// Most bytes of one transmit: the largest UDP payload.
const MOST_BYTES: usize = 65_507;

/// Length of the longest run of packets, in bytes.
pub(crate) fn run_bytes(config: &Config) -> usize {
    MOST_BYTES.min(MOST_SEGMENTS * config.max_datagram)
}

/// Back-pressure of a receiver that refused a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backpressure {
    /// Nothing.
    No,
    /// The oldest packet was refused; nothing is sent until then.
    Waiting { until: Micros },
    /// Only the oldest packet is sent.
    Trying,
}

/// Consecutive packets to transmit: the first one's number and how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketRun {
    first: u32,
    count: usize,
    /// They lie end to end in the ring: none but the last is shorter than a slot.
    in_place: bool,
    /// Parts of the first, and perhaps of others, are lent.
    lent: bool,
    /// They were sent before.
    pub(crate) resent: bool,
    /// They are too long to arrive whole.
    pub(crate) fragment: bool,
}

/// Acknowledgement that data packets carry for the other direction: the ack field, and flags of the
/// first packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piggyback {
    pub(crate) ack: u32,
    pub(crate) flags: u16,
}

/// No [`Backpressure`], as a context has it; waiting; trying.
const FREE: u8 = 0;
const WAITING: u8 = 1;
const TRYING: u8 = 2;
/// The greatest of them.
pub(super) const MOST_FULL: u8 = TRYING;

/// State of the pair's sending side.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Sender {
    /// When the retransmission timeout expires.
    pub(super) timeout: Micros,
    /// See [`Backpressure::Waiting`].
    pub(super) full_until: Micros,
    pub(super) pace: Pacer,
    pub(super) probe: ProbeState,
    pub(super) path: PathMtu,
    pub(super) congestion: CongestionWindow,
    pub(super) retransmission: RetransmissionTimeout,
    pub(super) reorder: ReorderingEstimate,
    /// Number of its ring plus one; 0: it has none.
    pub(crate) ring: u32,
    /// The oldest packet not acked; `oldest <= next <= tail`, and `tail - oldest <= window`.
    pub(super) oldest: u32,
    /// The next packet to send for the first time.
    pub(super) next: u32,
    /// The number that the next frame queued will get.
    pub(super) tail: u32,
    /// Bytes of the packets from `oldest` to `tail`, headers included.
    pub(super) held: u32,
    /// Slots in state `FLIGHT`.
    pub(super) in_flight: u32,
    /// Slots in state `LOST`.
    pub(super) lost: u32,
    /// Number of the next transmission.
    pub(super) transmission: u32,
    /// Latest transmission known to have arrived, of packets sent once.
    pub(super) newest: u32,
    /// Slots of which a part is lent.
    pub(super) lent_slots: u16,
    /// [`FREE`], [`WAITING`] or [`TRYING`].
    pub(super) full: u8,
    /// Refusals in a row.
    pub(super) refusals: u8,
    /// The timeout was postponed since the peer was last heard of.
    pub(super) postponed: Flag,
    /// Resends were made that no probe has followed yet.
    pub(super) recovering: Flag,
    /// The peer asks to hold back.
    pub(super) hold: Flag,
    /// Rounds in a row in which the ring was full and no packet queued on the way.
    pub(super) cramped: u8,
}

impl Sender {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            timeout: NEVER,
            full_until: 0,
            pace: Pacer::new(),
            probe: ProbeState::new(),
            path: PathMtu::new(config),
            congestion: congestion_window(config, config.first_slots(), 0),
            retransmission: RetransmissionTimeout::default(),
            reorder: ReorderingEstimate::new(),
            ring: 0,
            oldest: config.first_sequence,
            next: config.first_sequence,
            tail: config.first_sequence,
            held: 0,
            in_flight: 0,
            lost: 0,
            transmission: 0,
            newest: u32::MAX,
            lent_slots: 0,
            full: FREE,
            refusals: 0,
            postponed: Flag::CLEAR,
            recovering: Flag::CLEAR,
            hold: Flag::CLEAR,
            cramped: 0,
        }
    }

    /// Of another byte, as of [`FREE`], a context is not opened.
    fn full(&self) -> Backpressure {
        match self.full {
            WAITING => Backpressure::Waiting { until: self.full_until },
            TRYING => Backpressure::Trying,
            _ => Backpressure::No,
        }
    }

    fn set_full(&mut self, full: Backpressure) {
        (self.full, self.full_until) = match full {
            Backpressure::No => (FREE, 0),
            Backpressure::Waiting { until } => (WAITING, until),
            Backpressure::Trying => (TRYING, 0),
        };
    }

    /// Everything queued has been acked.
    pub(crate) fn flushed(&self) -> bool {
        self.oldest == self.tail
    }

    /// Slots of the ring: most packets in flight.
    #[inline]
    pub(crate) fn slots(&self) -> usize {
        self.congestion.most() as usize
    }

    /// Free slots of the ring.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.slots() - self.tail.wrapping_sub(self.oldest) as usize
    }

    /// Its ring, which is in this block.
    #[inline(always)]
    pub(crate) fn ring_in<'m>(&self, block: Block<'m>) -> SendRing<'m> {
        SendRing::new(block, self.slots())
    }

    /// The number that the next frame queued will get.
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    /// Its numbers and counts, for those who look at a context.
    pub(crate) fn report(&self, report: &mut PeerReport) {
        (report.oldest, report.next, report.tail) = (self.oldest, self.next, self.tail);
        (report.in_flight, report.lost) = (self.in_flight, self.lost);
        (report.unacked_bytes, report.lent) = (self.held, self.lent_slots.into());
        report.congestion_window = self.congestion.window();
        report.round_trip_us = self.round_trip();
        report.timeouts = self.retransmission.expired();
        report.probes = self.probe.sent.wrapping_sub(self.probe.answered);
        report.refusals = self.refusals;
    }

    /// Packets on the wire: sent, not answered.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Packets in the ring, and their bytes.
    pub(crate) fn unacked(&self) -> (u64, u64) {
        (u64::from(self.tail.wrapping_sub(self.oldest)), u64::from(self.held))
    }

    /// Smoothed round trip in microseconds, if measured.
    pub(crate) fn round_trip(&self) -> Option<Micros> {
        self.retransmission.smoothed()
    }

    pub(crate) fn deadline(&self) -> Micros {
        let own = self.timeout.min(self.probe.later.get()).min(self.pace.wake);
        match self.full() {
            Backpressure::Waiting { until } => own.min(until),
            Backpressure::No | Backpressure::Trying => own,
        }
    }

    pub(crate) fn has_ring(&self) -> bool {
        self.ring != 0
    }

    /// Gives up the ring, if nothing is in it; its number plus one.
    pub(crate) fn take_ring(&mut self) -> Option<u32> {
        let number = if self.flushed() { core::mem::take(&mut self.ring) } else { 0 };
        (number > 0).then_some(number)
    }

    /// Has a frame of at most `most` bytes written into the ring; its length. The caller has checked that there
    /// are room and ring.
    #[inline]
    pub(crate) fn queue(
        &mut self,
        ring: &mut SendRing<'_>,
        config: &Config,
        most: usize,
        write: impl FnOnce(&mut [u8]) -> (usize, LentPart),
    ) -> usize {
        self.queue_if(ring, config, most, |room| Some(write(room))).unwrap_or_default()
    }

    /// The same, unless `write` has no frame.
    #[inline]
    pub(crate) fn queue_if(
        &mut self,
        ring: &mut SendRing<'_>,
        config: &Config,
        most: usize,
        write: impl FnOnce(&mut [u8]) -> Option<(usize, LentPart)>,
    ) -> Option<usize> {
        let index = ring.index(self.tail);
        let at = index * config.max_datagram + HEADER_BYTES;
        let (head, rest) = write(&mut ring.bytes[at..at + most])?;
        let head = head.min(most);
        let length = head + rest.bytes;
        let slot = &mut ring.slots[index];
        // `max_datagram` is at most 65,507.
        slot.length = u16::try_from(HEADER_BYTES + length).unwrap_or(u16::MAX);
        slot.head = u16::try_from(HEADER_BYTES + head).unwrap_or(u16::MAX);
        slot.place = rest.place;
        self.lent_slots += u16::from(slot.is_lent());
        slot.state = PacketState::QUEUED;
        slot.resends = 0;
        self.held += u32::from(slot.length);
        self.tail = self.tail.wrapping_add(1);
        Some(length)
    }

    /// Has `pad` lengthen the last frame to `full` bytes if it has not been sent, and the packets behind it could then
    /// leave in the same run. It says false if the frame stays as it is. By how many bytes it is longer.
    pub(crate) fn pad_last(
        &mut self,
        ring: &mut SendRing<'_>,
        config: &Config,
        full: usize,
        pad: impl FnOnce(&mut [u8], usize) -> bool,
    ) -> usize {
        let (last, unsent) = (self.tail.wrapping_sub(1), self.tail.wrapping_sub(self.next));
        if unsent == 0 {
            return 0;
        }
        let whole = HEADER_BYTES + full;
        let continues = unsent > 1 && usize::from(ring.slot(last.wrapping_sub(1)).length) == whole;
        let index = ring.index(last);
        let slot = &mut ring.slots[index];
        let length = usize::from(slot.length);
        // Not a small frame, which would cost more than it gains.
        if slot.is_lent() || length >= whole || !(continues || 2 * length >= whole) {
            return 0;
        }
        let at = index * config.max_datagram + HEADER_BYTES;
        if !pad(&mut ring.bytes[at..at + full], length - HEADER_BYTES) {
            return 0;
        }
        slot.length = u16::try_from(whole).unwrap_or(u16::MAX);
        slot.head = slot.length;
        self.held += u32::try_from(whole - length).unwrap_or(0);
        whole - length
    }

    /// Packets in flight, and packets never sent.
    pub(crate) fn under_way(&self) -> (u32, u32) {
        (self.in_flight, self.tail.wrapping_sub(self.next))
    }

    /// Bytes of the longest datagram to send to this peer.
    pub(crate) fn max_datagram_to_peer(&self, config: &Config) -> usize {
        self.path.datagram_limit(config)
    }

    /// The wire has told it.
    pub(crate) fn set_path_mtu(&mut self, datagram: usize, config: &Config) {
        self.path.set(datagram, config);
    }

    /// Asks for an ack once the packets queued are sent, unless that was asked already.
    pub(crate) fn request_ack(&mut self) {
        if !self.flushed() && !self.probe.outstanding() && self.full == FREE {
            self.probe.due = Flag::SET;
            self.probe.at_once = Flag::SET;
        }
    }

    /// Estimates of the path, pauses and refusals start anew: it is another path.
    pub(super) fn forget_path(&mut self, config: &Config) {
        self.pace = Pacer::new();
        self.path = PathMtu::new(config);
        self.congestion = congestion_window(config, self.slots(), self.transmission);
        self.retransmission = RetransmissionTimeout::default();
        self.reorder = ReorderingEstimate::new();
        self.set_full(Backpressure::No);
        self.refusals = 0;
        (self.postponed, self.recovering, self.hold) = (Flag::CLEAR, Flag::CLEAR, Flag::CLEAR);
    }

    // ---- time -------------------------------------------------------------------------------

    /// Restarts the timeout, or stops it when nothing is unacked (RFC 6298, 5.2 and 5.3).
    fn rearm(&mut self, now: Micros, shared: &SharedState<'_>) {
        let runs = if shared.closed {
            self.in_flight > 0
        } else {
            self.oldest != self.next && self.full != WAITING
        };
        self.timeout = if runs {
            now.saturating_add(self.retransmission.timeout(shared.config))
        } else {
            NEVER
        };
    }

    /// The channel is open again.
    pub(crate) fn reopen(&mut self, now: Micros, shared: &SharedState<'_>) {
        self.probe.at_once = Flag::CLEAR;
        self.rearm(now, shared);
    }

    pub(crate) fn handle_timeout(
        &mut self,
        now: Micros,
        ring: &mut SendRing<'_>,
        shared: &mut SharedState<'_>,
    ) {
        if let Backpressure::Waiting { until } = self.full()
            && until <= now
        {
            self.try_oldest(ring);
        }
        if self.pace.wake <= now {
            self.pace.wake = NEVER;
        }
        if self.probe.later.get() <= now {
            self.probe.later.set(NEVER);
            self.probe.due = Flag::SET;
        }
        if self.timeout > now {
            return;
        }
        if now - self.timeout > shared.config.late && !self.postponed.get() {
            self.postponed = Flag::SET;
            self.timeout = now.saturating_add(shared.config.late_grace);
            shared.counters.timeouts_postponed += 1;
            return;
        }
        shared.counters.timeouts += 1;
        self.retransmission.back_off();
        self.probe.due = Flag::SET;
        self.rearm(now, shared);
    }

    /// The pause after a refusal is over.
    fn try_oldest(&mut self, ring: &mut SendRing<'_>) {
        self.set_full(Backpressure::Trying);
        if self.flushed() {
            return;
        }
        let slot = ring.slot(self.oldest);
        match slot.state {
            PacketState::FLIGHT => {
                slot.state = PacketState::LOST;
                self.in_flight -= 1;
                self.lost += 1;
            }
            // The receiver keeps it: a probe makes it try again.
            PacketState::ARRIVED => self.probe.due = Flag::SET,
            _ => {}
        }
    }

    // ---- sending ----------------------------------------------------------------------------

    /// Packets wait to be sent, or to be sent again.
    #[inline]
    pub(crate) fn has_data(&self, shared: &SharedState<'_>) -> bool {
        !shared.closed && (self.lost > 0 || self.next != self.tail)
    }

    /// The run of packets that may be sent now, if [`Self::has_data`].
    pub(crate) fn next_run(
        &mut self,
        now: Micros,
        ring: &mut SendRing<'_>,
        shared: &SharedState<'_>,
    ) -> Option<PacketRun> {
        let config = shared.config;
        let budget = match self.full() {
            Backpressure::No => self.window(now, shared).saturating_sub(self.in_flight) as usize,
            Backpressure::Waiting { .. } => 0,
            Backpressure::Trying => 1,
        };
        let budget = self.paced(now, budget);
        if budget == 0 {
            return None;
        }
        self.path.retry(now);
        let (carries, trailer) = (self.path.whole_datagram(config), shared.packets.trailer());
        if self.full == TRYING {
            return self.refused_packet(ring, carries.saturating_sub(trailer));
        }
        let (first, wanted, end) = if self.lost > 0 {
            let mut first = self.oldest;
            while ring.slot(first).state != PacketState::LOST {
                first = first.wrapping_add(1);
            }
            (first, PacketState::LOST, self.next)
        } else {
            (self.next, PacketState::QUEUED, self.tail)
        };
        let (length, lent) = (ring.slot(first).length, ring.slot(first).is_lent());
        let in_place = usize::from(length) + trailer == config.max_datagram && !lent;
        // Only what does not wrap lies end to end.
        let straight = if in_place { ring.length() - ring.index(first) } else { usize::MAX };
        let most = budget
            .min(MOST_SEGMENTS)
            .min(MOST_BYTES / (usize::from(length) + trailer))
            .min(straight)
            .min(end.wrapping_sub(first) as usize);
        let mut count = 1;
        let (mut next, mut last) = (first, length);
        // The kernel cuts a run into equal packets, of which the last may be shorter.
        while count < most && last == length {
            next = next.wrapping_add(1);
            let slot = ring.slot(next);
            if slot.state != wanted || slot.length > length || (slot.is_lent() && !lent) {
                break;
            }
            last = slot.length;
            count += 1;
        }
        let in_place = in_place || count == 1;
        let fragment = usize::from(length) + trailer > carries;
        let resent = wanted == PacketState::LOST;
        Some(PacketRun { first, count, in_place, lent, resent, fragment })
    }

    /// The oldest packet alone, if it is to be sent again after it was refused; `whole` bytes of a packet arrive whole.
    fn refused_packet(&self, ring: &mut SendRing<'_>, whole: usize) -> Option<PacketRun> {
        let first = self.oldest;
        let slot = ring.slot(first);
        let fragment = usize::from(slot.length) > whole;
        let lent = slot.is_lent();
        let run = PacketRun { first, count: 1, in_place: true, lent, resent: true, fragment };
        (slot.state == PacketState::LOST).then_some(run)
    }

    /// Packets that may be in flight now.
    fn window(&self, now: Micros, shared: &SharedState<'_>) -> u32 {
        if self.hold.get() || shared.holds(now) {
            self.congestion.held()
        } else {
            self.congestion.window()
        }
    }

    /// The part of the budget that may leave now: all of it, unless packets queue in the network.
    fn paced(&mut self, now: Micros, budget: usize) -> usize {
        if budget == 0 || !self.congestion.saturated() {
            return budget;
        }
        let round_trip = self.retransmission.smoothed().unwrap_or(0);
        let paced = self.pace.budget(now, self.congestion.window(), round_trip);
        // Only if the program has more than the window takes.
        let wanted = self.in_flight + self.lost + self.tail.wrapping_sub(self.next);
        if paced < budget && wanted >= self.congestion.window() {
            self.congestion.limited();
        }
        budget.min(paced)
    }

    /// Starts the timeout if it is not running (RFC 6298, 5.1): something is about to leave.
    pub(crate) fn arm(&mut self, now: Micros, config: &Config) {
        if self.timeout == NEVER {
            self.timeout = now.saturating_add(self.retransmission.timeout(config));
        }
    }

    /// Whether a probe is to leave now, everything that may be sent having left.
    pub(crate) fn wants_probe(&mut self, now: Micros, shared: &SharedState<'_>) -> bool {
        if shared.closed {
            return self.wants_answer(now);
        }
        if self.oldest == self.next {
            self.recovering = Flag::CLEAR;
            // With frames queued but none sent, the request for an ack waits for them.
            self.probe.due.and(self.next != self.tail);
            self.probe.later.set(NEVER);
            return false;
        }
        let all_resent = self.recovering.get() && self.lost == 0;
        if all_resent && !self.probe.outstanding() && self.full == FREE {
            self.recovering = Flag::CLEAR;
            self.probe.soon(now, self.reorder.margin());
        }
        self.probe.due.get()
    }

    /// The same while the channel is closed: only what is on the wire is asked for.
    fn wants_answer(&mut self, now: Micros) -> bool {
        if self.in_flight == 0 {
            self.probe.later.set(NEVER);
            self.probe.due = Flag::CLEAR;
        } else if !self.probe.outstanding() && self.probe.later.get() == NEVER {
            // A packet younger than the probe by less than the margin needs another probe.
            self.probe.soon(now, self.reorder.margin());
        }
        self.probe.due.get()
    }

    /// A probe leaves now; its number and flags.
    pub(crate) fn probe(&mut self, now: Micros, shared: &SharedState<'_>) -> (u32, u16) {
        self.arm(now, shared.config);
        self.probe.at_once.or(shared.closed);
        self.probe.leave(now, self.transmission)
    }
}

/// The congestion window of a path of which nothing is known, before transmission `next`; the ring has `slots`.
fn congestion_window(config: &Config, slots: usize, next: u32) -> CongestionWindow {
    let most = u32::try_from(slots).unwrap_or(u32::MAX);
    CongestionWindow::new(config.initial_window, most, next)
}
