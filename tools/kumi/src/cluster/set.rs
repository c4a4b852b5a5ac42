//! `kumi cluster set`: changes the sharing of processors while jobs run.

use super::status;
use crate::cli::{OnOff, Policy, SetArgs};
use crate::context::Context;
use crate::error::Error;
use crate::output;
use kumi_control::message::{ClientReply, ClientRequest, ClusterStatus};
use kumi_node::client::Client;
use kumi_node::config::ModeName;
use kumi_sched::Mode;

/// Runs the command.
pub async fn run(context: &Context, args: &SetArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let before = ask(&mut client).await?;
    let mode = wanted(before.mode, args)?;
    let slice_ns = args.slice.map(|slice| u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX));
    let policy = match &args.policy {
        Some(Policy::Named(name)) => Some(name.clone()),
        _ => None,
    };
    match client.ask(&ClientRequest::Configure { mode: Some(mode), slice_ns, policy }).await? {
        ClientReply::Done => {}
        other => return Err(Error::unexpected(&other)),
    }
    let after = ask(&mut client).await?;
    remember(context, &after)?;
    output::text(&format!("cluster {}: {}\n", after.name, status::sharing(&after)))
}

async fn ask(client: &mut Client) -> Result<ClusterStatus, Error> {
    match client.ask(&ClientRequest::Cluster).await? {
        ClientReply::Cluster(status) => Ok(status),
        other => Err(Error::unexpected(&other)),
    }
}

/// The settings in force, with the changes of the arguments.
fn wanted(now: Mode, args: &SetArgs) -> Result<Mode, Error> {
    let (policy, forced) = match now {
        Mode::Gang { force_switch } => (Policy::Gang, force_switch),
        Mode::OperatingSystem => (Policy::Os, false),
    };
    let force_switch = args.force_switch.map_or(forced, |value| value == OnOff::On);
    match args.policy.as_ref().unwrap_or(&policy) {
        Policy::Gang | Policy::Named(_) => Ok(Mode::Gang { force_switch }),
        Policy::Os if args.force_switch == Some(OnOff::On) => Err(Error::Usage(
            "--force-switch is about gang scheduling; add --policy gang".to_owned(),
        )),
        Policy::Os => Ok(Mode::OperatingSystem),
    }
}

/// Writes the change into the configuration, so that it survives the head. If the machine only has a node, or
/// the file belongs to another user, the head's copy counts.
fn remember(context: &Context, status: &ClusterStatus) -> Result<(), Error> {
    if !kumi_node::paths::head_socket(context.dir()).exists() {
        return Ok(());
    }
    let mut config = context.config()?;
    config.slice_us = status.slice_ns / 1000;
    (config.mode, config.force_switch) = match status.mode {
        Mode::Gang { force_switch } => (ModeName::Gang, force_switch),
        Mode::OperatingSystem => (ModeName::Os, config.force_switch),
    };
    config.policy.clone_from(&status.policy);
    config.save(context.dir())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(policy: Option<Policy>, force_switch: Option<OnOff>) -> SetArgs {
        SetArgs { slice: None, policy, force_switch }
    }

    #[test]
    fn what_is_not_mentioned_stays() {
        let forced = Mode::Gang { force_switch: true };
        let plain = Mode::Gang { force_switch: false };
        let os = Mode::OperatingSystem;
        assert_eq!(wanted(forced, &args(None, None)).unwrap(), forced);
        assert_eq!(wanted(forced, &args(None, Some(OnOff::Off))).unwrap(), plain);
        assert_eq!(wanted(forced, &args(Some(Policy::Os), None)).unwrap(), os);
        assert_eq!(wanted(os, &args(None, None)).unwrap(), os);
        assert_eq!(wanted(os, &args(Some(Policy::Gang), None)).unwrap(), plain);
        let named = || Some(Policy::Named("easy".to_owned()));
        assert_eq!(wanted(os, &args(named(), None)).unwrap(), plain);
        assert_eq!(wanted(forced, &args(named(), None)).unwrap(), forced);
        assert_eq!(wanted(os, &args(None, Some(OnOff::On))).unwrap_err().exit_code(), 64);
    }
}
