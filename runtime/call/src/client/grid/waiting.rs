//! Calls that wait for a place without a thread of their own, and the handles by which they are waited for.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::errand::{Control, Errand};
use super::super::link::Link;
use super::super::meeting::{Meeting, Next};
use super::super::{CallError, Client, Outcome};
use super::{Inner, PATIENCE, locked};

/// How long a thread that waits for places waits at a time.
const WATCH: Duration = Duration::from_millis(250);

/// How often the program is asked whether it was interrupted.
const SLICE: Duration = Duration::from_millis(100);

/// A connection, by its address in memory, and a stream of it: streams of each begin anew.
type Place = (usize, u32);

/// Calls without a thread, which wait for a place.
#[derive(Debug, Default)]
pub struct Waiting {
    /// Those that have asked; while they are here, so is the connection.
    asked: HashMap<Place, Job>,
    /// Those whose connection was lost, which have to ask again.
    adrift: Vec<Job>,
    /// A thread waits for them.
    watched: bool,
}

#[derive(Debug)]
struct Shared {
    control: Control,
    meeting: Arc<Meeting>,
}

#[derive(Debug)]
struct Job {
    errand: Errand<'static>,
    shared: Arc<Shared>,
}

fn place(link: &Arc<Link>, stream: u32) -> Place {
    (Arc::as_ptr(link).addr(), stream)
}

/// The same error once more: it is that of many calls, none of which has begun.
fn same(error: &CallError) -> CallError {
    match error {
        CallError::Connect { address, source } => {
            let source = io::Error::new(source.kind(), source.to_string());
            CallError::Connect { address: address.clone(), source }
        }
        CallError::NotLeading { leader } => CallError::NotLeading { leader: leader.clone() },
        CallError::NotPermitted(text) => CallError::NotPermitted(text.clone()),
        CallError::Expired(text) => CallError::Expired(text.clone()),
        other => {
            let text = format!("no metaserver can be asked: {other}");
            CallError::NoServer { text, has_not_run: true }
        }
    }
}

impl Inner {
    /// Begins a call without a thread.
    pub fn wait_for_place(
        self: &Arc<Inner>,
        mut errand: Errand<'static>,
    ) -> Result<GridCall, CallError> {
        let meeting = Arc::new(Meeting::new(std::mem::take(&mut errand.functions)));
        let shared = Arc::new(Shared { control: Control::apart(Arc::clone(&meeting)), meeting });
        let bytes = (errand.placing.bytes_out, errand.placing.bytes_back);
        let handle = GridCall { shared: Arc::clone(&shared), grid: Arc::clone(self), bytes };
        loop {
            // Without the lock: others need it to ask elsewhere, and to cancel.
            let meta = self.metaserver(errand.left()?)?;
            let mut waiting = locked(&self.waiting);
            // Whoever hears the answer finds the job; it is sent without the lock.
            if !errand.seek_on(&meta, true)? {
                drop(waiting);
                self.lost(&meta);
                continue;
            }
            waiting.insert(Job { errand, shared });
            if !std::mem::replace(&mut waiting.watched, true) {
                let inner = Arc::clone(self);
                std::thread::spawn(move || inner.watch());
            }
            drop(waiting);
            if meta.link.send_soon().is_err() {
                // Who waits for places asks elsewhere.
                self.lost(&meta);
            }
            return Ok(handle);
        }
    }

    /// Waits for places, as long as calls without a thread do; each that has one gets a thread.
    fn watch(self: Arc<Inner>) {
        // Since when no metaserver is found.
        let mut alone = None;
        loop {
            // Not waited for with the lock: others need it to ask.
            let meta = locked(&self.meta).0.clone();
            let ready = match &meta {
                Some(meta) => meta.link.next_ready(Instant::now() + WATCH),
                None => Err(CallError::Lost(String::new())),
            };
            if let (Some(meta), Ok(None)) = (&meta, &ready) {
                meta.link.beat();
            }
            if let (Some(meta), Err(_)) = (&meta, &ready) {
                self.lost(meta);
            }
            let adrift = locked(&self.waiting).let_drift();
            let next = adrift.then(|| self.next_metaserver(&mut alone));
            let mut waiting = locked(&self.waiting);
            let mut begin = Vec::new();
            if let (Some(meta), Ok(Some(stream))) = (&meta, &ready) {
                begin.extend(waiting.asked.remove(&place(&meta.link, *stream)));
            }
            match &next {
                Some(Ok(Some(next))) => waiting.ask_again(next, &mut begin),
                Some(Ok(None)) => waiting.take_late(&mut begin),
                Some(Err(error)) => {
                    waiting.adrift.drain(..).for_each(|job| job.end(Err(same(error))));
                }
                None => {}
            }
            waiting.watched = !waiting.is_empty();
            let over = !waiting.watched;
            drop(waiting);
            for job in begin {
                std::thread::spawn(move || job.run());
            }
            if let Some(Ok(Some(next))) = next
                && next.link.send_soon().is_err()
            {
                self.lost(&next);
            }
            if over {
                return;
            }
        }
    }

    /// The metaserver that is to be asked next; `None`: it may come yet.
    fn next_metaserver(&self, alone: &mut Option<Instant>) -> Result<Option<Client>, CallError> {
        match self.metaserver(Some(WATCH)) {
            Ok(meta) => {
                *alone = None;
                Ok(Some(meta))
            }
            Err(error) => {
                let since = *alone.get_or_insert_with(Instant::now);
                if Inner::is_final(&error) || since.elapsed() > PATIENCE {
                    Err(error)
                } else {
                    Ok(None)
                }
            }
        }
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.adrift.is_empty()
    }

    /// A job that has asked where to go, or has to.
    fn insert(&mut self, job: Job) {
        let at = job.errand.seeking.as_ref().map(|(meta, it)| place(&meta.link, it.stream));
        match at {
            Some(at) => drop(self.asked.insert(at, job)),
            None => self.adrift.push(job),
        }
    }

    /// Calls of connections that are of no use any more have to ask again; whether there are any.
    fn let_drift(&mut self) -> bool {
        let lost = |_: &Place, job: &mut Job| job.is_lost();
        self.adrift.extend(self.asked.extract_if(lost).map(|(_, mut job)| {
            job.errand.seeking = None;
            job
        }));
        !self.adrift.is_empty()
    }

    /// Those that have to ask again do, here.
    fn ask_again(&mut self, meta: &Client, failed: &mut Vec<Job>) {
        for mut job in std::mem::take(&mut self.adrift) {
            match job.errand.seek_on(meta, true) {
                Ok(_) => self.insert(job),
                // Its thread finds out why.
                Err(_) => failed.push(job),
            }
        }
    }

    /// Those whose time is over while nobody can be asked.
    fn take_late(&mut self, late: &mut Vec<Job>) {
        late.extend(self.adrift.extract_if(.., |job| job.errand.left().is_err()));
    }

    /// The job of a call, if it waits.
    fn take(&mut self, shared: &Arc<Shared>) -> Option<Job> {
        let mine = |job: &Job| Arc::ptr_eq(&job.shared, shared);
        if let Some(at) = self.adrift.iter().position(mine) {
            return Some(self.adrift.swap_remove(at));
        }
        let at = self.asked.iter().find(|(_, job)| mine(job)).map(|(at, _)| *at);
        at.and_then(|at| self.asked.remove(&at))
    }
}

impl Job {
    /// Whether the connection is of no use any more on which it has asked.
    fn is_lost(&self) -> bool {
        self.errand.seeking.as_ref().is_none_or(|(meta, _)| meta.link.is_broken())
    }

    /// Tells the result, when nothing of the call is used any more.
    fn end(self, result: Result<Outcome, CallError>) {
        let Job { errand, shared } = self;
        drop(errand);
        shared.meeting.end(result);
    }

    fn run(mut self) {
        let result = self.errand.run(&self.shared.control, &|| false);
        self.end(result);
    }
}

/// A call that is under way. When it is dropped before its end it is cancelled.
#[derive(Debug)]
pub struct GridCall {
    shared: Arc<Shared>,
    grid: Arc<Inner>,
    bytes: (u64, u64),
}

/// Ends a call from wherever; it may outlive the call.
#[derive(Debug, Clone)]
pub struct GridCanceller {
    shared: Arc<Shared>,
    grid: Arc<Inner>,
}

impl GridCanceller {
    /// Asks for the end of the call, which is waited for as ever.
    pub fn cancel(&self) {
        self.shared.control.cancel();
        let mut waiting = locked(&self.grid.waiting);
        let Some(job) = waiting.take(&self.shared) else { return };
        // What tells the metaserver may have to wait until that reads.
        drop(waiting);
        let name = job.errand.known.interface.name.clone();
        let text = format!("the call of `{name}` was cancelled");
        // With its stream goes its place in the queue.
        job.end(Err(CallError::Cancelled(text)));
    }
}

impl GridCall {
    /// Waits for its end, and calls the functions that the routine calls; `interrupted` is asked now and then.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Outcome, CallError> {
        loop {
            if let Some(outcome) = self.wait_for(Duration::from_secs(3600), interrupted)? {
                return Ok(outcome);
            }
        }
    }

    /// Waits for at most so long; `None`: it is not over, and may be waited for again.
    ///
    /// # Errors
    /// [`CallError`]. The end is told once; later it was told already.
    pub fn wait_for(
        &mut self,
        time: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Outcome>, CallError> {
        let until = Instant::now().checked_add(time);
        loop {
            let left =
                until.map_or(Duration::MAX, |it| it.saturating_duration_since(Instant::now()));
            match self.shared.meeting.next(left.min(SLICE)) {
                Next::Over(result) => return result.map(Some),
                Next::Told => {
                    let text = "the end of this call was told already".to_owned();
                    return Err(CallError::Server(text));
                }
                Next::Called(asked) => self.shared.meeting.serve(asked),
                Next::Nothing if left.is_zero() => return Ok(None),
                Next::Nothing => {}
            }
            // Asked without a lock: what it runs may cancel this call.
            if interrupted() {
                return Err(CallError::Interrupted);
            }
        }
    }

    /// Whether its end has come; does not wait.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.meeting.is_over()
    }

    /// Bytes of its arguments, and of its arrays that come back.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        self.bytes
    }

    /// Asks for its end, which is waited for as ever.
    pub fn cancel(&self) {
        self.canceller().cancel();
    }

    /// What ends it while another thread waits for it.
    #[must_use]
    pub fn canceller(&self) -> GridCanceller {
        GridCanceller { shared: Arc::clone(&self.shared), grid: Arc::clone(&self.grid) }
    }
}

impl Drop for GridCall {
    fn drop(&mut self) {
        if self.is_over() {
            return;
        }
        self.cancel();
        // Whoever reads or writes the caller's memory is done then, and nobody begins.
        drop(locked(&self.shared.control.lent));
        self.shared.meeting.forget_functions();
    }
}
