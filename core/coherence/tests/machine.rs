//! A machine of nodes and ranks in one process: memory, page faults and a network, driven step by step as the runtime does. A chooser
//! says which step comes next, so steps of ranks and deliveries come in any order; messages of a pair of ranks keep theirs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kumi_coherence::message::{diffs, push_diff};
use kumi_coherence::{
    Acquired, BarrierKind, Coherence, Config, Event, Events, Home, Lookup, Message, Migration,
    PageSet, PageState, Placement, Protocol, Rank, Sharing, diff,
};

use crate::script::{Op, PAGE, Script, Variable};

/// A node's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Node {
    clock: u64,
    barrier_stamps: BTreeMap<u32, u64>,
    copies: BTreeMap<u32, Vec<u8>>,
    twins: BTreeMap<u32, Vec<u8>>,
    states: BTreeMap<u32, PageState>,
    /// Twins are made at the first write.
    lazy_twins: bool,
}

impl Node {
    fn copy(&mut self, page: u32) -> &mut Vec<u8> {
        self.copies.entry(page).or_insert_with(|| vec![0; PAGE])
    }

    fn state(&mut self, page: u32) -> &mut PageState {
        self.states.entry(page).or_default()
    }

    fn next_stamp(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

/// What a rank waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Waits {
    /// Nothing: its next operation.
    Not,
    /// The home of a page.
    Location,
    /// A copy of a page that is updated.
    Copy,
    /// A page under way from this rank; the bytes once they have been read there.
    Page { page: u32, home: Rank, stamp: u64, twin: bool, bytes: Option<Vec<u8>> },
    /// Diffs that it sent.
    Flush { pages: PageSet, flushed: Vec<u32>, left: Vec<u32> },
    /// A lock, barrier or condition.
    Grant,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Process {
    coherence: Coherence,
    next: usize,
    waits: Waits,
    mapped: BTreeSet<u32>,
    dirty: BTreeSet<u32>,
    /// Written pages that are not mapped any more.
    pending: PageSet,
    needs: BTreeMap<u32, u64>,
    /// Pages that were asked for before somebody wants them.
    ahead: Vec<Ahead>,
    /// So many more may be.
    may_ask: u32,
}

/// A page under way that nobody waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Ahead {
    page: u32,
    home: Rank,
    stamp: u64,
    asked: PageState,
    bytes: Option<Vec<u8>>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    nodes: Vec<Node>,
    processes: Vec<Process>,
    wires: BTreeMap<(Rank, Rank), VecDeque<Message>>,
    /// By variable: what was written last.
    written: Vec<u8>,
    node_of: Vec<u32>,
}

/// A possible step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A rank does something.
    Run(usize),
    /// The first message of a pair is delivered.
    Deliver(Rank, Rank),
    /// A page that a rank waits for is read at its home.
    Serve(usize),
    /// It arrives.
    Arrive(usize),
    /// A rank asks for a page that nobody waits for.
    Ask(usize, u32),
    /// Its first page of these that was not read at its home is.
    ServeAhead(usize),
}

impl World {
    /// A machine whose pages are in two allocations: the first `updated` ones are updated, the others dropped. Each rank asks for so many pages before it wants them.
    pub fn new(
        script: &Script,
        protocol: Protocol,
        migration: Migration,
        placement: Placement,
        (may_ask, updated, lazy_twins): (u32, u32, bool),
    ) -> World {
        let ranks = script.node_of.len();
        let processes = (0..ranks as Rank).map(|rank| {
            let (node_of, pages) = (script.node_of.clone().into(), script.pages);
            let page_bytes = PAGE as u32;
            let config = Config { rank, node_of, protocol, migration, pages, page_bytes };
            let mut coherence = Coherence::new(config);
            let bytes = |pages: u32| u64::from(pages) * PAGE as u64;
            coherence.allocate(bytes(updated), placement, Sharing::Update).expect("room");
            let others = bytes(pages - updated);
            coherence.allocate(others, placement, Sharing::Invalidate).expect("room");
            Process {
                coherence,
                next: 0,
                waits: Waits::Not,
                mapped: BTreeSet::new(),
                dirty: BTreeSet::new(),
                pending: PageSet::new(),
                needs: BTreeMap::new(),
                ahead: Vec::new(),
                may_ask,
            }
        });
        let nodes = script.node_of.iter().max().map_or(0, |last| last + 1);
        World {
            processes: processes.collect(),
            nodes: vec![Node { lazy_twins, ..Node::default() }; nodes as usize],
            wires: BTreeMap::new(),
            written: vec![0; script.variables.len()],
            node_of: script.node_of.clone(),
        }
    }

    /// All steps that are possible now.
    pub fn steps(&self, script: &Script) -> Vec<Step> {
        let mut steps = Vec::new();
        for (at, process) in self.processes.iter().enumerate() {
            match &process.waits {
                Waits::Not if process.next < script.ops[at].len() => steps.push(Step::Run(at)),
                Waits::Page { bytes: None, .. } => steps.push(Step::Serve(at)),
                Waits::Page { .. } => steps.push(Step::Arrive(at)),
                Waits::Flush { .. } if process.coherence.is_flushed(1) => steps.push(Step::Run(at)),
                _ => {}
            }
            steps.extend(self.steps_ahead(script, at));
        }
        let full = self.wires.iter().filter(|(_, wire)| !wire.is_empty());
        steps.extend(full.map(|((from, to), _)| Step::Deliver(*from, *to)));
        steps
    }

    /// Pages that a rank may ask for now, whatever it waits for.
    fn steps_ahead(&self, script: &Script, at: usize) -> Vec<Step> {
        let process = &self.processes[at];
        let mut steps = Vec::new();
        if process.ahead.iter().any(|ahead| ahead.bytes.is_none()) {
            steps.push(Step::ServeAhead(at));
        }
        if process.may_ask > 0 && process.next < script.ops[at].len() {
            let may = |page: &u32| {
                let state = self.nodes[self.node_of[at] as usize].states.get(page).copied();
                let need = process.needs.get(page).copied().unwrap_or(0);
                let far = matches!(process.coherence.home(*page), Home::At(home) if !process.coherence.is_near(home));
                far && !process.coherence.is_updated(*page)
                    && state.unwrap_or_default().may_ask_ahead(need)
                    && process.ahead.iter().all(|ahead| ahead.page != *page)
            };
            steps.extend((0..script.pages).filter(may).map(|page| Step::Ask(at, page)));
        }
        steps
    }

    pub fn is_over(&self, script: &Script) -> bool {
        let over = |(process, ops): (&Process, &Vec<Op>)| process.next == ops.len();
        self.processes.iter().zip(&script.ops).all(over)
    }

    /// What each rank waits for, for messages.
    pub fn waits(&self) -> String {
        let waits = self.processes.iter().map(|one| format!("{} {:?}", one.next, one.waits));
        waits.collect::<Vec<_>>().join("; ")
    }

    pub fn step(&mut self, script: &Script, step: Step) {
        match step {
            Step::Run(at) => self.run(script, at),
            Step::Deliver(from, to) => {
                let message = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front);
                let bytes = message.expect("a message").encode();
                let message = Message::decode(&bytes).expect("a message");
                let events = self.processes[to as usize].coherence.receive(from, message);
                self.carry_out(to as usize, events.expect("kept to the protocol"));
            }
            Step::Serve(at) => {
                let Waits::Page { page, home, .. } = self.processes[at].waits else { return };
                let read = self.nodes[self.node_of[home as usize] as usize].copy(page).clone();
                if let Waits::Page { bytes, .. } = &mut self.processes[at].waits {
                    *bytes = Some(read);
                }
            }
            Step::Arrive(at) => self.page_arrived(at),
            Step::Ask(at, page) => self.ask_ahead(at, page),
            Step::ServeAhead(at) => {
                let ahead = self.processes[at].ahead.iter().position(|one| one.bytes.is_none());
                let ahead = ahead.expect("one that was not read");
                let Ahead { page, home, .. } = self.processes[at].ahead[ahead];
                let read = self.nodes[self.node_of[home as usize] as usize].copy(page).clone();
                self.processes[at].ahead[ahead].bytes = Some(read);
            }
        }
    }

    fn ask_ahead(&mut self, at: usize, page: u32) {
        let Home::At(home) = self.processes[at].coherence.home(page) else { return };
        let node = self.node(at);
        node.clock = node.clock.max(1);
        let (stamp, asked, bytes) = (node.clock, *node.state(page), None);
        self.processes[at].may_ask -= 1;
        self.processes[at].ahead.push(Ahead { page, home, stamp, asked, bytes });
    }

    /// Uses a page that was asked for before, if it is still good; false if there is none, and if it was of no use. It has been read
    /// at its home.
    fn use_ahead(&mut self, at: usize, page: u32) -> bool {
        let found = self.processes[at].ahead.iter().position(|one| one.page == page);
        let Some(found) = found else { return false };
        let Ahead { stamp, asked, bytes, .. } = self.processes[at].ahead.remove(found);
        let need = self.processes[at].needs.get(&page).copied().unwrap_or(0);
        let Some(fetched) = bytes else { return false };
        match self.node(at).state(page).take_asked(asked, stamp, need) {
            None => false,
            Some(twin) => {
                self.install(at, page, stamp, twin, fetched);
                true
            }
        }
    }

    fn node(&mut self, at: usize) -> &mut Node {
        &mut self.nodes[self.node_of[at] as usize]
    }

    fn carry_out(&mut self, at: usize, events: Events) {
        for event in events {
            match event {
                Event::Send { to, message } => {
                    assert_ne!(to as usize, at, "a message to oneself");
                    self.wires.entry((at as Rank, to)).or_default().push_back(message);
                }
                Event::Apply { diffs: bytes, .. } => {
                    for found in diffs(&bytes) {
                        let (page, changed) = found.expect("diffs");
                        let copy = self.node(at).copy(page);
                        diff::apply(changed, PAGE, |change| change.write_to(copy)).expect("a diff");
                    }
                }
                Event::Update { diffs, .. } => self.update(at, &diffs),
                Event::SendTwins { to, ticket, pages } => {
                    let twin =
                        |page| self.node(at).twins.entry(page).or_insert(vec![0; PAGE]).clone();
                    let bytes = pages.clone().flat_map(twin).collect();
                    let message = Message::Subscribed { ticket, first: pages.start, bytes };
                    self.wires.entry((at as Rank, to)).or_default().push_back(message);
                }
                Event::Install { first, bytes, .. } => {
                    let stamp = self.node(at).clock;
                    for (page, bytes) in (first..).zip(bytes.chunks(PAGE)) {
                        self.install(at, page, stamp, false, bytes.to_vec());
                    }
                }
                Event::Resume { acquired, .. } => {
                    self.acquire(at, &acquired);
                    let process = &mut self.processes[at];
                    if process.waits == Waits::Grant {
                        process.next += 1;
                    }
                    process.waits = Waits::Not;
                }
            }
        }
    }

    /// Writes diffs to copies and twins.
    fn update(&mut self, at: usize, bytes: &[u8]) {
        for found in diffs(bytes) {
            let (page, changed) = found.expect("diffs");
            let node = self.node(at);
            assert!(node.state(page).lock(), "a twin is used for a moment only");
            let twin = node.twins.entry(page).or_insert_with(|| vec![0; PAGE]);
            diff::apply(changed, PAGE, |change| change.write_to(twin)).expect("a diff");
            let copy = node.copy(page);
            diff::apply(changed, PAGE, |change| change.write_to(copy)).expect("a diff");
            node.state(page).unlock();
        }
    }

    /// Forgets what others wrote.
    fn acquire(&mut self, at: usize, acquired: &Acquired) {
        let node = self.node(at);
        let stamp = match acquired.epoch {
            Some(epoch) => {
                let next = node.clock + 1;
                let stamp = *node.barrier_stamps.entry(epoch).or_insert(next);
                node.clock = node.clock.max(stamp);
                stamp
            }
            None => node.next_stamp(),
        };
        for page in acquired.homed.ranges().iter().cloned().flatten() {
            node.state(page).become_home();
        }
        let process = &mut self.processes[at];
        for page in acquired.stale.ranges().iter().cloned().flatten() {
            process.needs.insert(page, stamp);
            process.mapped.remove(&page);
            if process.dirty.remove(&page) {
                process.pending.insert(page..page + 1);
            }
        }
        process.coherence.forgotten(acquired);
    }

    fn run(&mut self, script: &Script, at: usize) {
        match self.processes[at].waits.clone() {
            Waits::Flush { pages, flushed, left } => {
                for page in flushed {
                    self.node(at).state(page).release();
                }
                if !left.is_empty() {
                    return self.flush(at, pages, left);
                }
                self.processes[at].coherence.close_interval(pages);
                self.release(script, at);
            }
            _ => match script.ops[at][self.processes[at].next].clone() {
                Op::Read(variable) => self.access(script, at, variable, false),
                Op::Write(variable) => self.access(script, at, variable, true),
                Op::Lock(lock) => {
                    self.processes[at].waits = Waits::Grant;
                    let events = self.processes[at].coherence.lock(lock, 1).expect("not held");
                    self.carry_out(at, events);
                }
                Op::WaitCondition(condition) => {
                    self.processes[at].waits = Waits::Grant;
                    let events = self.processes[at]
                        .coherence
                        .wait_condition(condition, 1)
                        .expect("kept to the protocol");
                    self.carry_out(at, events);
                }
                Op::Wait => {
                    self.processes[at].waits = Waits::Grant;
                    let events = self.processes[at].coherence.barrier(BarrierKind::Plain, 1);
                    self.carry_out(at, events.expect("the same barrier"));
                }
                Op::Unlock(_) | Op::Barrier | Op::SetCondition(_) => self.begin_flush(at),
            },
        }
    }

    /// After its diffs are in place, a rank releases.
    fn release(&mut self, script: &Script, at: usize) {
        let process = &mut self.processes[at];
        let coherence = &mut process.coherence;
        let (events, waits) = match &script.ops[at][process.next] {
            Op::Unlock(lock) => (coherence.unlock(*lock, 1).expect("held"), Waits::Not),
            Op::SetCondition(condition) => {
                (coherence.set_condition(*condition).expect("kept"), Waits::Not)
            }
            _ => (coherence.barrier(BarrierKind::Memory, 1).expect("the same"), Waits::Grant),
        };
        if waits == Waits::Not {
            process.next += 1;
        }
        process.waits = waits;
        self.carry_out(at, events);
    }

    fn begin_flush(&mut self, at: usize) {
        let process = &mut self.processes[at];
        let mut pages = std::mem::take(&mut process.pending);
        for page in std::mem::take(&mut process.dirty) {
            pages.insert(page..page + 1);
        }
        let all = pages.ranges().iter().cloned().flatten().collect();
        self.flush(at, pages, all);
    }

    /// Sends the diffs of those pages of which no other rank of the node has one under way. Nothing is held while it waits for those.
    fn flush(&mut self, at: usize, pages: PageSet, all: Vec<u32>) {
        let (mut by_home, mut flushed) = (BTreeMap::<(Rank, bool), Vec<u8>>::new(), Vec::new());
        let mut left = Vec::new();
        for page in all {
            let Home::At(home) = self.processes[at].coherence.home(page) else {
                panic!("a page is written whose home is unknown");
            };
            let updated = self.processes[at].coherence.is_updated(page);
            if self.processes[at].coherence.is_near(home) && !updated {
                continue;
            }
            let node = self.node(at);
            if !node.state(page).begin_flush() {
                left.push(page);
                continue;
            }
            flushed.push(page);
            let now = node.copy(page).clone();
            let twin = node.twins.insert(page, now.clone());
            let zeros = || if updated { vec![0; PAGE] } else { panic!("no twin") };
            let twin = twin.unwrap_or_else(zeros);
            let mut changed = Vec::new();
            if diff::encode(&now, &twin, &mut changed) {
                push_diff(by_home.entry((home, updated)).or_default(), page, &changed);
            }
        }
        self.processes[at].waits = Waits::Flush { pages, flushed, left };
        for ((home, updated), diffs) in by_home {
            let events = self.processes[at].coherence.flush(home, diffs, updated, 1);
            self.carry_out(at, events.expect("kept to the protocol"));
        }
    }

    fn access(&mut self, script: &Script, at: usize, variable: usize, write: bool) {
        let Variable { page, offset, bytes, .. } = script.variables[variable];
        if !self.processes[at].mapped.contains(&page) && !self.fault(at, page) {
            return;
        }
        // Few values, so that a place often has the value again that it had in a twin.
        let value = if write { (self.written[variable] + 1) % 3 } else { 0 };
        let node = self.node(at);
        if write && node.lazy_twins && node.state(page).make_twin() {
            let now = node.copy(page).clone();
            node.twins.insert(page, now);
        }
        let place = &mut self.node(at).copy(page)[offset..offset + bytes];
        if write {
            place.fill(value);
            self.written[variable] = value;
            self.processes[at].dirty.insert(page);
        } else {
            let place = place.to_vec();
            let wanted = vec![self.written[variable]; bytes];
            assert_eq!(
                place, wanted,
                "rank {at} reads variable {variable} {:?}",
                script.variables[variable]
            );
        }
        self.processes[at].next += 1;
    }

    /// Makes a page usable; false if the rank has to wait, or to look again.
    fn fault(&mut self, at: usize, page: u32) -> bool {
        let home = match self.processes[at].coherence.home(page) {
            Home::At(home) => home,
            Home::Unknown => {
                self.processes[at].waits = Waits::Location;
                let events =
                    self.processes[at].coherence.locate(page, 1).expect("kept to the protocol");
                self.carry_out(at, events);
                return false;
            }
            Home::Unallocated => panic!("page {page} is not allocated"),
        };
        if !self.processes[at].coherence.is_near(home) {
            let need = self.processes[at].needs.get(&page).copied().unwrap_or(0);
            let node = self.node(at);
            node.clock = node.clock.max(1);
            let now = node.clock;
            if self.use_ahead(at, page) {
                self.processes[at].mapped.insert(page);
                return true;
            }
            let node = self.node(at);
            match node.state(page).look_up(need) {
                Lookup::Current => {}
                Lookup::Wait => return false,
                Lookup::Fetch { twin } if self.processes[at].coherence.is_updated(page) => {
                    assert!(!twin, "a copy that is updated is never fetched again");
                    self.processes[at].waits = Waits::Copy;
                    let events = self.processes[at].coherence.subscribe(home, page..page + 1, 1);
                    self.carry_out(at, events.expect("kept to the protocol"));
                    return false;
                }
                Lookup::Fetch { twin } => {
                    let (stamp, bytes) = (now, None);
                    self.processes[at].waits = Waits::Page { page, home, stamp, twin, bytes };
                    return false;
                }
            }
        }
        self.processes[at].mapped.insert(page);
        true
    }

    fn page_arrived(&mut self, at: usize) {
        let waits = std::mem::replace(&mut self.processes[at].waits, Waits::Not);
        let Waits::Page { page, stamp, twin, bytes: Some(fetched), .. } = waits else {
            panic!("no page arrives");
        };
        self.install(at, page, stamp, twin, fetched);
    }

    fn install(&mut self, at: usize, page: u32, stamp: u64, twin: bool, fetched: Vec<u8>) {
        let make = self.processes[at].coherence.is_updated(page);
        let node = self.node(at);
        if !node.state(page).end_fetch(stamp) {
            return;
        }
        if node.state(page).twin {
            let twin = node.twins.insert(page, fetched.clone()).expect("a twin");
            let copy = node.copy(page);
            diff::merge(&fetched, &twin, |change| change.write_to(copy));
            return;
        }
        assert!(!twin, "a twin does not go during a fetch");
        node.copy(page).copy_from_slice(&fetched);
        if node.lazy_twins && !make {
            node.twins.remove(&page);
        } else {
            node.twins.insert(page, fetched);
            node.state(page).twin = true;
        }
    }
}
