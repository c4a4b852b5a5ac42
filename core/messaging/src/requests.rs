//! A table whose places have numbers that never mean something else later.

use alloc::vec::Vec;

/// Values by numbers. A number that was used up, or never was one, finds nothing.
#[derive(Debug)]
pub(crate) struct Table<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Adds a value: its number, generation above place.
    pub(crate) fn add(&mut self, value: T) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((1, None));
            (self.places.len() - 1) as u32
        });
        let (generation, entry) = &mut self.places[place as usize];
        *entry = Some(value);
        u64::from(*generation) << 32 | u64::from(place)
    }

    /// All values, by place.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|(_, entry)| entry.as_ref())
    }

    /// The numbers of all.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let number = |(place, (generation, _)): (u64, &(u32, Option<T>))| {
            u64::from(*generation) << 32 | place
        };
        let places = (0..).zip(&self.places);
        places.filter(|(_, (_, entry))| entry.is_some()).map(number).collect()
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let (generation, entry) = self.places.get_mut(number as u32 as usize)?;
        if u64::from(*generation) == number >> 32 { entry.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        self.get_mut(number)?;
        let place = number as u32;
        let (generation, entry) = self.places.get_mut(place as usize)?;
        *generation = generation.wrapping_add(1);
        self.free.push(place);
        entry.take()
    }
}
