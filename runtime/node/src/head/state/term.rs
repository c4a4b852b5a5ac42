//! This head's term: it waits until it leads, and learns when it leads no more.
//!
//! A thread of its own keeps the lease, so that a main loop that stands still does not lose it. The main loop asks
//! [`LeaderTerm::leads`] right before each act.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kumi_etcd::{Candidate, Certainty, Etcd, EtcdError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Guard, OwnAddress, StatePlace};
use crate::config::ClusterConfig;
use crate::event_loop;
use crate::exit::{ExitCode, Failure};
use crate::head::copies::Standby;
use crate::head::job_table::TableError;
use crate::log;
use crate::paths;
use crate::service::Signals;

/// Between looks who leads.
const LOOK: Duration = Duration::from_millis(500);
/// How long the end of a term may take. If it takes longer, the lease ends by itself.
const RELEASE: Duration = Duration::from_secs(1);

/// What the thread of the lease tells.
#[derive(Debug)]
enum TermEvent {
    /// The settings cannot be used.
    Unusable(EtcdError),
    /// Another one leads, or nobody.
    Follows(String),
    /// It leads.
    Leads(Guard, Certainty),
    /// It leads no more.
    Over,
    /// The lease is given back.
    Released,
}

/// The time in which this head leads.
#[derive(Debug)]
pub(in crate::head) struct LeaderTerm {
    certainty: Certainty,
    /// Nothing comes if there is only one head, with its state in a file.
    events: Option<mpsc::UnboundedReceiver<TermEvent>>,
    release: Option<oneshot::Sender<()>>,
}

impl LeaderTerm {
    /// Of a head whose state no other head can have.
    pub(in crate::head) fn without_end() -> Self {
        Self { certainty: Certainty::for_ever(), events: None, release: None }
    }

    /// Whether this head certainly leads now.
    pub(in crate::head) fn leads(&self) -> bool {
        self.certainty.leads()
    }

    /// The same for other threads.
    pub(in crate::head) fn certainty(&self) -> &Certainty {
        &self.certainty
    }

    /// Waits until the term is over.
    pub(in crate::head) async fn over(&mut self) {
        match &mut self.events {
            // Its thread tells it, or is gone.
            Some(events) => drop(events.recv().await),
            None => std::future::pending().await,
        }
    }

    /// Ends the term, so that another head leads at once.
    pub(in crate::head) async fn release(&mut self) {
        let (Some(events), Some(release)) = (&mut self.events, self.release.take()) else { return };
        // It fails when the term is over already.
        let _over = release.send(());
        let released =
            async { while !matches!(events.recv().await, None | Some(TermEvent::Released)) {} };
        if timeout(RELEASE, released).await.is_err() {
            tracing::warn!("etcd does not answer: the lease ends by itself");
        }
    }
}

/// What became of a head that waited until it leads.
#[derive(Debug)]
pub(in crate::head) enum Wait {
    /// It leads; the state is there.
    Leads(LeaderTerm, StatePlace),
    /// It was told to stop.
    Stopped,
    /// It was told to read its files anew. None of them is in use, so it may as well begin again.
    Reload,
}

/// Begins again as a new process with the same arguments and number. Returns only if that fails.
pub(in crate::head) fn begin_again() -> Failure {
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    log::flush();
    let error = command.args(arguments).exec();
    let text = format!("the head cannot begin again: {error}; start it again");
    Failure::new(ExitCode::Internal, text)
}

/// Waits until this head leads, or is told something else. Meanwhile `standby` hears who leads.
///
/// # Errors
/// The settings cannot be used, or the machine has no threads.
pub(in crate::head) async fn lead(
    dir: &Path,
    config: &ClusterConfig,
    (own, signals): (&OwnAddress, &mut Signals),
    standby: Option<&Standby>,
) -> Result<Wait, Failure> {
    let Some(settings) = config.etcd(dir, own.address())? else {
        let place = StatePlace::File(paths::head_db(dir));
        return Ok(Wait::Leads(LeaderTerm::without_end(), place));
    };
    let (mut events, release) = start(&settings)?;
    let event = loop {
        let event = tokio::select! {
            event = events.recv() => event,
            _ = signals.terminate.recv() => return Ok(Wait::Stopped),
            _ = signals.interrupt.recv() => return Ok(Wait::Stopped),
            _ = signals.hangup.recv() => return Ok(Wait::Reload),
        };
        match (event, standby) {
            (Some(TermEvent::Follows(leader)), Some(standby)) => standby.follow(&leader),
            (Some(TermEvent::Follows(_)), None) => {}
            (event, _) => break event,
        }
    };
    match event {
        Some(TermEvent::Leads(guard, certainty)) => {
            tracing::info!(address = %own.address(), "this head leads");
            let term = LeaderTerm { certainty, events: Some(events), release: Some(release) };
            // Records are longer than what keeps a lease.
            let settings = Etcd { patience: Etcd::default().patience, ..settings };
            let place = StatePlace::Etcd(Box::new(settings), guard, paths::head_db(dir));
            Ok(Wait::Leads(term, place))
        }
        Some(TermEvent::Unusable(error)) => Err(TableError::Etcd(error).into()),
        _ => Err(Failure::new(ExitCode::Internal, "the thread of the head's lease is gone")),
    }
}

/// Starts the thread that keeps the lease.
fn start(
    settings: &Etcd,
) -> Result<(mpsc::UnboundedReceiver<TermEvent>, oneshot::Sender<()>), Failure> {
    let (sender, events) = mpsc::unbounded_channel();
    let (release, released) = oneshot::channel();
    let (runtime, settings) = (event_loop::make()?, settings.clone());
    let thread = std::thread::Builder::new().name("lease".to_owned());
    let run = move || {
        if let Err(error) = kumi_net::priority::prefer_this_thread() {
            tracing::info!(%error, "no preference: the lease waits for its turn on a busy machine");
        }
        tokio::task::LocalSet::new().block_on(&runtime, keep(&settings, &sender, released));
    };
    thread.spawn(run).map_err(|error| {
        let text = format!("no thread can be made: {error}; raise the limit of processes");
        Failure::new(ExitCode::MachineLimits, text)
    })?;
    Ok((events, release))
}

/// One term, from candidacy to its end. Whoever listened may be gone by then, as its process ends.
async fn keep(
    settings: &Etcd,
    events: &mpsc::UnboundedSender<TermEvent>,
    released: oneshot::Receiver<()>,
) {
    let mut candidate = match Candidate::new(settings, &settings.advertise) {
        Ok(candidate) => candidate,
        Err(error) => return drop(events.send(TermEvent::Unusable(error))),
    };
    let leadership = candidate.leadership();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = String::new();
    let session = {
        let mut win = std::pin::pin!(candidate.win());
        loop {
            tokio::select! {
                session = &mut win => break session,
                _ = look.tick() => {
                    let leader = leadership.leader();
                    if leader != known {
                        if !leader.is_empty() {
                            tracing::info!(leader, "another head leads; this one waits");
                        }
                        // Fails only when the process is about to end.
                        let _ = events.send(TermEvent::Follows(leader.clone()));
                    }
                    known = leader;
                }
            }
        }
    };
    let leads = TermEvent::Leads(session.guard.clone(), leadership.certainty());
    if events.send(leads).is_err() {
        return;
    }
    tokio::select! {
        () = session.hold() => {
            leadership.follow("");
            drop(events.send(TermEvent::Over));
        }
        Ok(()) = released => {
            session.release().await;
            drop(events.send(TermEvent::Released));
        }
    }
}
