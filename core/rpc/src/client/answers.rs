//! Decoding of answers, and the check that each is expected.

use super::{Call, CallbackState, Client, ClientEvent, MOST_PINGS, Stream};
use crate::ProtocolError;
use crate::callback::CallbackHead;
use crate::codec::{Cursor, DecodeError};
use crate::frame::{FrameKind, Header};
use crate::held_array;
use crate::message::{self, Failure, ResultHead, Value};
use crate::placement::Placement;
use crate::shared_memory::MemoryGrant;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

impl Client {
    /// Handles a frame other than a chunk.
    pub(super) fn take(
        &mut self,
        header: Header,
        body: &[u8],
    ) -> Result<Option<ClientEvent>, ProtocolError> {
        let Header { stream, kind, .. } = header;
        let kind = kind.unwrap_or(FrameKind::Call);
        let malformed = |why| ProtocolError::Body { kind: kind as u8, why };
        let unasked = ProtocolError::Unasked { kind: kind as u8, stream };
        Ok(match kind {
            FrameKind::Description => {
                if !matches!(self.streams.get(&stream), Some((Stream::Interface, _))) {
                    return Err(unasked);
                }
                let (hash, json) = description(body).map_err(malformed)?;
                self.end(stream).then_some(ClientEvent::Description(stream, hash, json))
            }
            FrameKind::Names => {
                if !matches!(self.streams.get(&stream), Some((Stream::List, _))) {
                    return Err(unasked);
                }
                let names = names(body).map_err(malformed)?;
                self.end(stream).then_some(ClientEvent::Names(stream, names))
            }
            FrameKind::Result => {
                let head = ResultHead::decode(body).map_err(malformed)?;
                self.result(stream, head)?
            }
            FrameKind::Error => {
                let failure = Failure::decode(body).map_err(malformed)?;
                if stream == 0 {
                    return Ok(Some(ClientEvent::Ended(failure)));
                }
                if !self.streams.contains_key(&stream) {
                    return Err(unasked);
                }
                self.end(stream).then_some(ClientEvent::Failed(stream, failure))
            }
            FrameKind::Ping => {
                self.pinged(body);
                None
            }
            FrameKind::Pong => Some(ClientEvent::Pong),
            FrameKind::Grant => {
                Some(self.granted(stream, MemoryGrant::decode(body).map_err(malformed)?)?)
            }
            FrameKind::Callback => {
                let head = CallbackHead::decode(body).map_err(malformed)?;
                self.callback(stream, head)?
            }
            FrameKind::Created => self.created(stream)?,
            FrameKind::Output => self.output(stream, body)?,
            FrameKind::Voucher => self.voucher(stream, body)?,
            FrameKind::Placed | FrameKind::Closed | FrameKind::State => {
                return self.take_of_metaserver(stream, kind, body);
            }
            _ => return Err(ProtocolError::Kind(kind as u8)),
        })
    }

    /// Handles what a routine has printed.
    fn output(&self, stream: u32, body: &[u8]) -> Result<Option<ClientEvent>, ProtocolError> {
        let kind = FrameKind::Output as u8;
        let Some((Stream::Call(Call { listens: true, begun: false, .. }), wanted)) =
            self.streams.get(&stream)
        else {
            return Err(ProtocolError::Unasked { kind, stream });
        };
        let (is_cut, bytes) =
            message::output(body).map_err(|why| ProtocolError::Body { kind, why })?;
        Ok(wanted.then(|| ClientEvent::Output(stream, bytes.to_vec(), is_cut)))
    }

    /// Notes a ping. A flood of pings costs a bounded amount of memory.
    fn pinged(&mut self, body: &[u8]) {
        if let (Some(ping), true) = (body.first_chunk(), self.pings.len() < MOST_PINGS) {
            self.pings.push(*ping);
        }
    }

    /// Handles the confirmation that an object exists, which comes once.
    fn created(&mut self, stream: u32) -> Result<Option<ClientEvent>, ProtocolError> {
        match self.streams.get_mut(&stream) {
            Some((Stream::Object(there @ false), wanted)) => {
                *there = true;
                Ok(wanted.then_some(ClientEvent::Created(stream)))
            }
            _ => Err(ProtocolError::Unasked { kind: FrameKind::Created as u8, stream }),
        }
    }

    fn voucher(&mut self, stream: u32, body: &[u8]) -> Result<Option<ClientEvent>, ProtocolError> {
        let kind = FrameKind::Voucher as u8;
        if !matches!(self.streams.get(&stream), Some((Stream::Vouch, _))) {
            return Err(ProtocolError::Unasked { kind, stream });
        }
        let voucher =
            held_array::take_voucher(body).map_err(|why| ProtocolError::Body { kind, why })?;
        Ok(self.end(stream).then_some(ClientEvent::Voucher(stream, voucher)))
    }

    /// Handles a frame of a metaserver.
    fn take_of_metaserver(
        &mut self,
        stream: u32,
        kind: FrameKind,
        body: &[u8],
    ) -> Result<Option<ClientEvent>, ProtocolError> {
        let malformed = |why| ProtocolError::Body { kind: kind as u8, why };
        let unasked = ProtocolError::Unasked { kind: kind as u8, stream };
        Ok(match kind {
            FrameKind::Placed => match self.streams.get(&stream) {
                Some((Stream::Place, wanted)) => {
                    let placed = Placement::decode(body).map_err(malformed)?;
                    wanted.then_some(ClientEvent::Placed(stream, placed))
                }
                _ => return Err(unasked),
            },
            FrameKind::Closed => match self.streams.get(&stream) {
                Some((Stream::Place, _)) => self.end(stream).then_some(ClientEvent::Closed(stream)),
                _ => return Err(unasked),
            },
            FrameKind::State => match self.streams.get(&stream) {
                Some((Stream::Status, _)) => {
                    let json =
                        core::str::from_utf8(body).map_err(|_| malformed(DecodeError::Text))?;
                    self.end(stream).then(|| ClientEvent::State(stream, json.to_owned()))
                }
                _ => return Err(unasked),
            },
            _ => return Err(ProtocolError::Kind(kind as u8)),
        })
    }

    /// The running call of a stream, outside of a callback, and whether somebody waits for it.
    fn running(
        &mut self,
        stream: u32,
        kind: FrameKind,
    ) -> Result<(&mut Call, bool), ProtocolError> {
        match self.streams.get_mut(&stream) {
            Some((
                Stream::Call(
                    call @ Call { begun: false, back: CallbackState::None, asked: None, .. },
                ),
                wanted,
            )) => Ok((call, *wanted)),
            _ => Err(ProtocolError::Unasked { kind: kind as u8, stream }),
        }
    }

    fn result(
        &mut self,
        stream: u32,
        head: ResultHead,
    ) -> Result<Option<ClientEvent>, ProtocolError> {
        let (call, wanted) = self.running(stream, FrameKind::Result)?;
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
    ) -> Result<Option<ClientEvent>, ProtocolError> {
        let (call, wanted) = self.running(stream, FrameKind::Callback)?;
        if !call.runs {
            return Err(ProtocolError::Unasked { kind: FrameKind::Callback as u8, stream });
        }
        call.back = if wanted { CallbackState::Asked } else { CallbackState::Refused };
        Ok(wanted.then_some(ClientEvent::Callback(stream, head)))
    }
}

fn description(body: &[u8]) -> Result<(u64, String), DecodeError> {
    let mut cursor = Cursor::new(body);
    let hash = cursor.u64()?;
    let json = core::str::from_utf8(cursor.rest()).map_err(|_| DecodeError::Text)?;
    Ok((hash, json.to_owned()))
}

fn names(body: &[u8]) -> Result<Vec<String>, DecodeError> {
    let mut cursor = Cursor::new(body);
    let mut names = Vec::new();
    while !cursor.is_empty() {
        let length = cursor.u16()?;
        names.push(message::name(cursor.take(usize::from(length))?)?.to_owned());
    }
    Ok(names)
}
