//! A cluster of real daemons on loopback addresses in a temporary directory.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kumi_control::message::{
    ClientReply, ClientRequest, ContentHash, JobRequest, JobState, Outcome, Program, Stream,
};
use kumi_node::client::Client;
use kumi_node::config::{
    ClusterConfig, ClusterKind, JobDefaults, LimitCaps, NodeConfig, Quotas, Retention, defaults,
};
use kumi_node::{cgroup, paths, tls};
use kumi_sched::{JobId, NodeId};

/// Longest time anything may take here.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The daemons; dropped, they are stopped.
pub struct Cluster {
    pub dir: tempfile::TempDir,
    pub config: ClusterConfig,
    pub head: Option<Child>,
    pub nodes: Vec<Option<Child>>,
}

/// A port that no other test of this process is given, and the system gives nobody by itself: it begins far above.
pub fn free_port(address: impl Into<IpAddr>) -> u16 {
    let address = address.into();
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(port < 30_000, "no port is free at {address}");
        if TcpListener::bind((address, port)).is_ok() {
            return port;
        }
    }
}

/// A loopback address of this test's own.
fn address(node: u8) -> Ipv4Addr {
    let [high, low] = ((std::process::id() % 60_000) as u16).to_be_bytes();
    Ipv4Addr::new(127, high.max(1), low, node + 1)
}

/// How a cluster shares its processors.
#[derive(Clone, Copy)]
pub enum ModeName {
    /// By the default policy.
    Gang,
    /// As the operating system likes.
    Os,
}

impl ModeName {
    fn policy(self) -> String {
        match self {
            Self::Gang => defaults::policy(),
            Self::Os => kumi_node::config::OS.to_owned(),
        }
    }
}

static CLUSTERS: AtomicU32 = AtomicU32::new(0);

/// A folder that jobs of other users can get to.
fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// A node of a local cluster.
fn node(index: u8) -> NodeConfig {
    NodeConfig {
        removed: false,
        name: format!("node{index}"),
        address: address(index).into(),
        addresses: Vec::new(),
        interface: None,
        port: free_port(address(index)),
        cpus: Vec::new(),
        netns: None,
        wire: None,
        users: None,
        memory: None,
        devices: std::collections::BTreeMap::new(),
    }
}

impl Cluster {
    /// A cluster with these nodes, configured and not started.
    pub fn configured(nodes: u8, mode: ModeName) -> Self {
        let dir = open_folder();
        let serial = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let config = ClusterConfig {
            name: format!("t{}-{serial}", std::process::id()),
            kind: ClusterKind::Local,
            heads: Vec::new(),
            state: None,
            etcd: Default::default(),
            head: SocketAddr::from((address(0), free_port(address(0)))),
            head_addresses: Vec::new(),
            slice_us: 1_000,
            force_switch: false,
            fill: true,
            fan_out: 16,
            max_jobs_per_processor: 16,
            max_ranks_per_processor: 16,
            silence_ms: None,
            grace_ms: None,
            lease_ms: Some(3_000),
            // `KUMI_TEST_KEEP_MS=1000 cargo test -p kumi-node` runs all of these tests with keepers.
            keep_ms: std::env::var("KUMI_TEST_KEEP_MS").ok().and_then(|ms| ms.parse().ok()),
            owner_uid: nix::unistd::geteuid().as_raw(),
            root_jobs: true,
            metrics: None,
            head_metrics: None,
            encrypt: false,
            wire: kumi_node::config::WireSetting::Udp,
            policy: mode.policy(),
            max_priority: defaults::max_priority(),
            idle_after_ms: 0,
            memory_reserve: None,
            job: JobDefaults::default(),
            limits: LimitCaps::default(),
            quota: Quotas::default(),
            retention: Retention::default(),
            daemon_memory: None,
            privacy: Default::default(),
            shares: Default::default(),
            hooks: Default::default(),
            health: Default::default(),
            web: Default::default(),
            nodes: (0..nodes).map(node).collect(),
        };
        config.save(dir.path()).unwrap();
        tls::create(dir.path(), &config.name, nodes.into()).unwrap();
        Self { dir, config, head: None, nodes: (0..nodes).map(|_| None).collect() }
    }

    /// A running cluster: every node is attached.
    pub async fn up(nodes: u8, mode: ModeName) -> Self {
        Self::configured(nodes, mode).start().await
    }

    /// Starts it; every node is attached.
    pub async fn start(self) -> Self {
        let mut cluster = self;
        let nodes = u8::try_from(cluster.nodes.len()).unwrap();
        cluster.start_head();
        for node in 0..nodes {
            cluster.start_node(node.into());
        }
        cluster.wait_attached(nodes.into()).await;
        cluster
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn command(&self, arguments: &[&str], log: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kumid"));
        let log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        command.arg(arguments[0]).arg("--cluster-dir").arg(self.path()).args(&arguments[1..]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    pub fn start_head(&mut self) {
        let log = paths::head_log(self.path());
        self.head = Some(self.command(&["head"], &log).spawn().unwrap());
    }

    /// Starts the head with these of root's capabilities only, as `setpriv` names them.
    pub fn start_head_with(&mut self, capabilities: &str) {
        let log = paths::head_log(self.path());
        let head = self.command(&["head"], &log);
        let stderr = std::fs::OpenOptions::new().append(true).open(log).unwrap();
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--no-new-privs", "--bounding-set", capabilities]);
        setpriv.arg(head.get_program()).args(head.get_args());
        setpriv.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        self.head = Some(setpriv.spawn().unwrap());
    }

    pub fn start_node(&mut self, node: usize) {
        let log = paths::node_log(self.path(), NodeId(node as u32));
        let number = node.to_string();
        let child = self.command(&["node", "--node", &number], &log).spawn().unwrap();
        self.nodes[node] = Some(child);
    }

    /// Starts a node's daemon after a script of the shell, which may change limits.
    pub fn start_node_after(&mut self, node: usize, script: &str) {
        let log = paths::node_log(self.path(), NodeId(node as u32));
        let number = node.to_string();
        let daemon = self.command(&["node", "--node", &number], &log);
        let stderr = std::fs::OpenOptions::new().append(true).open(log).unwrap();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("{script}\nexec \"$0\" \"$@\"")]);
        shell.arg(daemon.get_program()).args(daemon.get_args());
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        self.nodes[node] = Some(shell.spawn().unwrap());
    }

    pub async fn client(&self) -> Client {
        let end = Instant::now() + PATIENCE;
        loop {
            match Client::connect_to(&paths::head_socket(self.path())).await {
                Ok(client) => return client,
                Err(error) => assert!(Instant::now() < end, "{error}\n{}", self.logs()),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn wait_attached(&self, count: usize) {
        let mut client = self.client().await;
        let end = Instant::now() + PATIENCE;
        loop {
            let ClientReply::Cluster(status) = client.ask(&ClientRequest::Cluster).await.unwrap()
            else {
                panic!("no status");
            };
            if status.nodes.iter().filter(|node| node.up).count() == count {
                return;
            }
            assert!(Instant::now() < end, "not attached\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn logs(&self) -> String {
        let mut files = vec![paths::head_log(self.path())];
        files.extend((0..self.nodes.len()).map(|i| paths::node_log(self.path(), NodeId(i as u32))));
        let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        files.iter().map(|path| format!("== {}\n{}", path.display(), text(path))).collect()
    }

    /// All control groups of the cluster, in whatever hierarchy.
    pub fn all_groups(&self) -> Vec<PathBuf> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let name = format!("kumi-{}", self.config.name);
        let mut found = Vec::new();
        for point in cgroup::mount_points(&mounts) {
            find(&point, &name, &mut found);
        }
        found
    }

    /// The cluster's control groups, if there may be any.
    pub fn groups(&self) -> Option<PathBuf> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let path = cgroup::mount_point(&mounts)?.join(format!("kumi-{}", self.config.name));
        path.exists().then_some(path)
    }

    pub fn signal(child: &Child, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, signal).unwrap();
    }
}

fn find(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name() == name {
            found.push(entry.path());
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            find(&entry.path(), name, found);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        use nix::sys::signal::Signal;
        let children: Vec<_> = self.nodes.drain(..).flatten().chain(self.head.take()).collect();
        for mut child in children {
            if matches!(child.try_wait(), Ok(None)) {
                Self::signal(&child, Signal::SIGTERM);
            }
            let end = Instant::now() + Duration::from_secs(5);
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() > end {
                    child.kill().unwrap();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

static TOKENS: AtomicU32 = AtomicU32::new(0);

pub fn request(words: &[&str], ranks: u32) -> JobRequest {
    let content = std::fs::read(words[0]).unwrap();
    let token =
        u128::from(std::process::id()) << 64 | u128::from(TOKENS.fetch_add(1, Ordering::Relaxed));
    let program = Program {
        path: words[0].into(),
        hash: ContentHash(*blake3::hash(&content).as_bytes()),
        size: content.len() as u64,
    };
    JobRequest {
        args: words.iter().map(ToString::to_string).collect(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("WORD".into(), "kumi".into())],
        ..JobRequest::new(token, words[0], program, ranks)
    }
}

/// What came of a job.
#[derive(Debug)]
pub struct Ran {
    pub job: JobId,
    pub outcome: Outcome,
    pub out: String,
    pub err: String,
}

/// Collects what comes until the job ends, answering requests for the program.
pub async fn collect(
    cluster: &Cluster,
    client: &mut Client,
    mut on: impl FnMut(&ClientReply),
) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        let next = tokio::time::timeout(PATIENCE, client.next()).await;
        let reply = next.unwrap_or_else(|_| panic!("no end\n{}", cluster.logs()));
        let reply = reply.unwrap().expect("the head closed the connection");
        on(&reply);
        match reply {
            ClientReply::Output { stream: Stream::Out, data, .. } => out.extend(data),
            ClientReply::Output { stream: Stream::Err, data, .. } => err.extend(data),
            ClientReply::Ended { job, outcome, .. } => {
                let text = |bytes| String::from_utf8(bytes).unwrap();
                return Ran { job, outcome, out: text(out), err: text(err) };
            }
            ClientReply::Refused(refused) => panic!("{}", refused.message),
            _ => {}
        }
    }
}

pub async fn run(cluster: &Cluster, request: JobRequest) -> Ran {
    let mut client = cluster.client().await;
    client.send(&ClientRequest::Submit(Box::new(request))).await.unwrap();
    collect(cluster, &mut client, |_| {}).await
}

/// Submits and waits until the job runs.
pub async fn start(cluster: &Cluster, request: JobRequest) -> (JobId, Client) {
    let mut client = cluster.client().await;
    client.send(&ClientRequest::Submit(Box::new(request))).await.unwrap();
    loop {
        let next = tokio::time::timeout(PATIENCE, client.next()).await;
        let reply = next.unwrap_or_else(|_| panic!("does not run\n{}", cluster.logs()));
        match reply.unwrap().unwrap() {
            ClientReply::State { job, state: JobState::Running } => return (job, client),
            ClientReply::Ended { outcome, .. } => panic!("{outcome:?}\n{}", cluster.logs()),
            _ => {}
        }
    }
}
