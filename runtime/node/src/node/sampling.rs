//! Sampler of the ranks' load, which it reads from what they publish; it also answers `Sample`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use kumi_control::message::{
    JobLoad, LoadSample, MOST_SLICES, MachineSample, NodeSample, PeerSample, RankSample,
    SliceBegin, SwitchSample,
};
use kumi_net::PeerCounters;
use kumi_net::disclosure::RankState;
use kumi_net::segment::ContextSample;
use kumi_sched::{ClusterTime, JobId, Timetable};

use super::{Shared, channels};
use crate::clock;
use crate::job::{LiveJob, NodeServices};
use crate::switch::SwitchStatistics;

/// Between looks while jobs run, and otherwise.
const RUNNING: Duration = Duration::from_millis(10);
const QUIET: Duration = Duration::from_millis(100);
/// Slices that began longer ago are not told: whoever wants them asks more often.
const SLICES_NS: u64 = 600_000_000;
/// Timetables that are remembered, so that slices of the last of them can be named.
const TIMETABLES: usize = 16;

/// Looks at the ranks now and then.
#[derive(Debug)]
pub(super) struct Sampler {
    digest: SwitchStatistics,
    machine_clock: String,
    /// The last timetables.
    timetables: VecDeque<Timetable>,
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
            timetables: VecDeque::with_capacity(TIMETABLES),
            recent,
            most_peers,
        }
    }

    /// Looks at the ranks of the jobs that are scheduled now, or left alone because they only wait. How long until the next look.
    fn look(&mut self, services: &NodeServices) -> Duration {
        let mut runs = false;
        for live in services.live.borrow_mut().values_mut() {
            runs |= live.started && !live.idle;
            if live.turns.has_turn() || live.idle {
                look_at(live);
            }
        }
        self.digest.drain(services.switcher.ring());
        if runs { RUNNING } else { QUIET }
    }

    /// The node goes by a new timetable.
    pub(super) fn set_timetable(&mut self, timetable: &Timetable) {
        if self.timetables.len() == TIMETABLES {
            self.timetables.pop_front();
        }
        self.timetables.push_back(timetable.clone());
    }

    /// The load of all ranks, and the last slices if they are wanted.
    pub(super) fn sample_load(
        &mut self,
        services: &NodeServices,
        shared: &Shared,
        machine: MachineSample,
        slices: bool,
    ) -> NodeSample {
        self.digest.drain(services.switcher.ring());
        let job = |(&job, live): (&JobId, &LiveJob)| JobLoad {
            job,
            first: live.first,
            turns: live.load.turns(),
            busy: live.load.busy().to_vec(),
        };
        let now = shared.clock.cluster(clock::monotonic());
        let load = LoadSample {
            jobs: services.live.borrow().iter().map(job).collect(),
            switches: self.digest.count(),
            switch_ns: self.digest.sums()[0],
            machine,
            slices: if slices { self.slices(services, now) } else { Vec::new() },
        };
        NodeSample {
            load: Some(load),
            switching: SwitchSample::default(),
            ..self.around(Vec::new(), services, shared, 0)
        }
    }

    /// The slices that began of late, with their jobs. Of timetables that are forgotten nothing is told.
    fn slices(&self, services: &NodeServices, now: ClusterTime) -> Vec<SliceBegin> {
        let since = now.0.saturating_sub(SLICES_NS);
        let late = self.digest.recent().rev().take_while(|record| record.begin.0 >= since);
        let named = late.take(MOST_SLICES).filter_map(|record| {
            let known = |timetable: &&Timetable| timetable.generation == record.generation;
            let timetable = self.timetables.iter().rev().find(known)?;
            let jobs = timetable.jobs_at(services.node, record.tick).to_vec();
            Some(SliceBegin { at: record.begin, jobs })
        });
        let mut slices: Vec<SliceBegin> = named.collect();
        slices.reverse();
        slices
    }

    /// Everything measured; shares of load are since the last time.
    pub(super) fn sample(&mut self, services: &NodeServices, shared: &Shared) -> NodeSample {
        self.look(services);
        let mut ranks = Vec::new();
        for (&job, live) in services.live.borrow_mut().iter_mut() {
            let loads = live.load.take_permille();
            for ((local, load_permille), rank) in loads.into_iter().enumerate().zip(live.first..) {
                let context = live.segment.sample(local);
                ranks.push(RankSample {
                    job,
                    rank,
                    idle: context.idle,
                    load_permille,
                    counters: named(&context),
                    peers: Vec::new(),
                    peers_left_out: 0,
                });
            }
        }
        self.around(ranks, services, shared, self.recent)
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
        self.around(ranks, services, shared, self.recent)
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
            ..self.around(Vec::new(), services, shared, self.recent)
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
            ..self.around(Vec::new(), services, shared, self.recent)
        }
    }

    /// The switches so far, without the single ones; nanoseconds that they took, and by which they
    /// were late, together.
    pub(super) fn switches(&self, services: &NodeServices) -> (SwitchSample, [u64; 2]) {
        (self.digest.sample(services.switcher.ring(), 0), self.digest.sums())
    }

    /// A sample of the node with these ranks, and at most so many switches one by one.
    fn around(
        &self,
        ranks: Vec<RankSample>,
        services: &NodeServices,
        shared: &Shared,
        recent: usize,
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
            load: None,
            machine_clock: self.machine_clock.clone(),
            switching: self.digest.sample(services.switcher.ring(), recent),
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

/// Looks at the ranks until the daemon ends. Beside the main loop, which arms all of its timers anew whenever it wakes.
pub(super) async fn look_at_ranks(sampler: Rc<RefCell<Sampler>>, services: Rc<NodeServices>) {
    loop {
        let wait = sampler.borrow_mut().look(&services);
        tokio::time::sleep(wait).await;
    }
}

fn look_at(live: &mut LiveJob) {
    let LiveJob { load, segment, idle, .. } = live;
    // What waits elsewhere than in the library is only seen of the job as a whole.
    load.count(|local| {
        !*idle && !matches!(segment.rank_state(local), RankState::Idle | RankState::Over)
    });
}
