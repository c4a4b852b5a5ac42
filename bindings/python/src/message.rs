//! Tagged messages.

use kumi_mem::{MessageStatus, Source, Tag};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::{Input, Output};
use crate::control::rank_of;
use crate::error::Failure;
use crate::number::{maybe_name, name};
use crate::state::{State, current, released};

pub fn tag_of(tag: i64) -> Result<i32, Failure> {
    i32::try_from(tag).ok().filter(|tag| *tag >= 0).ok_or_else(|| {
        let text = format!("tag {tag} is not between 0 and {}", i32::MAX);
        Failure::new("BadTagError", text).with("tag", tag)
    })
}

/// Source and tag of a receive; `None` stands for any.
pub fn wanted(
    state: &State,
    source: Option<i64>,
    tag: Option<i64>,
) -> Result<(Source, Tag), Failure> {
    let source = match source {
        Some(rank) => Source::Rank(rank_of(state, rank)?),
        None => Source::Any,
    };
    let tag = match tag {
        Some(tag) => Tag::Is(tag_of(tag)?),
        None => Tag::Any,
    };
    Ok((source, tag))
}

/// Source, tag and length in bytes.
pub fn status(received: MessageStatus) -> (u32, i32, usize) {
    (received.from, received.tag, received.len)
}

/// Sends bytes.
#[pyfunction]
pub fn send(
    py: Python<'_>,
    #[pyo3(from_py_with = name)] to: i64,
    data: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = name)] tag: i64,
) -> PyResult<()> {
    let data = Input::of(data, "data")?;
    let state = current()?;
    let (to, tag) = (rank_of(&state, to)?, tag_of(tag)?);
    Ok(released(py, || state.context.send_shared(to, tag, data.shared())).map_err(Failure::from)?)
}

/// Receives a message of any length.
#[pyfunction]
#[pyo3(signature = (source, tag))]
pub fn recv(
    py: Python<'_>,
    #[pyo3(from_py_with = maybe_name)] source: Option<i64>,
    #[pyo3(from_py_with = maybe_name)] tag: Option<i64>,
) -> PyResult<(u32, i32, Bound<'_, PyBytes>)> {
    let state = current()?;
    let (source, tag) = wanted(&state, source, tag)?;
    let received = released(py, || state.context.recv_vec(source, tag));
    let (received, data) = received.map_err(Failure::from)?;
    Ok((received.from, received.tag, PyBytes::new(py, &data)))
}

/// Receives into memory.
#[pyfunction]
#[pyo3(signature = (buffer, source, tag))]
pub fn recv_into(
    py: Python<'_>,
    buffer: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = maybe_name)] source: Option<i64>,
    #[pyo3(from_py_with = maybe_name)] tag: Option<i64>,
) -> PyResult<(u32, i32, usize)> {
    let buffer = Output::of(buffer, "buffer")?;
    let state = current()?;
    let (source, tag) = wanted(&state, source, tag)?;
    let received = released(py, || state.context.recv_shared(source, tag, buffer.shared()));
    Ok(status(received.map_err(Failure::from)?))
}

/// Looks for a message without waiting or taking it.
#[pyfunction]
#[pyo3(signature = (source, tag))]
pub fn probe(
    py: Python<'_>,
    #[pyo3(from_py_with = maybe_name)] source: Option<i64>,
    #[pyo3(from_py_with = maybe_name)] tag: Option<i64>,
) -> PyResult<Option<(u32, i32, usize)>> {
    let state = current()?;
    let (source, tag) = wanted(&state, source, tag)?;
    let found = released(py, || state.context.probe(source, tag)).map_err(Failure::from)?;
    Ok(found.map(status))
}

/// Sends and receives at once, into memory.
#[pyfunction]
#[pyo3(signature = (to, data, tag, buffer, source, recv_tag))]
pub fn sendrecv(
    py: Python<'_>,
    #[pyo3(from_py_with = name)] to: i64,
    data: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = name)] tag: i64,
    buffer: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = maybe_name)] source: Option<i64>,
    #[pyo3(from_py_with = maybe_name)] recv_tag: Option<i64>,
) -> PyResult<(u32, i32, usize)> {
    let data = Input::of(data, "data")?;
    let buffer = Output::of(buffer, "buffer")?;
    buffer.check_disjoint(&data)?;
    let state = current()?;
    let (to, tag) = (rank_of(&state, to)?, tag_of(tag)?);
    let (source, recv_tag) = wanted(&state, source, recv_tag)?;
    let (sent, into) = (data.shared(), buffer.shared());
    let received =
        released(py, || state.context.sendrecv_shared(to, tag, sent, source, recv_tag, into));
    Ok(status(received.map_err(Failure::from)?))
}
