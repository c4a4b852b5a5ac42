//! Virtual time and what is in it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use kumi_control::agent::AgentEvent;
use kumi_control::head::{HeadConfig, HeadEvent, Retention};
use kumi_control::message::{ClientRequest, Down, Up, WaitLimit};
use kumi_control::tree::parent_candidates;
use kumi_sched::{JobId, Mode, NodeId, SliceLength};

use crate::check::Ledger;
use crate::clients::{Client, ROOT};
use crate::exchanges::EXCHANGES;
use crate::head::HeadSim;
use crate::links::{Connection, End};
use crate::nodes::NodeSim;
use crate::random::Random;

pub const MS: u64 = 1_000_000;
pub const LEASE: u64 = 3_000 * MS;
pub const GRACE: u64 = 1_000 * MS;
/// The same where the head stands still for longer.
pub const LONG_LEASE: u64 = 300_000 * MS;
pub const LONGEST_STALL: u64 = 120_000 * MS;
/// A link on which nothing comes for so long is given up.
pub const SILENCE: u64 = 1_000 * MS;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Ranks fail by themselves, nodes refuse to prepare, clients leave.
    pub ranks: bool,
    /// Daemons die and come back.
    pub daemons: bool,
    /// Daemons of nodes are started again under their jobs.
    pub restarts: bool,
    /// The head dies and comes back, perhaps between two actions.
    pub head: bool,
    /// Single links are cut.
    pub links: bool,
    /// Nodes are cut off for a while.
    pub partitions: bool,
    /// The head stands still for seconds.
    pub stalls: bool,
    /// It stands still for up to two minutes, and leases last longer.
    pub long_stalls: bool,
    /// Machines of nodes sleep for seconds, with what their parents sent last in their sockets.
    pub naps: bool,
    /// The head's disk is full for a while. Without deaths of the head: what the disk has not taken dies with it.
    pub full_disk: bool,
    /// The head's disk is slow.
    pub slow_disk: bool,
    /// The head's wall clock jumps back and forward.
    pub wall_clock: bool,
    /// Nodes are drained, and take jobs again.
    pub drains: bool,
    /// Nodes are added.
    pub additions: bool,
}

impl Faults {
    pub fn all() -> Self {
        Self {
            ranks: true,
            daemons: true,
            restarts: true,
            head: true,
            links: true,
            partitions: true,
            stalls: true,
            long_stalls: false,
            naps: true,
            full_disk: false,
            slow_disk: true,
            wall_clock: true,
            drains: true,
            additions: true,
        }
    }

    /// Whether every end must come within two seconds of its cause: single failures only.
    pub fn prompt(self) -> bool {
        !self.head
            && !self.links
            && !self.partitions
            && !self.stalls
            && !self.long_stalls
            && !self.naps
            && !self.full_disk
            && !self.slow_disk
            && !self.restarts
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub nodes: u32,
    pub fan_out: u32,
    pub jobs: u64,
    pub faults: Faults,
}

impl Scenario {
    /// How long nodes go on without the head.
    pub fn lease(&self) -> u64 {
        if self.faults.long_stalls { LONG_LEASE } else { LEASE }
    }

    /// By then nothing is left of a fault.
    fn settling(&self) -> u64 {
        // A head that stalled gives nodes as long to come back as a new head does, and only then others have their places.
        2 * (self.lease() + GRACE) + 2_000 * MS
    }
}

#[expect(clippy::large_enum_variant, reason = "a queue of some thousands")]
pub enum Event {
    Up { connection: u64, up: Up },
    Down { connection: u64, down: Down },
    Notice { connection: u64, end: End },
    Connect { node: u32, incarnation: u64, candidate: usize },
    Driver { node: u32, incarnation: u64, event: AgentEvent },
    RankExits { node: u32, incarnation: u64, job: JobId, rank: u32, fails: bool },
    NodeTimer { node: u32, incarnation: u64 },
    Stirs { node: u32, incarnation: u64, job: JobId },
    Stirred { node: u32, incarnation: u64, job: JobId, stirs: u64 },
    HeadTimer { epoch: u64 },
    Spooled { epoch: u64, job: JobId },
    Client { index: usize },
    ClientChunk { index: usize, epoch: u64, offset: u64 },
    ClientKills { index: usize },
    ClientLeaves { index: usize },
    NodeDies(u32),
    NodeRestarts(u32),
    NodeStarts(u32),
    HeadDies,
    HeadStarts,
    HeadStalls,
    HeadWakes,
    HeadIsSilent,
    NodeSleeps,
    NodeIsSilent(u32),
    NodeIsAwake(u32),
    DiskFills,
    DiskHasRoom,
    DiskSlows,
    Written { epoch: u64, number: u64 },
    WriteAgain,
    WallClockJumps,
    Drains,
    Resumes(u32),
    AddsNode,
    NodesConfigured,
    LinkBreaks,
    Partition,
    Heal,
}

struct Queued(u64, u64, Event);

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

pub struct World {
    pub scenario: Scenario,
    pub random: Random,
    pub now: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    pub head: HeadSim,
    pub nodes: Vec<NodeSim>,
    pub connections: BTreeMap<u64, Connection>,
    pub next_connection: u64,
    /// Nodes cut off from the rest and from the head.
    pub cut_off: BTreeSet<u32>,
    pub clients: Vec<Client>,
    pub ledger: Ledger,
    /// No more faults: everything that is dead has been started again.
    pub calm: bool,
    traced: bool,
}

impl World {
    pub fn new(scenario: Scenario) -> Self {
        let names = (0..scenario.nodes).map(|node| format!("n{node}")).collect();
        let slice = match scenario.seed % 2 {
            0 => SliceLength::Auto,
            _ => SliceLength::Fixed(10 * MS),
        };
        let config = HeadConfig {
            cluster_name: "sim".into(),
            nodes: names,
            mode: Mode::Gang { force_switch: false, fill: true },
            slice,
            retention: Retention { jobs: 4096, age_ms: u64::MAX },
            max_jobs_per_user: 5_000,
            max_jobs_per_processor: 3,
            owner_uid: 0,
            root_jobs: false,
            show_others: Default::default(),
            lease_ns: scenario.lease(),
            detach_grace_ns: GRACE,
            encrypt: false,
            policy: "dqt".into(),
            max_priority: 1,
            priority: 1,
            estimate_ns: None,
            time_limit_ns: None,
            wait: WaitLimit::Forever,
            resources: kumi_control::message::Resources::default(),
            env: Vec::new(),
            revoked: Vec::new(),
            drains: Vec::new(),
            removed: Vec::new(),
            shares: None,
        };
        Self {
            scenario,
            random: Random::new(scenario.seed),
            now: 1_000 * MS,
            sequence: 0,
            queue: BinaryHeap::new(),
            head: HeadSim::new(config),
            nodes: (0..scenario.nodes).map(|_| NodeSim::default()).collect(),
            connections: BTreeMap::new(),
            next_connection: 0,
            cut_off: BTreeSet::new(),
            clients: Vec::new(),
            ledger: Ledger::default(),
            calm: false,
            traced: std::env::var_os("KUMI_SIM_TRACE").is_some(),
        }
    }

    pub fn at(&mut self, delay: u64, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse(Queued(self.now + delay, self.sequence, event)));
    }

    pub fn soon(&mut self, low: u64, high: u64, event: Event) {
        let delay = self.random.within(low, high);
        self.at(delay, event);
    }

    /// With `KUMI_SIM_TRACE` set, what everybody hears and does.
    pub fn trace(&self, who: impl std::fmt::Display, what: &dyn std::fmt::Debug) {
        if self.traced {
            println!("{:>8} us {who}: {what:?}", self.now / 1000);
        }
    }

    /// Milliseconds since the epoch.
    pub fn wall_ms(&self) -> u64 {
        (1_700_000_000_000 + self.now / MS).saturating_add_signed(self.head.machine.wall_error_ms)
    }

    pub fn run(&mut self) {
        self.start_head();
        for node in 0..self.scenario.nodes {
            self.soon(0, 20 * MS, Event::NodeStarts(node));
        }
        for index in 0..self.scenario.jobs {
            let client = Client::draw(&mut self.random, &self.scenario, index);
            self.clients.push(client);
            self.soon(0, 3_000 * MS, Event::Client { index: index as usize });
        }
        self.plan_faults();
        self.advance(5_000 * MS);
        if self.scenario.faults.long_stalls {
            self.advance(LONGEST_STALL);
        }
        if self.scenario.faults.naps {
            self.advance(2 * LEASE);
        }
        self.calm_down();
        self.advance(self.scenario.settling());
        self.check_settled();
        self.check_exchanges();
        let before = self.messages_but_leases();
        self.advance(1_200 * MS);
        assert_eq!(before, self.messages_but_leases(), "switching sends no message");
        let shut_down_running = self.random.chance(30);
        if !shut_down_running {
            self.kill_rest();
            self.advance(4_000 * MS);
            self.check_over();
        }
        self.shut_down();
        self.advance(4_000 * MS);
        self.check_stopped();
    }

    /// Nothing goes wrong, and jobs take all of the cluster, the second with the program already
    /// there: what does it cost the head?
    pub fn run_large_jobs(&mut self) {
        self.start_head();
        for node in 0..self.scenario.nodes {
            // Parents before their children.
            let tree = parent_candidates(NodeId(node), self.scenario.nodes, self.scenario.fan_out);
            self.at(tree.len() as u64 * 30 * MS, Event::NodeStarts(node));
        }
        let children = u64::from(self.scenario.fan_out);
        for first in [true, false] {
            self.clients.push(Client::with_whole_cluster(&self.scenario, first));
            let index = self.clients.len() - 1;
            self.at(1_000 * MS, Event::Client { index });
            self.head.messages.clear();
            self.advance(3_000 * MS);
            self.check_over();
            let mut most = BTreeMap::from([
                ("Prepare", children),
                ("Prepared", children),
                ("Start", children),
                ("Freed", children),
                ("Used", children),
                ("Forget", children),
                ("Timetable", 2 * children),
                ("Exchange", u64::from(EXCHANGES) * children),
                ("Exchanged", u64::from(EXCHANGES) * children),
            ]);
            if first {
                // Those that lacked the program answer one by one, as they have it.
                most.insert("Prepared", u64::from(self.scenario.nodes));
                most.extend([("ProgramWanted", children), ("ProgramChunk", 3 * children)]);
                for kind in ["Attached", "Timetable"] {
                    most.insert(kind, u64::from(self.scenario.nodes) + 2 * children);
                }
            }
            for (kind, count) in self.messages_but_leases() {
                let most = most.get(kind).copied().unwrap_or(0);
                assert!(count <= most, "{count} messages {kind} at the head");
            }
        }
    }

    /// What the head sent and heard, beside leases and output.
    fn messages_but_leases(&self) -> BTreeMap<&'static str, u64> {
        let mut messages = self.head.messages.clone();
        messages.remove("Lease");
        messages.remove("Output");
        messages.remove("OutputKept");
        messages
    }

    fn plan_faults(&mut self) {
        let faults = self.scenario.faults;
        let last = u64::from(self.scenario.nodes) - 1;
        if faults.daemons {
            // Far enough apart that each one's effect can be timed, unless all is mixed anyway.
            for at in [800 * MS, 3_000 * MS] {
                let node = self.random.within(0, last) as u32;
                self.soon(at, at + 500 * MS, Event::NodeDies(node));
            }
        }
        if faults.restarts {
            for _ in 0..4 {
                let node = self.random.within(0, last) as u32;
                self.soon(300 * MS, 4_500 * MS, Event::NodeRestarts(node));
            }
        }
        if faults.head {
            self.soon(300 * MS, 4_500 * MS, Event::HeadDies);
        }
        if faults.links {
            for _ in 0..3 {
                self.soon(200 * MS, 4_500 * MS, Event::LinkBreaks);
            }
        }
        if faults.partitions {
            self.soon(300 * MS, 3_000 * MS, Event::Partition);
        }
        if faults.stalls || faults.long_stalls {
            self.soon(200 * MS, 4_000 * MS, Event::HeadStalls);
        }
        if faults.naps {
            for _ in 0..2 {
                self.soon(200 * MS, 4_000 * MS, Event::NodeSleeps);
            }
        }
        if faults.full_disk {
            self.soon(0, 3_500 * MS, Event::DiskFills);
        }
        if faults.slow_disk {
            self.soon(0, 6_000 * MS, Event::DiskSlows);
        }
        if faults.wall_clock {
            for _ in 0..3 {
                self.soon(0, 4_500 * MS, Event::WallClockJumps);
            }
        }
        if faults.drains {
            self.plan_drains();
        }
        if faults.additions {
            self.plan_additions();
        }
    }

    pub fn advance(&mut self, time: u64) {
        let until = self.now + time;
        while let Some(Reverse(Queued(at, _, _))) = self.queue.peek() {
            if *at > until {
                break;
            }
            let Some(Reverse(Queued(at, _, event))) = self.queue.pop() else { break };
            self.now = at;
            self.happen(event);
        }
        self.now = until;
    }

    fn happen(&mut self, event: Event) {
        let Some(event) = self.while_asleep(event) else { return };
        match event {
            Event::Up { connection, up } => self.deliver_up(connection, up),
            Event::Down { connection, down } => self.deliver_down(connection, down),
            Event::Notice { connection, end } => self.notice(connection, end),
            Event::Connect { node, incarnation, candidate } => {
                self.connect(node, incarnation, candidate);
            }
            Event::Driver { node, incarnation, event } => self.driver(node, incarnation, event),
            Event::RankExits { node, incarnation, job, rank, fails } => {
                self.rank_exits(node, incarnation, job, rank, fails);
            }
            Event::NodeTimer { node, incarnation } => self.node_timer(node, incarnation),
            Event::Stirs { node, incarnation, job } => self.stirs(node, incarnation, job),
            Event::Stirred { node, incarnation, job, stirs } => {
                self.stirred(node, incarnation, job, stirs);
            }
            Event::HeadTimer { epoch } => self.head_timer(epoch),
            Event::Spooled { epoch, job } => self.spooled(epoch, job),
            Event::Client { index } => self.client_connects(index),
            Event::ClientChunk { index, epoch, offset } => self.client_sends(index, epoch, offset),
            Event::ClientKills { index } => self.client_kills(index),
            Event::ClientLeaves { index } => self.client_leaves(index),
            Event::NodeDies(node) => self.node_dies(node),
            Event::NodeRestarts(node) => self.node_restarts(node),
            Event::NodeStarts(node) => self.node_starts(node),
            Event::HeadDies => {
                // In the middle of what it was doing, as often as not.
                if self.random.chance(50) {
                    self.head.fuse = Some(self.random.within(0, 6));
                } else {
                    self.head_dies();
                }
            }
            Event::HeadStarts => self.start_head(),
            Event::HeadStalls => self.head_stalls_for_some_time(),
            Event::HeadWakes => self.head_wakes(),
            Event::HeadIsSilent => self.head_is_silent(),
            Event::NodeSleeps => self.some_node_sleeps(),
            Event::NodeIsSilent(node) => self.node_is_silent(node),
            Event::NodeIsAwake(node) => self.node_is_awake(node),
            Event::DiskFills => self.disk_fills(),
            Event::DiskHasRoom => self.disk_has_room(),
            Event::DiskSlows => self.disk_slows(),
            Event::Written { epoch, number } => self.written(epoch, number),
            Event::WriteAgain => self.write_again(),
            Event::WallClockJumps => self.wall_clock_jumps(),
            Event::Drains => self.drains(),
            Event::Resumes(node) => self.resumes(node),
            Event::AddsNode => self.adds_node(),
            Event::NodesConfigured => self.nodes_configured(),
            Event::LinkBreaks => self.break_some_link(),
            Event::Partition => self.partition(),
            Event::Heal => self.cut_off.clear(),
        }
    }

    /// Ends all faults.
    fn calm_down(&mut self) {
        self.calm = true;
        self.head.fuse = None;
        self.head_machine_recovers();
        self.cut_off.clear();
        for node in 0..self.scenario.nodes {
            self.node_starts(node);
        }
        self.start_head();
        self.resume_all();
    }

    /// `kumi cluster down`: every job ends, every daemon stops, then the head.
    fn shut_down(&mut self) {
        for job in self.head.records.keys() {
            self.ledger.killed.insert(*job);
        }
        let id = self.new_client();
        self.head_event(HeadEvent::Client(id, ROOT, ClientRequest::Shutdown));
    }

    /// Jobs that would run for ever are killed by their users.
    fn kill_rest(&mut self) {
        let live = self.head.records.keys().filter(|job| self.head.ended(**job).is_none());
        for job in live.copied().collect::<Vec<_>>() {
            self.kill_job(job);
        }
    }
}
