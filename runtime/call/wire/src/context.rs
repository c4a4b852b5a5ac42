//! What a routine may know of its call: names of environment variables, and the clock of deadlines.

use std::ffi::CStr;
use std::io;
use std::time::Duration;

use kumi_rpc::{HexDigits, TraceContext};
use nix::time::{ClockId, clock_gettime};

/// The deadline of the call that this process runs a routine for, in nanoseconds of [`monotonic_ns`]. Empty: there is none.
pub const DEADLINE: &CStr = c"KUMI_CALL_DEADLINE";

/// The place in a trace of the call that this process runs a routine for, and of calls that it makes itself. Empty: there
/// is none.
pub const TRACE_PARENT: &CStr = c"TRACEPARENT";

/// A span of this program in the trace of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The place in the trace of what happens in this span.
    pub context: TraceContext,
    parent: TraceContext,
}

impl Span {
    /// A new span for a call that comes from this place in a trace.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(parent: TraceContext) -> io::Result<Span> {
        loop {
            // Zero is no number of a span.
            if let Some(context) = parent.in_span(crate::random::bytes()?) {
                return Ok(Span { context, parent });
            }
        }
    }

    /// The number of the trace, for logs.
    #[must_use]
    pub fn trace(&self) -> HexDigits<'_> {
        self.context.trace()
    }

    /// The number of this span, for logs.
    #[must_use]
    pub fn span(&self) -> HexDigits<'_> {
        self.context.span()
    }

    /// The number of the span in which the call was made, for logs.
    #[must_use]
    pub fn parent(&self) -> HexDigits<'_> {
        self.parent.span()
    }
}

/// A number of a trace or a span as a field of a log's line.
#[cfg(feature = "server")]
pub type LoggedNumber<'a> = Option<tracing::field::DisplayValue<HexDigits<'a>>>;

/// The numbers of trace, span and parent, for the line of a log. Nothing stands there for a call that is in no trace.
#[cfg(feature = "server")]
#[must_use]
pub fn shown(span: Option<&Span>) -> [LoggedNumber<'_>; 3] {
    let numbers = [Span::trace, Span::span, Span::parent];
    numbers.map(|number| span.map(|span| tracing::field::display(number(span))))
}

/// Nanoseconds of the clock that all processes of a machine share and nobody sets.
///
/// # Errors
/// The system has no such clock.
pub fn monotonic_ns() -> nix::Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    Ok(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_span_is_another_in_the_same_trace() {
        let text = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = TraceContext::parse(text).expect("a traceparent");
        let [one, other] = [(); 2].map(|()| Span::new(parent).expect("random bytes"));
        assert!(one.context != other.context && one.context != parent);
        assert_eq!((one.trace(), one.parent()), (parent.trace(), parent.span()));
        assert!(one.context.to_string().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
        assert!(one.context.to_string().ends_with("-01"));
    }
}
