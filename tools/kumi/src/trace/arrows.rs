//! What goes from one rank to another.

use super::model::Trace;
use super::waits::HandOver;
use kumi_control::message::TraceKind;
use std::collections::BTreeMap;

/// Why something goes from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArrowKind {
    /// A message of the protocol.
    Message,
    /// Pages, from their home.
    Pages,
    /// A lock.
    Lock,
}

impl ArrowKind {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Pages => "pages",
            Self::Lock => "lock",
        }
    }
}

/// Something that goes from one rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// Why.
    pub kind: ArrowKind,
    /// Sender, and when.
    pub from: (u32, u64),
    /// Receiver, and when: never before.
    pub to: (u32, u64),
    /// Number of the message or lock, or the first page.
    pub object: u32,
}

/// All arrows, by the time of their begin. What arrived before it left, as clocks of two nodes may say, ends when it begins.
pub fn arrows(trace: &Trace, hand_overs: &[HandOver]) -> Vec<Arrow> {
    let mut all = messages(trace);
    all.extend(pages(trace));
    all.extend(hand_overs.iter().map(|one| Arrow {
        kind: ArrowKind::Lock,
        from: one.from,
        to: one.to,
        object: one.lock,
    }));
    for arrow in &mut all {
        arrow.to.1 = arrow.to.1.max(arrow.from.1);
    }
    all.sort_by_key(|arrow| arrow.from.1);
    all
}

fn messages(trace: &Trace) -> Vec<Arrow> {
    let mut sent = BTreeMap::new();
    let of_kind = |kind| {
        let of_rank = move |rank: &'_ super::model::RankTrace| {
            let events = rank.events.iter().filter(move |event| event.kind == kind);
            let me = rank.rank;
            events.filter_map(move |event| Some((me, event.peer?, *event))).collect::<Vec<_>>()
        };
        trace.ranks.iter().flat_map(of_rank)
    };
    for (from, to, event) in of_kind(TraceKind::Send) {
        sent.insert((from, to, event.object), event.time);
    }
    let arrow = |(to, from, event): (u32, u32, kumi_control::message::TraceEvent)| {
        // Each message arrives once.
        let time = sent.remove(&(from, to, event.object))?;
        let (from, to) = ((from, time), (to, event.time));
        Some(Arrow { kind: ArrowKind::Message, from, to, object: event.object })
    };
    of_kind(TraceKind::Receive).filter_map(arrow).collect()
}

/// From the home of pages to the rank that fetched them. The home's program does not notice, so the begin is the request's.
fn pages(trace: &Trace) -> Vec<Arrow> {
    let mut all = Vec::new();
    for rank in &trace.ranks {
        for event in rank.events.iter().filter(|event| event.kind == TraceKind::Fetch) {
            let Some(home) = event.peer.filter(|home| trace.node_of(*home).is_some()) else {
                continue;
            };
            let (from, to) = ((home, event.time), (rank.rank, event.time + event.duration));
            all.push(Arrow { kind: ArrowKind::Pages, from, to, object: event.object });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{event, trace};
    use super::*;
    use kumi_control::message::TraceEvent;

    fn with(peer: u32, event: TraceEvent) -> TraceEvent {
        TraceEvent { peer: Some(peer), ..event }
    }

    #[test]
    fn messages_are_matched_by_their_numbers() {
        let send = |time, number| with(1, event(TraceKind::Send, (time, 0), number));
        let receive = |time, number| with(0, event(TraceKind::Receive, (time, 0), number));
        // Number 1 was lost at the receiver, number 2 at the sender; number 3 comes twice, which cannot be.
        let sender = vec![send(0, 0), send(10, 1), send(30, 3)];
        let receiver = vec![receive(5, 0), receive(25, 2), receive(29, 3), receive(40, 3)];
        let found = arrows(&trace(vec![sender, receiver]), &[]);
        let found: Vec<_> = found.iter().map(|one| (one.from, one.to, one.object)).collect();
        assert_eq!(found, [((0, 0), (1, 5), 0), ((0, 30), (1, 30), 3)]);
    }

    #[test]
    fn pages_come_from_their_home_and_locks_from_their_holder() {
        let fetch = with(0, event(TraceKind::Fetch, (10, 5), 7));
        let from_nobody = with(1, event(TraceKind::Fetch, (20, 5), 7));
        let hand_over = HandOver { lock: 2, from: (1, 12), to: (0, 14) };
        let mut trace =
            trace(vec![vec![event(TraceKind::Lock, (0, 0), 1)], vec![fetch, from_nobody]]);
        let kinds = |found: Vec<Arrow>| -> Vec<_> {
            found.iter().map(|one| (one.kind, one.from.0, one.to)).collect()
        };
        let all = kinds(arrows(&trace, &[hand_over]));
        let pages = (ArrowKind::Pages, 0, (1, 15));
        assert_eq!(all[..2], [pages, (ArrowKind::Lock, 1, (0, 14))]);
        trace.ranks.remove(0);
        assert_eq!(kinds(arrows(&trace, &[])).len(), 1, "a home that was not traced has no row");
    }
}
