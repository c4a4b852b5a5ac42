//! Why a call failed.

use std::io;

use kumi_rpc::{Code, Failure};
use thiserror::Error;

use super::Outcome;

/// Why a call, or the connection, failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server cannot be reached.
    #[error("the server at {address} cannot be reached: {source}")]
    Connect {
        /// Where it was looked for.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// A variable of the environment says what cannot be; nothing is connected.
    #[error("{name} {text}: correct it, or unset it")]
    Environment {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        text: String,
    },
    /// An address that is none.
    #[error("{0} is no address of a server: give HOST:PORT or unix:PATH")]
    Address(String),
    /// The connection was lost. A call that was under way may have run.
    #[error("the connection to the server was lost: {0}")]
    Lost(String),
    /// The server has no such routine.
    #[error("{0}")]
    RoutineNotFound(String),
    /// Arguments that do not fit the routine's description; nothing was sent.
    #[error("`{routine}`: {text}")]
    Argument {
        /// The routine.
        routine: String,
        /// What does not fit.
        text: String,
    },
    /// A priority of a call to a server; nothing was sent.
    #[error(
        "a priority is for calls through a metaserver, and `{0}` is a server: leave it away, or give the address of a \
         metaserver"
    )]
    NoPriority(String),
    /// More memory than a call may have.
    #[error("{0}")]
    TooLarge(String),
    /// As many calls wait as may; try again later.
    #[error("{0}")]
    Busy(String),
    /// The routine crashed, or ended its process.
    #[error("{text}")]
    Crashed {
        /// The signal, or −1 − the exit code.
        detail: i64,
        /// What happened.
        text: String,
    },
    /// The call took too long.
    #[error("{0}")]
    TimedOut(String),
    /// The call was cancelled.
    #[error("{0}")]
    Cancelled(String),
    /// The routine's library or symbol is not there.
    #[error("{0}")]
    NotRunnable(String),
    /// The server does not take this client.
    #[error("{0}")]
    NotPermitted(String),
    /// The routine has run and says by its status that it failed. Its results are in place.
    #[error("`{routine}` failed: {parameter} is {value}")]
    Status {
        /// The routine.
        routine: String,
        /// The parameter with the status.
        parameter: String,
        /// Its value, not 0.
        value: i64,
        /// The scalars and texts that it gave all the same.
        outcome: Box<Outcome>,
    },
    /// A function of this program that the routine called has failed; the routine was ended.
    #[error("{0}")]
    Callback(String),
    /// A file of this program that cannot be read or written, or one that the server's disk does not take.
    #[error("{0}")]
    File(String),
    /// No array of that name is held, or not yet.
    #[error("{text}")]
    NotHeld {
        /// What the server says.
        text: String,
        /// The call that makes it is under way.
        yet: bool,
    },
    /// The server could not fetch an array from the one that holds it.
    #[error("{0}")]
    NoSource(String),
    /// The server has no room to hold more arrays.
    #[error("{0}")]
    HeldFull(String),
    /// Something else that the server says.
    #[error("{0}")]
    Server(String),
    /// The routine has run and ended with an exception, which this says.
    #[error("`{routine}` raised {text}")]
    Raised {
        /// The routine.
        routine: String,
        /// The exception's kind and message.
        text: String,
    },
    /// The object of the call is no more: it has ended, or a call of it was stopped, or its process has crashed.
    #[error("{0}")]
    ObjectLost(String),
    /// A metaserver has no server for the call, or its servers are gone.
    #[error("{text}")]
    NoServer {
        /// What happened.
        text: String,
        /// Whether the routine has certainly not begun to run.
        has_not_run: bool,
    },
    /// All attempts failed.
    #[error("`{routine}` failed on {} servers: {}", tried.len(), tried.join("; "))]
    Attempts {
        /// The routine.
        routine: String,
        /// Each server, and what happened there.
        tried: Vec<String>,
        /// What the last said.
        last: Box<CallError>,
        /// Whether the routine has certainly not begun to run on any of them.
        has_not_run: bool,
    },
    /// Of several metaservers this one does not lead; nothing was sent.
    #[error("{}", not_leading(leader))]
    NotLeading {
        /// The address of the one that does; empty: none does, as far as is known.
        leader: String,
    },
    /// The program ended the wait.
    #[error("the wait for the call was interrupted")]
    Interrupted,
    /// The token was good once.
    #[error("{0}")]
    Expired(String),
    /// The connection cannot be secured, or the other side is not who it should be. Nothing was sent.
    #[error("no secure connection to {address}: {text}")]
    Tls {
        /// Where.
        address: String,
        /// What is wrong, and what to do.
        text: String,
    },
}

fn not_leading(leader: &str) -> String {
    match leader {
        "" => {
            "none of the metaservers leads now: is etcd away? Try again in some seconds".to_owned()
        }
        leader => format!("this metaserver does not lead; {leader} does"),
    }
}

impl CallError {
    /// What a server's answer means.
    pub(crate) fn of(failure: Failure, routine: &str) -> CallError {
        let Failure { code, detail, text } = failure;
        match code {
            Code::Raised => CallError::Raised { routine: routine.to_owned(), text },
            Code::ObjectLost => CallError::ObjectLost(text),
            Code::NoTicket => CallError::NoServer { text, has_not_run: true },
            Code::NoServer => CallError::NoServer { text, has_not_run: detail == 0 },
            Code::ServerLost => CallError::NoServer { text, has_not_run: false },
            Code::NotLeading => CallError::NotLeading { leader: text },
            Code::NoSuchRoutine => CallError::RoutineNotFound(text),
            Code::BadArguments => CallError::Argument { routine: routine.to_owned(), text },
            Code::TooLarge => CallError::TooLarge(text),
            Code::Busy => CallError::Busy(text),
            Code::Crashed => CallError::Crashed { detail, text },
            Code::TimedOut => CallError::TimedOut(text),
            Code::Cancelled => CallError::Cancelled(text),
            Code::NotRunnable => CallError::NotRunnable(text),
            Code::NotPermitted => CallError::NotPermitted(text),
            Code::Callback => CallError::Callback(text),
            Code::Storage => CallError::File(text),
            Code::NotHeld | Code::NotYet => CallError::NotHeld { text, yet: code == Code::NotYet },
            Code::NoSource => CallError::NoSource(text),
            Code::HeldFull => CallError::HeldFull(text),
            Code::Expired => CallError::Expired(text),
            Code::TlsWanted => CallError::Tls { address: "the server".to_owned(), text },
            Code::InterfaceChanged
            | Code::Protocol
            | Code::Ending
            | Code::Version
            | Code::Other(_) => CallError::Server(text),
        }
    }

    /// Whether the routine has certainly not begun to run.
    #[must_use]
    pub fn has_not_run(&self) -> bool {
        if let CallError::NoServer { has_not_run, .. } | CallError::Attempts { has_not_run, .. } =
            self
        {
            return *has_not_run;
        }
        use CallError::{
            Address, Argument, Busy, Connect, Environment, Expired, HeldFull, NoPriority, NoSource,
            NotHeld, NotLeading, NotPermitted, NotRunnable, ObjectLost, RoutineNotFound, Tls,
            TooLarge,
        };
        matches!(
            self,
            Connect { .. }
                | Environment { .. }
                | Address(_)
                | RoutineNotFound(_)
                | Argument { .. }
                | NoPriority(_)
                | TooLarge(_)
                | Busy(_)
                | ObjectLost(_)
                | NotRunnable(_)
                | NotPermitted(_)
                | NotHeld { .. }
                | NotLeading { .. }
                | NoSource(_)
                | HeldFull(_)
                | Expired(_)
                | Tls { .. }
        )
    }
}
