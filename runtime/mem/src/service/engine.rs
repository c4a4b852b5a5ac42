//! The engine's part in services: messages that come are given to their service, and so are ends of its transfers.

use kumi_net::{AnswerSender, ChannelError, CopySource, Delivery};
use kumi_proto::Rank;
use kumi_proto::frame::ServiceMessage as FirstPart;

use crate::engine::Engine;
use crate::error::Error;
use crate::request::table::{RequestEnd, Target};
use crate::service::outbox::{Outbox, Way};
use crate::service::table::{EndedTransfer, TakenPart};

/// Rounds of ends and what services begin because of them, while the engine hands out answers.
const MOST_ROUNDS: usize = 16;

impl Engine {
    /// First part of a message to a service. An error is the sender's fault.
    #[inline]
    pub(crate) fn service_first<S: CopySource>(
        &mut self,
        from: Rank,
        first: FirstPart<S>,
    ) -> Result<Delivery, String> {
        let number = first.service;
        let taken = self.services.first(from, first)?;
        Ok(self.service_taken(number, from, taken))
    }

    /// Next part of the pair's message to a service. An error is the sender's fault.
    pub(crate) fn service_part(
        &mut self,
        from: Rank,
        data: impl CopySource,
    ) -> Result<Delivery, String> {
        let taken = self.services.part(from, data)?;
        Ok(self.service_taken(0, from, taken))
    }

    fn service_taken<S: CopySource>(
        &mut self,
        number: u16,
        from: Rank,
        taken: TakenPart<S>,
    ) -> Delivery {
        match taken {
            TakenPart::Done(delivery) => return delivery,
            TakenPart::Whole(data) => self.deliver(number, |outbox| outbox.deliver(from, data)),
            TakenPart::Joined(number, data) => {
                self.deliver(number, |outbox| outbox.deliver_private(from, &data));
            }
        }
        Delivery::Taken
    }

    fn deliver(&mut self, number: u16, give: impl FnOnce(&mut Outbox<'_>)) {
        let mut outbox = Outbox::new(Way::Engine(self), number);
        give(&mut outbox);
        outbox.finish_later();
    }

    /// A transfer of a service has ended; it is told when the engine hands out answers.
    pub(crate) fn transfer_ended(
        &mut self,
        (service, token): (u16, u64),
        target: Target,
        end: RequestEnd,
    ) {
        let result = match end {
            // How long the memory there is, is known to its owner only.
            RequestEnd::Refused(reason) => {
                Err(Error::Refused { rank: target.rank, count: 1, reason })
            }
            end => end.told(target).map(drop),
        };
        self.services.ended.push_back(EndedTransfer { service, token, result });
    }

    /// Tells services of their transfers' ends.
    fn tell_transfers(&mut self) {
        for _ in 0..self.services.ended.len() {
            let Some(EndedTransfer { service, token, result }) = self.services.ended.pop_front()
            else {
                break;
            };
            self.deliver(service, |outbox| {
                outbox.run_for_others(|service, outbox| service.transferred(token, result, outbox));
            });
        }
    }

    /// Sends what services and requests have queued, and tells services what ends by that.
    pub(crate) fn hand_out_queued(
        &mut self,
        most: usize,
        full: &mut Vec<Rank>,
        send: &mut AnswerSender<'_>,
    ) -> Result<(), ChannelError> {
        for _ in 0..MOST_ROUNDS {
            self.tell_transfers();
            self.services.unsent.hand_out(most, full, send)?;
            self.send_queued(most, full, send)?;
            if self.services.ended.is_empty() {
                break;
            }
        }
        Ok(())
    }
}
