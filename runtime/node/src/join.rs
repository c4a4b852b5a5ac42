//! How a machine joins a cluster, from its side: it makes a key, shows its token to the head, and writes what it gets.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kumi_control::compat::OLDEST_VERSION;
use kumi_control::join::{
    JOIN_VERSION, JoinAnswer, JoinHello, JoinRefusal, JoinToken, Joined, PROTOCOL, TokenError,
};
use kumi_control::message::CONTROL_VERSION;
use kumi_sched::NodeId;
use tokio::net::TcpStream;

use crate::config::ClusterConfig;
use crate::durable;
use crate::exit::{ExitCode, Failure};
use crate::frame::{self, FrameError, LINK_LIMIT};
use crate::paths;
use crate::tcp;
use crate::tls::{self, JoiningKey, TlsError};

/// How long an address of the head may take to answer.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the head may take for the certificate: its disk may be slow.
const ANSWER: Duration = Duration::from_secs(60);

/// How long a machine goes on if the token names several places: another head may be about to lead.
const TAKEOVER: Duration = Duration::from_secs(20);
/// Pause before it tries again.
const AGAIN: Duration = Duration::from_millis(500);

/// A connection to the head.
type HeadStream = tokio_rustls::client::TlsStream<TcpStream>;

/// Why a machine did not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The token is none.
    #[error("{0}")]
    Token(#[from] TokenError),
    /// No address of the head answers.
    #[error(
        "the head does not answer ({0}); see that it runs, and that no firewall keeps this machine from it"
    )]
    Unreachable(String),
    /// Somebody else answers.
    #[error(
        "whoever answers at {address} is not the head of this token's cluster ({reason}); check that address and this machine's clock, and send nothing there"
    )]
    OtherHead {
        /// Where.
        address: String,
        /// What the TLS library says.
        reason: String,
    },
    /// The connection broke.
    #[error(
        "the connection to the head broke ({0}); repeat the same command here: the token still counts for this machine"
    )]
    Broken(String),
    /// The head refuses.
    #[error("{0}")]
    Refused(#[from] JoinRefusal),
    /// The head's answer does not fit.
    #[error("the head's answer cannot be used ({0}); use the `kumi` that belongs to the cluster")]
    Answer(String),
    /// A file cannot be written or read.
    #[error(
        "{path} cannot be used: {source}; make room or mend that, and repeat the same command here: the token still counts for this machine"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error message.
        source: io::Error,
    },
    /// The key or a certificate.
    #[error("{0}")]
    Tls(TlsError),
}

impl From<TlsError> for JoinError {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::File { path, source } => Self::File { path, source },
            other => Self::Tls(other),
        }
    }
}

impl JoinError {
    /// Whether the next head, or the same one a little later, may answer.
    fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Broken(_) | Self::Refused(JoinRefusal::NotNow))
    }

    /// Whether the head may have used the token for this machine's key, which then has to stay.
    #[must_use]
    pub fn may_have_joined(&self) -> bool {
        match self {
            Self::Token(_) | Self::Unreachable(_) | Self::OtherHead { .. } => false,
            // These are about the token. Others may come after a use that the head of before has recorded.
            Self::Refused(refusal) => !matches!(
                refusal,
                JoinRefusal::Unknown
                    | JoinRefusal::Expired
                    | JoinRefusal::Used
                    | JoinRefusal::NoProof
                    | JoinRefusal::SeveralHeads
            ),
            _ => true,
        }
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        let message = error.to_string();
        let code = match error {
            JoinError::Token(TokenError::Version)
            | JoinError::Refused(JoinRefusal::Version { .. }) => ExitCode::Version,
            JoinError::Token(_) => ExitCode::Usage,
            JoinError::Unreachable(_) | JoinError::Broken(_) => ExitCode::Unavailable,
            JoinError::OtherHead { .. } => ExitCode::NotPermitted,
            JoinError::Refused(refusal) => match refusal {
                JoinRefusal::NoAuthority => ExitCode::NoInput,
                JoinRefusal::Failed(_) => ExitCode::Io,
                JoinRefusal::NotNow => ExitCode::TryLater,
                JoinRefusal::SeveralHeads => ExitCode::Usage,
                _ => ExitCode::NotPermitted,
            },
            JoinError::File { .. } => ExitCode::Io,
            JoinError::Answer(_) => ExitCode::Internal,
            JoinError::Tls(error) => return error.into(),
        };
        Self::new(code, message)
    }
}

/// Joins the cluster of a token: asks its head, and writes the files of the node into `dir`. cluster.toml comes last: it says
/// that all is there. If the token names several places and none answers, it goes on for a while, and `waiting` hears why.
///
/// # Errors
/// The head cannot be reached or refuses, or files cannot be written. Then the same may be tried again.
pub async fn join(
    dir: &Path,
    token: &JoinToken,
    mut waiting: impl FnMut(&JoinError),
) -> Result<(NodeId, ClusterConfig), JoinError> {
    let key = JoiningKey::of(dir)?;
    let end = Instant::now() + TAKEOVER;
    let (mut told, mut may_have_joined) = (false, false);
    let joined = loop {
        let error = match ask_head(token, &key).await {
            Ok(joined) => break joined,
            Err(error) => error,
        };
        may_have_joined |= error.may_have_joined();
        if token.head.len() == 1 || !error.is_passing() || Instant::now() >= end {
            // A key that a head may have certified has to stay, also if nobody answers now.
            return Err(match error {
                JoinError::Unreachable(tried) if may_have_joined => JoinError::Broken(tried),
                error => error,
            });
        }
        if !std::mem::replace(&mut told, true) {
            waiting(&error);
        }
        tokio::time::sleep(AGAIN).await;
    };
    let config = check(dir, token, &joined)?;
    key.install(dir, joined.node, (&joined.certificate, &joined.authority))?;
    let path = paths::config(dir);
    durable::write(&path, 0o644, &joined.configuration)
        .map_err(|source| JoinError::File { path, source })?;
    key.finish(dir)?;
    Ok((joined.node, config))
}

/// Asks the head once, as a machine of its version.
async fn ask_head(token: &JoinToken, key: &JoiningKey) -> Result<Joined, JoinError> {
    match show(token, CONTROL_VERSION, key).await {
        // A head of the version before takes no other.
        Err(JoinError::Refused(JoinRefusal::Version { head: OLDEST_VERSION })) => {
            show(token, OLDEST_VERSION, key).await
        }
        answered => answered,
    }
}

/// Connects to the head, shows it the token, and gets the answer in time.
async fn show(token: &JoinToken, control: u32, key: &JoiningKey) -> Result<Joined, JoinError> {
    let stream = connect(token).await?;
    let joined = tokio::time::timeout(ANSWER, ask(stream, (token, control), key)).await;
    joined.map_err(|_| JoinError::Broken(format!("no answer in {ANSWER:?}")))?
}

/// Checks what the head has sent before any of it is written.
fn check(dir: &Path, token: &JoinToken, joined: &Joined) -> Result<ClusterConfig, JoinError> {
    if !tls::is_authority(&joined.authority, &token.authority) {
        return Err(JoinError::Answer("another authority".to_owned()));
    }
    let config = ClusterConfig::parse(&joined.configuration, &paths::config(dir));
    let config = config.map_err(|error| JoinError::Answer(error.to_string()))?;
    if config.name != token.cluster || config.node(joined.node).is_err() {
        return Err(JoinError::Answer("another cluster".to_owned()));
    }
    Ok(config)
}

/// A connection to the first address of the head that answers.
async fn connect(token: &JoinToken) -> Result<HeadStream, JoinError> {
    let mut tried = String::new();
    let mut other = None;
    for name in &token.head {
        let reason = match connect_to(name, token).await {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        if is_about_certificates(&reason) {
            other =
                Some(JoinError::OtherHead { address: name.clone(), reason: reason.to_string() });
        }
        // Writing into a string cannot fail.
        let _ = write!(tried, "{}{name}: {reason}", if tried.is_empty() { "" } else { "; " });
    }
    Err(other.unwrap_or(JoinError::Unreachable(tried)))
}

async fn connect_to(name: &str, token: &JoinToken) -> io::Result<HeadStream> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {CONNECT:?}"));
    let connecting = async {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let addresses: Vec<SocketAddr> = tokio::net::lookup_host(name).await?.collect();
        for address in addresses {
            match tcp::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    };
    let stream = tokio::time::timeout(CONNECT, connecting).await.map_err(late)??;
    let greeting = tls::connect_to_join(token.authority, stream);
    let stream = tokio::time::timeout(CONNECT, greeting).await.map_err(late)??;
    if stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
        return Err(io::Error::other("its version lets no machine join"));
    }
    Ok(stream)
}

fn is_about_certificates(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        tls,
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented)
    )
}

/// Shows the token as a machine whose daemon speaks the version `control`, and gets the answer.
async fn ask(
    mut stream: HeadStream,
    (token, control): (&JoinToken, u32),
    key: &JoiningKey,
) -> Result<Joined, JoinError> {
    let hello = JoinHello {
        version: JOIN_VERSION,
        control,
        secret: token.secret,
        public_key: key.public().to_vec(),
        proof: key.prove(&token.secret)?,
    };
    let broken = |error: FrameError| match error {
        FrameError::TooLong { .. } | FrameError::Malformed(_) => {
            JoinError::Answer(error.to_string())
        }
        FrameError::Truncated | FrameError::Io(_) => JoinError::Broken(error.to_string()),
    };
    frame::write(&mut stream, &hello, LINK_LIMIT).await.map_err(broken)?;
    let answer: Option<JoinAnswer> = frame::read(&mut stream, LINK_LIMIT).await.map_err(broken)?;
    let answer = answer.ok_or_else(|| JoinError::Broken("it was closed".to_owned()))?;
    Ok(answer?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_code() {
        let code = |error: JoinError| Failure::from(error).code.code();
        assert_eq!(code(TokenError::Damaged.into()), 64);
        assert_eq!(code(TokenError::Version.into()), 76);
        assert_eq!(code(JoinError::Unreachable(String::new())), 69);
        assert_eq!(code(JoinError::Broken(String::new())), 69);
        assert_eq!(code(JoinRefusal::Unknown.into()), 77);
        assert_eq!(code(JoinRefusal::Expired.into()), 77);
        assert_eq!(code(JoinRefusal::Used.into()), 77);
        assert_eq!(code(JoinRefusal::Version { head: 9 }.into()), 76);
        assert_eq!(code(JoinRefusal::NotNow.into()), 75);
        assert_eq!(code(JoinRefusal::SeveralHeads.into()), 64);
        assert_eq!(code(JoinRefusal::Failed(String::new()).into()), 74);
    }

    #[test]
    fn a_key_that_may_be_certified_stays() {
        assert!(JoinError::Broken(String::new()).may_have_joined());
        assert!(!JoinError::from(JoinRefusal::Used).may_have_joined());
        // Perhaps the head has recorded the use, and its disk or etcd took too long.
        assert!(JoinError::from(JoinRefusal::NotNow).may_have_joined());
        assert!(!JoinError::Unreachable(String::new()).may_have_joined());
    }
}
