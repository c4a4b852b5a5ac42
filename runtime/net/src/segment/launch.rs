//! Launch block of a rank: the descriptors it inherits from its daemon, and the environment variables
//! that name them.

use std::os::fd::RawFd;

pub use crate::sys::{bind_socket, doorbell};

/// The launch block of one rank. The daemon fills it, the rank reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchBlock {
    /// The job's number.
    pub job: u64,
    /// This rank.
    pub rank: u32,
    /// Ranks of the job.
    pub ranks: u32,
    /// The node it runs on.
    pub node: u32,
    /// The job's segment on this node.
    pub segment: RawFd,
    /// This rank's own UDP socket.
    pub socket: RawFd,
    /// One eventfd per local rank, in order.
    pub doorbells: Vec<RawFd>,
}

/// Why a program cannot join its job.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchError {
    /// None of the variables is there.
    #[error(
        "this program was not started by `kumi run`: start it with `kumi run -n RANKS PROGRAM`, or set KUMI_SINGLETON=1 to run it as a job of one rank"
    )]
    NotLaunched,
    /// A variable is missing or wrong.
    #[error(
        "the environment variable {name} that `kumi run` sets is {found:?}: it was changed on the way; start the program with `kumi run` again and leave it alone"
    )]
    BadVariable {
        /// Its name.
        name: &'static str,
        /// Its value, empty if it is missing.
        found: String,
    },
    /// A descriptor is not open here.
    #[error(
        "descriptor {descriptor} ({what}) that `kumi run` passes to its ranks is not open: a program in between closed it; let it pass open files on"
    )]
    Closed {
        /// The number.
        descriptor: RawFd,
        /// The expected value.
        what: &'static str,
    },
}

const NAMES: [&str; 5] = ["KUMI_JOB", "KUMI_RANK", "KUMI_RANKS", "KUMI_NODE", "KUMI_FDS"];

impl LaunchBlock {
    /// The variables to set for the rank. The descriptors must be open in it under these numbers.
    #[must_use]
    pub fn to_env(&self) -> Vec<(String, String)> {
        let descriptors: Vec<String> = [self.segment, self.socket]
            .iter()
            .chain(&self.doorbells)
            .map(ToString::to_string)
            .collect();
        let values = [
            self.job.to_string(),
            self.rank.to_string(),
            self.ranks.to_string(),
            self.node.to_string(),
            descriptors.join(","),
        ];
        NAMES.iter().map(ToString::to_string).zip(values).collect()
    }

    /// Reads the variables of this process.
    ///
    /// # Errors
    /// [`LaunchError::NotLaunched`] if there are none, [`LaunchError::BadVariable`] if one is missing or wrong.
    pub fn from_env() -> Result<LaunchBlock, LaunchError> {
        LaunchBlock::from_lookup(|name| std::env::var(name).ok())
    }

    /// Reads the variables through `lookup`.
    ///
    /// # Errors
    /// As [`Launch::from_env`].
    pub fn from_lookup(
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<LaunchBlock, LaunchError> {
        if NAMES.iter().all(|name| lookup(name).is_none()) {
            return Err(LaunchError::NotLaunched);
        }
        let bad = |name: &'static str| LaunchError::BadVariable {
            name,
            found: lookup(name).unwrap_or_default(),
        };
        let number = |name: &'static str| {
            lookup(name).and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| bad(name))
        };
        let small = |name: &'static str| {
            number(name).and_then(|value| u32::try_from(value).map_err(|_| bad(name)))
        };
        let text = lookup("KUMI_FDS").unwrap_or_default();
        let parsed: Option<Vec<RawFd>> =
            text.split(',').map(|part| part.parse().ok().filter(|raw: &RawFd| *raw >= 0)).collect();
        let descriptors = parsed.filter(|list| list.len() >= 3).ok_or_else(|| bad("KUMI_FDS"))?;
        let launch = LaunchBlock {
            job: number("KUMI_JOB")?,
            rank: small("KUMI_RANK")?,
            ranks: small("KUMI_RANKS")?,
            node: small("KUMI_NODE")?,
            segment: descriptors[0],
            socket: descriptors[1],
            doorbells: descriptors[2..].to_vec(),
        };
        if launch.rank >= launch.ranks {
            return Err(bad("KUMI_RANK"));
        }
        Ok(launch)
    }
}

/// The descriptors of the pages that the node's daemon discloses, as a rank inherits them; see [`crate::disclosure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageDescriptors {
    /// The node's.
    pub node: RawFd,
    /// The job's.
    pub job: RawFd,
}

/// The variable that names the pages.
const PAGES: &str = "KUMI_PAGES";

impl PageDescriptors {
    /// The variable to set for the rank.
    #[must_use]
    pub fn to_env(&self) -> (String, String) {
        (PAGES.to_owned(), format!("{},{}", self.node, self.job))
    }

    /// Reads the variable of this process; none if it is not set: a rank without a daemon has no pages.
    ///
    /// # Errors
    /// [`LaunchError::BadVariable`].
    pub fn from_env() -> Result<Option<PageDescriptors>, LaunchError> {
        PageDescriptors::from_text(std::env::var(PAGES).ok())
    }

    fn from_text(text: Option<String>) -> Result<Option<PageDescriptors>, LaunchError> {
        let Some(found) = text else { return Ok(None) };
        let number = |part: &str| part.parse().ok().filter(|raw: &RawFd| *raw >= 0);
        let both = found.split_once(',').map(|(node, job)| (number(node), number(job)));
        match both {
            Some((Some(node), Some(job))) => Ok(Some(PageDescriptors { node, job })),
            _ => Err(LaunchError::BadVariable { name: PAGES, found }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_through_the_environment() {
        let pages = PageDescriptors { node: 17, job: 4 };
        let (name, value) = pages.to_env();
        assert_eq!((name.as_str(), value.as_str()), ("KUMI_PAGES", "17,4"));
        assert_eq!(PageDescriptors::from_text(Some(value)), Ok(Some(pages)));
        assert_eq!(PageDescriptors::from_text(None), Ok(None));
        for wrong in ["", "1", "1,", "-1,2", "1,2,3", "a,b"] {
            assert!(PageDescriptors::from_text(Some(wrong.to_owned())).is_err(), "{wrong}");
        }
    }
}
