//! The most that a cluster gives to ranks of their users' limits: table `[limits]` of cluster.toml.

use kumi_control::message::{Limit, ProcessLimits, Resource};
use kumi_net::HandlerSetting;
use serde::{Deserialize, Serialize};

use super::{ConfigError, HANDLER, invalid};
use crate::process_limits::{key, words};

/// The highest real-time priority of Linux.
const MOST_RTPRIO: u64 = 99;
/// The limit of nice that permits -20.
const MOST_NICE: u64 = 40;
/// Below so many files a rank would not get as far as its program.
const LEAST_FILES: u64 = 64;

/// The most of its user's limits that a rank gets. What a key does not limit is as the user has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitCaps {
    /// The highest real-time priority. Without the key it is 0, but what `KUMI_HANDLER` of the job needs if its user has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtprio: Option<u64>,
    /// 20 less the lowest nice value, 0 to 40. Without the key it is 0, but what `KUMI_HANDLER` of the job needs if its user has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nice: Option<u64>,
    /// Bytes locked in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memlock: Option<u64>,
    /// Open files, at least 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nofile: Option<u64>,
    /// Processes and threads of the user on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nproc: Option<u64>,
    /// Bytes of a core dump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u64>,
    /// Bytes of address space.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub address_space: Option<u64>,
    /// Bytes of data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u64>,
    /// Bytes of the stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<u64>,
    /// Bytes of a file that is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsize: Option<u64>,
    /// Seconds of processor time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u64>,
    /// Signals that wait for the user's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sigpending: Option<u64>,
    /// Bytes in message queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msgqueue: Option<u64>,
    /// Microseconds of real-time scheduling without a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rttime: Option<u64>,
}

impl LimitCaps {
    pub(super) fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        for (resource, low, high) in [
            (Resource::Rtprio, 0, MOST_RTPRIO),
            (Resource::Nice, 0, MOST_NICE),
            (Resource::Nofile, LEAST_FILES, u64::MAX),
        ] {
            if let Some(value) = self.of(resource)
                && !(low..=high).contains(&value)
            {
                let most =
                    if high == u64::MAX { String::new() } else { format!(" and at most {high}") };
                let name = key(resource);
                return invalid(format!(
                    "{name} under [limits] is {value}; it is at least {low}{most}"
                ));
            }
        }
        Ok(())
    }

    /// The most of a resource, if the file says.
    fn of(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Cpu => self.cpu,
            Resource::Fsize => self.fsize,
            Resource::Data => self.data,
            Resource::Stack => self.stack,
            Resource::Core => self.core,
            Resource::Nproc => self.nproc,
            Resource::Nofile => self.nofile,
            Resource::Memlock => self.memlock,
            Resource::AddressSpace => self.address_space,
            Resource::Sigpending => self.sigpending,
            Resource::Msgqueue => self.msgqueue,
            Resource::Nice => self.nice,
            Resource::Rtprio => self.rtprio,
            Resource::Rttime => self.rttime,
            // Linux does not limit them.
            Resource::Rss | Resource::Locks => None,
        }
    }

    /// The limit of one resource that a rank gets, of what its user has. `needs` is what the job's handler needs of it.
    fn limit(&self, resource: Resource, has: Limit, needs: u64) -> Limit {
        match (self.of(resource), resource) {
            (Some(most), _) => has.capped(most),
            (None, Resource::Rtprio | Resource::Nice) if has.hard >= needs => has.capped(needs),
            (None, Resource::Rtprio | Resource::Nice) => has.capped(0),
            (None, _) => has,
        }
    }

    /// Lowers the limits of a job to what the cluster gives. `handler` is the job's `KUMI_HANDLER`. Returns a sentence for
    /// the user if its ranks have less than the user has.
    #[must_use]
    pub fn apply(&self, limits: &mut ProcessLimits, handler: Option<&str>) -> Option<String> {
        // A setting that is wrong ends the job at its start.
        let setting = handler.and_then(|text| HandlerSetting::parse(text).ok());
        let needs = setting.map(HandlerSetting::needs).unwrap_or_default();
        let mut less = Vec::new();
        for resource in Resource::ALL {
            let has = limits.get(resource);
            let need = match resource {
                Resource::Rtprio => needs.rtprio,
                Resource::Nice => needs.nice,
                _ => 0,
            };
            let gets = self.limit(resource, has, need);
            if gets.soft < has.soft {
                let (had, gets) = (words(has.soft), words(gets.soft));
                less.push(format!("{} {gets} instead of {had}", key(resource)));
            }
            limits.set(resource, gets);
        }
        let list = less.join(", ");
        (!less.is_empty()).then(|| {
            format!("the cluster gives ranks less than your limits: {list}; its owner sets [limits] in cluster.toml")
        })
    }
}

/// The setting of its handler threads that a job with this environment has; `default` is the cluster's.
#[must_use]
pub fn handler_of<'a>(env: &'a [(String, String)], default: Option<&'a str>) -> Option<&'a str> {
    match env.iter().rev().find(|(name, _)| name == HANDLER) {
        Some((_, value)) => Some(&**value).filter(|value| !value.is_empty()),
        None => default,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;
    use crate::exit::ExitCode;
    use kumi_control::message::UNLIMITED;

    fn user(rtprio: u64, nice: u64) -> ProcessLimits {
        let mut limits = ProcessLimits::default();
        for (resource, value) in
            [(Resource::Rtprio, rtprio), (Resource::Nice, nice), (Resource::Memlock, UNLIMITED)]
        {
            limits.set(resource, Limit::new(value, value));
        }
        limits
    }

    fn given(caps: &LimitCaps, mut limits: ProcessLimits, handler: &str) -> (u64, u64) {
        let _note = caps.apply(&mut limits, Some(handler));
        (limits.get(Resource::Rtprio).hard, limits.get(Resource::Nice).hard)
    }

    #[test]
    fn ranks_have_no_priority_unless_their_handler_needs_it_and_their_user_has_it() {
        let none = LimitCaps::default();
        let mut limits = user(99, 40);
        let note = none.apply(&mut limits, None).expect("a note");
        assert!(note.contains("rtprio 0 instead of 99") && note.contains("nice 0 instead of 40"));
        assert_eq!(limits, user(0, 0));
        assert_eq!(limits.get(Resource::Memlock).soft, UNLIMITED);
        for (handler, needs) in [
            ("rr", (10, 0)),
            ("fifo:low", (10, 0)),
            ("fifo:high", (11, 0)),
            ("other:high", (0, 30)),
            ("other", (0, 0)),
            ("nonsense", (0, 0)),
        ] {
            assert_eq!(given(&none, user(99, 40), handler), needs, "{handler}");
            assert_eq!(given(&none, user(9, 29), handler), (0, 0), "{handler}");
        }
        // What the owner says counts, also against a handler.
        let some = LimitCaps { rtprio: Some(0), nice: Some(25), ..LimitCaps::default() };
        assert_eq!(given(&some, user(99, 40), "fifo:high"), (0, 25));
    }

    #[test]
    fn every_limit_is_capped_and_what_is_less_is_told() {
        let caps =
            LimitCaps { memlock: Some(1 << 20), nofile: Some(4_096), ..LimitCaps::default() };
        let mut limits = user(0, 0);
        let note = caps.apply(&mut limits, None).expect("a note");
        assert!(note.contains("memlock 1048576 instead of unlimited"), "{note}");
        // What it has is less; only what it may raise itself to has changed.
        assert!(!note.contains("nofile"), "{note}");
        assert_eq!(limits.get(Resource::Nofile), Limit { soft: 1_024, hard: 4_096 });
        assert_eq!(caps.apply(&mut limits, None), None);
    }

    #[test]
    fn the_handler_is_the_jobs_or_the_clusters() {
        let env = |value: &str| vec![(HANDLER.to_owned(), value.to_owned())];
        assert_eq!(handler_of(&env("rr"), Some("fifo")), Some("rr"));
        assert_eq!(handler_of(&env(""), Some("fifo")), None);
        assert_eq!(handler_of(&[], Some("fifo")), Some("fifo"));
    }

    #[test]
    fn wrong_limits_are_told() {
        let with = |text: &str| parse(&format!("{GOOD}[limits]\n{text}\n"));
        let config = with("memlock = 65536\nas = 1000000000\nrtprio = 20").unwrap();
        assert_eq!((config.limits.memlock, config.limits.rtprio), (Some(65_536), Some(20)));
        for (text, says) in [
            ("rtprio = 100", "at most 99"),
            ("nice = 41", "at most 40"),
            ("nofile = 10", "at least 64"),
            ("memlok = 1", "unknown field"),
        ] {
            let error = with(text).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.exit_code(), ExitCode::BadConfig);
        }
    }
}
