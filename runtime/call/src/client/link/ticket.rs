//! What waits for the answer of a stream.

use std::time::Instant;

use kumi_rpc::Failure;

use super::{Answer, HELLO, Link, Ticket};
use crate::client::CallError;
use crate::native::Source;

impl<L: std::ops::Deref<Target = Link>> Ticket<L> {
    /// For a stream that has begun.
    pub fn of(link: L, stream: u32) -> Ticket<L> {
        Ticket { link, stream, over: false }
    }

    /// Waits for the answer; after an error that is not the answer it may be waited for again.
    pub fn wait(
        &mut self,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Result<Answer, Failure>, CallError> {
        let answer = self.link.wait(self.stream, deadline, interrupted)?;
        self.over = !matches!(answer, Ok(Answer::Called(_)));
        Ok(answer)
    }

    /// Whether there is an answer, or none will come; does not wait.
    pub fn is_answered(&self) -> bool {
        self.over || self.link.answered(self.stream)
    }

    /// Asks the server to end the call; the answer comes all the same.
    pub fn cancel(&self) -> Result<(), CallError> {
        let mut out = Vec::new();
        self.link.lock().rpc.cancel(self.stream, &mut out);
        if out.is_empty() { Ok(()) } else { self.link.put(&[Source::Bytes(&out)], None) }
    }
}

impl<L: std::ops::Deref<Target = Link>> Drop for Ticket<L> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut state = self.link.lock();
        let open = state.pending.remove(&self.stream).is_some_and(|it| !it.is_over());
        state.rpc.abandon(self.stream);
        let broken = state.broken.is_some();
        drop(state);
        if open && !broken && self.stream != HELLO {
            // If this cannot be sent the connection is gone, and the call with it.
            let _lost = self.cancel();
        }
    }
}
