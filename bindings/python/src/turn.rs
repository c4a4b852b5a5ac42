//! Turns: of several threads that would wait for the same, one waits and tells the others.

use std::sync::{Condvar, Mutex, PoisonError};

use pyo3::prelude::*;

use crate::error::Failure;
use crate::state::{SLICE, check_signals, released};

/// What one thread has at a time, in a wait too.
#[derive(Debug, Default)]
pub struct LeaderLock {
    taken: Mutex<bool>,
    free: Condvar,
}

/// The turn is this thread's as long as it exists.
pub struct LeaderGuard<'t>(&'t LeaderLock);

impl LeaderLock {
    /// Takes it, unless another thread has it.
    pub fn try_take(&self) -> Option<LeaderGuard<'_>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = !std::mem::replace(&mut *taken, true);
        // Not `then_some`: one that is dropped gives the turn back.
        free.then(|| LeaderGuard(self))
    }

    /// Waits for it and takes it, or returns none once it is `needless`.
    ///
    /// # Errors
    /// Those of `needless`, and the exception of a signal handler of Python.
    pub fn take(
        &self,
        py: Python<'_>,
        mut needless: impl FnMut() -> Result<bool, Failure>,
    ) -> Result<Option<LeaderGuard<'_>>, Failure> {
        while !needless()? {
            if let Some(turn) = self.try_take() {
                return Ok(Some(turn));
            }
            released(py, || {
                let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
                if *taken {
                    // The lock is let go before that of the interpreter is taken.
                    drop(self.free.wait_timeout(taken, SLICE));
                }
            });
            check_signals()?;
        }
        Ok(None)
    }
}

impl Drop for LeaderGuard<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.free.notify_all();
    }
}
