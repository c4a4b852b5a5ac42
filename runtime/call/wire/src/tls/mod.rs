//! TLS 1.3 for connections of calls.
//!
//! Only version 1.3 is spoken, because both ends are Kumi's. The server proves its identity by a certificate,
//! the client by its token. Without TLS, bytes go from sockets straight to their places. With TLS they are
//! copied once on the way. Without the feature `tls` no session begins, and its error says why.

#[cfg(feature = "tls")]
mod config;
#[cfg(feature = "tls")]
mod session;
#[cfg(feature = "server")]
mod stream;
#[cfg(not(feature = "tls"))]
mod without;

use thiserror::Error;

#[cfg(feature = "tls")]
pub use config::{Authorities, Tls, advice, advice_with, begin};
#[cfg(feature = "tls")]
pub use kumi_tls::PemError;
#[cfg(feature = "tls")]
pub use session::TlsSession;
#[cfg(feature = "server")]
pub use stream::TlsStream;
#[cfg(not(feature = "tls"))]
pub use without::{TlsSession, advice, begin};

/// Why a session of TLS cannot begin.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file or a text cannot be used.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The program was built without the feature `tls`.
    #[error(
        "this program was built without TLS; build it with the feature `tls`, or use an address without tls://"
    )]
    NotBuilt,
}

/// The host of `HOST:PORT`.
pub fn host(bare: &str) -> &str {
    let host = bare.rsplit_once(':').map_or(bare, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}
