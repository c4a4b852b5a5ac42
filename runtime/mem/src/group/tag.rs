//! Tags of the messages of collectives, so that groups, calls after one another and different calls never mix.
//!
//! | bits | meaning |
//! |---|---|
//! | 31 | 1: the library's own |
//! | 15 to 30 | the group; [`NO_GROUP`] for messages that are of none |
//! | 8 to 14 | number of the call in the group |
//! | 4 to 7 | [`Collective`] |
//! | 0 to 3 | root |
//!
//! Two members whose calls of the same number differ in the low bits have called different collectives.

/// Most groups that a rank makes before the numbers of those that are gone are used again.
pub(crate) const NO_GROUP: u32 = 0xffff;
/// Calls that differ by so many have the same tag; messages of a pair come in their order.
pub(crate) const CALLS: u32 = 128;

/// The collective that a message is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Collective {
    Barrier = 0,
    Broadcast,
    Reduce,
    Allreduce,
    Scan,
    ExclusiveScan,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    ReduceScatter,
    /// Making a group of this one.
    Group,
    /// Making the memory that members of a node share.
    Share,
}

impl Collective {
    /// All, with their names in messages.
    const ALL: [(Collective, &str); 13] = [
        (Collective::Barrier, "barrier"),
        (Collective::Broadcast, "broadcast"),
        (Collective::Reduce, "reduce"),
        (Collective::Allreduce, "allreduce"),
        (Collective::Scan, "scan"),
        (Collective::ExclusiveScan, "exclusive scan"),
        (Collective::Gather, "gather"),
        (Collective::Scatter, "scatter"),
        (Collective::Allgather, "allgather"),
        (Collective::Alltoall, "alltoall"),
        (Collective::ReduceScatter, "reduce-scatter"),
        (Collective::Group, "the making of a group"),
        (Collective::Share, "the making of shared memory"),
    ];
}

/// The tag of a call: the root is 0 where there is none.
pub(crate) fn tag(group: u32, call: u32, what: Collective, root: u32) -> i32 {
    let low = ((call % CALLS) << 8) | ((what as u32) << 4) | (root % 16);
    ((1 << 31) | (group << 15) | low).cast_signed()
}

/// The bits of a tag that say which call it is of: the group's, and the call's number in it.
pub(crate) fn call_bits(tag: i32) -> i32 {
    tag & !0xff
}

/// The collective of a tag that is a message's of the same group and call as `wanted`, but of another collective or root.
pub(crate) fn other_call(wanted: i32, found: i32) -> Option<(&'static str, &'static str)> {
    let same_call = call_bits(wanted) == call_bits(found);
    let group = (wanted.cast_unsigned() >> 15) & 0xffff;
    if wanted >= 0 || group == NO_GROUP || wanted == found || !same_call {
        return None;
    }
    let name = |tag: i32| {
        let what = usize::try_from((tag >> 4) & 0xf).unwrap_or_default();
        Collective::ALL.get(what).map_or("a collective of another version", |(_, name)| *name)
    };
    Some((name(wanted), name(found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_say_what_differs() {
        let barrier = tag(3, 5, Collective::Barrier, 0);
        assert!(barrier < 0);
        assert_eq!(other_call(barrier, barrier), None);
        let reduce = tag(3, 5, Collective::Reduce, 0);
        assert_eq!(other_call(barrier, reduce), Some(("barrier", "reduce")));
        let other_root = tag(3, 5, Collective::Reduce, 1);
        assert_eq!(other_call(reduce, other_root), Some(("reduce", "reduce")));
        assert_eq!(other_call(barrier, tag(3, 6, Collective::Reduce, 0)), None, "the next call");
        assert_eq!(other_call(barrier, tag(4, 5, Collective::Reduce, 0)), None, "another group");
        assert_eq!(tag(3, 5 + CALLS, Collective::Barrier, 16), barrier, "bits that there are not");
        for (at, (what, name)) in Collective::ALL.iter().enumerate() {
            let found = other_call(tag(1, 0, *what, 1), tag(1, 0, *what, 0));
            assert_eq!((*what as usize, found), (at, Some((*name, *name))));
        }
    }

    /// The tags of messages that belong to no group, such as those that make windows.
    #[test]
    fn small_numbers_are_no_groups() {
        for own in -13i32..0 {
            assert_eq!((own.cast_unsigned() >> 15) & 0xffff, NO_GROUP);
            assert_eq!(other_call(own, own ^ 1), None);
        }
        assert!(tag(NO_GROUP - 1, CALLS - 1, Collective::Share, 15) < -13);
    }
}
