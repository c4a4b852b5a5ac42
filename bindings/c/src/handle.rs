//! Handle table: the windows, FIFOs and completions that C holds.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::code::{Code, Failure};

/// Bits of a handle that are its place in the table. The others are a number that no other handle of
/// the process has, ever: one that was freed is known to be none, whatever was made since.
const PLACE: u32 = 20;
const _: () = assert!(usize::BITS == 64, "numbers of fewer bits would be used up soon");

/// The things of one kind that were handed out and not yet freed; those left are freed with the
/// table. A handle from C is a number, not an address: nothing is followed that is not found here.
pub struct HandleTable<T> {
    slots: UnsafeCell<Slots<T>>,
    /// Held during each use of the slots, if several threads use the table.
    lock: Option<Mutex<()>>,
    /// The error for an unknown handle.
    unknown: Code,
}

/// A handle (0 if there is none) and the address of its object, which came from `Box::into_raw`.
type Slot<T> = (usize, *mut T);

struct Slots<T> {
    all: Vec<Slot<T>>,
    /// Places in `all` that have no handle.
    free: Vec<usize>,
}

// SAFETY: a table with a lock uses its slots under it. One without is of a state that only one thread reaches (see `state`).
// References to objects go to several threads only if the objects permit it.
unsafe impl<T: Send + Sync> Sync for HandleTable<T> {}

/// A number for a handle, in the bits above those of the place.
fn fresh() -> Option<usize> {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let next = |last: usize| last.checked_add(1 << PLACE);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    last.ok().and_then(next)
}

impl<T> HandleTable<T> {
    /// A table for one thread, or for several.
    pub fn new(unknown: Code, several: bool) -> Self {
        let slots = Slots { all: Vec::new(), free: Vec::new() };
        let lock = several.then(Mutex::default);
        Self { slots: UnsafeCell::new(slots), lock, unknown }
    }

    /// Runs `body` with the slots. It does not use the table.
    fn with_slots<R>(&self, body: impl FnOnce(&mut Slots<T>) -> R) -> R {
        let _held =
            self.lock.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: nobody else uses them: other threads by the lock, or because there are none, and this one since no body
        // calls a function of the table.
        body(unsafe { &mut *self.slots.get() })
    }

    /// Whether one more can be handed out: to be asked before all ranks make something together, because
    /// afterwards the others have it.
    pub fn room(&self) -> Result<(), Failure> {
        if self.with_slots(|slots| slots.next()) < 1 << PLACE { Ok(()) } else { Err(too_many()) }
    }

    /// Hands a thing out.
    pub fn give(&self, thing: T) -> Result<*mut T, Failure> {
        self.with_slots(|slots| {
            let place = slots.next();
            let number = fresh().filter(|_| place < 1 << PLACE);
            let Some(number) = number else { return Err(too_many()) };
            let handle = number | place;
            let slot = (handle, Box::into_raw(Box::new(thing)));
            if slots.free.pop().is_some() {
                slots.all[place] = slot;
            } else {
                slots.all.push(slot);
            }
            Ok(ptr::without_provenance_mut(handle))
        })
    }

    /// The thing behind a handle, if it is one that was given out.
    pub fn find(&self, handle: *mut T) -> Result<&T, Failure> {
        let handle = handle.addr();
        match self.with_slots(|slots| slots.all.get(place(handle)).copied()) {
            // SAFETY: the handle is in the table, so its object was not freed. A caller that frees it
            // promises that nobody uses it any more.
            Some((known, thing)) if known == handle && handle != 0 => Ok(unsafe { &*thing }),
            _ => Err(self.unknown.into()),
        }
    }

    /// Frees an object; null does nothing.
    ///
    /// # Safety
    /// Nobody uses the result of [`HandleTable::find`] for this handle any more.
    pub unsafe fn free(&self, handle: *mut T) -> Result<(), Failure> {
        if handle.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.take(handle) }.map(drop)
    }

    /// Takes an object out; its handle is none from now on. Of several threads that do so at one time one gets it.
    ///
    /// # Safety
    /// As [`HandleTable::free`].
    pub unsafe fn take(&self, handle: *mut T) -> Result<T, Failure> {
        let thing = self.take_if(handle, |_| Ok(()))?;
        // SAFETY: as `take_if` says, and the caller promises that nobody uses it.
        Ok(*unsafe { Box::from_raw(thing) })
    }

    /// As [`HandleTable::free`] if `may` permits it, but null is refused. `before` runs when no call finds the object any more,
    /// and before it goes.
    ///
    /// # Safety
    /// As [`HandleTable::free`], but that what `before` frees may use it.
    pub unsafe fn free_after(
        &self,
        handle: *mut T,
        may: impl FnOnce(&T) -> Result<(), Failure>,
        before: impl FnOnce(),
    ) -> Result<(), Failure> {
        let thing = self.take_if(handle, may)?;
        before();
        // SAFETY: as `take_if` says, and the caller promises that nobody uses it.
        drop(unsafe { Box::from_raw(thing) });
        Ok(())
    }

    /// Takes an object out if `may` permits it, which does not use the table. The address came from `Box::into_raw`, was not
    /// freed and is in no table any more.
    fn take_if(
        &self,
        handle: *mut T,
        may: impl FnOnce(&T) -> Result<(), Failure>,
    ) -> Result<*mut T, Failure> {
        let handle = handle.addr();
        // One step: another thread may take the same.
        self.with_slots(|slots| {
            let slot = slots.all.get(place(handle)).filter(|slot| slot.0 == handle && handle != 0);
            let Some((_, thing)) = slot else { return Err(self.unknown.into()) };
            // SAFETY: an object in the table was not freed, and nobody takes it out meanwhile.
            may(unsafe { &**thing })?;
            Ok(slots.take(place(handle)))
        })
    }

    /// Frees all that `goes` chooses.
    ///
    /// # Safety
    /// Nobody uses the results of [`HandleTable::find`] for these handles any more.
    pub unsafe fn free_those(&self, goes: impl Fn(&T) -> bool) {
        // SAFETY: an object with a handle came from `Box::into_raw` and was not freed.
        let goes = |slot: &Slot<T>| slot.0 != 0 && goes(unsafe { &*slot.1 });
        let mut gone = Vec::new();
        self.with_slots(|slots| {
            for place in 0..slots.all.len() {
                if goes(&slots.all[place]) {
                    gone.push(slots.take(place));
                }
            }
        });
        for thing in gone {
            // SAFETY: as above; now it is in no table, and nobody uses it by the caller's promise.
            drop(unsafe { Box::from_raw(thing) });
        }
    }
}

fn too_many() -> Failure {
    Failure::new(Code::Memory, "too many handles: free some")
}

/// The place of a handle in its table.
fn place(handle: usize) -> usize {
    handle & ((1 << PLACE) - 1)
}

impl<T> Slots<T> {
    /// Index of the next handle; it may be behind the last possible one.
    fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.all.len())
    }

    /// Takes an object out; its handle is invalid from now on.
    fn take(&mut self, place: usize) -> *mut T {
        self.free.push(place);
        std::mem::replace(&mut self.all[place], (0, ptr::null_mut())).1
    }
}

impl<T> Drop for HandleTable<T> {
    fn drop(&mut self) {
        // SAFETY: references to what is behind a handle borrow the table.
        unsafe { self.free_those(|_| true) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::AtomicPtr;

    #[test]
    fn a_handle_that_was_freed_is_none_for_ever() {
        let mut seen = BTreeSet::new();
        let held = Rc::new(());
        // Tables of one job after another.
        for _ in 0..2 {
            let handles = HandleTable::new(Code::Window, false);
            let first = handles.give((1, Rc::clone(&held))).unwrap();
            for turn in 0..50 {
                let handle = handles.give((turn, Rc::clone(&held))).unwrap();
                assert!(seen.insert(handle.addr()) && !handle.is_null());
                assert_eq!(handles.find(handle).unwrap().0, turn);
                // SAFETY: nothing of it is used.
                unsafe { handles.free(handle) }.unwrap();
                assert_eq!(handles.find(handle).unwrap_err().code, Code::Window);
                // SAFETY: as above.
                let again = unsafe { handles.free(handle) };
                assert_eq!(again.unwrap_err().code, Code::Window);
            }
            assert!(seen.insert(first.addr()));
            for value in &seen {
                let old = ptr::without_provenance_mut(*value);
                assert_eq!(handles.find(old).is_ok(), old == first);
            }
            assert!(handles.find(ptr::null_mut()).is_err());
            assert_eq!(Rc::strong_count(&held), 2);
        }
        assert_eq!(Rc::strong_count(&held), 1);
    }

    #[test]
    fn several_threads_get_handles_of_their_own() {
        let handles = HandleTable::new(Code::Window, true);
        let body = || {
            for number in 0..200usize {
                let handle = handles.give(number).unwrap();
                assert_eq!(*handles.find(handle).unwrap(), number);
                // SAFETY: nothing of it is used, and no other thread knows it.
                unsafe { handles.free(handle) }.unwrap();
                assert!(handles.find(handle).is_err());
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(body);
            }
        });
    }

    #[test]
    fn of_threads_that_free_one_handle_one_does() {
        let held = Arc::new(());
        let handles = HandleTable::new(Code::Claim, true);
        let [met, freed, told, other] = [0; 4].map(AtomicUsize::new);
        let current = AtomicPtr::new(ptr::null_mut());
        let rounds = if cfg!(miri) { 20 } else { 2000 };
        // Threads that slept would not come at one time.
        let meet = |times: usize| {
            met.fetch_add(1, Ordering::SeqCst);
            for turn in 1.. {
                match met.load(Ordering::SeqCst) < 2 * times {
                    true if turn % 200 == 0 || cfg!(miri) => std::thread::yield_now(),
                    true => std::hint::spin_loop(),
                    false => break,
                }
            }
        };
        let body = |first: bool| {
            for round in 0..rounds {
                if first {
                    let handle = handles.give(Arc::clone(&held)).unwrap();
                    current.store(handle, Ordering::SeqCst);
                }
                meet(2 * round + 1);
                // SAFETY: nothing of it is used.
                let count = match unsafe { handles.take(current.load(Ordering::SeqCst)) } {
                    Ok(_) => &freed,
                    Err(refused) if refused.code == Code::Claim => &told,
                    Err(_) => &other,
                };
                count.fetch_add(1, Ordering::SeqCst);
                meet(2 * round + 2);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| body(true));
            scope.spawn(|| body(false));
        });
        assert_eq!((freed.into_inner(), told.into_inner()), (rounds, rounds));
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn what_goes_before_an_object_finds_no_handle() {
        let handles = HandleTable::new(Code::Window, false);
        let handle = handles.give(5).unwrap();
        let (mut ran, mut codes) = (0, Vec::new());
        for permits in [false, true, true] {
            let may = |thing: &i32| {
                assert_eq!(*thing, 5);
                if permits { Ok(()) } else { Err(Code::Lent.into()) }
            };
            let before = || {
                assert!(handles.find(handle).is_err());
                ran += 1;
            };
            // SAFETY: nothing of it is used.
            let freed = unsafe { handles.free_after(handle, may, before) };
            codes.push(freed.map_or_else(|refused| refused.code, |()| Code::Ok));
        }
        assert_eq!((ran, codes), (1, vec![Code::Lent, Code::Ok, Code::Window]));
        // SAFETY: as above.
        let none = unsafe { handles.take(ptr::null_mut()) };
        assert_eq!(none.unwrap_err().code, Code::Window);
    }

    #[test]
    fn those_that_go_go_and_the_others_stay() {
        let handles = HandleTable::new(Code::Fifo, false);
        let given: Vec<_> = (0..9).map(|number| handles.give(number).unwrap()).collect();
        // SAFETY: nothing of them is used.
        unsafe { handles.free_those(|number| number % 2 == 0) };
        for (number, handle) in given.iter().enumerate() {
            let found = handles.find(*handle).ok();
            assert_eq!(found, (number % 2 == 1).then_some(&number));
        }
    }

    #[test]
    fn a_full_table_is_known_before() {
        let handles = HandleTable::new(Code::Window, false);
        let mut last = ptr::null_mut();
        for _ in 0..1 << PLACE {
            handles.room().unwrap();
            last = handles.give(()).unwrap();
        }
        assert_eq!(handles.room().unwrap_err().code, Code::Memory);
        assert_eq!(handles.give(()).unwrap_err().code, Code::Memory);
        // SAFETY: nothing of it is used.
        unsafe { handles.free(last) }.unwrap();
        handles.room().unwrap();
        handles.give(()).unwrap();
    }
}
