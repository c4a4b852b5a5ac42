//! Logs of calls: what servers say of the calls of a user, and what their routines have printed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kumi_call_wire::logs::{GoneServer, LogAnswer, LogDirectory, LogServer};
use kumi_rpc::{LogRequest, Placement, Ticket};

use super::super::{CallError, Client, Remote};
use super::Grid;

/// How long a server may take to answer.
const ANSWERS: Duration = Duration::from_secs(30);
/// Most servers of a metaserver that are asked at the same time.
const AT_ONCE: usize = 16;

/// The servers that keep logs of a user's calls.
#[derive(Debug, Default)]
pub struct LogSources {
    /// Those that can be asked, with their names.
    pub servers: Vec<(String, Client)>,
    /// Those that cannot, and why: with [`CallError::ServerGone`] those that the metaserver has lost lately.
    pub unreachable: Vec<(String, CallError)>,
}

/// The failure for an answer that is no JSON of logs.
fn malformed(error: &serde_json::Error) -> CallError {
    CallError::Server(format!("the answer to a question for logs is malformed: {error}"))
}

/// Gives servers that have one name the names of their addresses, so that each is named by one name.
fn name_apart(found: &mut LogDirectory) {
    let LogDirectory { servers, gone } = found;
    let names = servers.iter().map(|it| &it.name).chain(gone.iter().map(|it| &it.name));
    let mut counts: HashMap<String, usize> = HashMap::new();
    names.for_each(|name| *counts.entry(name.clone()).or_default() += 1);
    let is_shared = |name: &String| counts.get(name).is_some_and(|count| *count > 1);
    for LogServer { name, address, .. } in servers {
        if is_shared(name) {
            name.clone_from(address);
        }
    }
    for GoneServer { name, address, .. } in gone {
        if is_shared(name) {
            name.clone_from(address);
        }
    }
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
    /// The servers of the metaserver that are there. Those that have one name are named by their addresses. Connections to them are new, and show who the user is.
    ///
    /// # Errors
    /// [`CallError`] of the metaserver; [`CallError::NoLogs`] if it is of an earlier version.
    pub fn log_sources(&self) -> Result<LogSources, CallError> {
        let ask = |meta: &Client, until| meta.logs_until(&LogRequest::Latest(1), until);
        let json = self.inner.ask(ask)?;
        let mut found: LogDirectory =
            serde_json::from_str(&json).map_err(|error| malformed(&error))?;
        name_apart(&mut found);
        found.make_printable();
        let mut sources = LogSources::default();
        for servers in found.servers.chunks(AT_ONCE) {
            let connected: Vec<_> = std::thread::scope(|scope| {
                let begun: Vec<_> =
                    servers.iter().map(|server| scope.spawn(|| self.log_source(server))).collect();
                begun.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
            });
            for (server, connected) in servers.iter().zip(connected) {
                let name = server.name.clone();
                match connected {
                    Ok(Ok(client)) => sources.servers.push((name, client)),
                    Ok(Err(error)) => sources.unreachable.push((name, error)),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        }
        for GoneServer { name, address, state } in found.gone {
            sources.unreachable.push((name, CallError::ServerGone { address, state }));
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
            Remote::Server(client) => {
                client.check_logs()?;
                let servers = vec![(client.server().to_owned(), client.clone())];
                Ok(LogSources { servers, unreachable: Vec::new() })
            }
            Remote::Grid(grid) => grid.log_sources(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_one_name_are_named_by_their_addresses() {
        let server = |name: &str, address: &str| LogServer {
            name: name.to_owned(),
            address: address.to_owned(),
            pass: String::new(),
        };
        let gone = GoneServer {
            name: "vm".to_owned(),
            address: "h:2".to_owned(),
            state: "lost".to_owned(),
        };
        let servers = vec![server("vm", "h:1"), server("a", "h:3")];
        let mut found = LogDirectory { servers, gone: vec![gone] };
        name_apart(&mut found);
        let names: Vec<&str> = found.servers.iter().map(|it| it.name.as_str()).collect();
        assert_eq!((names, found.gone[0].name.as_str()), (vec!["h:1", "a"], "h:2"));
    }
}
