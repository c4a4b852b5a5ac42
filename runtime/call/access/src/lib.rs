//! Who may call: listeners with a limit on strangers, users with their tokens, passes of metaservers, and vouchers for
//! arrays. Servers and metaservers share it.
#![forbid(unsafe_code)]

mod handshake_limit;
pub mod listener;
pub mod pass;
mod signed;
pub mod users;
pub mod voucher;

pub use handshake_limit::{HandshakeLimit, HandshakePermit, RefusalCounters, evicted};
pub use listener::{Listener, ServeError, raise_open_files};
pub use users::refused;

use kumi_call_wire::random;
