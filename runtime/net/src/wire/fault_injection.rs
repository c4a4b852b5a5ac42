//! Fault injection (`KUMI_FAULTS`), to try programs and this library on a bad wire: a driver around
//! another that loses, doubles and holds back some packets. It can also stand for a wire that lays data where it belongs.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use kumi_proto::Rank;

use crate::segment::attachment::{AttachError, Attachment};
use crate::wire::driver::{Driver, LandedPacket, LandedRun, Landing, PacketRun, SleepDescriptors};

/// How many packets overtake one that is held back, at most.
const OVERTAKING: u64 = 8;

/// The setting: how many of a thousand packets meet which fault, and where the dice begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FaultSettings {
    loss: u64,
    double: u64,
    late: u64,
    /// Of a thousand runs that are received so many land where data is expected.
    land: u64,
    seed: u64,
}

impl FaultSettings {
    /// Reads `KUMI_FAULTS`; `None` if it is not set.
    pub(crate) fn from_env() -> Result<Option<FaultSettings>, AttachError> {
        match std::env::var("KUMI_FAULTS") {
            Ok(text) if !text.is_empty() => FaultSettings::parse(&text).map(Some),
            _ => Ok(None),
        }
    }

    fn parse(text: &str) -> Result<FaultSettings, AttachError> {
        let mut faults = FaultSettings::default();
        for item in text.split(',') {
            let pair = item.split_once('=').and_then(|(name, value)| {
                let value = value.parse::<u64>().ok()?;
                (name == "seed" || value <= 1_000).then_some((name, value))
            });
            match pair {
                Some(("loss", value)) => faults.loss = value,
                Some(("double", value)) => faults.double = value,
                Some(("late", value)) => faults.late = value,
                Some(("land", value)) => faults.land = value,
                Some(("seed", value)) => faults.seed = value,
                _ => return Err(bad(text)),
            }
        }
        if faults.loss + faults.late + faults.double > 1_000 {
            return Err(bad(text));
        }
        Ok(faults)
    }

    /// A rank's wire with these faults, each rank with dice of its own.
    pub(crate) fn on(self, wire: Box<dyn Driver>, rank: Rank) -> FaultyDriver {
        let dice = FaultRandom(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(rank));
        FaultyDriver {
            wire,
            faults: self,
            dice,
            sent: 0,
            late: VecDeque::new(),
            heads: Vec::new(),
            packets: None,
        }
    }
}

fn bad(text: &str) -> AttachError {
    AttachError::BadSetting {
        name: "KUMI_FAULTS",
        found: text.to_owned(),
        expected: "loss=N,double=N,late=N,land=N,seed=N, the first three in packets of a thousand and together \
                   at most a thousand, the fourth in runs of a thousand; each may be left out",
    }
}

/// Splitmix64: the same dice for the same seed everywhere.
#[derive(Debug)]
struct FaultRandom(u64);

impl FaultRandom {
    fn throw(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ x >> 31) % below
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct FaultyDriver {
    wire: Box<dyn Driver>,
    faults: FaultSettings,
    dice: FaultRandom,
    /// Packets that were to be sent.
    sent: u64,
    /// Packets held back: after which one they leave, for whom, their bytes, and whether in fragments.
    late: VecDeque<(u64, Rank, Vec<u8>, bool)>,
    /// What landed last, if anything did.
    heads: Vec<u8>,
    packets: Option<Vec<LandedPacket>>,
}

impl FaultyDriver {
    fn one(
        &mut self,
        attachment: &Attachment,
        to: Rank,
        bytes: &[u8],
        fragment: bool,
    ) -> io::Result<bool> {
        self.wire.send(attachment, to, PacketRun::contiguous(bytes, bytes.len().max(1), fragment))
    }

    /// Lays the packets that have come as a wire does that does not look into them. Those for which there is no room stay whole.
    fn lay(&mut self, landing: Landing<'_>) {
        self.heads.clear();
        let mut packets = Vec::new();
        let mut at = landing.gap;
        for packet in self.wire.received().each() {
            let (head, rest) = packet.split_at(packet.len().min(landing.head));
            match landing.memory.get(at, rest.len()).filter(|_| !rest.is_empty()) {
                Some(place) => {
                    place.copy_from(rest);
                    self.heads.extend_from_slice(head);
                    packets.push(LandedPacket { head: head.len(), at, rest: rest.len() });
                    at += rest.len() + landing.gap;
                }
                None => {
                    self.heads.extend_from_slice(packet);
                    packets.push(LandedPacket { head: packet.len(), at: 0, rest: 0 });
                }
            }
        }
        self.packets = Some(packets);
    }

    /// Lets those leave that were held back until now.
    fn release(&mut self, attachment: &Attachment) -> io::Result<()> {
        while let Some(at) = self.late.iter().position(|(until, ..)| *until <= self.sent) {
            let Some((_, to, bytes, fragment)) = self.late.remove(at) else { break };
            self.one(attachment, to, &bytes, fragment)?;
        }
        Ok(())
    }
}

impl Driver for FaultyDriver {
    fn register(&mut self, memory: Range<*const u8>) -> io::Result<()> {
        self.wire.register(memory)
    }

    fn receive(&mut self) -> io::Result<bool> {
        self.packets = None;
        self.wire.receive()
    }

    fn poll(&mut self) -> io::Result<bool> {
        self.packets = None;
        self.wire.poll()
    }

    fn lands(&self) -> bool {
        self.faults.land > 0 || self.wire.lands()
    }

    fn receive_into(&mut self, landing: Landing<'_>) -> io::Result<bool> {
        self.packets = None;
        if self.faults.land == 0 {
            return self.wire.receive_into(landing);
        }
        let got = self.wire.receive()?;
        if got && self.dice.throw(1_000) < self.faults.land {
            self.lay(landing);
        }
        Ok(got)
    }

    fn landed(&self) -> Option<LandedRun<'_>> {
        match &self.packets {
            Some(packets) => Some(LandedRun { heads: &self.heads, packets }),
            None => self.wire.landed(),
        }
    }

    fn received(&self) -> PacketRun<'_> {
        self.wire.received()
    }

    fn send(
        &mut self,
        attachment: &Attachment,
        to: Rank,
        packets: PacketRun<'_>,
    ) -> io::Result<bool> {
        let mut room = Vec::new();
        let packets = packets.end_to_end(&mut room);
        let mut all = true;
        for packet in packets.each() {
            self.sent += 1;
            let fate = self.dice.throw(1_000);
            let FaultSettings { loss, double, late, .. } = self.faults;
            if (loss..loss + late).contains(&fate) {
                let until = self.sent + 1 + self.dice.throw(OVERTAKING);
                self.late.push_back((until, to, packet.to_vec(), packets.fragment));
            } else if fate >= loss {
                all &= self.one(attachment, to, packet, packets.fragment)?;
                if fate < loss + late + double {
                    all &= self.one(attachment, to, packet, packets.fragment)?;
                }
            }
            self.release(attachment)?;
        }
        Ok(all)
    }

    fn finish(&mut self, memory: &Range<*const u8>) {
        self.wire.finish(memory);
    }

    fn refusal(&self) -> Option<i32> {
        self.wire.refusal()
    }

    fn too_long(&mut self) -> bool {
        self.wire.too_long()
    }

    fn longest(&self, attachment: &Attachment, to: Rank) -> Option<usize> {
        self.wire.longest(attachment, to)
    }

    fn sleep_on(&self) -> SleepDescriptors {
        self.wire.sleep_on()
    }

    fn watch_for_gone(&self) -> io::Result<()> {
        self.wire.watch_for_gone()
    }

    fn gone(&self, attachment: &Attachment) -> Option<Rank> {
        self.wire.gone(attachment)
    }

    fn publish(&self, attachment: &Attachment) {
        self.wire.publish(attachment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_stand_there() {
        let faults = FaultSettings::parse("loss=50,late=10,land=1000,seed=123456").unwrap();
        let expected = FaultSettings { loss: 50, double: 0, late: 10, land: 1_000, seed: 123_456 };
        assert_eq!(faults, expected);
        for wrong in ["loss", "loss=1001", "loss=-1", "lost=5", "loss=5,", "loss=600,late=401"] {
            let error = FaultSettings::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("KUMI_FAULTS") && error.contains("loss=N"), "{error}");
        }
    }

    #[test]
    fn the_dice_are_even_and_the_same_again() {
        let (mut one, mut other) = (FaultRandom(7), FaultRandom(7));
        let throws: Vec<u64> = (0..10_000).map(|_| one.throw(1_000)).collect();
        assert!(throws.iter().all(|throw| *throw == other.throw(1_000)));
        let low = throws.iter().filter(|throw| **throw < 50).count();
        assert!((400..600).contains(&low), "{low} of 10,000 below a twentieth");
    }
}
