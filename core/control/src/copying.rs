//! How heads that wait copy the output of jobs from the one that leads.
//!
//! The standby connects to the leader's port over TLS, with the protocol name [`PROTOCOL`]. Both show the head's certificate. It
//! sends a [`CopyHello`] and gets a [`CopyAnswer`], in which the leader says its term. Then it says how far its logs go
//! ([`CopyUp::Has`], at last [`CopyUp::HasAll`]), and the leader sends what comes behind that. The version in the hello comes
//! first in every version, so that any head can refuse any other.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use kumi_sched::JobId;
use serde::{Deserialize, Serialize};

use crate::message::{Refusal, Stream};

/// Version of all messages here.
pub const COPY_VERSION: u32 = 1;
/// Name of the protocol in the TLS handshake (ALPN).
pub const PROTOCOL: &[u8] = b"kumi-copy";
/// Most entries of a list in one message: more of them come in several.
pub const MOST_ENTRIES: usize = 50_000;
/// Most logs in a [`CopyUp::Has`], and most terms of each.
pub const MOST_LOGS: usize = 1_000;
/// See [`MOST_LOGS`].
pub const MOST_TERMS: usize = 1_024;

/// What the standby says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyHello {
    /// [`COPY_VERSION`].
    pub version: u32,
    /// Name of the cluster.
    pub cluster: String,
    /// Its address in the configuration: by that heads know each other.
    pub head: SocketAddr,
}

/// What the leader answers.
pub type CopyAnswer = Result<CopyWelcome, Refusal>;

/// The leader agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyWelcome {
    /// Number of the term in which it leads. A standby takes nothing of an earlier one than it has heard of.
    pub term: u64,
}

/// A job of which there may be output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedJob {
    /// Its number.
    pub job: JobId,
    /// The user it counts for.
    pub uid: u32,
    /// Whether it is over.
    pub over: bool,
}

/// What a standby has of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedLog {
    /// The job.
    pub job: JobId,
    /// The offset at which the oldest output begins that is kept, if there was something before it, or 0.
    pub first: u64,
    /// For each term of which there is output, the offset at its end, ascending.
    pub ends: Vec<u64>,
}

/// What comes next in a log stands elsewhere: behind a hole, or behind where another head began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPlace {
    /// Offset in the log.
    pub offset: u64,
    /// Bytes of output before it, missing ones included.
    pub before: u64,
    /// How often the job was started again before, if that is known.
    pub restarts: Option<u32>,
    /// How far streams had come, as far as that does not follow from what came before: rank, stream, bytes.
    pub positions: Vec<(u32, Stream, u64)>,
}

/// From the leader to the standby.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyDown {
    /// Jobs that are recorded, or were before with something else of it.
    Known(Vec<CopiedJob>),
    /// All jobs that there are have been told: what the standby has of others goes.
    KnownAll,
    /// A job is not known any more.
    Discard(JobId),
    /// Where a log goes on.
    Place(JobId, LogPlace),
    /// What comes next in a log.
    Frames {
        /// The job.
        job: JobId,
        /// Where they begin: where the standby's log ends.
        offset: u64,
        /// Whole frames, as they are in segments.
        #[serde(with = "crate::bytes")]
        frames: Vec<u8>,
    },
    /// The leader lives.
    Alive,
    /// What stands behind this offset goes: the leader does not have it.
    Cut {
        /// The job.
        job: JobId,
        /// The offset.
        end: u64,
    },
}

/// From the standby to the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyUp {
    /// Logs that the standby has.
    Has(Vec<CopiedLog>),
    /// It has said all that it has.
    HasAll,
    /// It has a log up to this offset, on its disk.
    Taken {
        /// The job.
        job: JobId,
        /// The offset.
        end: u64,
    },
    /// The standby lives.
    Alive,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::vec;

    fn bytes<T: Serialize>(value: &T) -> Vec<u8> {
        postcard::to_allocvec(value).unwrap()
    }

    /// The bytes of version 1: whoever changes them makes another version.
    #[test]
    fn messages_of_version_1_stay_as_they_are() {
        let hello = CopyHello {
            version: COPY_VERSION,
            cluster: "lab".to_owned(),
            head: ([10, 0, 0, 2], 7_700).into(),
        };
        assert_eq!(bytes(&hello), [1, 3, b'l', b'a', b'b', 0, 10, 0, 0, 2, 0x94, 0x3c]);
        assert_eq!(bytes(&CopyAnswer::Ok(CopyWelcome { term: 300 })), [0, 0xac, 2]);
        let job = JobId(7);
        let place = LogPlace {
            offset: 300,
            before: 5,
            restarts: Some(1),
            positions: vec![(3, Stream::Err, 9)],
        };
        let known = CopiedJob { job, uid: 1_000, over: true };
        let down: [(CopyDown, &[u8]); 7] = [
            (CopyDown::Known(vec![known]), &[0, 1, 7, 0xe8, 7, 1]),
            (CopyDown::KnownAll, &[1]),
            (CopyDown::Discard(job), &[2, 7]),
            (CopyDown::Place(job, place), &[3, 7, 0xac, 2, 5, 1, 1, 1, 3, 1, 9]),
            (CopyDown::Frames { job, offset: 300, frames: vec![8, 9] }, &[4, 7, 0xac, 2, 2, 8, 9]),
            (CopyDown::Alive, &[5]),
            (CopyDown::Cut { job, end: 300 }, &[6, 7, 0xac, 2]),
        ];
        for (message, golden) in down {
            assert_eq!(bytes(&message), golden, "{message:?}");
            assert_eq!(postcard::from_bytes::<CopyDown>(golden), Ok(message));
        }
        let up: [(CopyUp, &[u8]); 4] = [
            (
                CopyUp::Has(vec![CopiedLog { job, first: 9, ends: vec![10, 300] }]),
                &[0, 1, 7, 9, 2, 10, 0xac, 2],
            ),
            (CopyUp::HasAll, &[1]),
            (CopyUp::Taken { job, end: 300 }, &[2, 7, 0xac, 2]),
            (CopyUp::Alive, &[3]),
        ];
        for (message, golden) in up {
            assert_eq!(bytes(&message), golden, "{message:?}");
            assert_eq!(postcard::from_bytes::<CopyUp>(golden), Ok(message));
        }
    }

    proptest::proptest! {
        /// Whatever is taken for a message of a kind is one, and takes no more memory than it came with.
        #[test]
        fn any_bytes_are_a_message_or_an_error(kind in 0_u8..7, mut rest: Vec<u8>) {
            rest.insert(0, kind);
            if let Ok((message, _)) = postcard::take_from_bytes::<CopyDown>(&rest) {
                if let CopyDown::Frames { frames, .. } = &message {
                    proptest::prop_assert!(frames.len() < rest.len());
                }
                proptest::prop_assert_eq!(postcard::from_bytes(&bytes(&message)), Ok(message));
            }
            if let Ok((message, _)) = postcard::take_from_bytes::<CopyUp>(&rest) {
                proptest::prop_assert_eq!(postcard::from_bytes(&bytes(&message)), Ok(message));
            }
        }
    }
}
