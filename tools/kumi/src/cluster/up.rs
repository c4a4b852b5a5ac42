//! `kumi cluster up`: creates and starts the missing parts of a cluster. If anything fails, it removes
//! everything that it created or started.

use super::daemons::{Daemon, Started, kumid};
use super::directory::{self, DirectoryLock};
use super::host_instructions::{self, HostInstructions};
use super::{cgroups, configuration, down, netns, processes, remote_hosts, status};
use crate::cli::UpArgs;
use crate::context::Context;
use crate::error::Error;
use crate::interrupts::{Interrupts, exit_code};
use crate::output;
use kumi_control::message::ClusterStatus;
use kumi_node::client::{Client, ClientError};
use kumi_node::config::{ClusterConfig, ClusterKind};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Time for all daemons together to join.
const JOINING: Duration = Duration::from_secs(20);
/// Pause between two checks of them.
const LOOK: Duration = Duration::from_millis(10);

/// Runs the command.
pub async fn run(context: &Context, args: &UpArgs) -> Result<(), Error> {
    let kumid = kumid()?;
    let mut interrupts = Interrupts::listen()?;
    if let Some(other) = processes::namesake(context.dir()) {
        return Err(Error::Exists {
            what: format!("a cluster {} runs already, from {}", context.name, other.display()),
            advice: "name this one otherwise with --cluster".to_owned(),
        });
    }
    let asked = args.place.local.is_some() || args.place.hosts.is_some();
    let exists = context.dir().join("cluster.toml").exists();
    if exists && !asked {
        let config = context.config()?;
        down::check_owner(&config, "start it")?;
        let _claim = DirectoryLock::new(context)?;
        return resume(context, &config, &kumid, args.mtu, &mut interrupts).await;
    }
    let directory = DirectoryLock::new(context)?;
    let result = fresh(context, args, &kumid, &mut interrupts).await;
    if result.is_err() {
        directory.abandon();
    }
    result
}

/// Starts the missing daemons of an existing cluster.
async fn resume(
    context: &Context,
    config: &ClusterConfig,
    kumid: &Path,
    mtu: u32,
    interrupts: &mut Interrupts,
) -> Result<(), Error> {
    let here = remote_hosts::daemons_here(config)?;
    let missing: Vec<Daemon> =
        here.into_iter().filter(|daemon| !daemon.ready(context.dir())).collect();
    if missing.is_empty() {
        return Err(up_here(context, config).await);
    }
    if processes::existing(context.dir()).is_empty() {
        clear(context)?;
        return bring_up(context, config, kumid, mtu, interrupts).await;
    }
    let mut started = Started::default();
    let result = start(context, config, kumid, &missing, &mut started, interrupts).await;
    if result.is_err() {
        started.kill();
    }
    output::text(&summary(context, config, result?)?)
}

/// Creates a configuration and starts all of it.
async fn fresh(
    context: &Context,
    args: &UpArgs,
    kumid: &Path,
    interrupts: &mut Interrupts,
) -> Result<(), Error> {
    if !processes::existing(context.dir()).is_empty() {
        return Err(already_up(context));
    }
    let namespaces = args.place.local.is_some() && netns::possible();
    let config =
        configuration::config(context, &args.place, args.addresses, &args.sharing, namespaces)?;
    if context.dir().join("cluster.toml").exists() {
        same_nodes(context, &config)?;
    }
    clear(context)?;
    configuration::write(context, &config)?;
    bring_up(context, &config, kumid, args.mtu, interrupts).await
}

fn already_up(context: &Context) -> Error {
    Error::Exists {
        what: format!("the cluster {} is up already", context.name),
        advice: "see `kumi cluster status`, or take it down with `kumi cluster down`".to_owned(),
    }
}

/// All daemons of this machine run. Nodes on other hosts may be down: then how they come back.
async fn up_here(context: &Context, config: &ClusterConfig) -> Error {
    let usual = already_up(context);
    if config.kind != ClusterKind::Hosts {
        return usual;
    }
    // Without an answer of the head nothing is known of other hosts; the usual advice says how to look.
    let (Ok(status), Ok(own)) = (status_of_anywhere(context).await, remote_hosts::own_addresses())
    else {
        return usual;
    };
    let up = status.nodes.iter().filter(|node| node.up).map(|node| node.node).collect();
    let down = host_instructions::down(config, &up);
    if down.is_empty() {
        return usual;
    }
    let advice = HostInstructions::new(context, config, &own).back(&down);
    Error::Exists {
        what: format!("the daemons of cluster {} on this machine are up already", context.name),
        advice: advice.trim_end().to_owned(),
    }
}

/// The head's view of the cluster, by way of any daemon of this machine.
async fn status_of_anywhere(context: &Context) -> Result<ClusterStatus, Error> {
    Ok(context.connect().await?.status(0).await?)
}

/// An existing cluster keeps its jobs and keys, so it must be the same cluster.
fn same_nodes(context: &Context, config: &ClusterConfig) -> Result<(), Error> {
    let old = context.config()?;
    down::check_owner(&old, "change it")?;
    let places = |c: &ClusterConfig| -> Vec<_> {
        // Ports and namespaces of a local cluster are chosen anew each time.
        let local = c.kind == ClusterKind::Local;
        let place =
            |n: &kumi_node::config::NodeConfig| (n.name.clone(), (!local).then(|| n.endpoint()));
        c.nodes.iter().map(place).collect()
    };
    if old.kind == config.kind && places(&old) == places(config) {
        return Ok(());
    }
    Err(Error::Exists {
        what: format!("the cluster {} was made with other nodes", context.name),
        advice:
            "start it as it is with `kumi cluster up`, or remove it with `kumi cluster destroy`"
                .to_owned(),
    })
}

/// Removes leftovers of a dead cluster that would be in the way.
fn clear(context: &Context) -> Result<(), Error> {
    cgroups::remove(&context.name)?;
    netns::remove(&context.name)?;
    directory::remove_stale(context.dir())
}

/// Starts a cluster without running daemons, and takes it down again if that fails.
async fn bring_up(
    context: &Context,
    config: &ClusterConfig,
    kumid: &Path,
    mtu: u32,
    interrupts: &mut Interrupts,
) -> Result<(), Error> {
    let here = remote_hosts::daemons_here(config)?;
    let mut started = Started::default();
    let result = async {
        if config.members().any(|(_, node)| node.netns.is_some()) {
            netns::create(config, mtu)?;
        }
        start(context, config, kumid, &here, &mut started, interrupts).await
    }
    .await;
    if result.is_err() {
        started.kill();
        // The reason for the failure matters more than an error while cleaning up.
        if let Err(error) = down::end_processes(context).and_then(|()| clear(context)) {
            output::note(&error.to_string());
        }
    }
    output::text(&summary(context, config, result?)?)
}

/// Starts these daemons, and waits until they have joined; if other daemons run elsewhere, until these
/// listen.
async fn start(
    context: &Context,
    config: &ClusterConfig,
    kumid: &Path,
    daemons: &[Daemon],
    started: &mut Started,
    interrupts: &mut Interrupts,
) -> Result<Option<ClusterStatus>, Error> {
    for &daemon in daemons {
        started.start(kumid, context.dir(), config, daemon)?;
    }
    let joined = wait_joined(context, config, started);
    tokio::select! {
        number = interrupts.next() => Err(Error::Interrupted(exit_code(number))),
        status = joined => status,
    }
}

async fn wait_joined(
    context: &Context,
    config: &ClusterConfig,
    started: &mut Started,
) -> Result<Option<ClusterStatus>, Error> {
    let deadline = Instant::now() + JOINING;
    let whole = remote_hosts::daemons_here(config)? == Daemon::all(config);
    let mut last = None;
    loop {
        started.check(context.dir(), config)?;
        if started.not_ready(context.dir()).is_empty() {
            if !whole {
                return Ok(None);
            }
            last = ask_status(context).await?;
            if let Some(status) = last.take_if(|status| status.nodes.iter().all(|node| node.up)) {
                return Ok(Some(status));
            }
        }
        if Instant::now() >= deadline {
            return Err(not_attached(context, config, started, last.as_ref()));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The head's view of the cluster; `None` while the head does not answer yet.
async fn ask_status(context: &Context) -> Result<Option<ClusterStatus>, Error> {
    let socket = kumi_node::paths::head_socket(context.dir());
    let mut client = match Client::connect_to(&socket).await {
        Ok(client) => client,
        Err(ClientError::NotRunning(_) | ClientError::Lost) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(client.status(0).await?))
}

fn not_attached(
    context: &Context,
    config: &ClusterConfig,
    started: &Started,
    status: Option<&ClusterStatus>,
) -> Error {
    let mut missing = started.not_ready(context.dir());
    if missing.is_empty() {
        let nodes = status.iter().flat_map(|status| &status.nodes);
        missing = nodes.filter(|node| !node.up).map(|node| Daemon::Node(node.node)).collect();
    }
    let first = *missing.first().unwrap_or(&Daemon::Head);
    let titles: Vec<String> = missing.iter().map(|daemon| daemon.title(config)).collect();
    Error::NotAttached {
        missing: titles.join(", "),
        seconds: JOINING.as_secs(),
        said: format!("of {}, {}", first.title(config), directory::tail(&first.log(context.dir()))),
    }
}

fn summary(
    context: &Context,
    config: &ClusterConfig,
    status: Option<ClusterStatus>,
) -> Result<String, Error> {
    let Some(status) = status else {
        let own = remote_hosts::own_addresses()?;
        return Ok(HostInstructions::new(context, config, &own).after_up());
    };
    let mut text = status::render(&status, &context.places(), output::wall_ms());
    let option = match context.name.as_str() {
        "default" => String::new(),
        name => format!(" --cluster {name}"),
    };
    text.push_str(&format!(
        "\nRun a program:  kumi{option} run -n {} hostname\nTake it down:   kumi{option} cluster \
         down\n",
        status.nodes.len()
    ));
    Ok(text)
}
