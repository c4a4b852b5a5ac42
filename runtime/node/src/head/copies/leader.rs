//! The leader's side: which standbys are in sync, and what waits for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use kumi_control::copying::{CopiedJob, CopiedLog, MOST_TERMS};
use kumi_control::head::LinkId;
use kumi_control::message::{Command, HeadStatus, JobRecord, Nanos, NodeSet};
use kumi_control::stall_tolerant_clock::StallTolerantClock;
use kumi_leadership::Copies;
use kumi_sched::JobId;
use tokio::sync::mpsc;

use super::session::{Session, SessionEvent, SessionReport};
use super::{others, refuse};
use crate::clock::boottime;
use crate::config::ClusterConfig;
use crate::head::is_over;
use crate::head::metrics::HeadCounters;
use crate::head::records::WriteNumber;
use crate::head::spool::{Spools, WrittenOutput};
use crate::head::state::KnownState;
use crate::link::AcceptedStream;
use crate::paths;

/// Between looks whether a standby is late.
pub(in crate::head) const LOOK: Duration = Duration::from_millis(100);
/// Logs that are opened at once for a standby that has connected.
const OPENED_AT_ONCE: usize = 8;
/// Events of standbys that may wait for the main loop.
const EVENTS: usize = 256;

/// A command to nodes, which waits.
pub(super) type Held = (LinkId, NodeSet, Command);

/// Copies at other heads, if there are any.
pub(in crate::head) struct OutputCopies(Option<Leader>);

/// What a leader with standbys has.
struct Leader {
    own: SocketAddr,
    term: u64,
    /// All other heads.
    heads: BTreeSet<SocketAddr>,
    copies: Copies<SocketAddr, JobId>,
    clock: StallTolerantClock,
    sessions: BTreeMap<SocketAddr, Connected>,
    last_session: u64,
    tell: mpsc::Sender<SessionReport>,
    told: mpsc::Receiver<SessionReport>,
    /// Acknowledgements that wait, each with the end of the log at which it came.
    held: BTreeMap<JobId, VecDeque<(u64, Held)>>,
    /// How much jobs had written, for heads of later terms: it waits until it is acknowledged.
    counts: BTreeMap<JobId, (u64, WrittenOutput)>,
    /// The write with the list of those that are in sync.
    write: Option<WriteNumber>,
    figures: Rc<HeadCounters>,
    folder: PathBuf,
    silence: Duration,
}

/// A standby that has connected.
struct Connected {
    session: Session,
    /// What it has, as it says.
    has: BTreeMap<JobId, CopiedLog>,
    /// It has said all.
    said_all: bool,
    /// Jobs whose log is not opened for it yet.
    unopened: BTreeSet<JobId>,
}

fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

impl OutputCopies {
    /// Of a head that has no others, or has its state in a file.
    pub(in crate::head) fn none() -> Self {
        Self(None)
    }

    /// Those that the leader at `own` makes in this term; none if it is the only head. Before it these were in sync.
    pub(in crate::head) fn new(
        (dir, config, own): (&Path, &ClusterConfig, SocketAddr),
        (spools, figures): (&mut Spools, &Rc<HeadCounters>),
        known: &KnownState,
    ) -> Self {
        let heads: BTreeSet<SocketAddr> = others(&config.heads(), own).collect();
        let Some(term) = spools.term_number().filter(|_| !heads.is_empty()) else {
            return Self::none();
        };
        spools.begin_news();
        let clock = StallTolerantClock::new(boottime(), nanos(LOOK));
        let patience = nanos(config.standby_patience());
        let is_head = |head: &&SocketAddr| **head == own || heads.contains(*head);
        let in_sync: BTreeSet<SocketAddr> = known.in_sync.iter().filter(is_head).copied().collect();
        let standbys = in_sync.iter().filter(|head| **head != own).count();
        figures.standbys.set(Some((heads.len(), standbys)));
        let copies = Copies::new(own, in_sync, patience, clock.elapsed());
        let (tell, told) = mpsc::channel(EVENTS);
        Self(Some(Leader {
            own,
            term,
            heads,
            copies,
            clock,
            sessions: BTreeMap::new(),
            last_session: 0,
            tell,
            told,
            held: BTreeMap::new(),
            counts: BTreeMap::new(),
            write: None,
            figures: Rc::clone(figures),
            folder: paths::spool(dir),
            silence: config.silence(),
        }))
    }

    /// Whether there are other heads.
    pub(in crate::head) fn are_made(&self) -> bool {
        self.0.is_some()
    }

    /// All heads, for those who look; none if there is only one.
    pub(in crate::head) fn heads(&self) -> Vec<HeadStatus> {
        let Some(leader) = &self.0 else { return Vec::new() };
        let own = HeadStatus { address: leader.own, leads: true, in_sync: true };
        let in_sync = leader.copies.in_sync();
        let others = leader.heads.iter().map(|&address| HeadStatus {
            address,
            leads: false,
            in_sync: in_sync.contains(&address),
        });
        let mut heads: Vec<HeadStatus> = others.chain([own]).collect();
        heads.sort_unstable_by_key(|head| head.address);
        heads
    }

    /// How long to wait at most until somebody looks whether a standby is late.
    pub(in crate::head) fn next_look(&self) -> Option<Duration> {
        self.0.as_ref()?.copies.next_deadline().map(|_| LOOK)
    }

    /// A head connects.
    pub(super) fn connect<'r>(
        &mut self,
        head: SocketAddr,
        stream: AcceptedStream,
        records: impl Iterator<Item = &'r JobRecord>,
    ) {
        let Some(leader) = self.0.as_mut().filter(|leader| leader.heads.contains(&head)) else {
            let why = format!(
                "cluster.toml of this head does not name {head} among `heads`; all hosts must have the same cluster.toml"
            );
            tokio::task::spawn_local(async move { drop(refuse(stream, why).await) });
            return;
        };
        leader.connect(head, stream, records);
    }

    /// Waits until a standby has said something, or there is more to do for one.
    pub(in crate::head) async fn told(&mut self) -> Option<SessionReport> {
        match &mut self.0 {
            None => std::future::pending().await,
            Some(leader) if leader.sessions.values().any(|one| !one.unopened.is_empty()) => None,
            Some(leader) => leader.told.recv().await,
        }
    }

    /// Takes note of what a standby said, and goes on with those that have connected.
    pub(in crate::head) fn take(&mut self, told: Option<SessionReport>, spools: &mut Spools) {
        let Some(leader) = &mut self.0 else { return };
        if let Some(told) = told {
            leader.take(told, spools);
        }
        leader.open_some(spools);
    }

    /// Passes on what has come since the last time.
    pub(super) fn take_news(&mut self, spools: &mut Spools) {
        if let Some(leader) = &mut self.0 {
            leader.take_news(spools);
        }
    }

    /// The list of those in sync that is to be recorded.
    pub(super) fn next_list(&mut self) -> Option<BTreeSet<SocketAddr>> {
        self.0.as_mut()?.copies.next_list()
    }

    /// It is in this write.
    pub(super) fn list_is_written(&mut self, write: WriteNumber) {
        if let Some(leader) = &mut self.0 {
            leader.write = Some(write);
        }
    }

    /// Takes note of a list that is recorded.
    pub(super) fn note_written(&mut self, is_recorded: impl Fn(WriteNumber) -> bool) {
        let Some(leader) = &mut self.0 else { return };
        if leader.write.take_if(|write| is_recorded(*write)).is_some() {
            leader.copies.recorded();
            leader.tell_list();
        }
    }

    /// What is sent now: the command, unless it acknowledges what standbys do not have yet.
    pub(super) fn hold(&mut self, spools: &mut Spools, held: Held) -> Option<Held> {
        let (Some(leader), Command::OutputKept { job, .. }) = (&mut self.0, &held.2) else {
            return Some(held);
        };
        let job = job.number();
        let end = spools.data_end(job);
        if !leader.held.contains_key(&job) && leader.copies.acknowledge(job, end) {
            return Some(held);
        }
        leader.held.entry(job).or_default().push_back((end, held));
        None
    }

    /// The acknowledgements that need not wait any more.
    pub(super) fn release(&mut self) -> Vec<Held> {
        let Some(leader) = &mut self.0 else { return Vec::new() };
        let mut free = Vec::new();
        let copies = &mut leader.copies;
        leader.held.retain(|&job, waiting| {
            while waiting.front().is_some_and(|(end, _)| copies.acknowledge(job, *end)) {
                free.extend(waiting.pop_front().map(|(_, held)| held));
            }
            !waiting.is_empty()
        });
        free
    }

    /// How much a job that is over has written, if heads of later terms do not know yet. Nodes send nothing of it again, so it counts
    /// whether it is acknowledged or not.
    pub(in crate::head) fn count_at_end(
        &mut self,
        job: JobId,
        spools: &mut Spools,
    ) -> Option<(JobId, WrittenOutput)> {
        // What waits was counted before, and must not be recorded after this.
        let waiting = self.0.as_mut().and_then(|leader| leader.counts.remove(&job));
        spools.written_by(job).or(waiting.map(|(_, written)| (job, written)))
    }

    /// How much jobs have written that is acknowledged, of which heads of later terms do not know yet.
    pub(super) fn counts(&mut self, spools: &mut Spools) -> Vec<(JobId, WrittenOutput)> {
        let Some(leader) = &mut self.0 else { return spools.written(|_| true) };
        let (counts, copies) = (&mut leader.counts, &mut leader.copies);
        for (job, written) in spools.written(|job| !counts.contains_key(&job)) {
            counts.insert(job, (spools.data_end(job), written));
        }
        let mut ready = Vec::new();
        counts.retain(|&job, &mut (end, written)| {
            let is_acknowledged = copies.acknowledge(job, end);
            ready.extend(is_acknowledged.then_some((job, written)));
            !is_acknowledged
        });
        ready
    }
}

impl Leader {
    fn connect<'r>(
        &mut self,
        head: SocketAddr,
        stream: AcceptedStream,
        records: impl Iterator<Item = &'r JobRecord>,
    ) {
        self.disconnect(head);
        self.last_session += 1;
        let copied = |record: &JobRecord| {
            let (job, uid) = (record.spec.job, record.spec.user.uid);
            (job, CopiedJob { job, uid, over: is_over(record) })
        };
        let session = Session::start(
            (head, self.last_session),
            (stream, self.silence),
            (self.term, self.folder.clone()),
            records.map(copied).collect(),
            self.tell.clone(),
        );
        self.copies.connected(head, self.clock.elapsed());
        let (has, unopened) = Default::default();
        let connected = Connected { session, has, said_all: false, unopened };
        self.sessions.insert(head, connected);
        tracing::info!(%head, "a head that waits copies output");
    }

    fn disconnect(&mut self, head: SocketAddr) {
        if self.sessions.remove(&head).is_some() {
            self.copies.gone(&head, self.clock.elapsed());
        }
    }

    fn take(&mut self, told: SessionReport, spools: &mut Spools) {
        let (head, session, event) = told;
        let now = self.clock.elapsed();
        let Some(connected) = self.sessions.get_mut(&head) else { return };
        if connected.session.number() != session {
            return;
        }
        match event {
            SessionEvent::Has(_) | SessionEvent::HasAll if connected.said_all => {}
            // Of jobs that nobody knows nothing is copied.
            SessionEvent::Has(logs) => {
                let known = |log: &CopiedLog| {
                    connected.session.knows(log.job) && log.ends.len() <= MOST_TERMS
                };
                let known: Vec<CopiedLog> = logs.into_iter().filter(known).collect();
                connected.has.extend(known.into_iter().map(|log| (log.job, log)));
            }
            SessionEvent::HasAll => {
                connected.said_all = true;
                connected.unopened = spools.jobs();
                connected.unopened.extend(connected.has.keys());
                if connected.unopened.is_empty() {
                    self.copies.introduced(&head);
                }
            }
            SessionEvent::Taken { job, end } => self.copies.taken(&head, job, end, now),
            SessionEvent::Gone(error) => {
                tracing::warn!(%head, error, "a head that waits copies output no more");
                self.disconnect(head);
            }
        }
    }

    /// Opens some of the logs that a standby may lack.
    fn open_some(&mut self, spools: &mut Spools) {
        let now = self.clock.elapsed();
        for (head, connected) in &mut self.sessions {
            if connected.unopened.is_empty() {
                continue;
            }
            for _ in 0..OPENED_AT_ONCE {
                let Some(job) = connected.unopened.pop_first() else { break };
                let (log, end) = spools.log(job);
                let has = connected.has.remove(&job);
                let (common, cut) = has.map_or((0, false), |has| spools.compare(&has));
                self.copies.extended(job, end, now);
                self.copies.taken(head, job, common, now);
                if cut {
                    connected.session.cut(job, common);
                }
                connected.session.extended(job, log, common);
            }
            if connected.unopened.is_empty() {
                self.copies.introduced(head);
            }
        }
    }

    fn take_news(&mut self, spools: &mut Spools) {
        let now = self.clock.advance(boottime());
        let news = spools.take_news();
        for job in news.emptied {
            self.copies.forget(job, now);
        }
        for job in news.extended {
            let (log, end) = spools.log(job);
            self.copies.extended(job, end, now);
            // Of others nothing is known yet: their turn comes.
            let is_open = |one: &&Connected| one.said_all && !one.unopened.contains(&job);
            for connected in self.sessions.values().filter(is_open) {
                connected.session.extended(job, log.clone(), 0);
            }
        }
        for connected in self.sessions.values() {
            connected.session.known(&news.known, &news.discarded);
        }
        for job in news.discarded {
            self.copies.forget(job, now);
            self.held.remove(&job);
            self.counts.remove(&job);
        }
        self.copies.advance(now);
    }

    /// The log says who has what is acknowledged from now on.
    fn tell_list(&self) {
        let in_sync = self.copies.in_sync();
        let standbys: Vec<String> =
            in_sync.iter().filter(|head| **head != self.own).map(SocketAddr::to_string).collect();
        self.figures.standbys.set(Some((self.heads.len(), standbys.len())));
        if standbys.is_empty() {
            tracing::warn!(
                "no other head is in sync: what ranks write from now on is only here, and missing if this machine is lost"
            );
        } else {
            tracing::info!(
                standbys = standbys.join(", "),
                "in sync: these heads have all output that is acknowledged"
            );
        }
    }
}
