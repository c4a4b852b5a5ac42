//! Errors of the command: each is a sentence, advice and an exit code.

use crate::hosts::HostsError;
use crate::run::job_file::JobFileError;
use kumi_control::message::ClientReply;
use kumi_node::client::ClientError;
use kumi_node::config::ConfigError;
use kumi_node::exit::{ExitCode, Failure};
use kumi_sim::SimError;
use std::io;
use std::path::PathBuf;

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A wrong combination or value that the command line parser cannot detect.
    #[error("{0}")]
    Usage(String),
    /// An error of the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An error of the connection to the head.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A reply that does not match the question.
    #[error("the head sent an unexpected answer ('{0}'); use the `kumi` and `kumid` of one build")]
    Unexpected(String),
    /// The host file's content.
    #[error("host file {}: {source}", path.display())]
    Hosts {
        /// The file.
        path: PathBuf,
        /// Its error.
        source: HostsError,
    },
    /// The host file cannot be read.
    #[error("the host file {} cannot be read: {source}; check its name and permissions", path.display())]
    HostsUnreadable {
        /// The file.
        path: PathBuf,
        /// The system's error message.
        source: io::Error,
    },
    /// The job file.
    #[error(transparent)]
    JobFile(#[from] JobFileError),
    /// No file of this name is in the search path or at this place.
    #[error("there is no program '{0}'; check the name, or give its path")]
    ProgramNotFound(String),
    /// There is a file of this name, but not in the search path.
    #[error("there is no program '{0}' on PATH; write ./{0} for the file in this directory")]
    ProgramHere(String),
    /// The file exists and cannot be executed.
    #[error("{} cannot be executed: {reason}", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The reason, and advice.
        reason: String,
    },
    /// The working directory.
    #[error("{} is not a directory here; give an existing one with --cwd", .0.display())]
    NoDirectory(PathBuf),
    /// The environment has no place for clusters.
    #[error(
        "the cluster's files have no directory: neither KUMI_DIR nor HOME is set; set KUMI_DIR"
    )]
    NoHome,
    /// The sockets' names would be too long for the system.
    #[error("the path {} is too long for sockets ({length} bytes, at most {most}); set KUMI_DIR to a shorter one", path.display())]
    LongDirectory {
        /// The cluster's directory.
        path: PathBuf,
        /// Its length.
        length: usize,
        /// The system's limit.
        most: usize,
    },
    /// Something else is in the cluster's place.
    #[error("{what}; {advice}")]
    Exists {
        /// What was found.
        what: String,
        /// Advice.
        advice: String,
    },
    /// Another command is working on the same cluster.
    #[error("another `kumi cluster` command is working on {}; wait for it to end", .0.display())]
    Busy(PathBuf),
    /// `kumid` is not installed.
    #[error("the daemon `kumid` is neither beside {} nor on the search path; install both", .0.display())]
    NoDaemon(PathBuf),
    /// A daemon ended before it was ready.
    #[error("{who} did not start: {said}")]
    Daemon {
        /// Head or node.
        who: String,
        /// The last lines of its log.
        said: String,
        /// Its own exit code, if it is one of Kumi's.
        code: ExitCode,
    },
    /// A cluster of real hosts, and nothing of it runs on this machine.
    #[error("{}", no_daemon_here(cluster, units))]
    NoDaemonHere {
        /// Its name.
        cluster: String,
        /// The units of this machine's daemons.
        units: Vec<String>,
    },
    /// Some daemons did not attach in time.
    #[error(
        "{missing} did not join within {seconds} s, so everything was taken down again; {said}"
    )]
    NotAttached {
        /// The missing nodes.
        missing: String,
        /// The time limit.
        seconds: u64,
        /// The last lines of a log.
        said: String,
    },
    /// The machine refused something that the command needs.
    #[error("{what}: {said}; `kumi doctor` shows what this machine permits")]
    Machine {
        /// The attempted operation.
        what: String,
        /// The system's error message.
        said: String,
    },
    /// Something could not be removed.
    #[error(
        "{what} of the cluster could not be removed: {said}; run the command again, as its owner or root"
    )]
    LeftOver {
        /// Its name.
        what: String,
        /// The reason.
        said: String,
    },
    /// The command is reserved for the owner and root.
    #[error("the cluster belongs to user {owner}; only they and root may {what}")]
    NotOwner {
        /// The owner's name.
        owner: String,
        /// The refused operation.
        what: &'static str,
    },
    /// A file of the cluster.
    #[error("cannot {doing} {}: {source}; check permissions and free space", path.display())]
    File {
        /// `write`, `read`, `make`, …
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error message.
        source: io::Error,
    },
    /// Keys and certificates, and other failures that daemons share with the command.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// A terminal was asked for, and this command has none.
    #[error(
        "`kumi run -t` shows a terminal, but standard input or output of this command is none; leave out -t"
    )]
    NoTerminal,
    /// No such running job, for `kumi stats JOB`.
    #[error("job {job} has no running ranks; `kumi ps` lists the jobs")]
    JobNotRunning {
        /// Its number.
        job: u64,
    },
    /// No node of a job answered, for `kumi debug channel`.
    #[error(
        "no node of job {job} has told of its channels within a second; see `kumi cluster status`, and try again"
    )]
    ChannelsUnseen {
        /// The job's number.
        job: u64,
    },
    /// A rank's context is none.
    #[error(
        "the channel of rank {rank} of job {job} is damaged: {why}; look for stray writes in that rank"
    )]
    ChannelDamaged {
        /// The job's number.
        job: u64,
        /// The rank.
        rank: u32,
        /// The damage found.
        why: String,
    },
    /// No trace of a job is left, or there never was one.
    #[error(
        "there is no trace of job {job}: start it with `kumi run --trace`; nodes keep the traces of the last jobs only"
    )]
    NoTrace {
        /// The job's number.
        job: u64,
    },
    /// A node did not answer a question for a trace.
    #[error(
        "node {node} has not told of its traces of job {job}; see `kumi cluster status`, and try again"
    )]
    TraceUnseen {
        /// The job's number.
        job: u64,
        /// The node.
        node: u32,
    },
    /// The head did not answer for too long.
    #[error(
        "the head has not answered for {seconds} s; {job} may still run: when `kumi cluster status` works again, see `kumi ps`"
    )]
    HeadGone {
        /// The time of the attempts.
        seconds: u64,
        /// The job.
        job: String,
    },
    /// A job ended well, and not all of its output came.
    #[error(
        "{bytes} bytes of the output of {job} are missing above; have the ranks write files, or free the disk of the head"
    )]
    OutputMissing {
        /// The job, in words.
        job: String,
        /// How much.
        bytes: u64,
    },
    /// An error of standard output.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
    /// An error of the terminal.
    #[error("`kumi top` needs a terminal: {0}; use `kumi top --once` for a plain snapshot")]
    Terminal(io::Error),
    /// Signals or the runtime could not be set up.
    #[error("cannot set up {what}: {source}")]
    SetUp {
        /// The failed operation.
        what: &'static str,
        /// The system's error message.
        source: io::Error,
    },
    /// Nothing can run on this machine.
    #[error("nothing can run on this machine; see the checks marked with 'no' above")]
    NothingRuns,
    /// The command was interrupted and everything was undone.
    #[error("interrupted; everything that was started has been taken down again")]
    Interrupted(u8),
    /// A simulation.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A call of a routine.
    #[error(transparent)]
    Call(#[from] kumi_call::CallError),
    /// Nobody keeps a log of this call for this user.
    #[error(
        "there is no log of call {0}: it was never here, is another user's, or is not kept any more; leave the number out to \
         see the calls of which there is one"
    )]
    NoCallLog(String),
    /// The server of a call does not run any more, or not since the call.
    #[error("the log of call {call} is gone: {why}; servers keep logs in memory, until they end")]
    CallLogGone {
        /// The call, as its user names it.
        call: String,
        /// What became of its server.
        why: String,
    },
    /// Not all servers could be asked for logs. Those are named before.
    #[error("calls are missing above: {0} of the servers could not be asked for their logs")]
    LogsMissing(usize),
    /// A source of functions of Python is not there.
    #[error("--python {0}")]
    NoSource(String),
    /// A server of routines.
    #[error(transparent)]
    Serve(#[from] kumi_call::server::ServeError),
    /// A metaserver cannot be started.
    #[error(transparent)]
    Meta(#[from] kumi_call::meta::MetaError),
    /// Routines cannot be offered.
    #[error(transparent)]
    Registry(#[from] kumi_call::server::RegistryError),
    /// The program of call slots is not installed.
    #[error("the program `{name}` is neither beside {} nor on the search path; install both", own.display())]
    NoProgram {
        /// Its name.
        name: &'static str,
        /// This command.
        own: PathBuf,
    },
    /// A file of interface descriptions cannot be read.
    #[error("the interface description {} cannot be read: {source}; check its name and permissions", path.display())]
    DescriptionUnreadable {
        /// The file.
        path: PathBuf,
        /// The system's error message.
        source: io::Error,
    },
    /// Interface descriptions have errors, each of which was printed.
    #[error("{errors} error{} in {files} of the files; `docs/reference/interface-language.md` lists the codes", if *errors == 1 { "" } else { "s" })]
    Descriptions {
        /// How many errors.
        errors: usize,
        /// In how many files.
        files: usize,
    },
    /// No executable could be built for some routines, each of which was printed.
    #[error("{text}")]
    Built {
        /// The number of routines, or what all of them lack.
        text: String,
    },
    /// An array for a call cannot be read.
    #[error("the array {} cannot be read: {source}; check its name and permissions", path.display())]
    ArrayUnreadable {
        /// The file.
        path: PathBuf,
        /// The system's error message.
        source: io::Error,
    },
    /// A file is not an array.
    #[error("{} is not an array: {why}", path.display())]
    NoArray {
        /// The file.
        path: PathBuf,
        /// The error in it.
        why: String,
    },
    /// A result cannot be written.
    #[error("the result cannot be written to {}: {source}; name another file", path.display())]
    ArrayUnwritable {
        /// The file.
        path: PathBuf,
        /// The system's error message.
        source: io::Error,
    },
    /// A file of users.
    #[error(transparent)]
    Users(#[from] kumi_call::users::UsersError),
    /// Certificates of a server.
    #[error(transparent)]
    Tls(#[from] kumi_call::TlsError),
    /// Only an exit code: the message was printed already, or there is none.
    #[error("exit code {0}")]
    Silent(u8),
}

/// Nothing of the cluster runs here.
fn no_daemon_here(cluster: &str, units: &[String]) -> String {
    let advice = if units.is_empty() {
        "this machine is none of its hosts: run the command on one of them".to_owned()
    } else {
        format!("`systemctl start {}` or `kumi cluster up` starts them", units.join(" "))
    };
    format!("no daemon of the cluster {cluster} runs on this machine; {advice}")
}

impl Error {
    /// For a reply that does not match the request. Only its kind is shown, because it may be long.
    pub fn unexpected(reply: &ClientReply) -> Self {
        let text = format!("{reply:?}");
        let kind = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        Self::Unexpected(kind.to_owned())
    }

    /// The exit code, as `docs/reference/errors.md` lists them.
    pub fn exit_code(&self) -> u8 {
        let code = match self {
            Self::Interrupted(code) | Self::Silent(code) => return *code,
            // Like a program that SIGPIPE ended: the reader has all it wanted.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return 141,
            Self::Usage(_) | Self::LongDirectory { .. } | Self::NoHome => ExitCode::Usage,
            Self::Config(error) => error.exit_code(),
            Self::Client(error) => error.exit_code(),
            Self::Failure(failure) => failure.code,
            Self::Unexpected(_) | Self::SetUp { .. } => ExitCode::Internal,
            Self::ChannelsUnseen { .. } | Self::TraceUnseen { .. } => ExitCode::TryLater,
            Self::ChannelDamaged { .. } => ExitCode::Io,
            Self::Hosts { source: HostsError::TooMany(_), .. } => ExitCode::TooLarge,
            Self::Hosts { .. } => ExitCode::BadConfig,
            Self::HostsUnreadable { .. }
            | Self::NoDirectory(_)
            | Self::JobNotRunning { .. }
            | Self::NoTrace { .. }
            | Self::NoCallLog(_)
            | Self::CallLogGone { .. } => ExitCode::NoInput,
            Self::JobFile(error) => error.exit_code(),
            Self::ProgramNotFound(_) | Self::ProgramHere(_) => ExitCode::ProgramNotFound,
            Self::NotExecutable { .. } => ExitCode::NotExecutable,
            Self::Exists { .. } | Self::Busy(_) => ExitCode::Exists,
            Self::Daemon { code, .. } => *code,
            Self::NotAttached { .. }
            | Self::NoDaemonHere { .. }
            | Self::HeadGone { .. }
            | Self::LogsMissing(_) => ExitCode::Unavailable,
            Self::Machine { .. } | Self::NothingRuns => ExitCode::MachineLimits,
            Self::NotOwner { .. } => ExitCode::NotPermitted,
            Self::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ExitCode::NotPermitted
            }
            Self::File { .. }
            | Self::LeftOver { .. }
            | Self::Output(_)
            | Self::OutputMissing { .. } => ExitCode::Io,
            Self::Terminal(_) | Self::NoTerminal => ExitCode::Usage,
            Self::DescriptionUnreadable { source, .. }
            | Self::ArrayUnreadable { source, .. }
            | Self::ArrayUnwritable { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
                io::ErrorKind::NotFound => ExitCode::NoInput,
                _ => ExitCode::Io,
            },
            Self::Descriptions { .. } | Self::Built { .. } | Self::NoArray { .. } => {
                ExitCode::BadConfig
            }
            Self::Sim(error) => crate::sim::exit_code(error),
            Self::Call(error) => crate::call::exit_code(error),
            Self::Serve(error) => crate::call::serve_exit_code(error),
            Self::Meta(error) => crate::call::meta_exit_code(error),
            Self::Registry(error) => crate::call::registry_exit_code(error),
            Self::NoDaemon(_) | Self::NoProgram { .. } | Self::NoSource(_) => ExitCode::NoInput,
            Self::Users(error) => crate::call::users_exit_code(error),
            Self::Tls(error) => crate::call::tls_exit_code(error),
        };
        code.code()
    }

    /// Standard input cannot be read.
    pub fn no_input(source: io::Error) -> Self {
        Self::SetUp { what: "standard input", source }
    }

    /// Whether a message belongs on standard error.
    pub fn speaks(&self) -> bool {
        match self {
            Self::Silent(_) => false,
            Self::Output(error) => error.kind() != io::ErrorKind::BrokenPipe,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::JobsPage;

    #[test]
    fn the_documented_codes() {
        let missing = ConfigError::Missing("/nowhere".into());
        let line = HostsError::Line { line: 3, reason: "x".into() };
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let cases: [(Error, u8); 9] = [
            (Error::Usage("x".into()), 64),
            (Error::Hosts { path: "f".into(), source: line }, 65),
            (Error::Hosts { path: "f".into(), source: HostsError::TooMany(9999) }, 78),
            (Error::Config(missing), 69),
            (Error::ProgramNotFound("x".into()), 127),
            (Error::NotExecutable { path: "x".into(), reason: "y".into() }, 126),
            (Error::File { doing: "write", path: "x".into(), source: denied() }, 77),
            (Error::Output(io::ErrorKind::BrokenPipe.into()), 141),
            (Error::Silent(3), 3),
        ];
        for (error, code) in cases {
            assert_eq!(error.exit_code(), code, "{error}");
        }
    }

    #[test]
    fn the_documentation_lists_every_exit_code() {
        let text = include_str!("../../../docs/reference/errors.md");
        let table: Vec<&str> = text.lines().take_while(|line| !line.starts_with("## ")).collect();
        let row = |line: &&str| line.starts_with("| ") && !line.starts_with("| code");
        let rows = table.into_iter().filter(row).map(|line| {
            let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`'));
            (cells.nth(1).unwrap().to_owned(), cells.next().unwrap().to_owned())
        });
        let codes = ExitCode::ALL.map(|code| (code.code().to_string(), format!("{code:?}")));
        assert_eq!(rows.collect::<Vec<_>>(), codes);
    }

    #[test]
    fn an_unexpected_reply_is_named_by_its_kind_only() {
        let error = Error::unexpected(&ClientReply::Jobs(JobsPage::default()));
        assert!(matches!(&error, Error::Unexpected(kind) if kind == "Jobs"), "{error}");
    }

    #[test]
    fn a_closed_pipe_is_not_worth_a_word() {
        assert!(!Error::Output(io::ErrorKind::BrokenPipe.into()).speaks());
        assert!(Error::Output(io::ErrorKind::StorageFull.into()).speaks());
    }
}
