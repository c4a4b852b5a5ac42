//! Showing and keeping a picture: terminal blocks, PPM, PNG.

use std::fmt::Write as _;
use std::io;

/// Rows of red, green, blue bytes.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'p> {
    /// Pixels in a row.
    pub width: usize,
    /// `width * height * 3` bytes.
    pub pixels: &'p [u8],
}

/// File formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Portable pixmap, binary.
    Ppm,
    /// Portable network graphics, not compressed.
    Png,
}

impl Format {
    /// The format that a file name's ending stands for.
    #[must_use]
    pub fn of(path: &std::path::Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "ppm" => Some(Format::Ppm),
            "png" => Some(Format::Png),
            _ => None,
        }
    }
}

impl Picture<'_> {
    /// Rows.
    #[must_use]
    pub fn height(&self) -> usize {
        self.pixels.len() / (3 * self.width.max(1))
    }

    /// Lines for a terminal of `columns` columns: each character shows two pixels, the upper by
    /// its foreground, the lower by its background.
    #[must_use]
    pub fn blocks(&self, columns: usize) -> String {
        let columns = columns.clamp(1, self.width);
        let scale = self.width as f64 / columns as f64;
        let lines = ((self.height() as f64 / scale / 2.0) as usize).max(1);
        let mut text = String::new();
        for line in 0..lines {
            for column in 0..columns {
                let x = (column as f64 * scale) as usize;
                let [above, below] = [0, 1].map(|half| {
                    let y = ((2 * line + half) as f64 * scale) as usize;
                    self.pixel(x, y.min(self.height() - 1))
                });
                let ([r, g, b], [s, h, c]) = (above, below);
                // Writing to a string cannot fail.
                let _ = write!(text, "\x1b[38;2;{r};{g};{b};48;2;{s};{h};{c}m\u{2580}");
            }
            text.push_str("\x1b[0m\n");
        }
        text
    }

    fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        let at = (y * self.width + x) * 3;
        [self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]]
    }

    /// Writes the picture as a file's content.
    ///
    /// # Errors
    /// Those of the writer; `InvalidInput` if a side does not fit the format.
    pub fn write(&self, format: Format, out: &mut impl io::Write) -> io::Result<()> {
        match format {
            Format::Ppm => {
                write!(out, "P6\n{} {}\n255\n", self.width, self.height())?;
                out.write_all(self.pixels)
            }
            Format::Png => self.write_png(out),
        }
    }

    fn write_png(&self, out: &mut impl io::Write) -> io::Result<()> {
        let side = |length: usize| {
            u32::try_from(length)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
        };
        let mut header = Vec::new();
        header.extend(side(self.width)?.to_be_bytes());
        header.extend(side(self.height())?.to_be_bytes());
        // 8 bits each of red, green, blue; the only compression, filter and no interlace.
        header.extend([8, 2, 0, 0, 0]);
        let mut rows = Vec::with_capacity(self.pixels.len() + self.height());
        for row in self.pixels.chunks_exact(3 * self.width) {
            rows.push(0);
            rows.extend_from_slice(row);
        }
        out.write_all(b"\x89PNG\r\n\x1a\n")?;
        write_chunk(out, *b"IHDR", &header)?;
        write_chunk(out, *b"IDAT", &stored(&rows))?;
        write_chunk(out, *b"IEND", &[])
    }
}

fn write_chunk(out: &mut impl io::Write, kind: [u8; 4], data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    out.write_all(&length.to_be_bytes())?;
    out.write_all(&kind)?;
    out.write_all(data)?;
    out.write_all(&(!crc(crc(u32::MAX, &kind), data)).to_be_bytes())
}

/// A zlib stream (RFC 1950) of stored blocks (RFC 1951, §3.2.4).
fn stored(data: &[u8]) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let mut blocks = data.chunks(0xffff).peekable();
    while let Some(block) = blocks.next() {
        let length = block.len() as u16;
        out.push(u8::from(blocks.peek().is_none()));
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend(adler(data).to_be_bytes());
    out
}

/// The check sum of RFC 1950, §8.2.
fn adler(data: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in data {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b << 16 | a
}

/// The running check sum of the PNG specification, annex D, before its final complement.
fn crc(start: u32, data: &[u8]) -> u32 {
    data.iter().fold(start, |mut sum, byte| {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn check_sums_of_the_standards() {
        assert_eq!(!crc(u32::MAX, b"123456789"), 0xcbf4_3926);
        assert_eq!(adler(b"Wikipedia"), 0x11e6_0398);
    }

    #[test]
    fn ppm_has_header_and_pixels() {
        let picture = Picture { width: 2, pixels: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] };
        let mut file = Vec::new();
        picture.write(Format::Ppm, &mut file).unwrap();
        assert_eq!(file, b"P6\n2 2\n255\n\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c");
    }

    #[test]
    fn png_has_its_chunks() {
        let pixels = vec![9; 200 * 150 * 3];
        let mut file = Vec::new();
        Picture { width: 200, pixels: &pixels }.write(Format::Png, &mut file).unwrap();
        assert_eq!(&file[..8], b"\x89PNG\r\n\x1a\n");
        assert_eq!(&file[12..24], b"IHDR\0\0\0\xc8\0\0\0\x96");
        // 150 rows of 601 bytes make two stored blocks: 2 + 2 * 5 + rows + 4.
        assert_eq!(file[33..37], (2 + 10 + 150 * 601 + 4_u32).to_be_bytes());
        assert_eq!(&file[file.len() - 12..], b"\0\0\0\0IEND\xae\x42\x60\x82");
    }

    #[test]
    fn blocks_fit_the_terminal() {
        let pixels = vec![7; 64 * 32 * 3];
        let text = Picture { width: 64, pixels: &pixels }.blocks(16);
        assert_eq!(text.lines().count(), 4);
        assert_eq!(text.matches('\u{2580}').count(), 64);
    }

    #[test]
    fn formats_by_ending() {
        assert_eq!(Format::of(Path::new("a/b.PNG")), Some(Format::Png));
        assert_eq!(Format::of(Path::new("b.ppm")), Some(Format::Ppm));
        assert_eq!(Format::of(Path::new("png")), None);
    }
}
