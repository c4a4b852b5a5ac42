//! The file with the history of a cluster: one writer, the head, and any number of readers.
//!
//! Slots carry checksums. A reader that meets a slot half written passes it over, and so does one after a power cut.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use kumi_monitor::Row;
use kumi_monitor::ring::{HEADER, LEVELS, RingError, RingLayout};
use kumi_monitor::slot::{decode, encode};

/// The writer.
#[derive(Debug)]
pub struct HistoryFile {
    file: File,
    layout: RingLayout,
}

/// Why a file that is there is not used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// A file of history, with the layout that it has.
fn open(path: &Path) -> Result<HistoryFile, Unusable> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut header = [0; HEADER];
    let length = file.metadata()?.len();
    file.read_exact(&mut header).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => RingError::Header.into(),
        _ => Unusable::Io(error),
    })?;
    let layout = RingLayout::of_header(&header).ok_or(RingError::Header)?;
    layout.check(&header, length)?;
    Ok(HistoryFile { file, layout })
}

impl HistoryFile {
    /// Opens the history of a cluster with so many nodes. If it had another number of nodes, the rows move to a file for this
    /// one. A file that is damaged is made anew; then the reason is returned as well.
    ///
    /// # Errors
    /// No file can be made.
    pub fn open(path: &Path, nodes: u32) -> io::Result<(Self, Option<String>)> {
        let layout = RingLayout::new(nodes);
        let (earlier, why) = match open(path) {
            Ok(file) if file.layout == layout => return Ok((file, None)),
            Ok(earlier) => (Some(earlier), None),
            Err(Unusable::Io(error)) if error.kind() == io::ErrorKind::NotFound => (None, None),
            Err(error) => (None, Some(error.to_string())),
        };
        // Under another name first: a crash leaves the old file or the new one.
        let draft = path.with_extension("new");
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.set_len(layout.bytes())?;
        file.write_all_at(&layout.header(), 0)?;
        let made = Self { file, layout };
        if let Some(earlier) = earlier {
            made.take_rows(&earlier)?;
        }
        std::fs::rename(&draft, path)?;
        Ok((made, why))
    }

    /// Copies the rows of a file with another layout. What is no row there is none here.
    fn take_rows(&self, earlier: &Self) -> io::Result<()> {
        let mut slot = vec![0; earlier.layout.slot_bytes()];
        for (level, resolution) in LEVELS.iter().enumerate() {
            for place in 0..resolution.slots {
                let offset = earlier.layout.offset(level, place * resolution.seconds);
                earlier.file.read_exact_at(&mut slot, offset)?;
                if let Some(row) = decode(&slot) {
                    self.write(level, row)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps a row in its slot of a resolution.
    ///
    /// # Errors
    /// As the system says; the slot is then no row, and all others are as before.
    pub fn write(&self, level: usize, row: Row) -> io::Result<()> {
        let offset = self.layout.offset(level, row.at_s);
        let bytes = encode(row, self.layout.slot_bytes());
        self.file.write_all_at(&bytes, offset)
    }
}

/// Reads history.
#[derive(Clone, Debug)]
pub struct HistoryReader {
    path: PathBuf,
    layout: RingLayout,
}

impl HistoryReader {
    /// Of the file of a cluster with so many nodes.
    pub fn new(path: &Path, nodes: u32) -> Self {
        Self { path: path.to_owned(), layout: RingLayout::new(nodes) }
    }

    /// The rows of a resolution that are no older than it reaches, ascending. Each goes through `keep`, which says what is
    /// wanted of it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read<T>(
        &self,
        level: usize,
        now_s: u64,
        mut keep: impl FnMut(Row) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let Some(resolution) = LEVELS.get(level) else { return Ok(Vec::new()) };
        let file = File::open(&self.path)?;
        let mut slot = vec![0; self.layout.slot_bytes()];
        let mut kept = Vec::new();
        let last = resolution.begin(now_s);
        for back in (0..resolution.slots).rev() {
            let Some(at) = last.checked_sub(back * resolution.seconds) else { continue };
            let offset = self.layout.offset(level, at);
            file.read_exact_at(&mut slot, offset)?;
            let row = decode(&slot).filter(|row| resolution.begin(row.at_s) == at);
            kept.extend(row.and_then(&mut keep));
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_monitor::{JobRow, NodeCell};

    fn row(at_s: u64) -> Row {
        let jobs = vec![JobRow { job: at_s, ranks: 1, loads: vec![5] }];
        Row { at_s, nodes: Vec::new(), jobs }
    }

    fn times(reader: &HistoryReader, level: usize, now: u64) -> Vec<u64> {
        reader.read(level, now, |row| Some(row.at_s)).unwrap()
    }

    #[test]
    fn rows_stay_as_long_as_their_resolution_reaches() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let (file, why) = HistoryFile::open(&path, 3).unwrap();
        assert_eq!(why, None);
        let reader = HistoryReader::new(&path, 3);
        let now = 1_700_000_000;
        for at in [now - 600, now - 599, now - 1, now] {
            file.write(0, row(at)).unwrap();
        }
        file.write(2, row(now - 86_000)).unwrap();
        assert_eq!(
            times(&reader, 0, now),
            [now - 599, now - 1, now],
            "one took the slot of another"
        );
        assert_eq!(times(&reader, 0, now + 599), [now]);
        assert_eq!(times(&reader, 1, now), [] as [u64; 0]);
        assert_eq!(times(&reader, 2, now), [now - 86_000]);
        let length = std::fs::metadata(&path).unwrap().len();
        drop(file);
        let (_, why) = HistoryFile::open(&path, 3).unwrap();
        assert_eq!(
            (why, times(&reader, 0, now).len()),
            (None, 3),
            "a head that starts again goes on"
        );
        assert_eq!(std::fs::metadata(&path).unwrap().len(), length);
    }

    #[test]
    fn what_is_damaged_is_made_anew_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let now = 1_700_000_000;
        for damage in [&b"short"[..], &[7; 40_000]] {
            std::fs::write(&path, damage).unwrap();
            let (file, why) = HistoryFile::open(&path, 2).unwrap();
            assert!(why.unwrap().contains("header"));
            file.write(0, row(now)).unwrap();
            assert_eq!(times(&HistoryReader::new(&path, 2), 0, now), [now]);
        }
        // A file that was cut off.
        let (file, _) = HistoryFile::open(&path, 2).unwrap();
        file.file.set_len(30_000).unwrap();
        let (_, why) = HistoryFile::open(&path, 5).unwrap();
        assert!(why.unwrap().contains("size"));
        assert_eq!(times(&HistoryReader::new(&path, 5), 0, now), [] as [u64; 0]);
    }

    /// A node is added, later one less counts: the history goes on.
    #[test]
    fn rows_outlive_another_number_of_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let now = 1_700_000_000;
        let (file, _) = HistoryFile::open(&path, 2).unwrap();
        let nodes = [0, 1].map(|node| NodeCell { node, busy: 7, ..NodeCell::default() }).to_vec();
        file.write(0, Row { nodes: nodes.clone(), ..row(now - 1) }).unwrap();
        file.write(0, row(now)).unwrap();
        file.write(1, row(now - 100)).unwrap();
        file.write(2, row(now - 86_000)).unwrap();
        for count in [3, 4096, 2] {
            let (_, why) = HistoryFile::open(&path, count).unwrap();
            assert_eq!(why, None, "{count} nodes");
            let reader = HistoryReader::new(&path, count);
            let rows = reader.read(0, now, Some).unwrap();
            let of = |row: &Row| (row.at_s, row.nodes.clone(), row.jobs[0].loads.clone());
            assert_eq!(of(&rows[0]), (now - 1, nodes.clone(), vec![5]), "{count} nodes");
            assert_eq!((rows.len(), rows[1].at_s), (2, now));
            assert_eq!(times(&reader, 1, now), [now - 100]);
            assert_eq!(times(&reader, 2, now), [now - 86_000]);
        }
    }

    #[test]
    fn a_damaged_slot_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let now = 1_700_000_000;
        let (file, _) = HistoryFile::open(&path, 1).unwrap();
        file.write(0, row(now - 1)).unwrap();
        file.write(0, row(now)).unwrap();
        let offset = RingLayout::new(1).offset(0, now - 1);
        file.file.write_all_at(&[0xFF; 20], offset).unwrap();
        assert_eq!(times(&HistoryReader::new(&path, 1), 0, now), [now]);
    }
}
