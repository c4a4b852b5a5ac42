//! `kumi usage --shares`: what users have spent of their shares.

use crate::context::Context;
use crate::error::Error;
use crate::table::{self, Table};
use kumi_control::shares::{SharesReport, SharesRow};
use serde::Serialize;
use std::time::Duration;

/// Everything in the form of `--json`.
#[derive(Serialize)]
struct SharesView {
    half_life_s: f64,
    overtaken_s: f64,
    /// Those first whose jobs come first.
    users: Vec<UserView>,
}

/// One user in the form of `--json`.
#[derive(Serialize)]
struct UserView {
    user: String,
    /// Null for users whom one may not know.
    uid: Option<u32>,
    weight: f64,
    processor_s_spent: f64,
    /// Parts of 1: of the weights of all users here, and of what they have spent.
    share: f64,
    share_spent: f64,
    jobs_waiting: u32,
    jobs_placed: u32,
}

#[allow(clippy::cast_precision_loss)]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// A part of a sum; nothing of nothing.
#[allow(clippy::cast_precision_loss)]
fn part(of: u64, sum: u128) -> f64 {
    if sum == 0 { 0.0 } else { of as f64 / sum as f64 }
}

fn name(row: &SharesRow) -> String {
    match row.user.as_str() {
        "" => crate::output::user_name(row.uid),
        name => table::printable(name),
    }
}

fn view(report: &SharesReport) -> SharesView {
    let sum = |of: fn(&SharesRow) -> u64| report.users.iter().map(|row| u128::from(of(row))).sum();
    let (weights, spent): (u128, u128) = (sum(|row| row.weight.into()), sum(|row| row.spent_us));
    let user = |row: &SharesRow| UserView {
        user: name(row),
        uid: (row.uid != u32::MAX).then_some(row.uid),
        weight: f64::from(row.weight) / 1_000.0,
        processor_s_spent: seconds(row.spent_us.saturating_mul(1_000)),
        share: part(row.weight.into(), weights),
        share_spent: part(row.spent_us, spent),
        jobs_waiting: row.waiting,
        jobs_placed: row.placed,
    };
    SharesView {
        half_life_s: seconds(report.half_life_ns),
        overtaken_s: seconds(report.overtaken_ns),
        users: report.users.iter().map(user).collect(),
    }
}

fn render(report: &SharesReport) -> String {
    let headings = ["USER", ">WEIGHT", ">SHARE", ">SPENT", ">OF ALL", ">RUNNING", ">WAITING"];
    let mut table = Table::new(&headings);
    for (row, user) in report.users.iter().zip(view(report).users) {
        table.row(vec![
            user.user,
            user.weight.to_string(),
            format!("{:.0}%", user.share * 100.0),
            table::elapsed(row.spent_us / 1_000),
            format!("{:.0}%", user.share_spent * 100.0),
            row.placed.to_string(),
            row.waiting.to_string(),
        ]);
    }
    let half_life = humantime(report.half_life_ns);
    format!("{}Half of what was spent is forgotten in {half_life}.\n", table.render())
}

/// A time in the largest unit that divides it.
fn humantime(nanos: u64) -> String {
    let seconds = Duration::from_nanos(nanos).as_secs();
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")];
    let unit = units.into_iter().find(|(length, _)| seconds > 0 && seconds.is_multiple_of(*length));
    unit.map_or_else(
        || format!("{seconds}s"),
        |(length, unit)| format!("{}{unit}", seconds / length),
    )
}

/// Runs the command.
pub async fn run(context: &Context, json: bool) -> Result<(), Error> {
    let report = context.connect().await?.shares().await?;
    if json { crate::output::json(&view(&report)) } else { crate::output::text(&render(&report)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_their_shares() {
        let row = |user: &str, uid, weight, spent_us| SharesRow {
            user: user.to_owned(),
            uid,
            weight,
            spent_us,
            waiting: 2,
            placed: 1,
        };
        let users =
            vec![row("ada", 7, 1_500, 3_600_000_000), row("-", u32::MAX, 500, 10_800_000_000)];
        let report =
            SharesReport { half_life_ns: 86_400_000_000_000, overtaken_ns: 7_000_000_000, users };
        let text = render(&report);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..3], ["ada", "1.5", "75%"], "{text}");
        assert_eq!(lines[2][..3], ["-", "0.5", "25%"], "{text}");
        assert!(text.contains("25%") && text.ends_with("is forgotten in 1d.\n"), "{text}");
        let json = serde_json::to_value(view(&report)).expect("JSON");
        assert_eq!(json["users"][0]["processor_s_spent"], 3_600.0);
        assert_eq!(json["users"][0]["share_spent"], 0.25);
        assert_eq!(
            (&json["users"][1]["uid"], &json["overtaken_s"]),
            (&None::<u32>.into(), &7.0.into())
        );
    }

    #[test]
    fn times_have_their_largest_whole_unit() {
        let second = 1_000_000_000;
        for (seconds, text) in
            [(172_800, "2d"), (43_200, "12h"), (90 * 60, "90m"), (61, "61s"), (0, "0s")]
        {
            assert_eq!(humantime(seconds * second), text);
        }
    }
}
