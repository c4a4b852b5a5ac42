//! Errors of calls.

use std::io;

use kumi_rpc::{Code, Failure};
use thiserror::Error;

use super::{Answer, Outcome};

/// Why a call or a connection failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server cannot be reached.
    #[error("the server at {address} cannot be reached: {source}")]
    Connect {
        /// The address.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// An environment variable has an impossible value. The client connected to nothing.
    #[error("{name} {text}: correct or unset it")]
    Environment {
        /// The variable.
        name: &'static str,
        /// What is wrong with it.
        text: String,
    },
    /// The text is not an address.
    #[error("{0} is not a server address: use HOST:PORT, tls://HOST:PORT or unix:PATH")]
    Address(String),
    /// There is a server where a metaserver is wanted.
    #[error(
        "`{0}` is a server, not a metaserver: give the address of a metaserver (`kumi call meta`)"
    )]
    NotMetaserver(String),
    /// The connection was lost. A call in progress may have run.
    #[error("the connection to the server was lost: {0}")]
    Lost(String),
    /// The server has no such routine.
    #[error("{0}")]
    RoutineNotFound(String),
    /// The arguments do not fit the routine's description. Nothing was sent.
    #[error("`{routine}`: {text}")]
    Argument {
        /// The routine.
        routine: String,
        /// What does not fit.
        text: String,
    },
    /// A call to a server was given a priority. Nothing was sent.
    #[error(
        "a priority is for calls through a metaserver, and `{0}` is a server: omit it, or use the address of a \
         metaserver"
    )]
    NoPriority(String),
    /// The call needs more memory than the server allows.
    #[error("{0}")]
    TooLarge(String),
    /// The server's queue of calls is full. Try again later.
    #[error("{0}")]
    Busy(String),
    /// The routine crashed or ended its process.
    #[error("{text}")]
    Crashed {
        /// The signal, or −1 − the exit code.
        detail: i64,
        /// What happened.
        text: String,
    },
    /// The call took longer than its time limit.
    #[error("{0}")]
    TimedOut(String),
    /// The call was cancelled.
    #[error("{0}")]
    Cancelled(String),
    /// The server cannot load the routine's library or symbol.
    #[error("{0}")]
    NotRunnable(String),
    /// The server refuses this client.
    #[error("{0}")]
    NotPermitted(String),
    /// The routine ran and reports failure by its status parameter. Its results are in place.
    #[error("`{routine}` failed: {parameter} is {value}")]
    Status {
        /// The routine.
        routine: String,
        /// The status parameter.
        parameter: String,
        /// Its value, not 0.
        value: i64,
        /// The scalars and texts that the routine returned.
        outcome: Box<Outcome>,
    },
    /// A function of this program that the routine called has failed. The server ended the routine.
    #[error("{0}")]
    Callback(String),
    /// This program cannot read or write a file, or the server's disk does not take it.
    #[error("{0}")]
    File(String),
    /// The server holds no array of that name, or not yet.
    #[error("{text}")]
    NotHeld {
        /// What the server says.
        text: String,
        /// The call that makes the array is still running.
        yet: bool,
    },
    /// An array at a server is gone, or its server is. The call that was given it runs nowhere else.
    #[error("{what}, and that is gone: {why}; call again what makes it")]
    HeldLost {
        /// The call's parameters, with each array and its server.
        what: String,
        /// How the client knows.
        why: String,
        /// True if the routine has certainly not begun to run.
        has_not_run: bool,
    },
    /// The arrays that a call was given are at several servers, or are reached over several connections. Nothing was sent.
    #[error("{0}")]
    HeldElsewhere(String),
    /// The server could not fetch an array from the server that holds it.
    #[error("{0}")]
    NoSource(String),
    /// The server has no room to hold more arrays.
    #[error("{0}")]
    HeldFull(String),
    /// The server does not give the call the threads or the memory that it asks for.
    #[error("{0}")]
    NoResources(String),
    /// A server or metaserver of an earlier version, which cannot show logs of calls.
    #[error("`{0}` cannot show logs of calls: it is of an earlier version; update it")]
    NoLogs(String),
    /// A server that a metaserver has lost lately, so nobody can ask it for logs.
    #[error("it was at {address}, and its state is `{state}` at the metaserver")]
    ServerGone {
        /// Its address.
        address: String,
        /// What became of it, in the metaserver's word.
        state: String,
    },
    /// Any other error that the server reports.
    #[error("{0}")]
    Server(String),
    /// The routine ran and ended with an exception.
    #[error("`{routine}` raised {text}")]
    Raised {
        /// The routine.
        routine: String,
        /// The exception's kind and message.
        text: String,
    },
    /// The object no longer exists: it has ended, one of its calls was stopped, or its process crashed.
    #[error("{0}")]
    ObjectLost(String),
    /// The metaserver has no server for the call, or its servers are gone.
    #[error("{text}")]
    NoServer {
        /// What happened.
        text: String,
        /// True if the routine has certainly not begun to run.
        has_not_run: bool,
    },
    /// All attempts failed, or the only one.
    #[error("`{routine}` failed {}: {}", attempts(tried.len()), tried.join("; "))]
    Attempts {
        /// The routine.
        routine: String,
        /// Each server that was tried, with the error there.
        tried: Vec<String>,
        /// The last error.
        last: Box<CallError>,
        /// True if the routine has certainly not begun to run on any server.
        has_not_run: bool,
    },
    /// This is one of several metaservers, and not the leader. Nothing was sent.
    #[error("{}", not_leading(leader))]
    NotLeading {
        /// The address of the leader; empty if no leader is known.
        leader: String,
    },
    /// The program ended the wait.
    #[error("the wait for the call was interrupted")]
    Interrupted,
    /// The token has expired.
    #[error("{0}")]
    Expired(String),
    /// The connection cannot be secured, or the server's certificate does not prove its identity. Nothing was
    /// sent.
    #[error("no secure connection to {address}: {text}")]
    Tls {
        /// The address.
        address: String,
        /// What is wrong, and what to do.
        text: String,
    },
}

/// An attempt each, perhaps at the same server.
fn attempts(count: usize) -> String {
    if count == 1 { "on one server".to_owned() } else { format!("in {count} attempts") }
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
    /// The error for an answer that was not hoped for.
    pub(crate) fn unlike(answer: Result<Answer, Failure>, routine: &str) -> CallError {
        match answer {
            Ok(_) => CallError::Server("the server sent an unexpected answer".to_owned()),
            Err(failure) => CallError::of(failure, routine),
        }
    }

    /// The error for a server's answer.
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
            Code::NoResources => CallError::NoResources(text),
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
        if let CallError::NoServer { has_not_run, .. }
        | CallError::Attempts { has_not_run, .. }
        | CallError::HeldLost { has_not_run, .. } = self
        {
            return *has_not_run;
        }
        matches!(
            self,
            CallError::Connect { .. }
                | CallError::Environment { .. }
                | CallError::Address(_)
                | CallError::NotMetaserver(_)
                | CallError::RoutineNotFound(_)
                | CallError::Argument { .. }
                | CallError::NoPriority(_)
                | CallError::TooLarge(_)
                | CallError::Busy(_)
                | CallError::ObjectLost(_)
                | CallError::NotRunnable(_)
                | CallError::NotPermitted(_)
                | CallError::NotHeld { .. }
                | CallError::NotLeading { .. }
                | CallError::NoResources(_)
                | CallError::NoSource(_)
                | CallError::HeldElsewhere(_)
                | CallError::HeldFull(_)
                | CallError::Expired(_)
                | CallError::Tls { .. }
        )
    }
}
