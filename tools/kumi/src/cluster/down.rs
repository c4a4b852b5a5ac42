//! `kumi cluster down`: ends all jobs and daemons, and removes everything of the cluster from this machine.
//! It may be repeated, and works after all processes were killed.

use super::directory::{self, DirectoryLock};
use super::{cgroups, netns, processes};
use crate::cli::DownArgs;
use crate::context::Context;
use crate::error::Error;
use crate::output;
use kumi_control::message::ClientRequest;
use kumi_node::client::{Client, ClientError};
use kumi_node::config::{ClusterConfig, ClusterKind};
use kumi_node::job::mpi::folder;
use std::time::Duration;

/// Time for the daemons to end on request.
const ENDING: Duration = Duration::from_secs(10);

/// Runs the command.
pub async fn run(context: &Context, args: &DownArgs) -> Result<(), Error> {
    // An unreadable configuration must not keep the cluster from being removed.
    let config = context.config().ok();
    if let Some(config) = &config {
        check_owner(config, "take it down")?;
    }
    let directory = DirectoryLock::existing(context)?;
    let ours = directory.is_some() && !directory::is_foreign(context.dir())?;
    let alone = processes::namesake(context.dir()).is_none();
    let named = || cgroups::any(&context.name) || !netns::existing(&context.name).is_empty();
    let left = ours || alone && named();
    if !left {
        return output::text(&format!("cluster {}: there is nothing to take down\n", context.name));
    }
    let told = tell(context, config.as_ref()).await?;
    end_processes_within(context, if told { ENDING } else { Duration::ZERO })?;
    if alone {
        netns::remove(&context.name)?;
    }
    folder::remove_left(context.dir());
    let hosts = config.is_some_and(|config| config.kind == ClusterKind::Hosts);
    if hosts && !args.purge {
        directory::remove_runtime(context.dir())?;
        return output::text(&format!(
            "cluster {} is down; its configuration and keys are kept in {} (--purge removes them)\n",
            context.name,
            context.dir().display()
        ));
    }
    directory::remove_all(context.dir())?;
    output::text(&format!("cluster {} is down\n", context.name))
}

/// Fails unless this user may manage the cluster.
pub fn check_owner(config: &ClusterConfig, what: &'static str) -> Result<(), Error> {
    let user = nix::unistd::geteuid();
    if user.is_root() || user.as_raw() == config.owner_uid {
        return Ok(());
    }
    Err(Error::NotOwner { owner: output::user_name(config.owner_uid), what })
}

/// Asks the head to end everything; returns whether it was reached.
async fn tell(context: &Context, config: Option<&ClusterConfig>) -> Result<bool, Error> {
    let nodes = config.map_or(0, ClusterConfig::node_count);
    let asked = async {
        let mut client = Client::connect(context.dir(), nodes).await?;
        client.ask(&ClientRequest::Shutdown).await
    };
    match tokio::time::timeout(ENDING, asked).await {
        Ok(Err(ClientError::Refused(refusal))) => Err(Error::Client(ClientError::Refused(refusal))),
        // The head may end before its answer arrives.
        Ok(Ok(_) | Err(ClientError::Lost)) => Ok(true),
        // The head is dead, hangs or has another version: it is killed.
        Ok(Err(_)) | Err(_) => Ok(false),
    }
}

/// Kills all processes of the cluster on this machine and removes its control groups.
pub fn end_processes(context: &Context) -> Result<(), Error> {
    end_processes_within(context, Duration::ZERO)
}

fn end_processes_within(context: &Context, patience: Duration) -> Result<(), Error> {
    processes::wait_gone(context.dir(), patience);
    let left = processes::kill_all(context.dir());
    // After the daemons, so that none creates a group again.
    if processes::namesake(context.dir()).is_none() {
        cgroups::remove(&context.name)?;
    }
    if left.is_empty() {
        return Ok(());
    }
    let numbers: Vec<String> = left.iter().map(ToString::to_string).collect();
    Err(Error::LeftOver {
        what: format!("processes {}", numbers.join(", ")),
        said: "they do not end".to_owned(),
    })
}
