//! Mailbox in shared memory between server and slot, so that neither needs to wake the other for a short
//! call.
//!
//! - Two words say whether each end polls the page. A sender writes its message there if the other end polls.
//!   Otherwise it uses the socket, which wakes the other end.
//! - Nothing on the page is trusted more than messages of the socket: lengths are bounded, and values may
//!   change at any time.
//! - Only the slot can say whether it has taken its last order. A routine that overwrites the page may cause
//!   its own order to run again. Orders through the socket never run twice.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::Arena;
use crate::slot_protocol::Reply;

/// Nobody polls: use the socket.
const BLOCKED: u32 = 0;
/// The receiver polls.
const LOOKS: u32 = 1;
/// A message is there.
const GIVEN: u32 = 2;

/// Bytes of the page.
const PAGE: usize = 4096;
/// The slot's word, then length and bytes of its order. The two ends' words lie in different cache lines.
const ORDER: usize = 0;
const LENGTH: usize = 8;
const BYTES: usize = 16;
/// The server's word, then the nanoseconds that the routine ran.
const REPLY: usize = PAGE - 128;
const RAN: usize = REPLY + 8;
/// Then a word that says whether the slot may poll for its next order.
const ROOM: usize = REPLY + 16;
/// Longest order.
const MOST: usize = REPLY - 64 - BYTES;

/// How long a slot polls for the next order, if the last one came soon.
const NEXT: Duration = Duration::from_micros(100);
/// Polls between two readings of the clock.
const LOOKS_AT_ONCE: u32 = 16;

/// The mailbox.
#[derive(Debug)]
pub struct Mailbox(Arc<Arena>);

impl Mailbox {
    /// A new mailbox.
    ///
    /// # Errors
    /// An error of the system.
    pub fn new() -> io::Result<Mailbox> {
        Arena::named("kumi-mailbox", PAGE).map(Arc::new).map(Mailbox)
    }

    /// A mailbox in memory that the server has made. `None`: the length is wrong.
    pub fn of(arena: Arc<Arena>) -> Option<Mailbox> {
        (arena.length() == PAGE).then_some(Mailbox(arena))
    }

    /// The memory for the other end to map.
    pub fn arena(&self) -> &Arena {
        &self.0
    }

    #[allow(clippy::cast_ptr_alignment)] // The mapping begins at a page, and words at multiples of 8.
    fn word(&self, offset: usize) -> &AtomicU32 {
        let at = self.0.at(offset, size_of::<u32>()).cast::<u32>();
        // SAFETY: inside of the mapping, aligned, and in this process used as an atomic only; of what other processes do
        // nothing but values is seen.
        unsafe { AtomicU32::from_ptr(at) }
    }

    fn change(&self, word: usize, from: u32, to: u32) -> bool {
        let word = self.word(word);
        word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn number(&self, offset: usize) -> u64 {
        let bytes = self.0.read(offset, 8);
        bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Server: gives an order to a polling slot. False: the slot does not poll or the order is too long, so
    /// the socket must be used.
    pub fn give(&self, order: &[u8]) -> bool {
        if order.len() > MOST || self.word(ORDER).load(Ordering::Acquire) != LOOKS {
            return false;
        }
        self.0.write(LENGTH, &(order.len() as u64).to_le_bytes());
        self.0.write(BYTES, order);
        self.change(ORDER, LOOKS, GIVEN)
    }

    /// Server: whether the page says that the order was not taken. If only these functions wrote to the page,
    /// a slot that has ended has then not begun the order.
    pub fn is_untaken(&self) -> bool {
        self.word(ORDER).load(Ordering::Acquire) == GIVEN
    }

    /// Server: makes the slot look at its socket.
    pub fn wake_for_socket(&self) {
        self.change(ORDER, LOOKS, BLOCKED);
    }

    /// Server: says whether the slot may poll for its next order.
    pub fn allow_polling(&self, may: bool) {
        self.word(ROOM).store(u32::from(may), Ordering::Relaxed);
    }

    /// Slot: whether it may poll.
    pub fn may_poll(&self) -> bool {
        self.word(ROOM).load(Ordering::Relaxed) == 1
    }

    /// Server: announces that it polls for the reply to its next order.
    pub fn announce_reply_polling(&self) {
        self.word(REPLY).store(LOOKS, Ordering::Release);
    }

    /// Server: the reply, if it is here.
    pub fn reply(&self) -> Option<Reply> {
        let there = self.word(REPLY).load(Ordering::Acquire) == GIVEN;
        there.then(|| {
            self.word(REPLY).store(BLOCKED, Ordering::Relaxed);
            Reply::Done(self.number(RAN))
        })
    }

    /// Server: stops polling. The reply will come through the socket, unless it is returned here.
    pub fn leave(&self) -> Option<Reply> {
        if self.change(REPLY, LOOKS, BLOCKED) { None } else { self.reply() }
    }

    /// Slot: announces that it polls for an order.
    pub fn announce_order_polling(&self) {
        self.word(ORDER).store(LOOKS, Ordering::Release);
    }

    /// Slot: answers a polling server. False: the server does not poll, so the socket must be used.
    pub fn answer(&self, ran: u64) -> bool {
        if self.word(REPLY).load(Ordering::Acquire) != LOOKS {
            return false;
        }
        self.0.write(RAN, &ran.to_le_bytes());
        self.change(REPLY, LOOKS, GIVEN)
    }

    /// Slot: polls for an order and yields the processor between polls. `None`: it comes through the socket.
    pub fn order(&self) -> Option<Vec<u8>> {
        let until = Instant::now() + NEXT;
        loop {
            for _ in 0..LOOKS_AT_ONCE {
                match self.word(ORDER).load(Ordering::Acquire) {
                    LOOKS => std::hint::spin_loop(),
                    GIVEN => return Some(self.take()),
                    _ => return None,
                }
            }
            if Instant::now() >= until {
                return (!self.change(ORDER, LOOKS, BLOCKED)
                    && self.word(ORDER).load(Ordering::Acquire) == GIVEN)
                    .then(|| self.take());
            }
            std::thread::yield_now();
        }
    }

    fn take(&self) -> Vec<u8> {
        let length = usize::try_from(self.number(LENGTH)).unwrap_or(0).min(MOST);
        let order = self.0.read(BYTES, length);
        self.word(ORDER).store(BLOCKED, Ordering::Relaxed);
        order
    }
}

/// Decides whether polling pays: it does if it would have sufficed the last time.
#[derive(Debug)]
pub struct SpinPolicy {
    within: Duration,
    last: Duration,
}

impl SpinPolicy {
    /// A policy for polls of at most this time.
    pub const fn new(within: Duration) -> SpinPolicy {
        SpinPolicy { within, last: Duration::MAX }
    }

    /// The policy of a slot for its next order. With one processor, polling would keep the server from giving
    /// it.
    pub fn of_orders() -> SpinPolicy {
        let alone =
            std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1);
        SpinPolicy::new(if alone { Duration::ZERO } else { NEXT })
    }

    /// Whether to poll.
    pub fn should_poll(&self) -> bool {
        self.last <= self.within
    }

    /// Notes how long the last wait took.
    pub fn waited(&mut self, time: Duration) {
        self.last = time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_look_is_given_nothing() {
        let mailbox = Mailbox::new().expect("a page");
        assert!(!mailbox.give(b"run") && !mailbox.answer(1));
        assert_eq!((mailbox.reply(), mailbox.leave()), (None, None));
        assert!(mailbox.order().is_none(), "it was not said that somebody looks");
    }

    #[test]
    fn an_order_and_its_reply_come_once() {
        let mailbox = Mailbox::new().expect("a page");
        mailbox.announce_order_polling();
        mailbox.announce_reply_polling();
        assert!(!mailbox.is_untaken() && mailbox.give(b"run") && !mailbox.give(b"again"));
        assert!(mailbox.is_untaken());
        assert_eq!(mailbox.order().as_deref(), Some(b"run".as_slice()));
        assert!(!mailbox.is_untaken());
        assert!(mailbox.order().is_none() && mailbox.answer(7) && !mailbox.answer(8));
        assert_eq!(mailbox.reply(), Some(Reply::Done(7)));
        assert_eq!((mailbox.reply(), mailbox.leave()), (None, None));
        mailbox.announce_reply_polling();
        assert_eq!(mailbox.leave(), None);
        assert!(!mailbox.answer(9), "it has gone to its socket");
    }

    #[test]
    fn what_is_too_long_or_roused_goes_through_the_socket() {
        let mailbox = Mailbox::new().expect("a page");
        mailbox.announce_order_polling();
        assert!(!mailbox.give(&[0; MOST + 1]));
        mailbox.wake_for_socket();
        assert!(mailbox.order().is_none() && !mailbox.give(b"run"));
    }

    #[test]
    fn a_slot_looks_if_it_was_allowed_to() {
        let mailbox = Mailbox::new().expect("a page");
        assert!(!mailbox.may_poll());
        mailbox.allow_polling(true);
        assert!(mailbox.may_poll());
        mailbox.allow_polling(false);
        assert!(!mailbox.may_poll());
    }

    #[test]
    fn a_slot_that_writes_anything_is_believed_no_length() {
        let mailbox = Mailbox::new().expect("a page");
        mailbox.arena().write(0, &[0xff; PAGE]);
        assert_eq!((mailbox.reply(), mailbox.leave(), mailbox.give(b"run")), (None, None, false));
        mailbox.announce_order_polling();
        mailbox.arena().write(LENGTH, &[0xff; 8]);
        mailbox.arena().write(ORDER, &GIVEN.to_le_bytes());
        assert!(mailbox.order().is_some_and(|order| order.len() <= MOST));
    }

    #[test]
    fn looking_follows_the_last_wait() {
        let mut spin_policy = SpinPolicy::new(NEXT);
        assert!(!spin_policy.should_poll());
        spin_policy.waited(NEXT);
        assert!(spin_policy.should_poll());
        spin_policy.waited(NEXT * 2);
        assert!(!spin_policy.should_poll());
    }
}
