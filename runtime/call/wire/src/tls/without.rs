//! What stands for TLS in a program without it: sessions that cannot begin.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use super::TlsError;
use crate::native::{Source, Target};

/// A session. There is none.
#[derive(Debug)]
pub enum TlsSession {}

impl TlsSession {
    /// As with TLS.
    pub fn wants_write(&self) -> bool {
        match *self {}
    }

    /// As with TLS.
    pub fn has_input(&mut self) -> bool {
        match *self {}
    }

    /// As with TLS.
    pub fn read(&mut self, _: BorrowedFd<'_>, _: Target<'_>, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    /// As with TLS.
    pub fn write<'a>(
        &mut self,
        _: BorrowedFd<'_>,
        _: impl Iterator<Item = Source<'a>>,
    ) -> io::Result<usize> {
        match *self {}
    }

    /// As with TLS.
    pub fn flush(&mut self, _: BorrowedFd<'_>) -> io::Result<bool> {
        match *self {}
    }

    /// As with TLS.
    pub fn agree(&mut self, _: BorrowedFd<'_>) -> io::Result<()> {
        match *self {}
    }

    /// As with TLS.
    pub fn close(&mut self, _: BorrowedFd<'_>) {
        match *self {}
    }
}

/// Refuses.
///
/// # Errors
/// [`TlsError::NotBuilt`].
pub fn begin(_: &str, _: Option<&Path>) -> Result<TlsSession, TlsError> {
    Err(TlsError::NotBuilt)
}

/// The text of an error: there are none of TLS.
pub fn advice(error: &io::Error) -> String {
    error.to_string()
}
