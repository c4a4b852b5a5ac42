//! Packets: one definition of the header, checked on arrival. Byte tables are in
//! `docs/reference/channel-protocol.md`.

use crate::{Checksum, Rank};
use alloc::boxed::Box;
use twox_hash::XxHash3_64;

/// Bytes before a packet's body.
pub const HEADER_BYTES: usize = 32;
/// Marks a datagram as one of this protocol: `K` `U`.
pub const MAGIC: u16 = 0x554B;
/// Version of packets and rules; encrypted packets have [`crate::seal::SEALED_VERSION`].
pub const VERSION: u8 = 6;

/// Data packets of at most so many bytes, header included, are covered by their checksum whole, whatever [`Checksum`] says.
pub const SHORT_BYTES: usize = 256;
/// Of longer ones it covers so many under [`Checksum::Headers`], its own four aside: header, frame header (of lists the
/// beginning) and some more. XXH3 takes several times as long for more than this.
pub const COVERED_BYTES: usize = 128;

/// Data and probe: answer with an ack at once.
pub const ACK_NOW: u16 = 1 << 0;
/// The packet answers a probe. Ack and nack: `sequence` is its number. Data: the upper byte of the
/// flags is the lowest byte of its number, see [`echo_of`].
pub const ECHO: u16 = 1 << 1;
/// Nack: the packet numbered `ack` was refused because the receiver is full.
pub const FULL: u16 = 1 << 2;
/// Data came since the sender of this packet last acked: this ack is the first to report it.
pub const FRESH: u16 = 1 << 3;
/// Data: it is not the first time that this packet is sent.
pub const RESENT: u16 = 1 << 4;
/// A data packet came twice since the sender of this packet last acked.
pub const TWICE: u16 = 1 << 5;
/// Peers that send to the sender of this packet shall hold back if packets queue in the network.
pub const HOLD: u16 = 1 << 6;
/// Data that is not encrypted, longer than [`SHORT_BYTES`]: the checksum covers the first [`COVERED_BYTES`] only.
pub const PART: u16 = 1 << 7;
/// Data with [`ECHO`]: the lowest byte of the answered probe's number.
pub const ECHO_NUMBER: u16 = 0xFF00;

/// The flags of a data packet that answers probe `number`.
#[must_use]
pub const fn echo_of(number: u32) -> u16 {
    ECHO | ((number & 0xFF) << 8) as u16
}

/// Length of the first packet of a run that the kernel joined, by its own header. All packets of a run
/// are as long, except perhaps the last. At least 1 and at most the run. It is not checked: a wrong
/// length makes pieces that [`Codec::open`] refuses.
#[must_use]
pub fn first_length(run: &[u8]) -> usize {
    let length = match run.first_chunk::<HEADER_BYTES>() {
        Some(header) => HEADER_BYTES + usize::from(u16_at(header, 28)),
        None => run.len(),
    };
    length.min(run.len()).max(1)
}

/// The random key of a job's channel. A sender that does not know it cannot make a packet that is
/// accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChannelKey(pub u64);

impl core::fmt::Debug for ChannelKey {
    /// Does not show the key: it must not end up in logs.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ChannelKey(..)")
    }
}

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PacketKind {
    /// Carries one frame.
    Data = 1,
    /// Acknowledges.
    Ack = 2,
    /// Acknowledges what came before, and says that something is missing or refused.
    Nack = 3,
    /// Asks for an ack now.
    Probe = 4,
}

impl PacketKind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Data,
            2 => Self::Ack,
            3 => Self::Nack,
            4 => Self::Probe,
            _ => return None,
        })
    }

    /// Its place among one of each kind: data, acks, nacks, probes.
    pub(crate) fn among<T>(self, [data, acks, nacks, probes]: [T; 4]) -> T {
        match self {
            Self::Data => data,
            Self::Ack => acks,
            Self::Nack => nacks,
            Self::Probe => probes,
        }
    }

    /// The flags that a packet of this kind may carry.
    fn flags(self) -> u16 {
        match self {
            Self::Data => ACK_NOW | ECHO | FRESH | RESENT | TWICE | HOLD | PART | ECHO_NUMBER,
            Self::Ack => ECHO | FRESH | TWICE | HOLD,
            Self::Nack => ECHO | FULL | FRESH | TWICE | HOLD,
            Self::Probe => ACK_NOW | FRESH | TWICE | HOLD,
        }
    }
}

/// Why a datagram was dropped; in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Shorter than a header.
    Short,
    /// Not of this protocol.
    Magic,
    /// Of another version.
    Version,
    /// Length field and datagram disagree, or the datagram is longer than configured.
    Length,
    /// Of another channel.
    Key,
    /// Damaged on the way.
    Checksum,
    /// Encrypted, and damaged on the way or not made with this channel's key.
    Seal,
    /// Addressed to another rank.
    Destination,
    /// Not from another rank of this job.
    Source,
    /// Unknown kind, or flags or length that the kind does not allow.
    Kind,
    /// Encrypted, and far older than what came from that rank before.
    Stale,
    /// Numbers outside the window.
    Window,
}

/// A packet's header without the fields that are the same for a whole channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the packet.
    pub kind: PacketKind,
    /// [`ACK_NOW`], [`ECHO`], [`FULL`], [`FRESH`], [`RESENT`], [`TWICE`], [`HOLD`],
    /// [`ECHO_NUMBER`].
    pub flags: u16,
    /// The sending rank.
    pub from: Rank,
    /// The rank addressed.
    pub to: Rank,
    /// Data packet's, probe's or answered probe's number.
    pub sequence: u32,
    /// The next data packet expected from the rank addressed.
    pub ack: u32,
}

/// Writes and checks the packets of one channel.
#[derive(Clone, Debug)]
pub struct Codec {
    key: ChannelKey,
    /// The secret that XXH3 derives from its seed for inputs above 240 bytes: derived once, not for
    /// every packet.
    secret: Box<[u8]>,
    tag: u32,
    max_datagram: usize,
    /// Bytes that the checksums of its own packets cover.
    checksum: Checksum,
}

fn u16_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[allow(clippy::cast_possible_truncation)]
fn low32(hash: u64) -> u32 {
    hash as u32
}

/// The tag that tells a channel's packets from those of others.
pub(crate) fn key_tag(key: ChannelKey) -> u32 {
    low32(XxHash3_64::oneshot_with_seed(key.0, b"kumi key"))
}

/// Writes all of a header except its first four bytes; `length` is the number of bytes after it.
///
/// # Panics
/// If `length` is above 65,535: the caller's fault.
pub(crate) fn write_header(
    bytes: &mut [u8; HEADER_BYTES],
    version: u8,
    tag: u32,
    header: &Header,
    length: usize,
) {
    let length = u16::try_from(length).expect("body above 65,535 bytes");
    bytes[4..6].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[6] = version;
    bytes[7] = header.kind as u8;
    bytes[8..12].copy_from_slice(&tag.to_le_bytes());
    bytes[12..16].copy_from_slice(&header.from.to_le_bytes());
    bytes[16..20].copy_from_slice(&header.to.to_le_bytes());
    bytes[20..24].copy_from_slice(&header.sequence.to_le_bytes());
    bytes[24..28].copy_from_slice(&header.ack.to_le_bytes());
    bytes[28..30].copy_from_slice(&length.to_le_bytes());
    bytes[30..32].copy_from_slice(&header.flags.to_le_bytes());
}

/// Header and rest of a datagram of this version and channel: the checks before checksum or seal.
pub(crate) fn split(
    datagram: &[u8],
    version: u8,
    tag: u32,
    max_datagram: usize,
) -> Result<(&[u8; HEADER_BYTES], &[u8]), DropReason> {
    split_head(datagram, datagram.len(), version, tag, max_datagram)
}

/// The same of the beginning of a datagram of `length` bytes.
fn split_head(
    head: &[u8],
    length: usize,
    version: u8,
    tag: u32,
    max_datagram: usize,
) -> Result<(&[u8; HEADER_BYTES], &[u8]), DropReason> {
    let (bytes, body) = head.split_first_chunk::<HEADER_BYTES>().ok_or(DropReason::Short)?;
    if u16_at(bytes, 4) != MAGIC {
        return Err(DropReason::Magic);
    }
    if bytes[6] != version {
        return Err(DropReason::Version);
    }
    if usize::from(u16_at(bytes, 28)) != length - HEADER_BYTES || length > max_datagram {
        return Err(DropReason::Length);
    }
    if u32_at(bytes, 8) != tag {
        return Err(DropReason::Key);
    }
    Ok((bytes, body))
}

/// The fields of a header in front of a body of `length` bytes: the checks after checksum or seal.
pub(crate) fn read_header(
    bytes: &[u8; HEADER_BYTES],
    length: usize,
    me: Rank,
    ranks: u32,
) -> Result<Header, DropReason> {
    let (from, to) = (u32_at(bytes, 12), u32_at(bytes, 16));
    if to != me {
        return Err(DropReason::Destination);
    }
    if from >= ranks || from == me {
        return Err(DropReason::Source);
    }
    let kind = PacketKind::from_byte(bytes[7]).ok_or(DropReason::Kind)?;
    let flags = u16_at(bytes, 30);
    let body_fits = match kind {
        PacketKind::Data => true,
        PacketKind::Ack | PacketKind::Nack => length.is_multiple_of(8),
        PacketKind::Probe => length == 0,
    };
    let numbered = flags & ECHO_NUMBER == 0 || flags & ECHO != 0;
    if flags & !kind.flags() != 0 || !numbered || !body_fits {
        return Err(DropReason::Kind);
    }
    Ok(Header { kind, flags, from, to, sequence: u32_at(bytes, 20), ack: u32_at(bytes, 24) })
}

impl Codec {
    /// For a channel whose datagrams have at most `max_datagram` bytes; the checksums of its own
    /// packets cover all bytes.
    pub fn new(key: ChannelKey, max_datagram: usize) -> Self {
        let secret = XxHash3_64::with_seed(key.0).into_secret();
        Self { key, secret, tag: key_tag(key), max_datagram, checksum: Checksum::All }
    }

    /// The same with another choice of bytes that its own checksums cover. Packets that it opens say so
    /// themselves.
    #[must_use]
    pub fn covering(self, checksum: Checksum) -> Self {
        Self { checksum, ..self }
    }

    /// How many bytes at the beginning of a data packet of `length` bytes [`Self::seal`] looks at.
    pub(crate) fn covered(&self, length: usize) -> usize {
        match self.checksum {
            Checksum::All => length,
            Checksum::Headers if length > SHORT_BYTES => COVERED_BYTES,
            Checksum::Headers => length,
        }
    }

    /// Completes a packet whose body is already in place behind the first [`HEADER_BYTES`] bytes.
    ///
    /// # Panics
    /// If `packet` is shorter than a header or longer than 65,535 bytes: the caller's fault.
    pub fn seal(&self, header: &Header, packet: &mut [u8]) {
        self.seal_start(header, packet, packet.len());
    }

    /// Completes a packet of `length` bytes of which `start` are there: at least those that the checksum covers.
    pub(crate) fn seal_start(&self, header: &Header, start: &mut [u8], length: usize) {
        let covered = if header.kind == PacketKind::Data { self.covered(length) } else { length };
        let part = if covered < length { PART } else { 0 };
        let header = Header { flags: header.flags | part, ..*header };
        let bytes = start.first_chunk_mut().expect("packet shorter than its header");
        write_header(bytes, VERSION, self.tag, &header, length - HEADER_BYTES);
        let checksum = self.checksum(&start[4..covered]);
        start[..4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The checksum over the `covered` bytes of a packet: XXH3-64 seeded with the key.
    fn checksum(&self, covered: &[u8]) -> u32 {
        let hash = XxHash3_64::oneshot_with_seed_and_secret(self.key.0, &self.secret, covered);
        low32(hash.expect("the secret has the length that the hash gave it"))
    }

    /// Header and body of a datagram, if every check passes that needs no state of the pair.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn open<'d>(
        &self,
        me: Rank,
        ranks: u32,
        datagram: &'d [u8],
    ) -> Result<(Header, &'d [u8]), DropReason> {
        let (bytes, body) = split(datagram, VERSION, self.tag, self.max_datagram)?;
        // The flag is covered itself: a damaged one makes another checksum.
        let part = u16_at(bytes, 30) & PART != 0;
        let short = datagram.len() <= SHORT_BYTES;
        let end = if part && !short { COVERED_BYTES } else { datagram.len() };
        if u32_at(bytes, 0) != self.checksum(&datagram[4..end]) {
            return Err(DropReason::Checksum);
        }
        let header = read_header(bytes, body.len(), me, ranks)?;
        if part && short {
            return Err(DropReason::Kind);
        }
        Ok((Header { flags: header.flags & !PART, ..header }, body))
    }

    /// Header of a data packet of which `rest` bytes behind `head` are elsewhere, and the beginning of its body, if the
    /// checksum covers no more than `head` and every check passes. Otherwise `None`: [`Self::open`] tells why.
    pub(crate) fn open_head<'d>(
        &self,
        me: Rank,
        ranks: u32,
        head: &'d [u8],
        rest: usize,
    ) -> Option<(Header, &'d [u8])> {
        let length = head.len().checked_add(rest)?;
        let (bytes, body) = split_head(head, length, VERSION, self.tag, self.max_datagram).ok()?;
        let part = u16_at(bytes, 30) & PART != 0 && length > SHORT_BYTES;
        let covered = head.get(4..COVERED_BYTES).filter(|_| part)?;
        if u32_at(bytes, 0) != self.checksum(covered) {
            return None;
        }
        let header = read_header(bytes, length - HEADER_BYTES, me, ranks).ok()?;
        let data = header.kind == PacketKind::Data;
        data.then_some((Header { flags: header.flags & !PART, ..header }, body))
    }

    /// Number, flags and frame of a datagram behind `first`, the header of a data packet that [`Self::open`] took, if it
    /// differs from that in nothing but number, length, and whether it was sent before or wants an ack, and brings no
    /// news of acks. Otherwise, or if a check fails, `None`: [`Self::open`] looks at it then.
    #[inline]
    pub(crate) fn open_next<'d>(
        &self,
        first: &[u8; HEADER_BYTES],
        datagram: &'d [u8],
    ) -> Option<(u32, u16, &'d [u8])> {
        let (bytes, body) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let (flags, long) = (u16_at(bytes, 30), datagram.len() > SHORT_BYTES);
        let alike = bytes[4..20] == first[4..20] && bytes[24..28] == first[24..28];
        let own = if long { ACK_NOW | RESENT | PART } else { ACK_NOW | RESENT };
        let alike = alike && (flags ^ (u16_at(first, 30) & HOLD)) & !own == 0;
        let length = usize::from(u16_at(bytes, 28));
        if !alike || length != body.len() || datagram.len() > self.max_datagram {
            return None;
        }
        let end = if flags & PART != 0 { COVERED_BYTES } else { datagram.len() };
        let right = u32_at(bytes, 0) == self.checksum(&datagram[4..end]);
        right.then_some((u32_at(bytes, 20), flags & !PART, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data packet of `length` bytes with this number and these flags.
    fn packet(codec: &Codec, sequence: u32, flags: u16, length: usize) -> alloc::vec::Vec<u8> {
        let header = Header { kind: PacketKind::Data, flags, from: 1, to: 0, sequence, ack: 5 };
        let mut packet = alloc::vec![7; length];
        codec.seal(&header, &mut packet);
        packet
    }

    /// Whether the quick way takes a packet with the flags `next` behind one with the flags `first`.
    fn quick(first: u16, next: u16) -> bool {
        let codec = Codec::new(ChannelKey(3), 400).covering(Checksum::Headers);
        let taken = [100, 300].map(|length| {
            let [first, next] = [(1, first), (2, next)]
                .map(|(sequence, flags)| packet(&codec, sequence, flags, length));
            let header = first.first_chunk().expect("a header");
            match codec.open_next(header, &next) {
                Some((2, flags, frame)) => {
                    assert_eq!(
                        (flags, frame),
                        (u16_at(next.first_chunk().expect("a header"), 30) & !PART, &next[32..])
                    );
                    true
                }
                other => other.is_some(),
            }
        });
        assert_eq!(taken[0], taken[1], "long and short");
        taken[0]
    }

    #[test]
    fn packets_that_say_the_same_go_the_quick_way() {
        for first in [0, ACK_NOW, FRESH | TWICE, echo_of(3), RESENT] {
            for own in [0, ACK_NOW, RESENT, ACK_NOW | RESENT] {
                assert!(quick(first, own) && quick(first | HOLD, own | HOLD), "{first} {own}");
                assert!(!quick(first, own | HOLD) && !quick(first | HOLD, own), "{first} {own}");
                assert!(!quick(first, own | FRESH) && !quick(first, own | TWICE), "{first} {own}");
                assert!(!quick(first, own | echo_of(3)), "{first} {own}");
            }
        }
    }
}
