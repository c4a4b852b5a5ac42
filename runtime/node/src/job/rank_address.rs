//! From which of their addresses the nodes of a job send.
//!
//! Each node of a job works that out by itself, while it prepares, from cluster.toml as it was when its daemon started. Nodes whose
//! daemons have read the same lists find the same family. Otherwise the head sees two families, and refuses the job.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use kumi_control::message::{NodeRanks, RankAddress};
use kumi_sched::NodeId;

use kumi_net::sys::longest_payload;

use super::NodeServices;
use crate::config::{ClusterConfig, NodeConfig, Place, on_link};

/// Largest UDP payload there is over IPv4, in bytes; IPv6 carries a little more.
const MAX_PAYLOAD: u16 = 65_507;

/// The addresses of all nodes that are known here.
#[derive(Clone, Debug)]
pub struct RankAddresses {
    own: NodeId,
    /// The interface to the others, where addresses need one.
    scope: u32,
    /// In the order of the configuration, without names.
    known: BTreeMap<NodeId, Vec<IpAddr>>,
    max_datagram: u16,
}

/// Whether ranks may use a further address of a node: one that means the same on every machine.
fn is_usable(address: &IpAddr) -> bool {
    let is_elsewhere = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        // A mapped address is one of IPv4 that its socket would not take for one.
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    !(is_elsewhere || address.is_unspecified() || address.is_multicast() || address.is_loopback())
}

fn is_broadcast(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.is_broadcast())
}

/// Ranks of a job on one of its nodes.
#[derive(Clone, Debug)]
pub struct JobPart {
    node: NodeId,
    ranks: std::ops::Range<u32>,
}

impl JobPart {
    /// All parts of a job.
    pub fn of(layout: &[NodeRanks]) -> Vec<Self> {
        let ranks = |part: &NodeRanks| part.first..part.first.saturating_add(part.count);
        layout.iter().map(|part| Self { node: part.node, ranks: ranks(part) }).collect()
    }
}

impl RankAddresses {
    /// Those of a cluster, for its node `own` with this interface to the others.
    pub fn new(config: &ClusterConfig, own: NodeId, scope: u32) -> Self {
        let of_node = |(node, it): (NodeId, &NodeConfig)| {
            let places = config.places_of(node).unwrap_or_default();
            let further = places.iter().filter_map(Place::literal).map(|at| at.ip());
            let further = further.filter(|at| is_usable(at) && *at != it.address);
            (node, [it.address].into_iter().chain(further).collect())
        };
        let known: BTreeMap<NodeId, Vec<IpAddr>> = config.members().map(of_node).collect();
        let first = known.get(&own).and_then(|list| list.first());
        let max_datagram = first.map_or(MAX_PAYLOAD, |first| {
            let first = on_link(SocketAddr::new(*first, 0), scope);
            let others = known.iter().filter(|(node, _)| **node != own).map(|(_, list)| list);
            largest_datagram(first, in_family_of(first, others, scope))
        });
        Self { own, scope, known, max_datagram }
    }

    /// Largest UDP payload that goes unfragmented from the first address of this node to every other one, at that node's first
    /// address of the same family, in bytes, by the routes of this machine.
    pub fn max_datagram(&self) -> u16 {
        self.max_datagram
    }

    /// The first address of this node that has a family of which all nodes of the job have one. Of the families that all have,
    /// it is that which comes first in the list of the job's first node. Nodes that are not known here are not asked. If there
    /// is no such family, it is the first address.
    pub fn of_job(&self, layout: &[NodeRanks]) -> Option<SocketAddr> {
        let lists: Vec<&[IpAddr]> = self.lists(layout).collect();
        let in_family =
            |list: &[IpAddr], v4: bool| list.iter().copied().find(|at| at.is_ipv4() == v4);
        let common = lists.first()?.iter().map(IpAddr::is_ipv4);
        let mut common =
            common.filter(|&v4| lists.iter().all(|list| in_family(list, v4).is_some()));
        let own = self.known.get(&self.own)?;
        let chosen = common.next().and_then(|v4| in_family(own, v4)).or(own.first().copied())?;
        Some(on_link(SocketAddr::new(chosen, 0), self.scope))
    }

    /// The same for the other nodes of the job: where packets from `address` go.
    pub fn others<'a>(
        &'a self,
        layout: &'a [NodeRanks],
        address: SocketAddr,
    ) -> impl Iterator<Item = SocketAddr> + 'a {
        let others = layout.iter().filter(|part| part.node != self.own);
        in_family_of(address, others.filter_map(|part| self.known.get(&part.node)), self.scope)
    }

    /// Checks that ranks send to nodes of the job only: each address is one of its rank's node. Of nodes that are not known here
    /// it is one that a node can have.
    ///
    /// # Errors
    /// The first that is not, as a sentence.
    pub fn check(&self, parts: &[JobPart], addresses: &[RankAddress]) -> Result<(), String> {
        let mut checked = 0;
        for JobPart { node, ranks } in parts {
            for rank in ranks.clone() {
                let address = usize::try_from(rank).ok().and_then(|at| addresses.get(at));
                let address = address.ok_or_else(|| format!("rank {rank} has none"))?;
                self.check_one(rank, *node, address.ip.to_canonical())?;
                checked += 1;
            }
        }
        if checked == addresses.len() {
            Ok(())
        } else {
            Err(format!("{checked} ranks have {}", addresses.len()))
        }
    }

    fn check_one(&self, rank: u32, node: NodeId, ip: IpAddr) -> Result<(), String> {
        if ip.is_unspecified() || ip.is_multicast() || is_broadcast(&ip) {
            return Err(format!("rank {rank} is at {ip}, where no node can be"));
        }
        let known = self.known.get(&node);
        if known.is_none_or(|list| list.iter().any(|at| at.to_canonical() == ip)) {
            return Ok(());
        }
        let own = self.own;
        Err(format!(
            "rank {rank} is at {ip}, which is not an address of node {node} in cluster.toml as node {own} has read it; if that has changed, start the daemon of node {own} again"
        ))
    }

    fn lists<'a>(&'a self, layout: &'a [NodeRanks]) -> impl Iterator<Item = &'a [IpAddr]> + 'a {
        layout.iter().filter_map(|part| self.known.get(&part.node)).map(Vec::as_slice)
    }
}

impl NodeServices {
    /// From where the ranks of a job on these nodes send, and their largest UDP payload that the routes to the others take
    /// unfragmented, in bytes.
    pub(super) fn way_of_ranks(&self, layout: &[NodeRanks]) -> (SocketAddr, u16) {
        let addresses = &self.rank_addresses;
        let Some(address) = addresses.of_job(layout).filter(|chosen| *chosen != self.address)
        else {
            return (self.address, addresses.max_datagram);
        };
        (address, largest_datagram(address, addresses.others(layout, address)))
    }
}

/// Where packets from `address` go to nodes with these addresses. Those that have none of its family are left out.
fn in_family_of<'a>(
    address: SocketAddr,
    nodes: impl Iterator<Item = &'a Vec<IpAddr>>,
    scope: u32,
) -> impl Iterator<Item = SocketAddr> {
    nodes.filter_map(move |list| {
        let same = list.iter().find(|at| at.is_ipv4() == address.is_ipv4())?;
        // Any port: only the route counts.
        Some(on_link(SocketAddr::new(*same, 9), scope))
    })
}

/// The largest UDP payload that goes unfragmented to all of these, in bytes.
fn largest_datagram(from: SocketAddr, others: impl Iterator<Item = SocketAddr>) -> u16 {
    // No route: no datagrams either.
    let payloads = others.filter_map(|other| longest_payload(from, other).ok());
    let payload = payloads.min().and_then(|payload| u16::try_from(payload).ok());
    payload.map_or(MAX_PAYLOAD, |payload| payload.min(MAX_PAYLOAD))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(own: u32) -> RankAddresses {
        let lists: [&[&str]; 4] = [
            &["10.0.0.1", "fd00::1"],
            &["fd00::2"],
            &["10.0.0.3", "10.1.0.3", "fd00::3", "fd01::3"],
            &["10.0.0.4"],
        ];
        let parsed = lists.map(|list| list.iter().map(|at| at.parse().unwrap()).collect());
        let known = (0..).map(NodeId).zip(parsed).collect();
        RankAddresses { own: NodeId(own), scope: 0, known, max_datagram: 1_472 }
    }

    fn layout(nodes: &[u32]) -> Vec<NodeRanks> {
        let part = |&node| NodeRanks { node: NodeId(node), first: 0, count: 1, processors: vec![] };
        nodes.iter().map(part).collect()
    }

    /// What each of the nodes uses in a job on them.
    fn chosen(nodes: &[u32]) -> Vec<String> {
        let of = |&node: &u32| addresses(node).of_job(&layout(nodes)).unwrap().ip().to_string();
        nodes.iter().map(of).collect()
    }

    #[test]
    fn nodes_whose_first_addresses_are_of_one_family_use_those() {
        assert_eq!(chosen(&[0, 2, 3]), ["10.0.0.1", "10.0.0.3", "10.0.0.4"]);
        assert_eq!(chosen(&[1]), ["fd00::2"]);
        assert_eq!(chosen(&[2]), ["10.0.0.3"]);
    }

    #[test]
    fn all_use_the_first_address_of_a_family_that_all_have() {
        assert_eq!(chosen(&[0, 1, 2]), ["fd00::1", "fd00::2", "fd00::3"]);
        assert_eq!(chosen(&[1, 2]), ["fd00::2", "fd00::3"]);
    }

    #[test]
    fn without_such_a_family_the_head_sees_the_first_addresses_and_refuses() {
        assert_eq!(chosen(&[0, 1, 3]), ["10.0.0.1", "fd00::2", "10.0.0.4"]);
    }

    #[test]
    fn nodes_that_are_not_known_here_are_not_asked() {
        assert_eq!(addresses(1).of_job(&layout(&[9, 1, 2])).unwrap().ip().to_string(), "fd00::2");
        assert_eq!(addresses(9).of_job(&layout(&[9, 1])), None, "it does not know itself");
    }

    #[test]
    fn ranks_are_at_addresses_of_their_nodes() {
        let part =
            |node, first| NodeRanks { node: NodeId(node), first, count: 1, processors: Vec::new() };
        // Node 9 is not known here.
        let parts = JobPart::of(&[part(0, 1), part(2, 0), part(9, 2)]);
        let check = |list: [&str; 3]| {
            let at = |ip: &str| RankAddress { ip: ip.parse().unwrap(), port: 7 };
            addresses(0).check(&parts, &list.map(at))
        };
        assert_eq!(check(["10.1.0.3", "10.0.0.1", "192.0.2.9"]), Ok(()));
        assert_eq!(check(["fd01::3", "fd00::1", "fd00::9"]), Ok(()));
        let elsewhere = check(["10.0.0.1", "10.0.0.1", "192.0.2.9"]).unwrap_err();
        assert!(elsewhere.contains("rank 0") && elsewhere.contains("node 2"), "{elsewhere}");
        for nowhere in
            ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:0.0.0.0"]
        {
            let error = check(["10.0.0.3", "10.0.0.1", nowhere]).unwrap_err();
            assert!(error.contains("rank 2"), "{error}");
        }
        let one_more = [part(0, 0)];
        let list =
            ["10.0.0.1", "10.0.0.1"].map(|ip| RankAddress { ip: ip.parse().unwrap(), port: 7 });
        assert!(addresses(0).check(&JobPart::of(&one_more), &list).is_err(), "of no rank");
    }

    #[test]
    fn addresses_that_mean_something_else_elsewhere_are_not_used() {
        for (address, usable) in [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("169.254.0.1", false),
            ("fe80::1", false),
            ("::ffff:10.0.0.1", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(is_usable(&address.parse().unwrap()), usable, "{address}");
        }
    }

    #[test]
    fn packets_go_to_addresses_of_the_same_family() {
        let (addresses, layout) = (addresses(0), layout(&[0, 1, 2, 3]));
        let others = |from: &str| -> Vec<String> {
            let others = addresses.others(&layout, from.parse().unwrap());
            others.map(|at| at.ip().to_string()).collect()
        };
        assert_eq!(others("[fd00::1]:0"), ["fd00::2", "fd00::3"]);
        assert_eq!(others("10.0.0.1:0"), ["10.0.0.3", "10.0.0.4"]);
    }
}
