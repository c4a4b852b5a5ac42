//! Server processes of benchmarks: servers and metaservers that run until they are ended.

use super::cluster;
use crate::error::BenchError;
use crate::interrupt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process that has printed its address; ended when this is dropped.
pub(super) struct Process {
    child: Child,
    /// Its address.
    pub(super) address: String,
}

impl Process {
    /// Starts a process, and waits until it prints its address.
    pub(super) fn start(mut command: Command) -> Result<Self, BenchError> {
        let what = format!("{command:?}");
        let started = interrupt::start_server(command.stdin(Stdio::null()).stderr(Stdio::piped()));
        let mut child =
            started.map_err(|source| BenchError::Start { what: what.clone(), source })?;
        let mut said = String::new();
        let Some(stderr) = child.stderr.take() else {
            return Err(BenchError::Missing(PathBuf::from("standard error")));
        };
        let mut process = Self { child, address: String::new() };
        let mut lines = BufReader::new(stderr);
        loop {
            let mut line = String::new();
            let read = lines.read_line(&mut line);
            said.push_str(&line);
            let tells = line.contains("serves ") || line.contains("metaserver (");
            if let Some((_, at)) = line.trim().rsplit_once(" at ").filter(|_| tells) {
                at.clone_into(&mut process.address);
                // Its later output is for the reader of the benchmark's.
                std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
                return Ok(process);
            }
            if !matches!(read, Ok(count) if count > 0) {
                return Err(BenchError::Output {
                    wanted: "where it listens".to_owned(),
                    what,
                    output: said,
                });
            }
        }
    }

    /// A metaserver with these arguments, of which the first is its address.
    pub(super) fn metaserver(args: &[&str]) -> Result<Self, BenchError> {
        let mut command = Command::new(cluster::program("kumi")?);
        command.args(["call", "meta", "--listen", "127.0.0.1:0"]).args(args);
        Self::start(command)
    }

    fn proc(&self, file: &str) -> Result<(PathBuf, String), BenchError> {
        let path = Path::new("/proc").join(self.child.id().to_string()).join(file);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok((path, text)),
            Err(source) => Err(BenchError::File { path, source }),
        }
    }

    /// Peak memory in megabytes.
    pub(super) fn memory_mb(&self) -> Result<f64, BenchError> {
        let (path, text) = self.proc("status")?;
        let most = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = most.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
        kib.map(|kib| kib * 1024.0 / 1e6).ok_or_else(|| BenchError::Output {
            wanted: "VmHWM".to_owned(),
            what: path.display().to_string(),
            output: text,
        })
    }

    /// Processor time in seconds.
    pub(super) fn processor_s(&self) -> Result<f64, BenchError> {
        let (path, text) = self.proc("stat")?;
        // Behind the name in parentheses: state, ten numbers, then user time and system time in hundredths of
        // a second.
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: Vec<f64> =
            fields.skip(11).take(2).filter_map(|tick| tick.parse().ok()).collect();
        match ticks[..] {
            [user, system] => Ok((user + system) / 100.0),
            _ => Err(BenchError::Output {
                wanted: "times on processors".to_owned(),
                what: path.display().to_string(),
                output: text,
            }),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        interrupt::end_server(&mut self.child);
    }
}

/// Compiles routines from C into a folder. Returns the arguments for `kumi call serve`.
pub(super) fn routines(
    folder: &Path,
    name: &str,
    code: &str,
    descriptions: &str,
) -> Result<[PathBuf; 3], BenchError> {
    let path = |kind: &str| folder.join(format!("{name}.{kind}"));
    let (source, idl) = (path("c"), path("idl"));
    for (path, text) in [(&source, code), (&idl, descriptions)] {
        let failed = |source| BenchError::File { path: path.clone(), source };
        std::fs::write(path, text).map_err(failed)?;
    }
    let library = folder.join(format!("lib{name}.so"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-lm");
    cluster::output(&mut compiler)?;
    Ok(["--library".into(), library, idl])
}
