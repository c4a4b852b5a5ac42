//! Numbers of sites, which are reused when nothing depends on a site.

use std::collections::BTreeSet;

use kumi_broker::SiteId;

use super::super::dispatcher::Dispatcher;

impl Dispatcher {
    /// The number of a site. Clients may invent site names, so unused sites make room for others, oldest
    /// first. A site is in use if it has servers, calls or measured paths.
    pub fn site(&mut self, name: &str) -> SiteId {
        let Dispatcher { sites, broker, calls, members, paths, .. } = self;
        let used = || -> BTreeSet<u32> {
            let open = calls.values().flat_map(|open| {
                let sending = open.running.as_ref().and_then(|running| running.sending);
                let ends = sending.into_iter().flat_map(|(from, to, _)| [from, to]);
                ends.chain([open.request.site])
            });
            let servers = members.values().map(|member| member.site);
            let known = broker.sites().into_iter().chain(paths.sites());
            open.chain(servers).chain(known).map(|site| site.0).collect()
        };
        SiteId(sites.number_or_forget(name, used))
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use kumi_broker::{Broker, by_name};
    use kumi_rpc::{AttemptOutcome, AttemptReport, ServerRegistration, Ticket, Transfer};

    use super::*;
    use crate::Config;
    use crate::members::CompleteRegistration;
    use crate::names::NameTable;
    use crate::peer::Peer;

    #[test]
    fn sites_that_matter_keep_their_numbers() {
        let policy = by_name("round-robin").expect("a policy");
        let broker = Broker::new(policy, kumi_broker::Config::default());
        let mut dispatcher = Dispatcher::new(Config::default(), broker, 1);
        dispatcher.sites = NameTable::with_most(8);
        let register = ServerRegistration {
            name: "a".into(),
            address: "h:1".into(),
            site: "hall".into(),
            version: String::new(),
            slots: 1,
            processors: 1,
            speed: 1.0,
            offers: 0,
            key: None,
        };
        let peer = Rc::new(Peer::new(1, None, 8));
        let registration = CompleteRegistration { register, offers: Vec::new(), holds: Vec::new() };
        let server = dispatcher.register(&peer, registration);
        let hall = dispatcher.members[&server].site;
        let home = dispatcher.site("home");
        let moved = Transfer { bytes: 1 << 20, ns: 1_000_000 };
        let over = AttemptReport {
            ticket: Ticket { call: 1, attempt: 1 },
            ended: AttemptOutcome::Done,
            out: moved,
            back: moved,
            ran_ns: 0,
            waited_ns: 0,
        };
        assert!(dispatcher.paths.observe(home, hall, &over, 1.0).is_some());
        // More sites than there is room for, all of them unused.
        let unidentified: Vec<SiteId> =
            (0..100).map(|n| dispatcher.site(&format!("unused {n}"))).collect();
        assert!(unidentified.iter().all(|site| ![SiteId(0), hall, home].contains(site)));
        assert_eq!((dispatcher.site("hall"), dispatcher.site("home")), (hall, home));
        assert_eq!(dispatcher.sites.name(home.0), "home");
    }
}
