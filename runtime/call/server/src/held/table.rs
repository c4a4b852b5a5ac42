//! Table of the arrays that a server holds, with owners and expiry. It has no clock: the caller passes the
//! time.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use kumi_rpc::{HeldArrayName, HeldResult};

use crate::budget::{Budget, Reservation};

/// Most names.
const MOST_NAMES: usize = 65_536;

/// Why the server cannot hold an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveError {
    /// Too little room is left for this many bytes; the second number is the limit.
    NoMemory(u64),
    /// The table has the most names it may have.
    TooManyNames,
    /// One of the names is in use.
    NameInUse,
}

/// Why the server does not have an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupError {
    /// The name is unknown, or no longer known.
    Unknown,
    /// The call that makes it is still running.
    NotYet,
}

/// The holder of an array, or the one that asks for it.
#[derive(Debug, Clone, Copy)]
pub struct Holder<'a> {
    /// The number of the connection.
    pub connection: u64,
    /// The user; empty if users are not distinguished.
    pub user: &'a str,
    /// It may take over arrays whose connection was lost.
    pub adopts: bool,
}

#[derive(Debug)]
struct Entry<M> {
    /// `None`: its call is still running.
    memory: Option<M>,
    /// Distinguishes its call from others that take the same name.
    charge: Rc<Reservation>,
    /// The connection that holds it. `None`: that was lost.
    owner: Option<u64>,
    /// The user that owns it. Nobody else gets it or learns of it.
    user: Box<str>,
    lifetime: Duration,
    survives: bool,
    end: Option<Instant>,
}

impl<M> Entry<M> {
    /// Whether the call with this charge makes this array. The name may have been dropped and reused.
    fn awaits(&self, charge: &Rc<Reservation>) -> bool {
        self.memory.is_none() && Rc::ptr_eq(&self.charge, charge)
    }
}

/// All held arrays; `M` is their memory.
#[derive(Debug)]
pub struct Table<M> {
    entries: HashMap<HeldArrayName, Entry<M>>,
    ends: BTreeSet<(Instant, HeldArrayName)>,
    owners: HashMap<u64, HashSet<HeldArrayName>>,
    budget: Budget,
    /// Longest lifetime.
    longest: Duration,
    /// How long arrays stay after their connection was lost.
    grace: Duration,
}

impl<M> Table<M> {
    /// An empty table with at most `most` bytes, and lifetimes of at most `longest`.
    pub fn new(most: u64, longest: Duration, grace: Duration) -> Table<M> {
        Table {
            entries: HashMap::new(),
            ends: BTreeSet::new(),
            owners: HashMap::new(),
            budget: Budget::new(most),
            longest,
            grace,
        }
    }

    /// Bytes that are held or reserved.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.budget.used()
    }

    /// Reserves room for the results of a call that is about to begin: for all or for none.
    pub fn reserve<'a>(
        &mut self,
        keeps: impl Iterator<Item = &'a HeldResult> + Clone,
        bytes: u64,
        holder: Holder<'_>,
    ) -> Result<Rc<Reservation>, ReserveError> {
        // Given back if the call is refused.
        let charge = self.budget.reserve(bytes);
        let charge = Rc::new(charge.ok_or(ReserveError::NoMemory(self.budget.most()))?);
        if self.entries.len() + keeps.clone().count() > MOST_NAMES {
            return Err(ReserveError::TooManyNames);
        }
        let mut names = HashSet::new();
        if !keeps
            .clone()
            .all(|keep| names.insert(keep.name) && !self.entries.contains_key(&keep.name))
        {
            return Err(ReserveError::NameInUse);
        }
        for keep in keeps {
            let entry = Entry {
                memory: None,
                charge: Rc::clone(&charge),
                owner: Some(holder.connection),
                user: holder.user.into(),
                lifetime: Duration::from_millis(keep.lifetime_ms.into()).min(self.longest),
                survives: keep.survives,
                end: None,
            };
            self.entries.insert(keep.name, entry);
            self.owners.entry(holder.connection).or_default().insert(keep.name);
        }
        Ok(charge)
    }

    /// Stores the array of the call with this charge. Returns the memory if the array is not wanted any more.
    pub fn settle(
        &mut self,
        name: HeldArrayName,
        charge: &Rc<Reservation>,
        memory: M,
        now: Instant,
    ) -> Option<M> {
        let entry = self.entries.get_mut(&name).filter(|entry| entry.awaits(charge));
        let Some(entry) = entry else { return Some(memory) };
        entry.memory = Some(memory);
        let end = now.checked_add(entry.lifetime);
        entry.end = end;
        self.ends.extend(end.map(|end| (end, name)));
        None
    }

    /// The array of a name, if it belongs to the asking user. If its connection was lost, the asking
    /// connection takes it over, if it may.
    pub fn find(
        &mut self,
        name: HeldArrayName,
        asks: Holder<'_>,
        now: Instant,
    ) -> Result<&M, LookupError> {
        let entry = self.entries.get_mut(&name).filter(|entry| *entry.user == *asks.user);
        let entry = entry.ok_or(LookupError::Unknown)?;
        if entry.end.is_some_and(|end| end <= now) {
            return Err(LookupError::Unknown);
        }
        if asks.adopts && entry.memory.is_some() && entry.owner.is_none() {
            entry.owner = Some(asks.connection);
            self.owners.entry(asks.connection).or_default().insert(name);
            // Its lifetime begins anew. Its connection's end still ends it.
            let end = now.checked_add(entry.lifetime);
            if let Some(old) = std::mem::replace(&mut entry.end, end) {
                self.ends.remove(&(old, name));
            }
            self.ends.extend(end.map(|end| (end, name)));
        }
        entry.memory.as_ref().ok_or(LookupError::NotYet)
    }

    /// Drops an array of this user. Returns its memory, if it had any.
    pub fn let_go(&mut self, name: HeldArrayName, user: &str) -> Option<M> {
        let entry = self.entries.get(&name)?;
        if *entry.user == *user { self.remove(name) } else { None }
    }

    /// The call with this charge has failed to make the array.
    pub fn abandon(&mut self, name: HeldArrayName, charge: &Rc<Reservation>) {
        if self.entries.get(&name).is_some_and(|entry| entry.awaits(charge)) {
            // It has no memory yet.
            self.remove(name);
        }
    }

    /// Drops an array. Returns its memory, if it had any.
    fn remove(&mut self, name: HeldArrayName) -> Option<M> {
        let entry = self.entries.remove(&name)?;
        if let Some(end) = entry.end {
            self.ends.remove(&(end, name));
        }
        if let Some(owner) = entry.owner
            && let Some(names) = self.owners.get_mut(&owner)
        {
            names.remove(&name);
            if names.is_empty() {
                self.owners.remove(&owner);
            }
        }
        entry.memory
    }

    /// A connection was lost. Its arrays expire soon, except those that are to survive.
    pub fn owner_lost(&mut self, owner: u64, now: Instant) -> Vec<M> {
        let mut gone = Vec::new();
        for name in self.owners.remove(&owner).unwrap_or_default() {
            let Some(entry) = self.entries.get_mut(&name) else { continue };
            entry.owner = None;
            if entry.survives {
                continue;
            }
            let soon = now.checked_add(self.grace);
            match (entry.end, soon) {
                // Its call ends with the connection.
                (None, _) => gone.extend(self.remove(name)),
                (Some(end), Some(soon)) if soon < end => {
                    entry.end = Some(soon);
                    self.ends.remove(&(end, name));
                    self.ends.insert((soon, name));
                }
                _ => {}
            }
        }
        gone
    }

    /// Drops expired arrays. Returns their memory.
    pub fn expire(&mut self, now: Instant) -> Vec<M> {
        let mut gone = Vec::new();
        while let Some(&(end, name)) = self.ends.first() {
            if end > now {
                break;
            }
            self.ends.remove(&(end, name));
            gone.extend(self.remove(name));
        }
        gone
    }

    /// When the next array expires.
    pub fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|(end, _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(index: u32) -> HeldArrayName {
        HeldArrayName { secret: [7; 16], index }
    }

    fn keep(index: u32, lifetime_ms: u32) -> HeldResult {
        HeldResult { name: name(index), lifetime_ms, sent: false, survives: false }
    }

    fn who(connection: u64) -> Holder<'static> {
        Holder { connection, user: "ada", adopts: true }
    }

    const HOUR: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);

    fn table() -> Table<u32> {
        Table::new(100, HOUR, 10 * SECOND)
    }

    #[test]
    fn memory_is_bounded_until_it_is_let_go() {
        let (mut table, now) = (table(), Instant::now());
        let both = [keep(1, 1000), keep(2, 1000)];
        let charge = table.reserve(both.iter(), 60, who(1)).expect("there is room");
        assert_eq!(
            table.reserve([keep(3, 1)].iter(), 41, who(1)).err(),
            Some(ReserveError::NoMemory(100))
        );
        assert_eq!(
            table.reserve([keep(2, 1)].iter(), 1, who(1)).err(),
            Some(ReserveError::NameInUse)
        );
        assert_eq!(
            table.reserve([keep(4, 1), keep(4, 1)].iter(), 1, who(1)).err(),
            Some(ReserveError::NameInUse)
        );
        assert_eq!(table.bytes(), 60, "what was refused has taken nothing");
        assert_eq!(table.find(name(1), who(1), now), Err(LookupError::NotYet));
        assert_eq!(table.settle(name(1), &charge, 11, now), None);
        assert_eq!(table.settle(name(1), &charge, 12, now), Some(12), "it is there already");
        assert_eq!(table.settle(name(2), &charge, 22, now), None);
        table.abandon(name(2), &charge);
        drop(charge);
        assert_eq!(table.remove(name(1)), Some(11));
        assert_eq!(table.bytes(), 60, "the other has the same memory");
        assert_eq!(table.remove(name(2)), Some(22));
        assert_eq!((table.bytes(), table.remove(name(2))), (0, None));
        assert!(table.owners.is_empty() && table.ends.is_empty());
    }

    #[test]
    fn a_name_that_is_taken_again_is_the_later_calls() {
        let (now, wanted) = (Instant::now(), [keep(1, 1000)]);
        for first_ends_well in [true, false] {
            let mut table = table();
            let first = table.reserve(wanted.iter(), 10, who(1)).expect("there is room");
            assert_eq!(table.let_go(name(1), "ada"), None);
            let second = table.reserve(wanted.iter(), 20, who(1)).expect("the name is free");
            if first_ends_well {
                assert_eq!(table.settle(name(1), &first, 11, now), Some(11), "it was let go");
            } else {
                table.abandon(name(1), &first);
            }
            assert_eq!(table.find(name(1), who(1), now), Err(LookupError::NotYet));
            assert_eq!(table.settle(name(1), &second, 22, now), None);
            assert_eq!(table.find(name(1), who(1), now), Ok(&22));
            // In the other order: the later call ends first.
            table.abandon(name(1), &first);
            assert_eq!(table.settle(name(1), &first, 12, now), Some(12));
            assert_eq!(table.find(name(1), who(1), now), Ok(&22));
            assert_eq!(table.bytes(), 30);
            drop(first);
            drop(second);
            assert_eq!((table.bytes(), table.let_go(name(1), "ada")), (20, Some(22)));
            assert_eq!(table.bytes(), 0);
        }
    }

    #[test]
    fn lifetimes_end() {
        let (mut table, now) = (table(), Instant::now());
        let both = [keep(1, 1000), keep(2, u32::MAX)];
        let charge = table.reserve(both.iter(), 2, who(1)).expect("there is room");
        assert_eq!(table.next_end(), None, "a lifetime begins when the array is there");
        table.settle(name(1), &charge, 11, now);
        table.settle(name(2), &charge, 22, now + SECOND);
        drop(charge);
        assert_eq!(table.next_end(), Some(now + SECOND));
        assert!(table.expire(now).is_empty());
        assert_eq!(table.find(name(1), who(1), now + SECOND), Err(LookupError::Unknown));
        assert_eq!(table.expire(now + SECOND), [11]);
        assert_eq!(table.find(name(2), who(1), now + HOUR), Ok(&22));
        assert_eq!(table.expire(now + HOUR + SECOND), [22], "the server's limit");
        assert_eq!(table.bytes(), 0);
    }

    #[test]
    fn lost_owners_have_a_time_of_grace() {
        let (mut table, now) = (table(), Instant::now());
        let survivor = HeldResult { survives: true, ..keep(3, 60_000) };
        let all = [keep(1, 60_000), keep(2, 5000), survivor, keep(4, 60_000), keep(5, 1)];
        let charge = table.reserve(all.iter(), 3, who(1)).expect("there is room");
        for index in 1..=4 {
            table.settle(name(index), &charge, index, now);
        }
        drop(charge);
        assert!(table.owner_lost(1, now).is_empty());
        assert_eq!(
            table.find(name(5), who(1), now),
            Err(LookupError::Unknown),
            "its call has ended"
        );
        // A connection that may not take over arrays asks, which changes nothing.
        let passing = Holder { adopts: false, ..who(3) };
        assert_eq!(table.find(name(1), passing, now), Ok(&1));
        // Another connection asks, and takes the array over.
        assert_eq!(table.find(name(4), who(2), now + SECOND), Ok(&4));
        assert_eq!(table.expire(now + 5 * SECOND), [2]);
        assert_eq!(table.expire(now + 10 * SECOND), [1]);
        assert_eq!(table.expire(now + 60 * SECOND), [3]);
        assert!(table.owner_lost(2, now + 60 * SECOND).is_empty());
        assert_eq!(table.expire(now + 61 * SECOND), [4], "its lifetime ends before the grace");
        assert_eq!(table.bytes(), 0);
    }

    #[test]
    fn arrays_of_one_user_are_not_anothers() {
        let (mut table, now) = (table(), Instant::now());
        let bob = Holder { connection: 2, user: "bob", adopts: true };
        let charge = table.reserve([keep(1, 60_000)].iter(), 1, who(1)).expect("there is room");
        assert_eq!(
            table.find(name(1), bob, now),
            Err(LookupError::Unknown),
            "not even that it is to come"
        );
        table.settle(name(1), &charge, 11, now);
        assert_eq!(table.find(name(1), bob, now), Err(LookupError::Unknown));
        assert_eq!(table.let_go(name(1), "bob"), None);
        assert!(table.owner_lost(1, now).is_empty());
        assert_eq!(
            table.find(name(1), bob, now),
            Err(LookupError::Unknown),
            "nor does he take it over"
        );
        assert_eq!(table.find(name(1), who(3), now), Ok(&11), "another connection of hers");
        assert_eq!(table.let_go(name(1), "ada"), Some(11));
    }
}
