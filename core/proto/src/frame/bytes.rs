//! Writer and reader of consecutive fields of frames.

use super::{FrameError, Payload, WindowKey};

/// Writes consecutive fields directly to their destination. Fields that are written, read back in
/// larger pieces and copied cost the processor more than all the rest.
pub(super) struct Writer<'b> {
    bytes: &'b mut [u8],
    at: usize,
}

impl<'b> Writer<'b> {
    /// How many bytes were written.
    #[inline]
    pub(super) fn done(self) -> usize {
        self.at
    }

    #[inline]
    pub(super) fn to(bytes: &'b mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The bytes that every kind of frame begins with.
    #[inline]
    pub(super) fn start(self, bytes: [u8; 4]) -> Self {
        self.put(bytes)
    }

    #[inline]
    pub(super) fn put<const N: usize>(mut self, field: [u8; N]) -> Self {
        self.bytes[self.at..self.at + N].copy_from_slice(&field);
        self.at += N;
        self
    }

    #[inline]
    pub(super) fn u32(self, value: u32) -> Self {
        self.put(value.to_le_bytes())
    }

    #[inline]
    pub(super) fn u64(self, value: u64) -> Self {
        self.put(value.to_le_bytes())
    }

    /// Where in which window.
    #[inline]
    pub(super) fn at(self, window: WindowKey, offset: u64) -> Self {
        self.u64(window).u64(offset)
    }

    /// Distance and length of blocks.
    #[inline]
    pub(super) fn blocks(self, stride: u64, block: u32) -> Self {
        self.u64(stride).u32(block)
    }

    /// A notify counter, if any; whether there is one is a flag.
    #[inline]
    pub(super) fn notify(self, notify: Option<u32>) -> Self {
        self.u32(notify.unwrap_or(0))
    }
}

/// Reads consecutive fields.
pub(super) struct Reader<'h, D> {
    kind: u8,
    /// As many of the frame's first bytes as a header has; nobody else can write them.
    header: &'h [u8],
    frame: D,
    at: usize,
}

impl<'h, D: Payload> Reader<'h, D> {
    /// After the first byte.
    pub(super) fn new(kind: u8, header: &'h [u8], frame: D) -> Self {
        Self { kind, header, frame, at: 1 }
    }

    /// Leaves out the last `bytes`, which are padding.
    pub(super) fn cut(&mut self, bytes: usize) -> Result<(), FrameError> {
        let length = self.frame.len().checked_sub(bytes).filter(|length| *length >= self.at);
        let length = length.ok_or_else(|| self.bad("padding"))?;
        self.frame = self.frame.split_at(length).0;
        self.header = &self.header[..self.header.len().min(length)];
        Ok(())
    }

    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let rest = self.header.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        self.at += N;
        rest.copied().ok_or_else(|| self.bad_length())
    }

    pub(super) fn u32(&mut self) -> Result<u32, FrameError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FrameError> {
        self.take().map(u64::from_le_bytes)
    }

    /// Where in which window.
    pub(super) fn place(&mut self) -> Result<(WindowKey, u64), FrameError> {
        Ok((self.u64()?, self.u64()?))
    }

    pub(super) fn bad_length(&self) -> FrameError {
        FrameError::Length { kind: self.kind, length: self.frame.len() }
    }

    pub(super) fn bad(&self, field: &'static str) -> FrameError {
        FrameError::Field { kind: self.kind, field }
    }

    /// A notify counter and whether there is one.
    pub(super) fn notify(&self, has_notify: u8, notify: u32) -> Result<Option<u32>, FrameError> {
        match has_notify {
            1 => Ok(Some(notify)),
            0 if notify == 0 => Ok(None),
            _ => Err(self.bad("notify")),
        }
    }

    pub(super) fn rest(&self) -> D {
        self.frame.split_at(self.at).1
    }

    /// The rest as a list of so many bytes and what is behind it.
    pub(super) fn split_list(&self, bytes: usize) -> Result<(D, D), FrameError> {
        let rest = self.rest();
        if bytes <= rest.len() { Ok(rest.split_at(bytes)) } else { Err(self.bad_length()) }
    }

    /// The rest, which must be a list of so many bytes.
    pub(super) fn whole_list(&self, bytes: usize) -> Result<D, FrameError> {
        let rest = self.rest();
        if bytes == rest.len() { Ok(rest) } else { Err(self.bad_length()) }
    }

    /// The frame must end here.
    pub(super) fn end(&self) -> Result<(), FrameError> {
        if self.at == self.frame.len() { Ok(()) } else { Err(self.bad_length()) }
    }
}

pub(super) fn zero<D: Payload>(reader: &Reader<'_, D>, reserved: &[u8]) -> Result<(), FrameError> {
    if reserved.iter().all(|&byte| byte == 0) { Ok(()) } else { Err(reader.bad("reserved")) }
}
