//! Keep-alive check of a silent connection.

use std::time::{Duration, Instant};

use super::Link;
use crate::native::Source;

/// How often the client asks for a sign of life.
const OFTEN: Duration = Duration::from_secs(2);
/// How long an answer may take.
const SILENCE: Duration = Duration::from_secs(8);

/// Time of the last question, and whether it was answered.
#[derive(Debug, Default)]
pub struct Heartbeat {
    asked: Option<Instant>,
    pub answered: bool,
}

impl Link {
    /// Asks for a sign of life when it is due, and closes a connection that gives none. A waiting thread
    /// calls this regularly, after it has processed what arrived.
    pub fn check_alive(&self) {
        let mut state = self.lock();
        let since = state.heartbeat.asked.map(|asked| asked.elapsed());
        match since {
            Some(since) if !state.heartbeat.answered => {
                if since > SILENCE {
                    drop(state);
                    // The waiting thread then finds the connection lost.
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
                // If this cannot be sent, the connection is closed.
                let _lost = self.put(&[Source::Bytes(&out)], deadline, &|| false);
            }
        }
    }
}
