//! Attaching: environments that a rank accepts, and its errors for all others.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use kumi_net::launch::{LaunchBlock, LaunchDescriptors, bind_socket, doorbell};
use kumi_net::segment::{Segment, SegmentSpec};
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

fn segment(publish: bool) -> Segment {
    let local_ranks = 1..3;
    let seal_key = Some(SealKey([3; 16]));
    let (channel_key, ranks, ring_bytes, arena_bytes) = (9, 3, 4096, 8192);
    let spec = SegmentSpec { channel_key, seal_key, ranks, local_ranks, ring_bytes, arena_bytes };
    let mut segment = Segment::create(&spec).expect("segment");
    if publish {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        segment.publish_peers(&[address; 3], 1472).expect("peers");
    }
    segment
}

/// A launch block, and its descriptors.
fn launch(segment: &Segment, rank: u32) -> (LaunchBlock, LaunchDescriptors) {
    let bell = || doorbell().expect("doorbell");
    let own = LaunchDescriptors {
        segment: segment.as_fd().try_clone_to_owned().expect("dup"),
        socket: bind_socket((Ipv4Addr::LOCALHOST, 0)).expect("socket").0,
        doorbells: vec![bell(), bell()],
    };
    let block = LaunchBlock {
        job: 5,
        rank,
        ranks: 3,
        node: 1,
        segment: own.segment.as_raw_fd(),
        socket: own.socket.as_raw_fd(),
        doorbells: own.doorbells.iter().map(AsRawFd::as_raw_fd).collect(),
    };
    (block, own)
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
    assert!(segment.sample(1).attached && !segment.sample(0).attached);
    let again = attach(launch(&segment, 2));
    assert!(matches!(again, Err(AttachError::AlreadyAttached(2))));
    drop(attachment);
    assert!(!segment.sample(1).attached);
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
        for address in
            [std::ptr::from_ref(attachment.own()) as usize, attachment.arena(0).as_ptr() as usize]
        {
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
    few.1.doorbells.pop();
    assert!(matches!(attach(few), Err(AttachError::BadSegment(_))));
    let mut other = launch(&segment, 1);
    other.1.segment = std::fs::File::open("/proc/self/exe").expect("file").into();
    assert!(matches!(attach(other), Err(AttachError::BadSegment(_))));
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

/// A rank computes how many packets it sends at once from the length of datagrams.
#[test]
fn datagrams_that_cannot_be_are_refused() {
    for length in [0u32, 1, 31, 547, 65_508, u32::MAX] {
        let segment = segment(true);
        let file = std::fs::File::from(segment.as_fd().try_clone_to_owned().expect("dup"));
        file.write_all_at(&length.to_ne_bytes(), 36).expect("write");
        let result = attach(launch(&segment, 1));
        assert!(matches!(result, Err(AttachError::BadSegment(_))), "{length}: {result:?}");
    }
}

/// A rank that has attached believes its copies, whatever becomes of the header and the peer table.
#[test]
fn nothing_is_read_from_the_header_after_attaching() {
    let segment = segment(true);
    let (block, own) = launch(&segment, 1);
    let (attachment, socket) = Attachment::attach(&block, own).expect("attach");
    let file = std::fs::File::from(segment.as_fd().try_clone_to_owned().expect("dup"));
    file.write_all_at(&[0; 4096], 0).expect("write");
    let settings = ChannelSettings { spin: SpinMode::Blind, handler: None };
    let channel = Channel::start(attachment, Some(socket), settings, NoHandler).expect("start");
    let mut guard = channel.lock().expect("lock");
    assert_eq!(guard.room(0).map(|(_, run)| run > 0), Some(true));
    assert!(guard.send(0, &[b"frame"]).expect("sent"));
    guard.transmit().expect("a refusal is a loss");
    assert_eq!((guard.max_frame(0), guard.max_frame(2)), (1472 - 32 - 20, 1024 - 8));
}

#[test]
fn any_damaged_header_is_refused_or_harmless() {
    let mut refused = 0;
    for at in 0..128u64 {
        for value in [0u8, 1, 0x7f, 0xff] {
            let segment = segment(true);
            let file = std::fs::File::from(segment.as_fd().try_clone_to_owned().expect("dup"));
            let mut before = [0];
            file.read_exact_at(&mut before, at).expect("read");
            file.write_all_at(&[value], at).expect("write");
            let (block, mut own) = launch(&segment, 1);
            let case = format!("byte {at} from {} to {value}", before[0]);
            // Reading ends when all descriptors of the other end are closed.
            let (mut held, end) = std::io::pipe().expect("a pipe");
            own.doorbells[0] = end.try_clone().expect("dup").into();
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
                    unsafe { attachment.arena(attachment.local()).as_ptr().write(7) };
                }
                Err(error) => {
                    refused += 1;
                    assert!(matches!(error, AttachError::BadSegment(_)), "{case}: {error}");
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
