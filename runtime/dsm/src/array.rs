//! Arrays in shared memory.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::NonNull;

use kumi_coherence::{Placement, Sharing};
use kumi_mem::Element;

use crate::error::Error;
use crate::shared_memory::SharedMemory;

/// An array of numbers that all ranks see.
///
/// [`SharedArray::get`] and [`SharedArray::set`] may be used whatever other ranks do. Loops over many elements are faster with
/// [`SharedArray::as_ptr`], whose user promises that nobody else writes these elements meanwhile.
pub struct SharedArray<'m, T> {
    base: NonNull<T>,
    length: usize,
    _memory: PhantomData<&'m SharedMemory>,
}

// SAFETY: the elements are plain numbers at addresses that stay as long as the memory, in all threads.
unsafe impl<T: Element> Send for SharedArray<'_, T> {}
// SAFETY: as above; elements are reached by volatile accesses or under the promise of `as_ptr`.
unsafe impl<T: Element> Sync for SharedArray<'_, T> {}

impl SharedMemory {
    /// Allocates an array of zeros. All ranks call this with the same arguments in the same order.
    ///
    /// # Errors
    /// As [`SharedMemory::allocate`].
    #[track_caller]
    pub fn array<T: Element>(
        &self,
        length: usize,
        placement: Placement,
    ) -> Result<SharedArray<'_, T>, Error> {
        self.array_shared(length, placement, Sharing::Invalidate)
    }

    /// As [`SharedMemory::array`], and says what becomes of copies when somebody writes: see [`SharedMemory::allocate_shared`].
    ///
    /// # Errors
    /// As [`SharedMemory::allocate`].
    #[track_caller]
    pub fn array_shared<T: Element>(
        &self,
        length: usize,
        placement: Placement,
        sharing: Sharing,
    ) -> Result<SharedArray<'_, T>, Error> {
        let bytes = (length as u64).saturating_mul(size_of::<T>() as u64);
        let caller = Location::caller();
        let name = || format!("{}:{}", caller.file(), caller.line());
        let base = self.allocate_shared(bytes, placement, sharing, name)?.cast::<T>();
        let base = NonNull::new(base).expect("no view is at address 0");
        Ok(SharedArray { base, length, _memory: PhantomData })
    }
}

impl<T: Element> SharedArray<'_, T> {
    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The first element's address. Whoever uses it keeps to the rules of threads: elements that one of them writes, no other
    /// one reads or writes until both have synchronised.
    #[must_use]
    pub fn as_ptr(&self) -> *mut T {
        self.base.as_ptr()
    }

    fn place(&self, at: usize) -> Result<*mut T, Error> {
        match at < self.length {
            // SAFETY: inside of the allocation.
            true => Ok(unsafe { self.base.as_ptr().add(at) }),
            false => Err(Error::Outside {
                offset: at.saturating_mul(size_of::<T>()),
                bytes: size_of::<T>(),
                length: self.length * size_of::<T>(),
            }),
        }
    }

    /// Reads an element.
    ///
    /// # Errors
    /// [`Error::Outside`].
    pub fn get(&self, at: usize) -> Result<T, Error> {
        let place = self.place(at)?;
        // SAFETY: an aligned element inside of the allocation, of a type that any bytes are a value of. Other ranks change it as
        // another process would, which a volatile access allows for.
        Ok(unsafe { place.read_volatile() })
    }

    /// Writes an element.
    ///
    /// # Errors
    /// [`Error::Outside`].
    pub fn set(&self, at: usize, value: T) -> Result<(), Error> {
        let place = self.place(at)?;
        // SAFETY: as in `get`.
        unsafe { place.write_volatile(value) };
        Ok(())
    }
}

impl<T> fmt::Debug for SharedArray<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared array of {} elements at {:p}", self.length, self.base)
    }
}
