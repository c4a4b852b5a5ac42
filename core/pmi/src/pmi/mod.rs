//! PMI-1 and PMI-2: the ranks of a node, as a state machine.
//!
//! PMI-1 begins with a line; a rank that asks for version 2 in it speaks PMI-2 from then on. Both lead to the same commands.

pub mod command;
pub mod one;
pub mod two;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::key_values::{KeyValues, LONGEST_KEY, LONGEST_VALUE};
use crate::mapping::process_mapping;
use crate::message::ServedJob;
use command::{Command, Reply};

/// The key of the mapping of ranks to nodes.
const MAPPING: &str = "PMI_process_mapping";
/// Most pairs that ranks of a node put for each other.
const MOST_NODE_PAIRS: usize = 1_024;

/// Why a rank is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedCommand {
    /// Nothing here does that.
    #[error("it asks for {0:?}, which PMI-1 and PMI-2 do not have")]
    Unknown(String),
    /// A part is missing or no number.
    #[error("a command lacks {0}")]
    Lacks(&'static str),
    /// Longer than commands are.
    #[error("a command is too long")]
    TooLong,
    /// It is no text, or begins with no length.
    #[error("a command is no text")]
    NoText,
    /// Before `init`, or after it once more.
    #[error("a command comes at the wrong time")]
    Order,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a local rank these bytes.
    Send(usize, String),
    /// All ranks here have put their pairs: exchange these bytes, with this number.
    Exchange(u32, Vec<u8>),
    /// A local rank has begun.
    Joined(usize),
    /// A local rank has finished; its answer comes behind.
    Finalized(usize),
    /// A local rank ends the job.
    Aborted(usize, i32, String),
    /// A local rank wants more ranks.
    SpawnRefused(usize),
    /// A local rank publishes a name; [`Ranks::published`] answers.
    Publish(usize, String, String),
    /// A local rank looks for a name; [`Ranks::looked_up`] answers.
    Lookup(usize, String),
    /// A local rank wants a name to be forgotten; [`Ranks::unpublished`] answers.
    Unpublish(usize, String),
    /// A local rank is not understood: its connection is to be closed.
    Close(usize, MalformedCommand),
    /// The job cannot go on, and why.
    Broken(String),
}

/// The connection of a rank.
#[derive(Debug, Default)]
struct Session {
    buffer: Vec<u8>,
    /// 0 before `init`.
    version: u32,
    in_spawn: bool,
    thread: Option<String>,
    /// The key that it waits for.
    waits_for: Option<String>,
    fenced: bool,
    closed: bool,
}

impl Session {
    /// The next command that is there whole.
    fn take(&mut self) -> Result<Option<Command>, MalformedCommand> {
        if self.version == 2 { self.take_two() } else { self.take_one() }
    }

    fn take_one(&mut self) -> Result<Option<Command>, MalformedCommand> {
        loop {
            let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') else {
                let long = self.buffer.len() >= one::LONGEST_LINE;
                return if long { Err(MalformedCommand::TooLong) } else { Ok(None) };
            };
            if end >= one::LONGEST_LINE {
                return Err(MalformedCommand::TooLong);
            }
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = core::str::from_utf8(&line[..end]).map_err(|_| MalformedCommand::NoText)?;
            if let Some(command) = one::parse(line, &mut self.in_spawn)? {
                return Ok(Some(command));
            }
        }
    }

    fn take_two(&mut self) -> Result<Option<Command>, MalformedCommand> {
        let Some(length) = self.buffer.get(..two::LENGTH) else { return Ok(None) };
        let length = core::str::from_utf8(length).ok().and_then(|text| text.trim().parse().ok());
        let length: usize = length.ok_or(MalformedCommand::NoText)?;
        if length > two::LONGEST {
            return Err(MalformedCommand::TooLong);
        }
        let Some(text) = self.buffer.get(two::LENGTH..two::LENGTH + length) else {
            return Ok(None);
        };
        let text = core::str::from_utf8(text).map_err(|_| MalformedCommand::NoText)?;
        let two::Message { command, thread } = two::parse(text)?;
        self.buffer.drain(..two::LENGTH + length);
        self.thread = thread;
        Ok(Some(command))
    }
}

/// The ranks of a node that speak PMI.
#[derive(Debug)]
pub struct Ranks {
    first: u32,
    size: u32,
    space: String,
    mapping: String,
    sessions: Vec<Session>,
    values: KeyValues,
    node_values: BTreeMap<String, String>,
    /// Exchanges that have begun.
    exchanges: u32,
    actions: VecDeque<Action>,
}

impl Ranks {
    /// The ranks of this node of a job, none of which has said anything.
    #[must_use]
    pub fn new(job: &ServedJob) -> Self {
        let (first, count) = job.own().map_or((0, 0), |own| (own.first, job.pmi.len()));
        Self {
            first,
            size: job.ranks,
            space: format!("kumi_{}", job.job),
            mapping: process_mapping(&job.nodes),
            sessions: (0..count).map(|_| Session::default()).collect(),
            values: KeyValues::default(),
            node_values: BTreeMap::new(),
            exchanges: 0,
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Bytes of a local rank.
    pub fn received(&mut self, local: usize, bytes: &[u8]) {
        let Some(session) = self.sessions.get_mut(local).filter(|session| !session.closed) else {
            return;
        };
        session.buffer.extend_from_slice(bytes);
        loop {
            let Some(session) = self.sessions.get_mut(local).filter(|session| !session.closed)
            else {
                return;
            };
            let taken = session.take();
            let done = match taken {
                Ok(Some(command)) => self.command(local, command),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                self.close(local, error);
            }
        }
    }

    /// A local rank says nothing any more.
    pub fn gone(&mut self, local: usize) {
        if let Some(session) = self.sessions.get_mut(local) {
            session.closed = true;
        }
    }

    fn close(&mut self, local: usize, error: MalformedCommand) {
        self.gone(local);
        self.actions.push_back(Action::Close(local, error));
    }

    fn reply(&mut self, local: usize, reply: &Reply) {
        let Some(session) = self.sessions.get(local).filter(|session| !session.closed) else {
            return;
        };
        let text = match (session.version, reply) {
            // What comes next is of the other version.
            (_, Reply::Init { .. }) | (0 | 1, _) => one::write(reply),
            _ => two::write(reply, session.thread.as_deref()),
        };
        self.actions.push_back(Action::Send(local, text));
    }

    fn command(&mut self, local: usize, command: Command) -> Result<(), MalformedCommand> {
        let session = self.sessions.get_mut(local).ok_or(MalformedCommand::Order)?;
        let begins = matches!(command, Command::Init { .. });
        if begins == (session.version > 0) {
            return Err(MalformedCommand::Order);
        }
        let rank = self.first.saturating_add(u32::try_from(local).unwrap_or(u32::MAX));
        match command {
            Command::Init { version, .. } => {
                let version = if version == 2 { 2 } else { 1 };
                session.version = version;
                self.actions.push_back(Action::Joined(local));
                self.reply(local, &Reply::Init { version });
            }
            Command::FullInit => self.reply(local, &Reply::FullInit { rank, size: self.size }),
            Command::Maxes => self.reply(local, &Reply::Maxes),
            Command::AppNumber => self.reply(local, &Reply::AppNumber),
            Command::SpaceName => self.reply(local, &Reply::SpaceName(self.space.clone())),
            Command::UniverseSize => self.reply(local, &Reply::UniverseSize(self.size)),
            Command::Put { key, value } => {
                let done = self.values.put(&key, &value).map_err(|error| error.to_string());
                self.reply(local, &Reply::Put(done));
            }
            Command::Get { key } => self.reply(local, &Reply::Get(self.value(&key))),
            Command::JobAttribute { key } => {
                let value = match key.as_str() {
                    "universeSize" => Some(self.size.to_string()),
                    other => self.value(other),
                };
                self.reply(local, &Reply::JobAttribute(value));
            }
            Command::PutNode { key, value } => self.put_node(local, key, value),
            Command::GetNode { key, wait } => self.get_node(local, key, wait),
            Command::Fence => return self.fence(local),
            Command::Publish { name, port } => {
                self.actions.push_back(Action::Publish(local, name, port));
            }
            Command::Lookup { name } => self.actions.push_back(Action::Lookup(local, name)),
            Command::Unpublish { name } => self.actions.push_back(Action::Unpublish(local, name)),
            Command::Spawn { last } => self.refuse_spawn(local, last),
            Command::Finalize => {
                self.actions.push_back(Action::Finalized(local));
                self.reply(local, &Reply::Finalize);
            }
            Command::Abort { code, message } => {
                self.actions.push_back(Action::Aborted(local, code, message));
            }
        }
        Ok(())
    }

    fn value(&self, key: &str) -> Option<String> {
        if key == MAPPING {
            return Some(self.mapping.clone());
        }
        self.values.get(key).map(String::from)
    }

    fn refuse_spawn(&mut self, local: usize, last: bool) {
        if last {
            self.actions.push_back(Action::SpawnRefused(local));
            self.reply(local, &Reply::SpawnRefused);
        }
    }

    fn put_node(&mut self, local: usize, key: String, value: String) {
        let fits = key.len() <= LONGEST_KEY && value.len() <= LONGEST_VALUE;
        if !fits
            || (self.node_values.len() >= MOST_NODE_PAIRS && !self.node_values.contains_key(&key))
        {
            return self.close(local, MalformedCommand::TooLong);
        }
        self.reply(local, &Reply::PutNode);
        for other in 0..self.sessions.len() {
            if self.sessions[other].waits_for.as_ref() == Some(&key) {
                self.sessions[other].waits_for = None;
                self.reply(other, &Reply::GetNode(Some(value.clone())));
            }
        }
        self.node_values.insert(key, value);
    }

    fn get_node(&mut self, local: usize, key: String, wait: bool) {
        let value = self.node_values.get(&key).cloned();
        if value.is_none() && wait {
            if let Some(session) = self.sessions.get_mut(local) {
                session.waits_for = Some(key);
            }
            return;
        }
        self.reply(local, &Reply::GetNode(value));
    }

    /// A rank has put its pairs. The last one of the node begins the exchange.
    fn fence(&mut self, local: usize) -> Result<(), MalformedCommand> {
        let session = self.sessions.get_mut(local).ok_or(MalformedCommand::Order)?;
        if core::mem::replace(&mut session.fenced, true) {
            return Err(MalformedCommand::Order);
        }
        if self.sessions.iter().all(|session| session.fenced) {
            match self.values.take_fresh() {
                Ok(data) => {
                    self.actions.push_back(Action::Exchange(self.exchanges, data));
                    self.exchanges = self.exchanges.saturating_add(1);
                }
                Err(error) => self.actions.push_back(Action::Broken(error.to_string())),
            }
        }
        Ok(())
    }

    /// All nodes have contributed to the exchange that was begun last.
    pub fn exchanged(&mut self, parts: &[Vec<u8>]) {
        if let Err(reason) = self.values.merge(parts) {
            return self.actions.push_back(Action::Broken(reason));
        }
        for local in 0..self.sessions.len() {
            self.sessions[local].fenced = false;
            self.reply(local, &Reply::Fence);
        }
    }

    /// Answer to [`Action::Publish`].
    pub fn published(&mut self, local: usize, done: Result<(), String>) {
        self.reply(local, &Reply::Publish(done));
    }

    /// Answer to [`Action::Lookup`].
    pub fn looked_up(&mut self, local: usize, value: Option<String>) {
        self.reply(local, &Reply::Lookup(value));
    }

    /// Answer to [`Action::Unpublish`].
    pub fn unpublished(&mut self, local: usize, done: Result<(), String>) {
        self.reply(local, &Reply::Unpublish(done));
    }
}

#[cfg(test)]
mod tests;
