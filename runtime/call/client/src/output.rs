//! What routines print, for the client that wants it.

use std::sync::{Arc, Mutex};

use super::locked;

/// Most bytes that are kept until they are taken.
const MOST: usize = 4 << 20;

/// Receives what routines print: standard output and standard error of each call, when it is over. Clones are the same
/// receiver, and several calls may have one.
#[derive(Debug, Clone, Default)]
pub struct CallOutput {
    printed: Arc<Mutex<Printed>>,
}

/// What was printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Printed {
    /// The bytes, as the routine printed them.
    pub bytes: Vec<u8>,
    /// Bytes are missing: a server passes on 1 MiB of each call, and a receiver keeps 4 MiB.
    pub is_cut: bool,
}

impl CallOutput {
    /// A receiver that has got nothing.
    #[must_use]
    pub fn new() -> CallOutput {
        CallOutput::default()
    }

    /// Takes what has come.
    #[must_use]
    pub fn take(&self) -> Printed {
        std::mem::take(&mut *locked(&self.printed))
    }

    pub(crate) fn add(&self, bytes: &[u8], is_cut: bool) {
        let mut printed = locked(&self.printed);
        let fits = bytes.len().min(MOST - printed.bytes.len());
        printed.bytes.extend_from_slice(&bytes[..fits]);
        printed.is_cut |= is_cut || fits < bytes.len();
    }
}
