//! Requests for logs of calls.

use alloc::vec::Vec;

use crate::codec::{Cursor, Decode, DecodeError, Encode};
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

impl Encode for LogRequest {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            LogRequest::Latest(most) => (tag::LATEST, *most).put(out),
            LogRequest::Call { call, from } => (tag::CALL, *call, *from).put(out),
            LogRequest::Placed(call) => (tag::PLACED, *call).put(out),
            LogRequest::Trace(trace) => (tag::TRACE, *trace.bytes()).put(out),
        }
    }
}

impl Decode for LogRequest {
    fn take(cursor: &mut Cursor<'_>) -> Result<LogRequest, DecodeError> {
        Ok(match cursor.get()? {
            tag::LATEST => match cursor.get()? {
                0 => return Err(DecodeError::Nothing),
                most => LogRequest::Latest(most),
            },
            tag::CALL => LogRequest::Call { call: cursor.get()?, from: cursor.get()? },
            tag::PLACED => LogRequest::Placed(cursor.get()?),
            tag::TRACE => {
                let trace = TraceId::new(cursor.get()?).map_err(|_| DecodeError::Nothing)?;
                LogRequest::Trace(trace)
            }
            _ => return Err(DecodeError::Tag),
        })
    }
}
