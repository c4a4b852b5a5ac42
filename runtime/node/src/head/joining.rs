//! Machines that join: their connections, the tokens that the head has issued, and their certificates.
//!
//! Strangers can connect. Whoever shows no token that counts is refused on the thread of the links, within the time and the
//! number of all callers that are not known yet. So a stranger reaches neither the main loop nor the disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kumi_control::compat::Versions;
use kumi_control::copying::CopyHello;
use kumi_control::join::{
    GoodToken, HELLO_LIMIT, JOIN_VERSION, JoinAnswer, JoinHello, JoinRefusal, JoinSecret,
    JoinToken, JoinTokens, Joined,
};
use kumi_control::message::{CONTROL_VERSION, ClientReply, Refusal, RefusalKind};
use kumi_sched::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::links::LinkEvent;
use super::{copies, token_file};
use crate::client::refusal;
use crate::clock::wall_ms;
use crate::config::{ClusterConfig, Place};
use crate::durable;
use crate::exit::{ExitCode, Failure};
use crate::frame::{self, LINK_LIMIT};
use crate::link::{self, AcceptedStream, HANDSHAKE, LinkError, LinkHello};
use crate::paths;
use crate::random::random;
use crate::tls::{self, Accepted, Credentials, Revocations};

/// Machines with a good token that are served at a time.
const MOST_AT_ONCE: usize = 8;
/// How long the main loop and the disk may take.
const ANSWER: Duration = Duration::from_secs(30);

/// A machine that shows a good token, for the writer of small files.
pub(super) struct JoinRequest {
    hello: JoinHello,
    answer: oneshot::Sender<JoinAnswer>,
}

/// A certificate that is signed and kept, and not sent yet.
#[derive(Debug)]
struct Certified {
    joined: Joined,
    token: GoodToken,
}

/// What a machine with a good token is to hear, unless its node is revoked meanwhile.
#[derive(Debug)]
pub(super) struct MachineAnswer {
    answer: oneshot::Sender<JoinAnswer>,
    certified: Result<Certified, JoinRefusal>,
}

impl MachineAnswer {
    /// Answers the machine. Whoever calls this decides about revocations: each one that it took before is in `is_revoked`, and
    /// each later one has a later time than the certificate. So nobody gets a certificate past a revocation.
    pub(super) fn send(self, is_revoked: impl Fn(NodeId, u64) -> bool) {
        let certified = self.certified.and_then(|Certified { joined, token }| {
            if is_revoked(token.node, token.issued_us) {
                return Err(JoinRefusal::Unknown);
            }
            Ok(joined)
        });
        match &certified {
            Ok(joined) => tracing::info!(node = %joined.node, "a machine has joined"),
            Err(refusal) => tracing::warn!(%refusal, "a machine with a token may not join"),
        }
        // If it is gone, it comes again with its key.
        let _ = self.answer.send(certified);
    }
}

/// A caller that is known.
pub(super) enum Caller {
    Daemon(LinkHello, AcceptedStream),
    Machine(JoinHello, AcceptedStream),
    Standby(CopyHello, AcceptedStream),
}

/// The tokens and their file. The [writer of small files](super::documents) changes them, and the thread of the links looks at
/// them.
#[derive(Clone, Debug)]
pub(super) struct Joining {
    dir: PathBuf,
    tokens: Arc<Mutex<JoinTokens>>,
    /// Which nodes are revoked: the main loop adds to it.
    revocations: Revocations,
    served: Arc<Semaphore>,
}

impl Joining {
    /// The tokens of the cluster in `dir`; none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is no such list.
    pub(super) fn open(dir: &Path, revocations: &Revocations) -> Result<Self, Failure> {
        let path = paths::tokens(dir);
        let text = durable::read(&path).map_err(|error| {
            Failure::new(ExitCode::Io, format!("{} cannot be read: {error}", path.display()))
        })?;
        let tokens = token_file::read(&text).ok_or_else(|| {
            let message = format!(
                "{} is no list of tokens; remove it, and make those anew that are needed",
                path.display()
            );
            Failure::new(ExitCode::BadConfig, message)
        })?;
        Ok(Self {
            revocations: revocations.clone(),
            dir: dir.to_owned(),
            tokens: Arc::new(Mutex::new(tokens)),
            served: Arc::new(Semaphore::new(MOST_AT_ONCE)),
        })
    }

    fn tokens(&self) -> MutexGuard<'_, JoinTokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a changed list in force, once it is on the disk.
    fn keep(&self, changed: JoinTokens) -> io::Result<()> {
        let text = token_file::write(&changed)?;
        durable::write(&paths::tokens(&self.dir), 0o600, &text)?;
        *self.tokens() = changed;
        Ok(())
    }

    /// Makes a token of a node. Returns what the client is answered.
    pub(super) fn issue(&self, config: &ClusterConfig, node: NodeId, valid_ms: u64) -> ClientReply {
        self.make(config, node, valid_ms).unwrap_or_else(ClientReply::Refused)
    }

    fn make(
        &self,
        config: &ClusterConfig,
        node: NodeId,
        valid_ms: u64,
    ) -> Result<ClientReply, Refusal> {
        if !tls::can_sign(&self.dir) {
            let message = format!(
                "the head cannot sign certificates: tls/ca.key is not in {}; use `kumi node add` without --token where the cluster was made",
                self.dir.display()
            );
            return Err(refusal(RefusalKind::NotFound, message));
        }
        let internal = |message: String| refusal(RefusalKind::Internal, message);
        let authority = tls::authority_fingerprint(&self.dir);
        let authority = authority.map_err(|error| internal(error.to_string()))?;
        let secret = random().map_err(|error| internal(error.to_string()))?;
        let secret = JoinSecret(secret);
        let head = config.places_of_head().iter().map(Place::to_string).collect();
        let token = JoinToken { authority, secret, cluster: config.name.clone(), head }.encode();
        let token = token.ok_or_else(|| internal("the addresses are too long".to_owned()))?;
        let mut changed = self.tokens().clone();
        let until_ms = changed.issue(node, &secret, wall_ms(), valid_ms);
        self.keep(changed).map_err(|error| {
            let path = paths::tokens(&self.dir);
            let message = format!(
                "no token is made: {} cannot be written: {error}; make room there and repeat the command",
                path.display()
            );
            refusal(RefusalKind::NoResources, message)
        })?;
        tracing::info!(%node, until_ms, "a machine may join with a token");
        Ok(ClientReply::JoinToken { token, until_ms })
    }

    /// Forgets the tokens of nodes that were revoked after they were issued, first in memory: they count no more whatever the
    /// disk says.
    ///
    /// # Errors
    /// The file cannot be written. Its tokens are not believed either: the list of revocations says so.
    pub(super) fn forget_revoked(&self) -> io::Result<()> {
        let kept = {
            let mut tokens = self.tokens();
            if !tokens.forget_revoked(|node, issued_us| self.is_revoked(node, issued_us)) {
                return Ok(());
            }
            tokens.clone()
        };
        let named =
            |error| io::Error::other(format!("{}: {error}", paths::tokens(&self.dir).display()));
        self.keep(kept).map_err(named)
    }

    fn is_revoked(&self, node: NodeId, issued_us: u64) -> bool {
        self.revocations.is_revoked(node, issued_us)
    }

    fn check_token(
        &self,
        tokens: &JoinTokens,
        hello: &JoinHello,
    ) -> Result<GoodToken, JoinRefusal> {
        let shown = (&hello.secret, &hello.public_key[..]);
        tokens.check(shown, wall_ms(), |node, issued_us| self.is_revoked(node, issued_us))
    }

    /// Does what a machine with a good token asks. The main loop then answers it.
    pub(super) fn answer(&self, config: &ClusterConfig, request: JoinRequest) -> MachineAnswer {
        let JoinRequest { hello, answer } = request;
        MachineAnswer { answer, certified: self.certify(config, &hello) }
    }

    /// Makes the certificate of a machine. The token is used once that is on the disk, and the machine hears of it then only.
    fn certify(&self, config: &ClusterConfig, hello: &JoinHello) -> Result<Certified, JoinRefusal> {
        let key = &hello.public_key;
        if config.heads().len() > 1 {
            return Err(JoinRefusal::SeveralHeads);
        }
        let mut changed = self.tokens().clone();
        let token = self.check_token(&changed, hello)?;
        let node = token.node;
        if config.node(node).is_err() {
            return Err(JoinRefusal::Unknown);
        }
        if !tls::has_key(hello) {
            return Err(JoinRefusal::NoProof);
        }
        if !tls::can_sign(&self.dir) {
            return Err(JoinRefusal::NoAuthority);
        }
        let failed = |error: &dyn std::fmt::Display| JoinRefusal::Failed(error.to_string());
        let read = |path: PathBuf| fs::read_to_string(path).map_err(|error| failed(&error));
        let configuration = read(paths::config(&self.dir))?;
        let authority = read(paths::tls(&self.dir).join("ca.pem"))?;
        let certificate = tls::certify(&self.dir, &config.name, node, key);
        let certificate = certificate.map_err(|error| failed(&error))?;
        changed.set_used(node, key);
        self.keep(changed).map_err(|error| failed(&error))?;
        Ok(Certified { joined: Joined { node, configuration, certificate, authority }, token })
    }

    /// Checks what a stranger says, as far as that needs no disk.
    fn check(&self, content: &[u8]) -> Result<JoinHello, LinkError> {
        let other = JoinRefusal::Version { head: CONTROL_VERSION };
        // Versions may differ in everything but this first number.
        if postcard::take_from_bytes::<u32>(content).map(|(version, _)| version) != Ok(JOIN_VERSION)
        {
            return Err(other.into());
        }
        let hello: JoinHello = frame::decode(content)?;
        if !Versions::OURS.include(hello.control) {
            return Err(other.into());
        }
        self.check_token(&self.tokens(), &hello)?;
        Ok(hello)
    }

    /// Answers an incoming connection: authenticates a daemon, as [`link::accept`] does, or hears a machine that wants to join.
    ///
    /// # Errors
    /// The caller does not belong here or is refused; it has been told why where possible.
    pub(super) async fn accept(
        &self,
        (credentials, cluster): (&Credentials, &str),
        stream: TcpStream,
        agree: impl FnOnce(&LinkHello) -> Result<(), Refusal>,
    ) -> Result<Caller, LinkError> {
        let handshake = async {
            stream.set_nodelay(true)?;
            match credentials.accept_any(stream).await? {
                Accepted::Daemon(stream) => {
                    let known = link::introduce(credentials, cluster, stream, agree).await;
                    known.map(|(hello, stream)| Caller::Daemon(hello, stream))
                }
                Accepted::Machine(stream) => self.hear(stream).await,
                Accepted::Standby(stream) => {
                    let heard = copies::hear(cluster, stream).await;
                    heard.map(|(hello, stream)| Caller::Standby(hello, stream))
                }
            }
        };
        tokio::time::timeout(HANDSHAKE, handshake).await.map_err(|_| LinkError::Timeout)?
    }

    async fn hear(&self, mut stream: AcceptedStream) -> Result<Caller, LinkError> {
        let content = frame::read_content(&mut stream, HELLO_LIMIT).await?;
        match self.check(&content.ok_or(LinkError::Closed)?) {
            Ok(hello) => Ok(Caller::Machine(hello, stream)),
            Err(LinkError::Join(refused)) => {
                tell(&mut stream, &Err(refused.clone())).await?;
                Err(refused.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Has the main loop answer a machine with a good token.
    pub(super) async fn serve(
        &self,
        (hello, mut stream): (JoinHello, AcceptedStream),
        events: &mpsc::Sender<LinkEvent>,
    ) {
        let answer = match self.served.try_acquire() {
            Ok(_place) => ask(hello, events).await,
            Err(_) => Err(JoinRefusal::NotNow),
        };
        let told = tokio::time::timeout(ANSWER, tell(&mut stream, &answer)).await;
        if !matches!(told, Ok(Ok(()))) {
            tracing::warn!("a machine that joins did not take its answer; it may ask again");
        }
    }
}

async fn ask(hello: JoinHello, events: &mpsc::Sender<LinkEvent>) -> JoinAnswer {
    let (answer, answered) = oneshot::channel();
    let asked = async {
        events.send(LinkEvent::Join(Box::new(JoinRequest { hello, answer }))).await.ok()?;
        answered.await.ok()
    };
    let answered = tokio::time::timeout(ANSWER, asked).await;
    answered.ok().flatten().unwrap_or(Err(JoinRefusal::NotNow))
}

async fn tell(stream: &mut AcceptedStream, answer: &JoinAnswer) -> Result<(), LinkError> {
    frame::write(stream, answer, LINK_LIMIT).await?;
    Ok(stream.shutdown().await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::Revocation;
    use kumi_small_disk::{fill, on_a_small_disk};

    const DAY: u64 = 86_400_000;

    fn cluster(dir: &Path) -> ClusterConfig {
        tls::create(dir, "lab", 1).unwrap();
        let node = |number: u32| {
            format!(
                "[[nodes]]\nname = \"n{number}\"\naddress = \"192.0.2.{number}\"\nport = 7701\n"
            )
        };
        let head = "name = \"lab\"\nkind = \"hosts\"\nhead = \"192.0.2.1:7700\"\n";
        let text = [head.to_owned(), node(1), node(2)].concat();
        fs::write(paths::config(dir), text).unwrap();
        ClusterConfig::load(dir).unwrap()
    }

    fn revocations(dir: &Path) -> Revocations {
        Credentials::load(dir, tls::Identity::Head).unwrap().revocations().clone()
    }

    fn opened(dir: &Path) -> Result<Joining, Failure> {
        let empty = tempfile::tempdir().unwrap();
        tls::create(empty.path(), "lab", 1).unwrap();
        Joining::open(dir, &revocations(empty.path()))
    }

    fn certify(joining: &Joining, config: &ClusterConfig, hello: &JoinHello) -> JoinAnswer {
        joining.certify(config, hello).map(|certified| certified.joined)
    }

    fn issued(joining: &Joining, config: &ClusterConfig) -> JoinToken {
        match joining.issue(config, NodeId(1), DAY) {
            ClientReply::JoinToken { token, .. } => JoinToken::parse(&token).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn hello(key: &tls::JoiningKey, secret: JoinSecret) -> JoinHello {
        JoinHello {
            version: JOIN_VERSION,
            control: CONTROL_VERSION,
            secret,
            public_key: key.public().to_vec(),
            proof: key.prove(&secret).unwrap(),
        }
    }

    #[test]
    fn a_token_is_used_once_also_by_the_next_head() {
        let (dir, machine, other) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        let config = cluster(dir.path());
        let joining = opened(dir.path()).unwrap();
        let token = issued(&joining, &config);
        assert_eq!(
            (token.cluster.as_str(), &token.head[..]),
            ("lab", &["192.0.2.1:7700".to_owned()][..])
        );
        let kept = fs::read_to_string(paths::tokens(dir.path())).unwrap();
        assert!(!kept.contains(&paths::hex(&token.secret.0)), "{kept}");
        let key = tls::JoiningKey::of(machine.path()).unwrap();
        let forged = JoinHello { proof: vec![1; 70], ..hello(&key, token.secret) };
        assert_eq!(certify(&joining, &config, &forged), Err(JoinRefusal::NoProof));
        let joined = certify(&joining, &config, &hello(&key, token.secret)).unwrap();
        assert_eq!(joined.node, NodeId(1));
        let next = opened(dir.path()).unwrap();
        assert!(
            certify(&next, &config, &hello(&key, token.secret)).is_ok(),
            "the same machine again"
        );
        let stranger = tls::JoiningKey::of(other.path()).unwrap();
        let again = certify(&next, &config, &hello(&stranger, token.secret));
        assert_eq!(again, Err(JoinRefusal::Used));
    }

    /// All that the node had by now is revoked.
    fn revoke(list: &Revocations) {
        let until_us = wall_ms() * 1_000 + 999;
        list.add_unwritten(&[Revocation { node: NodeId(1), until_us }]);
        while wall_ms() * 1_000 <= until_us {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_revoked_node_gets_no_certificate_with_a_token_from_before() {
        for used in [false, true] {
            let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let config = cluster(dir.path());
            let list = revocations(dir.path());
            let joining = Joining::open(dir.path(), &list).unwrap();
            let token = issued(&joining, &config);
            let key = tls::JoiningKey::of(machine.path()).unwrap();
            let hello = hello(&key, token.secret);
            if used {
                certify(&joining, &config, &hello).unwrap();
            }
            revoke(&list);
            assert_eq!(certify(&joining, &config, &hello), Err(JoinRefusal::Unknown));
            let bytes = frame::encode(&hello, HELLO_LIMIT).unwrap();
            assert!(joining.check(&bytes[4..]).is_err(), "a stranger");
            let hash = paths::hex(&token.secret.hash());
            let kept = || fs::read_to_string(paths::tokens(dir.path())).unwrap();
            assert!(kept().contains(&hash));
            joining.forget_revoked().unwrap();
            assert!(!kept().contains(&hash), "{}", kept());
            // The next head finds neither, and a token that is made then counts.
            list.keep().unwrap();
            let next = Joining::open(dir.path(), &revocations(dir.path())).unwrap();
            assert_eq!(certify(&next, &config, &hello), Err(JoinRefusal::Unknown));
            let later = issued(&next, &config);
            let again = JoinHello {
                proof: key.prove(&later.secret).unwrap(),
                secret: later.secret,
                ..hello
            };
            assert!(certify(&next, &config, &again).is_ok());
        }
    }

    #[test]
    fn a_token_that_a_full_disk_keeps_is_not_believed() {
        let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = cluster(dir.path());
        let list = revocations(dir.path());
        let joining = Joining::open(dir.path(), &list).unwrap();
        let token = issued(&joining, &config);
        // As a file of an earlier head, which has no time of issue.
        let file = paths::tokens(dir.path());
        let kept = fs::read_to_string(&file).unwrap();
        let lines = kept.lines().filter(|line| !line.starts_with("issued_ms"));
        fs::write(&file, lines.collect::<Vec<_>>().join("\n")).unwrap();
        let key = tls::JoiningKey::of(machine.path()).unwrap();
        let hello = hello(&key, token.secret);
        let next = Joining::open(dir.path(), &list).unwrap();
        assert!(certify(&next, &config, &hello).is_ok());
        revoke(&list);
        fs::create_dir(dir.path().join("head.tokens.new")).unwrap();
        assert!(next.forget_revoked().is_err());
        for joining in [next, Joining::open(dir.path(), &list).unwrap()] {
            assert_eq!(certify(&joining, &config, &hello), Err(JoinRefusal::Unknown));
        }
    }

    #[test]
    fn a_revocation_while_the_certificate_is_signed_wins() {
        let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = cluster(dir.path());
        let joining = opened(dir.path()).unwrap();
        let token = issued(&joining, &config);
        let key = tls::JoiningKey::of(machine.path()).unwrap();
        let ask = |revoked: bool| {
            let (answer, mut answered) = oneshot::channel();
            let hello = hello(&key, token.secret);
            let signed = joining.answer(&config, JoinRequest { hello, answer });
            assert!(signed.certified.is_ok(), "the writer did not know of it");
            signed.send(|node, _| revoked && node == NodeId(1));
            answered.try_recv().unwrap().map(|joined| joined.node)
        };
        assert_eq!(ask(false), Ok(NodeId(1)));
        assert_eq!(ask(true), Err(JoinRefusal::Unknown));
    }

    #[test]
    fn what_cannot_be_kept_or_signed_uses_no_token() {
        let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = cluster(dir.path());
        let joining = opened(dir.path()).unwrap();
        let token = issued(&joining, &config);
        let key = tls::JoiningKey::of(machine.path()).unwrap();
        let hello = hello(&key, token.secret);
        // A folder where the draft belongs: as a disk that takes nothing.
        let draft = dir.path().join("head.tokens.new");
        fs::create_dir(&draft).unwrap();
        assert!(matches!(certify(&joining, &config, &hello), Err(JoinRefusal::Failed(_))));
        let ClientReply::Refused(refused) = joining.issue(&config, NodeId(1), DAY) else {
            panic!()
        };
        assert_eq!(refused.kind, RefusalKind::NoResources);
        fs::remove_dir(&draft).unwrap();
        let without = ClusterConfig { nodes: config.nodes[..1].to_vec(), ..config.clone() };
        assert_eq!(
            certify(&joining, &without, &hello),
            Err(JoinRefusal::Unknown),
            "it was removed"
        );
        let heads = vec![config.head, ([192, 0, 2, 2], 7700).into()];
        let several = ClusterConfig { heads, ..config.clone() };
        assert_eq!(certify(&joining, &several, &hello), Err(JoinRefusal::SeveralHeads));
        let (authority, aside) = (dir.path().join("tls/ca.key"), dir.path().join("aside"));
        fs::rename(&authority, &aside).unwrap();
        assert_eq!(certify(&joining, &config, &hello), Err(JoinRefusal::NoAuthority));
        let ClientReply::Refused(refused) = joining.issue(&config, NodeId(1), DAY) else {
            panic!()
        };
        assert_eq!(refused.kind, RefusalKind::NotFound);
        fs::rename(&aside, &authority).unwrap();
        assert!(certify(&joining, &config, &hello).is_ok());
    }

    #[test]
    fn a_full_disk_makes_no_token_and_uses_none() {
        on_a_small_disk(1 << 20, |disk| {
            let machine = tempfile::tempdir().unwrap();
            let config = cluster(disk);
            let joining = opened(disk).unwrap();
            let token = issued(&joining, &config);
            let key = tls::JoiningKey::of(machine.path()).unwrap();
            let hello = hello(&key, token.secret);
            let before = fs::read_to_string(paths::tokens(disk)).unwrap();
            fill(disk);
            let reply = joining.issue(&config, NodeId(1), DAY);
            let ClientReply::Refused(refused) = reply else { panic!("{reply:?}") };
            let says = ["no token is made", "No space left", "make room"];
            assert!(says.iter().all(|text| refused.message.contains(text)), "{}", refused.message);
            assert!(matches!(certify(&joining, &config, &hello), Err(JoinRefusal::Failed(_))));
            assert_eq!(fs::read_to_string(paths::tokens(disk)).unwrap(), before);
            fs::remove_file(disk.join("others")).unwrap();
            assert!(certify(&joining, &config, &hello).is_ok(), "it still counts");
        });
    }

    #[test]
    fn another_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["token = 3", "[[token]]\nnode = 1\nhash = \"ab\"\nuntil_ms = 1", "\u{0}"] {
            fs::write(paths::tokens(dir.path()), text).unwrap();
            let error = opened(dir.path()).unwrap_err();
            assert_eq!(error.code, ExitCode::BadConfig, "{text}");
        }
    }

    #[test]
    fn strangers_say_nothing_that_counts() {
        let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = cluster(dir.path());
        let joining = opened(dir.path()).unwrap();
        let token = issued(&joining, &config);
        let key = tls::JoiningKey::of(machine.path()).unwrap();
        let good = hello(&key, token.secret);
        let check = |hello: &JoinHello| {
            let bytes = frame::encode(hello, HELLO_LIMIT).unwrap();
            joining.check(&bytes[4..]).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(check(&good), Ok(()));
        let wrong = check(&JoinHello { secret: JoinSecret([0; 16]), ..good.clone() });
        assert!(wrong.unwrap_err().contains("does not know this token"));
        for other in [JoinHello { version: 2, ..good.clone() }, JoinHello { control: 1, ..good }] {
            assert!(check(&other).unwrap_err().contains("version"), "{other:?}");
        }
        assert!(joining.check(&[]).is_err() && joining.check(&[1, 15, 7]).is_err());
    }
}
