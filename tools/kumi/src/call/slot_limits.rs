//! Options of `kumi call serve` for what a slot may use, which control groups bound.

use crate::error::Error;
use crate::output;
use clap::Args;
use kumi_call::server::{SANDBOX_PROCESSES, ServerGroups, SlotLimits};
use std::sync::Arc;
use std::time::Duration;

/// Most processes and threads of a slot unless told otherwise: more than libraries start, and no end of them.
const PROCESSES: u64 = 4_096;
/// How long empty groups may take to go.
const REMOVAL: Duration = Duration::from_secs(1);

/// What a routine's process may use with all that it starts.
#[derive(Clone, Debug, Args)]
pub struct SlotArgs {
    /// Most MiB of memory of a routine's process and all that it starts together, with files in memory and
    /// without swap; needs control groups [default: no limit]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub slot_memory: Option<u64>,
    /// Most processes and threads of a routine's process and all that it starts; needs control groups
    /// [default: 4096, where there are control groups]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 22))]
    pub slot_processes: Option<u64>,
    /// Processors whose time a routine's process and all that it starts may use together, as 1.5; needs
    /// control groups [default: no limit]
    #[arg(long, value_name = "N", value_parser = processors)]
    pub slot_processors: Option<f64>,
}

/// What a server says of its control groups.
#[derive(Debug)]
pub enum GroupsNotice {
    /// Limits were asked for, or groups of dead servers cannot be removed.
    ForOwner(String),
    /// It is as always.
    ForLog(String),
}

impl GroupsNotice {
    /// Tells whom it concerns.
    pub fn tell(&self) {
        match self {
            GroupsNotice::ForOwner(text) => output::note(text),
            GroupsNotice::ForLog(text) => tracing::info!("{text}"),
        }
    }
}

impl SlotArgs {
    fn limits(&self) -> SlotLimits {
        SlotLimits {
            memory: self.slot_memory.map(|mib| mib << 20),
            processes: Some(self.slot_processes.unwrap_or(PROCESSES)),
            processors: self.slot_processors,
        }
    }

    /// The options that were given, with what they need.
    fn given(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let options = [
            (self.slot_memory.is_some(), ("--slot-memory", "memory")),
            (self.slot_processes.is_some(), ("--slot-processes", "pids")),
            (self.slot_processors.is_some(), ("--slot-processors", "cpu")),
        ];
        options.into_iter().filter_map(|(is_given, option)| is_given.then_some(option))
    }

    /// Checks that a sandbox, if routines run in one, can begin within the limits.
    ///
    /// # Errors
    /// It needs more processes.
    pub fn check(&self, sandbox: bool) -> Result<(), Error> {
        match self.slot_processes {
            Some(most) if sandbox && most < SANDBOX_PROCESSES => Err(Error::Usage(format!(
                "--slot-processes {most} is too few with --sandbox, which has {SANDBOX_PROCESSES} processes before a routine \
                 starts any; give more"
            ))),
            _ => Ok(()),
        }
    }

    /// The server's control groups, if it may have any, and what to say of them.
    ///
    /// # Errors
    /// A limit that was asked for would not hold.
    pub fn groups(&self) -> Result<(Option<Arc<ServerGroups>>, GroupsNotice), Error> {
        match ServerGroups::make(self.limits()) {
            Ok(groups) => {
                let missing = groups.missing().iter().find_map(|(controller, why)| {
                    let given = self.given().find(|(_, needs)| *needs == controller.name());
                    given.map(|(option, _)| refused(option, why))
                });
                if let Some(refusal) = missing {
                    // They are empty, and the next server here removes what is left.
                    let _left = groups.destroy(REMOVAL);
                    return Err(refusal);
                }
                let text = groups.to_string();
                let is_plain = self.given().next().is_none() && groups.left().is_empty();
                let notice = if is_plain {
                    GroupsNotice::ForLog(text)
                } else {
                    GroupsNotice::ForOwner(text)
                };
                Ok((Some(Arc::new(groups)), notice))
            }
            Err(why) => match self.given().next() {
                Some((option, _)) => Err(refused(option, &why)),
                None => Ok((None, GroupsNotice::ForLog(without(&why)))),
            },
        }
    }
}

/// What a server says that has no control groups.
fn without(why: &str) -> String {
    format!(
        "no control groups: {why}; a guard ends what a routine leaves, and limits hold for each process only, not for its \
         children; as root, or in a service with Delegate=yes, there can be groups"
    )
}

fn refused(option: &str, why: &str) -> Error {
    Error::Usage(format!(
        "{option} would not hold: {why}; start the server as root, in a service with Delegate=yes or by `systemd-run --user \
         --scope -p Delegate=yes`, or leave it out"
    ))
}

/// A number of processors, with a fraction.
fn processors(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number
        .filter(|number| (0.01..=4_096.0).contains(number))
        .ok_or_else(|| "a number of processors from 0.01 to 4096 is needed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_may_be_fractions_and_have_sense() {
        assert_eq!((processors("1.5"), processors("0.01")), (Ok(1.5), Ok(0.01)));
        for wrong in ["", "0", "-1", "NaN", "inf", "5000", "two"] {
            assert!(processors(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_processes_are_bounded_unless_asked() {
        let none = SlotArgs { slot_memory: None, slot_processes: None, slot_processors: None };
        let expected = SlotLimits { processes: Some(PROCESSES), ..SlotLimits::default() };
        assert_eq!((none.limits(), none.given().count()), (expected, 0));
        let all =
            SlotArgs { slot_memory: Some(64), slot_processes: Some(9), slot_processors: Some(0.5) };
        let (memory, processes) = (Some(64 << 20), Some(9));
        let expected = SlotLimits { memory, processes, processors: Some(0.5) };
        assert_eq!((all.limits(), all.given().count()), (expected, 3));
    }

    #[test]
    fn a_sandbox_needs_processes_of_its_own() {
        let of = |most| SlotArgs { slot_memory: None, slot_processes: most, slot_processors: None };
        let error = of(Some(SANDBOX_PROCESSES - 1)).check(true).expect_err("too few").to_string();
        assert!(error.contains("--slot-processes 2 is too few with --sandbox"), "{error}");
        for (most, sandbox) in [(Some(1), false), (Some(SANDBOX_PROCESSES), true), (None, true)] {
            of(most).check(sandbox).expect("enough");
        }
    }
}
