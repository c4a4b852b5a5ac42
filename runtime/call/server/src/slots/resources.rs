//! Threads and memory of a slot's process, and which waiting call gets the slots that are free.

use kumi_rpc::{Code, Failure, Resources};

use super::super::Config;

/// What a process has. It is started with it, so a call gets a process that has what the call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessResources {
    /// Threads that its libraries use.
    pub threads: usize,
    /// How many slots a call on it takes.
    pub slots: usize,
    /// Bytes of memory of it and all that it starts, if a client has asked for that. `None`: the server's limit.
    pub memory: Option<u64>,
}

/// The failure for a call that does not get what it asks for. The detail is the most that it may get; 0: nothing.
fn refused(name: &str, most: u64, text: &str) -> Failure {
    let detail = i64::try_from(most).unwrap_or(i64::MAX);
    Failure::new(Code::NoResources, detail, format!("`{name}` asks for {text}"))
}

impl ProcessResources {
    /// Those of calls that ask for nothing.
    pub fn usual(config: &Config) -> ProcessResources {
        ProcessResources { threads: config.threads.max(1), slots: 1, memory: None }
    }

    /// What a call of a routine, or an object of a class, of this name gets.
    ///
    /// # Errors
    /// It asks for more than the server gives, or for what the server cannot keep it to.
    pub fn granted(
        config: &Config,
        asked: Option<Resources>,
        name: &str,
        is_parallel: bool,
    ) -> Result<ProcessResources, Failure> {
        let usual = ProcessResources::usual(config);
        let Some(asked) = asked else { return Ok(usual) };
        if is_parallel {
            let text = "threads or memory, and is a parallel job, whose ranks have what the server gives them: ask for \
                        nothing";
            return Err(refused(name, 0, text));
        }
        let (threads, slots) = threads(config, &asked, name)?;
        Ok(ProcessResources { threads, slots, memory: memory(config, &asked, name)? })
    }
}

/// How many threads a call gets, and how many slots that takes.
fn threads(config: &Config, asked: &Resources, name: &str) -> Result<(usize, usize), Failure> {
    let of_slot = config.threads.max(1);
    let Some(threads) = asked.threads() else { return Ok((of_slot, 1)) };
    let (threads, slots) =
        (usize::try_from(threads.get()).unwrap_or(usize::MAX), config.slots.max(1));
    if threads.div_ceil(of_slot) <= slots {
        return Ok((threads, threads.div_ceil(of_slot)));
    }
    let most = slots.saturating_mul(of_slot);
    let text = format!(
        "{threads} threads, and this server has {slots} slots of {of_slot}: ask for {most} at most, or have it started with \
         more --slots"
    );
    Err(refused(name, most as u64, &text))
}

/// How many bytes a call gets, if it asks for any.
fn memory(config: &Config, asked: &Resources, name: &str) -> Result<Option<u64>, Failure> {
    let Some(memory) = asked.memory() else { return Ok(None) };
    let memory = memory.get();
    let bounded = config.groups.as_ref().filter(|groups| groups.bounds_memory());
    let Some(most) = bounded.and_then(|groups| groups.limits().memory) else {
        let text = format!(
            "{memory} bytes of memory, and this server can keep no call to that: it has no control groups with a limit of \
             memory; have it started with --slot-memory where it may make such groups"
        );
        return Err(refused(name, 0, &text));
    };
    let limits = [
        (most, "--slot-memory"),
        (
            if config.process_bytes == 0 { u64::MAX } else { config.process_bytes },
            "--process-memory",
        ),
    ];
    match limits.into_iter().find(|(most, _)| memory > *most) {
        None => Ok(Some(memory)),
        Some((most, option)) => {
            let text = format!(
                "{memory} bytes of memory, and this server gives {most} at most ({option}): ask for less, or have it started \
                 with more"
            );
            Err(refused(name, most, &text))
        }
    }
}

/// Which waiting call begins when so many slots are free: the first that can begin, as soon as all of its slots are free. Until
/// then no later one begins, or calls with many threads would wait for ever. `waiting` has of each call whether it can begin,
/// and how many slots it takes.
pub fn next(free: usize, waiting: impl IntoIterator<Item = (bool, usize)>) -> Option<usize> {
    let calls = waiting.into_iter().enumerate();
    let (index, (_, slots)) = calls.into_iter().find(|(_, (can_begin, _))| *can_begin)?;
    (slots <= free).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(config: &Config, threads: u32, memory: u64) -> Result<(usize, usize), Failure> {
        let asked = Resources::new(threads, memory);
        let granted = ProcessResources::granted(config, asked, "f", false);
        granted.map(|it| (it.threads, it.slots))
    }

    #[test]
    fn a_call_takes_as_many_slots_as_its_threads_need() {
        let mut config = Config { slots: 3, threads: 1, ..Config::new("slot".into()) };
        assert_eq!(granted(&config, 0, 0), Ok((1, 1)));
        assert_eq!(granted(&config, 1, 0), Ok((1, 1)));
        assert_eq!(granted(&config, 3, 0), Ok((3, 3)));
        let failure = granted(&config, 4, 0).expect_err("too many");
        assert_eq!((failure.code, failure.detail), (Code::NoResources, 3));
        assert!(
            failure.text.contains("`f` asks for 4 threads") && failure.text.contains("3 slots")
        );
        config.threads = 4;
        assert_eq!(granted(&config, 0, 0), Ok((4, 1)));
        assert_eq!(granted(&config, 2, 0), Ok((2, 1)));
        assert_eq!(granted(&config, 5, 0), Ok((5, 2)));
        assert_eq!(granted(&config, 12, 0), Ok((12, 3)));
        assert_eq!(granted(&config, u32::MAX, 0).expect_err("too many").detail, 12);
    }

    #[test]
    fn a_parallel_job_gets_nothing_that_is_asked_for() {
        let config = Config::new("slot".into());
        let usual = ProcessResources::usual(&config);
        assert_eq!(ProcessResources::granted(&config, None, "job", true), Ok(usual));
        let failure = ProcessResources::granted(&config, Resources::new(1, 0), "job", true);
        assert_eq!(failure.expect_err("refused").code, Code::NoResources);
    }

    #[test]
    fn memory_is_refused_where_nothing_bounds_it() {
        let config = Config::new("slot".into());
        let failure = granted(&config, 0, 1 << 20).expect_err("no groups");
        assert_eq!((failure.code, failure.detail), (Code::NoResources, 0));
        assert!(failure.text.contains("--slot-memory"), "{}", failure.text);
    }

    #[test]
    fn calls_with_many_threads_are_not_overtaken() {
        assert_eq!(next(1, []), None);
        assert_eq!(next(1, [(true, 1), (true, 1)]), Some(0));
        assert_eq!(next(0, [(true, 1)]), None);
        // The first waits for two slots, and the second for it.
        assert_eq!(next(1, [(true, 2), (true, 1)]), None);
        assert_eq!(next(2, [(true, 2), (true, 1)]), Some(0));
        // Who waits for an object holds up nobody.
        assert_eq!(next(1, [(false, 2), (true, 1)]), Some(1));
    }
}
