//! Reports of attempts to a metaserver.

use std::sync::Arc;
use std::time::Duration;

use kumi_rpc::{AttemptOutcome, AttemptReport, Placement, Transfer};

use super::{RoutedCall, ended};
use crate::answer_handle::AnswerHandle;
use crate::grid::Inner;
use crate::link::Link;
use crate::{CallError, Client, Outcome};

impl RoutedCall<'_> {
    /// Reports the end of the call.
    pub(super) fn tell(&mut self, placed: &Placement, result: &Result<Outcome, CallError>) {
        let report = match result {
            Ok(outcome) => measured(placed, self, outcome),
            Err(error) => match self.give_reason(placed, error) {
                // The call must not be tried again.
                AttemptOutcome::NotBegun
                | AttemptOutcome::Broken
                | AttemptOutcome::Failed
                | AttemptOutcome::Done => over(placed, AttemptOutcome::Failed),
            },
        };
        self.conclude(&report);
    }

    /// Tells the metaserver why an attempt failed, for those who look on. How the attempt ended.
    pub(super) fn give_reason(&self, placed: &Placement, error: &CallError) -> AttemptOutcome {
        if let Some((meta, ticket)) = &self.place_request {
            // The report that follows finds out whether the connection is lost.
            let _lost = meta.link.reason(ticket.stream, placed.ticket, &error.to_string());
        }
        ended(error)
    }

    /// Reports the end of the last attempt when no other follows.
    pub(crate) fn conclude(&mut self, report: &AttemptReport) {
        self.report(report);
        if self.is_reattaching {
            // A metaserver that knows the call has ended it; one that does not must end it.
            return self.leave_stream();
        }
        if let Some((_, ticket)) = self.place_request.take() {
            ticket.leave();
        }
    }

    pub(super) fn report(&mut self, over: &AttemptReport) {
        // Checked again: bytes written to a closed connection are lost silently.
        let closed = |(meta, ticket): &(Client, AnswerHandle<Arc<Link>>)| {
            ticket.is_answered() && meta.link.is_broken()
        };
        if let Some((meta, _)) = self.place_request.take_if(|place_request| closed(place_request)) {
            self.inner.lost(&meta);
        }
        if let Some((meta, ticket)) = &self.place_request {
            match meta.link.over(ticket.stream, over) {
                Ok(()) => return,
                Err(_) => {
                    self.inner.lost(meta);
                    self.place_request = None;
                }
            }
        }
        Inner::report_later(&self.inner, *over);
    }
}

/// The report of an attempt without measurements.
pub(crate) fn over(placed: &Placement, ended: AttemptOutcome) -> AttemptReport {
    let nothing = Transfer::default();
    AttemptReport {
        ticket: placed.ticket,
        ended,
        out: nothing,
        back: nothing,
        ran_ns: 0,
        waited_ns: 0,
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn measured(placed: &Placement, routed_call: &RoutedCall<'_>, outcome: &Outcome) -> AttemptReport {
    AttemptReport {
        out: Transfer {
            bytes: routed_call.placing.bytes_out,
            ns: nanoseconds(outcome.sending).max(1),
        },
        back: Transfer {
            bytes: routed_call.placing.bytes_back,
            ns: nanoseconds(outcome.receiving).max(1),
        },
        ran_ns: nanoseconds(outcome.ran),
        waited_ns: nanoseconds(outcome.waited),
        ..over(placed, AttemptOutcome::Done)
    }
}
