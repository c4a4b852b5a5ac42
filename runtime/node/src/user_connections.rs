//! How many connections each user has to a daemon's socket.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use kumi_control::compat::{OLDEST_VERSION, for_version};
use kumi_control::message::{ClientReply, Refusal, RefusalKind};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::client::refusal;
use crate::frame::{self, LINK_LIMIT};

/// Refused connections of a user that are told so at a time; further ones are just closed.
const MOST_TOLD: u32 = 16;
/// How long a refused client has to read that it is.
const TELLING: Duration = Duration::from_secs(1);

/// Connections of a user.
#[derive(Debug, Default)]
struct Open {
    used: u32,
    refused: u32,
}

/// Connections of all users.
#[derive(Clone, Debug)]
pub(crate) struct UserConnections {
    most: u32,
    owner: u32,
    users: Rc<RefCell<BTreeMap<u32, Open>>>,
}

/// One connection, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedConnection {
    of: UserConnections,
    uid: u32,
    /// It is one too many.
    refused: bool,
}

impl UserConnections {
    /// None yet. Users other than `owner` and root have at most so many.
    pub(crate) fn new(most: u32, owner: u32) -> Self {
        Self { most, owner, users: Rc::default() }
    }

    /// Counts a connection of this user; `None` if it is to be closed without a word.
    pub(crate) fn count(&self, uid: u32) -> Option<CountedConnection> {
        let mut users = self.users.borrow_mut();
        let open = users.entry(uid).or_default();
        let refused = open.used >= self.most && uid != 0 && uid != self.owner;
        if refused && open.refused >= MOST_TOLD {
            return None;
        }
        let count = if refused { &mut open.refused } else { &mut open.used };
        *count += 1;
        Some(CountedConnection { of: self.clone(), uid, refused })
    }
}

impl CountedConnection {
    /// Itself, unless it is one too many: then the client is told so.
    pub(crate) async fn admit<S>(self, stream: &mut S) -> Option<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if !self.refused {
            return Some(self);
        }
        let message = format!(
            "you have {} connections to this daemon, which is as many as a user may have; end some, or ask the owner for a higher connections_per_user",
            self.of.most
        );
        tell_refused(stream, refusal(RefusalKind::Quota, message)).await;
        None
    }
}

/// Tells a client that is not served why. One that does not listen is not waited for.
pub(crate) async fn tell_refused<S>(stream: &mut S, refused: Refusal)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let reply = ClientReply::Refused(refused);
    let told = async {
        // It has not said which version it speaks.
        let reply = for_version(&reply, OLDEST_VERSION)?;
        frame::write(stream, &*reply, LINK_LIMIT).await.ok()?;
        stream.shutdown().await.ok()?;
        // Closed at once, the client could lose the answer: what it has sent was not read.
        let mut rest = [0; 256];
        while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
        Some(())
    };
    // Whether it was told changes nothing.
    let _ = tokio::time::timeout(TELLING, told).await;
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut users = self.of.users.borrow_mut();
        if let Some(open) = users.get_mut(&self.uid) {
            let count = if self.refused { &mut open.refused } else { &mut open.used };
            *count -= 1;
            if open.used == 0 && open.refused == 0 {
                users.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_and_others_have_theirs() {
        let all = UserConnections::new(2, 500);
        let mut open: Vec<_> = (0..2).map(|_| all.count(1000).unwrap()).collect();
        assert!(open.iter().all(|one| !one.refused));
        open.push(all.count(1000).unwrap());
        assert!(open[2].refused);
        open.extend((1..MOST_TOLD).map(|_| all.count(1000).unwrap()));
        assert!(all.count(1000).is_none());
        for uid in [0, 500, 1001] {
            assert!((0..2).all(|_| all.count(uid).is_some_and(|one| !one.refused)));
        }
        let owners: Vec<_> = (0..9).map(|_| all.count(500).unwrap()).collect();
        assert!(owners.iter().all(|one| !one.refused));
        open.remove(0);
        assert!(!all.count(1000).unwrap().refused);
        drop((open, owners));
        assert!(all.users.borrow().is_empty());
    }
}
