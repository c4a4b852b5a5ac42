//! What the process of a slot says, on its socket or on its board.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;

use crate::native::{self, Arena, Board, Worth, receive_with_descriptor, send_with_descriptor};
use crate::protocol::{MOST, Order, Reply};

/// How long the reply to an order is looked for: about what it costs to block and to be woken, of both ends.
const SOON: Duration = Duration::from_micros(40);
/// Looks at the board between two turns of others.
const LOOKS: u32 = 64;

/// A reply, and the descriptor that came with it.
pub type Said = (Reply, Option<OwnedFd>);

/// A server's end of what it has in common with the process of a slot, but for arenas.
#[derive(Debug)]
pub struct Ear {
    socket: AsyncFd<OwnedFd>,
    board: Board,
    worth: RefCell<Worth>,
    /// When it was given what it runs.
    begun: Cell<Instant>,
    /// The reply is looked for so long.
    until: Cell<Option<Instant>>,
    buffer: RefCell<Vec<u8>>,
}

impl Ear {
    /// Of a process that has the other end of the socket.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(socket: OwnedFd) -> io::Result<Rc<Ear>> {
        Ok(Rc::new(Ear {
            socket: native::watch(socket)?,
            board: Board::new()?,
            worth: RefCell::new(Worth::new(SOON)),
            begun: Cell::new(Instant::now()),
            until: Cell::default(),
            buffer: RefCell::new(vec![0; MOST]),
        }))
    }

    /// The memory of the board, which the process is to map.
    pub fn board(&self) -> &Arena {
        self.board.arena()
    }

    /// Says something else than to run.
    ///
    /// # Errors
    /// It is gone, or does not listen.
    pub fn send(&self, order: &Order, arena: Option<&Arena>) -> io::Result<()> {
        let descriptor = arena.map(Arena::file);
        send_with_descriptor(self.socket.get_ref().as_fd(), &order.encode(), descriptor)?;
        self.board.rouse();
        Ok(())
    }

    /// Has it run: the shortest way, if it looks. Whether its reply is looked for, too: then [`Ear::reply`] is to be waited
    /// for at once.
    ///
    /// # Errors
    /// It is gone, or does not listen.
    pub fn run(&self, order: &Order) -> io::Result<bool> {
        let looks = self.worth.borrow().looks();
        if looks {
            self.board.await_reply();
        }
        let now = Instant::now();
        self.begun.set(now);
        self.until.set(looks.then(|| now + SOON));
        if !self.board.give(&order.encode()) {
            self.send(order, None)?;
        }
        Ok(looks)
    }

    /// Waits for a reply, with which a descriptor may come; `None`: the process has ended. Meanwhile others have their turns.
    pub async fn reply(&self) -> Option<Said> {
        while let Some(until) = self.until.get() {
            for _ in 0..LOOKS {
                if let Some(reply) = self.board.reply() {
                    return Some((self.heard(reply), None));
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= until {
                self.until.set(None);
                if let Some(reply) = self.board.leave() {
                    return Some((self.heard(reply), None));
                }
            } else {
                tokio::task::yield_now().await;
            }
        }
        loop {
            let mut ready = self.socket.readable().await.ok()?;
            match ready.try_io(|_| self.receive()) {
                Ok(Ok(said)) => {
                    // It says nothing more before it is given something; of its end the socket tells again.
                    ready.clear_ready();
                    return said.map(|(reply, descriptor)| (self.heard(reply), descriptor));
                }
                Ok(Err(_)) => return None,
                Err(_would_block) => {}
            }
        }
    }

    /// A reply that has come, and the descriptor with it; `None`: there is none.
    pub fn last_reply(&self) -> Option<Said> {
        self.until.set(None);
        let seen = self.board.leave().map(|reply| (reply, None));
        seen.or_else(|| self.receive().ok().flatten())
    }

    fn receive(&self) -> io::Result<Option<Said>> {
        let mut buffer = self.buffer.borrow_mut();
        let socket = self.socket.get_ref().as_fd();
        let (length, descriptor) = receive_with_descriptor(socket, &mut buffer, false)?;
        Ok(Reply::decode(&buffer[..length]).map(|reply| (reply, descriptor)))
    }

    fn heard(&self, reply: Reply) -> Reply {
        self.until.set(None);
        self.worth.borrow_mut().waited(self.begun.get().elapsed());
        reply
    }
}
