//! The tutorials in docs/start, run from top to bottom as a reader does: as this user, and as root also as `nobody`.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{PATIENCE, RunningCommand};
use kumi_tests::tutorial::{Block, blocks};
use kumi_tests::{binaries, machine};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The words in a page by which a section needs the Python package.
const PYTHON: &str = "target/python/venv/bin/python";

/// The user that a reader without rights is.
const NOBODY: u32 = 65534;

/// A shell in a folder that looks like a checkout after `make build`.
struct Reader {
    shell: RunningCommand,
    script: File,
    folder: TempDir,
    cluster: TestCluster,
    /// How many bytes of the output were compared already.
    seen: usize,
}

impl Reader {
    /// Begins to read, as `nobody` if that is wanted.
    fn new(nobody: bool, venv: Option<&Path>) -> Self {
        let cluster = TestCluster::prepare();
        let folder = tempfile::Builder::new().prefix("kumi-start-").tempdir().expect("a folder");
        checkout(folder.path(), venv);
        let (script, output) = (folder.path().join("script"), folder.path().join("output"));
        nix::unistd::mkfifo(&script, nix::sys::stat::Mode::S_IRWXU).expect("a pipe with a name");
        if nobody {
            for path in [folder.path(), &folder.path().join("tmp"), &script, cluster.state()] {
                let id = Some(NOBODY);
                std::os::unix::fs::chown(path, id, id).expect("root may give files away");
            }
        }
        let line = format!("exec sh {} > {} 2>&1 < /dev/null", script.display(), output.display());
        let mut command = shell(&line, nobody);
        command.current_dir(folder.path()).process_group(0);
        command.env("KUMI_DIR", cluster.state()).env("KUMI_CLUSTER", cluster.name());
        command.env("TMPDIR", folder.path().join("tmp")).env("HOME", folder.path());
        for name in ["KUMI_PYTHON", "KUMI_BIN_DIR", "KUMI_CALL_SERVER", "KUMI_CALL_META"] {
            command.env_remove(name);
        }
        let mut shell = RunningCommand::start(command);
        // Opening waits for the shell, which must not have ended before.
        let script = open_when_read(&script, &mut shell);
        let mut reader = Self { shell, script, folder, cluster, seen: 0 };
        reader.say("set -e\n");
        reader
    }

    fn say(&mut self, text: &str) {
        self.script.write_all(text.as_bytes()).expect("the shell reads its script");
    }

    /// What has been printed since the last comparison, with the cluster's name as a reader sees it.
    fn printed(&self) -> String {
        let all = fs::read(self.folder.path().join("output")).expect("the output");
        let text = String::from_utf8_lossy(&all[self.seen..]).into_owned();
        let name = self.cluster.name();
        text.replace(&format!("--cluster {name} "), "").replace(name, "default")
    }

    /// Follows one block of the page.
    fn follow(&mut self, page: &str, block: &Block) {
        let (text, line, expected) = match block {
            Block::File { name, text } => {
                let place = format!("cat > {name} <<'END OF FILE'\n{text}END OF FILE\n");
                return self.say(&place);
            }
            Block::Commands { text, line, printed } => (text, line, printed),
        };
        let end = format!("end of the commands of line {line}\n");
        self.say(&format!("{text}echo {end}"));
        let begin = Instant::now();
        loop {
            let printed = self.printed();
            let over = printed.contains(&end);
            let printed = printed.replace(&end, "");
            // What runs in the background may print later.
            if over && expected.fits(&printed) {
                break;
            }
            let lost = !over && !self.shell.runs();
            let late = begin.elapsed() > PATIENCE;
            let different = over && !text.contains("&\n");
            if lost || late || different {
                panic!("{page}:{line}: {text}the page says:\n{expected:?}\nprinted:\n{printed}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let length = fs::metadata(self.folder.path().join("output")).expect("the output").len();
        self.seen = usize::try_from(length).expect("little text");
    }

    /// Ends the shell, which leaves nothing behind.
    fn end(mut self) {
        self.say("exit 0\n");
        let begin = Instant::now();
        while self.shell.runs() {
            assert!(begin.elapsed() < PATIENCE, "the shell does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(self.cluster.traces(), Vec::<String>::new(), "the page leaves something");
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _as_far_as_it_is_up =
                self.cluster.command(&["cluster", "destroy", "--yes"]).output();
        }
        let group = i32::try_from(self.shell.pid()).expect("a process number");
        let group = nix::unistd::Pid::from_raw(group);
        // What a page that failed has left in the background.
        let _all_gone = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
    }
}

/// A shell that runs `line`: in a network of its own if it may be, since servers listen on the ports that the page names.
fn shell(line: &str, nobody: bool) -> Command {
    let user = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups ");
    let user = if nobody { user.as_str() } else { "" };
    let mut command = Command::new(if machine::has_namespaces() { "unshare" } else { "sh" });
    if machine::has_namespaces() {
        command.args(["--net", "sh"]);
        command.args(["-c", &format!("ip link set lo up && exec {user}sh -c '{line}'")]);
    } else {
        command.args(["-c", line]);
    }
    command
}

/// What of a checkout the pages use.
fn checkout(folder: &Path, venv: Option<&Path>) {
    fs::create_dir_all(folder.join("target/python")).expect("a folder");
    fs::create_dir(folder.join("tmp")).expect("a folder");
    let release = folder.join("target/release");
    symlink(binaries::directory(), &release).expect("a link");
    if let Some(venv) = venv {
        symlink(venv, folder.join("target/python/venv")).expect("a link");
    }
    for binding in ["bindings/c", "bindings/grpc"] {
        let mut make = Command::new("make");
        make.arg("-C").arg(binaries::repository().join(binding)).arg("--silent").arg("pc");
        make.arg(format!("OUT={}", binaries::directory().display()));
        assert!(
            make.status().expect("make runs").success(),
            "{binding} has no file for pkg-config"
        );
    }
}

fn open_when_read(path: &Path, shell: &mut RunningCommand) -> File {
    let begin = Instant::now();
    loop {
        // Without a reader this is refused instead of waiting.
        let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
        match OpenOptions::new().write(true).custom_flags(flags).open(path) {
            Ok(file) => return file,
            Err(error) => assert!(shell.runs() && begin.elapsed() < PATIENCE, "no shell: {error}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The environment with the package: that of `$KUMI_PYTHON`, or the one that `make python` makes.
fn environment() -> Option<PathBuf> {
    let python = match std::env::var_os("KUMI_PYTHON") {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe().ok()?.ancestors().nth(3)?.join("python/venv/bin/python"),
    };
    python.is_file().then(|| python.ancestors().nth(2).map(Path::to_owned))?
}

/// Reads a page from top to bottom.
fn follow(page: &str, nobody: bool, venv: Option<&Path>) {
    let text = fs::read_to_string(binaries::repository().join("docs/start").join(page));
    let text = text.expect("the page");
    let without = if venv.is_some() { None } else { Some(PYTHON) };
    let mut reader = Reader::new(nobody, venv);
    for block in blocks(&text, without) {
        reader.follow(page, &block);
    }
    reader.end();
}

/// Whether `nobody` can execute a program.
fn nobody_can_use(program: &Path) -> bool {
    let mut command = Command::new("setpriv");
    let id = NOBODY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "test", "-x"]).arg(program);
    command.status().is_ok_and(|status| status.success())
}

fn follow_as_all(page: &str) {
    let venv = environment();
    if venv.is_none() {
        kumi_skip::skip(page, "the sections in Python: run `make python` first");
    }
    follow(page, false, venv.as_deref());
    if !machine::has_namespaces() {
        kumi_skip::skip(page, "as another user: that needs root and network namespaces");
        return;
    }
    if !nobody_can_use(&binaries::path("kumi")) {
        kumi_skip::impossible(page, "as `nobody`, who cannot reach the folder of the build");
        return;
    }
    let venv = venv.filter(|venv| nobody_can_use(&venv.join("bin/python")));
    follow(page, true, venv.as_deref());
}

#[test]
fn the_first_cluster() {
    follow_as_all("cluster.md");
}

#[test]
fn the_first_program() {
    follow_as_all("program.md");
}

#[test]
fn the_first_call() {
    follow_as_all("call.md");
}

#[test]
fn the_first_simulation() {
    follow_as_all("simulation.md");
}
