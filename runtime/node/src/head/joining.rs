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
    GoodToken, HELLO_LIMIT, JOIN_VERSION, JoinAnswer, JoinHello, JoinRefusal, JoinSecret,
    JoinToken, JoinTokens, Joined,
};
use kumi_control::message::{CONTROL_VERSION, ClientReply, Refusal, RefusalKind};
use kumi_etcd::Certainty;
use kumi_sched::NodeId;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::links::LinkEvent;
use super::token_file;
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

/// A certificate that is signed, and not sent yet.
#[derive(Debug)]
pub(super) struct Certified {
    pub(super) joined: Joined,
    token: GoodToken,
}

/// A certificate that is signed for a machine, and whose token the state does not have as used yet.
#[derive(Debug)]
pub(super) struct SignedMachine {
    pub(super) hello: JoinHello,
    pub(super) answer: oneshot::Sender<JoinAnswer>,
    pub(super) certified: Result<Certified, JoinRefusal>,
}

/// A token that is made, and that no list has yet.
#[derive(Debug)]
pub(super) struct NewToken {
    pub(super) secret: JoinSecret,
    pub(super) text: String,
}

/// What a machine with a good token is to hear, unless its node is revoked meanwhile.
#[derive(Debug)]
pub(super) struct MachineAnswer {
    answer: oneshot::Sender<JoinAnswer>,
    certified: Result<Certified, JoinRefusal>,
}

/// Tells a machine whether it has joined.
pub(super) fn tell_machine(answer: oneshot::Sender<JoinAnswer>, joined: JoinAnswer) {
    match &joined {
        Ok(joined) => tracing::info!(node = %joined.node, "a machine has joined"),
        Err(refusal) => tracing::warn!(%refusal, "a machine with a token may not join"),
    }
    // If it is gone, it comes again with its key.
    let _ = answer.send(joined);
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
        tell_machine(self.answer, certified);
    }
}

/// A caller that is known.
pub(super) enum Caller {
    Daemon(LinkHello, AcceptedStream),
    Machine(JoinHello, AcceptedStream),
}

/// The tokens, at which the thread of the links looks. The [writer of small files](super::documents) changes them, and keeps them
/// in a file. If heads share their state, the main loop changes them instead, and there is no file: see
/// [`shared_tokens`](super::shared_tokens).
#[derive(Clone, Debug)]
pub(super) struct Joining {
    dir: PathBuf,
    tokens: Arc<Mutex<JoinTokens>>,
    are_shared: bool,
    /// Whether this head leads.
    certainty: Certainty,
    /// Which nodes are revoked: the main loop adds to it.
    revocations: Revocations,
    served: Arc<Semaphore>,
}

impl Joining {
    /// Those of a head that leads as certainly as it says. `known` are the tokens that it shares with others, if it does.
    ///
    /// # Errors
    /// As [`Joining::in_file`].
    pub(super) fn open(
        dir: &Path,
        (revocations, certainty): (&Revocations, &Certainty),
        known: Option<&JoinTokens>,
    ) -> Result<Self, Failure> {
        let tokens = match known {
            Some(known) => known.clone(),
            None => Self::in_file(dir)?,
        };
        Ok(Self {
            dir: dir.to_owned(),
            tokens: Arc::new(Mutex::new(tokens)),
            are_shared: known.is_some(),
            certainty: certainty.clone(),
            revocations: revocations.clone(),
            served: Arc::new(Semaphore::new(MOST_AT_ONCE)),
        })
    }

    /// The tokens of the cluster in `dir`; none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is no such list.
    pub(super) fn in_file(dir: &Path) -> Result<JoinTokens, Failure> {
        let path = paths::tokens(dir);
        let text = durable::read(&path).map_err(|error| {
            Failure::new(ExitCode::Io, format!("{} cannot be read: {error}", path.display()))
        })?;
        token_file::read(&text).ok_or_else(|| {
            let message = format!(
                "{} is no list of tokens; remove it, and make those anew that are needed",
                path.display()
            );
            Failure::new(ExitCode::BadConfig, message)
        })
    }

    fn tokens(&self) -> MutexGuard<'_, JoinTokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of all heads has the tokens: the file is not read any more. It stays, under another name.
    pub(super) fn set_aside(&self) {
        let path = paths::tokens(&self.dir);
        let mut aside = path.clone().into_os_string();
        aside.push(".old");
        match fs::rename(&path, &aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %path.display(), "an old list of tokens is left");
            }
            _ => {}
        }
    }

    /// The tokens have changed that heads share.
    pub(super) fn publish(&self, tokens: JoinTokens) {
        *self.tokens() = tokens;
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
        let NewToken { secret, text } = self.draw(config)?;
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
        Ok(ClientReply::JoinToken { token: text, until_ms })
    }

    /// Makes a token that is in no list.
    ///
    /// # Errors
    /// This head cannot sign, has no random numbers, or so many addresses that no token takes them.
    pub(super) fn draw(&self, config: &ClusterConfig) -> Result<NewToken, Refusal> {
        if !tls::can_sign(&self.dir) {
            return Err(refusal(RefusalKind::NotFound, self.cannot_sign(config)));
        }
        let internal = |message: String| refusal(RefusalKind::Internal, message);
        let authority = tls::authority_fingerprint(&self.dir);
        let authority = authority.map_err(|error| internal(error.to_string()))?;
        let secret = random().map_err(|error| internal(error.to_string()))?;
        let secret = JoinSecret(secret);
        let head = config.places_to_join().iter().map(Place::to_string).collect();
        let token = JoinToken { authority, secret, cluster: config.name.clone(), head }.encode();
        let text = token.ok_or_else(|| internal("the addresses are too long".to_owned()))?;
        Ok(NewToken { secret, text })
    }

    fn cannot_sign(&self, config: &ClusterConfig) -> String {
        let dir = self.dir.display();
        if config.heads().len() > 1 {
            return format!(
                "the head that leads cannot sign certificates: tls/ca.key is not in {dir} of its machine; copy that file to the machine of each head, or use `kumi cluster rotate NODE` where the cluster was made"
            );
        }
        format!(
            "the head cannot sign certificates: tls/ca.key is not in {dir}; use `kumi node add` without --token where the cluster was made"
        )
    }

    /// Forgets the tokens of nodes that were revoked after they were issued, first in memory: they count no more whatever the
    /// disk says. Those that heads share have gone with the revocation.
    ///
    /// # Errors
    /// The file cannot be written. Its tokens are not believed either: the list of revocations says so.
    pub(super) fn forget_revoked(&self) -> io::Result<()> {
        if self.are_shared {
            return Ok(());
        }
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

    /// The same with tokens that heads share: the state has to know that the token is used before the machine is answered.
    pub(super) fn answer_later(
        &self,
        config: &ClusterConfig,
        request: JoinRequest,
    ) -> SignedMachine {
        let JoinRequest { hello, answer } = request;
        let certified = self.sign(config, &hello);
        SignedMachine { hello, answer, certified }
    }

    /// Makes the certificate of a machine. The token is used once that is on the disk, and the machine hears of it then only.
    fn certify(&self, config: &ClusterConfig, hello: &JoinHello) -> Result<Certified, JoinRefusal> {
        let certified = self.sign(config, hello)?;
        let mut changed = self.tokens().clone();
        changed.set_used(certified.token.node, &hello.public_key);
        self.keep(changed).map_err(|error| JoinRefusal::Failed(error.to_string()))?;
        Ok(certified)
    }

    /// Signs the certificate of a machine, which counts when its token is used.
    fn sign(&self, config: &ClusterConfig, hello: &JoinHello) -> Result<Certified, JoinRefusal> {
        let token = self.check_token(&self.tokens(), hello)?;
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
        // Another head revoked what the node had before, and its clock was ahead: nobody would believe this certificate yet.
        if self.is_revoked(node, wall_ms().saturating_mul(1_000)) {
            return Err(JoinRefusal::NotNow);
        }
        let failed = |error: &dyn std::fmt::Display| JoinRefusal::Failed(error.to_string());
        let read = |path: PathBuf| fs::read_to_string(path).map_err(|error| failed(&error));
        let configuration = read(paths::config(&self.dir))?;
        let authority = read(paths::tls(&self.dir).join("ca.pem"))?;
        let here = ClusterConfig::parse(&configuration, &paths::config(&self.dir));
        here.and_then(|here| here.node(node).map(drop)).map_err(|error| {
            failed(&format!("cluster.toml of the head's machine lacks the node ({error})"))
        })?;
        let certificate = tls::certify(&self.dir, &config.name, node, &hello.public_key);
        let certificate = certificate.map_err(|error| failed(&error))?;
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
        match self.check_token(&self.tokens(), &hello) {
            Ok(_) => Ok(hello),
            // Another head may know better.
            Err(_) if !self.certainty.leads() => Err(JoinRefusal::NotNow.into()),
            Err(refusal) => Err(refusal.into()),
        }
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
mod tests;
