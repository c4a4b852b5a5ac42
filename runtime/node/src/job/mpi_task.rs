//! The part of a job's task that looks after an MPI program: what its server says, and how its ranks end.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use kumi_control::agent::AgentEvent;
use kumi_control::message::{Contribution, ExchangeId, JobSpec, RankStatus, Refusal, RefusalKind};
use kumi_pmi::message::{Exchange, FromServer, MOST_EXCHANGE, MOST_RELAY, MOST_SENTENCE};
use kumi_sched::NodeId;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::sync::mpsc;

use super::NodeServices;
use super::mpi::{MpiLink, MpiParts, ServerMessage, Standing};
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
    /// The shims may go: it has said who their ranks are.
    ready: bool,
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
        let pid = process.pid().and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
        let number = Arc::new(AtomicI32::new(pid));
        let (reaped, watched) = (Arc::clone(&number), Rc::clone(services));
        watched.watcher.add(pid.cast_unsigned());
        tokio::task::spawn_local(async move {
            let status = process.wait().await;
            let group = reaped.swap(0, Ordering::Relaxed);
            watched.watcher.remove(group);
            tracing::debug!(?status, "the server of an MPI program ended");
        });
        let started = MpiLink::start(parts, spec, services.node, services.way_up.blocked.clone());
        let (link, messages) = match started {
            Ok((link, messages)) => (Ok(link), messages),
            Err(error) => (Err(Some(error.to_string())), mpsc::channel(1).1),
        };
        Self { link, messages, process: number, ready: false, over: false }
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
    /// Ranks have ended of which the server has not said yet how they stood.
    pub(super) fn awaits_standings(&self) -> bool {
        let link = self.mpi.as_ref().filter(|task| !task.over).map(|task| &task.link);
        self.goes_on() && matches!(link, Some(Ok(link)) if !link.asked.is_empty())
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
            FromServer::Failed(reason) | FromServer::Broken(reason) => {
                return Err(server_failed(&services, &reason));
            }
            FromServer::Exchange { exchange, places, data } => {
                self.exchange(exchange, &places, data).await?;
            }
            FromServer::Relay { to, data } => {
                let to = link.node(to).filter(|_| data.len() <= MOST_RELAY);
                if let Some(to) = to {
                    services.tell(AgentEvent::Relay { job: self.job, to, data }).await;
                }
            }
            FromServer::Joined { rank } if link.has(rank) => link.joined(rank, &services)?,
            FromServer::Finalized { rank } if link.has(rank) => link.finalized(rank),
            FromServer::Aborted { rank, code, message } if link.has(rank) => {
                self.aborted(rank, code, &message).await;
            }
            FromServer::Note { rank, text } if link.has(rank) => {
                let text = sentence(&text);
                self.say_of(rank, format!("kumi: rank {rank}: {text}\n")).await;
            }
            FromServer::Ended { rank } => self.standing(rank).await,
            // Of ranks that the job does not have here.
            FromServer::Joined { .. }
            | FromServer::Finalized { .. }
            | FromServer::Aborted { .. }
            | FromServer::Note { .. } => {}
        }
        Ok(())
    }

    async fn exchange(
        &mut self,
        exchange: Exchange,
        places: &[u32],
        data: Vec<u8>,
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
        if members.len() == 1 {
            // It is over with that: the answer waits for the server at once, and not on its way elsewhere.
            let node = self.services.node;
            self.exchanged(id, vec![Contribution { node, data }]).await;
            return Ok(());
        }
        link.contributes(exchange, data.len()).map_err(failed)?;
        self.services.tell(AgentEvent::Exchange { id, members, data }).await;
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
        self.tell_end(rank, abort_status(code)).await;
    }

    /// Whether it is not known yet how a rank stood with MPI that has ended: then the server is asked.
    pub(super) async fn asks_standing(&mut self, rank: u32, status: RankStatus) -> bool {
        let over = self.mpi.as_ref().is_none_or(|task| task.over);
        let Some(link) = MpiTask::link(&mut self.mpi) else { return false };
        if status.success() && !over && link.standing(rank) == Some(Standing::Joined) {
            link.ask(rank);
            return true;
        }
        let missing = if status.success() { None } else { link.missing.take() };
        if let Some(missing) = missing {
            self.say_of(rank, format!("kumi: {missing}\n")).await;
        }
        false
    }

    /// All that a rank said that ended with code 0 is known.
    async fn standing(&mut self, rank: u32) {
        let Some(link) = MpiTask::link(&mut self.mpi) else { return };
        if !link.asked.remove(&rank) {
            return;
        }
        let finished = link.standing(rank) == Some(Standing::Finalized);
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

    /// Nothing of the job runs any more: its folder goes.
    pub(super) fn end_mpi(&mut self) {
        self.mpi = None;
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
