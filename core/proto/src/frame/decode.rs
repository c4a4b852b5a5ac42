//! Decoding of frames.

use super::{
    APPEND, APPEND_REPLY, ATOMIC_REPLY, ATOMIC_REQUEST, Frame, FrameError, GET_LIST, GET_REPLY,
    GET_REQUEST, GET_STRIDED, MESSAGE, MESSAGE_PART, MOST_HEADER_BYTES, MULTICAST,
    MULTICAST_APPEND, MULTICAST_APPEND_DONE, MULTICAST_DONE, Operation, PUT, PUT_COUNTED, PUT_DONE,
    PUT_LIST, PUT_STRIDED, Payload, REFUSED, Reader, SERVICE, SERVICE_PART, Width, padding, zero,
};
use alloc::vec::Vec;

impl<'d> Frame<'d, &'d [u8]> {
    /// The frame that bytes are which nobody else can write.
    ///
    /// # Errors
    /// [`FrameError`] for anything that [`Self::write`] cannot have made.
    pub fn decode(bytes: &'d [u8]) -> Result<Self, FrameError> {
        Self::decode_parts(bytes, bytes, |list| list)
    }
}

impl<'l, D: Payload> Frame<'l, D> {
    /// The frame that these bytes are, whoever may write them meanwhile. The header is copied once and decoded then, and
    /// so is the list, into `scratch`, which grows as needed. Neither is copied if the bytes are private.
    ///
    /// # Errors
    /// [`FrameError`] for anything that [`Self::write`] cannot have made.
    #[inline]
    pub fn decode_from(bytes: D, scratch: &'l mut Vec<u8>) -> Result<Self, FrameError>
    where
        D: 'l,
    {
        let mut room = [0; MOST_HEADER_BYTES];
        let length = bytes.len().min(MOST_HEADER_BYTES);
        let header = bytes.split_at(length).0.private(&mut room[..length]);
        Self::decode_parts(header, bytes, |list: D| {
            if scratch.len() < list.len() {
                scratch.resize(list.len(), 0);
            }
            list.private(&mut scratch[..list.len()])
        })
    }

    /// Decodes the frame that begins with `header`. `private` makes a list private.
    fn decode_parts(
        header: &[u8],
        bytes: D,
        private: impl FnOnce(D) -> &'l [u8],
    ) -> Result<Self, FrameError> {
        let &kind = header.first().ok_or(FrameError::Empty)?;
        if !matches!(kind, MESSAGE..=MULTICAST_DONE | APPEND | APPEND_REPLY | PUT_LIST..=SERVICE_PART)
        {
            return Err(FrameError::Kind(kind));
        }
        let mut r = Reader::new(kind, header, bytes);
        let [parameter, second, third] = r.take::<3>()?;
        let reserved = match kind {
            MULTICAST | PUT | PUT_COUNTED | PUT_STRIDED | PUT_LIST..=MULTICAST_APPEND_DONE => {
                &[][..]
            }
            MESSAGE | MESSAGE_PART | SERVICE => &[parameter],
            ATOMIC_REQUEST => &[third],
            REFUSED | MULTICAST_DONE | APPEND | APPEND_REPLY => &[second, third],
            _ => &[parameter, second, third],
        };
        zero(&r, reserved)?;
        let count = usize::from(u16::from_le_bytes([second, third]));
        if padding::may_have(kind) {
            r.cut(count)?;
        }
        match kind {
            SERVICE => Self::decode_service(r, u16::from_le_bytes([second, third])),
            MULTICAST => Self::decode_multicast(r, parameter, count, private),
            PUT_LIST => Self::decode_put_list(r, parameter, count, private),
            GET_LIST => Self::decode_get_list(r, parameter, count, private),
            MULTICAST_APPEND => Self::decode_multicast_append(r, parameter, count, private),
            MULTICAST_APPEND_DONE => Self::decode_append_done(r, parameter, count, private),
            _ => Self::decode_without_list(r, kind, parameter, second),
        }
    }

    fn decode_without_list(
        mut r: Reader<'_, D>,
        kind: u8,
        parameter: u8,
        second: u8,
    ) -> Result<Self, FrameError> {
        match kind {
            MESSAGE => Self::decode_message(r),
            MESSAGE_PART if r.rest().is_empty() => Err(r.bad_length()),
            MESSAGE_PART => Ok(Self::MessagePart { data: r.rest() }),
            PUT => Self::decode_put(r, parameter),
            GET_REQUEST => {
                let ((window, offset), token, len) = (r.place()?, r.u64()?, r.u32()?);
                r.end()?;
                Ok(Self::GetRequest { token, window, offset, len })
            }
            GET_REPLY => {
                let (offset_in_request, token) = (r.u32()?, r.u64()?);
                Ok(Self::GetReply { token, offset_in_request, data: r.rest() })
            }
            ATOMIC_REQUEST => Self::decode_atomic(r, parameter, second),
            ATOMIC_REPLY => {
                let (token, value) = (r.u64()?, r.u64()?);
                r.end()?;
                Ok(Self::AtomicReply { token, value })
            }
            PUT_COUNTED => Self::decode_put_counted(r, parameter),
            PUT_DONE => Self::decode_put_done(r),
            PUT_STRIDED => Self::decode_put_strided(r, parameter),
            GET_STRIDED => Self::decode_get_strided(r),
            MULTICAST_DONE => Self::decode_multicast_done(r, parameter),
            APPEND => Self::decode_append(r, parameter),
            APPEND_REPLY => Self::decode_append_reply(r, parameter),
            SERVICE_PART => Self::decode_service_part(&r),
            _ => {
                let token = r.u64()?;
                r.end()?;
                if parameter == 0 {
                    return Err(r.bad("code"));
                }
                Ok(Self::Refused { token, code: parameter })
            }
        }
    }

    fn decode_message(mut r: Reader<'_, D>) -> Result<Self, FrameError> {
        let (tag, total) = (r.u32()?, r.u64()?);
        let data = r.rest();
        if (data.len() as u64) > total {
            return Err(r.bad("total"));
        }
        Ok(Self::Message { tag, total, data })
    }

    fn decode_put(mut r: Reader<'_, D>, has_notify: u8) -> Result<Self, FrameError> {
        let ((window, offset), notify) = (r.place()?, r.u32()?);
        let notify = r.notify(has_notify, notify)?;
        Ok(Self::Put { window, offset, notify, data: r.rest() })
    }

    fn decode_atomic(mut r: Reader<'_, D>, operation: u8, width: u8) -> Result<Self, FrameError> {
        let ((window, offset), token) = (r.place()?, r.u64()?);
        let (operand, operand2) = (r.u64()?, r.u64()?);
        r.end()?;
        let operation = match operation {
            0 => Operation::FetchAdd,
            1 => Operation::Swap,
            2 => Operation::CompareSwap,
            3 => Operation::FetchAnd,
            4 => Operation::FetchOr,
            5 => Operation::FetchXor,
            _ => return Err(r.bad("operation")),
        };
        let width = match width {
            0 => Width::Eight,
            1 => Width::Four,
            _ => return Err(r.bad("width")),
        };
        if width == Width::Four && operand > u64::from(u32::MAX) {
            return Err(r.bad("operand"));
        }
        if width == Width::Four && operand2 > u64::from(u32::MAX) {
            return Err(r.bad("operand2"));
        }
        if operation != Operation::CompareSwap && operand2 != 0 {
            return Err(r.bad("operand2"));
        }
        Ok(Self::AtomicRequest { token, window, offset, operation, width, operand, operand2 })
    }
}
