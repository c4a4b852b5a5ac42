//! Starts the ranks of a small job without a daemon: the test binary runs itself once per rank.
//! "Nodes" are addresses 127.0.0.x with a segment each, so that ranks of one node share memory and
//! the others use UDP.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use kumi_mem::Context;
use kumi_net::SealKey;
use kumi_net::SharedBytesMut;
use kumi_net::disclosure::{JobPage, JobSlot, NodeLoad, NodePage, RankState, Turn};
use kumi_net::launch::{LaunchBlock, LaunchDescriptors, PageDescriptors, bind_socket, doorbell};
use kumi_net::layout::{Layout, SegmentPart};
use kumi_net::segment::{ContextSample, Segment, SegmentFiles, SegmentSpec};
use kumi_net::sys::set_cloexec;

#[cfg(miri)]
mod in_process;
#[path = "../../../../fuzz/input.rs"]
mod input;

pub use input::Numbers;

/// How long a job may take: far more than any needs, since machines can be slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// The key of every job's channel.
pub const CHANNEL_KEY: u64 = 0x1234_5678_9abc_def0;

/// `many`, or `few` under Miri, which takes a second for some ten packets or 100 KB that are looked at byte by byte.
pub const fn fewer(many: usize, few: usize) -> usize {
    if cfg!(miri) { few } else { many }
}

/// Bytes of an arena. Miri has memory for each.
const ARENA: u64 = if cfg!(miri) { 4 << 20 } else { 1 << 30 };

/// Parameters of a job.
pub struct Job<'j> {
    /// Ranks on each node.
    pub layout: &'j [u32],
    /// UDP payload.
    pub max_datagram: u16,
    /// Bytes of a ring.
    pub ring_bytes: usize,
    /// Environment of all ranks.
    pub env: &'j [(&'j str, &'j str)],
    /// Processor of each rank, if it is pinned.
    pub cpus: &'j [usize],
    /// Packets are encrypted.
    pub encrypted: bool,
    /// All sockets are at `::1`; otherwise each node has an address of its own, of IPv4.
    pub ipv6: bool,
    /// Pages for the ranks, with this turn, and whether another job wants all processors.
    pub pages: Option<(Turn, bool)>,
    /// Show what the ranks print (in tests that is the test runner's noise).
    pub show: bool,
}

impl Default for Job<'_> {
    fn default() -> Self {
        Job {
            layout: &[1],
            max_datagram: 1472,
            ring_bytes: 16 * 1024,
            env: &[],
            cpus: &[],
            encrypted: false,
            ipv6: false,
            pages: None,
            show: false,
        }
    }
}

/// Where in the memory of a rank's first window its gate is.
pub const GATE: usize = 3072;

/// True until the test calls [`RunningJob::open_gate_of`] for this rank; with the base of its first window.
pub fn closed_gate(base: usize) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    // SAFETY: the window has more than so many bytes and lives as long as the test uses it.
    unsafe { ((base + GATE) as *const u64).read_volatile() == 0 }
}

/// The parts of a segment that ranks write, mapped before the ranks seal their files.
struct Scribble {
    layout: Layout,
    /// Shared file, then the front of each rank file.
    maps: Vec<NonNull<u8>>,
}

impl Scribble {
    fn new(files: &SegmentFiles, layout: Layout) -> Scribble {
        let map = |file: BorrowedFd<'_>, length: usize| {
            let (both, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
            // SAFETY: a fresh mapping at an address of the kernel's choice. It stays until the process ends.
            let place = unsafe {
                libc::mmap(std::ptr::null_mut(), length, both, flags, file.as_raw_fd(), 0)
            };
            assert_ne!(place, libc::MAP_FAILED, "mmap");
            NonNull::new(place.cast()).expect("not at address 0")
        };
        let shared = map(files.for_rank(0).shared, layout.bytes_of(SegmentPart::Shared));
        let of_ranks = (0..layout.local_count as usize)
            .map(|local| map(files.for_rank(local).ranks[local][0], layout.rank_front));
        Scribble { layout, maps: [shared].into_iter().chain(of_ranks).collect() }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let (part, at) = self.layout.locate(offset, 0);
        let map = match part {
            SegmentPart::Shared => self.maps[0],
            SegmentPart::Rank(local) => self.maps[1 + local],
            other => panic!("{other:?} is not for scribbling"),
        };
        // SAFETY: a whole part of the layout is mapped there, and the place lies in it. Other processes use it too, and
        // nobody here has a reference to it.
        let place = unsafe { SharedBytesMut::new(map.add(at), bytes.len()) };
        place.copy_from(bytes);
    }
}

/// A job that runs.
pub struct Running {
    layout: Vec<u32>,
    /// Where each rank's socket is.
    pub addresses: Vec<SocketAddr>,
    segments: Vec<(Segment, Scribble)>,
    /// One pair a node, or none.
    pub pages: Vec<(NodePage, JobPage)>,
    children: Vec<Child>,
    ring_bytes: u64,
}

/// True in a process that is a rank.
pub fn is_rank() -> bool {
    std::env::var_os("KUMI_RANK").is_some()
}

/// In a rank: runs the body and leaves. Otherwise starts the job and returns it.
///
/// Under Miri the ranks are threads of this process, and are over when this returns.
pub fn start(name: &str, job: &Job<'_>, body: impl Fn(&Context) + Sync) -> Running {
    #[cfg(miri)]
    return in_process::run(job, &body);
    if is_rank() {
        let context = Context::init().expect("init");
        body(&context);
        context.finalize().expect("finalize");
        std::process::exit(0);
    }
    launch(&[name, "--exact", "--nocapture", "--test-threads=1"], job)
}

/// As [`start`], and waits for the job, which must succeed.
///
/// Miri gets few and small ones, see [`small_layouts`].
pub fn run(name: &str, layouts: &[&[u32]], body: impl Fn(&Context) + Sync) {
    let layouts = if cfg!(miri) { small_layouts(layouts) } else { layouts.to_vec() };
    for layout in layouts {
        start(name, &Job { layout, ..Job::default() }, &body).finish();
    }
}

/// The first of each kind that has at most three ranks: alone, on one node, on several nodes.
fn small_layouts<'l>(layouts: &[&'l [u32]]) -> Vec<&'l [u32]> {
    let kind = |layout: &[u32]| (layout.iter().sum::<u32>() > 1, layout.len() > 1);
    let mut small: Vec<&[u32]> = Vec::new();
    for layout in layouts.iter().filter(|layout| layout.iter().sum::<u32>() <= 3) {
        if small.iter().all(|chosen| kind(chosen) != kind(layout)) {
            small.push(layout);
        }
    }
    assert!(!small.is_empty(), "no small layout");
    small
}

/// Memory of a program that can be a window with any right: a `Vec` of bytes can begin anywhere.
#[repr(align(8))]
pub struct Aligned<const BYTES: usize>(pub [u8; BYTES]);

/// A socket for each rank, and where it is.
fn sockets(job: &Job<'_>) -> (Vec<OwnedFd>, Vec<SocketAddr>) {
    let (mut sockets, mut addresses) = (Vec::new(), Vec::new());
    for (node, count) in job.layout.iter().enumerate() {
        for _ in 0..*count {
            let address = match job.ipv6 {
                true => IpAddr::V6(Ipv6Addr::LOCALHOST),
                false => IpAddr::V4(Ipv4Addr::new(127, 0, 0, node as u8 + 1)),
            };
            let (socket, port) = bind_socket((address, 0)).expect("socket");
            sockets.push(socket);
            addresses.push(SocketAddr::new(address, port));
        }
    }
    (sockets, addresses)
}

/// Starts this executable with these arguments once per rank.
pub fn launch(arguments: &[&str], job: &Job<'_>) -> Running {
    let ranks: u32 = job.layout.iter().sum();
    let (sockets, addresses) = sockets(job);
    let (layout, segments, children) = (job.layout.to_vec(), vec![], vec![]);
    let ring_bytes = job.ring_bytes as u64;
    let addresses_there = addresses.clone();
    let mut running = Running {
        layout,
        addresses: addresses_there,
        segments,
        pages: pages(job),
        children,
        ring_bytes,
    };
    let mut first = 0;
    for (node, count) in job.layout.iter().enumerate() {
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
        let layout = Layout::new(ranks, first, *count, job.ring_bytes as u64, ARENA);
        let scribble = Scribble::new(&files, layout.expect("layout"));
        let bells: Vec<OwnedFd> = (0..*count).map(|_| doorbell().expect("doorbell")).collect();
        for rank in first..first + count {
            let copy = |file: &OwnedFd| file.try_clone().expect("dup");
            let files = files.for_rank((rank - first) as usize);
            let bells = bells.iter().map(copy).collect();
            let own = LaunchDescriptors::of(&files, copy(&sockets[rank as usize]), bells);
            let own = own.expect("dup");
            let launch = own.block(7, rank, ranks, node as u32);
            let cpu = job.cpus.get(rank as usize).copied();
            let pages = running.pages.get(node);
            running.children.push(spawn(arguments, &launch, pages, job, cpu));
        }
        running.segments.push((segment, scribble));
        first += count;
    }
    running
}

/// The pages of each node, if the job has any: another node is told of as loaded, and rank 1 as idle.
fn pages(job: &Job<'_>) -> Vec<(NodePage, JobPage)> {
    let Some((turn, wanted)) = job.pages else { return Vec::new() };
    let ranks = job.layout.iter().sum();
    let mut first = 0;
    let mut parts = Vec::new();
    for (node, count) in (0..).zip(job.layout) {
        parts.push((node, first..first + count));
        first += count;
    }
    let make = |node| {
        let page = NodePage::create(node, parts.len() as u32, 64).expect("page");
        let runnable = if wanted { (0..64).collect() } else { vec![] };
        page.set_jobs(&[JobSlot { job: 8, ranks: 64, runnable }]);
        let load = NodeLoad { processors: 64, runnable: 65, ..NodeLoad::default() };
        page.set_node(node, kumi_net::sys::now(), &load);
        let job_page = JobPage::create(7, ranks, parts.clone()).expect("page");
        job_page.set_turn(turn);
        job_page.set_rank(1, parts.len() as u32 - 1, RankState::Idle, kumi_net::sys::now());
        (page, job_page)
    };
    (0..parts.len() as u32).map(make).collect()
}

fn spawn(
    arguments: &[&str],
    launch: &LaunchBlock,
    pages: Option<&(NodePage, JobPage)>,
    job: &Job<'_>,
    cpu: Option<usize>,
) -> Child {
    let pages = pages.map(|(node, job)| PageDescriptors {
        node: node.as_fd().as_raw_fd(),
        job: job.as_fd().as_raw_fd(),
    });
    let more = pages.iter().flat_map(|pages| [pages.node, pages.job]);
    let passed: Vec<RawFd> = launch.descriptors().chain(more).collect();
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command
        .args(arguments)
        .envs(launch.to_env())
        .envs(pages.map(|pages| pages.to_env()))
        .envs(job.env.iter().copied());
    command
        .stdin(Stdio::null())
        .stdout(if job.show { Stdio::inherit() } else { Stdio::null() })
        .stderr(Stdio::inherit());
    // SAFETY: between fork and exec only system calls that are safe there.
    unsafe {
        command.pre_exec(move || {
            for descriptor in &passed {
                set_cloexec(*descriptor, false)?;
            }
            if let Some(cpu) = cpu {
                pin(cpu);
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command.spawn().expect("spawn")
}

/// Binds the calling thread to a processor.
pub fn pin(cpu: usize) {
    // SAFETY: an all-zero set is valid; the call reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

impl Running {
    /// A rank as the daemon would see it.
    pub fn sample(&self, rank: u32) -> ContextSample {
        let mut first = 0;
        for ((segment, _), count) in self.segments.iter().zip(&self.layout) {
            if rank < first + count {
                return segment.sample((rank - first) as usize);
            }
            first += count;
        }
        panic!("no rank {rank}");
    }

    /// A rank's peers on other nodes as the daemon would see them.
    pub fn peers(&self, rank: u32) -> Vec<kumi_net::PeerCounters> {
        let mut first = 0;
        for ((segment, _), count) in self.segments.iter().zip(&self.layout) {
            if rank < first + count {
                return segment.sample_peers((rank - first) as usize);
            }
            first += count;
        }
        panic!("no rank {rank}");
    }

    /// Writes into the segment of a node, at a place of its range, as a broken rank would that may write there.
    pub fn scribble(&self, node: usize, offset: usize, bytes: &[u8]) {
        self.segments[node].1.write(offset, bytes);
    }

    /// Lets rank 0 pass [`closed_gate`].
    pub fn open_gate(&self) {
        self.open_gate_of(0);
    }

    /// Lets a rank pass [`closed_gate`], which looks at a word of the segment: the rank's first window
    /// and this offset in it.
    pub fn open_gate_of(&self, rank: u32) {
        let (mut node, mut first) = (0, 0);
        while rank >= first + self.layout[node] {
            first += self.layout[node];
            node += 1;
        }
        let (ranks, local) = (self.layout.iter().sum(), self.layout[node]);
        let layout = Layout::new(ranks, first, local, self.ring_bytes, ARENA).expect("layout");
        let gate = layout.open_arena((rank - first) as usize) + GATE;
        self.scribble(node, gate, &1u64.to_ne_bytes());
    }

    /// One counter of all ranks together.
    pub fn total(&self, name: &str) -> u64 {
        (0..self.layout.iter().sum()).map(|rank| counter(&self.sample(rank), name)).sum()
    }

    /// Waits until something is true of the samples.
    pub fn until(&self, what: &str, condition: impl Fn(&Running) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !condition(self) {
            if Instant::now() > end {
                let ranks = 0..self.layout.iter().sum();
                let samples: Vec<_> = ranks.map(|rank| self.sample(rank)).collect();
                panic!("{what} did not come true: {samples:?}");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops and continues ranks so many times, one at a time or all, until one of them has ended; then waits for the
    /// job, which must succeed.
    pub fn finish_while_stopped(self, times: u32, seed: u64) {
        let ranks: u32 = self.layout.iter().sum();
        self.until("attached", |job| (0..ranks).all(|rank| job.sample(rank).attached));
        let mut numbers = Numbers(seed);
        for _ in 0..times {
            let chosen = numbers.below(u64::from(ranks) + 1) as u32;
            let chosen = if chosen == ranks { 0..ranks } else { chosen..chosen + 1 };
            if chosen.clone().any(|rank| !self.sample(rank).attached) {
                break;
            }
            chosen.clone().for_each(|rank| self.signal(rank, libc::SIGSTOP));
            std::thread::sleep(Duration::from_millis(numbers.below(15)));
            chosen.for_each(|rank| self.signal(rank, libc::SIGCONT));
            std::thread::sleep(Duration::from_millis(numbers.below(5)));
        }
        self.finish();
    }

    /// Sends a signal to a rank. When it was SIGSTOP, all its threads have stopped, or the rank has ended.
    pub fn signal(&self, rank: u32, signal: i32) {
        let child = self.children[rank as usize].id();
        // SAFETY: a plain system call on a child that has not been waited for.
        let sent = unsafe { libc::kill(child as i32, signal) };
        assert_eq!(sent, 0, "kill");
        if signal == libc::SIGSTOP {
            // Its main thread takes the signal, while the others run on for some time.
            let flags = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
            // SAFETY: an all-zero siginfo_t is valid, and the call writes one.
            let waited = unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                libc::waitid(libc::P_PID, child, &raw mut info, flags)
            };
            assert_eq!(waited, 0, "waitid");
        }
    }

    /// Waits for all ranks, which must succeed; afterwards everything sent must have been taken.
    pub fn finish(mut self) {
        self.wait();
        let (sent, delivered) = (self.total("sent"), self.total("delivered"));
        assert_eq!(sent, delivered, "all that was sent was delivered ({:?})", self.layout);
    }

    /// The same over a wire on which packets were to be lost and doubled: they were.
    pub fn finish_on_a_bad_wire(mut self) {
        self.wait();
        let (resends, duplicates) = (self.total("resends"), self.total("duplicates"));
        assert!(resends > 0 && duplicates > 0, "{resends} sent again, {duplicates} came twice");
        self.finish();
    }

    /// Waits for one rank, which must succeed.
    pub fn wait_for(&mut self, rank: usize) {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.children[rank].try_wait().expect("wait") {
                assert!(status.success(), "rank {rank}: {status}");
                return;
            }
            assert!(Instant::now() < end, "rank {rank} hangs");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for all ranks, which must succeed.
    pub fn wait(&mut self) {
        let end = Instant::now() + PATIENCE;
        let mut left: Vec<usize> = (0..self.children.len()).collect();
        while !left.is_empty() {
            left.retain(|rank| match self.children[*rank].try_wait().expect("wait") {
                None => true,
                Some(status) => {
                    assert!(status.success(), "rank {rank} of {:?}: {status}", self.layout);
                    false
                }
            });
            if Instant::now() > end {
                let samples: Vec<_> = left.iter().map(|rank| self.sample(*rank as u32)).collect();
                panic!("ranks {left:?} of {:?} hang: {samples:?}", self.layout);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One counter of a sample.
pub fn counter(sample: &ContextSample, name: &str) -> u64 {
    sample.counters.iter().find(|(key, _)| *key == name).map_or(0, |(_, value)| *value)
}
