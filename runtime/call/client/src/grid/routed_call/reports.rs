//! Reports of attempts to a metaserver.

use std::sync::Arc;
use std::time::Duration;

use kumi_routing::Outcome;
use kumi_rpc::{AttemptOutcome, AttemptReport, Placement, Transfer};

use super::RoutedCall;
use crate::answer_handle::AnswerHandle;
use crate::grid::Inner;
use crate::link::Link;
use crate::{CallError, Client};

impl RoutedCall<'_> {
    /// Tells the metaserver why the attempt failed, for those who look on.
    pub(super) fn give_reason(&self, error: &CallError) {
        if let (Some((meta, ticket)), Some(at)) = (&self.place_request, self.routing.last()) {
            // The report that follows finds out whether the connection is lost.
            let _lost = meta.link.reason(ticket.stream, at.ticket, &error.to_string());
        }
    }

    /// Reports how an attempt ended.
    pub(super) fn report(&mut self, place: &Placement, outcome: Outcome) {
        let measured = self.done.filter(|_| outcome == Outcome::Done);
        let report = measured.unwrap_or_else(|| over(place, reported(outcome)));
        // Checked again: bytes written to a closed connection are lost silently.
        let closed = |(meta, ticket): &(Client, AnswerHandle<Arc<Link>>)| {
            ticket.is_answered() && meta.link.is_broken()
        };
        if let Some(asked @ (meta, ticket)) = &self.place_request {
            if !closed(asked) && meta.link.over(ticket.stream, &report).is_ok() {
                return;
            }
            self.lose_metaserver();
        }
        Inner::report_later(&self.inner, report);
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

/// How a metaserver is told of an outcome.
fn reported(outcome: Outcome) -> AttemptOutcome {
    match outcome {
        Outcome::Done => AttemptOutcome::Done,
        Outcome::NotBegun => AttemptOutcome::NotBegun,
        Outcome::Broken => AttemptOutcome::Broken,
        Outcome::Failed => AttemptOutcome::Failed,
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The report of an attempt that has run. `bytes` are those of arguments and results, if all of them went between client and
/// server.
pub(crate) fn measured(
    placed: &Placement,
    outcome: &super::Outcome,
    bytes: Option<(u64, u64)>,
) -> AttemptReport {
    let moved = |bytes: Option<u64>, time: Duration| {
        let ns = nanoseconds(time).max(1);
        bytes.map_or_else(Transfer::default, |bytes| Transfer { bytes, ns })
    };
    AttemptReport {
        out: moved(bytes.map(|bytes| bytes.0), outcome.sending),
        back: moved(bytes.map(|bytes| bytes.1), outcome.receiving),
        ran_ns: nanoseconds(outcome.ran),
        waited_ns: nanoseconds(outcome.waited),
        ..over(placed, AttemptOutcome::Done)
    }
}
