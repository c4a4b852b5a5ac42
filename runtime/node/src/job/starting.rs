//! The start of a job's processes, with an end to waiting.
//!
//! It is a task of its own, because what it has begun it must end: a thread that starts a process uses the job's descriptors
//! until the kernel answers. The job does not wait for that for ever. If nothing has got further for a while, it is refused, and
//! the next job has its turn. What the kernel makes later is removed by the task.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use kumi_control::message::{JobSpec, NodeRanks, Refusal, RefusalKind};
use tokio::sync::oneshot;

use super::NodeServices;
use super::cleanup::destroy;
use super::launch::{JobResources, ShimProcesses, launch};
use crate::client::refusal;

/// How long one step of a start may take: control groups, or a process. Where many others change control groups, each takes a
/// second or more.
pub(super) const STEP: Duration = Duration::from_secs(60);

/// How many steps of a start are done.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartProgress(Rc<Cell<u64>>);

impl StartProgress {
    /// One more step is done.
    pub(crate) fn step(&self) {
        self.0.set(self.0.get().wrapping_add(1));
    }
}

/// Waits until there is a value, or no step was done for so long; then there is none.
async fn while_it_goes_on<T>(
    mut value: oneshot::Receiver<T>,
    progress: &StartProgress,
    step: Duration,
) -> Option<T> {
    loop {
        let before = progress.0.get();
        match tokio::time::timeout(step, &mut value).await {
            Ok(value) => return value.ok(),
            Err(_) if progress.0.get() != before => {}
            Err(_) => return None,
        }
    }
}

/// Makes what a job needs here and starts its ranks as shims, or refuses it if that does not go on.
pub(super) async fn start(
    services: &Rc<NodeServices>,
    spec: &JobSpec,
    part: &NodeRanks,
    program: std::path::PathBuf,
) -> Result<(JobResources, ShimProcesses), Refusal> {
    let turn = services.group_changes.turn().await;
    let (wanted, made) = oneshot::channel();
    let progress = StartProgress::default();
    let (own, steps) = ((Rc::clone(services), spec.clone(), part.clone()), progress.clone());
    tokio::task::spawn_local(async move {
        let (services, spec, part) = own;
        let made = launch(&services, &spec, &part, program, steps).await;
        if let Err(Ok((resources, shims))) = wanted.send(made) {
            tracing::warn!(job = %spec.job, "its processes are there at last, and nobody wants them");
            discard(&spec, &resources, shims).await;
        }
    });
    let made = while_it_goes_on(made, &progress, STEP).await;
    drop(turn);
    made.unwrap_or_else(|| Err(stands_still(services)))
}

fn stands_still(services: &NodeServices) -> Refusal {
    let (node, seconds) = (services.node, STEP.as_secs());
    let message = format!(
        "node {node} could not start the job's processes: its kernel did not answer for {seconds} s; see what else the machine does, and submit the job again"
    );
    refusal(RefusalKind::NoResources, message)
}

/// Ends what was started too late.
async fn discard(spec: &JobSpec, resources: &JobResources, shims: ShimProcesses) {
    let ShimProcesses { ranks, server, kept, .. } = shims;
    if let Some(kept) = kept {
        kept.link.release();
    }
    let server = server.map(|server| server.process);
    let mut processes: Vec<_> = ranks.into_iter().map(|rank| rank.process).chain(server).collect();
    for process in &mut processes {
        process.kill();
    }
    destroy(spec.job, resources.control.as_ref());
    for process in processes {
        if let Err(error) = process.wait().await {
            tracing::warn!(job = %spec.job, %error, "a process that nobody wants could not be waited for");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_start_may_take_long_and_not_stand_still() {
        let (progress, step) = (StartProgress::default(), Duration::from_millis(1));
        let (sender, value) = oneshot::channel();
        let steps = progress.clone();
        let local = tokio::task::LocalSet::new();
        // It gets further whenever it has its turn, for much longer than one step may take.
        local.spawn_local(async move {
            let end = tokio::time::Instant::now() + 20 * step;
            while tokio::time::Instant::now() < end {
                steps.step();
                tokio::task::yield_now().await;
            }
            sender.send(7).unwrap();
        });
        let seen = local.run_until(while_it_goes_on(value, &progress, step)).await;
        assert_eq!(seen, Some(7));
        let (_sender, never) = oneshot::channel::<u8>();
        assert_eq!(while_it_goes_on(never, &progress, step).await, None);
    }
}
