//! Starts the ranks of a small job with shared memory, without a daemon.
#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../../../mem/tests/common/mod.rs"]
mod common;

use std::sync::Arc;

#[allow(unused_imports, reason = "as above")]
pub use common::{Job, Numbers, Running, is_rank, launch};
use kumi_dsm::{Config, SharedMemory};
use kumi_mem::Context;

/// In a rank: runs the body with the job's shared memory and leaves. Otherwise starts the job.
pub fn start(name: &str, job: &Job<'_>, body: impl Fn(&SharedMemory)) -> Running {
    if is_rank() {
        let context = Arc::new(Context::init().expect("init"));
        let config = Config::from_environment().expect("settings");
        let memory = SharedMemory::new(Arc::clone(&context), config).expect("shared memory");
        body(&memory);
        drop(memory);
        Arc::into_inner(context).expect("the memory has let it go").finalize().expect("finalize");
        std::process::exit(0);
    }
    launch(&[name, "--exact", "--nocapture", "--test-threads=1"], job)
}
