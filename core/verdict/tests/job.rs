//! A job in virtual time, as small steps: each store of a rank that others can see, and each load of the daemon, is one.

use std::collections::{BTreeMap, VecDeque};

use kumi_verdict::{Judge, NodeReading, NodeWatch, RankReading, Ruling, Standing, Wait};

/// What a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A frame to a rank.
    Send(usize),
    /// Waits for a frame of a rank, or of anybody.
    Receive(Option<usize>),
    /// Raises the counter of a rank of its node, without a frame.
    Raise(usize),
    /// Waits for the own counter to be raised once more.
    Counter,
    /// Waits outside the job: its user, a timer. That ends in its time.
    Outside,
}

/// Where a rank is within its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Begin,
    /// The frame is counted, but not on its way.
    Counted,
    /// It looks whether its wait is over.
    Looks,
    /// It waits with its flag set.
    Waits,
    /// It has cleared its flag.
    Woken,
    /// It has taken a frame but not counted it.
    Taken,
}

/// A rank. What is public lies in its context.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rank {
    script: Vec<Op>,
    at: usize,
    phase: Phase,
    /// Frames taken that no operation has used.
    kept: Vec<usize>,
    used: u64,
    pub idle: bool,
    pub wait: u64,
    pub outside: bool,
    pub counter: u64,
    pub sent: u64,
    pub delivered: u64,
}

/// The daemon of a node while it reads one rank after another, and one word after another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Daemon {
    watch: NodeWatch,
    ranks: Vec<usize>,
    reading: NodeReading,
    step: usize,
    sent: VecDeque<Standing>,
    asked: VecDeque<u64>,
}

/// Ranks, frames between them, daemons and the head.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    pub ranks: Vec<Rank>,
    frames: BTreeMap<(usize, usize), VecDeque<()>>,
    daemons: Vec<Daemon>,
    judge: Judge<usize>,
}

/// Loads of one rank: whether it is over, count of what it took, flag and wait, counter, the other words.
const LOADS: usize = 5;

impl Job {
    /// Scripts of the ranks; rank `r` runs on node `nodes[r]`.
    pub fn new(scripts: &[Vec<Op>], nodes: &[usize]) -> Job {
        let rank = |script: &Vec<Op>| Rank {
            script: script.clone(),
            at: 0,
            phase: Phase::Begin,
            kept: Vec::new(),
            used: 0,
            idle: false,
            wait: 0,
            outside: false,
            counter: 0,
            sent: 0,
            delivered: 0,
        };
        let count = nodes.iter().max().map_or(0, |last| last + 1);
        let daemon = |node| Daemon {
            watch: NodeWatch::default(),
            ranks: (0..nodes.len()).filter(|rank| nodes[*rank] == node).collect(),
            reading: NodeReading::default(),
            step: 0,
            sent: VecDeque::new(),
            asked: VecDeque::new(),
        };
        Job {
            ranks: scripts.iter().map(rank).collect(),
            frames: BTreeMap::new(),
            daemons: (0..count).map(daemon).collect(),
            judge: Judge::default(),
        }
    }

    pub fn actors(&self) -> usize {
        self.ranks.len() + 3 * self.daemons.len()
    }

    /// The next step of an actor: ranks, then daemons that read, then links up, then links down. False if it has none.
    pub fn step(&mut self, actor: usize) -> bool {
        let (ranks, nodes) = (self.ranks.len(), self.daemons.len());
        if actor < ranks {
            return self.step_rank(actor);
        }
        let (kind, node) = ((actor - ranks) / nodes, (actor - ranks) % nodes);
        match kind {
            0 => self.read(node),
            1 => self.tell(node),
            _ => {
                let asked = self.daemons[node].asked.pop_front();
                // A round counts from the next reading on that begins after it.
                if let Some(round) = asked {
                    let daemon = &mut self.daemons[node];
                    (daemon.step, daemon.reading) = (0, NodeReading::default());
                    daemon.watch.confirm(round);
                }
                asked.is_some()
            }
        }
    }

    fn arrived(&self, me: usize) -> Option<usize> {
        let mut from =
            self.frames.iter().filter(|((_, to), frames)| *to == me && !frames.is_empty());
        from.next().map(|((from, _), _)| *from)
    }

    fn satisfied(rank: &Rank) -> Option<usize> {
        match rank.script[rank.at] {
            Op::Receive(None) => (!rank.kept.is_empty()).then_some(0),
            Op::Receive(Some(from)) => rank.kept.iter().position(|kept| *kept == from),
            Op::Counter => (rank.counter > rank.used).then_some(usize::MAX),
            _ => None,
        }
    }

    fn step_rank(&mut self, me: usize) -> bool {
        let arrived = self.arrived(me);
        let rank = &mut self.ranks[me];
        let Some(op) = rank.script.get(rank.at).copied() else { return false };
        match (rank.phase, op) {
            (Phase::Begin, Op::Send(_)) => {
                rank.sent += 1;
                rank.phase = Phase::Counted;
            }
            (Phase::Counted, Op::Send(to)) => {
                self.frames.entry((me, to)).or_default().push_back(());
                self.next(me);
            }
            (Phase::Begin, Op::Raise(other)) => {
                self.ranks[other].counter += 1;
                self.next(me);
            }
            (Phase::Begin, Op::Outside) => {
                rank.outside = true;
                rank.phase = Phase::Waits;
            }
            (Phase::Waits, Op::Outside) => {
                rank.outside = false;
                self.next(me);
            }
            (Phase::Counted, _) => unreachable!("only sends are counted first"),
            (phase, _) => return self.step_receive(me, phase, arrived),
        }
        true
    }

    /// A rank that receives takes its next step, if it can.
    fn step_receive(&mut self, me: usize, phase: Phase, arrived: Option<usize>) -> bool {
        let rank = &mut self.ranks[me];
        match phase {
            Phase::Begin => {
                rank.wait += 1;
                rank.phase = Phase::Looks;
            }
            Phase::Looks => match Self::satisfied(rank) {
                Some(place) => {
                    if place == usize::MAX {
                        rank.used += 1;
                    } else {
                        rank.kept.remove(place);
                    }
                    rank.wait += 1;
                    self.next(me);
                }
                None => {
                    rank.idle = true;
                    rank.phase = Phase::Waits;
                }
            },
            Phase::Waits => {
                if arrived.is_none() && Self::satisfied(rank).is_none() {
                    return false;
                }
                rank.idle = false;
                rank.phase = Phase::Woken;
            }
            Phase::Woken => match arrived {
                Some(from) => {
                    rank.kept.push(from);
                    rank.phase = Phase::Taken;
                    self.frames.get_mut(&(from, me)).and_then(VecDeque::pop_front);
                }
                None => rank.phase = Phase::Looks,
            },
            Phase::Taken => {
                rank.delivered += 1;
                rank.phase = Phase::Looks;
            }
            Phase::Counted => unreachable!("only sends are counted first"),
        }
        true
    }

    fn next(&mut self, me: usize) {
        let rank = &mut self.ranks[me];
        rank.at += 1;
        rank.phase = Phase::Begin;
    }

    /// One load of the daemon of a node; after the last of all ranks it judges the reading.
    fn read(&mut self, node: usize) -> bool {
        let daemon = &mut self.daemons[node];
        let (index, load) = (daemon.step / LOADS, daemon.step % LOADS);
        let number = daemon.ranks[index];
        let rank = &self.ranks[number];
        if load == 0 {
            daemon
                .reading
                .ranks
                .push(RankReading { rank: number as u32, ..RankReading::default() });
        }
        let seen = daemon.reading.ranks.last_mut().expect("pushed");
        match load {
            0 => seen.over = rank.at == rank.script.len(),
            1 => seen.delivered = rank.delivered,
            2 => {
                let wait = Wait { number: rank.wait, timed: rank.outside, ..Wait::default() };
                (seen.idle, seen.waits) = (rank.idle || rank.outside, vec![wait]);
            }
            3 => {
                let counts = rank.script.get(rank.at) == Some(&Op::Counter);
                seen.idle &= !(counts && rank.counter > rank.used);
            }
            _ => seen.sent = rank.sent,
        }
        daemon.step += 1;
        if daemon.step == LOADS * daemon.ranks.len() {
            daemon.step = 0;
            let told = daemon.watch.read(std::mem::take(&mut daemon.reading));
            daemon.sent.extend(told);
        }
        true
    }

    fn tell(&mut self, node: usize) -> bool {
        let Some(standing) = self.daemons[node].sent.pop_front() else { return false };
        let all: Vec<usize> = (0..self.daemons.len()).collect();
        for ruling in self.judge.tell(&[node], standing, &all) {
            if let Ruling::Confirm(round) = ruling {
                self.daemons.iter_mut().for_each(|daemon| daemon.asked.push_back(round));
            }
        }
        true
    }

    /// What the head says.
    pub fn is_called_stopped(&self) -> bool {
        self.judge.is_stopped()
    }

    /// The truth: ranks wait, and none of them can do anything ever.
    pub fn is_stopped(&self) -> bool {
        let over = |rank: &Rank| rank.at == rank.script.len();
        let stuck = |(me, rank): (usize, &Rank)| {
            over(rank)
                || (rank.phase == Phase::Waits
                    && !rank.outside
                    && self.arrived(me).is_none()
                    && Self::satisfied(rank).is_none())
        };
        self.ranks.iter().enumerate().all(stuck) && !self.ranks.iter().all(over)
    }

    /// Frames that were sent to ranks that are over keep a job from being called stopped.
    pub fn has_frames(&self) -> bool {
        self.frames.values().any(|frames| !frames.is_empty())
    }
}
