//! Packet encryption: the header in clear, the body encrypted, both authenticated. Byte table and
//! threat model: `docs/reference/channel-protocol.md`, "Encrypted packets".

use crate::wire::{
    ChannelKey, DropReason, HEADER_BYTES, Header, PART, key_tag, read_header, split, u32_at,
    write_header,
};
use crate::{Config, Rank, wire};
use alloc::boxed::Box;
use alloc::vec::Vec;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Version of encrypted packets.
pub const SEALED_VERSION: u8 = 7;
/// Bytes of the authentication tag, the first of the trailer.
pub const TAG_BYTES: usize = 16;
/// Bytes behind an encrypted packet's body: the tag, and the upper half of the counter.
pub const TRAILER_BYTES: usize = TAG_BYTES + 4;
/// A packet whose counter is more than this behind the highest of its sender is dropped: by then the
/// numbers of data and acks might have come round.
pub const STALE: u64 = 1 << 20;

/// The random key with which a job's packets are encrypted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SealKey(pub [u8; 16]);

impl core::fmt::Debug for SealKey {
    /// Does not show the key: it must not end up in logs.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SealKey(..)")
    }
}

/// A packet that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedPacket<'b> {
    /// Its header.
    pub header: Header,
    /// Which of its sender's packets it is.
    pub counter: u64,
    /// Its body, decrypted.
    pub body: &'b [u8],
}

/// Encrypts the packets of one rank and decrypts those of its peers.
///
/// It owns the counter that makes every nonce different, so it cannot be copied. Two codecs with the
/// same key for the same rank would break the cipher.
#[derive(Debug)]
pub struct SealedCodec {
    key: LessSafeKey,
    tag: u32,
    max_datagram: usize,
    /// The number of the next packet.
    counter: u64,
}

fn nonce(from: Rank, counter: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..4].copy_from_slice(&from.to_le_bytes());
    bytes[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl SealedCodec {
    /// For a channel whose datagrams have at most `max_datagram` bytes. The first packet sealed gets the
    /// number `first`: 0, except in tests.
    ///
    /// # Panics
    /// Never: the key has the length that the cipher wants.
    pub fn new(channel: ChannelKey, key: &SealKey, max_datagram: usize, first: u64) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, &key.0).expect("a key of 16 bytes");
        Self { key: LessSafeKey::new(key), tag: key_tag(channel), max_datagram, counter: first }
    }

    /// Completes and encrypts a packet whose body is in place behind the first [`HEADER_BYTES`] bytes and
    /// in front of the last [`TRAILER_BYTES`].
    ///
    /// # Panics
    /// If `packet` is shorter than header and trailer or longer than 65,535 bytes: the caller's fault. After
    /// 2⁶⁴ packets.
    pub fn seal(&mut self, header: &Header, packet: &mut [u8]) {
        let counter = self.counter;
        self.counter = counter.checked_add(1).expect("no number is used twice");
        let (bytes, rest) =
            packet.split_first_chunk_mut::<HEADER_BYTES>().expect("packet shorter than its header");
        write_header(bytes, SEALED_VERSION, self.tag, header, rest.len());
        let counter_bytes = counter.to_le_bytes();
        bytes[..4].copy_from_slice(&counter_bytes[..4]);
        let (body, trailer) = rest
            .split_last_chunk_mut::<TRAILER_BYTES>()
            .expect("packet shorter than its header and trailer");
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(header.from, counter), Aad::from(&*bytes), body)
            .expect("shorter than 64 GB");
        trailer[..TAG_BYTES].copy_from_slice(tag.as_ref());
        trailer[TAG_BYTES..].copy_from_slice(&counter_bytes[4..]);
    }

    /// Header, counter and body of a datagram that passes every check that needs no state of the pair.
    /// The body is decrypted into `room`, which must hold `max_datagram` bytes. After an error the
    /// contents of `room` mean nothing.
    ///
    /// # Errors
    /// The first check that fails.
    ///
    /// # Panics
    /// If `room` is too small.
    pub fn open<'r>(
        &self,
        me: Rank,
        ranks: u32,
        datagram: &[u8],
        room: &'r mut [u8],
    ) -> Result<OpenedPacket<'r>, DropReason> {
        let (bytes, rest) = split(datagram, SEALED_VERSION, self.tag, self.max_datagram)?;
        let (body, trailer) = rest.split_last_chunk::<TRAILER_BYTES>().ok_or(DropReason::Length)?;
        let (tag, upper) = trailer.split_at(TAG_BYTES);
        let upper = upper.try_into().map_or(0, u32::from_le_bytes);
        let counter = u64::from(upper) << 32 | u64::from(u32_at(bytes, 0));
        let from = u32_at(bytes, 12);
        let room = &mut room[..body.len()];
        room.copy_from_slice(body);
        let tag = tag.try_into().map_err(|_| DropReason::Seal)?;
        let body = self
            .key
            .open_in_place_separate_tag(nonce(from, counter), Aad::from(bytes), tag, room, 0..)
            .map_err(|_| DropReason::Seal)?;
        let header = read_header(bytes, body.len(), me, ranks)?;
        if header.flags & PART != 0 {
            return Err(DropReason::Kind);
        }
        Ok(OpenedPacket { header, counter, body })
    }
}

/// How a channel's packets are written and checked.
#[derive(Debug)]
pub(crate) struct PacketCodec {
    how: Protection,
    /// Buffer in which packets are laid end to end if they do not lie so in the ring, or are encrypted.
    /// The ring keeps frames in clear, so that they can be sent again under other numbers. As long as
    /// the longest run; allocated at first use.
    out: Vec<u8>,
    run_bytes: usize,
}

#[derive(Debug)]
enum Protection {
    /// In clear, with a checksum.
    Clear(wire::Codec),
    /// Encrypted.
    Sealed(Box<SealedCodec>),
}

impl PacketCodec {
    /// `run_bytes` is the length of the longest run of packets.
    pub(crate) fn clear(key: ChannelKey, config: &Config, run_bytes: usize) -> Self {
        let codec = wire::Codec::new(key, config.max_datagram);
        let how = Protection::Clear(codec.covering(config.checksum));
        Self { how, out: Vec::new(), run_bytes }
    }

    /// The same of encrypted packets, of which the first has the number `first`.
    pub(crate) fn sealed(
        channel: ChannelKey,
        key: &SealKey,
        max_datagram: usize,
        run_bytes: usize,
        first: u64,
    ) -> Self {
        let how = Protection::Sealed(Box::new(SealedCodec::new(channel, key, max_datagram, first)));
        Self { how, out: Vec::new(), run_bytes }
    }

    /// Bytes behind the body.
    pub(crate) fn trailer(&self) -> usize {
        match self.how {
            Protection::Clear(_) => 0,
            Protection::Sealed(_) => TRAILER_BYTES,
        }
    }

    /// Completes a packet where it is; the trailer's place included.
    pub(crate) fn seal(&mut self, header: &Header, packet: &mut [u8]) {
        match &mut self.how {
            Protection::Clear(codec) => codec.seal(header, packet),
            Protection::Sealed(codec) => codec.seal(header, packet),
        }
    }

    /// How many bytes at the beginning of a data packet of `length` bytes have to lie in the ring.
    pub(crate) fn covered(&self, length: usize) -> usize {
        match &self.how {
            Protection::Clear(codec) => codec.covered(length),
            // A packet is encrypted as a whole, and again when it is sent again.
            Protection::Sealed(_) => length,
        }
    }

    /// Completes a packet of `length` bytes of which only the `head` is in the ring, which the caller made at least as
    /// long as [`Self::covered`] says.
    pub(crate) fn seal_head(&self, header: &Header, head: &mut [u8], length: usize) {
        if let Protection::Clear(codec) = &self.how {
            codec.seal_start(header, head, length);
        }
    }

    /// Completes a packet that the ring keeps and that is to be at byte `at` of [`Self::run`]; its length on
    /// the wire. `in_place`: if it is not encrypted it is there already.
    pub(crate) fn seal_kept(
        &mut self,
        header: &Header,
        kept: &mut [u8],
        at: usize,
        in_place: bool,
    ) -> usize {
        let length = kept.len() + self.trailer();
        let codec = match &mut self.how {
            Protection::Clear(codec) => {
                codec.seal(header, kept);
                if !in_place {
                    staging(&mut self.out, self.run_bytes)[at..at + length].copy_from_slice(kept);
                }
                return length;
            }
            Protection::Sealed(codec) => codec,
        };
        let packet = &mut staging(&mut self.out, self.run_bytes)[at..at + length];
        packet[HEADER_BYTES..kept.len()].copy_from_slice(&kept[HEADER_BYTES..]);
        codec.seal(header, packet);
        length
    }

    /// The packets that [`Self::seal_kept`] completed lie end to end in [`Self::staged`], not in the ring.
    pub(crate) fn stages(&self, in_place: bool) -> bool {
        !in_place || matches!(self.how, Protection::Sealed(_))
    }

    /// The buffer for runs that do not lie end to end in the ring.
    pub(crate) fn staged(&self) -> &[u8] {
        &self.out
    }

    /// Number of the next encrypted packet; 0 if none is encrypted.
    pub(crate) fn counter(&self) -> u64 {
        match &self.how {
            Protection::Clear(_) => 0,
            Protection::Sealed(codec) => codec.counter,
        }
    }

    /// Header, counter (0 if there is none) and body of a datagram; see [`SealedCodec::open`].
    pub(crate) fn open<'b>(
        &self,
        me: Rank,
        ranks: u32,
        datagram: &'b [u8],
        room: &'b mut [u8],
    ) -> Result<OpenedPacket<'b>, DropReason> {
        match &self.how {
            Protection::Clear(codec) => {
                let (header, body) = codec.open(me, ranks, datagram)?;
                Ok(OpenedPacket { header, counter: 0, body })
            }
            Protection::Sealed(codec) => codec.open(me, ranks, datagram, room),
        }
    }

    /// See [`wire::Codec::open_head`]; nothing of encrypted packets, which are opened as a whole.
    pub(crate) fn open_head<'d>(
        &self,
        me: Rank,
        ranks: u32,
        head: &'d [u8],
        rest: usize,
    ) -> Option<(Header, &'d [u8])> {
        match &self.how {
            Protection::Clear(codec) => codec.open_head(me, ranks, head, rest),
            Protection::Sealed(_) => None,
        }
    }

    /// See [`wire::Codec::open_next`]; nothing of encrypted packets, of which each is a packet of its own.
    #[inline]
    pub(crate) fn open_next<'d>(
        &self,
        first: &[u8; HEADER_BYTES],
        datagram: &'d [u8],
    ) -> Option<(u32, u16, &'d [u8])> {
        match &self.how {
            Protection::Clear(codec) => codec.open_next(first, datagram),
            Protection::Sealed(_) => None,
        }
    }
}

/// The place for runs of packets, made when it is needed first.
fn staging(out: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if out.is_empty() {
        // Zeros of the allocator: pages that no run reaches stay untouched.
        *out = alloc::vec![0; bytes];
    }
    out
}
