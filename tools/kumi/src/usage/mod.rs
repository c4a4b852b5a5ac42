//! `kumi usage`: what jobs have used.

mod period;
mod report;
mod shares;

use crate::context::Context;
use crate::error::Error;
use crate::users;
use clap::{Args, ValueEnum};
use kumi_control::message::{MOST_USAGE_ROWS, UsageBy, UsageQuery};
use period::PeriodBound;

/// `kumi usage`
#[derive(Clone, Debug, Args)]
pub struct UsageArgs {
    /// Only count jobs of this user: a name or a number
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,
    /// Count from this time on: a time ago, as 12h or 30d, or a time in UTC, as 2026-01-31 or 2026-01-31T12:00
    #[arg(long, value_name = "TIME", value_parser = period::moment, default_value = "30d")]
    pub since: PeriodBound,
    /// Count up to this time, in the same form; up to now if not given
    #[arg(long, value_name = "TIME", value_parser = period::moment)]
    pub until: Option<PeriodBound>,
    /// What has a line of its own
    #[arg(long, value_enum, default_value_t = UsageGrouping::User)]
    pub by: UsageGrouping,
    /// Show instead what users have spent of their shares, those first whose jobs come first
    #[arg(long, conflicts_with_all = ["user", "since", "until", "by"])]
    pub shares: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What has a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UsageGrouping {
    /// Each user
    User,
    /// Each job
    Job,
    /// Each day, in UTC
    Day,
}

impl UsageArgs {
    /// What is asked for, at this time.
    ///
    /// # Errors
    /// The period ends before it begins.
    fn query(&self, now_ms: u64) -> Result<UsageQuery, Error> {
        let since_ms = self.since.at(now_ms);
        // Without an end, jobs that run are counted up to when the head answers.
        let until_ms = self.until.map_or(u64::MAX, |until| until.at(now_ms));
        if since_ms >= until_ms {
            let message = "the period is empty; give a later --until or an earlier --since";
            return Err(Error::Usage(message.to_owned()));
        }
        let by = match self.by {
            UsageGrouping::User => UsageBy::User,
            UsageGrouping::Job => UsageBy::Job,
            UsageGrouping::Day => UsageBy::Day,
        };
        let (user, limit) = (self.user.clone(), MOST_USAGE_ROWS);
        Ok(UsageQuery { user, since_ms, until_ms, by, before: None, limit })
    }
}

/// Runs the command.
pub async fn run(context: &Context, args: &UsageArgs) -> Result<(), Error> {
    if args.shares {
        return shares::run(context, args.json).await;
    }
    let query = args.query(crate::output::wall_ms())?;
    let mut client = context.connect().await?;
    let rows = client.usage(query.clone()).await?;
    if let Some(user) = args.user.as_ref().filter(|user| rows.is_empty() && users::is_unknown(user))
    {
        // Other machines' users may have had jobs at other times.
        let (since_ms, until_ms) = (0, u64::MAX);
        let ever = UsageQuery { since_ms, until_ms, by: UsageBy::User, ..query.clone() };
        if client.usage(ever).await?.is_empty() {
            return Err(users::unknown(user));
        }
    }
    if args.json {
        crate::output::json(&report::view(&rows, &query))
    } else {
        crate::output::text(&report::render(&rows, query.by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    const NOW: u64 = 1_700_000_000_000;

    fn query(words: &str) -> Result<UsageQuery, String> {
        match Cli::try_parse_from(words.split(' ')) {
            Ok(Cli { command: Command::Usage(args), .. }) => {
                args.query(NOW).map_err(|error| error.to_string())
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn periods_and_rows() {
        let usual = query("kumi usage").unwrap();
        assert_eq!((usual.since_ms, usual.until_ms), (NOW - 30 * 86_400_000, u64::MAX));
        assert_eq!((usual.by, usual.user), (UsageBy::User, None));
        let other =
            query("kumi usage -u ada --since 1970-01-02 --until 12h --by day --json").unwrap();
        assert_eq!((other.since_ms, other.until_ms), (86_400_000, NOW - 12 * 3_600_000));
        assert_eq!((other.by, other.user.as_deref()), (UsageBy::Day, Some("ada")));
        for (words, says) in [
            ("--since 1h --until 2h", "the period is empty"),
            ("--since yesterday", "12h"),
            ("--by weather", "possible values: user, job, day"),
            ("--shares --user ada", "cannot be used with"),
        ] {
            let error = query(&format!("kumi usage {words}")).unwrap_err();
            assert!(error.contains(says), "{words}: {error}");
        }
    }
}
