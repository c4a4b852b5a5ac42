//! Requests for places of calls, and connections to the servers that a metaserver has chosen.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock};
#[cfg(feature = "transactions")]
use std::time::Duration;

use kumi_routing::Rules;
use kumi_rpc::{Placement, PlacementRequest};

#[cfg(feature = "transactions")]
use super::Instant;
use super::{Grid, Inner, Options, Ordering};
use crate::routed_call::{RoutedCall, nanoseconds};
use crate::{CallError, Client, KnownRoutine, locked};

/// How long a metaserver may take to read the last reports of a transaction.
#[cfg(feature = "transactions")]
const CLOSING: Duration = Duration::from_secs(2);

/// What a thread that has connected to a server tells those that wait for it. `None`: there is a connection, or an error that
/// may concern its own call alone. Otherwise the server cannot be reached.
type Reached = Option<(io::ErrorKind, String)>;

/// Servers that a thread connects to now, by address.
pub(super) type Opening = Mutex<HashMap<String, Arc<OnceLock<Reached>>>>;

/// Why a server without TLS gets nothing.
const DOWNGRADE: &str = "the metaserver was given as tls://, and the server that it names is not; have the server encrypt \
                         (--tls-cert and --tls-key, or --tls-cluster)";

impl Grid {
    /// A call of this routine that has asked no metaserver yet. `bytes` are those of arguments and results.
    pub(crate) fn route<'a>(
        &self,
        known: &Arc<KnownRoutine>,
        bytes: (u64, u64),
        operations: Option<f64>,
    ) -> RoutedCall<'a> {
        let placing = PlacementRequest {
            key: (self.inner.key, self.inner.calls.fetch_add(1, Ordering::Relaxed)),
            hash: known.hash,
            bytes_out: bytes.0,
            bytes_back: bytes.1,
            operations: operations.unwrap_or(f64::NAN),
            time_ms: 0,
            attempts: 0,
            priority: self.priority,
            idempotent: known.interface.idempotent,
            bound: false,
            routine: known.interface.name.clone(),
            input_locations: Vec::new(),
        };
        let mut routed_call = RoutedCall::new(Arc::clone(&self.inner), Arc::clone(known), placing);
        routed_call.resources = self.resources;
        routed_call
    }
}

/// What transactions need besides.
#[cfg(feature = "transactions")]
impl Grid {
    /// The same metaserver and priority, over connections of their own.
    pub(crate) fn separate(&self) -> Result<Grid, CallError> {
        let own = Grid::connect(&self.inner.addresses.join(","), &self.inner.options)?;
        Ok(own.with_priority(self.priority))
    }

    /// Ends the connection to the metaserver when that has read the last reports.
    pub(crate) fn end(&self) {
        let meta = locked(&self.inner.meta).0.take();
        if let Some(meta) = meta {
            // Any answer to a question behind the reports will do.
            let _names = meta.names_until(" ", Some(Instant::now() + CLOSING));
            meta.disconnect();
        }
    }
}

impl Inner {
    /// What calls may do.
    pub(super) fn rules(&self, idempotent: bool) -> Rules {
        Rules { idempotent, retry_time: self.options.retry_time.map(nanoseconds) }
    }

    /// A connection to a server. Calls share connections: of those that want one at the same time one connects, and the others
    /// wait for it. So a server that cannot be reached is tried once for all of them.
    pub fn server(&self, placed: &Placement) -> Result<Client, CallError> {
        let address = placed.address.as_str();
        // Connecting is done without locks: a server that does not answer must not block the others.
        let opening = {
            let mut openings = locked(&self.opening);
            if let Some(client) = locked(&self.servers).get(address) {
                return Ok(client.clone());
            }
            Arc::clone(openings.entry(address.to_owned()).or_default())
        };
        let mut own = None;
        let reached = opening.get_or_init(|| {
            let connected = self.connect_and_keep(placed);
            // Who comes now finds the connection, or tries again.
            locked(&self.opening).remove(address);
            let unreached = match &connected {
                Err(CallError::Connect { source, .. }) => Some((source.kind(), source.to_string())),
                _ => None,
            };
            own = Some(connected);
            unreached
        });
        match (own, reached) {
            (Some(connected), _) => connected,
            (None, Some((kind, text))) => Err(CallError::Connect {
                address: address.to_owned(),
                source: io::Error::new(*kind, text.clone()),
            }),
            (None, None) => {
                let kept = locked(&self.servers).get(address).cloned();
                kept.map_or_else(|| self.connect_and_keep(placed), Ok)
            }
        }
    }

    /// Connects to a server, and keeps the connection for other calls.
    fn connect_and_keep(&self, placed: &Placement) -> Result<Client, CallError> {
        let client = self.connect_server(placed)?;
        let mut servers = locked(&self.servers);
        Ok(servers.entry(placed.address.clone()).or_insert(client).clone())
    }

    /// A new connection to the server of a place. The server sees the metaserver's pass, never the token.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Tls`] without any connection if a metaserver is given by `tls://` and the server is
    /// not: arrays and pass would leave the encrypted way because a metaserver says so.
    pub(super) fn connect_server(&self, placed: &Placement) -> Result<Client, CallError> {
        let is_encrypted = |address: &String| crate::address::is_encrypted(address);
        if self.addresses.iter().any(is_encrypted) && !is_encrypted(&placed.address) {
            return Err(CallError::Tls {
                address: placed.address.clone(),
                text: DOWNGRADE.to_owned(),
            });
        }
        let options = Options { token: placed.pass.clone(), ..self.options.clone() };
        Client::connect(&placed.address, &options)
    }
}
