//! `libkumi_grpc`: calls of routines from C, C++ and Fortran.
//!
//! `include/grpc.h` is the documentation of every function here: the GridRPC interface (GFD-R.052), with the
//! extensions of Ninf-G that have a meaning here. This crate is the layer between it and [`kumi_call_client`]: it turns what a
//! program passes into arguments by the routine's description, and outcomes into codes. A panic stops at this boundary and
//! becomes [`Code::OtherErrorCode`].
//!
//! | module | what it holds |
//! |---|---|
//! | `code` | error codes, and the last failure of a thread |
//! | `config`, `runtime` | configuration, connections, start and end |
//! | `handle`, `attribute` | function handles and what they may be told |
//! | `object` | object handles |
//! | `held` | arrays at servers |
//! | `output` | what routines print |
//! | `address`, `registry` | what programs know by its address |
//! | `argument`, `typed`, `returned` | from the program's memory to arguments, and results back |
//! | `transaction` | recorded calls that run together |
//! | `passing` | files, and functions of the program |
//! | `call`, `variadic`, `stack` | the ways to call |
//! | `session`, `wait`, `report` | sessions: waiting, cancelling, what came of them |

mod address;
mod argument;
mod attribute;
mod c_function;
mod call;
mod code;
mod config;
mod handle;
mod held;
mod object;
mod output;
mod passing;
mod recorded;
mod registry;
mod report;
mod returned;
mod runtime;
mod session;
mod stack;
mod transaction;
mod typed;
mod variadic;
mod wait;

pub use attribute::*;
pub use code::Code;
pub use handle::{
    GrpcFunctionHandle, grpc_function_handle_array_default_np,
    grpc_function_handle_array_destruct_np, grpc_function_handle_array_init_np,
    grpc_function_handle_array_init_with_attr_np, grpc_function_handle_default,
    grpc_function_handle_destruct, grpc_function_handle_init,
    grpc_function_handle_init_with_attr_np, grpc_get_handle,
};
pub use held::{
    GrpcHeldArray, grpc_held_array_bytes_np, grpc_held_array_create_np, grpc_held_array_fetch_np,
    grpc_held_array_put_np, grpc_held_array_release_np,
};
pub use object::{
    GrpcObjectHandle, grpc_object_handle_array_default_np, grpc_object_handle_array_destruct_np,
    grpc_object_handle_array_init_np, grpc_object_handle_array_init_with_attr_np,
    grpc_object_handle_default_np, grpc_object_handle_destruct_np, grpc_object_handle_get_attr_np,
    grpc_object_handle_get_from_session_np, grpc_object_handle_init_np,
    grpc_object_handle_init_with_attr_np, grpc_object_handle_is_ready_np,
    grpc_session_attr_initialize_with_object_handle_np,
};
pub use output::{
    GrpcOutput, grpc_function_handle_output_np, grpc_object_handle_output_np,
    grpc_output_create_np, grpc_output_destruct_np, grpc_output_take_np,
};
pub use passing::grpc_callback_failed_np;
pub use report::*;
pub use runtime::{grpc_finalize, grpc_initialize};
pub use stack::*;
pub use transaction::{
    GrpcIntermediate, GrpcTransaction, grpc_transaction_abandon_np, grpc_transaction_begin_np,
    grpc_transaction_call_arg_stack_np, grpc_transaction_destruct_np, grpc_transaction_end_np,
    grpc_transaction_get_error_np, grpc_transaction_intermediate_np, grpc_transaction_priority_np,
    kumi_grpc_transaction_call_arguments,
};
pub use typed::GrpcArgument;
pub use variadic::{
    grpc_call, grpc_call_async, grpc_call_async_with_attr_np, grpc_call_with_attr_np,
    grpc_invoke_async_np, grpc_invoke_async_with_attr_np, grpc_invoke_np, grpc_invoke_with_attr_np,
    grpc_transaction_call_np,
};
pub use wait::*;
