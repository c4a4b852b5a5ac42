//! Writes of one leader, each made once and in order.
//!
//! A request that was given up may still lie in a member that stands still, or on its way. It arrives after later writes, and
//! the leader's key says nothing against it: the same process leads. Therefore each write goes on the condition, too, that no
//! other has come since the one before it. A key beside the leader's has the name of the last write.

use super::EtcdError;
use super::api::{self, Change, OrderCheck, Outcome};
use super::http::Gateway;
use super::random;

/// Makes writes on the condition that its leader leads, one after the other.
#[derive(Debug)]
pub struct OrderedWrites {
    /// The leader's key, and the revision that created it.
    guard: (String, i64),
    /// The key with the name of the last write.
    key: String,
    /// Random identity, since a leader may begin to write more than once.
    writer: u64,
    number: u64,
    /// The revision of the last write, once it is known.
    last: Option<i64>,
}

impl OrderedWrites {
    /// Those of the leader with this key, which was created by this revision.
    ///
    /// # Errors
    /// [`EtcdError::Random`].
    pub fn new(guard: (String, i64)) -> Result<Self, EtcdError> {
        let writer = random::identity()?;
        let key = format!("{}-last-write", guard.0);
        Ok(Self { guard, key, writer, number: 1, last: None })
    }

    /// Makes the changes. If this fails, the same changes may be tried again: they are made once. Others must wait.
    ///
    /// # Errors
    /// [`EtcdError::Deposed`]: another leads, or writes in the place of this.
    pub async fn write(
        &mut self,
        gateway: &mut Gateway,
        changes: &[Change],
    ) -> Result<(), EtcdError> {
        let last = match self.last {
            Some(last) => last,
            None => api::get(gateway, &self.key).await?.map_or(0, |pair| pair.changed),
        };
        self.last = Some(last);
        let name = format!("{}/{:016x}/{}", self.guard.1, self.writer, self.number).into_bytes();
        let order = OrderCheck { key: &self.key, last, name: &name };
        let guard = (self.guard.0.as_str(), self.guard.1);
        let revision = match api::ordered(gateway, guard, order, changes).await? {
            Outcome::Made(revision) => revision,
            // The answer to an earlier attempt was lost.
            Outcome::Refused { leads: true, last: Some(pair) } if pair.value == name => {
                pair.changed
            }
            Outcome::Refused { .. } => return Err(EtcdError::Deposed),
        };
        self.last = Some(revision);
        self.number += 1;
        Ok(())
    }
}
