//! Error numbers and their texts.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// `kumi_error` of `kumi.h`. A number is never used again for
        /// something else; new ones are added at the end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Code { $($(#[$doc])* $name = $value,)* }

        impl Code {
            /// Every code, in the order of the header.
            pub const EVERY: &'static [Code] = &[$(Code::$name,)*];

            /// One sentence that explains the code.
            #[must_use]
            pub fn text(self) -> &'static CStr {
                match self { $(Code::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// Success.
    Ok = 0, c"success";
    /// `kumi_init` has not succeeded.
    NotInitialised = -1, c"the library is not initialised: call kumi_init first";
    /// `kumi_init` was called twice.
    AlreadyInitialised = -2, c"the library is initialised already: call kumi_init once";
    /// The process was not started by `kumi run`.
    NotLaunched = -3, c"the program was not started as part of a job: start it with `kumi run -n N PROGRAM`, or set KUMI_SINGLETON=1 for a job of one rank";
    /// Not the thread that called `kumi_init`.
    WrongThread = -4, c"called by another thread than the one that called kumi_init";
    /// A pointer that must not be NULL is.
    Null = -5, c"a pointer is NULL where data is needed";
    /// A pointer or offset is not aligned for its type.
    Alignment = -6, c"a pointer or offset is not a multiple of the element's size";
    /// No such rank.
    Rank = -7, c"there is no such rank in this job";
    /// A tag is negative.
    Tag = -8, c"tags are 0 or greater";
    /// A length or count is impossible.
    Length = -9, c"a length or count is impossible, or does not match that of another rank";
    /// Outside the target's window.
    Bounds = -10, c"the range lies outside the target's piece of the window";
    /// The message is longer than the buffer.
    Truncated = -11, c"the message is longer than the buffer; the status tells its length";
    /// The window lacks the right.
    Right = -12, c"the window does not grant the right to do this";
    /// Not a window, or freed.
    Window = -13, c"this is not a window of this rank, or it was freed";
    /// No such notification counter.
    Notify = -14, c"notification counters are 0 to 63";
    /// Not an element type.
    Type = -15, c"this is not a kumi_type";
    /// Not an operation, or not one for the type.
    Operation = -16, c"this is not a kumi_op, or not one for this type (bit operations are for integers)";
    /// Out of memory.
    Memory = -17, c"out of memory";
    /// The operating system refused.
    Io = -18, c"the operating system refused an operation";
    /// A defect in the library.
    Internal = -19, c"a defect in the library (please report it)";
    /// The job's channel cannot be joined.
    Attach = -20, c"the job's communication channel cannot be joined";
    /// A put was refused by its target after the call had returned.
    Refused = -21, c"an earlier put was refused by its target";
    /// Communication broke.
    Fault = -22, c"communication has failed, for example because a rank has ended";
    /// Anything that has no number of its own.
    Other = -23, c"the operation failed; kumi_error_detail tells why";
    /// Not a completion, or freed.
    Completion = -24, c"this is not a completion of this rank, or it was freed";
    /// Not a FIFO or signal port, or freed.
    Fifo = -40, c"there is no such FIFO or signal port, or it was freed";
    /// The own FIFO is full.
    Full = -41, c"the own FIFO is full and nobody else would empty it";
    /// A FIFO's memory is damaged.
    Damaged = -42, c"the FIFO has been written over";
    /// A signal handler panicked.
    Handler = -43, c"a signal handler failed; the call did nothing";
    /// A fork of a rank.
    Forked = -44, c"this process is a fork of a rank; only the rank itself can communicate";
    /// Not a request, or its end was told.
    Request = -45, c"there is no such request, or its end was told already";
    /// A request of an earlier job.
    Foreign = -46, c"the request belongs to another job than this";
    /// A request stands twice in a list.
    Listed = -47, c"the list has a request twice";
    /// A buffer is lent.
    Lent = -48, c"a request still uses the buffer: wait for it or release it first";
    /// Not a queue, or freed.
    Queue = -49, c"this is not a queue of this rank, or it was freed";
    /// Not a claim, or freed.
    Claim = -50, c"this is not a claimed message, or it was received or freed";
    /// Other threads are in calls.
    Busy = -51, c"other threads are in calls of the library: let them return first";
    /// Not a group, or freed; or it cannot be made so.
    Group = -60, c"this is not a group of this rank, it was freed, or it cannot be made so";
    /// Members of a group called different collectives.
    Disagree = -61, c"another member of the group has called another collective, or with another root";
    /// No shared memory.
    NotShared = -70, c"there is no shared memory: call kumi_dsm_start first";
    /// Shared memory exists.
    SharedAlready = -71, c"the shared memory exists already: call kumi_dsm_start once";
    /// A lock is given back that is not held.
    NotHeld = -72, c"the lock is not held by this thread; lock it first";
    /// A lock is taken twice.
    HeldAlready = -73, c"this thread holds the lock already; unlock it first";
    /// Ranks are in different barriers.
    Mismatch = -74, c"ranks are in different barriers; all call the same in the same order";
    /// Ranks have allocated differently.
    Allocations = -75, c"ranks have allocated different shared memory; all allocate the same in the same order";
    /// The shared memory is used up.
    Exhausted = -76, c"the shared memory is used up; raise KUMI_DSM_BYTES";
    /// Outside of what was allocated.
    Outside = -77, c"the range is outside of what was allocated in shared memory";
    /// A setting that cannot be.
    Setting = -78, c"a KUMI_DSM_ variable has a value that cannot be";
    /// No such counter.
    Counter = -79, c"shared memory has no counter of that name";
    /// A buffer in shared memory where that cannot be.
    SharedBuffer = -80, c"a buffer of this function is in shared memory; copy it to other memory first";
}

/// A refused call: its number and what exactly was wrong.
#[derive(Debug)]
pub struct Failure {
    /// The number that C gets.
    pub code: Code,
    /// The text of `kumi_error_detail`.
    pub detail: String,
}

impl Failure {
    /// A failure with its particulars.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Failure { code, detail: detail.into() }
    }
}

impl From<Code> for Failure {
    fn from(code: Code) -> Self {
        Failure::new(code, code.text().to_string_lossy())
    }
}

thread_local! {
    static DETAIL: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps the failure's detail for `kumi_error_detail`; returns its number.
pub fn report(failure: &Failure) -> c_int {
    keep_detail(failure.detail.as_bytes());
    failure.code as c_int
}

/// Keeps what `kumi_error_detail` says in this thread.
pub fn keep_detail(text: &[u8]) {
    let bytes: Vec<u8> = text.iter().copied().filter(|byte| *byte != 0).collect();
    let text = CString::new(bytes).unwrap_or_default();
    // While the thread ends the slot is gone; its number still identifies it.
    let kept = DETAIL.try_with(|slot| slot.replace(text));
    drop(kept);
}

/// The last failure's detail in this thread; valid until the next failure.
pub fn last_detail() -> *const c_char {
    DETAIL.try_with(|slot| slot.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The sentence for a number that may come from anywhere.
pub fn text_of(error: c_int) -> &'static CStr {
    Code::EVERY
        .iter()
        .find(|code| **code as c_int == error)
        .map_or(c"unknown error number", |code| code.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_and_texts_are_distinct() {
        let numbers: BTreeSet<i32> = Code::EVERY.iter().map(|code| *code as i32).collect();
        let texts: BTreeSet<&CStr> = Code::EVERY.iter().map(|code| code.text()).collect();
        assert_eq!(numbers.len(), Code::EVERY.len());
        assert_eq!(texts.len(), Code::EVERY.len());
        assert_eq!(numbers.iter().max(), Some(&0));
        assert_eq!(text_of(-7), Code::Rank.text());
        assert_eq!(text_of(1), c"unknown error number");
        assert_eq!(text_of(c_int::MIN), c"unknown error number");
    }

    #[test]
    fn detail_survives_bytes_that_c_strings_cannot_hold() {
        assert_eq!(report(&Failure::new(Code::Io, "a\0b")), -18);
        // SAFETY: `last_detail` points to a C string that lives until the
        // next failure of this thread.
        let text = unsafe { CStr::from_ptr(last_detail()) };
        assert_eq!(text, c"ab");
    }
}
