//! Completions, strided puts and gets, atomic operations, multicast. In bytes.

use std::sync::Arc;

use kumi_mem::{Completion, Error, OnPlacement, Strided, Window};
use pyo3::prelude::*;

use crate::buffer::{Input, Output};
use crate::control::{rank_of, ranks_of};
use crate::error::{Failure, wrong_type};
use crate::number::{maybe, maybe_name, name, whole};
use crate::state::{StateRef, current, number, released};
use crate::window::{NativeWindow, notify_of};

/// A counter of this rank's puts that are in place.
#[pyclass(frozen, module = "kumi._native")]
pub struct NativeCompletion {
    number: u64,
}

impl NativeCompletion {
    pub fn find(&self) -> Result<StateRef<Completion<'static>>, Failure> {
        let state = current()?;
        let text = "this completion is not one of this job: kumi.finalize() has ended it";
        let gone = || Failure::new("FreedCompletionError", text);
        let found = state.completions.lock().get(&self.number).cloned();
        Ok(StateRef::new(found.ok_or_else(gone)?, state))
    }
}

#[pymethods]
impl NativeCompletion {
    /// Makes a completion.
    #[new]
    fn new() -> PyResult<Self> {
        let state = current()?;
        let completion = state.context.completion().map_err(Failure::from)?;
        let number = number();
        state.completions.lock().insert(number, Arc::new(completion));
        Ok(NativeCompletion { number })
    }

    /// How many puts are in place.
    fn done(&self, py: Python<'_>) -> PyResult<u64> {
        let completion = self.find()?;
        Ok(released(py, || completion.done()).map_err(Failure::from)?)
    }

    /// Waits until this many puts are in place, or all. Returns how many are.
    #[pyo3(signature = (at_least))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = maybe)] at_least: Option<u64>,
    ) -> PyResult<u64> {
        let completion = self.find()?;
        let done = released(py, || match at_least {
            Some(at_least) => completion.wait(at_least),
            None => completion.wait_all().and_then(|()| completion.done()),
        });
        Ok(done.map_err(Failure::from)?)
    }
}

impl Drop for NativeCompletion {
    fn drop(&mut self) {
        // If a thread drops it that may not call, or while a call waits, it stays until `finalize`.
        if let Ok(state) = current() {
            let gone = state.completions.lock().remove(&self.number);
            drop(gone);
        }
    }
}

/// Offset, stride and length of the blocks, and how many there are.
type Blocks = (usize, usize, usize, usize);

fn strided((offset, stride, block, count): Blocks) -> Strided {
    Strided { offset, stride, block, count }
}

/// Writes blocks into the piece of a rank. Raises a counter at the target and one here.
#[pyfunction]
#[pyo3(signature = (window, rank, data, blocks, notify, completion))]
pub fn put_blocks(
    py: Python<'_>,
    window: &NativeWindow,
    #[pyo3(from_py_with = name)] rank: i64,
    data: &Bound<'_, PyAny>,
    blocks: Blocks,
    #[pyo3(from_py_with = maybe_name)] notify: Option<i64>,
    completion: Option<&NativeCompletion>,
) -> PyResult<()> {
    let data = Input::of(data, "array")?;
    let (state, window) = window.find()?;
    let to = rank_of(&state, rank)?;
    let notify = notify.map(notify_of).transpose()?;
    let completion = completion.map(NativeCompletion::find).transpose()?;
    let done = released(py, || {
        let after = OnPlacement { notify, completion: completion.as_deref() };
        window.put_strided_shared(to, strided(blocks), data.shared(), after)
    });
    Ok(done.map_err(Failure::from)?)
}

/// Reads blocks from the piece of a rank.
#[pyfunction]
pub fn get_blocks(
    py: Python<'_>,
    window: &NativeWindow,
    #[pyo3(from_py_with = name)] rank: i64,
    into: &Bound<'_, PyAny>,
    blocks: Blocks,
) -> PyResult<()> {
    let into = Output::of(into, "out")?;
    let (state, window) = window.find()?;
    let from = rank_of(&state, rank)?;
    let done = released(py, || window.get_strided_shared(from, strided(blocks), into.shared()));
    Ok(done.map_err(Failure::from)?)
}

/// Writes the same bytes into the pieces of several ranks, and waits.
#[pyfunction]
#[pyo3(signature = (window, ranks, data, offset, notify))]
pub fn multicast(
    py: Python<'_>,
    window: &NativeWindow,
    #[pyo3(from_py_with = whole)] ranks: Vec<i64>,
    data: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = whole)] offset: usize,
    #[pyo3(from_py_with = maybe_name)] notify: Option<i64>,
) -> PyResult<()> {
    let data = Input::of(data, "array")?;
    let (state, window) = window.find()?;
    let ranks = ranks_of(&state, ranks)?;
    let notify = notify.map(notify_of).transpose()?;
    let done = released(py, || window.multicast_shared(&ranks, offset, data.shared(), notify));
    Ok(done.map_err(Failure::from)?)
}

/// An atomic operation: its kind, place and operands.
struct Atomic<'a> {
    operation: &'a str,
    to: u32,
    offset: usize,
    numbers: [u64; 2],
}

impl Atomic<'_> {
    /// On 8 bytes.
    fn long(&self, window: &Window<'_>) -> Option<Result<u64, Error>> {
        let Atomic { operation, to, offset, numbers: [one, other] } = *self;
        Some(match operation {
            "add" => window.fetch_add(to, offset, one),
            "and" => window.fetch_and(to, offset, one),
            "or" => window.fetch_or(to, offset, one),
            "xor" => window.fetch_xor(to, offset, one),
            "swap" => window.swap(to, offset, one),
            "compare_swap" => window.compare_swap(to, offset, one, other),
            _ => return None,
        })
    }

    /// On 4 bytes.
    fn short(&self, window: &Window<'_>) -> Option<Result<u64, Error>> {
        let Atomic { operation, to, offset, numbers } = *self;
        let [one, other] = numbers.map(|number| number as u32);
        let before = match operation {
            "add" => window.fetch_add_u32(to, offset, one),
            "and" => window.fetch_and_u32(to, offset, one),
            "or" => window.fetch_or_u32(to, offset, one),
            "xor" => window.fetch_xor_u32(to, offset, one),
            "swap" => window.swap_u32(to, offset, one),
            "compare_swap" => window.compare_swap_u32(to, offset, one, other),
            _ => return None,
        };
        Some(before.map(u64::from))
    }
}

/// Does an atomic operation on 4 or 8 bytes of the piece of a rank; returns the previous value. Operands are
/// unsigned; for 4 bytes their lower half counts.
#[pyfunction]
pub fn atomic(
    py: Python<'_>,
    window: &NativeWindow,
    operation: &str,
    #[pyo3(from_py_with = name)] rank: i64,
    #[pyo3(from_py_with = whole)] offset: usize,
    numbers: [u64; 2],
    #[pyo3(from_py_with = whole)] width: u8,
) -> PyResult<u64> {
    let (state, window) = window.find()?;
    let atomic = Atomic { operation, to: rank_of(&state, rank)?, offset, numbers };
    let before = released(py, || match width {
        8 => atomic.long(&window),
        4 => atomic.short(&window),
        _ => None,
    });
    let unknown = || wrong_type(format!("there is no atomic {operation} on {width} bytes"));
    Ok(before.ok_or_else(unknown)?.map_err(Failure::from)?)
}
