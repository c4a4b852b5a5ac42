//! Groups, and their collective operations. Only reductions need the element type, as numpy's code ("f8"); all others move
//! bytes.

use std::sync::Arc;

use kumi_mem::{Error, Group, Op, Scalar};
use pyo3::prelude::*;

use crate::buffer::{Input, Output};
use crate::collective::{self, CollectiveArrays};
use crate::control::rank_of;
use crate::error::Failure;
use crate::number::{maybe, name, whole};
use crate::request::NativeRequest;
use crate::state::{State, StateRef, current, number, released};

/// A group of this rank: the job's, or one that was made of another.
#[pyclass(frozen)]
pub struct NativeGroup {
    /// None: the job's.
    number: Option<u64>,
}

impl NativeGroup {
    fn find(&self) -> Result<StateRef<Group<'static>>, Failure> {
        let state = current()?;
        let Some(number) = self.number else {
            return Ok(StateRef::new(Arc::new(state.context.group()), state));
        };
        let text = "this group is not one of this job, or was freed";
        let gone = || Failure::new("FreedGroupError", text);
        let found = state.groups.lock().get(&number).cloned();
        Ok(StateRef::new(found.ok_or_else(gone)?, state))
    }

    /// Checks the number of a member.
    fn member_at(&self, group: &StateRef<Group<'static>>, member: i64) -> Result<u32, Failure> {
        if self.number.is_none() {
            return rank_of(group.state(), member);
        }
        let members = group.members();
        u32::try_from(member).ok().filter(|member| *member < members).ok_or_else(|| {
            let text = format!("member {member} does not exist in a group of {members} members");
            Failure::new("BadRankError", text).with("rank", member).with("ranks", members)
        })
    }

    /// Keeps a group that was made.
    fn keep(state: &State, group: Group<'static>) -> NativeGroup {
        let number = number();
        state.groups.lock().insert(number, Arc::new(group));
        NativeGroup { number: Some(number) }
    }

    /// Does a collective that writes bytes.
    fn write(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        root: i64,
        body: impl FnOnce(&Group<'static>, u32, &mut [u8]) -> Result<(), Error>,
    ) -> PyResult<()> {
        let mut data = Output::of(data, "array")?;
        let group = self.find()?;
        let root = self.member_at(&group, root)?;
        let body = |data: &mut [u8]| body(&group, root, data);
        let done = released(py, || data.collective(group.state().context, body));
        Ok(done.map_err(Failure::from)?)
    }

    /// Does a collective that sends bytes and receives some; a member without one of them has none.
    fn exchange(
        &self,
        py: Python<'_>,
        root: i64,
        send: Option<&Bound<'_, PyAny>>,
        recv: Option<&Bound<'_, PyAny>>,
        body: impl FnOnce(&Group<'static>, u32, &[u8], &mut [u8]) -> Result<(), Error>,
    ) -> PyResult<()> {
        let send = send.map(|send| Input::of(send, "array")).transpose()?;
        let mut recv = recv.map(|recv| Output::of(recv, "out")).transpose()?;
        let group = self.find()?;
        let root = self.member_at(&group, root)?;
        if let (Some(recv), Some(send)) = (&recv, &send) {
            recv.check_disjoint(send)?;
        }
        let done = released(py, || {
            let sent =
                send.as_ref().map(|send| send.collective(group.state().context)).transpose()?;
            let sent = sent.as_deref().unwrap_or_default();
            let body = |into: &mut [u8]| body(&group, root, sent, into);
            match &mut recv {
                Some(recv) => recv.collective(group.state().context, body),
                None => body(&mut []),
            }
        });
        Ok(done.map_err(Failure::from)?)
    }
}

/// Which members get the result of a reduction.
#[derive(Clone, Copy)]
enum Wanted {
    Root(u32),
    All,
    Scan,
    ExclusiveScan,
}

/// One reduction, run once its element type is known.
struct Reduction<'a, 'py> {
    py: Python<'py>,
    state: &'a State,
    group: &'a Group<'static>,
    wanted: Wanted,
    op: Op,
    data: &'a mut Output,
    /// The block of a reduce-scatter, and the lengths of all in bytes.
    blocks: Option<(&'a mut Output, Vec<usize>)>,
}

/// What is done once the type of elements is known.
pub trait OfScalar {
    /// What it gives.
    type Output;

    /// Does it.
    fn run<T: Scalar>(self) -> Self::Output;
}

/// Does it for elements of numpy's code.
///
/// # Errors
/// `BadTypeError` if such elements cannot be reduced.
pub fn with_scalar<F: OfScalar>(code: &str, body: F) -> Result<F::Output, Failure> {
    Ok(match code {
        "u1" => body.run::<u8>(),
        "i1" => body.run::<i8>(),
        "u2" => body.run::<u16>(),
        "i2" => body.run::<i16>(),
        "u4" => body.run::<u32>(),
        "i4" => body.run::<i32>(),
        "u8" => body.run::<u64>(),
        "i8" => body.run::<i64>(),
        "f4" => body.run::<f32>(),
        "f8" => body.run::<f64>(),
        _ => {
            let text = format!("elements of type {code} cannot be reduced");
            return Err(Failure::new("BadTypeError", text));
        }
    })
}

/// The failure for an array that a reduction cannot use.
pub fn misaligned() -> Failure {
    Failure::new("BadTypeError", "the array is not aligned for its elements")
}

impl OfScalar for Reduction<'_, '_> {
    type Output = Result<(), Failure>;

    fn run<T: Scalar>(self) -> Self::Output {
        let Reduction { py, state, group, wanted, op, data, blocks } = self;
        let done = released(py, || match blocks {
            None => data.reduction(state.context, |elements: &mut [T]| match wanted {
                Wanted::Root(root) => group.reduce(root, op, elements),
                Wanted::All => group.allreduce(op, elements),
                Wanted::Scan => group.scan(op, elements),
                Wanted::ExclusiveScan => group.exclusive_scan(op, elements),
            }),
            Some((block, lengths)) => {
                let counts: Vec<usize> = lengths.iter().map(|it| it / size_of::<T>()).collect();
                let mut fits = true;
                let done = data.reduction(state.context, |elements: &mut [T]| {
                    let scatter =
                        |into: &mut [T]| group.reduce_scatterv(op, elements, &counts, into);
                    block.reduction(state.context, scatter).unwrap_or_else(|| {
                        fits = false;
                        Ok(())
                    })
                });
                done.filter(|_| fits)
            }
        });
        Ok(done.ok_or_else(misaligned)??)
    }
}

/// An operation by its number.
///
/// # Errors
/// `BadTypeError` if there is none.
pub fn operation(op: i32) -> Result<Op, Failure> {
    let unknown = || Failure::new("BadTypeError", format!("{op} is not a kumi.Op"));
    Op::from_number(op).ok_or_else(unknown)
}

#[pymethods]
impl NativeGroup {
    /// The job's group.
    #[staticmethod]
    fn job() -> NativeGroup {
        NativeGroup { number: None }
    }

    /// Makes a group of the members with the same colour.
    #[pyo3(signature = (colour, key))]
    fn split(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = maybe)] colour: Option<u32>,
        #[pyo3(from_py_with = whole)] key: i64,
    ) -> PyResult<Option<NativeGroup>> {
        let group = self.find()?;
        let made = released(py, || Made(group.split(colour, key))).0.map_err(Failure::from)?;
        Ok(made.map(|made| NativeGroup::keep(group.state(), made)))
    }

    /// Makes a group of these members.
    fn subset(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = whole)] members: Vec<i64>,
    ) -> PyResult<Option<NativeGroup>> {
        let group = self.find()?;
        // One that cannot be is refused by all members together.
        let members: Vec<u32> =
            members.into_iter().map(|it| u32::try_from(it).unwrap_or(u32::MAX)).collect();
        let made = released(py, || Made(group.subset(&members))).0.map_err(Failure::from)?;
        Ok(made.map(|made| NativeGroup::keep(group.state(), made)))
    }

    /// Makes a group with the same members.
    fn duplicate(&self, py: Python<'_>) -> PyResult<NativeGroup> {
        let group = self.find()?;
        let made = released(py, || Made(group.duplicate())).0.map_err(Failure::from)?;
        Ok(NativeGroup::keep(group.state(), made))
    }

    /// Whether it was freed.
    #[getter]
    fn freed(&self) -> bool {
        current().is_ok() && self.find().is_err()
    }

    /// Frees it.
    fn free(&self) -> PyResult<()> {
        let state = current()?;
        let Some(number) = self.number else {
            let text = "the job's group stays until kumi.finalize()";
            return Err(Failure::new("BadGroupError", text).into());
        };
        let gone = state.groups.lock().remove(&number);
        drop(gone);
        Ok(())
    }

    /// This rank's number in it.
    #[getter]
    fn member(&self) -> PyResult<u32> {
        Ok(self.find()?.member())
    }

    /// How many members there are.
    #[getter]
    fn members(&self) -> PyResult<u32> {
        Ok(self.find()?.members())
    }

    /// The rank of a member.
    fn rank_of(&self, #[pyo3(from_py_with = name)] member: i64) -> PyResult<u32> {
        let group = self.find()?;
        let member = self.member_at(&group, member)?;
        Ok(group.rank_of(member).map_err(Failure::from)?)
    }

    /// The number of a rank, if it is a member.
    fn member_of(&self, #[pyo3(from_py_with = name)] rank: i64) -> PyResult<Option<u32>> {
        let group = self.find()?;
        let rank = rank_of(group.state(), rank)?;
        Ok(group.member_of(rank))
    }

    /// Returns when all members have called it.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        let group = self.find()?;
        Ok(released(py, || group.barrier()).map_err(Failure::from)?)
    }

    /// Starts a collective by its name. Those in place have `receive` only; reductions have a code and an operation.
    #[allow(clippy::needless_pass_by_value)] // As Python gives it.
    #[pyo3(signature = (kind, root, send, receive, reduced, guard))]
    fn start(
        &self,
        py: Python<'_>,
        kind: &str,
        #[pyo3(from_py_with = name)] root: i64,
        send: Option<&Bound<'_, PyAny>>,
        receive: Option<&Bound<'_, PyAny>>,
        reduced: Option<(String, i32)>,
        guard: Option<Py<PyAny>>,
    ) -> PyResult<NativeRequest> {
        let group = self.find()?;
        let root = self.member_at(&group, root)?;
        let reduced = reduced.as_ref().map(|(code, op)| (code.as_str(), *op));
        collective::start(
            py,
            group.state(),
            &group,
            (kind, root),
            CollectiveArrays { send, receive, guard },
            reduced,
        )
    }

    /// Copies the root's data to all members.
    fn broadcast(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = name)] root: i64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.write(py, data, root, |group, root, data| group.broadcast(root, data))
    }

    /// Combines the data of members in place: `how` is `all`, `scan`, `exclusive`, or `root` with a root.
    fn reduce(
        &self,
        py: Python<'_>,
        how: &str,
        #[pyo3(from_py_with = name)] root: i64,
        data: &Bound<'_, PyAny>,
        code: &str,
        #[pyo3(from_py_with = whole)] op: i32,
    ) -> PyResult<()> {
        let mut data = Output::of(data, "array")?;
        let group = self.find()?;
        let wanted = match how {
            "root" => Wanted::Root(self.member_at(&group, root)?),
            "scan" => Wanted::Scan,
            "exclusive" => Wanted::ExclusiveScan,
            _ => Wanted::All,
        };
        let (op, data) = (operation(op)?, &mut data);
        let (state, group) = (group.state(), &*group);
        let reduction = Reduction { py, state, group, wanted, op, data, blocks: None };
        Ok(with_scalar(code, reduction)??)
    }

    /// Combines the data of all members, and gives each its block. `data` is used up; lengths are bytes.
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = whole)] lengths: Vec<usize>,
        block: &Bound<'_, PyAny>,
        code: &str,
        #[pyo3(from_py_with = whole)] op: i32,
    ) -> PyResult<()> {
        let (send, mut data) = (Input::of(data, "array")?, Output::of(data, "array")?);
        let mut block = Output::of(block, "out")?;
        block.check_disjoint(&send)?;
        let group = self.find()?;
        let (wanted, op, data) = (Wanted::All, operation(op)?, &mut data);
        let (state, group) = (group.state(), &*group);
        let blocks = Some((&mut block, lengths));
        Ok(with_scalar(code, Reduction { py, state, group, wanted, op, data, blocks })??)
    }

    /// Collects blocks at the root; the other members give no memory for them. Lengths are bytes.
    #[pyo3(signature = (root, send, lengths, recv))]
    fn gather(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = name)] root: i64,
        send: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = maybe)] lengths: Option<Vec<usize>>,
        recv: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.exchange(py, root, Some(send), recv, move |group, root, send, recv| match lengths {
            Some(lengths) => group.gatherv(root, send, &lengths, recv),
            None => group.gather(root, send, recv),
        })
    }

    /// Deals blocks of the root out, which alone gives them. Lengths are bytes.
    #[pyo3(signature = (root, send, lengths, recv))]
    fn scatter(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = name)] root: i64,
        send: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = maybe)] lengths: Option<Vec<usize>>,
        recv: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.exchange(py, root, send, Some(recv), move |group, root, send, recv| match lengths {
            Some(lengths) => group.scatterv(root, send, &lengths, recv),
            None => group.scatter(root, send, recv),
        })
    }

    /// Collects blocks at all members. Lengths are bytes.
    #[pyo3(signature = (send, lengths, recv))]
    fn allgather(
        &self,
        py: Python<'_>,
        send: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = maybe)] lengths: Option<Vec<usize>>,
        recv: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.exchange(py, 0, Some(send), Some(recv), move |group, _, send, recv| match lengths {
            Some(lengths) => group.allgatherv(send, &lengths, recv),
            None => group.allgather(send, recv),
        })
    }

    /// Sends the i-th block to member i and receives one block from each. Lengths are bytes.
    #[pyo3(signature = (send, lengths, recv))]
    fn alltoall(
        &self,
        py: Python<'_>,
        send: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = maybe)] lengths: Option<(Vec<usize>, Vec<usize>)>,
        recv: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.exchange(py, 0, Some(send), Some(recv), move |group, _, send, recv| match lengths {
            Some((given, taken)) => group.alltoallv(send, &given, recv, &taken),
            None => group.alltoall(send, recv),
        })
    }
}

/// A group on its way out of [`released`].
struct Made<G>(Result<G, Error>);

// SAFETY: `released` runs in the calling thread, so the group never changes threads.
unsafe impl<G> Send for Made<G> {}

impl Drop for NativeGroup {
    fn drop(&mut self) {
        // If a thread drops it that may not call, or while a call waits, it stays until `finalize`.
        if let (Some(number), Ok(state)) = (self.number, current()) {
            let gone = state.groups.lock().remove(&number);
            drop(gone);
        }
    }
}
