//! Collectives that go on after their call has returned.

use kumi_mem::{
    CollectiveKind, Context, Error, Group, Op, Report, RequestHandle, Scalar, SharedBytes,
    SharedBytesMut, any_overlap,
};
use pyo3::prelude::*;

use crate::buffer::{Input, Output};
use crate::error::Failure;
use crate::group::{OfScalar, misaligned, operation, with_scalar};
use crate::private_copy::PrivateCopy;
use crate::request::{LentMemory, Memory, NativeRequest};
use crate::state::State;

/// What a collective sends and receives. It works on copies of what is a window's memory, since others may write that.
pub struct CollectiveMemory {
    send: Option<Input>,
    receive: Option<Output>,
    sent: Option<PrivateCopy>,
    received: Option<PrivateCopy>,
}

impl CollectiveMemory {
    fn new(
        context: &Context,
        send: Option<Input>,
        receive: Option<Output>,
    ) -> Result<CollectiveMemory, Failure> {
        if let (Some(receive), Some(send)) = (&receive, &send) {
            receive.check_disjoint(send)?;
        }
        let copy = |bytes: SharedBytes<'_>| -> Result<_, Error> {
            let shared = context.is_shared(bytes.as_ptr(), bytes.len())?;
            shared
                .then(|| PrivateCopy::of(bytes, "a private copy of a window's memory"))
                .transpose()
        };
        let sent = send.as_ref().map(|send| copy(send.shared())).transpose()?.flatten();
        let into = receive.as_ref().map(|receive| copy(receive.shared().shared()));
        let received = into.transpose()?.flatten();
        Ok(CollectiveMemory { send, receive, sent, received })
    }

    pub fn read(&self) -> SharedBytes<'_> {
        match (&self.sent, &self.send) {
            (Some(copy), _) => copy.shared().shared(),
            (None, Some(send)) => send.shared(),
            (None, None) => SharedBytes::default(),
        }
    }

    pub fn write(&self) -> SharedBytesMut<'_> {
        match (&self.received, &self.receive) {
            (Some(copy), _) => copy.shared(),
            (None, Some(receive)) => receive.shared(),
            (None, None) => SharedBytesMut::default(),
        }
    }

    /// The collective is over: a window gets what it gave.
    pub fn write_back(&self) {
        if let (Some(copy), Some(receive)) = (&self.received, &self.receive) {
            receive.shared().copy_from(copy.shared().shared());
        }
    }

    /// Whether it has a copy of some of this memory, which the library does not know as lent.
    pub fn copies(&self, start: usize, bytes: usize) -> bool {
        let sent = self.sent.as_ref().and(self.send.as_ref()).map(Input::shared);
        let received = self.received.as_ref().and(self.receive.as_ref());
        let received = received.map(|receive| receive.shared().shared());
        [sent, received].into_iter().flatten().any(|memory| {
            any_overlap(&mut [(start, bytes), (memory.as_ptr().addr(), memory.len())])
        })
    }
}

/// A collective of elements of some type, to be started once that is known.
struct Starter<'a> {
    group: &'a Group<'static>,
    kind: CollectiveKind<'static>,
    op: Op,
    memory: &'a CollectiveMemory,
    report: Report<'a>,
}

impl OfScalar for Starter<'_> {
    type Output = Result<RequestHandle, Failure>;

    fn run<T: Scalar>(self) -> Self::Output {
        let Starter { group, kind, op, memory, report } = self;
        let (read, write) = (memory.read(), memory.write());
        let fits = |start: *const u8, bytes: usize| {
            bytes == 0 || start.cast::<T>().is_aligned() && bytes.is_multiple_of(size_of::<T>())
        };
        if !fits(read.as_ptr(), read.len()) || !fits(write.as_ptr(), write.len()) {
            return Err(misaligned());
        }
        // SAFETY: the entry of the request holds both buffers, or the copies, until the queue has told the end or it was
        // released. They are aligned, as was just found, and no window's. That no thread of the program uses them meanwhile is
        // demanded by the package's documentation.
        Ok(unsafe { group.start_shared::<T>(kind, read, write, op, report) }?)
    }
}

/// The collective of a name; none is the barrier.
fn kind_of(name: &str, root: u32) -> Result<Option<CollectiveKind<'static>>, Failure> {
    Ok(Some(match name {
        "barrier" => return Ok(None),
        "broadcast" => CollectiveKind::Broadcast { root },
        "reduce" => CollectiveKind::Reduce { root },
        "allreduce" => CollectiveKind::Allreduce,
        "gather" => CollectiveKind::Gather { root },
        "scatter" => CollectiveKind::Scatter { root },
        "allgather" => CollectiveKind::Allgather,
        "alltoall" => CollectiveKind::Alltoall,
        _ => return Err(Failure::new("BadTypeError", format!("there is no collective {name}"))),
    }))
}

/// The arrays of a collective.
pub struct CollectiveArrays<'a, 'py> {
    pub send: Option<&'a Bound<'py, PyAny>>,
    pub receive: Option<&'a Bound<'py, PyAny>>,
    /// Keeps the objects from moving the memory although their buffers are held.
    pub guard: Option<Py<PyAny>>,
}

/// Starts a collective; `reduced` is the type of the elements of a reduction, and its operation.
pub fn start(
    py: Python<'_>,
    state: &State,
    group: &Group<'static>,
    (name, root): (&str, u32),
    arrays: CollectiveArrays<'_, '_>,
    reduced: Option<(&str, i32)>,
) -> PyResult<NativeRequest> {
    let send = arrays.send.map(|send| Input::of(send, "array")).transpose()?;
    let receive = arrays.receive.map(|receive| Output::of(receive, "out")).transpose()?;
    let kind = kind_of(name, root)?;
    let (code, op) = match reduced {
        Some((code, op)) => (code, operation(op)?),
        None => ("u1", Op::BitOr),
    };
    let memory = CollectiveMemory::new(state.context, send, receive)?;
    let lent = LentMemory::new(Memory::Collective(memory), arrays.guard);
    NativeRequest::start(py, state, lent, |report, memory| {
        let (Some(kind), Memory::Collective(memory)) = (kind, memory) else {
            return Ok(group.start_barrier(report)?);
        };
        with_scalar(code, Starter { group, kind, op, memory, report })?
    })
}
