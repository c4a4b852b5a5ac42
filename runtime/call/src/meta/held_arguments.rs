//! Arguments of calls that lie at servers already, as clients say.

use kumi_broker::HeldInput;
use kumi_rpc::InputLocation;

use super::dispatcher::Dispatcher;
use super::persistence::identity;

impl Dispatcher {
    /// What the broker is told of it. Names of servers that nobody has registered are left out; what is said of others changes
    /// which of them is chosen, for this call, and nothing else.
    pub fn held(&self, lying: &[InputLocation]) -> Vec<HeldInput> {
        let known = |one: &InputLocation| {
            let server = self.identities.get(&identity(&one.server, &one.address))?;
            Some(HeldInput { server: *server, bytes: one.bytes })
        };
        lying.iter().filter_map(known).collect()
    }
}
