//! `kumi cluster`: makes, starts, shows, changes and stops clusters, and keeps their certificates.

pub mod certificates;
mod cgroups;
pub mod configuration;
mod daemons;
mod directory;
mod down;
pub mod host_instructions;
mod job_defaults;
pub mod joining;
mod netns;
mod processes;
pub mod remote_hosts;
mod set;
mod state_args;
pub mod status;
pub mod tree;
mod up;

use crate::cli::{ClusterCommand, InitArgs};
use crate::context::Context;
use crate::error::Error;
use crate::output;
use host_instructions::HostInstructions;
use kumi_node::config::{ClusterConfig, ClusterKind};

use daemons::Daemon;
pub use daemons::{beside, kumid, on_search_path};
pub use job_defaults::JobDefaultArgs;
pub use state_args::StateArgs;

/// Runs the command.
pub async fn run(context: &Context, command: ClusterCommand) -> Result<(), Error> {
    match command {
        ClusterCommand::Init(args) => init(context, &args),
        ClusterCommand::Up(args) => up::run(context, &args).await,
        ClusterCommand::Status(args) => status::run(context, &args).await,
        ClusterCommand::Down(_) => down::run(context).await,
        ClusterCommand::Destroy(args) => down::destroy(context, &args).await,
        ClusterCommand::Set(args) => set::run(context, &args).await,
        ClusterCommand::Revoke(args) => certificates::revoke(context, &args).await,
        ClusterCommand::Rotate(args) => certificates::rotate(context, &args),
        ClusterCommand::Token(args) => joining::token(context, &args).await,
        ClusterCommand::Join(args) => joining::join(&args).await,
    }
}

/// The units of this machine's daemons; none if it is not one of the hosts.
pub fn units_here(config: &ClusterConfig) -> Vec<String> {
    let here = remote_hosts::daemons_here(config).unwrap_or_default();
    here.into_iter().map(Daemon::unit).collect()
}

/// `kumi cluster init`: configuration and keys, nothing else.
fn init(context: &Context, args: &InitArgs) -> Result<(), Error> {
    let named = match &args.name {
        Some(name) => Context::new(name)?,
        None => context.clone(),
    };
    let mut place = args.place.clone();
    if place.local.is_none() && place.hosts.is_none() {
        place.local =
            Some(u32::try_from(configuration::processors().len().clamp(1, 8)).unwrap_or(1));
    }
    let directory = directory::DirectoryLock::new(&named)?;
    if named.dir().join("cluster.toml").exists() {
        return Err(Error::Exists {
            what: format!(
                "the cluster {} is already made, in {}",
                named.name,
                named.dir().display()
            ),
            advice: "remove it with `kumi cluster destroy` or name another with --cluster"
                .to_owned(),
        });
    }
    let config =
        configuration::config(&named, &place, args.addresses, &args.sharing, netns::possible())
            .inspect_err(|_| directory.abandon())?;
    configuration::write(&named, &config).inspect_err(|_| directory.abandon())?;
    if config.kind == ClusterKind::Hosts {
        let own = remote_hosts::own_addresses()?;
        return output::text(&HostInstructions::new(&named, &config, &own).after_init());
    }
    output::text(&format!(
        "cluster {} of {} nodes is made, in {}\nStart it: kumi cluster up --cluster {}\n",
        named.name,
        config.members().count(),
        named.dir().display(),
        named.name
    ))
}
