//! Sampler of the ranks' load, which it reads from what they publish; it also answers `Sample`.

use std::time::Duration;

use kumi_control::message::{NodeSample, PeerSample, RankSample, SwitchSample};
use kumi_net::PeerCounters;
use kumi_net::segment::ContextSample;
use kumi_sched::JobId;
use tokio::time::Instant;

use super::{Shared, channels};
use crate::clock;
use crate::job::{LiveJob, NodeServices};
use crate::switch::SwitchStatistics;

/// Between looks while someone watches, and otherwise.
const WATCHED: Duration = Duration::from_millis(10);
const UNWATCHED: Duration = Duration::from_millis(100);
/// How long after a question someone is taken to be watching.
const ATTENTION: Duration = Duration::from_secs(5);

/// Looks at the ranks now and then.
#[derive(Debug)]
pub(super) struct Sampler {
    digest: SwitchStatistics,
    machine_clock: String,
    asked: Option<Instant>,
    next: Instant,
    recent: usize,
    /// Peers told of all ranks of a job together.
    most_peers: usize,
}

impl Sampler {
    /// A sampler that reports at most the last `recent` switches one by one, and at most `most_peers`
    /// peers of a job's ranks.
    pub(super) fn new(recent: usize, most_peers: usize) -> Self {
        Self {
            digest: SwitchStatistics::default(),
            machine_clock: clock::name(),
            asked: None,
            next: Instant::now(),
            recent,
            most_peers,
        }
    }

    /// When it is time to look.
    pub(super) fn due(&self) -> Instant {
        self.next
    }

    /// Looks at the ranks of the jobs that are scheduled now, or left alone because they only wait.
    pub(super) fn look(&mut self, services: &NodeServices) {
        let now = Instant::now();
        let watched = self.asked.is_some_and(|asked| now.duration_since(asked) < ATTENTION);
        self.next = now + if watched { WATCHED } else { UNWATCHED };
        self.digest.drain(services.switcher.ring());
        for live in services.live.borrow_mut().values_mut() {
            if live.turns.has_turn() || live.idle {
                look_at(live);
            }
        }
    }

    /// Everything measured; shares of load are since the last time.
    pub(super) fn sample(&mut self, services: &NodeServices, shared: &Shared) -> NodeSample {
        self.asked = Some(Instant::now());
        self.look(services);
        let mut ranks = Vec::new();
        for (&job, live) in services.live.borrow_mut().iter_mut() {
            for (local, rank) in (0..live.load.len()).zip(live.first..) {
                let context = live.segment.sample(local);
                let (busy, all) = std::mem::take(&mut live.load[local]);
                let permille = (busy * 1000).checked_div(all).unwrap_or(0);
                ranks.push(RankSample {
                    job,
                    rank,
                    idle: context.idle,
                    load_permille: u16::try_from(permille).unwrap_or(1000),
                    counters: named(&context),
                    peers: Vec::new(),
                    peers_left_out: 0,
                });
            }
        }
        self.around(ranks, services, shared)
    }

    /// The ranks of a job with their peers, and nothing else of them: counters and shares of load are
    /// for [`Sampler::sample`], and a frame has room for one of the two.
    pub(super) fn sample_peers(
        &self,
        services: &NodeServices,
        shared: &Shared,
        job: JobId,
    ) -> NodeSample {
        let mut ranks = Vec::new();
        if let Some(live) = services.live.borrow().get(&job) {
            let most = (self.most_peers / live.load.len().max(1)).max(1);
            for (local, rank) in (0..live.load.len()).zip(live.first..) {
                let context = live.segment.sample(local);
                let (peers, peers_left_out) = peers(live.segment.sample_peers(local), most);
                ranks.push(RankSample {
                    job,
                    rank,
                    idle: context.idle,
                    load_permille: 0,
                    counters: Vec::new(),
                    peers,
                    peers_left_out,
                });
            }
        }
        self.around(ranks, services, shared)
    }

    /// The channels of a job's ranks, or of one, and nothing else of them.
    pub(super) fn sample_channels(
        &self,
        services: &NodeServices,
        shared: &Shared,
        job: JobId,
        rank: Option<u32>,
    ) -> NodeSample {
        let live = services.live.borrow();
        let channels = live.get(&job).map(|live| channels::sample(live, rank, self.most_peers));
        NodeSample {
            channels: channels.unwrap_or_default(),
            ..self.around(Vec::new(), services, shared)
        }
    }

    /// A part of the trace of a rank, whose job may be over, and nothing else of it.
    pub(super) fn sample_trace(
        &self,
        services: &NodeServices,
        shared: &Shared,
        job: JobId,
        (rank, from): (u32, u64),
    ) -> NodeSample {
        let now = clock::monotonic();
        let offset = shared.clock.cluster(now).0.wrapping_sub(now).cast_signed();
        let (live, kept) = (services.live.borrow(), services.kept_traces.borrow());
        let traces = live.get(&job).map(|live| &live.traces).or_else(|| kept.of(job));
        let trace = traces.and_then(|traces| traces.sample(rank, from, offset));
        NodeSample {
            traces: trace.into_iter().collect(),
            ..self.around(Vec::new(), services, shared)
        }
    }

    /// The switches so far, without the single ones; nanoseconds that they took, and by which they
    /// were late, together.
    pub(super) fn switches(&self, services: &NodeServices) -> (SwitchSample, [u64; 2]) {
        (self.digest.sample(services.switcher.ring(), 0), self.digest.sums())
    }

    /// A sample of the node with these ranks.
    fn around(
        &self,
        ranks: Vec<RankSample>,
        services: &NodeServices,
        shared: &Shared,
    ) -> NodeSample {
        let mut refused = shared.refusals.snapshot();
        let failures = services.switcher.ring().failures();
        if failures > 0 {
            refused.push(("stop or continue failed".to_owned(), failures));
        }
        NodeSample {
            node: services.node,
            ranks,
            channels: Vec::new(),
            traces: Vec::new(),
            machine_clock: self.machine_clock.clone(),
            switching: self.digest.sample(services.switcher.ring(), self.recent),
            control_messages: shared.traffic.counts(),
            refused,
        }
    }
}

fn named(context: &ContextSample) -> Vec<(String, u64)> {
    context.counters.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
}

/// At most `most` of a rank's peers, those with the most bytes, and how many were left out.
fn peers(mut all: Vec<PeerCounters>, most: usize) -> (Vec<PeerSample>, u32) {
    let bytes = |peer: &PeerCounters| peer.bytes_out.saturating_add(peer.bytes_in);
    all.sort_by_key(|peer| (peer.rank.is_none(), std::cmp::Reverse(bytes(peer))));
    let left_out = all.len().saturating_sub(most);
    all.truncate(most);
    let sample = |peer: PeerCounters| PeerSample {
        rank: peer.rank,
        out: [peer.data_out, peer.acks_out, peer.nacks_out, peer.probes_out],
        came: [peer.data_in, peer.acks_in, peer.nacks_in, peer.probes_in],
        bytes: [peer.bytes_out, peer.bytes_in],
        resends: peer.resends,
        duplicates: peer.duplicates,
        round_trip_us: peer.round_trip_us,
        unacked_packets: peer.unacked_packets,
        unacked_bytes: peer.unacked_bytes,
        limit: peer.limit,
        fragmented: peer.fragmented,
    };
    (all.into_iter().map(sample).collect(), u32::try_from(left_out).unwrap_or(u32::MAX))
}

fn look_at(live: &mut LiveJob) {
    for local in 0..live.load.len() {
        let (busy, all) = &mut live.load[local];
        *all += 1;
        // What waits elsewhere than in the library is only seen of the job as a whole.
        *busy += u64::from(!live.idle && !live.segment.sample(local).idle);
    }
}
