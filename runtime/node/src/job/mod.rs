//! Jobs on this node: one task for each carries it from `Prepare` to `Freed`.

pub mod program;
mod program_cache;
pub mod shim;

mod admission;
pub(crate) mod adoption;
mod begin;
mod cleanup;
pub mod devices;
mod group_changes;
mod hooks;
mod input_room;
pub(crate) mod kept;
mod launch;
mod limits;
mod memory_kills;
pub mod mpi;
mod mpi_task;
mod orphans;
mod process;
pub mod processors;
pub mod rank_address;
mod rank_looks;
mod run;
mod starter;
mod starting;
mod starts;
mod streams;
mod terminal;
pub mod traces;
mod unkillable;
mod usage;
mod user;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use kumi_control::agent::AgentEvent;
use kumi_control::message::{
    ContentHash, Contribution, ExchangeId, JobSpec, RankAddress, Refusal, WindowSize,
};
use kumi_net::disclosure::{JobPage, NodePage};
use kumi_net::segment::Segment;
use kumi_sched::{JobId, NodeId};
use tokio::sync::mpsc;

use crate::cgroup::{JobGroups, NodeGroups};
use crate::config::JobDefaults;
use crate::keep::KeptJobs;
use crate::names::NameService;
use crate::node::WayUp;
use crate::switch::{JobTurns, Switcher};
use crate::watch::Watcher;
use crate::wire::NodeXdp;
use devices::DeviceLedger;
pub use group_changes::GroupChanges;
pub use hooks::JobHookPrograms;
pub use input_room::{InputPiece, InputRoom};
use mpi::MpiHost;
use processors::NumaPlaces;
use program::Programs;
pub use program_cache::CacheLimits;
use rank_address::RankAddresses;
pub use rank_looks::RankLooks;
use traces::{JobTraces, KeptTraces};

pub(crate) use process::{Process, SpawnRequest};
pub use starter::ProcessStarter;
pub(crate) use starting::StartProgress;
pub(crate) use starts::STEP;
pub use starts::StalledStarts;

pub use orphans::{ProcessTable, kill_descendants};

/// Event from a job's task for the daemon's main loop.
#[derive(Debug)]
pub enum JobEvent {
    /// Something for the agent.
    Agent(Box<AgentEvent>),
    /// The task has ended without `Freed`, since the job was refused; nothing is left of it.
    Gone(JobId),
}

/// Command to a job's task.
#[derive(Debug)]
pub enum JobCommand {
    /// This program is here now, or nobody can supply it.
    Program(ContentHash, Result<(), Refusal>),
    /// Let the ranks go.
    Start {
        /// By rank.
        addresses: Vec<RankAddress>,
        /// Largest UDP payload, in bytes.
        max_datagram: u16,
    },
    /// Signal to all ranks.
    Signal(u8),
    /// For rank 0; empty closes it.
    Input(InputPiece),
    /// Size of the terminal, and whether to have the foreground draw anew in any case.
    Resize(WindowSize, bool),
    /// Kill and free.
    Kill,
    /// From now on there is a timetable, by which to switch a job that a former daemon started.
    Switch,
    /// An exchange of the MPI program's servers is over.
    Exchanged(ExchangeId, Vec<Contribution>),
    /// A message of the MPI program's server on another node.
    Relayed(NodeId, Vec<u8>),
}

/// What a job has of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobShare {
    /// Processors, at least 1. Jobs may have some in turn.
    pub processors: u64,
    /// Bytes of memory that are reserved for it; 0 if none are.
    pub memory: u64,
}

/// A job whose ranks exist, for the load sampler.
#[derive(Debug)]
pub struct LiveJob {
    /// The job's name.
    pub name: String,
    /// What it has of the node.
    pub share: JobShare,
    /// Its contexts.
    pub segment: Segment,
    /// Lowest local rank.
    pub first: u32,
    /// How often its local ranks were seen, and busy.
    pub load: RankLooks,
    /// Page of its ranks' states, if the node has pages.
    pub page: Option<Arc<JobPage>>,
    /// A client has had it stopped by a signal, and not continued.
    pub stopped: bool,
    /// The switching thread has it: its ranks run by the timetable.
    pub started: bool,
    /// By the timetable it is outside the rotation, because all its ranks wait.
    pub idle: bool,
    /// Its turns, as the switching thread tells of them.
    pub turns: Arc<JobTurns>,
    /// Whether it is to run beside others that leave something idle; without an answer the cluster's setting counts.
    pub fill: Option<bool>,
    /// It can be put behind others.
    pub may_fill: bool,
    /// Its control groups, if it has some.
    pub control: Option<JobGroups>,
    /// Process groups of its ranks; 0 once the rank is reaped.
    pub groups: Arc<Vec<AtomicI32>>,
    /// What its ranks record, if it is traced.
    pub traces: JobTraces,
}

impl LiveJob {
    /// Ranks from `first` on that have not been started, with the job's control groups and their process groups.
    fn new(
        (name, fill, share): (String, Option<bool>, JobShare),
        first: u32,
        (segment, traces): (Segment, JobTraces),
        page: Option<JobPage>,
        (control, groups): (Option<JobGroups>, Arc<Vec<AtomicI32>>),
    ) -> Self {
        let load = RankLooks::new(groups.len());
        let page = page.map(Arc::new);
        let turns = Arc::new(JobTurns::new(page.clone()));
        let (stopped, started, idle, may_fill) = (false, false, false, false);
        Self {
            name,
            share,
            segment,
            first,
            load,
            page,
            stopped,
            started,
            idle,
            turns,
            fill,
            may_fill,
            control,
            groups,
            traces,
        }
    }

    /// Whether its ranks can run now: it is their turn, others leave them something, or they only wait.
    pub fn runs(&self) -> bool {
        self.idle || self.turns.has_turn() || self.turns.fills()
    }

    /// The ranks' processes, by place; 0 once the rank is reaped.
    pub fn leaders(&self) -> Vec<i32> {
        self.groups.iter().map(|group| group.load(Ordering::Relaxed)).collect()
    }
}

/// Services of the node that the tasks of all jobs share.
#[derive(Debug)]
pub struct NodeServices {
    /// This node.
    pub node: NodeId,
    /// What MPI programs have of the node beside that.
    pub mpi: MpiHost,
    /// Where ranks' sockets bind unless [`NodeServices::rank_addresses`] has another address: a free port of this one, with
    /// its interface where it needs one.
    pub address: SocketAddr,
    /// The addresses of the nodes of a job.
    pub rank_addresses: RankAddresses,
    /// AF_XDP for ranks, if the node has it.
    pub xdp: Option<Rc<NodeXdp>>,
    /// Processors of ranks.
    pub cpus: Vec<usize>,
    /// Their NUMA places.
    pub numa: NumaPlaces,
    /// The node's control groups, if there may be some.
    pub groups: Option<NodeGroups>,
    /// Whose turn it is to start or remove processes.
    pub group_changes: GroupChanges,
    /// Starts of jobs that stand still.
    pub starts: StalledStarts,
    /// The thread that starts processes.
    pub starter: ProcessStarter,
    /// The node's devices.
    pub devices: Rc<RefCell<DeviceLedger>>,
    /// Defaults of jobs.
    pub job_defaults: JobDefaults,
    /// This program's own file.
    pub executable: PathBuf,
    /// Who users are on this machine.
    pub names: NameService,
    /// Whether jobs of root run here.
    pub root_jobs: bool,
    /// `nice` value of ranks.
    pub nice: i32,
    /// Whether threads of ranks can be put behind others and back.
    pub may_lower: bool,
    /// What runs before and after jobs.
    pub hooks: JobHookPrograms,
    /// Programs.
    pub programs: RefCell<Programs>,
    /// The switching thread.
    pub switcher: Switcher,
    /// Cleans up if this process is killed.
    pub watcher: Watcher,
    /// To the main loop.
    pub events: mpsc::Sender<JobEvent>,
    /// For input that ranks have not read.
    pub input_room: InputRoom,
    /// What must wait now.
    pub way_up: WayUp,
    /// Page of the node's and the cluster's state for ranks, if the system supports it.
    pub page: Option<Arc<NodePage>>,
    /// Jobs that have a keeper.
    pub(crate) kept: KeptJobs,
    /// Jobs to be sampled.
    pub live: RefCell<BTreeMap<JobId, LiveJob>>,
    /// Traces of jobs that are over.
    pub kept_traces: RefCell<KeptTraces>,
}

impl NodeServices {
    async fn tell(&self, event: AgentEvent) {
        // The main loop ends after all jobs.
        let _ = self.events.send(JobEvent::Agent(Box::new(event))).await;
    }
}

/// Starts the task of a job; orders go to the sender that is returned.
pub fn start(services: &Rc<NodeServices>, spec: Box<JobSpec>) -> mpsc::UnboundedSender<JobCommand> {
    let (orders, inbox) = mpsc::unbounded_channel();
    tokio::task::spawn_local(begin::run(Rc::clone(services), spec, inbox));
    orders
}
