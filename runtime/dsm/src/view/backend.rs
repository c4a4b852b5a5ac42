//! What the two mechanisms have in common.

use std::ops::Range;

use super::error::ViewError;

/// Why a program reached for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code)] // Which of them there are depends on the machine.
pub(super) enum Access {
    Read,
    Write,
    /// The processor ran into it.
    Execute,
    /// The machine does not say.
    Unknown,
}

/// Makes units visible and knows which were written. Units were checked to be inside of the view; the view's gate is held
/// as said.
pub(super) trait Backend: Send + Sync {
    /// Shared.
    fn map(&self, units: Range<u64>) -> Result<(), ViewError>;

    /// Alone. The ranges are in order.
    fn drop_units(
        &self,
        units: &[Range<u64>],
        dirty: &mut Vec<Range<u64>>,
    ) -> Result<(), ViewError>;

    /// Alone.
    fn collect(&self, within: Range<u64>, dirty: &mut Vec<Range<u64>>) -> Result<(), ViewError>;

    /// Shared. Deals with a fault in a unit that is mapped; false if it is not mapped, and the resolver has to be asked.
    fn repair(&self, unit: u64, access: Access) -> Result<bool, ViewError>;

    /// Shared. A write made the resolver map this unit: saves the write another fault if that is possible.
    fn expect_write(&self, unit: u64) -> Result<(), ViewError>;

    /// Whether a write needs no fault any more.
    fn is_writable(&self, unit: u64) -> bool;

    /// Which units of a range are visible.
    fn visible(&self, units: Range<u64>) -> Vec<Range<u64>>;

    /// Whether a unit is visible.
    fn is_mapped(&self, unit: u64) -> bool;
}
