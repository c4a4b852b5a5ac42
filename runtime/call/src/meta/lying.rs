//! Arguments of calls that lie at servers already, as clients say.

use kumi_broker::Held;
use kumi_rpc::Lying;

use super::desk::Desk;
use super::keep::identity;

impl Desk {
    /// What the broker is told of it. Names of servers that nobody has registered are left out; what is said of others changes
    /// which of them is chosen, for this call, and nothing else.
    pub fn held(&self, lying: &[Lying]) -> Vec<Held> {
        let known = |one: &Lying| {
            let server = self.identities.get(&identity(&one.server, &one.address))?;
            Some(Held { server: *server, bytes: one.bytes })
        };
        lying.iter().filter_map(known).collect()
    }
}
