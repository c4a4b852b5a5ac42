//! The daemon's side of the segment: layout, samples of damaged contents, the launch block.
#![cfg(not(miri))] // Files and their rights are the kernel's.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};

use kumi_net::launch::{LaunchBlock, LaunchDescriptors, LaunchError, bind_socket, doorbell};
use kumi_net::layout::{
    Layout, PAGE, PEER_OTHERS, PeerEntry, RankContext, RingPosition, SegmentPart, SharedLines,
};
use kumi_net::segment::{FilesOfRank, Segment, SegmentError, SegmentFiles, SegmentSpec};
use kumi_net::{PEERS_LISTED, PeerCounters};
use proptest::prelude::*;

fn spec(ranks: u32, local: std::ops::Range<u32>) -> SegmentSpec {
    let arena_bytes = 1 << 20;
    let local_ranks = local;
    let (channel_key, seal_key, ring_bytes) = (7, None, 8192);
    SegmentSpec { channel_key, seal_key, ranks, local_ranks, ring_bytes, arena_bytes }
}

#[test]
fn fresh_segment_samples_as_unattached_and_busy() {
    let (segment, _) = Segment::create(&spec(4, 1..3)).expect("segment");
    for local in 0..2 {
        let sample = segment.sample(local);
        assert!(!sample.idle && !sample.attached);
        assert!(sample.counters.iter().all(|(_, value)| *value == 0));
        assert_eq!(sample.counters[0].0, "sent");
    }
    assert!(segment.sample(2).counters.is_empty(), "no such rank");
}

#[test]
fn a_rank_has_something_to_do_until_it_waits_and_nothing_has_come() {
    use kumi_net::segment::RankActivity;
    use std::mem::offset_of;
    let (segment, files) = Segment::create(&spec(4, 1..3)).expect("segment");
    let layout = Layout::new(4, 1, 2, 8192, 1 << 20).expect("layout");
    let write = |at: usize, bytes: &[u8]| scribble(&files, &layout, at, bytes);
    let at = |field: usize, bytes: &[u8]| write(layout.context(1) + field, bytes);
    let (attached, idle) = (offset_of!(RankContext, state), offset_of!(RankContext, state) + 4);
    let counter = |attachment: usize| offset_of!(RankContext, counters) + 8 * attachment;
    let attachment = |name: &str| {
        let counters = segment.sample(1).counters;
        counter(counters.iter().position(|(found, _)| *found == name).expect("a counter"))
    };
    let standing = || segment.rank_activity(1);
    assert_eq!(standing(), RankActivity::default());
    at(idle, &1_u32.to_ne_bytes());
    assert!(!standing().waits, "nobody is there");
    at(attached, &1_u32.to_ne_bytes());
    assert!(standing().waits && !standing().pending);
    let pending = layout.lines(1) + offset_of!(SharedLines, wake) + 8;
    let counters = [attachment("unread"), attachment("unacked_packets")];
    for place in counters.map(|field| layout.context(1) + field).into_iter().chain([pending]) {
        write(place, &1_u64.to_ne_bytes());
        assert!(standing().pending);
        write(place, &0_u64.to_ne_bytes());
        assert!(!standing().pending);
    }
    at(idle, &0_u32.to_ne_bytes());
    at(attachment("unread"), &1_u64.to_ne_bytes());
    assert!(!standing().pending, "it waits for something else");
    at(idle, &1_u32.to_ne_bytes());
    assert!(standing().pending, "its wait may take it");
    at(attachment("unread"), &0_u64.to_ne_bytes());
    let names = ["sent", "delivered", "waits_spun", "waits_blocked"];
    for (sum, name) in names.into_iter().enumerate() {
        at(attachment(name), &7_u64.to_ne_bytes());
        assert_eq!(standing().sums[sum], 7);
    }
    at(attachment("unread"), &1_u64.to_ne_bytes());
    at(attached, &2_u32.to_ne_bytes());
    assert!(!standing().waits && !standing().pending, "it has left");
    assert_eq!((segment.rank_activity(0), segment.rank_activity(9)), Default::default());
}

#[test]
fn peers_are_read_where_the_layout_says() {
    let (segment, files) = Segment::create(&spec(4, 1..3)).expect("segment");
    assert!(segment.sample_peers(0).is_empty() && segment.sample_peers(9).is_empty());
    let layout = Layout::new(4, 1, 2, 8192, 1 << 20).expect("layout");
    let table = layout.context(1) + std::mem::offset_of!(RankContext, peers);
    let write = |entry: usize, words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        scribble(&files, &layout, table + entry * size_of::<PeerEntry>(), &bytes);
    };
    // Rank 3, rank 3 again, a rank that does not exist, all others.
    write(0, &[4, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26]);
    write(1, &[4, 99]);
    write(2, &[5, 98]);
    write(PEERS_LISTED, &[PEER_OTHERS, 97]);
    let peers = segment.sample_peers(1);
    let listed = PeerCounters {
        rank: Some(3),
        data_out: 10,
        acks_out: 11,
        nacks_out: 12,
        probes_out: 13,
        data_in: 14,
        acks_in: 15,
        nacks_in: 16,
        probes_in: 17,
        bytes_out: 18,
        bytes_in: 19,
        resends: 20,
        duplicates: 21,
        round_trip_us: 22,
        unacked_packets: 23,
        unacked_bytes: 24,
        limit: 25,
        fragmented: 26,
    };
    assert_eq!(peers, [listed, PeerCounters { data_out: 97, ..PeerCounters::default() }]);
    assert!(segment.sample_peers(0).is_empty());
}

#[test]
fn senseless_specs_are_refused() {
    for (ranks, local) in [(4, 2..5), (4, 2..2), (2000, 0..1000), (0, 0..0)] {
        let result = Segment::create(&spec(ranks, local));
        assert!(matches!(result, Err(SegmentError::BadSpec { .. })), "{result:?}");
    }
    let huge = SegmentSpec { arena_bytes: u64::MAX, ..spec(4, 0..4) };
    assert!(matches!(Segment::create(&huge), Err(SegmentError::BadSpec { .. })));
}

#[test]
fn peers_need_one_address_each_and_a_possible_datagram() {
    let (mut segment, _) = Segment::create(&spec(2, 0..2)).expect("segment");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let few = segment.publish_peers(&[address], 1472);
    assert!(matches!(few, Err(SegmentError::AddressCount { given: 1, ranks: 2 })));
    let tiny = segment.publish_peers(&[address; 2], 100);
    assert!(matches!(tiny, Err(SegmentError::BadDatagram(100))));
    let other = SocketAddr::from((Ipv6Addr::LOCALHOST, 9));
    let mixed = segment.publish_peers(&[address, other], 1472);
    assert!(matches!(mixed, Err(SegmentError::TwoFamilies)));
    segment.publish_peers(&[other; 2], 1472).expect("good peers");
    segment.publish_peers(&[address; 2], 1472).expect("good peers");
}

#[test]
fn no_file_can_shrink_or_grow() {
    let (_segment, files) = Segment::create(&spec(2, 0..2)).expect("segment");
    let own = files.for_rank(0);
    for file in [own.job, own.shared, own.ranks[0][0], own.ranks[0][1], own.ranks[1][0]] {
        for length in [0, 1 << 40] {
            // SAFETY: a plain system call on an open descriptor.
            let result = unsafe { libc::ftruncate(file.as_raw_fd(), length) };
            assert_eq!(result, -1, "the seal must refuse {length}");
        }
    }
}

/// The bytes of a file as a hostile rank would get at them: mapped for writing, or made writable later, or written.
fn can_write(file: BorrowedFd<'_>) -> bool {
    let map = |protection| {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        }
    };
    let writable = map(libc::PROT_READ | libc::PROT_WRITE) != libc::MAP_FAILED;
    let readable = map(libc::PROT_READ);
    assert_ne!(readable, libc::MAP_FAILED, "everybody may read it");
    // SAFETY: the page that was just mapped, to which nobody has a reference.
    let made_writable =
        unsafe { libc::mprotect(readable, PAGE, libc::PROT_READ | libc::PROT_WRITE) } == 0;
    // SAFETY: as above.
    let removed = unsafe { libc::madvise(readable, PAGE, libc::MADV_REMOVE) } == 0;
    // SAFETY: one byte is read from a constant.
    let written = unsafe { libc::pwrite(file.as_raw_fd(), c"".as_ptr().cast(), 1, 0) } == 1;
    assert_eq!([made_writable, written], [writable; 2]);
    assert!(!removed || made_writable, "pages taken back");
    writable
}

#[test]
fn the_kernel_refuses_each_rank_what_it_may_not_write() {
    let (_segment, files) = Segment::create(&spec(3, 0..3)).expect("segment");
    for me in 0..3 {
        let FilesOfRank { job, shared, ranks } = files.for_rank(me);
        assert!(!can_write(job) && can_write(shared));
        for (other, files) in ranks.into_iter().enumerate() {
            assert_eq!(files.map(can_write), [other == me; 2], "{me} writes files of {other}");
        }
    }
}

/// Whoever opens a descriptor's file once more gets what its mode and its seals permit.
#[test]
fn a_file_opened_once_more_gives_no_other_rights() {
    let (mut segment, files) = Segment::create(&spec(1, 0..1)).expect("segment");
    segment.publish_peers(&[SocketAddr::from((Ipv4Addr::LOCALHOST, 9))], 1472).expect("peers");
    let own = files.for_rank(0);
    let again = |file: BorrowedFd<'_>| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mode = std::fs::metadata(&path).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "other users cannot open it");
        std::fs::OpenOptions::new().read(true).write(true).open(path).expect("the same user can")
    };
    assert!(!can_write(again(own.job).as_fd()), "sealed from the start");
    assert!(can_write(again(own.ranks[0][0]).as_fd()), "its rank has still to map it");
    let (socket, _) = bind_socket((Ipv4Addr::LOCALHOST, 0)).expect("socket");
    let bells = vec![doorbell().expect("doorbell")];
    let own = LaunchDescriptors::of(&own, socket, bells).expect("dup");
    let attached = kumi_net::Attachment::attach(&own.block(1, 0, 1, 0), own).expect("attach");
    assert!(!can_write(again(files.for_rank(0).ranks[0][0]).as_fd()), "sealed by its rank");
    drop(attached);
}

#[test]
fn arenas_hold_the_memory_twice_and_fit_an_address_space() {
    let arena = |ranks, memory| kumi_net::layout::arena_bytes(ranks, memory);
    assert_eq!(arena(1, 1 << 20), 8 << 30);
    assert_eq!(arena(16, 64 << 30), 128 << 30);
    assert_eq!(arena(0, u64::MAX), 1 << 45);
    for ranks in 1..=512 {
        for memory in [0, 1 << 33, (1 << 40) + 12_345, u64::MAX] {
            let layout = Layout::new(1024, 0, ranks, 1 << 18, arena(ranks, memory));
            assert!(layout.is_some(), "{ranks} ranks, {memory} bytes");
        }
    }
}

#[test]
fn a_large_segment_takes_no_memory_until_used() {
    let arena_bytes = 64 << 30;
    let segment = Segment::create(&SegmentSpec { arena_bytes, ..spec(1024, 0..64) });
    let (_segment, files) = segment.expect("segment");
    let own = files.for_rank(0);
    let used = |file: BorrowedFd<'_>| {
        let file = std::fs::File::from(file.try_clone_to_owned().expect("dup"));
        std::os::unix::fs::MetadataExt::blocks(&file.metadata().expect("metadata")) * 512
    };
    let all = [own.job, own.shared].into_iter().chain(own.ranks.into_iter().flatten());
    let used: u64 = all.map(used).sum();
    assert!(used < 1 << 20, "{used} bytes used");
}

#[test]
fn launch_survives_the_environment() {
    let (socket, port) = bind_socket((Ipv4Addr::LOCALHOST, 0)).expect("socket");
    assert_ne!(port, 0);
    let bells: Vec<_> = (0..3).map(|_| doorbell().expect("doorbell")).collect();
    let (_segment, files) = Segment::create(&spec(9, 2..5)).expect("segment");
    let own = LaunchDescriptors::of(&files.for_rank(1), socket, bells).expect("dup");
    let launch = own.block(u64::MAX, 3, 9, 2);
    assert_eq!(launch.descriptors().count(), 3 + 3 * 3);
    let variables = launch.to_env();
    let look = |list: &[(String, String)], name: &str| {
        list.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    };
    assert_eq!(LaunchBlock::from_lookup(|name| look(&variables, name)), Ok(launch));
    assert_eq!(LaunchBlock::from_lookup(|_| None), Err(LaunchError::NotLaunched));
    for (attachment, value) in
        [(0, "x"), (1, "9"), (1, "-1"), (4, "1,2"), (4, "1,2,x"), (4, "1,2,-3")]
    {
        let mut broken = variables.clone();
        broken[attachment].1 = value.to_string();
        let result = LaunchBlock::from_lookup(|name| look(&broken, name));
        assert!(
            matches!(result, Err(LaunchError::BadVariable { .. })),
            "{attachment} {value}: {result:?}"
        );
    }
}

/// Lets a test scribble over a segment as a broken rank would, at a place of the range.
fn scribble(files: &SegmentFiles, layout: &Layout, offset: usize, bytes: &[u8]) {
    let (part, at) = layout.locate(offset, 0);
    let file = match part {
        SegmentPart::Job => panic!("nobody writes it"),
        SegmentPart::Shared => files.for_rank(0).shared,
        SegmentPart::Rank(local) => files.for_rank(local).ranks[local][0],
        SegmentPart::Arena(local) => files.for_rank(local).ranks[local][1],
    };
    let file = std::fs::File::from(file.try_clone_to_owned().expect("dup"));
    let length = bytes.len().min(layout.bytes_of(part) - at);
    file.write_all_at(&bytes[..length], at as u64).expect("write");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn sampling_accepts_any_contents(
        writes in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 1..64)), 1..40),
        fill in prop::option::of(any::<u8>()),
    ) {
        let (segment, files) = Segment::create(&spec(3, 0..3)).expect("segment");
        let layout = Layout::new(3, 0, 3, 8192, 1 << 20).expect("layout");
        if let Some(byte) = fill {
            scribble(&files, &layout, layout.shared, &vec![byte; layout.open_arenas - layout.shared]);
            for local in 0..3 {
                scribble(&files, &layout, layout.context(local), &vec![byte; layout.rank_front]);
            }
        }
        for (offset, bytes) in &writes {
            // Lines and contexts, not the arenas between them.
            let (lines, contexts) =
                (layout.open_arenas - layout.shared, layout.readable_arenas - layout.rank_files);
            let at = *offset as usize % (lines + contexts);
            let at = if at < lines { layout.shared + at } else { layout.rank_files + at - lines };
            scribble(&files, &layout, at, bytes);
        }
        for local in 0..5 {
            let sample = segment.sample(local);
            prop_assert!(local >= 3 || sample.counters.len() > 10);
            let peers = segment.sample_peers(local);
            prop_assert!(peers.iter().all(|peer| peer.rank.is_none_or(|rank| rank < 3)));
            prop_assert!(peers.len() <= 4, "three ranks and the others, each once");
        }
    }

    #[test]
    fn layouts_never_overlap(
        ranks in 0u32..3000, first in 0u32..3000, count in 0u32..600,
        ring in 0u64..(1 << 30), arena in 0u64..(1 << 48),
    ) {
        let ring = ring.next_power_of_two();
        let arena = arena & !(PAGE as u64 - 1);
        if let Some(layout) = Layout::new(ranks, first, count, ring, arena) {
            let last = layout.local_count as usize - 1;
            let position = size_of::<RingPosition>();
            prop_assert!(layout.peers + ranks as usize * 8 <= layout.shared);
            prop_assert!(layout.lines(last + 1) == layout.open_arenas);
            prop_assert!(layout.open_arena(last + 1) == layout.rank_files);
            prop_assert!(layout.tail(0, last) + position == layout.head(0, 0));
            prop_assert!(layout.head(last, 0) + position <= layout.ring(0, 0));
            prop_assert!(layout.ring(last, last) + layout.ring_bytes == layout.readable_arenas);
            prop_assert!(layout.readable_arena(last + 1) == layout.channel);
            prop_assert!(layout.channel + layout.channel_bytes == layout.total);
            let files = (0..=last).map(|local| {
                layout.bytes_of(SegmentPart::Rank(local)) - layout.channel_bytes
                    + layout.bytes_of(SegmentPart::Arena(local))
            });
            let files = files.sum::<usize>() + layout.channel_bytes;
            let first = layout.bytes_of(SegmentPart::Job) + layout.bytes_of(SegmentPart::Shared);
            prop_assert_eq!(first + files, layout.total);
            let end = layout.readable_arena(last + 1);
            for (offset, place) in [
                (0, (SegmentPart::Job, 0)),
                (layout.lines(last), (SegmentPart::Shared, layout.lines(last) - layout.shared)),
                (layout.context(last), (SegmentPart::Rank(last), 0)),
                (end.wrapping_sub(1), (SegmentPart::Arena(last), (arena as usize).wrapping_sub(1))),
                (layout.channel, (SegmentPart::Rank(0), layout.rank_front)),
            ] {
                if arena > 0 && (offset < layout.channel || layout.channel_bytes > 0) {
                    prop_assert_eq!(layout.locate(offset, 0), place);
                }
            }
        }
    }
}
