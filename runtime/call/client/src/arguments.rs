//! Arguments of a call, checked against the routine's description before anything is sent.

pub(super) mod files;
pub(super) mod functions;
pub(super) mod remote_array;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use kumi_idl::{
    Argument, ArgumentForm, Element, Interface, Mode, Order, Param, Plan, Scalar, Type,
};

use super::files::{CallFiles, FileArgument};
use super::{CallError, Callback, RemoteArray};
use crate::held::Gaps;
use crate::lent::{Lend, LendMut, LentBytes, LentBytesMut, Number, bytes_of, bytes_of_mut};
use crate::values::GivenValues;
use kumi_rpc::{HeldArrays, HeldResult, SharedDirections};

/// Smallest array in bytes that goes through shared memory.
const SHARED: usize = 64 << 10;
/// Smallest total of such arrays, in both directions, that is worth the round trip for a memory grant.
const WORTH: usize = 256 << 10;

/// Element type and, if known, shape of an array.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Type of the elements.
    pub element: Element,
    /// Elements along each dimension. `None`: as many elements as the routine wants, in its order.
    pub dims: Option<Vec<u64>>,
    /// Order of the elements in memory; ignored without dimensions.
    pub order: Order,
}

impl Shape {
    fn of<T: Number>(dims: Option<&[u64]>, order: Order) -> Shape {
        Shape { element: T::ELEMENT, dims: dims.map(<[u64]>::to_vec), order }
    }
}

/// An array to be sent.
#[derive(Debug, Clone)]
pub struct Array<'a> {
    pub(super) shape: Shape,
    pub(super) lent: LentBytes,
    borrowed: PhantomData<&'a [u8]>,
}

/// An array that receives a result. It is also sent if the routine reads it.
#[derive(Debug)]
pub struct ArrayMut<'a> {
    pub(super) shape: Shape,
    pub(super) lent: LentBytesMut,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Array<'a> {
    /// Numbers in the routine's order, as many as the routine wants.
    #[must_use]
    pub fn flat<T: Number>(numbers: &'a [T]) -> Array<'a> {
        Array::bytes(bytes_of(numbers), Shape::of::<T>(None, Order::Row))
    }

    /// Numbers of this shape. The shape must match the routine's; a different order is converted by a copy.
    #[must_use]
    pub fn shaped<T: Number>(numbers: &'a [T], dims: &[u64], order: Order) -> Array<'a> {
        Array::bytes(bytes_of(numbers), Shape::of::<T>(Some(dims), order))
    }

    /// Numbers of this shape, given as their bytes in memory.
    #[must_use]
    pub fn bytes(bytes: &'a [u8], shape: Shape) -> Array<'a> {
        Array::lent(LentBytes::slice(bytes), shape)
    }

    /// Memory that is lent under the rules of [`LentBytes::new`].
    #[must_use]
    pub fn lent(lent: LentBytes, shape: Shape) -> Array<'a> {
        Array { shape, lent, borrowed: PhantomData }
    }
}

impl<'a> ArrayMut<'a> {
    /// Numbers in the routine's order, as many as the routine wants.
    #[must_use]
    pub fn flat<T: Number>(numbers: &'a mut [T]) -> ArrayMut<'a> {
        ArrayMut::bytes(bytes_of_mut(numbers), Shape::of::<T>(None, Order::Row))
    }

    /// Numbers of this shape. The shape must match the routine's; a different order is converted by a copy.
    #[must_use]
    pub fn shaped<T: Number>(numbers: &'a mut [T], dims: &[u64], order: Order) -> ArrayMut<'a> {
        ArrayMut::bytes(bytes_of_mut(numbers), Shape::of::<T>(Some(dims), order))
    }

    /// Numbers of this shape, given as their bytes in memory.
    #[must_use]
    pub fn bytes(bytes: &'a mut [u8], shape: Shape) -> ArrayMut<'a> {
        ArrayMut::lent(LentBytesMut::slice(bytes), shape)
    }

    /// Memory that is lent under the rules of [`LentBytesMut::new`].
    #[must_use]
    pub fn lent(lent: LentBytesMut, shape: Shape) -> ArrayMut<'a> {
        ArrayMut { shape, lent, borrowed: PhantomData }
    }
}

/// An argument.
#[derive(Debug)]
pub enum Arg<'a> {
    /// The parameter's default.
    Default,
    /// A number.
    Scalar(Scalar),
    /// A text.
    Text(Cow<'a, str>),
    /// An array that is sent.
    In(Array<'a>),
    /// An array that receives a result, and is also sent if the routine reads it.
    Out(ArrayMut<'a>),
    /// An array that is sent, and another that receives the result.
    InOut(Array<'a>, ArrayMut<'a>),
    /// A file.
    File(FileArgument),
    /// A function that the routine may call.
    Callback(Callback<'a>),
    /// An array of which servers hold parts, or whose result stays at the server.
    Remote(Box<RemoteArray<'a>>),
}

macro_rules! scalars {
    ($($ty:ty => $kind:ident),*) => {$(
        impl From<$ty> for Arg<'_> {
            fn from(value: $ty) -> Self {
                Arg::Scalar(Scalar::$kind(value.into()))
            }
        }
    )*};
}

scalars!(i8 => I64, i16 => I64, i32 => I64, i64 => I64, u8 => U64, u16 => U64, u32 => U64, u64 => U64, f32 => F64, f64 => F64);

impl From<FileArgument> for Arg<'_> {
    fn from(files: FileArgument) -> Self {
        Arg::File(files)
    }
}

impl<'a> From<Callback<'a>> for Arg<'a> {
    fn from(callback: Callback<'a>) -> Arg<'a> {
        Arg::Callback(callback)
    }
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Arg<'a> {
        Arg::Text(Cow::Borrowed(text))
    }
}

impl<'a, T: Number> From<&'a [T]> for Arg<'a> {
    fn from(numbers: &'a [T]) -> Arg<'a> {
        Arg::In(Array::flat(numbers))
    }
}

impl<'a, T: Number> From<&'a Vec<T>> for Arg<'a> {
    fn from(numbers: &'a Vec<T>) -> Arg<'a> {
        Arg::In(Array::flat(numbers))
    }
}

impl<'a, T: Number> From<&'a mut [T]> for Arg<'a> {
    fn from(numbers: &'a mut [T]) -> Arg<'a> {
        Arg::Out(ArrayMut::flat(numbers))
    }
}

impl<'a, T: Number> From<&'a mut Vec<T>> for Arg<'a> {
    fn from(numbers: &'a mut Vec<T>) -> Arg<'a> {
        Arg::Out(ArrayMut::flat(numbers))
    }
}

/// The arguments of a call after all checks.
#[derive(Debug)]
pub(crate) struct CheckedCall {
    pub plan: Plan,
    pub given: GivenValues,
    pub files: CallFiles,
    /// In ascending order. Of a remote array: the pieces between the parts that servers hold.
    pub sends: Vec<(u16, LentBytes)>,
    pub held: HeldArrays,
    pub targets: Vec<(u16, LentBytesMut)>,
    /// Results that arrive packed or in another order: the buffer that receives them, and the caller's
    /// memory.
    unpacks: Vec<PackedResult>,
    /// Packed copies of arrays that are sent.
    _packed: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct PackedResult {
    parameter: usize,
    // A vector, because the memory it points to stays in place when the value moves.
    packed: Vec<u8>,
    array: LentBytesMut,
    order: Order,
}

/// Whether the caller passes a value for this parameter. Work arrays, and scalars and texts that are only
/// returned, take none.
#[must_use]
pub fn is_given(param: &Param) -> bool {
    match param.mode {
        Mode::Work => false,
        Mode::In | Mode::InOut => true,
        Mode::Out => !param.dims.is_empty() && param.ty != Type::String || param.ty == Type::File,
    }
}

/// Arguments sorted by kind, each with its parameter.
struct SortedArguments<'a> {
    given: GivenValues,
    arrays: Vec<(usize, RemoteArray<'a>)>,
    functions: Vec<(u16, Callback<'a>)>,
    files: Vec<(u16, FileArgument)>,
}

impl<'a> SortedArguments<'a> {
    fn take(&mut self, index: usize, param: &Param, arg: Arg<'a>) -> Result<(), String> {
        let is_array = param.is_array();
        let is_function = matches!(param.ty, Type::Callback(_));
        let is_file = param.ty == Type::File;
        // A description has at most 256 parameters.
        let number = index as u16;
        match arg {
            Arg::Default if !is_array && !is_function && !is_file => {}
            Arg::File(file)
                if is_file
                    && file.from.is_some() == param.mode.is_sent()
                    && file.to.is_some() == param.mode.is_returned() =>
            {
                self.files.push((number, file));
            }
            Arg::Callback(callback) if is_function => self.functions.push((number, callback)),
            Arg::Scalar(scalar) if param.scalar().is_some() => {
                self.given.scalars[index] = Some(scalar);
            }
            Arg::Text(text) if param.ty == Type::String => {
                if text.contains('\0') {
                    return Err(format!("`{}` is a text with a zero byte", param.name));
                }
                self.given.texts[index] = Some(text.into_owned());
            }
            Arg::In(array) if is_array && param.mode == Mode::In => {
                self.arrays
                    .push((index, RemoteArray { from: Some(array), ..RemoteArray::default() }));
            }
            Arg::Out(array) if is_array && param.mode != Mode::In => {
                self.arrays
                    .push((index, RemoteArray { to: Some(array), ..RemoteArray::default() }));
            }
            Arg::InOut(from, to) if is_array && param.mode == Mode::InOut => {
                let both = RemoteArray { from: Some(from), to: Some(to), ..RemoteArray::default() };
                self.arrays.push((index, both));
            }
            // A call through a metaserver has replaced them.
            Arg::Remote(array) if array.held.is_some() || array.stays.is_some() => {
                let name = &param.name;
                return Err(format!(
                    "`{name}` is an array of calls through a metaserver, and this call is not"
                ));
            }
            Arg::Remote(array) if is_array && fits_mode(&array, param.mode) => {
                self.arrays.push((index, *array));
            }
            _ => return Err(format!("`{}` is {}", param.name, wanted(param))),
        }
        Ok(())
    }
}

/// Checks the arguments of a routine that is not a method. They are in the order of the parameters that take
/// one.
///
/// # Errors
/// [`CallError::Argument`], with the parameter's name.
pub(crate) fn check<'a>(
    interface: &Interface,
    args: Vec<Arg<'a>>,
    most: u64,
) -> Result<(CheckedCall, Vec<(u16, Callback<'a>)>), CallError> {
    if !interface.class.is_empty() {
        let class = &interface.class;
        let text = match interface.is_constructor() {
            true => "it is a class: make an object of it, and call its methods".to_owned(),
            false => format!("it is a method: make an object of `{class}`, and call it on that"),
        };
        return Err(CallError::Argument { routine: interface.name.clone(), text });
    }
    check_any(interface, args, most)
}

/// [`check`], for methods too.
///
/// # Errors
/// [`CallError::Argument`], with the parameter's name.
pub(super) fn check_any<'a>(
    interface: &Interface,
    args: Vec<Arg<'a>>,
    most: u64,
) -> Result<(CheckedCall, Vec<(u16, Callback<'a>)>), CallError> {
    let wrong = |text: String| CallError::Argument { routine: interface.name.clone(), text };
    let expected = expected(interface, args.len()).map_err(wrong)?;
    let mut sorted = SortedArguments {
        given: GivenValues::nothing(interface),
        arrays: Vec::new(),
        functions: Vec::new(),
        files: Vec::new(),
    };
    for (index, arg) in expected.into_iter().zip(args) {
        sorted.take(index, &interface.params[index], arg).map_err(wrong)?;
    }
    let SortedArguments { mut given, arrays, functions, files } = sorted;
    let files = open(files, &mut given)?;
    given.fill_texts(interface).map_err(|failure| wrong(failure.text))?;
    let plan = crate::values::plan(interface, &given, most)
        .map_err(|failure| CallError::of(failure, &interface.name))?;
    let mut checked = CheckedCall {
        plan,
        given,
        files,
        sends: Vec::new(),
        held: HeldArrays::default(),
        targets: Vec::new(),
        unpacks: Vec::new(),
        _packed: Vec::new(),
    };
    for (index, array) in arrays {
        let name = &interface.params[index].name;
        checked.array(index, array).map_err(|text| wrong(format!("`{name}` {text}")))?;
    }
    Ok((checked, functions))
}

/// Opens the files of a call.
fn open(files: Vec<(u16, FileArgument)>, given: &mut GivenValues) -> Result<CallFiles, CallError> {
    let mut opened = CallFiles::default();
    for (parameter, file) in files {
        if let Some(path) = &file.from {
            given.files[usize::from(parameter)] = Some(opened.send(parameter, path)?);
        }
        if let Some(path) = &file.to {
            opened.receive(parameter, path)?;
        }
    }
    Ok(opened)
}

/// The parameters that take an argument, if the number of arguments is right.
fn expected(interface: &Interface, given: usize) -> Result<Vec<usize>, String> {
    let expected: Vec<usize> =
        (0..interface.params.len()).filter(|index| is_given(&interface.params[*index])).collect();
    if given == expected.len() {
        return Ok(expected);
    }
    let names: Vec<&str> =
        expected.iter().map(|index| interface.params[*index].name.as_str()).collect();
    let (count, names) = (expected.len(), names.join(", "));
    Err(format!("takes {count} arguments ({names}), {given} were given"))
}

/// Describes in words what a parameter takes.
fn wanted(param: &Param) -> String {
    let what = match &param.ty {
        Type::String => "a text".to_owned(),
        Type::File => "a file (a `FileArgument`)".to_owned(),
        Type::Callback(_) => "a function (a `Callback`)".to_owned(),
        Type::Number(element) if param.dims.is_empty() => format!("a scalar ({element})"),
        Type::Number(element) => {
            let dims = param.dims.len();
            format!(
                "an array of {element} with {dims} dimension{}",
                if dims == 1 { "" } else { "s" }
            )
        }
    };
    match param.mode {
        Mode::In if matches!(param.ty, Type::Callback(_)) => what,
        Mode::In => format!("{what} that is sent"),
        Mode::Out => format!("{what} that comes back, and must be one that can be written"),
        Mode::InOut => {
            format!("{what} that is sent and comes back, and must be one that can be written")
        }
        Mode::Work => what,
    }
}

impl CheckedCall {
    fn array(&mut self, index: usize, array: RemoteArray<'_>) -> Result<(), String> {
        let RemoteArray { from, mut parts, to, keep, .. } = array;
        let argument = &self.plan.arguments[index];
        let number = u16::try_from(index).map_err(|_| "has no number".to_owned())?;
        let source = match (from, &to) {
            (Some(array), _) => Some((array.shape, array.lent)),
            (None, Some(_)) if !parts.is_empty() => None,
            (None, Some(array)) => Some((array.shape.clone(), array.lent.as_lent())),
            (None, None) => None,
        };
        if argument.mode.is_sent() {
            let gaps = Gaps::new(&parts, argument.sent);
            let gaps = gaps.ok_or_else(|| {
                format!("has {} bytes, fewer than the parts at servers", argument.sent)
            })?;
            // Of an empty array nothing is held.
            parts.retain(|part| part.length > 0);
            if !parts.is_empty() {
                self.held.from.push((number, parts));
            }
            let lent = match source {
                None if gaps.bytes() > 0 => return Err("is only partly at servers".to_owned()),
                None => None,
                Some((shape, lent)) => travels(argument, &shape, lent, &mut self._packed)?,
            };
            for (offset, length) in gaps.pieces() {
                // The array is in memory, so its size fits `usize`.
                let piece =
                    lent.map(|lent| (number, lent.part(*offset as usize, *length as usize)));
                self.sends.extend(piece);
            }
        }
        if let Some(keep) = keep {
            self.held.keep.push((number, HeldResult { sent: to.is_some(), ..keep }));
        }
        if let Some(array) = to {
            let order = fits(argument, &array.shape, array.lent.length())?;
            if argument.returned > 0 {
                let target = match (argument.section.single(), order) {
                    (Some(run), None) => array.lent.part(run.offset as usize, run.length as usize),
                    (_, order) => {
                        let mut packed = vec![0; argument.returned as usize];
                        let target = LentBytesMut::slice(&mut packed);
                        let order = order.unwrap_or(argument.order());
                        self.unpacks.push(PackedResult {
                            parameter: index,
                            packed,
                            array: array.lent,
                            order,
                        });
                        target
                    }
                };
                self.targets.push((number, target));
            }
        }
        Ok(())
    }

    /// Buffers that receive results. Those of an earlier attempt must no longer be in use.
    pub fn targets(&self) -> Vec<(u16, LentBytesMut)> {
        let again =
            |(number, target): &(u16, LentBytesMut)| (*number, target.part(0, target.length()));
        self.targets.iter().map(again).collect()
    }

    /// The arrays that are worth sharing, if the server grants memory. Remote arrays are never among them.
    pub fn shares(&self) -> Vec<(u16, SharedDirections)> {
        if !self.held.is_empty() {
            return Vec::new();
        }
        let mut shares: BTreeMap<u16, SharedDirections> = BTreeMap::new();
        let mut bytes = 0_usize;
        for (argument, lent) in self.sends.iter().filter(|(_, lent)| lent.length() >= SHARED) {
            shares.entry(*argument).or_default().sent = true;
            bytes = bytes.saturating_add(lent.length());
        }
        for (argument, target) in self.targets.iter().filter(|(_, it)| it.length() >= SHARED) {
            shares.entry(*argument).or_default().returned = true;
            bytes = bytes.saturating_add(target.length());
        }
        if bytes < WORTH {
            return Vec::new();
        }
        shares.into_iter().collect()
    }

    /// Whether a result is written over memory that is also sent.
    pub fn overwrites(&self) -> bool {
        let is_written = |lent: &LentBytes| self.targets.iter().any(|(_, to)| to.overlaps(lent));
        self.sends.iter().any(|(_, lent)| is_written(lent))
    }

    /// Copies packed results to their places.
    pub fn unpack(&mut self) {
        for unpack in &mut self.unpacks {
            let argument = &self.plan.arguments[unpack.parameter];
            let done = argument.scatter(&unpack.packed, unpack.array.bytes(), unpack.order);
            debug_assert!(done.is_ok(), "lengths were checked before the call");
        }
    }
}

/// What travels of a caller's array, in one piece: its memory, or a packed copy.
fn travels(
    argument: &Argument,
    shape: &Shape,
    lent: LentBytes,
    packed: &mut Vec<Vec<u8>>,
) -> Result<Option<LentBytes>, String> {
    let order = fits(argument, shape, lent.length())?;
    if argument.sent == 0 {
        return Ok(None);
    }
    Ok(Some(match (argument.section.single(), order) {
        // The array is in memory, so its size fits `usize`.
        (Some(run), None) => lent.part(run.offset as usize, run.length as usize),
        (_, order) => {
            let mut bytes = vec![0; argument.sent as usize];
            let order = order.unwrap_or(argument.order());
            argument.gather(lent.bytes(), order, &mut bytes).map_err(|e| e.to_string())?;
            let lent = LentBytes::slice(&bytes);
            packed.push(bytes);
            lent
        }
    }))
}

/// Whether a remote array has what a parameter of this mode wants.
fn fits_mode(array: &RemoteArray<'_>, mode: Mode) -> bool {
    let sent = array.from.is_some() || !array.parts.is_empty();
    let back = array.to.is_some() || array.keep.is_some();
    match mode {
        Mode::In => !back,
        Mode::Out => back && !sent,
        // The plan says whether there is anything to send.
        Mode::InOut => back,
        Mode::Work => false,
    }
}

/// Checks an array. Returns its order if that is not the routine's.
fn fits(argument: &Argument, shape: &Shape, bytes: usize) -> Result<Option<Order>, String> {
    let ArgumentForm::Array(element, order) = argument.form else {
        return Err("is no array".to_owned());
    };
    if shape.element != element {
        return Err(format!("has elements of {}, the routine wants {element}", shape.element));
    }
    let dims: Vec<u64> = argument.axes.iter().map(|axis| axis.size).collect();
    if let Some(given) = &shape.dims
        && *given != dims
    {
        return Err(format!("has the shape {given:?}, the routine wants {dims:?}"));
    }
    if bytes as u64 != argument.bytes {
        let (given, wants) = (bytes as u64 / element.size(), argument.elements);
        return Err(format!("has {given} elements, the routine wants {wants} ({dims:?})"));
    }
    let thick = dims.iter().filter(|size| **size > 1).count();
    Ok((shape.dims.is_some() && shape.order != order && thick > 1).then_some(shape.order))
}
