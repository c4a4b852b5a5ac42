//! Limits and file mode mask of a user's processes, as a job carries them to its ranks.

use serde::{Deserialize, Serialize};

/// Value of a limit that does not limit.
pub const UNLIMITED: u64 = u64::MAX;

/// One of the resources that `setrlimit` limits; units are those of `setrlimit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Resource {
    /// Seconds of processor time.
    Cpu,
    /// Bytes of a file that is written.
    Fsize,
    /// Bytes of data.
    Data,
    /// Bytes of the stack.
    Stack,
    /// Bytes of a core dump.
    Core,
    /// Bytes in memory; Linux does not limit them.
    Rss,
    /// Processes and threads of the user.
    Nproc,
    /// Open files.
    Nofile,
    /// Bytes locked in memory.
    Memlock,
    /// Bytes of address space.
    AddressSpace,
    /// Locks of files; Linux does not limit them.
    Locks,
    /// Signals that wait.
    Sigpending,
    /// Bytes in message queues.
    Msgqueue,
    /// 20 less the lowest nice value.
    Nice,
    /// The highest real-time priority.
    Rtprio,
    /// Microseconds of real-time scheduling without a pause.
    Rttime,
}

impl Resource {
    /// All of them, in the order in which [`ProcessLimits`] has them.
    pub const ALL: [Self; 16] = [
        Self::Cpu,
        Self::Fsize,
        Self::Data,
        Self::Stack,
        Self::Core,
        Self::Rss,
        Self::Nproc,
        Self::Nofile,
        Self::Memlock,
        Self::AddressSpace,
        Self::Locks,
        Self::Sigpending,
        Self::Msgqueue,
        Self::Nice,
        Self::Rtprio,
        Self::Rttime,
    ];
}

/// What a process has now, and up to which it may raise that itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// What it has.
    pub soft: u64,
    /// Up to which it may raise it.
    pub hard: u64,
}

impl Limit {
    /// A limit; `soft` is at most `hard`.
    #[must_use]
    pub fn new(soft: u64, hard: u64) -> Self {
        Self { soft: soft.min(hard), hard }
    }

    /// The same, at most `most`.
    #[must_use]
    pub fn capped(self, most: u64) -> Self {
        Self::new(self.soft.min(most), self.hard.min(most))
    }
}

/// Limits of a process, and the bits that it takes from the modes of files that it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// The mask of file modes; nine bits.
    pub umask: u16,
    limits: [Limit; Resource::ALL.len()],
}

impl ProcessLimits {
    /// The limit of a resource.
    #[must_use]
    pub fn get(&self, resource: Resource) -> Limit {
        self.limits[resource as usize]
    }

    /// Sets the limit of a resource.
    pub fn set(&mut self, resource: Resource, limit: Limit) {
        self.limits[resource as usize] = limit;
    }

    /// Lowers each limit to what `most` has of it.
    #[must_use]
    pub fn capped(mut self, most: &Self) -> Self {
        for resource in Resource::ALL {
            self.set(resource, self.get(resource).capped(most.get(resource).hard));
        }
        self
    }
}

impl Default for ProcessLimits {
    /// About what Linux gives to processes of a user on a machine of 8 GiB.
    fn default() -> Self {
        const PROCESSES: u64 = 31_000;
        let mut limits =
            Self { umask: 0o022, limits: [Limit::new(UNLIMITED, UNLIMITED); Resource::ALL.len()] };
        for (resource, soft, hard) in [
            (Resource::Stack, 8 << 20, UNLIMITED),
            (Resource::Core, 0, UNLIMITED),
            (Resource::Nproc, PROCESSES, PROCESSES),
            (Resource::Nofile, 1_024, 524_288),
            (Resource::Memlock, 8 << 20, 8 << 20),
            (Resource::Sigpending, PROCESSES, PROCESSES),
            (Resource::Msgqueue, 819_200, 819_200),
            (Resource::Nice, 0, 0),
            (Resource::Rtprio, 0, 0),
        ] {
            limits.set(resource, Limit::new(soft, hard));
        }
        limits
    }
}
