//! Threads that make the other processors of a node look who is to run.
//!
//! A job that is put behind the others goes on running where it runs until the system looks: at the next tick, milliseconds later.
//! On its own processor the switching thread makes it look by going to sleep. Elsewhere a thread with real-time priority does
//! that: it wakes, and sleeps again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::{pin_this_thread, realtime_this_thread};

/// They need almost none.
const STACK: usize = 64 << 10;

/// One thread for each processor but the switching thread's. Dropping it ends them.
#[derive(Debug, Default)]
pub(super) struct WakeupThreads {
    threads: Vec<JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl WakeupThreads {
    /// For these processors. Without real-time priority there are none: they would wait themselves.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(super) fn start(processors: &[usize]) -> std::io::Result<Self> {
        let mut wakeups = Self::default();
        for &processor in processors {
            let over = Arc::clone(&wakeups.over);
            let (tell, told) = std::sync::mpsc::channel();
            let builder = std::thread::Builder::new().name(format!("poker-{processor}"));
            let thread = builder.stack_size(STACK).spawn(move || {
                let good = pin_this_thread(processor).is_ok() && realtime_this_thread();
                // Whoever starts it waits for the answer.
                let _ = tell.send(good);
                while good && !over.load(Ordering::Acquire) {
                    std::thread::park();
                }
            })?;
            if !told.recv().unwrap_or(false) {
                break;
            }
            wakeups.threads.push(thread);
        }
        Ok(wakeups)
    }

    /// Makes all these processors look.
    pub(super) fn wake_all(&self) {
        for thread in &self.threads {
            thread.thread().unpark();
        }
    }
}

impl Drop for WakeupThreads {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.wake_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread beside the switching thread had failed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_start_where_they_may_and_end() {
        let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
        let own = (0..nix::sched::CpuSet::count()).find(|&cpu| allowed.is_set(cpu).unwrap());
        let wakeups = WakeupThreads::start(&[own.unwrap(), own.unwrap()]).unwrap();
        let permitted = std::thread::spawn(realtime_this_thread).join().unwrap();
        assert_eq!(wakeups.threads.len(), if permitted { 2 } else { 0 });
        wakeups.wake_all();
        wakeups.wake_all();
        drop(wakeups);
        // A processor that there is not has none.
        assert!(WakeupThreads::start(&[usize::MAX]).unwrap().threads.is_empty());
    }
}
