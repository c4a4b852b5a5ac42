//! Vouchers: permissions that a server gives a client, so that another server may fetch one array.
//!
//! A voucher names an array, its owner and its expiry. It is signed with a key that only the server has. Its bearer may fetch
//! that array until then, and nothing else, so no token ever reaches a server that fetches. See
//! docs/reference/call-protocol.md, "Vouchers".

use std::io;
use std::time::{Duration, Instant};

use blake3::Hash;
use kumi_rpc::{HeldArrayName, SigningKey};

use crate::users::Users;
use crate::{pass, signed};

/// Prefix of every voucher; no token begins with it.
const PREFIX: &str = "voucher_";
/// Longest name of a user.
const MOST_USER: usize = 64;
/// Bytes of a voucher without user name and signature: array, expiry, token stamp.
const FIXED: usize = HeldArrayName::LENGTH + 8 + 8;

/// Content of a voucher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voucher {
    /// The array.
    pub name: HeldArrayName,
    /// Expiry, in milliseconds on the clock of the server that gave it.
    end: u64,
    /// Stamp of the token with which it was requested; zeros: there was none.
    token: [u8; 8],
    /// The owner of the array. Empty: users are not distinguished.
    pub user: String,
}

/// Whether a text is a voucher rather than a token.
pub fn is_voucher(shown: &str) -> bool {
    let digits = shown.strip_prefix(PREFIX);
    digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

impl Voucher {
    fn signed(&self, key: &SigningKey) -> String {
        let mut bytes = Vec::with_capacity(FIXED + self.user.len() + 32);
        self.name.encode(&mut bytes);
        bytes.extend_from_slice(&self.end.to_le_bytes());
        bytes.extend_from_slice(&self.token);
        bytes.extend_from_slice(self.user.as_bytes());
        signed::sign(PREFIX, bytes, key)
    }

    fn read(text: &str, key: &SigningKey) -> Option<Voucher> {
        let bytes = signed::read(PREFIX, text, FIXED + MOST_USER, key)?;
        let (name, rest) = bytes.split_first_chunk()?;
        let (end, rest) = rest.split_first_chunk()?;
        let (token, user) = rest.split_first_chunk()?;
        Some(Voucher {
            name: HeldArrayName::of(name)?,
            end: u64::from_le_bytes(*end),
            token: *token,
            user: String::from_utf8(user.to_vec()).ok()?,
        })
    }
}

/// Vouchers of a server. They end with the server, as the arrays do.
#[derive(Debug)]
pub struct Vouchers {
    key: SigningKey,
    /// Start of the server's clock, so that no other clock matters.
    begun: Instant,
}

impl Vouchers {
    /// No vouchers yet.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(now: Instant) -> io::Result<Vouchers> {
        Ok(Vouchers { key: pass::key()?, begun: now })
    }

    fn clock(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.begun);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Keyed, so that it reveals nothing of the token to others.
    fn stamp(&self, token: Option<&Hash>) -> [u8; 8] {
        let mut stamp = [0; 8];
        if let Some(token) = token {
            let hash = blake3::keyed_hash(&self.key.0, token.as_bytes());
            stamp.copy_from_slice(&hash.as_bytes()[..8]);
        }
        stamp
    }

    /// A voucher for an array of a user with this token hash, valid for this long.
    pub fn give(
        &self,
        name: HeldArrayName,
        (user, token): (&str, Option<&Hash>),
        lifetime: Duration,
        now: Instant,
    ) -> String {
        let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let end = self.clock(now).saturating_add(lifetime);
        let token = self.stamp(token);
        Voucher { name, end, token, user: user.to_owned() }.signed(&self.key)
    }

    /// Whether its user and token are still valid.
    pub fn has_user(&self, voucher: &Voucher, users: &Users) -> bool {
        if voucher.token == self.stamp(None) {
            return users.named(&voucher.user).is_some();
        }
        users.has(&voucher.user, |token| self.stamp(Some(token)) == voucher.token)
    }

    /// Reads a voucher that this server gave.
    pub fn read(&self, text: &str) -> Option<Voucher> {
        Voucher::read(text, &self.key)
    }

    /// Whether it has expired.
    pub fn is_over(&self, voucher: &Voucher, now: Instant) -> bool {
        self.clock(now) >= voucher.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(index: u32) -> HeldArrayName {
        HeldArrayName { secret: [7; 16], index }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_voucher_is_what_was_given() {
        let now = Instant::now();
        let server = Vouchers::new(now).expect("random bytes");
        let other = Vouchers::new(now).expect("random bytes");
        let text = server.give(name(3), ("zoe", None), MINUTE, now);
        assert!(is_voucher(&text) && !pass::is_pass(&text) && !text.contains("zoe"), "{text}");
        let voucher = server.read(&text).expect("its own");
        assert_eq!((voucher.name, voucher.user.as_str(), voucher.end), (name(3), "zoe", 60_000));
        assert_eq!(other.read(&text), None, "another server's");
        // Every changed byte is noticed.
        for at in PREFIX.len()..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            let forged = String::from_utf8(forged).expect("digits");
            assert_eq!(server.read(&forged), None, "{at}");
        }
        let cut = &text[..text.len() - 2];
        for wrong in ["", "voucher_", "voucher_0", "voucher_zz", cut, &text[8..]] {
            assert_eq!(server.read(wrong), None, "{wrong}");
        }
        assert!(!is_voucher("") && !is_voucher("voucher_zz") && !is_voucher(&text[8..]));
        let long = server.give(name(1), (&"a".repeat(MOST_USER), None), MINUTE, now);
        assert!(server.read(&long).is_some() && long.len() <= 512, "it fits where vouchers go");
        // A correct signature with another prefix is not a voucher.
        let other_kind = signed::sign("pass_", vec![0; FIXED], &server.key);
        assert_eq!(server.read(&other_kind), None);
        let short = signed::sign(PREFIX, vec![0; FIXED - 1], &server.key);
        assert_eq!(server.read(&short), None);
    }

    #[test]
    fn a_voucher_ends() {
        let now = Instant::now();
        let server = Vouchers::new(now).expect("random bytes");
        let later = now + 2 * MINUTE;
        let read = |lifetime| server.read(&server.give(name(1), ("", None), lifetime, later));
        let voucher = read(MINUTE).expect("its own");
        assert!(!server.is_over(&voucher, now) && !server.is_over(&voucher, later));
        let end = later + MINUTE;
        assert!(!server.is_over(&voucher, end - Duration::from_millis(1)));
        assert!(server.is_over(&voucher, end));
        let voucher = read(Duration::ZERO).expect("its own");
        assert!(server.is_over(&voucher, later), "for no time at all");
        assert!(!server.is_over(&read(Duration::MAX).expect("its own"), end));
    }
}
