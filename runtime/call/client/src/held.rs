//! Names of arrays that servers hold between calls (docs/reference/call-protocol.md, "Arrays that stay").

use std::io;

use kumi_rpc::HeldArrayName;

pub(crate) use kumi_call_wire::gaps::Gaps;

/// Generator of names for held arrays, which nobody can guess.
#[derive(Debug)]
pub struct HeldNames {
    secret: [u8; 16],
    next: u32,
}

impl HeldNames {
    /// A generator of unused names.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new() -> io::Result<HeldNames> {
        Ok(HeldNames { secret: crate::random::bytes()?, next: 0 })
    }

    /// A new name.
    pub fn fresh(&mut self) -> HeldArrayName {
        self.next = self.next.wrapping_add(1);
        HeldArrayName { secret: self.secret, index: self.next }
    }
}
