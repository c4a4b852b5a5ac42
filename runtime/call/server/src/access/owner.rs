//! Ownership of calls, processes and memory: what one user has used, another never gets.

use std::rc::Rc;
use std::time::Instant;

use kumi_rpc::{Code, Failure, HeldArrayName, Ticket};

use super::super::Shared;
use crate::pass::LogPassRefusal;
use crate::users::{User, refused};
use crate::voucher::Voucher;
use crate::{pass, voucher};

/// The owner of a call, a process or memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Owner {
    /// The user; empty if users are not distinguished.
    pub user: String,
    /// The system user of the processes. `None`: the server's.
    pub run_as: Option<String>,
}

/// The identity of a connection's client.
#[derive(Debug, Default)]
pub struct Caller {
    user: Option<User>,
    owner: Rc<Owner>,
    /// A metaserver sent the client, so each of its calls needs a pass.
    sent: bool,
    /// Until when it may read logs, if it has shown a metaserver's pass for that.
    reads_logs_until: Option<Instant>,
    /// The voucher that it showed. It may fetch that array and nothing else.
    voucher: Option<Voucher>,
}

/// Whether a voucher is valid now.
fn is_good(shared: &Shared, voucher: &Voucher) -> Result<(), Failure> {
    if shared.vouchers.is_over(voucher, Instant::now()) {
        let text = "the voucher has expired; the client must ask for another";
        return Err(Failure::new(Code::Expired, 0, text));
    }
    let users = shared.config.users.as_ref();
    if users.is_some_and(|users| !shared.vouchers.has_user(voucher, users)) {
        let text = format!("`{}`, for whom the array is held, is no longer a user", voucher.user);
        return Err(Failure::new(Code::NotPermitted, 0, text));
    }
    Ok(())
}

/// The failure for a pass that shows no logs.
fn refused_for_logs(refusal: LogPassRefusal) -> Failure {
    let (code, what) = match refusal {
        LogPassRefusal::Used => (Code::NoTicket, "was used"),
        LogPassRefusal::Expired => (Code::Expired, "was not shown in time and has expired"),
    };
    let text = format!("this pass for logs {what}; the client must ask the metaserver again");
    Failure::new(code, 0, text)
}

impl Caller {
    /// The client with this token, or with this pass of a metaserver.
    pub fn known(shared: &Shared, shown: &str) -> Result<Caller, Failure> {
        if pass::is_pass(shown) {
            return Caller::sent(shared, shown);
        }
        if voucher::is_voucher(shown) {
            return Caller::bearing(shared, shown);
        }
        if shared.config.only_sent {
            let text = "calls come here through the metaserver only: give its address";
            return Err(Failure::new(Code::NotPermitted, 0, text));
        }
        let mut caller = Caller::default();
        if let Some(users) = &shared.config.users {
            caller.is(users.who(shown).map_err(|refusal| refused(&refusal))?);
        }
        Ok(caller)
    }

    fn sent(shared: &Shared, shown: &str) -> Result<Caller, Failure> {
        let unknown =
            "this pass does not come from the metaserver at which the server is registered";
        let pass = shared.passes.read(shown);
        let pass = pass.ok_or_else(|| Failure::new(Code::NoTicket, 0, unknown))?;
        let mut caller = Caller { sent: true, ..Caller::default() };
        // Passes for calls are used up by the calls.
        if pass.is_for_logs() {
            let now = Instant::now();
            shared.passes.take_for_logs(&pass, now).map_err(refused_for_logs)?;
            caller.reads_logs_until = now.checked_add(shared.config.log_pass_time);
        }
        match &shared.config.users {
            None => caller.owner = Rc::new(Owner { user: pass.user, run_as: None }),
            Some(users) => caller.is(users.named(&pass.user).ok_or_else(|| {
                let text =
                    format!("the metaserver's user `{}` is not a user of this server", pass.user);
                Failure::new(Code::NotPermitted, 0, text)
            })?),
        }
        Ok(caller)
    }

    /// The client with this voucher, whatever its identity.
    fn bearing(shared: &Shared, shown: &str) -> Result<Caller, Failure> {
        let voucher = shared.vouchers.read(shown).ok_or_else(|| {
            let text = "this voucher was not given by this server since it began";
            Failure::new(Code::NotPermitted, 0, text)
        })?;
        is_good(shared, &voucher)?;
        let owner = Rc::new(Owner { user: voucher.user.clone(), run_as: None });
        Ok(Caller { owner, voucher: Some(voucher), ..Caller::default() })
    }

    /// The hash of the token that it showed, if it did.
    pub fn token(&self) -> Option<&blake3::Hash> {
        self.user.as_ref().and_then(User::token)
    }

    /// Whether it showed only a voucher and is otherwise anonymous.
    pub fn is_bearer(&self) -> bool {
        self.voucher.is_some()
    }

    /// Whether other servers need a voucher to fetch its arrays.
    pub fn wants_vouchers(&self, shared: &Shared) -> bool {
        shared.config.only_sent || !self.owner.user.is_empty()
    }

    /// Whether it may fetch this array, if the array belongs to its user.
    pub fn may_fetch(&mut self, shared: &Shared, name: HeldArrayName) -> Result<(), Failure> {
        let Some(voucher) = &self.voucher else { return self.check(shared) };
        if voucher.name != name {
            shared.handshake_limit.overstepped();
            let text = "the voucher is for another array";
            return Err(Failure::new(Code::NotPermitted, 0, text));
        }
        is_good(shared, voucher)
    }

    /// Whether it may call this routine, with this ticket and pass if any.
    pub fn may_call(
        &self,
        shared: &Shared,
        routine: &str,
        shown: Option<(Ticket, String)>,
    ) -> Result<Option<Ticket>, Failure> {
        let refused = |text: String| Failure::new(Code::NoTicket, 0, text);
        match shown {
            None if !self.sent => Ok(None),
            None => {
                let text = "a client that a metaserver has sent needs a ticket for each call";
                Err(Failure::new(Code::NotPermitted, 0, text))
            }
            Some((ticket, pass)) => {
                let pass = shared.passes.read(&pass).filter(|pass| {
                    let own = self.sent && pass.user == self.owner.user;
                    own && pass.ticket == ticket && pass.permits(routine)
                });
                let pass = pass.ok_or_else(|| {
                    refused(format!("the pass is not for this call of `{routine}`"))
                })?;
                if !shared.passes.take(&pass) {
                    return Err(refused(format!("the pass for this call of `{routine}` was used")));
                }
                Ok(Some(ticket))
            }
        }
    }

    /// Refuses questions that belong to the metaserver.
    pub fn may_ask(&self) -> Result<(), Failure> {
        if self.sent {
            let text =
                "a client that a metaserver has sent must ask the metaserver for descriptions";
            return Err(Failure::new(Code::NotPermitted, 0, text));
        }
        Ok(())
    }

    /// Refuses logs to clients that a metaserver has sent for a call, or for logs too long ago.
    pub fn may_read_logs(&mut self, shared: &Shared) -> Result<(), Failure> {
        self.check(shared)?;
        match self.reads_logs_until {
            _ if !self.sent => Ok(()),
            Some(until) if Instant::now() < until => Ok(()),
            Some(_) => {
                let text =
                    "the pass for logs has expired; the client must ask the metaserver again";
                Err(Failure::new(Code::Expired, 0, text))
            }
            None => {
                let text = "the pass is for a call: the metaserver gives another for logs";
                Err(Failure::new(Code::NotPermitted, 0, text))
            }
        }
    }

    /// Whether it has shown a pass that is used up, with which it cannot connect again.
    pub fn is_for_logs(&self) -> bool {
        self.reads_logs_until.is_some()
    }

    /// Refuses arrays to be held from clients that have to show a pass for whatever takes memory.
    pub fn may_hold(&self) -> Result<(), Failure> {
        if self.sent {
            let text = "a client that a metaserver has sent may only call: its arrays are not held";
            return Err(Failure::new(Code::NotPermitted, 0, text));
        }
        Ok(())
    }

    fn is(&mut self, user: User) {
        let run_as = user.run_as().map(str::to_owned);
        if self.owner.user != user.name() || self.owner.run_as != run_as {
            self.owner = Rc::new(Owner { user: user.name().to_owned(), run_as });
        }
        self.user = Some(user);
    }

    /// Whether the user still exists and no voucher was shown. The user file may have changed.
    pub fn check(&mut self, shared: &Shared) -> Result<(), Failure> {
        if self.is_bearer() {
            shared.handshake_limit.overstepped();
            let text = "a voucher only permits to fetch its array";
            return Err(Failure::new(Code::NotPermitted, 0, text));
        }
        if let (Some(users), Some(user)) = (&shared.config.users, &self.user) {
            let user = users.again(user).map_err(|refusal| refused(&refusal))?;
            self.is(user);
        }
        Ok(())
    }

    /// The owner of its calls.
    pub fn owner(&self) -> &Rc<Owner> {
        &self.owner
    }

    /// Whether the user may know of this routine.
    pub fn permits(&self, routine: &str) -> bool {
        self.user.as_ref().is_none_or(|user| user.permits(routine))
    }

    /// Refuses a name that the user may not call, whether the routine exists or not.
    pub fn allow(&self, shared: &Shared, routine: &str) -> Result<(), Failure> {
        let Some(user) = self.user.as_ref().filter(|user| !user.permits(routine)) else {
            return Ok(());
        };
        let near = shared.registry.near(routine, |name| user.permits(name));
        let text = format!("`{}` may not call `{routine}` here{near}", user.name());
        Err(Failure::new(Code::NotPermitted, 0, text))
    }

    /// The failure for an unknown class. It reveals a routine of that name only to users who may call it.
    pub fn no_class(&self, shared: &Shared, class: &str) -> Failure {
        let near = match shared.registry.find(class) {
            Some(_) => ": it is a routine, which is called without an object".to_owned(),
            None => shared.registry.near_class(class, |name| self.permits(name)),
        };
        let text = format!("the server has no class `{class}`{near}");
        Failure::new(Code::NoSuchRoutine, 0, text)
    }

    /// The failure for an unknown routine.
    pub fn unknown(&self, shared: &Shared, routine: &str) -> Failure {
        let near = shared.registry.near(routine, |name| self.permits(name));
        let text = format!("the server has no routine `{routine}`{near}");
        Failure::new(Code::NoSuchRoutine, 0, text)
    }
}
