//! Logs of calls: what servers say of the calls of a user, and what their routines have printed.

use std::time::{Duration, Instant};

use kumi_call_wire::logs::{GoneServer, LastPlace, LogAnswer, LogDirectory, LogServer};
use kumi_rpc::{LogRequest, Placement, Ticket, printable};

use super::super::{CallError, Client, Remote};
use super::Grid;

/// How long a server may take to answer.
const ANSWERS: Duration = Duration::from_secs(30);
/// Most servers of a metaserver that are asked at the same time.
const AT_ONCE: usize = 16;

/// A server, told from others by name and address, as a metaserver tells them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Its name, which several may have.
    pub name: String,
    /// Its address for clients.
    pub address: String,
}

/// A server that keeps logs.
#[derive(Debug, Clone)]
pub struct LogSource {
    /// Which it is.
    pub identity: ServerIdentity,
    /// Its name; its address if another server that can be asked has the name, too.
    pub label: String,
    /// A connection that may ask for logs.
    pub client: Client,
}

/// A server that cannot be asked for logs.
#[derive(Debug)]
pub struct UnreachableSource {
    /// Which it is.
    pub identity: ServerIdentity,
    /// Its name; its address if another server has the name, too.
    pub label: String,
    /// Why: [`CallError::ServerGone`] if the metaserver has lost it lately.
    pub why: CallError,
}

/// The servers that keep logs of a user's calls.
#[derive(Debug, Default)]
pub struct LogSources {
    /// Those that can be asked.
    pub servers: Vec<LogSource>,
    /// Those that cannot.
    pub unreachable: Vec<UnreachableSource>,
    /// Where the call was placed last that [`Remote::log_sources_of`] was asked for.
    pub placed: Option<LastPlace>,
}

impl LogSources {
    /// The server that is told from others like this. Another one of its name is none.
    #[must_use]
    pub fn find(&self, identity: &ServerIdentity) -> Option<&LogSource> {
        self.servers.iter().find(|source| source.identity == *identity)
    }

    /// The servers that a user may mean: the one with this address, or else those with this name.
    #[must_use]
    pub fn meant(&self, server: &str) -> Vec<ServerIdentity> {
        let identities = self.servers.iter().map(|source| &source.identity);
        match identities.clone().find(|identity| identity.address == server) {
            Some(identity) => vec![identity.clone()],
            None => identities.filter(|identity| identity.name == server).cloned().collect(),
        }
    }
}

/// The failure for an answer that is no JSON of logs.
fn malformed(error: &serde_json::Error) -> CallError {
    CallError::Server(format!("the answer to a question for logs is malformed: {error}"))
}

/// What servers are called: by name, and by address if that is the name of another one, too. A server that is gone leaves its
/// name to one that is there, perhaps the same machine's, started again at another port.
fn labels(found: &LogDirectory) -> (Vec<String>, Vec<String>) {
    let LogDirectory { servers, gone, .. } = found;
    let count = |name: &String| servers.iter().filter(|it| it.name == *name).count();
    let count_gone = |name: &String| gone.iter().filter(|it| it.name == *name).count();
    let label = |is_shared, name: &String, address: &String| {
        if is_shared { printable(address) } else { name.clone() }
    };
    (
        servers.iter().map(|it| label(count(&it.name) > 1, &it.name, &it.address)).collect(),
        gone.iter()
            .map(|it| label(count(&it.name) + count_gone(&it.name) > 1, &it.name, &it.address))
            .collect(),
    )
}

impl Client {
    /// What the server keeps of the user's calls. A metaserver has no such logs: see [`Grid::log_sources`].
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::NoLogs`] from a server of an earlier version.
    pub fn logs(&self, request: &LogRequest) -> Result<LogAnswer, CallError> {
        let json = self.logs_until(request, Instant::now().checked_add(ANSWERS))?;
        let mut logs: LogAnswer = serde_json::from_str(&json).map_err(|error| malformed(&error))?;
        logs.make_printable();
        Ok(logs)
    }

    /// [`Client::logs`] as JSON.
    ///
    /// # Errors
    /// As of [`Client::logs`].
    pub fn logs_json(&self, request: &LogRequest) -> Result<String, CallError> {
        serde_json::to_string(&self.logs(request)?).map_err(|error| malformed(&error))
    }
}

impl Grid {
    /// The servers of the metaserver that are there. Connections to them are new, and show who the user is.
    ///
    /// # Errors
    /// [`CallError`] of the metaserver; [`CallError::NoLogs`] if it is of an earlier version.
    pub fn log_sources(&self) -> Result<LogSources, CallError> {
        self.log_sources_for(&LogRequest::Latest(1))
    }

    /// [`Grid::log_sources`], and where the call with this number of the metaserver was placed last.
    ///
    /// # Errors
    /// As of [`Grid::log_sources`].
    pub fn log_sources_of(&self, call: u64) -> Result<LogSources, CallError> {
        self.log_sources_for(&LogRequest::Placed(call))
    }

    fn log_sources_for(&self, request: &LogRequest) -> Result<LogSources, CallError> {
        let json = self.inner.ask(|meta: &Client, until| meta.logs_until(request, until))?;
        let mut found: LogDirectory =
            serde_json::from_str(&json).map_err(|error| malformed(&error))?;
        found.make_printable();
        let (labels, labels_gone) = labels(&found);
        let LogDirectory { servers, gone, placed } = found;
        let mut sources = LogSources { placed, ..LogSources::default() };
        let servers: Vec<_> = servers.into_iter().zip(labels).collect();
        for some in servers.chunks(AT_ONCE) {
            let connected: Vec<_> = std::thread::scope(|scope| {
                let begun: Vec<_> =
                    some.iter().map(|(it, _)| scope.spawn(|| self.log_source(it))).collect();
                begun.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
            });
            for ((LogServer { name, address, .. }, label), connected) in some.iter().zip(connected)
            {
                let identity = ServerIdentity { name: name.clone(), address: address.clone() };
                let label = label.clone();
                match connected {
                    Ok(Ok(client)) => {
                        sources.servers.push(LogSource { identity, label, client });
                    }
                    Ok(Err(why)) => {
                        sources.unreachable.push(UnreachableSource { identity, label, why });
                    }
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        }
        for (GoneServer { name, address, state }, label) in gone.into_iter().zip(labels_gone) {
            let identity = ServerIdentity { name, address: address.clone() };
            let why = CallError::ServerGone { address, state };
            sources.unreachable.push(UnreachableSource { identity, label, why });
        }
        Ok(sources)
    }

    /// A connection to a server that keeps logs.
    fn log_source(&self, server: &LogServer) -> Result<Client, CallError> {
        let client = self.inner.connect_server(&Placement {
            ticket: Ticket { call: 0, attempt: 0 },
            address: server.address.clone(),
            server: server.name.clone(),
            pass: server.pass.clone(),
        })?;
        client.check_logs()?;
        Ok(client)
    }
}

impl Remote {
    /// The server itself, or those of the metaserver.
    ///
    /// # Errors
    /// As of [`Grid::log_sources`].
    pub fn log_sources(&self) -> Result<LogSources, CallError> {
        match self {
            Remote::Server(client) => itself(client),
            Remote::Grid(grid) => grid.log_sources(),
        }
    }

    /// [`Remote::log_sources`], and where the call with this number of the metaserver was placed last. A server does not know that.
    ///
    /// # Errors
    /// As of [`Grid::log_sources`].
    pub fn log_sources_of(&self, call: u64) -> Result<LogSources, CallError> {
        match self {
            Remote::Server(client) => itself(client),
            Remote::Grid(grid) => grid.log_sources_of(call),
        }
    }
}

fn itself(client: &Client) -> Result<LogSources, CallError> {
    client.check_logs()?;
    let label = client.server().to_owned();
    let address = client.link.peer().address().to_owned();
    let identity = ServerIdentity { name: label.clone(), address };
    let servers = vec![LogSource { identity, label, client: client.clone() }];
    Ok(LogSources { servers, ..LogSources::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_one_name_are_called_by_their_addresses_and_one_that_was_started_again_is_not() {
        let server = |name: &str, address: &str| LogServer {
            name: name.to_owned(),
            address: address.to_owned(),
            pass: String::new(),
        };
        let gone = |name: &str, address: &str| GoneServer {
            name: name.to_owned(),
            address: address.to_owned(),
            state: "lost".to_owned(),
        };
        let found = LogDirectory {
            servers: vec![server("vm", "h:1"), server("a", "h:3"), server("vm", "h:2")],
            gone: vec![gone("a", "h:4"), gone("b", "h:5")],
            placed: None,
        };
        let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert_eq!(labels(&found), (words(&["h:1", "a", "h:2"]), words(&["h:4", "b"])));
    }
}
