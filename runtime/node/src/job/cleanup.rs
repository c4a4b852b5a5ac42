//! Removal of a job's control groups.

use std::time::Duration;

use kumi_sched::JobId;

use crate::cgroup::JobGroups;

/// Ends what was started in the groups of a job that is refused, and removes them.
pub(super) fn destroy(job: JobId, groups: Option<&JobGroups>) {
    if let Some(groups) = groups
        && let Err(error) = groups.destroy(Duration::from_secs(1))
    {
        tracing::error!(%job, %error, "a control group is left");
    }
}

/// Removes the groups of a job whose processes have ended.
pub(super) async fn remove_groups(groups: &JobGroups) {
    for pause in 0..100 {
        match groups.remove() {
            Ok(()) => return,
            // The last process is dead, but its group counts it for a moment more.
            Err(_) if pause < 99 => tokio::time::sleep(Duration::from_millis(pause.min(10))).await,
            Err(error) => {
                tracing::error!(group = %groups.main().path().display(), %error, "a control group is left");
            }
        }
    }
}
