//! Control groups of a slot's process: they bound all that it starts, and end it.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kumi_cgroup::{JobGroups, LimitCounters, LimitCounts, SlotLimits};
use kumi_rpc::Failure;
use nix::libc::SIGKILL;

use super::super::Config;
use super::resources::ProcessResources;

/// How long killed processes may take to leave their groups.
const EMPTYING: Duration = Duration::from_secs(5);

/// The control groups of a process and of all that it starts. Dropping this kills what is in them, and removes them if nothing
/// is left then.
#[derive(Debug)]
pub struct SlotGroup {
    groups: JobGroups,
    limits: SlotLimits,
    /// How often limits were reached when that was last asked.
    told: Cell<LimitCounts>,
    counters: LimitCounters,
}

impl SlotGroup {
    /// Makes groups with the server's limits, for a process with these resources. `None`: the server has none.
    ///
    /// # Errors
    /// An error of the system.
    pub fn make(config: &Config, resources: ProcessResources) -> io::Result<Option<SlotGroup>> {
        let Some(server) = &config.groups else { return Ok(None) };
        let failed = |error: io::Error| {
            let text = format!("its control group cannot be made: {error}");
            io::Error::new(error.kind(), text)
        };
        let limits = limits(server.limits(), resources);
        let groups = server.slot_with(&limits).map_err(failed)?;
        let counters = groups.limit_counters();
        Ok(Some(SlotGroup { groups, limits, told: Cell::default(), counters }))
    }

    /// The files by which a process joins them.
    pub fn to_join(&self) -> Vec<PathBuf> {
        self.groups.all_to_join()
    }

    /// Kills all that is in them, at once.
    pub fn kill(&self) {
        if let Err(error) = self.groups.kill() {
            let group = self.groups.main().path().display();
            tracing::error!(%group, %error, "the processes of a control group cannot be killed");
        }
    }

    /// The limits that were reached since this was last asked. `None`: no limit was.
    pub fn reached(&self) -> Option<ReachedLimits> {
        let now = self.counters.read();
        let before = self.told.replace(now);
        let kills = now.memory_kills.saturating_sub(before.memory_kills);
        let refusals = now.process_refusals.saturating_sub(before.process_refusals);
        let memory = (kills > 0).then(|| Memory {
            kills,
            had: self.groups.memory_used_up(),
            limit: self.limits.memory,
        });
        let processes = self.limits.processes.filter(|_| refusals > 0);
        (memory.is_some() || processes.is_some()).then_some(ReachedLimits { memory, processes })
    }

    /// Kills what is in them, and removes them when nothing is left. The server's thread does not wait for the kernel.
    pub async fn remove(self) {
        let (groups, group) = (self.groups.clone(), self.groups.main().path().to_owned());
        let removed = tokio::task::spawn_blocking(move || groups.destroy(EMPTYING)).await;
        if let Err(error) = removed.map_err(io::Error::from).flatten() {
            let group = group.display();
            tracing::error!(%group, %error, "a control group stays; processes in it may go on");
        }
    }
}

impl Drop for SlotGroup {
    fn drop(&mut self) {
        self.kill();
        if let Err(error) = self.groups.remove() {
            // Those that are still being killed go with the server's groups.
            tracing::debug!(%error, "a control group is removed when the server ends");
        }
    }
}

/// The limits of a process: the memory that was asked for, and the processors of all slots that its calls take.
#[expect(clippy::cast_precision_loss, reason = "there are fewer slots")]
fn limits(of_slot: SlotLimits, resources: ProcessResources) -> SlotLimits {
    SlotLimits {
        memory: resources.memory.or(of_slot.memory),
        processors: of_slot.processors.map(|count| count * resources.slots as f64),
        ..of_slot
    }
}

/// Memory that has run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    /// How many processes the kernel has killed.
    kills: u64,
    /// Bytes that the group had then.
    had: u64,
    /// Bytes that it may have.
    limit: Option<u64>,
}

/// Limits of a control group that its processes have reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReachedLimits {
    memory: Option<Memory>,
    /// Most processes, if the kernel has refused one more.
    processes: Option<u64>,
}

impl ReachedLimits {
    /// Tells the caller of a call that has crashed that limits were reached.
    pub fn explain(self, routine: &str, failure: &mut Failure) {
        if self.memory.is_some() && failure.detail == i64::from(SIGKILL) {
            failure.text = format!("`{routine}` ran out of memory: {self}");
        } else {
            failure.text = format!("{}; {self}", failure.text);
        }
    }
}

impl fmt::Display for ReachedLimits {
    /// What was reached, with its value.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MIB: u64 = 1 << 20;
        if let Some(Memory { kills, had, limit }) = self.memory {
            let processes = if kills == 1 { "process" } else { "processes" };
            let had = had.div_ceil(MIB);
            write!(out, "the kernel has killed {kills} {processes} of it, which had {had} MiB")?;
            if let Some(limit) = limit {
                write!(out, " together and may have {} MiB", limit / MIB)?;
            }
        }
        if let Some(most) = self.processes {
            let and = if self.memory.is_some() { "; " } else { "" };
            write!(out, "{and}it may have {most} processes and threads, and was refused more")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kumi_rpc::Code;

    use super::*;

    #[test]
    fn callers_read_the_limit_that_was_reached() {
        let memory = Memory { kills: 1, had: 64 << 20, limit: Some(64 << 20) };
        let told = |limits: ReachedLimits, detail| {
            let mut failure = Failure::new(Code::Crashed, detail, "`hog` crashed");
            limits.explain("hog", &mut failure);
            failure.text
        };
        let out_of_memory = ReachedLimits { memory: Some(memory), processes: None };
        let killed =
            "the kernel has killed 1 process of it, which had 64 MiB together and may have 64 MiB";
        assert_eq!(told(out_of_memory, 9), format!("`hog` ran out of memory: {killed}"));
        assert_eq!(told(out_of_memory, 6), format!("`hog` crashed; {killed}"));
        let refused = "it may have 20 processes and threads, and was refused more";
        let processes = ReachedLimits { memory: None, processes: Some(20) };
        assert_eq!(told(processes, 9), format!("`hog` crashed; {refused}"));
        let both = ReachedLimits { memory: Some(memory), processes: Some(20) };
        assert_eq!(both.to_string(), format!("{killed}; {refused}"));
    }
}
