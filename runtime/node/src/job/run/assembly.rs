//! How the task of a job is put together, whether this daemon started its processes or a former one.

use std::rc::Rc;
use std::sync::Arc;

use kumi_control::message::{JobSpec, NodeRanks, PreparedRanks};
use kumi_net::disclosure::JobPage;
use kumi_net::segment::Segment;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::super::devices::JobDevices;
use super::super::launch::RankProcess;
use super::super::limits::share_of;
use super::super::memory_kills::MemoryKills;
use super::super::rank_address::JobPart;
use super::super::streams::Input;
use super::super::traces::JobTraces;
use super::super::unkillable::KillWatch;
use super::super::usage::UseMeter;
use super::super::{LiveJob, NodeServices};
use super::{JobTask, TaskEvent, pass_reports};
use crate::cgroup::JobGroups;
use crate::keep::KeptJob;
use crate::wire::JobWires;

/// What a job has here beside its processes.
pub(in crate::job) struct JobParts {
    pub(in crate::job) control: Option<JobGroups>,
    pub(in crate::job) devices: JobDevices,
    pub(in crate::job) segment: Segment,
    pub(in crate::job) page: Option<JobPage>,
    pub(in crate::job) traces: JobTraces,
    pub(in crate::job) prepared: PreparedRanks,
    pub(in crate::job) wires: JobWires,
    pub(in crate::job) kept: Option<Rc<KeptJob>>,
}

impl JobTask {
    /// The task of a job with these processes, which it attends to.
    pub(in crate::job) fn assemble(
        services: &Rc<NodeServices>,
        (spec, part): (&JobSpec, &NodeRanks),
        had: JobParts,
        (ranks, status): (Vec<RankProcess>, pipe::Receiver),
    ) -> (Self, mpsc::UnboundedSender<TaskEvent>) {
        let JobParts { control, devices, segment, page, traces, prepared, wires, kept } = had;
        let count = ranks.len();
        let share = share_of(services, spec, part);
        let name = (spec.request.name.clone(), spec.request.resources.fill, share);
        let (tell, parts) = mpsc::unbounded_channel();
        let groups = Arc::new(ranks.iter().map(RankProcess::group).collect());
        let (memory, processes) = ((segment, traces), (control.clone(), Arc::clone(&groups)));
        let live = LiveJob::new(name, part.first, memory, page, processes);
        services.live.borrow_mut().insert(spec.job, live);
        if let Some(kept) = &kept {
            services.kept.borrow_mut().insert(spec.job, Rc::clone(kept));
        }
        let mut task = Self {
            services: Rc::clone(services),
            job: spec.job,
            first: part.first,
            has_other_nodes: spec.layout.len() > 1,
            layout: JobPart::of(&spec.layout),
            control,
            devices: Some(devices),
            memory_kills: MemoryKills::default(),
            kill_watch: KillWatch::default(),
            use_meter: UseMeter::default(),
            groups,
            input: Input::none(),
            terminal: None,
            go: None,
            parts,
            tell: tell.clone(),
            mpi: None,
            addresses: prepared,
            wires,
            unready: count,
            prepared: false,
            started: false,
            launched: false,
            killed: false,
            failed: None,
            early: Vec::new(),
            running: count,
            open_pipes: 0,
            readers: Vec::new(),
            kept,
        };
        tokio::task::spawn_local(pass_reports(status, tell.clone()));
        for (index, rank) in ranks.into_iter().enumerate() {
            task.attend(index, rank, &tell);
        }
        (task, tell)
    }
}
