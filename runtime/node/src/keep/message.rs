//! What a daemon and the keeper of a job say to each other: short messages over a local socket, each with one descriptor at
//! most.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use kumi_control::message::{RankStatus, Stream};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Version of these messages and of the files that a keeper holds. A daemon of another version ends the jobs that it finds.
pub(super) const VERSION: u32 = 1;

/// Longest message, in bytes.
const MOST: usize = 4096;

/// What a keeper holds for a later daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Held {
    /// What the job is: [`super::record::JobRecord`].
    Record,
    /// How far it is: [`super::state::JobState`].
    State,
    /// Reports of the shims.
    Status,
    /// The segment's files, in the order in which a later daemon wants them.
    Segment(u32),
    /// The trace of a local rank.
    Trace(u32),
    /// What a rank has written, as far as it was read.
    Output(u32, Stream),
    /// The pipe from which more of it comes.
    Pipe(u32, Stream),
    /// What rank 0 is to read: the file at the place behind the last byte.
    InputEnd,
    /// The same file at the place of the next byte that it gets.
    InputNext,
    /// The pipe to its standard input.
    InputPipe,
    /// The daemon's end of its terminal.
    Terminal,
    /// The other end of it.
    TerminalSlave,
    /// A pipe on the way from the terminal to the file of output: its reading end.
    RelayOut,
    /// Its writing end.
    RelayIn,
    /// Something of the server of an MPI program.
    Mpi(MpiDescriptor),
}

/// What a keeper holds of the server of an MPI program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum MpiDescriptor {
    /// The socket by which a daemon comes to it.
    Door,
    /// What it is.
    Record,
    /// How its ranks stand.
    State,
    /// The pipe from its standard error.
    Errors,
}

/// A process to be started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptCommand {
    /// Arguments of this program. The keeper adds its own number.
    pub(crate) arguments: Vec<String>,
    /// Standard input, output and errors.
    pub(crate) streams: [RawFd; 3],
    /// Other descriptors to be inherited.
    pub(crate) inherited: Vec<RawFd>,
    /// It is to lead a session.
    pub(crate) session: bool,
}

/// What a keeper is to do, in a file that it reads first. It is born with the descriptors that are named here.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeepOrder {
    /// The program that becomes ranks.
    pub(crate) executable: PathBuf,
    /// Folder of the job's control group.
    pub(crate) folder: Option<RawFd>,
    /// The same group, to be killed if no daemon comes.
    pub(crate) group: Option<PathBuf>,
    /// The group for the keeper itself.
    pub(crate) home: Option<PathBuf>,
    /// How long it waits for a daemon, in milliseconds.
    pub(crate) patience_ms: u64,
    /// Where it listens.
    pub(crate) socket: PathBuf,
    /// The socket that listens there.
    pub(crate) listener: RawFd,
    /// The socket to the daemon that starts it.
    pub(crate) channel: RawFd,
    /// The processes.
    pub(crate) commands: Vec<KeptCommand>,
    /// What it holds.
    pub(crate) held: Vec<(Held, RawFd)>,
}

/// Message of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToKeeper {
    /// A new daemon asks for all that is held.
    Attach {
        /// Its version.
        version: u32,
    },
    /// Nobody uses the number of this process any more.
    Reap(u32),
    /// This is not needed any more.
    Drop(Held),
    /// Nothing of the job is needed any more: kill what runs, and end.
    Release,
}

/// Message of a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum FromKeeper {
    /// A process was started.
    Started {
        /// Which.
        index: u32,
        /// Its number.
        pid: i32,
    },
    /// One could not be started, and none runs.
    Failed(String),
    /// A descriptor that comes with the message.
    Holds(Held),
    /// A process that was started, for a new daemon.
    Has {
        /// Which.
        index: u32,
        /// Its number.
        pid: i32,
    },
    /// That was all.
    Complete {
        /// The keeper's version.
        version: u32,
    },
    /// A process has ended. Its number stays its own until it is reaped.
    Exited {
        /// Which.
        index: u32,
        /// How.
        status: RankStatus,
    },
}

/// One end of the socket between daemon and keeper.
#[derive(Debug)]
pub(super) struct Channel(AsyncFd<OwnedFd>);

impl Channel {
    /// Of a connected socket that keeps messages apart.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        #[expect(
            deprecated,
            reason = "the other constructor is unsafe; an OwnedFd keeps its descriptor"
        )]
        let socket = AsyncFd::new(socket)?;
        Ok(Self(socket))
    }

    /// Sends a message.
    pub(super) async fn send(
        &self,
        message: &impl Serialize,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let bytes = postcard::to_allocvec(message).map_err(io::Error::other)?;
        if bytes.len() > MOST {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let write = |socket: &OwnedFd| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if let Some(descriptor) = &descriptor {
                control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
            }
            let sent = sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
            if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
        };
        self.0.async_io(Interest::WRITABLE, write).await
    }

    /// The next message, with its descriptor if it has one; none at the end.
    pub(super) async fn receive<T: DeserializeOwned>(
        &self,
    ) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut bytes = vec![0; MOST];
        let read = |socket: &OwnedFd| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut bytes)];
            let got = recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
            let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
            let mut descriptors = control.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            });
            let descriptor = descriptors.next().and_then(|mut all| all.next());
            if got.flags.intersects(cut) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            Ok((got.bytes, descriptor))
        };
        let (count, descriptor) = self.0.async_io(Interest::READABLE, read).await?;
        if count == 0 {
            return Ok(None);
        }
        let message = postcard::from_bytes(&bytes[..count]).map_err(io::Error::other)?;
        Ok(Some((message, descriptor)))
    }

    /// Whether the process at the other end has the user of this one. Nobody else keeps jobs, or is told of them.
    pub(super) fn is_own(&self) -> bool {
        let peer = rustix::net::sockopt::socket_peercred(self.0.get_ref().as_fd());
        peer.is_ok_and(|peer| peer.uid.as_raw() == nix::unistd::geteuid().as_raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::fs::File;
    use std::io::{Read, Write};

    fn pair() -> (Channel, Channel) {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let (a, b) = socketpair(family, SocketType::SEQPACKET, flags, None).unwrap();
        (Channel::new(a).unwrap(), Channel::new(b).unwrap())
    }

    #[tokio::test(flavor = "current_thread")]
    async fn messages_and_descriptors_arrive_until_the_end() {
        let (one, other) = pair();
        let (mut reader, writer) = io::pipe().unwrap();
        one.send(&FromKeeper::Holds(Held::Status), Some(writer.as_fd())).await.unwrap();
        drop(writer);
        one.send(&FromKeeper::Started { index: 3, pid: 7 }, None).await.unwrap();
        let (message, file) = other.receive::<FromKeeper>().await.unwrap().unwrap();
        assert_eq!(message, FromKeeper::Holds(Held::Status));
        File::from(file.unwrap()).write_all(b"it is the same pipe").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "it is the same pipe");
        let (message, file) = other.receive::<FromKeeper>().await.unwrap().unwrap();
        assert_eq!(message, FromKeeper::Started { index: 3, pid: 7 });
        assert!(file.is_none() && one.is_own());
        drop(one);
        assert!(other.receive::<FromKeeper>().await.unwrap().is_none());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_too_long_or_no_message_is_an_error() {
        let (one, other) = pair();
        let long = FromKeeper::Failed("x".repeat(MOST));
        assert!(one.send(&long, None).await.is_err());
        one.send(&[0xff_u8; 9], None).await.unwrap();
        assert!(other.receive::<FromKeeper>().await.is_err());
    }
}
