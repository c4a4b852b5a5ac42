//! Locations of arguments that servers hold already, as clients report them.

use kumi_broker::{HeldInput, ServerId};
use kumi_rpc::{InputLocation, PlacementRequest};

use super::super::dispatcher::Dispatcher;
use super::super::persistence::identity;

impl Dispatcher {
    /// The locations for the broker, without servers that are not registered. A wrong report only changes
    /// which server this call goes to.
    pub fn held(&self, locations: &[InputLocation]) -> Vec<HeldInput> {
        let known = |one: &InputLocation| {
            let server = self.identities.get(&identity(&one.server, &one.address))?;
            Some(HeldInput { server: *server, bytes: one.bytes })
        };
        locations.iter().filter_map(known).collect()
    }

    /// The only server at which a call may run. `None`: that server has not registered here, or not for long.
    pub fn bound_server(&self, placing: &PlacementRequest) -> Option<ServerId> {
        let first = placing.input_locations.first()?;
        let server = self.identities.get(&identity(&first.server, &first.address))?;
        self.members.contains_key(server).then_some(*server)
    }
}
