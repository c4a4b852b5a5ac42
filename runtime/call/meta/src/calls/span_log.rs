//! The log of calls that are in a trace. Others leave no lines: there are too many, and the page shows the last ones.

use kumi_call_wire::context::{Span, shown};
use kumi_rpc::Placement;

/// Logs that a call has a place.
pub fn placed(span: Option<&Span>, routine: &str, user: &str, placed: &Placement) {
    let ([trace, span, parent], Some(_)) = (shown(span), span) else { return };
    let (call, attempt) = (placed.ticket.call, placed.ticket.attempt);
    let (server, address) = (placed.server.as_str(), placed.address.as_str());
    tracing::info!(call, attempt, routine, user, server, address, trace, span, parent, "is placed");
}

/// Logs that a call has ended.
pub fn ended(span: Option<&Span>, routine: &str, user: &str, call: u64, outcome: &str) {
    let ([trace, span, parent], Some(_)) = (shown(span), span) else { return };
    tracing::info!(call, routine, user, trace, span, parent, "is over: {outcome}");
}
