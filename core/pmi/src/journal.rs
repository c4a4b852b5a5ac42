//! What a server keeps of its own words, for a daemon that comes after the one that it spoke to.
//!
//! What is told once has a number and is kept until a daemon has heard it. Contributions to exchanges are kept as agents keep
//! them: until the next exchange of their group is over, since every node has it then. All else may be lost.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::message::{Exchange, FromServer, ServerReport};

/// So much is kept that no daemon has heard. From then on the server does not serve its ranks until one has.
pub const MOST_UNHEARD: usize = 1_024;

/// A contribution of this node.
#[derive(Debug)]
struct Contribution {
    places: Vec<u32>,
    data: Vec<u8>,
    /// All have contributed.
    over: bool,
}

/// What a later daemon may have to hear.
#[derive(Debug, Default)]
pub struct Journal {
    /// Number of the last that was told.
    last: u64,
    unheard: VecDeque<(u64, ServerReport)>,
    /// By group and number.
    contributions: BTreeMap<u64, BTreeMap<u32, Contribution>>,
}

impl Journal {
    /// The message that tells this. It is kept.
    pub fn tell(&mut self, what: ServerReport) -> FromServer {
        self.last = self.last.saturating_add(1);
        self.unheard.push_back((self.last, what.clone()));
        FromServer::Report { number: self.last, what }
    }

    /// A daemon has heard all up to this number.
    pub fn heard(&mut self, number: u64) {
        while self.unheard.front().is_some_and(|&(first, _)| first <= number) {
            self.unheard.pop_front();
        }
    }

    /// Whether a daemon has to hear something before there may be more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.unheard.len() >= MOST_UNHEARD
    }

    /// The message by which this node contributes. It is kept.
    pub fn contribute(
        &mut self,
        exchange: Exchange,
        places: Vec<u32>,
        data: Vec<u8>,
    ) -> FromServer {
        let group = self.contributions.entry(exchange.group).or_default();
        let kept = Contribution { places: places.clone(), data: data.clone(), over: false };
        group.insert(exchange.number, kept);
        FromServer::Exchange { exchange, places, data }
    }

    /// All have contributed to an exchange. Returns whether this node waited for that: a later daemon may say it again.
    pub fn exchanged(&mut self, exchange: Exchange) -> bool {
        let Some(group) = self.contributions.get_mut(&exchange.group) else { return false };
        let Some(kept) = group.get_mut(&exchange.number).filter(|kept| !kept.over) else {
            return false;
        };
        kept.over = true;
        // Nobody else misses what one node exchanges with itself.
        let alone = kept.places.len() < 2;
        group.retain(|&number, _| number > exchange.number || number == exchange.number && !alone);
        if group.is_empty() {
            self.contributions.remove(&exchange.group);
        }
        true
    }

    /// What a later daemon hears first. The one before it has heard all up to this number.
    pub fn resume(&mut self, heard: u64) -> Vec<FromServer> {
        self.heard(heard);
        let told = |(number, what): &(u64, ServerReport)| {
            let (number, what) = (*number, what.clone());
            FromServer::Report { number, what }
        };
        let told = self.unheard.iter().map(told);
        let groups = self.contributions.iter();
        let kept = groups.flat_map(|(&group, numbers)| {
            numbers.iter().map(move |(&number, kept)| FromServer::ExchangeAgain {
                exchange: Exchange { group, number },
                places: kept.places.clone(),
                data: kept.data.clone(),
                over: kept.over,
            })
        });
        told.chain(kept).collect()
    }
}

/// A server tells something else than what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("number {told} is told after {heard}")]
pub struct OutOfOrder {
    /// The number.
    pub told: u64,
    /// The last that was heard.
    pub heard: u64,
}

/// Whether a daemon that has heard all up to `heard` hears something new by this number. It may be said again.
///
/// # Errors
/// Something between them is missing.
pub fn is_new(heard: u64, told: u64) -> Result<bool, OutOfOrder> {
    match told.checked_sub(heard) {
        None | Some(0) => Ok(false),
        Some(1) => Ok(true),
        Some(_) => Err(OutOfOrder { told, heard }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(rank: u32) -> ServerReport {
        ServerReport::Joined { rank }
    }

    fn at(group: u64, number: u32) -> Exchange {
        Exchange { group, number }
    }

    fn again(exchange: Exchange, byte: u8, over: bool) -> FromServer {
        FromServer::ExchangeAgain { exchange, places: [0, 1].into(), data: [byte].into(), over }
    }

    #[test]
    fn what_no_daemon_has_heard_is_told_again_in_its_order() {
        let mut journal = Journal::default();
        for rank in 0..3 {
            let told = journal.tell(joined(rank));
            assert_eq!(
                told,
                FromServer::Report { number: u64::from(rank) + 1, what: joined(rank) }
            );
        }
        journal.heard(1);
        let told = |number: u64, rank| FromServer::Report { number, what: joined(rank) };
        assert_eq!(journal.resume(0), [told(2, 1), told(3, 2)]);
        assert_eq!(journal.resume(2), [told(3, 2)], "a daemon heard it and could not say so");
        assert_eq!(journal.resume(3), []);
        assert_eq!(journal.tell(joined(9)), told(4, 9));
        // A daemon that claims more has heard all there is.
        journal.heard(u64::MAX);
        assert_eq!(journal.tell(joined(9)), told(5, 9));
    }

    #[test]
    fn ranks_wait_while_much_is_not_heard() {
        let mut journal = Journal::default();
        for _ in 0..MOST_UNHEARD {
            assert!(!journal.is_full());
            journal.tell(joined(0));
        }
        assert!(journal.is_full());
        journal.heard(1);
        assert!(!journal.is_full());
    }

    #[test]
    fn contributions_are_kept_until_the_next_exchange_of_their_group_is_over() {
        let mut journal = Journal::default();
        journal.contribute(at(1, 0), [0, 1].into(), [7].into());
        journal.contribute(at(2, 0), [0, 1].into(), [8].into());
        let open = [again(at(1, 0), 7, false), again(at(2, 0), 8, false)];
        assert_eq!(journal.resume(0), open);
        assert!(journal.exchanged(at(1, 0)));
        assert!(!journal.exchanged(at(1, 0)), "a later daemon says it again");
        assert!(!journal.exchanged(at(9, 0)) && !journal.exchanged(at(1, 1)));
        journal.contribute(at(1, 1), [0, 1].into(), [9].into());
        let both = [again(at(1, 0), 7, true), again(at(1, 1), 9, false)];
        assert_eq!(journal.resume(0)[..2], both);
        assert!(journal.exchanged(at(1, 1)));
        assert_eq!(journal.resume(0), [again(at(1, 1), 9, true), again(at(2, 0), 8, false)]);
    }

    #[test]
    fn nothing_is_kept_of_what_a_node_exchanged_with_itself() {
        let mut journal = Journal::default();
        for number in 0..3 {
            journal.contribute(at(1, number), [0].into(), Vec::new());
            assert_eq!(journal.resume(0).len(), 1, "until it is over");
            assert!(journal.exchanged(at(1, number)));
            assert!(journal.contributions.is_empty());
        }
    }

    #[test]
    fn daemons_hear_each_number_once() {
        assert_eq!(is_new(0, 1), Ok(true));
        assert_eq!(is_new(1, 1), Ok(false));
        assert_eq!(is_new(5, 1), Ok(false));
        assert_eq!(is_new(u64::MAX, 0), Ok(false));
        let missing = is_new(1, 3).unwrap_err();
        assert_eq!(missing, OutOfOrder { told: 3, heard: 1 });
    }
}
