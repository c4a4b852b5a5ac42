//! Signed texts (keyed BLAKE3), which a server gives away and later recognises.

use blake3::Hash;
use kumi_rpc::SigningKey;

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}

/// The prefix, then the bytes and their signature in hexadecimal.
pub fn sign(prefix: &str, mut bytes: Vec<u8>, key: &SigningKey) -> String {
    let signature = blake3::keyed_hash(&key.0, &bytes);
    bytes.extend_from_slice(signature.as_bytes());
    let mut text = String::with_capacity(prefix.len() + 2 * bytes.len());
    text.push_str(prefix);
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    for byte in bytes {
        text.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    text
}

/// The signed bytes, at most `most`. `None`: they were not signed with this key.
pub fn read(prefix: &str, text: &str, most: usize, key: &SigningKey) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(prefix)?;
    if digits.len() > 2 * (most + 32) {
        return None;
    }
    let mut bytes = hex(digits)?;
    let (signed, signature) = bytes.split_last_chunk::<32>()?;
    // Compares in constant time.
    if blake3::keyed_hash(&key.0, signed) != Hash::from_bytes(*signature) {
        return None;
    }
    bytes.truncate(bytes.len() - 32);
    Some(bytes)
}
