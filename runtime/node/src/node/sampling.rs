//! Load of ranks, read off their channel contexts, and the answer to `Sample`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kumi_control::message::{NodeSample, RankSample};
use kumi_sched::Mode;
use tokio::time::Instant;

use super::Shared;
use crate::job::{Live, Site};
use crate::switch::Digest;

/// Between looks while someone watches, and otherwise.
const WATCHED: Duration = Duration::from_millis(10);
const UNWATCHED: Duration = Duration::from_millis(100);
/// How long after a question someone is taken to be watching.
const ATTENTION: Duration = Duration::from_secs(5);

/// Looks at the ranks now and then.
#[derive(Debug)]
pub(super) struct Sampler {
    digest: Digest,
    mode: Mode,
    asked: Option<Instant>,
    next: Instant,
    recent: usize,
}

impl Sampler {
    /// A sampler that reports at most the last `recent` switches one by one.
    pub(super) fn new(recent: usize) -> Self {
        let mode = Mode::Gang { force_switch: false };
        Self { digest: Digest::default(), mode, asked: None, next: Instant::now(), recent }
    }

    /// The mode by which jobs run from now on.
    pub(super) fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// Comes when it is time to look.
    pub(super) fn due(&self) -> tokio::time::Sleep {
        tokio::time::sleep_until(self.next)
    }

    /// Looks at the ranks of the jobs that are scheduled now.
    pub(super) fn look(&mut self, site: &Site) {
        let now = Instant::now();
        let watched = self.asked.is_some_and(|asked| now.duration_since(asked) < ATTENTION);
        self.next = now + if watched { WATCHED } else { UNWATCHED };
        self.digest.drain(site.switcher.ring());
        let current = site.switcher.ring().current();
        for (&job, live) in site.live.borrow_mut().iter_mut() {
            if self.mode == Mode::OperatingSystem || current == Some(job) {
                look_at(live);
            }
        }
    }

    /// Everything measured; shares of load are since the last time.
    pub(super) fn sample(&mut self, site: &Site, shared: &Shared) -> NodeSample {
        self.asked = Some(Instant::now());
        self.look(site);
        let mut ranks = Vec::new();
        for (&job, live) in site.live.borrow_mut().iter_mut() {
            for (local, rank) in (0..live.load.len()).zip(live.first..) {
                let context = live.segment.sample(local);
                let (busy, all) = std::mem::take(&mut live.load[local]);
                let permille = (busy * 1000).checked_div(all).unwrap_or(0);
                ranks.push(RankSample {
                    job,
                    rank,
                    idle: context.idle,
                    load_permille: u16::try_from(permille).unwrap_or(1000),
                    counters: context.counters.iter().map(|&(n, v)| (n.to_owned(), v)).collect(),
                });
            }
        }
        let mut refused = shared.refusals.snapshot();
        let failures = site.switcher.ring().failures();
        if failures > 0 {
            refused.push(("stop or continue failed".to_owned(), failures));
        }
        NodeSample {
            node: site.node,
            ranks,
            switching: self.digest.sample(site.switcher.ring(), self.recent),
            control_messages: shared.messages.load(Ordering::Relaxed),
            refused,
        }
    }
}

fn look_at(live: &mut Live) {
    for local in 0..live.load.len() {
        let (busy, all) = &mut live.load[local];
        *all += 1;
        *busy += u64::from(!live.segment.sample(local).idle);
    }
}
