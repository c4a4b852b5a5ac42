//! `kumi._native`: the Python package's layer in Rust.
//!
//! Users see `python/kumi/`, which checks shapes and element types. It calls this module with buffers and
//! byte offsets. Each function here turns buffers into slices, releases the interpreter's lock, calls
//! [`kumi_mem`], and turns an error into an exception of `kumi._errors`.
//!
//! | module | what it holds |
//! |---|---|
//! | `state` | the one [`kumi_mem::Context`] of the process, and the rules for using it |
//! | `turn` | threads that would wait for the same |
//! | `shared` | shared memory of all ranks |
//! | `private_copy` | copies of memory that operations cannot work on |
//! | `buffer` | contiguous memory of Python objects, for the length of a call |
//! | `error` | conversion of errors to exceptions |
//! | `number` | numbers that Python passes |
//! | `call` | calls of routines on servers: connections, arguments, results |
//! | `target` | targets of calls: servers, metaservers, objects |
//! | `object` | objects of classes |
//! | `held` | arrays that a server holds |
//! | `slot` | functions of Python as routines |
//! | `transaction` | calls that are recorded and run together |
//! | `request`, `collective` | operations that go on after their call |
//! | `control`, `message`, `claim`, `window`, `transfer`, `list`, `fifo`, `group`, `machine` | the functions |

mod buffer;
mod call;
mod call_name;
mod callback;
mod claim;
mod collective;
mod control;
mod error;
mod fifo;
mod group;
mod held;
mod list;
mod logs;
mod machine;
mod message;
mod number;
mod object;
mod private_copy;
mod request;
mod shared;
mod slot;
mod state;
mod target;
mod transaction;
mod transfer;
mod turn;
mod wake_event;
mod window;

use pyo3::prelude::*;

/// The module's contents. Its tables rely on the interpreter's lock: an interpreter that can do without takes it back.
#[pymodule(gil_used = true)]
mod _native {
    /// Bytes that a FIFO or signal port takes beside its capacity.
    #[pymodule_export]
    const FIFO_OVERHEAD: usize = kumi_mem::FIFO_OVERHEAD;
    /// The offset of a FIFO or signal port is a multiple of this.
    #[pymodule_export]
    const FIFO_ALIGNMENT: usize = kumi_mem::FIFO_ALIGNMENT;

    /// How this module was built: `release` or `debug`.
    #[pymodule_export]
    const BUILD_PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };
    /// The commit of the build, which make sets.
    #[pymodule_export]
    const BUILD_COMMIT: &str = match option_env!("KUMI_COMMIT") {
        Some(commit) => commit,
        None => "unknown",
    };

    #[pymodule_export]
    use crate::call::{
        NativeCall, NativeClient, NativeOutput, call_remaining, call_traceparent,
        set_call_traceparent,
    };
    #[pymodule_export]
    use crate::claim::{NativeClaim, await_claim, claim};
    #[pymodule_export]
    use crate::control::{
        barrier, collectives_begun, fence, finalize, flush, forked, initialise, job, node, owned,
        progress, rank, renew_collectives, same_node, size, time, will_renew_collectives,
    };
    #[pymodule_export]
    use crate::fifo::{NativeFifo, append, max_record, multicast_append, on_signal, remove_signal};
    #[pymodule_export]
    use crate::group::NativeGroup;
    #[pymodule_export]
    use crate::held::NativeHeld;
    #[pymodule_export]
    use crate::list::{get_list, put_list};
    #[pymodule_export]
    use crate::logs::NativeLogSources;
    #[pymodule_export]
    use crate::machine::{cluster_nodes, node_load, rank_runs};
    #[pymodule_export]
    use crate::message::{probe, recv, recv_into, send, sendrecv};
    #[pymodule_export]
    use crate::object::NativeObject;
    #[pymodule_export]
    use crate::request::{
        NativeRequest, collect_ends, ends_descriptor, start_atomic, start_get, start_put,
        start_receive, start_send, wait_any,
    };
    #[pymodule_export]
    use crate::shared::{
        NativeSharedBytes, shared_bring, shared_lock, shared_reset, shared_set, shared_start,
        shared_statistics, shared_unlock, shared_wait,
    };
    #[pymodule_export]
    use crate::slot::{NativeFunction, NativeMemory, describe_routines, run_slot};
    #[pymodule_export]
    use crate::transaction::run_transaction;
    #[pymodule_export]
    use crate::transfer::{NativeCompletion, atomic, get_blocks, multicast, put_blocks};
    #[pymodule_export]
    use crate::wake_event::{NativeCallSet, NativeWakeEvent};
    #[pymodule_export]
    use crate::window::{NativeWindow, reap};
}
