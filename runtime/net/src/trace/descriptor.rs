//! How a rank gets its ring: a descriptor and the number of events, in a variable of its environment.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use crate::segment::launch::{LaunchError, descriptors, prepare};

/// The ring of a rank, as it inherits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceDescriptor {
    /// The file.
    pub file: RawFd,
    /// Events that it has room for.
    pub events: u64,
}

/// The variable that names the ring. A job that a traced rank starts must not have it.
pub const RING: &str = "KUMI_TRACE_RING";

impl TraceDescriptor {
    /// The variable to set for the rank.
    #[must_use]
    pub fn to_env(&self) -> (String, String) {
        (RING.to_owned(), format!("{},{}", self.file, self.events))
    }

    /// Takes the descriptor over.
    ///
    /// # Safety
    /// As [`crate::launch::LaunchBlock::adopt`].
    ///
    /// # Errors
    /// As [`crate::launch::LaunchBlock::adopt`].
    pub unsafe fn adopt(&self) -> Result<OwnedFd, LaunchError> {
        prepare(&[(self.file, "the ring of the trace")])?;
        // SAFETY: open, and owned by nobody else by the caller's promise.
        Ok(unsafe { OwnedFd::from_raw_fd(self.file) })
    }

    /// Reads the variable of this process; none if it is not set: the job is not traced.
    ///
    /// # Errors
    /// [`LaunchError::BadVariable`].
    pub fn from_env() -> Result<Option<TraceDescriptor>, LaunchError> {
        TraceDescriptor::from_text(std::env::var(RING).ok())
    }

    fn from_text(text: Option<String>) -> Result<Option<TraceDescriptor>, LaunchError> {
        let Some(found) = text else { return Ok(None) };
        let parts = found.split_once(',').and_then(|(file, events)| {
            let [file] = descriptors(file)?[..] else { return None };
            Some(TraceDescriptor { file, events: events.parse().ok()? })
        });
        parts.map(Some).ok_or(LaunchError::BadVariable { name: RING, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_read_back_and_anything_else_is_refused() {
        let ring = TraceDescriptor { file: 17, events: 4_096 };
        let (name, value) = ring.to_env();
        assert_eq!((name.as_str(), value.as_str()), ("KUMI_TRACE_RING", "17,4096"));
        assert_eq!(TraceDescriptor::from_text(Some(value)), Ok(Some(ring)));
        assert_eq!(TraceDescriptor::from_text(None), Ok(None));
        for wrong in ["", "17", "17,", "1,4096", "17,-1", "x,4096", "17,18,4096"] {
            assert!(TraceDescriptor::from_text(Some(wrong.to_owned())).is_err(), "{wrong}");
        }
    }
}
