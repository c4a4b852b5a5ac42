//! Server's end of the channel to a slot process: a socket, and a mailbox for short calls.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;

use kumi_call_slot::native::{Mailbox, SpinPolicy};

use crate::native::{self, Arena, receive_with_descriptor, send_with_descriptor};
use crate::slot_protocol::{MOST, Order, Reply};

/// How long the server polls for a reply: about the cost of blocking and waking both ends.
const SOON: Duration = Duration::from_micros(40);
/// Polls of the mailbox between two turns of other tasks.
const LOOKS: u32 = 16;

/// How long a high number of calls counts.
const SINCE: Duration = Duration::from_millis(5);

/// Decides whether a processor is free for polling. If as many calls run as there are processors, blocking is
/// cheaper for all.
#[derive(Debug)]
pub struct PollingBudget {
    processors: usize,
    full: Option<Instant>,
}

impl PollingBudget {
    /// A budget for this many processors.
    pub fn new(processors: usize) -> PollingBudget {
        PollingBudget { processors, full: None }
    }

    /// Whether a processor is free while this many calls run.
    pub fn is_left(&mut self, running: usize, now: Instant) -> bool {
        if running >= self.processors {
            self.full = Some(now);
        }
        self.full.is_none_or(|full| now.saturating_duration_since(full) > SINCE)
    }
}

/// A reply, and the descriptor that came with it.
pub type SlotReply = (Reply, Option<OwnedFd>);

/// The server's end of the channel to a slot process.
#[derive(Debug)]
pub struct SlotChannel {
    socket: AsyncFd<OwnedFd>,
    mailbox: Mailbox,
    spin_policy: RefCell<SpinPolicy>,
    /// When it got its last order to run.
    begun: Cell<Instant>,
    /// Whether the last order went through the mailbox.
    given: Cell<bool>,
    /// How long the server polls for the reply.
    until: Cell<Option<Instant>>,
    buffer: RefCell<Vec<u8>>,
}

impl SlotChannel {
    /// A channel to the process at the other end of the socket.
    ///
    /// # Errors
    /// An error of the system.
    pub fn new(socket: OwnedFd) -> io::Result<Rc<SlotChannel>> {
        Ok(Rc::new(SlotChannel {
            socket: native::watch(socket)?,
            mailbox: Mailbox::new()?,
            spin_policy: RefCell::new(SpinPolicy::new(SOON)),
            begun: Cell::new(Instant::now()),
            given: Cell::default(),
            until: Cell::default(),
            buffer: RefCell::new(vec![0; MOST]),
        }))
    }

    /// The memory of the mailbox, for the process to map.
    pub fn mailbox(&self) -> &Arena {
        self.mailbox.arena()
    }

    /// Sends an order other than to run.
    ///
    /// # Errors
    /// The process is gone, or does not read.
    pub fn send(&self, order: &Order, arena: Option<&Arena>) -> io::Result<()> {
        let descriptor = arena.map(Arena::file);
        send_with_descriptor(self.socket.get_ref().as_fd(), &order.encode(), descriptor)?;
        self.mailbox.wake_for_socket();
        Ok(())
    }

    /// Orders it to run, through the mailbox if it polls that. Returns whether the server polls for the
    /// reply: then [`SlotChannel::reply`] must be awaited at once. Without free processors neither end polls.
    ///
    /// # Errors
    /// The process is gone, or does not read.
    pub fn run(&self, order: &Order, room: bool) -> io::Result<bool> {
        let should_poll = room && self.spin_policy.borrow().should_poll();
        self.mailbox.allow_polling(room);
        if should_poll {
            self.mailbox.announce_reply_polling();
        }
        let now = Instant::now();
        self.begun.set(now);
        self.until.set(should_poll.then(|| now + SOON));
        self.given.set(self.mailbox.give(&order.encode()));
        if !self.given.get() {
            self.send(order, None)?;
        }
        Ok(should_poll)
    }

    /// Waits for a reply and the descriptor with it. `None`: the process has ended. Other tasks run
    /// meanwhile.
    pub async fn reply(&self) -> Option<SlotReply> {
        while let Some(until) = self.until.get() {
            for _ in 0..LOOKS {
                if let Some(reply) = self.mailbox.reply() {
                    return Some((self.note_reply(reply), None));
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= until {
                self.until.set(None);
                if let Some(reply) = self.mailbox.leave() {
                    return Some((self.note_reply(reply), None));
                }
            } else {
                // Others may have the processor, above all the process that is to reply.
                std::thread::yield_now();
                tokio::task::yield_now().await;
            }
        }
        loop {
            let mut ready = self.socket.readable().await.ok()?;
            match ready.try_io(|_| self.receive()) {
                Ok(Ok(said)) => {
                    // The process sends nothing more before its next order. The socket reports its end again.
                    ready.clear_ready();
                    return said.map(|(reply, descriptor)| (self.note_reply(reply), descriptor));
                }
                Ok(Err(_)) => return None,
                Err(_would_block) => {}
            }
        }
    }

    /// Whether a process that has ended had not begun its last order, according to the mailbox. Asked only
    /// for orders that went through the mailbox.
    ///
    /// The process can write there until its end. A routine that writes outside its memory can make a taken
    /// order look untaken, and its call then runs once more. For a routine that keeps to its own memory the
    /// answer is right.
    pub fn is_untaken(&self) -> bool {
        self.given.get() && self.mailbox.is_untaken()
    }

    /// A reply that has arrived, with its descriptor. `None`: there is none.
    pub fn last_reply(&self) -> Option<SlotReply> {
        self.until.set(None);
        let seen = self.mailbox.leave().map(|reply| (reply, None));
        seen.or_else(|| self.receive().ok().flatten())
    }

    fn receive(&self) -> io::Result<Option<SlotReply>> {
        let mut buffer = self.buffer.borrow_mut();
        let socket = self.socket.get_ref().as_fd();
        let (length, descriptor) = receive_with_descriptor(socket, &mut buffer, false)?;
        Ok(Reply::decode(&buffer[..length]).map(|reply| (reply, descriptor)))
    }

    fn note_reply(&self, reply: Reply) -> Reply {
        self.until.set(None);
        self.spin_policy.borrow_mut().waited(self.begun.get().elapsed());
        reply
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use tokio::runtime::Builder;

    use super::*;

    /// The server's end, and the socket and mailbox of a slot.
    fn ends() -> (Rc<SlotChannel>, OwnedFd, Mailbox) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("sockets");
        let slot_channel = SlotChannel::new(ours).expect("a channel");
        let file = slot_channel.mailbox().file().try_clone_to_owned().expect("its descriptor");
        let arena = Arena::of(file, slot_channel.mailbox().length()).expect("its memory");
        let mailbox = Mailbox::of(arena.into()).expect("a mailbox");
        (slot_channel, theirs, mailbox)
    }

    fn block<T>(future: impl Future<Output = T>) -> T {
        Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
    }

    fn says(socket: &OwnedFd, reply: &Reply) {
        send_with_descriptor(socket.as_fd(), &reply.encode(), None).expect("it is taken");
    }

    /// Makes the server poll for the reply to its next order.
    async fn quick(slot_channel: &SlotChannel, socket: &OwnedFd) {
        slot_channel.begun.set(Instant::now());
        says(socket, &Reply::Done(0));
        // However slow this machine is.
        slot_channel.reply().await.expect("a reply");
        slot_channel.spin_policy.borrow_mut().waited(SOON);
    }

    #[test]
    fn a_slot_that_ends_before_it_takes_its_order_has_not_begun() {
        block(async {
            let (slot_channel, socket, mailbox) = ends();
            quick(&slot_channel, &socket).await;
            mailbox.announce_order_polling();
            assert!(slot_channel.run(&Order::Run(0, 1, vec![]), true).expect("it is there"));
            drop(socket);
            assert!(slot_channel.reply().await.is_none() && slot_channel.is_untaken());
        });
    }

    #[test]
    fn a_slot_that_ends_while_its_reply_is_looked_for_is_found_out() {
        block(async {
            let (slot_channel, socket, mailbox) = ends();
            quick(&slot_channel, &socket).await;
            mailbox.announce_order_polling();
            assert!(slot_channel.run(&Order::Run(0, 1, vec![]), true).expect("it is there"));
            assert_eq!(
                Order::decode(&mailbox.order().expect("it")),
                Some(Order::Run(0, 1, vec![]))
            );
            drop(socket);
            assert!(slot_channel.reply().await.is_none() && !slot_channel.is_untaken());
            assert!(!mailbox.answer(1), "nobody looks");
        });
    }

    #[test]
    fn where_there_is_no_room_nobody_looks() {
        block(async {
            let (slot_channel, socket, mailbox) = ends();
            quick(&slot_channel, &socket).await;
            mailbox.announce_order_polling();
            assert!(!slot_channel.run(&Order::Run(0, 1, vec![]), false).expect("it is there"));
            assert!(!mailbox.may_poll() && !mailbox.answer(1));
        });
        let (mut room, now) = (PollingBudget::new(2), Instant::now());
        assert!(room.is_left(1, now) && !room.is_left(2, now) && !room.is_left(1, now + SINCE));
        assert!(room.is_left(1, now + SINCE * 2));
    }

    #[test]
    fn a_reply_through_the_socket_is_heard_though_another_is_looked_for() {
        block(async {
            let (slot_channel, socket, _board) = ends();
            quick(&slot_channel, &socket).await;
            assert!(slot_channel.run(&Order::Unmap(1), true).expect("it is there"));
            says(&socket, &Reply::Raised("no".to_owned()));
            let (reply, descriptor) = slot_channel.reply().await.expect("a reply");
            assert!(reply == Reply::Raised("no".to_owned()) && descriptor.is_none());
        });
    }

    #[test]
    fn what_a_slot_writes_without_being_asked_is_no_reply() {
        block(async {
            let (slot_channel, socket, mailbox) = ends();
            quick(&slot_channel, &socket).await;
            mailbox.arena().write(0, &[0xff; 4096]);
            slot_channel.spin_policy.borrow_mut().waited(SOON * 2);
            assert!(!slot_channel.run(&Order::Run(0, 1, vec![]), true).expect("it is there"));
            let mut order = vec![0; MOST];
            let (length, _) = receive_with_descriptor(socket.as_fd(), &mut order, false)
                .expect("the order is in the socket");
            assert_eq!(Order::decode(&order[..length]), Some(Order::Run(0, 1, vec![])));
            says(&socket, &Reply::Done(3));
            assert_eq!(slot_channel.reply().await.map(|said| said.0), Some(Reply::Done(3)));
            // Nor does an order through the socket look untaken.
            let untaken: Vec<u8> = [2_u32.to_le_bytes(); 1024].concat();
            mailbox.arena().write(0, &untaken);
            assert!(mailbox.is_untaken() && !slot_channel.is_untaken());
        });
    }
}
