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
    Ok(released(py, || state.context.broadcast(root, data.bytes())).map_err(Failure::from)?)
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
        let elements: &mut [T] = self
            .data
            .elements()
            .ok_or_else(|| wrong_type("the array is not aligned for its elements".to_owned()))?;
        let done = released(self.py, || match self.root {
            Some(root) => self.context.reduce(root, self.op, elements),
            None => self.context.allreduce(self.op, elements),
        });
        Ok(done.map_err(Failure::from)?)
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
    let into = recv.as_mut().map(Output::bytes).unwrap_or_default();
    Ok(released(py, || state.context.gather(root, send.bytes(), into)).map_err(Failure::from)?)
}

/// Sends the i-th block to rank i and receives one block from each.
#[pyfunction]
pub fn alltoall(py: Python<'_>, send: &Bound<'_, PyAny>, recv: &Bound<'_, PyAny>) -> PyResult<()> {
    let send = Input::of(send, "array")?;
    let mut recv = Output::of(recv, "out")?;
    let state = current()?;
    recv.check_disjoint(&send)?;
    let into = recv.bytes();
    Ok(released(py, || state.context.alltoall(send.bytes(), into)).map_err(Failure::from)?)
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
    let into = recv.bytes();
    let exchange = move || state.context.alltoallv(send.bytes(), &counts, into, &recv_counts);
    Ok(released(py, exchange).map_err(Failure::from)?)
}
