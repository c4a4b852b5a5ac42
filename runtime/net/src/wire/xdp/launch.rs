//! What a rank inherits for AF_XDP, and the environment variable that names it.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use crate::segment::launch::{LaunchError, descriptors, prepare};

/// The variable that names the descriptors.
const NAME: &str = "KUMI_XDP";

/// The descriptors that a rank inherits for AF_XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpDescriptors {
    /// The socket, not bound yet.
    pub socket: RawFd,
    /// The memory of its frames.
    pub memory: RawFd,
    /// The table of next hops.
    pub hops: RawFd,
    /// The writing end of a pipe. A byte says that the rank has mapped everything: the daemon then binds the socket.
    pub ready: RawFd,
}

/// The same, owned by this process.
#[derive(Debug)]
pub struct XdpParts {
    /// The socket, not bound yet.
    pub socket: OwnedFd,
    /// The memory of its frames.
    pub memory: OwnedFd,
    /// The table of next hops.
    pub hops: OwnedFd,
    /// The writing end of a pipe.
    pub ready: OwnedFd,
}

impl XdpDescriptors {
    /// The variable to set for the rank.
    #[must_use]
    pub fn to_env(&self) -> (String, String) {
        let XdpDescriptors { socket, memory, hops, ready } = self;
        (NAME.to_owned(), format!("{socket},{memory},{hops},{ready}"))
    }

    /// Takes the descriptors over.
    ///
    /// # Safety
    /// As [`crate::launch::LaunchBlock::adopt`].
    ///
    /// # Errors
    /// As [`crate::launch::LaunchBlock::adopt`].
    pub unsafe fn adopt(&self) -> Result<XdpParts, LaunchError> {
        let all = [self.socket, self.memory, self.hops, self.ready];
        prepare(&all.map(|raw| (raw, "a part of AF_XDP")))?;
        // SAFETY: open, different (as `from_text` checks), and owned by nobody else by the caller's promise.
        let [socket, memory, hops, ready] = all.map(|raw| unsafe { OwnedFd::from_raw_fd(raw) });
        Ok(XdpParts { socket, memory, hops, ready })
    }

    /// Reads the variable of this process; none if it is not set: the rank has no AF_XDP.
    ///
    /// # Errors
    /// [`LaunchError::BadVariable`].
    pub fn from_env() -> Result<Option<XdpDescriptors>, LaunchError> {
        XdpDescriptors::from_text(std::env::var(NAME).ok())
    }

    fn from_text(text: Option<String>) -> Result<Option<XdpDescriptors>, LaunchError> {
        let Some(found) = text else { return Ok(None) };
        match descriptors(&found).as_deref() {
            Some(&[socket, memory, hops, ready]) => {
                Ok(Some(XdpDescriptors { socket, memory, hops, ready }))
            }
            _ => Err(LaunchError::BadVariable { name: NAME, found }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_go_through_the_environment() {
        let parts = XdpDescriptors { socket: 9, memory: 8, hops: 7, ready: 6 };
        let (name, value) = parts.to_env();
        assert_eq!((name.as_str(), value.as_str()), ("KUMI_XDP", "9,8,7,6"));
        assert_eq!(XdpDescriptors::from_text(Some(value)), Ok(Some(parts)));
        assert_eq!(XdpDescriptors::from_text(None), Ok(None));
        for wrong in ["", "9", "9,8,7", "9,8,7,6,5", "9,8,7,7", "2,8,7,6", "9,8,7,-1", "9,8,7,x"] {
            assert!(XdpDescriptors::from_text(Some(wrong.to_owned())).is_err(), "{wrong}");
        }
    }
}
