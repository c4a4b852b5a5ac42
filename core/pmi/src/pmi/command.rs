//! What ranks ask by PMI-1 and PMI-2, and what they are answered, without the words of either.

use alloc::string::String;

/// A command of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// First of all: the version that the rank speaks. By PMI-2 the next message is [`Command::FullInit`].
    Init {
        /// 1 or 2.
        version: u32,
        /// Below the version.
        subversion: u32,
    },
    /// PMI-2: begin.
    FullInit,
    /// PMI-1: how long names may be.
    Maxes,
    /// PMI-1: which program of several.
    AppNumber,
    /// PMI-1: the name of the space of keys; PMI-2: the name of the job.
    SpaceName,
    /// PMI-1: how many ranks there can be.
    UniverseSize,
    /// A pair for all ranks.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// The value of a key.
    Get {
        /// The key.
        key: String,
    },
    /// PMI-2: the value of a key of the job.
    JobAttribute {
        /// The key.
        key: String,
    },
    /// PMI-2: a pair for the ranks of this node.
    PutNode {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// PMI-2: the value of such a key.
    GetNode {
        /// The key.
        key: String,
        /// Whether to wait until there is one.
        wait: bool,
    },
    /// All ranks have put their pairs.
    Fence,
    /// A name for other programs.
    Publish {
        /// The name.
        name: String,
        /// Its value.
        port: String,
    },
    /// The value of a name.
    Lookup {
        /// The name.
        name: String,
    },
    /// No such name any more.
    Unpublish {
        /// The name.
        name: String,
    },
    /// More ranks, which there are not.
    Spawn {
        /// It is the last of several that belong together.
        last: bool,
    },
    /// The rank has finished.
    Finalize,
    /// The rank ends the job.
    Abort {
        /// With this code.
        code: i32,
        /// What it says.
        message: String,
    },
}

/// An answer to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Command::Init`].
    Init {
        /// What is spoken.
        version: u32,
    },
    /// To [`Command::FullInit`].
    FullInit {
        /// Its rank.
        rank: u32,
        /// Ranks of the job.
        size: u32,
    },
    /// To [`Command::Maxes`].
    Maxes,
    /// To [`Command::AppNumber`].
    AppNumber,
    /// To [`Command::SpaceName`].
    SpaceName(String),
    /// To [`Command::UniverseSize`].
    UniverseSize(u32),
    /// To [`Command::Put`]; a word if it is refused.
    Put(Result<(), String>),
    /// To [`Command::Get`].
    Get(Option<String>),
    /// To [`Command::JobAttribute`].
    JobAttribute(Option<String>),
    /// To [`Command::PutNode`].
    PutNode,
    /// To [`Command::GetNode`].
    GetNode(Option<String>),
    /// To [`Command::Fence`].
    Fence,
    /// To [`Command::Publish`]; a word if it is refused.
    Publish(Result<(), String>),
    /// To [`Command::Lookup`].
    Lookup(Option<String>),
    /// To [`Command::Unpublish`]; a word if it is refused.
    Unpublish(Result<(), String>),
    /// To [`Command::Spawn`].
    SpawnRefused,
    /// To [`Command::Finalize`].
    Finalize,
}
