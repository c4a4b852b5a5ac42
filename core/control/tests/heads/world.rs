//! Virtual time and what is in it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use kumi_control::agent::AgentEvent;
use kumi_control::head::{HeadConfig, Retention};
use kumi_control::message::{ClientReply, ClientRequest, Down, JobState, Stream, Up, WaitLimit};
use kumi_sched::{JobId, Mode, SliceLength};

use crate::clients::{Ask, Client, Plan};
use crate::copies::{CopyMessage, CopySession, Disk};
use crate::heads::{Channel, HeadProcess};
use crate::history::{Act, History};
use crate::links::{End, Link};
use crate::nodes::NodeSim;
use crate::random::Random;
use crate::store::{self, Answer, Store};

pub const MS: u64 = 1_000_000;
/// Of the leader.
pub const LEADER_LEASE: u64 = 3_000 * MS;
/// How long nodes go on without a head.
const LEASE: u64 = 20_000 * MS;
const GRACE: u64 = 8_000 * MS;
/// A link on which nothing comes for so long is given up.
pub const SILENCE: u64 = 1_000 * MS;
const FAULTY: u64 = 25_000 * MS;
/// By then nothing is left of a fault.
const SETTLING: u64 = 2 * (LEASE + GRACE) + 10_000 * MS;
const JOBS: u128 = 6;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Processes of heads die, and are started again.
    pub deaths: bool,
    /// They stand still.
    pub pauses: bool,
    /// Heads are cut off from the store or from nodes, messages are lost, and the store is away.
    pub partitions: bool,
    /// Wall clocks jump.
    pub clocks: bool,
}

/// The clock of a machine, which nobody can set. For leases it is told to run wrong by up to a twentieth.
#[derive(Clone, Copy)]
pub struct MachineClock {
    offset: u64,
    percent: u64,
}

impl MachineClock {
    fn draw(random: &mut Random) -> Self {
        Self { offset: random.within(0, 1 << 50), percent: random.within(95, 105) }
    }

    pub fn of_lease(self, now: u64) -> u64 {
        self.offset + now / 100 * self.percent
    }

    /// What the cluster's clock shows while the head of this machine leads.
    pub fn of_cluster(self, now: u64) -> u64 {
        self.offset + now
    }
}

#[expect(clippy::large_enum_variant, reason = "a queue of some hundreds")]
pub enum Event {
    Tick { head: usize, epoch: u64 },
    Asked { head: usize, epoch: u64, channel: Channel, question: u64, ask: store::Ask },
    Answered { head: usize, epoch: u64, channel: Channel, question: u64, answer: Answer },
    HeadTimer { head: usize, epoch: u64 },
    HeadStarts(usize),
    HeadIsSilent(usize),
    Up { head: usize, link: u64, up: Up },
    Down { link: u64, down: Down },
    Notice { head: usize, link: u64, end: End },
    Connect { node: usize },
    NodeTimer { node: usize },
    Driver { node: usize, event: AgentEvent },
    RankExits { node: usize, job: JobId, rank: u32, fails: bool },
    ClientTries { index: usize },
    Request { head: usize, epoch: u64, attempt: u64, request: ClientRequest },
    Reply { attempt: u64, reply: ClientReply },
    AttemptOver { attempt: u64 },
    RankWrites { node: usize, job: JobId, rank: u32 },
    Spooled { head: usize, epoch: u64, job: JobId },
    Copy { session: u64, to_leader: bool, number: u64, message: CopyMessage },
    Fault,
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
    pub random: Random,
    pub now: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    pub faults: Faults,
    pub config: HeadConfig,
    pub store: Store,
    pub store_away_until: u64,
    pub heads: Vec<HeadProcess>,
    pub nodes: Vec<NodeSim>,
    pub links: BTreeMap<u64, Link>,
    /// Of links and attempts.
    pub next_id: u64,
    /// Nodes and heads that do not hear of each other.
    pub parted: BTreeSet<(usize, usize)>,
    pub clients: Vec<Client>,
    /// By attempt: the client, the head and its process.
    pub attempts: BTreeMap<u64, (usize, usize, u64)>,
    pub plans: BTreeMap<u128, Plan>,
    histories: BTreeMap<u128, History>,
    /// Ranks that began to run, and that ended well, by the token of their job.
    pub started: BTreeSet<(u128, u32)>,
    pub exited: BTreeSet<(u128, u32)>,
    /// Leases of nodes that ran out.
    pub leases_over: u64,
    /// What machines of heads have of output, connections by which they copy it, and heads that do not hear of each other.
    pub disks: Vec<Disk>,
    pub copies: BTreeMap<u64, CopySession>,
    pub parted_heads: BTreeSet<(usize, usize)>,
    /// How much of each stream nodes were told that is kept.
    pub kept: BTreeMap<(JobId, (u32, Stream)), u64>,
    /// A head has led that was not in sync; machines that were lost.
    pub forced: bool,
    pub lost_disks: u64,
    /// No more faults: everything that is dead has been started again.
    pub calm: bool,
    traced: bool,
}

fn config(nodes: u32) -> HeadConfig {
    HeadConfig {
        cluster_name: "sim".into(),
        nodes: (0..nodes).map(|node| format!("n{node}")).collect(),
        mode: Mode::Gang { force_switch: false, fill: true },
        slice: SliceLength::Auto,
        retention: Retention { jobs: 4096, age_ms: u64::MAX },
        max_jobs_per_user: 5_000,
        max_jobs_per_processor: 3,
        owner_uid: 0,
        root_jobs: false,
        show_others: Default::default(),
        lease_ns: LEASE,
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
    }
}

impl World {
    pub fn new(seed: u64, faults: Faults) -> Self {
        let mut random = Random::new(seed);
        let nodes = random.within(2, 4) as u32;
        let heads = random.within(2, 3);
        let disks = (0..heads).map(|_| Disk::default()).collect();
        let heads = (0..heads).map(|_| HeadProcess::new(MachineClock::draw(&mut random))).collect();
        let store = Store::new(MachineClock::draw(&mut random));
        let plans: BTreeMap<u128, Plan> =
            (1..=JOBS).map(|token| (token << 64, Plan::draw(&mut random, nodes))).collect();
        Self {
            random,
            now: 1_000 * MS,
            sequence: 0,
            queue: BinaryHeap::new(),
            faults,
            config: config(nodes),
            store,
            store_away_until: 0,
            heads,
            nodes: (0..nodes).map(NodeSim::new).collect(),
            links: BTreeMap::new(),
            next_id: 0,
            parted: BTreeSet::new(),
            clients: Vec::new(),
            attempts: BTreeMap::new(),
            plans,
            histories: BTreeMap::new(),
            started: BTreeSet::new(),
            exited: BTreeSet::new(),
            leases_over: 0,
            disks,
            copies: BTreeMap::new(),
            parted_heads: BTreeSet::new(),
            kept: BTreeMap::new(),
            forced: false,
            lost_disks: 0,
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

    /// Milliseconds since the epoch, by the wall clock of a head's machine.
    pub fn wall_ms(&self, head: usize) -> u64 {
        (1_700_000_000_000 + self.now / MS).saturating_add_signed(self.heads[head].wall_error_ms)
    }

    pub fn plan_of(&self, token: u128) -> Plan {
        self.plans[&token].clone()
    }

    pub fn history(&mut self, token: u128) -> &mut History {
        self.histories.entry(token).or_default()
    }

    /// Returns how many terms there were.
    pub fn run(&mut self) -> u64 {
        for head in 0..self.heads.len() {
            self.head_starts(head);
        }
        for node in 0..self.nodes.len() {
            self.soon(0, 20 * MS, Event::Connect { node });
        }
        self.draw_clients();
        self.soon(1_000 * MS, 6_000 * MS, Event::Fault);
        self.advance(FAULTY);
        self.calm_down();
        self.advance(SETTLING);
        self.kill_rest();
        self.advance(15_000 * MS);
        self.check_over();
        self.store.terms
    }

    /// Of each job one who submits it and waits, one who submits it too, and perhaps one who kills it.
    fn draw_clients(&mut self) {
        let tokens: Vec<u128> = self.plans.keys().copied().collect();
        for token in tokens {
            let mut plans = vec![vec![Ask::Submit], vec![Ask::Submit]];
            if !self.plans[&token].runs_for_ever {
                plans[0].push(Ask::Wait);
            }
            if self.random.chance(40) {
                plans.push(vec![Ask::Submit, Ask::Kill, Ask::Wait]);
            }
            for plan in plans {
                self.clients.push(Client::new(token, &plan));
                let index = self.clients.len() - 1;
                self.soon(0, FAULTY * 3 / 4, Event::ClientTries { index });
            }
        }
    }

    fn advance(&mut self, time: u64) {
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

    /// Puts off what happens in a process that stands still, in order, and forgets what was for an earlier process.
    fn reaches_head(&mut self, event: Event) -> Option<Event> {
        let (head, epoch) = match &event {
            Event::Tick { head, epoch }
            | Event::Answered { head, epoch, .. }
            | Event::HeadTimer { head, epoch }
            | Event::Spooled { head, epoch, .. }
            | Event::Request { head, epoch, .. } => (*head, Some(*epoch)),
            Event::Copy { session, to_leader, .. } => {
                let session = self.copies.get(session)?;
                let (head, epoch) = if *to_leader { session.leader } else { session.standby };
                (head, Some(epoch))
            }
            Event::Up { head, .. } | Event::Notice { head, end: End::Head, .. } => (*head, None),
            _ => return Some(event),
        };
        let process = &self.heads[head];
        if epoch.is_some_and(|epoch| epoch != process.epoch || !process.runs) {
            return None;
        }
        let wakes = process.frozen_until;
        if wakes <= self.now {
            return Some(event);
        }
        self.at(wakes - self.now, event);
        None
    }

    fn happen(&mut self, event: Event) {
        let Some(event) = self.reaches_head(event) else { return };
        match event {
            Event::Tick { head, .. } => self.head_ticks(head),
            Event::Asked { head, epoch, channel, question, ask } => {
                self.asked((head, epoch), (channel, question), ask);
            }
            Event::Answered { head, channel, question, answer, .. } => {
                self.answered(head, (channel, question), answer);
            }
            Event::HeadTimer { head, .. } => self.head_timer(head),
            Event::HeadStarts(head) => self.head_starts(head),
            Event::HeadIsSilent(head) => self.head_is_silent(head),
            Event::Up { link, up, .. } => self.deliver_up(link, up),
            Event::Down { link, down } => self.deliver_down(link, down),
            Event::Notice { link, end, .. } => self.notice(link, end),
            Event::Connect { node } => self.connect(node),
            Event::NodeTimer { node } => self.node_timer(node),
            Event::Driver { node, event } => self.driver(node, event),
            Event::RankExits { node, job, rank, fails } => self.rank_exits(node, job, rank, fails),
            Event::ClientTries { index } => self.client_tries(index),
            Event::Request { head, attempt, request, .. } => self.request(head, attempt, request),
            Event::Reply { attempt, reply } => self.reply(attempt, reply),
            Event::AttemptOver { attempt } => self.attempt_over(attempt),
            Event::RankWrites { node, job, rank } => self.rank_writes(node, job, rank),
            Event::Spooled { head, job, .. } => self.spooled(head, job),
            Event::Copy { session, to_leader, number, message } => {
                self.copy_arrives(session, (to_leader, number), message);
            }
            Event::Fault => self.fault(),
            Event::Heal => {
                self.parted.clear();
                self.parted_heads.clear();
            }
        }
    }

    /// Something goes wrong, the leader as often as not.
    fn fault(&mut self) {
        if self.calm {
            return;
        }
        let leader = (0..self.heads.len()).find(|&head| self.heads[head].listens());
        let any = self.random.within(0, self.heads.len() as u64 - 1) as usize;
        let head = leader.filter(|_| self.random.chance(60)).unwrap_or(any);
        if self.faults.deaths && self.random.chance(50) {
            self.head_dies(head);
        }
        if self.faults.pauses && self.random.chance(50) {
            self.head_stands_still(head);
        }
        if self.faults.partitions {
            match self.random.within(0, 3) {
                0 => self.heads[head].cut_off = true,
                1 => self.heads.iter_mut().for_each(|head| head.cut_off = false),
                2 => self.store_away_until = self.now + self.random.within(0, 2 * LEADER_LEASE),
                _ => self.part(),
            }
        }
        if self.faults.clocks && self.random.chance(50) {
            let hour = 3_600_000;
            self.heads[head].wall_error_ms =
                self.random.within(0, 2 * hour).cast_signed() - hour.cast_signed();
        }
        self.soon(100 * MS, 5_000 * MS, Event::Fault);
    }

    fn head_stands_still(&mut self, head: usize) {
        let time = self.random.within(0, 3 * LEADER_LEASE);
        let wakes = &mut self.heads[head].frozen_until;
        *wakes = (*wakes).max(self.now + time);
        if time > SILENCE {
            self.at(SILENCE, Event::HeadIsSilent(head));
        }
    }

    /// Ends all faults.
    fn calm_down(&mut self) {
        self.calm = true;
        self.store_away_until = 0;
        self.parted.clear();
        self.parted_heads.clear();
        // Those that stand still go on by themselves.
        self.heads.iter_mut().for_each(|head| head.cut_off = false);
    }

    /// The end: one leads, everything has ended, everybody was told, and it can have happened in one order.
    fn check_over(&mut self) {
        let now = self.now;
        let sure = (0..self.heads.len()).filter(|&head| self.heads[head].is_sure(now));
        let leaders: Vec<usize> = sure.collect();
        let [leader] = leaders[..] else { panic!("{leaders:?} lead") };
        let head = self.heads[leader].head().expect("it serves");
        for node in 0..self.nodes.len() {
            assert!(head.is_up(kumi_sched::NodeId(node as u32)), "node {node} is not attached");
            assert!(self.nodes[node].jobs.is_empty(), "node {node} has something left");
            assert_eq!(self.nodes[node].jobs_of_agent(), 0, "node {node} forgot its reports");
        }
        self.check_output(leader);
        let tokens: BTreeSet<u128> =
            self.store.records.values().map(|record| record.spec.request.token).collect();
        assert_eq!(tokens.len(), self.store.records.len(), "a token has two jobs");
        assert!(tokens.iter().eq(self.plans.keys()), "a job is lost");
        for (job, record) in &self.store.records {
            assert!(matches!(record.state, JobState::Ended(_)), "{job}: {record:?}");
            assert_eq!(self.histories[&record.spec.request.token].job, Some(*job));
        }
        for (index, client) in self.clients.iter().enumerate() {
            assert!(client.is_done(), "client {index} was never answered");
        }
        let can_be_lost = self.faults.partitions;
        if !can_be_lost {
            assert_eq!(self.leases_over, 0, "another head leads long before");
        }
        for (token, history) in &mut self.histories {
            if can_be_lost {
                history.may_happen(Act::Lost, 0);
            }
            assert!(history.answers() > 1);
            assert!(history.is_linearizable(), "job {token:x}: {history:#?}");
        }
    }
}
