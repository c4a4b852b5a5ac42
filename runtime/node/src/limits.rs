//! Capabilities of this machine: what it permits, what each missing one costs, and how to get it.

use std::fs;
use std::path::Path;

use kumi_sched::NodeId;

use crate::cgroup::{Controller, DaemonGroup, NodeGroups};

/// One thing that Kumi can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// Whether it is there.
    pub ok: bool,
    /// The finding, in a few words.
    pub found: String,
    /// The replacement, and what it costs.
    pub cost: &'static str,
    /// How to get it.
    pub remedy: &'static str,
}

/// Note of a node without control groups.
pub fn cgroup_sentence(reason: &str) -> String {
    format!(
        "no control groups ({reason}): jobs are stopped and continued by signals, which ranks can see and which switch more slowly; their memory and processes are not limited"
    )
}

/// What is lost without a controller.
fn cost(controller: Controller) -> &'static str {
    match controller {
        Controller::Memory => {
            "memory of jobs is not limited: one that takes too much can bring the others and the node down"
        }
        Controller::Pids => {
            "the number of a job's processes is not limited: one job can take all that the machine can have"
        }
        Controller::Cpu => {
            "jobs that compete for processors get shares by their threads, whatever their priority"
        }
        Controller::Cpuset => "programs can leave the processors of their job",
        Controller::Devices => "programs can open files of devices that other jobs have",
    }
}

/// Note of a node that cannot limit jobs by a controller.
pub fn controller_sentence(controller: Controller, reason: &str) -> String {
    format!(
        "no controller {} for control groups ({reason}): {}",
        controller.name(),
        cost(controller)
    )
}

/// Note of a node without real-time priority.
pub fn realtime_sentence() -> String {
    "no real-time priority: switches come late while ranks compute; slices below 10 ms are not kept"
        .to_owned()
}

/// Note of a node whose daemon does not go before ranks.
pub fn preference_sentence() -> String {
    format!("no preference for the daemon: {PREFERENCE_COST}")
}

/// Cost of a daemon that may not be preferred.
const PREFERENCE_COST: &str = "ranks run at nice 5 instead, behind other programs, so that the daemon can tell that it lives on a machine with many more ranks than processors";

/// Note of a node that cannot publish pages for its ranks.
pub fn disclosure_sentence(reason: &str) -> String {
    format!(
        "no pages of information for ranks ({reason}): waits do not know who runs, and programs do not see the load of nodes; a kernel from 5.1 on has what they need"
    )
}

/// Note of a node that was to have AF_XDP and has none.
pub fn xdp_sentence(reason: &str) -> String {
    format!("no AF_XDP ({reason}): short messages between nodes take the longer way, by UDP")
}

fn check(
    name: &'static str,
    found: Result<String, String>,
    cost: &'static str,
    remedy: &'static str,
) -> Check {
    let ok = found.is_ok();
    Check { name, ok, found: found.unwrap_or_else(|reason| reason), cost, remedy }
}

/// Tries everything out. Leaves nothing behind.
pub fn checks() -> Vec<Check> {
    let mut all = control_groups();
    all.extend(rights());
    all.extend(system());
    all
}

/// Permissions of the daemon.
fn rights() -> Vec<Check> {
    vec![
        check(
            "real-time priority",
            realtime(),
            "switches come late while ranks compute; slices below 10 ms are not kept",
            "run as root, or set LimitRTPRIO=50 (systemd) or rtprio in limits.conf",
        ),
        check(
            "preference for the daemon",
            preference(),
            PREFERENCE_COST,
            "run as root, or set LimitNICE=-15 (systemd) or nice in limits.conf",
        ),
        check(
            "network namespaces",
            network_namespaces(),
            "local clusters use loopback addresses instead of a network of their own",
            "run as root outside of restricted containers",
        ),
        check(
            "other users' jobs",
            if nix::unistd::geteuid().is_root() {
                Ok("root: jobs run as whoever submits them".to_owned())
            } else {
                Err("not root".to_owned())
            },
            "only the user who runs the daemons can run jobs",
            "run the daemons as root",
        ),
    ]
}

/// Features of the system.
fn system() -> Vec<Check> {
    vec![
        check(
            "shared memory files (memfd)",
            memfd(),
            "no job can run",
            "a kernel from 3.17 on, and memory",
        ),
        check(
            "memory files sealed against new writers",
            future_write(),
            "other processes of the daemons' user can open the memory of a running rank for writing; waits do not know who runs",
            "a kernel from 5.1 on",
        ),
        check(
            "segmentation offload for UDP",
            segmentation(),
            "long messages between nodes cost a system call for each packet",
            "a kernel from 5.0 on",
        ),
        check(
            "AF_XDP",
            xdp(),
            "short messages between nodes take the longer way, by UDP, also where `wire` asks for AF_XDP",
            "run as root, on a kernel from 5.11 on with CONFIG_XDP_SOCKETS",
        ),
        check(
            "pseudo-terminals",
            pseudo_terminals(),
            "`kumi run -t` is refused",
            "mount devpts with ptmx at /dev/pts, and raise kernel.pty.max",
        ),
        check(
            "system calls of ranks",
            system_calls(),
            "a program that waits for a device or a file and uses no processor counts as idle",
            "run as root, or set kernel.yama.ptrace_scope to 1 or 0",
        ),
        check(
            "path MTU probing of TCP",
            mtu_probing(),
            "in networks that lose the messages of routers (ICMP), the daemons' connections do not last on paths that carry less than 1,240 bytes, and those of other programs hang on more",
            "sysctl net.ipv4.tcp_mtu_probing=1, on all hosts",
        ),
        check(
            "open files",
            open_files(),
            "jobs with many ranks on a node are refused",
            "raise the hard limit: LimitNOFILE= (systemd) or nofile in limits.conf",
        ),
    ]
}

/// Control groups and their controllers, tried out as a node has them.
fn control_groups() -> Vec<Check> {
    let name = format!("doctor-{}", std::process::id());
    let groups = NodeGroups::make(&name, NodeId(0), DaemonGroup::Keep);
    let mut checks = vec![check(
        "control groups (cgroup v2)",
        groups.as_ref().map_err(String::clone).and_then(below),
        "jobs are stopped and continued by signals: slower, and ranks can see it",
        "run as root, or let systemd delegate a group (Delegate=yes); mount cgroup2 in containers",
    )];
    for controller in Controller::ALL {
        let found = match &groups {
            Err(_) => Err("no control groups".to_owned()),
            Ok(groups) => match groups.missing().iter().find(|(one, _)| *one == controller) {
                Some((_, why)) => Err(why.clone()),
                None => Ok(groups.version_of(controller).to_owned()),
            },
        };
        let (name, remedy) = remedy(controller);
        checks.push(check(name, found, cost(controller), remedy));
    }
    checks
}

/// The name of a check, and how to get the controller.
fn remedy(controller: Controller) -> (&'static str, &'static str) {
    const DELEGATE: &str =
        "run as root, or as a service to which systemd delegates its group (Delegate=yes)";
    match controller {
        Controller::Memory => ("limits of memory (controller memory)", DELEGATE),
        Controller::Pids => ("limits of processes (controller pids)", DELEGATE),
        Controller::Cpu => ("shares of processors (controller cpu)", DELEGATE),
        Controller::Cpuset => ("sets of processors (controller cpuset)", DELEGATE),
        Controller::Devices => (
            "rights to devices (controller devices)",
            "mount version 1 of it; only machines whose jobs use devices need it",
        ),
    }
}

/// Where groups can be made. Removes those that were made to find out.
fn below(groups: &NodeGroups) -> Result<String, String> {
    groups.destroy(std::time::Duration::from_secs(1)).map_err(|error| error.to_string())?;
    groups.remove_empty_parents();
    let place = groups.main().path().ancestors().nth(2).map(Path::to_owned);
    Ok(format!("under {}", place.unwrap_or_default().display()))
}

fn realtime() -> Result<String, String> {
    let tried = std::thread::Builder::new().spawn(crate::switch::realtime_this_thread);
    match tried.map_err(|error| error.to_string())?.join() {
        Ok(true) => Ok("SCHED_FIFO is permitted".to_owned()),
        _ => Err("SCHED_FIFO is not permitted".to_owned()),
    }
}

fn preference() -> Result<String, String> {
    let tried = std::thread::Builder::new().spawn(kumi_net::priority::prefer_this_thread);
    match tried.map_err(|error| error.to_string())?.join() {
        Ok(Ok(())) => Ok("nice -15 is permitted".to_owned()),
        Ok(Err(error)) => Err(format!("nice -15 is not permitted: {error}")),
        Err(_) => Err("cannot be tried".to_owned()),
    }
}

fn xdp() -> Result<String, String> {
    // In a namespace of its own, whose loopback device belongs to nobody. Only root can make one.
    let tried = std::thread::Builder::new().spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).map_err(|error| {
            format!("cannot be tried: no network namespace can be made: {error}")
        })?;
        kumi_net::xdp::try_out("lo").map_err(|error| error.to_string())
    });
    let tried = tried.map_err(|error| error.to_string())?.join();
    tried.map_err(|_| "cannot be tried".to_owned())??;
    Ok("sockets and programs that steer are permitted".to_owned())
}

fn mtu_probing() -> Result<String, String> {
    let setting = fs::read_to_string("/proc/sys/net/ipv4/tcp_mtu_probing");
    let setting = setting.map_err(|error| format!("not known: {error}"))?;
    match setting.trim() {
        "0" => Err("net.ipv4.tcp_mtu_probing is 0".to_owned()),
        other => Ok(format!("net.ipv4.tcp_mtu_probing is {other}")),
    }
}

fn network_namespaces() -> Result<String, String> {
    // In a thread of its own, which alone moves into the new namespace and ends there.
    let tried = std::thread::Builder::new()
        .spawn(|| nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET));
    match tried.map_err(|error| error.to_string())?.join() {
        Ok(Ok(())) => Ok("can be made".to_owned()),
        Ok(Err(error)) => Err(format!("cannot be made: {error}")),
        Err(_) => Err("cannot be tried".to_owned()),
    }
}

fn memfd() -> Result<String, String> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    memfd_create(c"kumi-doctor", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
        .map(|_| "can be made and sealed".to_owned())
        .map_err(|error| error.to_string())
}

fn future_write() -> Result<String, String> {
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    use nix::sys::memfd::{MFdFlags, memfd_create};
    let file = memfd_create(c"kumi-doctor", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING);
    let file = file.map_err(|error| error.to_string())?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_FUTURE_WRITE))
        .map(|_| "can be sealed".to_owned())
        .map_err(|error| format!("cannot be sealed: {error}"))
}

fn segmentation() -> Result<String, String> {
    use nix::sys::socket::{setsockopt, sockopt};
    let tried = std::net::UdpSocket::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    setsockopt(&tried, sockopt::UdpGsoSegment, &1200).map_err(|error| error.to_string())?;
    setsockopt(&tried, sockopt::UdpGroSegment, &true).map_err(|error| error.to_string())?;
    Ok("sending and receiving".to_owned())
}

fn pseudo_terminals() -> Result<String, String> {
    use rustix::pty::{OpenptFlags, openpt, unlockpt};
    openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .and_then(unlockpt)
        .map(|()| "can be made".to_owned())
        .map_err(|error| format!("cannot be made: {error}"))
}

/// Tried on a child, as a rank is one.
fn system_calls() -> Result<String, String> {
    let mut sleeps = std::process::Command::new("sleep");
    let mut child =
        sleeps.arg("60").spawn().map_err(|error| format!("cannot be tried: {error}"))?;
    let read = fs::read_to_string(format!("/proc/{}/syscall", child.id()));
    let ended = child.kill().and_then(|()| child.wait());
    read.and(ended)
        .map(|_| "can be seen".to_owned())
        .map_err(|error| format!("cannot be seen: {error}"))
}

fn open_files() -> Result<String, String> {
    use nix::sys::resource::{Resource, getrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| error.to_string())?;
    let found = format!("at most {hard}");
    // While a job of 512 ranks starts, its daemon has twelve for each.
    if hard >= 8192 { Ok(found) } else { Err(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_says_something() {
        let checks = checks();
        assert!(checks.iter().any(|check| check.name.starts_with("control groups")));
        for controller in Controller::ALL {
            let name = format!("(controller {})", controller.name());
            assert!(checks.iter().any(|check| check.name.ends_with(&name)), "{name}");
        }
        for check in &checks {
            assert!(!check.found.is_empty() && !check.cost.is_empty() && !check.remedy.is_empty());
        }
        let memory = checks.iter().find(|check| check.name.contains("memfd")).unwrap();
        assert!(memory.ok, "{memory:?}");
        // As far as this machine's kernel is new enough.
        let sealed = checks.iter().find(|check| check.name.contains("new writers")).unwrap();
        assert!(sealed.ok, "{sealed:?}");
    }
}
