//! TLS and certificates for machines that join: see [`kumi_control::join`].
//!
//! The machine has no certificate yet, and knows of the cluster what its token says. So the head shows the certificate of the
//! authority besides its own, and the machine believes the one with the fingerprint in the token.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use kumi_control::join::{JoinHello, JoinSecret, KEY_BYTES, PROTOCOL};
use kumi_sched::NodeId;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm, SigningKey};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig,
    SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::{Credentials, DAEMON_DAYS, Identity, TlsError, authority, daemon_params, file_error};
use super::{certificate, write};
use crate::paths;

/// The key of a machine that has not joined yet, below `tls`.
const JOINING: &str = "joining.key";

/// Which kind of caller a connection is from.
pub(crate) enum Accepted<S> {
    /// It has a certificate of the cluster.
    Daemon(TlsStream<S>),
    /// It has none, and wants to join.
    Machine(TlsStream<S>),
}

/// What the head shows to machines that join: its own certificate, and that of the authority.
pub(super) fn server(
    provider: Arc<CryptoProvider>,
    mut chain: Vec<CertificateDer<'static>>,
    authority: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    chain.push(authority);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(config)
}

impl Credentials {
    /// Authenticates an incoming connection as [`Credentials::accept`] does, unless the caller says that it wants to join.
    ///
    /// # Errors
    /// The caller is neither, or the connection fails.
    pub(crate) async fn accept_any<S>(&self, stream: S) -> io::Result<Accepted<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        let named = start.client_hello().alpn();
        let joins = named.is_some_and(|mut names| names.any(|name| name == PROTOCOL));
        let loaded = self.loaded();
        Ok(match loaded.join {
            Some(config) if joins => Accepted::Machine(start.into_stream(config).await?),
            _ => Accepted::Daemon(start.into_stream(loaded.server).await?),
        })
    }
}

/// The fingerprint of a certificate (DER).
fn fingerprint(certificate: &[u8]) -> [u8; 32] {
    *blake3::hash(certificate).as_bytes()
}

/// The fingerprint of the authority of the cluster in `dir`, for tokens.
///
/// # Errors
/// Its certificate cannot be read.
pub fn authority_fingerprint(dir: &Path) -> Result<[u8; 32], TlsError> {
    Ok(fingerprint(&certificate(&paths::tls(dir).join("ca.pem"))?))
}

/// Whether this text is the certificate of the authority with this fingerprint.
#[must_use]
pub fn is_authority(pem: &str, expected: &[u8; 32]) -> bool {
    let read = CertificateDer::from_pem_slice(pem.as_bytes());
    read.is_ok_and(|der| fingerprint(&der) == *expected)
}

/// A public key of the curve P-256.
struct NodeKey<'a>(&'a [u8]);

impl PublicKeyData for NodeKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// Whether a machine has the private key of the public one that it names.
#[must_use]
pub(crate) fn has_key(hello: &JoinHello) -> bool {
    let signed = JoinHello::signed(&hello.secret, &hello.public_key);
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &hello.public_key);
    hello.public_key.len() == KEY_BYTES && key.verify(&signed, &hello.proof).is_ok()
}

/// Whether the key with which certificates are signed is in the folder of the cluster.
#[must_use]
pub(crate) fn can_sign(dir: &Path) -> bool {
    paths::tls(dir).join("ca.key").is_file()
}

/// Makes the certificate of a node for a public key that is proven. Returns it, PEM.
///
/// # Errors
/// The authority's key is not here, is that of another cluster, or does not sign.
pub(crate) fn certify(
    dir: &Path,
    cluster: &str,
    node: NodeId,
    public_key: &[u8],
) -> Result<String, TlsError> {
    let issuer = authority(dir, cluster)?;
    let (tls, key) = (paths::tls(dir), issuer.key().subject_public_key_info());
    // Somebody may have copied the key here, and a certificate that nobody believes would use up the token.
    if !certificate(&tls.join("ca.pem"))?.windows(key.len()).any(|part| part == key) {
        let reason = "it is not the key of ca.pem".to_owned();
        return Err(TlsError::Content { path: tls.join("ca.key"), reason });
    }
    let params = daemon_params((Identity::Node(node), 0), DAEMON_DAYS)?;
    Ok(params.signed_by(&NodeKey(public_key), &issuer)?.pem())
}

/// The key pair of a machine that joins. The private key never leaves its folder.
pub struct JoiningKey(KeyPair);

impl JoiningKey {
    /// The key in the cluster's folder `dir`, which is made if there is none: whoever tries again has the same key, for which
    /// the head may have made a certificate already.
    ///
    /// # Errors
    /// It cannot be written or read.
    pub fn of(dir: &Path) -> Result<Self, TlsError> {
        let tls = paths::tls(dir);
        let path = tls.join(JOINING);
        super::make_folder(&tls)?;
        match fs::read_to_string(&path) {
            Ok(text) => match KeyPair::from_pem(&text) {
                Ok(key) => Ok(Self(key)),
                Err(error) => Err(TlsError::Content { path, reason: error.to_string() }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = KeyPair::generate()?;
                write(&path, 0o600, &key.serialize_pem())?;
                Ok(Self(key))
            }
            Err(source) => Err(TlsError::File { path, source }),
        }
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        self.0.public_key_raw()
    }

    /// Proves to the head that this machine has the key.
    ///
    /// # Errors
    /// It does not sign.
    pub fn prove(&self, secret: &JoinSecret) -> Result<Vec<u8>, TlsError> {
        Ok(self.0.sign(&JoinHello::signed(secret, self.public()))?)
    }

    /// Makes the key that of a node, with its certificate and that of the authority, and checks that they fit together.
    ///
    /// # Errors
    /// They do not, or a file cannot be written.
    pub fn install(
        &self,
        dir: &Path,
        node: NodeId,
        (certificate, authority): (&str, &str),
    ) -> Result<(), TlsError> {
        let (tls, stem) = (paths::tls(dir), Identity::Node(node).file());
        write(&tls.join(format!("{stem}.key")), 0o600, &self.0.serialize_pem())?;
        write(&tls.join(format!("{stem}.pem")), 0o644, certificate)?;
        write(&tls.join("ca.pem"), 0o644, authority)?;
        Credentials::load(dir, Identity::Node(node)).map(drop)
    }

    /// The machine has joined: the key has its name as the node's from now on.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn finish(self, dir: &Path) -> Result<(), TlsError> {
        let path = paths::tls(dir).join(JOINING);
        fs::remove_file(&path).map_err(file_error(&path))
    }
}

/// Believes the head of the cluster whose authority has this fingerprint.
#[derive(Debug)]
struct PinnedAuthority {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = intermediates.iter().find(|shown| fingerprint(shown) == self.fingerprint);
        let authority = shown.ok_or(CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let provider = Arc::clone(&self.provider);
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        usual.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Connects to the head of the cluster whose authority has this fingerprint, as a machine that joins.
///
/// # Errors
/// Somebody else answers, or the connection fails.
pub async fn connect_to_join<S>(
    fingerprint: [u8; 32],
    stream: S,
) -> io::Result<tokio_rustls::client::TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let provider = Arc::new(crypto::ring::default_provider());
    let pinned = PinnedAuthority { fingerprint, provider: Arc::clone(&provider) };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(Identity::Head.server_name(), stream).await
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::create;
    use super::*;

    const NODE: NodeId = NodeId(7);

    fn hello(key: &JoiningKey) -> JoinHello {
        let secret = JoinSecret([5; 16]);
        JoinHello {
            version: 1,
            control: 15,
            secret,
            public_key: key.public().to_vec(),
            proof: key.prove(&secret).unwrap(),
        }
    }

    #[test]
    fn a_key_is_made_once_and_certified_elsewhere() {
        let (head, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        create(head.path(), "lab", 1).unwrap();
        let key = JoiningKey::of(machine.path()).unwrap();
        assert_eq!(JoiningKey::of(machine.path()).unwrap().public(), key.public());
        let draft = paths::tls(machine.path()).join(JOINING);
        assert_eq!(fs::metadata(&draft).unwrap().permissions().mode() & 0o777, 0o600);
        let certificate = certify(head.path(), "lab", NODE, key.public()).unwrap();
        let authority = fs::read_to_string(paths::tls(head.path()).join("ca.pem")).unwrap();
        let pin = authority_fingerprint(head.path()).unwrap();
        assert!(is_authority(&authority, &pin));
        assert!(!is_authority(&authority, &[0; 32]) && !is_authority("no certificate", &pin));
        key.install(machine.path(), NODE, (&certificate, &authority)).unwrap();
        key.finish(machine.path()).unwrap();
        let credentials = Credentials::load(machine.path(), Identity::Node(NODE));
        assert!(credentials.is_ok() && !draft.exists());
        let private = paths::tls(machine.path()).join("node-7.key");
        assert_eq!(fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o600);
        // A certificate for another key.
        let other = JoiningKey::of(machine.path()).unwrap();
        let wrong = other.install(machine.path(), NODE, (&certificate, &authority)).unwrap_err();
        assert!(matches!(wrong, TlsError::Setup(_)), "{wrong}");
        fs::write(&draft, "no key").unwrap();
        assert!(matches!(JoiningKey::of(machine.path()), Err(TlsError::Content { .. })));
    }

    #[test]
    fn the_key_of_another_authority_signs_nothing() {
        let (head, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let machine = tempfile::tempdir().unwrap();
        create(head.path(), "lab", 1).unwrap();
        create(other.path(), "lab", 1).unwrap();
        let key = |dir: &Path| paths::tls(dir).join("ca.key");
        fs::copy(key(other.path()), key(head.path())).unwrap();
        let joining = JoiningKey::of(machine.path()).unwrap();
        let error = certify(head.path(), "lab", NODE, joining.public()).unwrap_err().to_string();
        assert!(error.contains("not the key of ca.pem") && error.contains("copy it"), "{error}");
    }

    #[test]
    fn a_machine_proves_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let key = JoiningKey::of(dir.path()).unwrap();
        let good = hello(&key);
        assert!(has_key(&good));
        let elsewhere = tempfile::tempdir().unwrap();
        let other = hello(&JoiningKey::of(elsewhere.path()).unwrap());
        for wrong in [
            JoinHello { public_key: other.public_key, ..good.clone() },
            JoinHello { secret: JoinSecret([6; 16]), ..good.clone() },
            JoinHello { proof: Vec::new(), ..good.clone() },
            JoinHello { public_key: vec![4; KEY_BYTES], ..good.clone() },
            JoinHello { public_key: Vec::new(), ..good },
        ] {
            assert!(!has_key(&wrong), "{wrong:?}");
        }
    }

    /// What the machine says of the connection; the other side is the head of the cluster in `dir`.
    async fn meet(dir: &Path, pin: [u8; 32]) -> io::Result<bool> {
        let head = Credentials::load(dir, Identity::Head).unwrap();
        let (near, far) = tokio::io::duplex(1 << 16);
        let accept = async { head.accept_any(far).await };
        let (connected, accepted) = tokio::join!(connect_to_join(pin, near), accept);
        connected.map(|_| matches!(accepted, Ok(Accepted::Machine(_))))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_machine_believes_the_head_of_its_token_only() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        create(dir.path(), "lab", 1).unwrap();
        create(other.path(), "lab", 1).unwrap();
        let pin = authority_fingerprint(dir.path()).unwrap();
        assert!(meet(dir.path(), pin).await.unwrap());
        // After `kumi cluster rotate head` as well.
        super::super::renew(dir.path(), "lab", &[Identity::Head], 3).unwrap();
        assert!(meet(dir.path(), pin).await.unwrap());
        let error = meet(other.path(), pin).await.unwrap_err();
        assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    }

    /// Nodes certify nobody: a machine that wants to join is to them a caller without a certificate.
    #[tokio::test(flavor = "current_thread")]
    async fn a_node_takes_no_machine() {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), "lab", 1).unwrap();
        let node = Credentials::load(dir.path(), Identity::Node(NodeId(0))).unwrap();
        let pin = authority_fingerprint(dir.path()).unwrap();
        let (near, far) = tokio::io::duplex(1 << 16);
        let accept = async { node.accept_any(far).await.map(drop) };
        let (connected, accepted) = tokio::join!(connect_to_join(pin, near), accept);
        assert!(connected.is_err() && accepted.is_err());
    }
}
