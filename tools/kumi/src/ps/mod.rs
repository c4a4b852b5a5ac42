//! `kumi ps`: the jobs of the cluster.

mod args;
mod columns;

use crate::context::Context;
use crate::error::Error;
use crate::job_descriptions;
use crate::users;
pub use args::PsArgs;
use kumi_control::message::{
    Binding, ClientReply, ClientRequest, JobList, JobRecord, JobState, JobsQuery, NodeRanks,
    NodeStatus, Outcome, RankStatus, WaitReason,
};
use kumi_node::client::Client;
use serde::Serialize;
use std::collections::BTreeMap;

/// One job in the form of `--json`.
#[derive(Serialize)]
pub struct JobView<'a> {
    job: u64,
    name: &'a str,
    user: String,
    uid: u32,
    ranks: u32,
    nodes: Vec<u32>,
    layout: Vec<PartView>,
    state: &'static str,
    idle: bool,
    /// Of a job that runs: running, idle or stopped.
    verdict: Option<&'static str>,
    waits_for: Option<ReasonView>,
    outcome: Option<OutcomeView<'a>>,
    submitted_ms: u64,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
    command: &'a [String],
    cwd: &'a str,
    encrypted: bool,
    priority: u16,
    estimate_s: Option<f64>,
    time_limit_s: Option<f64>,
    /// Jobs that have to be over before it starts.
    after: Vec<u64>,
    /// The first job of its array.
    array: Option<u64>,
    array_index: Option<u32>,
    cpus_per_rank: u32,
    /// Bytes; null if none is reserved.
    mem_per_rank: Option<u64>,
    ranks_per_node: Option<u32>,
    exclusive: bool,
    resources: BTreeMap<&'a str, u32>,
    bind: &'static str,
    /// How often it was started again, and may be at most.
    restarts: u32,
    requeue: u32,
    /// Bytes of its output that the head has not kept.
    output_not_kept: u64,
}

/// Ranks on one node in the form of `--json`.
#[derive(Serialize)]
struct PartView {
    node: u32,
    first_rank: u32,
    ranks: u32,
    /// Places in the node's list.
    processors: Vec<u32>,
}

/// What a job waits for in the form of `--json`.
#[derive(Default, Serialize)]
struct ReasonView {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    wanted: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    has: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    up: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drained: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<u64>,
    message: String,
}

/// Outcome of a job in the form of `--json`.
#[derive(Serialize)]
struct OutcomeView<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// Runs the command.
pub async fn run(context: &Context, args: &PsArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let jobs = client.jobs(args.query(context)?).await?;
    if let Some(user) = args.user.as_ref().filter(|_| jobs.records.is_empty()) {
        check_user(&mut client, user).await?;
    }
    if args.json {
        let nodes = client.status(0).await?.nodes;
        crate::output::json(&views(&jobs, &nodes))
    } else {
        let columns = args.columns().unwrap_or_else(|| columns::usual(&jobs));
        let text = columns::render(&jobs, &columns, &columns::Scene::now());
        let begin = if args.no_headings { text.find('\n').map_or(0, |end| end + 1) } else { 0 };
        crate::output::text(&text[begin..])
    }
}

/// Refuses a user whom nobody knows. Other machines' users may have jobs in the table, of other states or names.
async fn check_user(client: &mut Client, user: &str) -> Result<(), Error> {
    if !users::is_unknown(user) {
        return Ok(());
    }
    let query = JobsQuery { user: Some(user.to_owned()), limit: 1, ..JobsQuery::first_page(true) };
    match client.ask(&ClientRequest::Jobs(query)).await? {
        ClientReply::Jobs(page) if page.list.records.is_empty() => Err(users::unknown(user)),
        ClientReply::Jobs(_) => Ok(()),
        other => Err(Error::unexpected(&other)),
    }
}

/// The jobs as data, on these nodes.
pub fn views<'a>(jobs: &'a JobList, nodes: &[NodeStatus]) -> Vec<JobView<'a>> {
    jobs.records.iter().map(|record| view(record, jobs, nodes)).collect()
}

fn view<'a>(record: &'a JobRecord, jobs: &JobList, nodes: &[NodeStatus]) -> JobView<'a> {
    let (spec, resources) = (&record.spec, &record.spec.request.resources);
    let batch = &spec.request.batch;
    let (state, outcome) = match &record.state {
        JobState::Queued => ("queued", None),
        JobState::Preparing => ("starting", None),
        JobState::Running => ("running", None),
        JobState::Ending(outcome) => ("ending", Some(outcome)),
        JobState::Ended(outcome) => ("ended", Some(outcome)),
    };
    JobView {
        job: spec.job.0,
        name: &spec.request.name,
        user: crate::output::user_name(spec.user.uid),
        uid: spec.user.uid,
        ranks: spec.request.ranks,
        nodes: spec.layout.iter().map(|part| part.node.0).collect(),
        layout: spec.layout.iter().map(|part| part_view(part, nodes)).collect(),
        state,
        idle: jobs.is_idle(spec.job),
        verdict: (record.state == JobState::Running).then(|| jobs.verdict(spec.job).name()),
        waits_for: jobs.waits_for(spec.job).map(reason_view),
        outcome: outcome.map(outcome_view),
        submitted_ms: record.submitted_ms,
        started_ms: record.started_ms,
        ended_ms: record.ended_ms,
        command: &spec.request.args,
        cwd: &spec.request.cwd,
        encrypted: spec.request.encrypt == Some(true),
        priority: spec.request.priority,
        #[allow(clippy::cast_precision_loss)]
        estimate_s: spec.request.estimate_ns.map(|nanos| nanos as f64 / 1e9),
        #[allow(clippy::cast_precision_loss)]
        time_limit_s: batch.time_limit_ns.map(|nanos| nanos as f64 / 1e9),
        after: batch.after.iter().map(|after| after.job.0).collect(),
        array: batch.task.map(|task| task.array.0),
        array_index: batch.task.map(|task| task.index),
        cpus_per_rank: resources.processors_per_rank.unwrap_or(1),
        mem_per_rank: resources.memory_per_rank.filter(|&bytes| bytes > 0),
        ranks_per_node: resources.ranks_per_node,
        exclusive: resources.exclusive,
        resources: resources.devices.iter().map(|it| (&*it.name, it.count)).collect(),
        bind: match resources.binding.unwrap_or_default() {
            Binding::None => "none",
            Binding::Core => "core",
            Binding::Numa => "numa",
            Binding::Cpuset => "cpuset",
        },
        restarts: record.restarts,
        requeue: batch.requeues,
        output_not_kept: record.output_not_kept,
    }
}

/// The places of a job's processors in its node's list.
pub fn processors(part: &NodeRanks, nodes: &[NodeStatus]) -> Vec<u32> {
    if !part.processors.is_empty() {
        return part.processors.clone();
    }
    let node = nodes.iter().find(|node| node.node == part.node);
    let said = node.and_then(|node| node.description.as_ref());
    (0..said.map_or(0, |said| said.processors)).collect()
}

fn part_view(part: &NodeRanks, nodes: &[NodeStatus]) -> PartView {
    let (node, first_rank, ranks) = (part.node.0, part.first, part.count);
    PartView { node, first_rank, ranks, processors: processors(part, nodes) }
}

fn reason_view(reason: &WaitReason) -> ReasonView {
    let (kind, message) = (reason.kind(), reason.to_string());
    let view = ReasonView { kind, message, ..ReasonView::default() };
    match *reason {
        WaitReason::NodesAttaching { up, nodes } => {
            ReasonView { up: Some(up), nodes: Some(nodes), ..view }
        }
        WaitReason::NodesDown { wanted, has, up, nodes } => ReasonView {
            wanted: Some(wanted),
            has: Some(has),
            up: Some(up),
            nodes: Some(nodes),
            ..view
        },
        WaitReason::ResourcesTaken => view,
        WaitReason::After { job } => ReasonView { job: Some(job.0), ..view },
        WaitReason::ArrayFull { most } => ReasonView { limit: Some(most), ..view },
        WaitReason::ProcessorsTaken { wanted, free } => {
            ReasonView { wanted: Some(wanted), free: Some(free), ..view }
        }
        WaitReason::ProcessorsFull { limit } => ReasonView { limit: Some(limit), ..view },
        WaitReason::Behind { job } | WaitReason::BehindShare { job } => {
            ReasonView { job: Some(job.0), ..view }
        }
        WaitReason::Preparing { ready, nodes } => {
            ReasonView { ready: Some(ready), nodes: Some(nodes), ..view }
        }
        WaitReason::NodesDrained { wanted, has, take, drained, nodes } => ReasonView {
            wanted: Some(wanted),
            has: Some(has),
            up: Some(take),
            drained: Some(drained),
            nodes: Some(nodes),
            ..view
        },
    }
}

fn outcome_view(outcome: &Outcome) -> OutcomeView<'_> {
    let mut view = OutcomeView {
        kind: "success",
        rank: None,
        node: None,
        exit_code: None,
        signal: None,
        message: None,
    };
    match outcome {
        Outcome::Success => {}
        Outcome::RankFailed { rank, node, status } => {
            view.kind = "rank_failed";
            view.rank = Some(*rank);
            view.node = Some(node.0);
            match status {
                RankStatus::Exited(code) => view.exit_code = Some(*code),
                RankStatus::Signalled(number) => view.signal = Some(*number),
                RankStatus::OutOfMemory(_) => {
                    view.kind = "out_of_memory";
                    view.signal = Some(9);
                }
                RankStatus::NotFinalized => view.kind = "not_finalized",
            }
        }
        Outcome::Refused(refusal) => {
            let withdrawn = job_descriptions::is_withdrawn(refusal.kind);
            view.kind = if withdrawn { "withdrawn" } else { "refused" };
            view.message = Some(&refusal.message);
        }
        Outcome::NodeLost(node) => {
            view.kind = "node_lost";
            view.node = Some(node.0);
        }
        Outcome::HeadAway(node) => {
            view.kind = "head_away";
            view.node = Some(node.0);
        }
        Outcome::Killed => view.kind = "killed",
        Outcome::Deadlocked => view.kind = "deadlocked",
        Outcome::TimeLimit(_) => view.kind = "time_limit",
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tree::tests::nodes as tree_nodes;
    use kumi_control::message::{ContentHash, DeviceCount, JobRequest, JobSpec, Program, User};
    use kumi_sched::{JobId, NodeId};
    use serde_json::Value::Null;

    pub fn record(job: u64, name: &str, state: JobState) -> JobRecord {
        let program = Program { path: "/bin/cg".into(), hash: ContentHash([0; 32]), size: 1 };
        let request = JobRequest {
            args: vec!["./cg".into(), "A".into()],
            ..JobRequest::new(1, name, program, 8)
        };
        let part =
            |node, first| NodeRanks { node: NodeId(node), first, count: 4, processors: vec![0] };
        let layout =
            if state == JobState::Queued { Vec::new() } else { vec![part(0, 0), part(1, 4)] };
        let started_ms = (!layout.is_empty()).then_some(2_000);
        JobRecord {
            spec: JobSpec {
                job: JobId(job),
                user: User { uid: 0, gid: 0, name: String::new() },
                request,
                layout,
                channel_key: 7,
                seal_key: None,
            },
            ended_ms: matches!(state, JobState::Ended(_)).then_some(5_400),
            state,
            submitted_ms: 1_000,
            started_ms,
            output_not_kept: 0,
            restarts: 0,
            end_request: None,
            used: Default::default(),
        }
    }

    /// The usual table at a time, if everybody is root.
    fn usual(jobs: &JobList) -> String {
        let scene = columns::Scene { now_ms: 62_000, user: |_| "root".to_owned() };
        columns::render(jobs, &columns::usual(jobs), &scene)
    }

    #[test]
    fn the_table() {
        let failed =
            Outcome::RankFailed { rank: 3, node: NodeId(1), status: RankStatus::Signalled(11) };
        let records = vec![
            record(8, "reads", JobState::Running),
            record(9, "cg", JobState::Running),
            record(10, "waits", JobState::Queued),
            record(11, "x", JobState::Ended(failed)),
        ];
        let expected = "\
JOB  NAME   USER  RANKS  NODES  STATE              TIME  WAITS FOR                      COMMAND
  8  reads  root      8  0-1    idle              1m00s  -                              ./cg A
  9  cg     root      8  0-1    running           1m00s  -                              ./cg A
 10  waits  root      8  -      queued                -  8 processors, 3 of 8 nodes up  ./cg A
 11  x      root      8  0-1    SIGSEGV (rank 3)   3.4s  -                              ./cg A
";
        let reason = WaitReason::NodesDown { wanted: 8, has: 3, up: 3, nodes: 8 };
        let (idle, stopped, waiting) = (vec![JobId(8)], Vec::new(), vec![(JobId(10), reason)]);
        let jobs = JobList { records, idle, stopped, waiting };
        assert_eq!(usual(&jobs), expected);
        let value = serde_json::to_value(views(&jobs, &[])).unwrap();
        let reason = &value[2]["waits_for"];
        assert_eq!((&reason["kind"], &reason["wanted"]), (&"nodes_down".into(), &8.into()));
        assert_eq!((&reason["job"], &value[1]["waits_for"]), (&Null, &Null));
        assert_eq!(
            reason["message"],
            "it wants 8 processors, and the nodes that are up, 3 of 8, have 3"
        );
        assert_eq!((&value[0]["idle"], &value[0]["state"]), (&true.into(), &"running".into()));
        assert_eq!(value[1]["idle"], false);
    }

    #[test]
    fn wishes_are_shown_where_there_are_any() {
        let mut records = [record(9, "cg", JobState::Running), record(10, "w", JobState::Queued)];
        records[0].spec.request.priority = 3;
        records[1].spec.request.estimate_ns = Some(600_000_000_000);
        let expected = "\
JOB  NAME  USER  RANKS  NODES  STATE     TIME  PRIORITY  ESTIMATE  COMMAND
  9  cg    root      8  0-1    running  1m00s         3         -  ./cg A
 10  w     root      8  -      queued       -         1    10m00s  ./cg A
";
        let jobs = JobList { records: records.into(), ..JobList::default() };
        assert_eq!(usual(&jobs), expected);
        let value = serde_json::to_value(views(&jobs, &[])).unwrap();
        assert_eq!((&value[0]["priority"], &value[1]["estimate_s"]), (&3.into(), &600.0.into()));
        assert_eq!(value[0]["estimate_s"], serde_json::Value::Null);
    }

    #[test]
    fn what_ranks_take_is_shown_where_it_is_unusual() {
        let mut records = [record(9, "cg", JobState::Running), record(10, "w", JobState::Queued)];
        let resources = &mut records[0].spec.request.resources;
        (resources.processors_per_rank, resources.memory_per_rank) = (Some(2), Some(3 << 29));
        resources.devices = vec![DeviceCount { name: "gpu".into(), count: 1 }];
        records[0].spec.layout[1].processors.clear();
        let expected = "\
JOB  NAME  USER  RANKS  NODES  STATE     TIME  CPUS/RANK  MEM/RANK  DEVICES/RANK  COMMAND
  9  cg    root      8  0-1    running  1m00s          2   1.5 GiB  gpu=1         ./cg A
 10  w     root      8  -      queued       -          1         -  -             ./cg A
";
        let jobs = JobList { records: records.into(), ..JobList::default() };
        assert_eq!(usual(&jobs), expected);
        let value = serde_json::to_value(views(&jobs, &tree_nodes(&[2, 2]))).unwrap();
        let job = &value[0];
        assert_eq!(
            (&job["cpus_per_rank"], &job["mem_per_rank"]),
            (&2.into(), &(3u64 << 29).into())
        );
        assert_eq!((&job["resources"]["gpu"], &job["bind"]), (&1.into(), &"core".into()));
        let part = |node: u32, first: u32, processors: Vec<u32>| {
            let mut part = serde_json::json!({"node": node, "first_rank": first, "ranks": 4});
            part["processors"] = processors.into();
            part
        };
        let layout = serde_json::json!([part(0, 0, vec![0]), part(1, 4, vec![0, 1])]);
        assert_eq!(job["layout"], layout, "all of the second node");
        assert_eq!((&value[1]["mem_per_rank"], &value[1]["exclusive"]), (&Null, &false.into()));
    }

    #[test]
    fn output_that_is_not_kept_is_shown_where_there_is_any() {
        let mut records = [record(9, "cg", JobState::Running), record(10, "y", JobState::Running)];
        records[1].output_not_kept = 3 << 20;
        let expected = "\
JOB  NAME  USER  RANKS  NODES  STATE     TIME  OUTPUT LOST  COMMAND
  9  cg    root      8  0-1    running  1m00s            -  ./cg A
 10  y     root      8  0-1    running  1m00s        3 MiB  ./cg A
";
        let jobs = JobList { records: records.into(), ..JobList::default() };
        assert_eq!(usual(&jobs), expected);
        let value = serde_json::to_value(views(&jobs, &[])).unwrap();
        assert_eq!(value[1]["output_not_kept"], 3 << 20);
    }

    #[test]
    fn json_has_the_outcome() {
        let ended = JobState::Ended(Outcome::RankFailed {
            rank: 3,
            node: NodeId(1),
            status: RankStatus::Exited(4),
        });
        let jobs = JobList { records: vec![record(11, "x", ended)], ..JobList::default() };
        let value = serde_json::to_value(views(&jobs, &[])).unwrap();
        assert_eq!(value[0]["state"], "ended");
        assert_eq!(value[0]["outcome"]["exit_code"], 4);
        assert_eq!(value[0]["outcome"]["rank"], 3);
        assert_eq!(value[0]["nodes"], serde_json::json!([0, 1]));
        assert!(value[0]["outcome"].get("signal").is_none());
    }
}
