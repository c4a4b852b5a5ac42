//! What the library makes and a program knows by its address.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::address;
use crate::code::Failure;
use crate::runtime::lock;

/// Values by addresses at which no memory is, see [`address`]. An address of something else is none of these, and one of
/// something that was freed stays none: no later value gets it.
pub struct Registry<T> {
    known: Mutex<HashMap<usize, Arc<T>>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Registry<T> {
        Registry { known: Mutex::default() }
    }
}

impl<T> Registry<T> {
    /// Adds a value; returns its address, which nothing else ever has in this process.
    ///
    /// # Errors
    /// The process has no addresses left.
    pub fn add(&self, value: T) -> Result<*mut T, Failure> {
        let address = address::fresh()?;
        lock(&self.known).insert(address, Arc::new(value));
        Ok(std::ptr::without_provenance_mut(address))
    }

    /// The value at an address; `None`: there is none.
    pub fn find(&self, address: *const T) -> Option<Arc<T>> {
        lock(&self.known).get(&address.addr()).cloned()
    }

    /// All values.
    pub fn all(&self) -> Vec<Arc<T>> {
        lock(&self.known).values().cloned().collect()
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
        let add = |value: u8| registry.add(value).expect("an address");
        let (one, two) = (add(1), add(2));
        assert_eq!(registry.find(one).as_deref(), Some(&1));
        let kept = registry.remove(one);
        assert_eq!((kept.as_deref(), registry.find(one)), (Some(&1), None));
        assert_eq!(registry.remove(one), None);
        assert_eq!(registry.find(two).as_deref(), Some(&2));
        assert_eq!(
            (registry.find(std::ptr::null()), registry.find(&raw const *kept.unwrap())),
            (None, None)
        );
        // Nobody else gets the address of what was removed, and it stays known as no memory.
        assert!(address::is_reserved(one) && (0..1000).all(|_| add(3) != one));
        drop(registry);
        assert!(address::is_reserved(one) && address::is_reserved(two));
    }
}
