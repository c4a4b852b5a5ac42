//! `kumi cluster down` ends all jobs and daemons, and keeps what they have written. `kumi cluster destroy` also removes that.
//! Both may be repeated, and work after all processes were killed.

use super::directory::{self, DirectoryLock};
use super::{cgroups, netns, processes};
use crate::cli::DestroyArgs;
use crate::context::Context;
use crate::error::Error;
use crate::output;
use kumi_control::message::ClientRequest;
use kumi_node::client::{Client, ClientError};
use kumi_node::config::ClusterConfig;
use kumi_node::job::mpi::folder;
use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

/// Time for the daemons to end on request.
const ENDING: Duration = Duration::from_secs(10);

/// Takes the cluster down.
pub async fn run(context: &Context) -> Result<(), Error> {
    let name = &context.name;
    let Some(_ended) = end(context, "take it down").await? else {
        return output::text(&format!("cluster {name}: there is nothing to take down\n"));
    };
    directory::remove_stale(context.dir())?;
    output::text(&format!(
        "cluster {name} is down; its jobs' table and output, logs and configuration stay in {}\n",
        context.dir().display()
    ))
}

/// Takes the cluster down and removes everything of it, after asking.
pub async fn destroy(context: &Context, args: &DestroyArgs) -> Result<(), Error> {
    let name = &context.name;
    if !args.yes && context.dir().exists() && !agreed(context)? {
        output::note("nothing was removed");
        return Err(Error::Silent(1));
    }
    let Some(_ended) = end(context, "remove it").await? else {
        return output::text(&format!("cluster {name}: there is nothing to remove\n"));
    };
    directory::remove_all(context.dir())?;
    output::text(&format!("cluster {name} is removed\n"))
}

/// Asks whether everything is to be removed.
fn agreed(context: &Context) -> Result<bool, Error> {
    if !io::stdin().is_terminal() {
        let message = "`kumi cluster destroy` asks before it removes anything, and standard input is no terminal; \
                       add --yes";
        return Err(Error::Usage(message.to_owned()));
    }
    let mut out = io::stderr().lock();
    let dir = context.dir().display();
    write!(
        out,
        "End all jobs of cluster {}, and remove its table of jobs, their output, logs, configuration and keys in {dir}? [y/N] ",
        context.name
    )
    .and_then(|()| out.flush())
    .map_err(Error::Output)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Error::no_input)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// A cluster without processes. No other command works on it meanwhile.
struct EndedCluster {
    _directory: Option<DirectoryLock>,
}

/// Ends all jobs and daemons, and removes what only they used. Returns none if there is nothing.
async fn end(context: &Context, what: &'static str) -> Result<Option<EndedCluster>, Error> {
    // An unreadable configuration must not keep the cluster from being removed.
    let config = context.config().ok();
    if let Some(config) = &config {
        check_owner(config, what)?;
    }
    let directory = DirectoryLock::existing(context)?;
    let ours = directory.is_some() && !directory::is_foreign(context.dir())?;
    let alone = processes::namesake(context.dir()).is_none();
    let named = || cgroups::any(&context.name) || !netns::existing(&context.name).is_empty();
    if !(ours || alone && named()) {
        return Ok(None);
    }
    let told = tell(context, config.as_ref()).await?;
    end_processes_within(context, if told { ENDING } else { Duration::ZERO })?;
    if alone {
        netns::remove(&context.name)?;
    }
    folder::remove_left(context.dir());
    Ok(Some(EndedCluster { _directory: directory }))
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
