//! Settings of the protocol for a rank's channel, and when packets wait for company.

use kumi_proto::{AckMode, Checksum, Config, ContextMemory, Endpoint, Rank};

use crate::segment::MIN_DATAGRAM;
use crate::segment::attachment::Attachment;

/// So many packets to a rank leave at once; while more are under way, others wait for company.
const FEW: usize = 4;
/// So many that wait for company are enough: as many as the kernel takes in one call.
const MANY: usize = 44;
/// So many bytes are enough for a system call: it then costs less than the bytes themselves.
const LONG: u64 = 16 * 1024;

/// Most bytes of a run.
const MOST_BYTES: usize = 65_507;

/// Largest datagram used, even on a path that takes larger ones (loopback does): the payload of an
/// Ethernet frame of 9,000 bytes. The kernel takes runs of them together anyway.
const MOST_DATAGRAM: usize = 8_972;
/// Bytes in flight to one peer at first: several runs, so that one is being sent while another is received
/// and a third acknowledged.
const FIRST_IN_FLIGHT: usize = 800_000;
/// Most bytes in flight to one peer, on a path that takes so many without a queue. The segment has address space for rings
/// that are so long.
const MOST_IN_FLIGHT: usize = 2_000_000;

/// Packets of full length of the longest run.
pub(super) fn run_of_full_packets(config: &Config) -> usize {
    // Of long packets the ring has few places: not more than half of them.
    (MOST_BYTES / config.max_datagram).min(MANY).min(config.first_window / 2).max(1)
}

/// Settings of the protocol for this driver, the same at all ranks. A deadline found late by less
/// than `late` may be the handler thread's tick, not a stop.
///
/// The first window is each rank's own: no more than a receive buffer like its own, of `buffer` bytes, holds.
pub(super) fn protocol(
    attachment: &Attachment,
    ack: AckMode,
    checksum: Checksum,
    buffer: usize,
) -> Config {
    let max_datagram = attachment.max_datagram().min(MOST_DATAGRAM);
    let packets = |bytes: usize| 1 << (bytes / max_datagram).clamp(16, 1_024).ilog2();
    let (first_window, window) = (packets(FIRST_IN_FLIGHT.min(buffer)), packets(MOST_IN_FLIGHT));
    let ack_every = (first_window / 4) as u32;
    // A path that takes less gets fragments: frames would not pay.
    let least_datagram = MIN_DATAGRAM.into();
    Config {
        max_datagram,
        window,
        first_window,
        ack_every,
        late: 5_000,
        ack,
        checksum,
        least_datagram,
        ..Config::default()
    }
}

/// Packets to a rank: those under way, and those that may wait for company.
#[derive(Debug, Clone, Copy)]
pub(super) struct HoldBack {
    in_flight: usize,
    queued: usize,
    /// Packets of a run of full ones.
    pub(super) run: usize,
    /// Most short packets that wait.
    most: usize,
}

impl HoldBack {
    #[inline]
    pub(super) fn of(endpoint: &Endpoint<impl ContextMemory>, to: Rank, run: usize) -> HoldBack {
        let (in_flight, queued) = endpoint.under_way(to);
        let most = MANY.min(endpoint.config().first_window / 2);
        HoldBack { in_flight: in_flight as usize, queued: queued as usize, run, most }
    }

    /// Whether what is queued, of `bytes` bytes, waits for more. While a whole run is under way, even much may wait.
    #[inline]
    pub(super) fn holds(self, bytes: u64) -> bool {
        let (few, many) = if bytes < LONG { (FEW, self.most) } else { (self.run, self.run) };
        self.in_flight >= few && self.queued < many
    }

    /// Packets that are missing to a full run, if it is to wait for them.
    pub(super) fn missing(self) -> Option<usize> {
        let fills = self.in_flight >= self.run || self.queued > 0;
        fills.then(|| self.run - self.queued % self.run)
    }
}
