//! Frames between daemon and server: a `u32` little-endian length, then that many bytes of postcard.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::message::MOST_EXCHANGE;

/// Longest content of a frame: an exchange and what surrounds it.
pub const MOST_FRAME: usize = MOST_EXCHANGE + (1 << 20);

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than [`MOST_FRAME`].
    #[error("a message of {0} bytes is longer than servers and daemons send")]
    TooLong(usize),
    /// Not what the other side would write.
    #[error("a message does not decode: {0}")]
    Malformed(String),
}

/// The bytes of a frame.
///
/// # Errors
/// It would be too long.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = postcard::to_extend(value, Vec::from([0; 4]))
        .map_err(|error| FrameError::Malformed(error.to_string()))?;
    let length = bytes.len() - 4;
    let prefix = u32::try_from(length).ok().filter(|_| length <= MOST_FRAME);
    bytes[..4].copy_from_slice(&prefix.ok_or(FrameError::TooLong(length))?.to_le_bytes());
    Ok(bytes)
}

/// Bytes of a stream, from which frames are taken as they are complete.
#[derive(Debug, Default)]
pub struct FrameBuffer(Vec<u8>);

impl FrameBuffer {
    /// Adds what came.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next frame that is there whole.
    ///
    /// # Errors
    /// The stream cannot be trusted any more.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some(prefix) = self.0.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*prefix)).unwrap_or(usize::MAX);
        if length > MOST_FRAME {
            return Err(FrameError::TooLong(length));
        }
        let Some(content) = self.0.get(4..4 + length) else { return Ok(None) };
        let (value, rest) = postcard::take_from_bytes(content)
            .map_err(|error| FrameError::Malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(FrameError::Malformed("bytes are left over".into()));
        }
        self.0.drain(..4 + length);
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::FromServer;

    #[test]
    fn frames_come_apart_again() {
        let first = FromServer::Ended { rank: 3 };
        let second = FromServer::Failed("x".into());
        let mut bytes = encode(&first).unwrap();
        bytes.extend(encode(&second).unwrap());
        let mut buffer = FrameBuffer::default();
        let mut taken = Vec::new();
        for byte in bytes {
            buffer.extend(&[byte]);
            taken.extend(buffer.take::<FromServer>().unwrap());
        }
        assert_eq!(taken, [first, second]);
    }

    #[test]
    fn lengths_are_not_believed() {
        let mut buffer = FrameBuffer::default();
        buffer.extend(&u32::MAX.to_le_bytes());
        assert!(matches!(buffer.take::<FromServer>(), Err(FrameError::TooLong(_))));
        let mut buffer = FrameBuffer::default();
        buffer.extend(&[2, 0, 0, 0, 200, 1]);
        assert!(matches!(buffer.take::<FromServer>(), Err(FrameError::Malformed(_))));
        let long = FromServer::Failed("x".repeat(MOST_FRAME));
        assert!(matches!(encode(&long), Err(FrameError::TooLong(_))));
    }
}
