//! Clients: each does one thing after the other, and tries again until a head has answered.

use kumi_control::head::{ClientId, HeadEvent};
use kumi_control::message::{ClientReply, ClientRequest, ContentHash, JobRequest, Program, User};

use crate::history::{Act, Ending};
use crate::random::Random;
use crate::world::{Event, MS, World};

const USER: User = User { uid: 1000, gid: 1000, name: String::new() };

/// What a job does.
#[derive(Clone, Debug)]
pub struct Plan {
    pub ranks: u32,
    nodes: u32,
    pub longest: u64,
    pub fails: Option<u32>,
    pub runs_for_ever: bool,
}

impl Plan {
    pub fn draw(random: &mut Random, cluster: u32) -> Self {
        let nodes = random.within(1, cluster.into()) as u32;
        let ranks = nodes * random.within(1, 2) as u32;
        let longest = random.within(5, 6_000) * MS;
        let fails = random.chance(20).then(|| random.within(0, u64::from(ranks) - 1) as u32);
        Self { ranks, nodes, longest, fails, runs_for_ever: random.chance(25) }
    }

    fn request(&self, token: u128) -> JobRequest {
        let program = Program { path: "/bin/job".into(), hash: ContentHash([0; 32]), size: 1 };
        JobRequest { nodes: Some(self.nodes), ..JobRequest::new(token, "job", program, self.ranks) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Submit,
    Kill,
    Wait,
}

pub struct Client {
    token: u128,
    /// What it still does, the next one first.
    plan: Vec<Ask>,
    /// Since when it tries what it does now.
    since: Option<u64>,
    /// The attempt under way; answers to earlier ones are not heard.
    attempt: u64,
    /// The head to be asked.
    head: usize,
}

impl Client {
    /// It knows the job by its token, as whoever submitted it does, and submits it too.
    pub fn new(token: u128, plan: &[Ask]) -> Self {
        Self { token, plan: plan.to_vec(), since: None, attempt: 0, head: 0 }
    }

    pub fn is_done(&self) -> bool {
        self.plan.is_empty()
    }
}

impl World {
    pub fn client_tries(&mut self, index: usize) {
        let now = self.now;
        let client = &mut self.clients[index];
        let (Some(&ask), token) = (client.plan.first(), client.token) else { return };
        client.since.get_or_insert(now);
        let head = client.head;
        let job = self.history(token).job;
        let process = &self.heads[head];
        if !process.listens() || process.frozen_until > now {
            self.clients[index].head = (head + 1) % self.heads.len();
            return self.soon(20 * MS, 200 * MS, Event::ClientTries { index });
        }
        let request = match (ask, job) {
            (Ask::Submit, _) => ClientRequest::Submit(Box::new(self.plan_of(token).request(token))),
            (Ask::Kill, Some(job)) => ClientRequest::Kill { job, grace_ns: 0 },
            (Ask::Wait, Some(job)) => ClientRequest::Wait { job },
            (_, None) => unreachable!("it has submitted it"),
        };
        self.next_id += 1;
        let (attempt, epoch) = (self.next_id, self.heads[head].epoch);
        self.clients[index].attempt = attempt;
        self.attempts.insert(attempt, (index, head, epoch));
        self.soon(MS / 10, 5 * MS, Event::Request { head, epoch, attempt, request });
        self.soon(2_000 * MS, 6_000 * MS, Event::AttemptOver { attempt });
    }

    pub fn request(&mut self, head: usize, attempt: u64, request: ClientRequest) {
        self.head_event(head, HeadEvent::Client(ClientId(attempt), USER, request));
    }

    /// Those connections are gone with the process.
    pub fn attempts_lose(&mut self, head: usize) {
        let of = self.attempts.iter().filter(|(_, (_, of, _))| *of == head);
        for attempt in of.map(|(&attempt, _)| attempt).collect::<Vec<_>>() {
            self.soon(0, 10 * MS, Event::AttemptOver { attempt });
        }
    }

    /// It has waited long enough, or the connection is gone: another attempt, at the next head.
    pub fn attempt_over(&mut self, attempt: u64) {
        let Some((index, head, epoch)) = self.attempts.remove(&attempt) else { return };
        if self.heads[head].epoch == epoch {
            self.head_event(head, HeadEvent::ClientGone(ClientId(attempt)));
        }
        self.clients[index].head = (head + 1) % self.heads.len();
        self.at(0, Event::ClientTries { index });
    }

    pub fn send_reply(&mut self, attempt: u64, reply: ClientReply) {
        self.soon(MS / 10, 5 * MS, Event::Reply { attempt, reply });
    }

    pub fn reply(&mut self, attempt: u64, reply: ClientReply) {
        let Some(&(index, head, epoch)) = self.attempts.get(&attempt) else { return };
        let client = &self.clients[index];
        let act = match (client.plan[0], reply) {
            (Ask::Submit, ClientReply::Submitted { job }) => Act::Submitted(job),
            (Ask::Kill, ClientReply::Done) => Act::Killed,
            (Ask::Wait, ClientReply::Ended { outcome, .. }) => Act::Waited(Ending::of(&outcome)),
            // Whoever submits follows the job.
            (_, ClientReply::State { .. } | ClientReply::Waits { .. }) => return,
            (ask, other) => panic!("{ask:?} of {:x} heard {other:?}", client.token),
        };
        let (token, since, now) = (client.token, client.since.expect("it asked"), self.now);
        self.history(token).completes(act, since, now);
        self.attempts.remove(&attempt);
        if self.heads[head].epoch == epoch && self.heads[head].frozen_until <= self.now {
            self.head_event(head, HeadEvent::ClientGone(ClientId(attempt)));
        }
        let client = &mut self.clients[index];
        client.plan.remove(0);
        client.since = None;
        self.soon(0, 1_500 * MS, Event::ClientTries { index });
    }

    /// Jobs that would run for ever are killed by their users.
    pub fn kill_rest(&mut self) {
        let endless = self.plans.iter().filter(|(_, plan)| plan.runs_for_ever);
        for token in endless.map(|(&token, _)| token).collect::<Vec<_>>() {
            self.clients.push(Client::new(token, &[Ask::Submit, Ask::Kill]));
            self.at(0, Event::ClientTries { index: self.clients.len() - 1 });
        }
    }
}
