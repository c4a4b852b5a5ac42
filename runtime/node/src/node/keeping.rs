//! Jobs that have keepers, as the daemon's main loop sees them: those that it goes on with at its start, what the head has of
//! their output, and those that it leaves to its successor.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use kumi_control::message::{Command, Down};
use kumi_sched::{JobId, NodeId};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{JobEntry, NodeDaemon};
use crate::clock;
use crate::config::ClusterConfig;
use crate::exit::{ExitCode, Failure};
use crate::job::adoption::{Survivor, end_keepers, survivors};
use crate::job::kept::RELEASE_PATIENCE;
use crate::job::{JobCommand, NodeServices};
use crate::keep::life::NodeLife;
use crate::keep::{KeepSetting, KeptJobs, KeptPhase};
use crate::paths;
use crate::watch::AwaitedDaemon;
use kumi_control::agent::AdoptedJob;

/// What the daemon has to do with keepers.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    /// None if jobs end with the daemon.
    life: Option<NodeLife>,
    /// Jobs of a former daemon that are not switched, since there is no timetable yet.
    unswitched: Vec<JobId>,
    /// Jobs that are left to the next daemon.
    left: BTreeSet<JobId>,
}

impl Keeping {
    pub(super) fn new(life: Option<NodeLife>) -> Self {
        Self { life, ..Self::default() }
    }
}

/// A job that this daemon goes on with.
pub(crate) type AdoptedTask = (mpsc::UnboundedSender<JobCommand>, AdoptedJob);

/// What a former daemon of the node has left, and how this one leaves it to the next.
pub(super) struct FormerDaemon {
    /// None if jobs end with their daemon.
    own: Option<(KeepSetting, NodeLife)>,
    survivors: Vec<Survivor>,
}

impl FormerDaemon {
    /// Takes its place: its watcher ends nothing from now on. To be called when no other daemon can be there.
    ///
    /// # Errors
    /// What it left cannot be read or written.
    pub(super) async fn find(
        config: &ClusterConfig,
        dir: &Path,
        node: NodeId,
    ) -> Result<Self, Failure> {
        let folder = paths::keepers(dir, node);
        let Some(patience) = config.keep() else {
            // It may have been configured until now.
            end_keepers(&folder).await;
            return Ok(Self { own: None, survivors: Vec::new() });
        };
        let life = NodeLife::begin(paths::node_life(dir, node)).map_err(|error| {
            let message = format!("what the node's former daemon left cannot be read: {error}");
            Failure::new(ExitCode::Io, message)
        })?;
        let keep = KeepSetting { cluster: dir.to_owned(), folder, patience };
        let survivors = survivors(&keep, node).await;
        Ok(Self { own: Some((keep, life)), survivors })
    }

    /// How jobs are kept; none are yet.
    pub(super) fn kept_jobs(&self) -> KeptJobs {
        KeptJobs::new(self.own.as_ref().map(|(keep, _)| keep.clone()))
    }

    /// The daemon that may come after this one.
    pub(super) fn successor(&self) -> Option<AwaitedDaemon> {
        let (keep, life) = self.own.as_ref()?;
        let (life, number) = (life.path().to_owned(), life.number());
        Some(AwaitedDaemon { patience: keep.patience, life, number })
    }

    /// Jobs that run on.
    pub(super) fn jobs(&self) -> Vec<JobId> {
        self.survivors.iter().map(Survivor::job).collect()
    }

    /// Names of the control groups of jobs that run on.
    pub(super) fn groups(&self) -> Vec<String> {
        self.survivors.iter().map(Survivor::group_name).collect()
    }

    /// Goes on with its jobs. What cannot be gone on with is ended.
    pub(super) fn adopt(self, services: &Rc<NodeServices>) -> (Vec<AdoptedTask>, Option<NodeLife>) {
        let mut adopted = Vec::new();
        for survivor in self.survivors {
            let (job, link) = (survivor.job(), survivor.link());
            match survivor.adopt(services) {
                Ok(task) => adopted.push(task),
                Err(why) => {
                    tracing::error!(%job, why, "a job of the former daemon is ended");
                    link.release();
                }
            }
        }
        (adopted, self.own.map(|(_, life)| life))
    }
}

impl NodeDaemon {
    /// To be called before the first event.
    pub(super) fn go_on_with(&mut self, adopted: Vec<AdoptedTask>) {
        if adopted.is_empty() {
            return;
        }
        // What is not known has not been granted.
        let lease = self.keeping.life.as_ref().and_then(NodeLife::lease);
        self.agent.restore_lease(lease.unwrap_or_else(clock::boottime));
        for (orders, adopted) in adopted {
            let job = adopted.job;
            self.agent.adopt(adopted);
            self.jobs.insert(job, JobEntry { orders, kill_wanted: false });
            self.keeping.unswitched.push(job);
        }
    }

    /// There is a timetable: jobs of the former daemon are switched by it from now on.
    pub(super) fn switch_adopted(&mut self) {
        for job in std::mem::take(&mut self.keeping.unswitched) {
            self.order(job, JobCommand::Switch);
        }
    }

    /// A message of the parent, before the agent hears it: what the head has of output takes no memory any more.
    pub(super) fn note_acknowledged(&self, down: &Down) {
        let kept = self.services.kept.borrow();
        match down {
            Down::Command(_, Command::OutputKept { job, kept: streams, .. }) => {
                if let Some(kept) = kept.get(job) {
                    kept.acknowledged(streams);
                }
            }
            Down::Command(nodes, Command::DropOutput { job })
                if nodes.contains(self.services.node) =>
            {
                if let Some(kept) = kept.get(job) {
                    kept.drop_output();
                }
            }
            _ => {}
        }
    }

    /// The agent has heard something: a later daemon needs nothing of jobs that it does not know any more, and the lease.
    pub(super) fn note_kept(&mut self, forgotten: Option<JobId>) {
        if let Some(job) = forgotten.filter(|&job| !self.agent.knows(job)) {
            self.release(job);
        }
        if let Some(life) = &mut self.keeping.life {
            life.set_lease(self.agent.lease_until());
        }
    }

    /// Nothing of the job is needed any more.
    pub(super) fn release(&self, job: JobId) {
        if let Some(kept) = self.services.kept.borrow_mut().remove(&job) {
            kept.link.release();
        }
    }

    /// Told to stop: jobs that have started and have keepers are left to the next daemon.
    pub(super) fn leave_jobs(&mut self) {
        let kept = self.services.kept.borrow();
        let started = kept.iter().filter(|(job, kept)| {
            let runs = self.jobs.contains_key(job) || self.agent.knows(**job);
            runs && matches!(kept.state.phase(), Ok(KeptPhase::Started | KeptPhase::Over))
        });
        self.keeping.left = started.map(|(&job, _)| job).collect();
        if !self.keeping.left.is_empty() {
            tracing::info!(jobs = ?self.keeping.left, "these run on for the next daemon");
        }
    }

    /// Whether the job is left to the next daemon.
    pub(super) fn leaves(&self, job: JobId) -> bool {
        self.keeping.left.contains(&job)
    }

    /// At the end: keepers of all other jobs end. Returns whether some job is left.
    pub(super) async fn release_others(&self) -> bool {
        let all: Vec<JobId> = self.services.kept.borrow().keys().copied().collect();
        let mut links = Vec::new();
        for job in all.into_iter().filter(|job| !self.leaves(*job)) {
            links.extend(self.services.kept.borrow().get(&job).map(|kept| Rc::clone(&kept.link)));
            self.release(job);
        }
        let end = Instant::now() + RELEASE_PATIENCE;
        for link in links {
            if tokio::time::timeout_at(end, link.closed()).await.is_err() {
                tracing::warn!("a keeper has not ended yet");
            }
        }
        !self.keeping.left.is_empty()
    }
}
