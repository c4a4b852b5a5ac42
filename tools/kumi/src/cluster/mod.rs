//! `kumi cluster`: makes, starts, shows, changes and stops clusters, and keeps their certificates.

pub mod certificates;
mod cgroups;
mod configuration;
mod daemons;
mod directory;
mod down;
mod job_defaults;
mod netns;
mod processes;
mod remote_hosts;
mod set;
pub mod status;
pub mod tree;
mod up;

use crate::cli::{ClusterCommand, InitArgs};
use crate::context::Context;
use crate::error::Error;
use crate::output;

pub use daemons::{beside, kumid, on_search_path};
pub use job_defaults::JobDefaultArgs;

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
    }
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
    output::text(&format!(
        "cluster {} of {} nodes is made, in {}\nStart it: kumi cluster up --cluster {}\n",
        named.name,
        config.nodes.len(),
        named.dir().display(),
        named.name
    ))
}
