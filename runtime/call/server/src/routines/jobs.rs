//! Calls of routines that are parallel jobs of a cluster.

use kumi_idl::Plan;
use kumi_rpc::{Code, Failure};

use crate::Config;

/// Checks that the server can start the job of a call.
///
/// # Errors
/// The failure for the client.
pub(crate) fn check(plan: &Plan, name: &str, config: &Config) -> Result<(), Failure> {
    let Some(ranks) = plan.ranks else { return Ok(()) };
    if config.sandbox {
        let text = format!(
            "`{name}` is a parallel job, which needs the network: it cannot run with --sandbox; have it served by a server without"
        );
        return Err(Failure::new(Code::NotRunnable, 0, text));
    }
    let Some(jobs) = &config.jobs else {
        let text = format!(
            "`{name}` is a parallel job, and this server starts no jobs; `kumi call serve` does"
        );
        return Err(Failure::new(Code::NotRunnable, 0, text));
    };
    if ranks <= jobs.ranks {
        return Ok(());
    }
    let text = format!(
        "`{name}` would have {ranks} ranks with these arguments, and this server gives {most} at most: ask for fewer, or have \
         the server started with --ranks {ranks}",
        most = jobs.ranks
    );
    Err(Failure::new(Code::TooLarge, i64::try_from(ranks).unwrap_or(i64::MAX), text))
}
