//! `libkumi`: the C interface of Kumi.
//!
//! `include/kumi.h` is the documentation of every function here; this crate
//! is the thin layer below it. Each function checks its arguments, turns
//! pointers and lengths into slices, calls [`kumi_mem`] and turns the outcome
//! into a number. A panic stops at this boundary and becomes
//! [`Code::Internal`]: unwinding never reaches C.
//!
//! | module | what it holds |
//! |---|---|
//! | `code` | the error numbers, their texts, and the last failure's detail |
//! | `state` | the one [`kumi_mem::Context`] of the process, and who may use it |
//! | `handle` | the windows, FIFOs, completions and groups that C holds |
//! | `args` | checks of pointers, lengths, ranks and tags |
//! | `control`, `machine`, `message`, `window`, `atomic`, `transfer`, `list`, `group`, `call`, `collective`, `blocks`, `job_wide`, `fifo`, `records` | the functions |
//! | `dsm` | memory that all ranks see |
//! | `locate` | the call in which a thread waits |
//! | `request`, `begin`, `wait`, `queue`, `claim` | operations that go on after their call, and their ends |

mod args;
mod atomic;
mod begin;
mod blocks;
mod call;
mod claim;
mod code;
mod collective;
mod control;
mod dsm;
mod fifo;
mod group;
mod handle;
mod job_wide;
mod list;
mod locate;
mod machine;
mod message;
mod queue;
mod records;
mod request;
mod state;
mod transfer;
mod wait;
mod window;

pub use atomic::{
    kumi_window_compare_swap, kumi_window_compare_swap_u32, kumi_window_fetch_add,
    kumi_window_fetch_add_u32, kumi_window_fetch_and, kumi_window_fetch_and_u32,
    kumi_window_fetch_or, kumi_window_fetch_or_u32, kumi_window_fetch_xor,
    kumi_window_fetch_xor_u32, kumi_window_swap, kumi_window_swap_u32,
};
pub use begin::{
    kumi_group_iallgather, kumi_group_iallgatherv, kumi_group_iallreduce, kumi_group_ialltoall,
    kumi_group_ialltoallv, kumi_group_ibarrier, kumi_group_ibroadcast, kumi_group_iexclusive_scan,
    kumi_group_igather, kumi_group_igatherv, kumi_group_ireduce, kumi_group_ireduce_scatter,
    kumi_group_ireduce_scatterv, kumi_group_iscan, kumi_group_iscatter, kumi_group_iscatterv,
};
pub use blocks::{
    kumi_group_allgather, kumi_group_allgatherv, kumi_group_alltoall, kumi_group_alltoallv,
    kumi_group_gather, kumi_group_gatherv, kumi_group_reduce_scatter, kumi_group_reduce_scatterv,
    kumi_group_scatter, kumi_group_scatterv,
};
pub use claim::{
    KumiClaim, kumi_claim_free, kumi_claim_recv, kumi_message_await, kumi_message_claim,
};
pub use code::Code;
pub use collective::{
    kumi_group_allreduce, kumi_group_barrier, kumi_group_broadcast, kumi_group_exclusive_scan,
    kumi_group_reduce, kumi_group_scan,
};
pub use control::{
    kumi_error_detail, kumi_error_report, kumi_error_string, kumi_finalize, kumi_init,
    kumi_init_threads, kumi_job, kumi_node, kumi_rank, kumi_size, kumi_time, kumi_version,
};
pub use dsm::{
    KumiDsmHome, kumi_dsm_allocate, kumi_dsm_at, kumi_dsm_barrier, kumi_dsm_blocks, kumi_dsm_bring,
    kumi_dsm_end, kumi_dsm_first_touch, kumi_dsm_lock, kumi_dsm_reset_condition,
    kumi_dsm_round_robin, kumi_dsm_set_condition, kumi_dsm_start, kumi_dsm_statistics,
    kumi_dsm_unlock, kumi_dsm_updated, kumi_dsm_wait, kumi_dsm_wait_condition,
};
pub use fifo::{
    KumiFifo, KumiSignalHandler, kumi_fifo_append, kumi_fifo_create, kumi_fifo_free,
    kumi_fifo_max_record, kumi_fifo_pop, kumi_fifo_try_append, kumi_fifo_try_pop,
    kumi_signal_handle, kumi_signal_remove, kumi_signal_send, kumi_signal_try_send,
};
pub use group::{
    KumiCombine, KumiGroup, kumi_group_duplicate, kumi_group_find, kumi_group_free,
    kumi_group_member, kumi_group_members, kumi_group_rank, kumi_group_split, kumi_group_subset,
    kumi_op_create, kumi_op_free,
};
pub use job_wide::{
    kumi_allreduce, kumi_alltoall, kumi_alltoallv, kumi_barrier, kumi_broadcast, kumi_gather,
    kumi_iallreduce, kumi_ialltoall, kumi_ialltoallv, kumi_ibarrier, kumi_ibroadcast, kumi_igather,
    kumi_ireduce, kumi_reduce,
};
pub use list::{
    KumiBuffer, KumiPiece, kumi_window_get_list, kumi_window_get_lists, kumi_window_put_list,
    kumi_window_put_lists,
};
pub use machine::{
    kumi_cluster_nodes, kumi_node_age, kumi_node_load, kumi_node_memory, kumi_node_network,
    kumi_rank_runs,
};
pub use message::{
    KumiStatus, kumi_fence, kumi_flush, kumi_message_probe, kumi_message_recv, kumi_message_send,
    kumi_message_sendrecv, kumi_progress,
};
pub use queue::{KumiQueue, kumi_queue_create, kumi_queue_free, kumi_queue_poll, kumi_queue_wait};
pub use records::{
    kumi_fifo_multicast, kumi_fifo_try_multicast, kumi_signal_multicast, kumi_signal_try_multicast,
};
pub use request::{
    KumiReport, kumi_message_irecv, kumi_message_isend, kumi_window_iatomic,
    kumi_window_iatomic_u32, kumi_window_iget, kumi_window_iput,
};
pub use transfer::{
    KumiCompletion, kumi_completion_create, kumi_completion_done, kumi_completion_free,
    kumi_completion_wait, kumi_completion_wait_all, kumi_window_get_strided, kumi_window_multicast,
    kumi_window_put_strided, kumi_window_put_with,
};
pub use wait::{
    KumiResult, kumi_request_cancel, kumi_request_count, kumi_request_release, kumi_request_test,
    kumi_request_test_all, kumi_request_test_any, kumi_request_test_some, kumi_request_wait,
    kumi_request_wait_all, kumi_request_wait_any, kumi_request_wait_some,
};
pub use window::{
    KumiWindow, kumi_window_base, kumi_window_create, kumi_window_free, kumi_window_get,
    kumi_window_notified, kumi_window_put, kumi_window_put_notify, kumi_window_wait_notify,
};
