//! Spool: the output of jobs on disk, and the followers that read it.
//!
//! A spool is a row of frames (`spool_frame`). An offset counts bytes of the file and stands between frames.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kumi_control::head::HeadEvent;
use kumi_control::message::{ClientReply, JobRecord, Outcome, Refusal, RefusalKind, Stream};
use kumi_sched::JobId;
use kumi_web::Output;
use tokio::sync::{mpsc, watch};

use super::metrics::HeadCounters;
use super::spool_frame::{SpoolRecord, frame, parse, whole_length};
use super::spool_part::read_part;
use super::spool_quota::SpoolQuota;
use crate::client::refusal;

/// How much a follower reads at once, in bytes.
const READ: usize = 256 << 10;
/// Spools that are over and whose state is remembered.
const REMEMBERED: usize = 256;

/// How far a spool has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes written.
    pub end: u64,
    /// Set when no more will come.
    pub outcome: Option<Outcome>,
}

#[derive(Debug)]
struct Spool {
    file: Option<File>,
    progress: watch::Sender<Progress>,
    /// The end is that of a whole frame. Otherwise a crash may have cut the last one off: who reads leaves it out, and who
    /// appends looks first, which takes long for long files.
    whole: bool,
}

/// The spools of all jobs.
#[derive(Debug)]
pub struct Spools {
    folder: PathBuf,
    spools: BTreeMap<JobId, Spool>,
    quota: SpoolQuota,
    /// Bytes of all files, and failures.
    counts: Rc<HeadCounters>,
}

impl Spools {
    /// Spools in `folder`, which is made; files of jobs that are not `known` are removed.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub(super) fn open(
        folder: PathBuf,
        known: impl Fn(JobId) -> bool,
        mut quota: SpoolQuota,
        counts: Rc<HeadCounters>,
    ) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        // What jobs write is for their users, who get it through the head.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        let mut bytes = 0;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let job = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if job.is_some_and(|job| !known(JobId(job))) {
                fs::remove_file(entry.path())?;
            } else {
                let length = entry.metadata()?.len();
                bytes += length;
                if let Some(job) = job {
                    quota.set(JobId(job), length);
                }
            }
        }
        counts.spool_bytes.set(bytes);
        Ok(Self { folder, spools: BTreeMap::new(), quota, counts })
    }

    /// These jobs are recorded, and each user counts for what theirs have written before.
    pub(super) fn know_all(&mut self, records: &[JobRecord]) {
        for record in records {
            self.quota.know(record.spec.job, record.spec.user.uid, super::is_over(record));
        }
        self.trim();
    }

    /// A job is recorded, and its user counts for what it writes.
    pub(super) fn know(&mut self, record: &JobRecord) {
        let over = super::is_over(record);
        self.quota.know(record.spec.job, record.spec.user.uid, over);
        if over {
            self.trim();
        }
    }

    /// Removes output of the oldest jobs that are over, as far as all of them have too much.
    fn trim(&mut self) {
        for job in self.quota.excess() {
            self.remove_or_warn(job, "output of the job makes room for that of later ones");
        }
    }

    /// The job is not known any more: its output goes.
    pub(super) fn discard(&mut self, job: JobId) {
        self.remove_or_warn(job, "output of the job is not kept any longer");
    }

    fn remove_or_warn(&mut self, job: JobId, why: &str) {
        match self.remove(job) {
            Ok(()) => tracing::info!(%job, why, "removed"),
            // The next start removes it, if the job is not known by then.
            Err(error) => tracing::error!(%job, %error, "output of the job cannot be removed"),
        }
    }

    /// Removes the output of a job that is over. Who reads it already reads on.
    ///
    /// # Errors
    /// As the system says. That there is none is no error.
    fn remove(&mut self, job: JobId) -> io::Result<()> {
        let path = self.path(job);
        let length = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            found => {
                let length = found?.len();
                fs::remove_file(&path)?;
                length
            }
        };
        self.spools.remove(&job);
        self.quota.set(job, 0);
        self.counts.spool_bytes.set(self.counts.spool_bytes.get().saturating_sub(length));
        Ok(())
    }

    /// Makes room for output of a job that then has `bytes`: removes output of its user's oldest jobs that are over.
    ///
    /// # Errors
    /// The job may not have so much.
    fn make_room(&mut self, job: JobId, bytes: u64) -> io::Result<()> {
        let gone = self.quota.admit(job, bytes);
        let gone = gone.map_err(|error| io::Error::new(io::ErrorKind::QuotaExceeded, error))?;
        for old in gone {
            self.remove(old)?;
            tracing::info!(job = %old, "output of the job makes room for later output of its user");
        }
        self.quota.set(job, bytes);
        Ok(())
    }

    fn path(&self, job: JobId) -> PathBuf {
        self.folder.join(job.to_string())
    }

    fn spool(&mut self, job: JobId) -> &mut Spool {
        if self.spools.len() > REMEMBERED && !self.spools.contains_key(&job) {
            self.spools.retain(|_, spool| {
                spool.progress.borrow().outcome.is_none() || spool.progress.receiver_count() > 0
            });
        }
        let path = self.path(job);
        self.spools.entry(job).or_insert_with(|| {
            // Without a file there is no output yet; one that cannot be read shows as empty, and
            // appending to it fails and is told.
            let known = fs::metadata(path).ok().filter(fs::Metadata::is_file);
            let end = known.as_ref().map_or(0, fs::Metadata::len);
            let progress = watch::Sender::new(Progress { end, outcome: None });
            Spool { file: None, progress, whole: end == 0 }
        })
    }

    /// Appends output. Returns what the state machine has to know of it.
    pub(super) fn keep(&mut self, job: JobId, rank: u32, stream: Stream, data: &[u8]) -> HeadEvent {
        match self.append(job, rank, stream, data) {
            Ok(end) => HeadEvent::Spooled { job, end },
            Err(error) => {
                tracing::error!(%job, %error, "output cannot be kept");
                self.counts.spool_failures.set(self.counts.spool_failures.get() + 1);
                HeadEvent::SpoolFailed { job, reason: error.to_string() }
            }
        }
    }

    /// Appends output; returns the new end.
    ///
    /// # Errors
    /// When it cannot be written; the spool then ends where it did before.
    fn append(&mut self, job: JobId, rank: u32, stream: Stream, data: &[u8]) -> io::Result<u64> {
        let path = self.path(job);
        let spool = self.spool(job);
        if !spool.whole {
            let end = File::open(&path).and_then(|mut file| whole_length(&mut file))?;
            spool.progress.send_modify(|progress| progress.end = end);
            spool.whole = true;
        }
        let end = spool.progress.borrow().end;
        let bytes = frame(rank, stream, data).ok_or(io::ErrorKind::InvalidInput)?;
        self.make_room(job, end + bytes.len() as u64)?;
        let written = self.write(job, end, &bytes);
        if written.is_err() {
            self.quota.set(job, end);
        }
        written
    }

    /// Writes a frame behind `end`; returns the new end.
    fn write(&mut self, job: JobId, end: u64, bytes: &[u8]) -> io::Result<u64> {
        let path = self.path(job);
        let spool = self.spool(job);
        let file = match &mut spool.file {
            Some(file) => file,
            none => {
                let file =
                    OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
                file.set_len(end)?;
                none.insert(file)
            }
        };
        file.seek(SeekFrom::Start(end))?;
        if let Err(error) = file.write_all(bytes) {
            file.set_len(end)?;
            return Err(error);
        }
        let end = end + bytes.len() as u64;
        spool.progress.send_modify(|progress| progress.end = end);
        let total = &self.counts.spool_bytes;
        total.set(total.get() + bytes.len() as u64);
        Ok(end)
    }

    /// No more will come.
    pub fn finish(&mut self, job: JobId, outcome: Outcome) {
        let spool = self.spool(job);
        spool.file = None;
        spool.progress.send_modify(|progress| progress.outcome = Some(outcome));
    }

    /// A reader of a part of a job's output: from byte `from` on, or the last one. It may take long.
    pub(super) fn part(
        &mut self,
        job: JobId,
        from: Option<u64>,
    ) -> impl FnOnce() -> Result<Output, Refusal> + Send + use<> {
        let path = self.path(job);
        let end = self.spool(job).progress.borrow().end;
        move || read_part(&path, from, end).map_err(|error| unreadable(&path, &error))
    }

    /// A follower of the job from `offset` on, which sends to `client` until the end.
    pub fn follow(
        &mut self,
        job: JobId,
        offset: u64,
        wait: bool,
        client: mpsc::Sender<ClientReply>,
    ) -> impl Future<Output = ()> + use<> {
        let path = self.path(job);
        let progress = self.spool(job).progress.subscribe();
        let follower = Follower { path, job, offset, wait, progress, client };
        follower.run()
    }
}

struct Follower {
    path: PathBuf,
    job: JobId,
    offset: u64,
    wait: bool,
    progress: watch::Receiver<Progress>,
    client: mpsc::Sender<ClientReply>,
}

fn unreadable(path: &Path, error: &io::Error) -> Refusal {
    let message = format!("the output in {} cannot be read: {error}", path.display());
    refusal(RefusalKind::NoResources, message)
}

impl Follower {
    async fn run(mut self) {
        if let Err(refused) = self.serve().await {
            // A client that is gone needs no answer.
            let _ = self.client.send(ClientReply::Refused(refused)).await;
        }
    }

    async fn serve(&mut self) -> Result<(), Refusal> {
        let mut file = None;
        let mut bytes = Vec::new();
        let mut current = false;
        loop {
            let Progress { end, outcome } = self.progress.borrow_and_update().clone();
            if end > self.offset && file.is_none() {
                let opened = File::open(&self.path).and_then(|mut file| {
                    file.seek(SeekFrom::Start(self.offset))?;
                    Ok(file)
                });
                file = Some(opened.map_err(|error| unreadable(&self.path, &error))?);
            }
            if let Some(file) = &mut file {
                while self.offset + (bytes.len() as u64) < end {
                    self.read(file, end, &mut bytes)?;
                    if !self.send(&mut bytes).await? {
                        return Ok(());
                    }
                }
                if !bytes.is_empty() {
                    // Cut off by a crash; another may take its place.
                    bytes.clear();
                    let back = file.seek(SeekFrom::Start(self.offset));
                    back.map_err(|error| unreadable(&self.path, &error))?;
                }
            }
            if let Some(outcome) = outcome {
                let ended = ClientReply::Ended { job: self.job, outcome };
                let _ = self.client.send(ended).await;
                return Ok(());
            }
            if !self.wait {
                let _ = self.client.send(ClientReply::Done).await;
                return Ok(());
            }
            if !std::mem::replace(&mut current, true) {
                let _ = self.client.send(ClientReply::Current { job: self.job }).await;
            }
            tokio::select! {
                changed = self.progress.changed() => if changed.is_err() { return Ok(()) },
                () = self.client.closed() => return Ok(()),
            }
        }
    }

    fn read(&self, file: &mut File, end: u64, bytes: &mut Vec<u8>) -> Result<(), Refusal> {
        let left = end - self.offset - bytes.len() as u64;
        let count = file
            .take(left.min(READ as u64))
            .read_to_end(bytes)
            .map_err(|error| unreadable(&self.path, &error))?;
        if count == 0 {
            return Err(unreadable(&self.path, &io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    /// Sends the whole frames of `bytes` and takes them off; whether the client still listens.
    async fn send(&mut self, bytes: &mut Vec<u8>) -> Result<bool, Refusal> {
        let mut used = 0;
        loop {
            let Ok(next) = parse(&bytes[used..]) else {
                let message = format!(
                    "{} is not where a piece of the output of job {} begins",
                    self.offset, self.job
                );
                return Err(refusal(RefusalKind::BadRequest, message));
            };
            let Some(SpoolRecord { rank, stream, data, length }) = next else { break };
            used += length;
            self.offset += length as u64;
            let (job, data, offset) = (self.job, data.to_vec(), self.offset);
            let reply = ClientReply::Output { job, rank, stream, data, offset };
            if self.client.send(reply).await.is_err() {
                return Ok(false);
            }
        }
        bytes.drain(..used);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::spool_frame::{HEADER, MAX_PIECE};
    use super::*;

    const JOB: JobId = JobId(4);

    fn quota() -> SpoolQuota {
        SpoolQuota::new(crate::config::Quotas::default(), 1_000)
    }

    async fn all(spools: &mut Spools, offset: u64, wait: bool) -> Vec<ClientReply> {
        let (client, mut replies) = mpsc::channel(1);
        let follower = tokio::spawn(spools.follow(JOB, offset, wait, client));
        let mut got = Vec::new();
        while let Some(reply) = replies.recv().await {
            got.push(reply);
        }
        follower.await.unwrap();
        got
    }

    fn output(rank: u32, data: &[u8], offset: u64) -> ClientReply {
        ClientReply::Output { job: JOB, rank, stream: Stream::Out, data: data.to_vec(), offset }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn followers_get_everything_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut spools =
            Spools::open(dir.path().join("spool"), |_| true, quota(), Rc::default()).unwrap();
        assert_eq!(all(&mut spools, 0, false).await, [ClientReply::Done]);
        let (client, mut live) = mpsc::channel(1);
        tokio::spawn(spools.follow(JOB, 0, true, client));
        assert_eq!(spools.append(JOB, 0, Stream::Out, b"one").unwrap(), 12);
        assert_eq!(live.recv().await, Some(output(0, b"one", 12)));
        assert_eq!(live.recv().await, Some(ClientReply::Current { job: JOB }));
        assert_eq!(spools.append(JOB, 1, Stream::Out, b"two").unwrap(), 24);
        assert_eq!(live.recv().await, Some(output(1, b"two", 24)));
        let late = all(&mut spools, 12, false).await;
        assert_eq!(late, [output(1, b"two", 24), ClientReply::Done]);
        spools.finish(JOB, Outcome::Success);
        let ended = ClientReply::Ended { job: JOB, outcome: Outcome::Success };
        assert_eq!(live.recv().await, Some(ended.clone()));
        assert_eq!(all(&mut spools, 24, true).await, [ended]);
        // An offset inside a frame.
        assert!(matches!(all(&mut spools, 5, true).await[..], [ClientReply::Refused(_)]));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_restart_drops_what_was_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let mut spools =
            Spools::open(dir.path().to_owned(), |_| true, quota(), Rc::default()).unwrap();
        spools.append(JOB, 0, Stream::Out, b"whole").unwrap();
        spools.append(JobId(5), 0, Stream::Out, b"forgotten").unwrap();
        drop(spools);
        let cut = frame(0, Stream::Out, b"cut off").unwrap();
        let mut file = OpenOptions::new().append(true).open(dir.path().join("4")).unwrap();
        file.write_all(&cut[..12]).unwrap();
        let mut spools =
            Spools::open(dir.path().to_owned(), |job| job == JOB, quota(), Rc::default()).unwrap();
        assert!(!dir.path().join("5").exists());
        assert_eq!(all(&mut spools, 0, false).await, [output(0, b"whole", 14), ClientReply::Done]);
        assert_eq!(spools.append(JOB, 0, Stream::Out, b"next").unwrap(), 27);
        assert_eq!(all(&mut spools, 14, false).await, [output(0, b"next", 27), ClientReply::Done]);
    }

    /// Who follows from before the first append on gets what takes the place of what was cut off.
    #[tokio::test(flavor = "current_thread")]
    async fn what_was_cut_off_is_replaced_under_a_follower() {
        let dir = tempfile::tempdir().unwrap();
        let whole = frame(0, Stream::Out, b"whole").unwrap();
        let cut = frame(0, Stream::Out, b"cut off").unwrap();
        fs::write(dir.path().join("4"), [&whole[..], &cut[..12]].concat()).unwrap();
        let mut spools =
            Spools::open(dir.path().to_owned(), |_| true, quota(), Rc::default()).unwrap();
        let (client, mut live) = mpsc::channel(1);
        tokio::spawn(spools.follow(JOB, 0, true, client));
        assert_eq!(live.recv().await, Some(output(0, b"whole", 14)));
        assert_eq!(live.recv().await, Some(ClientReply::Current { job: JOB }));
        tokio::task::yield_now().await;
        assert_eq!(spools.append(JOB, 1, Stream::Out, b"next, and longer").unwrap(), 39);
        assert_eq!(live.recv().await, Some(output(1, b"next, and longer", 39)));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn long_output_comes_in_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let mut spools =
            Spools::open(dir.path().to_owned(), |_| true, quota(), Rc::default()).unwrap();
        let piece = vec![b'x'; 60_000];
        for rank in 0..20 {
            spools.append(JOB, rank, Stream::Out, &piece).unwrap();
        }
        let got = all(&mut spools, 0, false).await;
        assert_eq!(got.len(), 21);
        assert_eq!(got[19], output(19, &piece, 20 * 60_009));
    }

    #[test]
    fn a_full_disk_is_told() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return kumi_skip::skip("a_full_disk_is_told", "no /dev/full");
        }
        let dir = tempfile::tempdir().unwrap();
        let mut spools =
            Spools::open(dir.path().to_owned(), |_| true, quota(), Rc::default()).unwrap();
        std::os::unix::fs::symlink(full, dir.path().join("4")).unwrap();
        assert!(spools.append(JOB, 0, Stream::Out, b"lost").is_err());
    }

    /// Too much output of a job is told; that of a user's oldest job that is over makes room.
    #[tokio::test(flavor = "current_thread")]
    async fn output_is_bounded_for_each_job_and_user() {
        let dir = tempfile::tempdir().unwrap();
        let quotas = crate::config::Quotas {
            spool_mib_per_job: 2,
            spool_mib_per_user: 3,
            ..crate::config::Quotas::default()
        };
        let mut quota = SpoolQuota::new(quotas, 1_000);
        for job in 4..7 {
            quota.know(JobId(job), 1000, false);
        }
        let mut spools =
            Spools::open(dir.path().to_owned(), |_| true, quota, Rc::default()).unwrap();
        let piece = vec![b'x'; MAX_PIECE];
        assert!(spools.append(JOB, 0, Stream::Out, &piece).is_ok());
        let error = spools.append(JOB, 0, Stream::Out, &piece).unwrap_err();
        assert!(error.to_string().contains("2 MiB, spool_mib_per_job"), "{error}");
        assert!(spools.append(JobId(5), 0, Stream::Out, &piece).is_ok());
        let refused = spools.keep(JobId(6), 0, Stream::Out, &piece);
        let HeadEvent::SpoolFailed { reason, .. } = refused else { panic!("{refused:?}") };
        assert!(reason.contains("3 MiB together"), "{reason}");
        spools.quota.know(JOB, 1000, true);
        spools.finish(JOB, Outcome::Success);
        assert!(spools.append(JobId(6), 0, Stream::Out, &piece).is_ok());
        assert!(!dir.path().join("4").exists() && dir.path().join("5").exists());
        assert_eq!(spools.counts.spool_bytes.get(), 2 * (MAX_PIECE + HEADER) as u64);
        assert_eq!(all(&mut spools, 0, false).await, [ClientReply::Done]);
    }

    /// Output of jobs that are over goes while the head runs: of the oldest when it is too much, and of jobs that are not known
    /// any more.
    #[tokio::test(flavor = "current_thread")]
    async fn output_of_jobs_that_are_over_goes() {
        let dir = tempfile::tempdir().unwrap();
        let over = SpoolQuota::new(crate::config::Quotas::default(), 2);
        let mut spools =
            Spools::open(dir.path().to_owned(), |_| true, over, Rc::default()).unwrap();
        let piece = vec![b'x'; MAX_PIECE - HEADER];
        let record = |job, state| {
            let record = super::super::job_table::tests::record(job, state);
            (JobId(job), record)
        };
        let is_there = |job: JobId| dir.path().join(job.to_string()).exists();
        for number in 4..7 {
            let (job, running) = record(number, kumi_control::message::JobState::Running);
            spools.know(&running);
            spools.append(job, 0, Stream::Out, &piece).unwrap();
        }
        for number in 4..7 {
            let ended = kumi_control::message::JobState::Ended(Outcome::Success);
            let (job, ended) = record(number, ended);
            assert!(is_there(JOB) && is_there(job));
            spools.know(&ended);
            spools.finish(job, Outcome::Success);
        }
        assert!(!is_there(JOB) && is_there(JobId(5)) && is_there(JobId(6)));
        assert_eq!(spools.counts.spool_bytes.get(), 2 * MAX_PIECE as u64);
        spools.discard(JobId(5));
        spools.discard(JobId(9));
        assert!(!is_there(JobId(5)) && is_there(JobId(6)));
        assert_eq!(spools.counts.spool_bytes.get(), MAX_PIECE as u64);
        // A head that may keep less begins with that.
        drop(spools);
        let none = SpoolQuota::new(crate::config::Quotas::default(), 0);
        let mut spools =
            Spools::open(dir.path().to_owned(), |_| true, none, Rc::default()).unwrap();
        assert!(is_there(JobId(6)));
        let ended = kumi_control::message::JobState::Ended(Outcome::Success);
        spools.know_all(&[record(6, ended).1]);
        assert!(!is_there(JobId(6)) && spools.counts.spool_bytes.get() == 0);
    }
}
