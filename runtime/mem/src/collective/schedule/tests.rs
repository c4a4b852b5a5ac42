//! The schedules of all members together, carried out in memory in random order.
//!
//! An element is the list of what was combined into it, so that a test sees what is missing, doubled or out of order.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::choice::{Kind, Pattern};
use super::node::SHARED_BYTES;
use super::plan::Counts;
use super::*;

type Element = Vec<u32>;

/// The element of a member at an index.
fn element(member: u32, index: usize) -> Element {
    vec![(member << 16) | index as u32]
}

#[derive(Debug, Default)]
struct Member {
    steps: VecDeque<Step>,
    input: Vec<Element>,
    output: Vec<Element>,
    scratch: Vec<Element>,
    /// The send of the exchange at the front is done.
    sent: bool,
}

/// All members of a group.
struct Job {
    members: Vec<Member>,
    /// Elements of each piece that were written.
    shared: Vec<Vec<Element>>,
    capacity: usize,
    /// Messages on their way, by sender and receiver.
    wires: Vec<Vec<VecDeque<Vec<Element>>>>,
}

impl Job {
    fn get(&self, me: usize, span: Span) -> Vec<Element> {
        let member = &self.members[me];
        let place = match span.place {
            Place::Input => &member.input,
            Place::Output => &member.output,
            Place::Scratch => &member.scratch,
            Place::Shared(of) => &self.shared[of as usize],
        };
        place[span.start..span.end()].to_vec()
    }

    fn set(&mut self, me: usize, span: Span, elements: &[Element]) {
        let member = &mut self.members[me];
        let place = match span.place {
            Place::Input => panic!("a member writes what it only reads"),
            Place::Output => &mut member.output,
            Place::Scratch => &mut member.scratch,
            Place::Shared(of) => {
                assert_eq!(of as usize, me, "a member writes another's piece");
                assert!(span.end() <= self.capacity, "a member writes beyond its piece");
                let piece = &mut self.shared[me];
                piece.resize(piece.len().max(span.end()), Vec::new());
                piece
            }
        };
        place[span.start..span.end()].clone_from_slice(elements);
    }

    fn receive(&mut self, me: usize, from: u32, into: Span) -> bool {
        let Some(message) = self.wires[from as usize][me].pop_front() else { return false };
        assert_eq!(message.len(), into.length, "length of a message");
        self.set(me, into, &message);
        true
    }

    /// Does a step of a member, or a part of it; false if it has to wait.
    fn step(&mut self, me: usize) -> bool {
        let Some(step) = self.members[me].steps.front().copied() else { return false };
        let mut over = true;
        match step {
            Step::Send { to, from } => {
                let message = self.get(me, from);
                self.wires[me][to as usize].push_back(message);
            }
            Step::Receive { from, into } => {
                if !self.receive(me, from, into) {
                    return false;
                }
            }
            Step::Exchange { to, out, from, into } => {
                let apart =
                    out.place != into.place || out.end() <= into.start || into.end() <= out.start;
                assert!(apart || out.length == 0, "an exchange of what it receives into");
                if !self.members[me].sent {
                    let message = self.get(me, out);
                    self.wires[me][to as usize].push_back(message);
                    (self.members[me].sent, over) = (true, false);
                } else if self.receive(me, from, into) {
                    self.members[me].sent = false;
                } else {
                    return false;
                }
            }
            Step::Copy { from, into } => {
                assert!(
                    from.place != into.place
                        || from.end() <= into.start
                        || into.end() <= from.start
                );
                let copy = self.get(me, from);
                self.set(me, into, &copy);
            }
            Step::Combine { into, other, other_first } => {
                let (own, others) = (self.get(me, into), self.get(me, other));
                let both = |(own, other): (Element, Element)| match other_first {
                    true => [other, own].concat(),
                    false => [own, other].concat(),
                };
                let combined: Vec<Element> = own.into_iter().zip(others).map(both).collect();
                self.set(me, into, &combined);
                if other_first {
                    self.set(me, other, &vec![vec![u32::MAX]; other.length]);
                }
            }
        }
        if over {
            self.members[me].steps.pop_front();
        }
        true
    }
}

/// A group, and how its members reach one another.
#[derive(Debug, Clone)]
struct Setting {
    nodes: Vec<u64>,
    /// By node.
    shares: Vec<bool>,
    element: usize,
    commutative: bool,
    seed: u64,
}

impl Setting {
    fn topology(&self) -> Topology {
        Topology::new(self.nodes.iter().copied())
    }

    fn members(&self) -> u32 {
        self.nodes.len() as u32
    }

    fn limits(&self, topology: &Topology, member: u32) -> Limits {
        let node = topology.node_of(member);
        let shares = topology.nodes()[node].len() > 1 && self.shares[node % self.shares.len()];
        Limits { element: self.element, shares, commutative: self.commutative }
    }

    /// Carries a collective out; the outputs of all members.
    fn run<'c>(
        &self,
        call: impl Fn(u32) -> Call<'c>,
        input: impl Fn(u32) -> Vec<Element>,
        output: impl Fn(u32) -> Vec<Element>,
    ) -> Vec<Vec<Element>> {
        let (topology, count) = (self.topology(), self.members());
        let member = |me: u32| {
            let schedule = plan(call(me), &topology, me, self.limits(&topology, me));
            let scratch = vec![vec![u32::MAX]; schedule.scratch];
            let (steps, sent) = (schedule.steps.into(), false);
            Member { steps, input: input(me), output: output(me), scratch, sent }
        };
        let count = count as usize;
        let shared = vec![Vec::new(); count];
        let wires = vec![vec![VecDeque::new(); count]; count];
        let capacity = SHARED_BYTES / self.element;
        let members = (0..count as u32).map(member).collect();
        let mut job = Job { members, shared, capacity, wires };
        let mut state = self.seed | 1;
        let mut waiting = 0;
        // One that has to wait in vain so often waits for ever.
        while waiting < 200 * count && job.members.iter().any(|member| !member.steps.is_empty()) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let moved = job.step((state % count as u64) as usize);
            waiting = if moved { 0 } else { waiting + 1 };
        }
        for (me, member) in job.members.iter().enumerate() {
            assert!(member.steps.is_empty(), "member {me} hangs before {:?}", member.steps);
        }
        assert!(
            job.wires.iter().flatten().all(VecDeque::is_empty),
            "a message that nobody receives"
        );
        job.members.into_iter().map(|member| member.output).collect()
    }

    /// The reduction of these members' elements, as it is to be; without an order, it is compared sorted.
    fn check(&self, given: &[Element], members: &[u32]) -> TestCaseResult {
        for (index, found) in given.iter().enumerate() {
            let wanted: Element = members.iter().flat_map(|it| element(*it, index)).collect();
            let mut found = found.clone();
            if self.commutative {
                found.sort_unstable();
            }
            prop_assert_eq!(found, wanted, "element {}", index);
        }
        Ok(())
    }

    fn own(length: usize) -> impl Fn(u32) -> Vec<Element> {
        move |member| (0..length).map(|index| element(member, index)).collect()
    }
}

fn settings() -> impl Strategy<Value = Setting> {
    let nodes = prop_oneof![
        // Any members together.
        (1..=4u64, 1..=11usize)
            .prop_flat_map(|(nodes, members)| prop::collection::vec(0..nodes, members)),
        // Nodes that follow one another, with as many members each.
        (1..=4u64, 1..=4usize)
            .prop_map(|(nodes, each)| (0..nodes).flat_map(|node| vec![node; each]).collect()),
        // The same with different numbers.
        prop::collection::vec(1..=4usize, 1..=4).prop_map(|each| {
            (0..).zip(each).flat_map(|(node, count)| vec![node; count]).collect()
        }),
    ];
    let shares = prop::collection::vec(any::<bool>(), 1..=4);
    // Few elements are much data then, and the shared memory is short.
    let element = prop::sample::select(vec![1usize, 100, 4096, 20_000, 100_000]);
    (nodes, shares, element, any::<bool>(), any::<u64>()).prop_map(
        |(nodes, shares, element, commutative, seed)| Setting {
            nodes,
            shares,
            element,
            commutative,
            seed,
        },
    )
}

/// Lengths, and a number that chooses a root.
fn lengths() -> impl Strategy<Value = (usize, u32)> {
    (prop_oneof![0..=3usize, 0..=40usize], any::<u32>())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    #[cfg_attr(miri, ignore = "half a minute of plans, in code without unsafe blocks")]
    fn reductions_have_every_members_data_once((length, root) in lengths(), setting in settings()) {
        let all: Vec<u32> = (0..setting.members()).collect();
        let root = root % setting.members();
        let none = |_| Vec::new();
        let own = Setting::own(length);
        let sums = setting.run(|_| Call::Allreduce { length }, none, &own);
        for sum in &sums {
            setting.check(sum, &all)?;
            prop_assert_eq!(sum, &sums[0], "the same at all members");
        }
        let sums = setting.run(|_| Call::Reduce { root, length }, none, &own);
        setting.check(&sums[root as usize], &all)?;
        let sums = setting.run(|_| Call::Scan { length, exclusive: false }, none, &own);
        for (sum, me) in sums.iter().zip(0..) {
            setting.check(sum, &all[..=me])?;
        }
        let sums = setting.run(|_| Call::Scan { length, exclusive: true }, none, &own);
        for (sum, me) in sums.iter().zip(0..) {
            setting.check(sum, if me == 0 { &all[..1] } else { &all[..me] })?;
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "half a minute of plans, in code without unsafe blocks")]
    fn blocks_of_a_reduction_go_to_their_members(
        counts in prop::collection::vec(0..12usize, 16),
        setting in settings(),
    ) {
        let all: Vec<u32> = (0..setting.members()).collect();
        let counts = &counts[..all.len()];
        let bounds = starts(counts.iter().copied());
        let output = |me: u32| vec![Vec::new(); counts[me as usize]];
        let call = |_| Call::ReduceScatter { counts: Counts::Each(counts) };
        let blocks = setting.run(call, Setting::own(bounds[all.len()]), output);
        for (block, start) in blocks.into_iter().zip(bounds) {
            let whole = [vec![Vec::new(); start], block].concat();
            for (index, found) in whole.into_iter().enumerate().skip(start) {
                let mut found = found;
                if setting.commutative {
                    found.sort_unstable();
                }
                let wanted: Element = all.iter().flat_map(|it| element(*it, index)).collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }

    #[test]
    fn everybody_has_what_the_root_gave((length, root) in lengths(), setting in settings()) {
        let root = root % setting.members();
        let call = |_| Call::Broadcast { root, length };
        let copies = setting.run(call, |_| Vec::new(), Setting::own(length));
        for copy in copies {
            prop_assert_eq!(copy, Setting::own(length)(root));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "half a minute of plans, in code without unsafe blocks")]
    fn blocks_of_one_length_come_and_go((length, root) in lengths(), setting in settings()) {
        let members = setting.members();
        let root = root % members;
        let all = |_| (0..members).flat_map(Setting::own(length)).collect::<Vec<_>>();
        let (nothing, one) = (|_| Vec::new(), |_| vec![Vec::new(); length]);
        let room = vec![Vec::new(); length * members as usize];
        let at_root = |me| if me == root { room.clone() } else { Vec::new() };
        let call = |_| Call::Gather { root, block: length };
        let gathered = setting.run(call, Setting::own(length), at_root);
        prop_assert_eq!(&gathered[root as usize], &all(0));
        let call = |_| Call::Scatter { root, block: length };
        let input = |me| if me == root { all(0) } else { nothing(me) };
        for (block, me) in setting.run(call, input, one).iter().zip(0..) {
            prop_assert_eq!(block, &Setting::own(length)(me));
        }
        let call = |_| Call::Allgather { counts: Counts::Equal(length) };
        for gathered in setting.run(call, Setting::own(length), |_| room.clone()) {
            prop_assert_eq!(gathered, all(0));
        }
        let to = |from: u32, to: u32| (0..length).map(move |i| vec![from, to, i as u32]);
        let input = |me| (0..members).flat_map(|other| to(me, other)).collect::<Vec<_>>();
        let call = |_| Call::Alltoall { block: length };
        for (output, me) in setting.run(call, input, |_| room.clone()).iter().zip(0..) {
            prop_assert_eq!(output, &(0..members).flat_map(|from| to(from, me)).collect::<Vec<_>>());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "half a minute of plans, in code without unsafe blocks")]
    fn blocks_of_all_lengths_come_and_go(
        counts in prop::collection::vec(0..9usize, 256),
        root in any::<u32>(),
        setting in settings(),
    ) {
        let members = setting.members() as usize;
        let root = root % members as u32;
        let own = &counts[..members];
        let count = |from: usize, to: usize| counts[from * members + to];
        let input = |me: u32| Setting::own(own[me as usize])(me);
        let all: Vec<Element> = (0..members as u32).flat_map(input).collect();
        let room = vec![Vec::new(); all.len()];
        let at_root = |me: u32| (me == root).then_some(own);
        let call = |me: u32| Call::GatherEach { root, mine: own[me as usize], counts: at_root(me) };
        let output = |me| if me == root { room.clone() } else { Vec::new() };
        let gathered = setting.run(call, input, output);
        prop_assert_eq!(&gathered[root as usize], &all);
        let call = |me: u32| Call::ScatterEach { root, mine: own[me as usize], counts: at_root(me) };
        let from_root = |me| if me == root { all.clone() } else { Vec::new() };
        let output = |me: u32| vec![Vec::new(); own[me as usize]];
        for (block, me) in setting.run(call, from_root, output).iter().zip(0..) {
            prop_assert_eq!(block, &input(me));
        }
        let call = |_| Call::Allgather { counts: Counts::Each(own) };
        for gathered in setting.run(call, input, |_| room.clone()) {
            prop_assert_eq!(&gathered, &all);
        }
        let send: Vec<Vec<usize>> =
            (0..members).map(|me| (0..members).map(|to| count(me, to)).collect()).collect();
        let receive: Vec<Vec<usize>> =
            (0..members).map(|me| (0..members).map(|from| count(from, me)).collect()).collect();
        let block = |from: usize, to: usize| {
            (0..count(from, to)).map(move |i| vec![from as u32, to as u32, i as u32])
        };
        let call = |me: u32| {
            Call::AlltoallEach { send: &send[me as usize], receive: &receive[me as usize] }
        };
        let input = |me: u32| (0..members).flat_map(|to| block(me as usize, to)).collect();
        let output = |me: u32| vec![Vec::new(); receive[me as usize].iter().sum()];
        for (output, me) in setting.run(call, input, output).iter().zip(0..) {
            prop_assert_eq!(output, &(0..members).flat_map(|from| block(from, me)).collect::<Vec<_>>());
        }
    }

    /// No member is out of a barrier before all have come.
    #[test]
    fn a_barrier_holds_everybody(late in any::<u32>(), setting in settings()) {
        let (topology, count) = (setting.topology(), setting.members());
        let late = (late % count) as usize;
        let member = |me: u32| Member {
            steps: plan(Call::Barrier, &topology, me, setting.limits(&topology, me)).steps.into(),
            ..Member::default()
        };
        let wires = vec![vec![VecDeque::new(); count as usize]; count as usize];
        let members = (0..count).map(member).collect();
        let shared = vec![Vec::new(); count as usize];
        let mut job = Job { members, shared, capacity: 0, wires };
        let others = || (0..count as usize).filter(|me| *me != late);
        while others().any(|me| job.step(me)) {}
        for me in others() {
            prop_assert!(!job.members[me].steps.is_empty(), "{} did not wait for {}", me, late);
        }
        while (0..count as usize).any(|me| job.step(me)) {}
        prop_assert!(job.members.iter().all(|member| member.steps.is_empty()));
    }
}

fn shape(kind: Kind, elements: usize, nodes: &[u64]) -> Shape {
    let limits = Limits { element: 8, shares: false, commutative: true };
    Shape::choose(kind, elements, &Topology::new(nodes.iter().copied()), limits)
}

#[test]
fn the_choice_goes_by_bytes_members_and_nodes() {
    let (one, two, four_by_two) = ([0; 8], [0, 1], [0, 0, 1, 1, 2, 2, 3, 3]);
    let is = |pattern, by_node| Shape { pattern, by_node };
    let (little, much) = (1, 1 << 17);
    assert_eq!(shape(Kind::Allreduce, little, &one), is(Pattern::Tree, false));
    assert_eq!(shape(Kind::Allreduce, little, &four_by_two), is(Pattern::Tree, true));
    assert_eq!(shape(Kind::Allreduce, much, &four_by_two), is(Pattern::Ring, true));
    assert_eq!(
        shape(Kind::Allreduce, much, &two),
        is(Pattern::Tree, false),
        "a ring of two is none"
    );
    assert_eq!(shape(Kind::Broadcast, much, &[0, 1, 2]), is(Pattern::Ring, false));
    assert_eq!(shape(Kind::Barrier, 0, &two), is(Pattern::Tree, false));
    assert_eq!(shape(Kind::Barrier, 0, &[0, 0, 1]), is(Pattern::Tree, true));
    assert_eq!(shape(Kind::Alltoall, 32, &one), is(Pattern::Together, false));
    assert_eq!(shape(Kind::Alltoall, 33, &one), is(Pattern::Each, false));
    assert_eq!(shape(Kind::Alltoall, 1, &[0, 1, 2]), is(Pattern::Each, false), "few members");
    assert_eq!(shape(Kind::Allgather, 8, &four_by_two), is(Pattern::Together, true));
    assert_eq!(shape(Kind::Allgather, much, &four_by_two), is(Pattern::Ring, true));
    assert_eq!(shape(Kind::Allgather, much, &[0, 0, 1]), is(Pattern::Ring, false));
    let ordered = Limits { element: 8, shares: true, commutative: false };
    let choose = |nodes: &[u64], elements| {
        Shape::choose(Kind::Allreduce, elements, &Topology::new(nodes.iter().copied()), ordered)
    };
    assert_eq!(choose(&four_by_two, much), is(Pattern::Tree, true), "rings change the order");
    assert_eq!(choose(&[0, 1, 0, 1], little), is(Pattern::Tree, false), "and so do these nodes");
}

#[test]
fn between_nodes_little_goes_by_leaders_only() {
    let topology = Topology::new([0, 0, 1, 1, 2, 2, 3, 3]);
    let limits = Limits { element: 8, shares: true, commutative: true };
    let far = |me: u32| {
        let schedule = plan(Call::Allreduce { length: 1 }, &topology, me, limits);
        let partner = |step: &Step| match step {
            Step::Send { to, .. } | Step::Exchange { to, .. } => Some(*to),
            _ => None,
        };
        let leaves = |to: &u32| topology.node_of(*to) != topology.node_of(me);
        schedule.steps.iter().filter_map(partner).filter(leaves).count()
    };
    assert_eq!((0..8).map(far).collect::<Vec<_>>(), [2, 0, 2, 0, 2, 0, 2, 0]);
}
