//! `kumi doctor`: what this machine permits, the missing parts, their costs, and how to get them.

use crate::cli::DoctorArgs;
use crate::cluster;
use crate::context::Context;
use crate::error::Error;
use crate::output;
use kumi_dsm::view::Mechanism;
use kumi_node::limits::{self, Check};
use serde::Serialize;

/// Consequence of a failed check without which Kumi cannot work.
const ESSENTIAL: &str = "no job can run";

/// The output of `--json`.
#[derive(Serialize)]
struct DoctorView<'a> {
    /// Whether anything can run at all.
    can_run: bool,
    checks: Vec<CheckView<'a>>,
}

/// One check.
#[derive(Serialize)]
struct CheckView<'a> {
    name: &'a str,
    ok: bool,
    found: &'a str,
    without: &'a str,
    remedy: &'a str,
}

/// Runs the command.
pub fn run(context: &Context, args: &DoctorArgs) -> Result<(), Error> {
    let mut checks = limits::checks();
    checks.extend(own_checks());
    checks.push(shared_memory());
    let ending = cluster::certificates::warnings(context, output::wall_ms());
    checks.extend(ending.into_iter().map(certificate_check));
    let can_run = can_run(&checks);
    if args.json {
        output::json(&DoctorView { can_run, checks: checks.iter().map(view).collect() })?;
    } else {
        output::text(&render(&checks))?;
    }
    if can_run { Ok(()) } else { Err(Error::NothingRuns) }
}

fn view(check: &Check) -> CheckView<'_> {
    let Check { name, ok, found, cost, remedy } = check;
    CheckView { name, ok: *ok, found, without: cost, remedy }
}

fn can_run(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.ok || check.cost != ESSENTIAL)
}

/// Programs that the command itself calls.
fn own_checks() -> Vec<Check> {
    let kumid = cluster::kumid();
    let tool = |name: &'static str, program: &str, cost, remedy| {
        let found = cluster::on_search_path(program);
        let (ok, found) = match found {
            Some(place) => (true, place.display().to_string()),
            None => (false, "not on the search path".to_owned()),
        };
        Check { name, ok, found, cost, remedy }
    };
    vec![
        Check {
            name: "the daemon kumid",
            ok: kumid.is_ok(),
            found: kumid.map_or_else(|error| error.to_string(), |p| p.display().to_string()),
            cost: "no cluster can be started here",
            remedy: "install kumid beside kumi",
        },
        tool(
            "the tool setsid",
            "setsid",
            "no cluster can be started here by `kumi cluster up`",
            "install util-linux",
        ),
        tool(
            "the tool nsenter",
            "nsenter",
            "local clusters use loopback addresses instead of a network of their own",
            "install util-linux",
        ),
        tool(
            "the tool ip",
            "ip",
            "local clusters use loopback addresses instead of a network of their own",
            "install iproute2",
        ),
    ]
}

/// How the pages of shared memory can be brought here.
fn shared_memory() -> Check {
    let missing = Mechanism::best().missing;
    Check {
        name: "page faults by userfaultfd",
        ok: missing.is_none(),
        found: missing.map_or_else(|| "all that is needed".to_owned(), |what| what.to_string()),
        cost: "shared memory is slower, and a rank has fewer scattered pages of it",
        remedy: "use Linux 6.7 or newer, and let the container's filter of system calls pass userfaultfd",
    }
}

/// A certificate that ends soon.
fn certificate_check(found: String) -> Check {
    Check {
        name: "certificates of the cluster",
        ok: false,
        found,
        cost: "daemons do not find each other after the end",
        remedy: "run `kumi cluster rotate` where the cluster was made",
    }
}

fn render(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let mark = if check.ok { "ok" } else { "no" };
        text.push_str(&format!("{mark}  {}: {}\n", check.name, check.found));
        if !check.ok {
            text.push_str(&format!("      without it: {}\n", check.cost));
            text.push_str(&format!("      to get it: {}\n", check.remedy));
        }
    }
    let missing = checks.iter().filter(|check| !check.ok).count();
    text.push_str(&match missing {
        0 => "\nNothing is missing.\n".to_owned(),
        _ if can_run(checks) => format!("\nJobs can run; {missing} of the above cost something.\n"),
        _ => String::new(),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ok: bool, cost: &'static str) -> Check {
        Check { name: "thing", ok, found: "found".into(), cost, remedy: "get it" }
    }

    #[test]
    fn what_is_missing_comes_with_its_cost_and_remedy() {
        let expected = "\
ok  thing: found
no  thing: found
      without it: slower
      to get it: get it

Jobs can run; 1 of the above cost something.
";
        assert_eq!(render(&[check(true, ESSENTIAL), check(false, "slower")]), expected);
        assert!(render(&[check(true, "x")]).ends_with("Nothing is missing.\n"));
    }

    #[test]
    fn only_what_is_essential_keeps_everything_from_running() {
        assert!(can_run(&[check(false, "slower"), check(true, ESSENTIAL)]));
        assert!(!can_run(&[check(true, "slower"), check(false, ESSENTIAL)]));
        // The daemon's own list still contains one of these.
        assert!(limits::checks().iter().any(|check| check.cost == ESSENTIAL));
    }
}
