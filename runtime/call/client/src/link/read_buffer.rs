//! Buffer of bytes that a client has read from its connection and not yet processed.

use std::io;

use super::super::wire::Wire;
use crate::native::Target;

/// Bytes read at once when their destination is not known.
const INPUT: usize = 64 << 10;

/// The unprocessed bytes are `begin..end` of the buffer.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    pub buffer: Vec<u8>,
    pub begin: usize,
    pub end: usize,
    pub needed: usize,
}

impl ReadBuffer {
    fn make_room(&mut self) {
        self.buffer.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        let needed = self.needed.max(INPUT);
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
    }

    /// Reads behind the unprocessed bytes. Returns the number of bytes, 0 at the end of the connection.
    pub fn fill(&mut self, wire: &Wire, wait: bool) -> io::Result<usize> {
        self.make_room();
        let count = wire.read(Target::None, &mut self.buffer[self.end..], wait)?;
        self.end += count;
        Ok(count)
    }
}
