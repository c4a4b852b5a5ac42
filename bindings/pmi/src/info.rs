//! Lists of attributes for PMIx, with all that their pointers lead to.

use std::ffi::{CStr, CString, c_char, c_void};

use crate::ffi::{
    self, Data, DataArray, Envar, Info, KEY_BYTES, NSPACE_BYTES, Proc, PublishedData, Value,
};

/// Copies a text into a field of fixed size; what is too long is cut off. It ends with a zero.
fn fill<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from.cast_signed() as c_char;
    }
    field
}

/// The text in a field of fixed size.
pub fn text_of(field: &[c_char]) -> String {
    let bytes: Vec<u8> =
        field.iter().map(|&byte| byte.cast_unsigned()).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A process of a namespace.
pub fn process(nspace: &str, rank: u32) -> Proc {
    Proc { nspace: fill::<NSPACE_BYTES>(nspace), rank }
}

/// A list of attributes. The library copies what it is given, so a list lives as long as the call.
#[derive(Default)]
pub struct InfoList {
    infos: Vec<Info>,
    texts: Vec<CString>,
    arrays: Vec<(Box<DataArray>, InfoList)>,
}

impl InfoList {
    fn push(&mut self, key: &str, kind: u16, set: impl FnOnce(&mut Data)) {
        let nothing =
            Envar { name: std::ptr::null_mut(), value: std::ptr::null_mut(), separator: 0 };
        let mut data = Data { envar: nothing };
        set(&mut data);
        let value = Value { kind, data };
        self.infos.push(Info { key: fill::<KEY_BYTES>(key), flags: 0, value });
    }

    pub fn number(&mut self, key: &str, value: u32) {
        self.push(key, ffi::UINT32, |data| data.uint32 = value);
    }

    pub fn small(&mut self, key: &str, value: u16) {
        self.push(key, ffi::UINT16, |data| data.uint16 = value);
    }

    pub fn rank(&mut self, key: &str, rank: u32) {
        self.push(key, ffi::PROC_RANK, |data| data.rank = rank);
    }

    /// A text; one with a zero byte inside is cut off there.
    pub fn text(&mut self, key: &str, text: &str) {
        let text = CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default();
        self.c_text(key, text);
    }

    pub fn c_text(&mut self, key: &str, text: CString) {
        let at = text.as_ptr();
        self.texts.push(text);
        self.push(key, ffi::STRING, |data| data.string = at);
    }

    /// Attributes of one process.
    pub fn array(&mut self, key: &str, mut list: Self) {
        let array = list.infos.as_mut_ptr().cast::<c_void>();
        let mut held = Box::new(DataArray { kind: ffi::INFO, size: list.infos.len(), array });
        let at: *mut DataArray = &raw mut *held;
        self.arrays.push((held, list));
        self.push(key, ffi::DATA_ARRAY, |data| data.array = at);
    }

    pub fn parts(&mut self) -> (*mut Info, usize) {
        (self.infos.as_mut_ptr(), self.infos.len())
    }
}

/// A published name with its value, for the library; neither is ever freed.
pub fn published(name: &str, value: &str) -> PublishedData {
    let value = CString::new(value.split('\0').next().unwrap_or_default()).unwrap_or_default();
    let data = Data { string: value.into_raw() };
    PublishedData {
        owner: process("", u32::MAX),
        key: fill::<KEY_BYTES>(name),
        value: Value { kind: ffi::STRING, data },
    }
}

/// The names and texts among attributes, without the directives of PMIx.
///
/// # Safety
/// There are so many, or the pointer is null; texts end with a zero.
pub unsafe fn texts(infos: *const Info, count: usize) -> Vec<(String, String)> {
    if infos.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller says.
    let infos = unsafe { std::slice::from_raw_parts(infos, count) };
    let pair = |info: &Info| {
        let name = text_of(&info.key);
        let is_text = info.value.kind == ffi::STRING && !name.starts_with("pmix.");
        // SAFETY: a value of this kind is a text or null.
        is_text.then(|| (name, unsafe { text_in(info.value.data.string) }))
    };
    infos.iter().filter_map(pair).collect()
}

/// A text of the library.
///
/// # Safety
/// As for [`copied`].
pub unsafe fn text_in(text: *const c_char) -> String {
    // SAFETY: as the caller says.
    unsafe { copied(text) }.to_string_lossy().into_owned()
}

/// Copies a text that the library allocated.
///
/// # Safety
/// It is null or ends with a zero, and nobody changes it meanwhile.
pub unsafe fn copied(text: *const c_char) -> CString {
    if text.is_null() {
        return CString::default();
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(text) }.to_owned()
}
