//! Interface descriptions of routines that are called over the network (Ninf paper, section 2; the Ninf form with the spellings of
//! GridRPC systems).
//!
//! A description declares the parameters of a routine: types, modes, and shapes as expressions of scalar parameters. Clients
//! fetch it as JSON and need no stub. Before any byte is sent, client and server compute the same plan of the transfers.
//!
//! This crate knows no socket, no file and no library.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod callers;
mod copy;
mod defaults;
mod excerpt;
mod expr;
mod expr_display;
mod infer_sizes;
mod json;
mod model;
mod parallel;
mod plan;
mod scalar;
mod section;
mod similar_names;
#[cfg(feature = "stubs")]
mod stubs;
mod symbol_arguments;
#[cfg(feature = "text")]
mod text;
mod validate;
mod words;

pub use copy::WrongLength;
pub use expr::EvalError;
pub use json::JsonError;
pub use model::{
    Binary, Class, Dimension, Element, Expr, Function, Interface, Language, Mode, Module, Order,
    Param, Target, Type, Unary,
};
pub use parallel::Parallel;
pub use plan::{Argument, ArgumentForm, Limits, Part, Plan, PlanError};
pub use scalar::{Scalar, letter};
pub use section::{Axis, Run, Runs, Section};
pub use similar_names::nearest;
#[cfg(feature = "stubs")]
pub use stubs::{NoStub, StubFile, StubLanguage, Stubs, stubs};
#[cfg(feature = "text")]
pub use text::{
    Code, CodeLines, Diagnostic, MOST_DIAGNOSTICS, MOST_TEXT, ParsedText, Severity, parse,
};
pub use validate::{MOST_NAME, MOST_PROBLEMS, MOST_REQUIRED, Place, Problem, ProblemKind};
