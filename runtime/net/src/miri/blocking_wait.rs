//! Blocking wait of the main thread, under Miri: it returns soon, and the caller looks again.

use std::io;
use std::os::fd::RawFd;

use crate::miri::NAP;
use crate::sys;
use crate::wire::driver::SleepDescriptors;

#[derive(Debug)]
pub(crate) struct BlockingWait(());

impl BlockingWait {
    pub(crate) fn new() -> io::Result<BlockingWait> {
        Ok(BlockingWait(()))
    }

    pub(crate) fn sleep(&mut self, bell: RawFd, _: SleepDescriptors, _until: Option<u64>) {
        std::thread::sleep(NAP);
        sys::silence(bell);
    }
}
