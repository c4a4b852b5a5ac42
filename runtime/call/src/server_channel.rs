//! What the server says to the process of a slot, which answers: through their socket or on their board.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use crate::native::{Mailbox, SpinPolicy, receive_with_descriptor, send_with_descriptor};
use crate::slot_protocol::{MOST, Order, Reply};

/// A slot's end of what it has in common with its server, but for arenas.
pub struct ServerChannel {
    socket: OwnedFd,
    mailbox: Option<Mailbox>,
    buffer: Vec<u8>,
    /// Whether to look for the next order; what is the case since the last reply.
    worth: SpinPolicy,
    looks: bool,
    answered: Option<Instant>,
}

impl ServerChannel {
    /// Those that come through a socket.
    pub fn new(socket: OwnedFd) -> ServerChannel {
        let worth = SpinPolicy::of_orders();
        ServerChannel {
            socket,
            mailbox: None,
            buffer: vec![0; MOST],
            worth,
            looks: false,
            answered: None,
        }
    }

    /// From here on they come on this board, too.
    pub fn look_at(&mut self, mailbox: Option<Mailbox>) {
        self.mailbox = mailbox;
    }

    /// The socket once more.
    ///
    /// # Errors
    /// What the system says.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// The next order and what came with it; `None`: there is no server any more.
    ///
    /// # Errors
    /// The socket fails, or the server says what this version does not know.
    pub fn next(&mut self) -> io::Result<Option<(Order, Option<OwnedFd>)>> {
        let looks = std::mem::take(&mut self.looks);
        let seen = self.mailbox.as_ref().filter(|_| looks).and_then(Mailbox::order);
        let (order, descriptor) = match seen {
            Some(order) => (Order::decode(&order), None),
            None => {
                let socket = self.socket.as_fd();
                let (length, descriptor) = loop {
                    match receive_with_descriptor(socket, &mut self.buffer, true) {
                        // A signal that a routine has left.
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        received => break received?,
                    }
                };
                if length == 0 {
                    return Ok(None);
                }
                (Order::decode(&self.buffer[..length]), descriptor)
            }
        };
        let order = order.ok_or(io::ErrorKind::InvalidData)?;
        if matches!(order, Order::Run(..))
            && let Some(answered) = self.answered.take()
        {
            self.worth.waited(answered.elapsed());
        }
        Ok(Some((order, descriptor)))
    }

    /// Answers something else than that a routine has run.
    ///
    /// # Errors
    /// There is no server any more.
    pub fn tell(&self, reply: &Reply) -> io::Result<()> {
        send_with_descriptor(self.socket.as_fd(), &reply.encode(), None)
    }

    /// A routine has run, or cannot. Before that is told it is said whether the next order is looked for.
    ///
    /// # Errors
    /// As [`ServerChannel::tell`].
    pub fn ran(&mut self, reply: &Reply) -> io::Result<()> {
        self.answered = Some(Instant::now());
        if let (Some(mailbox), Reply::Done(ns)) = (&self.mailbox, reply) {
            self.looks = self.worth.looks() && mailbox.may_look();
            if self.looks {
                mailbox.await_order();
            }
            if mailbox.answer(*ns) {
                return Ok(());
            }
        }
        self.tell(reply)
    }
}
