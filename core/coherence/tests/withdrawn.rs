//! Waits for locks that their threads take back.

use kumi_coherence::{
    Acquired, BarrierKind, Coherence, Config, Event, Events, Message, Migration, PageSet,
    Placement, Protocol, Rank, Sharing,
};
use std::collections::VecDeque;

const LOCK: u32 = 0;
const TICKET: u64 = 1;

/// Three ranks on nodes of their own, and messages in the order in which they were sent.
struct Ranks {
    all: Vec<Coherence>,
    wire: VecDeque<(Rank, Rank, Message)>,
    resumed: Vec<(usize, Acquired)>,
}

impl Ranks {
    fn new(protocol: Protocol) -> Ranks {
        let rank = |rank| {
            let config = Config {
                rank,
                node_of: [0, 1, 2].into(),
                protocol,
                migration: Migration::Never,
                pages: 4,
                page_bytes: 64,
            };
            let mut coherence = Coherence::new(config);
            coherence.allocate(4 * 64, Placement::At(0), Sharing::Invalidate).expect("room");
            coherence
        };
        Ranks { all: (0..3).map(rank).collect(), wire: VecDeque::new(), resumed: Vec::new() }
    }

    fn carry_out(&mut self, at: usize, events: Events) {
        for event in events {
            match event {
                Event::Send { to, message } => self.wire.push_back((at as Rank, to, message)),
                Event::Resume { acquired, .. } => {
                    self.all[at].forgotten(&acquired);
                    self.resumed.push((at, acquired));
                }
                // Nothing here is updated or written.
                Event::Apply { .. }
                | Event::Update { .. }
                | Event::SendTwins { .. }
                | Event::Install { .. } => {}
            }
        }
    }

    fn lock(&mut self, at: usize) {
        let events = self.all[at].lock(LOCK, TICKET).expect("a lock");
        self.carry_out(at, events);
    }

    fn unlock(&mut self, at: usize, pages: &[u32]) {
        let pages: PageSet = pages.iter().map(|page| *page..page + 1).collect();
        self.all[at].close_interval(pages);
        let events = self.all[at].unlock(LOCK, TICKET).expect("its lock");
        self.carry_out(at, events);
    }

    fn deliver(&mut self) {
        while let Some((from, to, message)) = self.wire.pop_front() {
            let events = self.all[to as usize].receive(from, message).expect("the protocol");
            self.carry_out(to as usize, events);
        }
    }

    /// The waits that have ended since the last call: ranks, and pages that they forget.
    fn resumed(&mut self) -> Vec<(usize, u64)> {
        self.deliver();
        self.resumed.drain(..).map(|(at, acquired)| (at, acquired.stale.pages())).collect()
    }
}

/// Rank 1 has the lock and rank 2 waits for it, then takes its wait back.
fn withdrawn(protocol: Protocol) -> Ranks {
    let mut ranks = Ranks::new(protocol);
    ranks.lock(1);
    assert_eq!(ranks.resumed(), [(1, 0)]);
    ranks.lock(2);
    assert_eq!(ranks.resumed(), []);
    assert!(ranks.all[2].withdraw(LOCK, TICKET));
    assert!(!ranks.all[2].withdraw(LOCK, TICKET), "it waits no more");
    ranks
}

#[test]
fn a_lock_passes_a_rank_that_does_not_want_it_any_more() {
    for protocol in [Protocol::Scope, Protocol::Lazy] {
        let mut ranks = withdrawn(protocol);
        // Queued behind rank 2.
        ranks.lock(0);
        assert_eq!(ranks.resumed(), []);
        ranks.unlock(1, &[3]);
        // The page has its home at rank 0.
        assert_eq!(ranks.resumed(), [(0, 0)], "{protocol:?}");
    }
}

#[test]
fn what_came_with_a_lock_that_nobody_waited_for_is_told_later() {
    for protocol in [Protocol::Scope, Protocol::Lazy] {
        let mut ranks = withdrawn(protocol);
        ranks.unlock(1, &[2, 3]);
        assert_eq!(ranks.resumed(), []);
        ranks.lock(2);
        assert_eq!(ranks.resumed(), [(2, 2)], "{protocol:?}");
        ranks.unlock(2, &[]);
        ranks.lock(2);
        assert_eq!(ranks.resumed(), [(2, 0)], "once");
        ranks.unlock(2, &[]);
        ranks.lock(1);
        assert_eq!(ranks.resumed(), [(1, 0)]);
    }
}

#[test]
fn a_barrier_tells_it_too() {
    let mut ranks = withdrawn(Protocol::Lazy);
    ranks.unlock(1, &[2, 3]);
    assert_eq!(ranks.resumed(), []);
    for at in 0..3 {
        let events = ranks.all[at].barrier(BarrierKind::Memory, TICKET).expect("a barrier");
        ranks.carry_out(at, events);
    }
    assert!(ranks.resumed().contains(&(2, 2)));
    ranks.lock(2);
    assert_eq!(ranks.resumed(), [(2, 0)], "once");
}
