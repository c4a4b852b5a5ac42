//! The part of a job's task that looks after an MPI program: what its server says, and how its ranks end.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use kumi_control::agent::AgentEvent;
use kumi_control::message::{Contribution, ExchangeId, JobSpec, RankStatus, Refusal, RefusalKind};
use kumi_pmi::journal;
use kumi_pmi::message::{
    Exchange, FromServer, MOST_EXCHANGE, MOST_RELAY, MOST_SENTENCE, ServerReport,
};
use kumi_sched::NodeId;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::sync::mpsc;

use super::NodeServices;
use super::mpi::{MpiFolder, MpiLink, MpiParts, MpiState, ServerMessage, Standing};
use super::process::Process;
use super::run::JobTask;
use crate::client::refusal;

/// An MPI program's server.
pub(super) struct MpiTask {
    /// None if it could not be talked to.
    link: Result<MpiLink, Option<String>>,
    messages: mpsc::Receiver<ServerMessage>,
    /// Its process; 0 once it is reaped.
    process: Arc<AtomicI32>,
    state: MpiState,
    folder: MpiFolder,
    /// The shims may go: it has said who their ranks are.
    ready: bool,
    /// A former daemon started it, and it has not said all again that this one has to hear.
    resuming: bool,
    /// It says nothing any more.
    over: bool,
}

impl MpiTask {
    /// Begins to talk with the server, and waits for its end.
    pub(super) fn start(
        parts: MpiParts,
        spec: &JobSpec,
        services: &Rc<NodeServices>,
        process: Process,
    ) -> Self {
        let MpiParts { way, folder, state } = parts;
        let process = await_server(services, process);
        let started = MpiLink::start(way, spec, services.node, services.way_up.blocked.clone());
        let (link, messages) = match started {
            Ok((link, messages)) => (Ok(link), messages),
            Err(error) => (Err(Some(error.to_string())), mpsc::channel(1).1),
        };
        let (ready, resuming, over) = (false, false, false);
        Self { link, messages, process, state, folder, ready, resuming, over }
    }

    /// The same with a server that a former daemon started, unless that needed it no more.
    pub(super) fn adopt(
        parts: MpiParts,
        spec: &JobSpec,
        services: &Rc<NodeServices>,
        process: Process,
    ) -> Self {
        if !parts.state.finished() {
            return Self {
                ready: true,
                resuming: true,
                ..Self::start(parts, spec, services, process)
            };
        }
        let MpiParts { way: _, folder, state } = parts;
        let process = await_server(services, process);
        let (link, messages) = (Err(None), mpsc::channel(1).1);
        let (ready, resuming, over) = (true, false, true);
        Self { link, messages, process, state, folder, ready, resuming, over }
    }

    /// What the server says next; none, and never again, if there is no server.
    pub(super) async fn next(task: &mut Option<Self>) -> Option<ServerMessage> {
        let task = task.as_mut().filter(|task| !task.over)?;
        match &mut task.link {
            Ok(_) => task.messages.recv().await,
            Err(reason) => reason.take().map(Err),
        }
    }

    fn link(task: &mut Option<Self>) -> Option<&mut MpiLink> {
        task.as_mut()?.link.as_mut().ok()
    }
}

/// Waits for the end of a server. Returns its number, which is 0 from then on.
fn await_server(services: &Rc<NodeServices>, process: Process) -> Arc<AtomicI32> {
    let pid = process.pid().and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
    let number = Arc::new(AtomicI32::new(pid));
    let (reaped, services, reaper) = (Arc::clone(&number), Rc::clone(services), process.reaper());
    // Who has a keeper is ended by it.
    let watched = reaper.is_none();
    if watched {
        services.watcher.add(pid.cast_unsigned());
    }
    tokio::task::spawn_local(async move {
        let status = process.wait().await;
        let group = reaped.swap(0, Ordering::Relaxed);
        if let Some(reaper) = reaper {
            reaper.reap();
        }
        if watched {
            services.watcher.remove(group);
        }
        tracing::debug!(?status, "the server of an MPI program ended");
    });
    number
}

/// How a contribution to an exchange comes.
#[derive(Clone, Copy)]
enum Contributes {
    First,
    /// A former daemon may have heard of it. The server has the whole if it is over.
    Again {
        over: bool,
    },
}

/// A sentence of a rank: printable, on one line, and not longer than it may be.
fn sentence(text: &str) -> String {
    let clean = text.trim().chars().map(|one| if one.is_control() { ' ' } else { one });
    let mut clean: String = clean.take(MOST_SENTENCE).collect();
    clean.truncate(clean.trim_end().len());
    clean
}

/// The exit code for a code of `MPI_Abort`, which is never success.
fn abort_status(code: i32) -> RankStatus {
    let code = u8::try_from(code & 0xff).unwrap_or(1);
    RankStatus::Exited(code.max(1))
}

impl JobTask {
    /// Ranks have ended of which the server has not said yet how they stood, or it may say of some that they ended the job.
    pub(super) fn awaits_standings(&self) -> bool {
        let link = self.mpi.as_ref().filter(|task| !task.over).map(|task| &task.link);
        let asked = matches!(link, Some(Ok(link)) if !link.asked.is_empty());
        self.goes_on() && (asked || self.is_resuming())
    }

    /// The server of an adopted job has not said all again that this daemon has to hear. How ranks end is told after that.
    pub(super) fn is_resuming(&self) -> bool {
        self.mpi.as_ref().is_some_and(|task| task.resuming && !task.over)
    }

    pub(super) async fn server_says(&mut self, message: ServerMessage) {
        match message {
            Ok(message) if self.goes_on() => {
                if let Err(refused) = self.server_message(message).await {
                    self.fail(refused).await;
                }
            }
            // What comes of a job that is being killed matters to nobody.
            Ok(_) => {}
            Err(reason) => self.server_over(&reason).await,
        }
    }

    async fn server_over(&mut self, reason: &str) {
        let Some(task) = &mut self.mpi else { return };
        task.over = true;
        let message = format!(
            "the server that tells the job's ranks on node {} who they are is gone ({reason}); see what it wrote",
            self.services.node
        );
        self.fail(refusal(RefusalKind::Internal, message)).await;
    }

    async fn server_message(&mut self, message: FromServer) -> Result<(), Refusal> {
        let services = Rc::clone(&self.services);
        let Some(link) = MpiTask::link(&mut self.mpi) else { return Ok(()) };
        match message {
            FromServer::Ready { env, without_pmix } => {
                link.ready(&env, without_pmix.as_deref().map(sentence))?;
                if self.mpi.as_mut().is_some_and(|task| !std::mem::replace(&mut task.ready, true)) {
                    self.one_ready().await;
                }
            }
            FromServer::Failed(reason) => return Err(server_failed(&services, &reason)),
            FromServer::Exchange { exchange, places, data } => {
                self.exchange(exchange, &places, data, Contributes::First).await?;
            }
            FromServer::ExchangeAgain { exchange, places, data, over } => {
                self.check_resuming()?;
                self.exchange(exchange, &places, data, Contributes::Again { over }).await?;
            }
            FromServer::Resumed { without_pmix } => {
                self.check_resuming()?;
                self.resumed(without_pmix).await?;
            }
            FromServer::Report { number, what } => self.told(number, what).await?,
            FromServer::Relay { to, data } => {
                let to = link.node(to).filter(|_| data.len() <= MOST_RELAY);
                if let Some(to) = to {
                    services.tell(AgentEvent::Relay { job: self.job, to, data }).await;
                }
            }
            FromServer::Ended { rank } => self.standing(rank).await,
        }
        Ok(())
    }

    /// Only a server whose former daemon is gone says something again.
    fn check_resuming(&self) -> Result<(), Refusal> {
        let unasked = || server_failed(&self.services, "it repeats what nobody has asked for");
        if self.is_resuming() { Ok(()) } else { Err(unasked()) }
    }

    /// It has said all that this daemon has to hear.
    async fn resumed(&mut self, without_pmix: Option<String>) -> Result<(), Refusal> {
        let Some(task) = &mut self.mpi else { return Ok(()) };
        task.resuming = false;
        if let Ok(link) = &mut task.link {
            link.is_without_pmix(without_pmix.as_deref().map(sentence))?;
        }
        tracing::info!(job = %self.job, "the server of its MPI ranks goes on");
        // The former daemon may have heard of it, and not told the head. Its rank need not exit by itself.
        for (rank, code) in task.state.all_aborted() {
            self.tell_end(rank, abort_status(code)).await;
        }
        self.tell_early_exits().await;
        Ok(())
    }

    /// What is told once: the server may say it again until it hears that it was heard.
    async fn told(&mut self, number: u64, what: ServerReport) -> Result<(), Refusal> {
        let Some(task) = &self.mpi else { return Ok(()) };
        let new = journal::is_new(task.state.heard(), number);
        let new = new.map_err(|error| server_failed(&self.services, &error.to_string()))?;
        if !new {
            return Ok(());
        }
        // A later daemon hears again why the server broke off, and finds in the state who aborted.
        self.take_in(what).await?;
        if let Some(task) = &mut self.mpi {
            task.state.set_heard(number);
        }
        let is_written = self.mpi.as_ref().is_some_and(|task| !task.state.is_stale());
        if let Some(link) = MpiTask::link(&mut self.mpi).filter(|_| is_written) {
            link.heard(number);
        }
        Ok(())
    }

    async fn take_in(&mut self, what: ServerReport) -> Result<(), Refusal> {
        let Some(task) = &mut self.mpi else { return Ok(()) };
        let Ok(link) = &task.link else { return Ok(()) };
        match what {
            ServerReport::Joined { rank } if link.has(rank) => {
                task.state.set_standing(rank, Standing::Joined);
                link.check_provider(&self.services)?;
            }
            ServerReport::Finalized { rank } if link.has(rank) => {
                task.state.set_standing(rank, Standing::Finalized);
            }
            ServerReport::Aborted { rank, code, message } if link.has(rank) => {
                self.aborted(rank, code, &message).await;
            }
            ServerReport::Note { rank, text } if link.has(rank) => {
                let text = sentence(&text);
                self.say_of(rank, format!("kumi: rank {rank}: {text}\n")).await;
            }
            ServerReport::Broken(reason) => return Err(server_failed(&self.services, &reason)),
            // Of ranks that the job does not have here.
            ServerReport::Joined { .. }
            | ServerReport::Finalized { .. }
            | ServerReport::Aborted { .. }
            | ServerReport::Note { .. } => {}
        }
        Ok(())
    }

    async fn exchange(
        &mut self,
        exchange: Exchange,
        places: &[u32],
        data: Vec<u8>,
        comes: Contributes,
    ) -> Result<(), Refusal> {
        let Some(link) = MpiTask::link(&mut self.mpi) else { return Ok(()) };
        if data.len() > MOST_EXCHANGE {
            let message = format!(
                "ranks on node {} exchange {} bytes when they start, and all of a job may exchange {} MiB; run it with fewer ranks",
                self.services.node,
                data.len(),
                MOST_EXCHANGE >> 20
            );
            return Err(refusal(RefusalKind::TooLarge, message));
        }
        let failed = |error: String| server_failed(&self.services, &error);
        let members = link.members(places).map_err(failed)?;
        let id = link.id(exchange);
        let over = matches!(comes, Contributes::Again { over: true });
        if members.len() == 1 && !over {
            // It is over with that: the answer waits for the server at once, and not on its way elsewhere.
            let node = self.services.node;
            self.exchanged(id, vec![Contribution { node, data }]).await;
            return Ok(());
        }
        if !over {
            link.contributes(exchange, data.len()).map_err(failed)?;
        }
        let event = match comes {
            Contributes::First => AgentEvent::Exchange { id, members, data },
            Contributes::Again { over } => {
                AgentEvent::ExchangeAgain { id, members, data, awaited: !over }
            }
        };
        self.services.tell(event).await;
        Ok(())
    }

    /// A rank ends the job: it is told of before the rank ends, and the others are killed.
    async fn aborted(&mut self, rank: u32, code: i32, message: &str) {
        let said = match sentence(message) {
            // Open MPI's word for nothing.
            said if said == "N/A" => String::new(),
            said => said,
        };
        let colon = if said.is_empty() { "" } else { ": " };
        self.say_of(
            rank,
            format!("kumi: rank {rank} called MPI_Abort with code {code}{colon}{said}\n"),
        )
        .await;
        if let Some(task) = &mut self.mpi {
            task.state.set_aborted(rank, code);
        }
        self.tell_end(rank, abort_status(code)).await;
    }

    /// How a rank ended whose process ended so, as far as the server counts there. None if it is asked first.
    pub(super) async fn mpi_status(&mut self, rank: u32, status: RankStatus) -> Option<RankStatus> {
        let Some(task) = &mut self.mpi else { return Some(status) };
        let link = task.link.as_mut().ok().filter(|_| !task.over);
        if let Some(code) = task.state.aborted(rank) {
            return Some(abort_status(code));
        }
        if status.success() {
            let joined = task.state.standing(rank) == Some(Standing::Joined);
            return match link {
                Some(link) if joined => {
                    link.ask(rank);
                    None
                }
                _ => Some(if joined { RankStatus::NotFinalized } else { status }),
            };
        }
        let missing = link.and_then(|link| link.missing.take());
        if let Some(missing) = missing {
            self.say_of(rank, format!("kumi: {missing}\n")).await;
        }
        Some(status)
    }

    /// All that a rank said that ended with code 0 is known.
    async fn standing(&mut self, rank: u32) {
        let Some(link) = MpiTask::link(&mut self.mpi) else { return };
        if !link.asked.remove(&rank) {
            return;
        }
        let standing = self.mpi.as_ref().and_then(|task| task.state.standing(rank));
        let finished = standing == Some(Standing::Finalized);
        let status = if finished { RankStatus::Exited(0) } else { RankStatus::NotFinalized };
        self.tell_end(rank, status).await;
    }

    pub(super) async fn exchanged(&mut self, id: ExchangeId, parts: Vec<Contribution>) {
        if let Some(link) = MpiTask::link(&mut self.mpi) {
            link.exchanged(id, parts);
        }
        self.check_waiting().await;
    }

    pub(super) async fn relayed(&mut self, from: NodeId, data: Vec<u8>) {
        if let Some(link) = MpiTask::link(&mut self.mpi) {
            link.relayed(from, data);
        }
        self.check_waiting().await;
    }

    /// A server that takes nothing must not fill the daemon's memory.
    async fn check_waiting(&mut self) {
        if MpiTask::link(&mut self.mpi).is_some_and(|link| link.overfull()) {
            let refused =
                server_failed(&self.services, "their server does not take what is for it");
            self.fail(refused).await;
        }
    }

    pub(super) fn kill_server(&self) {
        let Some(task) = &self.mpi else { return };
        let process = task.process.load(Ordering::Relaxed);
        if process > 0 {
            // It leads a group. Gone already is as good.
            let _ = killpg(Pid::from_raw(process), Signal::SIGKILL);
        }
    }

    /// All ranks have ended, and the server has said how: a later daemon asks no server.
    pub(super) fn end_server(&mut self) {
        if self.goes_on()
            && let Some(task) = &mut self.mpi
        {
            task.state.set_finished();
        }
    }

    /// Nothing of the job runs any more: its folder goes.
    pub(super) fn end_mpi(&mut self) {
        if let Some(task) = self.mpi.take() {
            task.folder.remove();
        }
    }
}

/// `reason` may be the server's.
fn server_failed(services: &NodeServices, reason: &str) -> Refusal {
    let (node, reason) = (services.node, sentence(reason));
    let message = format!("the ranks on node {node} cannot be told who they are: {reason}");
    refusal(RefusalKind::Internal, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_is_never_success() {
        assert_eq!(abort_status(7), RankStatus::Exited(7));
        assert_eq!(abort_status(-1), RankStatus::Exited(255));
        assert_eq!(abort_status(0), RankStatus::Exited(1));
        assert_eq!(abort_status(512), RankStatus::Exited(1));
    }

    #[test]
    fn sentences_of_ranks_are_one_short_line() {
        assert_eq!(sentence(" a\nb\u{1b}[31m \n"), "a b [31m");
        assert_eq!(sentence(&"x".repeat(9_999)).len(), MOST_SENTENCE);
    }
}
