//! What users see of others' jobs, as the cluster is configured. Each user sees all of their own, the owner and root of all.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::JobId;

use super::listing::Viewer;
use super::{ClientId, Head};
use crate::message::{ClientReply, ClusterStatus, JobRecord, NodeSample, Refusal, User};

/// What users see of the jobs of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShowOthers {
    /// Name, user, program, nodes, state and times.
    #[default]
    All,
    /// Nodes, state and times.
    Jobs,
    /// Nothing.
    Nothing,
}

/// What stands in the place of a name that is not shown.
pub(super) const UNNAMED: &str = "-";

/// Takes from a record whose job it is and what it is called.
pub(super) fn hide_names(record: &mut JobRecord) {
    record.spec.user = User { uid: u32::MAX, gid: u32::MAX, name: String::new() };
    let request = &mut record.spec.request;
    request.name = UNNAMED.to_owned();
    request.program.path = UNNAMED.to_owned();
    request.args = Vec::from([UNNAMED.to_owned()]);
}

impl Head {
    pub(super) fn viewer<'a>(&self, user: &'a User) -> Viewer<'a> {
        let owns_cluster = self.owns_cluster(user);
        Viewer { user, owns_cluster, show: self.config.show_others }
    }

    /// Whether a user sees that there is this job.
    fn sees(&self, viewer: &Viewer<'_>, id: JobId) -> bool {
        let hidden = || self.jobs.get(id).is_some_and(|job| !viewer.sees(&job.record));
        viewer.sees_all() || !hidden()
    }

    /// Takes from the status of the cluster what a user does not see.
    pub(super) fn hide_in_status(&self, user: &User, status: &mut ClusterStatus) {
        let viewer = self.viewer(user);
        if viewer.sees_all() {
            return;
        }
        let sees = |id: &JobId| self.sees(&viewer, *id);
        for node in &mut status.nodes {
            node.jobs.retain(sees);
        }
        for slot in status.timetable.columns.iter_mut().flat_map(|column| &mut column.slots) {
            slot.retain(sees);
        }
        status.timetable.idle.retain(sees);
        status.tree = None;
    }

    /// Takes from samples the ranks of jobs that a user does not see.
    fn hide_in_samples(&self, user: &User, samples: &mut [NodeSample]) {
        let viewer = self.viewer(user);
        if !viewer.sees_all() {
            for sample in samples {
                sample.ranks.retain(|rank| self.sees(&viewer, rank.job));
                if let Some(load) = &mut sample.load {
                    load.jobs.retain(|job| self.sees(&viewer, job.job));
                    let slots = load.slices.iter_mut().map(|slice| &mut slice.jobs);
                    slots.for_each(|jobs| jobs.retain(|job| self.sees(&viewer, *job)));
                }
            }
        }
    }

    /// Checks that a user may look at the peers of a job's ranks.
    ///
    /// # Errors
    /// It is another user's, and others' jobs are not shown.
    pub(super) fn may_see_peers(&self, user: &User, id: JobId) -> Result<(), Refusal> {
        match self.config.show_others {
            ShowOthers::All => Ok(()),
            ShowOthers::Jobs | ShowOthers::Nothing => self.permitted(user, id, "look at its peers"),
        }
    }

    /// Sends the samples that are complete or late.
    pub(super) fn check_samples(&mut self) {
        let now = self.time.now();
        for (scope, clients, samples) in self.samples.take_finished(now) {
            self.shared_samples.keep(scope, &samples, clients.keys().copied(), now);
            let mut seeing_all = Vec::new();
            for (client, user) in clients {
                if self.viewer(&user).sees_all() {
                    seeing_all.push(client);
                } else {
                    self.give_samples(client, &user, samples.clone());
                }
            }
            self.actions.reply_to_all(seeing_all, ClientReply::Samples(samples));
        }
    }

    /// Answers with what a user may see of samples.
    pub(super) fn give_samples(
        &mut self,
        client: ClientId,
        user: &User,
        mut samples: Vec<NodeSample>,
    ) {
        self.hide_in_samples(user, &mut samples);
        self.actions.reply(client, ClientReply::Samples(samples));
    }
}
