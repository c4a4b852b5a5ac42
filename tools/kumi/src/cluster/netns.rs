//! Network of a local cluster that root made. Each node has a namespace, which a veth pair joins to a bridge
//! in a namespace of its own.
//!
//! The machine's own namespace is not touched.

use super::configuration::address_in_namespace;
use crate::error::Error;
use kumi_node::config::ClusterConfig;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directory in which `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// The namespace of node `node`.
pub fn name(cluster: &str, node: usize) -> String {
    format!("kumi-{cluster}-{node}")
}

/// The namespace of the bridge.
fn switch(cluster: &str) -> String {
    format!("kumi-{cluster}-sw")
}

/// The file by which a process enters the namespace.
pub fn file(namespace: &str) -> PathBuf {
    Path::new(NAMESPACES).join(namespace)
}

/// Whether this user can make namespaces on this machine: tries one that ends at once.
pub fn possible() -> bool {
    nix::unistd::geteuid().is_root()
        && succeeds(Command::new("unshare").args(["--net", "true"]))
        && ["ip", "nsenter"].iter().all(|tool| succeeds(Command::new(tool).arg("-V")))
}

fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Makes all namespaces of the cluster, with a network that carries packets of `mtu` bytes. Existing ones are
/// made anew.
pub fn create(config: &ClusterConfig, mtu: u32) -> Result<(), Error> {
    remove(&config.name)?;
    let switch = switch(&config.name);
    ip(&["netns", "add", &switch], "")?;
    let mut plan = String::from("link add br0 type bridge\nlink set br0 up\nlink set lo up\n");
    for (node, part) in config.nodes.iter().enumerate() {
        let Some(namespace) = &part.netns else { continue };
        ip(&["netns", "add", namespace], "")?;
        let written = write!(
            plan,
            "link add v{node} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {namespace}\n\
             link set v{node} master br0 up\n"
        );
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
    ip(&["-n", &switch, "-batch", "-"], &plan)?;
    // Where a cluster has both families, each node gets an address of the other one, too: its daemon talks to all others.
    let one = config.nodes.iter().all(|part| part.address.is_ipv6() == config.head.is_ipv6());
    for (node, part) in config.nodes.iter().enumerate() {
        let Some(namespace) = &part.netns else { continue };
        let mut plan = add_address(part.address);
        if !one {
            let ipv6 = !part.address.is_ipv6();
            plan += &add_address(address_in_namespace(&config.name, node, ipv6));
        }
        plan += "link set eth0 up\nlink set lo up\n";
        ip(&["-n", namespace, "-batch", "-"], &plan)?;
    }
    Ok(())
}

/// The command for an address of a node. Nobody else has it, so IPv6 need not look for seconds whether somebody does.
fn add_address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => format!("address add {v4}/24 dev eth0\n"),
        IpAddr::V6(v6) => format!("address add {v6}/64 dev eth0 nodad\n"),
    }
}

/// The existing namespaces of this cluster.
pub fn existing(cluster: &str) -> Vec<String> {
    let entries = std::fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| belongs(name, cluster)).collect()
}

/// Whether a namespace belongs to this cluster, and not to one whose name begins with this cluster's name.
fn belongs(namespace: &str, cluster: &str) -> bool {
    let rest = namespace.strip_prefix("kumi-").and_then(|rest| rest.strip_prefix(cluster));
    rest.and_then(|rest| rest.strip_prefix('-')).is_some_and(|last| {
        last == "sw" || (!last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Removes the cluster's namespaces, and with them its bridge and veth pairs.
pub fn remove(cluster: &str) -> Result<(), Error> {
    for namespace in existing(cluster) {
        ip(&["netns", "delete", &namespace], "").map_err(|error| Error::LeftOver {
            what: format!("the network namespace {namespace}"),
            said: error.to_string(),
        })?;
    }
    Ok(())
}

/// Runs `ip` with this input, outside of the terminal's process group. So Ctrl-C stops Kumi, which then
/// cleans up, but does not stop `ip` half-way.
fn ip(args: &[&str], input: &str) -> Result<(), Error> {
    let what = || format!("`ip {}` failed", args.join(" "));
    let failed = |said: String| Error::Machine { what: what(), said };
    let mut child = Command::new("ip")
        .args(args)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("it cannot be run ({error}); install iproute2")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If `ip` fails early, it closes its input; its own message has the reason.
        let _early = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(failed(said.lines().next().unwrap_or("no reason given").to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_clusters_are_told_apart() {
        assert!(belongs("kumi-lab-0", "lab"));
        assert!(belongs("kumi-lab-12", "lab"));
        assert!(belongs("kumi-lab-sw", "lab"));
        assert!(belongs(&name("a-0", 3), "a-0"));
        for other in ["kumi-lab-2-0", "kumi-lab-", "kumi-lab-x", "kumi-labs-0", "lab-0", "kumi-lab"]
        {
            assert!(!belongs(other, "lab"), "{other}");
        }
        assert!(!belongs("kumi-a-0-3", "a"));
    }
}
