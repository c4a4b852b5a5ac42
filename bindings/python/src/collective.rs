//! Collective operations. Only reductions need the element type, as numpy's code ("f8"); all others move
//! bytes.

use kumi_mem::{Context, Op, Scalar};
use pyo3::prelude::*;

use crate::buffer::{Input, Output};
use crate::control::rank_of;
use crate::error::{Failure, wrong_type};
use crate::number::{maybe_name, name, whole};
use crate::state::{current, released};

/// Copies the root's data to all ranks.
#[pyfunction]
pub fn broadcast(
    py: Python<'_>,
    #[pyo3(from_py_with = name)] root: i64,
    data: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let mut data = Output::of(data, "array")?;
    let state = current()?;
    let root = rank_of(&state, root)?;
    let broadcast = |data: &mut [u8]| state.context.broadcast(root, data);
    let done = released(py, || data.collective(state.context, broadcast));
    Ok(done.map_err(Failure::from)?)
}

/// One reduction, run once its element type is known.
struct Reduction<'a, 'py> {
    py: Python<'py>,
    context: &'static Context,
    root: Option<u32>,
    op: Op,
    data: &'a mut Output,
}

impl Reduction<'_, '_> {
    fn run<T: Scalar>(self) -> PyResult<()> {
        let Reduction { py, context, root, op, data } = self;
        let reduce = |elements: &mut [T]| match root {
            Some(root) => context.reduce(root, op, elements),
            None => context.allreduce(op, elements),
        };
        let done = released(py, || data.reduction(context, reduce));
        let misaligned = || wrong_type("the array is not aligned for its elements".to_owned());
        Ok(done.ok_or_else(misaligned)?.map_err(Failure::from)?)
    }
}

/// Combines the data of all ranks in place. Only the root has the result, or all ranks have it.
#[pyfunction]
#[pyo3(signature = (root, data, code, op))]
pub fn reduce(
    py: Python<'_>,
    #[pyo3(from_py_with = maybe_name)] root: Option<i64>,
    data: &Bound<'_, PyAny>,
    code: &str,
    #[pyo3(from_py_with = whole)] op: i32,
) -> PyResult<()> {
    let mut data = Output::of(data, "array")?;
    let state = current()?;
    let root = root.map(|root| rank_of(&state, root)).transpose()?;
    let unknown = || wrong_type(format!("{op} is not a kumi.Op"));
    let op = Op::from_number(op).ok_or_else(unknown)?;
    let work = Reduction { py, context: state.context, root, op, data: &mut data };
    match code {
        "u1" => work.run::<u8>(),
        "i1" => work.run::<i8>(),
        "u2" => work.run::<u16>(),
        "i2" => work.run::<i16>(),
        "u4" => work.run::<u32>(),
        "i4" => work.run::<i32>(),
        "u8" => work.run::<u64>(),
        "i8" => work.run::<i64>(),
        "f4" => work.run::<f32>(),
        "f8" => work.run::<f64>(),
        _ => Err(wrong_type(format!("elements of type {code} cannot be reduced"))),
    }
}

/// Collects the data of all ranks at the root; the other ranks give no memory for it.
#[pyfunction]
#[pyo3(signature = (root, send, recv))]
pub fn gather(
    py: Python<'_>,
    #[pyo3(from_py_with = name)] root: i64,
    send: &Bound<'_, PyAny>,
    recv: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let send = Input::of(send, "array")?;
    let mut recv = recv.map(|recv| Output::of(recv, "out")).transpose()?;
    let state = current()?;
    let root = rank_of(&state, root)?;
    if let Some(recv) = &recv {
        recv.check_disjoint(&send)?;
    }
    let done = released(py, || {
        let send = send.collective(state.context)?;
        let gather = |into: &mut [u8]| state.context.gather(root, &send, into);
        match &mut recv {
            Some(recv) => recv.collective(state.context, gather),
            None => gather(&mut []),
        }
    });
    Ok(done.map_err(Failure::from)?)
}

/// Sends the i-th block to rank i and receives one block from each.
#[pyfunction]
pub fn alltoall(py: Python<'_>, send: &Bound<'_, PyAny>, recv: &Bound<'_, PyAny>) -> PyResult<()> {
    let send = Input::of(send, "array")?;
    let mut recv = Output::of(recv, "out")?;
    let state = current()?;
    recv.check_disjoint(&send)?;
    let done = released(py, || {
        let send = send.collective(state.context)?;
        let exchange = |into: &mut [u8]| state.context.alltoall(&send, into);
        recv.collective(state.context, exchange)
    });
    Ok(done.map_err(Failure::from)?)
}

/// As [`alltoall`], with blocks of these numbers of bytes.
#[pyfunction]
pub fn alltoallv(
    py: Python<'_>,
    send: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = whole)] counts: Vec<usize>,
    recv: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = whole)] recv_counts: Vec<usize>,
) -> PyResult<()> {
    let send = Input::of(send, "array")?;
    let mut recv = Output::of(recv, "out")?;
    let state = current()?;
    recv.check_disjoint(&send)?;
    let done = released(py, move || {
        let send = send.collective(state.context)?;
        let exchange =
            |into: &mut [u8]| state.context.alltoallv(&send, &counts, into, &recv_counts);
        recv.collective(state.context, exchange)
    });
    Ok(done.map_err(Failure::from)?)
}
