//! What calls of routines and etcd's clients need for TLS: PEM files, trusted authorities, and advice to users.
//!
//! The cluster's own authority is the daemon's.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, RootCertStore};

/// Why a file or text cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// A file cannot be read.
    #[error("{} cannot be read: {source}; check its name and permissions", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file or text does not contain what it should.
    #[error("{what}: {reason}")]
    Content {
        /// The file.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl PemError {
    /// The error that the content of a file or text has.
    pub fn content(what: impl Display, reason: impl Display) -> PemError {
        PemError::Content { what: what.to_string(), reason: reason.to_string() }
    }
}

/// A PEM text, and where it is from.
#[derive(Debug)]
pub struct Pem {
    what: String,
    text: Vec<u8>,
}

impl Pem {
    /// The text of a file.
    ///
    /// # Errors
    /// [`PemError::File`].
    pub fn read(path: &Path) -> Result<Pem, PemError> {
        match std::fs::read(path) {
            Ok(text) => Ok(Pem { what: path.display().to_string(), text }),
            Err(source) => Err(PemError::File { path: path.to_owned(), source }),
        }
    }

    /// This text; errors call it `what`.
    #[must_use]
    pub fn of(what: &str, text: &str) -> Pem {
        Pem { what: what.to_owned(), text: text.into() }
    }

    /// The error that something is wrong with it.
    pub fn wrong(&self, reason: impl Display) -> PemError {
        PemError::content(&self.what, reason)
    }

    /// Its certificates, at least one.
    ///
    /// # Errors
    /// [`PemError::Content`].
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        let found = found.map_err(|error| self.wrong(error))?;
        if found.is_empty() {
            return Err(self.wrong("it contains no certificate in PEM format"));
        }
        Ok(found)
    }

    /// Its private key.
    ///
    /// # Errors
    /// [`PemError::Content`].
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, PemError> {
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|error| self.wrong(error))
    }
}

/// The cryptography of all sessions.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The authorities of a PEM file and no others, or those that the system trusts.
///
/// # Errors
/// [`PemError`].
pub fn trusted(ca: Option<&Path>) -> Result<RootCertStore, PemError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca {
        let pem = Pem::read(path)?;
        for certificate in pem.certificates()? {
            roots.add(certificate).map_err(|error| pem.wrong(error))?;
        }
        return Ok(roots);
    }
    let found = rustls_native_certs::load_native_certs();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        let reason = "it trusts no authorities; name a file with trusted ones";
        return Err(PemError::content("this system", reason));
    }
    Ok(roots)
}

/// What went wrong with a connection, and what its user can do. `authority` says with what the user names trusted authorities,
/// `clear` what to do where the other side does not speak TLS.
#[must_use]
pub fn advice(error: &io::Error, authority: &str, clear: &str) -> String {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return error.to_string();
    };
    match tls {
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => format!(
            "its certificate comes from an authority that is not trusted here; name the authority's certificate {authority}"
        ),
        rustls::Error::InvalidCertificate(
            why @ (CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. }),
        ) => format!(
            "its certificate is for another name ({why}); connect by a name in the certificate"
        ),
        rustls::Error::InvalidMessage(_) => format!("the other side does not speak TLS; {clear}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ca.pem");
        let text = trusted(Some(&path)).expect_err("there is no file").to_string();
        assert!(text.starts_with(&format!("{} cannot be read", path.display())), "{text}");
        std::fs::write(&path, "no certificate").expect("written");
        let text = trusted(Some(&path)).expect_err("there is none").to_string();
        assert!(text.contains("ca.pem: it contains no certificate"), "{text}");
        let text = Pem::of("the key", "nothing").key().expect_err("there is none").to_string();
        assert!(text.starts_with("the key: "), "{text}");
    }

    #[test]
    fn advice_names_what_helps() {
        let told = |error: rustls::Error| {
            advice(&io::Error::other(error), "with --ca FILE", "use http://")
        };
        let unknown = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert!(told(unknown).ends_with("certificate with --ca FILE"));
        let name = rustls::Error::InvalidCertificate(CertificateError::NotValidForName);
        assert!(told(name).contains("by a name in the certificate"));
        let clear = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert_eq!(told(clear), "the other side does not speak TLS; use http://");
        let other = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(advice(&other, "", ""), other.to_string());
    }
}
