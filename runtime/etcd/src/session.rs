//! Term of a leader: its key and its lease.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::{sleep, timeout_at};

use super::http::Gateway;
use super::leadership::Leadership;
use super::{Etcd, EtcdError, api};

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
    /// When it asked for the latest renewal that etcd granted.
    sure: Cell<Instant>,
    /// Its number among leaders.
    number: u64,
}

impl Session {
    /// A term that began when the lease was asked for.
    pub fn new(
        settings: &Rc<Etcd>,
        leadership: &Rc<Leadership>,
        guard: (String, i64),
        (lease, begun): (i64, Instant),
        number: u64,
    ) -> Result<Session, EtcdError> {
        let gateway = Mutex::new(Gateway::new(settings, leadership)?);
        let (settings, leadership) = (Rc::clone(settings), Rc::clone(leadership));
        let sure = Cell::new(begun);
        let session = Session { settings, leadership, gateway, guard, lease, sure, number };
        session.lasts(begun);
        Ok(session)
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

    /// etcd counts the lease from later than this, so this process stops a little earlier.
    fn lasts(&self, asked: Instant) {
        let lease = self.settings.lease;
        self.sure.set(asked);
        self.leadership.lead_until(asked + lease - lease / 5, &self.settings.advertise);
    }

    /// When to stop waiting for etcd. Its lease has ended then, and whoever reaches etcd leads.
    pub fn given_up(&self) -> Instant {
        self.sure.get() + 2 * self.settings.lease
    }

    /// Renews the lease until it has ended, or until etcd has been out of reach for two leases. While etcd
    /// does not answer, this one does not lead. It leads again if its lease still exists then.
    pub async fn hold(&self) {
        let mut pause = Duration::ZERO;
        loop {
            sleep(pause).await;
            let asked = Instant::now();
            let mut gateway = self.gateway.lock().await;
            let kept =
                timeout_at(self.given_up().into(), api::keep_alive(&mut gateway, self.lease));
            let Ok(kept) = kept.await else {
                tracing::error!(
                    "etcd was out of reach for two leases; another may lead"
                );
                return;
            };
            drop(gateway);
            match kept {
                Ok(true) => {
                    self.lasts(asked);
                    pause = self.settings.lease / 3;
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
