//! Snapshot of the cluster for `kumi top`.

use super::rates::{NodeRates, RateMeter};
use crate::cluster::status::{self, StatusView};
use crate::cluster::tree::{self, TreeLine};
use crate::context::NodeAddress;
use crate::error::Error;
use crate::job_descriptions;
use crate::ps::{self, JobView};
use crate::table::{self, Table};
use kumi_control::message::{
    ClientReply, ClientRequest, ClusterStatus, JobList, JobRecord, JobsQuery, NodeSample,
    NodeStatus, RankSample,
};
use kumi_node::client::Client;
use kumi_sched::{JobId, NodeId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// Columns of the plain text, for which no terminal gives a width.
const WIDTH: usize = 80;

/// A snapshot in the form of `--json`.
#[derive(Serialize)]
pub struct TopView<'a> {
    cluster: StatusView<'a>,
    jobs: Vec<JobView<'a>>,
    /// In the order of the jobs: load by rank, 0 to 1000; null if the node did not answer.
    load_permille: Vec<Vec<Option<u16>>>,
}

/// The cluster, its jobs and a sample of every node.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub cluster: ClusterStatus,
    pub jobs: JobList,
    pub samples: Vec<NodeSample>,
    /// Of the nodes that answered, while somebody watches.
    pub rates: BTreeMap<NodeId, NodeRates>,
}

/// Nodes that a screen shows at most, as a quarter of its lines.
const SHOWN_NODES: u32 = 128;

/// A rank's load, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The rank.
    pub rank: u32,
    /// 0 to 1000; `None` if its node did not answer.
    pub permille: Option<u16>,
}

impl Snapshot {
    /// For the screen: with rates of the nodes, and with the timetables of as many nodes as a screen shows.
    pub async fn take_rates(client: &mut Client, meter: &mut RateMeter) -> Result<Self, Error> {
        let mut taken = Self::taken(client, SHOWN_NODES).await?;
        taken.rates = match client.ask(&ClientRequest::SampleLoad { slices: false }).await? {
            ClientReply::Samples(samples) => meter.take(&samples, Instant::now()),
            other => return Err(Error::unexpected(&other)),
        };
        Ok(taken)
    }

    /// Requests a snapshot with all timetables from the head.
    pub async fn take(client: &mut Client) -> Result<Self, Error> {
        Self::taken(client, u32::MAX).await
    }

    async fn taken(client: &mut Client, columns: u32) -> Result<Self, Error> {
        let cluster = client.status(columns).await?;
        let jobs = client.jobs(JobsQuery::first_page(false)).await?;
        let samples = match client.ask(&ClientRequest::Sample).await? {
            ClientReply::Samples(samples) => samples,
            other => return Err(Error::unexpected(&other)),
        };
        Ok(Self { cluster, jobs, samples, rates: BTreeMap::new() })
    }

    /// `cluster default: 2 of 2 nodes up, gang scheduling …`
    pub fn title(&self) -> String {
        let up = self.cluster.nodes.iter().filter(|node| node.up).count();
        format!(
            "cluster {}: {up} of {} nodes up, {}",
            self.cluster.name,
            self.cluster.nodes.len(),
            status::sharing(&self.cluster)
        )
    }

    /// The whole snapshot as data.
    pub fn view<'a>(&'a self, places: &'a [NodeAddress]) -> TopView<'a> {
        let load = |record| self.loads(record).iter().map(|load| load.permille).collect();
        TopView {
            cluster: status::view(&self.cluster, places),
            jobs: ps::views(&self.jobs, &self.cluster.nodes),
            load_permille: self.jobs.records.iter().map(load).collect(),
        }
    }

    /// The tree of queues, if the policy has one, cut to this many columns.
    pub fn tree(&self, width: usize) -> Vec<TreeLine> {
        let tree = self.cluster.tree.as_deref().unwrap_or_default();
        tree::lines(tree, &self.cluster.nodes, width)
    }

    /// The loads of a job's ranks, in rank order.
    pub fn loads(&self, record: &JobRecord) -> Vec<Load> {
        let count = record.spec.layout.iter().map(|part| part.count).sum();
        let mut loads: Vec<Load> = (0..count).map(|rank| Load { rank, permille: None }).collect();
        let ranks = self.samples.iter().flat_map(|sample| &sample.ranks);
        for rank in ranks.filter(|rank| rank.job == record.spec.job) {
            let index = usize::try_from(rank.rank).unwrap_or(usize::MAX);
            if let Some(load) = loads.get_mut(index) {
                load.permille = Some(rank.load_permille.min(1000));
            }
        }
        loads
    }

    /// The mean of the known loads, 0 to 1000.
    pub fn mean_permille(&self, record: &JobRecord) -> Option<u64> {
        let known: Vec<u64> =
            self.loads(record).iter().filter_map(|load| load.permille.map(u64::from)).collect();
        known.iter().sum::<u64>().checked_div(known.len() as u64)
    }

    /// The same in per cent, for a job's line.
    pub fn mean_load(&self, record: &JobRecord) -> String {
        let mean = self.mean_permille(record);
        mean.map_or_else(|| "-".to_owned(), |permille| format!("{}%", permille / 10))
    }

    /// The samples of a job's ranks.
    pub fn ranks_of(&self, job: JobId) -> Vec<&RankSample> {
        let all = self.samples.iter().flat_map(|sample| &sample.ranks);
        all.filter(|rank| rank.job == job).collect()
    }

    /// The slots of a node's column.
    pub fn slots(&self, node: kumi_sched::NodeId) -> Vec<Vec<JobId>> {
        self.cluster.timetable.slots_of(node).into_iter().map(<[JobId]>::to_vec).collect()
    }

    /// How many processors the job has.
    fn processors(&self, record: &JobRecord) -> String {
        let of_part = |part| ps::processors(part, &self.cluster.nodes).len();
        match record.spec.layout.iter().map(of_part).sum::<usize>() {
            0 => "-".to_owned(),
            count => count.to_string(),
        }
    }

    /// One line for each job: number, name, user, ranks, processors, nodes, state, time, load.
    fn job_rows(&self, now_ms: u64) -> Vec<[String; 9]> {
        self.jobs.records.iter().map(|record| self.job_row(record, now_ms)).collect()
    }

    /// The line of a job.
    pub fn job_row(&self, record: &JobRecord, now_ms: u64) -> [String; 9] {
        let spec = &record.spec;
        let time = record
            .started_ms
            .map_or_else(|| "-".to_owned(), |start| table::elapsed(now_ms.saturating_sub(start)));
        [
            spec.job.to_string(),
            table::shortened(&spec.request.name, 24),
            crate::output::user_name(spec.user.uid),
            spec.request.ranks.to_string(),
            self.processors(record),
            table::ranges(spec.layout.iter().map(|part| part.node.0)),
            job_descriptions::state(&record.state, self.jobs.verdict(spec.job)),
            time,
            self.mean_load(record),
        ]
    }

    /// The plain text of `--once`.
    pub fn text(&self, now_ms: u64) -> String {
        let mut text = format!("{}\n\n", self.title());
        let mut jobs = Table::new(&[
            ">JOB", "NAME", "USER", ">RANKS", ">CPUS", "NODES", "STATE", ">TIME", ">LOAD",
        ]);
        for row in self.job_rows(now_ms) {
            jobs.row(row.into());
        }
        text.push_str(&jobs.render());
        text.push('\n');
        let mut nodes =
            Table::new(&[">NODE", "NAME", "STATE", ">CPUS", ">FREE", ">SWITCHES", "TIMETABLE"]);
        for node in &self.cluster.nodes {
            let sample = self.samples.iter().find(|sample| sample.node == node.node);
            let slots: Vec<String> =
                self.slots(node.node).iter().map(|slot| slot_text(slot)).collect();
            let [processors, free] = processor_words(node);
            nodes.row(vec![
                node.node.to_string(),
                node_name(node),
                if node.up { "up" } else { "down" }.to_owned(),
                processors,
                free,
                sample.map_or_else(|| "-".to_owned(), |s| s.switching.count.to_string()),
                if slots.is_empty() { "-".to_owned() } else { slots.join(" ") },
            ]);
        }
        text.push_str(&nodes.render());
        text.push_str(&self.tree_text());
        for record in &self.jobs.records {
            let loads: Vec<String> = self.loads(record).into_iter().map(load_text).collect();
            if !loads.is_empty() {
                let job = job_descriptions::job(record.spec.job.0, &record.spec.request.name);
                text.push_str(&format!("\nload of {job} by rank: {}\n", loads.join(" ")));
            }
        }
        text
    }

    /// The tree of queues with an arrow at the front; empty without a tree.
    fn tree_text(&self) -> String {
        let lines = self.tree(WIDTH - 3);
        if lines.is_empty() {
            return String::new();
        }
        let [place, state, jobs, queue] = tree::HEADINGS;
        let mut table = Table::new(&["", place, state, &format!(">{jobs}"), queue]);
        for TreeLine { front, cells } in lines {
            let mark = if front { ">" } else { "" };
            table.row([mark.to_owned()].into_iter().chain(cells).collect());
        }
        format!("\n{}", table.render())
    }
}

/// A node's name from its own report, or a dash.
pub fn node_name(node: &NodeStatus) -> String {
    let description = node.description.as_ref();
    description.map_or_else(|| "-".to_owned(), |known| table::shortened(&known.name, 24))
}

/// A node's processors, and those without a job; dashes if it has not said.
pub fn processor_words(node: &NodeStatus) -> [String; 2] {
    let known = status::processors(node);
    known.map_or_else(
        || ["-", "-"].map(str::to_owned),
        |(all, free)| [all, free].map(|n| n.to_string()),
    )
}

/// A slot's job, or a dot.
pub fn slot_text(slot: &[JobId]) -> String {
    match slot {
        [] => ".".to_owned(),
        jobs => jobs.iter().map(JobId::to_string).collect::<Vec<_>>().join("+"),
    }
}

fn load_text(load: Load) -> String {
    load.permille.map_or_else(|| "-".to_owned(), |permille| format!("{}%", permille / 10))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use kumi_control::message::{
        ContentHash, JobRequest, JobSpec, JobState, MessageCounts, NodeDescription, NodeRanks,
        NodeUse, Program, RankSample, SwitchSample, User,
    };
    use kumi_sched::{ClusterTime, Column, Mode, NodeId, SliceLength, Timetable};

    fn job(number: u64, name: &str) -> JobRecord {
        let program = Program { path: "/x".into(), hash: ContentHash([0; 32]), size: 1 };
        let request = JobRequest::new(number.into(), name, program, 4);
        let part =
            |node, first| NodeRanks { node: NodeId(node), first, count: 2, processors: vec![0, 1] };
        let spec = JobSpec {
            job: JobId(number),
            user: User { uid: 4_000_000, gid: 0, name: String::new() },
            request,
            layout: vec![part(0, 0), part(1, 2)],
            channel_key: 0,
            seal_key: None,
        };
        JobRecord {
            spec,
            state: JobState::Running,
            submitted_ms: 0,
            started_ms: Some(1_000),
            ended_ms: None,
            output_not_kept: 0,
            restarts: 0,
            end_request: None,
            used: Default::default(),
        }
    }

    fn description(number: u32) -> NodeDescription {
        NodeDescription {
            node: NodeId(number),
            incarnation: 1,
            name: format!("node{number}"),
            processors: 2,
            memory: 0,
            devices: Vec::new(),
            max_ranks: 16,
            limits: Vec::new(),
            jobs: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Two jobs on two nodes, of which the second has not answered.
    pub fn snapshot() -> Snapshot {
        let rank = |job, rank, load| RankSample {
            job: JobId(job),
            rank,
            idle: load == 0,
            load_permille: load,
            counters: Vec::new(),
            peers: Vec::new(),
            peers_left_out: 0,
        };
        let sample = NodeSample {
            node: NodeId(0),
            ranks: vec![rank(3, 0, 1000), rank(3, 1, 250), rank(4, 0, 0), rank(4, 1, 999)],
            channels: Vec::new(),
            traces: Vec::new(),
            load: None,
            machine_clock: String::new(),
            switching: SwitchSample { count: 42, ..SwitchSample::default() },
            control_messages: MessageCounts::default(),
            refused: Vec::new(),
        };
        let node = |number, up| NodeStatus {
            node: NodeId(number),
            up,
            description: up.then(|| description(number)),
            jobs: vec![JobId(3), JobId(4)],
            numbers: 2 * number..2 * number + 2,
            taken: NodeUse { processors: 1, ..NodeUse::default() },
            name: format!("node{number}"),
            drain: None,
        };
        let slots = || vec![vec![JobId(3)], vec![JobId(4)], vec![]];
        let column = |number| Column { node: NodeId(number), slots: slots() };
        let mode = Mode::Gang { force_switch: false, fill: true };
        Snapshot {
            cluster: ClusterStatus {
                name: "lab".into(),
                nodes: vec![node(0, true), node(1, false)],
                mode,
                slice: SliceLength::Fixed(10_000_000),
                timetable: Timetable {
                    generation: 1,
                    start: ClusterTime(0),
                    slice_ns: 10_000_000,
                    phase_ns: 0,
                    mode,
                    columns: vec![column(0), column(1)],
                    idle: Vec::new(),
                },
                since_ms: 0,
                control_messages: 0,
                policy: "dqt".into(),
                tree: Some(crate::cluster::tree::tests::tree()),
            },
            jobs: JobList { records: vec![job(3, "cg"), job(4, "is")], ..JobList::default() },
            samples: vec![sample],
            rates: BTreeMap::new(),
        }
    }

    #[test]
    fn the_data() {
        let value = serde_json::to_value(snapshot().view(&[])).unwrap();
        assert_eq!(value["cluster"]["policy"], "dqt");
        assert_eq!(value["cluster"]["tree"][1]["front"], true);
        assert_eq!(value["jobs"][1]["job"], 4);
        assert_eq!(value["load_permille"][0], serde_json::json!([1000, 250, null, null]));
    }

    #[test]
    fn the_tree_keeps_to_its_columns() {
        let mut wide = snapshot();
        let tree = wide.cluster.tree.as_mut().unwrap();
        let job = tree[0].queue[0];
        tree[0].queue = vec![job; 500];
        let text = wide.text(10_000);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("3 +4"), "{text}");
        wide.cluster.tree = None;
        assert!(!wide.text(10_000).contains("QUEUE"));
    }

    #[test]
    fn the_plain_text() {
        let expected = "\
cluster lab: 1 of 2 nodes up, gang scheduling by dqt in slices of 10ms

JOB  NAME  USER     RANKS  CPUS  NODES  STATE    TIME  LOAD
  3  cg    4000000      4     4  0-1    running  9.0s   62%
  4  is    4000000      4     4  0-1    running  9.0s   49%

NODE  NAME   STATE  CPUS  FREE  SWITCHES  TIMETABLE
   0  node0  up        2     1        42  3 4 .
   1  -      down      -     -         -  3 4 .

   NODES          STATE     JOBS  QUEUE
   node0..node 1  rounded      3  3
>   node0         rounding     3  4x3 (5)
>   node 1:0      rounding     3  6

load of job 3 (cg) by rank: 100% 25% - -

load of job 4 (is) by rank: 0% 99% - -
";
        assert_eq!(snapshot().text(10_000), expected);
    }
}
