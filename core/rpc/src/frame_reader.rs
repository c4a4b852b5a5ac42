//! Reader of frames: splits the input into frames, and tracks the chunk that is arriving.

use crate::ProtocolError;
use crate::frame::{FrameKind, HEADER, Header, ReadingEnd};

/// A position in an array of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayPosition {
    /// The stream.
    pub stream: u32,
    /// The parameter.
    pub argument: u16,
    /// Byte offset in the part of the array that is sent.
    pub offset: u64,
}

/// What the driver has to do next.
#[derive(Debug, PartialEq)]
pub enum Step<E> {
    /// Read until the input has at least this many bytes.
    More(usize),
    /// Remove this many bytes from the input, and handle the event.
    Event(usize, Option<E>),
    /// Store the next bytes, of the input and then of the socket, at this position; with `None` discard them. There are at
    /// least one and at most this many. The driver may store fewer, and reports their number with `placed`.
    Data(Option<ArrayPosition>, usize),
}

/// The rest of the chunk that is arriving.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    place: Option<ArrayPosition>,
    left: usize,
    /// Whether its stream still needs the data.
    wanted: bool,
}

/// The beginning of the input.
pub enum RawFrame<'a> {
    More(usize),
    /// A whole frame other than a chunk: its kind, its stream and its body.
    Frame(FrameKind, u32, &'a [u8]),
    /// The header of a chunk, or of an extension whose body is skipped.
    Chunk(Header),
}

/// Decodes the beginning of the input.
pub fn raw(input: &[u8], end: ReadingEnd) -> Result<RawFrame<'_>, ProtocolError> {
    let Some((head, rest)) = input.split_first_chunk::<HEADER>() else {
        return Ok(RawFrame::More(HEADER));
    };
    let header = Header::decode(head, end)?;
    let Some(kind) = header.kind.filter(|kind| *kind != FrameKind::Chunk) else {
        return Ok(RawFrame::Chunk(header));
    };
    Ok(match rest.get(..header.length) {
        Some(body) => RawFrame::Frame(kind, header.stream, body),
        None => RawFrame::More(HEADER + header.length),
    })
}

/// The chunk that is arriving, if there is one.
#[derive(Debug, Default)]
pub struct IncomingChunk(Option<Chunk>);

impl IncomingChunk {
    /// Begins a chunk.
    pub fn begin(&mut self, place: Option<ArrayPosition>, wanted: bool, length: usize) {
        self.0 = (length > 0).then_some(Chunk { place, left: length, wanted });
    }

    /// What the driver has to do for the chunk.
    pub fn step<E>(&self) -> Option<Step<E>> {
        self.0.map(|chunk| Step::Data(chunk.place.filter(|_| chunk.wanted), chunk.left))
    }

    /// Notes that the driver has stored this many bytes, and returns their position.
    pub fn placed(&mut self, count: usize) -> Option<ArrayPosition> {
        let chunk = self.0.as_mut()?;
        let place = chunk.place;
        let count = count.min(chunk.left);
        chunk.left -= count;
        if let Some(place) = &mut chunk.place {
            place.offset += count as u64;
        }
        if chunk.left == 0 {
            self.0 = None;
        }
        place
    }

    /// Discards the rest of the chunk if it belongs to this stream.
    pub fn forget(&mut self, stream: u32) {
        if let Some(chunk) = &mut self.0
            && chunk.place.is_some_and(|place| place.stream == stream)
        {
            chunk.wanted = false;
        }
    }
}
