//! Pseudo-terminal of rank 0: the daemon has its master, the rank its slave.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use kumi_control::message::{User, WindowSize};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Pid, Uid, fchown};
use rustix::pty::OpenptFlags;
use rustix::termios::{InputModes, OptionalActions, Winsize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Rings the terminal that shows a job.
pub(super) const BELL: u8 = 7;

/// A pseudo-terminal. Its slave stays open here, so that it never hangs up while a program has it closed for a moment.
#[derive(Debug)]
pub(super) struct Terminal {
    master: Rc<AsyncFd<OwnedFd>>,
    slave: OwnedFd,
}

impl Terminal {
    /// Makes one of this size. The slave belongs to the user.
    pub(super) fn make(size: WindowSize, user: &User) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        // By its master: a name would be looked up in this process's folders.
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        let mut settings = rustix::termios::tcgetattr(&slave)?;
        // So that erasing a character takes off all of its bytes.
        settings.input_modes |= InputModes::IUTF8;
        rustix::termios::tcsetattr(&slave, OptionalActions::Now, &settings)?;
        rustix::termios::tcsetwinsize(&slave, winsize(size))?;
        fchmod(&slave, Mode::S_IRUSR | Mode::S_IWUSR)?;
        if user.uid != nix::unistd::geteuid().as_raw() {
            fchown(&slave, Some(Uid::from_raw(user.uid)), None)?;
        }
        let flags = OFlag::from_bits_truncate(fcntl(&master, FcntlArg::F_GETFL)?);
        fcntl(&master, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        #[expect(
            deprecated,
            reason = "the other constructor is unsafe; an OwnedFd keeps its descriptor"
        )]
        let master = AsyncFd::new(master)?;
        Ok(Self { master: Rc::new(master), slave })
    }

    /// The end that the rank gets.
    pub(super) fn slave(&self) -> BorrowedFd<'_> {
        self.slave.as_fd()
    }

    /// One that a former daemon made.
    pub(super) fn adopt(master: OwnedFd, slave: OwnedFd) -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "the other constructor is unsafe; an OwnedFd keeps its descriptor"
        )]
        let master = AsyncFd::new(master)?;
        Ok(Self { master: Rc::new(master), slave })
    }

    /// The other end, for a keeper.
    pub(super) fn master_fd(&self) -> BorrowedFd<'_> {
        self.master.get_ref().as_fd()
    }

    /// The same, to be read and written by way of files.
    pub(super) fn shared_master(&self) -> Rc<AsyncFd<OwnedFd>> {
        Rc::clone(&self.master)
    }

    /// The other end: what is written is typed, what is read was printed.
    pub(super) fn master(&self) -> Master {
        Master(Rc::clone(&self.master))
    }

    /// Sets the size, of which the kernel tells the programs in the foreground. If it is the one that the terminal has, they
    /// are told only to `redraw`.
    pub(super) fn resize(&self, size: WindowSize, redraw: bool) -> io::Result<()> {
        let (size, before) = (winsize(size), rustix::termios::tcgetwinsize(&self.slave)?);
        if (size.ws_row, size.ws_col) != (before.ws_row, before.ws_col) {
            return Ok(rustix::termios::tcsetwinsize(&self.slave, size)?);
        }
        if !redraw {
            return Ok(());
        }
        match rustix::termios::tcgetpgrp(self.master.get_ref()) {
            Ok(group) => {
                match killpg(Pid::from_raw(group.as_raw_nonzero().get()), Signal::SIGWINCH) {
                    Err(Errno::ESRCH) | Ok(()) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            }
            // Nobody is in the foreground.
            Err(_) => Ok(()),
        }
    }
}

fn winsize(size: WindowSize) -> Winsize {
    Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// The daemon's end of a terminal.
#[derive(Debug)]
pub(super) struct Master(Rc<AsyncFd<OwnedFd>>);

impl AsyncRead for Master {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(context))?;
            let space = buffer.initialize_unfilled();
            let read = |fd: &AsyncFd<OwnedFd>| Ok(nix::unistd::read(fd.get_ref(), space)?);
            match guard.try_io(read) {
                Ok(Ok(count)) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // Nobody has the slave any more, and all that was printed has been read.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::EIO as i32) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Master {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(context))?;
            let write = |fd: &AsyncFd<OwnedFd>| Ok(nix::unistd::write(fd.get_ref(), bytes)?);
            match guard.try_io(write) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn own() -> User {
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        User { uid, gid, name: String::new() }
    }

    const SIZE: WindowSize = WindowSize { rows: 30, columns: 100 };

    #[tokio::test(flavor = "current_thread")]
    async fn keys_are_echoed_and_output_is_read_to_its_end() {
        let terminal = Terminal::make(SIZE, &own()).unwrap();
        let mut master = terminal.master();
        master.write_all(b"ab\x7fc\r").await.unwrap();
        let mut echo = [0; 8];
        master.read_exact(&mut echo).await.unwrap();
        // Erasing is shown by going back, over and back; a return as return and line feed.
        assert_eq!(&echo, b"ab\x08 \x08c\r\n");
        let mut line = [0; 8];
        let count = nix::unistd::read(terminal.slave(), &mut line).unwrap();
        assert_eq!(&line[..count], b"ac\n");
        std::fs::File::from(terminal.slave().try_clone_to_owned().unwrap())
            .write_all(b"end\n")
            .unwrap();
        drop(terminal);
        let mut rest = Vec::new();
        master.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"end\r\n");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_size_is_set_and_changes() {
        let terminal = Terminal::make(SIZE, &own()).unwrap();
        let size = || {
            let size = rustix::termios::tcgetwinsize(terminal.slave()).unwrap();
            (size.ws_row, size.ws_col)
        };
        assert_eq!(size(), (30, 100));
        terminal.resize(WindowSize { rows: 5, columns: 6 }, false).unwrap();
        assert_eq!(size(), (5, 6));
        terminal.resize(WindowSize { rows: 5, columns: 6 }, true).unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_types_into_a_full_terminal_waits() {
        let terminal = Terminal::make(SIZE, &own()).unwrap();
        let mut raw = rustix::termios::tcgetattr(terminal.slave()).unwrap();
        raw.make_raw();
        rustix::termios::tcsetattr(terminal.slave(), OptionalActions::Now, &raw).unwrap();
        let typed: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        let expected = typed.clone();
        let mut master = terminal.master();
        let slave = terminal.slave().try_clone_to_owned().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            let mut piece = [0; 1000];
            while all.len() < 100_000 {
                let count = nix::unistd::read(&slave, &mut piece).unwrap();
                all.extend_from_slice(&piece[..count]);
            }
            all
        });
        master.write_all(&typed).await.unwrap();
        assert!(reader.join().unwrap() == expected, "bytes are missing, doubled or out of order");
    }
}
