//! Requests for names and descriptions of routines, and for objects.

use std::time::Instant;

use kumi_rpc::{CallMetadata, LogRequest, MOST_NAME, MOST_REQUEST, Placement};

use super::{Link, PendingStream};
use crate::CallError;
use crate::native::Source;

/// The error for a name that no routine can have.
pub(super) fn no_name(name: &str) -> CallError {
    let name: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    let text = format!(
        "no routine can have the name `{name}`: names have 1 to {MOST_NAME} bytes and no control characters"
    );
    CallError::RoutineNotFound(text)
}

impl Link {
    /// Asks for a description.
    pub fn interface(&self, name: &str, deadline: Option<Instant>) -> Result<u32, CallError> {
        let mut out = Vec::new();
        let mut state = self.lock();
        let stream = state.rpc.interface(name, &mut out).map_err(|_| no_name(name))?;
        self.begin(state, stream, PendingStream::default());
        self.put(&[Source::Bytes(&out)], deadline, &|| false)?;
        Ok(stream)
    }

    /// Asks for an object of a class with what is said of it, and with the metaserver's placement if there is one.
    pub fn create(
        &self,
        class: &str,
        placed: Option<&Placement>,
        metadata: &CallMetadata,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<u32, CallError> {
        let mut out = Vec::new();
        let mut state = self.lock();
        let stream = state.rpc.create_with(placed, class, &mut out).map_err(|_| no_name(class))?;
        state.rpc.metadata(stream, metadata, &mut out);
        self.begin(state, stream, PendingStream::default());
        self.put(&[Source::Bytes(&out)], deadline, interrupted)?;
        Ok(stream)
    }

    /// Asks for logs of calls.
    pub fn logs(&self, request: &LogRequest, deadline: Option<Instant>) -> Result<u32, CallError> {
        let mut out = Vec::new();
        let mut state = self.lock();
        let stream = state.rpc.logs(request, &mut out);
        self.begin(state, stream, PendingStream::default());
        self.put(&[Source::Bytes(&out)], deadline, &|| false)?;
        Ok(stream)
    }

    /// Asks for names.
    pub fn list(&self, part: &str, deadline: Option<Instant>) -> Result<u32, CallError> {
        let mut out = Vec::new();
        let mut state = self.lock();
        let stream = state.rpc.list(part, &mut out).map_err(|too_long| {
            let text = format!(
                "{} bytes of a name are more than the {MOST_REQUEST} that can be looked for",
                too_long.0
            );
            CallError::TooLarge(text)
        })?;
        self.begin(state, stream, PendingStream::default());
        self.put(&[Source::Bytes(&out)], deadline, &|| false)?;
        Ok(stream)
    }
}
