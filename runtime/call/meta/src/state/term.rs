//! Life of one of several metaservers: it follows, leads, and follows again.

use std::cell::RefCell;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::super::dispatcher::Dispatcher;
use super::super::etcd::{Candidate, Etcd, EtcdError, EtcdStore, Session, WriteWatch, Writer};
use super::super::{Config, MetaError, attend, broker};
use kumi_call_access::Listener;

/// Time limit for the last writes, and for ending a lease.
const LAST: Duration = Duration::from_secs(3);
/// Pause before the next attempt to read the state.
const AGAIN: Duration = Duration::from_millis(200);
/// How often a leader with a doubtful lease checks it.
const LOOK: Duration = Duration::from_millis(50);

/// How long a leader that could not read the state leaves leadership to others: the first time, and at most.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How a term as leader ended.
enum TermEnd {
    /// The state cannot be read. Another metaserver may be able to.
    UnreadableState(EtcdError),
    /// Another leads.
    Deposed,
    /// The metaserver stops.
    Stopped,
}

/// Serves until `stop` is ready.
pub fn serve(
    runtime: &Runtime,
    config: &Config,
    etcd: &Etcd,
    listener: &Listener,
    stop: impl Future<Output = ()>,
) -> Result<(), MetaError> {
    let mut candidate = Candidate::new(etcd, &config.name)?;
    let mut stop = pin!(stop);
    let mut rest = REST.0;
    loop {
        let Some(session) = follow(runtime, config, &mut candidate, listener, stop.as_mut())?
        else {
            return Ok(());
        };
        tracing::info!(address = etcd.advertise, "this metaserver leads");
        match lead(runtime, config, session, listener, stop.as_mut())? {
            TermEnd::Stopped => return Ok(()),
            TermEnd::Deposed => rest = REST.0,
            TermEnd::UnreadableState(why) => {
                tracing::error!(%why, ?rest, "the state cannot be read; others may lead meanwhile");
                candidate.rest(rest, why);
                rest = (rest * 2).min(REST.1);
            }
        }
        tracing::warn!(address = etcd.advertise, "this metaserver no longer leads");
        candidate.leadership().follow("");
    }
}

/// Runs a future with a set of tasks that end with it.
fn within<T>(runtime: &Runtime, part: impl Future<Output = T>) -> T {
    LocalSet::new().block_on(runtime, part)
}

/// Tells all peers who leads, until this one does. `None`: the metaserver stops.
fn follow(
    runtime: &Runtime,
    config: &Config,
    candidate: &mut Candidate,
    listener: &Listener,
    stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<Option<Session>, MetaError> {
    let mut dispatcher = Dispatcher::new(config.clone(), broker(config)?, 0);
    dispatcher.leadership = Some(candidate.leadership());
    let dispatcher = Rc::new(RefCell::new(dispatcher));
    let listener = listener.again()?;
    within(runtime, async {
        tokio::select! {
            result = attend(&dispatcher, listener) => result.map(|()| None).map_err(MetaError::from),
            session = candidate.win() => Ok(Some(session)),
            () = stop => Ok(None),
        }
    })
}

fn lead(
    runtime: &Runtime,
    config: &Config,
    session: Session,
    listener: &Listener,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> Result<TermEnd, MetaError> {
    let mut dispatcher = Dispatcher::new(config.clone(), broker(config)?, session.number() << 32);
    dispatcher.leadership = Some(Rc::clone(session.leadership()));
    let listener = listener.again()?;
    within(runtime, async {
        let opened = tokio::select! {
            () = session.hold() => return Ok(TermEnd::Deposed),
            opened = open(&session) => opened,
            () = stop.as_mut() => {
                release(session).await;
                return Ok(TermEnd::Stopped);
            }
        };
        let (kept, writer) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                release(session).await;
                return match error {
                    // A call whose record is not understood might run twice.
                    EtcdError::Content(_) => Err(error.into()),
                    other => Ok(TermEnd::UnreadableState(other)),
                };
            }
        };
        let watch = kept.watch();
        dispatcher.restore(Box::new(kept)).map_err(io::Error::other)?;
        let dispatcher = Rc::new(RefCell::new(dispatcher));
        let writing = tokio::task::spawn_local(writer.run());
        let end = tokio::select! {
            result = attend(&dispatcher, listener) => result.map(|()| TermEnd::Stopped),
            () = session.hold() => Ok(TermEnd::Deposed),
            _deposed = writing => Ok(TermEnd::Deposed),
            () = grant(&dispatcher, &watch) => Ok(TermEnd::Deposed),
            () = stop => Ok(TermEnd::Stopped),
        };
        if let Ok(TermEnd::Stopped) = end {
            watch.drain(LAST).await;
            release(session).await;
        }
        Ok(end?)
    })
}

/// Gives up leadership.
async fn release(session: Session) {
    // If this takes longer, the lease ends by itself.
    let _late = tokio::time::timeout(LAST, session.release()).await;
}

/// Reads the state as soon as etcd allows it. After two leases without success another may try.
async fn open(session: &Session) -> Result<(EtcdStore, Writer), EtcdError> {
    let until = Instant::now() + session.patience();
    loop {
        match EtcdStore::open(session).await {
            Err(error @ EtcdError::NoAnswer { .. }) if Instant::now() < until => {
                tracing::warn!(%error, "the state cannot be read yet");
                sleep(AGAIN).await;
            }
            other => return other,
        }
    }
}

/// Tells clients their places. Never ends.
async fn grant(dispatcher: &Rc<RefCell<Dispatcher>>, watch: &WriteWatch) {
    loop {
        tokio::select! {
            () = watch.news() => {}
            () = sleep(LOOK) => {}
        }
        dispatcher.borrow_mut().grant();
    }
}
