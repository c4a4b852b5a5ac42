//! What an administrator does on each host of a cluster, as lines to read and to copy: files, units, and how a node comes back.

use super::daemons::Daemon;
use super::remote_hosts::{address_of, here, is_own};
use crate::context::Context;
use kumi_node::config::{ClusterConfig, NodeConfig};
use kumi_sched::NodeId;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Where the units look for clusters.
const UNITS_LOOK_IN: &str = "/var/lib/kumi";
/// The cluster that the units run unless they are told another.
const UNITS_RUN: &str = "default";
/// Tells the units their cluster.
const UNITS_READ: &str = "/etc/default/kumid";

/// The steps that are left, and the machine that they are told on.
pub struct HostInstructions<'a> {
    context: &'a Context,
    config: &'a ClusterConfig,
    own: &'a BTreeSet<IpAddr>,
}

impl<'a> HostInstructions<'a> {
    /// Of this cluster, on a machine with these addresses.
    pub fn new(context: &'a Context, config: &'a ClusterConfig, own: &'a BTreeSet<IpAddr>) -> Self {
        Self { context, config, own }
    }

    /// After `kumi cluster init`: nothing runs yet.
    pub fn after_init(&self) -> String {
        let mut text = self.made();
        let copies = self.copies();
        if !copies.is_empty() {
            text.push_str("\nCopy their files to the other hosts, on which Kumi is installed:\n");
            text.push_str(&copies);
        }
        text.push_str("\nHave systemd start the daemons, now and whenever a host starts:\n");
        text.push_str(&self.units());
        text.push_str("\n`kumi cluster status` then shows which nodes have joined.\n");
        text
    }

    /// After `kumi cluster up`: the daemons of this machine run, outside of systemd.
    pub fn after_up(&self) -> String {
        let mut text = self.made();
        let titles: Vec<String> =
            here(self.config, self.own).iter().map(|daemon| daemon.title(self.config)).collect();
        text.push_str(&match titles.is_empty() {
            true => {
                "this machine is none of the cluster's hosts: nothing was started here\n".to_owned()
            }
            false => {
                format!("started on this machine, until it is shut down: {}\n", titles.join(", "))
            }
        });
        let copies = self.copies();
        if !copies.is_empty() {
            text.push_str("\nCopy their files to the other hosts, on which Kumi is installed:\n");
            text.push_str(&copies);
            text.push_str("\nStart the daemons there:\n");
            for (node, host) in self.others() {
                text.push_str(&format!("  {}: {}\n", host.name, self.by_hand(node)));
            }
        }
        text.push_str(
            "\nFor daemons that start with their hosts: `kumi cluster down`, and then on each host\n",
        );
        text.push_str(&self.units());
        text.push_str("\n`kumi cluster status` shows which nodes have joined.\n");
        text
    }

    /// How each of these nodes, which are down, comes back.
    pub fn back(&self, down: &[NodeId]) -> String {
        let mut text = String::new();
        for &node in down {
            let Ok(host) = self.config.node(node) else { continue };
            text.push_str(&format!(
                "{} is down. On its host ({}), `systemctl status kumid-node@{node}` says why, and \
                 `systemctl restart kumid-node@{node}` starts it; without systemd: {}\n",
                host.name,
                address_of(host),
                self.by_hand(node)
            ));
        }
        text
    }

    fn made(&self) -> String {
        let dir = self.context.dir();
        let key = dir.join("tls/ca.key");
        let authority =
            if key.exists() { about_authority(&key, self.config) } else { String::new() };
        format!(
            "cluster {} of {} hosts is made, in {}\n{authority}",
            self.config.name,
            self.config.members().count(),
            dir.display(),
        )
    }

    /// The hosts with their numbers.
    fn hosts(&self) -> impl Iterator<Item = (NodeId, &'a NodeConfig)> {
        self.config.members()
    }

    /// The hosts other than this machine.
    fn others(&self) -> impl Iterator<Item = (NodeId, &'a NodeConfig)> {
        self.hosts().filter(|(_, host)| !is_own(host.address, self.own))
    }

    fn has_head(&self, host: &NodeConfig) -> bool {
        self.config.has_head_at(host.address)
    }

    fn there(&self) -> PathBuf {
        there(self.context)
    }

    /// What is to be copied to each other host, and a command that does it.
    fn copies(&self) -> String {
        let of_host = |(node, host): (NodeId, &NodeConfig)| {
            let with_head = self.has_head(host);
            let mut text = copy(self.context, host, &files(node, with_head));
            if with_head {
                text.push_str(&files_of_etcd(self.config, &host.name));
            }
            text
        };
        self.others().map(of_host).collect()
    }

    /// The units of each host.
    fn units(&self) -> String {
        let mut text = String::new();
        if self.context.name != UNITS_RUN {
            text.push_str(&format!(
                "  each host: echo KUMI_CLUSTER={} > {UNITS_READ}\n",
                self.context.name
            ));
        }
        for (node, host) in self.hosts() {
            let head = if self.has_head(host) { "kumid-head.service " } else { "" };
            text.push_str(&format!(
                "  {}: systemctl enable --now {head}kumid-node@{node}.service\n",
                host.name
            ));
        }
        let (dir, there) = (self.context.dir(), self.there());
        if self.others().count() < self.config.members().count() && dir != there {
            text.push_str(&format!(
                "  The units look in {}, and this machine's files are in {}: copy them there, or start the daemons by hand \
                 with `kumid head --cluster-dir {}` and `kumid node`.\n",
                there.display(),
                dir.display(),
                dir.display()
            ));
        }
        text
    }

    fn by_hand(&self, node: NodeId) -> String {
        let there = self.there();
        let there = there.display();
        let head = match self.config.node(node) {
            Ok(host) if self.has_head(host) => format!("kumid head --cluster-dir {there} & "),
            _ => String::new(),
        };
        format!("{head}kumid node --cluster-dir {there} --node {node}")
    }
}

/// What is to be known of the authority's key.
fn about_authority(key: &Path, config: &ClusterConfig) -> String {
    let mut text = format!("{} stays on this machine: its holder can add nodes\n", key.display());
    if config.heads().len() > 1 {
        text.push_str(
            "A machine joins with a token if the head that leads has this key: copy it to `tls` on each head's host if any head is to let machines join\n",
        );
    }
    text
}

/// Files for etcd that the head of a host reads, beside those of the cluster.
fn files_of_etcd(config: &ClusterConfig, host: &str) -> String {
    let etcd = &config.etcd;
    let files = [&etcd.ca, &etcd.certificate, &etcd.key, &etcd.password_file];
    let files: Vec<String> =
        files.into_iter().flatten().map(|file| file.display().to_string()).collect();
    if files.is_empty() {
        return String::new();
    }
    format!("  {host}: copy also what its head needs for etcd: {}\n", files.join(" "))
}

/// After `kumi node add`: what is left to do for a node whose certificate is on this machine.
pub fn after_add(
    context: &Context,
    (node, host): (NodeId, &NodeConfig),
    own: &BTreeSet<IpAddr>,
) -> String {
    if is_own(host.address, own) {
        return format!("{}: start it on this machine with `kumi cluster up`\n", host.name);
    }
    let there = there(context);
    let cluster = match context.name.as_str() {
        UNITS_RUN => String::new(),
        name => format!("echo KUMI_CLUSTER={name} > {UNITS_READ}; "),
    };
    format!(
        "Copy its files to its host, on which Kumi is installed:\n{}Have systemd start it there, now and whenever the host \
         starts:\n  {}: {cluster}systemctl enable --now kumid-node@{node}.service\nOr start it by hand:\n  kumid node \
         --cluster-dir {} --node {node}\n",
        copy(context, host, &files(node, false)),
        host.name,
        there.display(),
    )
}

/// After `kumi cluster join`: how the daemon of this machine starts.
pub fn start_here(context: &Context, node: NodeId) -> String {
    let dir = context.dir().display();
    if context.dir() != there(context) {
        return format!(
            "Start its daemon, which the units do not look for there:  kumid node --cluster-dir {dir} --node {node}\n"
        );
    }
    let cluster = match context.name.as_str() {
        UNITS_RUN => String::new(),
        name => format!("  echo KUMI_CLUSTER={name} > {UNITS_READ}\n"),
    };
    format!(
        "Have systemd start its daemon, now and whenever this machine starts:\n{cluster}\
         \x20 systemctl enable --now kumid-node@{node}.service\n"
    )
}

/// The folder of a cluster where the units look for it.
fn there(context: &Context) -> PathBuf {
    Path::new(UNITS_LOOK_IN).join(&context.name)
}

/// The files that are to be copied to a host, and a command that does it.
fn copy(context: &Context, host: &NodeConfig, files: &[String]) -> String {
    let (dir, there, files) = (context.dir().display(), there(context), files.join(" "));
    let there = there.display();
    format!(
        "  {name}, to {there}: {files}\n    tar -C {dir} -c {files} | ssh {address} 'mkdir -p {there} && tar -C {there} \
         -xp'\n",
        name = host.name,
        address = address_of(host),
    )
}

/// The nodes that are down, by the numbers of those that are up.
pub fn down(config: &ClusterConfig, up: &BTreeSet<NodeId>) -> Vec<NodeId> {
    let all = Daemon::all(config).into_iter();
    all.filter_map(|daemon| match daemon {
        Daemon::Node(node) if !up.contains(&node) => Some(node),
        _ => None,
    })
    .collect()
}

/// The files one host needs, relative to the cluster's directory.
fn files(node: NodeId, with_head: bool) -> Vec<String> {
    let mut files = vec!["cluster.toml".to_owned(), "tls/ca.pem".to_owned()];
    let mut pair = |name: &str| {
        files.extend([format!("tls/{name}.pem"), format!("tls/{name}.key")]);
    };
    pair(&format!("node-{node}"));
    if with_head {
        pair("head");
    }
    files
}

#[cfg(test)]
mod tests {
    use super::super::remote_hosts::tests::{config, own};
    use super::*;

    fn with(name: &str, last: u8, ask: impl FnOnce(&HostInstructions<'_>) -> String) -> String {
        let context = Context { name: name.into(), dir: Path::new(UNITS_LOOK_IN).join(name) };
        ask(&HostInstructions::new(&context, &config(), &own(last)))
    }

    #[test]
    fn a_made_cluster_says_what_goes_where_and_what_to_enable() {
        let text = with("lab", 1, |steps| steps.after_init());
        let expected = "\
cluster lab of 2 hosts is made, in /var/lib/kumi/lab

Copy their files to the other hosts, on which Kumi is installed:
  beta, to /var/lib/kumi/lab: cluster.toml tls/ca.pem tls/node-1.pem tls/node-1.key
    tar -C /var/lib/kumi/lab -c cluster.toml tls/ca.pem tls/node-1.pem tls/node-1.key | ssh 192.0.2.2 'mkdir -p /var/lib/kumi/lab && tar -C /var/lib/kumi/lab -xp'

Have systemd start the daemons, now and whenever a host starts:
  each host: echo KUMI_CLUSTER=lab > /etc/default/kumid
  alpha: systemctl enable --now kumid-head.service kumid-node@0.service
  beta: systemctl enable --now kumid-node@1.service

`kumi cluster status` then shows which nodes have joined.
";
        assert_eq!(text, expected);
        let usual = with("default", 1, |steps| steps.after_init());
        assert!(!usual.contains(UNITS_READ), "{usual}");
    }

    #[test]
    fn several_heads_get_what_they_need_for_etcd() {
        let mut config = config();
        config.heads = vec![config.head, ([192, 0, 2, 2], 7700).into()];
        config.etcd.ca = Some("/etc/ca.pem".into());
        let context = Context { name: "lab".into(), dir: Path::new(UNITS_LOOK_IN).join("lab") };
        let text = HostInstructions::new(&context, &config, &own(1)).after_init();
        assert!(text.contains("  beta: copy also what its head needs for etcd: /etc/ca.pem\n"));
        assert!(text.contains("beta: systemctl enable --now kumid-head.service"), "{text}");
        let key = Path::new("/var/lib/kumi/lab/tls/ca.key");
        let about = about_authority(key, &config);
        assert!(about.contains("stays on this machine") && about.contains("each head's host"));
        config.heads.clear();
        assert!(!about_authority(key, &config).contains("each head's host"));
    }

    #[test]
    fn a_machine_that_has_joined_says_how_its_daemon_starts() {
        let context = |name: &str, dir: &str| Context { name: name.into(), dir: dir.into() };
        let text = start_here(&context("lab", "/var/lib/kumi/lab"), NodeId(2));
        assert!(text.contains("echo KUMI_CLUSTER=lab > /etc/default/kumid\n"), "{text}");
        assert!(text.ends_with("  systemctl enable --now kumid-node@2.service\n"), "{text}");
        let usual = start_here(&context("default", "/var/lib/kumi/default"), NodeId(2));
        assert!(!usual.contains(UNITS_READ), "{usual}");
        let elsewhere = start_here(&context("lab", "/srv/lab"), NodeId(2));
        assert!(elsewhere.ends_with("kumid node --cluster-dir /srv/lab --node 2\n"));
    }

    #[test]
    fn a_host_gets_its_own_keys_and_never_the_authoritys() {
        // Made on a third machine: the host of the head needs its files too.
        let text = with("default", 3, |steps| steps.after_init());
        assert!(text.contains("tls/node-0.key tls/head.pem tls/head.key |"), "{text}");
        assert!(text.contains("cluster.toml tls/ca.pem tls/node-1.pem tls/node-1.key |"), "{text}");
        assert!(!text.contains("ca.key"), "{text}");
    }

    #[test]
    fn daemons_that_the_command_started_do_not_outlive_the_host() {
        let text = with("default", 1, |steps| steps.after_up());
        assert!(text.contains("until it is shut down: the head, alpha\n"), "{text}");
        assert!(text.contains("  beta: kumid node --cluster-dir /var/lib/kumi/default --node 1\n"));
        assert!(text.contains("`kumi cluster down`") && text.contains("enable --now"), "{text}");
    }

    #[test]
    fn another_directory_is_not_that_of_the_units() {
        let (config, own) = (config(), own(1));
        let context = Context { name: "default".into(), dir: "/srv/default".into() };
        let text = HostInstructions::new(&context, &config, &own).after_init();
        assert!(text.contains("The units look in /var/lib/kumi/default, and"), "{text}");
        assert!(text.contains("kumid head --cluster-dir /srv/default"), "{text}");
    }

    #[test]
    fn a_node_that_is_down_comes_back_by_its_unit() {
        let missing = down(&config(), &BTreeSet::from([NodeId(0)]));
        assert_eq!(missing, [NodeId(1)]);
        let text = with("lab", 1, |steps| steps.back(&missing));
        assert!(text.starts_with("beta is down. On its host (192.0.2.2), "), "{text}");
        assert!(text.contains("`systemctl restart kumid-node@1`"), "{text}");
        let first = with("lab", 2, |steps| steps.back(&[NodeId(0)]));
        assert!(first.contains("kumid head --cluster-dir /var/lib/kumi/lab & kumid node"));
    }
}
