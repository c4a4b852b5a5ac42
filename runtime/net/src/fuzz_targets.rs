//! Entry points of the fuzz targets.

use kumi_verdict::{MOST_HELD, MOST_WAITS};

use crate::segment::{Segment, SegmentSpec};
pub use crate::shm::ring::fuzz_target::ring;

/// A segment of three local ranks that holds the input: pieces, each preceded by its place (the file in the highest bits of
/// three bytes) and its length (one). The daemon's reads of it must make sense, or at least do no harm.
///
/// Returns how many waits its ranks describe.
///
/// # Panics
/// When they do not, or when there is no memory.
pub fn segment(input: &[u8]) -> usize {
    let spec = SegmentSpec {
        channel_key: 1,
        seal_key: None,
        ranks: 4,
        local_ranks: 0..3,
        ring_bytes: crate::segment::layout::MIN_RING_BYTES,
        arena_bytes: 4096,
    };
    let (segment, files) = Segment::create(&spec).expect("memory");
    let writable = |at: usize| {
        let files = files.for_rank(at.min(2));
        let file = if at == 3 { files.shared } else { files.ranks[at][0] };
        std::fs::File::from(file.try_clone_to_owned().expect("a descriptor"))
    };
    let files: [std::fs::File; 4] = std::array::from_fn(writable);
    let mut rest = input;
    while let [a, b, c, bytes, tail @ ..] = rest {
        let (piece, after) = tail.split_at(usize::from(*bytes).min(tail.len()));
        rest = after;
        let file = &files[usize::from(*c >> 6)];
        let at = u64::from(u32::from_le_bytes([*a, *b, *c & 0x3f, 0]));
        if at + piece.len() as u64 <= file.metadata().expect("it is open").len() {
            std::os::unix::fs::FileExt::write_all_at(file, piece, at).expect("inside of it");
        }
    }
    let mut waits = 0;
    for local in 0..5 {
        if let Some(reading) = segment.rank_reading(local) {
            assert!(local < 3 && reading.rank == local as u32);
            assert!(reading.waits.len() <= MOST_WAITS && reading.held.len() <= MOST_HELD);
            let mut peers = reading.waits.iter().filter_map(|wait| wait.peer);
            assert!(peers.all(|peer| peer < 4), "it waits for a rank that there is not");
            waits += reading.waits.len();
        }
        let sample = segment.sample(local);
        assert_eq!(sample.counters.is_empty(), local >= 3);
        let peers = segment.sample_peers(local);
        assert!(peers.len() <= 5 && peers.iter().all(|peer| peer.rank.is_none_or(|rank| rank < 4)));
        let mut start = [0; 4096];
        segment.read_channel_context(local, 0, &mut start).expect("read");
    }
    waits
}

#[cfg(test)]
mod tests {
    use crate::segment::layout::RankContext;
    use std::mem::offset_of;

    #[test]
    #[cfg_attr(miri, ignore = "files cannot be written there")]
    fn segments_with_any_contents() {
        let mut seed = 1u64;
        let mut next = || {
            // splitmix64.
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) as u8
        };
        let mut waits = 0;
        for _ in 0..300 {
            let length = usize::from(next()) * 16;
            let mut input: Vec<u8> = (0..length).map(|_| next()).collect();
            // Where the waits of a rank are, mostly with small numbers in them.
            for word in 0..100_u16 {
                let place = offset_of!(RankContext, waits) + 8 * usize::from(word);
                let [low, high, ..] = place.to_le_bytes();
                let small = [next() % 3, 0, 0, 0, next() % 17, 0, 0, 0];
                let value = if next().is_multiple_of(8) { [(); 8].map(|()| next()) } else { small };
                input.splice(0..0, [&[low, high, next() & 0xc0, 8][..], &value].concat());
            }
            waits += super::segment(&input);
        }
        assert!(waits > 300, "only {waits} were waits");
    }
}
