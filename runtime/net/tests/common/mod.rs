//! What tests share: a rank that this process attaches as, and a layer above that counts.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use kumi_net::launch::{LaunchBlock, LaunchDescriptors, LocalRank, bind_socket, doorbell};
use kumi_net::segment::SegmentFiles;
use kumi_net::{AttachError, Attachment};

/// Attaches as a rank of a job of `ranks` ranks, as the one of its node with the index `local` of `locals`; its socket is on
/// the port that is returned.
pub fn attach(
    files: &SegmentFiles,
    (rank, ranks): (u32, u32),
    (local, locals): (usize, usize),
) -> Result<(Attachment, OwnedFd, u16), AttachError> {
    let (socket, port) = bind_socket((Ipv4Addr::LOCALHOST, 0)).expect("socket");
    let files = files.for_rank(local);
    let own = |file: BorrowedFd<'_>| file.try_clone_to_owned().expect("dup");
    let local = |at: usize| {
        let [rank_file, arena_file] = files.ranks[at].map(own);
        LocalRank { doorbell: doorbell().expect("doorbell"), rank_file, arena_file }
    };
    let descriptors = LaunchDescriptors {
        job_file: own(files.job),
        shared_file: own(files.shared),
        socket,
        local: (0..locals).map(local).collect(),
    };
    let raw = |local: &LocalRank<OwnedFd>| LocalRank {
        doorbell: local.doorbell.as_raw_fd(),
        rank_file: local.rank_file.as_raw_fd(),
        arena_file: local.arena_file.as_raw_fd(),
    };
    let block = LaunchBlock {
        job: 1,
        rank,
        ranks,
        node: 0,
        job_file: descriptors.job_file.as_raw_fd(),
        shared_file: descriptors.shared_file.as_raw_fd(),
        socket: descriptors.socket.as_raw_fd(),
        local: descriptors.local.iter().map(raw).collect(),
    };
    let (attachment, socket) = Attachment::attach(&block, descriptors)?;
    Ok((attachment, socket, port))
}
