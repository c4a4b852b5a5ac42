//! Writer of history: a thread of its own, since a disk may take any time over a row.

use std::path::Path;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::time::Duration;

use kumi_monitor::Row;

use super::keeper::HistoryKeeper;

/// Rows that wait for the disk: a minute while jobs run. Later ones are a gap in the history.
const MOST_WAITING: usize = 64;
/// How long the head waits for the disk when it ends. Tests on a busy machine wait for as long as it takes.
const REST: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });

/// Hands rows to the thread that keeps them.
#[derive(Debug)]
pub(super) struct HistoryWriter {
    rows: SyncSender<Row>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    /// A row did not even find a place to wait, and that was told.
    gap: bool,
}

impl HistoryWriter {
    /// Starts the writer of the file of a cluster with so many nodes; none, which the log says, if that cannot be.
    pub(super) fn start(path: &Path, nodes: u32) -> Option<Self> {
        Self::of(HistoryKeeper::open(path, nodes)?)
    }

    fn of(mut keeper: HistoryKeeper) -> Option<Self> {
        let (rows, queue) = sync_channel(MOST_WAITING);
        let (alive, ended) = channel::<()>();
        let write = move || {
            for row in queue {
                keeper.add(&row);
            }
            keeper.finish();
            drop(alive);
        };
        match std::thread::Builder::new().name("history".to_owned()).spawn(write) {
            Ok(_) => Some(Self { rows, ended, gap: false }),
            Err(error) => {
                tracing::error!(%error, "no history is kept: there can be no thread for it");
                None
            }
        }
    }

    /// Adds what is known now.
    pub(super) fn add(&mut self, row: Row) {
        match self.rows.try_send(row) {
            Ok(()) if std::mem::take(&mut self.gap) => {
                tracing::info!("the disk takes history again, which has a gap");
            }
            Ok(()) => {}
            Err(error) => {
                if !std::mem::replace(&mut self.gap, true) {
                    let why = match error {
                        TrySendError::Full(_) => "the disk does not answer",
                        TrySendError::Disconnected(_) => "its writer is gone",
                    };
                    tracing::error!(why, "history has a gap");
                }
            }
        }
    }

    /// Keeps what has come since the last row, if the disk takes it soon.
    pub(super) fn finish(self) {
        let Self { rows, ended, .. } = self;
        drop(rows);
        if ended.recv_timeout(REST) == Err(RecvTimeoutError::Timeout) {
            tracing::error!("the last rows of history are not on the disk: it does not answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_monitor::JobRow;
    use kumi_web::history::HistoryReader;

    fn row(at_s: u64) -> Row {
        let jobs = vec![JobRow { job: 1, ranks: 1, loads: vec![7] }];
        Row { at_s, nodes: Vec::new(), jobs }
    }

    #[test]
    fn rows_come_to_the_disk_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let mut writer = HistoryWriter::start(&path, 1).unwrap();
        for second in 0..10 {
            writer.add(row(1_700_000_000 + second));
        }
        writer.finish();
        let reader = HistoryReader::new(&path, 1);
        let read = reader.read(0, 1_700_000_009, |row| Some(row.at_s)).unwrap();
        assert_eq!(read.len(), 10);
    }

    #[test]
    fn rows_for_which_a_disk_has_no_time_are_a_gap_and_hold_up_nobody() {
        let (rows, queue) = sync_channel(MOST_WAITING);
        let (alive, ended) = channel();
        let mut writer = HistoryWriter { rows, ended, gap: false };
        for second in 0..=MOST_WAITING as u64 {
            assert!(!writer.gap);
            writer.add(row(second));
        }
        assert!(writer.gap);
        queue.recv().unwrap();
        writer.add(row(99));
        assert!(!writer.gap, "there is a place again");
        drop((queue, alive));
        writer.add(row(100));
        assert!(writer.gap);
        writer.finish();
    }
}
