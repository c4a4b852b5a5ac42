//! Header of a segment, copied out once and checked.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use kumi_proto::SealKey;

use crate::disclosure::MOST_RANKS;
use crate::segment::MIN_DATAGRAM;
use crate::segment::layout::{Header, Layout, MAGIC, SegmentPart, VERSION};

/// Longest payload of a UDP datagram over IPv4; over IPv6 it is a little longer.
pub const MAX_DATAGRAM: u32 = 65_507;

/// A private copy of the words of a [`Header`], in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeaderCopy {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    pub(crate) published: u32,
    pub(crate) channel_key: u64,
    pub(crate) ranks: u32,
    pub(crate) local_first: u32,
    pub(crate) local_count: u32,
    pub(crate) max_datagram: u32,
    pub(crate) ring_bytes: u64,
    pub(crate) arena_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) encrypted: u32,
    pub(crate) reserved: u32,
    pub(crate) seal_key: [u64; 2],
}

/// What a header says, when all of it makes sense together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentNumbers {
    pub(crate) layout: Layout,
    pub(crate) channel_key: u64,
    pub(crate) seal_key: Option<SealKey>,
    /// Bytes of the longest datagram, [`MIN_DATAGRAM`] to [`MAX_DATAGRAM`].
    pub(crate) max_datagram: usize,
}

impl HeaderCopy {
    /// Reads each word once.
    pub(crate) fn of(header: &Header) -> HeaderCopy {
        HeaderCopy {
            magic: header.magic.load(Acquire),
            version: header.version.load(Relaxed),
            published: header.published.load(Acquire),
            channel_key: header.channel_key.load(Relaxed),
            ranks: header.ranks.load(Relaxed),
            local_first: header.local_first.load(Relaxed),
            local_count: header.local_count.load(Relaxed),
            max_datagram: header.max_datagram.load(Relaxed),
            ring_bytes: header.ring_bytes.load(Relaxed),
            arena_bytes: header.arena_bytes.load(Relaxed),
            total_bytes: header.total_bytes.load(Relaxed),
            encrypted: header.encrypted.load(Relaxed),
            reserved: header.reserved.load(Relaxed),
            seal_key: [0, 1].map(|half| header.seal_key[half].load(Relaxed)),
        }
    }

    /// The version, if it is a segment of another one than is known here.
    pub(crate) fn other_version(&self) -> Option<u32> {
        (self.magic == MAGIC && self.version != VERSION).then_some(self.version)
    }

    /// The numbers of a segment whose job file has so many bytes, or what is wrong with them.
    pub(crate) fn check(&self, file_bytes: usize) -> Result<SegmentNumbers, &'static str> {
        if self.magic != MAGIC {
            return Err("wrong mark");
        }
        if self.version != VERSION {
            return Err("another version");
        }
        if self.published != 1 {
            return Err("its peer table is empty");
        }
        if self.ranks > MOST_RANKS {
            return Err("it is for more ranks than a job can have");
        }
        let layout = Layout::new(
            self.ranks,
            self.local_first,
            self.local_count,
            self.ring_bytes,
            self.arena_bytes,
        )
        .ok_or("senseless header")?;
        if layout.bytes_of(SegmentPart::Job) != file_bytes
            || self.total_bytes != layout.total as u64
        {
            return Err("its length does not fit its header");
        }
        if !(u32::from(MIN_DATAGRAM)..=MAX_DATAGRAM).contains(&self.max_datagram) {
            return Err("its datagrams have a length that none can have");
        }
        if self.reserved != 0 {
            return Err("it has numbers that this version does not know");
        }
        let (channel_key, max_datagram) = (self.channel_key, self.max_datagram as usize);
        Ok(SegmentNumbers { layout, channel_key, seal_key: self.seal_key()?, max_datagram })
    }

    /// The key with which the channel's packets are encrypted, if they are.
    fn seal_key(&self) -> Result<Option<SealKey>, &'static str> {
        let [low, high] = self.seal_key.map(u128::from);
        match self.encrypted {
            0 if (low, high) == (0, 0) => Ok(None),
            0 => Err("it has a key, but is not encrypted"),
            1 => Ok(Some(SealKey((high << 64 | low).to_le_bytes()))),
            _ => Err("it is neither encrypted nor not"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of the job file of [`good`].
    const JOB_BYTES: usize = 4096;

    fn good() -> HeaderCopy {
        let layout = Layout::new(5, 1, 3, 8192, 1 << 20).expect("layout");
        HeaderCopy {
            magic: MAGIC,
            version: VERSION,
            published: 1,
            channel_key: 7,
            ranks: 5,
            local_first: 1,
            local_count: 3,
            max_datagram: 1472,
            ring_bytes: 8192,
            arena_bytes: 1 << 20,
            total_bytes: layout.total as u64,
            encrypted: 0,
            reserved: 0,
            seal_key: [0; 2],
        }
    }

    /// Numbers near those that could pass a check that is too weak.
    fn near(bits: u32) -> impl Strategy<Value = u64> {
        let most = u64::MAX >> (64 - bits);
        prop_oneof![
            any::<u64>().prop_map(move |value| value & most),
            (0..bits).prop_map(|bit| 1 << bit),
            (0..bits, 0u64..3)
                .prop_map(move |(bit, below)| (1_u64 << bit).wrapping_sub(below) & most),
            0u64..5,
        ]
    }

    fn word() -> impl Strategy<Value = u64> {
        near(64)
    }

    fn half() -> impl Strategy<Value = u32> {
        near(32).prop_map(|value| value as u32)
    }

    /// What every user of the numbers relies upon.
    fn is_consistent(numbers: &SegmentNumbers, file_bytes: usize) -> bool {
        let SegmentNumbers { layout, max_datagram, .. } = numbers;
        let last = layout.local_count as usize - 1;
        layout.bytes_of(SegmentPart::Job) == file_bytes
            && layout.total <= 3 << 45
            && layout.ranks <= MOST_RANKS
            && layout.local_first + layout.local_count <= layout.ranks
            && layout.peers + layout.ranks as usize * 24 <= layout.shared
            && layout.lines(last + 1) <= layout.open_arenas
            && layout.open_arena(last + 1) <= layout.rank_files
            && layout.head(last, last) < layout.ring(last, 0)
            && layout.ring(last, last) + layout.ring_bytes <= layout.readable_arenas
            && layout.ring_bytes.is_power_of_two()
            && layout.readable_arena(last + 1) <= layout.channel
            && layout.channel + layout.channel_bytes <= layout.total
            && (usize::from(MIN_DATAGRAM)..=65_507).contains(max_datagram)
    }

    #[test]
    fn a_daemons_header_is_accepted() {
        let (header, bytes) = (good(), JOB_BYTES);
        let numbers = header.check(bytes).expect("good");
        assert_eq!((numbers.max_datagram, numbers.channel_key, numbers.seal_key), (1472, 7, None));
        assert!(is_consistent(&numbers, bytes));
        let sealed = HeaderCopy { encrypted: 1, seal_key: [1, 2], ..header };
        let key = sealed.check(bytes).expect("good").seal_key.expect("encrypted");
        assert_eq!((key.0[0], key.0[8]), (1, 2));
    }

    #[test]
    fn each_wrong_number_has_its_reason() {
        let header = good();
        for (wrong, reason) in [
            (HeaderCopy { magic: 0, ..header }, "mark"),
            (HeaderCopy { version: 1, ..header }, "version"),
            (HeaderCopy { published: 0, ..header }, "peer table"),
            (HeaderCopy { ranks: u32::MAX, ..header }, "more ranks"),
            (HeaderCopy { local_count: 0, ..header }, "senseless"),
            (HeaderCopy { ring_bytes: 0, ..header }, "senseless"),
            (HeaderCopy { total_bytes: 0, ..header }, "length"),
            (HeaderCopy { max_datagram: 0, ..header }, "datagrams"),
            (HeaderCopy { max_datagram: 65_508, ..header }, "datagrams"),
            (HeaderCopy { encrypted: 2, ..header }, "neither"),
            (HeaderCopy { seal_key: [1, 0], ..header }, "key"),
            (HeaderCopy { reserved: 1, ..header }, "does not know"),
        ] {
            let error = wrong.check(JOB_BYTES).expect_err(reason);
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Any header gives an error or numbers that fit together, whatever the file's length.
        #[test]
        fn any_header_is_refused_or_consistent(
            published in half(), channel_key in word(), ranks in half(), local_first in half(),
            local_count in half(), max_datagram in half(), ring_bytes in word(), arena_bytes in word(),
            total_bytes in word(), encrypted in 0u32..3, seal_key in [word(), word()],
            keep in any::<u16>(), fits in any::<bool>(),
        ) {
            let good = good();
            // Of many wrong numbers only the first would be seen: some keep their good value.
            let choose = |bit: u16, wrong: u64, right: u64| if keep >> bit & 1 == 0 { right } else { wrong };
            let half = |bit, wrong: u32, right: u32| choose(bit, wrong.into(), right.into()) as u32;
            let mut header = HeaderCopy {
                published: half(0, published, 1),
                channel_key,
                ranks: half(1, ranks, good.ranks),
                local_first: half(2, local_first, good.local_first),
                local_count: half(3, local_count, good.local_count),
                max_datagram: half(4, max_datagram, good.max_datagram),
                ring_bytes: choose(5, ring_bytes, good.ring_bytes),
                arena_bytes: choose(6, arena_bytes, good.arena_bytes),
                total_bytes: choose(7, total_bytes, good.total_bytes),
                encrypted,
                seal_key: seal_key.map(|key| choose(8, key, 0)),
                ..good
            };
            let layout = Layout::new(
                header.ranks, header.local_first, header.local_count, header.ring_bytes, header.arena_bytes,
            );
            let mut file_bytes = JOB_BYTES;
            if let Some(layout) = layout.filter(|_| fits) {
                (header.total_bytes, file_bytes) = (layout.total as u64, layout.shared);
            }
            if let Ok(numbers) = header.check(file_bytes) {
                prop_assert!(is_consistent(&numbers, file_bytes), "{header:?} {numbers:?}");
            }
        }
    }
}
