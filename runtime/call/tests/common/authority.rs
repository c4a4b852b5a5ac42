#![allow(dead_code)] // Each test uses a part of it.
//! A certificate authority for a test.

use std::path::PathBuf;

use kumi_call::Tls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// An authority, with its certificate in a file.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub folder: tempfile::TempDir,
}

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).expect("written");
        Authority { issuer: Issuer::new(params, key), folder }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub fn server(&self, name: &str) -> Tls {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Tls::of(&certificate.pem(), &key.serialize_pem()).expect("they fit")
    }
}
