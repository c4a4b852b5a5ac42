//! Raw mode of the user's terminal: every key goes to the job as it is.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Settings from before, while the terminal is raw.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
/// The terminal is raw: lines need a carriage return.
static RAW: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Whether the terminal is raw.
pub fn is_raw() -> bool {
    RAW.load(Ordering::Relaxed)
}

/// A raw terminal, which is as it was once this is dropped. Also a panic restores it, of whichever thread.
#[derive(Debug)]
pub struct RawMode(());

impl RawMode {
    /// Makes the terminal at standard input raw.
    pub fn enter() -> io::Result<Self> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        let settings = tcgetattr(io::stdin())?;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings.clone());
        // From here on something is dropped that restores.
        let mode = Self(());
        make_raw(settings)?;
        Ok(mode)
    }

    /// The same anew: a shell that continued the command has put its own settings in place.
    pub fn enter_again(&self) -> io::Result<()> {
        make_raw(tcgetattr(io::stdin())?)
    }
}

fn make_raw(mut settings: Termios) -> io::Result<()> {
    settings.make_raw();
    tcsetattr(io::stdin(), OptionalActions::Drain, &settings)?;
    RAW.store(true, Ordering::Relaxed);
    Ok(())
}

fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    RAW.store(false, Ordering::Relaxed);
    if let Some(settings) = before {
        // A terminal that is gone has no settings.
        let _gone = tcsetattr(io::stdin(), OptionalActions::Drain, &settings);
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}
