//! Transactions: calls that are recorded, and then run together on several servers.
//!
//! ```no_run
//! use kumi_call::transaction::Transaction;
//!
//! let (a, b, mut d) = ([1.0; 4], [2.0; 4], [0.0; 4]);
//! let mut tx = Transaction::new();
//! let (a, b, d) = (tx.input(&a), tx.input(&b), tx.array(&mut d));
//! let c = tx.intermediate();
//! tx.call("dmmul", vec![2.into(), a.into(), b.into(), c.into()]);
//! tx.call("dmmul", vec![2.into(), c.into(), b.into(), d.into()]);
//! let report = tx.run(&["one:7070", "two:7070"])?;
//! println!("{report}");
//! # Ok::<(), kumi_call::transaction::TransactionError>(())
//! ```
//!
//! What depends on what follows from the bytes that calls read and write. Calls that do not depend on each other run at
//! the same time. What only other calls read stays at the servers and goes from one to the other.

mod attempt;
mod chooser;
mod drive;
mod local_chooser;
mod metaserver_chooser;
mod place;
mod prepare;
mod report;
mod sources;

use std::marker::PhantomData;
use std::ops::Range;
use std::time::Duration;

use kumi_broker::{GraphError, UnknownPolicy};
use kumi_idl::{Order, Scalar};
use thiserror::Error;

pub use report::{MovedBytes, Report, StepReport};

use crate::client::{CallError, Grid, Options, Shape};
use crate::lent::{LentBytes, LentBytesMut, Number, bytes_of, bytes_of_mut};
use chooser::Target;

/// An array of a transaction, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    index: usize,
    /// First element and the one behind the last.
    part: Option<(u64, u64)>,
}

impl Data {
    /// Some of its elements, counted in the order in which they lie.
    #[must_use]
    pub fn part(self, elements: Range<u64>) -> Data {
        let first = self.part.map_or(0, |(first, _)| first);
        let part = Some((first.saturating_add(elements.start), first.saturating_add(elements.end)));
        Data { part, ..self }
    }
}

/// A recorded call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step(pub(crate) u32);

impl Step {
    /// The call that was recorded as the one with this number, counted from 0.
    #[must_use]
    pub fn of(number: u32) -> Step {
        Step(number)
    }
}

/// An argument of a recorded call.
#[derive(Debug, Clone, PartialEq)]
pub enum TxArg {
    /// The parameter's default.
    Default,
    /// A number.
    Scalar(Scalar),
    /// A text.
    Text(String),
    /// An array.
    Data(Data),
    /// An array that is sent, and another to which it comes back.
    InOut(Data, Data),
}

macro_rules! scalars {
    ($($ty:ty => $kind:ident),*) => {$(
        impl From<$ty> for TxArg {
            fn from(value: $ty) -> Self {
                TxArg::Scalar(Scalar::$kind(value.into()))
            }
        }
    )*};
}

scalars!(i32 => I64, i64 => I64, u32 => U64, u64 => U64, f32 => F64, f64 => F64);

impl From<&str> for TxArg {
    fn from(text: &str) -> TxArg {
        TxArg::Text(text.to_owned())
    }
}

impl From<Data> for TxArg {
    fn from(data: Data) -> TxArg {
        TxArg::Data(data)
    }
}

/// Where an array lies.
#[derive(Debug)]
enum Memory {
    /// At the caller, to be read.
    Read(LentBytes),
    /// At the caller.
    Write(LentBytesMut),
    /// At servers only.
    Intermediate,
}

#[derive(Debug)]
struct Datum {
    memory: Memory,
    /// What is known of it; nothing of an intermediate.
    shape: Option<Shape>,
}

#[derive(Debug)]
struct TransactionCall {
    routine: String,
    args: Vec<TxArg>,
}

/// How a transaction is run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// How the servers are connected to.
    pub connect: Options,
    /// Calls that a server is given at a time.
    pub in_flight: u32,
    /// How often a call is tried, counting those that are made again because their results were lost.
    pub attempts: u32,
    /// How a server is chosen.
    pub policy: String,
    /// How long results stay at servers.
    pub held: Duration,
    /// How long a call may take.
    pub time: Option<Duration>,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            connect: Options::default(),
            in_flight: 8,
            attempts: 4,
            policy: "min-completion".to_owned(),
            held: Duration::from_secs(3600),
            time: None,
        }
    }
}

/// Why a transaction did not run, or not to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// No server can be reached.
    #[error("no server can be reached: {0}")]
    NoServer(String),
    /// A metaserver does not take this client.
    #[error(transparent)]
    Refused(CallError),
    /// A description cannot be had.
    #[error("call {step}: {source}")]
    Call {
        /// Which call, counted from 0.
        step: u32,
        /// Why.
        source: CallError,
    },
    /// Arguments that do not fit; nothing has run.
    #[error("call {step} (`{routine}`): {text}")]
    Argument {
        /// Which call, counted from 0.
        step: u32,
        /// The routine.
        routine: String,
        /// What does not fit.
        text: String,
    },
    /// The graph cannot be.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// No such policy.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// The system fails.
    #[error("the transaction cannot run: {0}")]
    System(#[from] std::io::Error),
    /// Calls failed; the report says which, and what did not run because of them.
    #[error("{0}")]
    Failed(Box<Report>),
    /// It was cancelled.
    #[error("the transaction was cancelled\n{0}")]
    Cancelled(Box<Report>),
}

impl TransactionError {
    /// What became of the calls, if any was begun.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match self {
            TransactionError::Failed(report) | TransactionError::Cancelled(report) => Some(report),
            _ => None,
        }
    }
}

/// Calls that are recorded. The arrays are lent until it goes.
#[derive(Debug, Default)]
pub struct Transaction<'a> {
    data: Vec<Datum>,
    calls: Vec<TransactionCall>,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Transaction<'a> {
    /// Without calls.
    #[must_use]
    pub fn new() -> Transaction<'a> {
        Transaction::default()
    }

    fn add(&mut self, memory: Memory, shape: Option<Shape>) -> Data {
        self.data.push(Datum { memory, shape });
        Data { index: self.data.len() - 1, part: None }
    }

    fn flat<T: Number>() -> Option<Shape> {
        Some(Shape { element: T::ELEMENT, dims: None, order: Order::Row })
    }

    /// Numbers that calls read, in the order that the routine wants.
    pub fn input<T: Number>(&mut self, numbers: &'a [T]) -> Data {
        self.add(Memory::Read(LentBytes::slice(bytes_of(numbers))), Self::flat::<T>())
    }

    /// Numbers that calls read and write.
    pub fn array<T: Number>(&mut self, numbers: &'a mut [T]) -> Data {
        self.add(Memory::Write(LentBytesMut::slice(bytes_of_mut(numbers))), Self::flat::<T>())
    }

    /// Numbers of this shape that calls read; they are copied if the routine wants another order.
    pub fn shaped<T: Number>(&mut self, numbers: &'a [T], dims: &[u64], order: Order) -> Data {
        let shape = Shape { element: T::ELEMENT, dims: Some(dims.to_vec()), order };
        self.add(Memory::Read(LentBytes::slice(bytes_of(numbers))), Some(shape))
    }

    /// Numbers of this shape that calls read and write.
    pub fn shaped_mut<T: Number>(
        &mut self,
        numbers: &'a mut [T],
        dims: &[u64],
        order: Order,
    ) -> Data {
        let shape = Shape { element: T::ELEMENT, dims: Some(dims.to_vec()), order };
        self.add(Memory::Write(LentBytesMut::slice(bytes_of_mut(numbers))), Some(shape))
    }

    /// Memory that calls read. Arrays that are lent may overlap: what counts is which bytes a call reads or writes.
    pub fn lent(&mut self, lent: LentBytes, shape: Shape) -> Data {
        self.add(Memory::Read(lent), Some(shape))
    }

    /// Memory that calls read and write.
    pub fn lent_mut(&mut self, lent: LentBytesMut, shape: Shape) -> Data {
        self.add(Memory::Write(lent), Some(shape))
    }

    /// An array that one call makes and others read, as it travels between them; it never comes here.
    pub fn intermediate(&mut self) -> Data {
        self.add(Memory::Intermediate, None)
    }

    /// Records a call. The arguments are those of [`crate::Client::call`].
    pub fn call(&mut self, routine: &str, args: Vec<TxArg>) -> Step {
        self.calls.push(TransactionCall { routine: routine.to_owned(), args });
        Step(u32::try_from(self.calls.len() - 1).unwrap_or(u32::MAX))
    }

    /// Calls that are recorded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether nothing is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Runs the calls on these servers. All arguments are checked before anything is sent.
    ///
    /// # Errors
    /// [`TransactionError`].
    pub fn run<S: AsRef<str>>(&mut self, servers: &[S]) -> Result<Report, TransactionError> {
        self.run_with(servers, &RunOptions::default(), &|| false)
    }

    /// [`Transaction::run`] with options. `interrupted` is asked again and again; when it says so the
    /// transaction is cancelled.
    ///
    /// # Errors
    /// [`TransactionError`].
    pub fn run_with<S: AsRef<str>>(
        &mut self,
        servers: &[S],
        options: &RunOptions,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Report, TransactionError> {
        let servers: Vec<&str> = servers.iter().map(AsRef::as_ref).collect();
        drive::run(self, Target::Servers(&servers), options, interrupted)
    }

    /// What would run, without running it: what depends on what. Descriptions are asked of these servers.
    ///
    /// # Errors
    /// [`TransactionError`].
    pub fn plan<S: AsRef<str>>(
        &self,
        servers: &[S],
        options: &RunOptions,
    ) -> Result<Report, TransactionError> {
        let servers: Vec<&str> = servers.iter().map(AsRef::as_ref).collect();
        drive::plan(self, Target::Servers(&servers), options)
    }

    /// Runs the calls on servers that a metaserver chooses, which knows where their intermediate arrays lie. All
    /// arguments are checked before anything is sent.
    ///
    /// # Errors
    /// [`TransactionError`].
    pub fn run_on(&mut self, grid: &Grid) -> Result<Report, TransactionError> {
        self.run_on_with(grid, &RunOptions::default(), &|| false)
    }

    /// [`Transaction::run_on`] with options, of which `connect`, `in_flight` and `policy` do not matter: connections are
    /// made as the metaserver's was, on one of this transaction's own, and the rest is the metaserver's. `interrupted` is
    /// as in [`Transaction::run_with`].
    ///
    /// # Errors
    /// [`TransactionError`].
    pub fn run_on_with(
        &mut self,
        grid: &Grid,
        options: &RunOptions,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Report, TransactionError> {
        drive::run(self, Target::Grid(grid), options, interrupted)
    }

    /// [`Transaction::plan`], with descriptions of a metaserver.
    ///
    /// # Errors
    /// [`TransactionError`].
    pub fn plan_on(&self, grid: &Grid, options: &RunOptions) -> Result<Report, TransactionError> {
        drive::plan(self, Target::Grid(grid), options)
    }
}
