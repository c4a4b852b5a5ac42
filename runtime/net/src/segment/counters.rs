//! Counters that a rank publishes in its context.

/// Counters by place in the context; the names are those that users and the daemon see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Frames this rank has given to the channel (sockets and rings; windows of the same node need no frames).
    Sent = 0,
    /// Frames taken from others. Over all ranks of a job, sent - delivered is the number in flight.
    Delivered,
    /// Messages that arrived and that no receive has taken yet (a level, not a sum).
    Unread,
    /// Data packets sent again.
    Resends,
    /// Packets sent, of any kind.
    PacketsOut,
    /// Valid packets received, of any kind.
    PacketsIn,
    /// Packets that arrived twice.
    Duplicates,
    /// Refusals for lack of space sent.
    NacksOut,
    /// Refusals for lack of space received.
    NacksIn,
    /// Packets dropped because they were foreign or damaged.
    Invalid,
    /// Puts done straight in a peer's memory.
    DirectPuts,
    /// Gets done straight from a peer's memory.
    DirectGets,
    /// Atomic operations done straight in a peer's memory.
    DirectAtomics,
    /// Operations of others refused here (bounds, rights, no such window).
    Refused,
    /// Times the program went to sleep in a wait.
    Sleeps,
    /// Doorbells rung to wake a peer.
    Doorbells,
    /// Times the handler thread served the channel.
    HandlerRuns,
    /// Datagrams the kernel refused to send (left to the resend timer).
    SendFailures,
    /// Data packets sent, resends included.
    DataOut,
    /// Acks sent by themselves, not piggybacked on data.
    AcksOut,
    /// Probes sent.
    ProbesOut,
    /// Data packets received.
    DataIn,
    /// Acks received by themselves, not piggybacked on data.
    AcksIn,
    /// Probes received.
    ProbesIn,
    /// Bytes of the packets sent, headers included.
    BytesOut,
    /// Bytes of the packets received, headers included.
    BytesIn,
    /// Smoothed round trip in microseconds, the mean over the peers of other nodes (a level).
    RoundTripUs,
    /// Packets in the send rings to other nodes that are not acked (a level).
    UnackedPackets,
    /// Their bytes, headers included (a level).
    UnackedBytes,
    /// Waits that ended while the program spun.
    WaitsSpun,
    /// Waits for which the program slept.
    WaitsBlocked,
    /// Of those, because who was waited for did not run.
    BlockedUnscheduled,
    /// Of those, because others wanted the processor.
    BlockedOthers,
    /// Of those, because they had spun as long as they may.
    BlockedBound,
    /// Packets sent by AF_XDP, of all that were sent.
    XdpOut,
    /// Packets received by AF_XDP, of all that were received.
    XdpIn,
    /// Frames that AF_XDP dropped because they were foreign or damaged.
    XdpDropped,
    /// Packets whose data the wire had laid where it belongs, of all that were received.
    Landed,
    /// Accesses to shared memory that found no visible page.
    SharedFaults,
    /// Of those, answered by a copy that the node had already.
    SharedCopiesFound,
    /// Requests for pages of shared memory.
    SharedFetches,
    /// Pages of shared memory that came by them.
    SharedPagesFetched,
    /// Diffs of pages sent to their homes.
    SharedDiffs,
    /// Their bytes.
    SharedDiffBytes,
    /// Locks of shared memory taken.
    SharedLocks,
    /// Barriers of shared memory passed.
    SharedBarriers,
    /// Pages that an acquire made stale.
    SharedStale,
    /// Pages that came to this node to stay.
    SharedHomed,
    /// Pages of shared memory that were fetched before their use, and used.
    SharedAheadUsed,
    /// Pages of shared memory that were fetched before their use, for nothing.
    SharedAheadUnused,
    /// Diffs of pages that came to copies which are updated.
    SharedUpdates,
    /// Messages of shared memory for locks, sent.
    SharedLockMessages,
    /// Messages of shared memory for barriers, sent.
    SharedBarrierMessages,
    /// Messages of shared memory for conditions, sent.
    SharedConditionMessages,
    /// Messages of shared memory with diffs, and their answers, sent.
    SharedDiffMessages,
    /// Messages of shared memory about homes of pages, sent.
    SharedHomeMessages,
    /// Messages of shared memory about copies that are updated, sent.
    SharedUpdateMessages,
}

/// The names of the counters, by place.
pub const NAMES: [&str; 57] = [
    "sent",
    "delivered",
    "unread",
    "resends",
    "packets_out",
    "packets_in",
    "duplicates",
    "nacks_out",
    "nacks_in",
    "invalid",
    "direct_puts",
    "direct_gets",
    "direct_atomics",
    "refused",
    "sleeps",
    "doorbells",
    "handler_runs",
    "send_failures",
    "data_out",
    "acks_out",
    "probes_out",
    "data_in",
    "acks_in",
    "probes_in",
    "bytes_out",
    "bytes_in",
    "round_trip_us",
    "unacked_packets",
    "unacked_bytes",
    "waits_spun",
    "waits_blocked",
    "blocked_unscheduled",
    "blocked_others",
    "blocked_bound",
    "xdp_out",
    "xdp_in",
    "xdp_dropped",
    "landed",
    "shared_faults",
    "shared_copies",
    "shared_fetches",
    "shared_pages",
    "shared_diffs",
    "shared_diff_bytes",
    "shared_locks",
    "shared_barriers",
    "shared_stale",
    "shared_homed",
    "shared_ahead_used",
    "shared_ahead_unused",
    "shared_updates",
    "shared_lock_messages",
    "shared_barrier_messages",
    "shared_condition_messages",
    "shared_diff_messages",
    "shared_home_messages",
    "shared_update_messages",
];

/// Whether a counter of this name is a level, which falls too.
#[must_use]
pub fn is_level(name: &str) -> bool {
    matches!(name, "unread" | "round_trip_us" | "unacked_packets" | "unacked_bytes")
}

const _: () = assert!(Counter::SharedUpdateMessages as usize + 1 == NAMES.len());
const _: () = assert!(NAMES.len() <= 64, "the context has room for so many");
