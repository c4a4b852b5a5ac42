//! The end of a job: what its processes left behind, and its control groups.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kumi_sched::JobId;
use tokio::task::AbortHandle;

use super::group_changes::elsewhere;
use super::launch::JobResources;
use super::run::JobTask;
use super::unkillable::PATIENCE;
use super::{NodeServices, Process, kill_descendants};
use crate::cgroup::JobGroups;

/// What there is of a job's start that failed, or that nobody wants any more.
pub(super) struct LeftOfStart {
    pub(super) processes: Vec<Process>,
    pub(super) resources: Box<JobResources>,
}

/// Ends what was started of a job that does not run, and removes its groups and devices once that has ended.
///
/// The user says in which folder a process begins, and one that waits there for a file service that does not answer cannot be
/// killed. That says nothing of the node. So after [`PATIENCE`] the job ends without it, as one whose ranks cannot be killed.
pub(super) async fn end_start(services: &Rc<NodeServices>, job: JobId, left: LeftOfStart) {
    let LeftOfStart { mut processes, resources } = left;
    processes.iter_mut().for_each(Process::kill);
    let groups = resources.control.clone();
    if let Some(killed) = groups.clone()
        && let Err(error) = elsewhere(move || killed.kill()).await
    {
        tracing::error!(%job, %error, "the control group could not be killed");
    }
    let (services, waited) = (Rc::clone(services), wait_for_killed(job, processes, groups.clone()));
    let rest = async move {
        if let Some(groups) = groups {
            remove_groups(&services, &groups).await;
        }
        // Devices last: nobody else has them before.
        drop(resources);
    };
    if !after_killed(waited, PATIENCE, rest).await {
        tracing::error!(
            %job,
            "processes of its start cannot be killed: they wait in the kernel, as for their working directory; the job ends without them"
        );
    }
}

async fn wait_for_killed(job: JobId, processes: Vec<Process>, groups: Option<JobGroups>) {
    for process in processes {
        if let Err(error) = process.wait().await {
            tracing::warn!(%job, %error, "a process that nobody wants could not be waited for");
        }
    }
    if let Some(groups) = groups
        && let Err(error) = groups.wait_empty().await
    {
        tracing::error!(%job, %error, "cannot wait for the control group");
    }
}

/// Waits until what was killed has ended, and does the rest then. What takes longer than `patience` to end has a task of its own
/// wait for it and do the rest. Returns whether all is done.
async fn after_killed(
    killed: impl Future<Output = ()> + 'static,
    patience: Duration,
    rest: impl Future<Output = ()> + 'static,
) -> bool {
    let mut killed = Box::pin(killed);
    let in_time = tokio::time::timeout(patience, &mut killed).await.is_ok();
    if in_time {
        rest.await;
    } else {
        tokio::task::spawn_local(async move {
            killed.await;
            rest.await;
        });
    }
    in_time
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::sync::oneshot;

    #[tokio::test(flavor = "current_thread")]
    async fn what_cannot_be_killed_is_waited_for_elsewhere_and_keeps_what_it_has() {
        let test = async {
            let (kernel, answer) = oneshot::channel::<()>();
            let (end, mut ended) = oneshot::channel();
            let killed = async { answer.await.unwrap() };
            let rest = async { end.send(()).unwrap() };
            assert!(!after_killed(killed, Duration::from_millis(1), rest).await);
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(ended.try_recv().is_err(), "its groups and devices are others' already");
            }
            kernel.send(()).unwrap();
            ended.await.unwrap();
        };
        tokio::task::LocalSet::new().run_until(test).await;
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_has_ended_leaves_nothing_to_others() {
        let done = Rc::new(Cell::new(0));
        let step = |at: u8| {
            let done = Rc::clone(&done);
            async move { assert_eq!(done.replace(at), at - 1) }
        };
        assert!(after_killed(step(1), Duration::from_secs(600), step(2)).await);
        assert_eq!(done.get(), 2);
    }
}
