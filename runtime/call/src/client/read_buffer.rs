//! What a client has read of its connection.

use std::io;

use super::wire::Wire;
use crate::native::Target;

/// Bytes that are read at once when it is not known where they belong.
const INPUT: usize = 64 << 10;

/// What has been read and is not done with: `begin..end` of the buffer.
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

    /// Reads what has come behind what is there; the number of bytes, 0 at the end.
    pub fn fill(&mut self, wire: &Wire, wait: bool) -> io::Result<usize> {
        self.make_room();
        let count = wire.read(Target::None, &mut self.buffer[self.end..], wait)?;
        self.end += count;
        Ok(count)
    }
}
