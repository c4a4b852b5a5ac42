//! What the head shows to browsers: a certificate of its own, or the one of its links. Browsers show none.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;

use super::{Identity, TlsError, certificate, private_key};
use crate::paths;

/// Loads `web.pem` and `web.key` below `<dir>/tls`, or the head's certificate if there is no such.
///
/// # Errors
/// When files are missing, unreadable, or do not fit together.
pub fn web_server(dir: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let tls = paths::tls(dir);
    let own = tls.join("web.pem");
    let stem = if own.exists() { "web".to_owned() } else { Identity::Head.file() };
    let chain = vec![certificate(&tls.join(format!("{stem}.pem")))?];
    let key = private_key(&tls.join(format!("{stem}.key")))?;
    let setup = |error: rustls::Error| TlsError::Setup(error.to_string());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(setup)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(setup)?;
    Ok(Arc::new(config))
}
