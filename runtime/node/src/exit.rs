//! Exit codes of `kumi` and `kumid` (listed for people in `docs/reference/errors.md`).

use kumi_control::message::{RankStatus, Refusal, RefusalKind};

/// Exit code of a process of Kumi. The numbers follow `sysexits.h` and, for
/// programs that cannot be run, the shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// The command has done what it was asked for
    Ok = 0,
    /// A wrong command line, or a request that can never succeed
    Usage = 64,
    /// A bad host file, `cluster.toml` or key; a list of jobs that cannot be simulated; an interface description with errors
    BadConfig = 65,
    /// No such working directory, job or file
    NoInput = 66,
    /// The cluster does not run or cannot be reached
    Unavailable = 69,
    /// A defect of Kumi
    Internal = 70,
    /// The machine does not permit what was asked for
    MachineLimits = 71,
    /// The job was ended because its ranks waited for each other for ever
    Deadlock = 72,
    /// Something exists already, or a port is in use
    Exists = 73,
    /// Reading or writing failed, or disk, memory or descriptors ran out
    Io = 74,
    /// The request was refused for now: a node is down or was lost, a job may not wait longer, a server is busy, or the user
    /// has as much as one may have
    TryLater = 75,
    /// `kumi` and the daemons are of different versions
    Version = 76,
    /// This user may not do this
    NotPermitted = 77,
    /// More ranks, nodes or simulated processors than there are or may be
    TooLarge = 78,
    /// The job was ended because its time limit was over
    TimeLimit = 124,
    /// The program exists and cannot be executed
    NotExecutable = 126,
    /// There is no such program
    ProgramNotFound = 127,
}

impl ExitCode {
    /// All of them, ascending.
    pub const ALL: [Self; 17] = [
        Self::Ok,
        Self::Usage,
        Self::BadConfig,
        Self::NoInput,
        Self::Unavailable,
        Self::Internal,
        Self::MachineLimits,
        Self::Deadlock,
        Self::Exists,
        Self::Io,
        Self::TryLater,
        Self::Version,
        Self::NotPermitted,
        Self::TooLarge,
        Self::TimeLimit,
        Self::NotExecutable,
        Self::ProgramNotFound,
    ];

    /// The one with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.code() == code)
    }

    /// What the user can do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Ok => "",
            Self::Usage => "Read the message and `kumi COMMAND --help`.",
            Self::BadConfig => "The message names the file and the line.",
            Self::NoInput => "Check the name. `kumi ps --all` lists the jobs.",
            Self::Unavailable => "Try `kumi cluster status` and `kumi cluster up`.",
            Self::Internal => "Report it, with the daemons' logs.",
            Self::MachineLimits => "`kumi doctor` says what is missing and how to get it.",
            Self::Deadlock => "The report says who waits for whom.",
            Self::Exists => "Choose another name or port, or run `kumi cluster down`.",
            Self::Io => "Make room. `kumi doctor` shows the limits.",
            Self::TryLater => "Try again. `kumi cluster status` shows the nodes.",
            Self::Version => "Use programs of one build.",
            Self::NotPermitted => "Ask the owner of the cluster or root.",
            Self::TooLarge => "Ask for fewer.",
            Self::TimeLimit => "Give it more time with `--time`.",
            Self::NotExecutable => "Check the program's permissions and format.",
            Self::ProgramNotFound => "Check the name and `PATH`.",
        }
    }

    /// The number.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.code())
    }
}

impl From<RefusalKind> for ExitCode {
    fn from(kind: RefusalKind) -> Self {
        match kind {
            RefusalKind::BadRequest => Self::Usage,
            RefusalKind::TooLarge => Self::TooLarge,
            RefusalKind::NotFound | RefusalKind::NoSuchJob => Self::NoInput,
            RefusalKind::NotExecutable => Self::NotExecutable,
            RefusalKind::NotPermitted => Self::NotPermitted,
            RefusalKind::NoResources => Self::Io,
            RefusalKind::NodeLost
            | RefusalKind::NotNow
            | RefusalKind::Quota
            | RefusalKind::PredecessorFailed => Self::TryLater,
            RefusalKind::Version => Self::Version,
            RefusalKind::Internal => Self::Internal,
        }
    }
}

impl From<&Refusal> for ExitCode {
    fn from(refusal: &Refusal) -> Self {
        refusal.kind.into()
    }
}

/// Exit code of `kumi run` for a rank's status: the rank's own code, or 128 plus the signal.
pub fn of_rank(status: RankStatus) -> u8 {
    match status {
        RankStatus::Exited(code) => code,
        RankStatus::Signalled(signal) => 128u8.saturating_add(signal),
        // As the kernel ends it: by SIGKILL.
        RankStatus::OutOfMemory(_) => 137,
        // Its own code says success, which it was not.
        RankStatus::NotFinalized => 1,
    }
}

/// Failure of a daemon: its message and its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// For the parent process.
    pub code: ExitCode,
    /// One sentence of what, one of what to do.
    pub message: String,
}

impl Failure {
    /// A failure with this code and message.
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<crate::config::ConfigError> for Failure {
    fn from(error: crate::config::ConfigError) -> Self {
        Self::new(error.exit_code(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_are_listed() {
        use ExitCode as E;
        for code in E::ALL {
            // A new one does not compile here until it is counted.
            match code {
                E::Ok | E::Usage | E::BadConfig | E::NoInput | E::Unavailable | E::Internal => {}
                E::MachineLimits | E::Deadlock | E::Exists | E::Io | E::TryLater => {}
                E::Version | E::TimeLimit => {}
                E::NotPermitted | E::TooLarge | E::NotExecutable | E::ProgramNotFound => {}
            }
            assert_eq!(E::from_code(code.code()), Some(code));
        }
        assert!(E::ALL.is_sorted_by_key(|code| code.code()));
        assert_eq!(E::from_code(1), None);
    }

    #[test]
    fn numbers_are_the_documented_ones() {
        assert_eq!(ExitCode::from(RefusalKind::TooLarge).code(), 78);
        assert_eq!(ExitCode::from(RefusalKind::NotExecutable).code(), 126);
        assert_eq!(ExitCode::from(RefusalKind::NotPermitted).code(), 77);
        assert_eq!(ExitCode::from(RefusalKind::NotNow).code(), 75);
        assert_eq!(ExitCode::from(RefusalKind::Quota).code(), 75);
        assert_eq!(ExitCode::from(RefusalKind::PredecessorFailed).code(), 75);
        assert_eq!(of_rank(RankStatus::Exited(3)), 3);
        assert_eq!(of_rank(RankStatus::Signalled(9)), 137);
        assert_eq!(of_rank(RankStatus::Signalled(255)), 255);
    }
}
