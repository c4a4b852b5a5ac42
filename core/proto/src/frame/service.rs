//! Frames of services: messages for a state machine of a library at the rank addressed.

use super::{Frame, FrameError, Payload, Reader, SERVICE, SERVICE_PART, Writer};

/// Bytes before the data of a [`ServiceMessage`].
pub const SERVICE_BYTES: usize = 8;
/// Bytes before the data of a [`Frame::ServicePart`].
pub const SERVICE_PART_BYTES: usize = 4;

/// First part of a message to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceMessage<D> {
    /// The service's number, the same at all ranks.
    pub service: u16,
    /// Bytes of the whole message.
    pub total: u32,
    /// This part.
    pub data: D,
}

impl<D> ServiceMessage<D> {
    pub(super) fn write<'b>(&self, to: Writer<'b>) -> Writer<'b> {
        let [low, high] = self.service.to_le_bytes();
        to.start([SERVICE, 0, low, high]).u32(self.total)
    }
}

pub(super) fn write_part(to: Writer<'_>) -> Writer<'_> {
    to.start([SERVICE_PART, 0, 0, 0])
}

impl<D: Payload> Frame<'_, D> {
    pub(super) fn decode_service(mut r: Reader<'_, D>, service: u16) -> Result<Self, FrameError> {
        let (total, data) = (r.u32()?, r.rest());
        if data.len() as u64 > u64::from(total) {
            return Err(r.bad("total"));
        }
        Ok(Self::Service(ServiceMessage { service, total, data }))
    }

    pub(super) fn decode_service_part(r: &Reader<'_, D>) -> Result<Self, FrameError> {
        let data = r.rest();
        if data.is_empty() { Err(r.bad_length()) } else { Ok(Self::ServicePart { data }) }
    }
}
