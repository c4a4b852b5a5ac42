//! Numbers and sets of pages as bytes: integers in groups of seven bits, the lowest first.

use alloc::vec::Vec;

use crate::error::BadMessage;
use crate::page_set::PageSet;

pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The set as the number of its ranges and, for each, the pages since the last one's end and its length.
pub(crate) fn put_pages(out: &mut Vec<u8>, pages: &PageSet) {
    put(out, pages.ranges().len() as u64);
    let mut end = 0;
    for range in pages.ranges() {
        put(out, (range.start - end).into());
        put(out, (range.end - range.start).into());
        end = range.end;
    }
}

/// Reads what the functions of this module wrote.
pub(crate) struct Reader<'m> {
    rest: &'m [u8],
}

impl<'m> Reader<'m> {
    pub(crate) fn new(bytes: &'m [u8]) -> Reader<'m> {
        Reader { rest: bytes }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, BadMessage> {
        let (first, rest) = self.rest.split_first().ok_or(BadMessage::Short)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn number(&mut self) -> Result<u64, BadMessage> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(BadMessage::Range);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(BadMessage::Range)
    }

    pub(crate) fn small(&mut self) -> Result<u32, BadMessage> {
        u32::try_from(self.number()?).map_err(|_| BadMessage::Range)
    }

    /// How many items follow, each of at least one byte: so memory for them is bounded by the message.
    pub(crate) fn count(&mut self) -> Result<usize, BadMessage> {
        let count = usize::try_from(self.number()?).map_err(|_| BadMessage::Range)?;
        if count > self.rest.len() { Err(BadMessage::Short) } else { Ok(count) }
    }

    pub(crate) fn pages(&mut self) -> Result<PageSet, BadMessage> {
        let (mut pages, mut end) = (PageSet::new(), 0u32);
        for _ in 0..self.count()? {
            let start = end.checked_add(self.small()?).ok_or(BadMessage::Range)?;
            end = start.checked_add(self.small()?).ok_or(BadMessage::Range)?;
            if start == end {
                return Err(BadMessage::Range);
            }
            pages.insert(start..end);
        }
        Ok(pages)
    }

    pub(crate) fn rest(&mut self) -> &'m [u8] {
        core::mem::take(&mut self.rest)
    }

    pub(crate) fn end(self) -> Result<(), BadMessage> {
        if self.rest.is_empty() { Ok(()) } else { Err(BadMessage::Long) }
    }
}
