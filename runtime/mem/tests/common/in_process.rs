//! Ranks as threads of this process, for Miri.

use std::os::fd::OwnedFd;

use kumi_mem::Context;
use kumi_net::SealKey;
use kumi_net::launch::{LaunchDescriptors, doorbell};
use kumi_net::segment::{Segment, SegmentFiles, SegmentSpec};

use super::{ARENA, CHANNEL_KEY, Job, Layout, Running, Scribble};

/// Runs the body in a thread for each rank, to its end. The segments stay, so that ranks can be looked at.
pub(super) fn run(job: &Job<'_>, body: &(impl Fn(&Context) + Sync)) -> Running {
    assert!(job.env.is_empty(), "the environment is the whole process's");
    let ranks: u32 = job.layout.iter().sum();
    let (sockets, addresses) = super::sockets(job);
    let mut nodes: Vec<(u32, Segment, SegmentFiles, Vec<OwnedFd>)> = Vec::new();
    let mut first = 0;
    for count in job.layout {
        let spec = SegmentSpec {
            channel_key: CHANNEL_KEY,
            seal_key: job.encrypted.then_some(SealKey([0x5a; 16])),
            ranks,
            local_ranks: first..first + count,
            ring_bytes: job.ring_bytes,
            arena_bytes: ARENA,
        };
        let (mut segment, files) = Segment::create(&spec).expect("segment");
        segment.publish_peers(&addresses, job.max_datagram).expect("peers");
        let bells = (0..*count).map(|_| doorbell().expect("doorbell")).collect();
        nodes.push((first, segment, files, bells));
        first += count;
    }
    std::thread::scope(|scope| {
        for (node, (first, _, files, bells)) in nodes.iter().enumerate() {
            for rank in *first..first + bells.len() as u32 {
                let copy = |file: &OwnedFd| file.try_clone().expect("dup");
                let files = files.for_rank((rank - first) as usize);
                let bells = bells.iter().map(copy).collect();
                let own = LaunchDescriptors::of(&files, copy(&sockets[rank as usize]), bells);
                let own = own.expect("dup");
                let launch = own.block(7, rank, ranks, node as u32);
                scope.spawn(move || {
                    let context = Context::join_in_process(&launch, own).expect("join");
                    body(&context);
                    context.finalize().expect("finalize");
                });
            }
        }
    });
    kumi_net::miri::forget_all();
    let (layout, ring_bytes) = (job.layout.to_vec(), job.ring_bytes as u64);
    let kept = |(first, segment, _, bells): (u32, Segment, SegmentFiles, Vec<OwnedFd>)| {
        let layout = Layout::new(ranks, first, bells.len() as u32, ring_bytes, ARENA);
        (segment, Scribble { layout: layout.expect("layout"), maps: vec![] })
    };
    let segments = nodes.into_iter().map(kept).collect();
    Running { layout, addresses, segments, pages: vec![], children: vec![], ring_bytes }
}
