//! The line that explains why a process ends by a fault in a view.

use std::fmt::{self, Write as _};

use crate::view::FaultRefusal;

/// Text in a buffer of this thread's stack, since a handler must not allocate. What does not fit is left out.
struct Line {
    bytes: [u8; 512],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let fits = room.len().min(text.len());
        room[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        Ok(())
    }
}

fn line(address: usize, offset: usize, refusal: &FaultRefusal) -> Line {
    let mut line = Line { bytes: [0; 512], length: 0 };
    // Writing to the buffer does not fail.
    let _ = write!(
        line,
        "kumi: no access to address {address:#x}, byte {offset} of the shared memory: {refusal}"
    );
    line.length = line.length.min(line.bytes.len() - 1);
    line.bytes[line.length] = b'\n';
    line.length += 1;
    line
}

/// Writes the line to stderr, as one piece.
pub(super) fn write_line(address: usize, offset: usize, refusal: &FaultRefusal) {
    let line = line(address, offset, refusal);
    // SAFETY: the bytes are this function's. If stderr takes no bytes, there is nobody to tell.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.length) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reason: String) -> String {
        let line = line(0x7f00_0000_1005, 4101, &FaultRefusal::new(reason));
        String::from_utf8(line.bytes[..line.length].to_vec()).expect("text")
    }

    #[test]
    fn it_names_address_and_reason() {
        let wanted = "kumi: no access to address 0x7f0000001005, byte 4101 of the shared memory: it is not allocated\n";
        assert_eq!(text("it is not allocated".to_owned()), wanted);
    }

    #[test]
    fn a_long_reason_is_cut_and_the_line_still_ends() {
        let long = text("x".repeat(2000));
        assert_eq!((long.len(), long.ends_with("x\n")), (512, true));
    }
}
