//! Transactions: recorded calls that run together on several servers.
//!
//! ```no_run
//! use kumi_call_client::transaction::Transaction;
//!
//! let (a, b, mut d) = ([1.0; 4], [2.0; 4], [0.0; 4]);
//! let mut tx = Transaction::new();
//! let (a, b, d) = (tx.input(&a), tx.input(&b), tx.array(&mut d));
//! let c = tx.intermediate();
//! tx.call("dmmul", vec![2.into(), a.into(), b.into(), c.into()]);
//! tx.call("dmmul", vec![2.into(), c.into(), b.into(), d.into()]);
//! let report = tx.run(&["one:7070", "two:7070"])?;
//! println!("{report}");
//! # Ok::<(), kumi_call_client::transaction::TransactionError>(())
//! ```
//!
//! Dependencies follow from the bytes that calls read and write. Independent calls run at the same time.
//! Arrays that only other calls read stay at the servers and go from one to the other.

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

pub use kumi_broker::State as StepState;
pub use report::{MovedBytes, Report, StepReport};

use crate::lent::{LentBytes, LentBytesMut, Number};
use crate::{Arg, Array, ArrayMut, CallError, Grid, Options, Resources, Shape};
use chooser::Target;

/// An array of a transaction, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    index: usize,
    /// First element, and the one behind the last.
    part: Option<(u64, u64)>,
}

impl Data {
    /// Some of its elements, in memory order.
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
    /// The call that was recorded with this number, counted from 0.
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
    /// An array that is sent, and another that receives the result.
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

/// The location of an array.
#[derive(Debug)]
enum Memory {
    /// The caller's memory, read only.
    Read(LentBytes),
    /// The caller's memory.
    Write(LentBytesMut),
    /// Servers only.
    Intermediate,
}

#[derive(Debug)]
struct Datum {
    memory: Memory,
    /// Its shape, if known; none for an intermediate array.
    shape: Option<Shape>,
}

#[derive(Debug)]
struct TransactionCall {
    routine: String,
    args: Vec<TxArg>,
    /// Its time limit; `None`: that of the run.
    time: Option<Duration>,
    /// What it asks for.
    resources: Option<Resources>,
}

/// Options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// How to connect to the servers.
    pub connect: Options,
    /// Most calls that a server gets at a time.
    pub in_flight: u32,
    /// Most attempts of a call, including repetitions for lost results.
    pub attempts: u32,
    /// Policy for choosing servers.
    pub policy: String,
    /// How long results stay at servers.
    pub held: Duration,
    /// Time limit of a call.
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
    /// The metaserver refuses this client.
    #[error(transparent)]
    Refused(CallError),
    /// A description is not available.
    #[error("call {step}: {source}")]
    Call {
        /// Index of the call, counted from 0.
        step: u32,
        /// The reason.
        source: CallError,
    },
    /// The arguments of a call do not fit. Nothing has run.
    #[error("call {step} (`{routine}`): {text}")]
    Argument {
        /// Index of the call, counted from 0.
        step: u32,
        /// The routine.
        routine: String,
        /// What does not fit.
        text: String,
    },
    /// The dependencies cannot be computed.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The policy does not exist.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// An error of the system.
    #[error("the transaction cannot run: {0}")]
    System(#[from] std::io::Error),
    /// Calls failed. The report names them, and the calls that depended on them.
    #[error("{0}")]
    Failed(Box<Report>),
    /// The transaction was cancelled.
    #[error("the transaction was cancelled\n{0}")]
    Cancelled(Box<Report>),
}

impl TransactionError {
    /// The report on the calls, if any was started.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match self {
            TransactionError::Failed(report) | TransactionError::Cancelled(report) => Some(report),
            _ => None,
        }
    }
}

/// A list of recorded calls. Arrays are lent to it until it is dropped.
#[derive(Debug, Default)]
pub struct Transaction<'a> {
    data: Vec<Datum>,
    calls: Vec<TransactionCall>,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Transaction<'a> {
    /// An empty transaction.
    #[must_use]
    pub fn new() -> Transaction<'a> {
        Transaction::default()
    }

    fn add(&mut self, memory: Memory, shape: Option<Shape>) -> Data {
        self.data.push(Datum { memory, shape });
        Data { index: self.data.len() - 1, part: None }
    }

    fn read(&mut self, array: Array<'a>) -> Data {
        self.lent(array.lent, array.shape)
    }

    fn write(&mut self, array: ArrayMut<'a>) -> Data {
        self.lent_mut(array.lent, array.shape)
    }

    /// Numbers that calls read, in the routine's order.
    pub fn input<T: Number>(&mut self, numbers: &'a [T]) -> Data {
        self.read(Array::flat(numbers))
    }

    /// Numbers that calls read and write.
    pub fn array<T: Number>(&mut self, numbers: &'a mut [T]) -> Data {
        self.write(ArrayMut::flat(numbers))
    }

    /// Numbers of this shape that calls read. A different order is converted by a copy.
    pub fn shaped<T: Number>(&mut self, numbers: &'a [T], dims: &[u64], order: Order) -> Data {
        self.read(Array::shaped(numbers, dims, order))
    }

    /// Numbers of this shape that calls read and write.
    pub fn shaped_mut<T: Number>(
        &mut self,
        numbers: &'a mut [T],
        dims: &[u64],
        order: Order,
    ) -> Data {
        self.write(ArrayMut::shaped(numbers, dims, order))
    }

    /// Memory that calls read. Lent arrays may overlap: only the bytes that a call reads or writes count.
    pub fn lent(&mut self, lent: LentBytes, shape: Shape) -> Data {
        self.add(Memory::Read(lent), Some(shape))
    }

    /// Memory that calls read and write.
    pub fn lent_mut(&mut self, lent: LentBytesMut, shape: Shape) -> Data {
        self.add(Memory::Write(lent), Some(shape))
    }

    /// An array that one call makes and others read. It never comes to the client.
    pub fn intermediate(&mut self) -> Data {
        self.add(Memory::Intermediate, None)
    }

    /// Records a call, with arguments as in [`crate::Client::call`].
    pub fn call(&mut self, routine: &str, args: Vec<TxArg>) -> Step {
        let routine = routine.to_owned();
        self.calls.push(TransactionCall { routine, args, time: None, resources: None });
        Step(u32::try_from(self.calls.len() - 1).unwrap_or(u32::MAX))
    }

    /// Lends the memory of arguments as other calls have them, for a call of this transaction. `None`: transactions take no files,
    /// no functions, and no arrays at servers but their own. Then nothing is lent.
    pub fn lend(&mut self, args: Vec<Arg<'a>>) -> Option<Vec<TxArg>> {
        let is_taken =
            |arg: &Arg<'_>| !matches!(arg, Arg::File(_) | Arg::Callback(_) | Arg::Remote(_));
        if !args.iter().all(is_taken) {
            return None;
        }
        args.into_iter().map(|arg| self.lend_one(arg)).collect()
    }

    fn lend_one(&mut self, arg: Arg<'a>) -> Option<TxArg> {
        Some(match arg {
            Arg::Default => TxArg::Default,
            Arg::Scalar(scalar) => TxArg::Scalar(scalar),
            Arg::Text(text) => TxArg::Text(text.into_owned()),
            Arg::In(array) => TxArg::Data(self.read(array)),
            Arg::Out(array) => TxArg::Data(self.write(array)),
            Arg::InOut(from, to) => TxArg::InOut(self.read(from), self.write(to)),
            Arg::File(_) | Arg::Callback(_) | Arg::Remote(_) => return None,
        })
    }

    /// Sets the time limit of a recorded call, in place of [`RunOptions::time`].
    pub fn limit(&mut self, step: Step, time: Duration) {
        if let Some(call) = self.calls.get_mut(step.0 as usize) {
            call.time = Some(time);
        }
    }

    /// Has a recorded call ask for these resources, as calls of [`crate::Client::with_resources`] do. A server that does not give
    /// them is left for the next one.
    pub fn ask_resources(&mut self, step: Step, resources: Resources) {
        if let Some(call) = self.calls.get_mut(step.0 as usize) {
            call.resources = Some(resources);
        }
    }

    /// Number of recorded calls.
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

    /// [`Transaction::run`] with options. `interrupted` is asked from time to time, and cancels the
    /// transaction by returning true.
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

    /// The calls and their dependencies, without running them. These servers are asked for descriptions.
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

    /// Runs the calls on servers that a metaserver chooses. The metaserver knows where intermediate arrays
    /// are. All arguments are checked before anything is sent.
    ///
    /// # Errors
    /// [`TransactionError`].
    pub fn run_on(&mut self, grid: &Grid) -> Result<Report, TransactionError> {
        self.run_on_with(grid, &RunOptions::default(), &|| false)
    }

    /// [`Transaction::run_on`] with options. The options `connect`, `in_flight` and `policy` are ignored: the
    /// transaction connects as the grid does, over a connection of its own, and the metaserver decides the
    /// rest. `interrupted` works as in [`Transaction::run_with`].
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

    /// [`Transaction::plan`] with descriptions of a metaserver.
    ///
    /// # Errors
    /// [`TransactionError`].
    pub fn plan_on(&self, grid: &Grid, options: &RunOptions) -> Result<Report, TransactionError> {
        drive::plan(self, Target::Grid(grid), options)
    }
}
