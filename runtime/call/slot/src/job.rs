//! What a slot asks of parallel routines. Only executables that have some link the crate that starts jobs.

use std::fmt;
use std::panic::RefUnwindSafe;

use kumi_call_wire::layout::Slot;
use kumi_call_wire::native::Arena;
use kumi_idl::Interface;

use crate::slot_protocol::{CallContext, Reply, Setup};

/// A routine that is a job of a cluster.
pub trait Job: fmt::Debug {
    /// Lets the job run the routine on the arguments in the arena.
    fn call(&mut self, arena: &Arena, slots: &[Slot], context: &CallContext) -> Reply;
}

/// Starts the jobs of parallel routines.
pub trait JobStarter: fmt::Debug + RefUnwindSafe {
    /// Opens what jobs need before this process becomes another user.
    fn prepare(&self, setup: &mut Setup);

    /// The job of the routine with this description, given as value and as JSON.
    ///
    /// # Errors
    /// An error message.
    fn job(&self, interface: &Interface, json: &str, setup: &Setup)
    -> Result<Box<dyn Job>, String>;
}
