//! Slot's end of the channel to its server: a socket, and a mailbox for short calls.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use kumi_call_wire::native::{receive_with_descriptor, send_with_descriptor};

use crate::native::{Mailbox, SpinPolicy};
use crate::slot_protocol::{MOST, Order, Reply};

/// The slot's end of the channel to its server.
pub struct ServerChannel {
    socket: OwnedFd,
    mailbox: Option<Mailbox>,
    buffer: Vec<u8>,
    /// Whether to poll for the next order, as decided after the last reply.
    spin_policy: SpinPolicy,
    should_poll: bool,
    answered: Option<Instant>,
}

impl ServerChannel {
    /// A channel over this socket.
    pub fn new(socket: OwnedFd) -> ServerChannel {
        let spin_policy = SpinPolicy::of_orders();
        ServerChannel {
            socket,
            mailbox: None,
            buffer: vec![0; MOST],
            spin_policy,
            should_poll: false,
            answered: None,
        }
    }

    /// Adds a mailbox for short orders.
    pub fn use_mailbox(&mut self, mailbox: Option<Mailbox>) {
        self.mailbox = mailbox;
    }

    /// A second handle of the socket.
    ///
    /// # Errors
    /// An error of the system.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// The next order and the descriptor with it. `None`: the server is gone.
    ///
    /// # Errors
    /// The socket fails, or this version does not know the order.
    pub fn next(&mut self) -> io::Result<Option<(Order, Option<OwnedFd>)>> {
        let should_poll = std::mem::take(&mut self.should_poll);
        let seen = self.mailbox.as_ref().filter(|_| should_poll).and_then(Mailbox::order);
        let (order, descriptor) = match seen {
            Some(order) => (Order::decode(&order), None),
            None => {
                let socket = self.socket.as_fd();
                let (length, descriptor) = loop {
                    match receive_with_descriptor(socket, &mut self.buffer, true) {
                        // A signal handler of the routine interrupted the wait.
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
        if matches!(order, Order::Run(..) | Order::RunWithin(..))
            && let Some(answered) = self.answered.take()
        {
            self.spin_policy.waited(answered.elapsed());
        }
        Ok(Some((order, descriptor)))
    }

    /// Sends a reply other than the end of a run.
    ///
    /// # Errors
    /// The server is gone.
    pub fn tell(&self, reply: &Reply) -> io::Result<()> {
        send_with_descriptor(self.socket.as_fd(), &reply.encode(), None)
    }

    /// Replies that a run has ended. Announces before that whether the slot polls for the next order.
    ///
    /// # Errors
    /// As [`ServerChannel::tell`].
    pub fn ran(&mut self, reply: &Reply) -> io::Result<()> {
        self.answered = Some(Instant::now());
        if let (Some(mailbox), Reply::Done(ns)) = (&self.mailbox, reply) {
            self.should_poll = self.spin_policy.should_poll() && mailbox.may_poll();
            if self.should_poll {
                mailbox.announce_order_polling();
            }
            if mailbox.answer(*ns) {
                return Ok(());
            }
        }
        self.tell(reply)
    }
}
