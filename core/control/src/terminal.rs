//! Terminals of jobs: a pseudo-terminal that rank 0 has instead of pipes.

use serde::{Deserialize, Serialize};

/// Size of a terminal's window, in characters. 0 is a size that nobody knows, as for every terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}
