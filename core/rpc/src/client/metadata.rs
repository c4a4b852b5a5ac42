//! What a client says of a request, in frames before it.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Client, Stream};
use crate::frame::{self, FrameKind};
use crate::resources::Resources;
use crate::trace_context::TraceContext;

/// What a client says of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallMetadata {
    /// It wants what the routine prints.
    pub listens: bool,
    /// The call's place in a trace. `None`: it is in none.
    pub trace: Option<TraceContext>,
    /// The threads and the memory that it asks for. `None`: it asks for nothing.
    pub resources: Option<Resources>,
}

impl Client {
    /// Asks for what the routine of a call prints. `out` has the call, and the request goes before it. Older servers skip it.
    pub fn listen(&mut self, stream: u32, out: &mut Vec<u8>) {
        if let Some((Stream::Call(call), _)) = self.streams.get_mut(&stream) {
            call.listens = true;
            frame::insert(out, 0, FrameKind::Listen, stream, ());
        }
    }

    /// Says in which trace a call is, or a request for its place. `out` has that from byte `at` on, and this goes before it.
    /// Older servers skip it.
    pub fn trace(stream: u32, context: &TraceContext, at: usize, out: &mut Vec<u8>) {
        frame::insert(out, at, FrameKind::Trace, stream, context.to_string().as_bytes());
    }

    /// Asks for threads and memory for a call. `out` has the call, and this goes before it. It is for servers whose hello
    /// mentions resources: older ones would skip it.
    pub fn ask_resources(stream: u32, resources: &Resources, out: &mut Vec<u8>) {
        frame::insert(out, 0, FrameKind::Resources, stream, resources);
    }

    /// Says all that there is to say of a call. `out` has the call.
    pub fn metadata(&mut self, stream: u32, metadata: &CallMetadata, out: &mut Vec<u8>) {
        if metadata.listens {
            self.listen(stream, out);
        }
        if let Some(resources) = &metadata.resources {
            Client::ask_resources(stream, resources, out);
        }
        if let Some(trace) = &metadata.trace {
            Client::trace(stream, trace, 0, out);
        }
    }
}
