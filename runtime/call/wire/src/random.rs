//! Random bytes that nobody can guess, from the kernel's generator. No file is opened: there may be no `/dev`, or
//! another than the system's.

use std::io;

/// Random bytes for keys, tokens and secret names.
///
/// # Errors
/// The system has no random bytes.
pub fn bytes<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
        let [one, other] = [(); 2].map(|()| bytes::<32>().expect("random bytes"));
        assert!(one != other && one != [0; 32] && other != [0; 32]);
    }
}
