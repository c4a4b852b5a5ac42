//! Progress bar of a simulation, and its interruption by Ctrl-C.

use crate::error::Error;
use crate::{interrupts, output};
use indicatif::{ProgressBar, ProgressStyle};
use kumi_sim::{Monitor, SimError};
use nix::sys::signal::Signal;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Interval of checks for signals and progress.
const LOOK: Duration = Duration::from_millis(50);

/// Runs `work`, which reports its progress to `monitor` (a thousand for each of `cases`). It stops when the
/// monitor says so: at the first SIGINT, SIGTERM or SIGHUP. The bar is on standard error, if that is a
/// terminal.
pub fn watch<T: Send>(
    cases: usize,
    work: impl FnOnce(&Monitor) -> Result<T, SimError> + Send,
) -> Result<T, Error> {
    let received = Arc::new(AtomicUsize::new(0));
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let number = signal as i32;
        signal_hook::flag::register_usize(number, Arc::clone(&received), number as usize)
            .map_err(|source| Error::SetUp { what: "signal handling", source })?;
    }
    let bar = bar(cases);
    let monitor = Monitor::default();
    let (done, finished) = channel();
    let result = std::thread::scope(|scope| {
        let monitor = &monitor;
        scope.spawn(move || {
            // The receiver waits until this is sent.
            let _sent = done.send(work(monitor));
        });
        loop {
            match finished.recv_timeout(LOOK) {
                Ok(result) => return Some(result),
                // The thread has panicked, and the scope passes the panic on.
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            bar.set_position(monitor.permille());
            if received.load(Ordering::Relaxed) != 0 {
                monitor.cancel();
            }
        }
    });
    bar.finish_and_clear();
    match (result, received.load(Ordering::Relaxed)) {
        (Some(Err(SimError::Cancelled)), number) if number != 0 => {
            output::note(&SimError::Cancelled.to_string());
            let signal = i32::try_from(number).ok().and_then(|n| Signal::try_from(n).ok());
            Err(Error::Silent(signal.map_or(130, interrupts::exit_code)))
        }
        (Some(result), _) => Ok(result?),
        (None, _) => Err(SimError::Cancelled.into()),
    }
}

fn bar(cases: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1000 * cases as u64);
    let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {elapsed} (left {eta})");
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
