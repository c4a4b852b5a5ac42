//! Tokens of machines that join where heads share their state: a token counts, and is used, once the state of all heads has that.
//!
//! The rules are those of [`SharedTokens`]. With one head and a file, tokens are the matter of `documents` and `joining`.

use std::path::Path;

use kumi_control::head::ClientId;
use kumi_control::join::{JoinAnswer, JoinRefusal, JoinTokens, Joined, SharedTokens, TokenChanges};
use kumi_control::message::{ClientReply, Refusal, RefusalKind};
use kumi_etcd::Certainty;
use kumi_sched::NodeId;
use tokio::sync::oneshot;

use super::HeadDaemon;
use super::joining::{Joining, NewToken, SignedMachine, tell_machine};
use super::records::JobRecords;
use crate::client::refusal;
use crate::clock::wall_ms;
use crate::exit::Failure;
use crate::tls::Revocations;

/// Who waits for the state.
#[derive(Debug)]
pub(super) enum TokenWaiter {
    /// The client that gets a token, the token, and its end in milliseconds since the epoch.
    Client(ClientId, String, u64),
    Machine(oneshot::Sender<JoinAnswer>, Joined),
    /// The list of tokens of this host, which the state takes over.
    OldList,
}

impl TokenWaiter {
    fn is_there(&self) -> bool {
        match self {
            Self::Client(..) | Self::OldList => true,
            Self::Machine(answer, _) => !answer.is_closed(),
        }
    }
}

/// Tokens that heads share.
pub(super) type TokensOnTheWay = SharedTokens<TokenWaiter>;

/// The tokens that a head begins with: those of the state if heads share them, or at first those of this host's file. Returns
/// also what the thread of the links needs.
///
/// # Errors
/// The file counts, and is no list of tokens.
pub(super) fn take_over(
    dir: &Path,
    known_to_links: (&Revocations, &Certainty),
    (known, records): (Option<JoinTokens>, &mut JobRecords),
) -> Result<(Option<TokensOnTheWay>, Joining), Failure> {
    if !records.shares_settings() {
        return Ok((None, Joining::open(dir, known_to_links, None)?));
    }
    // Also if there are none: another host may have a list of a time with one head.
    let is_first = known.is_none();
    let known = match known {
        Some(known) => known,
        None => Joining::in_file(dir)?,
    };
    let joining = Joining::open(dir, known_to_links, Some(&known))?;
    let write = records.next_write();
    if is_first {
        records.change_tokens(known.changes_since(&JoinTokens::default()));
    }
    let mut tokens = SharedTokens::new(known);
    // What the state has counts more, so this host's list is not to be read again.
    tokens.wait(if is_first { write } else { 0 }, TokenWaiter::OldList);
    Ok((Some(tokens), joining))
}

fn too_many() -> Refusal {
    let message = "etcd does not answer the head; repeat the command when it does";
    refusal(RefusalKind::NoResources, message)
}

impl HeadDaemon {
    /// Whether there is room for one more who waits for the state.
    fn has_room(tokens: &mut TokensOnTheWay) -> bool {
        if tokens.is_full() {
            tokens.retain_waiting(TokenWaiter::is_there);
        }
        !tokens.is_full()
    }

    /// A token is made. The client gets it when the state has it.
    pub(super) fn share_token(
        &mut self,
        (client, node, valid_ms): (ClientId, NodeId, u64),
        made: Result<NewToken, Refusal>,
    ) {
        let Some(tokens) = &mut self.tokens else { return };
        let made =
            made.and_then(|made| if Self::has_room(tokens) { Ok(made) } else { Err(too_many()) });
        let NewToken { secret, text } = match made {
            Ok(made) => made,
            Err(refused) => return self.clients.reply(client, ClientReply::Refused(refused)),
        };
        let write = self.records.next_write();
        let changes = tokens.issue(write, (node, &secret), (wall_ms(), valid_ms), |until_ms| {
            tracing::info!(%node, until_ms, "a machine may join with a token");
            TokenWaiter::Client(client, text, until_ms)
        });
        self.change_tokens(changes);
    }

    /// A certificate is signed. The machine gets it when the state has its token as used.
    pub(super) fn share_use(&mut self, signed: SignedMachine) {
        let SignedMachine { hello, answer, certified } = signed;
        let Some(tokens) = &mut self.tokens else { return };
        let certified = match certified {
            Ok(_) if !Self::has_room(tokens) => Err(JoinRefusal::NotNow),
            other => other,
        };
        let joined = match certified {
            Ok(certified) => certified.joined,
            Err(refusal) => return self.refuse_machine(answer, refusal),
        };
        let head = self.head.borrow();
        let is_revoked = |node, issued_us| head.is_revoked(node, issued_us);
        let shown = (&hello.secret, &hello.public_key[..]);
        let waiter = TokenWaiter::Machine(answer, joined);
        let write = self.records.next_write();
        let spent = tokens.spend(write, shown, (wall_ms(), is_revoked), waiter);
        drop(head);
        match spent {
            Ok(changes) => self.change_tokens(changes),
            Err((refusal, TokenWaiter::Machine(answer, _))) => self.refuse_machine(answer, refusal),
            Err((_, TokenWaiter::Client(..) | TokenWaiter::OldList)) => {}
        }
    }

    /// Refuses a machine. Only a head that certainly leads knows why.
    fn refuse_machine(&self, answer: oneshot::Sender<JoinAnswer>, refusal: JoinRefusal) {
        let refusal = if self.term.leads() { refusal } else { JoinRefusal::NotNow };
        tell_machine(answer, Err(refusal));
    }

    /// The token of a node goes with the write that has its revocation.
    pub(super) fn revoke_token(&mut self, node: NodeId) {
        let Some(tokens) = &mut self.tokens else { return };
        let changes = tokens.revoke(self.records.next_write(), node);
        if !changes.is_empty() {
            self.records.change_tokens(changes);
            self.shared.joining.publish(tokens.tokens().clone());
        }
    }

    /// Has the state keep changes of tokens, and answers who need not wait for that.
    fn change_tokens(&mut self, changes: TokenChanges) {
        if !changes.is_empty() {
            self.records.change_tokens(changes);
            if let Some(tokens) = &self.tokens {
                self.shared.joining.publish(tokens.tokens().clone());
            }
            self.records.write();
        }
        self.settle_tokens();
    }

    /// Answers clients and machines for which the state has by now what they wait for, while this head leads for certain.
    pub(super) fn settle_tokens(&mut self) {
        while self.term.leads()
            && !self.records.has_failed()
            && let Some(tokens) = &mut self.tokens
            && let Some(settled) = tokens.settle(|write| self.records.is_settled(write))
        {
            match settled.answer {
                TokenWaiter::OldList => self.set_tokens_aside(),
                TokenWaiter::Client(client, token, until_ms) => {
                    self.clients.reply(client, ClientReply::JoinToken { token, until_ms });
                }
                TokenWaiter::Machine(answer, joined) => {
                    tell_machine(answer, settled.counts.map(|()| joined));
                }
            }
        }
    }
}
