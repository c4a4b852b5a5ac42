//! Compression of what is long in etcd.

use std::io::{Error, ErrorKind, Read, Result, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// The longest content that is read.
const LONGEST: u64 = 32 << 20;

/// Adds the content, compressed, to what comes before it.
pub(super) fn compress(before: Vec<u8>, content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(before, Compression::fast());
    encoder.write_all(content)?;
    encoder.finish()
}

/// The content of what was compressed.
///
/// # Errors
/// It is something else, or too long.
pub(super) fn expand(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let length = DeflateDecoder::new(bytes).take(LONGEST + 1).read_to_end(&mut content)?;
    if length as u64 > LONGEST {
        return Err(Error::new(ErrorKind::FileTooLarge, "it has more than 32 MiB"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_comes_back_up_to_a_bound() {
        let content = vec![7; usize::try_from(LONGEST).unwrap()];
        let bytes = compress(b"head".to_vec(), &content).unwrap();
        assert!(bytes.len() < content.len() / 100 && bytes.starts_with(b"head"));
        assert_eq!(expand(&bytes[4..]).unwrap(), content);
        let longer = compress(Vec::new(), &[content, vec![7]].concat()).unwrap();
        assert_eq!(expand(&longer).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert!(expand(b"no").is_err());
    }
}
