//! The steps of each rank in a round, made from a seed.

/// Bytes of a rank's slot in each window: only it writes there.
pub const SLOT: usize = 24 * 1024;
/// Steps of a rank in a round.
pub const STEPS: u64 = 24;
/// Counters in each window: for sums, for exclusive ors, and for compare-and-swap.
pub const COUNTERS: usize = 12;

/// Numbers that look random, the same in every run (splitmix64).
#[derive(Clone)]
pub struct Numbers(u64);

impl Numbers {
    /// Numbers for one use of a seed.
    pub fn of(seed: u64, use_: [u64; 2]) -> Self {
        let mut numbers = Self(seed);
        for part in use_ {
            numbers.0 = numbers.next() ^ part;
        }
        numbers
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % (bound as u64)).unwrap_or(0)
    }

    /// This many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.next().to_le_bytes());
        words.take(count.div_ceil(8)).flatten().take(count).collect()
    }
}

/// One operation on a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A put into the own slot there: plain, with a notification, or with a completion.
    Put { offset: usize, data: Vec<u8>, how: usize },
    /// Blocks put into the own slot there.
    Strided { offset: usize, stride: usize, block: usize, data: Vec<u8> },
    /// An atomic operation on a counter there.
    Atomic { counter: usize, operand: u64 },
    /// A record for the FIFO there.
    Append(Vec<u8>),
    /// A record for the signal port there.
    Signal(u64),
    /// A message.
    Send(Vec<u8>),
    /// Pieces put into the own slot there, places and lengths; where they overlap, the last one remains.
    List { pieces: Vec<(usize, usize)>, data: Vec<u8> },
    /// A record for the FIFOs of this rank and of others, one bit each.
    AppendMany { members: u64, record: Vec<u8> },
    /// A record for the signal ports of this rank and of others, one bit each.
    SignalMany { members: u64, value: u64 },
}

impl Step {
    /// Whether it affects this rank if its target is `to`.
    pub fn reaches(&self, to: u32, rank: u32) -> bool {
        match self {
            Self::AppendMany { members, .. } | Self::SignalMany { members, .. } => {
                to == rank || members >> (rank % 64) & 1 == 1
            }
            _ => to == rank,
        }
    }

    /// All ranks that it affects.
    pub fn members(&self, to: u32, ranks: u32) -> Vec<u32> {
        (0..ranks).filter(|rank| self.reaches(to, *rank)).collect()
    }
}

/// The steps of a rank in a round, with their targets, in order.
pub fn steps(seed: u64, round: u64, rank: u32, ranks: u32) -> Vec<(u32, Step)> {
    let mut numbers = Numbers::of(seed, [round, u64::from(rank)]);
    let mut one = || {
        let to = u32::try_from(numbers.below(ranks as usize)).unwrap_or(0);
        (to, step(&mut numbers))
    };
    (0..STEPS).map(|_| one()).collect()
}

fn step(numbers: &mut Numbers) -> Step {
    // Mostly short, sometimes many packets.
    let length = |numbers: &mut Numbers, most: usize| match numbers.below(4) {
        0 => numbers.below(most),
        _ => numbers.below(64),
    };
    match numbers.below(11) {
        0..=2 => {
            let data = length(numbers, SLOT);
            let offset = numbers.below(SLOT - data + 1);
            let how = numbers.below(3);
            Step::Put { offset, data: numbers.bytes(data), how }
        }
        3 => {
            let (block, count) = (1 + numbers.below(40), 1 + numbers.below(60));
            let stride = block + numbers.below(60);
            let offset = numbers.below(SLOT - count * stride + 1);
            Step::Strided { offset, stride, block, data: numbers.bytes(block * count) }
        }
        4 => Step::Atomic { counter: numbers.below(COUNTERS), operand: numbers.next() },
        5 => {
            let length = 1 + numbers.below(100);
            Step::Append(numbers.bytes(length))
        }
        6 => Step::Signal(numbers.next()),
        7 => {
            let pieces = pieces(numbers);
            let bytes = pieces.iter().map(|piece| piece.1).sum();
            Step::List { pieces, data: numbers.bytes(bytes) }
        }
        8 => {
            let (members, length) = (numbers.next(), 1 + numbers.below(100));
            Step::AppendMany { members, record: numbers.bytes(length) }
        }
        9 => Step::SignalMany { members: numbers.next(), value: numbers.next() },
        _ => {
            let length = length(numbers, 100_000);
            Step::Send(numbers.bytes(length))
        }
    }
}

/// Pieces of a slot: mostly few, sometimes more than fit a frame.
pub fn pieces(numbers: &mut Numbers) -> Vec<(usize, usize)> {
    let count = if numbers.below(8) == 0 { numbers.below(800) } else { numbers.below(20) };
    let mut one = || {
        let length = numbers.below(if count > 20 { 30 } else { 1_000 });
        (numbers.below(SLOT - length + 1), length)
    };
    (0..count).map(|_| one()).collect()
}
