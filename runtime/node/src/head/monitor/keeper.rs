//! Rows of history on their way to the file: each resolution is made of rows of the finer one.

use std::path::Path;

use kumi_monitor::Row;
use kumi_monitor::fold::Fold;
use kumi_monitor::ring::LEVELS;
use kumi_web::HistoryFile;

/// The file, and the rows that are not whole yet.
#[derive(Debug)]
pub(super) struct HistoryKeeper {
    file: HistoryFile,
    folds: [Fold; LEVELS.len()],
    /// The last row could not be written, and that was told.
    failing: bool,
}

impl HistoryKeeper {
    /// Opens the file of a cluster with so many nodes; none, with a warning, if that cannot be.
    pub(super) fn open(path: &Path, nodes: u32) -> Option<Self> {
        match HistoryFile::open(path, nodes) {
            Ok((file, why)) => {
                if let Some(why) = why {
                    tracing::warn!(path = %path.display(), why, "the history was made anew");
                }
                Some(Self { file, folds: Default::default(), failing: false })
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "no history is kept");
                None
            }
        }
    }

    /// Adds what is known now.
    pub(super) fn add(&mut self, row: &Row) {
        self.add_to(0, row);
    }

    fn add_to(&mut self, level: usize, row: &Row) {
        let Some(resolution) = LEVELS.get(level) else { return };
        let begin = self.folds[level].begin().map(|first| resolution.begin(first));
        if begin.is_some_and(|begin| begin != resolution.begin(row.at_s)) {
            self.close(level);
        }
        self.folds[level].add(row);
    }

    /// Writes the row of a resolution, and hands it to the next one.
    fn close(&mut self, level: usize) {
        let Some(mut row) = self.folds[level].take() else { return };
        row.at_s = LEVELS[level].begin(row.at_s);
        let written = self.file.write(level, row.clone());
        match (&written, self.failing) {
            (Err(error), false) => {
                tracing::error!(%error, "history cannot be written; it has a gap");
            }
            (Ok(()), true) => tracing::info!("history is written again"),
            _ => {}
        }
        self.failing = written.is_err();
        self.add_to(level + 1, &row);
    }

    /// Writes all rows that are not whole yet.
    pub(super) fn finish(&mut self) {
        for level in 0..LEVELS.len() {
            self.close(level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_monitor::JobRow;
    use kumi_small_disk::{fill, on_a_small_disk};
    use kumi_web::history::HistoryReader;

    fn row(at_s: u64, load: u8) -> Row {
        let jobs = vec![JobRow { job: 1, ranks: 1, loads: vec![load] }];
        Row { at_s, nodes: Vec::new(), jobs }
    }

    #[test]
    fn coarser_rows_are_means_of_finer_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let mut keeper = HistoryKeeper::open(&path, 1).unwrap();
        let start = 1_700_000_040;
        assert_eq!(start % 60, 0);
        for second in 0..65 {
            // Watched in the first second: many rows, which together count as one.
            for _ in 0..if second == 0 { 9 } else { 1 } {
                keeper.add(&row(start + second, if second == 0 { 100 } else { 0 }));
            }
        }
        let read = |level| {
            let reader = HistoryReader::new(&path, 1);
            reader.read(level, start + 64, |row| Some((row.at_s, row.jobs[0].loads[0]))).unwrap()
        };
        assert_eq!(read(0).len(), 64, "the last second is not whole");
        assert_eq!(read(1)[..2], [(start, 10), (start + 10, 0)]);
        assert_eq!(read(2), [] as [(u64, u8); 0]);
        keeper.finish();
        assert_eq!(read(0).len(), 65);
        assert_eq!(read(2), [(start, 2), (start + 60, 0)]);
    }
    /// The log says it once, and the head goes on.
    #[test]
    fn a_full_disk_is_a_gap() {
        on_a_small_disk(1 << 20, |disk| {
            let path = disk.join("history");
            let mut keeper = HistoryKeeper::open(&path, 1).unwrap();
            let start = 1_700_000_040;
            (start..start + 5).for_each(|second| keeper.add(&row(second, 1)));
            assert!(!keeper.failing);
            fill(disk);
            (start + 5..start + 300).for_each(|second| keeper.add(&row(second, 1)));
            assert!(keeper.failing);
            std::fs::remove_file(disk.join("others")).unwrap();
            (start + 300..start + 310).for_each(|second| keeper.add(&row(second, 1)));
            assert!(!keeper.failing);
            let reader = HistoryReader::new(&path, 1);
            let read = reader.read(0, start + 310, |row| Some(row.at_s)).unwrap();
            assert!(read.contains(&start) && read.contains(&(start + 308)), "{read:?}");
            assert!(!read.contains(&(start + 290)), "{read:?}");
        });
    }
}
