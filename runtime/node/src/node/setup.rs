//! Start-up of a node's daemon, up to its main loop.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use kumi_control::message::{NodeDescription, Refusal, RefusalKind};
use kumi_net::disclosure::NodePage;
use kumi_net::priority;
use kumi_sched::NodeId;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

use super::backpressure::{Backpressure, WayUp};
use super::keeping::{AdoptedTask, FormerDaemon};
use super::tree::{self, Tree};
use super::{Shared, TreeEvent, clients, groups, memory};
use crate::cgroup::NodeGroups;
use crate::client::refusal;
use crate::clock::SharedClock;
use crate::config::{ClusterConfig, NodeConfig, on_link};
use crate::durable;
use crate::exit::{ExitCode, Failure};
use crate::fill;
use crate::job::devices::DeviceLedger;
use crate::job::mpi::MpiHost;
use crate::job::processors::NumaPlaces;
use crate::job::program::Programs;
use crate::job::rank_address::RankAddresses;
use crate::job::{
    GroupChanges, InputRoom, JobEvent, JobHookPrograms, NodeServices, ProcessStarter, STEP,
    StalledStarts,
};
use crate::keep::life::NodeLife;
use crate::limits;
use crate::link_thread;
use crate::listening;
use crate::names::NameService;
use crate::paths;
use crate::service;
use crate::switch::{SliceMeasure, Switcher};
use crate::tls::{Credentials, Identity};
use crate::watch::{AwaitedDaemon, Watcher};
use crate::wire;

/// Events that may wait for the main loop before their senders do.
const QUEUE: usize = 256;
/// Peers of a job's ranks that are told, over all nodes of the cluster: about 100 bytes each.
const PEERS_OF_ALL: usize = 65_536;
/// Switches reported one by one, over all nodes of the cluster.
const RECENT_OF_ALL: usize = 65_536;

/// Steps of `nice` by which ranks are put behind a daemon that may not be preferred.
const YIELDING: i32 = 5;

/// Files that exist while the daemon runs.
#[derive(Debug)]
pub(crate) struct Files {
    socket: PathBuf,
    pid: PathBuf,
    groups: Option<NodeGroups>,
}

impl Files {
    /// Removes them, and the node's control groups unless jobs are left in these.
    pub(super) fn remove(&self, leaves_jobs: bool) {
        for path in [&self.socket, &self.pid] {
            if let Err(error) = fs::remove_file(path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "a file is left");
            }
        }
        if let Some(groups) = self.groups.as_ref().filter(|_| !leaves_jobs) {
            if let Err(error) = groups.destroy(Duration::from_secs(1)) {
                tracing::error!(groups = ?groups.paths(), %error, "a control group is left");
            }
            groups.remove_empty_parents();
        }
    }
}

/// A daemon that is ready for its main loop.
pub(crate) struct Started {
    pub(super) services: Rc<NodeServices>,
    pub(super) shared: Shared,
    pub(super) description: NodeDescription,
    pub(super) config: Arc<ClusterConfig>,
    pub(super) credentials: Credentials,
    pub(super) backpressure: Backpressure,
    pub(super) job_events: mpsc::Receiver<JobEvent>,
    pub(super) tree_events: mpsc::Receiver<TreeEvent>,
    pub(super) files: Files,
    /// Slices of jobs that were measured.
    pub(super) slices: Receiver<SliceMeasure>,
    /// Switches that are reported one by one, and peers that are told.
    pub(super) samples: (usize, usize),
    /// Where figures are served, and the cluster's name for them.
    pub(super) metrics: Option<(TcpListener, String)>,
    /// Jobs of a former daemon, and what is left to the next one.
    pub(super) former: (Vec<AdoptedTask>, Option<NodeLife>),
}

/// What the node has of its machine, and who looks after that.
struct MachineShare {
    executable: PathBuf,
    cpus: Vec<usize>,
    memory: memory::NodeMemory,
    groups: Option<NodeGroups>,
    devices: DeviceLedger,
    watcher: Watcher,
    page: Option<Arc<NodePage>>,
    switcher: Switcher,
    slices: Receiver<SliceMeasure>,
    /// What the machine does not permit.
    limits: Vec<String>,
}

impl MachineShare {
    fn take(
        config: &ClusterConfig,
        own: &NodeConfig,
        node: NodeId,
        clock: &SharedClock,
        former: &FormerDaemon,
    ) -> Result<Self, Failure> {
        raise_open_files();
        let (executable, cpus) = (own_file()?, processors(&own.cpus)?);
        let (memory, mut limits) = (memory::of_node(config, own), Vec::new());
        let groups =
            groups::make(config, own, node, (&cpus, &memory), &former.groups(), &mut limits);
        let (watcher, devices) =
            watch_groups(&executable, own, groups.as_ref(), former.successor())?;
        let (measured, slices) = fill::measurements();
        let on = (&*cpus, measured);
        let (page, switcher) = start_switcher(config, node, clock, on, &mut limits)?;
        Ok(Self {
            executable,
            cpus,
            memory,
            groups,
            devices,
            watcher,
            page,
            switcher,
            slices,
            limits,
        })
    }
}

/// The refusal of a job whose program nobody has.
pub(super) fn program_missing() -> Refusal {
    refusal(
        RefusalKind::NotFound,
        "the program is not on the node and the client that could send it is gone; run it again",
    )
}

/// A failure to do `what`.
fn failure(code: ExitCode, what: &str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(code, format!("{what}: {error}"))
}

type Queue<T> = (mpsc::Sender<T>, mpsc::Receiver<T>);

/// The queues of events of jobs and of the tree, and what must wait for the way up.
fn queues() -> (Queue<JobEvent>, Queue<TreeEvent>, (Backpressure, WayUp)) {
    (mpsc::channel(QUEUE), mpsc::channel(QUEUE), Backpressure::new())
}

impl Started {
    pub(super) async fn start(dir: &Path, node: NodeId, at: Option<&str>) -> Result<Self, Failure> {
        let config = Arc::new(ClusterConfig::load(dir)?);
        let (own, shared) = (config.node(node)?.clone(), Shared::default());
        let credentials = Credentials::load(dir, Identity::Node(node))?;
        let (pid, socket) = (paths::node_pid(dir, node), paths::node_socket(dir, node));
        let (scope, listener) = listen(&own, &pid).await?;
        let metrics = listen_for_scrapes(config.metrics_of(node, at)?, "metrics").await?;
        let former = FormerDaemon::find(&config, dir, node).await?;
        let mut share = MachineShare::take(&config, &own, node, &shared.clock, &former)?;
        let ((job_sender, job_events), (tell, tree_events), (backpressure, way_up)) = queues();
        let services = Rc::new(NodeServices {
            node,
            mpi: MpiHost::new(dir, node, &config, &former.jobs()),
            address: on_link(SocketAddr::new(own.address, 0), scope),
            rank_addresses: RankAddresses::new(&config, node, scope),
            xdp: wire::start(config.wire_of(&own), own.address, &mut share.limits)?.map(Rc::new),
            cpus: share.cpus,
            numa: NumaPlaces::read(),
            groups: share.groups.clone(),
            group_changes: GroupChanges::default(),
            starts: StalledStarts::new(node, STEP, job_sender.clone()),
            starter: starter()?,
            devices: Rc::new(RefCell::new(share.devices)),
            job_defaults: config.job.clone(),
            executable: share.executable,
            names: NameService::default(),
            root_jobs: config.root_jobs,
            nice: prefer_daemon(&mut share.limits)?,
            may_lower: fill::permitted(),
            hooks: JobHookPrograms::new(&config.hooks, &config.name, &own.name),
            programs: RefCell::new(programs(dir, node, &config)?),
            switcher: share.switcher,
            watcher: share.watcher,
            events: job_sender,
            input_room: InputRoom::default(),
            way_up,
            page: share.page,
            kept: former.kept_jobs(),
            live: RefCell::default(),
            kept_traces: RefCell::default(),
        });
        let tree = Tree::new(&config, (node, scope), &credentials, &shared, (tell, &backpressure));
        let said = describe(&config, &tree, (&own, share.memory.node), &services, share.limits);
        begin((&socket, &pid), listener, tree, (&services, &own, &said))?;
        Ok(Self {
            former: former.adopt(&services),
            services,
            shared,
            description: said,
            backpressure,
            job_events,
            tree_events,
            files: Files { socket, pid, groups: share.groups },
            slices: share.slices,
            samples: samples(&config),
            metrics: metrics.map(|listener| (listener, config.name.clone())),
            config,
            credentials,
        })
    }
}

/// The thread that starts processes.
fn starter() -> Result<ProcessStarter, Failure> {
    ProcessStarter::new().map_err(failure(ExitCode::MachineLimits, "no thread can start processes"))
}

/// This node's share of what samples of all nodes may have.
fn samples(config: &ClusterConfig) -> (usize, usize) {
    let of_all = |most: usize| most / config.nodes.len().max(1);
    (of_all(RECENT_OF_ALL).min(crate::switch::RING), of_all(PEERS_OF_ALL))
}

fn say_ready(services: &NodeServices, own: &NodeConfig, said: &NodeDescription) {
    let (node, address) = (services.node, own.endpoint());
    tracing::info!(%node, %address, max_datagram = services.rank_addresses.max_datagram(), cpus = ?services.cpus, limits = ?said.limits, "ready");
    service::status(&format!("node {node} listens on {address}"));
}

/// Starts the watcher, which removes the groups should the daemon not get any further, and then looks for the devices.
fn watch_groups(
    executable: &Path,
    own: &NodeConfig,
    groups: Option<&NodeGroups>,
    successor: Option<AwaitedDaemon>,
) -> Result<(Watcher, DeviceLedger), Failure> {
    let watcher = Watcher::start(executable, groups, successor)
        .map_err(failure(ExitCode::MachineLimits, "no watcher can be started"))?;
    Ok((watcher, groups::devices(own, groups)?))
}

/// Has this thread, which tells the others that the node lives, go before ranks; returns the `nice` value for these.
/// Without the right to, what is done instead is added to `limits`.
fn prefer_daemon(limits: &mut Vec<String>) -> Result<i32, Failure> {
    let nice = priority::nice()
        .map_err(failure(ExitCode::MachineLimits, "the daemon's priority is not known"))?;
    if let Err(error) = priority::prefer_this_thread() {
        tracing::debug!(%error, "the daemon is not preferred");
        limits.push(limits::preference_sentence());
        // Not below 0: whoever may not prefer the daemon may not prefer ranks either.
        return Ok((nice + YIELDING).clamp(0, 19));
    }
    Ok(nice)
}

/// The node's page; without it, what that costs is added to `limits`.
fn node_page(
    config: &ClusterConfig,
    node: NodeId,
    cpus: &[usize],
    limits: &mut Vec<String>,
) -> Option<Arc<NodePage>> {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    match NodePage::create(node.0, config.node_count(), number(cpus.len())) {
        Ok(page) => Some(Arc::new(page)),
        Err(error) => {
            limits.push(limits::disclosure_sentence(&error.to_string()));
            None
        }
    }
}

/// The node's page, and the thread that says there whose turn it is.
fn start_switcher(
    config: &ClusterConfig,
    node: NodeId,
    clock: &SharedClock,
    (cpus, measured): (&[usize], SyncSender<SliceMeasure>),
    limits: &mut Vec<String>,
) -> Result<(Option<Arc<NodePage>>, Switcher), Failure> {
    let page = node_page(config, node, cpus, limits);
    let switcher = Switcher::start(node, clock.clone(), cpus, page.clone(), measured)
        .map_err(failure(ExitCode::MachineLimits, "no switching thread can be started"))?;
    if !switcher.realtime() {
        limits.push(limits::realtime_sentence());
    }
    Ok((page, switcher))
}

fn describe(
    config: &ClusterConfig,
    tree: &Tree,
    (own, memory): (&NodeConfig, u64),
    services: &NodeServices,
    limits: Vec<String>,
) -> NodeDescription {
    let processors = u32::try_from(services.cpus.len()).unwrap_or(u32::MAX);
    NodeDescription {
        node: tree.node,
        incarnation: tree.incarnation,
        name: own.name.clone(),
        processors,
        memory,
        devices: services.devices.borrow().counts(),
        max_ranks: processors
            .saturating_mul(config.max_ranks_per_processor)
            .min(kumi_net::layout::MAX_LOCAL_RANKS),
        limits,
        jobs: Vec::new(),
        path: Vec::new(),
    }
}

/// Listens at the node's address, once the machine has it; with the number of its interface to the others.
async fn listen(own: &NodeConfig, pid: &Path) -> Result<(u32, TcpListener), Failure> {
    listening::await_interface(own.interface.as_deref()).await;
    let scope = own.scope()?;
    Ok((scope, listening::listen(on_link(own.endpoint(), scope), Some(pid)).await?))
}

fn own_file() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(failure(ExitCode::Internal, "kumid does not find its own file"))
}

fn programs(dir: &Path, node: NodeId, config: &ClusterConfig) -> Result<Programs, Failure> {
    Programs::new(paths::cache(dir, node), config.retention.of_programs())
        .map_err(failure(ExitCode::Io, "the program cache cannot be made"))
}

/// Starts the thread of the links and the task of this machine's clients, and says that the daemon is ready.
fn begin(
    (socket, pid): (&Path, &Path),
    listener: TcpListener,
    tree: Tree,
    (services, own, said): (&NodeServices, &NodeConfig, &NodeDescription),
) -> Result<(), Failure> {
    let clients = listen_unix(socket)?;
    tokio::task::spawn_local(clients::serve(clients, tree.clone(), services.names.clone()));
    link_thread::start(listener, async move |listener| tree::serve(listener, tree).await)?;
    write_pid(pid)?;
    say_ready(services, own, said);
    Ok(())
}

/// Listens where figures are served, if they are; `key` in cluster.toml says where.
///
/// # Errors
/// When somebody else does, or the address is not one of this machine.
pub(crate) async fn listen_for_scrapes(
    address: Option<SocketAddr>,
    key: &str,
) -> Result<Option<TcpListener>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let bound = TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::new(
            ExitCode::Exists,
            format!("{address}, where figures are to be served, is in use: another node of this machine or another program listens there; change `{key}` in cluster.toml, or start this daemon with --metrics and another port"),
        ),
        _ => Failure::new(
            ExitCode::BadConfig,
            format!("figures cannot be served at {address}: {error}; change `{key}` in cluster.toml, or start this daemon with --metrics and another address"),
        ),
    })?;
    Ok(Some(bound))
}

/// Listens on a Unix socket that every user may connect to: who they are is asked of the kernel.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn listen_unix(path: &Path) -> Result<UnixListener, Failure> {
    let make = || {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        Ok(listener)
    };
    make().map_err(|error| {
        Failure::new(
            ExitCode::Io,
            format!("the socket {} cannot be made: {error}; choose a shorter or another directory with KUMI_DIR", path.display()),
        )
    })
}

/// Says that this process is ready.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write_pid(path: &Path) -> Result<(), Failure> {
    let draft = path.with_extension("pid.new");
    let written = fs::write(&draft, format!("{}\n", std::process::id()));
    durable::replace(path, &draft, written).map_err(|error| {
        let message = format!(
            "{} cannot be written: {error}; make room there, or look at the disk",
            path.display()
        );
        Failure::new(ExitCode::Io, message)
    })
}

/// Raises the limit of open files as far as permitted. Ranks have their users' limits.
pub(crate) fn raise_open_files() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        tracing::warn!(%error, soft, "the limit of open files stays");
    }
}

/// The processors ranks may use: those configured, or all this process may run on.
fn processors(configured: &[usize]) -> Result<Vec<usize>, Failure> {
    let internal = |error: nix::Error| {
        Failure::new(ExitCode::Internal, format!("the processors cannot be listed: {error}"))
    };
    let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(internal)?;
    let is_allowed = |&cpu: &usize| allowed.is_set(cpu).unwrap_or(false);
    if configured.is_empty() {
        return Ok((0..CpuSet::count()).filter(is_allowed).collect());
    }
    match configured.iter().find(|cpu| !is_allowed(cpu)) {
        None => Ok(configured.to_vec()),
        Some(cpu) => Err(Failure::new(
            ExitCode::BadConfig,
            format!(
                "processor {cpu} is not one that this daemon may use; correct `cpus` of the node in cluster.toml"
            ),
        )),
    }
}
