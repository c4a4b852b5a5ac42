//! Bytes of a segment: a header, then frames.
//!
//! Header: [`MAGIC`], its length (`u32`), the bytes of output before the segment (`u64`), the number of streams (`u32`), and
//! for each the rank (`u32`), the stream (`u8`) and how far it had come (`u64`). Frame: rank (`u32`), stream (`u8`: 0 output,
//! 1 errors), length (`u32`), then the bytes. The mark of a restart is a frame of stream 2 with the count of restarts as its rank
//! and the reason as its bytes; a header has that count as an entry of stream 2. All numbers are little-endian. Earlier versions wrote frames without a header.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use kumi_control::message::Stream;

/// Bytes in front of each piece of output.
pub(super) const HEADER: usize = 9;
/// Longest piece of output there can be, in bytes.
pub(super) const MAX_PIECE: usize = 1 << 20;
/// Begins a segment. The fifth byte is that of no stream, so that no frame begins so.
const MAGIC: &[u8; 8] = b"KUMISEG1";
/// Bytes of a header in front of its list of streams.
const FIXED: usize = MAGIC.len() + 4 + 8 + 4;
/// Bytes of each stream in a header.
const ENTRY: usize = 13;
/// Longest list of streams: of more ranks than a job can have.
const MOST_STREAMS: usize = 1 << 22;

/// Stands for a restart of the job where other frames have a stream.
const RESTART: u8 = 2;

/// How far each rank's streams have come, in bytes.
pub(super) type Positions = BTreeMap<(u32, Stream), u64>;

fn byte_of(stream: Stream) -> u8 {
    u8::from(stream == Stream::Err)
}

fn stream_of(byte: u8) -> Option<Stream> {
    match byte {
        0 => Some(Stream::Out),
        1 => Some(Stream::Err),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |long| u64::from_le_bytes(*long))
}

/// What was before a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// Bytes of output.
    pub(super) before: u64,
    /// How far the streams had come, since the job was started again so often.
    pub(super) positions: Positions,
    pub(super) restarts: u32,
    /// Its own length in the file.
    pub(super) length: u64,
}

impl SegmentHeader {
    /// Its bytes.
    pub(super) fn encode(before: u64, positions: &Positions, restarts: u32) -> Vec<u8> {
        let entries = positions.len() + usize::from(restarts > 0);
        let length = FIXED + entries * ENTRY;
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(MAGIC);
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
        bytes.extend_from_slice(&narrow(length));
        bytes.extend_from_slice(&before.to_le_bytes());
        bytes.extend_from_slice(&narrow(entries));
        for (&(rank, stream), &next) in positions {
            bytes.extend_from_slice(&rank.to_le_bytes());
            bytes.push(byte_of(stream));
            bytes.extend_from_slice(&next.to_le_bytes());
        }
        if restarts > 0 {
            bytes.extend_from_slice(&restarts.to_le_bytes());
            bytes.push(RESTART);
            bytes.extend_from_slice(&0u64.to_le_bytes());
        }
        bytes
    }

    /// The header of a file, which then stands at its first frame. A file of an earlier version has none.
    ///
    /// # Errors
    /// The file cannot be read, or begins with something else.
    pub(super) fn read(file: &mut File) -> io::Result<Self> {
        let mut fixed = [0; FIXED];
        file.rewind()?;
        let got = read_up_to(file, &mut fixed)?;
        if got < MAGIC.len() || !fixed.starts_with(MAGIC) {
            file.rewind()?;
            return Ok(Self::default());
        }
        let count = usize::try_from(word(&fixed, FIXED - 4)).unwrap_or(usize::MAX);
        let sound = got == FIXED
            && count <= MOST_STREAMS
            && u64::from(word(&fixed, MAGIC.len())) == (FIXED + count * ENTRY) as u64;
        if !sound {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its header is damaged"));
        }
        let mut list = vec![0; count * ENTRY];
        file.read_exact(&mut list)?;
        let (mut positions, mut restarts) = (Positions::new(), 0);
        for entry in list.chunks_exact(ENTRY) {
            if entry[4] == RESTART {
                restarts = word(entry, 0);
                continue;
            }
            let stream = stream_of(entry[4]).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "its header is damaged")
            })?;
            positions.insert((word(entry, 0), stream), long(entry, 5));
        }
        let before = long(&fixed, MAGIC.len() + 4);
        Ok(Self { before, positions, restarts, length: (FIXED + list.len()) as u64 })
    }
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// A frame; `None` if the piece is too long.
pub(super) fn frame(rank: u32, stream: Stream, data: &[u8]) -> Option<Vec<u8>> {
    frame_of(rank, byte_of(stream), data)
}

/// The mark that the job is started again, this often with that time; `None` if the reason is too long.
pub(super) fn restart_frame(restarts: u32, reason: &str) -> Option<Vec<u8>> {
    frame_of(restarts, RESTART, reason.as_bytes())
}

fn frame_of(rank: u32, stream: u8, data: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(data.len()).ok().filter(|_| data.len() <= MAX_PIECE)?;
    let mut bytes = Vec::with_capacity(HEADER + data.len());
    bytes.extend_from_slice(&rank.to_le_bytes());
    bytes.push(stream);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(data);
    Some(bytes)
}

/// What a frame holds, and its length.
pub(super) struct SpoolRecord<'a> {
    pub(super) content: FrameContent,
    pub(super) data: &'a [u8],
    pub(super) length: usize,
}

/// What the bytes of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameContent {
    /// Output of a rank.
    Piece { rank: u32, stream: Stream },
    /// The reason why the job is started again, this often with that time.
    Restart(u32),
}

/// What the bytes of a frame are with this header.
fn content_of(header: &[u8]) -> Option<FrameContent> {
    let rank = word(header, 0);
    match header[4] {
        RESTART => Some(FrameContent::Restart(rank)),
        stream => Some(FrameContent::Piece { rank, stream: stream_of(stream)? }),
    }
}

/// The first frame of `bytes`, `None` if it is not there whole.
///
/// # Errors
/// When this is no frame.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<SpoolRecord<'_>>, ()> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER) else { return Ok(None) };
    let content = content_of(header).ok_or(())?;
    let length = usize::try_from(word(header, 5)).map_err(|_| ())?;
    if length > MAX_PIECE {
        return Err(());
    }
    let piece = |data| SpoolRecord { content, data, length: HEADER + length };
    Ok(rest.get(..length).map(piece))
}

/// What a segment holds whole. What a crash cut off is behind it.
#[derive(Debug, Default)]
pub(super) struct WholeFrames {
    /// Bytes of the frames.
    pub(super) length: u64,
    /// Bytes of output.
    pub(super) output: u64,
}

/// Looks through the frames of a file that stands at the first of them. The positions go on with each, and begin anew with each
/// restart.
///
/// # Errors
/// The file cannot be read.
pub(super) fn scan(
    file: &mut File,
    streams: (&mut Positions, &mut u32),
) -> io::Result<WholeFrames> {
    scan_to(file, streams, |_| false)
}

/// The same up to the first frame that `is_end`, by what is before it.
///
/// # Errors
/// The file cannot be read.
pub(super) fn scan_to(
    file: &mut File,
    (positions, restarts): (&mut Positions, &mut u32),
    is_end: impl Fn(&WholeFrames) -> bool,
) -> io::Result<WholeFrames> {
    let size = file.metadata()?.len();
    let mut at = file.stream_position()?;
    let begin = at;
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut whole = WholeFrames::default();
    let mut header = [0; HEADER];
    loop {
        if is_end(&whole) {
            return Ok(whole);
        }
        match reader.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(whole),
            other => other?,
        }
        let length = word(&header, 5);
        let end = at + HEADER as u64 + u64::from(length);
        let Some(content) = content_of(&header).filter(|_| end <= size) else { return Ok(whole) };
        if length as usize > MAX_PIECE {
            return Ok(whole);
        }
        reader.seek_relative(i64::from(length))?;
        at = end;
        whole.length = at - begin;
        match content {
            FrameContent::Piece { rank, stream } => {
                *positions.entry((rank, stream)).or_default() += u64::from(length);
                whole.output += u64::from(length);
            }
            FrameContent::Restart(times) => {
                positions.clear();
                *restarts = times;
            }
        }
    }
}

/// Reads from a place in a file until the buffer has `more` bytes more, or the file ends. Returns how many came.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_at(
    file: &mut File,
    place: u64,
    more: u64,
    buffer: &mut Vec<u8>,
) -> io::Result<usize> {
    file.seek(SeekFrom::Start(place))?;
    file.take(more).read_to_end(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn headers_and_whole_frames_come_back() {
        let mut file = tempfile::tempfile().unwrap();
        let positions = Positions::from([((3, Stream::Out), 70_000), ((3, Stream::Err), 5)]);
        let header = SegmentHeader::encode(90_000, &positions, 0);
        file.write_all(&header).unwrap();
        file.write_all(&frame(3, Stream::Err, b"four").unwrap()).unwrap();
        file.write_all(&frame(4, Stream::Out, b"new").unwrap()).unwrap();
        file.write_all(&frame(4, Stream::Out, b"cut off").unwrap()[..12]).unwrap();
        let read = SegmentHeader::read(&mut file).unwrap();
        assert_eq!((read.before, read.length), (90_000, header.len() as u64));
        let mut now = read.positions;
        assert_eq!(now, positions);
        let whole = scan(&mut file, (&mut now, &mut 0)).unwrap();
        assert_eq!((whole.length, whole.output), (13 + 12, 7));
        assert_eq!(now[&(3, Stream::Err)], 9);
        assert_eq!(now[&(4, Stream::Out)], 3);
    }

    #[test]
    fn streams_begin_anew_with_each_restart() {
        let mut file = tempfile::tempfile().unwrap();
        let positions = Positions::from([((3, Stream::Out), 70_000)]);
        file.write_all(&SegmentHeader::encode(0, &positions, 1)).unwrap();
        file.write_all(&frame(3, Stream::Out, b"first").unwrap()).unwrap();
        file.write_all(&restart_frame(2, "a reason").unwrap()).unwrap();
        file.write_all(&frame(3, Stream::Out, b"second").unwrap()).unwrap();
        let read = SegmentHeader::read(&mut file).unwrap();
        assert_eq!((&read.positions, read.restarts), (&positions, 1));
        let (mut now, mut restarts) = (read.positions, read.restarts);
        let whole = scan(&mut file, (&mut now, &mut restarts)).unwrap();
        assert_eq!((whole.output, restarts), (11, 2), "a mark is no output");
        assert_eq!(now, Positions::from([((3, Stream::Out), 6)]));
    }

    #[test]
    fn files_of_earlier_versions_have_no_header_and_damaged_ones_are_refused() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&frame(0, Stream::Out, b"whole").unwrap()).unwrap();
        assert_eq!(SegmentHeader::read(&mut file).unwrap(), SegmentHeader::default());
        assert_eq!(scan(&mut file, (&mut Positions::new(), &mut 0)).unwrap().length, 14);
        let mut damaged = tempfile::tempfile().unwrap();
        let mut header = SegmentHeader::encode(1, &Positions::new(), 0);
        header[8] += 1;
        damaged.write_all(&header).unwrap();
        assert!(SegmentHeader::read(&mut damaged).is_err());
    }
}
