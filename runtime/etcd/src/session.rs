//! Term of a leader: its key and its lease.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use kumi_leadership::{Nanos, Term};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::http::Gateway;
use super::leadership::Leadership;
use super::{Etcd, EtcdError, api, clock};

/// Pause before the next attempt to renew a lease.
const AGAIN: Duration = Duration::from_millis(200);

/// The term of a leader, with its key and its lease.
pub struct Session {
    settings: Rc<Etcd>,
    leadership: Rc<Leadership>,
    gateway: Mutex<Gateway>,
    /// The leader's key, and the revision that created it.
    pub guard: (String, i64),
    lease: i64,
    term: Cell<Term>,
    /// Its number among leaders.
    number: u64,
}

impl Session {
    /// A term that began when the lease was asked for.
    pub fn new(
        settings: &Rc<Etcd>,
        leadership: &Rc<Leadership>,
        guard: (String, i64),
        (lease, asked): (i64, Nanos),
        number: u64,
    ) -> Result<Session, EtcdError> {
        let gateway = Mutex::new(Gateway::new(settings, leadership)?);
        let (settings, leadership) = (Rc::clone(settings), Rc::clone(leadership));
        let term = Term::new(clock::nanos(settings.lease), asked);
        leadership.lead(&term, &settings.advertise);
        let term = Cell::new(term);
        Ok(Session { settings, leadership, gateway, guard, lease, term, number })
    }

    /// Its number: no other leader has had it or a higher one before.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A connection of its own.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn gateway(&self) -> Result<Gateway, EtcdError> {
        Gateway::new(&self.settings, &self.leadership)
    }

    /// The leadership as far as it is known.
    pub fn leadership(&self) -> &Rc<Leadership> {
        &self.leadership
    }

    /// Prefix of the keys of its state.
    pub fn prefix(&self) -> &str {
        &self.settings.prefix
    }

    /// How long to wait for etcd at most. Its lease has ended then, and whoever reaches etcd leads.
    pub fn patience(&self) -> Duration {
        clock::left(self.term.get().given_up())
    }

    fn renewed(&self, asked: Nanos) {
        let mut term = self.term.get();
        term.renewed(asked);
        self.term.set(term);
        self.leadership.lead(&term, &self.settings.advertise);
    }

    /// Renews the lease until it has ended, or until etcd has been out of reach for two leases. While etcd
    /// does not answer, this one does not lead. It leads again if its lease still exists then.
    pub async fn hold(&self) {
        let mut pause = Duration::ZERO;
        loop {
            sleep(pause).await;
            let asked = clock::now();
            let mut gateway = self.gateway.lock().await;
            let kept = api::keep_alive(&mut gateway, self.lease);
            let patience = self.patience();
            let kept =
                if self.settings.alone { Ok(kept.await) } else { timeout(patience, kept).await };
            // A refusal may come sooner than no time at all is over.
            let refused = matches!(kept, Ok(Err(_)));
            let is_over = !self.settings.alone && refused && patience.is_zero();
            let (Ok(kept), false) = (kept, is_over) else {
                tracing::error!("etcd was out of reach for two leases; another may lead");
                return;
            };
            drop(gateway);
            match kept {
                Ok(true) => {
                    self.renewed(asked);
                    pause = clock::left(self.term.get().renewal());
                }
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, "the lease was not renewed");
                    pause = AGAIN;
                }
            }
        }
    }

    /// Ends the term so that another can lead at once.
    pub async fn release(self) {
        self.leadership.follow("");
        let mut gateway = self.gateway.into_inner();
        if let Err(error) = api::revoke(&mut gateway, self.lease).await {
            tracing::warn!(%error, "the lease could not be ended; it ends by itself");
        }
    }
}
