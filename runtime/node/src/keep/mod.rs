//! Keepers: processes that hold the jobs of a node while its daemon is away.
//!
//! | file | content |
//! |---|---|
//! | `keeper` | the keeper's process |
//! | `message` | what daemon and keeper say to each other |
//! | `link` | the daemon's side |
//! | `output`, `input` | files of what ranks write and read |
//! | `record` | what the job is, and how far it is |
//! | `life` | what daemons of a node leave to their successors |

pub mod keeper;

pub(crate) mod input;
pub(crate) mod life;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod output;
pub(crate) mod record;

pub(crate) use input::InputFile;
pub(crate) use link::{FoundKeeper, KeepRequest, KeeperLink, KeptProcess, find};
pub(crate) use message::{Held, KeptCommand, MpiDescriptor};
pub(crate) use output::{OutputFile, Relay};
pub(crate) use record::{JobRecord, JobState, KeptPhase};

use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use kumi_control::message::{KeptOutput, Stream};
use kumi_sched::JobId;

/// How jobs are kept on a node.
#[derive(Clone, Debug)]
pub(crate) struct KeepSetting {
    /// The cluster's directory.
    pub(crate) cluster: PathBuf,
    /// Where keepers listen.
    pub(crate) folder: PathBuf,
    /// How long ranks go on without a daemon.
    pub(crate) patience: Duration,
}

/// The jobs of a node that have keepers.
#[derive(Debug)]
pub(crate) struct KeptJobs {
    /// None if jobs end with their daemon.
    setting: Option<KeepSetting>,
    jobs: RefCell<BTreeMap<JobId, Rc<KeptJob>>>,
}

impl KeptJobs {
    pub(crate) fn new(setting: Option<KeepSetting>) -> Self {
        Self { setting, jobs: RefCell::default() }
    }

    /// How jobs are kept, if they are.
    pub(crate) fn setting(&self) -> Option<&KeepSetting> {
        self.setting.as_ref()
    }

    pub(crate) fn borrow(&self) -> Ref<'_, BTreeMap<JobId, Rc<KeptJob>>> {
        self.jobs.borrow()
    }

    pub(crate) fn borrow_mut(&self) -> RefMut<'_, BTreeMap<JobId, Rc<KeptJob>>> {
        self.jobs.borrow_mut()
    }
}

/// A job that has a keeper, until the head has recorded its end.
#[derive(Debug)]
pub(crate) struct KeptJob {
    pub(crate) link: Rc<KeeperLink>,
    pub(crate) state: JobState,
    pub(crate) output: BTreeMap<(u32, Stream), OutputFile>,
    pub(crate) input: Option<InputFile>,
    pub(crate) relay: Option<Relay>,
}

impl KeptJob {
    /// The head has so much of the job's streams.
    pub(crate) fn acknowledged(&self, kept: &[KeptOutput]) {
        for KeptOutput { rank, stream, next } in kept {
            if let Some(file) = self.output.get(&(*rank, *stream))
                && let Err(error) = file.acknowledged(*next)
            {
                tracing::warn!(rank, %error, "output that the head has stays in memory");
            }
        }
    }

    /// Nobody wants what there is.
    pub(crate) fn drop_output(&self) {
        for file in self.output.values() {
            if let Err(error) = file.acknowledged(u64::MAX) {
                tracing::warn!(%error, "output that nobody wants stays in memory");
            }
        }
    }
}
