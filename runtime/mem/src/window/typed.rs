//! Windows of elements: indices and counts in place of bytes.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::fence;

use kumi_proto::frame::{Operation, Width};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::context::Context;
use crate::error::Error;
use crate::window::Window;
use crate::window::completion::OnPlacement;
use crate::window::pieces::Piece;
use crate::window::strided::Strided;
use crate::window::table::Rights;

/// Types that a [`TypedWindow`] can hold: plain data without padding, of which all bytes are values. Integers, floating point
/// numbers and arrays of them are, and structures that derive the traits of the crate `zerocopy`.
///
/// ```
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(FromBytes, IntoBytes, Immutable)]
/// #[repr(C)]
/// struct Particle {
///     place: [f64; 3],
///     charge: f64,
/// }
///
/// # fn main() -> Result<(), kumi_mem::Error> {
/// let context = kumi_mem::Context::init_singleton()?;
/// let window = context.typed_window::<Particle>(100)?;
/// window.put(0, 7, &[Particle { place: [0.0, 1.0, 2.0], charge: -1.0 }])?;
/// assert_eq!(window.load(7)?.charge, -1.0);
/// # Ok(())
/// # }
/// ```
pub trait Element: FromBytes + IntoBytes + Immutable {}

impl<T: FromBytes + IntoBytes + Immutable> Element for T {}

mod sealed {
    pub trait Sealed {}
}

/// Integers on which a [`TypedWindow`] has atomic operations.
pub trait AtomicElement: sealed::Sealed + Element + Copy {
    /// Bytes of the operation.
    #[doc(hidden)]
    const WIDTH: Width;

    /// The bits as an operand.
    #[doc(hidden)]
    fn to_operand(self) -> u64;

    /// The value with these bits.
    #[doc(hidden)]
    fn from_operand(operand: u64) -> Self;
}

macro_rules! atomic_elements {
    ($($number:ty, $unsigned:ty, $width:ident;)*) => {$(
        impl sealed::Sealed for $number {}
        impl AtomicElement for $number {
            const WIDTH: Width = Width::$width;

            fn to_operand(self) -> u64 {
                u64::from(self as $unsigned)
            }

            fn from_operand(operand: u64) -> Self {
                operand as $unsigned as $number
            }
        }
    )*};
}

atomic_elements! {
    u32, u32, Four;
    i32, u32, Four;
    u64, u64, Eight;
    i64, u64, Eight;
}

/// A window of elements of type `T`, the same at all ranks; offsets, strides and lengths are numbers of elements, also those
/// in [`Strided`] and [`Piece`].
///
/// Elements are copied out and in. There is no reference to one, since other ranks may write it at any time.
/// [`TypedWindow::bytes`] gives the same window by bytes, with FIFOs and signals.
///
/// ```
/// # fn main() -> Result<(), kumi_mem::Error> {
/// let context = kumi_mem::Context::init_singleton()?;
/// let window = context.typed_window::<f64>(8)?;
/// let next = (context.rank() + 1) % context.ranks();
/// window.put_notify(next, 2, &[1.5, 2.5], 0)?;
/// window.wait_notify(0, 1)?;
/// assert_eq!(window.load(3)?, 2.5);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TypedWindow<'c, T> {
    window: Window<'c>,
    elements: PhantomData<T>,
}

/// Elements as bytes. A number beyond all memory stays so, and is refused.
const fn scaled<T>(elements: usize) -> usize {
    elements.saturating_mul(size_of::<T>())
}

impl Strided {
    /// The same in bytes.
    fn scaled<T>(self) -> Strided {
        let Strided { offset, stride, block, count } = self;
        let (offset, stride, block) =
            (scaled::<T>(offset), scaled::<T>(stride), scaled::<T>(block));
        Strided { offset, stride, block, count }
    }
}

/// The same in bytes.
fn pieces_in_bytes<T>(pieces: &[Piece]) -> Vec<Piece> {
    let one = |piece: &Piece| Piece {
        offset: scaled::<T>(piece.offset),
        length: scaled::<T>(piece.length),
    };
    pieces.iter().map(one).collect()
}

impl Context {
    /// Makes a window of so many elements, all zero, with all rights. All ranks call this in the same order with the same
    /// type; numbers may differ.
    ///
    /// # Errors
    /// As [`Context::window`].
    pub fn typed_window<T: Element>(&self, elements: usize) -> Result<TypedWindow<'_, T>, Error> {
        self.typed_window_with(elements, Rights::ALL)
    }

    /// As [`Context::typed_window`], with these rights for the others.
    ///
    /// # Errors
    /// As [`Context::window`].
    pub fn typed_window_with<T: Element>(
        &self,
        elements: usize,
        rights: Rights,
    ) -> Result<TypedWindow<'_, T>, Error> {
        Ok(self.window_with(scaled::<T>(elements), rights)?.typed())
    }

    /// As [`Context::with_window_on`], of elements that the program has.
    ///
    /// # Errors
    /// As [`Context::with_window_on`].
    pub fn with_typed_window_on<T: Element, R>(
        &self,
        memory: &mut [T],
        rights: Rights,
        body: impl FnOnce(&TypedWindow<'_, T>) -> R,
    ) -> Result<R, Error> {
        let bytes = memory.as_mut_bytes();
        // SAFETY: the slice is borrowed until this function has ended and dropped the window, of which `body` gets
        // only a reference. All bytes that others write are values of the type.
        let window = unsafe { self.window_on(bytes.as_mut_ptr(), bytes.len(), rights) }?;
        Ok(body(&window.typed()))
    }
}

impl<'c> Window<'c> {
    /// The same window, by elements. Bytes behind the last whole element of a piece belong to none.
    #[must_use]
    pub fn typed<T: Element>(self) -> TypedWindow<'c, T> {
        const { assert!(size_of::<T>() > 0, "elements without a size have no index") };
        TypedWindow { window: self, elements: PhantomData }
    }
}

impl<'c, T: Element> TypedWindow<'c, T> {
    /// The same window, by bytes.
    #[must_use]
    pub fn bytes(&self) -> &Window<'c> {
        &self.window
    }

    /// The same window, by bytes, in place of this.
    #[must_use]
    pub fn into_bytes(self) -> Window<'c> {
        self.window
    }

    /// Elements of the own piece.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty window is nothing special")]
    pub fn len(&self) -> usize {
        self.window.len() / size_of::<T>()
    }

    /// Elements of a rank's piece.
    ///
    /// # Errors
    /// [`Error::BadRank`].
    pub fn size_at(&self, rank: u32) -> Result<u64, Error> {
        Ok(self.window.size_at(rank)? / size_of::<T>() as u64)
    }

    // ---- the own piece ----------------------------------------------------------------------

    /// A copy of an own element. What the rank that wrote it had written before is there as well, if it wrote the element
    /// at once: one of eight aligned bytes by a put, or by an atomic operation.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn load(&self, index: usize) -> Result<T, Error> {
        let mut value = T::new_zeroed();
        self.window.read(scaled::<T>(index), value.as_mut_bytes())?;
        fence(Acquire);
        Ok(value)
    }

    /// Writes an own element, behind everything that this thread has written before.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a value is stored, as in an atomic or a cell"
    )]
    pub fn store(&self, index: usize, value: T) -> Result<(), Error> {
        fence(Release);
        self.window.write(scaled::<T>(index), value.as_bytes())
    }

    /// Copies own elements, from this index on.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn read(&self, index: usize, into: &mut [T]) -> Result<(), Error> {
        self.window.read(scaled::<T>(index), into.as_mut_bytes())
    }

    /// Writes own elements, from this index on.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn write(&self, index: usize, from: &[T]) -> Result<(), Error> {
        self.window.write(scaled::<T>(index), from.as_bytes())
    }

    // ---- operations on others' elements -----------------------------------------------------

    /// Writes to a rank's elements, from this index on. Returns when the data may change.
    ///
    /// # Errors
    /// As [`Window::put`].
    pub fn put(&self, to: u32, index: usize, data: &[T]) -> Result<(), Error> {
        self.window.put(to, scaled::<T>(index), data.as_bytes())
    }

    /// As [`TypedWindow::put`]; when all is written, raises a notification counter there.
    ///
    /// # Errors
    /// As [`Window::put_notify`].
    pub fn put_notify(&self, to: u32, index: usize, data: &[T], notify: u32) -> Result<(), Error> {
        self.window.put_notify(to, scaled::<T>(index), data.as_bytes(), notify)
    }

    /// As [`TypedWindow::put`], and what is to happen when all is in place.
    ///
    /// # Errors
    /// As [`Window::put_with`].
    pub fn put_with(
        &self,
        to: u32,
        index: usize,
        data: &[T],
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        self.window.put_with(to, scaled::<T>(index), data.as_bytes(), after)
    }

    /// Writes blocks, which follow each other in `data`, to the places of `shape`.
    ///
    /// # Errors
    /// As [`Window::put_strided`].
    pub fn put_strided(
        &self,
        to: u32,
        shape: Strided,
        data: &[T],
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        self.window.put_strided(to, shape.scaled::<T>(), data.as_bytes(), after)
    }

    /// Writes to any number of pieces, each filled before the next.
    ///
    /// # Errors
    /// As [`Window::put_list`].
    pub fn put_list(
        &self,
        to: u32,
        pieces: &[Piece],
        data: &[T],
        after: OnPlacement<'_>,
    ) -> Result<(), Error> {
        self.window.put_list(to, &pieces_in_bytes::<T>(pieces), data.as_bytes(), after)
    }

    /// Writes the same elements to several ranks, and waits until all have them.
    ///
    /// # Errors
    /// As [`Window::multicast`].
    pub fn multicast(
        &self,
        ranks: &[u32],
        index: usize,
        data: &[T],
        notify: Option<u32>,
    ) -> Result<(), Error> {
        self.window.multicast(ranks, scaled::<T>(index), data.as_bytes(), notify)
    }

    /// Reads a rank's elements, from this index on.
    ///
    /// # Errors
    /// As [`Window::get`].
    pub fn get(&self, from: u32, index: usize, into: &mut [T]) -> Result<(), Error> {
        self.window.get(from, scaled::<T>(index), into.as_mut_bytes())
    }

    /// Reads one of a rank's elements.
    ///
    /// # Errors
    /// As [`Window::get`].
    pub fn get_one(&self, from: u32, index: usize) -> Result<T, Error> {
        let mut value = T::new_zeroed();
        self.window.get(from, scaled::<T>(index), value.as_mut_bytes())?;
        Ok(value)
    }

    /// Reads the places of `shape`, one after the other.
    ///
    /// # Errors
    /// As [`Window::get_strided`].
    pub fn get_strided(&self, from: u32, shape: Strided, into: &mut [T]) -> Result<(), Error> {
        self.window.get_strided(from, shape.scaled::<T>(), into.as_mut_bytes())
    }

    /// Reads any number of pieces, one after the other.
    ///
    /// # Errors
    /// As [`Window::get_list`].
    pub fn get_list(&self, from: u32, pieces: &[Piece], into: &mut [T]) -> Result<(), Error> {
        self.window.get_list(from, &pieces_in_bytes::<T>(pieces), into.as_mut_bytes())
    }

    // ---- notifications ----------------------------------------------------------------------

    /// How often a notification counter of the own piece was raised.
    ///
    /// # Errors
    /// As [`Window::notified`].
    pub fn notified(&self, notify: u32) -> Result<u64, Error> {
        self.window.notified(notify)
    }

    /// Waits until a notification counter of the own piece has reached this count; returns the count.
    ///
    /// # Errors
    /// As [`Window::wait_notify`].
    pub fn wait_notify(&self, notify: u32, at_least: u64) -> Result<u64, Error> {
        self.window.wait_notify(notify, at_least)
    }
}

/// Atomic operations on one element of a rank's piece (the own one too). All return the value before, and wait for it. With an
/// error memory is untouched.
impl<T: AtomicElement> TypedWindow<'_, T> {
    /// Adds, wrapping.
    ///
    /// # Errors
    /// As [`Window::fetch_add`].
    pub fn fetch_add(&self, to: u32, index: usize, operand: T) -> Result<T, Error> {
        self.atomic(to, index, Operation::FetchAdd, [operand.to_operand(), 0])
    }

    /// Ands, bit by bit.
    ///
    /// # Errors
    /// As [`Window::fetch_add`].
    pub fn fetch_and(&self, to: u32, index: usize, operand: T) -> Result<T, Error> {
        self.atomic(to, index, Operation::FetchAnd, [operand.to_operand(), 0])
    }

    /// Ors, bit by bit.
    ///
    /// # Errors
    /// As [`Window::fetch_add`].
    pub fn fetch_or(&self, to: u32, index: usize, operand: T) -> Result<T, Error> {
        self.atomic(to, index, Operation::FetchOr, [operand.to_operand(), 0])
    }

    /// Exclusive-ors, bit by bit.
    ///
    /// # Errors
    /// As [`Window::fetch_add`].
    pub fn fetch_xor(&self, to: u32, index: usize, operand: T) -> Result<T, Error> {
        self.atomic(to, index, Operation::FetchXor, [operand.to_operand(), 0])
    }

    /// Stores a value.
    ///
    /// # Errors
    /// As [`Window::fetch_add`].
    pub fn swap(&self, to: u32, index: usize, value: T) -> Result<T, Error> {
        self.atomic(to, index, Operation::Swap, [value.to_operand(), 0])
    }

    /// Stores a value if the old one is as expected. Returns the old value.
    ///
    /// # Errors
    /// As [`Window::fetch_add`].
    pub fn compare_swap(&self, to: u32, index: usize, expected: T, value: T) -> Result<T, Error> {
        let operands = [expected.to_operand(), value.to_operand()];
        self.atomic(to, index, Operation::CompareSwap, operands)
    }

    fn atomic(
        &self,
        to: u32,
        index: usize,
        operation: Operation,
        operands: [u64; 2],
    ) -> Result<T, Error> {
        // One that was cut off to a word's end would be refused as misaligned.
        let offset = match scaled::<T>(index) {
            usize::MAX => usize::MAX - (size_of::<T>() - 1),
            offset => offset,
        };
        self.window.atomic(to, offset, operation, T::WIDTH, operands).map(T::from_operand)
    }
}
