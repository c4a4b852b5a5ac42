//! `kumi node list`.

use super::state;
use crate::context::{Context, NodeAddress};
use crate::error::Error;
use crate::output;
use crate::table::{self, Table};
use clap::Args;
use kumi_control::message::NodeStatus;
use serde::Serialize;

/// `kumi node list`
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Also show why nodes are drained, by whom, and for how long
    #[arg(long)]
    pub reason: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "reason")]
    pub json: bool,
}

/// A node in the form of `--json`.
#[derive(Serialize)]
struct NodeView<'a> {
    node: u32,
    name: &'a str,
    /// `up`, `down`, `draining` or `drained`.
    state: &'static str,
    up: bool,
    address: &'a str,
    jobs: Vec<u64>,
    drain: Option<DrainView<'a>>,
}

/// Why a node gets no new jobs.
#[derive(Serialize)]
struct DrainView<'a> {
    reason: &'a str,
    by: &'a str,
    since_ms: u64,
}

/// Runs the command.
pub async fn run(context: &Context, args: &ListArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let (nodes, places) = (client.status(0).await?.nodes, context.places());
    if args.json {
        let views: Vec<NodeView<'_>> = nodes.iter().map(|node| view(node, &places)).collect();
        return output::json(&views);
    }
    output::text(&render(&nodes, &places, args.reason.then(output::wall_ms)))
}

fn address<'a>(places: &'a [NodeAddress], node: &NodeStatus) -> &'a str {
    let place = usize::try_from(node.node.0).ok().and_then(|number| places.get(number));
    place.map_or("", |place| &place.address)
}

fn view<'a>(node: &'a NodeStatus, places: &'a [NodeAddress]) -> NodeView<'a> {
    let state = state(node).split(',').next().unwrap_or_default();
    NodeView {
        node: node.node.0,
        name: &node.name,
        state,
        up: node.up,
        address: address(places, node),
        jobs: node.jobs.iter().map(|job| job.0).collect(),
        drain: node.drain.as_ref().map(|drain| DrainView {
            reason: &drain.reason,
            by: &drain.by,
            since_ms: drain.since_ms,
        }),
    }
}

/// The table; with the time of now also why nodes are drained.
fn render(nodes: &[NodeStatus], places: &[NodeAddress], reasons: Option<u64>) -> String {
    let mut headings = vec![">NODE", "NAME", "STATE", "ADDRESS", ">JOBS"];
    headings.extend(reasons.map(|_| [">FOR", "BY", "REASON"]).into_iter().flatten());
    let mut table = Table::new(&headings);
    for node in nodes {
        let mut row = vec![
            node.node.to_string(),
            table::shortened(&node.name, 32),
            state(node).to_owned(),
            address(places, node).to_owned(),
            node.jobs.len().to_string(),
        ];
        if let Some(now_ms) = reasons {
            row.extend(node.drain.as_ref().map_or_else(
                || ["-", "-", "-"].map(str::to_owned),
                |drain| {
                    [
                        table::elapsed(now_ms.saturating_sub(drain.since_ms)),
                        table::shortened(&drain.by, 32),
                        table::printable(&drain.reason),
                    ]
                },
            ));
        }
        table.row(row);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::super::tests::drained;
    use super::*;
    use crate::cluster::tree::tests::nodes;
    use kumi_sched::JobId;

    fn some() -> Vec<NodeStatus> {
        let mut nodes = nodes(&[1, 1, 1]);
        nodes[0].jobs = vec![JobId(3), JobId(4)];
        nodes[1].drain = Some(drained(1));
        nodes[2].up = false;
        nodes
    }

    #[test]
    fn the_table_says_why_if_asked() {
        let places = ["10.0.0.1:7701", "10.0.0.2:7701"]
            .map(|address| NodeAddress { name: String::new(), address: address.into() });
        let plain = "\
NODE  NAME   STATE    ADDRESS        JOBS
   0  node0  up       10.0.0.1:7701     2
   1  node1  drained  10.0.0.2:7701     0
   2  node2  down                       0
";
        assert_eq!(render(&some(), &places, None), plain);
        let with_reasons = render(&some(), &places, Some(66_000));
        let lines: Vec<&str> = with_reasons.lines().collect();
        assert!(lines[0].ends_with("JOBS    FOR  BY   REASON"), "{with_reasons}");
        assert!(lines[1].ends_with("2      -  -    -"), "{with_reasons}");
        assert!(lines[2].ends_with("0  1m05s  ada  disk fails"), "{with_reasons}");
    }

    #[test]
    fn json() {
        let nodes = some();
        let value = serde_json::to_value(view(&nodes[1], &[])).unwrap();
        assert_eq!((&value["state"], &value["up"]), (&"drained".into(), &true.into()));
        assert_eq!(value["drain"]["reason"], "disk fails");
        assert_eq!(value["drain"]["since_ms"], 1_000);
        let value = serde_json::to_value(view(&nodes[0], &[])).unwrap();
        assert_eq!((&value["jobs"][1], &value["drain"]), (&4.into(), &serde_json::Value::Null));
    }
}
