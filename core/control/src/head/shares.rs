//! Fair shares of users: their weights, what they spent before this head, and who may see it.
//!
//! The account itself belongs to the scheduler's policy, which hears of all that counts ([`kumi_sched::FairShares`]).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};

use kumi_sched::{JobId, ORDINARY_WEIGHT, UserId, UserShare};

use super::{ClientId, Head, ShowOthers, refusal};
use crate::message::{ClientReply, Refusal, RefusalKind, User};
use crate::shares::{ShareConfig, SharesReport, SharesRow};

/// Names of users, and their weights.
#[derive(Debug, Default)]
pub(super) struct ShareUsers {
    weights: BTreeMap<String, u32>,
    names: BTreeMap<u32, String>,
}

impl ShareUsers {
    pub(super) fn new(config: Option<&ShareConfig>) -> Self {
        let weights = config.map(|config| config.weights.clone()).unwrap_or_default();
        Self { weights, names: BTreeMap::new() }
    }

    /// The user has a job, or had one. Returns the weight.
    pub(super) fn meet(&mut self, uid: u32, name: &str) -> u32 {
        if self.names.get(&uid).is_none_or(|known| known != name) {
            self.names.insert(uid, name.to_string());
        }
        let named = self.weights.get(name).or_else(|| self.weights.get(&uid.to_string()));
        named.copied().unwrap_or(ORDINARY_WEIGHT)
    }

    fn row(&self, share: &UserShare) -> SharesRow {
        let UserShare { user: UserId(uid), weight, spent_us, waiting, placed } = *share;
        let user = self.names.get(&uid).cloned().unwrap_or_default();
        SharesRow { uid, user, weight, spent_us, waiting, placed }
    }
}

/// All whom the asker may not know, in one row; none if there is nobody. A row for each would tell one from the other.
fn merged<'a>(unknown: impl Iterator<Item = &'a UserShare>) -> Option<SharesRow> {
    unknown.fold(None, |sum: Option<SharesRow>, share| {
        let SharesRow { uid, user, weight, spent_us, waiting, placed } = sum.unwrap_or_else(nobody);
        Some(SharesRow {
            uid,
            user,
            weight: weight.saturating_add(share.weight),
            spent_us: spent_us.saturating_add(share.spent_us),
            waiting: waiting.saturating_add(share.waiting),
            placed: placed.saturating_add(share.placed),
        })
    })
}

fn nobody() -> SharesRow {
    let (weight, spent_us, waiting, placed) = Default::default();
    SharesRow { uid: u32::MAX, user: String::new(), weight, spent_us, waiting, placed }
}

impl Head {
    /// At the start: what users have spent before. Jobs that run are counted when the policy hears of them.
    pub(super) fn credit_past_shares(&mut self) {
        let wall_ms = self.time.wall_ms();
        let spent = self.config.shares.as_mut().map(|config| core::mem::take(&mut config.spent));
        for before in spent.unwrap_or_default() {
            let ago_ns = wall_ms.saturating_sub(before.at_ms).saturating_mul(1_000_000);
            self.scheduler.meet_user(before.uid, &before.user);
            if let Some(shares) = self.scheduler.shares_mut() {
                shares.set_time(self.time.cluster().0);
                shares.add_spent(UserId(before.uid), before.spent_us, ago_ns);
            }
        }
    }

    /// What the job has spent goes to its account.
    pub(super) fn account_spent(&mut self, id: JobId) {
        let now = self.time.cluster();
        if let Some(job) = self.jobs.get_mut(id)
            && let Some(shares) = self.scheduler.shares_mut()
        {
            shares.set_time(now.0);
            let used = &mut job.record.used;
            used.spent_us = used.spent_us.saturating_add(shares.take_spent(id));
        }
    }

    /// What users have spent, and whose jobs come first.
    ///
    /// # Errors
    /// Users have no shares here.
    pub(super) fn show_shares(&mut self, client: ClientId, user: &User) -> Result<(), Refusal> {
        let now = self.time.cluster();
        let all = self.owns_cluster(user) || self.config.show_others == ShowOthers::All;
        let nothing = self.config.show_others == ShowOthers::Nothing;
        let Some(shares) = self.scheduler.shares_mut() else {
            let message = format!(
                "the cluster {} keeps no shares; `enabled = true` under [shares] in cluster.toml turns them on",
                self.config.cluster_name
            );
            return Err(refusal(RefusalKind::BadRequest, message));
        };
        shares.set_time(now.0);
        let (rules, users) = (shares.rules(), shares.users());
        let known = |share: &UserShare| all || share.user.0 == user.uid;
        let names = self.scheduler.share_users();
        let others = merged(users.iter().filter(|share| !known(share) && !nothing));
        let own = users.iter().filter(|share| known(share)).map(|share| names.row(share));
        let users = own.chain(others).collect();
        let (half_life_ns, overtaken_ns) = (rules.half_life_ns, rules.overtaken_ns);
        let report = SharesReport { half_life_ns, overtaken_ns, users };
        self.actions.reply(client, ClientReply::Shares(report));
        Ok(())
    }
}
