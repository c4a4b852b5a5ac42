//! Publishing the timetable: once per change, with a start a little in the future.

use kumi_sched::{ClusterTime, JobId, Timetable};

use super::Head;
use crate::agent::columns_of;
use crate::message::{Command, Nanos, NodeSet};
use crate::tree::LinkId;

/// How far in the future a timetable starts: enough for it to get down the tree. A node that gets
/// it later begins with the tick then due.
const LEAD: Nanos = 2_000_000;

impl Head {
    /// When a timetable that is published now starts.
    fn next_start(&self) -> ClusterTime {
        ClusterTime(self.now.saturating_add(LEAD))
    }

    /// Tells the policy which slots will be over when a timetable that is published now starts.
    /// Before the policy hears of any change, because those slots still go by what was.
    pub(super) fn pass_slots(&mut self) {
        let tick = self.timetable.tick_at(self.next_start());
        let slots = tick.saturating_sub(self.passed);
        if slots > 0 {
            self.policy.advance(slots);
            self.passed = tick;
        }
    }

    /// The job takes part in the rotation, or no longer.
    pub(super) fn set_active(&mut self, job: JobId, active: bool) {
        self.pass_slots();
        self.policy.set_active(job, active);
    }

    /// The policy forgets the job.
    pub(super) fn leave(&mut self, job: JobId) {
        self.pass_slots();
        self.policy.leave(job, ClusterTime(self.now));
    }

    /// The set of running jobs, or how they share, has changed.
    pub(super) fn timetable_changed(&mut self) {
        self.timetable_stale = true;
    }

    /// Sends a new timetable to all nodes, unless it would say what the last one says.
    pub(super) fn publish_if_stale(&mut self) {
        if !core::mem::take(&mut self.timetable_stale) {
            return;
        }
        self.pass_slots();
        let (columns, idle) = (self.policy.columns(), self.idle_jobs());
        let (mode, slice_ns) = (self.config.mode, self.config.slice_ns.max(1));
        let last = &self.timetable;
        let in_step = last.mode == mode && last.slice_ns == slice_ns;
        // The first one is always news: nodes may still go by that of an earlier head.
        let same = last.idle == idle && last.continues(self.passed, &columns);
        if in_step && last.generation > 0 && same {
            return;
        }
        let start = self.next_start();
        // Since its tick 0 would have begun: it may itself have gone on with another's slice.
        let since = start.0.saturating_sub(last.start.0).saturating_add(last.phase_ns);
        let phase_ns = if in_step { since % slice_ns } else { 0 };
        let generation = self.next_generation();
        self.timetable = Timetable { generation, start, slice_ns, phase_ns, mode, columns, idle };
        self.passed = 0;
        let attached = NodeSet::from_nodes(self.routes.nodes());
        for (link, below) in self.routes.by_link(&attached) {
            self.send_timetable(link, below);
        }
    }

    /// Above every generation of this head, and of the heads before it, which this one does not
    /// know: their generations were bounded by the wall clock then.
    fn next_generation(&self) -> u64 {
        (self.timetable.generation + 1).max(self.wall_ms.saturating_mul(1 << 16))
    }

    /// The timetable in force to nodes that have just attached.
    pub(super) fn send_timetable(&mut self, link: LinkId, nodes: NodeSet) {
        if self.timetable.generation > 0 {
            let part = columns_of(&self.timetable, &nodes);
            self.send_on(link, nodes, Command::Timetable(part));
        }
    }
}
