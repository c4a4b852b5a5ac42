//! Settings of an endpoint and their checks.

use crate::Micros;
use crate::wire::HEADER_BYTES;

/// Settings of an endpoint. `max_datagram`, `window` and `first_sequence` must be the same at every
/// rank of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Largest UDP payload in bytes, header included; 64 to 65,507. Default 1,472: the payload of an
    /// Ethernet frame of 1,500 bytes, without IPv4 and UDP headers.
    pub max_datagram: usize,
    /// Most packets in flight to one peer, and slots of its send ring; a power of two from 2 to
    /// 1,024. Default 128.
    pub window: usize,
    /// Slots of a send ring at first. It doubles, up to `window`, when it is full again and again though packets do not queue
    /// on the way: on a path with a higher product of bandwidth and delay. A power of two, at most `window`; a greater
    /// one counts as `window`. Default 1,024.
    pub first_window: usize,
    /// Number of send rings (`window` × `max_datagram` bytes each) before rings are reused. A peer
    /// without unacked packets then gives its ring to another. More rings exist only while more peers
    /// have unacked packets. At least 1. Default 64.
    pub rings: usize,
    /// Most early packets kept for all peers together. Default 2,048.
    pub reorder_packets: usize,
    /// An ack is sent at the latest after this many packets from one peer. Default 16.
    pub ack_every: u32,
    /// An ack is sent at the latest this long after the first unacknowledged packet, in
    /// microseconds. Default 250.
    pub ack_delay: Micros,
    /// Retransmission timeout before the first round trip is measured, in microseconds. Default
    /// 10,000 (RFC 6298 says 1 s, for the Internet).
    pub initial_rto: Micros,
    /// Least retransmission timeout, in microseconds. Default 2,000. An expired timeout sends a small
    /// probe, not data, so an early one is cheap.
    pub min_rto: Micros,
    /// Largest retransmission timeout, back-off included, in microseconds. Default 250,000. It
    /// bounds how long a healed network goes unnoticed.
    pub max_rto: Micros,
    /// A deadline found later than this, in microseconds, means that this rank was stopped.
    /// Default 2,000.
    pub late: Micros,
    /// How long an expired retransmission timer is postponed after a stop, in microseconds.
    /// Default 1,000.
    pub late_grace: Micros,
    /// First pause after a full receiver refused a packet, in microseconds. Default 100.
    pub full_retry: Micros,
    /// Longest such pause, in microseconds. Default 10,000.
    pub full_retry_max: Micros,
    /// Congestion window at the start, in packets; at most `window` is used. Default 32.
    pub initial_window: u32,
    /// How long packets to one peer may queue in the network, in microseconds. The congestion window
    /// shrinks when round trips exceed the shortest by more than this. With 0 only losses shrink it.
    /// The default of 2,000 is above the delay of an empty path and of thread wake-ups on a busy
    /// machine.
    pub queue_target: Micros,
    /// Number of the first packet of every pair. Default 0; another one lets a test cross the
    /// wrap of the numbers.
    pub first_sequence: u32,
    /// How data packets are acked. Each rank decides for what it receives; ranks may differ. Default
    /// [`AckMode::Reduced`].
    pub ack: AckMode,
    /// Bytes of the longest datagram that every path is taken to carry whole. Longer ones to a peer that are
    /// lost again and again while shorter ones arrive make this the limit for it. Default 1,200 (RFC 9000
    /// asks as much of a path).
    pub safe_datagram: usize,
    /// How long it stays the limit before longer ones are tried again, in microseconds; twice that each time
    /// they are lost again. Default 60,000,000.
    pub path_retry: Micros,
    /// Bytes of the shortest datagram that frames are cut to, 64 to `safe_datagram`: on a path that carries
    /// less, packets of this length are fragmented. Default 64.
    pub least_datagram: usize,
    /// Bytes that the checksum of an unencrypted packet covers. Each rank decides for the packets it
    /// sends; ranks may differ. Default [`Checksum::Headers`].
    pub checksum: Checksum,
    /// Least bytes of a packet that stay in the caller's memory ([`crate::Endpoint::send_lent`]); fewer
    /// are copied. At least 1. Default 4,096: with packets of 1,500 bytes the kernel needs as long to
    /// gather a run as the copy takes.
    pub lend_least: usize,
}

/// How data packets are acked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckMode {
    /// Acks are piggybacked on packets of the other direction, so a reply is the ack of its request.
    /// Separate acks are cumulative and delayed.
    #[default]
    Reduced,
    /// Every data packet that arrives is answered at once by an ack or nack of its own: the baseline
    /// that the reduction is measured against.
    PerMessage,
}

/// Bytes that the checksum of an unencrypted packet covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// All of a packet of at most [`crate::wire::SHORT_BYTES`]. Of longer ones the first
    /// [`crate::wire::COVERED_BYTES`], which include header and frame header. The checksum of UDP
    /// covers the rest, as that of TCP does for users of TCP.
    #[default]
    Headers,
    /// Every byte.
    All,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_datagram: 1_472,
            window: 128,
            first_window: 1_024,
            rings: 64,
            reorder_packets: 2_048,
            ack_every: 16,
            ack_delay: 250,
            initial_rto: 10_000,
            min_rto: 2_000,
            max_rto: 250_000,
            late: 2_000,
            late_grace: 1_000,
            full_retry: 100,
            full_retry_max: 10_000,
            initial_window: 32,
            queue_target: 2_000,
            first_sequence: 0,
            ack: AckMode::Reduced,
            safe_datagram: 1_200,
            path_retry: 60_000_000,
            least_datagram: 64,
            checksum: Checksum::Headers,
            lend_least: 4_096,
        }
    }
}

/// Why an endpoint cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// `max_datagram` is outside 64 to 65,507.
    #[error("max_datagram is {0} bytes; it must be from 64 to 65507")]
    MaxDatagram(usize),
    /// `window` is not a power of two from 2 to 1,024.
    #[error("window is {0} packets; it must be a power of two from 2 to 1024")]
    Window(usize),
    /// `first_window` is not a power of two, or below 2.
    #[error("first_window is {0} packets; it must be a power of two, at least 2")]
    FirstWindow(usize),
    /// `rings` is 0.
    #[error("rings is 0; it must be at least 1")]
    Rings,
    /// `lend_least` is 0.
    #[error("lend_least is 0; it must be at least 1 byte")]
    LendLeast,
    /// `ack_every` is 0.
    #[error("ack_every is 0; it must be at least 1 packet")]
    AckEvery,
    /// A pair of times contradicts itself, or a retry time is 0.
    #[error("{low} must be above 0 and not above {high}")]
    Times {
        /// The setting that has to be the smaller one.
        low: &'static str,
        /// The setting that bounds it.
        high: &'static str,
    },
    /// The own rank is not one of the job's.
    #[error("rank {me} does not exist in a job of {ranks} ranks")]
    Rank {
        /// The own rank.
        me: u32,
        /// Ranks of the job.
        ranks: u32,
    },
    /// The region of the context would not fit an address space.
    #[error(
        "the context of a rank among {ranks} with these settings does not fit an address space"
    )]
    TooLarge {
        /// Ranks of the job.
        ranks: u32,
    },
    /// `safe_datagram` is below 64.
    #[error("safe_datagram is {0} bytes; it must be at least 64")]
    SafeDatagram(usize),
    /// `least_datagram` is outside 64 to `safe_datagram`.
    #[error("least_datagram is {0} bytes; it must be from 64 to safe_datagram")]
    LeastDatagram(usize),
}

impl Config {
    /// Slots of a send ring at first.
    #[inline]
    pub(crate) fn first_slots(&self) -> usize {
        self.first_window.min(self.window)
    }

    /// Checks every setting. Called by [`crate::Endpoint::new`].
    ///
    /// # Errors
    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(64..=65_507).contains(&self.max_datagram) {
            return Err(ConfigError::MaxDatagram(self.max_datagram));
        }
        if !self.window.is_power_of_two() || !(2..=1_024).contains(&self.window) {
            return Err(ConfigError::Window(self.window));
        }
        if !self.first_window.is_power_of_two() || self.first_window < 2 {
            return Err(ConfigError::FirstWindow(self.first_window));
        }
        // A selective ack of the whole window has to fit into one packet.
        if self.safe_datagram < 64 {
            return Err(ConfigError::SafeDatagram(self.safe_datagram));
        }
        if !(64..=self.safe_datagram).contains(&self.least_datagram) {
            return Err(ConfigError::LeastDatagram(self.least_datagram));
        }
        if HEADER_BYTES + self.window.div_ceil(64) * 8 > self.max_datagram {
            return Err(ConfigError::Window(self.window));
        }
        if self.rings == 0 {
            return Err(ConfigError::Rings);
        }
        if self.lend_least == 0 {
            return Err(ConfigError::LendLeast);
        }
        if self.ack_every == 0 {
            return Err(ConfigError::AckEvery);
        }
        let pairs = [
            (self.min_rto, self.max_rto, "min_rto", "max_rto"),
            (self.initial_rto, self.max_rto, "initial_rto", "max_rto"),
            (self.ack_delay.max(1), self.min_rto, "ack_delay", "min_rto"),
            (self.late_grace, self.max_rto, "late_grace", "max_rto"),
            (self.full_retry, self.full_retry_max, "full_retry", "full_retry_max"),
        ];
        for (least, most, low, high) in pairs {
            if least == 0 || least > most {
                return Err(ConfigError::Times { low, high });
            }
        }
        Ok(())
    }
}
