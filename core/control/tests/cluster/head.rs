//! The real head, with a table that survives it.

use std::collections::BTreeMap;

use kumi_control::head::{ClientId, Head, HeadAction, HeadConfig, HeadEvent};
use kumi_control::message::{Command, Drain, JobRecord, JobState, Outcome, Report, Stream, Up};
use kumi_control::tree::Parent;
use kumi_sched::JobId;

use crate::storage::HeadMachine;
use crate::world::{Event, MS, World};
use crate::writer::Writer;

/// Policies that heads go by; none that needs estimates.
const POLICIES: [&str; 7] =
    ["dqt", "matrix", "fair-dqt:apa", "dhc", "first-fit", "dqt:max+shares", "scan"];

/// The output of a job, on a disk that survives the head, and how far each stream has come.
#[derive(Default)]
pub struct Spool {
    pub text: Vec<u8>,
    positions: BTreeMap<(u32, Stream), u64>,
    /// How often the job was started again.
    restarts: u32,
}

impl Spool {
    fn begin_anew(&mut self, restarts: u32) {
        *self = Self { restarts, ..Self::default() };
    }
}

pub struct HeadSim {
    pub config: HeadConfig,
    pub head: Option<Head>,
    epoch: u64,
    armed: Option<u64>,
    /// The durable table.
    pub records: BTreeMap<JobId, JobRecord>,
    pub spools: BTreeMap<JobId, Spool>,
    /// The nodes that are drained, on a disk that survives it.
    pub drains: Vec<Drain>,
    generation: u64,
    /// Dies in front of the action after this many.
    pub fuse: Option<u64>,
    /// Commands sent and reports heard, by kind.
    pub messages: BTreeMap<&'static str, u64>,
    /// It said that it may stop.
    pub stopped: bool,
    pub machine: HeadMachine,
    pub writer: Writer,
    /// The nodes that are drained, as the head that runs knows them.
    pub drains_now: Vec<Drain>,
}

impl HeadSim {
    pub fn new(config: HeadConfig) -> Self {
        Self {
            config,
            head: None,
            epoch: 0,
            armed: None,
            records: BTreeMap::new(),
            spools: BTreeMap::new(),
            drains: Vec::new(),
            generation: 0,
            fuse: None,
            messages: BTreeMap::new(),
            stopped: false,
            machine: HeadMachine::default(),
            writer: Writer::default(),
            drains_now: Vec::new(),
        }
    }

    pub fn alive(&self, epoch: u64) -> bool {
        self.head.is_some() && self.epoch == epoch
    }

    pub fn current_epoch(&self) -> Option<u64> {
        self.head.is_some().then_some(self.epoch)
    }

    /// How the job ended, by the durable table.
    pub fn ended(&self, job: JobId) -> Option<&Outcome> {
        match &self.records.get(&job)?.state {
            JobState::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }
}

fn command_kind(command: &Command) -> &'static str {
    match command {
        Command::Prepare(_) => "Prepare",
        Command::ProgramChunk { .. } => "ProgramChunk",
        Command::Start { .. } => "Start",
        Command::Kill { .. } => "Kill",
        Command::Timetable(_) => "Timetable",
        Command::Forget { .. } => "Forget",
        Command::Exchanged { .. } => "Exchanged",
        Command::Lease { .. } => "Lease",
        Command::OutputKept { .. } => "OutputKept",
        _ => "other commands",
    }
}

fn report_kind(report: &Report) -> &'static str {
    match report {
        Report::Attached(_) => "Attached",
        Report::Prepared { .. } => "Prepared",
        Report::ProgramWanted { .. } => "ProgramWanted",
        Report::Freed { .. } => "Freed",
        Report::Exchange(_) => "Exchange",
        Report::Used(_) => "Used",
        Report::Output { .. } => "Output",
        _ => "other reports",
    }
}

impl World {
    pub fn start_head(&mut self) {
        if self.head.head.is_some() {
            return;
        }
        self.head.epoch += 1;
        self.head.armed = None;
        // A new head does not know how far the last one came: nodes tell it when they attach.
        self.head.generation = 0;
        let records = self.head.records.values().cloned().collect();
        let seed = [self.head.epoch as u8; 32];
        // Each head may go by another policy than the one before it.
        let turn = self.scenario.seed + self.head.epoch;
        self.head.config.policy = POLICIES[(turn % POLICIES.len() as u64) as usize].into();
        self.head.config.drains = self.head.drains.clone();
        self.head.drains_now = self.head.drains.clone();
        self.head.writer.begin();
        let head = Head::new(self.head.config.clone(), records, seed);
        let mut head = head.expect("a policy");
        for (&job, spool) in &mut self.head.spools {
            let restarts = self.head.records.get(&job).map_or(0, |record| record.restarts);
            if spool.restarts != restarts {
                spool.begin_anew(restarts);
            }
            let streams = spool.positions.iter();
            head.restore_output(job, streams.map(|(&(rank, stream), &next)| (rank, stream, next)));
        }
        self.head.head = Some(head);
        self.head_event(HeadEvent::Timeout);
    }

    pub fn head_dies(&mut self) {
        self.head.fuse = None;
        if self.head.head.take().is_none() {
            return;
        }
        self.head_machine_restarts();
        for node in 0..self.scenario.nodes {
            self.ledger.disturbed.insert(node, self.now);
        }
        self.break_links_of(Parent::Head);
        self.clients_lose_head();
        self.soon(100 * MS, 5_000 * MS, Event::HeadStarts);
    }

    pub fn head_event(&mut self, event: HeadEvent) {
        if let Some(event) = self.while_stalled(event) {
            self.head_handles(event);
        }
    }

    pub fn head_handles(&mut self, event: HeadEvent) {
        self.trace("head hears", &event);
        if let HeadEvent::Child(_, Up::Report(report)) = &event {
            *self.head.messages.entry(report_kind(report)).or_default() += 1;
        }
        let (now, wall_ms) = (self.now, self.wall_ms());
        let Some(head) = &mut self.head.head else { return };
        head.handle(now, wall_ms, event);
        let mut actions = Vec::new();
        while let Some(action) = head.poll_action() {
            actions.push(action);
        }
        let timeout = head.next_timeout();
        if head.timetable().generation != self.head.generation {
            assert!(head.timetable().generation > self.head.generation, "generations rise");
            self.head.generation = head.timetable().generation;
            self.check_timetable();
        }
        let epoch = self.head.epoch;
        for action in actions {
            self.head_says(action);
            if !self.head.alive(epoch) {
                return;
            }
        }
        self.write_records();
        self.act_on_settled();
        if !self.head.alive(epoch) {
            return;
        }
        if let Some(at) = timeout
            && self.head.armed.is_none_or(|armed| at < armed)
        {
            self.head.armed = Some(at);
            let epoch = self.head.epoch;
            self.at(at.saturating_sub(now), Event::HeadTimer { epoch });
        }
    }

    pub fn spooled(&mut self, epoch: u64, job: JobId) {
        if self.head.alive(epoch) {
            self.head_event(HeadEvent::Spooled { job });
        }
    }

    pub fn head_timer(&mut self, epoch: u64) {
        // An earlier one may have been set since; it sets this one anew.
        let due = self.head.armed.is_some_and(|at| at <= self.now);
        if self.head.alive(epoch) && due {
            self.head.armed = None;
            self.head_event(HeadEvent::Timeout);
        }
    }

    /// What the head decides is checked at once, and done when its records are on the disk.
    fn head_says(&mut self, action: HeadAction) {
        match action {
            HeadAction::Persist(record) => {
                if matches!(record.state, JobState::Ended(_)) {
                    self.check_end(&record);
                }
                self.check_step(&record);
                self.check_placement(&record);
                self.add_record(*record);
            }
            action => {
                if let HeadAction::KeepDrains { drains, .. } = &action {
                    self.head.drains_now.clone_from(drains);
                }
                self.hold(action);
            }
        }
    }

    /// Acts, unless the head is dead or dies just before that.
    pub fn act_unless_dead(&mut self, action: HeadAction) {
        if self.head.head.is_none() {
            return;
        }
        if let Some(fuse) = &mut self.head.fuse {
            if *fuse == 0 && !self.calm {
                self.head_dies();
                return;
            }
            *fuse = fuse.saturating_sub(1);
        }
        self.trace("head", &action);
        self.head_acts(action);
    }

    fn head_acts(&mut self, action: HeadAction) {
        match action {
            // Written before anything that needs it.
            HeadAction::Persist(_) => {}
            action if self.holds_forget(&action) => {}
            HeadAction::ToChild(link, nodes, command) => {
                *self.head.messages.entry(command_kind(&command)).or_default() += 1;
                self.send_down(link.0, nodes, command);
            }
            HeadAction::ToClient(client, reply) => self.client_hears(client, reply),
            HeadAction::ToClients(clients, reply) => {
                for client in clients {
                    self.client_hears(client, reply.clone());
                }
            }
            HeadAction::Spool { job, rank, stream, at, data } => {
                let spool = self.head.spools.entry(job).or_default();
                let next = spool.positions.entry((rank, stream)).or_default();
                assert_eq!(*next, at, "output of rank {rank} of job {job} comes once and in order");
                *next += data.len() as u64;
                spool.text.extend(data);
                let epoch = self.head.epoch;
                self.soon(0, 2 * MS, Event::Spooled { epoch, job });
            }
            HeadAction::MarkRestart { job, restarts, .. } => {
                self.head.spools.entry(job).or_default().begin_anew(restarts);
                self.ledger.restarts += 1;
            }
            HeadAction::Follow { client, job, .. } => self.client_follows(client, job),
            HeadAction::EndSpool { job, outcome, .. } => self.clients_hear_end(job, &outcome),
            HeadAction::Discard(job) => {
                let over =
                    self.record_of(job).is_some_and(|it| matches!(it.state, JobState::Ended(_)));
                assert!(over, "job {job} is not over");
                self.head.records.remove(&job);
                self.head.writer.unwritten.remove(&job);
                self.head.spools.remove(&job);
            }
            // Nobody revokes or removes anything here, and no machine joins.
            HeadAction::Revoke { .. }
            | HeadAction::RemoveNode { .. }
            | HeadAction::IssueToken { .. } => {}
            HeadAction::AddNode { .. } => self.node_is_added(),
            HeadAction::KeepDrains { drains, .. } => self.keep_drains(drains),
            HeadAction::Shutdown => self.head.stopped = true,
        }
    }

    pub fn new_client(&mut self) -> ClientId {
        self.next_connection += 1;
        ClientId(self.next_connection)
    }
}
