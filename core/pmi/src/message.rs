//! Messages between a node's daemon and the server of a job there, and who is in the job.
//!
//! A server starts with a daemon of its own build. The next daemon of the node may be of another one, and goes on with servers
//! of its [`VERSION`] only.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Version of these messages. A message that changes its form, or one more, is another version.
pub const VERSION: u32 = 1;

/// Most bytes that all nodes together contribute to one exchange.
pub const MOST_EXCHANGE: usize = 8 << 20;
/// Longest message between two servers of a job, in bytes.
pub const MOST_RELAY: usize = 1 << 20;
/// Longest sentence of a rank that is passed on, in bytes. The rest is cut off.
pub const MOST_SENTENCE: usize = 1 << 10;

/// The ranks of a job on one of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedNode {
    /// The node's name, of which no two nodes of a cluster have the same.
    pub name: String,
    /// Its lowest rank.
    pub first: u32,
    /// How many ranks, at least 1.
    pub count: u32,
}

/// A job as the server of one of its nodes has to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedJob {
    /// Its number.
    pub job: u64,
    /// Ranks of all nodes.
    pub ranks: u32,
    /// Its nodes by rank, without gaps.
    pub nodes: Vec<ServedNode>,
    /// Place of this node among them.
    pub place: u32,
    /// The user that its ranks run as.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// Folder for files of the server and its ranks, which is empty and goes with the job.
    pub folder: String,
    /// Whether ranks may speak PMIx.
    pub pmix: bool,
    /// The sockets on which ranks speak PMI, by local rank: numbers of inherited descriptors.
    pub pmi: Vec<i32>,
}

impl ServedJob {
    /// The ranks of this node.
    #[must_use]
    pub fn own(&self) -> Option<&ServedNode> {
        self.nodes.get(usize::try_from(self.place).ok()?)
    }

    /// The place of the node that has a rank.
    #[must_use]
    pub fn place_of(&self, rank: u32) -> Option<u32> {
        let has = |node: &ServedNode| rank >= node.first && rank - node.first < node.count;
        self.nodes.iter().position(has).and_then(|place| u32::try_from(place).ok())
    }
}

/// Which exchange of a job. Each group of ranks counts its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Exchange {
    /// The group: 0 are all ranks by PMI, others are named by what ranks they have.
    pub group: u64,
    /// The first of a group is 0.
    pub number: u32,
}

/// From the daemon to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToServer {
    /// First: the job.
    Job(ServedJob),
    /// All nodes of an exchange have contributed: their data in the order of their places.
    Exchanged {
        /// Which.
        exchange: Exchange,
        /// A contribution of each node.
        data: Vec<Vec<u8>>,
    },
    /// A message of the server of another node.
    Relayed {
        /// Its place.
        from: u32,
        /// The message.
        data: Vec<u8>,
    },
    /// This rank's process has ended: answer with [`FromServer::Ended`] once all that it said is passed on.
    Ended {
        /// The rank.
        rank: u32,
    },
    /// First of a later daemon: say again what is still to be heard, and then [`FromServer::Resumed`].
    Resume {
        /// Number of the last [`FromServer::Report`] that a daemon heard; 0 if none.
        heard: u64,
    },
    /// What was told up to this number needs not be said again.
    Heard {
        /// The number.
        number: u64,
    },
}

/// What a server tells once, whichever daemon hears it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerReport {
    /// A rank has begun to use MPI: it must finish.
    Joined {
        /// The rank.
        rank: u32,
    },
    /// It has.
    Finalized {
        /// The rank.
        rank: u32,
    },
    /// A rank ends the job.
    Aborted {
        /// The rank.
        rank: u32,
        /// As it gave it.
        code: i32,
        /// What it says, perhaps nothing.
        message: String,
    },
    /// A sentence for the user, about this rank.
    Note {
        /// The rank.
        rank: u32,
        /// The sentence, without a line's end.
        text: String,
    },
    /// It can serve no more, and why: the job ends.
    Broken(String),
}

/// From the server to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromServer {
    /// First: variables of each local rank.
    Ready {
        /// By local rank.
        env: Vec<Vec<(String, String)>>,
        /// Why ranks cannot speak PMIx, if the job wants that: the library is not there.
        without_pmix: Option<String>,
    },
    /// First: it cannot serve, and why.
    Failed(String),
    /// This node contributes to an exchange.
    Exchange {
        /// Which.
        exchange: Exchange,
        /// Places of the nodes that take part, ascending.
        places: Vec<u32>,
        /// Its data.
        data: Vec<u8>,
    },
    /// For the server of another node.
    Relay {
        /// Its place.
        to: u32,
        /// The message.
        data: Vec<u8>,
    },
    /// Something that is kept until a daemon has heard it.
    Report {
        /// Its number; the first is 1.
        number: u64,
        /// What.
        what: ServerReport,
    },
    /// Answer to [`ToServer::Ended`].
    Ended {
        /// The rank.
        rank: u32,
    },
    /// As [`FromServer::Exchange`], between [`ToServer::Resume`] and the answer: a former daemon may have heard it.
    ExchangeAgain {
        /// Which.
        exchange: Exchange,
        /// Places of the nodes that take part, ascending.
        places: Vec<u32>,
        /// Its data.
        data: Vec<u8>,
        /// The server has the whole. Others may miss this part.
        over: bool,
    },
    /// Answer to [`ToServer::Resume`], behind all that was to be said again.
    Resumed {
        /// Why ranks cannot speak PMIx, as in [`FromServer::Ready`].
        without_pmix: Option<String>,
    },
}
