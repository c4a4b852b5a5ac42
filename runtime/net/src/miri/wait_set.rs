//! What wakes the handler thread, under Miri: nothing does, it looks again and again.

use std::io;
use std::os::fd::RawFd;

use crate::channel::handover::Timer;
use crate::miri::NAP;
use crate::segment::attachment::AttachError;
use crate::sys;
use crate::wire::driver::SleepDescriptors;

#[derive(Debug)]
pub(crate) struct HandlerWaitSet {
    bell: RawFd,
}

impl HandlerWaitSet {
    pub(crate) fn new(_: SleepDescriptors, bell: RawFd) -> Result<HandlerWaitSet, AttachError> {
        Ok(HandlerWaitSet { bell })
    }

    pub(crate) fn disarm(&self, _rings: bool) {}

    pub(crate) fn arm(&self, _rings: bool) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn stop(&self) {}

    pub(crate) fn wait(&self) -> io::Result<()> {
        std::thread::sleep(NAP);
        Ok(())
    }

    pub(crate) fn silence_bell(&self) {
        sys::silence(self.bell);
    }
}

impl Timer for HandlerWaitSet {
    fn after(&self, _: Option<u64>) {}
}
