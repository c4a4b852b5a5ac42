//! Attaching: environments that a rank accepts, and its errors for all others.
#![cfg(not(miri))] // Files and their rights are the kernel's.

use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use kumi_net::launch::{LaunchBlock, LaunchDescriptors, bind_socket, doorbell};
use kumi_net::layout::{ArenaKind, VERSION};
use kumi_net::segment::{Segment, SegmentFiles, SegmentSpec};
use kumi_net::{
    AnswerSender, AttachError, Attachment, Channel, ChannelError, ChannelSettings, CopySource,
    Delivery,
};
use kumi_net::{Handler, SealKey, SpinMode};

struct NoHandler;

impl Handler for NoHandler {
    fn frame<S: CopySource>(&mut self, _: &Attachment, _: u32, _: S) -> Delivery {
        Delivery::Taken
    }
    fn answer(&mut self, _: usize, _: &mut AnswerSender<'_>) -> Result<(), ChannelError> {
        Ok(())
    }
    fn owes_answers(&self) -> bool {
        false
    }
    fn unread(&self) -> u64 {
        0
    }
    fn refused(&self) -> u64 {
        0
    }
}

/// A segment of ranks 1 and 2 of three, with its files.
struct Parts {
    segment: Segment,
    files: SegmentFiles,
}

fn segment(publish: bool) -> Parts {
    let local_ranks = 1..3;
    let seal_key = Some(SealKey([3; 16]));
    let (channel_key, ranks, ring_bytes, arena_bytes) = (9, 3, 4096, 8192);
    let spec = SegmentSpec { channel_key, seal_key, ranks, local_ranks, ring_bytes, arena_bytes };
    let (mut segment, files) = Segment::create(&spec).expect("segment");
    if publish {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        segment.publish_peers(&[address; 3], 1472).expect("peers");
    }
    Parts { segment, files }
}

/// A launch block, and its descriptors.
fn launch(parts: &Parts, rank: u32) -> (LaunchBlock, LaunchDescriptors) {
    let bells = vec![doorbell().expect("doorbell"), doorbell().expect("doorbell")];
    let socket = bind_socket((Ipv4Addr::LOCALHOST, 0)).expect("socket").0;
    let files = parts.files.for_rank(rank.saturating_sub(1) as usize);
    let own = LaunchDescriptors::of(&files, socket, bells).expect("dup");
    (own.block(5, rank, 3, 1), own)
}

/// A file with the contents of another, a byte changed, sealed as a segment's files are.
fn changed(file: BorrowedFd<'_>, at: u64, value: &[u8]) -> OwnedFd {
    let file = File::from(file.try_clone_to_owned().expect("dup"));
    let mut contents = vec![0; file.metadata().expect("metadata").len() as usize];
    file.read_exact_at(&mut contents, 0).expect("read");
    contents[at as usize..][..value.len()].copy_from_slice(value);
    // SAFETY: the name is a C string, and the descriptor is new.
    let copy = unsafe {
        let raw = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(raw >= 0, "memfd");
        File::from_raw_fd(raw)
    };
    copy.write_all_at(&contents, 0).expect("write");
    // SAFETY: a plain system call on an open descriptor.
    let sealed = unsafe {
        libc::fcntl(copy.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)
    };
    assert_eq!(sealed, 0, "seals");
    copy.into()
}

fn attach((block, own): (LaunchBlock, LaunchDescriptors)) -> Result<Attachment, AttachError> {
    Attachment::attach(&block, own).map(|(attachment, _socket)| attachment)
}

#[test]
fn a_rank_attaches_once_and_its_daemon_sees_it() {
    let segment = segment(true);
    let attachment = attach(launch(&segment, 2)).expect("attach");
    assert_eq!(
        (attachment.rank(), attachment.ranks(), attachment.node(), attachment.job()),
        (2, 3, 1, 5)
    );
    assert_eq!(
        (attachment.local(), attachment.local_of(0), attachment.local_of(1)),
        (1, None, Some(0))
    );
    let Parts { segment: daemon, .. } = &segment;
    assert!(daemon.sample(1).attached && !daemon.sample(0).attached);
    let again = attach(launch(&segment, 2));
    assert!(matches!(again, Err(AttachError::AlreadyAttached(2))));
    drop(attachment);
    assert!(!daemon.sample(1).attached);
    let later = attach(launch(&segment, 2));
    assert!(matches!(later, Err(AttachError::AlreadyAttached(2))), "once per job");
}

/// The kernel's flags of the mapping in which an address of this process lies.
fn flags_at(address: usize) -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let mut inside = false;
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
            return flags.split_whitespace().map(str::to_owned).collect();
        }
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        if let Some((Ok(start), Ok(end))) = range
            .map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)))
        {
            inside = (start..end).contains(&address);
        }
    }
    panic!("nothing is mapped at {address:x}");
}

#[test]
fn a_core_dump_has_no_segment() {
    let segment = segment(true);
    let attachment = attach(launch(&segment, 1)).expect("attach");
    let singleton = Attachment::singleton(1 << 20).expect("attachment");
    for attachment in [attachment, singleton] {
        // Contexts lie behind the header with its keys, arenas behind the rings.
        let private = attachment.own_arena(ArenaKind::Private).expect("memory");
        for address in [
            std::ptr::from_ref(attachment.own()) as usize,
            std::ptr::from_ref(attachment.lines(0)) as usize,
            attachment.open_arena(0).as_ptr() as usize,
            attachment.readable_arena(0).as_ptr() as usize,
            private.as_ptr() as usize,
        ] {
            let flags = flags_at(address);
            assert!(flags.iter().any(|flag| flag == "dd"), "{flags:?}");
        }
    }
    let own = [0u8; 8];
    assert!(!flags_at(own.as_ptr() as usize).iter().any(|flag| flag == "dd"));
}

#[test]
fn what_does_not_fit_is_refused() {
    let unpublished = segment(false);
    let result = attach(launch(&unpublished, 1));
    assert!(matches!(result, Err(AttachError::BadSegment(_))), "{result:?}");

    let segment = segment(true);
    let result = attach(launch(&segment, 0));
    assert!(matches!(result, Err(AttachError::BadSegment(_))), "another node's rank");
    let mut few = launch(&segment, 1);
    few.1.local.pop();
    assert!(matches!(attach(few), Err(AttachError::BadSegment(_))));
    let mut other = launch(&segment, 1);
    other.1.job_file = File::open("/proc/self/exe").expect("file").into();
    assert!(matches!(attach(other), Err(AttachError::BadSegment(_))));
    // Each file has to be a sealed one of the right length.
    for which in 0..4 {
        let mut other = launch(&segment, 1);
        let own = &mut other.1;
        let [own_rank, peer] = &mut own.local[..] else { panic!("two ranks") };
        let places = [
            &mut own.shared_file,
            &mut own_rank.rank_file,
            &mut peer.rank_file,
            &mut peer.arena_file,
        ];
        let place = places.into_iter().nth(which).expect("four");
        *place = changed(segment.files.for_rank(0).job, 0, &[]);
        assert!(matches!(attach(other), Err(AttachError::BadSegment(_))), "{which}");
    }
    assert!(attach(launch(&segment, 1)).is_ok(), "and what fits is accepted afterwards");
}

/// What a rank must do about a header with this byte changed to this value.
fn must_be_refused(at: u64, value: u8) -> bool {
    match at {
        // Mark, version, whether addresses are there; ranks of the job.
        0..16 | 24..28 => true,
        // Ranks of this node; bytes of rings, arenas and all.
        32..36 | 40..64 => true,
        36 => false,
        // The length of datagrams, 0x5c0: less than 548, more than 65,507.
        37 => value < 2,
        38..40 => true,
        // Whether packets are encrypted, which they are; nothing.
        64..72 => true,
        // Keys and the first rank: other values make sense too. The rest is not for ranks.
        _ => false,
    }
}

#[test]
fn a_segment_of_another_version_is_refused_with_both_versions() {
    for version in [VERSION - 1, VERSION + 1] {
        let segment = segment(true);
        let mut wrong = launch(&segment, 1);
        wrong.1.job_file = changed(segment.files.for_rank(0).job, 8, &version.to_ne_bytes());
        let error = attach(wrong).expect_err("another version");
        let both = [format!("in version {version}, and this"), format!("knows version {VERSION}:")];
        assert!(both.iter().all(|words| error.to_string().contains(words)), "{error}");
    }
}

/// A rank computes how many packets it sends at once from the length of datagrams.
#[test]
fn datagrams_that_cannot_be_are_refused() {
    for length in [0u32, 1, 31, 547, 65_508, u32::MAX] {
        let segment = segment(true);
        let mut wrong = launch(&segment, 1);
        wrong.1.job_file = changed(segment.files.for_rank(0).job, 36, &length.to_ne_bytes());
        let result = attach(wrong);
        assert!(matches!(result, Err(AttachError::BadSegment(_))), "{length}: {result:?}");
    }
}

/// A rank that has attached believes its copies, whatever becomes of the header and the peer table.
#[test]
fn nothing_is_read_from_the_header_after_attaching() {
    let segment = segment(true);
    let (block, mut own) = launch(&segment, 1);
    // A copy, since nobody can write the real one any more.
    own.job_file = changed(segment.files.for_rank(0).job, 0, &[]);
    let file = File::from(own.job_file.try_clone().expect("dup"));
    let (attachment, socket) = Attachment::attach(&block, own).expect("attach");
    file.write_all_at(&[0; 4096], 0).expect("write");
    let settings = ChannelSettings { spin: SpinMode::Blind, handler: None };
    let channel = Channel::start(attachment, Some(socket), settings, NoHandler).expect("start");
    let mut guard = channel.lock().expect("lock");
    assert_eq!(guard.room(0).map(|room| room.run > 0), Some(true));
    assert!(guard.send(0, &[b"frame"]).expect("sent"));
    guard.transmit().expect("a refusal is a loss");
    assert_eq!((guard.max_frame(0), guard.max_frame(2)), (1472 - 32 - 20, 1024 - 8));
}

#[test]
fn any_damaged_header_is_refused_or_harmless() {
    let mut refused = 0;
    for at in 0..128u64 {
        for value in [0u8, 1, 0x7f, 0xff] {
            let parts = segment(true);
            let segment = &parts.segment;
            let (block, mut own) = launch(&parts, 1);
            let mut before = [0];
            let file = File::from(own.job_file.try_clone().expect("dup"));
            file.read_exact_at(&mut before, at).expect("read");
            own.job_file = changed(parts.files.for_rank(0).job, at, &[value]);
            let case = format!("byte {at} from {} to {value}", before[0]);
            // Reading ends when all descriptors of the other end are closed.
            let (mut held, end) = std::io::pipe().expect("a pipe");
            own.local[0].doorbell = end.try_clone().expect("dup").into();
            own.socket = end.into();
            match Attachment::attach(&block, own) {
                Ok((attachment, _socket)) => {
                    let bad = must_be_refused(at, value) && before[0] != value;
                    assert!(!bad, "{case} is accepted");
                    // The rank uses a context and an arena of this segment, and no others.
                    assert_eq!((attachment.ranks(), attachment.local_count()), (3, 2), "{case}");
                    assert!(segment.sample(attachment.local()).attached, "{case}");
                    assert_eq!(attachment.arena_bytes(), 8192, "{case}");
                    // SAFETY: the first byte of an arena of 8,192, which nobody else uses.
                    unsafe { attachment.open_arena(attachment.local()).as_ptr().write(7) };
                }
                Err(error) => {
                    refused += 1;
                    let known = match error {
                        AttachError::OtherVersion { .. } => (8..12).contains(&at),
                        AttachError::BadSegment(_) => !(8..12).contains(&at),
                        _ => false,
                    };
                    assert!(known, "{case}: {error}");
                    assert!((0..2).all(|local| !segment.sample(local).attached), "{case}");
                    let left = held.read(&mut [0]).expect("a pipe");
                    assert_eq!(
                        left, 0,
                        "{case}: a descriptor is still open; so many would run out"
                    );
                }
            }
        }
    }
    assert!(refused > 100, "{refused} of 512");
}

/// The state of the endpoint lies in the rank file: there is room for it whatever the datagrams, and until it is used it
/// takes next to no memory.
#[test]
fn the_channels_state_lies_in_the_rank_file() {
    for (ranks, datagram) in [(2, 548), (3, 1472), (1024, 1472), (1024, 8972), (16_384, 65_507)] {
        let spec = SegmentSpec {
            channel_key: 9,
            seal_key: None,
            ranks,
            local_ranks: 0..1,
            ring_bytes: 4096,
            arena_bytes: 8192,
        };
        let (mut segment, files) = Segment::create(&spec).expect("segment");
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        segment.publish_peers(&vec![nobody; ranks as usize], datagram).expect("peers");
        let socket = bind_socket((Ipv4Addr::LOCALHOST, 0)).expect("socket").0;
        let bells = vec![doorbell().expect("doorbell")];
        let own = LaunchDescriptors::of(&files.for_rank(0), socket, bells).expect("dup");
        let (attachment, socket) =
            Attachment::attach(&own.block(5, 0, ranks, 1), own).expect("attach");
        let read = |at, into: &mut [u8]| segment.read_channel_context(0, at, into).expect("read");
        let mut start = [1; 64];
        assert_eq!(read(0, &mut start), 64);
        assert_eq!(start, [0; 64], "{ranks}, {datagram}: nothing is there yet");
        let settings = ChannelSettings { spin: SpinMode::Blind, handler: None };
        let channel = Channel::start(attachment, Some(socket), settings, NoHandler);
        let channel = channel.unwrap_or_else(|error| panic!("{ranks}, {datagram}: {error}"));
        assert_eq!(read(0, &mut start), 64);
        assert_eq!(start[..8], *b"KUMICTX\x01");
        assert_eq!(start[20..24], ranks.to_ne_bytes());
        let rank_file = files.for_rank(0).ranks[0][0].try_clone_to_owned().expect("dup");
        let blocks = File::from(rank_file).metadata().expect("metadata").blocks();
        assert!(blocks * 512 < 128 << 10, "{ranks}, {datagram}: {blocks} blocks of an idle rank");
        let mut guard = channel.lock().expect("lock");
        assert!(guard.send(1, &[b"a frame"]).expect("sent"));
        drop(guard);
        let last = segment.channel_context_bytes() - 1;
        assert_eq!([read(last, &mut start), read(last + 1, &mut start)], [1, 0]);
        assert_eq!(segment.read_channel_context(1, 0, &mut start).expect("no such rank"), 0);
    }
}

#[test]
fn a_job_on_one_node_has_no_channel_to_others() {
    let spec = SegmentSpec {
        channel_key: 9,
        seal_key: None,
        ranks: 2,
        local_ranks: 0..2,
        ring_bytes: 4096,
        arena_bytes: 8192,
    };
    let (segment, _files) = Segment::create(&spec).expect("segment");
    assert_eq!(segment.channel_context_bytes(), 0);
    assert_eq!(segment.read_channel_context(0, 0, &mut [0; 8]).expect("nothing"), 0);
}
