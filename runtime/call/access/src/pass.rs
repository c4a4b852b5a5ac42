//! Passes: proofs that a metaserver gives a client for one attempt of a call, to show to the server.
//!
//! A pass names the client and the attempt that it may run. It is signed (keyed BLAKE3) with a key that the server made for
//! its registration. So the server need not ask the metaserver, and tokens never reach servers. A pass for one server is
//! worthless at another. See docs/reference/call-protocol.md, "Users, and passes".

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;

use kumi_rpc::{SigningKey, Ticket};

use crate::signed;

/// Prefix of every pass; no token begins with it.
const PREFIX: &str = "pass_";
/// Bytes of a pass without user name and signature: ticket, serial number, routine.
const FIXED: usize = Ticket::LENGTH + 8 + 16;
/// Longest name of a user.
const MOST_USER: usize = 64;
/// Used passes that are remembered, so that none is accepted twice.
const MOST_USED: usize = 65_536;

/// A random key.
///
/// # Errors
/// The system has no random bytes.
pub fn key() -> io::Result<SigningKey> {
    crate::random::bytes().map(SigningKey)
}

/// Content of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// The ticket of the call.
    pub ticket: Ticket,
    /// Serial number among the passes of a key.
    pub serial: u64,
    routine: [u8; 16],
    /// The user of the call. Empty: the metaserver does not distinguish users.
    pub user: String,
}

fn routine_hash(name: &str) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..16]);
    first
}

/// Whether a client shows a pass rather than a token.
pub fn is_pass(shown: &str) -> bool {
    shown.starts_with(PREFIX)
}

impl Pass {
    /// A pass for an attempt of a call.
    pub fn new(ticket: Ticket, serial: u64, routine: &str, user: &str) -> Pass {
        Pass { ticket, serial, routine: routine_hash(routine), user: user.to_owned() }
    }

    /// The signed text.
    pub fn signed(&self, key: &SigningKey) -> String {
        let mut bytes = Vec::with_capacity(FIXED + self.user.len() + 32);
        self.ticket.encode(&mut bytes);
        bytes.extend_from_slice(&self.serial.to_le_bytes());
        bytes.extend_from_slice(&self.routine);
        bytes.extend_from_slice(self.user.as_bytes());
        signed::sign(PREFIX, bytes, key)
    }

    /// Reads a signed pass. `None`: it was not signed with this key.
    pub fn read(text: &str, key: &SigningKey) -> Option<Pass> {
        let signed = signed::read(PREFIX, text, FIXED + MOST_USER, key)?;
        let (ticket, rest) = signed.split_at_checked(Ticket::LENGTH)?;
        let (serial, rest) = rest.split_first_chunk::<8>()?;
        let (routine, user) = rest.split_first_chunk::<16>()?;
        Some(Pass {
            ticket: Ticket::decode(ticket).ok()?,
            serial: u64::from_le_bytes(*serial),
            routine: *routine,
            user: String::from_utf8(user.to_vec()).ok()?,
        })
    }

    /// A pass for the logs of a user's calls. No routine has an empty name, so it permits no call.
    pub fn for_logs(serial: u64, user: &str) -> Pass {
        Pass::new(Ticket { call: 0, attempt: 0 }, serial, "", user)
    }

    /// Whether it is for logs.
    pub fn is_for_logs(&self) -> bool {
        self.permits("")
    }

    /// Whether it permits a call of this routine.
    pub fn permits(&self, routine: &str) -> bool {
        self.routine == routine_hash(routine)
    }
}

#[derive(Debug)]
struct UsedPasses {
    key: SigningKey,
    used: BTreeSet<u64>,
    /// Passes up to this number are used up, whether shown or not.
    floor: u64,
}

/// Passes of a server.
#[derive(Debug, Default)]
pub struct Passes(RefCell<Option<UsedPasses>>);

impl Passes {
    /// Replaces the key. Passes of the old key become invalid.
    pub fn renew(&self, key: SigningKey) {
        *self.0.borrow_mut() = Some(UsedPasses { key, used: BTreeSet::new(), floor: 0 });
    }

    /// Reads a pass if it is valid.
    pub fn read(&self, text: &str) -> Option<Pass> {
        self.0.borrow().as_ref().and_then(|known| Pass::read(text, &known.key))
    }

    /// Uses a pass up. False: it was used before.
    pub fn take(&self, pass: &Pass) -> bool {
        let mut known = self.0.borrow_mut();
        let Some(known) = known.as_mut() else { return false };
        if pass.serial <= known.floor || !known.used.insert(pass.serial) {
            return false;
        }
        if known.used.len() > MOST_USED
            && let Some(oldest) = known.used.pop_first()
        {
            known.floor = oldest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(serial: u64) -> Pass {
        Pass::new(Ticket { call: 3, attempt: 1 }, serial, "dmmul", "zoe")
    }

    #[test]
    fn a_pass_is_what_was_signed() {
        let (one, other) = (key().expect("random bytes"), key().expect("random bytes"));
        let text = pass(1).signed(&one);
        assert!(is_pass(&text) && !text.contains("zoe") && text.len() < 512, "{text}");
        assert_eq!(Pass::read(&text, &one), Some(pass(1)));
        assert_eq!(Pass::read(&text, &other), None);
        assert!(pass(1).permits("dmmul") && !pass(1).permits("dmmu"));
        // Every changed byte is noticed.
        for at in PREFIX.len()..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            let forged = String::from_utf8(forged).expect("digits");
            assert_eq!(Pass::read(&forged, &one), None, "{at}");
        }
        for wrong in ["", "pass_", "pass_0", "pass_zz", &text[..text.len() - 2], &text[5..]] {
            assert_eq!(Pass::read(wrong, &one), None, "{wrong}");
        }
        let long = Pass::new(Ticket { call: 3, attempt: 1 }, 1, "f", &"a".repeat(MOST_USER));
        let text = long.signed(&one);
        assert_eq!(Pass::read(&text, &one), Some(long));
        assert!(text.len() <= 512, "it fits where passes go");
    }

    #[test]
    fn a_pass_for_logs_is_for_nothing_else() {
        let logs = Pass::for_logs(7, "zoe");
        assert!(logs.is_for_logs() && !logs.permits("dmmul") && !pass(7).is_for_logs());
        let key = key().expect("random bytes");
        assert_eq!(Pass::read(&logs.signed(&key), &key), Some(logs));
    }

    #[test]
    fn a_pass_is_used_once() {
        let passes = Passes::default();
        assert!(!passes.take(&pass(1)), "there is no key");
        let key = key().expect("random bytes");
        passes.renew(key);
        assert_eq!(passes.read(&pass(1).signed(&key)), Some(pass(1)));
        assert!(passes.take(&pass(2)) && passes.take(&pass(1)));
        assert!(!passes.take(&pass(1)) && !passes.take(&pass(2)));
        let most = MOST_USED as u64;
        (3..most + 10).for_each(|serial| assert!(passes.take(&pass(serial))));
        assert!(!passes.take(&pass(1)) && !passes.take(&pass(9)), "what is forgotten is used up");
        assert!(!passes.take(&pass(most)) && passes.take(&pass(most + 10)));
        passes.renew(super::key().expect("random bytes"));
        assert!(passes.read(&pass(1).signed(&key)).is_none());
    }
}
