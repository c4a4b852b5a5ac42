//! Progress lines of a program, for [`crate::meter`].

use std::time::{SystemTime, UNIX_EPOCH};

/// Prints `PROGRESS <steps> <seconds since 1970>`.
pub fn show(steps: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    println!("PROGRESS {steps} {now:.6}");
}
