//! Samples of all nodes for clients that ask for them again and again, as `kumi top` does: they share those of one another.
//!
//! A client's first answer is always new, and none gets the same twice. So only clients that watch share.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::ClientId;
use super::sampling::SampleScope;
use crate::message::{Nanos, NodeSample};

/// Samples are shared for so long: less than whoever watches waits between two.
const SHARED: Nanos = 250_000_000;

/// The last samples of some scope.
#[derive(Debug)]
struct LatestSamples {
    taken: Nanos,
    samples: Vec<NodeSample>,
    /// Who has them.
    given: BTreeSet<ClientId>,
}

/// The last samples of all nodes, and the clients that have asked for some.
#[derive(Debug, Default)]
pub(super) struct SharedSamples {
    latest: BTreeMap<SampleScope, LatestSamples>,
    watchers: BTreeSet<ClientId>,
}

impl SharedSamples {
    /// Whether samples of this scope are kept: there are few such scopes.
    fn is_shared(scope: SampleScope) -> bool {
        matches!(scope, SampleScope::Nodes | SampleScope::Load { .. })
    }

    /// Keeps samples that these clients get.
    pub(super) fn keep(
        &mut self,
        scope: SampleScope,
        samples: &[NodeSample],
        clients: impl Iterator<Item = ClientId>,
        now: Nanos,
    ) {
        // One client has nobody to share with.
        if Self::is_shared(scope) && self.watchers.len() > 1 {
            let (samples, given) = (samples.to_vec(), clients.collect());
            self.latest.insert(scope, LatestSamples { taken: now, samples, given });
        }
    }

    /// The client asks for samples of this scope. Returns the last ones if it may have them.
    pub(super) fn take(
        &mut self,
        scope: SampleScope,
        client: ClientId,
        now: Nanos,
    ) -> Option<Vec<NodeSample>> {
        if !Self::is_shared(scope) || self.watchers.insert(client) {
            return None;
        }
        let latest = self.latest.get_mut(&scope)?;
        let fresh = now.saturating_sub(latest.taken) < SHARED;
        (fresh && latest.given.insert(client)).then(|| latest.samples.clone())
    }

    /// The client's connection is gone.
    pub(super) fn forget_client(&mut self, client: ClientId) {
        self.watchers.remove(&client);
        if self.watchers.len() <= 1 {
            self.latest.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const MS: Nanos = 1_000_000;

    #[test]
    fn who_watches_shares_and_who_asks_once_does_not() {
        let (one, other, once) = (ClientId(1), ClientId(2), ClientId(3));
        let mut shared = SharedSamples::default();
        let scope = SampleScope::Nodes;
        let mut first = |client| shared.take(scope, client, 0);
        assert_eq!([one, other].map(&mut first), [None, None], "the first is new");
        shared.keep(scope, &[], [one].into_iter(), 10 * MS);
        assert_eq!(shared.take(scope, once, 20 * MS), None, "the first is new");
        assert_eq!(shared.take(scope, one, 20 * MS), None, "it has these");
        assert_eq!(shared.take(scope, other, 20 * MS), Some(vec![]));
        assert_eq!(shared.take(scope, other, 30 * MS), None, "it has these");
        assert_eq!(shared.take(SampleScope::Load { slices: true }, other, 30 * MS), None);
        assert_eq!(shared.take(scope, once, 260 * MS), None, "they are old");
    }

    #[test]
    fn samples_of_few_scopes_are_kept_while_there_are_two_who_watch() {
        let (one, other) = (ClientId(1), ClientId(2));
        let mut shared = SharedSamples::default();
        for client in [one, other] {
            shared.take(SampleScope::Nodes, client, 0);
        }
        let trace = SampleScope::Trace(kumi_sched::JobId(1), 0, 0);
        for scope in [trace, SampleScope::Nodes] {
            shared.keep(scope, &[], [one].into_iter(), 0);
        }
        assert_eq!(shared.latest.len(), 1);
        shared.forget_client(other);
        assert!(shared.latest.is_empty());
        shared.keep(SampleScope::Nodes, &[], [one].into_iter(), 0);
        assert!(shared.latest.is_empty(), "nobody to share with");
    }
}
