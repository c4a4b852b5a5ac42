//! One token, one key, with any number of heads: they issue tokens, machines use them, nodes are revoked, heads take over from
//! each other before and after any write and answer, and their clocks differ.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kumi_control::join::{IssuedToken, JoinSecret, JoinTokens, SharedTokens, TokenChanges};
use kumi_sched::NodeId;
use proptest::prelude::*;

const HEADS: usize = 2;
const NODES: u32 = 2;
const KEYS: u8 = 2;
const DAY: u64 = 86_400_000;
/// The clock of a head is ahead of the one before it by so many milliseconds.
const SKEW: u64 = 40;

/// What etcd has. Only the head of the latest term can change it.
#[derive(Default)]
struct Store {
    term: u64,
    tokens: BTreeMap<NodeId, IssuedToken>,
    /// Up to when, and how often.
    revoked: BTreeMap<NodeId, (u64, usize)>,
}

/// A change on its way to the store.
struct Write {
    number: u64,
    tokens: TokenChanges,
    revoked: Option<(NodeId, (u64, usize))>,
}

/// Who waits for an answer.
enum Answer {
    Client(usize),
    Machine { token: usize, key: u8 },
}

/// A head that leads, or believes so.
struct Leader {
    term: u64,
    shared: SharedTokens<Answer>,
    revoked: BTreeMap<NodeId, (u64, usize)>,
    writes: VecDeque<Write>,
    next: u64,
    settled: u64,
}

impl Leader {
    fn new(store: &Store) -> Self {
        let tokens = store.tokens.iter().map(|(&node, token)| (node, token.clone()));
        let shared = SharedTokens::new(tokens.collect::<JoinTokens>());
        let (revoked, writes) = (store.revoked.clone(), VecDeque::new());
        Self { term: store.term, shared, revoked, writes, next: 1, settled: 0 }
    }

    fn write(&mut self, tokens: TokenChanges, revoked: Option<(NodeId, (u64, usize))>) {
        if !tokens.is_empty() || revoked.is_some() {
            self.writes.push_back(Write { number: self.next, tokens, revoked });
            self.next += 1;
        }
    }
}

/// A token that a client has got.
struct Given {
    node: NodeId,
    /// The head had revoked its node by then so many times.
    after: usize,
    until_ms: u64,
}

struct World {
    time: u64,
    store: Store,
    heads: [Option<Leader>; HEADS],
    /// All that were made, told to a client or not.
    made: Vec<Given>,
    told: BTreeSet<usize>,
    /// Which key each token was used for, by the certificates that machines have got.
    certified: BTreeMap<usize, u8>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Lead(usize),
    Issue(usize, u32),
    /// A machine shows the token that was made so many before the last one.
    Show {
        head: usize,
        back: usize,
        key: u8,
    },
    Revoke(usize, u32),
    /// A write reaches the store, and the head hears of it unless it dies before.
    Store {
        head: usize,
        dies: bool,
    },
    Tell(usize),
    Die(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (head, node) = (0..HEADS, 0..NODES);
    let step = prop_oneof![
        1 => head.clone().prop_map(Step::Lead),
        3 => (head.clone(), node.clone()).prop_map(|(head, node)| Step::Issue(head, node)),
        8 => (head.clone(), 0..2_usize, 0..KEYS)
            .prop_map(|(head, back, key)| Step::Show { head, back, key }),
        2 => (head.clone(), node).prop_map(|(head, node)| Step::Revoke(head, node)),
        8 => (head.clone(), prop::bool::weighted(0.2))
            .prop_map(|(head, dies)| Step::Store { head, dies }),
        8 => head.clone().prop_map(Step::Tell),
        1 => head.prop_map(Step::Die),
        2 => (1..5_u64).prop_map(Step::Pass),
        1 => Just(Step::Pass(DAY / 8)),
    ];
    prop::collection::vec(step, 1..300)
}

fn secret(token: usize) -> JoinSecret {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&token.to_le_bytes());
    JoinSecret(bytes)
}

impl World {
    fn new() -> Self {
        Self {
            time: 1_700_000_000_000,
            store: Store::default(),
            heads: [None, None],
            made: Vec::new(),
            told: BTreeSet::new(),
            certified: BTreeMap::new(),
        }
    }

    fn clock(&self, head: usize) -> u64 {
        self.time + SKEW * head as u64
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Lead(head) => {
                self.store.term += 1;
                self.heads[head] = Some(Leader::new(&self.store));
            }
            Step::Issue(head, node) => self.issue(head, NodeId(node)),
            Step::Show { head, back, key } => {
                if let Some(token) = self.made.len().checked_sub(back + 1) {
                    self.show(head, token, key);
                }
            }
            Step::Revoke(head, node) => self.revoke(head, NodeId(node)),
            Step::Store { head, dies } => self.write(head, dies),
            Step::Tell(head) => self.tell(head),
            Step::Die(head) => self.heads[head] = None,
            Step::Pass(ms) => self.time += ms,
        }
    }

    fn issue(&mut self, head: usize, node: NodeId) {
        let now = self.clock(head);
        let Some(leader) = &mut self.heads[head] else { return };
        let token = self.made.len();
        let mut until = 0;
        let changes =
            leader.shared.issue(leader.next, (node, &secret(token)), (now, DAY), |until_ms| {
                until = until_ms;
                Answer::Client(token)
            });
        leader.write(changes, None);
        let after = leader.revoked.get(&node).map_or(0, |&(_, times)| times);
        self.made.push(Given { node, after, until_ms: until });
    }

    fn show(&mut self, head: usize, token: usize, key: u8) {
        let now = self.clock(head);
        let Some(leader) = &mut self.heads[head] else { return };
        let revoked = leader.revoked.clone();
        let is_revoked =
            |node, issued_us| revoked.get(&node).is_some_and(|&(until, _)| issued_us <= until);
        let shown = (&secret(token), &[key][..]);
        let answer = Answer::Machine { token, key };
        if let Ok(changes) = leader.shared.spend(leader.next, shown, (now, is_revoked), answer) {
            assert!(now < self.made[token].until_ms, "its time was over");
            leader.write(changes, None);
        }
    }

    fn revoke(&mut self, head: usize, node: NodeId) {
        let now = self.clock(head);
        let Some(leader) = &mut self.heads[head] else { return };
        let (until, times) = leader.revoked.get(&node).copied().unwrap_or_default();
        let revoked = ((now * 1_000 + 999).max(until), times + 1);
        leader.revoked.insert(node, revoked);
        let changes = leader.shared.revoke(leader.next, node);
        leader.write(changes, Some((node, revoked)));
    }

    fn write(&mut self, head: usize, dies: bool) {
        let Some(leader) = &mut self.heads[head] else { return };
        let Some(write) = leader.writes.pop_front() else { return };
        if leader.term != self.store.term {
            self.heads[head] = None;
            return;
        }
        for (node, token) in write.tokens {
            match token {
                Some(token) => self.store.tokens.insert(node, token),
                None => self.store.tokens.remove(&node),
            };
        }
        self.store.revoked.extend(write.revoked);
        leader.settled = write.number;
        if dies {
            self.heads[head] = None;
        }
    }

    /// The head answers, if it leads.
    fn tell(&mut self, head: usize) {
        let Some(leader) = &mut self.heads[head] else { return };
        if leader.term != self.store.term {
            return;
        }
        let settled = leader.settled;
        while let Some(one) = leader.shared.settle(|write| write <= settled) {
            match one.answer {
                Answer::Client(token) => {
                    self.told.insert(token);
                }
                Answer::Machine { token, key } if one.counts.is_ok() => {
                    let before = *self.certified.entry(token).or_insert(key);
                    assert_eq!(before, key, "token {token} has certified two keys");
                    let Given { node, after, .. } = self.made[token];
                    let times = self.store.revoked.get(&node).map_or(0, |&(_, times)| times);
                    assert!(times <= after, "node {node:?} was revoked since token {token}");
                }
                Answer::Machine { .. } => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_token_certifies_one_key_and_none_after_a_revocation(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
    }
}

/// What a machine does whose answer got lost, and what another one gets.
#[test]
fn a_use_that_is_recorded_counts_with_the_next_head() {
    for dies in [false, true] {
        let mut world = World::new();
        let store = |head, dies| Step::Store { head, dies };
        let show = |head, key| Step::Show { head, back: 0, key };
        for step in [Step::Lead(0), Step::Issue(0, 1), store(0, false), Step::Tell(0)] {
            world.step(step);
        }
        assert!(world.told.contains(&0));
        for step in [show(0, 7), store(0, dies), Step::Lead(1), Step::Tell(0)] {
            world.step(step);
        }
        assert!(world.certified.is_empty(), "the first head leads no more");
        for step in [show(1, 8), store(1, false), Step::Tell(1)] {
            world.step(step);
        }
        assert!(world.certified.is_empty(), "it was used for another key");
        for step in [show(1, 7), Step::Tell(1)] {
            world.step(step);
        }
        assert_eq!(world.certified, BTreeMap::from([(0, 7)]));
    }
}
