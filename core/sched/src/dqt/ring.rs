//! Queue of a tree node: a ring of lanes whose turn order survives interruptions.
//!
//! A lane is one job or, with fair shares, the jobs of one user. The position in the ring stays
//! when the node is deactivated. So a part of the tree that is interrupted in its second round
//! continues there the next time (SCore-D paper, figure 7.2). A round of a queue lasts until the
//! ring is back at its first position. It ends at a mark, which moves when lanes come and go. So no
//! lane loses a turn when another ends, and a new lane is first served in the next round.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{JobId, UserId};

/// No member, lane or tree node.
pub(super) const NONE: u32 = u32::MAX;

/// A placed job.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: JobId,
    pub(super) user: UserId,
    /// Turns in a round, at least 1.
    pub(super) turns: u16,
    /// The tree node in whose queue it is.
    pub(super) node: u32,
    /// Its place in the ring; `NONE` while it is inactive.
    lane: u32,
    prev: u32,
    next: u32,
}

impl Member {
    pub(super) fn active(&self) -> bool {
        self.lane != NONE
    }
}

#[derive(Clone, Debug)]
struct Lane {
    prev: u32,
    next: u32,
    /// Turns it has when the ring gets to it.
    visit: u16,
    /// The member whose turn is next, and how many it has had.
    cursor: u32,
    served: u16,
    /// Turns that its members ask for in a round.
    weight: u64,
}

/// The part of a queue that a tree node keeps.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// The lane whose turn is next, and how many turns of its visit are over.
    cursor: u32,
    served: u16,
    /// Where the round ends, in the form of `cursor` and `served`. Meaningful while `laps` is not
    /// 0.
    end: u32,
    end_served: u16,
    /// How often the ring must still reach the mark before the round ends; 0 without a round.
    laps: u64,
    /// Some lane has had a turn in this round.
    begun: bool,
    lanes: u32,
    /// The largest weight of a lane.
    most: u64,
    /// Turns of one visit to every lane.
    turns: u64,
}

impl Default for Queue {
    fn default() -> Self {
        let (cursor, end) = (NONE, NONE);
        let (served, end_served, laps) = (0, 0, 0);
        let (begun, lanes, most, turns) = (false, 0, 0, 0);
        Self { cursor, served, end, end_served, laps, begun, lanes, most, turns }
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes == 0
    }

    /// The round is over, or there is none.
    pub(super) fn is_over(&self) -> bool {
        self.laps == 0
    }

    /// Turns of a round that visits every lane once.
    pub(super) fn turns(&self) -> u64 {
        self.turns
    }

    /// Each lane has one turn when the ring gets to it.
    pub(super) fn is_plain(&self) -> bool {
        self.turns == u64::from(self.lanes)
    }

    /// Ends the round where it is.
    pub(super) fn stop(&mut self) {
        (self.laps, self.begun, self.end, self.end_served) = (0, false, NONE, 0);
    }

    /// The cursor is at the mark.
    fn arrived(&self) -> bool {
        self.cursor == self.end && self.served == self.end_served
    }

    /// Whether the turns to come are the same.
    pub(super) fn same(&self, other: &Self) -> bool {
        let mark = |queue: &Self| (queue.laps > 0).then_some((queue.end, queue.end_served));
        let position = |queue: &Self| (queue.cursor, queue.served, queue.laps, mark(queue));
        position(self) == position(other)
    }
}

/// The members and lanes of all queues of a tree.
#[derive(Clone, Debug)]
pub(super) struct Rings {
    shares: bool,
    pub(super) members: Vec<Member>,
    free_members: Vec<u32>,
    lanes: Vec<Lane>,
    free_lanes: Vec<u32>,
    /// With fair shares the lane of each user in a tree node's queue.
    by_user: BTreeMap<(u32, UserId), u32>,
}

impl Rings {
    pub(super) fn new(shares: bool) -> Self {
        Self {
            shares,
            members: Vec::new(),
            free_members: Vec::new(),
            lanes: Vec::new(),
            free_lanes: Vec::new(),
            by_user: BTreeMap::new(),
        }
    }

    /// A new member of tree node `node`, inactive.
    pub(super) fn add(&mut self, id: JobId, user: UserId, turns: u16, node: u32) -> u32 {
        let member = Member { id, user, turns, node, lane: NONE, prev: NONE, next: NONE };
        insert(&mut self.members, &mut self.free_members, member)
    }

    /// Forgets an inactive member; its number will be used again.
    pub(super) fn remove(&mut self, member: u32) {
        self.free_members.push(member);
    }

    /// The tree nodes have new numbers.
    pub(super) fn renumber(&mut self, new: impl Fn(u32) -> u32) {
        for member in &mut self.members {
            member.node = new(member.node);
        }
        let old = core::mem::take(&mut self.by_user);
        self.by_user =
            old.into_iter().map(|((node, user), lane)| ((new(node), user), lane)).collect();
    }

    /// Begins a round of a queue that is not empty.
    pub(super) fn start(&self, queue: &mut Queue) {
        (queue.end, queue.end_served, queue.begun) = (queue.cursor, queue.served, false);
        queue.laps = if self.shares { queue.most } else { 1 };
    }

    /// One turn of a queue in its round: returns the member that has it.
    pub(super) fn turn(&mut self, queue: &mut Queue) -> u32 {
        let lane = &mut self.lanes[queue.cursor as usize];
        let number = lane.cursor;
        let member = &self.members[number as usize];
        lane.served += 1;
        if lane.served >= member.turns {
            (lane.cursor, lane.served) = (member.next, 0);
        }
        queue.served += 1;
        if queue.served >= lane.visit {
            (queue.cursor, queue.served) = (lane.next, 0);
        }
        queue.begun = true;
        queue.laps -= u64::from(queue.arrived());
        number
    }

    /// Users, not members, have equal parts of a queue's turns.
    pub(super) fn shares(&self) -> bool {
        self.shares
    }

    /// Lets this many turns of a queue pass and keeps its round's position; not with fair shares.
    pub(super) fn spin(&mut self, queue: &mut Queue, mut turns: u64) {
        while turns > 0 {
            let lane = &mut self.lanes[queue.cursor as usize];
            let left = u64::from(lane.visit - queue.served);
            if turns < left {
                queue.served += turns as u16;
                lane.served = queue.served;
                break;
            }
            turns -= left;
            lane.served = 0;
            (queue.cursor, queue.served) = (lane.next, 0);
        }
        if !queue.is_over() {
            (queue.end, queue.end_served) = (queue.cursor, queue.served);
        }
    }

    /// The active members of a queue in which each has its own lane, beginning with the next turn.
    pub(super) fn plain(&self, queue: &Queue) -> impl Iterator<Item = u32> + '_ {
        self.around(queue).map(|lane| lane.cursor)
    }

    /// An inactive member takes turns from now on. Its first is in the queue's next round, or the
    /// last of this round if no lane has had a turn in it.
    pub(super) fn join(&mut self, queue: &mut Queue, number: u32) {
        let Member { user, turns, node, .. } = self.members[number as usize];
        let known = if self.shares { self.by_user.get(&(node, user)).copied() } else { None };
        let lane = match known {
            Some(lane) => {
                let before = self.lanes[lane as usize].cursor;
                let prev = core::mem::replace(&mut self.members[before as usize].prev, number);
                self.members[prev as usize].next = number;
                let member = &mut self.members[number as usize];
                (member.prev, member.next) = (prev, before);
                self.lanes[lane as usize].weight += u64::from(turns);
                lane
            }
            None => self.new_lane(queue, number),
        };
        self.members[number as usize].lane = lane;
        queue.most = queue.most.max(self.lanes[lane as usize].weight);
        if self.shares && !queue.is_over() && !queue.begun {
            queue.laps = queue.most;
        }
    }

    fn new_lane(&mut self, queue: &mut Queue, number: u32) -> u32 {
        let member = &mut self.members[number as usize];
        (member.prev, member.next) = (number, number);
        let (visit, weight) = (if self.shares { 1 } else { member.turns }, u64::from(member.turns));
        let key = (member.node, member.user);
        let lane = Lane { prev: NONE, next: NONE, visit, cursor: number, served: 0, weight };
        let lane = insert(&mut self.lanes, &mut self.free_lanes, lane);
        if self.shares {
            self.by_user.insert(key, lane);
        }
        self.link(queue, lane);
        queue.lanes += 1;
        queue.turns += u64::from(visit);
        lane
    }

    /// Puts a lane where its turn comes last. If a round has begun, the lane waits for the next
    /// one.
    fn link(&mut self, queue: &mut Queue, lane: u32) {
        if queue.is_empty() {
            let entry = &mut self.lanes[lane as usize];
            (entry.prev, entry.next) = (lane, lane);
            (queue.cursor, queue.served) = (lane, 0);
            return;
        }
        let before = if queue.is_over() || !queue.begun {
            queue.cursor
        } else if queue.end_served == 0 {
            core::mem::replace(&mut queue.end, lane)
        } else if queue.cursor == queue.end && queue.served >= queue.end_served {
            // The round begins and ends in the middle of one lane's visit: the last place is before
            // the second part of that visit.
            queue.end
        } else {
            self.lanes[queue.end as usize].next
        };
        let prev = core::mem::replace(&mut self.lanes[before as usize].prev, lane);
        self.lanes[prev as usize].next = lane;
        let entry = &mut self.lanes[lane as usize];
        (entry.prev, entry.next) = (prev, before);
    }

    /// An active member takes no more turns. If the round waited only for it, the round ends now.
    pub(super) fn quit(&mut self, queue: &mut Queue, number: u32) {
        let member = &mut self.members[number as usize];
        let Member { turns, prev, next, .. } = *member;
        let lane = core::mem::replace(&mut member.lane, NONE);
        let entry = &mut self.lanes[lane as usize];
        let was = entry.weight;
        entry.weight -= u64::from(turns);
        if next == number {
            self.drop_lane(queue, lane, number);
        } else {
            if entry.cursor == number {
                (entry.cursor, entry.served) = (next, 0);
            }
            self.members[prev as usize].next = next;
            self.members[next as usize].prev = prev;
        }
        if self.shares && was == queue.most {
            queue.most = self.weights(queue).max().unwrap_or(0);
        }
    }

    fn drop_lane(&mut self, queue: &mut Queue, lane: u32, number: u32) {
        let Lane { prev, next, visit, .. } = self.lanes[lane as usize];
        if self.shares {
            let member = &self.members[number as usize];
            self.by_user.remove(&(member.node, member.user));
        }
        self.free_lanes.push(lane);
        queue.lanes -= 1;
        queue.turns -= u64::from(visit);
        if queue.is_empty() {
            *queue = Queue::default();
            return;
        }
        self.lanes[prev as usize].next = next;
        self.lanes[next as usize].prev = prev;
        let (at_cursor, at_end) = (queue.cursor == lane, queue.end == lane);
        let last_part = queue.served < queue.end_served;
        if at_end {
            (queue.end, queue.end_served) = (next, 0);
        }
        if at_cursor {
            (queue.cursor, queue.served) = (next, 0);
            let reached = if at_end { last_part } else { queue.arrived() };
            queue.laps = queue.laps.saturating_sub(u64::from(reached));
        }
    }

    fn weights<'a>(&'a self, queue: &Queue) -> impl Iterator<Item = u64> + 'a {
        self.around(queue).map(|lane| lane.weight)
    }

    fn around<'a>(&'a self, queue: &Queue) -> impl Iterator<Item = &'a Lane> + 'a {
        let (mut at, lanes) = (queue.cursor, queue.lanes);
        (0..lanes).map(move |_| {
            let lane = &self.lanes[at as usize];
            at = lane.next;
            lane
        })
    }

    /// Turns of a whole round of the queue.
    pub(super) fn round(&self, queue: &Queue) -> u64 {
        if self.shares { queue.turns * queue.most } else { queue.turns }
    }

    /// The active members lane by lane, beginning with the lane whose turn is next.
    pub(super) fn active(&self, queue: &Queue) -> Vec<u32> {
        let mut members = Vec::new();
        for lane in self.around(queue) {
            let mut at = lane.cursor;
            loop {
                members.push(at);
                at = self.members[at as usize].next;
                if at == lane.cursor {
                    break;
                }
            }
        }
        members
    }

    /// Whether the order within each lane is the same.
    pub(super) fn same_lanes(&self, other: &Self) -> bool {
        let position = |lane: &Lane| (lane.cursor, lane.served);
        !self.shares || self.lanes.iter().map(position).eq(other.lanes.iter().map(position))
    }
}

/// Puts `entry` into a free place or a new one, and returns its number.
fn insert<T>(entries: &mut Vec<T>, free: &mut Vec<u32>, entry: T) -> u32 {
    if let Some(number) = free.pop() {
        entries[number as usize] = entry;
        return number;
    }
    entries.push(entry);
    (entries.len() - 1) as u32
}
