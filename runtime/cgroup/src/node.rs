//! The groups of a node: where they may be, and which controllers they have.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::folder::{get, may_write, set, while_gone};
use super::job::{JobGroups, JobLimits};
use super::mounts::{Controller, Hierarchies, VersionOneHierarchy};
use super::part::{Part, Version};
use super::unified::ControlGroup;

/// The group for the daemon itself, below one that a service manager delegated: a group whose children have controllers
/// may have no processes. The unit names it, too.
const LEAF: &str = "daemon";

/// What this process may do with the group that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonGroup {
    /// Move to a group below, if it is alone in it.
    Leave,
    /// Stay.
    Keep,
}

/// Who may have made the groups before, and who may open them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// A former life of this process may have made them. All may read them.
    Shared,
    /// The lower ones must be new, and no other user can open them. Those above them are root's alone if root makes them.
    Private,
}

impl Access {
    /// Makes the group below that of the name, which is made if need be.
    fn make(self, parent: &Part, names: &[String; 2]) -> io::Result<Part> {
        if self == Self::Private && nix::unistd::geteuid().is_root() {
            match DirBuilder::new().mode(0o700).create(parent.path.join(&names[0])) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        let above = parent.child(&names[0])?;
        let made = match self {
            Self::Shared => above.child(&names[1]),
            Self::Private => above.private_child(&names[1]),
        };
        made.inspect_err(|_| drop(fs::remove_dir(&above.path)))
    }

    /// Removes groups that are of no use. Those that may have been there before stay if they have groups in them.
    fn unmake(part: &Part) {
        let _others = fs::remove_dir(&part.path);
        ControlGroup::at(part.path.clone()).remove_empty_parent();
    }
}

/// Limits of all that runs on a node, and of all nodes of the cluster on this machine.
#[derive(Clone, Debug, Default)]
pub struct NodeLimits {
    /// Bytes of memory of all nodes here together.
    pub machine_memory: Option<u64>,
    /// Processes and threads of all nodes here together.
    pub machine_processes: Option<u64>,
    /// Bytes of memory of this node.
    pub memory: Option<u64>,
    /// The node's processors; none: all.
    pub processors: Vec<usize>,
}

/// The groups of a node. Dropping them does not remove them.
#[derive(Clone, Debug)]
pub struct NodeGroups {
    /// Version 2 first.
    pub(super) parts: Vec<Part>,
    missing: Vec<(Controller, String)>,
}

impl NodeGroups {
    /// Makes the groups `kumi-<cluster>/node-<i>`. In version 2 they are in the group that a service manager delegated,
    /// under the mount point or in this process's own group; in version 1 in its own group of each hierarchy.
    ///
    /// # Errors
    /// Why there is none of version 2, as a sentence for people.
    pub fn make(cluster: &str, node: impl Display, home: DaemonGroup) -> Result<Self, String> {
        let names = [format!("kumi-{cluster}"), format!("node-{node}")];
        Self::make_with(&names, Access::Shared, home, &Controller::ALL)
    }

    /// As [`NodeGroups::make`], with these names, the second below the first, and for these controllers only.
    pub(super) fn make_with(
        names: &[String; 2],
        access: Access,
        home: DaemonGroup,
        wanted: &[Controller],
    ) -> Result<Self, String> {
        let found = Hierarchies::read()?;
        let (main, mut missing) = unified(&found, names, (access, home), wanted)?;
        let mut parts = vec![main];
        for legacy in &found.legacy {
            let rest = legacy.controllers.iter().copied().filter(|&one| !parts[0].has(one));
            let rest: BTreeSet<_> = rest.filter(|one| wanted.contains(one)).collect();
            if rest.is_empty() {
                continue;
            }
            match of_version_1(legacy, rest.clone(), names, access) {
                Ok(part) => {
                    missing.retain(|(one, _)| !rest.contains(one));
                    parts.push(part);
                }
                Err(error) => {
                    let place = legacy.own.display();
                    let why = format!("{place} cannot be used: {error}");
                    missing.retain(|(one, _)| !rest.contains(one));
                    missing.extend(rest.iter().map(|&one| (one, why.clone())));
                }
            }
        }
        Ok(Self { parts, missing })
    }

    /// Makes them anew, without what a former life left in them.
    ///
    /// # Errors
    /// Why not, as a sentence for people.
    pub fn make_anew(cluster: &str, node: impl Display + Copy) -> Result<Self, String> {
        let old = Self::make(cluster, node, DaemonGroup::Leave)?;
        let left = |error: io::Error| {
            format!("{} cannot be cleaned: {error}", old.main().path().display())
        };
        old.destroy(Duration::from_secs(5)).map_err(left)?;
        Self::make(cluster, node, DaemonGroup::Leave)
    }

    /// Of these parts, none of which is missing.
    #[cfg(test)]
    pub(super) fn of(parts: Vec<Part>) -> Self {
        Self { parts, missing: Vec::new() }
    }

    /// The group of version 2.
    pub fn main(&self) -> ControlGroup {
        ControlGroup::at(self.parts[0].path.clone())
    }

    /// The folders of all of them, version 2 first.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.parts.iter().map(|part| part.path.clone()).collect()
    }

    /// Whether jobs here can be limited by it.
    pub fn has(&self, controller: Controller) -> bool {
        self.parts.iter().any(|part| part.has(controller))
    }

    /// The version of the hierarchy that has the controller, for people.
    pub fn version_of(&self, controller: Controller) -> &'static str {
        match self.parts.iter().find(|part| part.has(controller)).map(|part| part.version) {
            Some(Version::Two) => "by version 2",
            Some(Version::One) => "by version 1",
            None => "no",
        }
    }

    /// Controllers that jobs here do not have, and why.
    pub fn missing(&self) -> &[(Controller, String)] {
        &self.missing
    }

    /// Sets the limits of the node and of all nodes of the cluster here, as far as there are controllers. Returns what the
    /// system refused.
    #[must_use]
    pub fn bound(&self, limits: &NodeLimits) -> Vec<String> {
        let mut refused = Vec::new();
        let mut tried = |result: io::Result<()>| {
            if let Err(error) = result {
                refused.push(error.to_string());
            }
        };
        for node in &self.parts {
            let Some(cluster) = node.path.parent() else { continue };
            let cluster = Part { path: cluster.to_owned(), ..node.clone() };
            for (part, memory, processes) in [
                (&cluster, limits.machine_memory, limits.machine_processes),
                (node, limits.memory, None),
            ] {
                if let (true, Some(bytes)) = (part.has(Controller::Memory), memory) {
                    tried(part.set_memory(bytes));
                }
                if let (true, Some(most)) = (part.has(Controller::Pids), processes) {
                    tried(part.set_processes(most));
                }
            }
            if node.has(Controller::Cpuset) && !limits.processors.is_empty() {
                tried(node.set_processors(&limits.processors));
            }
        }
        refused
    }

    /// Bounds the memory of this process, and of what it starts outside of these groups, if it has a group of its own beside
    /// them.
    ///
    /// # Errors
    /// Why not, as a sentence for people.
    pub fn bound_daemon(&self, bytes: u64) -> Result<(), String> {
        let own = Hierarchies::read()?.own;
        let parent = self.parts[0].path.ancestors().nth(2);
        let leaf = parent.map(|parent| parent.join(LEAF)).filter(|leaf| own.as_ref() == Some(leaf));
        bound_leaf(leaf, bytes)
    }

    /// Makes the groups of a job, with its limits.
    ///
    /// # Errors
    /// When the system refuses, or a group of the name exists. Nothing is left then.
    pub fn job(&self, name: &str, limits: &JobLimits) -> io::Result<JobGroups> {
        JobGroups::make(&self.parts, name, limits)
    }

    /// Kills what is in them and removes them with all groups below, waiting at most `patience`.
    ///
    /// # Errors
    /// When something is left of them after that.
    pub fn destroy(&self, patience: Duration) -> io::Result<()> {
        let end = Instant::now() + patience;
        self.paths().into_iter().try_for_each(|path| {
            ControlGroup::at(path).destroy(end.saturating_duration_since(Instant::now()))
        })
    }

    /// Removes the cluster's groups above them, if this was the last node of it here.
    pub fn remove_empty_parents(&self) {
        self.paths().into_iter().for_each(|path| ControlGroup::at(path).remove_empty_parent());
    }
}

/// Bounds the memory of the daemon's own group.
fn bound_leaf(leaf: Option<PathBuf>, bytes: u64) -> Result<(), String> {
    let leaf =
        leaf.ok_or("no service manager has delegated a control group of version 2 to the daemon")?;
    set(&leaf, "memory.max", &bytes.to_string())
        .map_err(|error| format!("{} cannot be limited: {error}", leaf.display()))
}

/// The node's group of version 2 with its controllers, and those that it has not.
fn unified(
    found: &Hierarchies,
    names: &[String; 2],
    (access, home): (Access, DaemonGroup),
    wanted: &[Controller],
) -> Result<(Part, Vec<(Controller, String)>), String> {
    let mount = found.unified.as_deref().ok_or("cgroup v2 is not mounted")?;
    let own = found.own.as_deref().unwrap_or(mount);
    let delegated = delegated(mount, own, home);
    let mut reason = String::new();
    for parent in delegated.iter().map(PathBuf::as_path).chain([mount, own]) {
        let above = part_of_version_2(parent.to_owned());
        let made = while_gone(|| {
            let part = access.make(&above, names)?;
            ["cgroup.procs", "cgroup.freeze", "cgroup.kill"]
                .iter()
                .try_for_each(|file| may_write(&part.path, file))
                .inspect_err(|_| Access::unmake(&part))
        });
        match made {
            Ok(()) => return Ok(with_controllers(parent, names, wanted)),
            Err(error) => {
                let path = parent.join(&names[0]).join(&names[1]);
                reason = format!("{} cannot be used: {error}", path.display());
                if error.kind() == io::ErrorKind::AlreadyExists {
                    break;
                }
            }
        }
    }
    Err(reason)
}

/// A group of version 2 of which no controllers are known.
fn part_of_version_2(path: PathBuf) -> Part {
    Part { version: Version::Two, controllers: BTreeSet::new(), path }
}

/// The group that a service manager has delegated to this process: one in which it is alone.
fn delegated(mount: &Path, own: &Path, home: DaemonGroup) -> Option<PathBuf> {
    let part = part_of_version_2(own.to_owned());
    let this = i32::try_from(std::process::id()).ok()?;
    if own == mount || part.processes().ok()? != BTreeSet::from([this]) {
        return None;
    }
    if own.file_name().is_some_and(|name| name == LEAF) {
        return own.parent().map(Path::to_owned);
    }
    if home == DaemonGroup::Keep {
        return None;
    }
    let leaf = part.child(LEAF).ok()?;
    set(&leaf.path, "cgroup.procs", "0").ok()?;
    Some(own.to_owned())
}

/// Turns on what there is, all the way down to the node's children.
fn with_controllers(
    parent: &Path,
    names: &[String; 2],
    wanted: &[Controller],
) -> (Part, Vec<(Controller, String)>) {
    let available = get(parent, "cgroup.controllers").unwrap_or_default();
    let available = Controller::of_file(&available);
    let mut on = BTreeSet::new();
    let mut missing = Vec::new();
    let cluster = parent.join(&names[0]);
    let node = cluster.join(&names[1]);
    for &controller in wanted {
        if !available.contains(&controller) {
            missing.push((controller, not_there(controller, parent)));
            continue;
        }
        let enabled = [parent, &cluster, &node]
            .into_iter()
            .try_for_each(|folder| part_of_version_2(folder.to_owned()).enable(controller));
        match enabled {
            Ok(()) => drop(on.insert(controller)),
            Err(error) => missing.push((
                controller,
                format!("it cannot be turned on below {}: {error}", parent.display()),
            )),
        }
    }
    (Part { version: Version::Two, controllers: on, path: node }, missing)
}

fn not_there(controller: Controller, parent: &Path) -> String {
    match controller {
        Controller::Devices => {
            "version 2 has it for programs in the kernel only (eBPF), which Kumi does not load"
                .to_owned()
        }
        _ => format!("{} does not have it", parent.display()),
    }
}

fn of_version_1(
    legacy: &VersionOneHierarchy,
    controllers: BTreeSet<Controller>,
    names: &[String; 2],
    access: Access,
) -> io::Result<Part> {
    let own = Part { version: Version::One, controllers, path: legacy.own.clone() };
    while_gone(|| {
        let node = access.make(&own, names)?;
        node.usable().inspect_err(|_| Access::unmake(&node))?;
        Ok(node)
    })
}

/// The bound that the groups of this process set to its memory, in bytes, if they do.
pub fn memory_limit() -> Option<u64> {
    let found = Hierarchies::read().ok()?;
    let part = |version, path: &Path| Part {
        version,
        controllers: BTreeSet::new(),
        path: path.to_owned(),
    };
    let legacy = found.legacy.iter().filter(|one| one.controllers.contains(&Controller::Memory));
    let legacy = legacy.filter_map(|one| part(Version::One, &one.own).memory_limit(&one.mount));
    let unified = found.unified.as_ref().zip(found.own.as_ref());
    let unified = unified.and_then(|(mount, own)| part(Version::Two, own).memory_limit(mount));
    legacy.chain(unified).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).unwrap();
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
    }

    #[test]
    fn the_daemon_is_bounded_in_a_group_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let leaf = dir.path().join(LEAF);
        let error = bound_leaf(None, 7).unwrap_err();
        assert!(error.contains("no service manager"), "{error}");
        fs::create_dir(&leaf).unwrap();
        let error = bound_leaf(Some(leaf.clone()), 7).unwrap_err();
        assert!(error.contains("daemon cannot be limited: memory.max"), "{error}");
        write(&leaf, &[("memory.max", "")]);
        bound_leaf(Some(leaf.clone()), 300 << 20).unwrap();
        assert_eq!(get(&leaf, "memory.max").unwrap(), (300u64 << 20).to_string());
    }

    #[test]
    fn controllers_are_turned_on_from_the_parent_to_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["kumi-lab".to_owned(), "node-0".to_owned()];
        let cluster = dir.path().join("kumi-lab");
        let off = [("cgroup.subtree_control", "")];
        write(dir.path(), &[("cgroup.controllers", "cpu io memory\n")]);
        for folder in [dir.path(), &cluster, &cluster.join("node-0")] {
            write(folder, &off);
        }
        // A file takes one value only, so what was turned on last is seen.
        let (part, missing) = with_controllers(dir.path(), &names, &Controller::ALL);
        assert_eq!(part.path, cluster.join("node-0"));
        assert!(part.has(Controller::Memory) && part.has(Controller::Cpu));
        for folder in [dir.path(), &cluster, &part.path] {
            assert!(get(folder, "cgroup.subtree_control").unwrap().contains("+cpu"));
        }
        let why = |which| missing.iter().find(|(one, _)| *one == which).map(|(_, why)| why.clone());
        assert!(why(Controller::Pids).unwrap().contains("does not have it"));
        assert!(why(Controller::Devices).unwrap().contains("eBPF"));
        // As when a group has processes of its own.
        fs::remove_file(cluster.join("cgroup.subtree_control")).unwrap();
        let (part, missing) = with_controllers(dir.path(), &names, &Controller::ALL);
        assert!(part.controllers.is_empty());
        assert_eq!(missing.len(), Controller::ALL.len());
    }

    #[test]
    fn a_daemon_that_is_alone_moves_to_a_leaf() {
        let dir = tempfile::tempdir().unwrap();
        let (mount, own) = (dir.path(), dir.path().join("unit"));
        let this = std::process::id().to_string();
        write(&own, &[("cgroup.procs", &format!("{this}\n1\n"))]);
        assert_eq!(delegated(mount, &own, DaemonGroup::Leave), None, "not alone");
        write(&own, &[("cgroup.procs", &this)]);
        assert_eq!(delegated(mount, &own, DaemonGroup::Keep), None);
        assert_eq!(delegated(mount, mount, DaemonGroup::Leave), None);
        write(&own.join(LEAF), &[("cgroup.procs", "")]);
        assert_eq!(delegated(mount, &own, DaemonGroup::Leave).as_ref(), Some(&own));
        assert_eq!(get(&own.join(LEAF), "cgroup.procs").unwrap(), "0");
        // Started there, or moved before.
        write(&own.join(LEAF), &[("cgroup.procs", &this)]);
        assert_eq!(delegated(mount, &own.join(LEAF), DaemonGroup::Keep), Some(own));
    }

    #[test]
    fn groups_of_version_1_have_processors_before_anybody_joins() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[("cpuset.cpus", "0-3\n"), ("cpuset.mems", "0\n")]);
        let names = ["kumi-lab".to_owned(), "node-0".to_owned()];
        let cluster = dir.path().join("kumi-lab");
        let empty = [("cpuset.cpus", ""), ("cpuset.mems", ""), ("cgroup.procs", "")];
        write(&cluster.join("node-0"), &empty);
        write(&cluster, &empty);
        let legacy = VersionOneHierarchy {
            controllers: [Controller::Cpuset].into(),
            mount: dir.path().to_owned(),
            own: dir.path().to_owned(),
        };
        let part = of_version_1(&legacy, legacy.controllers.clone(), &names, Access::Shared);
        let part = part.unwrap();
        assert_eq!(get(&part.path, "cpuset.cpus").unwrap(), "0-3");
        assert_eq!(get(&cluster, "cpuset.mems").unwrap(), "0");
    }

    #[test]
    fn bounds_hold_for_the_node_and_for_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let (cluster, node) = (dir.path().join("kumi-lab"), dir.path().join("kumi-lab/node-0"));
        for folder in [&node, &cluster] {
            write(folder, &[("memory.max", ""), ("pids.max", ""), ("cpuset.cpus", "")]);
        }
        let controllers = [Controller::Memory, Controller::Pids, Controller::Cpuset].into();
        let part = Part { version: Version::Two, controllers, path: node.clone() };
        let groups = NodeGroups::of(vec![part]);
        let limits = NodeLimits {
            machine_memory: Some(9_000),
            machine_processes: Some(90),
            memory: Some(4_096),
            processors: vec![1],
        };
        assert_eq!(groups.bound(&limits), Vec::<String>::new());
        let of = |folder: &Path, file: &str| get(folder, file).unwrap();
        assert_eq!([of(&cluster, "memory.max"), of(&cluster, "pids.max")], ["9000", "90"]);
        assert_eq!([of(&node, "memory.max"), of(&node, "cpuset.cpus")], ["4096", "1"]);
        assert_eq!([of(&node, "pids.max"), of(&cluster, "cpuset.cpus")], ["", ""]);
        fs::remove_file(node.join("memory.max")).unwrap();
        assert_eq!(groups.bound(&limits).len(), 1);
    }
}
