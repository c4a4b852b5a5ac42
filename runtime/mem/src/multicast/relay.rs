//! Multicast, the members' side: write the data, forward it, combine the answers.
//!
//! Data is kept only until the rings to the children have taken it, up to [`KEPT_PER_RANK`]. Of a batch
//! that is to be answered a few words are kept until then.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kumi_net::layout::NOTIFIES;
use kumi_net::{AnswerSender, Attachment, ChannelError, CopySource, Delivery, SharedBytes};
use kumi_proto::Rank;
use kumi_proto::frame::{self, FrameHeader, MULTICAST_BYTES, MulticastAppend, WindowKey};

use super::records::{DirectAppends, RecordRefusals};
use crate::engine::{Engine, MOST_ANSWERS, PlainFrame, QueuedAnswer};
use crate::error::Refusal;
use crate::window::key::is_private;
use crate::window::mapped_piece::MappedPiece;
use crate::window::strided::Shape;
use crate::window::table::{Access, check};

/// Most bytes kept for forwarding, for each rank of the job. Ranks that keep to the rules of
/// `docs/reference/channel-protocol.md` never reach it. Beyond it frames are refused for now; since
/// that does not happen among such ranks, forwarding in circles cannot block.
const KEPT_PER_RANK: usize = 256 * 1024;
/// Bytes that a frame costs beside its data and members.
const OVERHEAD: usize = 64;
/// Batches of one rank that may wait for answers here.
const RELAYS_PER_RANK: usize = 64;

/// A multicast's frame.
#[derive(Clone, Copy)]
pub(crate) struct MulticastFrame<'l, S> {
    pub(crate) token: u64,
    pub(crate) window: WindowKey,
    pub(crate) offset: u64,
    pub(crate) notify: Option<u32>,
    pub(crate) members: &'l [u8],
    pub(crate) data: S,
}

/// A batch that waits for the answers of the children.
#[derive(Debug)]
struct PendingRelay {
    /// Whom to answer, and the token there; none: the own multicast.
    up: Option<(Rank, u64)>,
    waiting: Vec<Rank>,
    refused: Option<(Rank, Refusal)>,
    /// Of a record: ranks that had no room.
    full: Option<Vec<Rank>>,
    /// How many there can be.
    most_full: usize,
}

impl PendingRelay {
    /// The answer once all children have answered.
    fn answer(self) -> Option<(Rank, QueuedAnswer)> {
        let (up, token) = self.up?;
        let refused = self.refused;
        Some((
            up,
            match self.full {
                None => QueuedAnswer::Multicast { token, refused },
                Some(full) => QueuedAnswer::MulticastAppend { token, refused, full },
            },
        ))
    }
}

/// A frame that waits for room in the rings to the children.
#[derive(Debug)]
pub(super) struct PendingForward {
    pub(super) token: u64,
    /// Each rank's key of the window.
    pub(super) keys: Arc<[WindowKey]>,
    pub(super) offset: u64,
    pub(super) notify: Option<u32>,
    /// Data is a record, whose, and for signal ports if that is said.
    pub(super) record: Option<(Rank, bool)>,
    /// Children that do not have it yet, with their lists of members.
    pub(super) children: Vec<(Rank, Vec<u8>)>,
    pub(super) data: Vec<u8>,
    pub(super) cost: usize,
}

impl PendingForward {
    /// The header in front of members and data, for a child.
    fn header(&self, to: Rank, members: &[u8]) -> FrameHeader {
        let PendingForward { token, offset, notify, .. } = *self;
        let (window, data) = (self.keys[to as usize], &[][..]);
        match self.record {
            None => PlainFrame::Multicast { token, window, offset, notify, members, data }.header(),
            Some((source, signal)) => {
                let append =
                    MulticastAppend { token, window, offset, signal, source, members, data };
                PlainFrame::MulticastAppend(append).header()
            }
        }
    }
}

/// The multicasts of a rank: its own and those it forwards.
#[derive(Debug, Default)]
pub(crate) struct MulticastTable {
    /// By the token that the children answer with.
    relays: HashMap<u64, PendingRelay>,
    forwards: VecDeque<PendingForward>,
    /// Cost of all forwards together.
    kept: usize,
    /// Own records for members without room.
    pub(super) directs: DirectAppends,
}

/// Splits a list into children and their members: the first of the second half with the others of that
/// half, then the same with the first half.
pub(super) fn split(members: &[Rank]) -> Vec<(Rank, Vec<Rank>)> {
    let (mut rest, mut children) = (members, Vec::new());
    while !rest.is_empty() {
        let (first, second) = rest.split_at(rest.len() / 2);
        children.push((second[0], second[1..].to_vec()));
        rest = first;
    }
    children
}

/// Members as a frame lists them.
pub(crate) fn list(members: &[Rank]) -> Vec<u8> {
    members.iter().flat_map(|rank| rank.to_le_bytes()).collect()
}

impl MulticastTable {
    pub(super) fn begin(
        &mut self,
        token: u64,
        up: Option<(Rank, u64)>,
        children: impl Iterator<Item = Rank>,
    ) {
        let relay = PendingRelay {
            up,
            waiting: children.collect(),
            refused: None,
            full: None,
            most_full: 0,
        };
        self.relays.insert(token, relay);
    }

    /// As [`MulticastTable::begin`], of a record, with what is known before the children answer.
    pub(super) fn begin_record(
        &mut self,
        token: u64,
        up: Option<(Rank, u64)>,
        children: impl Iterator<Item = Rank>,
        RecordRefusals { refused, full }: RecordRefusals,
        most_full: usize,
    ) {
        let (waiting, full) = (children.collect(), Some(full));
        let relay = PendingRelay { up, waiting, refused, full, most_full };
        self.relays.insert(token, relay);
    }

    /// A child whose answer is still to come.
    pub(super) fn waiting(&self, token: u64) -> Option<Rank> {
        self.relays.get(&token).and_then(|relay| relay.waiting.first().copied())
    }

    /// Ends an own batch; returns the first refusal, if any.
    pub(super) fn take(&mut self, token: u64) -> Option<(Rank, Refusal)> {
        self.relays.remove(&token).and_then(|relay| relay.refused)
    }

    /// How many more ranks can have had no room for a record.
    pub(super) fn may_be_full(&self, token: u64) -> Option<usize> {
        let relay = self.relays.get(&token)?;
        Some(relay.most_full - relay.full.as_ref()?.len())
    }

    /// An own record that was sent to one child, for the engine's tests.
    #[cfg(test)]
    pub(crate) fn expect_record(&mut self, token: u64, child: Rank, members: usize) {
        self.begin_record(token, None, [child].into_iter(), RecordRefusals::default(), members);
    }

    /// Ends an own record's way through the trees.
    pub(super) fn take_record(&mut self, token: u64) -> RecordRefusals {
        let relay = self.relays.remove(&token);
        let refusals = |relay: PendingRelay| RecordRefusals {
            refused: relay.refused,
            full: relay.full.unwrap_or_default(),
        };
        relay.map(refusals).unwrap_or_default()
    }

    /// Forgets the own ones.
    pub(super) fn give_up(&mut self) {
        self.relays.retain(|_, relay| relay.up.is_some());
        self.directs.clear();
    }

    /// Whether something of this cost may be kept to be forwarded.
    pub(super) fn has_room(&self, attachment: &Attachment, cost: usize) -> bool {
        let ranks = attachment.ranks() as usize;
        self.kept + cost <= KEPT_PER_RANK * ranks && self.relays.len() < RELAYS_PER_RANK * ranks
    }

    /// Keeps a frame until the rings to the children have taken it.
    pub(super) fn keep(&mut self, forward: PendingForward) {
        self.kept += forward.cost;
        self.forwards.push_back(forward);
    }

    /// Others wait for an answer of this rank or its children.
    pub(crate) fn relaying(&self) -> bool {
        !self.relays.is_empty() || self.owes()
    }

    /// There are frames to be forwarded.
    pub(crate) fn owes(&self) -> bool {
        !self.forwards.is_empty()
    }

    /// Forwards what the rings take; the order for each child is kept. Children in `full` get
    /// nothing now.
    pub(crate) fn hand_out(
        &mut self,
        full: &mut Vec<Rank>,
        send: &mut AnswerSender<'_>,
    ) -> Result<(), ChannelError> {
        for _ in 0..self.forwards.len() {
            let Some(mut forward) = self.forwards.pop_front() else { break };
            let mut left = Vec::new();
            for (to, list) in std::mem::take(&mut forward.children) {
                let header = forward.header(to, &list);
                let parts: [&[u8]; 3] = [&header, &list, &forward.data];
                if full.contains(&to) || !send(to, &parts, SharedBytes::default())? {
                    if !full.contains(&to) {
                        full.push(to);
                    }
                    left.push((to, list));
                }
            }
            if left.is_empty() {
                self.kept -= forward.cost;
            } else {
                forward.children = left;
                self.forwards.push_back(forward);
            }
        }
        Ok(())
    }
}

impl Engine {
    /// A multicast has come. An error is a sender's fault.
    pub(crate) fn multicast(
        &mut self,
        attachment: &Attachment,
        from: Rank,
        cast: &MulticastFrame<'_, impl CopySource>,
    ) -> Result<Delivery, String> {
        // Those without a token are not answered.
        if cast.token != 0 && self.answers.len() >= MOST_ANSWERS {
            return Ok(Delivery::Full);
        }
        let (keys, data) = (self.windows.keys(cast.window), cast.data);
        let (mapped, by_frames) =
            sort(attachment, &keys, frame::members(cast.members), |key| !is_private(key))?;
        if keys.is_empty() {
            return Ok(self.refuse_cast(attachment, from, cast.token));
        }
        let length = MULTICAST_BYTES + cast.members.len() + data.len();
        if !by_frames.is_empty() && length > self.longest {
            return Err("a multicast that is too long to be forwarded".into());
        }
        if !by_frames.is_empty()
            && !self.multicasts.has_room(attachment, cost(data.len(), &by_frames))
        {
            return Ok(Delivery::Full);
        }
        let mut refused = None;
        for rank in mapped {
            if let Err(reason) = self.write_mapped(attachment, rank, keys[rank as usize], cast) {
                refused.get_or_insert((rank, reason));
                self.refused_here += 1;
            }
        }
        if by_frames.is_empty() {
            if cast.token != 0 {
                self.answers
                    .push_back((from, QueuedAnswer::Multicast { token: cast.token, refused }));
            }
            return Ok(Delivery::Taken);
        }
        self.forward(from, cast, refused, keys, &by_frames);
        Ok(Delivery::Taken)
    }

    /// The other ranks' keys went with the window: nobody behind this rank has the data.
    fn refuse_cast(&mut self, attachment: &Attachment, from: Rank, token: u64) -> Delivery {
        self.refused_here += 1;
        if token != 0 {
            let refused = Some((attachment.rank(), Refusal::Window));
            self.answers.push_back((from, QueuedAnswer::Multicast { token, refused }));
        }
        Delivery::Taken
    }

    /// Keeps a frame until the rings to the children have taken it.
    fn forward(
        &mut self,
        from: Rank,
        cast: &MulticastFrame<'_, impl CopySource>,
        refused: Option<(Rank, Refusal)>,
        keys: Arc<[WindowKey]>,
        by_frames: &[Rank],
    ) {
        let children = split(by_frames);
        let token = if cast.token == 0 { 0 } else { self.token() };
        if token != 0 {
            let ranks = children.iter().map(|child| child.0);
            self.multicasts.begin(token, Some((from, cast.token)), ranks);
            if let Some(relay) = self.multicasts.relays.get_mut(&token) {
                relay.refused = refused;
            }
        }
        let MulticastFrame { offset, notify, .. } = *cast;
        let children = children.into_iter().map(|(rank, rest)| (rank, list(&rest))).collect();
        let (mut data, record) = (Vec::new(), None);
        cast.data.append_to(&mut data);
        let cost = cost(data.len(), by_frames);
        let forward = PendingForward { token, keys, offset, notify, record, children, data, cost };
        self.multicasts.keep(forward);
    }

    /// Writes into the window of a rank of this node, the own one or another.
    fn write_mapped(
        &self,
        attachment: &Attachment,
        rank: Rank,
        window: WindowKey,
        cast: &MulticastFrame<'_, impl CopySource>,
    ) -> Result<(), Refusal> {
        let MulticastFrame { offset, notify, data, .. } = *cast;
        let local = attachment.local_of(rank).ok_or(Refusal::Window)?;
        if local == attachment.local() {
            let shape = Shape::whole(offset, data.len() as u64);
            return self.windows.put(attachment.own_lines(), window, &shape, notify, data);
        }
        let mapped = MappedPiece::find(attachment, local, window).ok_or(Refusal::Window)?;
        check(mapped.rights, mapped.size, offset, data.len() as u64, Access::Write)?;
        if notify.is_some_and(|notify| notify as usize >= NOTIFIES) {
            return Err(Refusal::Notify);
        }
        mapped.writable().slice(offset as usize, data.len()).copy_from(data);
        if let Some(notify) = notify {
            mapped.raise(attachment, local, notify);
        }
        Ok(())
    }

    /// A child says that it and those behind it have a batch. One that nobody waits for (the
    /// program gave up) is dropped.
    pub(crate) fn multicast_done(&mut self, from: Rank, token: u64, refused: Option<(Rank, u8)>) {
        self.child_answered(from, token, refused, &[]);
    }

    /// A child has answered for itself and those behind it.
    pub(super) fn child_answered(
        &mut self,
        from: Rank,
        token: u64,
        refused: Option<(Rank, u8)>,
        full: &[Rank],
    ) {
        let Entry::Occupied(mut entry) = self.multicasts.relays.entry(token) else { return };
        let relay = entry.get_mut();
        let Some(at) = relay.waiting.iter().position(|rank| *rank == from) else { return };
        relay.waiting.swap_remove(at);
        let refused = refused.map(|(rank, code)| (rank, Refusal::from_code(code)));
        relay.refused = relay.refused.or(refused);
        if let Some(all) = &mut relay.full {
            all.extend_from_slice(full);
        }
        if relay.waiting.is_empty() && relay.up.is_some() {
            self.answers.extend(entry.remove().answer());
        }
    }
}

/// Splits members into those whose memory this process reaches itself, the own rank first, and the others. `keys` are the
/// ranks' keys of the window, and `reaches` tells it of a key of a rank of this node.
pub(super) fn sort(
    attachment: &Attachment,
    keys: &[WindowKey],
    members: impl Iterator<Item = Rank>,
    reaches: impl Fn(WindowKey) -> bool,
) -> Result<(Vec<Rank>, Vec<Rank>), String> {
    let (mut mapped, mut by_frames) = (vec![attachment.rank()], Vec::new());
    for member in members {
        if member >= attachment.ranks() {
            return Err(format!("a multicast to rank {member}, which does not exist"));
        }
        let reached = keys.get(member as usize).is_some_and(|key| reaches(*key));
        if member == attachment.rank() || (attachment.local_of(member).is_some() && reached) {
            mapped.push(member);
        } else {
            by_frames.push(member);
        }
    }
    Ok((mapped, by_frames))
}

/// Cost of keeping so many bytes for these members.
pub(super) fn cost(bytes: usize, by_frames: &[Rank]) -> usize {
    bytes + 4 * by_frames.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::key::RandomSource;
    use kumi_proto::frame::Frame;
    use proptest::prelude::*;

    /// Follows a tree; the longest way in it.
    fn walk(members: &[Rank], reached: &mut Vec<Rank>) -> u32 {
        let mut depth = 0;
        for (child, rest) in split(members) {
            reached.push(child);
            depth = depth.max(1 + walk(&rest, reached));
        }
        depth
    }

    fn forward(token: u64, children: &[Rank]) -> PendingForward {
        let children = children.iter().map(|rank| (*rank, list(&[50 + rank]))).collect();
        let (offset, notify, data) = (0, None, vec![token as u8; 10]);
        let (keys, record) = ((100..200).collect(), None);
        PendingForward { token, keys, offset, notify, record, children, data, cost: 100 }
    }

    /// A ring that is full keeps back what comes later for the same child, and nobody else's.
    #[test]
    fn forwards_keep_the_order_of_each_child() {
        let mut casts = MulticastTable::default();
        for (token, children) in [(1, &[5, 6][..]), (2, &[6]), (3, &[5, 6])] {
            casts.forwards.push_back(forward(token, children));
            casts.kept += 100;
        }
        let mut sent = Vec::new();
        // 6 takes nothing at first, then one at a time.
        for room in [0, 1, 1, 5] {
            let mut left = room;
            let mut send = |to, parts: &[&[u8]], _: SharedBytes<'_>| {
                let frame = parts.concat();
                let Ok(Frame::Multicast { token, window, members, .. }) = Frame::decode(&frame)
                else {
                    panic!("{frame:?}")
                };
                assert_eq!((members, window), (&list(&[50 + to])[..], 100 + u64::from(to)));
                if to == 6 {
                    if left == 0 {
                        return Ok(false);
                    }
                    left -= 1;
                }
                sent.push((to, token));
                Ok(true)
            };
            casts.hand_out(&mut Vec::new(), &mut send).expect("send");
        }
        assert_eq!(sent, [(5, 1), (5, 3), (6, 1), (6, 2), (6, 3)]);
        assert_eq!((casts.kept, casts.owes()), (0, false));
        casts.forwards.push_back(forward(4, &[5]));
        let mut send =
            |_, _: &[&[u8]], _: SharedBytes<'_>| panic!("5 has an older answer to come first");
        casts.hand_out(&mut vec![5], &mut send).expect("nothing sent");
        assert!(casts.owes());
    }

    /// Only the answer of an awaited child counts, and once; the first refusal is reported.
    #[test]
    fn answers_are_combined() {
        let attachment = Attachment::singleton(1 << 20).expect("attachment");
        let mut engine = Engine::new(1000, attachment.arena_bytes(), RandomSource::Seeded(3));
        engine.multicasts.begin(3, Some((8, 70)), [1, 2].into_iter());
        engine.multicasts.begin(4, None, [1, 2].into_iter());
        for (from, token) in [(1, 3), (1, 3), (9, 3), (2, 9), (1, 4)] {
            engine.multicast_done(from, token, (from == 1).then_some((31, 2)));
        }
        assert!(engine.answers.is_empty());
        assert_eq!(engine.multicasts.waiting(4), Some(2));
        engine.multicast_done(2, 3, Some((32, 1)));
        let answer = engine.answers.pop_front();
        let refused = Some((31, Refusal::Right));
        assert!(
            matches!(answer, Some((8, QueuedAnswer::Multicast { token: 70, refused: told }))
                if told == refused),
            "{answer:?}"
        );
        engine.multicast_done(2, 4, None);
        assert_eq!(engine.multicasts.waiting(4), None);
        assert_eq!(engine.multicasts.take(4), refused);
        assert!(!engine.multicasts.relaying());
    }

    proptest! {
        #[test]
        fn a_tree_reaches_everybody_once_and_is_flat(count in 0usize..300) {
            let members: Vec<Rank> = (10..10 + count as u32).collect();
            let mut reached = Vec::new();
            let depth = walk(&members, &mut reached);
            reached.sort_unstable();
            prop_assert_eq!(reached, members);
            prop_assert_eq!(depth, (count + 1).ilog2());
        }
    }
}
