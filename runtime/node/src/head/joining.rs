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
use kumi_control::join::{
    HELLO_LIMIT, IssuedToken, JOIN_VERSION, JoinAnswer, JoinHello, JoinRefusal, JoinSecret,
    JoinToken, JoinTokens, Joined,
};
use kumi_control::message::{CONTROL_VERSION, ClientReply, Refusal, RefusalKind};
use kumi_sched::NodeId;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::links::LinkEvent;
use crate::client::refusal;
use crate::clock::wall_ms;
use crate::config::{ClusterConfig, Place};
use crate::durable;
use crate::exit::{ExitCode, Failure};
use crate::frame::{self, LINK_LIMIT};
use crate::link::{self, AcceptedStream, HANDSHAKE, LinkError, LinkHello};
use crate::paths;
use crate::random::random;
use crate::tls::{self, Accepted, Credentials};

/// What stands above the list.
const TITLE: &str = "# Tokens with which machines may join: hashes, not the tokens. `kumi node add --token` and `kumi cluster \
                     token` write this file.\n";
/// Machines with a good token that are served at a time.
const MOST_AT_ONCE: usize = 8;
/// How long the main loop and the disk may take.
const ANSWER: Duration = Duration::from_secs(30);

/// A machine that shows a good token, for the writer of small files.
pub(super) struct JoinRequest {
    hello: JoinHello,
    answer: oneshot::Sender<JoinAnswer>,
}

/// A caller that is known.
pub(super) enum Caller {
    Daemon(LinkHello, AcceptedStream),
    Machine(JoinHello, AcceptedStream),
}

/// The whole file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    token: Vec<Entry>,
}

/// A token in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    node: u32,
    hash: String,
    until_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    used_by: Option<String>,
}

impl Entry {
    fn new(node: NodeId, token: &IssuedToken) -> Self {
        Self {
            node: node.0,
            hash: paths::hex(&token.hash),
            until_ms: token.until_ms,
            used_by: token.used_by.as_ref().map(|key| paths::hex(key)),
        }
    }

    fn read(self) -> Option<(NodeId, IssuedToken)> {
        let used_by = match self.used_by {
            Some(key) => Some(unhex(&key)?),
            None => None,
        };
        let token = IssuedToken { hash: unhex(&self.hash)?, until_ms: self.until_ms, used_by };
        Some((NodeId(self.node), token))
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// The tokens and their file. The [writer of small files](super::documents) changes them, and the thread of the links looks at
/// them.
#[derive(Clone, Debug)]
pub(super) struct Joining {
    dir: PathBuf,
    tokens: Arc<Mutex<JoinTokens>>,
    served: Arc<Semaphore>,
}

impl Joining {
    /// The tokens of the cluster in `dir`; none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is no such list.
    pub(super) fn open(dir: &Path) -> Result<Self, Failure> {
        let path = paths::tokens(dir);
        let text = durable::read(&path).map_err(|error| {
            Failure::new(ExitCode::Io, format!("{} cannot be read: {error}", path.display()))
        })?;
        let content: Option<Content> = toml::from_str(&text).ok();
        let entries = content.map(|content| content.token.into_iter().map(Entry::read));
        let tokens =
            entries.and_then(Iterator::collect::<Option<JoinTokens>>).ok_or_else(|| {
                let message = format!(
                    "{} is no list of tokens; remove it, and make those anew that are needed",
                    path.display()
                );
                Failure::new(ExitCode::BadConfig, message)
            })?;
        Ok(Self {
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
        let token = changed.iter().map(|(node, token)| Entry::new(node, token)).collect();
        let text = toml::to_string_pretty(&Content { token }).map_err(io::Error::other)?;
        durable::write(&paths::tokens(&self.dir), 0o600, &format!("{TITLE}{text}"))?;
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

    /// Answers a machine with a good token.
    pub(super) fn answer(&self, config: &ClusterConfig, request: JoinRequest) {
        let JoinRequest { hello, answer } = request;
        let answered = self.certify(config, &hello);
        match &answered {
            Ok(joined) => tracing::info!(node = %joined.node, "a machine has joined"),
            Err(refusal) => tracing::warn!(%refusal, "a machine with a token may not join"),
        }
        // If it is gone, it comes again with its key.
        let _ = answer.send(answered);
    }

    /// Makes the certificate of a machine. The token is used once that is on the disk, and the machine hears of it then only.
    fn certify(&self, config: &ClusterConfig, hello: &JoinHello) -> JoinAnswer {
        let (secret, key) = (&hello.secret, &hello.public_key);
        if config.heads().len() > 1 {
            return Err(JoinRefusal::SeveralHeads);
        }
        let mut changed = self.tokens().clone();
        let node = changed.check(secret, key, wall_ms())?;
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
        Ok(Joined { node, configuration, certificate, authority })
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
        self.tokens().check(&hello.secret, &hello.public_key, wall_ms())?;
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
        let joining = Joining::open(dir.path()).unwrap();
        let token = issued(&joining, &config);
        assert_eq!(
            (token.cluster.as_str(), &token.head[..]),
            ("lab", &["192.0.2.1:7700".to_owned()][..])
        );
        let kept = fs::read_to_string(paths::tokens(dir.path())).unwrap();
        assert!(!kept.contains(&paths::hex(&token.secret.0)), "{kept}");
        let key = tls::JoiningKey::of(machine.path()).unwrap();
        let forged = JoinHello { proof: vec![1; 70], ..hello(&key, token.secret) };
        assert_eq!(joining.certify(&config, &forged), Err(JoinRefusal::NoProof));
        let joined = joining.certify(&config, &hello(&key, token.secret)).unwrap();
        assert_eq!(joined.node, NodeId(1));
        let next = Joining::open(dir.path()).unwrap();
        assert!(
            next.certify(&config, &hello(&key, token.secret)).is_ok(),
            "the same machine again"
        );
        let stranger = tls::JoiningKey::of(other.path()).unwrap();
        let again = next.certify(&config, &hello(&stranger, token.secret));
        assert_eq!(again, Err(JoinRefusal::Used));
    }

    #[test]
    fn what_cannot_be_kept_or_signed_uses_no_token() {
        let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = cluster(dir.path());
        let joining = Joining::open(dir.path()).unwrap();
        let token = issued(&joining, &config);
        let key = tls::JoiningKey::of(machine.path()).unwrap();
        let hello = hello(&key, token.secret);
        // A folder where the draft belongs: as a disk that takes nothing.
        let draft = dir.path().join("head.tokens.new");
        fs::create_dir(&draft).unwrap();
        assert!(matches!(joining.certify(&config, &hello), Err(JoinRefusal::Failed(_))));
        let ClientReply::Refused(refused) = joining.issue(&config, NodeId(1), DAY) else {
            panic!()
        };
        assert_eq!(refused.kind, RefusalKind::NoResources);
        fs::remove_dir(&draft).unwrap();
        let without = ClusterConfig { nodes: config.nodes[..1].to_vec(), ..config.clone() };
        assert_eq!(joining.certify(&without, &hello), Err(JoinRefusal::Unknown), "it was removed");
        let heads = vec![config.head, ([192, 0, 2, 2], 7700).into()];
        let several = ClusterConfig { heads, ..config.clone() };
        assert_eq!(joining.certify(&several, &hello), Err(JoinRefusal::SeveralHeads));
        let (authority, aside) = (dir.path().join("tls/ca.key"), dir.path().join("aside"));
        fs::rename(&authority, &aside).unwrap();
        assert_eq!(joining.certify(&config, &hello), Err(JoinRefusal::NoAuthority));
        let ClientReply::Refused(refused) = joining.issue(&config, NodeId(1), DAY) else {
            panic!()
        };
        assert_eq!(refused.kind, RefusalKind::NotFound);
        fs::rename(&aside, &authority).unwrap();
        assert!(joining.certify(&config, &hello).is_ok());
    }

    #[test]
    fn a_full_disk_makes_no_token_and_uses_none() {
        on_a_small_disk(1 << 20, |disk| {
            let machine = tempfile::tempdir().unwrap();
            let config = cluster(disk);
            let joining = Joining::open(disk).unwrap();
            let token = issued(&joining, &config);
            let key = tls::JoiningKey::of(machine.path()).unwrap();
            let hello = hello(&key, token.secret);
            let before = fs::read_to_string(paths::tokens(disk)).unwrap();
            fill(disk);
            let reply = joining.issue(&config, NodeId(1), DAY);
            let ClientReply::Refused(refused) = reply else { panic!("{reply:?}") };
            let says = ["no token is made", "No space left", "make room"];
            assert!(says.iter().all(|text| refused.message.contains(text)), "{}", refused.message);
            assert!(matches!(joining.certify(&config, &hello), Err(JoinRefusal::Failed(_))));
            assert_eq!(fs::read_to_string(paths::tokens(disk)).unwrap(), before);
            fs::remove_file(disk.join("others")).unwrap();
            assert!(joining.certify(&config, &hello).is_ok(), "it still counts");
        });
    }

    #[test]
    fn another_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["token = 3", "[[token]]\nnode = 1\nhash = \"ab\"\nuntil_ms = 1", "\u{0}"] {
            fs::write(paths::tokens(dir.path()), text).unwrap();
            let error = Joining::open(dir.path()).unwrap_err();
            assert_eq!(error.code, ExitCode::BadConfig, "{text}");
        }
    }

    #[test]
    fn strangers_say_nothing_that_counts() {
        let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = cluster(dir.path());
        let joining = Joining::open(dir.path()).unwrap();
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
