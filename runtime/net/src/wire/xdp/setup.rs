//! What only the daemon may do for a rank's AF_XDP: make the socket with the memory of its frames, and bind it.
//!
//! The order is the kernel's. Rings can be mapped until the socket is bound. So the daemon makes the socket, the rank maps
//! its rings and says so, and then the daemon binds it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::wire::xdp::rings::FRAME_MEMORY;
use crate::wire::xdp::steering::Steering;
use crate::wire::xdp::{CHUNK, RECEIVE_CHUNKS, SEND_CHUNKS};

/// Why AF_XDP cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("{what} failed ({source}): {}", remedy(.source))]
pub struct XdpError {
    what: &'static str,
    source: io::Error,
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "run the daemon as root, or give it CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW"
        }
        Some(libc::EBUSY | libc::EEXIST) => {
            "another program has this interface or queue: another node's daemon on this machine, or a tool that uses XDP"
        }
        Some(libc::EAFNOSUPPORT | libc::ENOSYS | libc::EOPNOTSUPP) => {
            "a kernel from 5.11 on with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL, and an interface that is not loopback, have it"
        }
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "raise the limit of locked memory (LimitMEMLOCK= with systemd), or run the daemon as root"
        }
        _ => "this kernel or this interface does not support it",
    }
}

impl XdpError {
    pub(crate) fn during(what: &'static str) -> impl FnOnce(io::Error) -> XdpError {
        move |source| XdpError { what, source }
    }

    /// The kernel's error.
    #[must_use]
    pub fn kernel(&self) -> &io::Error {
        &self.source
    }
}

/// An AF_XDP socket that a rank is given, and the memory of its frames.
#[derive(Debug)]
pub struct XdpSocket {
    socket: OwnedFd,
    memory: OwnedFd,
}

fn check(done: libc::c_int) -> io::Result<libc::c_int> {
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// Sets an option of AF_XDP.
fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let (start, length) = ((&raw const *value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: pointer and length describe the value.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, start, length) })
        .map(drop)
}

/// A file of the memory of frames, whose length is fixed.
fn frame_memory() -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a C string; the descriptor was just made, and nobody else owns it.
    let file =
        unsafe { OwnedFd::from_raw_fd(check(libc::memfd_create(c"kumi-frames".as_ptr(), flags))?) };
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: plain system calls on our own descriptor.
    unsafe {
        check(libc::ftruncate(file.as_raw_fd(), FRAME_MEMORY as libc::off_t))?;
        check(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals))?;
    }
    Ok(file)
}

/// Gives the memory to the socket. The kernel keeps its pages, whatever becomes of this process's mapping.
fn register(socket: &OwnedFd, memory: &OwnedFd) -> io::Result<()> {
    let (protection, none) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
    let (flags, raw) = (libc::MAP_SHARED | libc::MAP_POPULATE, memory.as_raw_fd());
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of this process.
    let address = unsafe { libc::mmap(none, FRAME_MEMORY, protection, flags, raw, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let region = libc::xdp_umem_reg_v1 {
        addr: address.expose_provenance() as u64,
        len: FRAME_MEMORY as u64,
        chunk_size: CHUNK as u32,
        headroom: 0,
    };
    let done = set(socket, libc::XDP_UMEM_REG, &region);
    // SAFETY: the mapping of above, which nothing refers to.
    unsafe { libc::munmap(address, FRAME_MEMORY) };
    done
}

impl XdpSocket {
    /// Makes a socket for the interface of this name, and no other.
    ///
    /// # Errors
    /// [`XdpError`].
    pub fn create(interface: &str) -> Result<XdpSocket, XdpError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers.
        let raw = check(unsafe { libc::socket(libc::AF_XDP, kind, 0) })
            .map_err(XdpError::during("making an AF_XDP socket"))?;
        // SAFETY: just made, and nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        let (start, length) = (interface.as_ptr().cast(), interface.len() as libc::socklen_t);
        // SAFETY: pointer and length describe the name.
        check(unsafe {
            libc::setsockopt(raw, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, start, length)
        })
        .map_err(XdpError::during("tying an AF_XDP socket to its interface"))?;
        let memory = frame_memory().map_err(XdpError::during("making memory for frames"))?;
        register(&socket, &memory)
            .map_err(XdpError::during("giving memory to an AF_XDP socket"))?;
        for (ring, size) in [
            (libc::XDP_UMEM_FILL_RING, RECEIVE_CHUNKS),
            (libc::XDP_RX_RING, RECEIVE_CHUNKS),
            (libc::XDP_UMEM_COMPLETION_RING, SEND_CHUNKS),
            (libc::XDP_TX_RING, SEND_CHUNKS),
        ] {
            set(&socket, ring, &size).map_err(XdpError::during("making an AF_XDP ring"))?;
        }
        Ok(XdpSocket { socket, memory })
    }

    /// The socket to hand to the rank.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The memory of frames to hand to the rank.
    #[must_use]
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Binds it to a queue of its interface, once the rank has mapped its rings. Frames are copied between queue and
    /// memory: every driver can do that.
    ///
    /// # Errors
    /// [`XdpError`]: somebody has the queue.
    pub fn bind(&self, interface: u32, queue: u32) -> Result<(), XdpError> {
        let name = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let length = size_of_val(&name) as libc::socklen_t;
        // SAFETY: pointer and length describe the name.
        check(unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const name).cast(), length) })
            .map(drop)
            .map_err(XdpError::during("binding an AF_XDP socket to its queue"))
    }
}

/// Tries out whether AF_XDP can be had, on an interface that nobody needs. Leaves nothing behind.
///
/// # Errors
/// [`XdpError`].
pub fn try_out(interface: &str) -> Result<(), XdpError> {
    let name = std::ffi::CString::new(interface);
    let name = name.map_err(|error| XdpError::during("naming an interface")(error.into()))?;
    // SAFETY: a C string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    let steering = Steering::attach(index, std::net::Ipv4Addr::LOCALHOST)?;
    drop(XdpSocket::create(interface)?);
    drop(steering);
    Ok(())
}

/// The kernel's structure of an interface's queues.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receiving: u32,
    sending: u32,
    other: u32,
    combined: u32,
}

const ETHTOOL_GCHANNELS: u32 = 0x3c;
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// How many queues of the interface of this name both receive and send. One, if its driver does not say.
///
/// # Errors
/// The kernel's error; an invalid input if the name is too long.
pub fn queues(interface: &str) -> io::Result<u32> {
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    // SAFETY: all zeros are a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: the request names an interface and the structure of its command.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    match check(done) {
        Ok(_) => Ok(channels.combined.max(channels.receiving.min(channels.sending)).max(1)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(error) => Err(error),
    }
}
