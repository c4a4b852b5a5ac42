//! Processes of heads: the real state machine, and a driver that writes records before it acts, and acts only while it is
//! sure that it leads.

use std::collections::{BTreeMap, VecDeque};

use kumi_control::head::{ClientId, Head, HeadAction, HeadEvent};
use kumi_control::message::{ClientReply, Command, JobRecord, JobState};
use kumi_leadership::Claim;
use kumi_sched::JobId;

use crate::candidacy::HeldTerm;
use crate::store::{Answer, Ask};
use crate::world::{Event, MS, MachineClock, World};

/// After this time without an answer the store is asked again.
const PATIENCE: u64 = 600 * MS;

/// Connections to the store: the thread of the lease has one, the writer another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Lease,
    Table,
}

/// The latest question, and since when its answer is awaited.
#[derive(Default)]
struct Question {
    number: u64,
    since: Option<u64>,
}

/// How far a head that leads has come.
#[derive(Debug, Default)]
pub enum Stage {
    #[default]
    Load,
    /// It makes sure that it led when it read.
    Confirm(Vec<JobRecord>),
    Serve,
}

pub struct HeadProcess {
    pub clock: MachineClock,
    pub wall_error_ms: i64,
    /// Of the process.
    pub epoch: u64,
    pub runs: bool,
    pub frozen_until: u64,
    pub cut_off: bool,
    pub claim: Option<Claim>,
    pub term: Option<HeldTerm>,
    pub stage: Stage,
    questions: [Question; 2],
    head: Option<Head>,
    /// The latest record of each job that is not in the store, and its write.
    unwritten: BTreeMap<JobId, (u64, JobRecord)>,
    next: u64,
    settled: u64,
    needed: u64,
    writing: Option<(u64, Vec<JobRecord>)>,
    held: VecDeque<(u64, HeadAction)>,
    armed: Option<u64>,
}

impl HeadProcess {
    pub fn new(clock: MachineClock) -> Self {
        let (claim, term, stage, questions) = Default::default();
        let (head, unwritten, writing, held, armed) = Default::default();
        Self {
            clock,
            wall_error_ms: 0,
            epoch: 0,
            runs: true,
            frozen_until: 0,
            cut_off: false,
            claim,
            term,
            stage,
            questions,
            head,
            unwritten,
            // The first one confirmed that it leads.
            next: 2,
            settled: 1,
            needed: 0,
            writing,
            held,
            armed,
        }
    }

    /// Whether it takes connections.
    pub fn listens(&self) -> bool {
        self.runs && self.head.is_some()
    }

    /// The state machine of one that leads.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Whether it is sure that it leads.
    pub fn is_sure(&self, now: u64) -> bool {
        self.term.is_some_and(|term| term.term.leads(self.clock.of_lease(now)))
    }
}

/// As in the daemon: what a record need not vouch for.
fn needs_no_record(action: &HeadAction) -> bool {
    matches!(action, HeadAction::ToChild(_, _, Command::Lease { .. }))
        || matches!(action, HeadAction::ToClient(_, ClientReply::Jobs(_) | ClientReply::Cluster(_)))
}

impl World {
    pub fn is_waiting(&self, number: usize, channel: Channel) -> bool {
        let since = self.heads[number].questions[channel as usize].since;
        since.is_some_and(|since| self.now < since + PATIENCE)
    }

    pub fn ask(&mut self, head: usize, channel: Channel, ask: Ask) {
        let now = self.now;
        let process = &mut self.heads[head];
        let question = &mut process.questions[channel as usize];
        (question.number, question.since) = (question.number + 1, Some(now));
        let (question, epoch) = (question.number, process.epoch);
        self.by_the_store(Event::Asked { head, epoch, channel, question, ask });
    }

    /// A message to the store or from it takes its time, and may be lost.
    fn by_the_store(&mut self, event: Event) {
        let faulty = self.faults.partitions && !self.calm;
        if faulty && self.random.chance(5) {
            return;
        }
        let slow = faulty && self.random.chance(10);
        self.soon(MS, if slow { 6_000 * MS } else { 20 * MS }, event);
    }

    pub fn asked(
        &mut self,
        (head, epoch): (usize, u64),
        (channel, question): (Channel, u64),
        ask: Ask,
    ) {
        if self.now < self.store_away_until || self.heads[head].cut_off {
            return;
        }
        let answer = self.store.answer(self.now, head, ask);
        self.by_the_store(Event::Answered { head, epoch, channel, question, answer });
    }

    pub fn answered(&mut self, head: usize, (channel, number): (Channel, u64), answer: Answer) {
        let process = &mut self.heads[head];
        let question = &mut process.questions[channel as usize];
        if question.number != number || process.cut_off {
            return;
        }
        question.since = None;
        match channel {
            Channel::Lease => self.lease_answered(head, &answer),
            Channel::Table => self.table_answered(head, answer),
        }
    }

    /// What the process does now and then.
    pub fn head_ticks(&mut self, number: usize) {
        self.keep_lease(number);
        self.write_table(number);
        self.act_on_settled(number);
        let epoch = self.heads[number].epoch;
        self.soon(50 * MS, 150 * MS, Event::Tick { head: number, epoch });
    }

    /// Asks the store what comes next of the table: all of it at first, then one write after the other.
    pub fn write_table(&mut self, number: usize) {
        if self.is_waiting(number, Channel::Table) {
            return;
        }
        let process = &mut self.heads[number];
        let Some(HeldTerm { made, .. }) = process.term else { return };
        let ask = match &process.stage {
            Stage::Load => Ask::Load,
            Stage::Confirm(_) => Ask::Write { made, number: 1, records: Vec::new() },
            Stage::Serve => {
                if process.writing.is_none() && process.needed == process.next {
                    let records = process.unwritten.values().map(|(_, record)| record.clone());
                    process.writing = Some((process.next, records.collect()));
                    process.next += 1;
                }
                let Some((number, records)) = &process.writing else { return };
                Ask::Write { made, number: *number, records: records.clone() }
            }
        };
        self.ask(number, Channel::Table, ask);
    }

    fn table_answered(&mut self, number: usize, answer: Answer) {
        let process = &mut self.heads[number];
        match answer {
            Answer::Loaded(records) => process.stage = Stage::Confirm(records),
            Answer::Written(false) => return self.head_begins_again(number),
            Answer::Written(true) => match std::mem::replace(&mut process.stage, Stage::Serve) {
                Stage::Confirm(records) => return self.head_leads(number, records),
                Stage::Serve => {
                    if let Some((write, _)) = process.writing.take() {
                        process.settled = write;
                        process.unwritten.retain(|_, (of, _)| *of > write);
                    }
                }
                Stage::Load => unreachable!("nothing was written"),
            },
            other => unreachable!("of the other channel: {other:?}"),
        }
        self.write_table(number);
        self.act_on_settled(number);
    }

    fn head_leads(&mut self, number: usize, records: Vec<JobRecord>) {
        let seed = [self.random.next() as u8; 32];
        let head = Head::new(self.config.clone(), records, seed).expect("a policy");
        self.heads[number].head = Some(head);
        self.trace(format_args!("head {number}"), &"leads");
        self.head_event(number, HeadEvent::Timeout);
    }

    pub fn head_event(&mut self, number: usize, event: HeadEvent) {
        self.trace(format_args!("head {number} hears"), &event);
        let now = self.now;
        let wall_ms = self.wall_ms(number);
        let process = &mut self.heads[number];
        let local = process.clock.of_cluster(now);
        let Some(head) = &mut process.head else { return };
        head.handle(local, wall_ms, event);
        let (mut actions, timeout) = (Vec::new(), head.next_timeout());
        while let Some(action) = head.poll_action() {
            actions.push(action);
        }
        for action in actions {
            let process = &mut self.heads[number];
            if let HeadAction::Persist(record) = &action {
                process.needed = process.next;
                process.unwritten.insert(record.spec.job, (process.next, (**record).clone()));
            }
            if needs_no_record(&action) && process.is_sure(now) {
                self.head_acts(number, action);
            } else {
                process.held.push_back((process.needed, action));
            }
        }
        self.write_table(number);
        self.act_on_settled(number);
        let process = &mut self.heads[number];
        if let Some(at) = timeout
            && process.armed.is_none_or(|armed| at < armed)
        {
            process.armed = Some(at);
            let epoch = process.epoch;
            self.at(at.saturating_sub(local), Event::HeadTimer { head: number, epoch });
        }
    }

    pub fn head_timer(&mut self, number: usize) {
        let local = self.heads[number].clock.of_cluster(self.now);
        if self.heads[number].armed.is_some_and(|at| at <= local) {
            self.heads[number].armed = None;
            self.head_event(number, HeadEvent::Timeout);
        }
    }

    fn act_on_settled(&mut self, number: usize) {
        loop {
            let process = &mut self.heads[number];
            let settled = process.settled;
            if !process.is_sure(self.now) || process.held.front().is_none_or(|(w, _)| *w > settled)
            {
                return;
            }
            let Some((_, action)) = process.held.pop_front() else { return };
            self.head_acts(number, action);
        }
    }

    /// Two never act at one time: who acts has the leader's key, by the store's clock too.
    fn head_acts(&mut self, number: usize, action: HeadAction) {
        self.trace(format_args!("head {number}"), &action);
        let made = self.heads[number].term.expect("it is sure").made;
        assert!(self.store.leads(self.now, made), "head {number} acts and does not lead");
        match action {
            HeadAction::Persist(record) => self.check_recorded(&record),
            HeadAction::ToChild(link, nodes, command) => self.send_down(link.0, nodes, command),
            HeadAction::ToClient(ClientId(attempt), reply) => self.send_reply(attempt, reply),
            HeadAction::ToClients(attempts, reply) => {
                for ClientId(attempt) in attempts {
                    self.send_reply(attempt, reply.clone());
                }
            }
            // Ranks write nothing here, and nobody follows them.
            HeadAction::Spool { .. }
            | HeadAction::Follow { .. }
            | HeadAction::EndSpool { .. }
            | HeadAction::MarkRestart { .. } => {}
            HeadAction::Discard(_)
            | HeadAction::Revoke { .. }
            | HeadAction::KeepDrains { .. }
            | HeadAction::AddNode { .. }
            | HeadAction::RemoveNode { .. }
            | HeadAction::IssueToken { .. }
            | HeadAction::Shutdown => unreachable!("nobody asks for it here"),
        }
    }

    /// A record that is acted upon is in the store, or an even later one. Nothing runs of a job that is over.
    fn check_recorded(&self, record: &JobRecord) {
        let job = record.spec.job;
        let found = self.store.records.get(&job).expect("it is recorded before it is acted upon");
        let is_over = |record: &JobRecord| matches!(record.state, JobState::Ended(_));
        if is_over(record) {
            assert!(is_over(found), "{record:?} is recorded as {found:?}");
            self.check_nothing_runs(job);
        }
    }

    /// A new process in the place of the old one: nothing is left of what it believed.
    pub fn head_begins_again(&mut self, number: usize) {
        self.head_is_gone(number);
        self.head_starts(number);
    }

    pub fn head_dies(&mut self, number: usize) {
        if self.heads[number].runs {
            self.head_is_gone(number);
            self.heads[number].runs = false;
            self.soon(100 * MS, 5_000 * MS, Event::HeadStarts(number));
        }
    }

    pub fn head_starts(&mut self, number: usize) {
        self.heads[number].runs = true;
        let epoch = self.heads[number].epoch;
        self.at(0, Event::Tick { head: number, epoch });
    }

    fn head_is_gone(&mut self, number: usize) {
        self.trace(format_args!("head {number}"), &"is gone");
        let old = &self.heads[number];
        self.heads[number] = HeadProcess {
            epoch: old.epoch + 1,
            wall_error_ms: old.wall_error_ms,
            cut_off: old.cut_off,
            ..HeadProcess::new(old.clock)
        };
        self.break_links_of(number);
        self.attempts_lose(number);
    }
}
