//! Backpressure in the control tree: what a node's neighbours may send depends on what waits for the others.
//!
//! What waits for a slow link is in the memory of the daemon. So a node that has too much for its parent reads nothing from its
//! children and its ranks, and one that has too much for a child reads nothing from its parent. Their links fill then, and they
//! do the same. Nothing is lost.

use std::collections::BTreeSet;

use kumi_sched::JobId;
use tokio::sync::watch;

use crate::link::Outbox;

/// Most bytes that wait for a link before those are not read any more from which more would come for it.
pub(super) const MAX_QUEUED: usize = 4 << 20;

/// Which directions are blocked.
#[derive(Debug)]
pub(super) struct Backpressure {
    up: watch::Sender<bool>,
    down: watch::Sender<bool>,
    output: watch::Sender<BlockedOutput>,
}

/// Whose output must wait in the ranks' pipes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockedOutput {
    /// That of all jobs.
    all: bool,
    /// That of these jobs.
    jobs: BTreeSet<JobId>,
}

impl BlockedOutput {
    /// That of all jobs or not, and that of these.
    pub(super) fn new(all: bool, jobs: impl Iterator<Item = JobId>) -> Self {
        Self { all, jobs: jobs.collect() }
    }

    /// Whether output of this job must wait.
    pub(crate) fn blocks(&self, job: JobId) -> bool {
        self.all || self.jobs.contains(&job)
    }
}

/// What holds up the parts of a job.
#[derive(Clone, Debug)]
pub struct WayUp {
    /// Whether there is too much for the parent.
    pub(crate) blocked: watch::Receiver<bool>,
    /// Whose output must wait.
    pub(crate) output: watch::Receiver<BlockedOutput>,
}

/// Waits until a direction is free.
#[derive(Clone, Debug)]
pub(super) struct Gate(watch::Receiver<bool>);

impl Gate {
    /// Returns once the direction is free, or nobody says so any more: then the daemon is about to end.
    pub(super) async fn pass(&mut self) {
        let _ = self.0.wait_for(|blocked| !blocked).await;
    }
}

impl Backpressure {
    /// Nothing is blocked. Also what says so of the way up.
    pub(super) fn new() -> (Self, WayUp) {
        let ((up, blocked), (down, _)) = (watch::channel(false), watch::channel(false));
        let (all, output) = watch::channel(BlockedOutput::default());
        (Self { up, down, output: all }, WayUp { blocked, output })
    }

    /// For what comes from children.
    pub(super) fn gate_of_children(&self) -> Gate {
        Gate(self.up.subscribe())
    }

    /// For what comes from the parent.
    pub(super) fn gate_of_parent(&self) -> Gate {
        Gate(self.down.subscribe())
    }

    /// Looks what waits for the links. This output waits to be acknowledged.
    pub(super) fn update<'a>(
        &self,
        mut output: BlockedOutput,
        parent: Option<&Outbox>,
        children: impl Iterator<Item = &'a Outbox>,
    ) {
        let much = |outbox: &Outbox| outbox.queued() > MAX_QUEUED;
        let (up, down) = (parent.is_some_and(much), children.into_iter().any(much));
        output.all |= up;
        self.output.send_if_modified(|now| {
            let changed = *now != output;
            *now = output;
            changed
        });
        for (direction, blocked) in [(&self.up, up), (&self.down, down)] {
            direction.send_if_modified(|now| std::mem::replace(now, blocked) != blocked);
        }
    }

    /// Whether a direction is blocked, so that it is to be looked at again soon.
    pub(super) fn is_any(&self) -> bool {
        *self.up.borrow() || *self.down.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Traffic;
    use kumi_control::message::{CONTROL_VERSION, Up};
    use std::time::Duration;
    use tokio::io::AsyncReadExt;

    /// Whether something that waits for the gate gets its turn.
    async fn is_open(gate: &mut Gate) -> bool {
        tokio::time::timeout(Duration::from_millis(1), gate.pass()).await.is_ok()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_waits_for_a_link_holds_up_the_other_side() {
        let (near, far) = tokio::io::duplex(1 << 10);
        let (slow, writing) = Outbox::start(near, CONTROL_VERSION, Traffic::default());
        let writing = tokio::spawn(writing);
        let (idle, _) = Outbox::start(tokio::io::sink(), CONTROL_VERSION, Traffic::default());
        let (pressure, way) = Backpressure::new();
        let none = BlockedOutput::default;
        let (mut up, mut down) = (pressure.gate_of_children(), pressure.gate_of_parent());
        let frame = Up::Disclosed(Vec::new());
        while slow.queued() <= MAX_QUEUED {
            slow.send(&frame);
        }
        pressure.update(none(), Some(&slow), [&idle].into_iter());
        assert!(way.output.borrow().blocks(JobId(1)));
        assert!(!is_open(&mut up).await && is_open(&mut down).await && pressure.is_any());
        pressure.update(none(), Some(&idle), [&idle, &slow].into_iter());
        assert!(is_open(&mut up).await && !is_open(&mut down).await);
        // Who may not write more yet keeps nobody else from it.
        let full = BlockedOutput::new(false, std::iter::once(JobId(1)));
        pressure.update(full, None, [].into_iter());
        assert!(is_open(&mut up).await && is_open(&mut down).await && !pressure.is_any());
        let blocked = way.output.borrow().clone();
        assert!(blocked.blocks(JobId(1)) && !blocked.blocks(JobId(2)));
        // The other side reads: all of it comes.
        let sent = slow.queued() as u64;
        let reading = tokio::spawn(async move {
            tokio::io::copy(&mut far.take(sent), &mut tokio::io::sink()).await
        });
        assert_eq!(reading.await.unwrap().unwrap(), sent);
        while slow.queued() > 0 {
            tokio::task::yield_now().await;
        }
        pressure.update(none(), Some(&slow), [&slow].into_iter());
        assert!(is_open(&mut up).await && is_open(&mut down).await && !pressure.is_any());
        drop(slow);
        writing.await.unwrap().unwrap();
    }
}
