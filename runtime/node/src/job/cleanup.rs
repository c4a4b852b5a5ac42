//! The end of a job: what its processes left behind, and its control groups.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kumi_sched::JobId;
use tokio::task::AbortHandle;

use super::group_changes::elsewhere;
use super::run::JobTask;
use super::{NodeServices, kill_descendants};
use crate::cgroup::JobGroups;

/// Ends what was started in the groups of a job that does not run, and removes them once that has ended.
pub(super) async fn destroy(services: &NodeServices, job: JobId, groups: Option<&JobGroups>) {
    let Some(groups) = groups else { return };
    let killed = groups.clone();
    if let Err(error) = elsewhere(move || killed.kill()).await {
        tracing::error!(%job, %error, "the control group could not be killed");
    }
    if let Err(error) = groups.wait_empty().await {
        tracing::error!(%job, %error, "cannot wait for the control group");
    }
    remove_groups(services, groups).await;
}

/// Kills every process in a job's groups, soon: that may have to wait for others who change groups.
pub(super) fn kill_groups(job: JobId, groups: JobGroups) {
    tokio::task::spawn_blocking(move || {
        if let Err(error) = groups.kill() {
            tracing::error!(%job, %error, "the control group could not be killed");
        }
    });
}

/// Removes the groups of a job whose processes have ended.
pub(super) async fn remove_groups(services: &NodeServices, groups: &JobGroups) {
    for pause in 0..100 {
        let turn = services.group_changes.turn().await;
        let removed = groups.clone();
        let removed = elsewhere(move || removed.remove()).await;
        drop(turn);
        match removed {
            Ok(()) => return,
            // The last process is dead, but its group counts it for a moment more.
            Err(_) if pause < 99 => tokio::time::sleep(Duration::from_millis(pause.min(10))).await,
            Err(error) => {
                tracing::error!(group = %groups.main().path().display(), %error, "a control group is left");
            }
        }
    }
}

/// A look at what is still to come when all ranks have ended.
const PAUSE: Duration = Duration::from_millis(500);
/// After so many of them a pipe is left that some process holds.
const MOST_PAUSES: u32 = 10;

const ESCAPED: &str = "kumi: a process that has left the job holds its output open; what it still writes is not shown\n";

impl JobTask {
    /// What is still to come of ranks and pipes. A process that escaped and keeps a pipe open does not keep the job.
    pub(super) async fn last_parts(&mut self) {
        let mut pauses = 0;
        let gave_up = self.kill_watch.gave_up();
        while self.running > 0 && !gave_up || self.open_pipes > 0 || !self.launched {
            tokio::select! {
                biased;
                part = self.parts.recv() => match part {
                    Some(part) => self.part(part).await,
                    None => return,
                },
                () = tokio::time::sleep(PAUSE) => {
                    // Output waits as long as the way up is blocked.
                    let waits = self.running > 0 && !gave_up
                        || self.services.way_up.output.borrow().blocks(self.job);
                    pauses = if waits { 0 } else { pauses + 1 };
                    if pauses > MOST_PAUSES {
                        tracing::warn!(job = %self.job, "something that escaped keeps a pipe open");
                        if !gave_up {
                            self.say(ESCAPED.to_owned()).await;
                        }
                        return self.readers.iter().for_each(AbortHandle::abort);
                    }
                }
            }
        }
    }

    pub(super) async fn sweep(&self) {
        for pause in 0..100 {
            let ranks: Vec<_> = self.groups.iter().map(|g| g.load(Ordering::Relaxed)).collect();
            let keeper = self.kept.as_ref().map(|kept| kept.link.pid);
            if kill_descendants(Some(self.job), &ranks, keeper) == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        tracing::error!(job = %self.job, "processes of the job could not be killed");
    }
}
