//! UDP socket of a rank. One call sends or receives a run of packets, where the kernel has UDP_SEGMENT
//! and UDP_GRO.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use kumi_proto::{Piece, Rank};

use crate::channel::zero_copy;
use crate::segment::attachment::Attachment;
use crate::sys;
use crate::wire::address::{Family, RawAddress};
use crate::wire::driver::{Driver, PacketRun, SleepDescriptors};

/// Room for one receive: the largest run of packets that the kernel joins.
const RECEIVE_BYTES: usize = 65_536;
/// Room for one control message with an integer.
const CONTROL_WORDS: usize = 8;
/// Most packets of a run that lies in pieces: most of any run.
const MOST_PIECES: usize = 64;
/// How long a send waits for room in the socket before the packet is left to the resend timer.
const SEND_PATIENCE_MS: libc::c_int = 2;
/// So many runs one after the other are refused, though their packets are taken one by one, before no more are tried.
const RUNS_REFUSED: u32 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct UdpDriver {
    socket: OwnedFd,
    family: Family,
    connected: bool,
    runs: OffloadState,
    buffer: Box<[u8]>,
    filled: usize,
    segment: usize,
    /// How the socket goes about the length of paths: see [`Family::discover`].
    discovery: libc::c_int,
    /// See [`Driver::too_long`].
    too_long: bool,
    /// See [`Driver::refusal`].
    refusal: Option<libc::c_int>,
    /// Where packets in pieces are laid end to end that cannot leave by one call.
    together: Vec<u8>,
}

impl UdpDriver {
    /// Uses a bound, non-blocking socket; connects it to `only` if that is given.
    pub(crate) fn new(socket: OwnedFd, only: Option<SocketAddr>) -> io::Result<UdpDriver> {
        let family = Family::of_socket(socket.as_fd())?;
        if let Some(only) = only {
            let address = RawAddress::new(only);
            let (start, length) = address.as_raw();
            // SAFETY: pointer and length describe `address`.
            let done = unsafe { libc::connect(socket.as_raw_fd(), start, length) };
            if done != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        match sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1) {
            // A kernel before 5.0: packets come one by one. `kumi doctor` says so.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {}
            done => done?,
        }
        let mut discovery = sys::option(socket.as_fd(), family.level, family.discover)?;
        if discovery == libc::IP_PMTUDISC_WANT {
            // The usual setting lets runs leave without "don't fragment", whose packets then come in fragments and
            // nobody hears of it; this one tells.
            discovery = libc::IP_PMTUDISC_DO;
            sys::set_option(socket.as_fd(), family.level, family.discover, discovery)?;
        }
        let buffer = vec![0; RECEIVE_BYTES].into_boxed_slice();
        Ok(UdpDriver {
            socket,
            family,
            connected: only.is_some(),
            runs: OffloadState::default(),
            buffer,
            filled: 0,
            segment: 1,
            discovery,
            too_long: false,
            refusal: None,
            together: Vec::new(),
        })
    }

    fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// `run`: the packets form a run, which may be refused where single packets are not.
    fn send_once(&mut self, run: bool, send: impl Fn(&Self) -> isize) -> io::Result<bool> {
        self.refusal = None;
        for attempt in 0..2 {
            if send(self) >= 0 {
                return Ok(true);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) if attempt == 0 => self.wait_for_room(),
                Some(libc::EINTR) if attempt == 0 => {}
                // A router has said of an earlier packet that it was too long; or the kernel says so of this one.
                Some(libc::EMSGSIZE) if attempt == 0 => self.too_long = true,
                // Perhaps an answer to an earlier packet ("port unreachable"): once more.
                Some(code) if attempt == 0 && is_of_path(code) => {}
                // Whether it is about the run or the path, single packets tell.
                Some(_) if run && OffloadState::may_be_refused(&error) => return Err(error),
                // A firewall, a prohibited route, or an address of this node that is away for the moment: losses, unless they last.
                Some(code @ (libc::EPERM | libc::EACCES | libc::EINVAL)) => {
                    self.refusal = Some(code);
                    return Ok(false);
                }
                // Full queues: losses.
                Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM) => {
                    return Ok(false);
                }
                Some(code) if is_of_path(code) => return Ok(false),
                _ => return Err(error),
            }
        }
        Ok(false)
    }

    fn send_each(&mut self, address: &RawAddress, packets: PacketRun<'_>) -> io::Result<bool> {
        let mut all = true;
        for bytes in packets.each() {
            all &= match self.send_once(false, |udp| udp.send_plain(address, bytes)) {
                Err(error) if is_too_long(&error) => {
                    let segment = bytes.len();
                    self.send_fragmented(address, PacketRun::contiguous(bytes, segment, true))?
                }
                done => done?,
            };
        }
        Ok(all)
    }

    /// Sends packets without "don't fragment".
    fn send_fragmented(
        &mut self,
        address: &RawAddress,
        packets: PacketRun<'_>,
    ) -> io::Result<bool> {
        self.discover(libc::IP_PMTUDISC_DONT)?;
        let mut sent = Ok(true);
        for datagram in packets.each() {
            sent = match self.send_once(false, |udp| udp.send_plain(address, datagram)) {
                // Reports of routers about several earlier packets.
                Err(error) if is_too_long(&error) => Ok(false),
                Err(error) => Err(error),
                Ok(one) => sent.map(|all| all && one),
            };
            if sent.is_err() {
                break;
            }
        }
        self.discover(self.discovery)?;
        sent
    }

    fn discover(&self, how: libc::c_int) -> io::Result<()> {
        let Family { level, discover, mtu, least_mtu, .. } = self.family;
        sys::set_option(self.socket.as_fd(), level, discover, how)?;
        match least_mtu {
            Some(bytes) => {
                let fragments = if how == libc::IP_PMTUDISC_DONT { bytes } else { 0 };
                sys::set_option(self.socket.as_fd(), level, mtu, fragments)
            }
            None => Ok(()),
        }
    }

    fn send_plain(&self, address: &RawAddress, bytes: &[u8]) -> isize {
        let (address, length) = self.name(address);
        // SAFETY: pointers and lengths describe `bytes` and the address, or none.
        unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.raw(),
                bytes.as_ptr(),
                bytes.len(),
                libc::MSG_DONTWAIT,
                address,
                length,
            ) as isize
        }
    }

    fn send_run(&self, address: &RawAddress, packets: PacketRun<'_>) -> isize {
        let segment = packets.segment as u16;
        if packets.pieces.is_empty() {
            return self.send_parts(address, &mut [part(packets.bytes)], segment);
        }
        let mut parts = [part(&[]); 2 * MOST_PIECES];
        let mut count = 0;
        let mut add = |part| {
            parts[count] = part;
            count += 1;
        };
        for &Piece { at, head, place, rest } in packets.pieces.iter().take(MOST_PIECES) {
            add(part(&packets.bytes[at..at + head]));
            if rest > 0 {
                add(libc::iovec {
                    iov_base: zero_copy::address(place).cast_mut().cast(),
                    iov_len: rest,
                });
            }
        }
        self.send_parts(address, &mut parts[..count], segment)
    }

    fn send_parts(&self, address: &RawAddress, parts: &mut [libc::iovec], segment: u16) -> isize {
        let mut control = [0u64; CONTROL_WORDS];
        // SAFETY: an all-zero msghdr is valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        let (address, length) = self.name(address);
        header.msg_name = address.cast_mut().cast();
        header.msg_namelen = length;
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = parts.len();
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: a constant computation.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as usize;
        // SAFETY: the control buffer is aligned and larger than one message with a u16.
        unsafe {
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_UDP;
            (*message).cmsg_type = libc::UDP_SEGMENT;
            (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
            libc::CMSG_DATA(message).cast::<u16>().write_unaligned(segment);
        }
        // SAFETY: the header describes buffers that live until the call returns, or memory that is lent
        // until its packet is acked or taken back. Taking back needs the lock that is held now. The
        // kernel only reads them.
        unsafe { libc::sendmsg(self.raw(), &raw const header, libc::MSG_DONTWAIT) }
    }

    /// The receiver's address in a send: nothing if the socket is connected.
    fn name(&self, to: &RawAddress) -> (*const libc::sockaddr, libc::socklen_t) {
        if self.connected { (std::ptr::null(), 0) } else { to.as_raw() }
    }

    /// An address at which nobody listens any more, as a packet sent there has found out.
    fn unreachable(&self) -> Option<SocketAddr> {
        let mut name = RawAddress::any();
        let (start, length) = name.room();
        let mut control = [0u64; 4 * CONTROL_WORDS];
        // SAFETY: an all-zero msghdr is valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = start.cast();
        header.msg_namelen = length;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        loop {
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            // SAFETY: the header describes our own buffers; the packet's bytes are not asked for.
            if unsafe { libc::recvmsg(self.raw(), &raw mut header, flags) } < 0 {
                return None;
            }
            // SAFETY: the kernel filled the header in; looks at its control buffer only.
            let first = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
            // SAFETY: null or a control message inside of the aligned control buffer.
            if let Some(message) = unsafe { first.as_ref() }
                && message.cmsg_level == self.family.level
                && message.cmsg_type == self.family.errors
            {
                // SAFETY: such a message carries this structure.
                let error = unsafe {
                    libc::CMSG_DATA(first).cast::<libc::sock_extended_err>().read_unaligned()
                };
                if error.ee_errno == libc::ECONNREFUSED as u32 {
                    return name.address();
                }
            }
            header.msg_controllen = size_of_val(&control);
            header.msg_namelen = length;
        }
    }

    /// What was sent last went another way.
    pub(crate) fn forget_refusal(&mut self) {
        self.refusal = None;
    }

    fn wait_for_room(&self) {
        let mut poll = libc::pollfd { fd: self.raw(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one structure of our own. The send is tried again whatever the result.
        unsafe { libc::poll(&raw mut poll, 1, SEND_PATIENCE_MS) };
    }
}

impl Driver for UdpDriver {
    /// A plain `recv`, since this is polled. The first packet's header tells how long the packets of a
    /// joined run are; a control message would tell it too, but by a slower call.
    #[inline]
    fn receive(&mut self) -> io::Result<bool> {
        let (start, room) = (self.buffer.as_mut_ptr(), self.buffer.len());
        let none = std::ptr::null_mut::<libc::c_void>();
        // The bare call: the C library's is a cancellation point, which costs as much as the rest
        // of an empty look.
        // SAFETY: pointer and length describe our own buffer; no address is asked for.
        let got = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::syscall(libc::SYS_recvfrom, self.raw(), start, room, flags, none, none)
        };
        if got < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(false),
                // A router has said that a packet was too long for it.
                Some(libc::EMSGSIZE) => {
                    self.too_long = true;
                    Ok(false)
                }
                // Nothing arrived; the protocol goes on resending.
                Some(code) if is_of_path(code) => Ok(false),
                _ => Err(error),
            };
        }
        self.filled = got as usize;
        self.segment = kumi_proto::wire::first_length(&self.buffer[..self.filled]);
        Ok(true)
    }

    fn received(&self) -> PacketRun<'_> {
        let bytes = &self.buffer[..self.filled];
        PacketRun::contiguous(bytes, self.segment, false)
    }

    fn send(
        &mut self,
        attachment: &Attachment,
        to: Rank,
        packets: PacketRun<'_>,
    ) -> io::Result<bool> {
        let address = RawAddress::new(attachment.address(to));
        let in_pieces = !packets.pieces.is_empty();
        if in_pieces && self.runs.are_tried() && !packets.fragment {
            match self.send_once(true, |udp| udp.send_run(&address, packets)) {
                // Laid end to end they are sent as others are that cannot leave so.
                Err(error) if OffloadState::may_be_refused(&error) => {}
                done => {
                    self.runs.left(&done);
                    return done;
                }
            }
        }
        if in_pieces {
            let mut room = std::mem::take(&mut self.together);
            let sent = self.send(attachment, to, packets.gather_into(&mut room));
            self.together = room;
            return sent;
        }
        if packets.fragment {
            return self.send_fragmented(&address, packets);
        }
        if packets.is_run() && self.runs.are_tried() {
            match self.send_once(true, |udp| udp.send_run(&address, packets)) {
                Err(error) if OffloadState::may_be_refused(&error) => {
                    let fits =
                        self.longest(attachment, to).map(|longest| packets.segment <= longest);
                    if fits == Some(false) {
                        self.too_long = true;
                        return self.send_fragmented(&address, packets);
                    }
                    let sent = self.send_each(&address, packets)?;
                    self.runs.refused(&error, sent && fits.is_some());
                    return Ok(sent);
                }
                done => {
                    self.runs.left(&done);
                    return done;
                }
            }
        }
        self.send_each(&address, packets)
    }

    fn refusal(&self) -> Option<i32> {
        self.refusal
    }

    fn too_long(&mut self) -> bool {
        std::mem::take(&mut self.too_long)
    }

    /// The kernel's knowledge of the route. If descriptors are short or there is no route, it is asked
    /// again another time.
    fn longest(&self, attachment: &Attachment, to: Rank) -> Option<usize> {
        sys::longest_payload(attachment.address(attachment.rank()), attachment.address(to)).ok()
    }

    fn sleep_on(&self) -> SleepDescriptors {
        [self.raw(), -1]
    }

    /// The kernel keeps the answers "nobody listens there".
    fn watch_for_gone(&self) -> io::Result<()> {
        sys::set_option(self.socket.as_fd(), self.family.level, self.family.errors, 1)
    }

    /// A rank at whose address nobody listens any more, as a packet sent there has found out.
    fn gone(&self, attachment: &Attachment) -> Option<Rank> {
        loop {
            let address = self.unreachable()?;
            let at = |rank: &Rank| attachment.address(*rank) == address;
            if let Some(rank) = (0..attachment.ranks()).find(at) {
                return Some(rank);
            }
        }
    }
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// ICMP answers and prohibited routes: routers, hosts or this machine's routes report that a packet,
/// perhaps an earlier one, does not get there now. The path may come back; whether a peer is dead is
/// decided elsewhere.
fn is_of_path(code: libc::c_int) -> bool {
    matches!(
        code,
        libc::ECONNREFUSED
            | libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EPROTO
            | libc::EOPNOTSUPP
            | libc::EACCES
    )
}

/// Whether runs of packets are worth a try.
#[derive(Debug, Default)]
struct OffloadState {
    /// Refused since one left.
    refusals: u32,
}

impl OffloadState {
    fn are_tried(&self) -> bool {
        self.refusals < RUNS_REFUSED
    }

    /// An error that runs meet where the kernel or the device does not segment, among other reasons.
    fn may_be_refused(error: &io::Error) -> bool {
        matches!(
            error.raw_os_error(),
            Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP)
        )
    }

    fn left(&mut self, done: &io::Result<bool>) {
        if matches!(done, Ok(true)) {
            self.refusals = 0;
        }
    }

    /// A run was refused; `singly`: though its packets are not too long for the path, and were taken one by one.
    fn refused(&mut self, error: &io::Error, singly: bool) {
        if singly {
            let for_good = error.raw_os_error() == Some(libc::EOPNOTSUPP);
            self.refusals = if for_good { RUNS_REFUSED } else { self.refusals + 1 };
        }
    }
}

#[cfg(test)]
mod tests;
