//! The event loop of a daemon: one thread, and few others for what would hold it up.

use tokio::runtime::{Builder, Runtime};

use crate::exit::{ExitCode, Failure};

/// Most threads beside the loop's. The name service may keep eight of them; the others read and copy programs.
const HELPERS: usize = 16;

/// Makes it.
///
/// # Errors
/// The machine has no more descriptors.
pub(crate) fn make() -> Result<Runtime, Failure> {
    let made = Builder::new_current_thread().enable_all().max_blocking_threads(HELPERS).build();
    made.map_err(|error| {
        Failure::new(
            ExitCode::MachineLimits,
            format!("no event loop can be made: {error}; raise the limit of open files"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Condvar, Mutex};

    /// What waits for a name service that hangs must not be able to fill the machine with threads.
    #[test]
    fn helpers_are_few() {
        let running = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let runtime = make().unwrap();
        let helpers: Vec<_> = (0..3 * HELPERS)
            .map(|_| {
                let (running, gate) = (Arc::clone(&running), Arc::clone(&gate));
                runtime.spawn_blocking(move || {
                    running.fetch_add(1, Ordering::SeqCst);
                    let open = gate.0.lock().unwrap();
                    drop(gate.1.wait_while(open, |open| !*open).unwrap());
                })
            })
            .collect();
        while running.load(Ordering::SeqCst) < HELPERS {
            std::thread::yield_now();
        }
        assert_eq!(running.load(Ordering::SeqCst), HELPERS);
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        runtime.block_on(async {
            for helper in helpers {
                helper.await.unwrap();
            }
        });
        assert_eq!(running.load(Ordering::SeqCst), 3 * HELPERS);
    }
}
