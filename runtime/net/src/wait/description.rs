//! What a thread waits for, for people and for the verdict on its job. Calls describe it before they wait; it is written into
//! the context when the wait is long.

use std::cell::Cell;
use std::sync::OnceLock;

use kumi_verdict::{CallName, WaitKind};

use crate::layout::WAIT_WORDS;

/// Description of a wait.
#[derive(Debug, Clone, Copy, Default)]
pub struct Description {
    /// Kind.
    pub kind: WaitKind,
    /// The rank that can end it; none: several, or it is not known.
    pub peer: Option<u32>,
    /// What of it, see [`WaitKind`].
    pub what: Option<u64>,
    /// What further.
    pub further: Option<u64>,
    /// The call of the program.
    pub call: CallName,
    /// Where the program goes on after the call; 0 if that is not known.
    pub address: u64,
    /// No other thread of the process can end it.
    pub alone: bool,
    /// Number of a wait that goes on when the channel's wait is over: it is the same as long as this is, and has no time
    /// limit. Otherwise each wait of the channel is one.
    pub number: Option<u64>,
}

thread_local! {
    static CURRENT: Cell<Description> = const { Cell::new(Description::none()) };
    static WAITS: Cell<u64> = const { Cell::new(0) };
    /// Number of the waits of a layer above that are one; 0: each is one by itself.
    static ONE_WAIT: Cell<u64> = const { Cell::new(0) };
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// Words of the address, and of the name of the call.
const ADDRESS_WORD: usize = 8;
const CALL_WORD: usize = 9;

/// Bits of the word of flags.
const TIMED: u64 = 1;
const HAS_WHAT: u64 = 2;
const HAS_FURTHER: u64 = 4;
const ALONE: u64 = 8;
/// Numbers that callers give, apart from those of the channel's waits.
const GIVEN: u64 = 1 << 63;

impl Description {
    const fn none() -> Description {
        Description {
            kind: WaitKind::Other,
            peer: None,
            what: None,
            further: None,
            call: CallName::new(""),
            address: 0,
            alone: false,
            number: None,
        }
    }

    /// A wait of this kind for one rank, or any.
    #[must_use]
    #[inline]
    pub fn of(kind: WaitKind, peer: Option<u32>) -> Description {
        Description { kind, peer, ..Description::none() }
    }

    /// With the number of what is waited for.
    #[must_use]
    #[inline]
    pub fn what(self, what: u64) -> Description {
        Description { what: Some(what), ..self }
    }

    /// With a further number.
    #[must_use]
    #[inline]
    pub fn further(self, further: u64) -> Description {
        Description { further: Some(further), ..self }
    }

    /// Waits of this thread are described so, until what this returns is dropped. The outermost description says most of what
    /// the program does, so it stays: within one that has a kind this changes nothing, and a name stays, too.
    #[inline]
    #[must_use]
    pub fn enter(self) -> DescriptionScope {
        let outer = CURRENT.get();
        if outer.kind == WaitKind::Other {
            let call = if outer.has_name() { outer.call } else { self.call };
            CURRENT.set(Description { call, ..self });
        }
        DescriptionScope(outer)
    }

    fn has_name(&self) -> bool {
        self.call.bytes()[0] != 0
    }
}

/// Finds the call of the program in which this thread is, and where the program goes on after it (0: not known).
pub type Locator = fn() -> Option<(CallName, u64)>;

static LOCATOR: OnceLock<Locator> = OnceLock::new();

/// Waits of this process that have no name are given to this function once they have lasted for a while; the first one stays.
/// It is called with the channel's lock held, so it must not use the channel.
pub fn set_locator(locator: Locator) {
    LOCATOR.get_or_init(|| locator);
}

/// The function that finds calls, if there is one.
pub(crate) fn locator() -> Option<Locator> {
    LOCATOR.get().copied()
}

/// Whether these words name a call.
pub(crate) fn has_call(words: &[u64; WAIT_WORDS]) -> bool {
    words[CALL_WORD] != 0
}

/// Puts a call into words.
pub(crate) fn put_call(words: &mut [u64; WAIT_WORDS], call: &CallName, address: u64) {
    words[ADDRESS_WORD] = address;
    for (word, bytes) in words[CALL_WORD..].iter_mut().zip(call.bytes().chunks_exact(8)) {
        *word = u64::from_le_bytes(std::array::from_fn(|at| bytes[at]));
    }
}

/// The description of this thread's waits that is in force stays so, until what this returns is dropped.
#[inline]
#[must_use]
pub fn keep_description() -> DescriptionScope {
    DescriptionScope(CURRENT.get())
}

/// Whether the waits of this thread have the name of a call.
#[must_use]
pub fn is_call_set() -> bool {
    CURRENT.get().has_name()
}

/// Names the call of the waits of this thread as long as the present description is in force.
pub fn set_call(call: CallName) {
    CURRENT.set(Description { call, ..CURRENT.get() });
}

/// Names the program's call for the waits of this thread in it, unless it has a name already.
#[inline]
#[must_use]
pub fn name_call(call: CallName) -> DescriptionScope {
    let outer = CURRENT.get();
    if !outer.has_name() {
        CURRENT.set(Description { call, ..outer });
    }
    DescriptionScope(outer)
}

/// While it lives a description is in force.
#[derive(Debug)]
pub struct DescriptionScope(Description);

impl Drop for DescriptionScope {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Waits of this thread are one and the same until what this returns is dropped: a layer above leaves them and goes on.
#[inline]
#[must_use]
pub fn one_wait() -> OneWait {
    OneWait(ONE_WAIT.replace(next_number()))
}

/// While it lives, waits of the thread have the same number.
#[derive(Debug)]
pub struct OneWait(u64);

impl Drop for OneWait {
    fn drop(&mut self) {
        ONE_WAIT.set(self.0);
    }
}

/// Description of the present thread's wait as words of a place. `awaited`: the rank for which the layer above waits, if it is
/// one and known.
pub(crate) fn words(
    timed: bool,
    counter: Option<(usize, u64)>,
    awaited: Option<u32>,
) -> [u64; WAIT_WORDS] {
    let now = CURRENT.get();
    let (given, one) = (now.number, ONE_WAIT.get());
    let number = match given {
        Some(number) => number | GIVEN,
        None if one > 0 => one,
        None => next_number(),
    };
    let timed = timed && now.number.is_none();
    let flag = |set: bool, bit: u64| if set { bit } else { 0 };
    let flags = flag(timed, TIMED)
        | flag(now.what.is_some(), HAS_WHAT)
        | flag(now.further.is_some(), HAS_FURTHER)
        | flag(now.alone, ALONE);
    let (counter, at_least) =
        counter.map_or((0, 0), |(index, at_least)| (index as u64 + 1, at_least));
    let mut words = [
        number,
        u64::from(thread()) | u64::from(now.kind.number()) << 32,
        now.peer.or(awaited).map_or(0, |peer| u64::from(peer) + 1),
        now.what.unwrap_or(0),
        now.further.unwrap_or(0),
        flags,
        counter,
        at_least,
        0,
        0,
        0,
        0,
        0,
    ];
    put_call(&mut words, &now.call, now.address);
    words
}

/// A wait that a place describes, and the counter that it is for with its count.
type Described = (kumi_verdict::Wait, Option<(usize, u64)>);

/// What words of a place say, if a wait is there. Anything can be in them.
pub(crate) fn decode(words: &[u64; WAIT_WORDS], ranks: u32) -> Option<Result<Described, Damaged>> {
    let [number, thread_kind, peer, what, further, flags, counter, at_least, address, ..] = *words;
    let thread = thread_kind as u32;
    if thread == 0 {
        return None;
    }
    let mut call = [0; kumi_verdict::CALL_BYTES];
    for (bytes, word) in call.chunks_exact_mut(8).zip(&words[CALL_WORD..]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let Some(kind) = WaitKind::from_number((thread_kind >> 32) as u32) else {
        return Some(Err(Damaged));
    };
    let peer = match u32::try_from(peer) {
        Ok(0) => None,
        Ok(peer) if peer <= ranks => Some(peer - 1),
        _ => return Some(Err(Damaged)),
    };
    let has = |bit: u64| flags & bit != 0;
    let wait = kumi_verdict::Wait {
        number,
        thread,
        kind,
        peer,
        what: has(HAS_WHAT).then_some(what),
        further: has(HAS_FURTHER).then_some(further),
        timed: has(TIMED),
        alone: has(ALONE),
        call: CallName::from_bytes(call),
        address,
    };
    let counter = usize::try_from(counter).unwrap_or(usize::MAX).checked_sub(1);
    Some(Ok((wait, counter.map(|index| (index, at_least)))))
}

/// A place holds what no rank writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

/// A number that no other wait of this thread has.
fn next_number() -> u64 {
    let number = WAITS.get() + 1;
    WAITS.set(number);
    number
}

/// This thread's number in the system.
fn thread() -> u32 {
    if THREAD.get() == 0 {
        THREAD.set(crate::sys::thread_number());
    }
    THREAD.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_with_the_name_of_the_outermost_call() {
        let outer = name_call(CallName::new("outer"));
        let inner = name_call(CallName::new("inner"));
        let wait = Description::of(WaitKind::Message, Some(3)).what(9).enter();
        let within = Description::of(WaitKind::Request, None).enter();
        let (told, counter) = decode(&words(false, Some((7, 2)), Some(1)), 4).unwrap().unwrap();
        assert_eq!((told.kind, told.peer, told.what), (WaitKind::Message, Some(3), Some(9)));
        assert_eq!((told.further, told.timed, told.call.as_str()), (None, false, "outer"));
        assert_eq!((told.thread, counter), (thread(), Some((7, 2))));
        let again = decode(&words(true, None, None), 4).unwrap().unwrap();
        assert_ne!(again.0.number, told.number, "another wait");
        assert!(again.0.timed && again.1.is_none());
        let one = one_wait();
        let number = || decode(&words(false, None, None), 4).unwrap().unwrap().0.number;
        assert!(number() == number() && number() > again.0.number);
        drop(one);
        drop(within);
        drop(wait);
        drop(inner);
        drop(outer);
        let none = decode(&words(false, None, Some(2)), 4).unwrap().unwrap();
        assert_eq!((none.0.kind, none.0.call.as_str()), (WaitKind::Other, ""));
        assert_eq!(none.0.peer, Some(2), "as the layer above says");
    }

    #[test]
    fn a_call_that_is_found_later_is_told() {
        let mut found = words(false, None, None);
        assert!(!has_call(&found));
        put_call(&mut found, &CallName::new("kumi_message_recv"), 77);
        let told = decode(&found, 4).unwrap().unwrap().0;
        assert_eq!((told.call.as_str(), told.address), ("kumi_message_recv", 77));
        assert!(has_call(&found));
        let kept = keep_description();
        assert!(!is_call_set());
        set_call(CallName::new("Window.wait"));
        assert!(is_call_set());
        assert!(has_call(&words(false, None, None)));
        drop(kept);
        assert!(!has_call(&words(false, None, None)));
    }

    #[test]
    fn a_wait_that_goes_on_keeps_its_number_and_has_no_limit() {
        let description = Description { number: Some(5), ..Description::none() };
        let _scope = description.enter();
        let tell = || decode(&words(true, None, None), 1).unwrap().unwrap().0;
        assert_eq!(tell(), tell());
        assert!(!tell().timed);
    }

    #[test]
    fn what_no_rank_writes_is_refused() {
        assert_eq!(decode(&[0; WAIT_WORDS], 4), None);
        let good = words(false, None, None);
        let with = |at: usize, value| {
            let mut words = good;
            words[at] = value;
            decode(&words, 4)
        };
        assert_eq!(with(1, 1 | 99 << 32), Some(Err(Damaged)));
        for peer in [5, 1 << 32, u64::MAX] {
            assert_eq!(with(2, peer), Some(Err(Damaged)));
        }
        assert!(with(6, u64::MAX).is_some_and(|told| told.is_ok()));
    }
}
