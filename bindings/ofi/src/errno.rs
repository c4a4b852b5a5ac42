//! Numbers of `rdma/fi_errno.h` and flags that the engine tells.

use kumi_messaging::{Failure, Refused};

/// `FI_REMOTE_WRITE | FI_RMA`: another rank has written memory of this one.
pub(crate) const REMOTE_WRITE: u64 = 1 << 13 | 1 << 2;

/// As libfabric has it beyond the system's numbers.
const FI_ETRUNC: i32 = 265;
/// `FI_ENOKEY`.
pub(crate) const ENOKEY: i32 = 266;

/// The number of a failure.
pub(crate) fn of_failure(failure: Failure) -> i32 {
    match failure {
        Failure::TooLong(_) => FI_ETRUNC,
        Failure::Cancelled => libc::ECANCELED,
        Failure::NoMessage => libc::ENOMSG,
        Failure::NoEndpoint => libc::ECONNREFUSED,
        Failure::NoAccess => libc::EACCES,
        Failure::NotSupported => libc::EOPNOTSUPP,
        Failure::Broken => libc::EIO,
    }
}

/// The number of a call's refusal.
pub(crate) fn of_refusal(refused: Refused) -> i32 {
    match refused {
        Refused::Again => libc::EAGAIN,
        Refused::NoEndpoint => libc::EADDRNOTAVAIL,
        Refused::Lengths => libc::EINVAL,
    }
}
