//! Objects that the program holds by pointers to their `struct fid`.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi;
use crate::errors::{Answer, FI_EBUSY, FI_EINVAL, FI_ENOSYS};

/// What an object is, for the program and for us.
pub trait Class: Sized {
    /// The structure of the header that the program sees. It begins with `struct fid`.
    type Fid;
    /// The table that objects of this class alone have: by it they are known.
    fn table() -> &'static abi::fi_ops;
}

/// What the program's pointer points to. The program may read and write the first part at any time, so it is never behind a
/// reference.
#[repr(C)]
struct Object<S: Class> {
    fid: UnsafeCell<S::Fid>,
    state: S,
}

/// The pointer that the program gets. It is given back by [`withdraw`].
pub fn publish<S: Class>(fid: S::Fid, state: S) -> *mut S::Fid {
    Box::into_raw(Box::new(Object { fid: UnsafeCell::new(fid), state })).cast()
}

/// The beginning of every object.
pub fn head<S: Class>(class: u32, context: *mut std::ffi::c_void) -> abi::fid {
    abi::fid { fclass: class as usize, context, ops: std::ptr::from_ref(S::table()).cast_mut() }
}

/// Our side of an object. Fails for NULL and for objects of another class or provider.
///
/// # Safety
/// `fid` is NULL or points to a `struct fid` that is open until `'a` is over.
pub unsafe fn state<'a, S: Class, F>(fid: *mut F) -> Answer<&'a S> {
    if fid.is_null() {
        return Err(FI_EINVAL);
    }
    // SAFETY: the caller promises that a `struct fid` begins there; only the word is read, by a pointer.
    let table = unsafe { (&raw const (*fid.cast::<abi::fid>()).ops).read() };
    if !std::ptr::eq(table, S::table()) {
        return Err(FI_EINVAL);
    }
    // SAFETY: only objects that `publish::<S>` made have this table, and the caller promises that it is open. The reference
    // is to the second part only, which the program does not know.
    Ok(unsafe { &(*fid.cast::<Object<S>>()).state })
}

/// Takes an object back from the program, which must not use it any more. It is dropped by the caller, unless `may_close` fails.
///
/// # Safety
/// As [`state`]; and no other call with this object is under way, which libfabric asks of programs.
pub unsafe fn withdraw<S: Class>(
    fid: *mut abi::fid,
    may_close: impl FnOnce(&S) -> Answer<()>,
) -> Answer<S> {
    {
        // SAFETY: as the caller promises; the reference ends with this block.
        let state = unsafe { state::<S, _>(fid) }?;
        may_close(state)?;
    }
    // SAFETY: `state` has found that `publish::<S>` made it by `Box::into_raw`, and nobody uses it any more.
    let object = unsafe { Box::from_raw(fid.cast::<Object<S>>()) };
    Ok(object.state)
}

/// How many other objects use this one.
#[derive(Debug, Clone, Default)]
pub struct Users(Arc<AtomicUsize>);

/// One user; it ends when this is dropped.
#[derive(Debug)]
pub struct Hold(Arc<AtomicUsize>);

impl Users {
    /// One more user.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.0.fetch_add(1, Ordering::Relaxed);
        Hold(Arc::clone(&self.0))
    }

    /// `FI_EBUSY` while there are users.
    pub fn none(&self) -> Answer<()> {
        if self.0.load(Ordering::Acquire) == 0 { Ok(()) } else { Err(FI_EBUSY) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// The entry of a table for what is not offered: it answers `-FI_ENOSYS`.
pub trait Refused {
    /// That function.
    const REFUSED: Self;
}

macro_rules! refused {
    ($($argument:ident)*) => {
        impl<$($argument),*> Refused for unsafe extern "C" fn($($argument),*) -> c_int {
            const REFUSED: Self = {
                unsafe extern "C" fn refuse<$($argument),*>($(_: $argument),*) -> c_int {
                    -FI_ENOSYS
                }
                refuse::<$($argument),*>
            };
        }
        impl<$($argument),*> Refused for unsafe extern "C" fn($($argument),*) -> isize {
            const REFUSED: Self = {
                unsafe extern "C" fn refuse<$($argument),*>($(_: $argument),*) -> isize {
                    -(FI_ENOSYS as isize)
                }
                refuse::<$($argument),*>
            };
        }
    };
}

refused!(A);
refused!(A B);
refused!(A B C);
refused!(A B C D);
refused!(A B C D E);
refused!(A B C D E F);
refused!(A B C D E F G);
refused!(A B C D E F G H);
refused!(A B C D E F G H I);
refused!(A B C D E F G H I J);
refused!(A B C D E F G H I J K);
refused!(A B C D E F G H I J K L);
refused!(A B C D E F G H I J K L M);
refused!(A B C D E F G H I J K L M N);
refused!(A B C D E F G H I J K L M N O P);

/// A table of `fi_ops` in which all is refused but closing.
pub const fn plain_table(close: unsafe extern "C" fn(*mut abi::fid) -> c_int) -> abi::fi_ops {
    abi::fi_ops {
        size: size_of::<abi::fi_ops>(),
        close: Some(close),
        bind: Some(Refused::REFUSED),
        control: Some(Refused::REFUSED),
        ops_open: Some(Refused::REFUSED),
        tostr: Some(Refused::REFUSED),
        ops_set: Some(Refused::REFUSED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(u32);
    struct Other;
    static ONE: abi::fi_ops =
        plain_table(<unsafe extern "C" fn(*mut abi::fid) -> c_int as Refused>::REFUSED);
    static OTHER: abi::fi_ops =
        plain_table(<unsafe extern "C" fn(*mut abi::fid) -> c_int as Refused>::REFUSED);
    impl Class for One {
        type Fid = abi::fid_cq;
        fn table() -> &'static abi::fi_ops {
            &ONE
        }
    }
    impl Class for Other {
        type Fid = abi::fid_cq;
        fn table() -> &'static abi::fi_ops {
            &OTHER
        }
    }

    #[test]
    fn an_object_is_known_by_its_table() {
        let fid = abi::fid_cq {
            fid: head::<One>(abi::FI_CLASS_CQ, std::ptr::null_mut()),
            ops: std::ptr::null_mut(),
        };
        let pointer = publish(fid, One(7));
        // SAFETY: `pointer` was published and is open until it is withdrawn below.
        unsafe {
            assert_eq!(state::<One, _>(pointer).unwrap().0, 7);
            assert!(matches!(state::<Other, _>(pointer), Err(FI_EINVAL)));
            assert!(matches!(state::<One, abi::fid>(std::ptr::null_mut()), Err(FI_EINVAL)));
            assert!(matches!(withdraw::<One>(pointer.cast(), |_| Err(FI_EBUSY)), Err(FI_EBUSY)));
            assert_eq!(withdraw::<One>(pointer.cast(), |_| Ok(())).unwrap().0, 7);
        }
    }

    #[test]
    fn an_object_in_use_is_busy() {
        let users = Users::default();
        let hold = users.hold();
        assert_eq!(users.none(), Err(FI_EBUSY));
        drop(hold);
        assert_eq!(users.none(), Ok(()));
    }
}
