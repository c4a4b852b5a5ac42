//! A job of real processes, as a daemon would run it: started, stopped anywhere, copied, ended, and gone on with elsewhere.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use kumi_net::SealKey;
use kumi_net::launch::{LaunchBlock, LocalRank, bind_socket, doorbell};
use kumi_net::segment::{CopyError, Segment, SegmentCopy, SegmentFiles, SegmentSpec};
use kumi_net::xdp::XdpDescriptors;

use crate::network::{Network, RankXdp};
use crate::program::{FAULT, Plan, STATE_BYTES, sent, taken};

/// A limit that only what hangs exceeds.
const PATIENCE: Duration = Duration::from_secs(120);
/// Most bytes of a copy of a node's ranks.
const MOST_COPIED: usize = 1 << 30;
/// Ranks of each node.
pub const LAYOUT: [u32; 2] = [2, 2];
/// Ranks of the job.
pub const RANKS: u32 = LAYOUT[0] + LAYOUT[1];

/// Waits until something is so.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// What stays the same wherever the job runs.
pub struct Setting {
    pub test: &'static str,
    pub plan: Plan,
    pub encrypted: bool,
    /// `KUMI_FAULTS`.
    pub faults: &'static str,
    /// The first rank of each node has AF_XDP there; without it, nodes are loopback addresses.
    pub network: Option<Rc<Network>>,
}

impl Setting {
    /// A socket of a node at a place.
    fn socket(&self, place: u8, node: usize) -> (OwnedFd, SocketAddr) {
        let bind = |address| {
            let (socket, port) = bind_socket((address, 0)).expect("socket");
            (socket, SocketAddr::from((address, port)))
        };
        match &self.network {
            Some(network) => network.within(node, || bind(Network::address(place, node))),
            None => bind(Ipv4Addr::new(127, 0, place, node as u8 + 1)),
        }
    }

    /// AF_XDP of a rank, if it has that.
    fn xdp(&self, place: u8, rank: u32, address: SocketAddr) -> Option<RankXdp> {
        let (node, network) = (node_of(rank), self.network.as_ref()?);
        let first = rank == 0 || node_of(rank - 1) != node;
        first.then(|| RankXdp::make(network, place, node, address.port()))
    }
}

/// A node's part of a running job.
struct Node {
    first: u32,
    segment: Segment,
    files: SegmentFiles,
    bells: Vec<OwnedFd>,
}

/// A running job.
pub struct Job {
    setting: Setting,
    nodes: Vec<Node>,
    children: Vec<Child>,
    xdp: Vec<RankXdp>,
}

/// A rank's state, as it lies in its window.
#[derive(Clone, Copy)]
pub struct State([u8; STATE_BYTES]);

impl State {
    fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().expect("a word"))
    }
    pub fn sent(&self, to: u32) -> u64 {
        self.word(sent(to))
    }
    pub fn taken(&self, from: u32) -> u64 {
        self.word(taken(from))
    }
    pub fn fault(&self) -> u64 {
        self.word(FAULT)
    }
}

impl Job {
    /// Starts the job at its `place`: each has addresses and keys of its own. With copies, it goes on with them.
    pub fn start(setting: Setting, place: u8, copies: Option<&[SegmentCopy]>) -> Job {
        let mut sockets = Vec::new();
        let mut addresses = Vec::new();
        for rank in 0..RANKS {
            let (socket, address) = setting.socket(place, node_of(rank));
            sockets.push(socket);
            addresses.push(address);
        }
        let mut nodes = Vec::new();
        let mut first = 0;
        for (node, count) in LAYOUT.into_iter().enumerate() {
            let spec = SegmentSpec {
                // The same key at every other place: packets of the old channel would be taken.
                channel_key: 7 + u64::from(place / 2),
                seal_key: setting.encrypted.then_some(SealKey([place / 2; 16])),
                ranks: RANKS,
                local_ranks: first..first + count,
                ring_bytes: 16 << 10,
                arena_bytes: 1 << 20,
            };
            let made = match copies {
                Some(copies) => Segment::go_on(&spec, &copies[node]),
                None => Segment::create(&spec),
            };
            let (mut segment, files) = made.expect("segment");
            segment.publish_peers(&addresses, 1_472).expect("peers");
            let bells = (0..count).map(|_| doorbell().expect("doorbell")).collect();
            nodes.push(Node { first, segment, files, bells });
            first += count;
        }
        let mut job = Job { setting, nodes, children: Vec::new(), xdp: Vec::new() };
        for rank in 0..RANKS {
            let node = node_of(rank);
            let launch = launch(&job.nodes[node], node as u32, rank, &sockets[rank as usize]);
            let xdp = job.setting.xdp(place, rank, addresses[rank as usize]);
            let descriptors = xdp.as_ref().map(RankXdp::descriptors);
            job.children.push(spawn(&job.setting, &launch, descriptors));
            job.xdp.extend(xdp);
        }
        if let Some(network) = &job.setting.network {
            job.xdp.iter_mut().for_each(|xdp| xdp.bind_when_ready(network));
        }
        job
    }

    /// The state of a rank.
    pub fn state(&self, rank: u32) -> State {
        let node = &self.nodes[node_of(rank)];
        let local = (rank - node.first) as usize;
        let [_, arena] = node.files.for_rank(local).ranks[local];
        let mut state = State([0; STATE_BYTES]);
        file(arena).read_exact_at(&mut state.0, 0).expect("state");
        state
    }

    pub fn states(&self) -> Vec<State> {
        (0..RANKS).map(|rank| self.state(rank)).collect()
    }

    /// Frames taken so far.
    pub fn taken(&self) -> u64 {
        let states = self.states();
        states.iter().flat_map(|state| (0..RANKS).map(|from| state.taken(from))).sum()
    }

    /// A counter of all ranks together.
    pub fn counted(&self, name: &str) -> u64 {
        let sample = |rank: u32| {
            let node = &self.nodes[node_of(rank)];
            let counters = node.segment.sample((rank - node.first) as usize).counters;
            counters.into_iter().find(|(found, _)| *found == name).expect("a counter").1
        };
        (0..RANKS).map(sample).sum()
    }

    /// Fails if a rank has ended, or got a frame that was not the next one.
    pub fn check(&mut self) {
        for (rank, child) in (0..).zip(&mut self.children) {
            let status = child.try_wait().expect("wait");
            assert!(status.is_none(), "rank {rank} has ended: {status:?}");
        }
        for (rank, state) in (0..RANKS).zip(self.states()) {
            let fault = state.fault();
            assert_eq!(
                fault,
                0,
                "rank {rank} got a wrong frame from rank {}",
                fault.wrapping_sub(1)
            );
        }
    }

    /// Stops a rank wherever it is.
    pub fn stop(&self, rank: u32) {
        let pid = self.children[rank as usize].id() as i32;
        // SAFETY: signals our own child, and waits until all its threads stand.
        let status = unsafe {
            assert_eq!(libc::kill(pid, libc::SIGSTOP), 0, "{}", io::Error::last_os_error());
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &raw mut status, libc::WUNTRACED), pid);
            status
        };
        assert!(libc::WIFSTOPPED(status), "rank {rank}: {:?}", ExitStatus::from_raw(status));
    }

    /// Lets a stopped rank run for a moment, and stops it again.
    fn nudge(&self, rank: u32) {
        // SAFETY: a signal to our own child.
        unsafe { libc::kill(self.children[rank as usize].id() as i32, libc::SIGCONT) };
        std::thread::sleep(Duration::from_micros(200));
        self.stop(rank);
    }

    /// Copies what the stopped ranks have; a rank in the middle of a change runs on for a moment.
    pub fn copy(&self) -> Vec<SegmentCopy> {
        let copy = |node: &Node| {
            let start = Instant::now();
            loop {
                match SegmentCopy::take(&node.segment, &node.files, MOST_COPIED) {
                    Ok(copy) => return copy,
                    Err(CopyError::Busy { rank }) => self.nudge(rank),
                    Err(error) => panic!("{error}"),
                }
                assert!(start.elapsed() < PATIENCE, "a rank is always in a change");
            }
        };
        self.nodes.iter().map(copy).collect()
    }

    /// Ends the processes; nothing of the job is left but copies.
    pub fn end(mut self) -> Setting {
        self.kill();
        let nothing = Setting { network: None, ..self.setting };
        std::mem::replace(&mut self.setting, nothing)
    }

    fn kill(&mut self) {
        for child in &mut self.children {
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
        self.children.clear();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn node_of(rank: u32) -> usize {
    usize::from(rank >= LAYOUT[0])
}

fn file(descriptor: BorrowedFd<'_>) -> File {
    File::from(descriptor.try_clone_to_owned().expect("dup"))
}

fn launch(node: &Node, number: u32, rank: u32, socket: &OwnedFd) -> LaunchBlock {
    let files = node.files.for_rank((rank - node.first) as usize);
    let local =
        node.bells.iter().zip(&files.ranks).map(|(bell, [rank_file, arena_file])| LocalRank {
            doorbell: bell.as_raw_fd(),
            rank_file: rank_file.as_raw_fd(),
            arena_file: arena_file.as_raw_fd(),
        });
    LaunchBlock {
        job: 1,
        rank,
        ranks: RANKS,
        node: number,
        job_file: files.job.as_raw_fd(),
        shared_file: files.shared.as_raw_fd(),
        socket: socket.as_raw_fd(),
        local: local.collect(),
    }
}

fn spawn(setting: &Setting, launch: &LaunchBlock, xdp: Option<XdpDescriptors>) -> Child {
    let mut passed: Vec<RawFd> = launch.descriptors().collect();
    if let Some(XdpDescriptors { socket, memory, hops, ready }) = xdp {
        passed.extend([socket, memory, hops, ready]);
    }
    let node = node_of(launch.rank);
    let namespace = setting.network.as_ref().map(|network| network.namespace(node));
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command
        .args([setting.test, "--exact", "--nocapture", "--test-threads=1"])
        .envs(launch.to_env())
        .env("KUMI_FAULTS", setting.faults)
        .envs([setting.plan.to_env()])
        .envs(xdp.map(|xdp| xdp.to_env()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    // SAFETY: between fork and exec only system calls that are safe there.
    unsafe {
        command.pre_exec(move || {
            for descriptor in &passed {
                if libc::fcntl(*descriptor, libc::F_SETFD, 0) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            if let Some(namespace) = namespace
                && libc::setns(namespace, libc::CLONE_NEWNET) != 0
            {
                return Err(io::Error::last_os_error());
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    command.spawn().expect("spawn")
}
