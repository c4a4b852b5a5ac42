//! The place of a call in a trace, as the header `traceparent` of W3C Trace Context and OpenTelemetry has it.

use core::fmt;

use thiserror::Error;

use crate::codec::{Cursor, Decode, DecodeError};

/// Bytes of a `traceparent` as this code writes it.
pub const TRACE_PARENT: usize = 55;

/// The place of a call in a trace: which trace, and which span of it the call is made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
}

/// Why a text is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TraceContextError {
    /// It is not of the form `00-TRACE-SPAN-FLAGS`.
    #[error(
        "a traceparent is `00-`, 32 hexadecimal digits of the trace, `-`, 16 of the span, `-`, and 2 of flags, in lower case"
    )]
    Form,
    /// The number of the trace or the span is zero.
    #[error("the trace and the span of a traceparent are not zero")]
    Zero,
}

/// The value of a digit.
fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    }
}

/// The bytes that these digits are.
fn bytes<const LENGTH: usize>(digits: &[u8]) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    if digits.len() != 2 * LENGTH {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The number of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceId([u8; 16]);

impl TraceId {
    /// Reads the 32 hexadecimal digits of a trace, as logs show them.
    ///
    /// # Errors
    /// [`TraceContextError`].
    pub fn parse(digits: &[u8]) -> Result<TraceId, TraceContextError> {
        TraceId::new(bytes(digits).ok_or(TraceContextError::Form)?)
    }

    /// The trace with this number.
    ///
    /// # Errors
    /// [`TraceContextError::Zero`].
    pub fn new(number: [u8; 16]) -> Result<TraceId, TraceContextError> {
        if number == [0; 16] { Err(TraceContextError::Zero) } else { Ok(TraceId(number)) }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for TraceId {
    /// 32 hexadecimal digits.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        HexDigits(&self.0).fmt(out)
    }
}

impl TraceContext {
    /// Reads a `traceparent`. Of a version above 00 it takes what version 00 has.
    ///
    /// # Errors
    /// [`TraceContextError`].
    pub fn parse(text: &[u8]) -> Result<TraceContext, TraceContextError> {
        let form = TraceContextError::Form;
        let (known, rest) = text.split_at_checked(TRACE_PARENT).ok_or(form)?;
        let version = bytes::<1>(&known[..2]).ok_or(form)?[0];
        let is_longer = match version {
            0 => false,
            0xff => return Err(form),
            _ => rest.first() == Some(&b'-'),
        };
        let dashes = [known[2], known[35], known[52]];
        if dashes != *b"---" || !(rest.is_empty() || is_longer) {
            return Err(form);
        }
        let trace: [u8; 16] = bytes(&known[3..35]).ok_or(form)?;
        let span: [u8; 8] = bytes(&known[36..52]).ok_or(form)?;
        let flags = bytes::<1>(&known[53..]).ok_or(form)?[0];
        if trace == [0; 16] || span == [0; 8] {
            return Err(TraceContextError::Zero);
        }
        Ok(TraceContext { trace, span, flags })
    }

    /// A trace that begins in this span, for a program that none was given.
    ///
    /// # Errors
    /// [`TraceContextError::Zero`]: one of them is zero.
    pub fn begin(trace: [u8; 16], span: [u8; 8]) -> Result<TraceContext, TraceContextError> {
        let context = TraceContext { trace: TraceId::new(trace)?.0, span, flags: 0 };
        context.in_span(span).ok_or(TraceContextError::Zero)
    }

    /// The same trace in another span. `None`: the span is zero.
    #[must_use]
    pub fn in_span(&self, span: [u8; 8]) -> Option<TraceContext> {
        (span != [0; 8]).then_some(TraceContext { span, ..*self })
    }

    /// The number of the trace.
    #[must_use]
    pub fn trace(&self) -> HexDigits<'_> {
        HexDigits(&self.trace)
    }

    /// The number of the trace, to compare it with others.
    #[must_use]
    pub fn trace_id(&self) -> TraceId {
        TraceId(self.trace)
    }

    /// The number of the span.
    #[must_use]
    pub fn span(&self) -> HexDigits<'_> {
        HexDigits(&self.span)
    }
}

impl fmt::Display for TraceContext {
    /// As `traceparent` of version 00: [`TRACE_PARENT`] bytes.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "00-{}-{}-{:02x}", self.trace(), self.span(), self.flags)
    }
}

/// Bytes, shown as digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HexDigits<'a>(&'a [u8]);

impl fmt::Display for HexDigits<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl Decode for TraceContext {
    fn take(cursor: &mut Cursor<'_>) -> Result<TraceContext, DecodeError> {
        TraceContext::parse(cursor.rest()).map_err(|_| DecodeError::Text)
    }
}
