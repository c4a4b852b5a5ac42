//! Gossip of what nodes disclose: everybody hears everything in bounded time, nothing goes back.

use std::collections::BTreeMap;

use kumi_control::disclosure::{
    Disclosure, EXCHANGE, JobFacts, LinkPeer, MESSAGE_BYTES, MOST_JOBS, MOST_RANKS, NodeFacts,
    RankState,
};
use kumi_control::tree::{LinkId, Parent, parent_candidates};
use kumi_sched::{JobId, NodeId};
use proptest::prelude::*;

fn facts(node: u32, runnable: u32) -> NodeFacts {
    // Not all, since copying them takes most of these tests' time.
    let job = || JobFacts::new(JobId(7), true, node * 16, &[RankState::Idle; 16]);
    NodeFacts {
        node: NodeId(node),
        incarnation: 1 << 60,
        count: 0,
        age_ms: 0,
        processors: 8,
        runnable,
        busy_permille: 500,
        memory_kib: [1 << 40, 1 << 41],
        network_bytes: 1 << 50,
        jobs: node.is_multiple_of(8).then(job).into_iter().collect(),
    }
}

/// A tree of nodes under the head, whose messages all take one exchange.
struct Tree {
    nodes: Vec<Disclosure>,
    head: Disclosure,
    parents: Vec<Parent>,
    now: u64,
    /// Longest message, encoded.
    longest: usize,
}

impl Tree {
    fn new(count: u32, fan_out: u32) -> Self {
        let mut head = Disclosure::new(None, count);
        let mut nodes: Vec<_> =
            (0..count).map(|node| Disclosure::new(Some(NodeId(node)), count)).collect();
        let mut parents = Vec::new();
        for node in 0..count {
            let parent = parent_candidates(NodeId(node), count, fan_out)[0];
            let link = LinkPeer::Child(LinkId(u64::from(node)));
            match parent {
                Parent::Head => head.link_up(link),
                Parent::Node(parent) => nodes[parent.0 as usize].link_up(link),
            }
            nodes[node as usize].link_up(LinkPeer::Parent);
            parents.push(parent);
        }
        Self { nodes, head, parents, now: 0, longest: 0 }
    }

    fn at(&mut self, parent: Parent) -> &mut Disclosure {
        match parent {
            Parent::Head => &mut self.head,
            Parent::Node(node) => &mut self.nodes[node.0 as usize],
        }
    }

    /// One exchange on every link: all messages are made before any is taken.
    fn exchange(&mut self) {
        self.now += EXCHANGE;
        let now = self.now;
        let mut messages = Vec::new();
        for node in 0..self.nodes.len() {
            let (parent, child) = (self.parents[node], LinkPeer::Child(LinkId(node as u64)));
            let up = self.nodes[node].message(now, LinkPeer::Parent);
            let down = self.at(parent).message(now, child);
            // Encoding takes long; the longest are those at the head.
            for message in [&up, &down].into_iter().filter(|_| parent == Parent::Head) {
                let bytes = postcard::to_allocvec(message).unwrap().len();
                self.longest = self.longest.max(bytes);
            }
            messages.push((up, down));
        }
        for (node, (up, down)) in messages.into_iter().enumerate() {
            let (parent, child) = (self.parents[node], LinkPeer::Child(LinkId(node as u64)));
            assert_eq!(self.at(parent).receive(now, child, up), 0);
            assert_eq!(self.nodes[node].receive(now, LinkPeer::Parent, down), 0);
        }
    }

    fn all_know(&self, node: u32, runnable: u32) -> bool {
        let knows = |d: &Disclosure| {
            d.node(NodeId(node)).is_some_and(|(facts, _)| facts.runnable == runnable)
        };
        self.nodes.iter().chain([&self.head]).all(knows)
    }
}

/// Links from a leaf up to the head and down to another leaf, and exchanges until an entry's turn comes.
fn bound(count: u32, fan_out: u32) -> u32 {
    let candidates = parent_candidates(NodeId(count - 1), count, fan_out);
    let links = 2 * u32::try_from(candidates.len()).unwrap();
    let fit = u32::try_from(MESSAGE_BYTES).unwrap() / 128;
    links * count.div_ceil(fit)
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_thousand_nodes_know_everything_in_bounded_time() {
    let mut tree = Tree::new(1024, 16);
    for node in 0..1024 {
        tree.nodes[node as usize].tell(0, facts(node, node));
    }
    let bound = bound(1024, 16);
    let mut rounds = 0;
    while !(0..1024).all(|node| tree.all_know(node, node)) {
        tree.exchange();
        rounds += 1;
        assert!(rounds <= bound, "not within {bound} exchanges");
    }
    assert!(tree.longest <= MESSAGE_BYTES + 8, "{} bytes", tree.longest);
    // Nothing new, nothing said.
    for node in &mut tree.nodes {
        assert_eq!(node.message(tree.now, LinkPeer::Parent), []);
    }
    // A single change takes one exchange a link, and its age is known there.
    let told = tree.now;
    tree.nodes[1023].tell(told, facts(1023, 9_999));
    for _ in 0..2 * parent_candidates(NodeId(1023), 1024, 16).len() {
        tree.exchange();
    }
    assert!(tree.all_know(1023, 9_999));
    assert_eq!(tree.nodes[500].node(NodeId(1023)).unwrap().1, told);
    assert!(tree.nodes[500].take_changed().contains(&NodeId(1023)));
    assert!(tree.nodes[500].take_changed().is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn when_all_change_all_the_time_nobody_is_left_behind() {
    let mut tree = Tree::new(100, 3);
    let mut told = BTreeMap::new();
    let bound = u64::from(bound(100, 3));
    for round in 0..3 * bound {
        for node in 0..100u32 {
            tree.nodes[node as usize].tell(tree.now, facts(node, u32::try_from(round).unwrap()));
        }
        told.insert(round, tree.now);
        tree.exchange();
        if round > 2 * bound {
            for (at, node) in [(0, 99), (99, 0), (50, 77)] {
                let (_, stamp) = tree.nodes[at].node(NodeId(node)).unwrap();
                assert!(stamp >= told[&(round - bound)], "node {at} knows {node} of {stamp}");
            }
        }
    }
}

#[test]
fn a_new_link_starts_from_nothing_and_a_new_daemon_counts_anew() {
    let mut one = Disclosure::new(Some(NodeId(0)), 3);
    let mut two = Disclosure::new(Some(NodeId(1)), 3);
    one.link_up(LinkPeer::Parent);
    two.link_up(LinkPeer::Child(LinkId(1)));
    one.tell(5, facts(0, 1));
    // Lost with its link.
    assert_eq!(one.message(6, LinkPeer::Parent).len(), 1);
    assert_eq!(one.message(6, LinkPeer::Parent), []);
    one.link_down(LinkPeer::Parent);
    assert_eq!(one.message(7, LinkPeer::Parent), []);
    one.link_up(LinkPeer::Parent);
    let message = one.message(8, LinkPeer::Parent);
    assert_eq!(two.receive(8, LinkPeer::Child(LinkId(1)), message), 0);
    // Its daemon starts again, and counts from one.
    let mut again = facts(0, 2);
    again.incarnation += 1;
    again.count = 1;
    let old = two.node(NodeId(0)).unwrap().0.clone();
    assert_eq!(two.receive(9, LinkPeer::Child(LinkId(1)), vec![again.clone(), old]), 0);
    assert_eq!(two.node(NodeId(0)).unwrap().0.runnable, 2);
    // The other end knows it, since it came from there.
    assert_eq!(two.message(9, LinkPeer::Child(LinkId(1))), []);
    // A node knows itself best: if its clock was set back before it started, it counts on from
    // what others remember of it.
    assert_eq!(one.receive(9, LinkPeer::Parent, vec![again.clone()]), 0);
    let (own, _) = one.node(NodeId(0)).unwrap();
    assert_eq!((own.runnable, own.incarnation), (1, again.incarnation + 1));
    one.tell(10, facts(0, 3));
    let message = one.message(10, LinkPeer::Parent);
    let mut three = Disclosure::new(None, 3);
    three.link_up(LinkPeer::Child(LinkId(1)));
    three.receive(10, LinkPeer::Child(LinkId(1)), vec![again.clone()]);
    three.receive(10, LinkPeer::Child(LinkId(1)), message);
    assert_eq!(three.node(NodeId(0)).unwrap().0.runnable, 3);
    // Links that are gone say nothing.
    again.count = 8;
    assert_eq!(two.receive(9, LinkPeer::Child(LinkId(2)), vec![again]), 0);
    assert_eq!(two.node(NodeId(0)).unwrap().0.count, 1);
}

#[test]
fn what_breaks_the_bounds_is_refused() {
    let mut own = facts(0, 1);
    own.jobs = (0..20)
        .map(|job| JobFacts::new(JobId(job), false, 0, &[RankState::Running; 200]))
        .collect();
    let wild = own.clone();
    let mut head = Disclosure::new(None, 2);
    head.link_up(LinkPeer::Child(LinkId(1)));
    let wilder = JobFacts::new(JobId(1), true, u32::MAX, &[RankState::Idle]);
    let mut beyond = facts(1, 1);
    beyond.jobs = vec![wilder];
    let foreign = facts(2, 0);
    assert_eq!(head.receive(0, LinkPeer::Child(LinkId(1)), vec![wild, beyond, foreign]), 3);
    assert!(head.node(NodeId(0)).is_none() && head.node(NodeId(1)).is_none());
    own.bound();
    assert!(own.jobs.len() <= MOST_JOBS);
    assert!(own.jobs.iter().map(|job| job.count as usize).sum::<usize>() <= MOST_RANKS);
    assert_eq!(head.receive(0, LinkPeer::Child(LinkId(1)), vec![own]), 0);
}

/// Jobs are named in their order as far as there is room; one that is too large leaves it to those behind it.
#[test]
fn a_large_job_hides_no_other() {
    let job = |job, ranks| JobFacts::new(JobId(job), true, 0, &vec![RankState::Running; ranks]);
    let mut own = facts(0, 1);
    own.jobs =
        vec![job(1, 20), job(2, MOST_RANKS + 1), job(3, MOST_RANKS - 30), job(4, 11), job(5, 10)];
    own.bound();
    let named: Vec<u64> = own.jobs.iter().map(|job| job.job.0).collect();
    assert_eq!(named, [1, 3, 5]);
}

#[test]
fn the_states_of_any_number_of_ranks_are_kept() {
    let states = [RankState::Over, RankState::Running, RankState::Unknown, RankState::Idle];
    for count in 0..11 {
        let ranks: Vec<_> = states.into_iter().cycle().take(count).collect();
        let facts = JobFacts::new(JobId(1), true, 100, &ranks);
        let expected = (100..).zip(ranks);
        assert!(facts.ranks().eq(expected), "{count}");
        assert_eq!(facts.count as usize, count);
    }
}

/// What may be sent by somebody who does not keep to the rules: numbers and bits that do not fit.
#[derive(serde::Serialize)]
struct Forged {
    job: JobId,
    scheduled: bool,
    first: u32,
    count: u32,
    states: Vec<u8>,
}

fn forged(first: u32, count: u32, bytes: usize) -> JobFacts {
    let states = vec![0xFF; bytes];
    let job = Forged { job: JobId(3), scheduled: true, first, count, states };
    postcard::from_bytes(&postcard::to_allocvec(&job).unwrap()).unwrap()
}

#[test]
fn facts_are_taken_up_to_their_bounds() {
    let from = LinkPeer::Child(LinkId(1));
    let mut head = Disclosure::new(None, 2);
    head.link_up(from);
    let mut count = 0;
    let mut taken = |jobs: Vec<JobFacts>| {
        count += 1;
        let message = vec![NodeFacts { count, jobs, ..facts(1, 0) }];
        head.receive(0, from, message) == 0
    };
    assert!(taken(vec![forged(0, 1024, 256)]));
    assert!(!taken(vec![forged(0, 1025, 257)]));
    assert!(taken(vec![forged(0, 5, 2)]) && taken(vec![forged(0, 8, 2)]));
    assert!(!taken(vec![forged(0, 8, 3)]) && !taken(vec![forged(0, 9, 2)]));
    assert!(taken(vec![forged(u32::MAX - 4, 4, 1)]));
    assert!(!taken(vec![forged(u32::MAX - 3, 4, 1)]));
    // Each alone is short enough, but not all together: eight jobs may have eight bytes more than 1,024 ranks need.
    assert!(taken(vec![forged(0, 1, 1); 8]));
    assert!(!taken(vec![forged(0, 1, 1); 9]));
    assert!(taken(vec![forged(0, 132, 33); 8]));
    let mut more = vec![forged(0, 132, 33); 7];
    more.push(forged(0, 136, 34));
    assert!(!taken(more));
    // Of a node that does not exist.
    let foreign = vec![facts(2, 0)];
    assert_eq!(head.receive(0, from, foreign), 1);
}

#[test]
fn a_job_that_fills_the_bound_is_told_whole() {
    let job = |ranks| JobFacts::new(JobId(1), true, 0, &vec![RankState::Running; ranks]);
    for (jobs, left) in [(vec![1024], 1), (vec![1025], 0), (vec![1000, 24], 2), (vec![1000, 25], 1)]
    {
        let mut own = NodeFacts { jobs: jobs.into_iter().map(job).collect(), ..facts(0, 1) };
        own.bound();
        assert_eq!(own.jobs.len(), left);
    }
    let mut own = NodeFacts { jobs: vec![job(1); 9], ..facts(0, 1) };
    own.bound();
    assert_eq!(own.jobs.len(), 8);
}

#[test]
fn what_is_heard_later_is_older() {
    let mut one = Disclosure::new(Some(NodeId(0)), 2);
    let mut two = Disclosure::new(Some(NodeId(1)), 2);
    one.link_up(LinkPeer::Parent);
    two.link_up(LinkPeer::Child(LinkId(1)));
    let ms = 1_000_000;
    one.tell(100 * ms, facts(0, 1));
    // 30.9 ms later on its own clock, it says 30; the other's clock is elsewhere.
    let message = one.message(130 * ms + 900_000, LinkPeer::Parent);
    assert_eq!(message[0].age_ms, 30);
    two.receive(7_000 * ms, LinkPeer::Child(LinkId(1)), message);
    assert_eq!(two.node(NodeId(0)).unwrap().1, 6_970 * ms);
    // Older than the clock itself.
    let ancient = NodeFacts { count: 9, age_ms: u32::MAX, ..facts(0, 1) };
    two.receive(7_000 * ms, LinkPeer::Child(LinkId(1)), vec![ancient]);
    assert_eq!(two.node(NodeId(0)).unwrap().1, 0);
}

#[test]
fn messages_are_as_long_as_they_may_be_and_no_longer() {
    let mut one = Disclosure::new(None, 1_000);
    one.link_up(LinkPeer::Parent);
    one.link_up(LinkPeer::Child(LinkId(1)));
    // Without jobs each counts as 80 bytes.
    let all: Vec<_> =
        (0..1_000).map(|node| NodeFacts { count: 1, jobs: Vec::new(), ..facts(node, 0) }).collect();
    assert_eq!(one.receive(0, LinkPeer::Child(LinkId(1)), all), 0);
    let most = MESSAGE_BYTES / 80;
    let sent: Vec<usize> = (0..7).map(|_| one.message(0, LinkPeer::Parent).len()).collect();
    assert_eq!(sent, [most, most, most, most, 1_000 - 4 * most, 0, 0]);
    // Jobs count with 24 bytes and their ranks' states.
    let job = || JobFacts::new(JobId(1), true, 0, &[RankState::Idle; 128]);
    let all: Vec<_> = (0..1_000)
        .map(|node| NodeFacts { count: 2, jobs: vec![job()], ..facts(node, 0) })
        .collect();
    one.receive(0, LinkPeer::Child(LinkId(1)), all);
    assert_eq!(one.message(0, LinkPeer::Parent).len(), MESSAGE_BYTES / (80 + 24 + 32));
    // The child, from which all came, lacks nothing.
    assert_eq!(one.message(0, LinkPeer::Child(LinkId(1))), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is lost, doubled or late: what a node knows never goes back to something older.
    #[test]
    fn knowledge_never_goes_back(
        steps in proptest::collection::vec((0u32..4, any::<u8>(), 0usize..8), 1..200)
    ) {
        let link = LinkPeer::Child(LinkId(1));
        let mut from = Disclosure::new(Some(NodeId(0)), 4);
        let mut to = Disclosure::new(None, 4);
        from.link_up(LinkPeer::Parent);
        to.link_up(link);
        let mut wire: Vec<Vec<NodeFacts>> = Vec::new();
        let mut best = 0;
        for (now, (what, value, which)) in steps.into_iter().enumerate() {
            let now = now as u64 * 1_000_000;
            match what {
                0 => from.tell(now, facts(0, u32::from(value))),
                1 => wire.push(from.message(now, LinkPeer::Parent)),
                2 => {
                    from.link_down(LinkPeer::Parent);
                    from.link_up(LinkPeer::Parent);
                }
                // Any message of the past, again.
                _ if wire.is_empty() => {}
                _ => {
                    let message = wire[which % wire.len()].clone();
                    best = message.first().map_or(best, |facts| best.max(facts.count));
                    to.receive(now, link, message);
                    let known = to.node(NodeId(0)).map_or(0, |(facts, _)| facts.count);
                    prop_assert_eq!(known, best);
                }
            }
        }
    }

    #[test]
    fn states_are_packed_and_found_again(states in proptest::collection::vec(0u8..4, 0..70)) {
        let all = [RankState::Running, RankState::Idle, RankState::Over, RankState::Unknown];
        let states: Vec<_> = states.into_iter().map(|state| all[usize::from(state)]).collect();
        let job = JobFacts::new(JobId(1), true, 10, &states);
        let found: Vec<_> = job.ranks().collect();
        let wanted: Vec<_> = (10..).zip(states).collect();
        prop_assert_eq!(found, wanted);
    }
}
