//! Waits for calls: answers, ends, and wake-ups from other threads.

pub(super) mod answer_handle;
pub(super) mod any;
pub(super) mod completion;
pub(super) mod wake_event;
