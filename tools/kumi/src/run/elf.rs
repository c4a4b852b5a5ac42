//! The libraries that a program asks the loader for.
//!
//! Reads just the tables that name them. What does not look like a program for a 64-bit little-endian machine needs nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Most entries of a table that are looked at.
const MOST_ENTRIES: u64 = 4_096;
/// Longest name or search path, in bytes.
const LONGEST_NAME: usize = 4_096;
/// Longest table of names that is read, in bytes.
const MOST_NAMES: u64 = 16 << 20;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// What a program or library asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names of libraries, in order.
    pub libraries: Vec<String>,
    /// Folders to look in first, as the file has them.
    pub folders: Vec<String>,
}

/// What the file at `path` asks for; nothing if it is no such file.
pub fn needs(path: &Path) -> Needs {
    File::open(path).ok().and_then(|file| read(&file)).unwrap_or_default()
}

fn bytes<const N: usize>(file: &File, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn u16_in(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_in(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_in(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// A segment of the file.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

fn segments(file: &File) -> Option<Vec<Segment>> {
    let header = bytes::<64>(file, 0)?;
    // 64-bit, little-endian, version 1.
    if !header.starts_with(b"\x7fELF\x02\x01\x01") {
        return None;
    }
    let (table, size) = (u64_in(&header, 32)?, u64::from(u16_in(&header, 54)?));
    let count = u64::from(u16_in(&header, 56)?).min(MOST_ENTRIES);
    let segment = |number: u64| {
        let entry = bytes::<56>(file, table.checked_add(number.checked_mul(size)?)?)?;
        Some(Segment {
            kind: u32_in(&entry, 0)?,
            offset: u64_in(&entry, 8)?,
            address: u64_in(&entry, 16)?,
            size: u64_in(&entry, 32)?,
        })
    };
    (0..count).map(segment).collect()
}

/// The names of all that the file at `path` takes from libraries or gives to others, each ended by a zero. None if it is no such
/// file, or has too many.
pub fn names(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let table = Table::read(&file)?;
    let size = table.value(DT_STRSZ).filter(|&size| size <= MOST_NAMES)?;
    let mut names = vec![0; usize::try_from(size).ok()?];
    file.read_exact_at(&mut names, table.texts).ok()?;
    Some(names)
}

/// What the loader reads of a file first.
struct Table {
    /// Tags and values.
    entries: Vec<(u64, u64)>,
    /// Where its texts begin in the file.
    texts: u64,
}

impl Table {
    fn read(file: &File) -> Option<Self> {
        let segments = segments(file)?;
        let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
        let entry = |number: u64| {
            let entry = bytes::<16>(file, dynamic.offset.checked_add(number * 16)?)?;
            Some((u64_in(&entry, 0)?, u64_in(&entry, 8)?))
        };
        let count = (dynamic.size / 16).min(MOST_ENTRIES);
        let entries: Vec<(u64, u64)> =
            (0..count).map_while(entry).take_while(|&(tag, _)| tag != 0).collect();
        let &(_, address) = entries.iter().find(|&&(tag, _)| tag == DT_STRTAB)?;
        let holds = |segment: &&Segment| {
            segment.kind == PT_LOAD
                && address.checked_sub(segment.address).is_some_and(|within| within < segment.size)
        };
        let place = segments.iter().find(holds)?;
        let texts = place.offset.checked_add(address - place.address)?;
        Some(Self { entries, texts })
    }

    fn value(&self, wanted: u64) -> Option<u64> {
        self.entries.iter().find(|&&(tag, _)| tag == wanted).map(|&(_, value)| value)
    }
}

fn read(file: &File) -> Option<Needs> {
    let table = Table::read(file)?;
    let text = |&(_, at): &(u64, u64)| text(file, table.texts.checked_add(at)?);
    let of = |wanted: &[u64]| {
        let some = table.entries.iter().filter(|(tag, _)| wanted.contains(tag));
        some.filter_map(text).collect::<Vec<String>>()
    };
    let folders = of(&[DT_RPATH, DT_RUNPATH]);
    let folders = folders.iter().flat_map(|list| list.split(':')).map(str::to_owned);
    Some(Needs { libraries: of(&[DT_NEEDED]), folders: folders.collect() })
}

/// The text that ends with a zero at this place.
fn text(file: &File, at: u64) -> Option<String> {
    let mut bytes = vec![0; LONGEST_NAME];
    let count = file.read_at(&mut bytes, at).ok()?;
    let end = bytes[..count].iter().position(|&byte| byte == 0)?;
    String::from_utf8(bytes[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_needs_the_c_library() {
        let own = std::env::current_exe().unwrap();
        let needs = needs(&own);
        assert!(needs.libraries.iter().any(|name| name.starts_with("libc.so")), "{needs:?}");
        let names = names(&own).unwrap();
        assert!(names.split(|&byte| byte == 0).any(|name| name == b"memcpy"));
        assert_eq!(names.last(), Some(&0));
    }

    #[test]
    fn what_is_no_program_needs_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(needs(&path), Needs::default(), "there is no such file");
        for length in [0, 3, 40, 64, 100, 200, 400, 600] {
            std::fs::write(&path, &own[..length]).unwrap();
            assert_eq!(needs(&path), Needs::default(), "the first {length} bytes");
            assert_eq!(names(&path), None, "the first {length} bytes");
        }
        // Tables that lie elsewhere than they say.
        let mut wrong = own[..4096].to_vec();
        wrong[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        std::fs::write(&path, &wrong).unwrap();
        assert_eq!(needs(&path), Needs::default());
    }
}
