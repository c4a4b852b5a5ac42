//! Arrays that a program passes by their address, for the bindings of other languages. Such an array may be a window's memory,
//! which is never a slice.

use std::borrow::Cow;
use std::ptr::NonNull;

use kumi_net::{SharedBytes, SharedBytesMut};

use crate::collective::scalar::Scalar;
use crate::context::Context;
use crate::error::Error;

impl Context {
    /// Whether any of these bytes belong to a window of this rank, so that others may write them.
    ///
    /// # Errors
    /// [`Error::Fault`] if the channel is broken.
    pub fn is_shared(&self, start: *const u8, bytes: usize) -> Result<bool, Error> {
        if self.attachment().in_own_arena(start, bytes) {
            return Ok(true);
        }
        let mut guard = self.channel.lock()?;
        let mut windows = guard.handler().windows.all();
        Ok(windows.any(|window| overlap((start, bytes), (window.base.as_ptr(), window.length))))
    }

    /// An array of the program: where it lies, or a private copy of one that is a window's memory.
    ///
    /// # Errors
    /// Those of [`Context::is_shared`], and [`Error::OutOfMemory`].
    ///
    /// # Safety
    /// During `'a` the `count` elements at `start`, which is aligned, are there and initialised, and nobody writes them unless
    /// they are a window's memory. (If there are none, `start` may be anything.)
    pub unsafe fn elements<'a, T: Scalar>(
        &self,
        start: *const T,
        count: usize,
    ) -> Result<Cow<'a, [T]>, Error> {
        let Some(place) = NonNull::new(start.cast_mut()).filter(|_| count > 0) else {
            return Ok(Cow::default());
        };
        if self.is_shared(start.cast(), count * size_of::<T>())? {
            // SAFETY: the caller's promise; a window's memory is reached as shared bytes only.
            let bytes = unsafe { SharedBytes::new(place.cast(), count * size_of::<T>()) };
            return private_copy(bytes, count).map(Cow::Owned);
        }
        // SAFETY: the caller's promise.
        Ok(Cow::Borrowed(unsafe { std::slice::from_raw_parts(start, count) }))
    }

    /// Runs `body` with an array of the program, or with a private copy of one that is a window's memory. The copy is
    /// written back unless `body` fails.
    ///
    /// # Errors
    /// Those of [`Context::elements`] and of `body`.
    ///
    /// # Safety
    /// As [`Context::elements`], for as long as this runs; and nobody reads the elements then, unless they are a window's
    /// memory.
    pub unsafe fn with_elements<T: Scalar, R>(
        &self,
        start: *mut T,
        count: usize,
        body: impl FnOnce(&mut [T]) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let Some(place) = NonNull::new(start).filter(|_| count > 0) else { return body(&mut []) };
        if self.is_shared(start.cast(), count * size_of::<T>())? {
            // SAFETY: the caller's promise; a window's memory is reached as shared bytes only.
            let bytes = unsafe { SharedBytesMut::new(place.cast(), count * size_of::<T>()) };
            let mut copy = private_copy(bytes.shared(), count)?;
            let result = body(&mut copy)?;
            bytes.copy_from(T::bytes(&copy));
            return Ok(result);
        }
        // SAFETY: the caller's promise.
        body(unsafe { std::slice::from_raw_parts_mut(start, count) })
    }
}

fn overlap((start, bytes): (*const u8, usize), (other, length): (*mut u8, usize)) -> bool {
    let (start, other) = (start.addr(), other.addr());
    start < other.saturating_add(length) && other < start.saturating_add(bytes)
}

fn private_copy<T: Scalar>(bytes: SharedBytes<'_>, count: usize) -> Result<Vec<T>, Error> {
    let mut copy = Vec::new();
    let what = "a private copy of a window's memory";
    let full = |_| Error::OutOfMemory { bytes: bytes.len() as u64, what };
    copy.try_reserve_exact(count).map_err(full)?;
    copy.resize(count, T::default());
    bytes.copy_to(T::bytes_mut(&mut copy));
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::table::Rights;

    /// An array of the program's own stays where it is; a window's is copied, in a window of both kinds.
    #[test]
    fn only_windows_are_copied() {
        let context = Context::init_singleton().expect("a job of one");
        let window = context.window(64).expect("window");
        let mut own = [7u64; 4];
        let mut lent = [7u64; 4];
        let start = lent.as_mut_ptr();
        window.write(8, &[7; 32]).expect("inside");
        // SAFETY: the memory stays until the window is dropped, and is used by its address only.
        let on = unsafe { context.window_on(start.cast(), 32, Rights::ALL) }.expect("window");
        // SAFETY: inside of the window.
        let inside = unsafe { window.base().add(8).cast::<u64>() };
        for (place, shared) in [(own.as_mut_ptr(), false), (start, true), (inside, true)] {
            assert_eq!(context.is_shared(place.cast(), 32).ok(), Some(shared));
            let change = |elements: &mut [u64]| {
                assert_eq!(std::ptr::eq(elements.as_ptr(), place), !shared);
                elements.iter_mut().for_each(|element| *element += 1);
                Ok(())
            };
            // SAFETY: four numbers, which nobody else uses.
            unsafe { context.with_elements(place, 4, change) }.expect("changed");
            // SAFETY: as above.
            let found = unsafe { context.elements(place.cast_const(), 4) }.expect("there");
            assert_eq!(matches!(found, Cow::Owned(_)), shared);
            let seven = u64::from_ne_bytes([7; 8]);
            assert_eq!(found[3], if place == inside { seven + 1 } else { 8 });
        }
        // Beside a window is not in it, and nothing is nowhere.
        for (start, bytes) in [(start.wrapping_add(4), 8), (start.wrapping_sub(1), 8), (start, 0)] {
            assert_eq!(context.is_shared(start.cast(), bytes).ok(), Some(false));
        }
        drop(on);
        assert_eq!(context.is_shared(start.cast(), 32).ok(), Some(false), "the program's again");
    }
}
