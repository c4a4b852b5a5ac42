//! Scheduling policies, tested from outside: one program, since each would be linked with the crate anew.
#![forbid(unsafe_code)]

mod batch;
mod batch_backfill;
mod batch_trace;
mod demands;
mod dhc;
mod dqt;
mod limits;
mod matrix;
mod obstacles;
mod registry;
mod renewed_columns;
mod rounds;
mod scan;
mod shares;
mod slice;
