//! Groups made of others: split by colour, chosen members, duplicates.

use std::sync::Arc;

use crate::collective::schedule::{Call, Counts, Topology};
use crate::context::Context;
use crate::error::Error;
use crate::group::numbers::{FREE_WORDS, agreed, least_free};
use crate::group::tag::Collective;
use crate::group::{Group, GroupState, StateOf};

impl<'c> Group<'c> {
    /// Makes a group of the members with the same colour, ordered by their keys and then by their numbers here. All members
    /// call this; without a colour a member gets no group.
    ///
    /// # Errors
    /// [`Error::TooManyGroups`] at all members; [`Error::GroupDisagrees`], [`Error::Fault`], [`Error::Io`].
    pub fn split(&self, colour: Option<u32>, key: i64) -> Result<Option<Group<'c>>, Error> {
        let word = colour.map_or(u64::MAX, u64::from);
        let (number, words) = self.agree([word, key.cast_unsigned()])?;
        let Some(colour) = colour else { return Ok(None) };
        let with = |(_, [other, _]): &(u32, [u64; 2])| *other == u64::from(colour);
        let mut chosen: Vec<_> = (0..).zip(words).filter(with).collect();
        chosen.sort_by_key(|(member, [_, key])| (key.cast_signed(), *member));
        let members: Vec<u32> = chosen.into_iter().map(|(member, _)| member).collect();
        self.make(number, &members)
    }

    /// Makes a group of these members, in this order. All members of this group call this with the same list; those that
    /// are not in it get no group.
    ///
    /// # Errors
    /// At all members: [`Error::BadMembers`] if a member has another list, or the list of one names a member twice or one
    /// that does not exist; [`Error::TooManyGroups`]. [`Error::GroupDisagrees`], [`Error::Fault`], [`Error::Io`].
    pub fn subset(&self, members: &[u32]) -> Result<Option<Group<'c>>, Error> {
        let mut seen = std::collections::HashSet::new();
        let good = members.iter().all(|it| *it < self.members() && seen.insert(*it));
        let (number, words) = self.agree([u64::from(!good), digest(members)])?;
        if let Some(member) = words.iter().position(|[bad, _]| *bad != 0) {
            let what = "its list names a member twice, or one that does not exist";
            return Err(Error::BadMembers { member: member as u32, what });
        }
        let mine = digest(members);
        if let Some(member) = words.iter().position(|[_, digest]| *digest != mine) {
            let what = "its list is another one";
            return Err(Error::BadMembers { member: member as u32, what });
        }
        self.make(number, members)
    }

    /// Makes a group with the same members, whose collectives do not mix with those of this one: for a library that a
    /// program calls.
    ///
    /// # Errors
    /// As [`Group::split`].
    pub fn duplicate(&self) -> Result<Group<'c>, Error> {
        let (number, _) = self.agree([0, 0])?;
        let members: Vec<u32> = (0..self.members()).collect();
        let made = self.make(number, &members)?;
        made.ok_or_else(|| Error::Fault("a member is missing in its own group".into()))
    }

    /// Tells the others two words and learns theirs; also a number for a group that no other group has at any member.
    fn agree(&self, [one, other]: [u64; 2]) -> Result<(ReservedNumber<'c>, Vec<[u64; 2]>), Error> {
        loop {
            let next = u64::from(self.context.groups.next());
            let told = self.all_words([one, other, next])?;
            let number = match agreed(told.iter().map(|words| words[2] as u32)) {
                Some(number) => number,
                None => {
                    let free = self.all_words::<FREE_WORDS>(self.context.groups.free_words())?;
                    least_free(&free).ok_or(Error::TooManyGroups)?
                }
            };
            // Another thread may make a group of the same members, and take the number at some of them first.
            let mine = ReservedNumber::take(self.context, number);
            let taken = self.all_words([u64::from(mine.is_some())])?;
            if let Some(mine) = mine.filter(|_| taken.iter().all(|[taken]| *taken != 0)) {
                let words = told.into_iter().map(|[one, other, _]| [one, other]);
                return Ok((mine, words.collect()));
            }
        }
    }

    /// Some words of every member.
    fn all_words<const N: usize>(&self, mine: [u64; N]) -> Result<Vec<[u64; N]>, Error> {
        let mut all = vec![[0; N]; self.members() as usize];
        let call = Call::Allgather { counts: Counts::Equal(N) };
        self.run(Collective::Group, call, &mine, all.as_flattened_mut())?;
        Ok(all)
    }

    /// The group of these members of this one; none for others.
    fn make(
        &self,
        number: ReservedNumber<'c>,
        members: &[u32],
    ) -> Result<Option<Group<'c>>, Error> {
        let Some(me) = members.iter().position(|member| *member == self.member()) else {
            return Ok(None);
        };
        let topology = self.topology()?;
        let nodes = members.iter().map(|member| topology.node_of(*member) as u64);
        let ranks: Result<Arc<[u32]>, Error> =
            members.iter().map(|member| self.rank_of(*member)).collect();
        let ranks = Some(ranks?);
        let state = GroupState::new(number.keep(), ranks, me as u32, Some(&self.context.groups));
        state.topology.get_or_init(|| Topology::new(nodes));
        Ok(Some(Group { context: self.context, state: StateOf::Own(Box::new(state)) }))
    }
}

/// A number that no other group has here; free again when it is dropped, as by members that are not in the group.
struct ReservedNumber<'c> {
    context: &'c Context,
    number: u32,
}

impl<'c> ReservedNumber<'c> {
    /// None if another group has it.
    fn take(context: &'c Context, number: u32) -> Option<ReservedNumber<'c>> {
        context.groups.take(number).then(|| ReservedNumber { context, number })
    }

    /// The group frees it.
    fn keep(self) -> u32 {
        let number = self.number;
        std::mem::forget(self);
        number
    }
}

impl Drop for ReservedNumber<'_> {
    fn drop(&mut self) {
        self.context.groups.free(self.number);
    }
}

/// A word that differs for lists that differ, as good as surely (FNV-1a).
fn digest(members: &[u32]) -> u64 {
    let bytes = members.iter().flat_map(|member| member.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};

    use super::*;

    /// Two threads make groups of the same members, each from a duplicate of its own.
    #[test]
    fn groups_that_are_made_at_one_time_have_their_own_numbers() {
        let context = Context::init_singleton().expect("a job of one");
        let copies = [(); 2].map(|()| context.group().duplicate().expect("duplicate"));
        let rounds = if cfg!(miri) { 5 } else { 2000 };
        let (begin, made) = (Barrier::new(2), Mutex::new(Vec::new()));
        std::thread::scope(|threads| {
            for copy in &copies {
                let (begin, made) = (&begin, &made);
                threads.spawn(move || {
                    for _ in 0..rounds {
                        begin.wait();
                        let group = copy.duplicate().expect("duplicate");
                        made.lock().expect("no panic").push(group);
                    }
                });
            }
        });
        let numbers: HashSet<u32> =
            made.lock().expect("no panic").iter().map(|group| group.state().number).collect();
        assert_eq!(numbers.len(), 2 * rounds);
    }

    #[test]
    fn members_that_are_not_in_a_group_free_its_number() {
        let context = Context::init_singleton().expect("a job of one");
        let free = context.groups.free_words();
        assert!(context.group().split(None, 0).expect("split").is_none());
        assert!(context.group().subset(&[7]).is_err());
        assert_eq!(context.groups.free_words(), free);
        let made = context.group().duplicate().expect("duplicate");
        assert_ne!(context.groups.free_words(), free);
        drop(made);
        assert_eq!(context.groups.free_words(), free);
    }

    /// A new group with its number would get messages of the old one's request.
    #[test]
    fn a_group_keeps_its_number_until_its_requests_are_over() {
        let context = Context::init_singleton().expect("a job of one");
        let free = context.groups.free_words();
        let made = context.group().duplicate().expect("duplicate");
        let calls = [1, 2].map(|call| made.call_under_way(call));
        let taken = context.groups.free_words();
        drop(made);
        for call in calls {
            assert_eq!(context.groups.free_words(), taken);
            drop(call);
        }
        assert_eq!(context.groups.free_words(), free);
    }
}
