//! `kumi cluster set`: changes the sharing of processors while jobs run.

use super::configuration::slice_us;
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
    let fill = context.config().map_or(true, |config| config.fill);
    let mode = wanted(before.mode, fill, args)?;
    let policy = match &args.policy {
        Some(Policy::Named(name)) => Some(name.clone()),
        _ => None,
    };
    let configure = ClientRequest::Configure { mode: Some(mode), slice: args.slice, policy };
    match client.ask(&configure).await? {
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

/// The settings in force, with the changes of the arguments. `fill` counts where the mode in force does not say.
fn wanted(now: Mode, fill: bool, args: &SetArgs) -> Result<Mode, Error> {
    let (policy, forced, filled) = match now {
        Mode::Gang { force_switch, fill } => (Policy::Gang, force_switch, fill),
        Mode::OperatingSystem => (Policy::Os, false, fill),
    };
    let fill = args.fill.map_or(filled, |value| value == OnOff::On);
    let force_switch = args.force_switch.map_or(forced, |value| value == OnOff::On);
    match args.policy.as_ref().unwrap_or(&policy) {
        Policy::Gang | Policy::Named(_) => Ok(Mode::Gang { force_switch, fill }),
        Policy::Os if args.force_switch == Some(OnOff::On) => Err(Error::Usage(
            "--force-switch is about gang scheduling; add --policy gang".to_owned(),
        )),
        Policy::Os if args.fill.is_some() => {
            Err(Error::Usage("--fill is about gang scheduling; add --policy gang".to_owned()))
        }
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
    config.slice_us = slice_us(status.slice);
    (config.mode, config.force_switch, config.fill) = match status.mode {
        Mode::Gang { force_switch, fill } => (ModeName::Gang, force_switch, fill),
        Mode::OperatingSystem => (ModeName::Os, config.force_switch, config.fill),
    };
    config.policy.clone_from(&status.policy);
    config.save(context.dir())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(policy: Option<Policy>, force_switch: Option<OnOff>) -> SetArgs {
        SetArgs { slice: None, policy, force_switch, fill: None }
    }

    #[test]
    fn what_is_not_mentioned_stays() {
        let forced = Mode::Gang { force_switch: true, fill: true };
        let plain = Mode::Gang { force_switch: false, fill: true };
        let os = Mode::OperatingSystem;
        assert_eq!(wanted(forced, true, &args(None, None)).unwrap(), forced);
        assert_eq!(wanted(forced, true, &args(None, Some(OnOff::Off))).unwrap(), plain);
        assert_eq!(wanted(forced, true, &args(Some(Policy::Os), None)).unwrap(), os);
        assert_eq!(wanted(os, true, &args(None, None)).unwrap(), os);
        assert_eq!(wanted(os, true, &args(Some(Policy::Gang), None)).unwrap(), plain);
        let named = || Some(Policy::Named("easy".to_owned()));
        assert_eq!(wanted(os, true, &args(named(), None)).unwrap(), plain);
        assert_eq!(wanted(forced, true, &args(named(), None)).unwrap(), forced);
        let fill = |fill| SetArgs { fill: Some(fill), ..args(None, None) };
        let strict = Mode::Gang { force_switch: false, fill: false };
        assert_eq!(wanted(plain, true, &fill(OnOff::Off)).unwrap(), strict);
        assert_eq!(wanted(strict, true, &args(None, None)).unwrap(), strict);
        assert_eq!(wanted(strict, true, &fill(OnOff::On)).unwrap(), plain);
        assert_eq!(wanted(os, false, &args(named(), None)).unwrap(), strict);
        assert_eq!(wanted(os, true, &fill(OnOff::On)).unwrap_err().exit_code(), 64);
        assert_eq!(wanted(os, true, &args(None, Some(OnOff::On))).unwrap_err().exit_code(), 64);
    }
}
