//! The packages for Debian, as `make deb` makes them, from the programs under test.
#![forbid(unsafe_code)]

use kumi_tests::binaries::{self, repository};
use kumi_tests::{command, machine};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The packages, unpacked into one folder as an installation would.
struct Packages {
    folder: PathBuf,
    fields: BTreeMap<String, String>,
}

impl Packages {
    /// Made once for all tests; none where there are no tools of Debian.
    fn of_this_build(test: &str) -> Option<&'static Self> {
        static PACKAGES: OnceLock<Packages> = OnceLock::new();
        for tool in ["dpkg-deb", "dpkg-shlibdeps"] {
            if !machine::has_command(tool) {
                kumi_skip::skip(test, &format!("{tool} is not installed"));
                return None;
            }
        }
        Some(PACKAGES.get_or_init(Self::make))
    }

    fn make() -> Self {
        // It is as large as all programs, and nothing drops it: so one is there at most, among what cargo removes.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{folder:?}: {error}"),
            _ => fs::create_dir_all(&folder).expect("a folder"),
        }
        let place = |name: &str| folder.join(name);
        for (what, to) in [("man", "man"), ("completions", "completions")] {
            let mut docs = Command::new(binaries::path("kumi-docs"));
            docs.arg(what).arg(place(to));
            command::run(docs).ok();
        }
        let mut build = Command::new(repository().join("packaging/deb/build"));
        build.arg(binaries::directory()).args(["man", "completions", "out"].map(place));
        // Programs with what debuggers need are large.
        build.env("DPKG_DEB_COMPRESSOR_TYPE", "none");
        let built = command::run(build).ok().out;
        let mut fields = BTreeMap::new();
        for package in built.lines() {
            let mut unpack = Command::new("dpkg-deb");
            unpack.args(["-x", package]).arg(place("root"));
            command::run(unpack).ok();
            let mut ask = Command::new("dpkg-deb");
            ask.args(["-f", package]);
            let said = command::run(ask).ok().out;
            let name = said.lines().find_map(|line| line.strip_prefix("Package: "));
            let name = name.expect("a name").to_owned();
            let mut scripts = Command::new("dpkg-deb");
            scripts.args(["-e", package]).arg(place(&format!("{name}-control")));
            command::run(scripts).ok();
            fields.insert(name, said);
        }
        Self { folder, fields }
    }

    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// A file of the installation.
    fn text(&self, path: &str) -> String {
        let path = self.root().join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// A maintainer's script; empty if the package has none of this name.
    fn script(&self, package: &str, name: &str) -> String {
        let path = self.folder.join(format!("{package}-control")).join(name);
        fs::read_to_string(path).unwrap_or_default()
    }
}

#[test]
fn everything_is_in_its_place() {
    let Some(packages) = Packages::of_this_build("everything_is_in_its_place") else { return };
    let root = packages.root();
    for program in ["kumi", "kumid", "kumi-call-slot", "kumi-pmi-server"] {
        let mode = fs::metadata(root.join("usr/bin").join(program)).expect(program).mode();
        assert_eq!(mode & 0o7777, 0o755, "{program}");
    }
    for file in [
        "usr/lib/kumi/fabric/libkumi-fi.so",
        "usr/lib/systemd/system/kumid-head.service",
        "usr/lib/systemd/system/kumid-node@.service",
        "usr/lib/tmpfiles.d/kumid.conf",
        "etc/default/kumid",
        "usr/share/man/man1/kumi.1.gz",
        "usr/share/man/man1/kumi-cluster-init.1.gz",
        "usr/share/man/man8/kumid.8.gz",
        "usr/share/bash-completion/completions/kumi",
        "usr/share/zsh/vendor-completions/_kumi",
        "usr/share/fish/vendor_completions.d/kumi.fish",
        "usr/include/kumi.h",
        "usr/include/kumi.hpp",
        "usr/share/doc/kumi/copyright",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    let mut version = Command::new(root.join("usr/bin/kumi"));
    version.arg("--version");
    let version = command::run(version).ok().out.trim().replace("kumi ", "");
    assert_eq!(packages.fields.keys().collect::<Vec<_>>(), ["kumi", "kumid", "libkumi"]);
    for fields in packages.fields.values() {
        let says = format!("Version: {}\n", version.split(' ').next().unwrap_or_default());
        assert!(fields.contains(&says), "{says}{fields}");
        assert!(fields.contains("Depends: ") && fields.contains("libc6 (>="), "{fields}");
    }
    assert!(packages.fields["kumid"].contains(", kumi (= "), "{}", packages.fields["kumid"]);
}

#[test]
fn programs_find_the_installed_library() {
    const TEST: &str = "programs_find_the_installed_library";
    let Some(packages) = Packages::of_this_build(TEST) else { return };
    let libraries = packages.root().join("usr/lib");
    let found: Vec<PathBuf> = fs::read_dir(&libraries)
        .expect("usr/lib")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("libkumi.so.0").exists())
        .collect();
    let [folder] = &found[..] else { panic!("{found:?}") };
    let description = fs::read_to_string(folder.join("pkgconfig/kumi.pc")).expect("kumi.pc");
    let told = format!("/usr/lib/{}", folder.file_name().expect("a name").display());
    assert!(description.contains(&told), "{told}: {description}");
    assert!(description.contains("/usr/include"), "{description}");
    assert_eq!(packages.script("libkumi", "triggers"), "activate-noawait ldconfig\n");
}

/// What an upgrade runs may not end jobs: only the administrator restarts a node.
#[test]
fn an_upgrade_restarts_nothing() {
    let Some(packages) = Packages::of_this_build("an_upgrade_restarts_nothing") else { return };
    for package in ["kumi", "kumid", "libkumi"] {
        for name in ["preinst", "postinst", "prerm", "postrm"] {
            let script = packages.script(package, name);
            let commands = script.lines().map(str::trim).filter(|line| !line.starts_with('#'));
            for line in commands.filter(|line| line.starts_with("systemctl")) {
                let reload = line == "systemctl --system daemon-reload";
                let stop = name == "prerm" && line.starts_with("systemctl stop");
                assert!(reload || stop, "{package} {name}: {line}");
            }
        }
    }
    let before_removal = packages.script("kumid", "prerm");
    assert!(before_removal.contains(r#"if [ "$1" = remove ] &&"#), "{before_removal}");
    assert_eq!(packages.script("kumid", "conffiles"), "/etc/default/kumid\n");
    for unit in ["kumid-head.service", "kumid-node@.service"] {
        let text = packages.text(&format!("usr/lib/systemd/system/{unit}"));
        assert!(text.contains("\nType=notify\n"), "{text}");
        assert!(text.contains("\nEnvironmentFile=-/etc/default/kumid\n"), "{text}");
    }
}

/// The values of a key in a unit of the sources.
fn values(unit: &str, key: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join("packaging").join(unit)).expect("a unit");
    let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    lines.map(str::to_owned).collect()
}

/// What keeps ranks while a node's daemon is started again is its children, and so in the control group of its unit.
#[test]
fn a_restart_of_a_nodes_unit_ends_nothing_but_its_daemon() {
    let node = |key| values("kumid-node@.service", key);
    // Any other value has systemd kill keepers, ranks and the watcher at the end of the daemon, ...
    assert_eq!(node("KillMode"), ["process"]);
    // ... or when the kernel has ended one process of a job for its memory.
    assert_eq!(node("OOMPolicy"), ["continue"]);
    // It makes the groups of jobs there itself, and they outlive it.
    assert_eq!(node("Delegate"), ["yes"]);
    // The daemon can end in this time, and a new one is there long before keepers give up.
    let seconds = |key| node(key).concat().parse::<u32>().expect("a number");
    assert!(seconds("TimeoutStopSec") + seconds("RestartSec") < 60);
    assert!(node("ExecStop").is_empty() && node("ExecStopPost").is_empty());
}

#[test]
fn systemd_understands_the_units() {
    const TEST: &str = "systemd_understands_the_units";
    let Some(packages) = Packages::of_this_build(TEST) else { return };
    if !machine::has_command("systemd-analyze") {
        return kumi_skip::skip(TEST, "systemd-analyze is not installed");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let installed = packages.root().join("usr/bin/kumid").display().to_string();
    for unit in ["kumid-head.service", "kumid-node@.service"] {
        let text = packages.text(&format!("usr/lib/systemd/system/{unit}"));
        // The programs are not in /usr/bin here.
        let text = text.replace("/usr/bin/kumid", &installed);
        let path = folder.path().join(unit.replace("@.", "@0."));
        fs::write(&path, text).expect("our folder");
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no"]).arg(&path);
        let done = command::run(verify);
        let name = path.display().to_string();
        // Other units of the machine may have faults of their own, and older versions do not know all keys.
        let own = done.err.lines().filter(|line| line.contains(&name));
        let faults: Vec<&str> = own.filter(|line| !line.contains("DelegateSubgroup")).collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}

/// After a loss of power the numbers in these files may be those of other processes.
#[test]
fn a_boot_removes_what_daemons_left() {
    const TEST: &str = "a_boot_removes_what_daemons_left";
    let Some(packages) = Packages::of_this_build(TEST) else { return };
    if !machine::is_root() || !machine::has_command("systemd-tmpfiles") {
        return kumi_skip::skip(TEST, "needs root and systemd-tmpfiles");
    }
    let root = tempfile::tempdir().expect("a folder");
    let cluster = root.path().join("var/lib/kumi/default");
    fs::create_dir_all(&cluster).expect("our folder");
    let stale = ["head.pid", "node-0.pid", "head.sock", "node-0.sock"];
    let kept = ["cluster.toml", "head.db"];
    for name in stale.iter().chain(&kept) {
        fs::write(cluster.join(name), "").expect("our folder");
    }
    let rules = root.path().join("usr/lib/tmpfiles.d");
    fs::create_dir_all(&rules).expect("our folder");
    fs::write(rules.join("kumid.conf"), packages.text("usr/lib/tmpfiles.d/kumid.conf"))
        .expect("our folder");
    let tidy = |options: &[&str]| {
        let mut tmpfiles = Command::new("systemd-tmpfiles");
        let own = format!("--root={}", root.path().display());
        tmpfiles.arg(own).args(["--create", "--remove"]).args(options).arg("kumid.conf");
        command::run(tmpfiles).ok();
    };
    let left = || -> Vec<&str> {
        stale.iter().chain(&kept).copied().filter(|name| cluster.join(name).exists()).collect()
    };
    tidy(&[]);
    assert_eq!(left().len(), stale.len() + kept.len(), "only a boot removes anything");
    tidy(&["--boot"]);
    assert_eq!(left(), kept);
    let mode = fs::metadata(Path::new(&cluster).parent().expect("it")).expect("it").permissions();
    assert_eq!(mode.mode() & 0o7777, 0o755);
}
