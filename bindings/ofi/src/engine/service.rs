//! The endpoints of a rank as a service of its channel.

use kumi_mem::{ArrivedMessage, Error, Outbox, Service};
use kumi_messaging::{Arrived, Messenger};

use crate::engine::memory::{InPlace, Private};
use crate::engine::port::{Driver, Local, Pending};
use crate::operation::Pieces;

/// The state machine and what its driver knows.
#[derive(Debug)]
pub(super) struct FabricService {
    pub(super) messenger: Messenger<Pieces, Pending>,
    pub(super) local: Local,
    /// All has been ended after a fault.
    pub(super) abandoned: bool,
}

impl FabricService {
    /// The state machine, and a driver for a call of it.
    pub(super) fn split<'d, 'o>(
        &'d mut self,
        outbox: &'d mut Outbox<'o>,
    ) -> (&'d mut Messenger<Pieces, Pending>, Driver<'d, 'o>) {
        (&mut self.messenger, Driver { local: &mut self.local, outbox })
    }

    /// Once nothing goes on, nothing may touch the program's memory any more: it takes that back when its calls fail.
    pub(super) fn end_after_fault(&mut self, outbox: &mut Outbox<'_>) {
        if self.local.fault.is_none() || self.abandoned {
            return;
        }
        self.abandoned = true;
        self.local.registrations.clear();
        let (messenger, mut driver) = self.split(outbox);
        messenger.abandon(&mut driver);
    }

    fn take(&mut self, from: u32, message: &impl Arrived<Pieces>, outbox: &mut Outbox<'_>) {
        if self.local.fault.is_some() {
            return;
        }
        let (messenger, mut driver) = self.split(outbox);
        if let Err(bad) = messenger.message(&mut driver, from, message) {
            self.local.failed(format_args!("rank {from} sent {bad}"));
        }
        self.end_after_fault(outbox);
    }
}

impl Service for FabricService {
    fn message(&mut self, from: u32, message: &[u8], outbox: &mut Outbox<'_>) {
        self.take(from, &Private(message), outbox);
    }

    #[inline]
    fn arrived(
        &mut self,
        from: u32,
        message: &ArrivedMessage<'_>,
        outbox: &mut Outbox<'_>,
    ) -> bool {
        self.take(from, &InPlace(message), outbox);
        true
    }

    fn transferred(&mut self, token: u64, result: Result<(), Error>, outbox: &mut Outbox<'_>) {
        let good = result.is_ok();
        let (messenger, mut driver) = self.split(outbox);
        messenger.transferred(&mut driver, token, good);
        self.end_after_fault(outbox);
    }
}
