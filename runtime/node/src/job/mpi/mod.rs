//! Start of MPI programs: a server for each job on the node, which tells its ranks who they are.
//!
//! The server is a process of its own, with the rights of the job's user and in the job's control group. It speaks the
//! protocols of MPI libraries. The daemon hears from it only what is in [`kumi_pmi::message`], and believes of that no more
//! than of what ranks write.

pub mod environment;
pub mod folder;
mod launch;
mod link;
pub mod setting;

pub(super) use launch::{MpiLaunch, MpiParts, ServerProcess};
pub(super) use link::{MpiLink, ServerMessage, Standing};
