//! Groups: some ranks of a job, with collectives of their own.
//!
//! A group has a number that is its alone at each of its members, and counts its calls. Both stand in the tags of its
//! messages, so that groups that share members and calls after one another never mix.

mod creation;
pub(crate) mod memory;
pub(crate) mod numbers;
mod renewal;
pub(crate) mod tag;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::collective;
use crate::collective::schedule::Topology;
use crate::context::Context;
use crate::error::Error;
use crate::group::memory::NodeMemory;
use crate::group::numbers::GroupNumbers;
use crate::group::tag::Collective;

/// Some ranks of a job, in an order: its *members*. They are numbered from 0, and collectives of the group are among them
/// alone. A job's own group is [`Context::group`]; others are made of it and of one another.
///
/// All members of a group call its collectives in the same order, with the same root, operation and length. A member
/// that finds another one in another collective gets [`Error::GroupDisagrees`], and one that finds another length
/// [`Error::BadLength`]; others may then wait for ever. Groups that share members never mix, in whatever order their
/// collectives are called.
///
/// ```
/// use kumi_mem::{Context, Op};
///
/// # fn main() -> Result<(), kumi_mem::Error> {
/// let context = Context::init_singleton()?;
/// // The ranks with even numbers, and those with odd ones.
/// let colour = context.rank() % 2;
/// let half = context.group().split(Some(colour), 0)?.expect("each has a colour");
/// let mut sum = [u64::from(context.rank())];
/// half.allreduce(Op::Sum, &mut sum)?;
/// assert_eq!(half.members(), context.ranks().div_ceil(2) - colour * (context.ranks() % 2));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Group<'c> {
    context: &'c Context,
    state: StateOf<'c>,
}

#[derive(Debug)]
enum StateOf<'c> {
    /// The job's, which stays.
    Job(&'c GroupState),
    Own(Box<GroupState>),
}

/// What a rank knows of a group.
#[derive(Debug)]
pub(crate) struct GroupState {
    number: u32,
    /// Rank of each member; none if they are those of the job.
    ranks: Option<Arc<[u32]>>,
    me: u32,
    topology: OnceLock<Topology>,
    /// What the members of this node share; none if they share nothing.
    memory: OnceLock<Option<NodeMemory>>,
    /// Calls begun.
    calls: AtomicU32,
    under_way: Arc<CallsUnderWay>,
}

impl GroupState {
    /// The group of all ranks.
    pub(crate) fn job(rank: u32) -> GroupState {
        GroupState::new(0, None, rank, None)
    }

    /// A group whose number is free again in `numbers` when the group is gone, and all its requests.
    fn new(
        number: u32,
        ranks: Option<Arc<[u32]>>,
        me: u32,
        numbers: Option<&Arc<GroupNumbers>>,
    ) -> GroupState {
        let (topology, memory) = (OnceLock::new(), OnceLock::new());
        let frees = numbers.map(|numbers| (Arc::clone(numbers), number));
        let (calls, under_way) =
            (AtomicU32::new(0), CallsUnderWay { calls: Mutex::default(), frees });
        let under_way = Arc::new(under_way);
        GroupState { number, ranks, me, topology, memory, calls, under_way }
    }
}

impl Context {
    /// The group of all ranks of the job, whose members have their numbers.
    #[must_use]
    pub fn group(&self) -> Group<'_> {
        Group { context: self, state: StateOf::Job(&self.job_group) }
    }
}

impl<'c> Group<'c> {
    pub(crate) fn state(&self) -> &GroupState {
        match &self.state {
            StateOf::Job(state) => state,
            StateOf::Own(state) => state,
        }
    }

    pub(crate) fn context(&self) -> &'c Context {
        self.context
    }

    /// This rank's number in the group.
    #[must_use]
    pub fn member(&self) -> u32 {
        self.state().me
    }

    /// How many members there are.
    #[must_use]
    pub fn members(&self) -> u32 {
        let ranks = self.state().ranks.as_ref();
        ranks.map_or_else(|| self.context.ranks(), |ranks| ranks.len() as u32)
    }

    /// The rank of a member.
    ///
    /// # Errors
    /// [`Error::BadMember`].
    pub fn rank_of(&self, member: u32) -> Result<u32, Error> {
        self.check_member(member)?;
        let ranks = self.state().ranks.as_ref();
        Ok(ranks.map_or(member, |ranks| ranks[member as usize]))
    }

    /// The number of a rank in the group, if it is a member.
    #[must_use]
    pub fn member_of(&self, rank: u32) -> Option<u32> {
        match &self.state().ranks {
            None => (rank < self.context.ranks()).then_some(rank),
            Some(ranks) => ranks.iter().position(|it| *it == rank).map(|member| member as u32),
        }
    }

    /// # Errors
    /// [`Error::BadMember`].
    pub(crate) fn check_member(&self, member: u32) -> Result<(), Error> {
        let members = self.members();
        if member < members { Ok(()) } else { Err(Error::BadMember { member, members }) }
    }

    /// The members by node. Those of the job tell each other at the first call, unless all know it.
    pub(crate) fn topology(&self) -> Result<&Topology, Error> {
        let known = &self.state().topology;
        if let Some(topology) = known.get() {
            return Ok(topology);
        }
        let (attachment, ranks) = (self.context.attachment(), self.context.ranks());
        let words = match (attachment.local_count(), ranks) {
            (here, all) if here == all as usize => vec![0; here],
            (_, 2) => vec![0, 1],
            _ => {
                // Ranks of a node follow one another.
                let first = u64::from(self.context.rank()) - attachment.local() as u64;
                collective::all_words(self.context, [first])?.into_iter().flatten().collect()
            }
        };
        Ok(known.get_or_init(|| Topology::new(words)))
    }

    /// The tag of the call that was begun last.
    pub(crate) fn tag(&self, what: Collective, root: u32) -> i32 {
        self.tag_of(self.state().calls.load(Relaxed), what, root)
    }

    /// Begins the next call; its tag.
    ///
    /// # Errors
    /// As [`Group::next_call`].
    pub(crate) fn begin(&self, what: Collective, root: u32) -> Result<i32, Error> {
        let call = self.next_call()?;
        self.count_call(call);
        Ok(self.tag(what, root))
    }

    /// The number of the next call, which has not begun.
    ///
    /// # Errors
    /// [`Error::TooManyRequests`] if one that is under way, or was given up, has the same tags.
    pub(crate) fn next_call(&self) -> Result<u32, Error> {
        let state = self.state();
        let next = state.calls.load(Relaxed).wrapping_add(1);
        let oldest = state.under_way.lock().first().copied();
        if oldest.is_some_and(|oldest| next.wrapping_sub(oldest) >= tag::CALLS) {
            return Err(Error::TooManyRequests { most: tag::CALLS });
        }
        Ok(next)
    }

    /// This call has begun: the next one gets another number.
    pub(crate) fn count_call(&self, call: u32) {
        self.state().calls.store(call, Relaxed);
    }

    /// The tag of a call.
    pub(crate) fn tag_of(&self, call: u32, what: Collective, root: u32) -> i32 {
        tag::tag(self.state().number, call, what, root)
    }

    /// The call is under way as long as the result is there.
    pub(crate) fn call_under_way(&self, call: u32) -> CallUnderWay {
        let under_way = &self.state().under_way;
        under_way.lock().insert(call);
        CallUnderWay { calls: Arc::clone(under_way), call, half_done: false }
    }

    /// The ranks of the members; none if they are those of the job.
    pub(crate) fn ranks(&self) -> Option<Arc<[u32]>> {
        self.state().ranks.clone()
    }

    /// The members by node, if they have told each other.
    pub(crate) fn known_topology(&self) -> Option<&Topology> {
        self.state().topology.get()
    }

    pub(crate) fn memory(&self) -> Option<&NodeMemory> {
        self.state().memory.get()?.as_ref()
    }
}

/// The calls of a group that are requests and not over. One that this member gave up stays here, since its messages may still
/// come: the group never uses its tag again, nor any other group this one's number.
#[derive(Debug)]
struct CallsUnderWay {
    calls: Mutex<BTreeSet<u32>>,
    /// The number of the group, which nobody else gets before this is gone.
    frees: Option<(Arc<GroupNumbers>, u32)>,
}

impl CallsUnderWay {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // Nothing panics while it is locked.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallsUnderWay {
    fn drop(&mut self) {
        if let Some((numbers, number)) = &self.frees
            && self.lock().is_empty()
        {
            numbers.free(*number);
        }
    }
}

/// A call that is a request.
#[derive(Debug)]
pub(crate) struct CallUnderWay {
    calls: Arc<CallsUnderWay>,
    call: u32,
    /// This member has begun its part, and not done all of it.
    half_done: bool,
}

impl CallUnderWay {
    /// From here on messages of other members may come that only this call takes.
    pub(crate) fn begun(&mut self) {
        self.half_done = true;
    }

    /// This member has done its part.
    pub(crate) fn done(&mut self) {
        self.half_done = false;
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        if !self.half_done {
            self.calls.lock().remove(&self.call);
        }
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        let StateOf::Own(state) = &self.state else { return };
        if self.context.is_copy() {
            // Another thread may have held the lock of the numbers when the process was copied.
            std::mem::forget(Arc::clone(&state.under_way));
            return;
        }
        if let Some(Some(memory)) = state.memory.get()
            && let Err(error) = memory.free(self.context)
        {
            // The memory stays with this process until it ends.
            eprintln!("kumi: rank {}: freeing a group: {error}", self.context.rank());
        }
    }
}
