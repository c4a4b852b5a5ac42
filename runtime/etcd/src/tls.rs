//! TLS of connections to etcd: trusted authorities, and a client certificate if etcd wants one.

use std::io;
use std::path::Path;

use kumi_tls::{Pem, PemError};
use rustls::ClientConfig;

use crate::EtcdError;

impl From<PemError> for EtcdError {
    fn from(error: PemError) -> EtcdError {
        EtcdError::Tls(error.to_string())
    }
}

/// What connections show and check.
///
/// # Errors
/// [`EtcdError::Tls`]: a file cannot be used.
pub(crate) fn config(
    ca: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<ClientConfig, EtcdError> {
    let config = ClientConfig::builder_with_provider(kumi_tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| PemError::content("TLS", error))?
        .with_root_certificates(kumi_tls::trusted(ca)?);
    let Some((certificate, key)) = identity else { return Ok(config.with_no_client_auth()) };
    let (certificate, key) = (Pem::read(certificate)?, Pem::read(key)?);
    let config = config.with_client_auth_cert(certificate.certificates()?, key.key()?);
    Ok(config.map_err(|error| certificate.wrong(error))?)
}

/// What went wrong with a connection, and what to do.
pub(crate) fn advice(error: &io::Error) -> String {
    kumi_tls::advice(error, "in the settings of etcd", "use http://, or give etcd a certificate")
}
