//! Puts and gets of lists of pieces. In bytes.

use kumi_mem::{OnPlacement, Piece};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::buffer::{Input, Output, check_disjoint};
use crate::control::rank_of;
use crate::error::{Failure, wrong_type};
use crate::number::{maybe_name, name};
use crate::state::released;
use crate::transfer::NativeCompletion;
use crate::window::{NativeWindow, notify_of};

/// Bytes of a word of a list.
const WORD: usize = size_of::<u64>();

/// The pieces in an array of 64-bit words: offset and length of each.
fn pieces_of(list: &Bound<'_, PyAny>) -> PyResult<Vec<Piece>> {
    let list = Input::of(list, "pieces")?;
    let list = list.to_vec();
    let (words, rest) = list.as_chunks::<WORD>();
    let number = |word: &[u8; WORD]| usize::try_from(u64::from_ne_bytes(*word));
    let numbers = words.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    let (pairs, odd) = numbers.as_chunks::<2>();
    if !rest.is_empty() || !odd.is_empty() {
        return Err(wrong_type("pieces are not two words each".to_owned()));
    }
    Ok(pairs.iter().map(|[offset, length]| Piece { offset: *offset, length: *length }).collect())
}

/// Writes the bytes of several buffers into pieces of a rank's piece. Raises a counter at the target and one
/// here.
#[pyfunction]
#[pyo3(signature = (window, rank, pieces, data, notify, completion))]
pub fn put_list(
    py: Python<'_>,
    window: &NativeWindow,
    #[pyo3(from_py_with = name)] rank: i64,
    pieces: &Bound<'_, PyAny>,
    data: &Bound<'_, PyList>,
    #[pyo3(from_py_with = maybe_name)] notify: Option<i64>,
    completion: Option<&NativeCompletion>,
) -> PyResult<()> {
    let pieces = pieces_of(pieces)?;
    let data = data.iter().map(|one| Input::of(&one, "array")).collect::<PyResult<Vec<_>>>()?;
    let (state, window) = window.find()?;
    let to = rank_of(&state, rank)?;
    let notify = notify.map(notify_of).transpose()?;
    let completion = completion.map(NativeCompletion::find).transpose()?;
    let data: Vec<_> = data.iter().map(Input::shared).collect();
    let done = released(py, || {
        let after = OnPlacement { notify, completion: completion.as_deref() };
        window.put_lists_shared(to, &pieces, &data, after)
    });
    Ok(done.map_err(Failure::from)?)
}

/// Reads pieces of a rank's piece into several buffers.
#[pyfunction]
pub fn get_list(
    py: Python<'_>,
    window: &NativeWindow,
    #[pyo3(from_py_with = name)] rank: i64,
    pieces: &Bound<'_, PyAny>,
    into: &Bound<'_, PyList>,
) -> PyResult<()> {
    let pieces = pieces_of(pieces)?;
    let into = into.iter().map(|one| Output::of(&one, "out")).collect::<PyResult<Vec<_>>>()?;
    check_disjoint(&into)?;
    let (state, window) = window.find()?;
    let from = rank_of(&state, rank)?;
    let into: Vec<_> = into.iter().map(Output::shared).collect();
    let done = released(py, || window.get_lists_shared(from, &pieces, &into));
    Ok(done.map_err(Failure::from)?)
}
