//! Transactions: `kumi.call` records calls and knows their arrays; this module lends them to `kumi-call` and
//! runs the calls.

use std::path::PathBuf;
use std::time::Duration;

use kumi_call_client::transaction::{
    Data, Report, RunOptions, Step, Transaction, TransactionError, TxArg,
};
use kumi_call_client::{Options, Remote, Resources, Shape};
use kumi_idl::{Element, Order};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::buffer::{Input, Output};
use crate::call::{NativeClient, duration, failure, interrupted, lent, lent_mut, scalar, values};
use crate::error::{Failure, wrong_type};

/// An array: its memory (`None`: it stays at servers), whether it is written, its element type, its shape if
/// that matters, and whether it is in column order.
type TransactionArray<'py> = (Option<Bound<'py, PyAny>>, bool, String, Option<Vec<u64>>, bool);

/// Settings of a run: token, authorities, calls in flight, attempts, policy, seconds of a call.
type RunSettings = (Option<String>, Option<PathBuf>, u32, u32, String, Option<f64>);

/// Runs calls on the given servers, or on servers that a metaserver chooses by this priority. `arrays` are
/// [`TransactionArray`]s. A call is a routine and its arguments: `None`, numbers, texts, or pairs of array
/// numbers (sent and coming back; either may be `None`), and threads and bytes of memory that it asks for, or 0. Returns `error` (`None`: all calls have run), the
/// report of [`told`] on each call, the picture, the bytes moved, and the seconds.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // As Python gives it.
pub fn run_transaction<'py>(
    py: Python<'py>,
    servers: Vec<String>,
    meta: Option<(PyRef<'py, NativeClient>, u8)>,
    how: RunSettings,
    arrays: Vec<TransactionArray<'py>>,
    calls: Vec<(String, Bound<'py, PyList>, u32, u64)>,
) -> PyResult<Bound<'py, PyDict>> {
    // Declared before the transaction, which is dropped first.
    let mut buffers = (Vec::new(), Vec::new());
    let mut tx = Transaction::new();
    let mut data = Vec::with_capacity(arrays.len());
    for given in &arrays {
        data.push(lend(&mut tx, given, &mut buffers)?);
    }
    for (routine, args, threads, memory) in &calls {
        let args: PyResult<Vec<TxArg>> = args.iter().map(|arg| argument(&arg, &data)).collect();
        let step = tx.call(routine, args?);
        if let Some(resources) = Resources::new(*threads, *memory) {
            tx.ask_resources(step, resources);
        }
    }
    let (token, ca, in_flight, attempts, policy, seconds) = how;
    let mut connect = Options::from_env().map_err(|error| failure(&error))?;
    if let Some(token) = token {
        connect.token = token;
    }
    connect.ca = ca.or(connect.ca);
    let time = seconds.map(duration).transpose()?;
    let options =
        RunOptions { connect, in_flight, attempts, policy, time, ..RunOptions::default() };
    let result = match meta {
        None => py.detach(|| tx.run_with(&servers, &options, &interrupted)),
        Some((meta, priority)) => {
            let Ok(Remote::Grid(grid)) = meta.remote().with_priority(priority) else {
                let text = "this is a server, not a metaserver: give its address in a list";
                return Err(Failure::of_call("ArgumentError", text.to_owned()).into());
            };
            py.detach(|| tx.run_on_with(&grid, &options, &interrupted))
        }
    };
    drop(tx);
    match result {
        Ok(report) => told(py, &report, None),
        Err(error) => match error.report() {
            // A signal handler has raised an exception.
            Some(report) if !matches!(error, TransactionError::Cancelled(_)) => {
                told(py, report, Some(error.to_string()))
            }
            _ => Err(refused(error).into()),
        },
    }
}

fn refused(error: TransactionError) -> Failure {
    let text = error.to_string();
    match error {
        TransactionError::NoServer(_) => Failure::of_call("ConnectError", text),
        TransactionError::Argument { .. } | TransactionError::Policy(_) => {
            Failure::of_call("ArgumentError", text)
        }
        TransactionError::Call { source, .. } | TransactionError::Refused(source) => {
            failure(&source)
        }
        TransactionError::Cancelled(_) => Failure::of_call("CancelledError", text),
        _ => Failure::of_call("CallError", text),
    }
}

fn element(name: &str) -> PyResult<Element> {
    Ok(match name {
        "int8" => Element::I8,
        "int16" => Element::I16,
        "int32" => Element::I32,
        "int64" => Element::I64,
        "uint8" => Element::U8,
        "uint16" => Element::U16,
        "uint32" => Element::U32,
        "uint64" => Element::U64,
        "float32" => Element::F32,
        "float64" => Element::F64,
        "complex64" => Element::C64,
        "complex128" => Element::C128,
        other => return Err(wrong_type(format!("arrays of {other} cannot be sent"))),
    })
}

/// An array of the transaction; `buffers` holds its memory.
fn lend(
    tx: &mut Transaction<'static>,
    (memory, written, dtype, dims, columns): &TransactionArray<'_>,
    buffers: &mut (Vec<Input>, Vec<Output>),
) -> PyResult<Data> {
    let Some(memory) = memory else { return Ok(tx.intermediate()) };
    let order = if *columns { Order::Column } else { Order::Row };
    let shape = Shape { element: element(dtype)?, dims: dims.clone(), order };
    // Held until the transaction is dropped.
    if *written {
        return Ok(tx.lent_mut(lent_mut(memory, &mut buffers.1)?, shape));
    }
    Ok(tx.lent(lent(memory, &mut buffers.0)?, shape))
}

fn argument(given: &Bound<'_, PyAny>, data: &[Data]) -> PyResult<TxArg> {
    if given.is_none() {
        return Ok(TxArg::Default);
    }
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(TxArg::Text(text.to_str()?.to_owned()));
    }
    let Ok(pair) = given.cast::<PyTuple>() else { return scalar(given).map(TxArg::Scalar) };
    let (from, to): (Option<usize>, Option<usize>) = pair.extract()?;
    let one = |index: usize| {
        let missing = || Failure::of_call("ArgumentError", format!("there is no array {index}"));
        data.get(index).copied().ok_or_else(missing)
    };
    Ok(match (from, to) {
        (Some(from), Some(to)) => TxArg::InOut(one(from)?, one(to)?),
        (Some(only), None) | (None, Some(only)) => TxArg::Data(one(only)?),
        (None, None) => {
            return Err(wrong_type("an array is neither sent nor comes back".to_owned()));
        }
    })
}

/// The report on a call: routine, server, attempts, why its inputs came through the client, begin and end in
/// seconds, a sentence, and its results. Each result has the number of its parameter (`None`: the call has
/// not run).
fn told<'py>(
    py: Python<'py>,
    report: &Report,
    error: Option<String>,
) -> PyResult<Bound<'py, PyDict>> {
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let steps = PyList::empty(py);
    for (number, step) in (0..).zip(&report.steps) {
        let id = Step::of(number);
        let values = step.outcome.clone().map(|outcome| values(py, outcome));
        let one = PyDict::new(py);
        one.set_item("routine", &step.routine)?;
        one.set_item("server", step.server.as_deref())?;
        one.set_item("attempts", step.attempts)?;
        one.set_item("helped", step.helped.as_deref())?;
        one.set_item("begun", seconds(step.begun))?;
        one.set_item("ended", seconds(step.ended))?;
        one.set_item("text", report.explain(id))?;
        one.set_item("values", values.transpose()?)?;
        steps.append(one)?;
    }
    let all = PyDict::new(py);
    all.set_item("error", error)?;
    all.set_item("steps", steps)?;
    all.set_item("svg", report.svg())?;
    let moved = &report.moved;
    all.set_item("moved", (moved.sent, moved.received, moved.between, moved.stayed))?;
    all.set_item("seconds", report.took.as_secs_f64())?;
    Ok(all)
}
