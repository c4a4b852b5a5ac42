//! Publisher of the node's state: pages for its ranks, and gossip to other nodes.

use std::rc::Rc;
use std::time::Duration;

use kumi_control::disclosure::{self, Disclosure, EXCHANGE, JobFacts, LinkPeer, NodeFacts};
use kumi_control::message::MachineSample;
use kumi_net::disclosure::{JobSlot, NodeLoad, NodePage, RankState};
use kumi_sched::{JobId, NodeId};
use tokio::time::Instant;

use super::machine_load::MachineLoad;
use crate::clock::monotonic;
use crate::job::{LiveJob, NodeServices};

/// Between looks at the ranks: while several jobs share the processors as the operating system
/// likes, so that waits ask what is true, and otherwise.
const SHARED: Duration = Duration::from_millis(10);
const ALONE: Duration = Duration::from_millis(100);
/// How often the machine is measured, and something new is told to others though no job came or went.
const MEASURE: Duration = Duration::from_secs(1);

/// Writes the pages and takes part in the gossip.
pub(super) struct DisclosurePublisher {
    services: Rc<NodeServices>,
    gossip: Disclosure,
    machine: MachineLoad,
    incarnation: u64,
    next_look: Instant,
    next_exchange: Instant,
    next_measure: Instant,
    /// Of the node, as last measured.
    load: NodeLoad,
    /// It was measured since others were told.
    news: bool,
    /// Jobs of which others were told last.
    told: Vec<JobId>,
}

impl DisclosurePublisher {
    pub(super) fn new(services: &Rc<NodeServices>, nodes: u32, incarnation: u64) -> Self {
        let now = Instant::now();
        Self {
            services: Rc::clone(services),
            gossip: Disclosure::new(Some(services.node), nodes),
            machine: MachineLoad::new(&services.cpus, services.address.ip()),
            incarnation,
            next_look: now,
            next_exchange: now,
            next_measure: now,
            load: NodeLoad::default(),
            news: false,
            told: Vec::new(),
        }
    }

    /// A link is there.
    pub(super) fn link_up(&mut self, link: LinkPeer) {
        self.gossip.link_up(link);
    }

    /// A link is gone.
    pub(super) fn link_down(&mut self, link: LinkPeer) {
        self.gossip.link_down(link);
    }

    /// When to call [`DisclosurePublisher::look`] or [`DisclosurePublisher::exchange`] next.
    pub(super) fn due(&self) -> Instant {
        self.next_look.min(self.next_exchange)
    }

    /// Observes the ranks and writes the pages of this node, if it is time.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        let live = self.services.live.borrow();
        let shared = self.services.page.as_ref().is_some_and(|page| page.is_shared());
        self.next_look = now + if shared && live.len() > 1 { SHARED } else { ALONE };
        if now >= self.next_measure {
            self.next_measure = now + MEASURE;
            self.machine.measure(&mut self.load);
            self.news = true;
        }
        let stamp = kumi_net::sys::now();
        let page = self.services.page.as_ref();
        let mut slots = Vec::with_capacity(live.len());
        for (&job, live) in live.iter() {
            let states = states(live);
            publish_own(self.services.node, live, &states, stamp);
            let mut slot = slot(job, &states, self.services.cpus.len());
            if live.idle {
                slot.runnable.clear();
            }
            slots.push(slot);
        }
        let total = |sum: u32, slot: &JobSlot| sum.saturating_add(count(slot.runnable.len()));
        self.load.runnable = slots.iter().fold(0, total);
        self.load.jobs = count(slots.len());
        self.load.processors = count(self.services.cpus.len());
        if let Some(page) = page {
            page.set_jobs(&slots);
            page.set_node(self.services.node.0, stamp, &self.load);
        }
    }

    /// The machine as it was measured last.
    pub(super) fn machine(&self) -> MachineSample {
        let load = &self.load;
        MachineSample {
            busy_permille: u16::try_from(load.busy_permille).unwrap_or(1000),
            memory_kib: [load.memory_used / 1024, load.memory_total / 1024],
            network_bytes: load.network_bytes,
        }
    }

    /// Whether it is time for the next exchange; the following one is then set.
    pub(super) fn exchange_due(&mut self) -> bool {
        let now = Instant::now();
        let due = now >= self.next_exchange;
        if due {
            self.next_exchange = now + Duration::from_nanos(EXCHANGE);
            self.tell();
        }
        due
    }

    /// The facts to send on a link.
    pub(super) fn message(&mut self, to: LinkPeer) -> Vec<NodeFacts> {
        self.gossip.message(monotonic(), to)
    }

    /// Takes facts that came on a link. Returns how many broke the rules.
    pub(super) fn receive(&mut self, from: LinkPeer, message: Vec<NodeFacts>) -> u64 {
        let refused = self.gossip.receive(monotonic(), from, message);
        let changed = self.gossip.take_changed();
        if let Some(page) = &self.services.page {
            for node in changed {
                if let Some((facts, stamp)) = self.gossip.node(node) {
                    publish_other(page, &self.services, facts, stamp / 1_000);
                }
            }
        }
        refused
    }

    /// Publishes new facts: new measurements, or jobs that have come or gone.
    fn tell(&mut self) {
        let live = self.services.live.borrow();
        let jobs: Vec<JobId> = live.keys().copied().collect();
        if !std::mem::take(&mut self.news) && jobs == self.told {
            return;
        }
        let (load, machine) = (&self.load, self.machine());
        let facts = NodeFacts {
            node: self.services.node,
            incarnation: self.incarnation,
            count: 0,
            age_ms: 0,
            processors: load.processors,
            runnable: load.runnable,
            busy_permille: machine.busy_permille,
            memory_kib: machine.memory_kib,
            network_bytes: machine.network_bytes,
            jobs: live.iter().map(|(&job, live)| facts_of(job, live)).collect(),
        };
        self.told = jobs;
        self.gossip.tell(monotonic(), facts);
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn states(live: &LiveJob) -> Vec<RankState> {
    let state = |local| match live.segment.rank_state(local) {
        state if live.stopped => stop(state),
        state => state,
    };
    (0..live.load.len()).map(state).collect()
}

/// A job's ranks that compute or could. Those that have not joined it are not among them: they may sleep
/// as well, and waits beside a program that sleeps must not give way to it for ever.
fn slot(job: JobId, states: &[RankState], processors: usize) -> JobSlot {
    let all = states.iter().enumerate().filter(|(_, state)| **state == RankState::Running);
    let runnable = all.map(|(local, _)| local % processors.max(1)).collect();
    JobSlot { job: job.number().0, ranks: count(states.len()), runnable }
}

/// Tells a job's ranks of those on this node.
fn publish_own(node: NodeId, live: &LiveJob, states: &[RankState], stamp: u64) {
    let Some(job_page) = &live.page else { return };
    let stopped = !live.runs();
    for (rank, &state) in (live.first..).zip(states) {
        let state = if stopped { stop(state) } else { state };
        job_page.set_rank(rank, node.0, state, stamp);
    }
}

/// A rank without a processor; who has left needs none.
fn stop(state: RankState) -> RankState {
    if state == RankState::Over { state } else { RankState::Stopped }
}

/// Writes what another node says. `stamp` in microseconds.
fn publish_other(page: &NodePage, services: &NodeServices, facts: &NodeFacts, stamp: u64) {
    let load = NodeLoad {
        processors: facts.processors,
        runnable: facts.runnable,
        jobs: count(facts.jobs.len()),
        busy_permille: facts.busy_permille.into(),
        memory_used: facts.memory_kib[0].saturating_mul(1024),
        memory_total: facts.memory_kib[1].saturating_mul(1024),
        network_bytes: facts.network_bytes,
        age_us: 0,
    };
    page.set_node(facts.node.0, stamp, &load);
    let live = services.live.borrow();
    for job in &facts.jobs {
        let Some(job_page) = live.get(&job.job).and_then(|live| live.page.as_ref()) else {
            continue;
        };
        for (rank, state) in job.ranks() {
            let state = match state {
                disclosure::RankState::Running => RankState::Running,
                disclosure::RankState::Idle => RankState::Idle,
                disclosure::RankState::Over => RankState::Over,
                disclosure::RankState::Unknown => RankState::Unknown,
            };
            let state = if job.scheduled { state } else { stop(state) };
            // The page believes a node of its own ranks only.
            job_page.set_rank(rank, facts.node.0, state, stamp);
        }
    }
}

fn facts_of(job: JobId, live: &LiveJob) -> JobFacts {
    let wire = |state| match state {
        RankState::Idle => disclosure::RankState::Idle,
        RankState::Over => disclosure::RankState::Over,
        RankState::Running | RankState::Stopped => disclosure::RankState::Running,
        RankState::Unknown => disclosure::RankState::Unknown,
    };
    let states: Vec<_> = states(live).into_iter().map(wire).collect();
    let scheduled = live.runs() && !live.stopped;
    JobFacts::new(job, scheduled, live.first, &states)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_want_a_processor_that_joined_and_do_not_wait() {
        use RankState::{Idle, Over, Running, Unknown};
        let slot = slot(JobId(3), &[Running, Idle, Running, Running, Unknown, Over, Running], 2);
        let wanted = JobSlot { job: 3, ranks: 7, runnable: vec![0, 0, 1, 0] };
        assert_eq!(slot, wanted);
        assert_eq!((stop(Running), stop(Over)), (RankState::Stopped, Over));
    }
}
