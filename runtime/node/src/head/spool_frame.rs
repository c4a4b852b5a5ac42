//! Frames of a spool: rank (`u32`), stream (`u8`: 0 output, 1 errors), length (`u32`), all little-endian, then the bytes.

use std::fs::File;
use std::io::{self, Read};

use kumi_control::message::Stream;

/// Bytes in front of each piece of output.
pub(super) const HEADER: usize = 9;
/// Longest piece of output there can be, in bytes.
pub(super) const MAX_PIECE: usize = 1 << 20;

/// A frame; `None` if the piece is too long.
pub(super) fn frame(rank: u32, stream: Stream, data: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(data.len()).ok().filter(|_| data.len() <= MAX_PIECE)?;
    let mut bytes = Vec::with_capacity(HEADER + data.len());
    bytes.extend_from_slice(&rank.to_le_bytes());
    bytes.push(u8::from(stream == Stream::Err));
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(data);
    Some(bytes)
}

/// A piece of output and the length of its frame.
pub(super) struct SpoolRecord<'a> {
    pub(super) rank: u32,
    pub(super) stream: Stream,
    pub(super) data: &'a [u8],
    pub(super) length: usize,
}

/// The first frame of `bytes`, `None` if it is not there whole.
///
/// # Errors
/// When this is no frame.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<SpoolRecord<'_>>, ()> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER) else { return Ok(None) };
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let stream = match header[4] {
        0 => Stream::Out,
        1 => Stream::Err,
        _ => return Err(()),
    };
    let length = usize::try_from(word(5)).map_err(|_| ())?;
    if length > MAX_PIECE {
        return Err(());
    }
    let piece = |data| SpoolRecord { rank: word(0), stream, data, length: HEADER + length };
    Ok(rest.get(..length).map(piece))
}

/// Length of the whole frames of a spool; what a crash cut off is behind it.
pub(super) fn whole_length(file: &mut File) -> io::Result<u64> {
    if !file.metadata()?.is_file() {
        return Ok(0);
    }
    let mut reader = io::BufReader::new(file);
    let mut end = 0;
    let mut header = [0; HEADER];
    loop {
        match reader.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(end),
            other => other?,
        }
        let length = u64::from(u32::from_le_bytes([header[5], header[6], header[7], header[8]]));
        let skipped = io::copy(&mut (&mut reader).take(length), &mut io::sink())?;
        if skipped < length || length > MAX_PIECE as u64 || header[4] > 1 {
            return Ok(end);
        }
        end += HEADER as u64 + length;
    }
}
