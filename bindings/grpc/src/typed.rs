//! Typed arguments, for languages that know the types: `kumi_grpc_arguments.h`.

use std::ffi::{c_char, c_int, c_void};
use std::ops::Range;
use std::slice;

use kumi_call_client::Shape;
use kumi_idl::{Element, Interface, Order};

/// Kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// The parameter's default.
    Default,
    /// A number.
    Number,
    /// An array.
    Array,
    /// A text of this many bytes; for a result, room for this many with the zero.
    Text,
    /// A text of this many bytes, padded with blanks.
    Blanks,
    /// A C function.
    Function,
    /// An array of mode `in` that need not outlive the function that gets it.
    ArrayCopy,
    /// An array at the server.
    Held,
}

/// Receives a returned text.
pub type TextReceiver = unsafe extern "C" fn(*mut c_void, *const c_char, usize);

/// `kumi_grpc_argument`.
#[repr(C)]
#[derive(Debug)]
pub struct GrpcArgument {
    what: c_int,
    element: c_int,
    writable: c_int,
    order: c_int,
    /// The number, array or text.
    pub data: *mut c_void,
    /// Elements of an array, bytes of a text.
    pub count: u64,
    dims: *const u64,
    dimensions: u64,
    take: Option<TextReceiver>,
    taker: *mut c_void,
    source: *const c_void,
    source_bytes: u64,
}

/// The addresses of so many bytes; none at null.
pub fn addresses(from: *const c_void, bytes: u64) -> Range<usize> {
    if from.is_null() {
        return 0..0;
    }
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    from.addr()..from.addr().saturating_add(bytes)
}

impl GrpcArgument {
    /// Its kind.
    pub fn what(&self) -> Option<ArgumentKind> {
        Some(match self.what {
            0 => ArgumentKind::Default,
            1 => ArgumentKind::Number,
            2 => ArgumentKind::Array,
            3 => ArgumentKind::Text,
            4 => ArgumentKind::Blanks,
            5 => ArgumentKind::Function,
            6 => ArgumentKind::ArrayCopy,
            7 => ArgumentKind::Held,
            _ => return None,
        })
    }

    /// Type of its elements.
    pub fn element(&self) -> Option<Element> {
        usize::try_from(self.element).ok().and_then(|index| Element::ALL.get(index)).copied()
    }

    /// Whether it can be written to.
    pub fn writable(&self) -> bool {
        self.writable != 0 && (self.count == 0 || !self.data.is_null())
    }

    /// The function that receives a returned text, and its first argument.
    pub fn taker(&self) -> Option<(TextReceiver, *mut c_void)> {
        self.take.map(|take| (take, self.taker))
    }

    /// Where its value is, and the variable of the program that this value is of. A text has a byte at least: so the variable is
    /// found from its address, also while the text is empty.
    pub fn memory(&self) -> [Range<usize>; 2] {
        let bytes = match (self.what(), self.element()) {
            (Some(ArgumentKind::Text | ArgumentKind::Blanks), _) => self.count.max(1),
            (Some(ArgumentKind::Number), Some(element)) => element.size(),
            (Some(ArgumentKind::Array | ArgumentKind::ArrayCopy), Some(element)) => {
                self.count.saturating_mul(element.size())
            }
            _ => 0,
        };
        [addresses(self.data, bytes), addresses(self.source, self.source_bytes)]
    }

    /// First argument of a callback; `None`: it has none.
    pub fn context(&self) -> Option<*mut c_void> {
        (self.count != 0).then_some(self.taker)
    }

    /// The types of a callback's arguments, or an array's sizes.
    ///
    /// # Safety
    /// `dims` is null or has that many.
    pub unsafe fn dims(&self) -> Option<&[u64]> {
        if self.dims.is_null() {
            return None;
        }
        // More than any routine's callback can have.
        let most = Interface::MOST_PARAMS + 1;
        let count = usize::try_from(self.dimensions).unwrap_or(most).min(most);
        // SAFETY: not null; the rest as the caller promises.
        Some(unsafe { slice::from_raw_parts(self.dims, count) })
    }

    /// The array's shape.
    ///
    /// # Safety
    /// `dims` is null or has that many sizes.
    pub unsafe fn shape(&self, element: Element) -> Shape {
        let order = if self.order == 2 { Order::Column } else { Order::Row };
        // More than any routine's array can have.
        let most = Interface::MOST_DIMENSIONS + 1;
        let dims = usize::try_from(self.dimensions).unwrap_or(most).min(most);
        if self.dims.is_null() || dims == 0 {
            return Shape { element, dims: None, order };
        }
        // SAFETY: not null; the rest as the caller promises.
        let dims = unsafe { slice::from_raw_parts(self.dims, dims) }.to_vec();
        Shape { element, dims: Some(dims), order }
    }
}
