//! Copies between the memory of processes of a node: one system call and one copy, whether the other process runs or not.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use kumi_messaging::Direction;
use kumi_messaging::header::Exposure;

use crate::operation::Pieces;

/// The process of a rank of this node, for copies between memories.
#[derive(Debug)]
pub(super) enum Neighbour {
    /// The rank is on another node, or the system allows no copies.
    Far,
    /// It has not named its process.
    Unknown,
    /// It has: no other number is taken from it.
    Known { process: u32, _descriptor: OwnedFd },
}

impl Neighbour {
    pub(super) fn new(near: bool) -> Neighbour {
        if near { Neighbour::Unknown } else { Neighbour::Far }
    }

    /// Moves the bytes if that may be done here: whether it was. `own`: this process, if the rank is this one.
    ///
    /// A rank names its process itself, and must not name this one: then it would choose where this process writes. The number of a
    /// thread would do the same. `pidfd_open` takes no threads but the first of a process, and this one's number is known.
    pub(super) fn copy(
        &mut self,
        exposure: &Exposure,
        direction: Direction,
        memory: &Pieces,
        own: Option<u32>,
    ) -> Option<bool> {
        if let Neighbour::Unknown = self {
            let named = exposure.process;
            if own.is_none_or(|own| own != named) && named == std::process::id() {
                return None;
            }
            let Ok(descriptor) = open(named) else { return None };
            *self = Neighbour::Known { process: named, _descriptor: descriptor };
        }
        let Neighbour::Known { process, .. } = self else { return None };
        if *process != exposure.process {
            return None;
        }
        match copy(exposure, direction, memory) {
            Ok(()) => Some(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                *self = Neighbour::Far;
                None
            }
            Err(_) => Some(false),
        }
    }
}

/// A descriptor of a process, which no thread but its first one has.
fn open(process: u32) -> io::Result<OwnedFd> {
    let process =
        libc::pid_t::try_from(process).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: it takes numbers, and returns a descriptor or an error.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let descriptor = i32::try_from(descriptor).unwrap_or(-1);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened just now, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Moves as many bytes as `memory` has between the process of an exposure, from its beginning on, and this one.
///
/// The other rank names the process and the addresses. A wrong one moves bytes that this rank's user may use anyway: the kernel asks for
/// the right to trace that process. All ranks of a job are processes of one user.
///
/// # Errors
/// `EPERM` or `ENOSYS`: this system does not allow it; others: the memory is not there any more.
fn copy(exposure: &Exposure, direction: Direction, memory: &Pieces) -> io::Result<()> {
    let total = memory.length();
    let mut moved = 0;
    while moved < total {
        let near: Vec<libc::iovec> = memory
            .part(moved, total - moved)
            .as_slice()
            .iter()
            .map(|piece| vector(piece.address, piece.length))
            .collect();
        let far = remaining(exposure, moved as u64);
        let count = call(exposure.process, direction, &near, &far)?;
        if count == 0 {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
        moved += count;
    }
    Ok(())
}

fn vector(address: usize, length: usize) -> libc::iovec {
    libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(address), iov_len: length }
}

/// Exposed memory from a byte on.
fn remaining(exposure: &Exposure, mut skipped: u64) -> Vec<libc::iovec> {
    let rest = exposure.pieces().iter().map(|piece| {
        let before = skipped.min(piece.length);
        skipped -= before;
        // What is no address here is none of that process: the kernel says so.
        let address = usize::try_from(piece.address.wrapping_add(before)).unwrap_or_default();
        vector(address, usize::try_from(piece.length - before).unwrap_or_default())
    });
    rest.filter(|vector| vector.iov_len > 0).collect()
}

fn call(
    process: u32,
    direction: Direction,
    near: &[libc::iovec],
    far: &[libc::iovec],
) -> io::Result<usize> {
    let process =
        libc::pid_t::try_from(process).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let (near_count, far_count) = (near.len() as libc::c_ulong, far.len() as libc::c_ulong);
    let moved = match direction {
        // SAFETY: the vectors are as many as said. The kernel writes memory that the program has given to this operation, which is
        // not over, and to which there is no Rust reference.
        Direction::Read => unsafe {
            libc::process_vm_readv(process, near.as_ptr(), near_count, far.as_ptr(), far_count, 0)
        },
        // SAFETY: as above, but it reads that memory. What it writes belongs to another process (`Neighbour::copy`); if it is this
        // one's, the rank itself has exposed it for writing.
        Direction::Write => unsafe {
            libc::process_vm_writev(process, near.as_ptr(), near_count, far.as_ptr(), far_count, 0)
        },
    };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use kumi_messaging::header::ExposedPiece;

    use super::*;
    use crate::operation::Piece;

    fn address(memory: &mut [u8]) -> usize {
        memory.as_mut_ptr().expose_provenance()
    }

    #[test]
    fn pieces_of_different_lengths_are_copied_both_ways() {
        let (mut far, mut near): (Vec<u8>, Vec<u8>) = ((0..20).collect(), vec![0; 20]);
        let (far_at, near_at) = (address(&mut far), address(&mut near));
        let mut exposure = Exposure::new(std::process::id());
        for (from, length) in [(0, 5), (10, 7)] {
            assert!(exposure.add(ExposedPiece { key: 0, address: (far_at + from) as u64, length }));
        }
        let pieces =
            [Piece { address: near_at, length: 8 }, Piece { address: near_at + 10, length: 2 }];
        let memory = Pieces::from_pieces(pieces).unwrap();
        copy(&exposure, Direction::Read, &memory).unwrap();
        assert_eq!(near[..12], [0, 1, 2, 3, 4, 10, 11, 12, 0, 0, 13, 14]);
        near[0] = 99;
        copy(&exposure, Direction::Write, &memory).unwrap();
        assert_eq!(far[..6], [99, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let mut near = [0; 8];
        let memory = Pieces::one(address(&mut near), 8);
        let mut exposure = Exposure::new(std::process::id());
        assert!(exposure.add(ExposedPiece { key: 0, address: 8, length: 8 }));
        assert_eq!(
            copy(&exposure, Direction::Read, &memory).unwrap_err().raw_os_error(),
            Some(libc::EFAULT)
        );
        let nobody = Exposure::new(u32::MAX);
        assert_eq!(
            copy(&nobody, Direction::Read, &memory).unwrap_err().raw_os_error(),
            Some(libc::ESRCH)
        );
        // Fewer bytes than are wanted.
        let short = Exposure::new(std::process::id());
        assert!(copy(&short, Direction::Read, &memory).is_err());
    }

    #[test]
    fn no_other_rank_names_this_process_or_its_threads() {
        let (mut far, mut near) = ([7; 8], [0; 8]);
        let far_at = address(&mut far);
        let memory = Pieces::one(address(&mut near), 8);
        let exposure = |process| {
            let mut exposure = Exposure::new(process);
            assert!(exposure.add(ExposedPiece { key: 0, address: far_at as u64, length: 8 }));
            exposure
        };
        let this = std::process::id();
        let (send, receive) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || {
            // SAFETY: it takes nothing.
            send.send(unsafe { libc::gettid() }).unwrap();
            let _ = ended.recv();
        });
        let running = receive.recv().unwrap() as u32;
        for (named, own) in [(this, None), (running, None), (running, Some(this))] {
            let copied = Neighbour::new(true).copy(&exposure(named), Direction::Read, &memory, own);
            assert_eq!(copied, None, "{named} {own:?}");
            assert_eq!(near, [0; 8]);
        }
        drop(end);
        waiting.join().unwrap();
        let mut own = Neighbour::new(true);
        assert_eq!(own.copy(&exposure(this), Direction::Read, &memory, Some(this)), Some(true));
        assert_eq!(near, [7; 8]);
        assert_eq!(
            own.copy(&exposure(1), Direction::Read, &memory, Some(this)),
            None,
            "it keeps to what it said"
        );
        assert_eq!(
            Neighbour::new(false).copy(&exposure(this), Direction::Read, &memory, Some(this)),
            None
        );
    }
}
