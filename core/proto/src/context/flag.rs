//! A truth value in a context: one byte of which every value can be read.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One byte: 0 is false. An endpoint writes 1 for true.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(transparent)]
pub(crate) struct Flag(u8);

impl Flag {
    pub(crate) const CLEAR: Self = Self(0);
    pub(crate) const SET: Self = Self(1);

    #[inline]
    pub(crate) fn get(self) -> bool {
        self.0 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, value: bool) {
        self.0 = u8::from(value);
    }

    /// Sets it if `value` is true.
    #[inline]
    pub(crate) fn or(&mut self, value: bool) {
        self.set(self.get() | value);
    }

    /// Clears it unless `value` is true.
    #[inline]
    pub(crate) fn and(&mut self, value: bool) {
        self.set(self.get() & value);
    }

    /// Clears it; what it was.
    #[inline]
    pub(crate) fn take(&mut self) -> bool {
        core::mem::take(self).get()
    }

    /// It is a value that an endpoint writes.
    pub(crate) fn is_valid(self) -> bool {
        self.0 <= 1
    }
}

impl From<bool> for Flag {
    #[inline]
    fn from(value: bool) -> Self {
        Self(u8::from(value))
    }
}
