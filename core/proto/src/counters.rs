//! Counters of an endpoint and of its peers.

use crate::Rank;
use crate::wire::{DropReason, PacketKind};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Cumulative counts of one endpoint. Over all ranks of a job, at any instant, the sum of `sent`
        /// less the sum of `delivered` is the number of frames not delivered yet.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// How many counters there are.
            pub const COUNT: usize = [$(stringify!($name)),*].len();

            /// Every counter with its name, in the order of declaration.
            pub fn entries(&self) -> [(&'static str, u64); Self::COUNT] {
                [$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Frames accepted into a send ring.
    sent,
    /// Frames taken by the sink.
    delivered,
    /// Bytes of the frames sent.
    sent_bytes,
    /// Bytes of the frames delivered.
    delivered_bytes,
    /// Data packets put on the wire, resends included.
    data_out,
    /// Acks put on the wire by themselves, not piggybacked on data.
    acks_out,
    /// Nacks put on the wire.
    nacks_out,
    /// Probes put on the wire.
    probes_out,
    /// Data packets that passed the checks.
    data_in,
    /// Acks that passed the checks.
    acks_in,
    /// Nacks that passed the checks.
    nacks_in,
    /// Probes that passed the checks.
    probes_in,
    /// Bytes put on the wire, headers included.
    bytes_out,
    /// Bytes of datagrams that passed the checks, headers included.
    bytes_in,
    /// Data packets put on the wire again.
    resends,
    /// Data packets dropped because they had come before.
    duplicates,
    /// Data packets kept because they came early.
    out_of_order_kept,
    /// Data packets dropped because they came early and there was no room to keep them.
    out_of_order_dropped,
    /// Frames that the sink refused because it was full.
    refused,
    /// Retransmission timeouts that expired.
    timeouts,
    /// Retransmission timeouts postponed because this rank was stopped.
    timeouts_postponed,
    /// Datagrams shorter than a header.
    drop_short,
    /// Datagrams not of this protocol.
    drop_magic,
    /// Datagrams of another version of this protocol.
    drop_version,
    /// Datagrams whose length field is wrong, or that are too long.
    drop_length,
    /// Datagrams of another channel.
    drop_key,
    /// Datagrams damaged on the way.
    drop_checksum,
    /// Encrypted datagrams damaged on the way or made with another key.
    drop_seal,
    /// Datagrams addressed to another rank.
    drop_destination,
    /// Datagrams that do not come from another rank of this job.
    drop_source,
    /// Datagrams of an unknown kind, or with flags or a length that their kind does not allow.
    drop_kind,
    /// Encrypted datagrams far older than others that came from their sender.
    drop_stale,
    /// Datagrams with numbers outside the window.
    drop_window,
}

/// Traffic between this rank and one other since the endpoint was made, and packets in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// The other rank; `None`: all those together that are beyond [`crate::PEERS_LISTED`].
    pub rank: Option<Rank>,
    /// Data packets sent, resends included.
    pub data_out: u64,
    /// Acks sent by themselves, not piggybacked on data.
    pub acks_out: u64,
    /// Nacks sent.
    pub nacks_out: u64,
    /// Probes sent.
    pub probes_out: u64,
    /// Data packets received that passed the checks.
    pub data_in: u64,
    /// Acks received that passed the checks.
    pub acks_in: u64,
    /// Nacks received that passed the checks.
    pub nacks_in: u64,
    /// Probes received that passed the checks.
    pub probes_in: u64,
    /// Bytes of the packets sent, headers included.
    pub bytes_out: u64,
    /// Bytes of the packets received, headers included.
    pub bytes_in: u64,
    /// Data packets sent again.
    pub resends: u64,
    /// Data packets dropped because they had come before.
    pub duplicates: u64,
    /// Smoothed round trip in microseconds; 0 before the first sample, and for many peers together.
    pub round_trip_us: u64,
    /// Packets in the send ring, not acked.
    pub unacked_packets: u64,
    /// Their bytes, headers included.
    pub unacked_bytes: u64,
    /// Bytes of the longest datagram that frames to this peer are cut to now; 0 for many peers together.
    pub limit: u64,
    /// Data packets sent that were longer than the path, as far as that was known: left to the network to fragment.
    pub fragmented: u64,
}

impl Counters {
    pub(crate) fn dropped(&mut self, reason: DropReason) {
        *match reason {
            DropReason::Short => &mut self.drop_short,
            DropReason::Magic => &mut self.drop_magic,
            DropReason::Version => &mut self.drop_version,
            DropReason::Length => &mut self.drop_length,
            DropReason::Key => &mut self.drop_key,
            DropReason::Checksum => &mut self.drop_checksum,
            DropReason::Seal => &mut self.drop_seal,
            DropReason::Destination => &mut self.drop_destination,
            DropReason::Source => &mut self.drop_source,
            DropReason::Kind => &mut self.drop_kind,
            DropReason::Stale => &mut self.drop_stale,
            DropReason::Window => &mut self.drop_window,
        } += 1;
    }

    pub(crate) fn packets_in(&mut self, kind: PacketKind, packets: u64, bytes: usize) {
        let kinds = [&mut self.data_in, &mut self.acks_in, &mut self.nacks_in, &mut self.probes_in];
        *kind.among(kinds) += packets;
        self.bytes_in += bytes as u64;
    }

    pub(crate) fn packets_out(&mut self, kind: PacketKind, packets: u64, bytes: usize) {
        let kinds =
            [&mut self.data_out, &mut self.acks_out, &mut self.nacks_out, &mut self.probes_out];
        *kind.among(kinds) += packets;
        self.bytes_out += bytes as u64;
    }

    /// Datagrams dropped by a check, for whatever reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.drop_short
            + self.drop_magic
            + self.drop_version
            + self.drop_length
            + self.drop_key
            + self.drop_checksum
            + self.drop_seal
            + self.drop_destination
            + self.drop_source
            + self.drop_kind
            + self.drop_stale
            + self.drop_window
    }
}
