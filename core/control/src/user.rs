//! Users of a cluster's machines: who two machines mean by a number and a name.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::message::{Refusal, RefusalKind};

/// The first number of ordinary users and groups; those below are the system's.
pub const FIRST_ORDINARY: u32 = 1000;

/// Who a job runs as; looked up by the daemon that accepted the client, from the socket's peer
/// credentials, never from what the client says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Numeric user.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Its name where the client is; empty if the machine knows none. Nodes check that it has this number there.
    pub name: String,
}

/// What the name service of a machine has for a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The name of the user's number.
    pub name: Option<String>,
    /// The number of the user's name.
    pub uid: Option<u32>,
    /// The groups of the user's name.
    pub groups: Vec<u32>,
}

/// How a machine knows a user whom it may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserMatch {
    /// By name and number: with all of its groups.
    Known,
    /// By neither: with its primary group only.
    Stranger,
}

impl User {
    /// Whether both are the same user: they have one number, and one name if both machines know one.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let named = !self.name.is_empty() && !other.name.is_empty();
        self.uid == other.uid && !(named && self.name != other.name)
    }

    /// Checks that this user and its group are the same on `here`, a machine whose name service has `account` for it;
    /// `there` is where the user comes from, both as words of a sentence.
    ///
    /// # Errors
    /// The number or the name is another's here, or the group is not one of this user's.
    pub fn check_account(
        &self,
        account: &Account,
        there: &str,
        here: &str,
    ) -> Result<UserMatch, Refusal> {
        let who = self.check_name(account, there, here)?;
        self.check_group(who, account, here).map(|()| who)
    }

    fn check_name(&self, account: &Account, there: &str, here: &str) -> Result<UserMatch, Refusal> {
        let (uid, name) = (self.uid, self.name.as_str());
        match (&account.name, account.uid) {
            _ if !name.is_empty() && account.uid == Some(uid) => Ok(UserMatch::Known),
            (None, None) => Ok(UserMatch::Stranger),
            (Some(other), _) if name.is_empty() => {
                Err(not_same(&format!("user {uid} has no name {there} and is {other} {here}")))
            }
            (Some(other), _) if other != name => {
                Err(not_same(&format!("user {uid} is {name} {there} and {other} {here}")))
            }
            // The service contradicts itself, or has forgotten the name meanwhile.
            (Some(_), None) => Ok(UserMatch::Stranger),
            (_, Some(other)) => {
                Err(not_same(&format!("user {name} has number {uid} {there} and {other} {here}")))
            }
        }
    }

    /// A machine that relays a client could name any group.
    fn check_group(&self, who: UserMatch, account: &Account, here: &str) -> Result<(), Refusal> {
        let gid = self.gid;
        let (fits, why, remedy) = match who {
            UserMatch::Known => (
                self.uid == 0 || account.groups.contains(&gid),
                "is not one of this user's groups",
                "add the user to it, or submit with another group",
            ),
            UserMatch::Stranger => (
                gid == self.uid || gid >= FIRST_ORDINARY,
                "is a group of the system, and this user is not known",
                "add the user there",
            ),
        };
        if fits {
            return Ok(());
        }
        let message =
            format!("user {} has group {gid}, which {why} {here}; {remedy}", self.words());
        Err(Refusal { kind: RefusalKind::NotPermitted, message })
    }

    /// Its name and number for people.
    #[must_use]
    pub fn words(&self) -> String {
        match self.name.as_str() {
            "" => self.uid.to_string(),
            name => format!("{name} ({})", self.uid),
        }
    }
}

/// Checks that a cluster which permits jobs of root or not runs this user's.
///
/// # Errors
/// The user is root, whose jobs are not permitted.
pub fn check_root_jobs(user: &User, permitted: bool) -> Result<(), Refusal> {
    if permitted || user.uid != 0 {
        return Ok(());
    }
    let message = "this cluster does not run jobs of root; submit as another user, or set `root_jobs = true` in cluster.toml on all machines and start the daemons again";
    Err(Refusal { kind: RefusalKind::NotPermitted, message: message.to_string() })
}

fn not_same(what: &str) -> Refusal {
    let message = format!("{what}; give each user one name and one number on all machines");
    Refusal { kind: RefusalKind::NotPermitted, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, gid: u32, name: &str) -> User {
        User { uid, gid, name: name.into() }
    }

    fn account(name: Option<&str>, uid: Option<u32>) -> Account {
        Account { name: name.map(Into::into), uid, groups: Vec::from([1001, 27]) }
    }

    fn check(user: &User, account: &Account) -> Result<UserMatch, String> {
        user.check_account(account, "on the head's machine", "on node3").map_err(|refused| {
            assert_eq!(refused.kind, RefusalKind::NotPermitted);
            refused.message
        })
    }

    #[test]
    fn a_user_is_a_name_and_its_number() {
        let alice = user(1001, 1001, "alice");
        assert_eq!(check(&alice, &account(Some("alice"), Some(1001))), Ok(UserMatch::Known));
        let message = check(&alice, &account(Some("bob"), None)).unwrap_err();
        let said = "user 1001 is alice on the head's machine and bob on node3; ";
        assert!(message.starts_with(said), "{message}");
        // Both are there, with each other's number.
        let message = check(&alice, &account(Some("bob"), Some(1002))).unwrap_err();
        assert!(message.starts_with(said), "{message}");
        let message = check(&alice, &account(None, Some(1002))).unwrap_err();
        let said = "user alice has number 1001 on the head's machine and 1002 on node3; ";
        assert!(message.starts_with(said), "{message}");
        let message = check(&alice, &account(Some("alice"), Some(1002))).unwrap_err();
        assert!(message.starts_with(said), "{message}");
        let message = check(&user(1001, 1001, ""), &account(Some("bob"), None)).unwrap_err();
        assert!(message.starts_with("user 1001 has no name on the head's machine and is bob on"));
        assert_eq!(check(&alice, &account(None, None)), Ok(UserMatch::Stranger));
        // A second name of one number.
        assert_eq!(check(&alice, &account(Some("admin"), Some(1001))), Ok(UserMatch::Known));
    }

    #[test]
    fn a_group_is_one_of_the_users() {
        let known = account(Some("alice"), Some(1001));
        assert!(check(&user(1001, 27, "alice"), &known).is_ok());
        for gid in [0, 42, 1002] {
            let message = check(&user(1001, gid, "alice"), &known).unwrap_err();
            assert!(message.contains(&format!("alice (1001) has group {gid}")), "{message}");
        }
        let stranger = account(None, None);
        assert!(check(&user(1001, 0, "alice"), &stranger).is_err());
        assert!(check(&user(1001, 2000, ""), &stranger).is_ok());
        assert!(check(&user(500, 500, ""), &stranger).is_ok());
        let root = account(Some("root"), Some(0));
        assert!(check(&user(0, 5, "root"), &root).is_ok());
    }

    #[test]
    fn roots_jobs_need_a_permission() {
        let refused = check_root_jobs(&user(0, 0, "root"), false).unwrap_err();
        assert!(refused.message.contains("root_jobs = true"), "{}", refused.message);
        assert!(check_root_jobs(&user(0, 0, "root"), true).is_ok());
        assert!(check_root_jobs(&user(1, 0, ""), false).is_ok());
    }

    #[test]
    fn one_number_with_two_names_is_two_users() {
        let (alice, bob) = (user(1001, 1, "alice"), user(1001, 1, "bob"));
        assert!(!alice.is_same(&bob) && alice.is_same(&user(1001, 2, "alice")));
        assert!(alice.is_same(&user(1001, 1, "")) && !alice.is_same(&user(1002, 1, "alice")));
    }
}
