//! Faults and attackers in the namespaces that a test's cluster made, and nowhere else.

use crate::cluster::TestCluster;
use crate::{command, machine};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::process::Command;
use std::thread::JoinHandle;

/// Whether the tools and rights are there; says so if not.
pub fn possible(test: &str) -> bool {
    let reason = if !machine::has_namespaces() {
        "network namespaces are not permitted"
    } else if !["nsenter", "iptables", "tc", "ip"].iter().all(|name| machine::has_command(name)) {
        "nsenter, iptables, tc or ip is not installed"
    } else {
        return true;
    };
    kumi_skip::skip(test, reason);
    false
}

/// Runs a command in the namespace of a node.
///
/// # Panics
/// When the cluster has no namespaces or the command fails.
#[track_caller]
pub fn on_node(cluster: &TestCluster, node: u32, words: &str) -> String {
    let name = cluster.namespace(node).expect("a cluster of root has namespaces");
    in_namespace(&name, words)
}

#[track_caller]
fn in_namespace(name: &str, words: &str) -> String {
    command::run(nsenter(name, words)).ok().out
}

fn nsenter(name: &str, words: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{name}")).args(words.split(' '));
    command
}

/// The address of a node's interface to the others.
#[track_caller]
fn address(cluster: &TestCluster, node: u32) -> String {
    let all = on_node(cluster, node, "ip -o address show dev eth0 scope global");
    let words = all.split_whitespace().nth(3);
    words.and_then(|word| word.split('/').next()).expect("an address").to_owned()
}

/// The switch of a cluster of two nodes, made a router whose links carry fewer bytes than those of the
/// nodes.
pub struct Router {
    namespace: String,
    ipv6: bool,
}

impl Router {
    /// Nodes 0 and 1 see nothing of it, but for what it drops: it answers for the other one's address.
    ///
    /// # Panics
    /// When the cluster has no namespaces or a command fails.
    #[track_caller]
    pub fn make(cluster: &TestCluster, mtu: u32) -> Self {
        let namespace = format!("kumi-{}-sw", cluster.name());
        let addresses = [0, 1].map(|node| address(cluster, node));
        let router = Self { namespace, ipv6: addresses[0].contains(':') };
        let (own, whole) =
            if router.ipv6 { ("2001:db8::1/128 nodad", 128) } else { ("192.0.2.1/32", 32) };
        for (node, address) in addresses.iter().enumerate() {
            let link = format!("v{node}");
            router.run(&format!("ip link set {link} nomaster"));
            // For what the router says itself.
            router.run(&format!("ip address add {own} dev {link}"));
            router.run(&format!("ip route add {address}/{whole} dev {link} mtu lock {mtu}"));
            router.set(&format!("neigh/{link}/proxy_delay"), "0");
            if router.ipv6 {
                router.set(&format!("conf/{link}/proxy_ndp"), "1");
                router.run(&format!("ip neigh add proxy {} dev {link}", addresses[1 - node]));
            } else {
                router.set(&format!("conf/{link}/proxy_arp"), "1");
            }
        }
        router.set(if router.ipv6 { "conf/all/forwarding" } else { "ip_forward" }, "1");
        for node in 0..2 {
            on_node(cluster, node, "ip neigh flush all");
        }
        router
    }

    /// From now on it does not say when a packet of ranks was too long; false if the kernel's filter cannot tell those
    /// messages from others.
    #[must_use]
    pub fn silence(&self) -> bool {
        // The protocol of the packet that the message is about: UDP.
        let rule = "iptables -A OUTPUT -p icmp -m u32 --u32 34&0xFF=17 -j DROP";
        command::run(nsenter(&self.namespace, rule)).status.success()
    }

    /// From now on it says to nobody when a packet was too long.
    ///
    /// # Panics
    /// When the command fails.
    #[track_caller]
    pub fn silence_all(&self) {
        self.run(if self.ipv6 {
            "ip6tables -A OUTPUT -p icmpv6 --icmpv6-type packet-too-big -j DROP"
        } else {
            "iptables -A OUTPUT -p icmp --icmp-type fragmentation-needed -j DROP"
        });
    }

    /// How many messages [`Self::silence`] has dropped.
    ///
    /// # Panics
    /// When it was not called.
    #[track_caller]
    pub fn silenced(&self) -> u64 {
        matched(&self.run("iptables -L OUTPUT -v -n -x"), "u32")
    }

    /// A counter of its kernel: `FragFails`, packets that were too long; `FragOKs`, those that it fragmented.
    ///
    /// # Panics
    /// When there is none of this name.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        if self.ipv6 {
            let text = self.run("cat /proc/net/snmp6");
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("Ip6{name}")));
            return line.expect("this counter").trim().parse().expect("a number");
        }
        let text = self.run("cat /proc/net/snmp");
        let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let mut pairs = names.split(' ').zip(values.split(' '));
        let value = pairs.find(|pair| pair.0 == name).expect("this counter").1;
        value.parse().expect("a number")
    }

    #[track_caller]
    fn run(&self, words: &str) -> String {
        in_namespace(&self.namespace, words)
    }

    #[track_caller]
    fn set(&self, name: &str, value: &'static str) {
        let path = format!("/proc/sys/net/{}/{name}", if self.ipv6 { "ipv6" } else { "ipv4" });
        let done = within(&self.namespace, move || std::fs::write(path, value)).join();
        done.expect("the thread").expect("the setting");
    }
}

/// Has a node lose this share of the packets of ranks that come to it.
#[track_caller]
pub fn lose(cluster: &TestCluster, node: u32, probability: &str) {
    let rule = format!(
        "iptables -A INPUT -p udp -m statistic --mode random --probability {probability} -j DROP"
    );
    on_node(cluster, node, &rule);
}

/// Packets that [`lose`] has dropped on a node.
///
/// # Panics
/// When it was not called.
#[track_caller]
pub fn lost(cluster: &TestCluster, node: u32) -> u64 {
    matched(&on_node(cluster, node, "iptables -L INPUT -v -n -x"), "statistic")
}

/// Has the cluster's switch lose this share of the packets of ranks, whatever the nodes do past their network stacks; false if
/// its bridge has no filter.
#[must_use]
#[track_caller]
pub fn lose_on_the_way(cluster: &TestCluster, probability: &str) -> bool {
    let switch = format!("kumi-{}-sw", cluster.name());
    let setting = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    let set = within(&switch, move || std::fs::write(setting, "1")).join();
    if set.expect("the thread").is_err() {
        return false;
    }
    let rule = format!(
        "iptables -A FORWARD -p udp -m statistic --mode random --probability {probability} -j DROP"
    );
    in_namespace(&switch, &rule);
    true
}

/// Packets that [`lose_on_the_way`] has dropped.
///
/// # Panics
/// When it was not called.
#[track_caller]
pub fn lost_on_the_way(cluster: &TestCluster) -> u64 {
    let switch = format!("kumi-{}-sw", cluster.name());
    matched(&in_namespace(&switch, "iptables -L FORWARD -v -n -x"), "statistic")
}

/// Has a node answer the packets of ranks that come to it with this message of ICMP, instead of any it did before.
#[track_caller]
pub fn refuse(cluster: &TestCluster, node: u32, answer: &str) {
    on_node(cluster, node, "iptables -F INPUT");
    let rule = format!("iptables -A INPUT -p udp -j REJECT --reject-with {answer}");
    on_node(cluster, node, &rule);
}

/// Packets that the last [`refuse`] has answered on a node.
///
/// # Panics
/// When it was not called.
#[track_caller]
pub fn refused(cluster: &TestCluster, node: u32) -> u64 {
    matched(&on_node(cluster, node, "iptables -L INPUT -v -n -x"), "REJECT")
}

/// How many packets have met the rule with this word in it.
#[track_caller]
fn matched(table: &str, word: &str) -> u64 {
    let line = table.lines().find(|line| line.contains(word)).expect("our rule");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a count")
}

/// Runs `body` on a thread of its own in a namespace of this name.
///
/// # Panics
/// In the thread, when there is no such namespace or entering it is not permitted.
pub fn within<R: Send + 'static>(
    namespace: &str,
    body: impl FnOnce() -> R + Send + 'static,
) -> JoinHandle<R> {
    let path = format!("/run/netns/{namespace}");
    // Entering a namespace concerns the thread only.
    std::thread::spawn(move || {
        let file = File::open(&path).expect("the namespace");
        setns(file, CloneFlags::CLONE_NEWNET).expect("setns is permitted");
        body()
    })
}
