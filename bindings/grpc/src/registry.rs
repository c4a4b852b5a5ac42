//! What the library makes and a program knows by its address.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::runtime::lock;

/// Values by their addresses. The library never reads at an address that a program gives: it looks the address up here, so one
/// of something else, or of something that was freed, is none of these.
pub struct Registry<T> {
    known: Mutex<HashMap<usize, Arc<T>>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Registry<T> {
        // Values without a size would share an address.
        const { assert!(size_of::<T>() > 0) };
        Registry { known: Mutex::default() }
    }
}

impl<T> Registry<T> {
    /// Adds a value; returns its address, which nothing else has while the value lives.
    pub fn add(&self, value: T) -> *mut T {
        let value = Arc::new(value);
        let address = Arc::as_ptr(&value);
        lock(&self.known).insert(address.addr(), value);
        address.cast_mut()
    }

    /// The value at an address; `None`: there is none.
    pub fn find(&self, address: *const T) -> Option<Arc<T>> {
        lock(&self.known).get(&address.addr()).cloned()
    }

    /// Removes a value. Who uses it keeps it.
    pub fn remove(&self, address: *const T) -> Option<Arc<T>> {
        lock(&self.known).remove(&address.addr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_what_lives_are_known() {
        let registry = Registry::default();
        let (one, two) = (registry.add(1_u8), registry.add(2_u8));
        assert_eq!(registry.find(one).as_deref(), Some(&1));
        let kept = registry.remove(one);
        assert_eq!((kept.as_deref(), registry.find(one)), (Some(&1), None));
        assert_eq!(registry.remove(one), None);
        assert_eq!(registry.find(two).as_deref(), Some(&2));
        assert_eq!(
            (registry.find(std::ptr::null()), registry.find(&raw const *kept.unwrap())),
            (None, None)
        );
    }
}
