//! Bytes that other processes and threads may write at any time: rings, windows, memory lent to an operation.
//!
//! No reference to such bytes and no slice of them ever exists. They have the types of this module, which hold an address
//! and a length, and every access is here:
//!
//! - Short copies are relaxed atomic accesses, a word at a time where alignment permits. Eight aligned bytes are one access,
//!   which acquires or releases.
//! - Long copies are done by the C library's `memmove`, called by an instruction that the compiler does not look into. So
//!   it takes nothing for granted about the bytes, neither that two reads agree nor that nobody else writes. Miri and other
//!   processors use atomic accesses for these too.
//!
//! A copy of bytes that change meanwhile has for each byte an old value or a new one. What a bound depends on is copied to
//! private memory once and looked at there.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use kumi_proto::frame::Payload;

const WORD: usize = size_of::<u64>();
/// From so many bytes on, a call costs less than word after word.
const LONG: usize = 64;
/// Bytes that are copied at once from shared memory to shared memory of another alignment.
const CHUNK: usize = 256;

/// Bytes that can be read and that others may write at any time.
#[derive(Clone, Copy)]
pub struct SharedBytes<'a> {
    start: NonNull<u8>,
    length: usize,
    memory: PhantomData<&'a ()>,
}

/// Bytes that can be read and written, by others too at any time. A copy of this value names the same bytes: unlike
/// `&mut` it excludes nobody.
#[derive(Clone, Copy)]
pub struct SharedBytesMut<'a>(SharedBytes<'a>);

/// Bytes that can be copied into shared memory: private ones, or shared ones.
pub trait CopySource: Payload {
    /// Where they begin.
    fn address(self) -> *const u8;

    /// Copies all bytes. Eight aligned bytes appear at once.
    ///
    /// # Panics
    /// If `to` is not as long.
    fn copy_to_shared(self, to: SharedBytesMut<'_>);
}

// SAFETY: an address and a length; the bytes may be used by any thread, by the promise of `new`.
unsafe impl Send for SharedBytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes<'_> {}

impl<'a> SharedBytes<'a> {
    /// # Safety
    /// As long as this value is used, or one made from it:
    ///
    /// - The `length` bytes at `start` are mapped, can be read, and are initialised.
    /// - No Rust reference to any of them is used, but to atomics, and but shared ones while nobody writes.
    /// - Whoever writes them does so from outside of the Rust program, by atomics, or by this module.
    #[inline]
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, length: usize) -> SharedBytes<'a> {
        SharedBytes { start, length, memory: PhantomData }
    }

    /// How many bytes.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Where they begin.
    #[inline]
    #[must_use]
    pub fn as_ptr(self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The `length` bytes from `start` on, if there are so many.
    #[inline]
    #[must_use]
    pub fn get(self, start: usize, length: usize) -> Option<SharedBytes<'a>> {
        if start > self.length || length > self.length - start {
            return None;
        }
        // SAFETY: inside of the bytes, or behind the last, by the check.
        Some(SharedBytes { start: unsafe { self.start.add(start) }, length, ..self })
    }

    /// As [`SharedBytes::get`].
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    #[must_use]
    pub fn slice(self, start: usize, length: usize) -> SharedBytes<'a> {
        match self.get(start, length) {
            Some(part) => part,
            None => outside(start, length, self.length),
        }
    }

    /// The first `at` bytes and the others.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    #[must_use]
    pub fn split_at(self, at: usize) -> (SharedBytes<'a>, SharedBytes<'a>) {
        let first = self.slice(0, at);
        (first, self.slice(at, self.length - at))
    }

    /// Copies all bytes to private memory.
    ///
    /// # Panics
    /// If `into` is not as long.
    #[inline]
    pub fn copy_to(self, into: &mut [u8]) {
        assert_eq!(into.len(), self.length, "a copy to a place of another length");
        if self.length == WORD && self.start.cast::<u64>().is_aligned() {
            into.copy_from_slice(&self.load_u64(0).to_ne_bytes());
            return;
        }
        // SAFETY: readable by the promise of `new`; `into` is as long, and private.
        unsafe { load(self.as_ptr(), into.as_mut_ptr(), self.length) };
    }

    /// A private copy.
    #[must_use]
    pub fn to_vec(self) -> Vec<u8> {
        let mut copy = Vec::new();
        self.append_to(&mut copy);
        copy
    }

    /// Eight aligned bytes at once, in the machine's order. What their writer wrote before is seen after this.
    ///
    /// # Panics
    /// If they are not there or not aligned.
    #[inline]
    #[must_use]
    pub fn load_u64(self, at: usize) -> u64 {
        let word = self.slice(at, WORD).start.cast::<AtomicU64>();
        assert!(word.is_aligned(), "a word that is not aligned");
        // SAFETY: eight aligned bytes of these, to which nobody has a reference but to atomics.
        unsafe { word.as_ref() }.load(Acquire)
    }
}

impl<'a> SharedBytesMut<'a> {
    /// # Safety
    /// As [`SharedBytes::new`], and the bytes may be written.
    #[inline]
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, length: usize) -> SharedBytesMut<'a> {
        // SAFETY: the same promise.
        SharedBytesMut(unsafe { SharedBytes::new(start, length) })
    }

    /// The same bytes for longer than they are known to be there.
    ///
    /// # Safety
    /// What [`SharedBytesMut::new`] demands is true as long as the result is used, or a value made from it.
    #[inline]
    #[must_use]
    pub unsafe fn lend<'b>(self) -> SharedBytesMut<'b> {
        // SAFETY: the caller's promise.
        unsafe { SharedBytesMut::new(self.0.start, self.0.length) }
    }

    /// The same bytes, to be read.
    #[inline]
    #[must_use]
    pub fn shared(self) -> SharedBytes<'a> {
        self.0
    }

    /// How many bytes.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.0.length
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.length == 0
    }

    /// Where they begin.
    #[inline]
    #[must_use]
    pub fn as_ptr(self) -> *mut u8 {
        self.0.start.as_ptr()
    }

    /// As [`SharedBytesMut::as_ptr`].
    #[inline]
    #[must_use]
    pub fn start(self) -> NonNull<u8> {
        self.0.start
    }

    /// The `length` bytes from `start` on, if there are so many.
    #[inline]
    #[must_use]
    pub fn get(self, start: usize, length: usize) -> Option<SharedBytesMut<'a>> {
        self.0.get(start, length).map(SharedBytesMut)
    }

    /// As [`SharedBytesMut::get`].
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    #[must_use]
    pub fn slice(self, start: usize, length: usize) -> SharedBytesMut<'a> {
        SharedBytesMut(self.0.slice(start, length))
    }

    /// The first `at` bytes and the others.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    #[must_use]
    pub fn split_at(self, at: usize) -> (SharedBytesMut<'a>, SharedBytesMut<'a>) {
        let (first, rest) = self.0.split_at(at);
        (SharedBytesMut(first), SharedBytesMut(rest))
    }

    /// Copies as many bytes as there are from elsewhere. Eight aligned bytes appear at once.
    ///
    /// # Panics
    /// If `from` is not as long.
    #[inline]
    pub fn copy_from(self, from: impl CopySource) {
        from.copy_to_shared(self);
    }

    /// Fills them with zeros; aligned words change at once.
    pub fn clear(self) {
        let zeros = [0; CHUNK];
        let mut rest = self;
        while !rest.is_empty() {
            // Chunks end at words' ends, so that no word is divided.
            let most = CHUNK - rest.as_ptr().addr() % WORD;
            let (first, behind) = rest.split_at(rest.len().min(most));
            // SAFETY: writable by the promise of `new`; there are as many zeros.
            unsafe { store_words(zeros.as_ptr(), first.as_ptr(), first.len()) };
            rest = behind;
        }
    }

    /// Writes eight aligned bytes at once, in the machine's order. Who sees them sees what was written before.
    ///
    /// # Panics
    /// If they are not there or not aligned.
    #[inline]
    pub fn store_u64(self, at: usize, value: u64) {
        let word = self.slice(at, WORD).atomic_u64();
        let Some(word) = word else { panic!("a word that is not aligned") };
        word.store(value, Release);
    }

    /// The first eight bytes as an atomic, if there are so many and they are aligned.
    #[inline]
    #[must_use]
    pub fn atomic_u64(self) -> Option<&'a AtomicU64> {
        let word = self.0.start.cast::<AtomicU64>();
        if self.len() < WORD || !word.is_aligned() {
            return None;
        }
        // SAFETY: eight aligned bytes of these, which are there and can be written by the promise of `new`; nobody has a
        // reference to them but to atomics.
        Some(unsafe { word.as_ref() })
    }

    /// The first four bytes as an atomic, if there are so many and they are aligned.
    #[inline]
    #[must_use]
    pub fn atomic_u32(self) -> Option<&'a AtomicU32> {
        let word = self.0.start.cast::<AtomicU32>();
        if self.len() < size_of::<u32>() || !word.is_aligned() {
            return None;
        }
        // SAFETY: as for eight bytes.
        Some(unsafe { word.as_ref() })
    }
}

impl<'a> From<&'a mut [u8]> for SharedBytesMut<'a> {
    /// Private memory, which from here on is used through this value only, as long as it is borrowed.
    #[inline]
    fn from(bytes: &'a mut [u8]) -> SharedBytesMut<'a> {
        let length = bytes.len();
        // SAFETY: the borrow keeps the bytes there and everybody else away.
        unsafe { SharedBytesMut::new(NonNull::from(bytes).cast(), length) }
    }
}

impl Default for SharedBytes<'_> {
    /// No bytes.
    fn default() -> Self {
        SharedBytes { start: NonNull::dangling(), length: 0, memory: PhantomData }
    }
}

impl Default for SharedBytesMut<'_> {
    /// No bytes.
    fn default() -> Self {
        SharedBytesMut(SharedBytes::default())
    }
}

impl fmt::Debug for SharedBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shared bytes at {:p}", self.length, self.start)
    }
}

impl fmt::Debug for SharedBytesMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Payload for SharedBytes<'_> {
    #[inline]
    fn len(self) -> usize {
        self.length
    }

    #[inline]
    fn split_at(self, at: usize) -> (Self, Self) {
        SharedBytes::split_at(self, at)
    }

    #[inline]
    fn slice(self, start: usize, length: usize) -> Self {
        SharedBytes::slice(self, start, length)
    }

    #[inline]
    fn copy_to(self, into: &mut [u8]) {
        SharedBytes::copy_to(self, into);
    }

    fn append_to(self, vector: &mut Vec<u8>) {
        vector.reserve(self.length);
        let room = vector.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: room for so many bytes was just reserved; they are written before they count.
        unsafe {
            load(self.as_ptr(), room, self.length);
            vector.set_len(vector.len() + self.length);
        }
    }

    #[inline]
    fn private<'r>(self, room: &'r mut [u8]) -> &'r [u8]
    where
        Self: 'r,
    {
        SharedBytes::copy_to(self, room);
        room
    }
}

impl CopySource for &[u8] {
    #[inline]
    fn address(self) -> *const u8 {
        self.as_ptr()
    }

    #[inline]
    fn copy_to_shared(self, to: SharedBytesMut<'_>) {
        assert_eq!(self.len(), to.len(), "a copy to a place of another length");
        if let (Ok(bytes), Some(word)) = (<[u8; WORD]>::try_from(self), to.atomic_u64()) {
            word.store(u64::from_ne_bytes(bytes), Release);
            return;
        }
        // SAFETY: writable by the promise of `new`, and private bytes of this length.
        unsafe { store(self.as_ptr(), to.as_ptr(), self.len()) };
    }
}

impl CopySource for SharedBytes<'_> {
    #[inline]
    fn address(self) -> *const u8 {
        self.as_ptr()
    }

    #[inline]
    fn copy_to_shared(self, to: SharedBytesMut<'_>) {
        assert_eq!(self.length, to.len(), "a copy to a place of another length");
        if self.length == WORD
            && let Some(word) = to.atomic_u64()
        {
            let mut bytes = [0; WORD];
            self.copy_to(&mut bytes);
            word.store(u64::from_ne_bytes(bytes), Release);
            return;
        }
        // SAFETY: so many bytes can be read there and written here, by the promises of `new`.
        unsafe { transfer(self.as_ptr(), to.as_ptr(), self.length) };
    }
}

#[cold]
fn outside(start: usize, length: usize, bytes: usize) -> ! {
    panic!("{length} bytes from {start} on are not inside of {bytes}")
}

// ---- copies ---------------------------------------------------------------------------------

/// The C library's function does these.
const BY_CALL: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Copies bytes that others may write meanwhile, or that lie where others may write. The two ranges may overlap.
///
/// # Safety
/// `length` bytes can be read at `from` and written at `to`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn by_call(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the C library's, which every program of this system has.
    unsafe extern "C" {
        fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8;
    }
    // SAFETY: a call by the C convention with the arguments of `memmove`, whose ranges are the caller's promise. Rust keeps
    // the stack aligned for it. All that it may change is said. The compiler knows of the block only that it may read and
    // write all memory that the program has shown to others, as a function in another language may. So its assumptions about
    // references do not reach what others write meanwhile, and `memmove` itself goes nowhere but to these ranges.
    unsafe {
        std::arch::asm!(
            "call qword ptr [rip + {memmove}@GOTPCREL]",
            memmove = sym memmove,
            in("rdi") to,
            in("rsi") from,
            in("rdx") length,
            clobber_abi("C"),
        );
    }
}

/// # Safety
/// None: it is not called.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn by_call(_: *const u8, _: *mut u8, _: usize) {
    unreachable!("only where BY_CALL is set");
}

/// Copies from shared to private memory.
///
/// # Safety
/// `length` shared bytes can be read at `from`; the private ones at `into` can be written.
#[inline]
unsafe fn load(from: *const u8, into: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if BY_CALL && length >= LONG {
            by_call(from, into, length);
        } else {
            load_words(from, into, length);
        }
    }
}

/// Copies from private to shared memory.
///
/// # Safety
/// `length` private bytes can be read at `from`; the shared ones at `to` can be written.
#[inline]
unsafe fn store(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if BY_CALL && length >= LONG {
            by_call(from, to, length);
        } else {
            store_words(from, to, length);
        }
    }
}

/// Copies from shared to shared memory, as if all was read before the first byte is written.
///
/// # Safety
/// `length` shared bytes can be read at `from` and written at `to`.
unsafe fn transfer(from: *const u8, to: *mut u8, length: usize) {
    let apart = from.addr().abs_diff(to.addr()) >= length;
    if BY_CALL && length >= LONG {
        // SAFETY: the caller's promise.
        unsafe { by_call(from, to, length) };
    } else if length <= CHUNK || apart {
        let mut chunk = [0; CHUNK];
        for start in (0..length).step_by(CHUNK) {
            let bytes = CHUNK.min(length - start);
            // SAFETY: a part of both ranges, no longer than the chunk.
            unsafe {
                load_words(from.add(start), chunk.as_mut_ptr(), bytes);
                store_words(chunk.as_ptr(), to.add(start), bytes);
            }
        }
    } else {
        let mut all = vec![0; length];
        // SAFETY: the caller's promise; the vector is as long.
        unsafe {
            load_words(from, all.as_mut_ptr(), length);
            store_words(all.as_ptr(), to, length);
        }
    }
}

/// The sizes of the accesses to `length` bytes at `address`, in their order: up to a word's start, words, the rest. Each is at
/// a multiple of its size.
macro_rules! for_each_access {
    ($address:expr, $length:expr, $access:ident) => {{
        let (address, length) = ($address, $length);
        let mut at = 0;
        $access!(AtomicU8, u8, at, (address + at) & 1 != 0 && length - at >= 1);
        $access!(AtomicU16, u16, at, (address + at) & 2 != 0 && length - at >= 2);
        $access!(AtomicU32, u32, at, (address + at) & 4 != 0 && length - at >= 4);
        while length - at >= WORD {
            $access!(AtomicU64, u64, at, true);
        }
        // What is left is shorter than a word, and shorter than each access above that was left out.
        $access!(AtomicU32, u32, at, length - at >= 4);
        $access!(AtomicU16, u16, at, length - at >= 2);
        $access!(AtomicU8, u8, at, length - at >= 1);
        debug_assert_eq!(at, length);
    }};
}

/// As [`load`], by atomics.
///
/// # Safety
/// As [`load`].
unsafe fn load_words(from: *const u8, into: *mut u8, length: usize) {
    macro_rules! one {
        ($atomic:ty, $number:ty, $at:ident, $if:expr) => {
            if $if {
                // SAFETY: inside of both ranges, and aligned where it is shared.
                unsafe {
                    let value = (*from.add($at).cast::<$atomic>()).load(Relaxed);
                    into.add($at).cast::<$number>().write_unaligned(value);
                }
                $at += size_of::<$number>();
            }
        };
    }
    for_each_access!(from.addr(), length, one);
}

/// As [`store`], by atomics.
///
/// # Safety
/// As [`store`].
unsafe fn store_words(from: *const u8, to: *mut u8, length: usize) {
    macro_rules! one {
        ($atomic:ty, $number:ty, $at:ident, $if:expr) => {
            if $if {
                // SAFETY: inside of both ranges, and aligned where it is shared.
                unsafe {
                    let value = from.add($at).cast::<$number>().read_unaligned();
                    (*to.add($at).cast::<$atomic>()).store(value, Relaxed);
                }
                $at += size_of::<$number>();
            }
        };
    }
    for_each_access!(to.addr(), length, one);
}

#[cfg(test)]
#[path = "shared_bytes/tests.rs"] // Said for those who compile this file from elsewhere.
mod tests;
