//! Groups, and the program's own operations.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kumi_mem::{Error, Group, Op, Reduction, Scalar};

use crate::args::{list, rank, required, store};
use crate::code::{Code, Failure};
use crate::state::{State, away, value, with};

/// `kumi_group` of `kumi.h`: opaque to C.
pub struct KumiGroup {
    group: Group<'static>,
}

/// `KUMI_JOB`: no handle is so small.
const JOB: usize = 1;
/// `KUMI_NO_COLOUR`.
const NO_COLOUR: c_int = -1;
/// `KUMI_OP_USER`: the first number of a program's operation.
const FIRST_USER_OP: c_int = 0x4000_0000;

/// `KUMI_JOB`.
pub(crate) fn job() -> *mut KumiGroup {
    std::ptr::without_provenance_mut(JOB)
}

/// The group behind a handle.
pub(crate) fn find(state: &State, handle: *mut KumiGroup) -> Result<&Group<'static>, Failure> {
    if handle.addr() == JOB {
        return Ok(&state.job);
    }
    Ok(&state.groups.find(handle)?.group)
}

/// Makes a group of another and stores its handle, or null at a rank that is not in it.
///
/// # Safety
/// `made` is null or points to memory for a handle.
unsafe fn make(
    group: *mut KumiGroup,
    made: *mut *mut KumiGroup,
    make: impl FnOnce(&Group<'static>) -> Result<Option<Group<'static>>, Failure>,
) -> c_int {
    with(|state| {
        required(made, "made")?;
        state.groups.room()?;
        let group = make(find(state, group)?)?;
        let handle = match group {
            Some(group) => state.groups.give(KumiGroup { group })?,
            None => std::ptr::null_mut(),
        };
        // SAFETY: promised by the caller.
        unsafe { store(made, handle) }
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `made` points to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_split(
    group: *mut KumiGroup,
    colour: c_int,
    key: i64,
    made: *mut *mut KumiGroup,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        make(group, made, |group| {
            let colour = match colour {
                NO_COLOUR => None,
                colour => Some(u32::try_from(colour).map_err(|_| {
                    let text = format!("{colour} is no colour: use 0 or more, or KUMI_NO_COLOUR");
                    Failure::new(Code::Length, text)
                })?),
            };
            Ok(group.split(colour, key)?)
        })
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `members` points to `count` numbers, `made` to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_subset(
    group: *mut KumiGroup,
    members: *const c_int,
    count: usize,
    made: *mut *mut KumiGroup,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        make(group, made, |group| {
            let members = list(members, count, "members")?;
            // One that cannot be is refused by all members together.
            let number = |member: &c_int| u32::try_from(*member).unwrap_or(u32::MAX);
            Ok(group.subset(&members.iter().map(number).collect::<Vec<_>>())?)
        })
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `made` points to memory for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_duplicate(
    group: *mut KumiGroup,
    made: *mut *mut KumiGroup,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe { make(group, made, |group| Ok(Some(group.duplicate()?))) }
}

/// See `kumi.h`.
///
/// # Safety
/// No other call uses the group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_free(group: *mut KumiGroup) -> c_int {
    with(|state| {
        if group.addr() == JOB {
            return Err(Failure::new(Code::Group, "the job's group stays until kumi_finalize"));
        }
        // SAFETY: promised by the caller.
        unsafe { state.groups.free(group) }
    })
}

fn number(number: u32) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_group_member(group: *mut KumiGroup) -> c_int {
    value(|state| Ok(number(find(state, group)?.member())))
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_group_members(group: *mut KumiGroup) -> c_int {
    value(|state| Ok(number(find(state, group)?.members())))
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_group_rank(group: *mut KumiGroup, member: c_int) -> c_int {
    value(|state| Ok(number(find(state, group)?.rank_of(rank(member)?)?)))
}

/// See `kumi.h`.
///
/// # Safety
/// `member` points to memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_group_find(
    group: *mut KumiGroup,
    job_rank: c_int,
    member: *mut c_int,
) -> c_int {
    with(|state| {
        required(member, "member")?;
        let job_rank = rank(job_rank)?;
        let found = find(state, group)?.member_of(job_rank);
        if job_rank >= state.context.ranks() {
            return Err(Error::BadRank { rank: job_rank, ranks: state.context.ranks() }.into());
        }
        // SAFETY: promised by the caller.
        unsafe { store(member, found.map_or(-1, number)) }
    })
}

// ---- operations ---------------------------------------------------------------------------------

/// `kumi_combine` of `kumi.h`.
pub type KumiCombine = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int, *mut c_void);

/// A program's operation.
#[derive(Clone, Copy)]
struct UserOperation {
    combine: KumiCombine,
    context: *mut c_void,
    commutative: bool,
}

// SAFETY: the pointer is only handed back to the program, which `kumi_groups.h` tells that any thread may combine.
unsafe impl Send for UserOperation {}

/// The program's operations, by number. No number is used twice.
#[derive(Default)]
pub struct Operations(Mutex<BTreeMap<c_int, UserOperation>>);

impl Operations {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<c_int, UserOperation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A `kumi_op` on elements of a `kumi_type`.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Own(Op),
    User { operation: UserOp, kind: c_int },
}

/// A program's operation that was found.
#[derive(Clone, Copy)]
pub(crate) struct UserOp(UserOperation);

impl Operation {
    /// The operation of a number.
    pub(crate) fn of(state: &State, number: c_int, kind: c_int) -> Result<Operation, Failure> {
        if let Some(op) = Op::from_number(number) {
            return Ok(Operation::Own(op));
        }
        let operations = state.operations.lock();
        let unknown = || Failure::new(Code::Operation, format!("{number} is not a kumi_op"));
        let operation = UserOp(*operations.get(&number).ok_or_else(unknown)?);
        Ok(Operation::User { operation, kind })
    }
}

impl<T: Scalar> Reduction<T> for Operation {
    fn combine(&self, into: &mut [T], other: &[T]) -> Result<(), Error> {
        match self {
            Operation::Own(op) => op.combine(into, other),
            Operation::User { operation: UserOp(operation), kind } => {
                let count = into.len().min(other.len());
                if count > 0 {
                    let (into, other) = (into.as_mut_ptr().cast(), other.as_ptr().cast());
                    // SAFETY: the program's function gets two arrays of so many elements of the type, as `kumi.h` says. It
                    // can call nothing of this library that uses the context.
                    away(|| unsafe {
                        (operation.combine)(into, other, count, *kind, operation.context);
                    });
                }
                Ok(())
            }
        }
    }

    fn is_commutative(&self) -> bool {
        match self {
            Operation::Own(_) => true,
            Operation::User { operation, .. } => operation.0.commutative,
        }
    }
}

/// See `kumi.h`.
///
/// # Safety
/// `combine` can be called as `kumi.h` says until the operation is freed; `op` points to memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_op_create(
    combine: Option<KumiCombine>,
    context: *mut c_void,
    commutative: c_int,
    op: *mut c_int,
) -> c_int {
    static NEXT: AtomicI32 = AtomicI32::new(FIRST_USER_OP);
    with(|state| {
        required(op, "op")?;
        let null = || Failure::new(Code::Null, "combine is NULL but a function is needed");
        let operation = UserOperation {
            combine: combine.ok_or_else(null)?,
            context,
            commutative: commutative != 0,
        };
        let next = |last: c_int| last.checked_add(1);
        let number = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = number.map_err(|_| Failure::new(Code::Memory, "too many operations"))?;
        state.operations.lock().insert(number, operation);
        // SAFETY: promised by the caller.
        unsafe { store(op, number) }
    })
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_op_free(op: c_int) -> c_int {
    with(|state| {
        let gone = state.operations.lock().remove(&op);
        let unknown = || Failure::new(Code::Operation, format!("{op} is no operation to free"));
        gone.map(drop).ok_or_else(unknown)
    })
}
