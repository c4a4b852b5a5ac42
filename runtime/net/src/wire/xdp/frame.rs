//! Frames as they go over AF_XDP: Ethernet, IPv4 and UDP headers before the packet, made and checked here since the
//! kernel does neither.
//!
//! The other end may be a plain UDP socket: then the kernel checks the same headers there.

use std::net::SocketAddrV4;

/// Bytes of the three headers.
pub(crate) const HEADERS: usize = 14 + 20 + 8;
/// Longest packet that goes this way: what an Ethernet frame of the usual length carries.
pub(crate) const MOST_PACKET: usize = 1_472;
/// The identification in the IPv4 header of frames that were sent by AF_XDP. The kernel gives only these to AF_XDP
/// sockets. An unfragmented packet has no use for the field (RFC 6864).
pub(crate) const MARK: u16 = 0x6b78;
/// "Don't fragment".
const DONT_FRAGMENT: u16 = 0x4000;
const UDP: u8 = 17;
const TIME_TO_LIVE: u8 = 64;

/// A hardware address.
pub type Mac = [u8; 6];

/// Sum of 16-bit words in network order, not folded. An odd last byte counts as if a 0 followed.
fn sum(bytes: &[u8], start: u64) -> u64 {
    let mut words = bytes.chunks_exact(4);
    let mut total = start;
    for word in &mut words {
        total += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut rest = [0; 4];
    let left = words.remainder();
    rest[..left.len()].copy_from_slice(left);
    total + u64::from(u32::from_be_bytes(rest))
}

/// Folds a sum into 16 bits: sums of 32-bit words fold to the same as those of their halves.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Sum of the pseudo header of UDP: addresses, protocol and length.
fn pseudo(addresses: &[u8], length: u16) -> u64 {
    sum(addresses, u64::from(UDP) + u64::from(length))
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    pub(crate) source: SocketAddrV4,
    pub(crate) source_mac: Mac,
    pub(crate) to: SocketAddrV4,
    /// Of the next hop.
    pub(crate) to_mac: Mac,
}

/// The headers of a frame with this packet, at most [`MOST_PACKET`] bytes long.
pub(crate) fn headers(route: &Route, packet: &[u8]) -> [u8; HEADERS] {
    let mut frame = [0; HEADERS];
    let udp_length = (8 + packet.len()) as u16;
    frame[..6].copy_from_slice(&route.to_mac);
    frame[6..12].copy_from_slice(&route.source_mac);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(20 + udp_length).to_be_bytes());
    frame[18..20].copy_from_slice(&MARK.to_be_bytes());
    frame[20..22].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
    frame[22] = TIME_TO_LIVE;
    frame[23] = UDP;
    frame[26..30].copy_from_slice(&route.source.ip().octets());
    frame[30..34].copy_from_slice(&route.to.ip().octets());
    let header = !fold(sum(&frame[14..34], 0));
    frame[24..26].copy_from_slice(&header.to_be_bytes());
    frame[34..36].copy_from_slice(&route.source.port().to_be_bytes());
    frame[36..38].copy_from_slice(&route.to.port().to_be_bytes());
    frame[38..40].copy_from_slice(&udp_length.to_be_bytes());
    let start = pseudo(&frame[26..34], udp_length);
    let checksum = !fold(sum(packet, sum(&frame[34..40], start)));
    // 0 would say that there is none.
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    frame[40..42].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Why a frame is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadFrame {
    /// Not an unfragmented IPv4 packet without options that carries UDP to this socket.
    Foreign,
    /// Its lengths contradict each other or the frame's.
    Length,
    /// A checksum is wrong or missing.
    Checksum,
}

/// The packet in a frame to the socket at `own`.
pub(crate) fn packet(frame: &[u8], own: SocketAddrV4) -> Result<&[u8], BadFrame> {
    let (header, rest) = frame.split_at_checked(HEADERS).ok_or(BadFrame::Length)?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let plain = word(12) == 0x0800 && header[14] == 0x45 && header[23] == UDP;
    let to_me = header[30..34] == own.ip().octets() && word(36) == own.port();
    // "Don't fragment" may be set; neither "more follow" nor an offset.
    if !plain || !to_me || word(20) & 0x3fff != 0 {
        return Err(BadFrame::Foreign);
    }
    let udp_length = word(38);
    // Short frames are padded behind the packet.
    let length = usize::from(udp_length).checked_sub(8).ok_or(BadFrame::Length)?;
    let packet = rest.get(..length).ok_or(BadFrame::Length)?;
    if usize::from(word(16)) != 20 + usize::from(udp_length) {
        return Err(BadFrame::Length);
    }
    let start = pseudo(&header[26..34], udp_length);
    let whole = fold(sum(packet, sum(&header[34..42], start)));
    if fold(sum(&header[14..34], 0)) != 0xffff || whole != 0xffff || word(40) == 0 {
        return Err(BadFrame::Checksum);
    }
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn route() -> Route {
        Route {
            source: SocketAddrV4::new(Ipv4Addr::new(10, 77, 3, 1), 40_000),
            source_mac: [2, 0, 0, 0, 0, 1],
            to: SocketAddrV4::new(Ipv4Addr::new(10, 77, 3, 2), 50_000),
            to_mac: [2, 0, 0, 0, 0, 2],
        }
    }

    fn frame(bytes: &[u8]) -> Vec<u8> {
        [&headers(&route(), bytes)[..], bytes].concat()
    }

    /// Written down byte by byte; the checksums were computed by hand of the words.
    #[test]
    fn a_frame_is_what_the_reference_says() {
        let expected = [
            0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00, // Ethernet
            0x45, 0, 0, 0x1f, 0x6b, 0x78, 0x40, 0, 64, 17, 0xb4, 0xb9, // IPv4
            10, 77, 3, 1, 10, 77, 3, 2, // addresses
            0x9c, 0x40, 0xc3, 0x50, 0, 11, 0xc1, 0x47, // UDP
            b'a', b'b', b'c',
        ];
        assert_eq!(frame(b"abc"), expected);
    }

    #[test]
    fn what_is_made_is_accepted_whatever_its_length() {
        for length in 0..200 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte as u8 ^ 0x5a).collect();
            let mut frame = frame(&bytes);
            assert_eq!(packet(&frame, route().to), Ok(&bytes[..]));
            frame.resize(frame.len() + 18, 0);
            assert_eq!(packet(&frame, route().to), Ok(&bytes[..]), "padded");
        }
        let long = vec![0xff; MOST_PACKET];
        assert_eq!(packet(&frame(&long), route().to), Ok(&long[..]));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn a_checksum_that_comes_out_as_zero_is_sent_as_all_ones() {
        let found = (0..=u16::MAX).map(|word| frame(&word.to_be_bytes())).find(|frame| {
            assert_eq!(packet(frame, route().to).map(<[u8]>::len), Ok(2));
            frame[40..42] == [0xff, 0xff]
        });
        let mut frame = found.expect("one of all words gives it");
        frame[40..42].copy_from_slice(&[0, 0]);
        assert_eq!(packet(&frame, route().to), Err(BadFrame::Checksum), "none is none");
    }

    #[test]
    fn any_changed_byte_behind_the_hardware_addresses_is_noticed() {
        let good = frame(b"payload");
        // Type of service and time to live are covered by the header's checksum, so no byte is free.
        for at in 12..good.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                assert!(packet(&bad, route().to).is_err(), "byte {at} ^ {flip}");
            }
        }
    }

    #[test]
    fn what_is_cut_short_or_for_others_is_refused() {
        let good = frame(b"payload");
        for length in 0..good.len() {
            assert_eq!(packet(&good[..length], route().to), Err(BadFrame::Length), "{length}");
        }
        assert_eq!(packet(&good, route().source), Err(BadFrame::Foreign));
    }
}
