//! `kumi cluster set`: changes the sharing of processors while jobs run.

use super::configuration::slice_us;
use super::status;
use crate::cli::{OnOff, Policy, SetArgs};
use crate::context::Context;
use crate::error::Error;
use crate::output;
use kumi_control::message::{ClientReply, ClientRequest, ClusterStatus};
use kumi_node::config::OS;
use kumi_sched::Mode;

/// Runs the command.
pub async fn run(context: &Context, args: &SetArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let before = client.status(0).await?;
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
    let after = client.status(0).await?;
    remember(context, &after)?;
    output::text(&format!("cluster {}: {}\n", after.name, status::sharing(&after)))
}

/// The settings in force, with the changes of the arguments. `fill` counts where the mode in force does not say.
fn wanted(now: Mode, fill: bool, args: &SetArgs) -> Result<Mode, Error> {
    let (gang, forced, filled) = match now {
        Mode::Gang { force_switch, fill } => (true, force_switch, fill),
        Mode::OperatingSystem => (false, false, fill),
    };
    let fill = args.fill.map_or(filled, |value| value == OnOff::On);
    let force_switch = args.force_switch.map_or(forced, |value| value == OnOff::On);
    let gang = args.policy.as_ref().map_or(gang, |policy| *policy != Policy::Os);
    let alone = |option| {
        let message =
            format!("{option} is about gang scheduling; add --policy with one, such as dqt");
        Err(Error::Usage(message))
    };
    match gang {
        true => Ok(Mode::Gang { force_switch, fill }),
        false if args.force_switch == Some(OnOff::On) => alone("--force-switch"),
        false if args.fill.is_some() => alone("--fill"),
        false => Ok(Mode::OperatingSystem),
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
    match status.mode {
        Mode::Gang { force_switch, fill } => {
            config.policy.clone_from(&status.policy);
            (config.force_switch, config.fill) = (force_switch, fill);
        }
        Mode::OperatingSystem => OS.clone_into(&mut config.policy),
    }
    config.save(context.dir())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(policy: Option<Policy>, force_switch: Option<OnOff>) -> SetArgs {
        SetArgs { slice: None, policy, mode: None, force_switch, fill: None }
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
