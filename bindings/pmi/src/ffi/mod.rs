//! What of PMIx's binary interface the server uses. It is declared by hand: few structures, which PMIx promises to keep since
//! version 4. A test compares their layout with the installed header.

use std::ffi::{c_char, c_int, c_void};

/// Longest name of a namespace, its final zero included.
pub const NSPACE_BYTES: usize = 256;
/// Longest key, its final zero included.
pub const KEY_BYTES: usize = 512;

/// A status: 0 or a negative error.
pub type Status = c_int;
pub const SUCCESS: Status = 0;
pub const ERR_NOT_FOUND: Status = -46;
pub const ERR_NOT_SUPPORTED: Status = -47;
/// The name is another's.
pub const ERR_DUPLICATE_KEY: Status = -53;
pub const ERR_OUT_OF_RESOURCE: Status = -29;
/// A function of the module has done what it was asked for and does not call back.
pub const OPERATION_SUCCEEDED: Status = -157;

/// Types of values.
pub const STRING: u16 = 3;
pub const UINT16: u16 = 13;
pub const UINT32: u16 = 14;
pub const INFO: u16 = 24;
pub const DATA_ARRAY: u16 = 39;
pub const PROC_RANK: u16 = 40;

/// All ranks of a namespace.
pub const RANK_WILDCARD: u32 = u32::MAX - 1;

/// `pmix_proc_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proc {
    pub nspace: [c_char; NSPACE_BYTES],
    pub rank: u32,
}

/// `pmix_byte_object_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ByteObject {
    pub bytes: *mut c_char,
    pub size: usize,
}

/// `pmix_envar_t`, the largest member of a value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Envar {
    pub name: *mut c_char,
    pub value: *mut c_char,
    pub separator: c_char,
}

/// `pmix_data_array_t`
#[repr(C)]
pub struct DataArray {
    pub kind: u16,
    pub size: usize,
    pub array: *mut c_void,
}

/// The union in `pmix_value_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Data {
    pub string: *const c_char,
    pub uint16: u16,
    pub uint32: u32,
    pub rank: u32,
    pub array: *mut DataArray,
    pub object: ByteObject,
    pub envar: Envar,
}

/// `pmix_value_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    pub kind: u16,
    pub data: Data,
}

/// `pmix_info_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    pub key: [c_char; KEY_BYTES],
    pub flags: u32,
    pub value: Value,
}

/// `pmix_pdata_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PublishedData {
    pub owner: Proc,
    pub key: [c_char; KEY_BYTES],
    pub value: Value,
}

pub type OpCallback = unsafe extern "C" fn(Status, *mut c_void);
pub type ReleaseCallback = unsafe extern "C" fn(*mut c_void);
pub type ModexCallback = unsafe extern "C" fn(
    Status,
    *const c_char,
    usize,
    *mut c_void,
    Option<ReleaseCallback>,
    *mut c_void,
);
pub type LookupCallback = unsafe extern "C" fn(Status, *mut PublishedData, usize, *mut c_void);
pub type DmodexCallback = unsafe extern "C" fn(Status, *mut c_char, usize, *mut c_void);

pub type ClientFn =
    unsafe extern "C" fn(*const Proc, *mut c_void, Option<OpCallback>, *mut c_void) -> Status;
pub type AbortFn = unsafe extern "C" fn(
    *const Proc,
    *mut c_void,
    c_int,
    *const c_char,
    *mut Proc,
    usize,
    Option<OpCallback>,
    *mut c_void,
) -> Status;
pub type FenceFn = unsafe extern "C" fn(
    *const Proc,
    usize,
    *const Info,
    usize,
    *mut c_char,
    usize,
    Option<ModexCallback>,
    *mut c_void,
) -> Status;
pub type DmodexFn = unsafe extern "C" fn(
    *const Proc,
    *const Info,
    usize,
    Option<ModexCallback>,
    *mut c_void,
) -> Status;
pub type PublishFn = unsafe extern "C" fn(
    *const Proc,
    *const Info,
    usize,
    Option<OpCallback>,
    *mut c_void,
) -> Status;
pub type LookupFn = unsafe extern "C" fn(
    *const Proc,
    *mut *mut c_char,
    *const Info,
    usize,
    Option<LookupCallback>,
    *mut c_void,
) -> Status;
pub type UnpublishFn = unsafe extern "C" fn(
    *const Proc,
    *mut *mut c_char,
    *const Info,
    usize,
    Option<OpCallback>,
    *mut c_void,
) -> Status;
pub type SpawnFn = unsafe extern "C" fn(
    *const Proc,
    *const Info,
    usize,
    *const c_void,
    usize,
    *const c_void,
    *mut c_void,
) -> Status;

/// Functions of the module that this server does not have.
type Absent = Option<unsafe extern "C" fn()>;

/// `pmix_server_module_t` of version 4 and later, which only add members at its end.
#[repr(C)]
pub struct Module {
    pub client_connected: Option<ClientFn>,
    pub client_finalized: Option<ClientFn>,
    pub abort: Option<AbortFn>,
    pub fence: Option<FenceFn>,
    pub direct_modex: Option<DmodexFn>,
    pub publish: Option<PublishFn>,
    pub lookup: Option<LookupFn>,
    pub unpublish: Option<UnpublishFn>,
    pub spawn: Option<SpawnFn>,
    /// From `connect` on; more of them than any version has, so that none reads beyond.
    pub others: [Absent; 64],
}

pub type InitFn = unsafe extern "C" fn(*mut Module, *mut Info, usize) -> Status;
pub type RegisterNspaceFn = unsafe extern "C" fn(
    *const c_char,
    c_int,
    *mut Info,
    usize,
    Option<OpCallback>,
    *mut c_void,
) -> Status;
pub type RegisterClientFn = unsafe extern "C" fn(
    *const Proc,
    libc::uid_t,
    libc::gid_t,
    *mut c_void,
    Option<OpCallback>,
    *mut c_void,
) -> Status;
pub type SetupForkFn = unsafe extern "C" fn(*const Proc, *mut *mut *mut c_char) -> Status;
pub type DmodexRequestFn =
    unsafe extern "C" fn(*const Proc, Option<DmodexCallback>, *mut c_void) -> Status;
pub type GenerateFn = unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status;
pub type ErrorStringFn = unsafe extern "C" fn(Status) -> *const c_char;

#[cfg(test)]
mod tests;
