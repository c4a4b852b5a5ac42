//! `kumi node drain` and `kumi node resume`.

use super::named;
use crate::context::Context;
use crate::error::Error;
use crate::{output, table};
use clap::Args;
use kumi_control::drain::check_reason;
use kumi_control::message::{ClientReply, ClientRequest, ClusterStatus};
use kumi_node::client::Client;
use kumi_sched::NodeId;
use std::collections::BTreeSet;
use std::time::Duration;

/// Between looks whether jobs are over.
const LOOK: Duration = Duration::from_millis(500);

/// `kumi node drain`
#[derive(Clone, Debug, Args)]
pub struct DrainArgs {
    /// The nodes: names or numbers
    #[arg(required = true, value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Why, for whoever looks
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub reason: String,
    /// Return when no job is left on them
    #[arg(long)]
    pub wait: bool,
}

/// `kumi node resume`
#[derive(Clone, Debug, Args)]
pub struct ResumeArgs {
    /// The nodes: names or numbers
    #[arg(required = true, value_name = "NODE")]
    pub nodes: Vec<String>,
}

fn reason(text: &str) -> Result<String, String> {
    check_reason(text).map(|()| text.to_owned())
}

/// Gives nodes no new jobs.
pub async fn drain(context: &Context, args: &DrainArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let nodes = named(&client.status(0).await?, &args.nodes)?;
    let request = ClientRequest::Drain { nodes: nodes.clone(), reason: args.reason.clone() };
    change(&mut client, &request).await?;
    let nodes: BTreeSet<NodeId> = nodes.into_iter().collect();
    let after = client.status(0).await?;
    output::text(&format!("{}{}\n", titles(&after, &nodes), still_has(&after, &nodes)))?;
    if !args.wait {
        return Ok(());
    }
    while jobs(&client.status(0).await?, &nodes) > 0 {
        tokio::time::sleep(LOOK).await;
    }
    output::text("no job is left on them\n")
}

/// Gives nodes jobs again.
pub async fn resume(context: &Context, args: &ResumeArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let before = client.status(0).await?;
    let nodes = named(&before, &args.nodes)?;
    change(&mut client, &ClientRequest::Resume { nodes: nodes.clone() }).await?;
    let nodes = nodes.into_iter().collect();
    output::text(&format!("{} takes jobs\n", titles(&before, &nodes)))
}

async fn change(client: &mut Client, request: &ClientRequest) -> Result<(), Error> {
    match client.ask(request).await? {
        ClientReply::Done => Ok(()),
        other => Err(Error::unexpected(&other)),
    }
}

/// `alpha, beta:`, for the beginning of a line.
fn titles(status: &ClusterStatus, nodes: &BTreeSet<NodeId>) -> String {
    let named = status.nodes.iter().filter(|node| nodes.contains(&node.node));
    let names: Vec<String> = named.map(|node| table::printable(&node.name)).collect();
    format!("{}:", names.join(", "))
}

/// How many jobs have something of these nodes.
fn jobs(status: &ClusterStatus, nodes: &BTreeSet<NodeId>) -> usize {
    let those = status.nodes.iter().filter(|node| nodes.contains(&node.node));
    those.flat_map(|node| &node.jobs).collect::<BTreeSet<_>>().len()
}

fn still_has(status: &ClusterStatus, nodes: &BTreeSet<NodeId>) -> String {
    match jobs(status, nodes) {
        0 => " drained".to_owned(),
        1 => " gets no new jobs, and 1 job goes on".to_owned(),
        more => format!(" gets no new jobs, and {more} jobs go on"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::snapshot::tests::snapshot;

    #[test]
    fn what_is_left_is_said() {
        let mut cluster = snapshot().cluster;
        let both = BTreeSet::from([NodeId(0), NodeId(1)]);
        assert_eq!(still_has(&cluster, &both), " gets no new jobs, and 2 jobs go on");
        cluster.nodes[1].jobs.clear();
        assert_eq!(still_has(&cluster, &BTreeSet::from([NodeId(1)])), " drained");
        assert_eq!(titles(&cluster, &both), "node0, node1:");
    }
}
