//! Whether the other side is alive, though it has nothing to say.

use std::time::{Duration, Instant};

use super::Link;
use crate::native::Source;

/// How often it is asked.
const OFTEN: Duration = Duration::from_secs(2);
/// How long it may take to answer.
const SILENCE: Duration = Duration::from_secs(8);

/// When it was asked, and whether it has answered.
#[derive(Debug, Default)]
pub struct Heartbeat {
    asked: Option<Instant>,
    answered: bool,
}

impl Heartbeat {
    /// It has answered.
    pub fn beats(&mut self) {
        self.answered = true;
    }
}

impl Link {
    /// Asks now and then for a sign of life, and gives the connection up if there is none. Whoever waits calls this every now
    /// and then, after it has looked at what has come.
    pub fn beat(&self) {
        let mut state = self.lock();
        let since = state.heartbeat.asked.map(|asked| asked.elapsed());
        match since {
            Some(since) if !state.heartbeat.answered => {
                if since > SILENCE {
                    drop(state);
                    // Whoever waits finds out.
                    let _why = self.fail("it is silent");
                }
            }
            Some(since) if since < OFTEN => {}
            _ => {
                state.heartbeat = Heartbeat { asked: Some(Instant::now()), answered: false };
                let mut out = Vec::new();
                state.rpc.ping(&mut out);
                drop(state);
                let deadline = Instant::now().checked_add(SILENCE);
                // If this cannot be sent, the connection is given up.
                let _lost = self.put(&[Source::Bytes(&out)], deadline, &|| false);
            }
        }
    }
}
