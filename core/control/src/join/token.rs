//! The text of a token: what an administrator copies from the head's machine to the new one.
//!
//! `kumi-join-` and then, in letters and digits (base 32): version, fingerprint of the authority, secret, name of the cluster,
//! addresses of the heads, checksum. It can be typed in either case.

use alloc::string::String;
use alloc::vec::Vec;

use super::JoinSecret;

/// What a token begins with, so that people and programs that look for secrets see what it is.
const PREFIX: &str = "kumi-join-";
/// Version of the layout.
const VERSION: u8 = 1;
/// The same with more than [`ADDRESSES_OF_VERSION_1`], of which earlier versions take none.
const VERSION_OF_MANY: u8 = 2;
/// Most addresses that earlier versions take.
const ADDRESSES_OF_VERSION_1: usize = 8;
/// Bytes of the checksum. It finds what was copied wrongly; nobody is kept from making one.
const CHECKSUM: usize = 4;
/// Five bits each (RFC 4648, in small letters).
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Most addresses of heads in a token.
pub const MOST_ADDRESSES: usize = 24;
/// The longest token, in bytes.
pub const LONGEST_TOKEN: usize = 4096;

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    /// BLAKE3 of the certificate of the cluster's authority (DER).
    pub authority: [u8; 32],
    /// Shows the head that an administrator has sent the machine.
    pub secret: JoinSecret,
    /// Name of the cluster.
    pub cluster: String,
    /// Where the head listens that leads, `HOST:PORT` each; at least one, and at most [`MOST_ADDRESSES`].
    pub head: Vec<String>,
}

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is something else.
    #[error("this is no token: one begins with kumi-join- and has letters and digits")]
    NotOne,
    /// Parts are missing or were changed.
    #[error("the token is damaged or not whole; copy all of it")]
    Damaged,
    /// It was made by another version of Kumi.
    #[error("the token is of another version of Kumi; install the head's version here")]
    Version,
}

impl JoinToken {
    /// The text; `None` if a part is too long for it.
    #[must_use]
    pub fn encode(&self) -> Option<String> {
        let is_many = self.head.len() > ADDRESSES_OF_VERSION_1;
        let mut bytes = Vec::from([if is_many { VERSION_OF_MANY } else { VERSION }]);
        bytes.extend_from_slice(&self.authority);
        bytes.extend_from_slice(&self.secret.0);
        put(&mut bytes, &self.cluster)?;
        if !(1..=MOST_ADDRESSES).contains(&self.head.len()) {
            return None;
        }
        bytes.push(u8::try_from(self.head.len()).ok()?);
        for address in &self.head {
            put(&mut bytes, address)?;
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum);
        let text = PREFIX.chars().chain(letters(&bytes)).collect::<String>();
        (text.len() <= LONGEST_TOKEN).then_some(text)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// It is no token, or not all of one.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let begins =
            text.get(..PREFIX.len()).is_some_and(|first| first.eq_ignore_ascii_case(PREFIX));
        if !begins || text.len() > LONGEST_TOKEN {
            return Err(TokenError::NotOne);
        }
        let bytes = bytes(&text.as_bytes()[PREFIX.len()..])?;
        let at = bytes.len().checked_sub(CHECKSUM).ok_or(TokenError::Damaged)?;
        let (content, sum) = bytes.split_at(at);
        if checksum(content) != sum {
            return Err(TokenError::Damaged);
        }
        match content.split_first() {
            Some((&(VERSION | VERSION_OF_MANY), rest)) => read(rest).ok_or(TokenError::Damaged),
            _ => Err(TokenError::Version),
        }
    }
}

/// What comes behind the version.
fn read(mut rest: &[u8]) -> Option<JoinToken> {
    let authority = *rest.split_off(..32)?.first_chunk()?;
    let secret = JoinSecret(*rest.split_off(..16)?.first_chunk()?);
    let cluster = take(&mut rest)?;
    let count = usize::from(*rest.split_off_first()?);
    if !(1..=MOST_ADDRESSES).contains(&count) {
        return None;
    }
    let head = (0..count).map(|_| take(&mut rest)).collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some(JoinToken { authority, secret, cluster, head })
}

fn put(bytes: &mut Vec<u8>, text: &str) -> Option<()> {
    bytes.push(u8::try_from(text.len()).ok().filter(|&length| length > 0)?);
    bytes.extend_from_slice(text.as_bytes());
    Some(())
}

/// A text that can be shown and be one word of a command.
fn take(rest: &mut &[u8]) -> Option<String> {
    let length = usize::from(*rest.split_off_first()?);
    let text = core::str::from_utf8(rest.split_off(..length)?).ok()?;
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    plain.then(|| text.into())
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut sum = [0; CHECKSUM];
    sum.copy_from_slice(&blake3::hash(bytes).as_bytes()[..CHECKSUM]);
    sum
}

/// Bytes in letters, five bits each; the last letter is filled up with zeros.
fn letters(bytes: &[u8]) -> impl Iterator<Item = char> + '_ {
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    (0..(bytes.len() * 8).div_ceil(5)).map(move |letter| {
        let value = (0..5).fold(0, |value, place| value << 1 | bit(letter * 5 + place));
        char::from(ALPHABET[usize::from(value)])
    })
}

/// The bytes of such letters.
///
/// # Errors
/// There is another character, or letters are missing at the end.
fn bytes(letters: &[u8]) -> Result<Vec<u8>, TokenError> {
    let (mut bytes, mut have, mut bits) = (Vec::new(), 0_u32, 0);
    for letter in letters {
        let value = match letter.to_ascii_lowercase() {
            letter @ b'a'..=b'z' => letter - b'a',
            letter @ b'2'..=b'7' => letter - b'2' + 26,
            _ => return Err(TokenError::NotOne),
        };
        (have, bits) = (have << 5 | u32::from(value), bits + 5);
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(have >> bits).map_err(|_| TokenError::Damaged)?);
            have &= (1 << bits) - 1;
        }
    }
    if bits < 5 && have == 0 { Ok(bytes) } else { Err(TokenError::Damaged) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn token() -> JoinToken {
        JoinToken {
            authority: [3; 32],
            secret: JoinSecret([200; 16]),
            cluster: "lab".to_string(),
            head: Vec::from(["192.0.2.1:7700".to_string(), "[fd00::1]:7700".to_string()]),
        }
    }

    #[test]
    fn a_token_is_one_word_that_comes_back() {
        let text = token().encode().unwrap();
        assert!(text.starts_with("kumi-join-ae"), "{text}");
        assert!(text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
        assert_eq!(JoinToken::parse(&text), Ok(token()));
        assert_eq!(JoinToken::parse(&text.to_ascii_uppercase()), Ok(token()));
        assert_eq!(JoinToken::parse(&(text + "\n")), Ok(token()));
    }

    #[test]
    fn what_is_no_token_is_told() {
        let text = token().encode().unwrap();
        for other in ["", "kumi-join-", "lab", "kumi-join-!", "kumi-join-\u{e9}", "kumi-joi\u{e9}"]
        {
            assert!(JoinToken::parse(other).is_err(), "{other}");
        }
        assert_eq!(JoinToken::parse(&text[1..]), Err(TokenError::NotOne));
        for missing in 1..40 {
            let cut = &text[..text.len() - missing];
            assert_eq!(JoinToken::parse(cut), Err(TokenError::Damaged), "{missing} are missing");
        }
        // Of a later version, in itself whole.
        let mut bytes = Vec::from([3; 60]);
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum);
        let later: String = PREFIX.chars().chain(letters(&bytes)).collect();
        assert_eq!(JoinToken::parse(&later), Err(TokenError::Version));
        let nowhere = JoinToken { head: Vec::new(), ..token() };
        assert_eq!(nowhere.encode(), None);
        let odd = JoinToken { head: Vec::from(["a b:1".to_string()]), ..token() };
        assert_eq!(JoinToken::parse(&odd.encode().unwrap()), Err(TokenError::Damaged));
    }

    /// Up to eight addresses are in the layout that earlier versions read; they tell one of more from a damaged one.
    #[test]
    fn a_token_has_the_addresses_of_many_heads() {
        for (count, version) in [(1, VERSION), (8, VERSION), (9, 2), (16, 2), (MOST_ADDRESSES, 2)] {
            let head = (0..count).map(|head| alloc::format!("192.0.2.{head}:7700")).collect();
            let many = JoinToken { head, ..token() };
            let text = many.encode().unwrap();
            assert_eq!(JoinToken::parse(&text), Ok(many));
            assert_eq!(bytes(&text.as_bytes()[PREFIX.len()..]).unwrap()[0], version, "{count}");
        }
        let head = Vec::from_iter((0..=MOST_ADDRESSES).map(|_| "192.0.2.1:7700".to_string()));
        assert_eq!(JoinToken { head, ..token() }.encode(), None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_token_or_an_error(text in ".{0,200}") {
            let _ = JoinToken::parse(&text);
            let _ = JoinToken::parse(&(PREFIX.to_string() + &text));
        }

        #[test]
        fn letters_come_back(content: Vec<u8>) {
            let text: String = letters(&content).collect();
            prop_assert_eq!(bytes(text.as_bytes()), Ok(content));
        }

        #[test]
        fn one_wrong_letter_is_noticed(at in 0_usize..150, letter in 0_usize..32) {
            let mut text = token().encode().unwrap().into_bytes();
            let at = PREFIX.len() + at % (text.len() - PREFIX.len());
            prop_assume!(text[at] != ALPHABET[letter]);
            text[at] = ALPHABET[letter];
            let text = String::from_utf8(text).unwrap();
            prop_assert!(JoinToken::parse(&text).is_err());
        }
    }
}
