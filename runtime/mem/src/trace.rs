//! What a traced rank records of its program's messages.

use kumi_net::trace::EventKind;

use crate::context::Context;
use crate::error::Error;

impl Context {
    /// Makes a call and records it if the job is traced: with whom, the tag, and the bytes.
    pub(crate) fn traced<T>(
        &self,
        kind: EventKind,
        call: impl FnOnce() -> Result<T, Error>,
        told: impl FnOnce(&T) -> (u32, i32, usize),
    ) -> Result<T, Error> {
        let Some(tracer) = self.tracer() else { return call() };
        let begun = tracer.begin();
        let result = call()?;
        let (peer, tag, bytes) = told(&result);
        tracer.end(begun, kind, (peer, tag.cast_unsigned(), bytes as u64));
        Ok(result)
    }
}
