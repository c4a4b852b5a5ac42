//! Numbers and texts that come back, and where the program wants them.

use std::ffi::c_void;
use std::ops::Range;

use kumi_call_client::Outcome;
use kumi_idl::{Element, Scalar};
use kumi_rpc::Value;

use crate::code::{Code, Failure};
use crate::typed::{TextReceiver, addresses};

/// Destination of a result that is not an array.
pub struct ReturnedValue {
    /// The number of its parameter.
    pub parameter: usize,
    /// The name of its parameter.
    pub name: String,
    /// Where it goes.
    pub place: Destination,
}

/// Memory of the program for a result.
pub enum Destination {
    /// A number of this type.
    Number(Element, *mut c_void),
    /// A text with a zero at its end, in this many bytes.
    Text(*mut c_void, usize),
    /// A text padded with blanks.
    Blanks(*mut c_void, usize),
    /// A function of the program gets the text.
    Taken(*mut c_void, TextReceiver),
}

// SAFETY: the program has lent these places to the call, whichever thread waits for it.
unsafe impl Send for ReturnedValue {}

impl ReturnedValue {
    /// Where it goes: the addresses of the number or the text, or that of what takes the text.
    pub fn memory(&self) -> Range<usize> {
        match self.place {
            Destination::Number(element, address) => addresses(address, element.size()),
            Destination::Text(address, room) | Destination::Blanks(address, room) => {
                addresses(address, room as u64)
            }
            Destination::Taken(address, _) => addresses(address, 1),
        }
    }

    /// Writes a result to its destination.
    ///
    /// # Errors
    /// It does not fit there.
    pub fn put(&self, outcome: &Outcome) -> Result<(), Failure> {
        if let Destination::Number(..) = self.place {
            return match outcome.scalar(self.parameter) {
                Some(scalar) => self.put_number(scalar),
                None => Ok(()),
            };
        }
        let mut values = outcome.values.iter();
        match values.find(|(index, _)| *index == self.parameter) {
            Some((_, Value::Text(text))) => self.put_text(text),
            _ => Ok(()),
        }
    }

    fn put_number(&self, scalar: Scalar) -> Result<(), Failure> {
        let Destination::Number(element, address) = self.place else { return Ok(()) };
        let mut bytes = Vec::with_capacity(16);
        if !scalar.encode(element, &mut bytes) {
            let text = format!("`{}` came back as {scalar}, which is no {element}", self.name);
            return Err(Failure::new(Code::OtherErrorCode, text));
        }
        // SAFETY: the program has lent room for an element until the call is over, and the address is not null.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), bytes.len()) };
        Ok(())
    }

    fn put_text(&self, text: &str) -> Result<(), Failure> {
        let (address, room, fill) = match self.place {
            Destination::Number(..) => return Ok(()),
            Destination::Taken(target, take) => {
                // SAFETY: the program gave the function for this target; the text lives while it runs.
                unsafe { take(target, text.as_ptr().cast(), text.len()) };
                return Ok(());
            }
            // Not even the zero fits.
            Destination::Text(_, 0) => return Ok(()),
            Destination::Text(address, room) => (address, room - 1, None),
            Destination::Blanks(address, room) => (address, room, Some(b' ')),
        };
        if text.len() > room {
            let text = format!(
                "`{}` came back with {} bytes, there is room for {room}",
                self.name,
                text.len()
            );
            return Err(Failure::argument(text));
        }
        let rest = if fill.is_some() { room - text.len() } else { 1 };
        // SAFETY: the program has lent this much room; a C string has one byte more than `room`.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), address.cast(), text.len());
            address.cast::<u8>().add(text.len()).write_bytes(fill.unwrap_or(0), rest);
        }
        Ok(())
    }
}
