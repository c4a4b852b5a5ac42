//! Cluster of the demonstration, which uses this command like a user.

use super::DemoError;
use kumi_node::exit::ExitCode;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::Command;

/// Time for a killed command to release the cluster.
const LET_GO: Duration = Duration::from_secs(10);

/// A cluster of its own name in a temporary directory; taken down when dropped.
pub struct DemoCluster {
    kumi: PathBuf,
    name: String,
    directory: TempDir,
    up: bool,
}

impl DemoCluster {
    /// Chooses name and directory; nothing runs yet.
    ///
    /// # Errors
    /// The temporary directory cannot be made, or the path of this command is unknown.
    pub fn new() -> Result<Self, DemoError> {
        let kumi = std::env::current_exe()
            .map_err(|source| DemoError::Start { what: "kumi".to_owned(), source })?;
        let directory = tempfile::Builder::new()
            .prefix("kumi-demo-")
            .tempdir()
            .map_err(DemoError::TemporaryDirectory)?;
        Ok(Self { kumi, name: format!("demo-{}", std::process::id()), directory, up: false })
    }

    /// Expected place of the example programs: beside this command.
    pub fn program(&self, name: &str) -> Result<PathBuf, DemoError> {
        let path = self.kumi.with_file_name(name);
        if path.is_file() { Ok(path) } else { Err(DemoError::ProgramMissing(path)) }
    }

    /// Brings `nodes` nodes up and waits until all are attached.
    ///
    /// # Errors
    /// The error of `kumi cluster up`.
    pub async fn up(&mut self, nodes: u32) -> Result<(), DemoError> {
        // Set first, so that a failed attempt is cleaned up too.
        self.up = true;
        self.call(&["cluster", "up", "--local", &nodes.to_string()]).await.map(drop)
    }

    /// Runs `kumi` with these arguments on this cluster and returns its standard output.
    ///
    /// # Errors
    /// It cannot be run, or exits with a code other than 0; the error has its message.
    pub fn call(&self, args: &[&str]) -> impl Future<Output = Result<String, DemoError>> + use<> {
        let shown = args.join(" ");
        let mut command = Command::new(&self.kumi);
        command.args(args).stdin(Stdio::null()).kill_on_drop(true);
        command.env("KUMI_DIR", self.path()).env("KUMI_CLUSTER", &self.name);
        async move {
            let output = command
                .output()
                .await
                .map_err(|source| DemoError::Start { what: format!("kumi {shown}"), source })?;
            check(shown, &output)?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Takes the cluster down and removes everything of it.
    ///
    /// # Errors
    /// The error of `kumi cluster destroy`.
    pub fn down(&mut self) -> Result<(), DemoError> {
        if !self.up {
            return Ok(());
        }
        let shown = "cluster destroy".to_owned();
        let begin = Instant::now();
        let output = loop {
            let output = std::process::Command::new(&self.kumi)
                .args(["cluster", "destroy", "--yes"])
                .stdin(Stdio::null())
                .env("KUMI_DIR", self.path())
                .env("KUMI_CLUSTER", &self.name)
                .output()
                .map_err(|source| DemoError::Start { what: shown.clone(), source })?;
            // An interrupted `cluster up` was killed, and releases the cluster in a moment.
            let busy = output.status.code() == Some(ExitCode::Exists.code().into());
            if !busy || begin.elapsed() > LET_GO {
                break output;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        check(shown, &output)?;
        self.up = false;
        Ok(())
    }
}

/// Turns the failure of a command into an error with its message.
fn check(shown: String, output: &Output) -> Result<(), DemoError> {
    if output.status.success() {
        return Ok(());
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let mut said = text(&output.stderr);
    if said.is_empty() {
        said = text(&output.stdout);
    }
    Err(DemoError::Command { shown, status: output.status, said })
}

impl Drop for DemoCluster {
    fn drop(&mut self) {
        if let Err(error) = self.down() {
            eprintln!("kumi: {error}");
        }
    }
}
