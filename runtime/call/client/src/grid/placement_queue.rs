//! Queue of calls that wait for a place without a thread each, and the handles of such calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use super::super::completion::{Completion, Next};
use super::super::link::Link;
use super::super::routed_call::{Control, RoutedCall};
use super::super::{CallError, CallWatch, Client, Outcome};
use super::{Inner, PATIENCE};
use crate::locked;

/// How long the watching thread waits at a time.
const WATCH: Duration = Duration::from_millis(250);

/// How often the program is asked whether it was interrupted.
const SLICE: Duration = Duration::from_millis(100);

/// Calls that wait and are bound to one server.
#[derive(Debug)]
struct BoundCalls {
    /// The connection to it, with which their arrays go.
    client: Client,
    calls: BTreeSet<u64>,
}

/// Calls without a thread that wait for a place. No operation on one of them scans the others.
///
/// Invariant: each call is either once in `asked`, or in `disconnected`.
#[derive(Debug, Default)]
pub struct PlacementQueue {
    /// All calls by number, in the order in which they began.
    jobs: BTreeMap<u64, QueuedCall>,
    /// The connection on which calls have asked. Another one follows only when it is lost.
    link: Option<Arc<Link>>,
    /// Calls that have asked there, by stream.
    asked: HashMap<u32, u64>,
    /// Calls whose connection was lost, which must ask again.
    disconnected: BTreeSet<u64>,
    /// The calls that are bound to servers, by the address of the connection to each.
    bound: HashMap<usize, BoundCalls>,
    /// A thread watches for places.
    watched: bool,
}

/// State that the handles of a call and its thread share.
#[derive(Debug)]
struct Shared {
    control: Control,
    completion: Arc<Completion>,
    /// The number of the call, unique in this grid.
    number: u64,
}

/// What goes on with a call when it has an answer, or ends it for this reason. It does not wait.
type GoOn = dyn FnOnce(Box<RoutedCall<'static>>, Result<(), CallError>) + Send;

/// A call without a thread that waits for a place.
pub struct QueuedCall {
    routed_call: Box<RoutedCall<'static>>,
    go_on: Box<GoOn>,
}

impl fmt::Debug for QueuedCall {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("QueuedCall").field(&self.routed_call).finish()
    }
}

fn address(link: &Arc<Link>) -> usize {
    Arc::as_ptr(link).addr()
}

/// A copy of the error, for each of many calls; none of them has begun.
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
        mut routed_call: RoutedCall<'static>,
    ) -> Result<GridCall, CallError> {
        let completion = Arc::new(Completion::new(std::mem::take(&mut routed_call.functions)));
        let control = Control::with_completion(Arc::clone(&completion));
        let shared = Arc::new(Shared { control, completion, number: routed_call.number() });
        let bytes = (routed_call.placing.bytes_out, routed_call.placing.bytes_back);
        let canceller = GridCanceller { shared: Arc::clone(&shared), grid: Arc::clone(self) };
        let handle = GridCall { canceller, bytes };
        let meta = self.metaserver(routed_call.left()?)?;
        let go_on = move |mut routed_call: Box<RoutedCall<'static>>,
                          ready: Result<(), CallError>| {
            let is_ready = ready.is_ok();
            let end = move || {
                let result = ready.and_then(|()| routed_call.run(&shared.control, &|| false));
                // All memory of the call is released before its end is told.
                drop(routed_call);
                shared.completion.end(result);
            };
            if is_ready { drop(std::thread::spawn(end)) } else { end() }
        };
        self.enqueue(QueuedCall::new(Box::new(routed_call), go_on), Some(&meta))?;
        Ok(handle)
    }

    /// Has a call wait for a place that this metaserver is asked for, or the next one if it is lost or there is none.
    ///
    /// # Errors
    /// The call cannot be asked for. What was to go on with it is dropped.
    pub fn enqueue(
        self: &Arc<Inner>,
        mut job: QueuedCall,
        meta: Option<&Client>,
    ) -> Result<(), CallError> {
        let mut waiting = locked(&self.waiting);
        // The call is in the queue before the request goes out, so that the answer finds it. Sending needs no lock.
        let is_asked = match meta {
            Some(meta) => job.routed_call.request_place_on(meta, true)?,
            None => false,
        };
        waiting.insert(job);
        if !std::mem::replace(&mut waiting.watched, true) {
            let inner = Arc::clone(self);
            std::thread::spawn(move || inner.watch());
        }
        drop(waiting);
        if let Some(meta) = meta
            && (!is_asked || meta.link.send_soon().is_err())
        {
            // The watching thread asks elsewhere.
            self.lost(meta);
        }
        Ok(())
    }

    /// Takes a call out of the queue, if it waits there. Dropping it gives up its place.
    pub fn withdraw(&self, number: u64) -> Option<QueuedCall> {
        locked(&self.waiting).take(number)
    }

    /// Watches for places while calls wait, and some time longer.
    fn watch(self: Arc<Inner>) {
        // Since when no metaserver is reachable.
        let mut alone = None;
        loop {
            // Without the lock while waiting: others need it to ask.
            let meta = locked(&self.meta).0.clone();
            let ready = match &meta {
                Some(meta) => meta.link.next_ready(Instant::now() + WATCH),
                None => Err(CallError::Lost(String::new())),
            };
            if let (Some(meta), Ok(None)) = (&meta, &ready) {
                meta.link.check_alive();
            }
            if let (Some(meta), Err(_)) = (&meta, &ready) {
                self.lost(meta);
            }
            let disconnected = locked(&self.waiting).disconnect_lost();
            let next = disconnected.then(|| self.next_metaserver(&mut alone));
            let mut waiting = locked(&self.waiting);
            let mut begin = Vec::new();
            if let (Some(meta), Ok(Some(stream))) = (&meta, &ready) {
                begin.extend(waiting.answered(&meta.link, *stream));
            }
            waiting.take_bound_to_lost(&mut begin);
            match &next {
                Some(Ok(Some(next))) => waiting.ask_again(next, &mut begin),
                Some(Ok(None)) => waiting.take_expired(&mut begin),
                Some(Err(error)) => {
                    waiting.take_disconnected().for_each(|job| job.end(same(error)));
                }
                None => {}
            }
            // It stays for the calls that follow on others.
            waiting.watched = !waiting.is_empty() || matches!(ready, Ok(Some(_)));
            let over = !waiting.watched;
            drop(waiting);
            begin.into_iter().for_each(QueuedCall::go_on);
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

    /// The metaserver to ask next. `None`: one may still come.
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

impl PlacementQueue {
    fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Adds a call that has asked for a place, or must.
    fn insert(&mut self, job: QueuedCall) {
        let number = job.routed_call.number();
        match &job.routed_call.place_request {
            Some((meta, ticket)) => {
                if !self.is_on(&meta.link) {
                    self.disconnect();
                    self.link = Some(Arc::clone(&meta.link));
                }
                self.asked.insert(ticket.stream, number);
            }
            None => drop(self.disconnected.insert(number)),
        }
        if let Some(client) = job.routed_call.bound_to() {
            let none = || BoundCalls { client: client.clone(), calls: BTreeSet::new() };
            self.bound.entry(address(&client.link)).or_insert_with(none).calls.insert(number);
        }
        self.jobs.insert(number, job);
    }

    /// Removes the call that asked on this stream.
    fn answered(&mut self, link: &Arc<Link>, stream: u32) -> Option<QueuedCall> {
        let number = *self.asked.get(&stream).filter(|_| self.is_on(link))?;
        self.take(number)
    }

    /// Whether calls have asked on this connection.
    fn is_on(&self, link: &Arc<Link>) -> bool {
        self.link.as_ref().is_some_and(|here| Arc::ptr_eq(here, link))
    }

    /// Returns whether there are calls that must ask again. Those of a lost connection must.
    fn disconnect_lost(&mut self) -> bool {
        if self.link.as_ref().is_some_and(|link| link.is_broken()) {
            self.disconnect();
        }
        !self.disconnected.is_empty()
    }

    fn disconnect(&mut self) {
        self.link = None;
        for (_, number) in self.asked.drain() {
            if let Some(job) = self.jobs.get_mut(&number) {
                job.routed_call.lose_metaserver();
                self.disconnected.insert(number);
            }
        }
    }

    /// The calls that must ask again, oldest first.
    fn take_disconnected(&mut self) -> impl Iterator<Item = QueuedCall> {
        let disconnected = std::mem::take(&mut self.disconnected);
        disconnected.into_iter().filter_map(|number| self.remove(number))
    }

    /// Removes the calls whose arrays are lost with the connection to their server. Their threads tell them so.
    fn take_bound_to_lost(&mut self, lost: &mut Vec<QueuedCall>) {
        let at_lost = self.bound.values().filter(|bound| bound.client.is_lost());
        let numbers: Vec<u64> = at_lost.flat_map(|bound| bound.calls.iter().copied()).collect();
        lost.extend(numbers.into_iter().filter_map(|number| self.take(number)));
    }

    /// Lets the calls ask again on this connection.
    fn ask_again(&mut self, meta: &Client, failed: &mut Vec<QueuedCall>) {
        let disconnected: Vec<QueuedCall> = self.take_disconnected().collect();
        for mut job in disconnected {
            match job.routed_call.request_place_on(meta, true) {
                Ok(_) => self.insert(job),
                // The call's thread finds out why.
                Err(_) => failed.push(job),
            }
        }
    }

    /// Removes the calls whose time is over while no metaserver is reachable.
    fn take_expired(&mut self, late: &mut Vec<QueuedCall>) {
        let is_late = |number: &&u64| {
            self.jobs.get(number).is_some_and(|job| job.routed_call.left().is_err())
        };
        let numbers: Vec<u64> = self.disconnected.iter().filter(is_late).copied().collect();
        late.extend(numbers.into_iter().filter_map(|number| self.take(number)));
    }

    /// Removes the call if it waits.
    fn take(&mut self, number: u64) -> Option<QueuedCall> {
        let job = self.remove(number)?;
        self.disconnected.remove(&number);
        if let Some((_, ticket)) = &job.routed_call.place_request {
            self.asked.remove(&ticket.stream);
        }
        Some(job)
    }

    /// Removes the call from those that there are, but not from those that have asked or must.
    fn remove(&mut self, number: u64) -> Option<QueuedCall> {
        let job = self.jobs.remove(&number)?;
        if let Some(client) = job.routed_call.bound_to() {
            let at = address(&client.link);
            if let Some(bound) = self.bound.get_mut(&at) {
                bound.calls.remove(&number);
                if bound.calls.is_empty() {
                    self.bound.remove(&at);
                }
            }
        }
        Some(job)
    }
}

impl QueuedCall {
    /// A call, and what goes on with it.
    pub fn new(
        routed_call: Box<RoutedCall<'static>>,
        go_on: impl FnOnce(Box<RoutedCall<'static>>, Result<(), CallError>) + Send + 'static,
    ) -> QueuedCall {
        QueuedCall { routed_call, go_on: Box::new(go_on) }
    }

    fn end(self, error: CallError) {
        (self.go_on)(self.routed_call, Err(error));
    }

    fn go_on(self) {
        (self.go_on)(self.routed_call, Ok(()));
    }
}

/// A call in progress. Dropping it cancels the call.
#[derive(Debug)]
pub struct GridCall {
    canceller: GridCanceller,
    bytes: (u64, u64),
}

/// Cancels a call from any thread. It may outlive the call.
#[derive(Debug, Clone)]
pub struct GridCanceller {
    shared: Arc<Shared>,
    grid: Arc<Inner>,
}

impl GridCanceller {
    /// Asks for the end of the call. The caller still waits for it.
    pub fn cancel(&self) {
        self.shared.control.cancel();
        // Without the lock: telling the metaserver may block until it reads.
        let Some(job) = self.grid.withdraw(self.shared.number) else { return };
        let name = job.routed_call.known.interface.name.clone();
        let text = format!("the call of `{name}` was cancelled");
        // Dropping the stream gives up the place in the queue.
        job.end(CallError::Cancelled(text));
    }
}

impl GridCall {
    /// Waits for the end and runs callbacks meanwhile. `interrupted` is asked from time to time.
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

    /// Waits at most this long. `None`: the call is not over, and may be waited for again.
    ///
    /// # Errors
    /// [`CallError`]. The end is reported once; a second wait fails.
    pub fn wait_for(
        &mut self,
        time: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Outcome>, CallError> {
        let until = Instant::now().checked_add(time);
        loop {
            let left =
                until.map_or(Duration::MAX, |it| it.saturating_duration_since(Instant::now()));
            match self.canceller.shared.completion.next(left.min(SLICE)) {
                Next::Over(result) => return result.map(Some),
                Next::AlreadyReported => {
                    let text = "the end of this call was reported already".to_owned();
                    return Err(CallError::Server(text));
                }
                Next::Callback(asked) => self.canceller.shared.completion.serve(asked),
                Next::Nothing if left.is_zero() => return Ok(None),
                Next::Nothing => {}
            }
            // Without a lock: the program's code may cancel this call.
            if interrupted() {
                return Err(CallError::Interrupted);
            }
        }
    }

    /// Whether the call is over. Does not wait.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.canceller.shared.completion.is_over()
    }

    /// A handle for waits for several calls: [`super::super::WakeEvent::wait`].
    #[must_use]
    pub fn watch(&self) -> CallWatch {
        CallWatch::of_completion(&self.canceller.shared.completion)
    }

    /// Bytes of the arguments, and of the arrays that come back.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        self.bytes
    }

    /// Asks for the end of the call. The caller still waits for it.
    pub fn cancel(&self) {
        self.canceller.cancel();
    }

    /// A handle that cancels the call while another thread waits for it.
    #[must_use]
    pub fn canceller(&self) -> GridCanceller {
        self.canceller.clone()
    }
}

impl Drop for GridCall {
    fn drop(&mut self) {
        if self.is_over() {
            return;
        }
        self.canceller.cancel();
        // After this, no thread reads or writes the caller's memory.
        drop(locked(&self.canceller.shared.control.lent));
        self.canceller.shared.completion.forget_functions();
    }
}
