//! Which ranks the kernel killed for want of memory.
//!
//! A control group only counts such kills. A rank that ends by `SIGKILL` may be one of them. Or another process of the job was,
//! and the rank has outlived it. So the count is looked at in between: a kill is no rank's if at the next look none is dying.

use std::fs;
use std::time::Duration;

use kumi_control::message::RankStatus;
use kumi_sched::NodeId;

use crate::cgroup::JobGroups;

/// Time from look to look.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// Kills for want of memory among the processes of a job on this node, as its group counts them.
#[derive(Debug, Default)]
pub(super) struct MemoryKills {
    /// At the last look.
    seen: u64,
    /// Those that are a rank's end, or cannot be one any more.
    settled: u64,
    /// Those that are the end of a rank, or of a process of which a rank has said that it ended so.
    told: u64,
}

impl MemoryKills {
    /// Looks at the count of a job with these ranks (processes; 0 is none). Returns whether the ranks have outlived a kill.
    pub(super) fn look_at(
        &mut self,
        groups: &JobGroups,
        mut ranks: impl Iterator<Item = i32>,
    ) -> bool {
        let dying = ranks.any(|rank| rank > 0 && is_dying(rank));
        self.look(groups.memory_kills(), dying)
    }

    /// The status of a rank that has ended, with its cause if that was want of memory.
    pub(super) fn caused(&mut self, status: RankStatus, groups: &JobGroups) -> RankStatus {
        match self.explain(status, groups.memory_kills()) {
            true => RankStatus::OutOfMemory(groups.memory_used_up()),
            false => status,
        }
    }

    /// Looks at the count; `dying` says whether any rank is about to end. Returns whether the ranks have outlived a kill.
    fn look(&mut self, kills: u64, dying: bool) -> bool {
        // Those of the last look have had the time since to end a rank.
        let outlived = !dying && self.seen > self.settled;
        if outlived {
            self.settled = self.seen;
        }
        self.seen = kills;
        outlived
    }

    /// Whether want of memory is why a rank ended so, with the count at its end. A shell ends with 137 for a program that was
    /// killed, however long ago.
    fn explain(&mut self, status: RankStatus, kills: u64) -> bool {
        let explained = match status {
            RankStatus::Signalled(9) => kills > self.settled,
            RankStatus::Exited(137) => kills > self.told,
            _ => false,
        };
        if explained {
            self.told += 1;
            match status {
                RankStatus::Signalled(_) => self.settled += 1,
                _ => self.settled = self.settled.max(self.told),
            }
        }
        explained
    }
}

/// What the user reads of a kill that the ranks have outlived.
pub(super) fn outlived(node: NodeId) -> String {
    format!(
        "kumi: memory ran out on node {node}, and the kernel killed a process that a rank had started\n"
    )
}

/// Whether the process is about to end, has ended, or was sent a signal that ends it.
fn is_dying(process: i32) -> bool {
    let read = |file| fs::read_to_string(format!("/proc/{process}/{file}"));
    match (read("stat"), read("status")) {
        (Ok(stat), Ok(status)) => is_ending(&stat).unwrap_or(false) || has_kill(&status),
        // It is gone.
        _ => true,
    }
}

/// What `stat` of a process says: dead, or with the kernel's flag of a process that exits.
fn is_ending(stat: &str) -> Option<bool> {
    const PF_EXITING: u32 = 4;
    // The name, in parentheses, may hold anything, parentheses included.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let dead = matches!(fields.next()?, "Z" | "X");
    let flags: u32 = fields.nth(5)?.parse().ok()?;
    Some(dead || flags & PF_EXITING != 0)
}

/// What `status` of a process says: whether `SIGKILL` is on its way.
fn has_kill(status: &str) -> bool {
    const SIGKILL: u64 = 1 << 8;
    let pending = status
        .lines()
        .filter_map(|line| line.strip_prefix("ShdPnd:").or_else(|| line.strip_prefix("SigPnd:")));
    let mut sets = pending.filter_map(|set| u64::from_str_radix(set.trim(), 16).ok());
    sets.any(|set| set & SIGKILL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: RankStatus = RankStatus::Signalled(9);
    const SAID: RankStatus = RankStatus::Exited(137);

    #[test]
    fn a_kill_ends_one_rank() {
        let mut kills = MemoryKills::default();
        assert!(!kills.explain(KILLED, 0));
        assert!(!kills.explain(RankStatus::Exited(1), 1));
        assert!(kills.explain(KILLED, 1));
        assert!(!kills.explain(KILLED, 1) && !kills.explain(SAID, 1));
        assert!(kills.explain(SAID, 2) && kills.explain(KILLED, 3));
    }

    #[test]
    fn a_kill_that_ranks_outlive_ends_none_later() {
        let mut kills = MemoryKills::default();
        assert!(!kills.look(1, false), "a rank may be about to end by it");
        assert!(kills.look(1, false));
        assert!(!kills.look(1, false), "said once");
        assert!(!kills.explain(KILLED, 1), "for another reason");
        assert!(kills.explain(SAID, 1), "its own command");
        assert!(kills.explain(KILLED, 2), "the next one");
    }

    #[test]
    fn a_rank_that_takes_long_to_die_is_waited_for() {
        let mut kills = MemoryKills::default();
        assert!(!kills.look(1, false) && !kills.look(1, true) && !kills.look(1, true));
        assert!(kills.explain(KILLED, 1));
        assert!(!kills.look(1, false), "it was that rank");
    }

    #[test]
    fn processes_that_end() {
        let stat = |state, flags| format!("7 (a) b) {state} 1 7 7 0 -1 {flags} 100 0");
        assert_eq!(is_ending(&stat("S", 0x0040_0100)), Some(false));
        assert_eq!(is_ending(&stat("R", 0x0040_0104)), Some(true));
        assert_eq!((is_ending(&stat("Z", 0)), is_ending("7 (a")), (Some(true), None));
        assert!(has_kill("SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"));
        assert!(!has_kill("SigQ:\t1/2\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000004000\n"));
        assert!(!is_dying(i32::try_from(std::process::id()).unwrap()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = i32::try_from(child.id()).unwrap();
        while !is_dying(id) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_dying(id));
    }
}
