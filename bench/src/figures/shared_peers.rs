//! The same programs over other systems of shared memory.

use super::Setting;
use super::shared_jobs::{self, Job, Program};
use super::turns::{self, Measure, PeerComparison};
use crate::cluster::Cluster;
use crate::dsm_peers::{Homes, PeerJob};
use crate::error::BenchError;
use crate::record::{Goal, Record};

const NAMES: [&str; 6] = ["mm", "sor", "lu", "water", "queens", "radix"];
/// Time of M-JIAJIA that a program may take: a third.
const JIAJIA: f64 = 0.333;

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let numbers: &[u32] = if setting.scaled { &[2, 4] } else { &[2] };
    let mut records = Vec::new();
    for number in numbers {
        let cluster = Cluster::up(*number, &["--mtu", "9000"])?;
        for name in NAMES {
            let program = shared_jobs::of_name(name);
            records.extend(beside(setting, &cluster, program, Homes::Matched, runs)?);
        }
        let sor = shared_jobs::of_name("sor");
        records.extend(beside(setting, &cluster, sor, Homes::Careless, runs)?);
    }
    Ok(records)
}

fn beside(
    setting: &Setting,
    cluster: &Cluster,
    program: &'static Program,
    homes: Homes,
    runs: usize,
) -> Result<Vec<Record>, BenchError> {
    let mut arguments = program.arguments(setting, "dsm");
    let (more, words): (&[&str], _) = match homes {
        Homes::Matched => (&[], ""),
        Homes::Careless => (&["--homes=careless"], ", all homes at rank 0"),
    };
    arguments.extend(more.iter().map(ToString::to_string));
    let (peers, name) = (&setting.peers, program.name);
    let job = &PeerJob { name, arguments: &arguments, nodes: &cluster.nodes, homes };
    let ours: Measure<'_> =
        Box::new(move || Job { more, ..Job::shared(cluster, setting, program) }.seconds());
    let against = vec![
        PeerComparison {
            name: peers.argo_name(job),
            goal: Goal::RatioAtMost(1.0),
            measure: Box::new(move || peers.argo(job)),
        },
        PeerComparison {
            name: peers.jiajia_name(job),
            goal: Goal::RatioAtMost(JIAJIA),
            measure: Box::new(move || peers.jiajia(job)),
        },
    ];
    let nodes = cluster.nodes.len();
    let figure = format!("{name} {}, {nodes} nodes{words}", program.size(setting));
    turns::measure(&figure, "s", runs, ours, against)
}
