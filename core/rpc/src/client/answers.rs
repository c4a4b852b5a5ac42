//! Decoding of answers, and the check that each is expected.

use super::{Call, CallbackState, Client, ClientEvent, MOST_PINGS, Stream};
use crate::callback::CallbackHead;
use crate::codec::{list, text, whole};
use crate::frame::{FrameError, FrameKind};
use crate::message::{self, CountedName, ResultHead, Value};
use crate::placement;
use alloc::borrow::ToOwned;

impl Client {
    /// Handles a frame other than a chunk.
    pub(super) fn take(
        &mut self,
        kind: FrameKind,
        stream: u32,
        body: &[u8],
    ) -> Result<Option<ClientEvent>, FrameError> {
        Ok(match (kind, self.streams.get(&stream)) {
            (FrameKind::Description, Some((Stream::Interface, _))) => {
                let (hash, json) = placement::description(body)?;
                self.end(stream).then_some(ClientEvent::Description(stream, hash, json))
            }
            (FrameKind::Names, Some((Stream::List, _))) => {
                let names = list(body)?.into_iter().map(|CountedName(name)| name).collect();
                self.end(stream).then_some(ClientEvent::Names(stream, names))
            }
            (FrameKind::Result, _) => self.result(stream, whole(body)?)?,
            (FrameKind::Error, _) if stream == 0 => Some(ClientEvent::Ended(whole(body)?)),
            (FrameKind::Error, Some(_)) => {
                let failure = whole(body)?;
                self.end(stream).then_some(ClientEvent::Failed(stream, failure))
            }
            (FrameKind::Ping, _) => {
                self.pinged(body);
                None
            }
            (FrameKind::Pong, _) => Some(ClientEvent::Pong),
            (FrameKind::Grant, _) => Some(self.granted(stream, whole(body)?)?),
            (FrameKind::Callback, _) => self.callback(stream, whole(body)?)?,
            (FrameKind::Created, _) => self.created(stream)?,
            (FrameKind::Output, _) => self.output(stream, body)?,
            (FrameKind::Voucher, Some((Stream::Vouch, _))) => {
                let voucher = message::name(body)?.to_owned();
                self.end(stream).then_some(ClientEvent::Voucher(stream, voucher))
            }
            (FrameKind::Placed, Some((Stream::Place, wanted))) => {
                wanted.then_some(ClientEvent::Placed(stream, whole(body)?))
            }
            (FrameKind::Closed, Some((Stream::Place, _))) => {
                self.end(stream).then_some(ClientEvent::Closed(stream))
            }
            (FrameKind::State, Some((Stream::Status, _))) => {
                let json = text(body)?.to_owned();
                self.end(stream).then_some(ClientEvent::State(stream, json))
            }
            (
                FrameKind::Description
                | FrameKind::Names
                | FrameKind::Error
                | FrameKind::Voucher
                | FrameKind::Placed
                | FrameKind::Closed
                | FrameKind::State,
                _,
            ) => return Err(FrameError::Unasked),
            _ => return Err(FrameError::Kind),
        })
    }

    /// Handles what a routine has printed.
    fn output(&self, stream: u32, body: &[u8]) -> Result<Option<ClientEvent>, FrameError> {
        let Some((Stream::Call(Call { listens: true, begun: false, .. }), wanted)) =
            self.streams.get(&stream)
        else {
            return Err(FrameError::Unasked);
        };
        let (is_cut, bytes) = message::output(body)?;
        Ok(wanted.then(|| ClientEvent::Output(stream, bytes.to_vec(), is_cut)))
    }

    /// Notes a ping. A flood of pings costs a bounded amount of memory.
    fn pinged(&mut self, body: &[u8]) {
        if let (Some(ping), true) = (body.first_chunk(), self.pings.len() < MOST_PINGS) {
            self.pings.push(*ping);
        }
    }

    /// Handles the confirmation that an object exists, which comes once.
    fn created(&mut self, stream: u32) -> Result<Option<ClientEvent>, FrameError> {
        match self.streams.get_mut(&stream) {
            Some((Stream::Object(there @ false), wanted)) => {
                *there = true;
                Ok(wanted.then_some(ClientEvent::Created(stream)))
            }
            _ => Err(FrameError::Unasked),
        }
    }

    /// The running call of a stream, outside of a callback, and whether somebody waits for it.
    fn running(&mut self, stream: u32) -> Result<(&mut Call, bool), FrameError> {
        match self.streams.get_mut(&stream) {
            Some((
                Stream::Call(
                    call @ Call { begun: false, back: CallbackState::None, asked: None, .. },
                ),
                wanted,
            )) => Ok((call, *wanted)),
            _ => Err(FrameError::Unasked),
        }
    }

    fn result(&mut self, stream: u32, head: ResultHead) -> Result<Option<ClientEvent>, FrameError> {
        let (call, wanted) = self.running(stream)?;
        call.begun = true;
        for (argument, value) in &head.values {
            if let Value::FileLength(bytes) = value {
                call.file(stream, *argument, *bytes)?;
            }
        }
        if call.parts.is_complete() {
            self.done = Some(stream);
        }
        Ok(wanted.then_some(ClientEvent::Result(stream, head)))
    }

    fn callback(
        &mut self,
        stream: u32,
        head: CallbackHead,
    ) -> Result<Option<ClientEvent>, FrameError> {
        let (call, wanted) = self.running(stream)?;
        if !call.runs {
            return Err(FrameError::Unasked);
        }
        call.back = if wanted { CallbackState::Asked } else { CallbackState::Refused };
        Ok(wanted.then_some(ClientEvent::Callback(stream, head)))
    }
}
