//! The program of a rank that moves. Its whole state lies in its window: a process that goes on with a copy of the
//! rank's files needs nothing else.

use kumi_net::launch::LaunchBlock;
use kumi_net::xdp::XdpDescriptors;
use kumi_net::{
    AnswerSender, Attachment, Channel, ChannelError, ChannelSettings, CopySource, Delivery, Guard,
    Handler, SharedBytesMut, SpinMode, Wire,
};

use crate::random::Random;

/// Most ranks of the job.
pub const MOST_RANKS: usize = 8;
/// Bytes of a rank's state.
pub const STATE_BYTES: usize = 8 * (2 * MOST_RANKS + 1);
/// Frames to a rank of another node that are refused now and then, one in so many.
const REFUSED: u64 = 61;

/// Where in a rank's state the number of frames sent to a rank is.
pub fn sent(to: u32) -> usize {
    16 * to as usize
}

/// Where the number of frames taken from a rank is.
pub fn taken(from: u32) -> usize {
    16 * from as usize + 8
}

/// Where the first fault is: 0, or the rank from which a wrong frame came, plus one.
pub const FAULT: usize = 16 * MOST_RANKS;

/// Settings of a rank's program, in its environment.
#[derive(Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    /// Frames that it sends to each other rank.
    pub frames: u64,
}

impl Plan {
    const NAME: &'static str = "MOVES_PLAN";

    pub fn to_env(self) -> (&'static str, String) {
        (Self::NAME, format!("{},{}", self.seed, self.frames))
    }

    fn from_env() -> Plan {
        let text = std::env::var(Self::NAME).expect("a plan");
        let numbers: Vec<u64> = text.split(',').map(|part| part.parse().expect("number")).collect();
        Plan { seed: numbers[0], frames: numbers[1] }
    }
}

/// What a frame says: its number, and bytes that follow from it.
fn content(seed: u64, from: u32, to: u32, number: u64) -> Vec<u8> {
    let mut random = Random(seed ^ u64::from(from) << 50 ^ u64::from(to) << 40 ^ number);
    let length = random.below(1_200);
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..length).map(|_| random.next() as u8));
    bytes
}

/// A rank's own state, where it lies.
fn state(attachment: &Attachment) -> SharedBytesMut<'_> {
    let start = attachment.readable_arena(attachment.local());
    // SAFETY: the start of the own arena, which is mapped as long as the attachment; it is used through this function only.
    unsafe { SharedBytesMut::new(start, STATE_BYTES) }
}

fn get(attachment: &Attachment, at: usize) -> u64 {
    state(attachment).shared().load_u64(at)
}

/// Takes frames and checks them.
struct Program {
    seed: u64,
    offers: u64,
}

impl Handler for Program {
    fn frame<S: CopySource>(&mut self, attachment: &Attachment, from: u32, frame: S) -> Delivery {
        self.offers += 1;
        if self.offers.is_multiple_of(REFUSED) {
            return Delivery::Full;
        }
        let number = get(attachment, taken(from));
        let mut bytes = vec![0; frame.len()];
        frame.copy_to(&mut bytes);
        if bytes != content(self.seed, from, attachment.rank(), number) {
            state(attachment).store_u64(FAULT, u64::from(from) + 1);
        }
        state(attachment).store_u64(taken(from), number + 1);
        linger(self.offers);
        Delivery::Taken
    }
    fn answer(&mut self, _: usize, _: &mut AnswerSender<'_>) -> Result<(), ChannelError> {
        Ok(())
    }
    fn owes_answers(&self) -> bool {
        false
    }
    fn unread(&self) -> u64 {
        0
    }
    fn refused(&self) -> u64 {
        0
    }
}

/// Makes some changes last, so that ranks are stopped in their middle.
fn linger(number: u64) {
    if number.is_multiple_of(29) {
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

/// Whether this process is a rank.
pub fn is_rank() -> bool {
    std::env::var_os("KUMI_RANK").is_some()
}

/// A rank's life: it sends what is to be sent, then serves until it is killed.
pub fn run() -> ! {
    let plan = Plan::from_env();
    let launch = LaunchBlock::from_env().expect("a rank");
    // SAFETY: the block of this process's environment; nothing else here has the descriptors.
    let descriptors = unsafe { launch.adopt() }.expect("descriptors");
    let (attachment, socket) = Attachment::attach(&launch, descriptors).expect("attach");
    let rank = attachment.rank();
    let settings = ChannelSettings { spin: SpinMode::Fixed(50), handler: None };
    let program = Program { seed: plan.seed, offers: 0 };
    let wire = match XdpDescriptors::from_env().expect("the daemon's") {
        // SAFETY: as for the block.
        Some(xdp) => Wire::Xdp(socket, unsafe { xdp.adopt() }.expect("descriptors")),
        None => Wire::Udp(socket),
    };
    let channel = if attachment.is_copy() {
        Channel::resume(attachment, Some(wire), settings, program, |_, _, _| false)
    } else {
        Channel::start_on(attachment, Some(wire), settings, program)
    };
    let channel = channel.expect("a channel");
    // Not a part of the state: it only makes the instants different.
    let mut random = Random(plan.seed ^ u64::from(rank) ^ u64::from(std::process::id()) << 32);
    while !work(&channel, plan, random.below(40)).expect("work") {
        match random.below(4) {
            // The handler thread serves meanwhile.
            0 => (0..random.below(100_000)).for_each(|turn| _ = std::hint::black_box(turn)),
            1 => std::thread::sleep(std::time::Duration::from_micros(random.below(300))),
            _ => {}
        }
    }
    loop {
        // What was refused is offered again.
        channel.lock().and_then(|mut guard| guard.progress()).expect("progress");
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
}

/// Sends at most so many frames and takes what has come; whether all is sent.
fn work(channel: &Channel<Program>, plan: Plan, most: u64) -> Result<bool, ChannelError> {
    let attachment = channel.attachment();
    let mut guard = channel.lock()?;
    let others = (0..attachment.ranks()).filter(|to| *to != attachment.rank());
    let mut all = true;
    for to in others {
        let mut left = most;
        while left > 0 && get(attachment, sent(to)) < plan.frames {
            if !send_next(&mut guard, attachment, plan.seed, to)? {
                break;
            }
            left -= 1;
        }
        all &= get(attachment, sent(to)) == plan.frames;
    }
    guard.transmit()?;
    guard.progress()?;
    Ok(all)
}

/// Sends the next frame to a rank and counts it: no copy has one without the other.
fn send_next(
    guard: &mut Guard<'_, Program>,
    attachment: &Attachment,
    seed: u64,
    to: u32,
) -> Result<bool, ChannelError> {
    let number = get(attachment, sent(to));
    let bytes = content(seed, attachment.rank(), to, number);
    guard.undivided(|guard| {
        let accepted = guard.send(to, &[&bytes])?;
        if accepted {
            linger(number);
            state(attachment).store_u64(sent(to), number + 1);
        }
        Ok(accepted)
    })
}
