//! The wire to ranks of other nodes: its drivers, their settings, and peers that it does not reach.

pub(crate) mod ack_settings;
pub(crate) mod address;
pub mod driver;
pub(crate) mod fault_injection;
pub(crate) mod path_mtu;
pub(crate) mod udp;
pub(crate) mod unreachable;
pub mod xdp;

use std::os::fd::{AsFd, OwnedFd};

use crate::segment::attachment::{AttachError, Attachment, io_error};
use crate::sys;
use crate::wire::driver::Driver;
use crate::wire::fault_injection::FaultSettings;
use crate::wire::udp::UdpDriver;
use crate::wire::xdp::XdpParts;
#[cfg(not(miri))]
use crate::wire::xdp::driver::XdpDriver;

/// What carries a rank's packets to other nodes.
#[derive(Debug)]
pub enum Wire {
    /// This bound, non-blocking UDP socket.
    Udp(OwnedFd),
    /// Short packets by AF_XDP, the others by this UDP socket.
    Xdp(OwnedFd, XdpParts),
    /// Any other wire.
    Own(Box<dyn Driver>),
}

impl Wire {
    /// Bytes that may wait to be received, as far as is known.
    pub(crate) fn receive_buffer(&self) -> usize {
        let known = match self {
            Wire::Udp(socket) | Wire::Xdp(socket, _) => {
                sys::option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).ok()
            }
            Wire::Own(_) => None,
        };
        known.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX)
    }

    /// Its driver, ready for the ranks of this job; with faults if they are asked for.
    pub(crate) fn open(
        self,
        attachment: &Attachment,
        faults: Option<FaultSettings>,
    ) -> Result<Box<dyn Driver>, AttachError> {
        let mut driver: Box<dyn Driver> = match self {
            #[cfg(miri)]
            Wire::Udp(_) => {
                Box::new(crate::miri::wire::QueueDriver::new(attachment.address(attachment.rank())))
            }
            #[cfg(not(miri))]
            Wire::Udp(socket) => Box::new(udp(attachment, socket)?),
            #[cfg(miri)]
            Wire::Xdp(..) => return Err(AttachError::BadPages("Miri has no AF_XDP")),
            #[cfg(not(miri))]
            Wire::Xdp(socket, parts) => {
                Box::new(XdpDriver::new(udp(attachment, socket)?, &parts, attachment)?)
            }
            Wire::Own(driver) => driver,
        };
        if let Some(faults) = faults {
            driver = Box::new(faults.on(driver, attachment.rank()));
        }
        let local = attachment.local();
        for arena in [attachment.open_arena(local), attachment.readable_arena(local)] {
            let start = arena.as_ptr().cast_const();
            let memory = start..start.wrapping_add(attachment.arena_bytes());
            driver.register(memory).map_err(io_error("registering memory with the wire"))?;
        }
        Ok(driver)
    }
}

/// UDP; the socket is connected if there is but one rank to talk to: the kernel then need not look for the
/// way every time.
#[cfg(not(miri))]
fn udp(attachment: &Attachment, socket: OwnedFd) -> Result<UdpDriver, AttachError> {
    let mut far = (0..attachment.ranks()).filter(|rank| attachment.local_of(*rank).is_none());
    let only = far.next().filter(|_| far.next().is_none());
    UdpDriver::new(socket, only.map(|rank| attachment.address(rank))).map_err(io_error("connect"))
}
