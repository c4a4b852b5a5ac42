//! Homes of pages: where allocations put them, and where they moved since.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::error::Misuse;
use crate::message::Written;
use crate::{PageSet, Rank};

/// Where an allocation has its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Blocks of so many pages go to the ranks in turn, from the rank `first` on.
    RoundRobin {
        /// Pages of a block, at least 1.
        block: u32,
        /// The first block's rank.
        first: Rank,
    },
    /// Each rank has one part, all as long as they can be.
    Blocks,
    /// All at one rank.
    At(Rank),
    /// The rank that touches a page first.
    FirstTouch,
}

/// What becomes of copies of a page that somebody has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sharing {
    /// Ranks that learn of it drop them, and fetch the page when they want it.
    #[default]
    Invalidate,
    /// A release brings them up to date. The pages never move. For memory that few write and many read soon after.
    Update,
}

/// Whether pages move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Migration {
    /// They stay where the allocation put them.
    Never,
    /// A page that ranks of one node only wrote in an epoch has its home there from the next barrier on. Their copy is the newest, so
    /// nothing is sent.
    #[default]
    SingleWriter,
}

/// Where a page has its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Home {
    /// At this rank, and so in the memory of its node.
    At(Rank),
    /// The directory has to be asked: nobody of this rank has touched it yet.
    Unknown,
    /// No allocation has this page.
    Unallocated,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Allocation {
    pages: Range<u32>,
    placement: Placement,
}

/// Pages of one chunk of the table of moved pages.
const CHUNK: u32 = 1024;

/// Where the pages are, as this rank knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Homes {
    ranks: u32,
    limit: u32,
    allocations: Vec<Allocation>,
    /// Pages with [`Sharing::Update`].
    updated: PageSet,
    /// For pages that moved or were assigned: the rank and 1, in chunks.
    moved: Vec<Option<Box<[u32]>>>,
    hash: u64,
}

impl Homes {
    /// For `ranks` ranks and at most `limit` pages.
    pub(crate) fn new(ranks: u32, limit: u32) -> Homes {
        Homes {
            ranks,
            limit,
            allocations: Vec::new(),
            updated: PageSet::new(),
            moved: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// Pages allocated so far.
    pub(crate) fn allocated(&self) -> u32 {
        self.allocations.last().map_or(0, |last| last.pages.end)
    }

    /// A hash (FNV-1a) of all allocations, the same at all ranks if they were.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn allocate(
        &mut self,
        pages: u64,
        page_bytes: u64,
        placement: Placement,
        sharing: Sharing,
    ) -> Result<Range<u32>, Misuse> {
        self.check(placement)?;
        let start = self.allocated();
        let free = u64::from(self.limit - start);
        if pages > free {
            return Err(Misuse::Full { wanted: pages * page_bytes, free: free * page_bytes });
        }
        let pages = start..start + pages as u32;
        let (kind, one, two) = match placement {
            Placement::RoundRobin { block, first } => (0, block, first),
            Placement::Blocks => (1, 0, 0),
            Placement::At(rank) => (2, rank, 0),
            Placement::FirstTouch => (3, 0, 0),
        };
        if sharing == Sharing::Update {
            self.updated.insert(pages.clone());
        }
        for word in [pages.end, kind, one, two, sharing as u32] {
            for byte in word.to_le_bytes() {
                self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        self.allocations.push(Allocation { pages: pages.clone(), placement });
        Ok(pages)
    }

    fn check(&self, placement: Placement) -> Result<(), Misuse> {
        let rank = match placement {
            Placement::RoundRobin { block: 0, .. } => {
                return Err(Misuse::Allocation("a block has no pages; give at least 1".into()));
            }
            Placement::RoundRobin { first: rank, .. } | Placement::At(rank) => rank,
            Placement::Blocks | Placement::FirstTouch => 0,
        };
        match rank < self.ranks {
            true => Ok(()),
            false => Err(Misuse::Allocation(alloc::format!(
                "the home is to be rank {rank}, but ranks are 0 to {}",
                self.ranks - 1
            ))),
        }
    }

    /// The pages whose copies are updated.
    pub(crate) fn updated(&self) -> &PageSet {
        &self.updated
    }

    /// The home of a page.
    pub(crate) fn home(&self, page: u32) -> Home {
        if let Some(rank) = self.moved_to(page) {
            return Home::At(rank);
        }
        let after = self.allocations.partition_point(|one| one.pages.end <= page);
        let Some(Allocation { pages, placement }) = self.allocations.get(after) else {
            return Home::Unallocated;
        };
        let (index, count) = (page - pages.start, pages.end - pages.start);
        match *placement {
            Placement::RoundRobin { block, first } => {
                Home::At((first + (index / block) % self.ranks) % self.ranks)
            }
            Placement::Blocks => Home::At(index / count.div_ceil(self.ranks)),
            Placement::At(rank) => Home::At(rank),
            Placement::FirstTouch => Home::Unknown,
        }
    }

    fn moved_to(&self, page: u32) -> Option<Rank> {
        let chunk = self.moved.get((page / CHUNK) as usize)?.as_ref()?;
        chunk[(page % CHUNK) as usize].checked_sub(1)
    }

    /// From now on a page has its home there.
    pub(crate) fn assign(&mut self, page: u32, rank: Rank) {
        let chunk = (page / CHUNK) as usize;
        if self.moved.len() <= chunk {
            self.moved.resize(chunk + 1, None);
        }
        let chunk = self.moved[chunk].get_or_insert_with(|| vec![0; CHUNK as usize].into());
        chunk[(page % CHUNK) as usize] = rank + 1;
    }

    /// Moves pages to the node that alone wrote them. Every rank does so with the same `written`, so all agree. Returns the
    /// pages that came to `node`.
    pub(crate) fn migrate(&mut self, written: &Written, node_of: &[u32], node: u32) -> PageSet {
        let mut came = PageSet::new();
        for (pages, writer) in single_writers(written, node_of) {
            for page in pages {
                let there = node_of[writer as usize];
                match self.home(page) {
                    Home::At(home) if node_of[home as usize] == there => {}
                    Home::Unallocated => {}
                    Home::At(_) | Home::Unknown => {
                        self.assign(page, writer);
                        if there == node {
                            came.insert(page..page + 1);
                        }
                    }
                }
            }
        }
        came
    }
}

/// Ranges of pages that ranks of one node only wrote, with the lowest of those ranks.
fn single_writers(written: &Written, node_of: &[u32]) -> Vec<(Range<u32>, Rank)> {
    let mut ranges: Vec<(Range<u32>, Rank)> = written
        .iter()
        .flat_map(|(rank, pages)| pages.ranges().iter().map(|range| (range.clone(), *rank)))
        .collect();
    let mut bounds: Vec<u32> = ranges.iter().flat_map(|(one, _)| [one.start, one.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    ranges.sort_unstable_by_key(|(range, rank)| (range.start, *rank));
    let mut found = Vec::new();
    // The ranges that contain the part between two bounds.
    let (mut active, mut coming): (Vec<(u32, Rank)>, _) = (Vec::new(), ranges.iter().peekable());
    for part in bounds.windows(2) {
        active.retain(|(end, _)| *end > part[0]);
        while let Some((range, rank)) = coming.next_if(|(range, _)| range.start == part[0]) {
            active.push((range.end, *rank));
        }
        let Some(lowest) = active.iter().map(|(_, rank)| *rank).min() else { continue };
        let node = node_of[lowest as usize];
        if active.iter().all(|(_, rank)| node_of[*rank as usize] == node) {
            found.push((part[0]..part[1], lowest));
        }
    }
    found
}
