//! Records of jobs as clients get them: without secrets, and of other users' jobs without what only their user may know.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use super::privacy::{ShowOthers, UNNAMED, hide_names};
use crate::message::{ContentHash, JobRecord, JobState, Outcome, User};

/// Who asks for jobs.
#[derive(Clone, Debug)]
pub(super) struct Viewer<'a> {
    pub(super) user: &'a User,
    /// The cluster's owner and root see everything of all jobs.
    pub(super) owns_cluster: bool,
    /// What others see.
    pub(super) show: ShowOthers,
}

/// About what a record takes in an answer.
pub(super) fn bytes(record: &JobRecord) -> usize {
    let request = &record.spec.request;
    let args: usize = request.args.iter().map(|arg| arg.len() + 4).sum();
    let others = request.cwd.len() + request.name.len() + request.program.path.len();
    256 + args + others + record.spec.layout.len() * 16
}

impl Viewer<'_> {
    fn is_own(&self, record: &JobRecord) -> bool {
        self.owns_cluster || record.spec.user.is_same(self.user)
    }

    /// Whether it sees that there are the jobs of all.
    pub(super) fn sees_all(&self) -> bool {
        self.owns_cluster || self.show != ShowOthers::Nothing
    }

    /// Whether it sees that there is this job.
    pub(super) fn sees(&self, record: &JobRecord) -> bool {
        self.sees_all() || self.is_own(record)
    }

    /// Name, program and user's name of a job, as [`Viewer::view`] has them.
    pub(super) fn words<'r>(&self, record: &'r JobRecord) -> [&'r str; 3] {
        let (request, user) = (&record.spec.request, &record.spec.user);
        let path: &str = &request.program.path;
        if self.is_own(record) {
            return [&request.name, path, &user.name];
        }
        match self.show {
            ShowOthers::All => [&request.name, file_name(path), &user.name],
            ShowOthers::Jobs | ShowOthers::Nothing => [UNNAMED, UNNAMED, ""],
        }
    }

    /// The number of a job's user, as [`Viewer::view`] has it.
    pub(super) fn uid(&self, record: &JobRecord) -> Option<u32> {
        (self.is_own(record) || self.show == ShowOthers::All).then_some(record.spec.user.uid)
    }

    /// A record without what the viewer may not know.
    pub(super) fn view(&self, record: &JobRecord) -> JobRecord {
        let mut record = record.clone();
        // Environments and keys are secrets of the job itself.
        record.spec.request.env = Vec::new();
        record.spec.request.limits = None;
        record.spec.request.batch.content = None;
        record.spec.channel_key = 0;
        record.spec.seal_key = None;
        if !self.is_own(&record) {
            withhold(&mut record);
            if self.show != ShowOthers::All {
                hide_names(&mut record);
            }
        }
        record
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Takes from a record what only its user may know: arguments may hold passwords, folders and sentences of refusals tell
/// what the user works on. The name stays, and the program's file name.
fn withhold(record: &mut JobRecord) {
    let request = &mut record.spec.request;
    let file = file_name(&request.program.path).to_owned();
    request.token = 0;
    request.args = Vec::from([file.clone()]);
    request.program.path = file;
    request.program.hash = ContentHash([0; 32]);
    request.cwd = String::new();
    if let JobState::Ending(Outcome::Refused(refusal))
    | JobState::Ended(Outcome::Refused(refusal)) = &mut record.state
    {
        refusal.message =
            "only the job's user, the cluster's owner and root see why it was refused".to_owned();
    }
}
