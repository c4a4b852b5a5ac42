//! Conversion of a program's arguments to the arguments of a call, by the routine's description.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use kumi_call_client::transaction::Data;
use kumi_call_client::{Arg, Array, ArrayMut, LentBytes, LentBytesMut, Shape};
use kumi_idl::{ArgumentForm, Element, Interface, Limits, Mode, Order, Param, Plan, Scalar, Type};

use crate::address::is_reserved;
use crate::code::{Code, Failure};
use crate::held::{ClaimedResult, GrpcHeldArray, StoredArray};
use crate::passing;
use crate::returned::{Destination, ReturnedValue};
use crate::runtime::{Connection, Runtime};
use crate::typed::{ArgumentKind, GrpcArgument, addresses};

/// A C string of the program.
///
/// # Safety
/// `pointer` is null or a C string that does not change during `'a`.
pub unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: not null; the rest is promised by the caller.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument(format!("{what} is not in UTF-8")))
}

/// A program's argument for a parameter. Addresses are valid as long as the call is in progress.
#[derive(Clone, Copy)]
pub enum PassedValue<'a> {
    /// A number by value.
    Number(Scalar),
    /// The address of a value of the described type.
    Address(*mut c_void),
    /// An argument with its type.
    Typed(&'a GrpcArgument),
}

impl PassedValue<'_> {
    /// Whether its memory is valid only until the function that gets it returns.
    pub fn is_short_lived(self) -> bool {
        matches!(self, PassedValue::Typed(typed) if typed.what() == Some(ArgumentKind::ArrayCopy))
    }

    /// The program's memory from which a value for this parameter comes; of a text by its address the first byte.
    pub fn memory(self, param: &Param) -> [Range<usize>; 2] {
        match self {
            PassedValue::Number(_) => [0..0, 0..0],
            PassedValue::Address(address) => {
                [addresses(address, param.scalar().map_or(1, Element::size)), 0..0]
            }
            PassedValue::Typed(typed) => typed.memory(),
        }
    }
}

/// Parameters that a program passes: all except work arrays.
pub fn is_passed(param: &Param) -> bool {
    param.mode != Mode::Work
}

/// The arguments of a call for `kumi-call`, and the destinations of other results.
pub struct Arguments {
    /// Arguments.
    pub args: Vec<Arg<'static>>,
    /// Scalars and texts that come back.
    pub back: Vec<ReturnedValue>,
    /// Whether some of them are callbacks, which the waiting thread runs.
    pub functions: bool,
    /// The program's memory to which results go.
    pub written: Vec<Range<usize>>,
    /// Copies of arrays, to which arguments refer.
    pub copies: Vec<Box<[u8]>>,
    /// Arrays at the server that the call reads.
    pub read: Vec<Arc<StoredArray>>,
    /// Results that stay at the server.
    pub made: Vec<ClaimedResult>,
    /// Arrays of the transaction: each with the index of the argument that stands for it.
    pub intermediate: Vec<(usize, Data)>,
}

/// Where a call goes, and how it gets its arguments.
pub struct CallSite<'a> {
    /// The library's state.
    pub runtime: &'a Runtime,
    /// The connection over which it goes.
    pub connection: &'a Connection,
    /// Memory order of the program's arrays; `None`: the routine's.
    pub order: Option<Order>,
    /// Also arguments that only have to live until the function that gets them returns are needed until the call is over.
    pub keeps: bool,
    /// The intermediate arrays of the transaction for which the call is recorded, by their addresses; `None`: it is no such call.
    pub intermediate: Option<&'a HashMap<usize, Data>>,
}

/// Reads a program's arguments.
///
/// # Errors
/// An argument does not fit the description.
///
/// # Safety
/// Each address is null or that of a value of the described type, and stays valid until the call is over. Until then nobody
/// else writes inputs, or uses results.
pub unsafe fn arguments(
    interface: &Interface,
    given: &[PassedValue<'_>],
    site: &CallSite<'_>,
) -> Result<Arguments, Failure> {
    let passed: Vec<usize> =
        (0..interface.params.len()).filter(|at| is_passed(&interface.params[*at])).collect();
    if passed.len() != given.len() {
        return Err(count(interface, &passed, given.len()));
    }
    let mut reader = ArgumentReader {
        interface,
        site,
        scalars: vec![None; interface.params.len()],
        texts: vec![None; interface.params.len()],
        plan: None,
    };
    for (index, given) in passed.iter().zip(given) {
        reader.check_memory(*index, *given)?;
        // SAFETY: as the caller promises, and it is no address of the library's.
        unsafe { reader.value(*index, *given) }?;
    }
    let functions = interface.params.iter().any(|param| matches!(param.ty, Type::Callback(_)));
    let mut arguments = Arguments {
        args: Vec::with_capacity(given.len()),
        back: Vec::new(),
        written: Vec::new(),
        functions,
        copies: Vec::new(),
        read: Vec::new(),
        made: Vec::new(),
        intermediate: Vec::new(),
    };
    for (index, given) in passed.iter().zip(given) {
        // SAFETY: as the caller promises.
        unsafe { reader.argument(*index, *given, &mut arguments) }?;
    }
    Ok(arguments)
}

fn count(interface: &Interface, passed: &[usize], given: usize) -> Failure {
    let names: Vec<&str> =
        passed.iter().map(|index| interface.params[*index].name.as_str()).collect();
    let (routine, count, names) = (&interface.name, passed.len(), names.join(", "));
    Failure::argument(format!("`{routine}` takes {count} arguments ({names}), {given} were given"))
}

/// What is wrong with an address that is the library's, and not that of a held array.
const NOT_HELD: &str = "is no held array, or one that was released";

/// The same of a call of a transaction.
const NOT_INTERMEDIATE: &str =
    "is no memory, and no intermediate array of this transaction; held arrays are for other calls";

struct ArgumentReader<'a> {
    interface: &'a Interface,
    site: &'a CallSite<'a>,
    scalars: Vec<Option<Scalar>>,
    texts: Vec<Option<String>>,
    /// Made on first use.
    plan: Option<Plan>,
}

impl ArgumentReader<'_> {
    fn param(&self, index: usize) -> &Param {
        &self.interface.params[index]
    }

    fn wrong(&self, index: usize, what: &str) -> Failure {
        let (routine, name) = (&self.interface.name, &self.param(index).name);
        Failure::argument(format!("`{routine}`: `{name}` {what}"))
    }

    /// Whether a parameter is an array of numbers.
    fn is_array(&self, index: usize) -> bool {
        let param = self.param(index);
        matches!(param.ty, Type::Number(_)) && !param.dims.is_empty()
    }

    /// Checks that no memory is wanted at an address that the library gave out. Arrays by address: [`ArgumentReader::held`].
    fn check_memory(&self, index: usize, given: PassedValue<'_>) -> Result<(), Failure> {
        let address = match given {
            PassedValue::Number(_) => return Ok(()),
            PassedValue::Address(_) if self.is_array(index) => return Ok(()),
            PassedValue::Address(address) => address,
            PassedValue::Typed(typed) if typed.what() == Some(ArgumentKind::Held) => return Ok(()),
            PassedValue::Typed(typed) => typed.data,
        };
        if !is_reserved(address) {
            return Ok(());
        }
        let is_held = self.site.runtime.held.find(address.cast_const().cast()).is_some();
        let what = if is_held { "is no memory: a held array was given" } else { NOT_HELD };
        Err(self.wrong(index, what))
    }

    /// Reads an input scalar or text.
    ///
    /// # Safety
    /// As [`arguments`] says.
    unsafe fn value(&mut self, index: usize, given: PassedValue<'_>) -> Result<(), Failure> {
        let param = self.param(index);
        if !param.mode.is_sent() {
            return Ok(());
        }
        if let Some(element) = param.scalar() {
            self.scalars[index] = match given {
                PassedValue::Number(scalar) => Some(scalar),
                PassedValue::Address(address) => {
                    // SAFETY: as the caller promises.
                    Some(unsafe { self.load(index, element, address) }?)
                }
                // SAFETY: as the caller promises.
                PassedValue::Typed(typed) => unsafe { self.typed_number(index, typed) }?,
            };
        } else if param.ty == Type::String {
            // SAFETY: as the caller promises.
            self.texts[index] = unsafe { self.text(index, given) }?;
        }
        Ok(())
    }

    /// # Safety
    /// `address` is null or that of an `element` value.
    unsafe fn load(
        &self,
        index: usize,
        element: Element,
        address: *const c_void,
    ) -> Result<Scalar, Failure> {
        if address.is_null() {
            return Err(self.wrong(index, "is NULL"));
        }
        // SAFETY: not null; an element has this many bytes.
        let bytes = unsafe { slice::from_raw_parts(address.cast::<u8>(), size(element.size())) };
        Scalar::decode(element, bytes).ok_or_else(|| self.wrong(index, "cannot be read"))
    }

    /// # Safety
    /// As [`arguments`] says.
    unsafe fn typed_number(
        &self,
        index: usize,
        typed: &GrpcArgument,
    ) -> Result<Option<Scalar>, Failure> {
        match (typed.what(), typed.element()) {
            (Some(ArgumentKind::Default), _) => Ok(None),
            (Some(ArgumentKind::Number), Some(element)) => {
                // SAFETY: as the caller promises.
                unsafe { self.load(index, element, typed.data) }.map(Some)
            }
            _ => Err(self.wrong(index, "is a scalar, something else was given")),
        }
    }

    /// # Safety
    /// As [`arguments`] says.
    unsafe fn text(&self, index: usize, given: PassedValue<'_>) -> Result<Option<String>, Failure> {
        let bytes = match given {
            PassedValue::Number(_) => {
                return Err(self.wrong(index, "is a text, a number was given"));
            }
            PassedValue::Address(address) => {
                // SAFETY: as the caller promises.
                let text = unsafe { text(address.cast_const().cast(), &self.param(index).name) };
                return text.map(|text| Some(text.to_owned()));
            }
            PassedValue::Typed(typed) => match typed.what() {
                Some(ArgumentKind::Default) => return Ok(None),
                Some(ArgumentKind::Text | ArgumentKind::Blanks)
                    if typed.data.is_null() && typed.count == 0 =>
                {
                    &[]
                }
                Some(ArgumentKind::Text | ArgumentKind::Blanks) if !typed.data.is_null() => {
                    // SAFETY: as the caller promises.
                    unsafe { slice::from_raw_parts(typed.data.cast::<u8>(), size(typed.count)) }
                }
                _ => return Err(self.wrong(index, "is a text, something else was given")),
            },
        };
        let mut text = str::from_utf8(bytes)
            .map_err(|_| self.wrong(index, "is a text that is not in UTF-8"))?;
        if let PassedValue::Typed(typed) = given
            && typed.what() == Some(ArgumentKind::Blanks)
        {
            text = text.trim_end_matches(' ');
        }
        Ok(Some(text.to_owned()))
    }

    /// Reads the rest: arrays, and destinations of scalars and texts.
    ///
    /// # Safety
    /// As [`arguments`] says.
    unsafe fn argument(
        &mut self,
        index: usize,
        given: PassedValue<'_>,
        into: &mut Arguments,
    ) -> Result<(), Failure> {
        let param = self.param(index);
        let (mode, is_text) = (param.mode, param.ty == Type::String);
        if self.is_array(index) {
            if let Some(data) = self.intermediate(index, given)? {
                into.intermediate.push((into.args.len(), data));
                into.args.push(Arg::Default);
                return Ok(());
            }
            if let Some(held) = self.held(index, given)? {
                return self.held_argument(index, given, &held, into);
            }
            // SAFETY: as the caller promises.
            let array = unsafe { self.array(index, given, into) }?;
            into.args.push(array);
            return Ok(());
        }
        let passed = match &param.ty {
            // SAFETY: as the caller promises.
            Type::File => Some(unsafe { passing::file(param, given) }),
            // SAFETY: as the caller promises.
            Type::Callback(inner) => Some(unsafe { passing::function(inner, given) }),
            _ => None,
        };
        if let Some(passed) = passed {
            into.args.push(passed.map_err(|why| self.wrong(index, &why))?);
            return Ok(());
        }
        if mode.is_returned() {
            let place =
                if is_text { self.text_place(index, given) } else { self.place(index, given) };
            if let Some(place) = place? {
                let name = self.param(index).name.clone();
                let back = ReturnedValue { parameter: index, name, place };
                into.written.push(back.memory());
                if let PassedValue::Typed(typed) = given {
                    into.written.extend(typed.memory());
                }
                into.back.push(back);
            }
        }
        if mode.is_sent() {
            let text = self.texts[index].clone().map(|text| Arg::Text(text.into()));
            let number = || self.scalars[index].map(Arg::Scalar);
            into.args.push(text.or_else(number).unwrap_or(Arg::Default));
        }
        Ok(())
    }

    /// Destination of a scalar; `None`: not wanted.
    fn place(&self, index: usize, given: PassedValue<'_>) -> Result<Option<Destination>, Failure> {
        let element = self.param(index).scalar();
        let element = element.ok_or_else(|| self.wrong(index, "is no scalar"))?;
        match given {
            PassedValue::Number(_) => Err(self.wrong(index, "comes back: its address is needed")),
            PassedValue::Address(address) if address.is_null() => Ok(None),
            PassedValue::Address(address) => Ok(Some(Destination::Number(element, address))),
            PassedValue::Typed(typed) => match typed.what() {
                Some(ArgumentKind::Default) => Ok(None),
                Some(ArgumentKind::Number) if typed.writable() && !typed.data.is_null() => {
                    if typed.element() != Some(element) {
                        let text =
                            format!("comes back as {element}, a place for another type was given");
                        return Err(self.wrong(index, &text));
                    }
                    Ok(Some(Destination::Number(element, typed.data)))
                }
                _ => Err(self.wrong(index, "comes back: a scalar that can be written is needed")),
            },
        }
    }

    /// Destination of a text; `None`: not wanted.
    fn text_place(
        &mut self,
        index: usize,
        given: PassedValue<'_>,
    ) -> Result<Option<Destination>, Failure> {
        match given {
            PassedValue::Number(_) => Err(self.wrong(index, "comes back: its address is needed")),
            PassedValue::Address(address) if address.is_null() => Ok(None),
            PassedValue::Address(address) => {
                let ArgumentForm::Text { capacity: Some(capacity) } =
                    self.plan()?.arguments[index].form
                else {
                    return Err(self.wrong(index, "is a text without a size in the description"));
                };
                Ok(Some(Destination::Text(address, size(capacity))))
            }
            PassedValue::Typed(typed) => match (typed.what(), typed.taker()) {
                (Some(ArgumentKind::Default), _) => Ok(None),
                (Some(ArgumentKind::Text), Some((take, taker))) => {
                    Ok(Some(Destination::Taken(taker, take)))
                }
                (Some(ArgumentKind::Blanks), _) if typed.writable() => {
                    Ok(Some(Destination::Blanks(typed.data, size(typed.count))))
                }
                (Some(ArgumentKind::Text), _) if typed.writable() => {
                    Ok(Some(Destination::Text(typed.data, size(typed.count))))
                }
                _ => Err(self.wrong(index, "comes back: a text that can be written is needed")),
            },
        }
    }

    fn plan(&mut self) -> Result<&Plan, Failure> {
        if self.plan.is_none() {
            let plan =
                self.interface.plan_with_texts(&self.scalars, &self.texts, &Limits::default());
            let plan = plan.map_err(|error| {
                Failure::argument(format!("`{}`: {error}", self.interface.name))
            })?;
            self.plan = Some(plan);
        }
        self.plan.as_ref().ok_or_else(|| Code::OtherErrorCode.into())
    }

    /// The intermediate array of a transaction for which an argument stands; `None`: it is memory of the program, or the call belongs
    /// to no transaction.
    fn intermediate(&self, index: usize, given: PassedValue<'_>) -> Result<Option<Data>, Failure> {
        let Some(known) = self.site.intermediate else { return Ok(None) };
        let address = match given {
            PassedValue::Address(address) => address,
            PassedValue::Typed(typed) if typed.what() == Some(ArgumentKind::Held) => typed.data,
            _ => return Ok(None),
        };
        match known.get(&address.addr()) {
            Some(data) => Ok(Some(*data)),
            None if is_reserved(address) => Err(self.wrong(index, NOT_INTERMEDIATE)),
            None => Ok(None),
        }
    }

    /// The array at a server for which an argument stands; `None`: it is memory of the program.
    fn held(
        &self,
        index: usize,
        given: PassedValue<'_>,
    ) -> Result<Option<Arc<GrpcHeldArray>>, Failure> {
        let held = &self.site.runtime.held;
        match given {
            PassedValue::Number(_) => Ok(None),
            PassedValue::Address(address) => match held.find(address.cast_const().cast()) {
                None if is_reserved(address) => Err(self.wrong(index, NOT_HELD)),
                found => Ok(found),
            },
            PassedValue::Typed(typed) if typed.what() == Some(ArgumentKind::Held) => {
                let found = held.find(typed.data.cast_const().cast());
                found.ok_or_else(|| self.wrong(index, NOT_HELD)).map(Some)
            }
            PassedValue::Typed(_) => Ok(None),
        }
    }

    /// Adds an array at the server to the arguments.
    fn held_argument(
        &mut self,
        index: usize,
        given: PassedValue<'_>,
        held: &Arc<GrpcHeldArray>,
        into: &mut Arguments,
    ) -> Result<(), Failure> {
        let site = self.site;
        if let PassedValue::Typed(typed) = given
            && !typed.writable()
            && self.param(index).mode.is_returned()
        {
            return Err(self.wrong(index, "comes back: a held array that can be changed is needed"));
        }
        let argument = &self.plan()?.arguments[index];
        let made = held.argument(site.runtime, site.connection, argument);
        let made = made.map_err(|failure| {
            let exact = self.wrong(index, &failure.detail);
            Failure::new(failure.code, exact.detail)
        })?;
        into.args.push(made.arg);
        into.read.extend(made.read);
        into.made.extend(made.made);
        Ok(())
    }

    /// # Safety
    /// As [`arguments`] says.
    unsafe fn array(
        &mut self,
        index: usize,
        given: PassedValue<'_>,
        into: &mut Arguments,
    ) -> Result<Arg<'static>, Failure> {
        let mode = self.param(index).mode;
        let (data, bytes, shape, writable) = match given {
            PassedValue::Number(_) => {
                return Err(self.wrong(index, "is an array, a number was given"));
            }
            PassedValue::Address(address) => {
                let order = self.site.order;
                let argument = &self.plan()?.arguments[index];
                let ArgumentForm::Array(element, own) = argument.form else {
                    return Err(self.wrong(index, "is no array"));
                };
                let dims = argument.axes.iter().map(|axis| axis.size).collect();
                let dims = order.map(|_| dims);
                let bytes = size(argument.bytes);
                (address, bytes, Shape { element, dims, order: order.unwrap_or(own) }, true)
            }
            PassedValue::Typed(typed) => {
                let (Some(ArgumentKind::Array | ArgumentKind::ArrayCopy), Some(element)) =
                    (typed.what(), typed.element())
                else {
                    return Err(self.wrong(index, "is an array, something else was given"));
                };
                let bytes = typed.count.checked_mul(element.size());
                let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
                let bytes = bytes.ok_or_else(|| self.wrong(index, "is larger than memory"))?;
                // SAFETY: as the caller promises.
                let shape = unsafe { typed.shape(element) };
                (typed.data, bytes, shape, typed.writable())
            }
        };
        if data.is_null() && bytes > 0 {
            return Err(self.wrong(index, "is NULL"));
        }
        if mode == Mode::In {
            // SAFETY: the caller promises that it is valid and does not change; not null unless empty.
            let mut lent = unsafe { LentBytes::new(data.cast_const().cast(), bytes) };
            if self.site.keeps && given.is_short_lived() {
                // SAFETY: as above.
                let copy = unsafe { copied(data.cast_const().cast(), bytes) };
                // SAFETY: the copy moves with its box and is not written to; it lives as long as the call.
                lent = unsafe { LentBytes::new(copy.as_ptr(), bytes) };
                into.copies.push(copy);
            }
            return Ok(Arg::In(Array::lent(lent, shape)));
        }
        if !writable {
            return Err(self.wrong(index, "comes back: an array that can be written is needed"));
        }
        into.written.push(addresses(data, bytes as u64));
        // SAFETY: the caller promises that nobody else uses it; not null unless empty.
        let lent = unsafe { LentBytesMut::new(data.cast(), bytes) };
        Ok(Arg::Out(ArrayMut::lent(lent, shape)))
    }
}

/// A copy of an array; `from` may be null if it is empty.
///
/// # Safety
/// That many bytes can be read, and nobody writes to them meanwhile.
unsafe fn copied(from: *const u8, bytes: usize) -> Box<[u8]> {
    if bytes == 0 {
        return Box::default();
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(from, bytes) }.into()
}

/// They are equal on 64-bit machines, the only supported ones.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
