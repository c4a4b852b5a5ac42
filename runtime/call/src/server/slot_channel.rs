//! What the process of a slot says, on its socket or on its board.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::unix::AsyncFd;

use crate::native::{
    self, Arena, Mailbox, SpinPolicy, receive_with_descriptor, send_with_descriptor,
};
use crate::slot_protocol::{MOST, Order, Reply};

/// How long the reply to an order is looked for: about what it costs to block and to be woken, of both ends.
const SOON: Duration = Duration::from_micros(40);
/// Looks at the board between two turns of others.
const LOOKS: u32 = 16;

/// How long it counts that there were many calls.
const SINCE: Duration = Duration::from_millis(5);

/// Whether there is a processor for who looks. With as many calls running as processors there is none, and they come
/// again: then blocking is cheaper for all together.
#[derive(Debug)]
pub struct PollingBudget {
    processors: usize,
    full: Option<Instant>,
}

impl PollingBudget {
    /// On so many processors.
    pub fn new(processors: usize) -> PollingBudget {
        PollingBudget { processors, full: None }
    }

    /// Whether there is room, now that so many calls run.
    pub fn is_left(&mut self, running: usize, now: Instant) -> bool {
        if running >= self.processors {
            self.full = Some(now);
        }
        self.full.is_none_or(|full| now.saturating_duration_since(full) > SINCE)
    }
}

/// A reply, and the descriptor that came with it.
pub type SlotReply = (Reply, Option<OwnedFd>);

/// A server's end of what it has in common with the process of a slot, but for arenas.
#[derive(Debug)]
pub struct SlotChannel {
    socket: AsyncFd<OwnedFd>,
    mailbox: Mailbox,
    worth: RefCell<SpinPolicy>,
    /// When it was given what it runs.
    begun: Cell<Instant>,
    /// Whether the last order went over the page.
    given: Cell<bool>,
    /// The reply is looked for so long.
    until: Cell<Option<Instant>>,
    buffer: RefCell<Vec<u8>>,
}

impl SlotChannel {
    /// Of a process that has the other end of the socket.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(socket: OwnedFd) -> io::Result<Rc<SlotChannel>> {
        Ok(Rc::new(SlotChannel {
            socket: native::watch(socket)?,
            mailbox: Mailbox::new()?,
            worth: RefCell::new(SpinPolicy::new(SOON)),
            begun: Cell::new(Instant::now()),
            given: Cell::default(),
            until: Cell::default(),
            buffer: RefCell::new(vec![0; MOST]),
        }))
    }

    /// The memory of the board, which the process is to map.
    pub fn mailbox(&self) -> &Arena {
        self.mailbox.arena()
    }

    /// Says something else than to run.
    ///
    /// # Errors
    /// It is gone, or does not listen.
    pub fn send(&self, order: &Order, arena: Option<&Arena>) -> io::Result<()> {
        let descriptor = arena.map(Arena::file);
        send_with_descriptor(self.socket.get_ref().as_fd(), &order.encode(), descriptor)?;
        self.mailbox.rouse();
        Ok(())
    }

    /// Has it run: the shortest way, if it looks. Whether its reply is looked for, too: then [`SlotChannel::reply`] is to be waited
    /// for at once. Neither end looks where there is no room for that.
    ///
    /// # Errors
    /// It is gone, or does not listen.
    pub fn run(&self, order: &Order, room: bool) -> io::Result<bool> {
        let looks = room && self.worth.borrow().looks();
        self.mailbox.let_look(room);
        if looks {
            self.mailbox.await_reply();
        }
        let now = Instant::now();
        self.begun.set(now);
        self.until.set(looks.then(|| now + SOON));
        self.given.set(self.mailbox.give(&order.encode()));
        if !self.given.get() {
            self.send(order, None)?;
        }
        Ok(looks)
    }

    /// Waits for a reply, with which a descriptor may come; `None`: the process has ended. Meanwhile others have their turns.
    pub async fn reply(&self) -> Option<SlotReply> {
        while let Some(until) = self.until.get() {
            for _ in 0..LOOKS {
                if let Some(reply) = self.mailbox.reply() {
                    return Some((self.heard(reply), None));
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= until {
                self.until.set(None);
                if let Some(reply) = self.mailbox.leave() {
                    return Some((self.heard(reply), None));
                }
            } else {
                // The processor is for who wants it, before all for the process that is to reply.
                std::thread::yield_now();
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

    /// Whether the process has not begun with the last that it was given, when it has ended, as far as the page says. The page
    /// is asked only for what went over it. But the process can write there until its end: a routine that writes outside of its
    /// memory, or means harm, can have an order look untaken that it has taken, and then that call is run once more. Of a
    /// routine that keeps to its own memory it holds.
    pub fn is_untaken(&self) -> bool {
        self.given.get() && self.mailbox.is_untaken()
    }

    /// A reply that has come, and the descriptor with it; `None`: there is none.
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

    fn heard(&self, reply: Reply) -> Reply {
        self.until.set(None);
        self.worth.borrow_mut().waited(self.begun.get().elapsed());
        reply
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use tokio::runtime::Builder;

    use super::*;

    /// A server's end, and the socket and the board of a slot.
    fn ends() -> (Rc<SlotChannel>, OwnedFd, Mailbox) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("sockets");
        let slot_channel = SlotChannel::new(ours).expect("an ear");
        let file = slot_channel.mailbox().file().try_clone_to_owned().expect("its descriptor");
        let arena = Arena::of(file, slot_channel.mailbox().length()).expect("its memory");
        let mailbox = Mailbox::of(arena.into()).expect("a board");
        (slot_channel, theirs, mailbox)
    }

    fn block<T>(future: impl Future<Output = T>) -> T {
        Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
    }

    fn says(socket: &OwnedFd, reply: &Reply) {
        send_with_descriptor(socket.as_fd(), &reply.encode(), None).expect("it is taken");
    }

    /// Has the server look for the reply to what it gives next.
    async fn quick(slot_channel: &SlotChannel, socket: &OwnedFd) {
        slot_channel.begun.set(Instant::now());
        says(socket, &Reply::Done(0));
        // However slow this machine is.
        slot_channel.reply().await.expect("a reply");
        slot_channel.worth.borrow_mut().waited(SOON);
    }

    #[test]
    fn a_slot_that_ends_before_it_takes_its_order_has_not_begun() {
        block(async {
            let (slot_channel, socket, mailbox) = ends();
            quick(&slot_channel, &socket).await;
            mailbox.await_order();
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
            mailbox.await_order();
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
            mailbox.await_order();
            assert!(!slot_channel.run(&Order::Run(0, 1, vec![]), false).expect("it is there"));
            assert!(!mailbox.may_look() && !mailbox.answer(1));
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
            slot_channel.worth.borrow_mut().waited(SOON * 2);
            assert!(!slot_channel.run(&Order::Run(0, 1, vec![]), true).expect("it is there"));
            let mut order = vec![0; MOST];
            let (length, _) = receive_with_descriptor(socket.as_fd(), &mut order, false)
                .expect("the order is in the socket");
            assert_eq!(Order::decode(&order[..length]), Some(Order::Run(0, 1, vec![])));
            says(&socket, &Reply::Done(3));
            assert_eq!(slot_channel.reply().await.map(|said| said.0), Some(Reply::Done(3)));
            // Nor that an order was not taken which went through the socket.
            let untaken: Vec<u8> = [2_u32.to_le_bytes(); 1024].concat();
            mailbox.arena().write(0, &untaken);
            assert!(mailbox.is_untaken() && !slot_channel.is_untaken());
        });
    }
}
