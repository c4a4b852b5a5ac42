//! Sums of accounts, as one user may see them.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use super::{
    DAY_MS, JobUsage, MOST_USAGE_ROWS, UsageBy, UsagePage, UsageQuery, UsageRow, UsageSums,
};
use crate::head::ShowOthers;
use crate::message::User;

/// Stands for users whom the asker may not know.
const NOBODY: u32 = u32::MAX;

/// Who asks, and what they may see.
#[derive(Clone, Debug)]
pub struct UsageViewer {
    /// The user.
    pub user: User,
    /// The cluster's owner and root see the use of all.
    pub owns_cluster: bool,
    /// What others see.
    pub show: ShowOthers,
}

impl UsageViewer {
    /// The account as it may be seen, if at all.
    fn view(&self, job: &JobUsage) -> Option<JobUsage> {
        if self.owns_cluster || self.user.is_same(&job.owner()) {
            return Some(job.clone());
        }
        match self.show {
            ShowOthers::All => Some(job.clone()),
            ShowOthers::Jobs => Some(JobUsage {
                uid: NOBODY,
                user: String::new(),
                name: "-".to_owned(),
                ..job.clone()
            }),
            ShowOthers::Nothing => None,
        }
    }
}

/// Accounts of jobs on their way into the rows of a page. It holds no more rows than the page has, and one.
#[derive(Debug)]
pub struct UsageTally {
    query: UsageQuery,
    viewer: UsageViewer,
    now_ms: u64,
    most: usize,
    rows: BTreeMap<u64, UsageRow>,
}

impl UsageTally {
    /// Nothing yet. Jobs that are not over have used what they have until `now_ms`.
    #[must_use]
    pub fn new(query: UsageQuery, viewer: UsageViewer, now_ms: u64) -> Self {
        let most = query.limit.clamp(1, MOST_USAGE_ROWS);
        Self { query, viewer, now_ms, most, rows: BTreeMap::new() }
    }

    /// Adds what a job has used in the period, if it is asked for and may be seen. Each job is to be added once.
    pub fn add(&mut self, job: &JobUsage) {
        let Some(job) = self.viewer.view(job) else { return };
        let wanted = |user: &String| *user == job.user || *user == job.uid.to_string();
        let (since, until) = (self.query.since_ms, self.query.until_ms);
        if since >= until || !self.query.user.as_ref().is_none_or(wanted) {
            return;
        }
        match self.query.by {
            UsageBy::User => self.add_to(job.uid.into(), &job, (since, until)),
            UsageBy::Job => self.add_to(job.job.0, &job, (since, until)),
            UsageBy::Day => {
                let started = job.started_ms.unwrap_or(job.submitted_ms);
                let begin = job.submitted_ms.min(started).max(since);
                let end = job.ended_ms.unwrap_or(self.now_ms).max(started).min(until - 1);
                for day in begin / DAY_MS..=end / DAY_MS {
                    let midnight = day.saturating_mul(DAY_MS);
                    let next = midnight.saturating_add(DAY_MS);
                    self.add_to(day, &job, (since.max(midnight), until.min(next)));
                }
            }
        }
    }

    fn add_to(&mut self, key: u64, job: &JobUsage, period: (u64, u64)) {
        if self.query.before.is_some_and(|before| key >= before) {
            return;
        }
        let sums = sums_of(job, period, self.now_ms);
        if sums == UsageSums::default() {
            return;
        }
        let by = self.query.by;
        let row = self.rows.entry(key).or_insert_with(|| UsageRow {
            key,
            user: (by != UsageBy::Day).then(|| job.user.clone()),
            job: (by == UsageBy::Job).then(|| job.clone()),
            sums: UsageSums::default(),
        });
        row.sums.add(&sums);
        // What goes is for a later page: those that stay have larger keys.
        if self.rows.len() > self.most + 1 {
            self.rows.pop_first();
        }
    }

    /// Whether a row with this key would be for a later page, as those with smaller keys are.
    #[must_use]
    pub fn has_passed(&self, key: u64) -> bool {
        let smallest = self.rows.first_key_value();
        self.rows.len() > self.most && smallest.is_some_and(|(&smallest, _)| key < smallest)
    }

    /// The page.
    #[must_use]
    pub fn finish(mut self) -> UsagePage {
        let more = self.rows.len() > self.most;
        if more {
            self.rows.pop_first();
        }
        UsagePage { rows: self.rows.into_values().collect(), more }
    }
}

/// What a job has used in a period.
fn sums_of(job: &JobUsage, (since, until): (u64, u64), now_ms: u64) -> UsageSums {
    let within = |time: u64| (since..until).contains(&time);
    let mut sums = UsageSums::default();
    match job.ended_ms {
        Some(end) if within(end.max(job.started_ms.unwrap_or(0))) => {
            sums.ended = 1;
            sums.failed = u64::from(job.outcome != "success");
            sums.unmeasured = u64::from(!job.is_measured());
        }
        None if within(now_ms) => sums.running = u64::from(job.started_ms.is_some()),
        _ => {}
    }
    if let Some(start) = job.started_ms.filter(|&start| within(start)) {
        sums.started = 1;
        sums.waited_ms = start.saturating_sub(job.submitted_ms);
    }
    if let Some(span) = job.span(now_ms) {
        let begin = span.0.clamp(since, until);
        let held_ms = span.1.clamp(since, until) - begin;
        let held_us = held_ms.saturating_mul(1_000);
        let before_us = share(job.used.held_before_us, span, (since, until));
        sums.held_us = held_us.saturating_mul(job.used.processors.into()).saturating_add(before_us);
        let measured = &job.used.measured;
        sums.turns_us = share(measured.turns_us, span, (since, until));
        sums.used_us = share(measured.used_us, span, (since, until));
        if held_ms > 0 || within(span.1) {
            sums.memory = measured.memory.unwrap_or(0);
        }
    }
    sums
}

/// The part of a total, spread evenly over a span of time, that lies in a period. The parts of periods that follow one another
/// are the total.
fn share(total: u64, span: (u64, u64), (since, until): (u64, u64)) -> u64 {
    // What has come by a time. Of a span without length it comes at its end.
    let by = |time: u64| -> u64 {
        let length = span.1 - span.0;
        if time > span.1 || (length > 0 && time == span.1) {
            return total;
        }
        if length == 0 {
            return 0;
        }
        let passed = u128::from(time.saturating_sub(span.0));
        u64::try_from(u128::from(total) * passed / u128::from(length)).unwrap_or(total)
    };
    by(until).saturating_sub(by(since))
}

impl UsageSums {
    /// Adds others to these.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.ended, other.ended),
            (&mut self.failed, other.failed),
            (&mut self.running, other.running),
            (&mut self.unmeasured, other.unmeasured),
            (&mut self.held_us, other.held_us),
            (&mut self.turns_us, other.turns_us),
            (&mut self.used_us, other.used_us),
            (&mut self.started, other.started),
            (&mut self.waited_ms, other.waited_ms),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.memory = self.memory.max(other.memory);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{JobUse, PartUse};
    use super::*;
    use alloc::vec::Vec;
    use kumi_sched::JobId;

    const ALL: UsageQuery = UsageQuery {
        user: None,
        since_ms: 0,
        until_ms: u64::MAX,
        by: UsageBy::User,
        before: None,
        limit: MOST_USAGE_ROWS,
    };

    /// A job of two processors from `start` to `end`, submitted 500 ms before.
    fn job(number: u64, uid: u32, (start, end): (u64, Option<u64>)) -> JobUsage {
        JobUsage {
            job: JobId(number),
            uid,
            user: alloc::format!("u{uid}"),
            name: "cg".to_owned(),
            ranks: 2,
            nodes: 1,
            submitted_ms: start - 500,
            started_ms: Some(start),
            ended_ms: end,
            used: JobUse {
                processors: 2,
                measured: PartUse { turns_us: 1_000_003, used_us: 77_777, memory: Some(9 << 20) },
                nodes: 1,
                held_before_us: 0,
                spent_us: 0,
            },
            outcome: end.map_or("", |_| "success").to_owned(),
        }
    }

    fn viewer(uid: u32, show: ShowOthers) -> UsageViewer {
        let user = User { uid, gid: uid, name: alloc::format!("u{uid}") };
        UsageViewer { user, owns_cluster: uid == 0, show }
    }

    fn page(query: &UsageQuery, viewer: &UsageViewer, now: u64, jobs: &[JobUsage]) -> UsagePage {
        let mut tally = UsageTally::new(query.clone(), viewer.clone(), now);
        jobs.iter().for_each(|job| tally.add(job));
        tally.finish()
    }

    #[test]
    fn users_have_what_their_jobs_used() {
        let failed = JobUsage {
            outcome: "rank_failed".into(),
            used: JobUse { nodes: 0, ..job(2, 7, (2_000, None)).used },
            ..job(2, 7, (2_000, Some(3_000)))
        };
        let never =
            JobUsage { started_ms: None, outcome: "refused".into(), ..job(4, 8, (909, Some(910))) };
        let jobs = [job(1, 7, (1_000, Some(5_000))), failed, job(3, 8, (4_000, None)), never];
        let rows = page(&ALL, &viewer(0, ShowOthers::Nothing), 6_000, &jobs).rows;
        let expected = UsageSums {
            ended: 2,
            failed: 1,
            running: 0,
            unmeasured: 1,
            held_us: 2 * 5_000_000,
            turns_us: 2 * 1_000_003,
            used_us: 2 * 77_777,
            memory: 9 << 20,
            started: 2,
            waited_ms: 1_000,
        };
        assert_eq!((rows[0].key, rows[0].user.as_deref(), rows[0].sums), (7, Some("u7"), expected));
        let sums = rows[1].sums;
        assert_eq!((rows[1].key, sums.running, sums.ended, sums.failed), (8, 1, 1, 1));
        assert_eq!((sums.held_us, sums.started), (2 * 2_000_000, 1), "so far");
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn periods_add_up() {
        let jobs = [
            job(1, 7, (1_000, Some(5_003))),
            job(2, 7, (2_000, Some(2_000))),
            job(3, 7, (4_000, None)),
            // The clock was set back meanwhile.
            job(4, 7, (6_000, Some(1_000))),
        ];
        let asker = viewer(7, ShowOthers::Nothing);
        let sums = |since_ms, until_ms| {
            let query = UsageQuery { since_ms, until_ms, ..ALL };
            page(&query, &asker, 9_000, &jobs).rows.first().map_or(Default::default(), |it| it.sums)
        };
        let whole = sums(0, 20_000);
        assert_eq!((whole.ended, whole.running, whole.started), (3, 1, 4));
        assert_eq!((whole.turns_us, whole.used_us), (4 * 1_000_003, 4 * 77_777));
        assert_eq!(whole.held_us, 2_000 * (4_003 + 5_000));
        for cuts in [&[2_000][..], &[1_000, 1_001, 4_700, 5_003, 9_000], &[3_333, 6_000, 6_001]] {
            let mut together = UsageSums::default();
            let mut begin = 0;
            for &cut in cuts.iter().chain(&[20_000]) {
                together.add(&sums(begin, cut));
                begin = cut;
            }
            assert_eq!(together, whole, "{cuts:?}");
        }
        assert_eq!(sums(5_003, 5_000), UsageSums::default());
    }

    #[test]
    fn days_split_a_job() {
        let job = job(1, 7, (DAY_MS / 2, Some(2 * DAY_MS + 1)));
        let query = UsageQuery { by: UsageBy::Day, ..ALL };
        let asker = viewer(7, ShowOthers::Nothing);
        let rows = page(&query, &asker, 9 * DAY_MS, core::slice::from_ref(&job)).rows;
        let days: Vec<_> = rows.iter().map(|row| (row.key, row.sums.held_us / 2_000)).collect();
        assert_eq!(days, [(0, DAY_MS / 2), (1, DAY_MS), (2, 1)]);
        let counts: Vec<_> = rows.iter().map(|row| (row.sums.started, row.sums.ended)).collect();
        assert_eq!(counts, [(1, 0), (0, 0), (0, 1)]);
        assert!(rows.iter().all(|row| row.user.is_none() && row.job.is_none()));
        let late = UsageQuery { since_ms: DAY_MS, until_ms: 2 * DAY_MS, ..query };
        assert_eq!(page(&late, &asker, 9 * DAY_MS, &[job]).rows.len(), 1);
    }

    #[test]
    fn pages_have_the_largest_keys_first() {
        let jobs: Vec<_> = (1..=7).rev().map(|number| job(number, 7, (1_000, None))).collect();
        let asker = viewer(7, ShowOthers::Nothing);
        let mut query = UsageQuery { by: UsageBy::Job, limit: 3, ..ALL };
        for (keys, more) in [(&[5, 6, 7][..], true), (&[2, 3, 4], true), (&[1], false)] {
            let page = page(&query, &asker, 2_000, &jobs);
            assert!(page.rows.iter().map(|row| row.key).eq(keys.iter().copied()));
            assert_eq!(page.more, more);
            query.before = page.rows.first().map(|row| row.key);
        }
        let mut tally = UsageTally::new(UsageQuery { before: None, ..query }, asker, 2_000);
        jobs[3..].iter().for_each(|job| tally.add(job));
        assert!(!tally.has_passed(7) && tally.has_passed(0), "jobs 1 to 4 are in");
        // Sums are whole on each page, in whichever order the jobs come.
        let users: Vec<_> =
            (0..40).map(|at| job(at + 1, 3 + (at as u32 * 7) % 5, (1_000, Some(2_000)))).collect();
        let query = UsageQuery { limit: 2, before: Some(6), ..ALL };
        let page = page(&query, &viewer(0, ShowOthers::All), 2_000, &users);
        let rows: Vec<_> = page.rows.iter().map(|row| (row.key, row.sums.ended)).collect();
        assert_eq!((rows, page.more), (Vec::from([(4, 8), (5, 8)]), true));
    }

    #[test]
    fn others_are_seen_as_the_cluster_is_configured() {
        let jobs = [
            job(1, 7, (1_000, Some(2_000))),
            job(2, 8, (1_000, Some(2_000))),
            job(3, 9, (1_000, Some(2_000))),
        ];
        let keys = |show, query: &UsageQuery| -> Vec<u64> {
            page(query, &viewer(7, show), 3_000, &jobs).rows.iter().map(|row| row.key).collect()
        };
        assert_eq!(keys(ShowOthers::All, &ALL), [7, 8, 9]);
        assert_eq!(keys(ShowOthers::Nothing, &ALL), [7]);
        assert_eq!(keys(ShowOthers::Jobs, &ALL), [7, NOBODY.into()]);
        let others = page(&ALL, &viewer(7, ShowOthers::Jobs), 3_000, &jobs);
        assert_eq!((others.rows[1].user.as_deref(), others.rows[1].sums.ended), (Some(""), 2));
        let by_job = UsageQuery { by: UsageBy::Job, ..ALL };
        let rows = page(&by_job, &viewer(7, ShowOthers::Jobs), 3_000, &jobs).rows;
        let job = rows[1].job.as_ref().unwrap();
        assert_eq!((&*job.name, &*job.user, job.uid), ("-", "", NOBODY));
        // Nobody finds out by asking for a name.
        let asked = UsageQuery { user: Some("u8".into()), ..ALL };
        assert_eq!(keys(ShowOthers::Jobs, &asked), []);
        assert_eq!(keys(ShowOthers::All, &asked), [8]);
        let number = UsageQuery { user: Some("9".into()), ..ALL };
        assert_eq!(keys(ShowOthers::All, &number), [9]);
    }
    /// What starts held before the last one counts, also if there was no further one.
    #[test]
    fn earlier_starts_count() {
        let mut again = job(1, 7, (2_000, Some(3_000)));
        again.used.held_before_us = 5_000_000;
        let query = || (ALL.since_ms, ALL.until_ms);
        assert_eq!(sums_of(&again, query(), 9_000).held_us, 7_000_000);
        let halves = [(0, 2_500), (2_500, u64::MAX)];
        let held = halves.map(|period| sums_of(&again, period, 9_000).held_us);
        assert_eq!(held, [3_500_000, 3_500_000]);
        again.started_ms = None;
        assert_eq!(sums_of(&again, query(), 9_000).held_us, 5_000_000);
        assert_eq!(sums_of(&again, (0, 3_000), 9_000).held_us, 0);
        again.ended_ms = None;
        assert_eq!(sums_of(&again, (0, 10_000), 9_000).held_us, 5_000_000);
    }
}
