//! Random bytes that nobody can guess.

use ring::rand::{SecureRandom, SystemRandom};

use crate::exit::{ExitCode, Failure};

/// So many random bytes.
///
/// # Errors
/// The kernel gives none.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| {
        Failure::new(
            ExitCode::MachineLimits,
            "the kernel gives no random numbers; see whether a sandbox forbids getrandom and /dev/urandom",
        )
    })?;
    Ok(bytes)
}
