//! TLS of connections to etcd: trusted authorities, and a client certificate if etcd wants one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, RootCertStore};

use crate::EtcdError;

fn wrong(what: &Path, reason: &dyn std::fmt::Display) -> EtcdError {
    EtcdError::Tls(format!("{}: {reason}", what.display()))
}

fn read(path: &Path) -> Result<Vec<u8>, EtcdError> {
    std::fs::read(path).map_err(|error| {
        let path = path.display();
        EtcdError::Tls(format!("{path} cannot be read: {error}; check its name and permissions"))
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, EtcdError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.map_err(|error| wrong(path, &error))?;
    if found.is_empty() {
        return Err(wrong(path, &"it contains no certificate in PEM format"));
    }
    Ok(found)
}

/// The authorities of a file, or those that the system trusts.
fn trusted(ca: Option<&Path>) -> Result<RootCertStore, EtcdError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| wrong(path, &error))?;
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let text = "this system: it trusts no authorities; name a file with trusted ones";
        return Err(EtcdError::Tls(text.to_owned()));
    }
    Ok(roots)
}

/// What connections show and check.
///
/// # Errors
/// [`EtcdError::Tls`]: a file cannot be used.
pub(crate) fn config(
    ca: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<ClientConfig, EtcdError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(Path::new("TLS"), &error))?
        .with_root_certificates(trusted(ca)?);
    let Some((certificate, key)) = identity else { return Ok(config.with_no_client_auth()) };
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| wrong(key, &error))?;
    config.with_client_auth_cert(chain, secret).map_err(|error| wrong(certificate, &error))
}

/// What went wrong with a connection, and what to do.
pub(crate) fn advice(error: &io::Error) -> String {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return error.to_string();
    };
    match tls {
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => "its certificate comes from an authority that is not trusted here; name the authority's certificate in the settings of etcd"
            .to_owned(),
        rustls::Error::InvalidCertificate(
            why @ (CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. }),
        ) => format!(
            "its certificate is for another name ({why}); connect by a name in the certificate"
        ),
        rustls::Error::InvalidMessage(_) => {
            "the other side does not speak TLS; use http://, or give etcd a certificate".to_owned()
        }
        other => other.to_string(),
    }
}
