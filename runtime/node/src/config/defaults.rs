//! Values of keys that the file leaves out.

/// Chosen by the head.
pub fn slice_us() -> u64 {
    0
}

/// Best between 8 and 16 where SCore-D was measured.
pub fn fan_out() -> u32 {
    16
}

/// It is measured whether it hurts.
pub fn fill() -> bool {
    true
}

/// The distributed queue tree: jobs of all sizes share space and time.
pub fn policy() -> String {
    "dqt".to_owned()
}

/// Four turns in a round where others have one.
pub fn max_priority() -> u16 {
    4
}

/// Jobs in the queues that a processor is in.
pub fn max_jobs_per_processor() -> u32 {
    16
}

/// Ranks per processor.
pub fn max_ranks_per_processor() -> u32 {
    16
}
