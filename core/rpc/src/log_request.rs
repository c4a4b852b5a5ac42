//! Requests for logs of calls.

use alloc::vec::Vec;

use crate::codec::{Cursor, DecodeError};
use crate::trace_context::TraceId;

/// Which calls of its user a client wants to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRequest {
    /// The latest ones, at most so many, without what they printed. Not 0.
    Latest(u32),
    /// The call or object with this number of the server, and its lines from this one on.
    Call {
        /// The server's number.
        call: u64,
        /// The first line that is wanted; the first line of a call is 0.
        from: u64,
    },
    /// The attempts of the call with this number of a metaserver, without what they printed.
    Placed(u64),
    /// The calls of a trace, without what they printed.
    Trace(TraceId),
}

mod tag {
    pub const LATEST: u8 = 1;
    pub const CALL: u8 = 2;
    pub const PLACED: u8 = 3;
    pub const TRACE: u8 = 4;
}

impl LogRequest {
    /// Appends the body of a frame.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            LogRequest::Latest(most) => {
                out.push(tag::LATEST);
                out.extend_from_slice(&most.to_le_bytes());
            }
            LogRequest::Call { call, from } => {
                out.push(tag::CALL);
                out.extend_from_slice(&call.to_le_bytes());
                out.extend_from_slice(&from.to_le_bytes());
            }
            LogRequest::Placed(call) => {
                out.push(tag::PLACED);
                out.extend_from_slice(&call.to_le_bytes());
            }
            LogRequest::Trace(trace) => {
                out.push(tag::TRACE);
                out.extend_from_slice(trace.bytes());
            }
        }
    }

    /// Decodes the body of a frame.
    ///
    /// # Errors
    /// The bytes are malformed, or ask for nothing.
    pub(crate) fn decode(body: &[u8]) -> Result<LogRequest, DecodeError> {
        let mut cursor = Cursor::new(body);
        let request = match cursor.u8()? {
            tag::LATEST => match cursor.u32()? {
                0 => return Err(DecodeError::Nothing),
                most => LogRequest::Latest(most),
            },
            tag::CALL => LogRequest::Call { call: cursor.u64()?, from: cursor.u64()? },
            tag::PLACED => LogRequest::Placed(cursor.u64()?),
            tag::TRACE => {
                let trace = TraceId::new(cursor.array()?).map_err(|_| DecodeError::Nothing)?;
                LogRequest::Trace(trace)
            }
            _ => return Err(DecodeError::Tag),
        };
        cursor.end()?;
        Ok(request)
    }
}
