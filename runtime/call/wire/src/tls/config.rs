//! Certificates of servers, and the authorities that clients trust.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use kumi_tls::{Pem, PemError};
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use super::{TlsError, TlsSession};

/// Certificate and key of a server.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
}

impl fmt::Debug for Tls {
    /// Without the key: it is a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tls")
    }
}

impl Tls {
    /// Loads two PEM files: the certificate with its intermediate certificates, and its key.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        Tls::new(&Pem::read(certificate)?, &Pem::read(key)?)
    }

    /// Reads PEM texts.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn of(certificate: &str, key: &str) -> Result<Tls, TlsError> {
        Tls::new(&Pem::of("the certificate", certificate), &Pem::of("the key", key))
    }

    fn new(certificate: &Pem, key: &Pem) -> Result<Tls, TlsError> {
        let mut config = ServerConfig::builder_with_provider(kumi_tls::provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| PemError::content("TLS", error))?
            .with_no_client_auth()
            .with_single_cert(certificate.certificates()?, key.key()?)
            .map_err(|error| certificate.wrong(error))?;
        // Connections are long-lived, so session tickets are not worth their cost.
        config.send_tls13_tickets = 0;
        Ok(Tls { config: Arc::new(config) })
    }

    /// The session of an accepted connection.
    pub fn accept(&self) -> io::Result<TlsSession> {
        let session = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        Ok(TlsSession::new(session.into()))
    }
}

/// Authorities that a client trusts.
#[derive(Clone)]
pub struct Authorities {
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Authorities {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Authorities")
    }
}

impl Authorities {
    /// The authorities of a PEM file and no others, or those that the system trusts.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(ca: Option<&Path>) -> Result<Authorities, TlsError> {
        let config = ClientConfig::builder_with_provider(kumi_tls::provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| PemError::content("TLS", error))?
            .with_root_certificates(kumi_tls::trusted(ca)?)
            .with_no_client_auth();
        Ok(Authorities { config: Arc::new(config) })
    }

    /// The session of a connection to a server of this name.
    pub fn begin(&self, host: &str) -> Result<TlsSession, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| PemError::content(host, "this name cannot be in a certificate"))?;
        let session = ClientConnection::new(Arc::clone(&self.config), name);
        Ok(TlsSession::new(session.map_err(|error| PemError::content(host, error))?.into()))
    }
}

/// The session of a connection to a server of this name.
pub fn begin(host: &str, ca: Option<&Path>) -> Result<TlsSession, TlsError> {
    Authorities::load(ca)?.begin(host)
}

/// What went wrong, and what to do, for the user of a client.
pub fn advice(error: &io::Error) -> String {
    advice_with(error, "--ca FILE or KUMI_CALL_CA")
}

/// [`advice`] for a user who names trusted authorities by `option`.
pub fn advice_with(error: &io::Error, option: &str) -> String {
    let clear =
        "give its address without tls://, or start the server with --tls-cert and --tls-key";
    kumi_tls::advice(error, &format!("with {option}"), clear)
}
