//! Questions to and from the servers of other nodes: published names, and what ranks told.

use std::collections::HashMap;

use kumi_pmi::message::{MOST_RELAY, ServerReport};
use kumi_pmi::peer::{Answer, Names, PeerMessage, Question, Questions};

use super::{Server, ServerError};
use crate::ffi;
use crate::pmix::{LookupReply, ModexReply, OpReply};

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Asker {
    /// A rank by PMIx.
    Op(OpReply),
    /// A rank by PMIx, for the value of this name.
    Lookup(String, LookupReply),
    /// The library.
    Modex(ModexReply),
    /// A local rank by PMI that publishes a name.
    PmiPublish(usize),
    /// A local rank by PMI that looks for a name.
    PmiLookup(usize),
    /// A local rank by PMI that wants a name to be forgotten.
    PmiUnpublish(usize),
}

/// What is asked and not answered.
pub(super) struct Peers {
    own: u32,
    names: Names,
    questions: Questions<Asker>,
    next: u64,
    /// Questions of others that the library has: by its number, who asks and as which request.
    asked: HashMap<u64, (u32, u64)>,
}

impl Peers {
    pub(super) fn new(own: u32) -> Self {
        let (names, questions) = (Names::default(), Questions::default());
        Self { own, names, questions, next: 0, asked: HashMap::new() }
    }

    /// Questions that are asked again now.
    pub(super) fn due(&mut self, now_ms: u64) -> Vec<(u32, PeerMessage)> {
        self.questions.due(now_ms)
    }

    /// When the next one is.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.questions.next_ms()
    }
}

fn status(answer: &Answer) -> ffi::Status {
    match answer {
        Answer::Done | Answer::Value(_) | Answer::Data(_) => ffi::SUCCESS,
        Answer::NotFound => ffi::ERR_NOT_FOUND,
        Answer::Taken => ffi::ERR_DUPLICATE_KEY,
        Answer::Full => ffi::ERR_OUT_OF_RESOURCE,
    }
}

/// The same for PMI: a word if it is refused.
fn done(answer: &Answer) -> Result<(), String> {
    match answer {
        Answer::Done | Answer::Value(_) | Answer::Data(_) => Ok(()),
        Answer::NotFound => Err("not_found".to_owned()),
        Answer::Taken => Err("name_is_taken".to_owned()),
        Answer::Full => Err("too_many_names".to_owned()),
    }
}

impl Server {
    /// Asks the server at a place, which may be this one.
    pub(super) fn ask(
        &mut self,
        to: u32,
        question: Question,
        asker: Asker,
    ) -> Result<(), ServerError> {
        if to == self.peers.own {
            // The library knows itself what ranks of this node told.
            let answer = self.peers.names.answer(&question).unwrap_or(Answer::NotFound);
            return self.answered(asker, answer);
        }
        let now = self.now_ms();
        match self.peers.questions.ask(to, question, asker, now) {
            Ok(message) => self.daemon.relay(to, &message),
            Err(asker) => self.answered(asker, Answer::Full),
        }
    }

    /// A message of another server.
    pub(super) fn relayed(&mut self, from: u32, data: &[u8]) -> Result<(), ServerError> {
        match PeerMessage::decode(data) {
            Some(PeerMessage::Ask { request, question: Question::Told { rank } }) => {
                self.ask_library(from, request, rank)
            }
            Some(PeerMessage::Ask { request, question }) => {
                let answer = self.peers.names.answer(&question).unwrap_or(Answer::NotFound);
                self.daemon.relay(from, &PeerMessage::Answer { request, answer })
            }
            Some(PeerMessage::Answer { request, answer }) => {
                match self.peers.questions.answered(request) {
                    Some(asker) => self.answered(asker, answer),
                    None => Ok(()),
                }
            }
            None => {
                let reason = format!("the server of node {from} of the job sends nonsense");
                self.daemon.tell(ServerReport::Broken(reason))
            }
        }
    }

    /// The library answers when the rank has told something; asked again meanwhile it is not asked twice.
    fn ask_library(&mut self, from: u32, request: u64, rank: u32) -> Result<(), ServerError> {
        if self.peers.asked.values().any(|&asked| asked == (from, request)) {
            return Ok(());
        }
        match &self.pmix {
            Some(pmix) => {
                let number = self.peers.next;
                self.peers.next += 1;
                self.peers.asked.insert(number, (from, request));
                pmix.ask_data(rank, number);
                Ok(())
            }
            None => {
                let answer = Answer::NotFound;
                self.daemon.relay(from, &PeerMessage::Answer { request, answer })
            }
        }
    }

    /// The library's answer to [`Server::ask_library`].
    pub(super) fn told(&mut self, number: u64, data: Option<Vec<u8>>) -> Result<(), ServerError> {
        let Some((from, request)) = self.peers.asked.remove(&number) else { return Ok(()) };
        // What does not fit a message is as good as absent, and the rank that asks gets an error.
        let data = data.filter(|data| data.len() < MOST_RELAY / 2);
        let answer = data.map_or(Answer::NotFound, Answer::Data);
        self.daemon.relay(from, &PeerMessage::Answer { request, answer })
    }

    fn answered(&mut self, asker: Asker, answer: Answer) -> Result<(), ServerError> {
        match asker {
            Asker::Op(reply) => reply.answer(status(&answer)),
            Asker::Lookup(name, reply) => match answer {
                Answer::Value(value) => reply.answer(&name, &value),
                other => reply.refuse(status(&other).min(ffi::ERR_NOT_FOUND)),
            },
            Asker::Modex(reply) => match answer {
                Answer::Data(data) => reply.answer(Ok(data)),
                _ => reply.answer(Err(ffi::ERR_NOT_FOUND)),
            },
            Asker::PmiPublish(local) => self.ranks.published(local, done(&answer)),
            Asker::PmiUnpublish(local) => self.ranks.unpublished(local, done(&answer)),
            Asker::PmiLookup(local) => {
                let value = if let Answer::Value(value) = answer { Some(value) } else { None };
                self.ranks.looked_up(local, value);
            }
        }
        self.serve_ranks()
    }
}
