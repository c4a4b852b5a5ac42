//! The time in which a metaserver leads.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::{sleep, timeout_at};

use super::http::Gateway;
use super::leadership::Leadership;
use super::{Etcd, EtcdError, api};

/// How soon a lease that could not be made longer is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// A metaserver leads, with this key and this lease.
pub struct Session {
    settings: Rc<Etcd>,
    leadership: Rc<Leadership>,
    gateway: Mutex<Gateway>,
    /// The key that says so, and the revision that made it.
    pub guard: (String, i64),
    lease: i64,
    /// When what etcd has granted last was asked for.
    sure: Cell<Instant>,
    /// The high bits of the numbers of its calls.
    first: u64,
}

impl Session {
    /// It leads since its lease was asked for.
    pub fn new(
        settings: &Rc<Etcd>,
        leadership: &Rc<Leadership>,
        guard: (String, i64),
        (lease, begun): (i64, Instant),
        first: u64,
    ) -> Result<Session, EtcdError> {
        let gateway = Mutex::new(Gateway::new(settings, leadership)?);
        let (settings, leadership) = (Rc::clone(settings), Rc::clone(leadership));
        let sure = Cell::new(begun);
        let session = Session { settings, leadership, gateway, guard, lease, sure, first };
        session.lasts(begun);
        Ok(session)
    }

    /// The first number for calls: no other leader has had it or a higher one before.
    pub fn first_call(&self) -> u64 {
        self.first << 32
    }

    /// A connection of its own.
    ///
    /// # Errors
    /// The settings are no good.
    pub fn gateway(&self) -> Result<Gateway, EtcdError> {
        Gateway::new(&self.settings, &self.leadership)
    }

    /// What is known of etcd.
    pub fn leadership(&self) -> &Rc<Leadership> {
        &self.leadership
    }

    /// What the keys of its state begin with.
    pub fn prefix(&self) -> &str {
        &self.settings.prefix
    }

    /// etcd counts the lease's time from later than this; whoever counts here is done a little before.
    fn lasts(&self, asked: Instant) {
        let lease = self.settings.lease;
        self.sure.set(asked);
        self.leadership.lead_until(asked + lease - lease / 5, &self.settings.advertise);
    }

    /// Until when etcd is waited for: then its lease has ended, and whoever can reach etcd leads.
    pub fn given_up(&self) -> Instant {
        self.sure.get() + 2 * self.settings.lease
    }

    /// Makes the lease longer again and again, until it has ended, or etcd has not been reached for two leases. Before, this
    /// one does not lead while etcd does not answer, but may again if its lease is there still.
    pub async fn hold(&self) {
        let mut pause = Duration::ZERO;
        loop {
            sleep(pause).await;
            let asked = Instant::now();
            let mut gateway = self.gateway.lock().await;
            let kept =
                timeout_at(self.given_up().into(), api::keep_alive(&mut gateway, self.lease));
            let Ok(kept) = kept.await else {
                tracing::error!("etcd was not reached for two leases: whoever reaches it leads");
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
                    tracing::warn!(%error, "the lease is not made longer");
                    pause = AGAIN;
                }
            }
        }
    }

    /// Ends it, so that another can lead at once.
    pub async fn release(self) {
        self.leadership.follow("");
        let mut gateway = self.gateway.into_inner();
        if let Err(error) = api::revoke(&mut gateway, self.lease).await {
            tracing::warn!(%error, "the lease could not be ended; it ends by itself");
        }
    }
}
