//! Clients like `kumi run`: submit, send the program if asked, follow, come again when the head
//! was away.

use kumi_control::head::{ClientId, HeadEvent};
use kumi_control::message::{
    BatchOptions, ClientReply, ClientRequest, ContentHash, JobRequest, Outcome, Program, User,
    WaitLimit,
};
use kumi_sched::JobId;

use crate::random::Random;
use crate::world::{Event, MS, Scenario, World};

const PROGRAM_SIZE: u64 = 300;
const CHUNK: u64 = 100;

/// What a job does.
#[derive(Clone, Debug)]
pub struct Plan {
    ranks: u32,
    nodes: Option<u32>,
    program: u8,
    pub longest: u64,
    pub fails: Option<u32>,
    pub runs_for_ever: bool,
    leaves: bool,
    killed: bool,
    /// How often it may be started again.
    requeues: u32,
}

pub struct Client {
    pub plan: Plan,
    token: u128,
    id: Option<ClientId>,
    follows: bool,
    pub job: Option<JobId>,
    pub outcome: Option<Outcome>,
    pub left: bool,
}

impl Client {
    pub fn draw(random: &mut Random, scenario: &Scenario, index: u64) -> Self {
        let cluster = u64::from(scenario.nodes);
        let asks = random.chance(60);
        let nodes = random.within(1, cluster) as u32;
        let ranks = if asks {
            random.within(u64::from(nodes), u64::from(nodes) * 4) as u32
        } else {
            random.within(1, cluster * 2) as u32
        };
        let faults = scenario.faults.ranks;
        let plan = Plan {
            ranks,
            nodes: asks.then_some(nodes),
            program: random.within(0, 3) as u8,
            longest: random.within(5, 800) * MS,
            fails: (faults && random.chance(25))
                .then(|| random.within(0, u64::from(ranks) - 1) as u32),
            runs_for_ever: random.chance(25),
            leaves: faults && random.chance(10),
            killed: random.chance(10),
            requeues: random.within(0, 3).saturating_sub(1) as u32,
        };
        Self {
            plan,
            token: u128::from(index + 1) << 64 | u128::from(random.next()),
            id: None,
            follows: false,
            job: None,
            outcome: None,
            left: false,
        }
    }

    /// A job with four ranks on every node.
    pub fn with_whole_cluster(scenario: &Scenario, first: bool) -> Self {
        let plan = Plan {
            ranks: scenario.nodes * 4,
            nodes: Some(scenario.nodes),
            program: 0,
            longest: 100 * MS,
            fails: None,
            runs_for_ever: false,
            leaves: false,
            killed: false,
            requeues: 0,
        };
        let (id, job, outcome) = (None, None, None);
        Self { plan, token: u128::from(first), id, follows: false, job, outcome, left: false }
    }

    pub fn token(&self) -> u128 {
        self.token
    }

    fn request(&self) -> JobRequest {
        let program = Program {
            path: "/bin/job".into(),
            hash: ContentHash([self.plan.program; 32]),
            size: PROGRAM_SIZE,
        };
        JobRequest {
            nodes: self.plan.nodes,
            // One in eight does not wait for long.
            batch: BatchOptions { requeues: self.plan.requeues, ..Default::default() },
            wait: (self.token % 8 == 5).then_some(WaitLimit::AtMost(200 * MS)),
            ..JobRequest::new(self.token, "job", program, self.plan.ranks)
        }
    }
}

const USER: User = User { uid: 1000, gid: 1000, name: String::new() };
pub const ROOT: User = User { uid: 0, gid: 0, name: String::new() };

impl World {
    pub fn plan_of(&self, job: JobId) -> Plan {
        let job = job.number();
        let token = self.record_of(job).expect("a record of every job").spec.request.token;
        let client = self.clients.iter().find(|client| client.token == token);
        client.expect("every job has a client").plan.clone()
    }

    pub fn client_connects(&mut self, index: usize) {
        let client = &self.clients[index];
        if client.left || client.outcome.is_some() || client.id.is_some() {
            return;
        }
        if self.head.head.is_none() {
            self.soon(50 * MS, 200 * MS, Event::Client { index });
            return;
        }
        if self.refuses_jobs() {
            self.soon(200 * MS, 600 * MS, Event::Client { index });
            return;
        }
        let first = client.job.is_none();
        let id = self.new_client();
        self.clients[index].id = Some(id);
        let times = if self.random.chance(10) { 2 } else { 1 };
        for _ in 0..times {
            let request = Box::new(self.clients[index].request());
            self.head_event(HeadEvent::Client(id, USER, ClientRequest::Submit(request)));
        }
        if first && self.clients[index].plan.leaves {
            self.soon(0, 20 * MS, Event::ClientLeaves { index });
        }
        if first && self.clients[index].plan.killed {
            self.soon(0, 500 * MS, Event::ClientKills { index });
        }
    }

    fn client_of(&mut self, id: ClientId) -> Option<(usize, &mut Client)> {
        self.clients.iter_mut().enumerate().find(|(_, client)| client.id == Some(id))
    }

    pub fn client_hears(&mut self, id: ClientId, reply: ClientReply) {
        let epoch = self.head.current_epoch().expect("the head speaks");
        let Some((index, client)) = self.client_of(id) else { return };
        match reply {
            ClientReply::Submitted { job } => {
                assert!(client.job.is_none_or(|known| known == job), "one token, one job");
                client.job = Some(job);
                let recorded = self.head.records.contains_key(&job);
                // The disk may have become full with this very record: the head keeps it in memory then.
                let kept = self.head.writer.unwritten(job).is_some();
                assert!(recorded || kept, "answered before it was recorded");
            }
            ClientReply::ProgramWanted(_) => {
                self.soon(MS, 10 * MS, Event::ClientChunk { index, epoch, offset: 0 });
            }
            ClientReply::State { .. } | ClientReply::Waits { .. } | ClientReply::Done => {}
            other => panic!("client {index} did not expect {other:?}"),
        }
    }

    pub fn client_follows(&mut self, id: ClientId, _job: JobId) {
        if let Some((_, client)) = self.client_of(id) {
            client.follows = true;
        }
    }

    pub fn clients_hear_end(&mut self, job: JobId, outcome: &Outcome) {
        for client in &mut self.clients {
            if client.job == Some(job) && client.id.is_some() && client.follows {
                client.outcome = Some(outcome.clone());
            }
        }
    }

    pub fn clients_lose_head(&mut self) {
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            client.follows = false;
            if client.id.take().is_some() {
                self.soon(50 * MS, 200 * MS, Event::Client { index });
            }
        }
    }

    pub fn client_sends(&mut self, index: usize, epoch: u64, offset: u64) {
        let client = &self.clients[index];
        let Some(id) = client.id.filter(|_| self.head.alive(epoch)) else { return };
        let hash = ContentHash([client.plan.program; 32]);
        let data = vec![0; CHUNK as usize];
        let chunk = ClientRequest::ProgramChunk { hash, offset, total: PROGRAM_SIZE, data };
        self.head_event(HeadEvent::Client(id, USER, chunk));
        if offset + CHUNK < PROGRAM_SIZE {
            self.soon(MS, 5 * MS, Event::ClientChunk { index, epoch, offset: offset + CHUNK });
        }
    }

    pub fn client_kills(&mut self, index: usize) {
        match self.clients[index].job {
            Some(job) if self.head.head.is_some() => self.kill_job(job),
            _ if self.calm => {}
            _ => self.soon(100 * MS, 200 * MS, Event::ClientKills { index }),
        }
    }

    pub fn kill_job(&mut self, job: JobId) {
        self.ledger.killed.insert(job);
        let id = self.new_client();
        // Ranks do not end when they are asked here.
        let grace_ns = self.random.within(0, 1) * 300 * MS;
        self.head_event(HeadEvent::Client(id, ROOT, ClientRequest::Kill { job, grace_ns }));
    }

    pub fn client_leaves(&mut self, index: usize) {
        self.clients[index].left = true;
        if let Some(id) = self.clients[index].id.take() {
            self.head_event(HeadEvent::ClientGone(id));
        }
    }
}
