//! `kumi run`: submits a job and follows it to its end.

mod args;
mod elf;
mod input;
pub mod job_file;
mod lines;
mod mpi;
pub mod program;
mod resources;
pub mod script_options;
pub mod session;
mod writer;

use crate::cli::OnOff;
use crate::context::Context;
use crate::error::Error;
use crate::output;
use crate::parse::{self, AfterJobs};
use crate::terminal::JobTerminal;
pub use args::{JobArgs, RunArgs};
use kumi_control::batch::BatchOptions;
use kumi_control::deadlock::{DEADLOCK_GRACE_MS, ON_DEADLOCK, OnDeadlock};
use kumi_control::message::{JobRequest, WindowSize};
use kumi_node::config::{HANDLER, check_handler};
use kumi_node::job::traces::{self, TRACE};
pub use mpi::{FabricChoice, MpiChoice};
use program::JobProgram;
pub use resources::{Bind, ResourceArgs};
use session::{Session, Start};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Runs the command.
pub async fn run(context: &Context, args: RunArgs) -> Result<(), Error> {
    let terminal = args.terminal.then(|| JobTerminal::new(&args.shown)).transpose()?;
    let client = context.connect().await?;
    let size = terminal.as_ref().map(JobTerminal::size);
    let program = JobProgram::to_run(args.program.command)?;
    let request = request(context, args.job, program, size)?;
    // What it has is lost, so only now.
    let file = args.output.as_deref().map(create).transpose()?;
    // What a first start has read of its input, a second one cannot read again.
    let has_input = request.batch.requeues == 0;
    let mut session = Session::new(context, Start::Submit(Box::new(request)), args.label)?;
    if has_input {
        session.take_input();
    }
    if let Some(file) = file {
        session.write_to(file);
    }
    if let Some(terminal) = terminal {
        session.show(terminal);
    }
    if args.kill {
        session.kill_at_once();
    }
    session.run(client).await
}

/// The file that gets the output, empty.
fn create(path: &Path) -> Result<File, Error> {
    let failed = |source| Error::File { doing: "write", path: path.to_owned(), source };
    File::create(path).map_err(failed)
}

/// The request for a job of `kumi run` or `kumi submit`, with a terminal of this size if it gets one.
///
/// # Errors
/// There is no such folder, or options contradict each other.
pub fn request(
    context: &Context,
    args: JobArgs,
    found: JobProgram,
    terminal: Option<WindowSize>,
) -> Result<JobRequest, Error> {
    let base = found.job_name();
    let JobProgram { place, program, command } = found;
    if args.nodes.is_some_and(|nodes| nodes > args.ranks) {
        return Err(Error::Usage(format!(
            "there are fewer ranks ({}) than nodes ({}); ask for at least one rank on each node",
            args.ranks,
            args.nodes.unwrap_or_default()
        )));
    }
    let batch = batch(&args);
    let chosen = settings(&args);
    let mut env = environment(std::env::vars_os(), args.env);
    for (name, value) in chosen {
        set(&mut env, name, value);
    }
    check_settings(&env)?;
    mpi::prepare(&mut env, (place.as_deref(), &command[1..]), args.mpi, args.fabric)?;
    // `kumi cluster down` uses it to find ranks whose daemon and watcher were both killed.
    set(&mut env, "KUMI_CLUSTER_DIR", context.dir().to_string_lossy().into_owned());
    Ok(JobRequest {
        token: random_token()?,
        name: args.name.unwrap_or(base),
        program,
        cwd: working_directory(args.cwd.as_deref())?,
        args: command,
        env,
        ranks: args.ranks,
        nodes: args.nodes,
        encrypt: args.encrypt.map(|value| value == OnOff::On),
        priority: args.priority.unwrap_or(0),
        estimate_ns: args.estimate.map(parse::nanos),
        wait: args.wait,
        limits: kumi_node::process_limits::own(),
        resources: args.resources.resources(),
        terminal,
        batch,
    })
}

/// When the job may start, and how long it may run.
fn batch(args: &JobArgs) -> BatchOptions {
    BatchOptions {
        time_limit_ns: args.time.map(parse::nanos),
        requeues: args.requeue.unwrap_or(0),
        after: args.after.iter().flat_map(AfterJobs::each).collect(),
        ..BatchOptions::default()
    }
}

/// Variables of ranks and daemons for options of the command line.
fn settings(args: &JobArgs) -> Vec<(&'static str, String)> {
    let all = [
        ("KUMI_ACK", args.ack.map(|ack| ack.word().to_owned())),
        (HANDLER, args.handler.clone()),
        ("KUMI_CHECKSUM", args.checksum.map(|checksum| checksum.word().to_owned())),
        (TRACE, args.trace.map(|events| events.to_string())),
        (ON_DEADLOCK, args.on_deadlock.map(|policy| policy.word().to_owned())),
        (DEADLOCK_GRACE_MS, args.deadlock_grace.map(|grace| grace.as_millis().to_string())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Sets a variable, replacing an earlier value.
fn set(env: &mut Vec<(String, String)>, name: &str, value: String) {
    env.retain(|(other, _)| other != name);
    env.push((name.to_owned(), value));
}

/// Checks settings that daemons read too: a wrong value here is found before anything starts. An empty value counts as unset.
fn check_settings(env: &[(String, String)]) -> Result<(), Error> {
    traces::events_wanted(env).map_err(Error::Usage)?;
    OnDeadlock::from_env(env).map_err(Error::Usage)?;
    let handler = env.iter().find(|(name, value)| name == HANDLER && !value.is_empty());
    handler.map_or(Ok(()), |(_, value)| check_handler(value).map_err(Error::Usage))
}

/// Names this submission, so that a repeated submission after a lost connection finds the same job.
fn random_token() -> Result<u128, Error> {
    let mut bytes = [0; 16];
    let source = Path::new("/dev/urandom");
    std::fs::File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Error::File { doing: "read", path: source.to_owned(), source: error })?;
    Ok(u128::from_le_bytes(bytes))
}

fn working_directory(asked: Option<&Path>) -> Result<String, Error> {
    let place = match asked {
        Some(directory) => std::path::absolute(directory),
        None => std::env::current_dir(),
    };
    let place =
        place.map_err(|_| Error::NoDirectory(asked.unwrap_or(Path::new(".")).to_owned()))?;
    if !place.is_dir() {
        return Err(Error::NoDirectory(place));
    }
    place.into_os_string().into_string().map_err(|name| {
        Error::Usage(format!("the directory {} is not named in UTF-8", name.display()))
    })
}

/// A routine's variable for the deadline of its call.
const CALL_DEADLINE: &str = "KUMI_CALL_DEADLINE";

/// This process's environment with the variables of `--env`; the later of two settings counts.
fn environment(
    own: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    set: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let mut all = BTreeMap::new();
    // The deadline of a call is a time of this machine's clock, and a job may begin much later.
    for (name, value) in own.filter(|(name, _)| name != CALL_DEADLINE) {
        let shown = name.to_string_lossy().into_owned();
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => {
                all.insert(name, value);
            }
            _ => output::note(&format!(
                "the environment variable {shown} is not UTF-8 and is not passed on"
            )),
        }
    }
    all.extend(set);
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn settings_override_the_environment_and_the_last_one_wins() {
        let own = [("A", "1"), ("B", "2"), ("KUMI_CALL_DEADLINE", "3")];
        let own = own.map(|(n, v)| (OsString::from(n), OsString::from(v)));
        let bad = (OsString::from("C"), OsString::from_vec(vec![0xff]));
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let all = environment(
            own.into_iter().chain([bad]),
            vec![set("B", "x"), set("D", ""), set("B", "y")],
        );
        assert_eq!(all, [set("A", "1"), set("B", "y"), set("D", "")]);
    }

    #[test]
    fn a_wrong_setting_is_found_before_anything_starts() {
        let check = |value: &str| check_settings(&[(HANDLER.to_owned(), value.to_owned())]);
        assert!(check("fifo:low").is_ok() && check("").is_ok() && check_settings(&[]).is_ok());
        let error = check("fast").unwrap_err();
        assert!(error.to_string().contains("other, rr or fifo"), "{error}");
        assert_eq!(error.exit_code(), 64);
    }

    #[test]
    fn the_working_directory_must_exist() {
        assert_eq!(working_directory(Some(Path::new("/"))).unwrap(), "/");
        let error = working_directory(Some(Path::new("/nowhere/at/all"))).unwrap_err();
        assert_eq!(error.exit_code(), 66);
    }

    #[test]
    fn tokens_differ() {
        assert_ne!(random_token().unwrap(), random_token().unwrap());
    }
}
