//! What the servers of a job ask each other: names that ranks publish, and what a rank of another node told.
//!
//! Messages may get lost, so who asks asks again. Every question may come twice without harm.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// Most names that ranks of a job publish.
const MOST_NAMES: usize = 4_096;
/// Longest name and longest value of it, in bytes.
const LONGEST: usize = 4_096;
/// Most questions of a node that wait for their answers.
const MOST_QUESTIONS: usize = 8_192;
/// After how many milliseconds a question is asked again.
const PATIENCE_MS: u64 = 500;

/// A question to the server of another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Keep a name, to the server of the first node.
    Publish {
        /// The rank that publishes it.
        owner: u32,
        /// The name.
        name: String,
        /// Its value.
        value: String,
    },
    /// The value of a name, to the server of the first node.
    Lookup {
        /// The name.
        name: String,
    },
    /// Forget a name, to the server of the first node.
    Unpublish {
        /// The rank that wants it.
        owner: u32,
        /// The name.
        name: String,
    },
    /// What a rank of that node told, as PMIx packs it.
    Told {
        /// The rank.
        rank: u32,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is done.
    Done,
    /// The value.
    Value(String),
    /// What the rank told.
    Data(Vec<u8>),
    /// There is none.
    NotFound,
    /// The name is another rank's.
    Taken,
    /// There are too many names, or they are too long.
    Full,
}

/// Between two servers of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// A question.
    Ask {
        /// Comes back with the answer.
        request: u64,
        /// What is asked.
        question: Question,
    },
    /// An answer.
    Answer {
        /// As asked.
        request: u64,
        /// What is answered.
        answer: Answer,
    },
}

impl PeerMessage {
    /// Its bytes; none if it cannot be encoded.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_allocvec(self).ok()
    }

    /// The message in these bytes.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (message, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(message)
    }
}

/// The names of a job, kept by the server of its first node.
#[derive(Debug, Default)]
pub struct Names {
    names: BTreeMap<String, (u32, String)>,
}

impl Names {
    /// Answers a question about names; none to another question.
    pub fn answer(&mut self, question: &Question) -> Option<Answer> {
        Some(match question {
            Question::Publish { owner, name, value } => self.publish(*owner, name, value),
            Question::Lookup { name } => match self.names.get(name) {
                Some((_, value)) => Answer::Value(value.clone()),
                None => Answer::NotFound,
            },
            Question::Unpublish { owner, name } => match self.names.get(name) {
                Some((other, _)) if other != owner => Answer::Taken,
                // Said twice, the second time finds nothing.
                _ => {
                    self.names.remove(name);
                    Answer::Done
                }
            },
            Question::Told { .. } => return None,
        })
    }

    fn publish(&mut self, owner: u32, name: &str, value: &str) -> Answer {
        let new = (owner, String::from(value));
        match self.names.get(name) {
            Some(known) if *known == new => return Answer::Done,
            Some(_) => return Answer::Taken,
            None => {}
        }
        if self.names.len() >= MOST_NAMES || name.len() > LONGEST || value.len() > LONGEST {
            return Answer::Full;
        }
        self.names.insert(name.into(), new);
        Answer::Done
    }
}

#[derive(Debug)]
struct Asked<T> {
    to: u32,
    question: Question,
    asker: T,
    again_ms: u64,
}

/// Questions that wait for their answers. `T` says who asks.
#[derive(Debug)]
pub struct Questions<T> {
    next: u64,
    waiting: BTreeMap<u64, Asked<T>>,
}

impl<T> Default for Questions<T> {
    fn default() -> Self {
        Self { next: 0, waiting: BTreeMap::new() }
    }
}

impl<T> Questions<T> {
    /// Asks the server at a place. Returns the message.
    ///
    /// # Errors
    /// So many questions wait that this one cannot; the asker comes back.
    pub fn ask(
        &mut self,
        to: u32,
        question: Question,
        asker: T,
        now_ms: u64,
    ) -> Result<PeerMessage, T> {
        if self.waiting.len() >= MOST_QUESTIONS {
            return Err(asker);
        }
        let request = self.next;
        self.next += 1;
        let message = PeerMessage::Ask { request, question: question.clone() };
        let again_ms = now_ms.saturating_add(PATIENCE_MS);
        self.waiting.insert(request, Asked { to, question, asker, again_ms });
        Ok(message)
    }

    /// Who asked this, if nobody has answered yet.
    pub fn answered(&mut self, request: u64) -> Option<T> {
        self.waiting.remove(&request).map(|asked| asked.asker)
    }

    /// Questions that are due again, with the places that they are for.
    pub fn due(&mut self, now_ms: u64) -> Vec<(u32, PeerMessage)> {
        let due = self.waiting.iter_mut().filter(|(_, asked)| asked.again_ms <= now_ms);
        due.map(|(&request, asked)| {
            asked.again_ms = now_ms.saturating_add(PATIENCE_MS);
            (asked.to, PeerMessage::Ask { request, question: asked.question.clone() })
        })
        .collect()
    }

    /// When the next question is due again.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.waiting.values().map(|asked| asked.again_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(owner: u32, name: &str, value: &str) -> Question {
        Question::Publish { owner, name: name.into(), value: value.into() }
    }

    #[test]
    fn names_are_published_and_found_and_forgotten() {
        let mut names = Names::default();
        let lookup = Question::Lookup { name: "n".into() };
        let unpublish = |owner| Question::Unpublish { owner, name: "n".into() };
        let mut answer = |question: &Question| names.answer(question).unwrap();
        assert_eq!(answer(&lookup), Answer::NotFound);
        assert_eq!(answer(&publish(1, "n", "v")), Answer::Done);
        assert_eq!(answer(&publish(1, "n", "v")), Answer::Done, "said twice");
        assert_eq!(answer(&publish(2, "n", "w")), Answer::Taken);
        assert_eq!(answer(&lookup), Answer::Value("v".into()));
        assert_eq!(answer(&unpublish(2)), Answer::Taken);
        assert_eq!(answer(&unpublish(1)), Answer::Done);
        assert_eq!(answer(&unpublish(1)), Answer::Done, "said twice");
        assert_eq!(answer(&publish(1, &"n".repeat(LONGEST + 1), "")), Answer::Full);
        assert_eq!(names.answer(&Question::Told { rank: 1 }), None);
    }

    #[test]
    fn lost_questions_are_asked_again() {
        let mut questions = Questions::default();
        let told = Question::Told { rank: 3 };
        let message = questions.ask(1, told.clone(), 'a', 0).unwrap();
        assert_eq!(message, PeerMessage::Ask { request: 0, question: told });
        assert_eq!(questions.due(PATIENCE_MS - 1), []);
        assert_eq!(questions.due(PATIENCE_MS), [(1, message)]);
        assert_eq!(questions.next_ms(), Some(2 * PATIENCE_MS));
        assert_eq!(questions.answered(0), Some('a'));
        assert_eq!((questions.answered(0), questions.next_ms()), (None, None));
    }

    #[test]
    fn questions_are_bounded() {
        let mut questions = Questions::default();
        for number in 0..MOST_QUESTIONS {
            questions.ask(0, Question::Told { rank: 0 }, number, 0).unwrap();
        }
        assert_eq!(questions.ask(0, Question::Told { rank: 0 }, 9, 0), Err(9));
    }
}
