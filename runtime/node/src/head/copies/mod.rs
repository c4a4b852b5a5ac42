//! Copies of output: what the leader sends to the heads that wait, and what it acknowledges to nodes meanwhile.
//!
//! | file | owns |
//! |---|---|
//! | `leader` | which standbys are in sync; acknowledgements that wait for them |
//! | `session` | the connection of one standby, at the leader |
//! | `standby` | the thread of a head that waits, which copies |

mod leader;
mod session;
mod standby;

use std::net::SocketAddr;

use kumi_control::copying::{COPY_VERSION, CopyAnswer, CopyHello};
use kumi_control::head::HeadAction;
use kumi_control::message::{Command, RefusalKind};
use tokio::io::AsyncWriteExt;

use super::HeadDaemon;
use crate::client::refusal;
use crate::frame::{self, CLIENT_LIMIT, FrameError, LINK_LIMIT};
use crate::link::{AcceptedStream, LinkError};
pub(super) use leader::OutputCopies;
pub(super) use standby::Standby;

/// Hears what a head says first that wants copies. Whoever calls bounds the time.
///
/// # Errors
/// It is none of this cluster, or the connection fails.
pub(super) async fn hear(
    cluster: &str,
    mut stream: AcceptedStream,
) -> Result<(CopyHello, AcceptedStream), LinkError> {
    let content = frame::read_content(&mut stream, CLIENT_LIMIT).await?.ok_or(LinkError::Closed)?;
    let malformed = |error: postcard::Error| FrameError::Malformed(error.to_string());
    let (version, _) = postcard::take_from_bytes::<u32>(&content).map_err(malformed)?;
    let refused = if version == COPY_VERSION {
        let hello: CopyHello = frame::decode(&content)?;
        if hello.cluster == cluster {
            return Ok((hello, stream));
        }
        format!("this is cluster {cluster}, not {}; check `heads` in cluster.toml", hello.cluster)
    } else {
        format!(
            "this head copies output by version {COPY_VERSION}, not {version}; install the same Kumi for all heads"
        )
    };
    Err(refuse(stream, refused).await?)
}

/// Tells a standby why it gets no copies. Returns what that means for its connection.
async fn refuse(mut stream: AcceptedStream, why: String) -> Result<LinkError, LinkError> {
    let refused = refusal(RefusalKind::BadRequest, why);
    frame::write(&mut stream, &CopyAnswer::Err(refused.clone()), LINK_LIMIT).await?;
    stream.shutdown().await?;
    Ok(LinkError::Refused(refused))
}

impl HeadDaemon {
    /// A head that waits wants copies.
    pub(super) fn standby_connects(&mut self, hello: &CopyHello, stream: AcceptedStream) {
        let head = self.head.borrow();
        let records = head.records();
        self.copies.connect(hello.head, stream, records);
    }

    /// What is to be done for standbys after each event.
    pub(super) fn serve_standbys(&mut self) {
        if !self.copies.are_made() {
            return;
        }
        self.copies.take_news(&mut self.spools);
        if let Some(list) = self.copies.next_list() {
            let write = self.records.record_in_sync(list);
            self.copies.list_is_written(write);
        }
        let records = &self.records;
        self.copies.note_written(|write| records.is_settled(write) && !records.has_failed());
        if self.term.leads() {
            for (link, nodes, command) in self.copies.release() {
                self.links.send(link, nodes, command);
            }
        }
    }

    /// Sends a command to nodes. An acknowledgement of output waits until the standbys that are in sync have that, too. That nodes may
    /// forget a job waits for the table.
    pub(super) fn send_to_child(&mut self, action: HeadAction) {
        let HeadAction::ToChild(link, nodes, command) = action else { return };
        if let Command::Forget { job } = command
            && self.records.holds_forget(link, job, &nodes)
        {
            return;
        }
        let held = (link, nodes, command);
        if let Some((link, nodes, command)) = self.copies.hold(&mut self.spools, held) {
            self.links.send(link, nodes, command);
        }
    }

    /// Nodes may forget the jobs whose ends the table has now.
    pub(super) fn send_forgets(&mut self) {
        if self.term.leads() {
            for (link, nodes, job) in self.records.take_forgets() {
                self.links.send(link, nodes, Command::Forget { job });
            }
        }
    }

    /// Heads of later terms are to know how much jobs have written that is acknowledged.
    pub(super) fn note_written(&mut self) {
        let written = self.copies.counts(&mut self.spools);
        if !written.is_empty() {
            self.records.note_written(written);
        }
    }
}

/// The addresses of all heads but this one.
fn others(heads: &[SocketAddr], own: SocketAddr) -> impl Iterator<Item = SocketAddr> + '_ {
    heads.iter().copied().filter(move |&head| head != own)
}
