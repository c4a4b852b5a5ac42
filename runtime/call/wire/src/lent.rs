//! Arrays that callers lend for the length of a call.

/// Readable memory that its lender keeps unchanged until the call is over.
#[derive(Debug, Clone, Copy)]
pub struct LentBytes {
    address: *const u8,
    length: usize,
}

/// Writable memory that its lender does not touch until the call is over. Its address comes from a pointer that may write.
#[derive(Debug)]
pub struct LentBytesMut(LentBytes);

// SAFETY: the lender has promised exclusive, valid memory until the call is over.
unsafe impl Send for LentBytes {}
// SAFETY: as above; it is only read, but for `LentBytesMut`, whose users write to it under one lock.
unsafe impl Sync for LentBytes {}

impl LentBytes {
    /// Lends `length` bytes.
    ///
    /// # Safety
    /// They can be read, and nobody writes to them, until the last use of the value or a copy of it.
    #[must_use]
    pub unsafe fn new(address: *const u8, length: usize) -> LentBytes {
        LentBytes { address, length }
    }

    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.address.addr() as u64
    }

    pub(crate) fn at(&self, offset: usize, length: usize) -> *const u8 {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "a range outside of the array");
        self.address.wrapping_add(offset)
    }
}

impl LentBytesMut {
    /// Lends `length` bytes.
    ///
    /// # Safety
    /// They can be written, and nobody else reads or writes them, until the last use of the value.
    #[must_use]
    pub unsafe fn new(address: *mut u8, length: usize) -> LentBytesMut {
        LentBytesMut(LentBytes { address, length })
    }

    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.0.length
    }

    pub(crate) fn at(&self, offset: usize, length: usize) -> *mut u8 {
        self.0.at(offset, length).cast_mut()
    }

    /// Whether the two overlap.
    pub fn overlaps(&self, other: &LentBytes) -> bool {
        let (mine, theirs) = (self.0.address.addr(), other.address.addr());
        mine < theirs.saturating_add(other.length) && theirs < mine.saturating_add(self.0.length)
    }

    /// The same memory, for reading.
    pub fn as_lent(&self) -> LentBytes {
        self.0
    }
}

/// Memory to read, as its lender handles it. Nothing but the lender's care keeps it alive, so only the crates of calls have
/// this trait: programs that have such a value do not.
pub trait Lend {
    /// Lends a slice that is borrowed for longer than the call.
    #[must_use]
    fn slice(bytes: &[u8]) -> Self;

    /// A part of it.
    #[must_use]
    fn part(&self, offset: usize, length: usize) -> Self;

    /// All of it.
    #[must_use]
    fn bytes(&self) -> &[u8];
}

impl Lend for LentBytes {
    fn slice(bytes: &[u8]) -> LentBytes {
        LentBytes { address: bytes.as_ptr(), length: bytes.len() }
    }

    fn part(&self, offset: usize, length: usize) -> LentBytes {
        LentBytes { address: self.at(offset, length), length }
    }

    fn bytes(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the lender has promised that it can be read and does not change.
        unsafe { std::slice::from_raw_parts(self.address, self.length) }
    }
}

/// Memory to write, as [`Lend`] has memory to read.
pub trait LendMut {
    /// Lends a slice that is borrowed for longer than the call.
    #[must_use]
    fn slice(bytes: &mut [u8]) -> Self;

    /// A part of it. The two values must not be used at the same time.
    #[must_use]
    fn part(&self, offset: usize, length: usize) -> Self;

    /// Copies bytes into it.
    fn write(&mut self, offset: usize, bytes: &[u8]);

    /// All of it, for writing.
    fn bytes(&mut self) -> &mut [u8];
}

impl LendMut for LentBytesMut {
    fn slice(bytes: &mut [u8]) -> LentBytesMut {
        LentBytesMut(LentBytes { address: bytes.as_mut_ptr(), length: bytes.len() })
    }

    fn part(&self, offset: usize, length: usize) -> LentBytesMut {
        LentBytesMut(self.0.part(offset, length))
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: the range is inside of what was lent, and nobody else uses it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    fn bytes(&mut self) -> &mut [u8] {
        let length = self.length();
        if length == 0 {
            return &mut [];
        }
        // SAFETY: the lender has promised that it can be written and that nobody else uses it; it held values before.
        unsafe { std::slice::from_raw_parts_mut(self.at(0, length), length) }
    }
}

/// Numbers that arrays may contain. Every bit pattern is a valid number.
pub trait Number: sealed::Number {
    /// The type in a description.
    const ELEMENT: kumi_idl::Element;
}

mod sealed {
    pub trait Number: Copy {}
}

macro_rules! numbers {
    ($($ty:ty => $element:ident),*) => {$(
        impl sealed::Number for $ty {}
        impl Number for $ty {
            const ELEMENT: kumi_idl::Element = kumi_idl::Element::$element;
        }
    )*};
}

numbers!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f32 => F32, f64 => F64);
// A complex number is its real part, then its imaginary part.
numbers!([f32; 2] => C64, [f64; 2] => C128);

/// The bytes of numbers.
pub fn bytes_of<T: Number>(numbers: &[T]) -> &[u8] {
    // SAFETY: the numbers have no padding, so all their bytes can be read; the borrow is the same.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// The bytes of numbers, for writing.
pub fn bytes_of_mut<T: Number>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as above; every pattern of bits is a number.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// Bytes as numbers. `None`: wrong alignment or length.
pub fn numbers_of<T: Number>(bytes: &[u8]) -> Option<&[T]> {
    let fits =
        bytes.len().is_multiple_of(size_of::<T>()) && bytes.as_ptr().cast::<T>().is_aligned();
    // SAFETY: length and alignment fit, and every pattern of bits is a number; the borrow is the same.
    fits.then(|| unsafe {
        std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>())
    })
}

/// Bytes as numbers, for writing.
pub fn numbers_of_mut<T: Number>(bytes: &mut [u8]) -> Option<&mut [T]> {
    let fits =
        bytes.len().is_multiple_of(size_of::<T>()) && bytes.as_ptr().cast::<T>().is_aligned();
    // SAFETY: as above; the numbers have no padding.
    fits.then(|| unsafe {
        std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / size_of::<T>())
    })
}

#[cfg(target_endian = "big")]
compile_error!("numbers are little-endian on the wire and are not converted");
