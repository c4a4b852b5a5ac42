//! Requests for places of calls, and connections to the servers that a metaserver has chosen.

use kumi_routing::Rules;
use kumi_rpc::{Placement, PlacementRequest};

use super::{Grid, Inner, Options, Ordering};
use crate::routed_call::nanoseconds;
use crate::{CallError, Client, KnownRoutine};

/// Why a server without TLS gets nothing.
const DOWNGRADE: &str = "the metaserver was given as tls://, and the server that it names is not; have the server encrypt \
                         (--tls-cert and --tls-key, or --tls-cluster)";

impl Grid {
    /// The request for a call of this routine.
    pub(crate) fn placing(
        &self,
        known: &KnownRoutine,
        bytes: (u64, u64),
        operations: f64,
    ) -> PlacementRequest {
        PlacementRequest {
            key: (self.inner.key, self.inner.calls.fetch_add(1, Ordering::Relaxed)),
            hash: known.hash,
            bytes_out: bytes.0,
            bytes_back: bytes.1,
            operations,
            time_ms: 0,
            attempts: 0,
            priority: self.priority,
            idempotent: known.interface.idempotent,
            bound: false,
            routine: known.interface.name.clone(),
            input_locations: Vec::new(),
        }
    }
}

impl Inner {
    /// What calls may do.
    pub(super) fn rules(&self, idempotent: bool) -> Rules {
        Rules { idempotent, retry_time: self.options.retry_time.map(nanoseconds) }
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
