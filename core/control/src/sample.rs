//! Samples that nodes take: load, counters and switching times.

use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::{ClusterTime, JobId, NodeId};
use serde::{Deserialize, Serialize};

use crate::channel_sample::ChannelSample;
use crate::load_sample::LoadSample;
use crate::message::Nanos;
use crate::trace_sample::TraceSample;
use crate::traffic::MessageCounts;

/// Sample of a node, for `kumi top` and `kumi stats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSample {
    /// The node.
    pub node: NodeId,
    /// Names the machine's monotonic clock: nodes with the same name here read the same clock. It differs between
    /// machines, and between two starts of one machine. Empty if the node cannot tell.
    pub machine_clock: String,
    /// Its ranks, read from what they publish.
    pub ranks: Vec<RankSample>,
    /// Channels of ranks, if they were asked for.
    pub channels: Vec<ChannelSample>,
    /// Traces of ranks, if they were asked for and there are some.
    pub traces: Vec<TraceSample>,
    /// Load of its ranks, if that was asked for.
    pub load: Option<LoadSample>,
    /// Gang switching.
    pub switching: SwitchSample,
    /// Control messages sent and received by the daemon since its start.
    pub control_messages: MessageCounts,
    /// Counts of drops and refusals on the control plane, by reason.
    pub refused: Vec<(String, u64)>,
}

impl NodeSample {
    /// Names all jobs in it anew.
    pub(crate) fn name_jobs(&mut self, name: impl Fn(JobId) -> JobId) {
        self.ranks.iter_mut().for_each(|rank| rank.job = name(rank.job));
        let load = self.load.iter_mut();
        load.for_each(|load| {
            load.jobs.iter_mut().for_each(|it| it.job = name(it.job));
            load.slices
                .iter_mut()
                .flat_map(|slice| &mut slice.jobs)
                .for_each(|job| *job = name(*job));
        });
    }
}

/// One rank as its daemon sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSample {
    /// The job.
    pub job: JobId,
    /// The rank.
    pub rank: u32,
    /// Whether it waits with nothing else to do.
    pub idle: bool,
    /// Share of the samples since the last report in which it was busy while scheduled, 0 to 1000.
    pub load_permille: u16,
    /// Counters of its channel context by name: messages sent, delivered, unread, resends, ...
    pub counters: Vec<(String, u64)>,
    /// Of its peers on other nodes, if they were asked for: those with the most bytes, those together
    /// that the rank does not count one by one last.
    pub peers: Vec<PeerSample>,
    /// Peers it has that are not in `peers` because the answer would be too long.
    pub peers_left_out: u32,
}

/// Traffic between a rank and a peer on another node, past and under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerSample {
    /// The peer; `None`: all those together that the rank does not count one by one.
    pub rank: Option<u32>,
    /// Packets sent: data (resends included), acks, nacks, probes.
    pub out: [u64; 4],
    /// Packets received: data, acks, nacks, probes.
    pub came: [u64; 4],
    /// Bytes sent and received, headers included.
    pub bytes: [u64; 2],
    /// Data packets sent again.
    pub resends: u64,
    /// Data packets received that had come before.
    pub duplicates: u64,
    /// Smoothed round trip in microseconds; 0 if it is not known.
    pub round_trip_us: u64,
    /// Packets in the send ring that are not acked.
    pub unacked_packets: u64,
    /// Their bytes, headers included.
    pub unacked_bytes: u64,
    /// Bytes of the longest datagram in use for it; 0 if it is not known.
    pub limit: u64,
    /// Data packets longer than the path, which the network has to fragment.
    pub fragmented: u64,
}

/// Histograms of a node's switches. Percentiles in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchSample {
    /// Switches made.
    pub count: u64,
    /// Writing the freeze.
    pub freeze: Percentiles,
    /// Writing the thaw.
    pub thaw: Percentiles,
    /// Both together.
    pub total: Percentiles,
    /// Begin of the switch behind the timetable, by the node's idea of the cluster clock.
    pub lateness: Percentiles,
    /// The last switches, so that the skew between nodes can be computed.
    pub recent: Vec<SwitchBegin>,
    /// Ticks that could not be kept because the node came too late.
    pub missed_ticks: u64,
}

/// When a switch began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchBegin {
    /// Generation of the timetable.
    pub generation: u64,
    /// When its tick was due. Nodes that switch together may have timetables of different generations.
    pub due: ClusterTime,
    /// Cluster time, as the node estimates it: the error of the estimate is part of it.
    pub cluster: ClusterTime,
    /// Time on the machine's clock, which nodes of one machine share.
    pub machine: Nanos,
}

/// Summary of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Number of values.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
    /// Mean.
    pub mean: u64,
}
