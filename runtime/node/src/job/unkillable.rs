//! Ranks that cannot be killed.
//!
//! A process that waits in the kernel, as for a disk or a file service that does not answer, ends only when that wait does. It
//! runs nothing of its program any more. So the job ends without it, and its user is told.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::cleanup::remove_groups;
use super::run::JobTask;

/// How long ranks that were killed may take to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// When the ranks were killed, and whether those that are left were given up.
#[derive(Debug, Default)]
pub(super) struct KillWatch {
    killed: Option<Instant>,
    gave_up: bool,
}

impl KillWatch {
    /// The ranks are killed, perhaps not for the first time.
    pub(super) fn killed(&mut self) {
        self.killed.get_or_insert_with(Instant::now);
    }

    /// Whether ranks that cannot be killed were given up.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    fn is_over(&self) -> bool {
        self.killed.is_some_and(|since| since.elapsed() >= PATIENCE)
    }
}

impl JobTask {
    /// Gives up ranks that were killed long ago, and says so once.
    pub(super) async fn look_at_killed(&mut self) {
        if self.kill_watch.gave_up || !self.kill_watch.is_over() {
            return;
        }
        self.kill_watch.gave_up = true;
        let left = self.groups.iter().enumerate();
        let left = left.filter(|(_, group)| group.load(Ordering::Relaxed) > 0);
        let ranks: Vec<u32> = left
            .filter_map(|(index, _)| self.first.checked_add(u32::try_from(index).ok()?))
            .collect();
        tracing::error!(job = %self.job, ?ranks, "ranks cannot be killed: they wait in the kernel");
        for rank in ranks {
            let text = format!(
                "kumi: rank {rank} was killed and has not ended: it waits in the kernel, as for a disk that does not answer; the job ends without it\n"
            );
            self.say_of(rank, text).await;
        }
    }

    /// Waits until no process of the job is left, or those that are cannot be killed.
    pub(super) async fn wait_for_processes(&mut self) {
        if self.kill_watch.gave_up {
            return;
        }
        let Some(groups) = &self.control else { return self.sweep().await };
        match tokio::time::timeout(PATIENCE, groups.wait_empty()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(job = %self.job, %error, "cannot wait for the control group");
            }
            Err(_) => {
                tracing::error!(job = %self.job, "processes cannot be killed: they wait in the kernel");
                self.kill_watch.gave_up = true;
            }
        }
    }

    /// Removes the control group and frees the devices of the job. Where processes are left that cannot be killed, nobody else gets
    /// either before these have ended.
    pub(super) async fn remove_what_it_had(&mut self) {
        let (control, devices) = (self.control.take(), self.devices.take());
        let Some(groups) = control else { return };
        let (gave_up, services) = (self.kill_watch.gave_up, Rc::clone(&self.services));
        let removed = async move {
            if gave_up && let Err(error) = groups.wait_empty().await {
                tracing::error!(%error, "cannot wait for a control group");
            }
            remove_groups(&services, &groups).await;
            drop(devices);
        };
        if gave_up {
            tokio::task::spawn_local(removed);
        } else {
            removed.await;
        }
    }
}
