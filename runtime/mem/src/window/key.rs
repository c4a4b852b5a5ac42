//! Keys of windows: nobody guesses them, and the owner finds the window's slot in them at once. Their
//! layout is in `docs/reference/channel-protocol.md`, "Windows' names".

use std::io;

use kumi_net::layout::{ArenaKind, WINDOWS};
use kumi_proto::frame::WindowKey;

const SLOT_BITS: u32 = 8;
const _: () = assert!(WINDOWS == 1 << SLOT_BITS);
/// The memory is the owner's own: nobody else has it mapped.
const PRIVATE: u64 = 1 << SLOT_BITS;
/// Ranks of the owner's node have the memory mapped for reading only.
const READABLE: u64 = 1 << (SLOT_BITS + 1);
/// The bits below are not random.
const RANDOM_FROM: u32 = SLOT_BITS + 2;
/// The name of registered memory, which is no window's.
const REGISTERED: u64 = PRIVATE | READABLE;
/// Its place has more bits than a slot; the others are here.
const PLACE_BITS: u32 = 12;
/// Most registered memory at a time.
pub(crate) const MOST_REGISTERED: u32 = 1 << (SLOT_BITS + PLACE_BITS);

/// The owner's slot.
#[inline]
pub(crate) fn slot(key: WindowKey) -> usize {
    key as usize % WINDOWS
}

/// Whether it names registered memory.
#[inline]
pub(crate) fn is_registered(key: WindowKey) -> bool {
    key & REGISTERED == REGISTERED
}

/// The owner's place of registered memory.
#[inline]
pub(crate) fn registered_place(key: WindowKey) -> usize {
    let high = key >> RANDOM_FROM & ((1 << PLACE_BITS) - 1);
    slot(key) | (high as usize) << SLOT_BITS
}

/// Whether the memory lies outside of the segment.
#[inline]
pub(crate) fn is_private(key: WindowKey) -> bool {
    key & PRIVATE != 0
}

/// Where the memory lies, as the key says. It is private also if it is the program's own.
#[inline]
pub(crate) fn place(key: WindowKey) -> ArenaKind {
    match (key & PRIVATE, key & READABLE) {
        (0, 0) => ArenaKind::Open,
        (0, _) => ArenaKind::Readable,
        _ => ArenaKind::Private,
    }
}

/// Whether ranks of the owner's node can write the memory.
#[inline]
pub(crate) fn is_open(key: WindowKey) -> bool {
    place(key) == ArenaKind::Open
}

fn place_bits(place: ArenaKind) -> u64 {
    match place {
        ArenaKind::Open => 0,
        ArenaKind::Readable => READABLE,
        ArenaKind::Private => PRIVATE,
    }
}

/// Where random numbers come from.
#[derive(Debug)]
pub(crate) enum RandomSource {
    /// The operating system.
    System,
    /// The same in every run.
    #[cfg(any(test, fuzzing))]
    Seeded(u64),
}

impl RandomSource {
    /// A new key for a slot.
    pub(crate) fn key(&mut self, slot: usize, place: ArenaKind) -> io::Result<WindowKey> {
        loop {
            let random = self.draw()? >> RANDOM_FROM << RANDOM_FROM;
            // No key is that of no window.
            if random != 0 {
                return Ok(random | place_bits(place) | slot as u64);
            }
        }
    }

    /// A new key for registered memory at a place below [`MOST_REGISTERED`].
    pub(crate) fn registered_key(&mut self, place: u32) -> io::Result<WindowKey> {
        let random = self.draw()? >> (RANDOM_FROM + PLACE_BITS) << (RANDOM_FROM + PLACE_BITS);
        let (high, low) =
            (u64::from(place >> SLOT_BITS) << RANDOM_FROM, u64::from(place) % WINDOWS as u64);
        Ok(random | high | REGISTERED | low)
    }

    fn draw(&mut self) -> io::Result<u64> {
        match self {
            RandomSource::System => kumi_net::sys::random(),
            #[cfg(any(test, fuzzing))]
            RandomSource::Seeded(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                Ok(mixed ^ (mixed >> 27))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_registered_memory_carry_its_place() {
        let mut random = RandomSource::Seeded(3);
        for place in [0, 1, 255, 256, 0x1_2345, MOST_REGISTERED - 1] {
            let [one, other] = [(); 2].map(|()| random.registered_key(place).expect("random"));
            assert_ne!(one, other);
            for key in [one, other] {
                assert_eq!(registered_place(key), place as usize);
                assert!(is_registered(key) && is_private(key));
            }
        }
        let window = random.key(5, ArenaKind::Private).expect("random");
        assert!(!is_registered(window));
    }

    #[test]
    fn keys_carry_slot_and_place_and_differ() {
        for mut random in [RandomSource::System, RandomSource::Seeded(0)] {
            let mut seen = std::collections::BTreeSet::new();
            for number in 0..1000 {
                let kinds = [ArenaKind::Open, ArenaKind::Readable, ArenaKind::Private];
                let (at, kind) = (number % WINDOWS, kinds[number % 3]);
                let key = random.key(at, kind).expect("random");
                assert_eq!((slot(key), place(key)), (at, kind));
                assert_eq!(is_private(key), kind == ArenaKind::Private);
                assert_eq!(is_open(key), kind == ArenaKind::Open);
                assert!(seen.insert(key >> RANDOM_FROM), "the same twice");
            }
        }
    }
}
