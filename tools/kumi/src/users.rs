//! Users that are named on the command line. One of whom nobody knows is no answer, but a slip of the keys.

use crate::error::Error;
use crate::output;
use nix::errno::Errno;
use nix::unistd::User;

/// Whether this machine surely has no such user. Numbers need no name anywhere, so any may be a user's.
pub fn is_unknown(user: &str) -> bool {
    if user.parse::<u32>().is_ok() {
        return false;
    }
    match User::from_name(user) {
        Ok(found) => found.is_none(),
        // What name services say of names that they do not have.
        Err(Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM) => true,
        Err(error) => {
            output::note(&format!(
                "the machine does not say whether it has a user {user}: {error}"
            ));
            false
        }
    }
}

/// Nobody knows this user: neither this machine, nor a job or account that the asker may see.
pub fn unknown(user: &str) -> Error {
    Error::Usage(format!(
        "no user '{user}' is known on this machine, and nothing that you may see is of one; check the name"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_may_be_unknown() {
        assert!(!is_unknown("root") && !is_unknown("0") && !is_unknown("3999999999"));
        assert!(is_unknown("nobody-of-this-name") && is_unknown("") && is_unknown("-1"));
        assert_eq!(unknown("x").exit_code(), 64);
    }
}
