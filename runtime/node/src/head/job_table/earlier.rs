//! Records of earlier versions. What each version added to a request follows what the one before had, so its request is that of
//! the one before and the rest.

use kumi_control::batch::{After, ArrayTask, BatchOptions};
use kumi_control::message::{
    self, CONTROL_VERSION, JobRecord, JobRequest, JobSpec, JobState, JobUse, ProcessLimits,
    Program, Resources, SealKey, WaitLimit, WindowSize,
};
use kumi_sched::{JobId, NodeId};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Reads a record of an earlier version.
pub(super) type RecordReader = fn(&[u8]) -> Result<JobRecord, postcard::Error>;

// What changes again needs a step of its own.
const _: () = assert!(CONTROL_VERSION == 16);

/// Control versions whose records can be read.
pub(super) const READERS: [(u32, RecordReader); 8] = [
    (8, read::<Request8, User9, NodeRanks9>),
    (9, read::<Request9, User9, NodeRanks9>),
    // Version 11 added only a way how ranks end.
    (10, read::<Request11, message::User, message::NodeRanks>),
    (11, read::<Request11, message::User, message::NodeRanks>),
    // Version 13 added only a way how jobs end.
    (12, read::<Request13, message::User, message::NodeRanks>),
    (13, read::<Request13, message::User, message::NodeRanks>),
    (14, read_14),
    // Version 16 added nothing.
    (15, |bytes| postcard::from_bytes(bytes)),
];

/// What reads records of this earlier version, if it is known.
pub(in crate::head) fn reader(control: u32) -> Option<RecordReader> {
    READERS.into_iter().find(|&(known, _)| known == control).map(|(_, read)| read)
}

/// A request of version 8.
#[derive(Deserialize)]
struct Request8 {
    token: u128,
    name: String,
    program: Program,
    args: Vec<String>,
    env: Vec<(String, String)>,
    cwd: String,
    ranks: u32,
    nodes: Option<u32>,
    encrypt: Option<bool>,
    priority: u16,
    estimate_ns: Option<u64>,
}

/// Version 9 added limits of ranks and of waiting.
#[derive(Deserialize)]
struct Request9 {
    before: Request8,
    wait: Option<WaitLimit>,
    limits: Option<ProcessLimits>,
}

/// Version 10 added resources of ranks.
#[derive(Deserialize)]
struct Request11 {
    before: Request9,
    resources: Resources,
}

/// Version 12 added terminals.
#[derive(Deserialize)]
struct Request13 {
    before: Request11,
    terminal: Option<WindowSize>,
}

/// Version 14 added limits of time, arrays and jobs that run after others.
#[derive(Deserialize)]
struct Request14 {
    before: Request13,
    batch: BatchOptions14,
}

/// Version 15 added how often a job is started again.
#[derive(Deserialize)]
struct BatchOptions14 {
    time_limit_ns: Option<u64>,
    after: Vec<After>,
    task: Option<ArrayTask>,
    detached: bool,
    content: Option<Vec<u8>>,
}

impl From<Request8> for JobRequest {
    /// Its ranks get the limits that every process has, and it waits for ever.
    fn from(old: Request8) -> Self {
        let Request8 { args, env, cwd, nodes, encrypt, priority, estimate_ns, .. } = old;
        // A rank had one processor, and a job its nodes to itself in its turns.
        let resources = Resources { exclusive: true, ..Resources::default() };
        let new = Self::new(old.token, &old.name, old.program, old.ranks);
        Self { args, env, cwd, nodes, encrypt, priority, estimate_ns, resources, ..new }
    }
}

impl From<Request9> for JobRequest {
    fn from(Request9 { before, wait, limits }: Request9) -> Self {
        Self { wait, limits, ..before.into() }
    }
}

impl From<Request11> for JobRequest {
    fn from(Request11 { before, resources }: Request11) -> Self {
        Self { resources, ..before.into() }
    }
}

impl From<Request13> for JobRequest {
    fn from(Request13 { before, terminal }: Request13) -> Self {
        Self { terminal, ..before.into() }
    }
}

impl From<Request14> for JobRequest {
    fn from(Request14 { before, batch }: Request14) -> Self {
        let BatchOptions14 { time_limit_ns, after, task, detached, content } = batch;
        let batch = BatchOptions { time_limit_ns, after, task, detached, content, requeues: 0 };
        Self { batch, ..before.into() }
    }
}

/// A user of version 9, without a name.
#[derive(Deserialize)]
struct User9 {
    uid: u32,
    gid: u32,
}

/// A job's part of a node in version 9, without processors.
#[derive(Deserialize)]
struct NodeRanks9 {
    node: NodeId,
    first: u32,
    count: u32,
}

impl From<User9> for message::User {
    fn from(User9 { uid, gid }: User9) -> Self {
        Self { uid, gid, name: name_of(uid) }
    }
}

impl From<NodeRanks9> for message::NodeRanks {
    fn from(NodeRanks9 { node, first, count }: NodeRanks9) -> Self {
        Self { node, first, count, processors: Vec::new() }
    }
}

/// The name of a user on this machine, which may ask the network. It is done once, before the head serves anybody.
fn name_of(uid: u32) -> String {
    let found = nix::unistd::User::from_uid(uid.into());
    let found = found.unwrap_or_else(|error| {
        tracing::warn!(uid, %error, "a job of an earlier version has no name of its user");
        None
    });
    found.map(|user| user.name).unwrap_or_default()
}

/// A job with the request `R`, user `U` and parts of nodes `P` of its version.
#[derive(Deserialize)]
struct EarlierSpec<R, U, P> {
    job: JobId,
    user: U,
    request: R,
    layout: Vec<P>,
    channel_key: u64,
    seal_key: Option<SealKey>,
}

#[derive(Deserialize)]
struct EarlierRecord<R, U, P> {
    spec: EarlierSpec<R, U, P>,
    state: JobState,
    submitted_ms: u64,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
}

/// The record in `bytes` as it is now.
///
/// # Errors
/// When these are no record of the version whose parts these are.
fn read<R, U, P>(bytes: &[u8]) -> Result<JobRecord, postcard::Error>
where
    R: DeserializeOwned + Into<JobRequest>,
    U: DeserializeOwned + Into<message::User>,
    P: DeserializeOwned + Into<message::NodeRanks>,
{
    postcard::from_bytes::<EarlierRecord<R, U, P>>(bytes).map(EarlierRecord::into_record)
}

/// A record of version 14.
#[derive(Deserialize)]
struct Record14 {
    before: EarlierRecord<Request14, message::User, message::NodeRanks>,
    output_not_kept: u64,
}

/// Reads a record of version 14. Version 15 added how often jobs were started again, and until when they were asked to end,
/// and what they use.
fn read_14(bytes: &[u8]) -> Result<JobRecord, postcard::Error> {
    let Record14 { before, output_not_kept } = postcard::from_bytes(bytes)?;
    Ok(JobRecord { output_not_kept, ..before.into_record() })
}

impl<R, U, P> EarlierRecord<R, U, P>
where
    R: Into<JobRequest>,
    U: Into<message::User>,
    P: Into<message::NodeRanks>,
{
    fn into_record(self) -> JobRecord {
        let Self { spec, state, submitted_ms, started_ms, ended_ms } = self;
        let EarlierSpec { job, user, request, layout, channel_key, seal_key } = spec;
        let (user, request) = (user.into(), request.into());
        let layout = layout.into_iter().map(Into::into).collect();
        let spec = JobSpec { job, user, request, layout, channel_key, seal_key };
        let used = held_by(&spec);
        JobRecord {
            spec,
            state,
            submitted_ms,
            started_ms,
            ended_ms,
            output_not_kept: 0,
            restarts: 0,
            end_request: None,
            used,
        }
    }
}

/// The processors that a job of an earlier version has: those that its record names, or one for each rank.
fn held_by(spec: &JobSpec) -> JobUse {
    let of_part = |part: &message::NodeRanks| match part.processors.len() {
        0 => part.count,
        some => u32::try_from(some).unwrap_or(u32::MAX),
    };
    let processors = spec.layout.iter().map(of_part).fold(0, u32::saturating_add);
    JobUse { processors, ..JobUse::default() }
}

#[cfg(test)]
mod tests {
    use kumi_control::message::{JobState, Outcome};
    use rusqlite::Connection;

    use super::super::tests::record;
    use super::super::{JobTable, TableError, version};
    use super::*;

    /// The version that the table at this path says it has.
    fn version_of(path: &std::path::Path) -> u32 {
        let connection = Connection::open(path).unwrap();
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    }

    fn set_version(path: &std::path::Path, version: u32) {
        let connection = Connection::open(path).unwrap();
        connection.pragma_update(None, "user_version", version).unwrap();
    }

    #[test]
    fn a_table_of_the_version_before_is_taken_over_once_and_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head.db");
        let records = [record(5, JobState::Running), record(6, JobState::Ended(Outcome::Killed))];
        JobTable::open(&path).unwrap().persist(&records).unwrap();
        set_version(&path, version(15));
        let loaded = JobTable::open(&path).unwrap().load().unwrap();
        assert_eq!(loaded[0], records[0]);
        assert_eq!((loaded.len(), version_of(&path)), (2, version(CONTROL_VERSION)));
    }

    #[test]
    fn tables_of_later_versions_and_of_too_early_ones_are_refused_and_stay() {
        for other in [7, CONTROL_VERSION + 1] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("head.db");
            drop(JobTable::open(&path).unwrap());
            set_version(&path, version(other));
            let error = JobTable::open(&path).unwrap_err();
            assert!(matches!(error, TableError::Version { .. }), "{error}");
            let said = error.to_string();
            for words in [format!("(1.{other}, this is 1.{CONTROL_VERSION}"), "from 1.8 on".into()]
            {
                assert!(said.contains(&words), "{said}");
            }
            assert_eq!(version_of(&path), version(other));
        }
    }
}
