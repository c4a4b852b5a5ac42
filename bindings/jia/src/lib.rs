//! `libjia`: the interface of JIAJIA (Institute of Computing Technology, Chinese Academy of Sciences, 1997) on Kumi's shared memory.
//!
//! `include/jia.h` is the documentation of every function here. Programs for JIAJIA compile unchanged; `kumi run` starts their
//! processes. As there, a function that fails says so on stderr and ends the job.
//!
//! | module | what it holds |
//! |---|---|
//! | `state` | the job and its memory, from `jia_init` to `jia_exit` |
//! | `allocate` | where pages have their homes |
//! | `synchronise` | locks, barriers, conditions |
//! | `message` | messages, broadcast, reduction |
//! | `load` | settings, clock, division of loops |

mod allocate;
mod load;
mod message;
mod state;
mod synchronise;

// Its functions are of no use here but to programs, which find them by their names.
use kumi_interpose as _;
