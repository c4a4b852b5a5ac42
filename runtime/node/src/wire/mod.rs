//! The wire of a node's ranks: whether they get AF_XDP beside UDP, and on what interface and queues.

mod netlink;
mod ranks;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use kumi_net::xdp::{Mac, Steering, XdpSocket};
use kumi_sched::JobId;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

use crate::config::WireSetting;
use crate::exit::{ExitCode, Failure};
use crate::limits;

pub(crate) use ranks::{JobWires, RankWire, hops_of};

/// The interface that has an address.
#[derive(Debug)]
struct Interface {
    name: String,
    index: u32,
    mac: Mac,
}

impl Interface {
    fn with(address: Ipv4Addr) -> Result<Interface, String> {
        let loopback = || format!("{address} is a loopback address, which has no network below it");
        // All of 127.0.0.0/8 is loopback, though the interface lists only one address of it.
        if address.is_loopback() {
            return Err(loopback());
        }
        let all: Vec<_> = getifaddrs().map_err(|error| error.to_string())?.collect();
        let has = |own: &nix::ifaddrs::InterfaceAddress| {
            let ip = own.address.as_ref().and_then(|ip| ip.as_sockaddr_in().map(|ip| ip.ip()));
            ip == Some(address)
        };
        let found = all.iter().find(|own| has(own));
        let found = found.ok_or_else(|| format!("no interface has the address {address}"))?;
        let name = found.interface_name.clone();
        if found.flags.contains(InterfaceFlags::IFF_LOOPBACK) {
            return Err(loopback());
        }
        let links = all.iter().filter(|link| link.interface_name == name);
        let mac = links.filter_map(|link| link.address.as_ref()?.as_link_addr()?.addr()).next();
        let mac = mac.ok_or_else(|| format!("{name} has no hardware address"))?;
        let index = if_nametoindex(name.as_str()).map_err(|error| error.to_string())?;
        Ok(Interface { name, index, mac })
    }
}

/// AF_XDP on a node.
#[derive(Debug)]
pub struct NodeXdp {
    interface: Interface,
    steering: Steering,
    queues: u32,
    /// Queues that ranks have.
    taken: RefCell<BTreeSet<u32>>,
    /// Ports that are steered, each with the job whose rank has it.
    steered: RefCell<BTreeMap<u16, JobId>>,
}

impl NodeXdp {
    /// Puts the program that steers onto the interface with this address. It goes with the value.
    ///
    /// # Errors
    /// A sentence: what cannot be had, and how to get it.
    pub fn start(address: Ipv4Addr) -> Result<NodeXdp, String> {
        let interface = Interface::with(address)?;
        let steering = Steering::attach(interface.index, address).map_err(|e| e.to_string())?;
        // What ranks will need, tried once.
        drop(XdpSocket::create(&interface.name).map_err(|error| error.to_string())?);
        let queues = kumi_net::xdp::queues(&interface.name)
            .map_err(|error| format!("the queues of {} are not known: {error}", interface.name))?;
        let (taken, steered) = Default::default();
        Ok(NodeXdp { interface, steering, queues, taken, steered })
    }

    /// A few words about it.
    pub fn describe(&self) -> String {
        let how = if self.steering.is_native() { "in its driver" } else { "behind its driver" };
        let queues = self.queues;
        format!("{} with {queues} queue(s), the program runs {how}", self.interface.name)
    }
}

/// AF_XDP for a node, by its setting. Where it is only wished for, the reason why not is added to `limits`.
///
/// # Errors
/// If it has to be and cannot.
pub(crate) fn start(
    setting: WireSetting,
    address: IpAddr,
    limits: &mut Vec<String>,
) -> Result<Option<NodeXdp>, Failure> {
    if setting == WireSetting::Udp {
        return Ok(None);
    }
    let started = match address {
        IpAddr::V4(address) => NodeXdp::start(address),
        IpAddr::V6(_) => Err(format!("it is for addresses of IPv4, not {address}")),
    };
    match started {
        Ok(xdp) => {
            tracing::info!(interface = xdp.describe(), "AF_XDP for ranks");
            Ok(Some(xdp))
        }
        Err(reason) if setting == WireSetting::Xdp => Err(Failure::new(
            ExitCode::MachineLimits,
            format!(
                "this node cannot use AF_XDP, which `wire = \"xdp\"` in cluster.toml asks for: {reason}; correct that, or set wire to \"auto\" or \"udp\""
            ),
        )),
        Err(reason) => {
            tracing::warn!(reason, "no AF_XDP; ranks use UDP");
            limits.push(limits::xdp_sentence(&reason));
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_loopback_is_named_so() {
        for address in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)] {
            let reason = Interface::with(address).expect_err("loopback carries no AF_XDP");
            assert!(reason.contains("is a loopback address"), "{reason}");
        }
    }
}
