//! Certificates of servers, and the authorities that clients trust.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
};

use super::{TlsError, TlsSession};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::File { path: path.to_owned(), source })
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |reason: String| TlsError::Content { what: what.to_owned(), reason };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() {
        return Err(wrong("it contains no certificate in PEM format".to_owned()));
    }
    Ok(found)
}

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
        let names = (certificate.display().to_string(), key.display().to_string());
        Tls::new((&names.0, &read(certificate)?), (&names.1, &read(key)?))
    }

    /// Reads PEM texts.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn of(certificate: &str, key: &str) -> Result<Tls, TlsError> {
        Tls::new(("the certificate", certificate.as_bytes()), ("the key", key.as_bytes()))
    }

    fn new(certificate: (&str, &[u8]), key: (&str, &[u8])) -> Result<Tls, TlsError> {
        let wrong = |what: &str, reason: &dyn fmt::Display| TlsError::Content {
            what: what.to_owned(),
            reason: reason.to_string(),
        };
        let chain = certificates(certificate.0, certificate.1)?;
        let secret = PrivateKeyDer::from_pem_slice(key.1).map_err(|error| wrong(key.0, &error))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| wrong("TLS", &error))?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|error| wrong(certificate.0, &error))?;
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

/// The authorities of a file, or those that the system trusts.
fn trusted(ca: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        let what = path.display().to_string();
        for certificate in certificates(&what, &read(path)?)? {
            roots.add(certificate).map_err(|error| TlsError::Content {
                what: what.clone(),
                reason: error.to_string(),
            })?;
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        return Err(TlsError::Content {
            what: "this system".to_owned(),
            reason: "it trusts no authorities; name a file with trusted ones".to_owned(),
        });
    }
    Ok(roots)
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
        let wrong = |reason: String| TlsError::Content { what: "TLS".to_owned(), reason };
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| wrong(error.to_string()))?
            .with_root_certificates(trusted(ca)?)
            .with_no_client_auth();
        Ok(Authorities { config: Arc::new(config) })
    }

    /// The session of a connection to a server of this name.
    pub fn begin(&self, host: &str) -> Result<TlsSession, TlsError> {
        let wrong = |reason: String| TlsError::Content { what: host.to_owned(), reason };
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| wrong("this name cannot be in a certificate".to_owned()))?;
        let session = ClientConnection::new(Arc::clone(&self.config), name);
        Ok(TlsSession::new(session.map_err(|error| wrong(error.to_string()))?.into()))
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
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return error.to_string();
    };
    match tls {
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => format!(
            "its certificate comes from an authority that is not trusted here; name the authority's certificate with {option}"
        ),
        rustls::Error::InvalidCertificate(
            why @ (CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. }),
        ) => format!(
            "its certificate is for another name ({why}); connect by a name in the certificate"
        ),
        rustls::Error::InvalidMessage(_) => {
            "the other side does not speak TLS; give its address without \
             tls://, or start the server with --tls-cert and --tls-key"
                .to_owned()
        }
        other => other.to_string(),
    }
}
