//! `kumi node`: shows the nodes of a cluster, drains them, adds and removes them.

mod drain;
mod list;
mod members;

use crate::context::Context;
use crate::error::Error;
use clap::Subcommand;
use kumi_control::message::{ClusterStatus, NodeStatus};
use kumi_node::client::Client;
use kumi_sched::NodeId;

/// `kumi node …`
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// List the nodes: which are up, and which take no new jobs
    List(list::ListArgs),
    /// Give nodes no new jobs; those that they have go on
    Drain(drain::DrainArgs),
    /// Give drained nodes jobs again
    Resume(drain::ResumeArgs),
    /// Add a node to the running cluster
    Add(members::AddArgs),
    /// Remove a node from the running cluster
    Remove(members::RemoveArgs),
}

/// Runs the command.
pub async fn run(context: &Context, command: NodeCommand) -> Result<(), Error> {
    match command {
        NodeCommand::List(args) => list::run(context, &args).await,
        NodeCommand::Drain(args) => drain::drain(context, &args).await,
        NodeCommand::Resume(args) => drain::resume(context, &args).await,
        NodeCommand::Add(args) => members::add(context, &args).await,
        NodeCommand::Remove(args) => members::remove(context, &args).await,
    }
}

/// The nodes that somebody means by their names or numbers, in that order.
///
/// # Errors
/// There is no such node.
fn named(status: &ClusterStatus, words: &[String]) -> Result<Vec<NodeId>, Error> {
    words.iter().map(|word| find(status, word)).collect()
}

/// The node that somebody means, and its name.
///
/// # Errors
/// There is no such node, or the head does not say.
pub async fn find_node(client: &mut Client, word: &str) -> Result<(NodeId, String), Error> {
    let status = client.status(0).await?;
    let node = find(&status, word)?;
    let named = status.nodes.into_iter().find(|one| one.node == node);
    Ok((node, named.map(|one| crate::table::printable(&one.name)).unwrap_or_default()))
}

/// A name counts before a number: a node may be called `7`.
fn find(status: &ClusterStatus, word: &str) -> Result<NodeId, Error> {
    let by_name = status.nodes.iter().find(|node| node.name == word);
    let number: Option<u32> = word.parse().ok();
    let by_number = || status.nodes.iter().find(|node| Some(node.node.0) == number);
    by_name.or_else(by_number).map(|node| node.node).ok_or_else(|| {
        Error::Usage(format!(
            "the cluster {} has no node {word}; `kumi node list` lists its nodes",
            status.name
        ))
    })
}

/// Whether the node is up and takes jobs, in a word or two.
pub fn state(node: &NodeStatus) -> &'static str {
    let busy = !node.jobs.is_empty();
    match (&node.drain, node.up) {
        (None, true) => "up",
        (None, false) => "down",
        (Some(_), true) if busy => "draining",
        (Some(_), true) => "drained",
        (Some(_), false) if busy => "draining, down",
        (Some(_), false) => "drained, down",
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::cluster::tree::tests::nodes;
    use crate::top::snapshot::tests::snapshot;
    use kumi_control::message::Drain;
    use kumi_sched::JobId;

    pub fn drained(node: u32) -> Drain {
        Drain { node: NodeId(node), reason: "disk fails".into(), by: "ada".into(), since_ms: 1_000 }
    }

    #[test]
    fn names_count_before_numbers() {
        let mut status = snapshot().cluster;
        status.nodes = nodes(&[1, 1, 1]);
        status.nodes[2].name = "0".into();
        let found = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            named(&status, &words).map_err(|error| error.exit_code())
        };
        assert_eq!(found(&["1", "node0", "0"]), Ok(vec![NodeId(1), NodeId(0), NodeId(2)]));
        assert_eq!(found(&["node0", "node9"]), Err(64));
        assert_eq!(found(&["3"]), Err(64));
    }

    #[test]
    fn states_have_words() {
        let mut node = nodes(&[1]).remove(0);
        assert_eq!(state(&node), "up");
        node.drain = Some(drained(0));
        assert_eq!(state(&node), "drained");
        node.jobs = vec![JobId(1)];
        assert_eq!(state(&node), "draining");
        node.up = false;
        assert_eq!(state(&node), "draining, down");
        node.drain = None;
        assert_eq!(state(&node), "down");
    }
}
