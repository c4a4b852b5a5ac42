//! Whose a call, a process and memory are: what one user has used, another never gets.

use std::rc::Rc;

use kumi_rpc::{Code, Failure};

use super::Shared;
use crate::users::{Refusal, User, Users};

/// Whose something is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    /// The user; empty where users are not told apart.
    pub user: String,
    /// The user of the system as whom processes run; `None`: the server's.
    pub run_as: Option<String>,
}

/// Who calls on a connection.
#[derive(Debug, Default)]
pub struct Caller {
    user: Option<User>,
    owner: Rc<Owner>,
}

/// How a client is told that it is not taken in.
fn refused(refusal: &Refusal) -> Failure {
    let code = match refusal {
        Refusal::Expired { .. } => Code::Expired,
        Refusal::Missing | Refusal::Unknown => Code::NotPermitted,
    };
    Failure::new(code, 0, refusal.to_string())
}

impl Caller {
    /// Who has this token.
    pub fn known(users: Option<&Users>, token: &str) -> Result<Caller, Failure> {
        let mut caller = Caller::default();
        if let Some(users) = users {
            caller.is(users.who(token).map_err(|refusal| refused(&refusal))?);
        }
        Ok(caller)
    }

    fn is(&mut self, user: User) {
        let run_as = user.run_as().map(str::to_owned);
        if self.owner.user != user.name() || self.owner.run_as != run_as {
            self.owner = Rc::new(Owner { user: user.name().to_owned(), run_as });
        }
        self.user = Some(user);
    }

    /// Whether the user still is one: the file may have changed since.
    pub fn check(&mut self, shared: &Shared) -> Result<(), Failure> {
        if let (Some(users), Some(user)) = (&shared.config.users, &self.user) {
            let user = users.again(user).map_err(|refusal| refused(&refusal))?;
            self.is(user);
        }
        Ok(())
    }

    /// Whose calls these are.
    pub fn owner(&self) -> &Rc<Owner> {
        &self.owner
    }

    /// Whether the user may know of this routine.
    pub fn permits(&self, routine: &str) -> bool {
        self.user.as_ref().is_none_or(|user| user.permits(routine))
    }

    /// Refuses a name that the user may not call, whether a routine has it or not.
    pub fn allow(&self, shared: &Shared, routine: &str) -> Result<(), Failure> {
        let Some(user) = self.user.as_ref().filter(|user| !user.permits(routine)) else {
            return Ok(());
        };
        let near = shared.registry.near(routine, |name| user.permits(name));
        let text = format!("`{}` may not call `{routine}` here{near}", user.name());
        Err(Failure::new(Code::NotPermitted, 0, text))
    }

    /// What is said of a name that no routine has.
    pub fn unknown(&self, shared: &Shared, routine: &str) -> Failure {
        let near = shared.registry.near(routine, |name| self.permits(name));
        let text = format!("the server has no routine `{routine}`{near}");
        Failure::new(Code::NoSuchRoutine, 0, text)
    }
}
