//! Tracepoints: places in the code that perf, bpftrace, SystemTap and gdb find by name, to stop at or
//! to count.
//!
//! Each is one instruction that does nothing (`nop`) and a note in the executable with the places of
//! the instruction and of its arguments. A tool that watches one replaces the instruction meanwhile;
//! otherwise nothing is tested, counted or written. All have the provider `kumi`; docs/guide/tracing.md
//! lists them.

/// Miri knows no assembly.
macro_rules! probe {
    (kumi, $name:ident $(, $value:ident)*) => {
        #[cfg(not(miri))]
        probe::probe!(kumi, $name $(, $value)*);
        #[cfg(miri)]
        let _ = ($($value,)*);
    };
}

/// A frame was queued: to which rank, how many bytes.
#[inline(always)]
pub(crate) fn send(to: u32, bytes: usize) {
    probe!(kumi, send, to, bytes);
}

/// A frame came: from which rank, how many bytes, and whether it was taken (1) or refused for lack of room (0).
#[inline(always)]
pub(crate) fn deliver(from: u32, bytes: usize, taken: bool) {
    probe!(kumi, deliver, from, bytes, taken);
}

/// A run of packets goes to the kernel: to which rank, bytes together, bytes of each.
#[inline(always)]
pub(crate) fn transmit(to: u32, bytes: usize, segment: usize) {
    probe!(kumi, transmit, to, bytes, segment);
}

/// The program begins to wait, and spins.
#[inline(always)]
pub(crate) fn wait() {
    probe!(kumi, wait);
}

/// The waiting program goes to sleep.
#[inline(always)]
pub(crate) fn sleep() {
    probe!(kumi, sleep);
}

/// The program has what it waited for; whether it slept meanwhile (1) or spun only (0).
#[inline(always)]
pub(crate) fn resume(slept: bool) {
    probe!(kumi, resume, slept);
}

/// The handler thread serves the channel.
#[inline(always)]
pub(crate) fn serve() {
    probe!(kumi, serve);
}

/// The daemon has switched jobs: the timetable's tick, nanoseconds that stopping and continuing took, and by which
/// it began late.
#[inline(always)]
pub fn switched(tick: u64, freeze_ns: u64, thaw_ns: u64, late_ns: u64) {
    probe!(kumi, switched, tick, freeze_ns, thaw_ns, late_ns);
}
