//! How two daemons agree on a version of the control protocol: the first frame of each.

use std::net::SocketAddr;

use kumi_control::compat::{OLDEST_VERSION, Versions, agree};
use kumi_control::message::RefusalKind;
use kumi_sched::NodeId;
use serde::{Deserialize, Serialize};

use super::{ConnectedStream, HANDSHAKE, LinkError};
use crate::frame::{self, FrameError, LINK_LIMIT};
use crate::peer::ClientPeer;
use crate::tcp;
use crate::tls::{Credentials, Identity};

/// Purpose of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// A link of the tree.
    Tree,
    /// A client of the node's machine, of which the node asked its kernel.
    Client(Box<ClientPeer>),
}

/// First frame from the connecting side. From version 16 on the oldest version that it speaks follows. Later versions may
/// add more behind that; all else stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkHello {
    /// The latest version that it speaks. Once a connection is accepted: the one that both speak there.
    pub version: u32,
    /// Name of the cluster.
    pub cluster: String,
    /// The node that connects.
    pub node: NodeId,
    /// Differs with each start of the connecting daemon.
    pub incarnation: u64,
    /// The purpose.
    pub purpose: Purpose,
}

/// First frame from the accepting side, if it agrees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkWelcome {
    /// The version that both speak from here on.
    pub version: u32,
}

/// A daemon of this version reads hellos of no other version, and nothing behind them.
const WITHOUT_RANGE: u32 = 15;
// When that version is not understood any more, nobody needs a second offer, or a hello without what follows it.
const _: () = assert!(OLDEST_VERSION == WITHOUT_RANGE);

impl LinkHello {
    /// Reads a hello. Its version is then the one that both speak.
    ///
    /// # Errors
    /// It is none, or there is no such version.
    pub(super) fn decode(content: &[u8]) -> Result<Self, LinkError> {
        let malformed = |reason: String| FrameError::Malformed(reason);
        let wrong = |error: postcard::Error| malformed(error.to_string());
        let (newest, _) = postcard::take_from_bytes::<u32>(content).map_err(wrong)?;
        let mut theirs = Versions::only(newest);
        // Earlier versions may differ in everything but this first number.
        if newest < OLDEST_VERSION {
            agree(Versions::OURS, theirs).map_err(LinkError::Refused)?;
        }
        let (mut hello, rest) = postcard::take_from_bytes::<Self>(content).map_err(wrong)?;
        if newest != WITHOUT_RANGE {
            (theirs.oldest, _) = postcard::take_from_bytes(rest).map_err(wrong)?;
        } else if !rest.is_empty() {
            return Err(malformed(format!("{} bytes left over", rest.len())).into());
        }
        hello.version = agree(Versions::OURS, theirs).map_err(LinkError::Refused)?;
        Ok(hello)
    }
}

/// Connects to `peer` at `address` and sends `hello`. Returns also the version that both speak.
///
/// # Errors
/// When it cannot be reached in time, is not who it should be, or refuses.
pub async fn connect(
    credentials: &Credentials,
    peer: Identity,
    address: SocketAddr,
    hello: &LinkHello,
) -> Result<(ConnectedStream, u32), LinkError> {
    match offer(credentials, peer, address, hello).await {
        Err(LinkError::Refused(refused))
            if refused.kind == RefusalKind::Version && hello.version > WITHOUT_RANGE =>
        {
            let earlier = LinkHello { version: WITHOUT_RANGE, ..hello.clone() };
            match offer(credentials, peer, address, &earlier).await {
                // The first sentence has the versions that are spoken here.
                Err(LinkError::Refused(again)) if again.kind == RefusalKind::Version => {
                    Err(LinkError::Refused(refused))
                }
                other => other,
            }
        }
        other => other,
    }
}

async fn offer(
    credentials: &Credentials,
    peer: Identity,
    address: SocketAddr,
    hello: &LinkHello,
) -> Result<(ConnectedStream, u32), LinkError> {
    let handshake = async {
        let stream = tcp::connect(address).await?;
        let mut stream = credentials.connect(peer, stream).await?;
        if hello.version == WITHOUT_RANGE {
            frame::write(&mut stream, hello, LINK_LIMIT).await?;
        } else {
            frame::write(&mut stream, &(hello, OLDEST_VERSION), LINK_LIMIT).await?;
        }
        match frame::read(&mut stream, LINK_LIMIT).await? {
            Some(Ok(LinkWelcome { version }))
                if (OLDEST_VERSION..=hello.version).contains(&version) =>
            {
                Ok((stream, version))
            }
            Some(Ok(LinkWelcome { version })) => {
                let reason = format!("a welcome with version {version}, which was not offered");
                Err(FrameError::Malformed(reason).into())
            }
            Some(Err(refused)) => Err(LinkError::Refused(refused)),
            None => Err(LinkError::Closed),
        }
    };
    tokio::time::timeout(HANDSHAKE, handshake).await.map_err(|_| LinkError::Timeout)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::{CONTROL_VERSION, Refusal};
    use tokio::net::TcpListener;

    fn hello(version: u32) -> LinkHello {
        let (cluster, node, incarnation) = ("lab".into(), NodeId(1), 300);
        LinkHello { version, cluster, node, incarnation, purpose: Purpose::Tree }
    }

    /// What version 15 sends.
    const HELLO_15: &[u8] = &[15, 3, b'l', b'a', b'b', 1, 172, 2, 0];

    #[test]
    fn a_hello_of_version_15_is_that_of_its_daemons() {
        assert_eq!(postcard::to_allocvec(&hello(15)).unwrap(), HELLO_15);
        assert_eq!(LinkHello::decode(HELLO_15).unwrap(), hello(15));
        let longer = [HELLO_15, &[15]].concat();
        assert!(matches!(LinkHello::decode(&longer), Err(LinkError::Frame(_))));
        let peer = ClientPeer {
            user: kumi_control::message::User { uid: 5, gid: 6, name: "u".into() },
            limits: None,
        };
        let client = LinkHello { purpose: Purpose::Client(Box::new(peer)), ..hello(15) };
        let bytes = [&HELLO_15[..8], &[1, 5, 6, 1, b'u', 0]].concat();
        assert_eq!(postcard::to_allocvec(&client).unwrap(), bytes);
        let welcome = Ok::<_, Refusal>(LinkWelcome { version: 15 });
        assert_eq!(postcard::to_allocvec(&welcome).unwrap(), [0, 15]);
    }

    #[test]
    fn hellos_of_later_versions_may_be_longer() {
        let said = |newest, oldest: u32| {
            let hello = postcard::to_allocvec(&(hello(newest), oldest, "more")).unwrap();
            LinkHello::decode(&hello)
        };
        assert_eq!(said(CONTROL_VERSION, OLDEST_VERSION).unwrap().version, CONTROL_VERSION);
        assert_eq!(said(CONTROL_VERSION + 1, CONTROL_VERSION).unwrap().version, CONTROL_VERSION);
        let refused = said(CONTROL_VERSION + 2, CONTROL_VERSION + 1).unwrap_err();
        assert!(refused.to_string().contains("before yours"), "{refused}");
        let short = postcard::to_allocvec(&hello(CONTROL_VERSION)).unwrap();
        assert!(matches!(LinkHello::decode(&short), Err(LinkError::Frame(_))));
    }

    #[test]
    fn of_versions_before_the_oldest_only_the_number_is_read() {
        for older in [&[14][..], &[14, 0xff, 0xff], &[0]] {
            let refused = LinkHello::decode(older).unwrap_err();
            assert!(matches!(refused, LinkError::Refused(_)));
            assert!(refused.to_string().contains("on your machine, and start"), "{refused}");
        }
        assert!(matches!(LinkHello::decode(&[]), Err(LinkError::Frame(_))));
    }

    /// A head that answers each connection in turn: with the version of its hello it says what `answer` does.
    async fn answered(
        answer: impl Fn(u32) -> Result<u32, Refusal>,
    ) -> (Result<(ConnectedStream, u32), LinkError>, Vec<u32>) {
        let dir = tempfile::tempdir().unwrap();
        crate::tls::create(dir.path(), "lab", 2).unwrap();
        let head = Credentials::load(dir.path(), Identity::Head).unwrap();
        let node = Credentials::load(dir.path(), Identity::Node(NodeId(1))).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = std::cell::RefCell::new(Vec::new());
        let serving = async {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = head.accept(stream).await.unwrap();
                let content = frame::read_content(&mut stream, LINK_LIMIT).await.unwrap();
                let content = content.unwrap();
                let (version, _) = postcard::take_from_bytes::<u32>(&content).unwrap();
                heard.borrow_mut().push(version);
                if version == WITHOUT_RANGE {
                    // As version 15 reads it: nothing may be left over.
                    assert_eq!(frame::decode::<LinkHello>(&content).unwrap(), hello(15));
                }
                let said = answer(version).map(|version| LinkWelcome { version });
                frame::write(&mut stream, &said, LINK_LIMIT).await.unwrap();
            }
        };
        let calling = async {
            let hello = hello(CONTROL_VERSION);
            connect(&node, Identity::Head, address, &hello).await
        };
        let connected = tokio::select! {
            never = serving => never,
            connected = calling => connected,
        };
        (connected, heard.into_inner())
    }

    fn other(words: &str) -> Refusal {
        Refusal { kind: RefusalKind::Version, message: words.into() }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_daemon_of_version_15_is_offered_that_version() {
        let only_15 = |version| if version == 15 { Ok(15) } else { Err(other("only 15")) };
        let (connected, heard) = answered(only_15).await;
        assert_eq!((connected.unwrap().1, &heard[..]), (15, &[CONTROL_VERSION, 15][..]));
        let (connected, heard) = answered(Ok).await;
        assert_eq!((connected.unwrap().1, &heard[..]), (CONTROL_VERSION, &[CONTROL_VERSION][..]));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_daemon_that_speaks_none_of_the_versions_is_quoted() {
        let (refused, heard) = answered(|version| Err(other(&format!("not {version}")))).await;
        assert_eq!(refused.unwrap_err().to_string(), format!("refused: not {CONTROL_VERSION}"));
        assert_eq!(heard, [CONTROL_VERSION, 15]);
        let other_kind = |_| Err(Refusal { kind: RefusalKind::NotPermitted, ..other("revoked") });
        let (refused, heard) = answered(other_kind).await;
        assert_eq!((refused.unwrap_err().to_string(), heard.len()), ("refused: revoked".into(), 1));
        let (wrong, _) = answered(|version| Ok(version + 1)).await;
        assert!(wrong.unwrap_err().to_string().contains("which was not offered"));
    }
}
