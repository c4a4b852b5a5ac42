//! The hierarchies of control groups that the mount table names, and this process's own place in each.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Part of the kernel that limits or shares something by control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Memory.
    Memory,
    /// Number of processes and threads.
    Pids,
    /// Shares of processor time.
    Cpu,
    /// Which processors.
    Cpuset,
    /// Files of devices; version 1 only.
    Devices,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Memory, Self::Pids, Self::Cpu, Self::Cpuset, Self::Devices];

    /// The kernel's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Cpuset => "cpuset",
            Self::Devices => "devices",
        }
    }

    fn listed(names: &str, separator: char) -> BTreeSet<Self> {
        let named = |name: &str| Self::ALL.into_iter().find(|one| one.name() == name);
        names.trim().split(separator).filter_map(named).collect()
    }

    /// Those that a file of version 2 lists.
    pub(super) fn of_file(text: &str) -> BTreeSet<Self> {
        Self::listed(text, ' ')
    }
}

/// A hierarchy of version 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VersionOneHierarchy {
    /// What it controls, of what is of use here.
    pub(super) controllers: BTreeSet<Controller>,
    /// Where it is mounted.
    pub(super) mount: PathBuf,
    /// The folder of this process's own group.
    pub(super) own: PathBuf,
}

/// All hierarchies of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hierarchies {
    /// Mount point of version 2.
    pub(super) unified: Option<PathBuf>,
    /// The folder of this process's own group of version 2.
    pub(super) own: Option<PathBuf>,
    pub(super) legacy: Vec<VersionOneHierarchy>,
}

impl Hierarchies {
    /// Of this process.
    pub(super) fn read() -> Result<Self, String> {
        let text = |path: &str| {
            fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"))
        };
        Ok(Self::parse(&text("/proc/self/mountinfo")?, &text("/proc/self/cgroup")?))
    }

    /// From the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`.
    pub(super) fn parse(mountinfo: &str, own: &str) -> Self {
        let unified = mount_point(mountinfo);
        let own_unified = own.lines().find_map(|line| line.strip_prefix("0::/"));
        let own_folder = unified.as_ref().map(|mount| below(mount, own_unified.unwrap_or("")));
        let mut found = Self { unified, own: own_folder, legacy: Vec::new() };
        for mount in mountinfo.lines().filter_map(Mount::of) {
            let controllers = match mount.kind {
                "cgroup" => Controller::listed(mount.options, ','),
                _ => continue,
            };
            // Some mount a hierarchy twice; the first is as good.
            let known =
                found.legacy.iter().any(|legacy| !legacy.controllers.is_disjoint(&controllers));
            if controllers.is_empty() || known {
                continue;
            }
            let of_line = |line: &str| {
                let (_, rest) = line.split_once(':')?;
                let (names, path) = rest.split_once(':')?;
                let ours = !Controller::listed(names, ',').is_disjoint(&controllers);
                ours.then(|| path.to_owned())
            };
            let Some(path) = own.lines().find_map(of_line) else { continue };
            let root = unescape(mount.root);
            let inner = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
            let point = PathBuf::from(unescape(mount.point));
            let own = below(&point, inner.trim_start_matches('/'));
            found.legacy.push(VersionOneHierarchy { controllers, mount: point, own });
        }
        found
    }
}

fn below(mount: &Path, path: &str) -> PathBuf {
    match path.trim_end_matches('/') {
        "" => mount.to_owned(),
        path => mount.join(path),
    }
}

/// Mount points of all hierarchies, according to the text of `/proc/self/mountinfo`: version 2 first.
pub fn mount_points(mountinfo: &str) -> Vec<PathBuf> {
    let mounts = mountinfo.lines().filter_map(Mount::of);
    let legacy = mounts.filter(|mount| mount.kind == "cgroup");
    let legacy = legacy.map(|mount| PathBuf::from(unescape(mount.point)));
    mount_point(mountinfo).into_iter().chain(legacy).collect()
}

/// Where version 2 is mounted, according to the text of `/proc/self/mountinfo`. A bind mount of some inner group is not the
/// hierarchy.
pub fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    let mut mounts = mountinfo.lines().filter_map(Mount::of);
    let found = mounts.find(|mount| mount.kind == "cgroup2" && mount.root == "/");
    found.map(|mount| PathBuf::from(unescape(mount.point)))
}

/// A line of the mount table.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut fields = after.split(' ');
        let kind = fields.next()?;
        Some(Self { root, point, kind, options: fields.nth(1).unwrap_or("") })
    }
}

/// Undoes the octal escapes of the mount table.
fn unescape(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut rest = field;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        match after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                text.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                text.push('\\');
                rest = after;
            }
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        33 31 0:30 /docker/7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        34 31 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
        35 31 0:30 / /mnt rw - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw shared:3 - cgroup2 cgroup2 rw\n";

    #[test]
    fn finds_version_2_wherever_it_is() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mount_point(unified), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(mount_point(HYBRID), Some(PathBuf::from("/sys/fs/cgroup/uni fied")));
        let bound = "41 31 0:38 /inner /mnt rw - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(bound), None);
        assert_eq!(mount_point("nonsense\n1 2 - cgroup2\n"), None);
    }

    #[test]
    fn hierarchies_of_version_1_are_found_with_the_processes_own_place() {
        let own = "4:memory:/docker/7/x\n1:cpu,cpuacct:/\n2:name=systemd:/a\n0::/b/c\n";
        let found = Hierarchies::parse(HYBRID, own);
        assert_eq!(found.own, Some(PathBuf::from("/sys/fs/cgroup/uni fied/b/c")));
        let of = |controller| {
            let mut all = found.legacy.iter().filter(|one| one.controllers.contains(&controller));
            let first = all.next().map(|one| one.own.to_str().unwrap().to_owned());
            assert!(all.next().is_none());
            first
        };
        assert_eq!(of(Controller::Cpu).as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(of(Controller::Memory).as_deref(), Some("/sys/fs/cgroup/memory/x"));
        assert_eq!((of(Controller::Pids), found.legacy.len()), (None, 2));
        let points = mount_points(HYBRID);
        assert_eq!(points[0], PathBuf::from("/sys/fs/cgroup/uni fied"));
        assert!(points.contains(&PathBuf::from("/mnt")) && points.len() == 5);
    }

    #[test]
    fn escapes_of_the_mount_table() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
        assert_eq!(unescape("/a\\9"), "/a\\9");
        assert_eq!(unescape("/plain"), "/plain");
    }
}
