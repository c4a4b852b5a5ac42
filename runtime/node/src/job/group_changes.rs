//! Changes of control groups, which may take long.
//!
//! Making, entering and removing control groups takes one lock of the whole machine. Where many daemons, or others, do so at
//! once, each call can take a second. A node that starts many jobs would do nothing else meanwhile, and its links would fall
//! silent. So one job at a time makes such calls on a node, and a thread of its own waits for those that need none of the daemon's
//! descriptors.

use std::io;

use tokio::sync::{Mutex, MutexGuard};

/// Whose turn it is to make such calls: one after the other, in the order in which they asked.
#[derive(Debug, Default)]
pub struct GroupChanges(Mutex<()>);

impl GroupChanges {
    /// Waits for its turn, which lasts as long as what is returned.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.0.lock().await
    }
}

/// Makes a call in a thread of its own.
///
/// # Errors
/// As the call, or there is no thread.
pub(super) async fn elsewhere<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(call).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// A job makes all of its calls before the next one begins with its own.
    #[tokio::test(flavor = "current_thread")]
    async fn one_job_at_a_time_calls() {
        let (calls, seen) = (Rc::new(GroupChanges::default()), Rc::new(RefCell::new(Vec::new())));
        let local = tokio::task::LocalSet::new();
        for job in 0..3 {
            let (calls, seen) = (Rc::clone(&calls), Rc::clone(&seen));
            local.spawn_local(async move {
                let turn = calls.turn().await;
                for _ in 0..2 {
                    let number = elsewhere(move || Ok(job)).await.unwrap();
                    seen.borrow_mut().push(number);
                }
                drop(turn);
            });
        }
        local.await;
        assert_eq!(*seen.borrow(), [0, 0, 1, 1, 2, 2]);
    }
}
