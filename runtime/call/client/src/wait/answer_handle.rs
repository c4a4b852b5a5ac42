//! Handles of requests that wait for an answer.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use kumi_rpc::Failure;

use super::super::CallError;
use super::super::link::{Answer, Link, goes_on};

/// A stream that waits for its answer. After this is dropped, nothing more is written to its arrays.
#[derive(Debug)]
pub struct AnswerHandle<L: Deref<Target = Link>> {
    pub link: L,
    pub stream: u32,
    over: bool,
}

impl<L: Deref<Target = Link>> AnswerHandle<L> {
    /// The handle of a stream that has begun.
    pub fn of(link: L, stream: u32) -> AnswerHandle<L> {
        AnswerHandle { link, stream, over: false }
    }

    /// Waits for the answer. After an error that is not the answer, it may be waited for again.
    pub fn wait(
        &mut self,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Result<Answer, Failure>, CallError> {
        if self.over {
            let text = "the call is over, and its answer was taken by an earlier wait";
            return Err(CallError::Server(text.to_owned()));
        }
        let answer = self.link.wait(self.stream, deadline, interrupted)?;
        self.over = !goes_on(&answer);
        Ok(answer)
    }

    /// Gives up the stream without telling the other side, which ends it by itself.
    pub fn leave(mut self) {
        self.over = true;
        self.link.forget(self.stream);
    }

    /// Whether the answer has arrived, or never will. Does not wait.
    pub fn is_answered(&self) -> bool {
        self.over || self.link.answered(self.stream)
    }
}

impl<L: Deref<Target = Link>> Drop for AnswerHandle<L> {
    fn drop(&mut self) {
        // A forked process must not touch its parent's calls: their locks may be held for ever.
        if !self.link.is_ours() {
            return;
        }
        // If this cannot be sent, the connection is gone, and the call with it.
        let _lost = if !self.over && self.link.forget(self.stream) {
            self.link.cancel(self.stream)
        } else {
            self.link.flush()
        };
    }
}

/// Cancels a call from any thread. It may outlive the call.
#[derive(Debug, Clone)]
pub struct Canceller {
    pub(crate) link: Arc<Link>,
    pub(crate) stream: u32,
}

impl Canceller {
    /// Asks the server to end the call. The caller still waits for it. Does nothing after the end.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn cancel(&self) -> Result<(), CallError> {
        self.link.cancel(self.stream)
    }
}
