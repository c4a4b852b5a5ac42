//! Handles: what C holds of windows, FIFOs and completions.

use std::cell::RefCell;

use crate::code::{Code, Failure};

/// The things of one kind that were handed out and not yet freed; those left are freed with the
/// table. A handle from C is followed only if it is found here.
pub struct Handles<T> {
    known: RefCell<Vec<*mut T>>,
    /// What an unknown handle is reported as.
    unknown: Code,
}

impl<T> Handles<T> {
    pub fn new(unknown: Code) -> Self {
        Self { known: RefCell::new(Vec::new()), unknown }
    }

    /// Hands a thing out.
    pub fn give(&self, thing: T) -> *mut T {
        let handle = Box::into_raw(Box::new(thing));
        self.known.borrow_mut().push(handle);
        handle
    }

    /// The thing behind a handle, if it is one that was given out.
    pub fn find(&self, handle: *mut T) -> Result<&T, Failure> {
        if !self.known.borrow().contains(&handle) {
            return Err(self.unknown.into());
        }
        // SAFETY: the handle is in the list, so it came from `Box::into_raw` and was not freed. Who
        // frees it promises that nobody uses it any more.
        Ok(unsafe { &*handle })
    }

    /// Frees a thing; null is none.
    ///
    /// # Safety
    /// What [`Handles::find`] gave for the handle is not used any more.
    pub unsafe fn free(&self, handle: *mut T) -> Result<(), Failure> {
        if handle.is_null() {
            return Ok(());
        }
        let mut known = self.known.borrow_mut();
        let place = known.iter().position(|one| *one == handle).ok_or(self.unknown)?;
        known.swap_remove(place);
        drop(known);
        // SAFETY: the handle was in the list, so it came from `Box::into_raw` and was not freed; now
        // it is in no list, and nobody uses it by the caller's promise.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    }

    /// Frees all that `goes` chooses.
    ///
    /// # Safety
    /// What [`Handles::find`] gave for these is not used any more.
    pub unsafe fn free_those(&self, goes: impl Fn(&T) -> bool) {
        // SAFETY: a pointer in the list came from `Box::into_raw` and was not freed.
        let goes = |handle: *mut T| goes(unsafe { &*handle });
        let (gone, left) = self.known.take().into_iter().partition(|handle| goes(*handle));
        self.known.replace(left);
        for handle in gone {
            // SAFETY: as above; now it is in no list, and nobody uses it by the caller's promise.
            drop(unsafe { Box::from_raw(handle) });
        }
    }
}

impl<T> Drop for Handles<T> {
    fn drop(&mut self) {
        // SAFETY: references to what is behind a handle borrow the table.
        unsafe { self.free_those(|_| true) };
    }
}
