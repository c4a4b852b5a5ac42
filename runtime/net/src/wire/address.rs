//! Socket addresses as the kernel has them, and what IPv4 and IPv6 differ in.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::BorrowedFd;

use crate::sys;

/// Numbers of the kernel for one family of addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    /// Level of the options.
    pub(crate) level: libc::c_int,
    /// Option: the length of the path of a connected socket.
    pub(crate) mtu: libc::c_int,
    /// Option: how the socket goes about the length of paths. Its values are the same in both families.
    pub(crate) discover: libc::c_int,
    /// Option and control message: reports of ICMP.
    pub(crate) errors: libc::c_int,
    /// Bytes of packets that every path carries, if senders fragment: routers of IPv6 never do. Set for the option
    /// [`Family::mtu`], it makes the kernel cut fragments to this.
    pub(crate) least_mtu: Option<libc::c_int>,
    /// Bytes of the headers of IP (without options) and UDP.
    pub(crate) header_bytes: usize,
}

impl Family {
    const V4: Family = Family {
        level: libc::IPPROTO_IP,
        mtu: libc::IP_MTU,
        discover: libc::IP_MTU_DISCOVER,
        errors: libc::IP_RECVERR,
        least_mtu: None,
        header_bytes: 28,
    };
    const V6: Family = Family {
        level: libc::IPPROTO_IPV6,
        mtu: libc::IPV6_MTU,
        discover: libc::IPV6_MTU_DISCOVER,
        errors: libc::IPV6_RECVERR,
        least_mtu: Some(1_280),
        header_bytes: 48,
    };

    pub(crate) fn of_socket(socket: BorrowedFd<'_>) -> io::Result<Family> {
        match sys::option(socket, libc::SOL_SOCKET, libc::SO_DOMAIN)? {
            libc::AF_INET => Ok(Family::V4),
            libc::AF_INET6 => Ok(Family::V6),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// A socket address in the form of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    pub(crate) fn new(address: SocketAddr) -> RawAddress {
        // The union is as long as the longer of both, so its bytes are all set first.
        let mut raw = RawAddress::any();
        match address {
            SocketAddr::V4(address) => {
                raw.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                    sin_zero: [0; 8],
                };
            }
            SocketAddr::V6(address) => {
                raw.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
            }
        }
        raw
    }

    /// Room for an address that the kernel tells.
    pub(crate) fn any() -> RawAddress {
        // SAFETY: all zeros are valid in each of the structures.
        unsafe { std::mem::zeroed() }
    }

    pub(crate) fn family(&self) -> libc::c_int {
        // SAFETY: every structure begins with the family, and all bytes are initialised.
        libc::c_int::from(unsafe { self.family })
    }

    /// Bytes of the structure, by its family.
    fn bytes(&self) -> libc::socklen_t {
        let bytes = if self.family() == libc::AF_INET {
            size_of::<libc::sockaddr_in>()
        } else {
            size_of::<libc::sockaddr_in6>()
        };
        bytes as libc::socklen_t
    }

    /// For calls that are told an address.
    pub(crate) fn as_raw(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        ((&raw const *self).cast(), self.bytes())
    }

    /// For calls that tell an address: at most so many bytes.
    pub(crate) fn room(&mut self) -> (*mut libc::sockaddr, libc::socklen_t) {
        ((&raw mut *self).cast(), size_of::<RawAddress>() as libc::socklen_t)
    }

    /// The address, if it is of one of the two families.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self.family() {
            libc::AF_INET => {
                // SAFETY: the family says so, and all bytes are initialised and valid whatever they are.
                let v4 = unsafe { self.v4 };
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { self.v6 };
                let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
                Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

impl std::fmt::Debug for RawAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RawAddress").field(&self.address()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_from_the_kernels_form() {
        for text in ["10.1.2.3:4567", "[::1]:9", "[fe80::1%7]:65535"] {
            let address: SocketAddr = text.parse().expect("an address");
            let raw = RawAddress::new(address);
            assert_eq!(raw.address(), Some(address));
            let bytes = if address.is_ipv4() { 16 } else { 28 };
            assert_eq!(raw.as_raw().1, bytes, "{text}");
        }
        assert_eq!(RawAddress::any().address(), None);
    }
}
