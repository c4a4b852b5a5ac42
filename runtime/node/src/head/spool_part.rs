//! Parts of a spool for those who look at the end of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use kumi_control::message::Stream;
use kumi_web::{Output, OutputPiece};

use super::spool_frame::{HEADER, MAX_PIECE, parse};

/// About how many bytes of output a part has.
const PART: u64 = 64 << 10;

/// The frames of a spool up to `end`: from byte `from` on, or the last ones.
///
/// # Errors
/// The file cannot be read, or no frame begins at `from`.
pub(super) fn read_part(path: &Path, from: Option<u64>, end: u64) -> io::Result<Output> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Output { pieces: Vec::new(), begin: end, next: end });
        }
        opened => opened?,
    };
    let begin = match from {
        Some(from) => from.min(end),
        None => last_part(&mut file, end)?,
    };
    file.seek(SeekFrom::Start(begin))?;
    let mut reader = BufReader::new(file.take(end - begin));
    let mut output = Output { pieces: Vec::new(), begin, next: begin };
    while output.next - begin < PART {
        let Some(frame) = next_frame(&mut reader)? else { break };
        let Ok(Some(record)) = parse(&frame) else {
            let message = format!("no piece of output begins at byte {}", output.next);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        output.next += record.length as u64;
        output.pieces.push(OutputPiece {
            rank: record.rank,
            error: record.stream == Stream::Err,
            data: record.data.to_vec(),
        });
    }
    Ok(output)
}

/// The bytes of the next frame; none at the end, or where it was cut off. One that is too long is returned without its data.
fn next_frame(reader: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut frame = vec![0; HEADER];
    if !read_whole(reader, &mut frame)? {
        return Ok(None);
    }
    let length = u32::from_le_bytes([frame[5], frame[6], frame[7], frame[8]]);
    let Some(length) = usize::try_from(length).ok().filter(|&length| length <= MAX_PIECE) else {
        return Ok(Some(frame));
    };
    frame.resize(HEADER + length, 0);
    Ok(read_whole(reader, &mut frame[HEADER..])?.then_some(frame))
}

fn read_whole(reader: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where the last frames begin that are a part together: found from the beginning, since frames cannot be read backwards.
fn last_part(file: &mut File, end: u64) -> io::Result<u64> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::with_capacity(256 << 10, file.take(end));
    let (mut at, mut header) = (0, [0; HEADER]);
    let mut begins = VecDeque::new();
    while read_whole(&mut reader, &mut header)? {
        let length = u64::from(u32::from_le_bytes([header[5], header[6], header[7], header[8]]));
        if length > MAX_PIECE as u64 {
            break;
        }
        begins.push_back(at);
        at += HEADER as u64 + length;
        while begins.len() > 1 && at - begins[0] > PART {
            begins.pop_front();
        }
        let skipped = io::copy(&mut (&mut reader).take(length), &mut io::sink())?;
        if skipped < length {
            begins.pop_back();
            break;
        }
    }
    Ok(begins.front().copied().unwrap_or(0).min(end))
}

#[cfg(test)]
mod tests {
    use super::super::spool_frame::frame;
    use super::*;

    fn texts(output: &Output) -> Vec<String> {
        let text = |piece: &OutputPiece| String::from_utf8_lossy(&piece.data).into_owned();
        output.pieces.iter().map(text).collect()
    }

    #[test]
    fn the_end_and_what_comes_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7");
        assert_eq!(read_part(&path, None, 0).unwrap(), Output::default());
        let mut bytes = Vec::new();
        for number in 0..10_000u32 {
            let text = format!("line {number} of some length\n");
            bytes.extend(frame(number % 3, Stream::Out, text.as_bytes()).unwrap());
        }
        std::fs::write(&path, &bytes).unwrap();
        let end = bytes.len() as u64;
        let last = read_part(&path, None, end).unwrap();
        assert_eq!(last.next, end);
        assert!(end - last.begin <= PART && texts(&last).len() > 1_000);
        assert_eq!(texts(&last).last().unwrap(), "line 9999 of some length\n");
        assert_eq!(texts(&read_part(&path, Some(end), end).unwrap()), [] as [&str; 0]);
        let again = read_part(&path, Some(last.begin), end).unwrap();
        assert_eq!(again, last);
        let first = read_part(&path, Some(0), end).unwrap();
        assert_eq!((texts(&first)[0].as_str(), first.begin), ("line 0 of some length\n", 0));
        assert!(first.next < end);
    }

    #[test]
    fn what_is_no_frame_is_refused_or_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7");
        let mut bytes = frame(1, Stream::Err, b"whole").unwrap();
        let whole = bytes.len() as u64;
        bytes.extend(&frame(1, Stream::Out, b"cut off").unwrap()[..12]);
        std::fs::write(&path, &bytes).unwrap();
        let part = read_part(&path, None, bytes.len() as u64).unwrap();
        assert_eq!(
            (texts(&part), part.next, part.pieces[0].error),
            (vec!["whole".to_owned()], whole, true)
        );
        let error = read_part(&path, Some(3), whole).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
