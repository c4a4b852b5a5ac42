//! Landlock domains of the processes of slots, where the kernel has them.
//!
//! A process in a domain signals and traces no process outside of it, whoever its user is. Kernels from 6.12 on have that.
//! In a sandbox it also writes nothing outside of its own folders, which covers named pipes: these can be
//! written on read-only mounts. Kernels from 5.13 on have that. Threads that are there before enter it with Linux 7.0.

use std::error::Error;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, PathFdError,
    RestrictSelfAttr, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};

/// The newest interface of the kernel whose rights were looked at; what a kernel lacks of it is left out.
const KNOWN: ABI = ABI::V7;

/// Enters a domain: no signals to processes outside, and no tracing of them.
///
/// # Errors
/// An error message. A kernel without Landlock is no error.
pub(super) fn enter() -> Result<(), String> {
    let enter = || -> Result<(), RulesetError> {
        let rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
        rules.scope(Scope::Signal)?.create()?.all_threads(true)?.restrict_self()?;
        Ok(())
    };
    enter().map_err(|error| failed(&error))
}

/// Enters a domain that also connects to no abstract socket outside, and writes below `own` only, and to devices.
///
/// # Errors
/// An error message. A kernel without Landlock is no error.
pub(super) fn enter_writing_only(own: &[PathBuf]) -> Result<(), String> {
    let written = AccessFs::from_write(KNOWN);
    let device = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let enter = || -> Result<(), Box<dyn Error>> {
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .scope(Scope::from_all(KNOWN))?
            .handle_access(written)?;
        let mut rules = rules.create()?;
        for folder in own {
            rules = rules.add_rule(beneath(folder, written)?)?;
        }
        // What kinds of devices there are, their permissions say.
        rules.add_rule(beneath(Path::new("/dev"), device)?)?.all_threads(true)?.restrict_self()?;
        Ok(())
    };
    enter().map_err(|error| failed(&*error))
}

fn beneath(folder: &Path, rights: BitFlags<AccessFs>) -> Result<PathBeneath<PathFd>, PathFdError> {
    Ok(PathBeneath::new(PathFd::new(folder)?, rights))
}

fn failed(error: &dyn Error) -> String {
    format!("the process cannot enter a Landlock domain: {error}")
}
