//! A head from its start to its end: it waits until it leads, leads, and begins again if it leads no more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kumi_control::message::JobRecord;
use kumi_sched::JobId;

use super::HeadDaemon;
use super::copies::Standby;
use super::metrics::HeadCounters;
use super::records::JobRecords;
use super::reserve::ReserveHeld;
use super::spool::{SpoolQuota, Spools};
use super::state::{self, KnownState, LeaderTerm, OwnAddress, StatePlace, Wait};
use crate::config::ClusterConfig;
use crate::event_loop;
use crate::exit::{ExitCode, Failure};
use crate::node::setup::{raise_open_files, write_pid};
use crate::paths;
use crate::service::{self, Signals};
use crate::tls::Credentials;

/// How long the head waits for the disk when it ends.
const WRITE_REST: Duration = Duration::from_secs(3);

/// How a head ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadEnd {
    /// It was told to stop.
    Stopped,
    /// It leads no more.
    Deposed,
    /// It waited, and was told to read its files anew.
    Reload,
}

/// Runs the head of the cluster in `dir` until it is told to stop. `number` says which head it is; without it, the first whose
/// address is of this machine. `metrics` replaces what cluster.toml says of where figures are served.
///
/// A head that leads no more begins again as a new process: nothing of what it believed is left. So does one that waits when
/// it is to read its files anew.
///
/// # Errors
/// The head could not start, or failed.
pub fn run(dir: &Path, number: Option<usize>, metrics: Option<&str>) -> Result<(), Failure> {
    let runtime = event_loop::make()?;
    let tasks = tokio::task::LocalSet::new();
    let result = tasks.block_on(&runtime, lead(dir, number, metrics));
    drop(tasks);
    // A name service that hangs must not keep it from ending.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match result? {
        HeadEnd::Stopped => Ok(()),
        HeadEnd::Deposed | HeadEnd::Reload => Err(state::begin_again()),
    }
}

/// Waits until this head leads, and leads.
async fn lead(
    dir: &Path,
    number: Option<usize>,
    metrics: Option<&str>,
) -> Result<HeadEnd, Failure> {
    let config = Arc::new(ClusterConfig::load(dir)?);
    // First, since these make sure that this head runs only once, also while it waits. The lock ends with the process.
    let _lock = state::lock_folder(dir)?;
    let own = OwnAddress::take(dir, &config, number).await?;
    // One set from here to the end: what comes between two of its users is not lost.
    let mut signals = Signals::listen()?;
    // Whoever started it waits for this, and for no term.
    let pid = paths::head_pid(dir);
    if config.state.is_some() {
        write_pid(&pid)?;
        service::ready();
        service::status(&format!("a head of {} waits until it leads", config.name));
    }
    let standby = Standby::start(dir, &config, own.address())?;
    let waited = state::lead(dir, &config, (&own, &mut signals), standby.as_ref()).await;
    // Whatever comes now has the folder of output to itself.
    if let Some(standby) = standby {
        standby.stop().await;
    }
    let (term, place) = match waited? {
        Wait::Leads(term, place) => (term, place),
        Wait::Stopped => {
            remove_files(&[pid]);
            return Ok(HeadEnd::Stopped);
        }
        Wait::Reload => {
            tracing::info!("this head begins again, to read its files anew");
            return Ok(HeadEnd::Reload);
        }
    };
    take_over((dir, config), own, (term, place), (metrics, signals)).await
}

/// Reads the state, which may take any time, and leads. It may be told to stop meanwhile, or lead no more.
async fn take_over(
    (dir, config): (&Path, Arc<ClusterConfig>),
    own: OwnAddress,
    (mut term, place): (LeaderTerm, StatePlace),
    (metrics, mut signals): (Option<&str>, Signals),
) -> Result<HeadEnd, Failure> {
    prepare_process();
    let certainty = term.certainty().clone();
    let started = tokio::select! {
        started = HeadDaemon::start((dir, config), own, (&certainty, place), metrics) => started,
        _ = signals.terminate.recv() => return Ok(stop_early(dir, &mut term).await),
        _ = signals.interrupt.recv() => return Ok(stop_early(dir, &mut term).await),
        () = term.over() => {
            tracing::warn!("this head leads no more, before it was ready");
            return Ok(HeadEnd::Deposed);
        }
    };
    match started {
        Ok(mut head) => {
            head.term = term;
            head.run(signals).await
        }
        Err(failure) if !certainty.leads() => {
            tracing::warn!(%failure, "this head leads no more, before it was ready");
            Ok(HeadEnd::Deposed)
        }
        Err(failure) => {
            // Another one may be able to.
            term.release().await;
            Err(failure)
        }
    }
}

/// Gives the term back before anything was done in it.
async fn stop_early(dir: &Path, term: &mut LeaderTerm) -> HeadEnd {
    term.release().await;
    tracing::info!("stopped before it was ready");
    for file in [paths::head_socket(dir), paths::head_pid(dir), paths::web_socket(dir)] {
        // Not all of them are there yet.
        if file.exists() {
            remove_files(&[file]);
        }
    }
    HeadEnd::Stopped
}

fn remove_files(paths: &[PathBuf]) {
    for path in paths {
        if let Err(error) = fs::remove_file(path) {
            tracing::warn!(path = %path.display(), %error, "a file is left");
        }
    }
}

/// Gives the process what a head needs, as far as the machine permits.
fn prepare_process() {
    raise_open_files();
    if let Err(error) = kumi_net::priority::prefer_this_thread() {
        tracing::info!(%error, "no preference: the head waits for its turn on a busy machine");
    }
}

/// Opens the state and the output of jobs. Returns what the state holds, too.
pub(super) async fn open_state(
    dir: &Path,
    (config, credentials): (&ClusterConfig, &Credentials),
    place: StatePlace,
    counts: &Rc<HeadCounters>,
) -> Result<(JobRecords, Spools, KnownState), Failure> {
    let half_life = config.shares.of_head().map(|shares| shares.rules.half_life_ns / 1_000_000);
    let (accounts, reserve) = ((config.retention.of_usage(), half_life), paths::head_reserve(dir));
    let opened = JobRecords::open(place, accounts, reserve, Rc::clone(counts)).await?;
    let (records, mut known) = opened;
    if let Err(error) = credentials.revocations().add(&known.revoked) {
        tracing::warn!(%error, "the list of revoked certificates is not on this disk");
    }
    let reserve = Rc::clone(records.reserve());
    let mut spools = open_spools(dir, (config, &known.records), (Rc::clone(counts), reserve))?;
    if let Some(term) = known.term.take() {
        spools.begin_term(term);
    }
    Ok((records, spools, known))
}

/// The outputs of jobs that are known; others go.
fn open_spools(
    dir: &Path,
    (config, records): (&ClusterConfig, &[JobRecord]),
    counts: (Rc<HeadCounters>, ReserveHeld),
) -> Result<Spools, Failure> {
    let quota = SpoolQuota::new(config.quota.clone(), config.retention.spool_mib);
    let known: BTreeSet<JobId> = records.iter().map(|record| record.spec.job).collect();
    let opened = Spools::open(paths::spool(dir), |job| known.contains(&job), quota, counts);
    let mut spools = opened.map_err(|error| {
        let text = format!("{} cannot be used: {error}", paths::spool(dir).display());
        Failure::new(ExitCode::Io, text)
    })?;
    spools.know_all(records);
    Ok(spools)
}

impl HeadDaemon {
    /// Another head leads: nothing is done any more.
    pub(super) fn depose(&mut self) {
        (self.done, self.deposed) = (true, true);
    }

    /// Ends in order. Jobs run on.
    pub(super) async fn finish(&mut self) -> HeadEnd {
        if self.deposed {
            tracing::warn!("this head leads no more");
            remove_files(&self.files);
            return HeadEnd::Deposed;
        }
        self.note_written();
        self.write_rest().await;
        self.write_rest_of_documents().await;
        // Clients' answers are written by their tasks, which get their turn here too.
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.links.flush().await;
        self.monitor.finish();
        self.term.release().await;
        tracing::info!("stopped");
        remove_files(&self.files);
        HeadEnd::Stopped
    }

    /// Gives the disk a little time for the last records, and carries out what waits for them.
    async fn write_rest(&mut self) {
        self.write_rest_of_documents().await;
        let end = tokio::time::Instant::now() + WRITE_REST;
        while !self.records.all_written() && !self.records.has_failed() && !self.deposed {
            match tokio::time::timeout_at(end, self.records.written()).await {
                Ok(written) => self.written(written),
                Err(_) => {
                    tracing::error!("the last records are not on the disk: it does not answer");
                    return;
                }
            }
        }
    }
}
