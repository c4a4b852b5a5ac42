//! Cuts what comes into frames, and says where the bytes of chunks belong.

use crate::ProtocolError;
use crate::frame::{FrameKind, HEADER, Header, ReadingEnd};

/// Where bytes of an array belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayPosition {
    /// The stream.
    pub stream: u32,
    /// The parameter.
    pub argument: u16,
    /// Bytes from the beginning of what travels of the array.
    pub offset: u64,
}

/// What the driver does next.
#[derive(Debug, PartialEq)]
pub enum Step<E> {
    /// Read more: this many bytes of input are needed at least.
    More(usize),
    /// So many bytes of input are done with, and this has happened.
    Event(usize, Option<E>),
    /// The next so many bytes (at least one), of the input and then of the socket, belong there; with `None` nowhere:
    /// nobody waits for them any more. Any number of them may be put there; then that number is told.
    Data(Option<ArrayPosition>, usize),
}

/// What is left of the chunk that is coming.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    place: Option<ArrayPosition>,
    left: usize,
    /// Whether anybody waits for it.
    wanted: bool,
}

/// What the input begins with.
pub enum RawFrame<'a> {
    More(usize),
    /// A whole frame that is no chunk.
    Frame(Header, &'a [u8]),
    /// The header of a chunk, or of an extension, of which the body is to be skipped.
    Chunk(Header),
}

/// Looks at the beginning of the input.
pub fn raw(input: &[u8], end: ReadingEnd) -> Result<RawFrame<'_>, ProtocolError> {
    let Some((head, rest)) = input.split_first_chunk::<HEADER>() else {
        return Ok(RawFrame::More(HEADER));
    };
    let header = Header::decode(head, end)?;
    if matches!(header.kind, None | Some(FrameKind::Chunk)) {
        return Ok(RawFrame::Chunk(header));
    }
    Ok(match rest.get(..header.length) {
        Some(body) => RawFrame::Frame(header, body),
        None => RawFrame::More(HEADER + header.length),
    })
}

/// The chunk that is coming, if there is one.
#[derive(Debug, Default)]
pub struct IncomingChunk(Option<Chunk>);

impl IncomingChunk {
    /// Begins a chunk.
    pub fn begin(&mut self, place: Option<ArrayPosition>, wanted: bool, length: usize) {
        self.0 = (length > 0).then_some(Chunk { place, left: length, wanted });
    }

    /// What is to be done for it.
    pub fn step<E>(&self) -> Option<Step<E>> {
        self.0.map(|chunk| Step::Data(chunk.place.filter(|_| chunk.wanted), chunk.left))
    }

    /// Notes that bytes of it have been put where they belong: where that was.
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

    /// Nobody waits for this stream any more: what is left of its chunk belongs nowhere.
    pub fn forget(&mut self, stream: u32) {
        if let Some(chunk) = &mut self.0
            && chunk.place.is_some_and(|place| place.stream == stream)
        {
            chunk.wanted = false;
        }
    }
}
