//! Steering: a small XDP program on the node's interface. It gives a frame to the AF_XDP socket of its UDP port if the
//! frame was sent by AF_XDP. All others go their normal way.
//!
//! The kernel's link holds the program to the interface. Its descriptor closes with this process, however that ends, and
//! nobody inherits it; then the program is gone, and so is its map.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::wire::xdp::frame::MARK;
use crate::wire::xdp::setup::XdpError;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
/// The program may be given frames in several buffers, of which it sees the first: interfaces with long frames ask for it.
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
/// The driver runs the program, or else the stack does.
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;

/// One place for each UDP port.
const PORTS: u32 = 1 << 16;

/// An instruction of the kernel's virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: to | from << 4, offset, immediate }
}

/// Puts the program together.
struct Assembler {
    code: Vec<Instruction>,
    /// Jumps to the end, where the frame goes its normal way.
    passes: Vec<usize>,
}

const DOUBLE: u8 = 0x18;
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const STORE_WORD: u8 = 0x63;
const COPY: u8 = 0xbf;
const SET: u8 = 0xb7;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const TO_BIG_ENDIAN: u8 = 0xdc;
const IF_GREATER: u8 = 0x2d;
const IF_EQUAL: u8 = 0x15;
const IF_NOT: u8 = 0x55;
const IF_NOT_WORD: u8 = 0x56;
const IF_DIFFERENT: u8 = 0x5d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const FRAME_POINTER: u8 = 10;
const LOOK_UP: i32 = 1;
const REDIRECT: i32 = 51;
const XDP_PASS: i32 = 2;

impl Assembler {
    fn add(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.code.push(instruction(code, to, from, offset, immediate));
    }

    /// A jump to the end.
    fn pass(&mut self, code: u8, left: u8, right: u8, immediate: i32) {
        self.passes.push(self.code.len());
        self.add(code, left, right, 0, immediate);
    }

    /// Register `to` becomes the map.
    fn map(&mut self, to: u8, map: i32) {
        self.add(DOUBLE, to, 1, 0, map);
        self.add(0, 0, 0, 0, 0);
    }

    fn end(mut self) -> Vec<Instruction> {
        let end = self.code.len();
        for at in self.passes {
            self.code[at].offset = (end - at - 1) as i16;
        }
        self.code.extend([instruction(SET, 0, 0, 0, XDP_PASS), instruction(EXIT, 0, 0, 0, 0)]);
        self.code
    }
}

/// A half word that lies like this in a packet, as it is loaded.
fn half(bytes: [u8; 2]) -> i32 {
    i32::from(u16::from_ne_bytes(bytes))
}

/// The program for the interface with this address.
fn program(map: i32, address: Ipv4Addr) -> Vec<Instruction> {
    let mut code = Assembler { code: Vec::new(), passes: Vec::new() };
    // The queue, and the frame, of which the three headers have to be there.
    code.add(LOAD_WORD, 7, 1, 16, 0);
    code.add(LOAD_WORD, 2, 1, 0, 0);
    code.add(LOAD_WORD, 3, 1, 4, 0);
    code.add(COPY, 4, 2, 0, 0);
    code.add(ADD, 4, 0, 0, 42);
    code.pass(IF_GREATER, 4, 3, 0);
    // IPv4 without options that carries UDP in one piece, sent by AF_XDP to this address.
    code.add(LOAD_HALF, 4, 2, 12, 0);
    code.pass(IF_NOT, 4, 0, half([0x08, 0x00]));
    code.add(LOAD_BYTE, 4, 2, 14, 0);
    code.pass(IF_NOT, 4, 0, 0x45);
    code.add(LOAD_HALF, 4, 2, 18, 0);
    code.pass(IF_NOT, 4, 0, half(MARK.to_be_bytes()));
    code.add(LOAD_HALF, 4, 2, 20, 0);
    code.add(AND, 4, 0, 0, half([0x3f, 0xff]));
    code.pass(IF_NOT, 4, 0, 0);
    code.add(LOAD_BYTE, 4, 2, 23, 0);
    code.pass(IF_NOT, 4, 0, 17);
    code.add(LOAD_WORD, 4, 2, 30, 0);
    code.pass(IF_NOT_WORD, 4, 0, i32::from_ne_bytes(address.octets()));
    // The socket of its port, if it is bound to this queue: another one's would drop it.
    code.add(LOAD_HALF, 4, 2, 36, 0);
    code.add(TO_BIG_ENDIAN, 4, 0, 0, 16);
    code.add(STORE_WORD, FRAME_POINTER, 4, -4, 0);
    code.add(COPY, 2, FRAME_POINTER, 0, 0);
    code.add(ADD, 2, 0, 0, -4);
    code.map(1, map);
    code.add(CALL, 0, 0, 0, LOOK_UP);
    code.pass(IF_EQUAL, 0, 0, 0);
    code.add(LOAD_WORD, 1, 0, 0, 0);
    code.pass(IF_DIFFERENT, 1, 7, 0);
    code.map(1, map);
    code.add(LOAD_WORD, 2, FRAME_POINTER, -4, 0);
    code.add(SET, 3, 0, 0, XDP_PASS);
    code.add(CALL, 0, 0, 0, REDIRECT);
    code.add(EXIT, 0, 0, 0, 0);
    code.end()
}

/// Arguments of the system call, as far as they are used.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    most: u32,
    flags: u32,
}

#[repr(C)]
struct MapChange {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

/// The system call.
///
/// # Safety
/// `T` is what this command expects, and addresses in it are those of memory that the kernel may read.
unsafe fn bpf<T>(command: libc::c_int, arguments: &T) -> io::Result<libc::c_int> {
    // SAFETY: pointer and length describe the arguments; the rest is the caller's promise.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *arguments, size_of::<T>()) };
    libc::c_int::try_from(done).ok().filter(|done| *done >= 0).ok_or_else(io::Error::last_os_error)
}

/// As [`bpf`], of a command that makes a descriptor. The kernel closes it when a program is executed.
///
/// # Safety
/// As [`bpf`].
unsafe fn bpf_descriptor<T>(command: libc::c_int, arguments: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise; the descriptor was just made, and nobody else owns it.
    unsafe { bpf(command, arguments).map(|raw| OwnedFd::from_raw_fd(raw)) }
}

fn make_map() -> io::Result<OwnedFd> {
    let arguments =
        MapCreate { kind: BPF_MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, most: PORTS, flags: 0 };
    // SAFETY: the arguments of this command, without addresses.
    unsafe { bpf_descriptor(BPF_MAP_CREATE, &arguments) }
}

fn load(map: &OwnedFd, address: Ipv4Addr) -> io::Result<OwnedFd> {
    let code = program(map.as_raw_fd(), address);
    let license = c"Dual MIT/GPL";
    let mut arguments = ProgramLoad {
        kind: BPF_PROG_TYPE_XDP,
        count: code.len() as u32,
        code: code.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        flags: BPF_F_XDP_HAS_FRAGS,
        name: *b"kumi_steering\0\0\0",
        attach: BPF_XDP,
        ..ProgramLoad::default()
    };
    // SAFETY: the arguments of this command; code and licence outlive the call.
    let loaded = unsafe { bpf_descriptor(BPF_PROG_LOAD, &arguments) };
    match loaded {
        // A kernel before 5.18 does not know the flag.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            arguments.flags = 0;
            // SAFETY: as above.
            unsafe { bpf_descriptor(BPF_PROG_LOAD, &arguments) }
        }
        loaded => loaded,
    }
}

fn link(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd() as u32;
    let arguments = LinkCreate { program, interface, attach: BPF_XDP, flags };
    // SAFETY: the arguments of this command, without addresses.
    unsafe { bpf_descriptor(BPF_LINK_CREATE, &arguments) }
}

/// The program at work. Dropping it takes the program off the interface.
#[derive(Debug)]
pub struct Steering {
    map: OwnedFd,
    /// Holds program and map.
    _link: OwnedFd,
    native: bool,
}

impl Steering {
    /// Puts the program onto the interface with this index, for packets to `address`.
    ///
    /// # Errors
    /// [`XdpError`]: no rights, an old kernel, or another program is there.
    pub fn attach(interface: u32, address: Ipv4Addr) -> Result<Steering, XdpError> {
        let map = make_map().map_err(XdpError::during("making a map of sockets"))?;
        let program = load(&map, address).map_err(XdpError::during("loading the XDP program"))?;
        let (link, native) = match link(&program, interface, XDP_FLAGS_DRV_MODE) {
            Ok(link) => (link, true),
            // The driver cannot run programs, or not with the interface's settings.
            Err(error) if error.raw_os_error() != Some(libc::EBUSY) => {
                (self::link(&program, interface, XDP_FLAGS_SKB_MODE).map_err(on_interface)?, false)
            }
            Err(error) => return Err(on_interface(error)),
        };
        Ok(Steering { map, _link: link, native })
    }

    /// The interface's driver runs the program, rather than the stack behind it.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.native
    }

    /// From now on, marked frames to this UDP port go to the socket, which has to be bound. The kernel takes it out of the
    /// map when its last descriptor is closed; others may have one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn steer(&self, port: u16, socket: BorrowedFd<'_>) -> Result<(), XdpError> {
        self.change(BPF_MAP_UPDATE_ELEM, port, Some(socket.as_raw_fd() as u32))
            .map_err(XdpError::during("steering a port to a rank's socket"))
    }

    /// From now on, frames to this UDP port go to the network stack, whoever still has the socket.
    ///
    /// # Errors
    /// The kernel's error, but not that the port was not steered.
    pub fn unsteer(&self, port: u16) -> Result<(), XdpError> {
        match self.change(BPF_MAP_DELETE_ELEM, port, None) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            done => done.map_err(XdpError::during("taking a port from a rank's socket")),
        }
    }

    fn change(&self, command: libc::c_int, port: u16, value: Option<u32>) -> io::Result<()> {
        let key = u32::from(port);
        let arguments = MapChange {
            map: self.map.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const key).expose_provenance() as u64,
            // The kernel refuses a deletion that names a value.
            value: value.as_ref().map_or(0, |value| (&raw const *value).expose_provenance() as u64),
            flags: 0,
        };
        // SAFETY: the arguments of both commands; key and value are as long as the map's and outlive the call.
        unsafe { bpf(command, &arguments) }.map(drop)
    }
}

fn on_interface(error: io::Error) -> XdpError {
    XdpError::during("putting the XDP program onto the interface")(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_to_the_end_lead_there() {
        let code = program(3, Ipv4Addr::new(10, 0, 0, 1));
        let end = code.len() - 2;
        let jumps = code.iter().enumerate().filter(|(_, one)| one.code & 7 >= 5 && one.offset != 0);
        let targets: Vec<usize> = jumps.map(|(at, one)| at + 1 + one.offset as usize).collect();
        assert_eq!(targets, [end; 9]);
        assert_eq!(code[end].immediate, XDP_PASS);
        assert_eq!(code.last().map(|one| one.code), Some(EXIT));
    }
}
