//! Certificate authority of a cluster, and mutual authentication of its daemons.
//!
//! Every cluster has an authority of its own. The head is `head.kumi`, node `i` is `node-<i>.kumi`.
//! Both sides of a link show certificates; who calls checks the name of whom it called, and who is
//! called checks that the caller's certificate carries the name it claims. A certificate is numbered by the time of its
//! issue, so that all that a node had can be revoked at once.

mod certificate;
mod copies;
mod join;
mod revocations;
mod web;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use kumi_control::message::Revocation;
use kumi_sched::NodeId;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::client::verify_server_name;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, CommonState, RootCertStore, ServerConfig};

use crate::durable;
use crate::exit::{ExitCode, Failure};
use crate::paths;

use certificate::CertificateTimes;
pub(crate) use join::{Accepted, can_sign, certify, has_key};
pub use join::{JoiningKey, authority_fingerprint, connect_to_join, is_authority};
pub use revocations::Revocations;
pub use web::web_server;

/// Days for which certificates of daemons and servers are valid, unless somebody says otherwise.
pub const DAEMON_DAYS: u16 = 730;
/// Days for which an authority is.
const AUTHORITY_DAYS: u16 = 3_650;
/// So much may the clock of a machine be behind that of the authority's.
const CLOCKS_DIFFER: time::Duration = time::Duration::days(1);

/// Holder of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The head.
    Head,
    /// A node.
    Node(NodeId),
}

impl Identity {
    /// The subject name in its certificate.
    pub fn name(self) -> String {
        format!("{}.kumi", self.file())
    }

    /// The stem of its files under `tls/`.
    fn file(self) -> String {
        match self {
            Self::Head => "head".to_owned(),
            Self::Node(node) => format!("node-{node}"),
        }
    }

    fn server_name(self) -> ServerName<'static> {
        // Letters, digits, one dash and one dot make a DNS name whatever the number.
        ServerName::try_from(self.name()).expect("a DNS name")
    }
}

/// Why certificates could not be made, loaded or accepted.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The cluster has certificates already.
    #[error("{0} exists already; take the cluster down or remove it to make a new authority")]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error(
        "{path} cannot be used: {source}; copy it from where the cluster was initialised, and check its owner and permissions"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error message.
        source: io::Error,
    },
    /// A file holds something else.
    #[error(
        "{path} is not what it should be ({reason}); copy it again from where the cluster was initialised"
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// The error in it.
        reason: String,
    },
    /// Making a certificate failed.
    #[error("a certificate could not be made: {0}")]
    Make(#[from] rcgen::Error),
    /// The TLS library does not accept the configuration.
    #[error(
        "the certificates do not fit together: {0}; copy them again from where the cluster was initialised"
    )]
    Setup(String),
    /// The peer's certificate is revoked.
    #[error("the certificate of {0} is revoked; give it a new one with `kumi cluster rotate`")]
    Revoked(String),
    /// The peer's certificate is for someone else.
    #[error(
        "the peer says it is {claimed} and its certificate is for someone else; check that each host has the files of its own node"
    )]
    WrongName {
        /// The name it should have.
        claimed: String,
    },
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Self {
        let code = match error {
            TlsError::Exists(_) => ExitCode::Exists,
            TlsError::Make(_) => ExitCode::Internal,
            TlsError::File { ref source, .. } if source.kind() != io::ErrorKind::NotFound => {
                ExitCode::Io
            }
            _ => ExitCode::BadConfig,
        };
        Self::new(code, error.to_string())
    }
}

fn file_error(path: &Path) -> impl FnOnce(io::Error) -> TlsError {
    let path = path.to_owned();
    move |source| TlsError::File { path, source }
}

/// Writes a file, in one step over an older one.
fn write(path: &Path, mode: u32, text: &str) -> Result<(), TlsError> {
    durable::write(path, mode, text).map_err(file_error(path))
}

/// Makes the folder of certificates and keys, into which nobody but its owner writes, whatever the umask permits.
fn make_folder(tls: &Path) -> Result<(), TlsError> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(tls).map_err(file_error(tls))
}

/// Sets the serial number and the validity of a certificate that is issued now; `index` tells it from others of that time.
fn date(params: &mut CertificateParams, index: u64, days: u16) {
    let now = time::OffsetDateTime::now_utc();
    params.not_before = now - CLOCKS_DIFFER;
    params.not_after = now + time::Duration::days(days.into());
    let micros = u64::try_from(now.unix_timestamp_nanos() / 1_000).unwrap_or(0);
    params.serial_number = Some(micros.saturating_add(index).into());
}

/// What is signed of a daemon, besides its key.
fn daemon_params(
    (identity, index): (Identity, u64),
    days: u16,
) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::new(vec![identity.name()])?;
    params.distinguished_name = subject(&identity.name());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    date(&mut params, index, days);
    Ok(params)
}

/// Makes a certificate and key of `identity`. The key first: without its certificate it is of no use.
fn issue_daemon(
    tls: &Path,
    issuer: &Issuer<'_, KeyPair>,
    (identity, index): (Identity, u64),
    days: u16,
) -> Result<(), TlsError> {
    let params = daemon_params((identity, index), days)?;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    let stem = identity.file();
    write(&tls.join(format!("{stem}.key")), 0o600, &key.serialize_pem())?;
    write(&tls.join(format!("{stem}.pem")), 0o644, &certificate.pem())
}

/// Makes the authority of cluster `cluster` and certificates for its head and `nodes` nodes, in
/// `<dir>/tls`. Keys are readable by their owner only.
///
/// # Errors
/// When there is an authority already, or files cannot be written.
pub fn create(dir: &Path, cluster: &str, nodes: u32) -> Result<(), TlsError> {
    let tls = paths::tls(dir);
    if tls.join("ca.pem").exists() {
        return Err(TlsError::Exists(tls));
    }
    make_folder(&tls)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&format!("Kumi cluster {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    date(&mut params, 0, AUTHORITY_DAYS);
    let authority = params.self_signed(&key)?;
    write(&tls.join("ca.key"), 0o600, &key.serialize_pem())?;
    let issuer = Issuer::new(params, key);
    let nodes = (0..nodes).map(|node| Identity::Node(NodeId(node)));
    for (identity, index) in [Identity::Head].into_iter().chain(nodes).zip(1..) {
        issue_daemon(&tls, &issuer, (identity, index), DAEMON_DAYS)?;
    }
    // Last, since it says that everything is there.
    write(&tls.join("ca.pem"), 0o644, &authority.pem())
}

/// Makes a certificate for a server of these names and addresses, which whoever trusts the authority of cluster
/// `cluster` believes: the certificate and its key, PEM.
///
/// # Errors
/// When the authority's key is not here, or a name is none.
pub fn issue(dir: &Path, cluster: &str, names: Vec<String>) -> Result<(String, String), TlsError> {
    let issuer = authority(dir, cluster)?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = subject("a server of a Kumi cluster");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    date(&mut params, 0, DAEMON_DAYS);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// Makes new certificates and keys of these daemons, for so many days.
///
/// # Errors
/// When the authority's key is not here, or files cannot be written.
pub fn renew(dir: &Path, cluster: &str, daemons: &[Identity], days: u16) -> Result<(), TlsError> {
    let issuer = authority(dir, cluster)?;
    let tls = paths::tls(dir);
    daemons
        .iter()
        .zip(1..)
        .try_for_each(|(&daemon, index)| issue_daemon(&tls, &issuer, (daemon, index), days))
}

/// The authority of a cluster, where its key is.
fn authority(dir: &Path, cluster: &str) -> Result<Issuer<'static, KeyPair>, TlsError> {
    let path = paths::tls(dir).join("ca.key");
    let text = fs::read_to_string(&path).map_err(file_error(&path))?;
    let wrong = |error: rcgen::Error| TlsError::Content { path, reason: error.to_string() };
    let key = KeyPair::from_pem(&text).map_err(wrong)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&format!("Kumi cluster {cluster}"));
    Ok(Issuer::new(params, key))
}

/// Names (`head`, `node-3`, `ca`) and ends, in seconds since the epoch, of all certificates in `<dir>/tls` that can be read.
#[must_use]
pub fn ends(dir: &Path) -> Vec<(String, i64)> {
    let entries = fs::read_dir(paths::tls(dir)).into_iter().flatten().flatten();
    let mut ends: Vec<_> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".pem")?.to_owned();
            Some((name, CertificateTimes::read(&certificate(&path).ok()?)?.until))
        })
        .collect();
    ends.sort_unstable();
    ends
}

fn subject(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

/// What a daemon shows and checks.
#[derive(Clone)]
struct Loaded {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// For machines that join; of the head only.
    join: Option<Arc<ServerConfig>>,
    /// For heads among themselves: the one that calls, and the one that is called.
    copies: (Arc<ClientConfig>, Arc<ServerConfig>),
}

impl Loaded {
    fn load(tls: &Path, identity: Identity) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let path = tls.join("ca.pem");
        let authority = certificate(&path)?;
        roots
            .add(authority.clone())
            .map_err(|error| TlsError::Content { path, reason: error.to_string() })?;
        let roots = Arc::new(roots);
        let chain = vec![certificate(&tls.join(format!("{}.pem", identity.file())))?];
        let key = private_key(&tls.join(format!("{}.key", identity.file())))?;
        let provider = Arc::new(ring::default_provider());
        let setup = |error: &dyn std::fmt::Display| TlsError::Setup(error.to_string());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| setup(&error))?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|error| setup(&error))?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| setup(&error))?;
        let join = match identity {
            Identity::Head => Some(
                join::server(Arc::clone(&provider), chain.clone(), authority, key.clone_key())
                    .map_err(|error| setup(&error))?,
            ),
            Identity::Node(_) => None,
        };
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| setup(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| setup(&error))?;
        server.send_tls13_tickets = 0;
        let copies = copies::between_heads(client.clone(), server.clone());
        let (client, server) = (Arc::new(client), Arc::new(server));
        Ok(Self { client, server, join: join.map(Arc::new), copies })
    }
}

/// Credentials by which one side of a link proves its identity and checks the other's.
#[derive(Clone)]
pub struct Credentials {
    tls: PathBuf,
    identity: Identity,
    /// Replaced when there are new files.
    loaded: Arc<RwLock<Loaded>>,
    revocations: Revocations,
}

impl Credentials {
    /// Loads the certificates of `identity` from `<dir>/tls`, and the list of those that are revoked.
    ///
    /// # Errors
    /// When files are missing, unreadable, or do not fit together.
    pub fn load(dir: &Path, identity: Identity) -> Result<Self, TlsError> {
        let tls = paths::tls(dir);
        let loaded = Arc::new(RwLock::new(Loaded::load(&tls, identity)?));
        let revocations = Revocations::load(tls.join(format!("{}.revoked", identity.file())))?;
        Ok(Self { tls, identity, loaded, revocations })
    }

    /// Loads the certificates anew, for connections from now on.
    ///
    /// # Errors
    /// As of [`Credentials::load`]; then those of before stay.
    pub fn reload(&self) -> Result<(), TlsError> {
        let loaded = Loaded::load(&self.tls, self.identity)?;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }

    fn loaded(&self) -> Loaded {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The certificates that are revoked.
    #[must_use]
    pub fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// The same for daemons, which go on with the old ones.
    pub(crate) fn reload_or_warn(&self) {
        match self.reload() {
            Ok(()) => tracing::info!("certificates are read anew"),
            Err(error) => tracing::error!(%error, "certificates stay as they were"),
        }
    }

    /// Keeps a list of revoked certificates, and acts on it.
    pub(crate) fn revoke(&self, list: &[Revocation]) {
        tracing::warn!(?list, "certificates are revoked");
        if let Err(error) = self.revocations.add(list) {
            tracing::error!(%error, "the list of revoked certificates is lost when this daemon ends");
        }
    }

    /// A future that ends when the certificate of a node at the other end of a connection is revoked.
    pub fn watch_peer(
        &self,
        node: NodeId,
        connection: &CommonState,
    ) -> impl Future<Output = ()> + use<> {
        let (revocations, issued_us) = (self.revocations.clone(), issued_us(connection));
        async move { revocations.until_revoked(node, issued_us).await }
    }

    /// Checks that the certificate of the other end of a connection is not revoked.
    ///
    /// # Errors
    /// It is.
    pub fn check_revoked(&self, peer: Identity, connection: &CommonState) -> Result<(), TlsError> {
        match peer {
            Identity::Node(node) if self.revocations.is_revoked(node, issued_us(connection)) => {
                Err(TlsError::Revoked(peer.name()))
            }
            _ => Ok(()),
        }
    }

    /// Authenticates an outgoing connection to `peer`.
    ///
    /// # Errors
    /// When the peer is not who was called, or refuses us, or the connection fails.
    pub async fn connect<S>(
        &self,
        peer: Identity,
        stream: S,
    ) -> io::Result<tokio_rustls::client::TlsStream<S>>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let connector = tokio_rustls::TlsConnector::from(self.loaded().client);
        let stream = connector.connect(peer.server_name(), stream).await?;
        self.check_revoked(peer, stream.get_ref().1).map_err(io::Error::other)?;
        Ok(stream)
    }

    /// Authenticates an incoming connection: the peer has some certificate of this cluster, whose
    /// name is then to be checked with [`check_name`].
    ///
    /// # Errors
    /// When the peer has none, or the connection fails.
    pub async fn accept<S>(&self, stream: S) -> io::Result<tokio_rustls::server::TlsStream<S>>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        tokio_rustls::TlsAcceptor::from(self.loaded().server).accept(stream).await
    }
}

/// Checks that the certificate of the peer of an accepted connection is that of `claimed`.
///
/// # Errors
/// `WrongName` when it is not.
pub fn check_name<S>(
    stream: &tokio_rustls::server::TlsStream<S>,
    claimed: Identity,
) -> Result<(), TlsError> {
    let wrong = || TlsError::WrongName { claimed: claimed.name() };
    let chain = stream.get_ref().1.peer_certificates().ok_or_else(wrong)?;
    let certificate = chain.first().ok_or_else(wrong)?;
    let parsed = ParsedCertificate::try_from(certificate).map_err(|_| wrong())?;
    verify_server_name(&parsed, &claimed.server_name()).map_err(|_| wrong())
}

/// When the certificate of the other end was issued; 0 if it does not say.
fn issued_us(connection: &CommonState) -> u64 {
    let certificate = connection.peer_certificates().and_then(<[_]>::first);
    certificate.and_then(|der| CertificateTimes::read(der)).map_or(0, |times| times.issued_us)
}

fn certificate(path: &Path) -> Result<CertificateDer<'static>, TlsError> {
    let text = fs::read(path).map_err(file_error(path))?;
    CertificateDer::from_pem_slice(&text)
        .map_err(|error| TlsError::Content { path: path.to_owned(), reason: error.to_string() })
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = fs::read(path).map_err(file_error(path))?;
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|error| TlsError::Content { path: path.to_owned(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const NODE1: Identity = Identity::Node(NodeId(1));

    async fn meet(
        caller: &Credentials,
        called: Identity,
        listener: &Credentials,
        claimed: Identity,
    ) -> Result<(), String> {
        let (near, far) = tokio::io::duplex(64 << 10);
        let accept = async {
            let stream = listener.accept(far).await.map_err(|error| format!("accept: {error}"))?;
            check_name(&stream, claimed).map_err(|error| error.to_string())?;
            let checked = listener.check_revoked(claimed, stream.get_ref().1);
            checked.map_err(|error| error.to_string())
        };
        let connect = async {
            let stream = caller.connect(called, near).await;
            stream.map_err(|error| format!("connect: {error}"))
        };
        let (connected, accepted) = tokio::join!(connect, accept);
        connected.map(drop).and(accepted)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn both_sides_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), "default", 2).unwrap();
        let load = |identity| Credentials::load(dir.path(), identity).unwrap();
        let (head, node1) = (load(Identity::Head), load(NODE1));
        meet(&node1, Identity::Head, &head, NODE1).await.unwrap();
        let error = meet(&node1, Identity::Head, &head, Identity::Node(NodeId(0))).await;
        assert!(error.unwrap_err().contains("says it is node-0.kumi"));
        // Whoever answers under the head's address must have the head's certificate.
        let error = meet(&head, Identity::Head, &node1, Identity::Head).await.unwrap_err();
        assert!(error.starts_with("connect:"), "{error}");
        // Another cluster's certificates are worth nothing here.
        let other = tempfile::tempdir().unwrap();
        create(other.path(), "other", 2).unwrap();
        let stranger = Credentials::load(other.path(), NODE1).unwrap();
        assert!(meet(&stranger, Identity::Head, &head, NODE1).await.is_err());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_revoked_certificate_is_refused_by_both_sides_and_a_new_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), "default", 2).unwrap();
        let load = |identity| Credentials::load(dir.path(), identity).unwrap();
        let (node0, node1) = (load(Identity::Node(NodeId(0))), load(NODE1));
        meet(&node1, Identity::Node(NodeId(0)), &node0, NODE1).await.unwrap();
        let now = u64::try_from(time::OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000);
        let revoked = [Revocation { node: NodeId(1), until_us: now.unwrap() + 10 }];
        node0.revocations().add(&revoked).unwrap();
        let error = meet(&node0, NODE1, &node1, Identity::Node(NodeId(0))).await.unwrap_err();
        assert!(error.contains("certificate of node-1.kumi is revoked"), "{error}");
        let error = meet(&node1, Identity::Node(NodeId(0)), &node0, NODE1).await.unwrap_err();
        assert!(error.contains("certificate of node-1.kumi is revoked"), "{error}");
        std::thread::sleep(std::time::Duration::from_millis(1));
        renew(dir.path(), "default", &[NODE1], 3).unwrap();
        node1.reload().unwrap();
        meet(&node1, Identity::Node(NodeId(0)), &node0, NODE1).await.unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_certificate_that_has_ended_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), "default", 2).unwrap();
        let day = 86_400;
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        let days = |ends: Vec<(String, i64)>| -> Vec<_> {
            ends.into_iter().map(|(name, until)| (name, (until - now + day / 2) / day)).collect()
        };
        let [ca, two_years] = [AUTHORITY_DAYS, DAEMON_DAYS].map(i64::from);
        let expected =
            [("ca", ca), ("head", two_years), ("node-0", two_years), ("node-1", two_years)];
        assert_eq!(days(ends(dir.path())), expected.map(|(name, days)| (name.to_owned(), days)));
        renew(dir.path(), "default", &[NODE1], 0).unwrap();
        let load = |identity| Credentials::load(dir.path(), identity).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        assert!(meet(&load(NODE1), Identity::Head, &load(Identity::Head), NODE1).await.is_err());
    }

    #[test]
    fn files_are_kept_and_keys_are_private() {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), "default", 1).unwrap();
        for name in ["ca.key", "head.key", "node-0.key"] {
            let mode =
                fs::metadata(dir.path().join("tls").join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let again = create(dir.path(), "default", 1).unwrap_err();
        assert_eq!(Failure::from(again).code, ExitCode::Exists);
        let missing = Credentials::load(dir.path(), NODE1).err().unwrap();
        assert!(missing.to_string().contains("node-1.pem"));
        fs::write(dir.path().join("tls/node-0.key"), "no key").unwrap();
        let broken = Credentials::load(dir.path(), Identity::Node(NodeId(0))).err().unwrap();
        assert_eq!(Failure::from(broken).code, ExitCode::BadConfig);
    }
}
