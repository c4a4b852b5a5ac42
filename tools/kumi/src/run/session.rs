//! Session with one job: output, input and signals, over as many connections as necessary.

mod missing;
mod notices;
mod outcome;
mod replies;
mod terminal;
mod transfer;

use super::input;
use super::lines::Lines;
use super::writer::{Piece, Writer};
use crate::context::{Context, head_is_silent};
use crate::error::Error;
use crate::interrupts::{InterruptAction, InterruptEscalation, Interrupts, exit_code};
use crate::job_descriptions::{self, NodeNames};
use crate::output;
use crate::patience;
use crate::terminal::JobTerminal;
use kumi_control::message::{ClientReply, ClientRequest, JobRequest, JobState, Outcome, Stream};
use kumi_node::client::{ANSWER, Client, ClientError, Requests};
use kumi_sched::JobId;
use kumi_verdict::Explanation;
use nix::sys::signal::Signal;
pub use outcome::code_of;
use std::collections::VecDeque;
use std::fs::File;
use std::io::IsTerminal;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// After this much silence a terminal shows an unfinished line.
const PROMPT: Duration = Duration::from_millis(150);
/// Begins what programs say to a terminal, and ask it.
const ESCAPE_BYTE: u8 = 0x1b;

/// Start of a session.
pub enum Start {
    /// Submits this job.
    Submit(Box<JobRequest>),
    /// Follows an existing job.
    Follow {
        /// The job.
        job: JobId,
        /// Its name and number of ranks, if known.
        name: String,
        /// Number of ranks.
        ranks: u32,
        /// Whether to wait for more output.
        wait: bool,
    },
}

/// What the command is to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It has started the job: signals are for the ranks.
    Starter,
    /// It came to the job: what ends a command has it leave, and the job goes on.
    Guest,
    /// It shows output: signals end it.
    Watcher,
}

/// A job and the connection that follows it.
pub struct Session {
    context: Context,
    names: NodeNames,
    nodes: u32,
    start: Start,
    job: Option<JobId>,
    running: bool,
    /// Offset of the first unseen byte of the job's output.
    seen: u64,
    /// Output before this offset was shown on an earlier connection.
    shown: u64,
    /// Whether the head has answered the start on this connection.
    confirmed: bool,
    /// The user knows that it has not for a while.
    told_silent: bool,
    /// Standard input, to be read once the job runs.
    wants_input: bool,
    input: Option<mpsc::Receiver<Vec<u8>>>,
    lines: Lines,
    escalation: InterruptEscalation,
    role: Role,
    last_signal: Option<Signal>,
    kill_when_known: bool,
    /// Kind of the last reason to wait that was shown.
    waits_for: Option<&'static str>,
    /// The last deadlock that was shown.
    deadlock: Option<Explanation>,
    waiting: VecDeque<Piece>,
    /// The job has a terminal, which this one shows.
    terminal: Option<JobTerminal>,
    /// All output that was there before has come.
    current: bool,
    /// There were escape sequences in it: programs may have asked the terminal something.
    asked: bool,
    /// What was typed while there was no connection.
    typed: Vec<u8>,
    /// Where standard output goes instead, until the writer has it.
    file: Option<File>,
    /// A person reads it.
    on_terminal: bool,
    /// Output that could not be shown, in bytes.
    missing: u64,
    /// Output of the job that the head has not kept, in bytes.
    not_kept: u64,
}

/// Result of one step of the loop.
enum Event {
    Reply(Result<Option<ClientReply>, ClientError>),
    Written,
    WriteFailed(std::io::Error),
    Signal(Signal),
    Input(Option<Vec<u8>>),
    OutputPaused,
    HeadSilent,
}

/// Reason for the end of a connection.
enum ConnectionEnd {
    Over(Outcome),
    /// All output was shown, and the job goes on.
    Shown,
    /// The user leaves the job.
    Left,
    Lost,
}

impl Session {
    /// A session; nothing is sent yet.
    pub fn new(context: &Context, start: Start, label: bool) -> Result<Self, Error> {
        let on_terminal = std::io::stdout().is_terminal();
        let (ranks, job) = match &start {
            Start::Submit(request) => (request.ranks, None),
            Start::Follow { job, ranks, .. } => (*ranks, Some(*job)),
        };
        Ok(Self {
            context: context.clone(),
            names: context.node_names(),
            nodes: context.config()?.node_count(),
            start,
            job,
            running: false,
            seen: 0,
            shown: 0,
            confirmed: false,
            wants_input: false,
            input: None,
            lines: Lines::new(ranks, label, on_terminal),
            escalation: InterruptEscalation::default(),
            role: Role::Starter,
            last_signal: None,
            kill_when_known: false,
            told_silent: false,
            waits_for: None,
            deadlock: None,
            waiting: VecDeque::new(),
            terminal: None,
            current: false,
            asked: false,
            typed: Vec::new(),
            file: None,
            on_terminal,
            missing: 0,
            not_kept: 0,
        })
    }

    /// Passes standard input to rank 0.
    pub fn take_input(&mut self) {
        self.wants_input = true;
    }

    /// Makes the first signal kill the job.
    pub fn kill_at_once(&mut self) {
        self.escalation = InterruptEscalation::none();
    }

    /// Lets signals end the command instead of reaching the job.
    pub fn only_watch(&mut self) {
        self.role = Role::Watcher;
    }

    /// Lets signals that end a command leave the job; others reach it.
    pub fn be_guest(&mut self) {
        self.role = Role::Guest;
    }

    /// Follows the job to its end. The error, if any, has the exit code of the job.
    pub async fn run(mut self, client: Client) -> Result<(), Error> {
        let mut interrupts = Interrupts::listen_to(self.terminal.is_some())?;
        let mut writer = Writer::start(self.file.take())
            .map_err(|source| Error::SetUp { what: "output", source })?;
        let (mut client, mut left) = (client, false);
        let end = loop {
            match self.connection(client, &mut interrupts, &mut writer).await? {
                ConnectionEnd::Lost => client = self.reconnect(&mut interrupts).await?,
                ConnectionEnd::Over(outcome) => break Some(outcome),
                ConnectionEnd::Shown => break None,
                ConnectionEnd::Left => {
                    left = true;
                    break None;
                }
            }
        };
        self.write_rest(&writer).await;
        let failure = writer.finish().await;
        self.leave_terminal(left);
        let result = end.map_or(Ok(()), |outcome| self.verdict(&outcome));
        match failure {
            // The job's own failure matters more than unread output.
            Some(kind) => result.and(Err(Error::Output(kind.into()))),
            None => result,
        }
    }

    /// Serves one connection until it or the job ends.
    async fn connection(
        &mut self,
        client: Client,
        interrupts: &mut Interrupts,
        writer: &mut Writer,
    ) -> Result<ConnectionEnd, Error> {
        let (mut requests, replies) = client.split();
        let mut replies = replies::receive(replies);
        self.confirmed = false;
        self.shown = self.seen;
        let first = match &self.start {
            Start::Submit(request) => ClientRequest::Submit(request.clone()),
            Start::Follow { job, wait, .. } => {
                ClientRequest::Follow { job: *job, offset: self.seen, wait: *wait }
            }
        };
        if !sent(requests.send(&first).await)? {
            return Ok(ConnectionEnd::Lost);
        }
        if !self.typed.is_empty()
            && let Some(job) = self.job
        {
            let data = std::mem::take(&mut self.typed);
            lost_unless(requests.send(&ClientRequest::Input { job, data }).await)?;
        }
        loop {
            let event = self.next(&mut replies, interrupts, writer).await;
            let end = match event {
                Event::Reply(Ok(Some(reply))) => self.reply(reply, &mut requests).await?,
                Event::Reply(Ok(None) | Err(ClientError::Lost)) => Some(ConnectionEnd::Lost),
                Event::Reply(Err(error)) => return Err(error.into()),
                Event::Written => None,
                Event::WriteFailed(error) => self.write_failed(&error, &mut requests).await?,
                Event::Signal(number) => self.signal(number, &mut requests).await?,
                Event::Input(data) => self.give_input(data, &mut requests).await?,
                Event::OutputPaused => {
                    self.flush();
                    None
                }
                Event::HeadSilent => {
                    self.told_silent = true;
                    head_is_silent();
                    None
                }
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Waits for the first event. Replies wait while output waits.
    async fn next(
        &mut self,
        replies: &mut mpsc::Receiver<Result<Option<ClientReply>, ClientError>>,
        interrupts: &mut Interrupts,
        writer: &mut Writer,
    ) -> Event {
        let terminal = self.on_terminal;
        if let Some(piece) = self.waiting.pop_front() {
            // Taken out only once there is room; otherwise put back.
            tokio::select! {
                biased;
                number = interrupts.next() => {
                    self.waiting.push_front(piece);
                    return Event::Signal(number);
                }
                // Who watches a flood can stop it.
                data = next_input(&mut self.input), if self.terminal.is_some() => {
                    self.waiting.push_front(piece);
                    return Event::Input(data);
                }
                permit = writer.reserve() => {
                    if let Some(permit) = permit {
                        permit.send(piece);
                    }
                    return Event::Written;
                }
            }
        }
        tokio::select! {
            biased;
            number = interrupts.next() => Event::Signal(number),
            error = writer.failed() => Event::WriteFailed(error),
            reply = replies.recv() => Event::Reply(reply.unwrap_or(Ok(None))),
            data = next_input(&mut self.input) => Event::Input(data),
            () = tokio::time::sleep(PROMPT), if terminal && self.lines.waiting() => Event::OutputPaused,
            () = tokio::time::sleep(ANSWER), if !self.confirmed && !self.told_silent => Event::HeadSilent,
        }
    }

    /// Takes one reply of the head.
    async fn reply(
        &mut self,
        reply: ClientReply,
        requests: &mut Requests,
    ) -> Result<Option<ConnectionEnd>, Error> {
        match reply {
            ClientReply::Refused(refusal) if !self.confirmed => {
                return Err(ClientError::Refused(refusal).into());
            }
            // A signal or input for a job that has just ended.
            ClientReply::Refused(refusal) => output::note(&refusal.message),
            ClientReply::Submitted { job } => {
                self.job = Some(job);
                self.confirmed = true;
                if self.kill_when_known {
                    let kill = ClientRequest::Kill { job, grace_ns: 0 };
                    return lost_unless(requests.send(&kill).await);
                }
            }
            ClientReply::State { state, .. } => {
                self.confirmed = true;
                self.show_loss(&state);
                // One that is started again waits once more.
                self.running &= state != JobState::Queued;
                if state == JobState::Running {
                    self.now_running()?;
                    return self.take_keys(requests).await;
                }
            }
            ClientReply::Waits { reason, .. } => self.show_reason(&reason),
            ClientReply::ProgramWanted(hash) => return self.send_program(hash, requests).await,
            ClientReply::Output { rank, stream, data, offset, .. } => {
                self.take_output((rank, stream), &data, offset)?;
            }
            ClientReply::Current { .. } => return self.now_current(requests).await,
            ClientReply::OutputLost { bytes, offset, .. } => self.show_missing(bytes, offset),
            ClientReply::StartedAgain { restarts, reason, offset, .. } => {
                self.show_restart(restarts, &reason, offset);
            }
            ClientReply::NotKept { reason, .. } => self.show_not_kept(&reason),
            ClientReply::Ended { outcome, not_kept, .. } => {
                self.not_kept = not_kept;
                return Ok(Some(ConnectionEnd::Over(outcome)));
            }
            ClientReply::Done if self.only_shows() => return Ok(Some(ConnectionEnd::Shown)),
            // Answers to signals and the like.
            ClientReply::Done => {}
            // Said before, if the same job is submitted once more.
            ClientReply::Note(text) if self.job.is_none() => output::note(&text),
            ClientReply::Note(_) => {}
            ClientReply::Deadlock { report, .. } => self.show_deadlock(&report),
            other => return Err(Error::unexpected(&other)),
        }
        Ok(None)
    }

    /// A piece of a rank's output, with the spool position behind it.
    fn take_output(
        &mut self,
        (rank, stream): (u32, Stream),
        data: &[u8],
        offset: u64,
    ) -> Result<(), Error> {
        self.confirmed = true;
        self.now_running()?;
        // After a repeated submission the head reports the job from its beginning.
        if offset > self.shown {
            self.seen = offset;
            self.asked |= !self.current && data.contains(&ESCAPE_BYTE);
            let ready = self.lines.take(rank, stream, data);
            if !ready.is_empty() {
                self.waiting.push_back(Piece::Output(stream, ready));
            }
        }
        Ok(())
    }

    fn only_shows(&self) -> bool {
        matches!(self.start, Start::Follow { wait: false, .. })
    }

    fn now_running(&mut self) -> Result<(), Error> {
        if !std::mem::replace(&mut self.running, true)
            && let Some(terminal) = &mut self.terminal
        {
            terminal.enter()?;
        }
        if self.takes_input_now() && std::mem::take(&mut self.wants_input) {
            self.input = Some(input::start(None).map_err(Error::no_input)?);
        }
        Ok(())
    }

    async fn give_input(
        &mut self,
        data: Option<Vec<u8>>,
        requests: &mut Requests,
    ) -> Result<Option<ConnectionEnd>, Error> {
        if self.terminal.is_some() {
            return self.typed(data, requests).await;
        }
        let Some(data) = data else {
            self.input = None;
            return Ok(None);
        };
        let Some(job) = self.job else { return Ok(None) };
        lost_unless(requests.send(&ClientRequest::Input { job, data }).await)
    }

    async fn signal(
        &mut self,
        number: Signal,
        requests: &mut Requests,
    ) -> Result<Option<ConnectionEnd>, Error> {
        if self.role == Role::Watcher {
            return Err(Error::Silent(exit_code(number)));
        }
        if let Some(end) = self.terminal_signal(number, requests).await? {
            return Ok(end);
        }
        if self.role == Role::Guest && !matches!(number, Signal::SIGUSR1 | Signal::SIGUSR2) {
            let words = self.job_words();
            output::note(&format!("left {words}, which goes on; `kumi kill` ends it"));
            return Err(Error::Silent(exit_code(number)));
        }
        self.last_signal = Some(number);
        let reaction = self.escalation.react(number, self.running);
        let Some(job) = self.job else {
            // The head may have the job already: kill it as soon as its number is known.
            self.kill_when_known |= reaction == InterruptAction::Kill;
            return match reaction {
                InterruptAction::Leave => Err(Error::Silent(exit_code(number))),
                _ => Ok(None),
            };
        };
        let request = match reaction {
            InterruptAction::Forward => {
                ClientRequest::Signal { job, signal: u8::try_from(number as i32).unwrap_or(0) }
            }
            InterruptAction::Kill => {
                output::note(&format!("killing {}", self.job_words()));
                ClientRequest::Kill { job, grace_ns: 0 }
            }
            InterruptAction::Leave => {
                output::note(&format!("left {} while it was being killed", self.job_words()));
                return Err(Error::Silent(exit_code(number)));
            }
        };
        lost_unless(requests.send(&request).await)
    }

    /// Standard output is closed or full: ranks see a closed one as if it were theirs.
    async fn write_failed(
        &mut self,
        error: &std::io::Error,
        requests: &mut Requests,
    ) -> Result<Option<ConnectionEnd>, Error> {
        if self.terminal.is_some() {
            return self.hung_up(requests).await;
        }
        if error.kind() != std::io::ErrorKind::BrokenPipe {
            output::note(&format!(
                "the output cannot be written: {error}; the job goes on, see `kumi logs`"
            ));
            return Ok(None);
        }
        match self.job {
            Some(job) if self.role == Role::Starter => {
                let signal = u8::try_from(Signal::SIGPIPE as i32).unwrap_or(0);
                lost_unless(requests.send(&ClientRequest::Signal { job, signal }).await)
            }
            _ => Err(Error::Output(std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Tries to reach the head again. Signals end the attempts.
    async fn reconnect(&mut self, interrupts: &mut Interrupts) -> Result<Client, Error> {
        let patience = patience::without_head(&self.context);
        output::note(&patience::trying_again(patience));
        let deadline = Instant::now() + patience;
        loop {
            tokio::select! {
                // The window's size is told again when there is a connection.
                number = interrupts.next() => {
                    if matches!(number, Signal::SIGWINCH | Signal::SIGCONT) {
                        continue;
                    }
                    output::note(&format!("left {}; it may still run", self.job_words()));
                    return Err(Error::Silent(exit_code(number)));
                }
                data = next_input(&mut self.input), if self.terminal.is_some() => {
                    if self.typed_meanwhile(data)? {
                        output::note(&format!("left {}; it may still run", self.job_words()));
                        return Err(Error::Silent(exit_code(Signal::SIGINT)));
                    }
                    continue;
                }
                () = tokio::time::sleep(patience::ATTEMPTS) => {}
            }
            let job = || self.job_words();
            if let Some(client) =
                patience::attempt(&self.context, self.nodes, (deadline, job)).await?
            {
                return Ok(client);
            }
        }
    }

    fn job_words(&self) -> String {
        let name = match &self.start {
            Start::Submit(request) => &request.name,
            Start::Follow { name, .. } => name,
        };
        match self.job {
            Some(job) => job_descriptions::job(job.0, name),
            None => "the job".to_owned(),
        }
    }

    fn flush(&mut self) {
        let rest = self.lines.flush().into_iter();
        self.waiting.extend(rest.map(|(stream, data)| Piece::Output(stream, data)));
    }

    /// Passes the remaining output to the writer.
    async fn write_rest(&mut self, writer: &Writer) {
        self.flush();
        while let Some(piece) = self.waiting.pop_front() {
            if let Some(permit) = writer.reserve().await {
                permit.send(piece);
            }
        }
    }

    /// Message and exit code of an ended job.
    fn verdict(&self, outcome: &Outcome) -> Result<(), Error> {
        if self.only_shows() || self.role == Role::Watcher {
            self.note_unmarked();
            return Ok(());
        }
        let complete = self.told_of_output();
        let Some(sentence) = job_descriptions::outcome(outcome, &self.names) else {
            return complete;
        };
        if !self.ends_silently(outcome) {
            output::note(&format!("{}: {sentence}", self.job_words()));
        }
        Err(Error::Silent(code_of(outcome, self.last_signal)))
    }
}

/// The next piece of input, if input is read.
async fn next_input(input: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match input {
        Some(input) => input.recv().await,
        None => std::future::pending().await,
    }
}

/// Returns whether it was sent; a lost connection is no error here.
fn sent(result: Result<(), ClientError>) -> Result<bool, Error> {
    match result {
        Ok(()) => Ok(true),
        Err(ClientError::Lost) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn lost_unless(result: Result<(), ClientError>) -> Result<Option<ConnectionEnd>, Error> {
    // The reading side will notice too, and may still have the job's end to handle.
    sent(result).map(|_| None)
}
