//! C functions as arguments for the functions of a routine, called as their declarations say.

use std::ffi::{CString, c_void};

use kumi_call_client::{Callback, CallbackArgs};
use kumi_call_ffi::{by_value, passed};
use kumi_idl::{Argument, ArgumentForm, Element, Mode, Param, Scalar};
use libffi::middle::{Arg, Cif, CodePtr, Ret, Type as Native};

/// A function of C as an argument of a call.
#[derive(Debug)]
pub struct CFunction {
    cif: Cif,
    code: CodePtr,
    /// The context pointer, passed before the other arguments.
    context: Option<*mut c_void>,
}

// SAFETY: its maker has promised that any thread that waits for the call may call it.
unsafe impl Send for CFunction {}

/// Memory of one argument, passed by value or by address.
struct ArgumentMemory {
    /// Aligned for every type.
    words: Vec<u128>,
    address: *mut c_void,
    is_value: bool,
}

impl CFunction {
    /// The function at an address with these parameters, and before them a context pointer if there is one.
    ///
    /// # Errors
    /// A parameter that cannot be passed to a function.
    ///
    /// # Safety
    /// The function must exist, and any thread may call it, as long as this value exists.
    pub unsafe fn new(
        address: *mut c_void,
        params: &[Param],
        context: Option<*mut c_void>,
    ) -> Result<CFunction, &'static str> {
        let mut types = passed(params, false)?;
        if context.is_some() {
            types.insert(0, Native::pointer());
        }
        Ok(CFunction {
            cif: Cif::new(types, Native::void()),
            code: CodePtr::from_ptr(address),
            context,
        })
    }

    /// It as an argument of a call. `watch` runs each call of the function and returns whether it failed.
    pub fn callback(
        self,
        mut watch: impl FnMut(&mut dyn FnMut()) -> Result<(), String> + Send + 'static,
    ) -> Callback<'static> {
        Callback::new(move |args| {
            let mut places = self.places(args)?;
            watch(&mut || self.call(&mut places))?;
            give_back(args, &places)
        })
    }

    fn places(&self, args: &mut CallbackArgs<'_>) -> Result<Vec<ArgumentMemory>, String> {
        let params = args.declared().params.clone();
        let arguments: Vec<Argument> = args.plan().arguments.clone();
        let each = params.iter().zip(&arguments).enumerate();
        each.map(|(index, (param, argument))| place(index, param, argument, args)).collect()
    }

    fn call(&self, places: &mut [ArgumentMemory]) {
        let context = self.context.unwrap_or(std::ptr::null_mut());
        let mut arguments: Vec<Arg<'_>> = Vec::with_capacity(places.len() + 1);
        if self.context.is_some() {
            arguments.push(Arg::new(&context));
        }
        for place in places.iter() {
            arguments.push(match place.words.first() {
                Some(value) if place.is_value => Arg::new(value),
                _ => Arg::new(&place.address),
            });
        }
        // SAFETY: whoever made this has promised that the function is one of these types, and the places live on.
        unsafe { self.cif.call_return_into(self.code, &arguments, Ret::void()) };
    }
}

/// Memory for an argument, with the value that is sent.
fn place(
    index: usize,
    param: &Param,
    argument: &Argument,
    args: &mut CallbackArgs<'_>,
) -> Result<ArgumentMemory, String> {
    if matches!(argument.form, ArgumentForm::Array(..)) {
        // No other argument uses this memory, and nobody else uses it while the function runs.
        let address = args.bytes_mut(index).as_mut_ptr().cast();
        return Ok(ArgumentMemory { words: Vec::new(), address, is_value: false });
    }
    let mut bytes = Vec::new();
    match argument.form {
        ArgumentForm::Scalar(element) => {
            let sent = args.scalar_at(index).filter(|_| param.mode.is_sent());
            if !sent.is_some_and(|scalar| scalar.encode(element, &mut bytes)) {
                bytes = vec![0; element.size() as usize];
            }
        }
        ArgumentForm::Text { capacity } => {
            let text = args.text_at(index).filter(|_| param.mode.is_sent()).unwrap_or_default();
            let text = CString::new(text).map_err(|_| format!("`{}` has a zero", param.name))?;
            bytes = text.into_bytes_with_nul();
            // Within the limit of the plan.
            bytes.resize(bytes.len().max(capacity.unwrap_or_default() as usize), 0);
        }
        _ => return Err(format!("`{}` cannot be passed to a function of C", param.name)),
    }
    let mut words = vec![0_u128; bytes.len().div_ceil(size_of::<u128>()).max(1)];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(size_of::<u128>())) {
        let mut whole = [0; size_of::<u128>()];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u128::from_le_bytes(whole);
    }
    let address = words.as_mut_ptr().cast();
    Ok(ArgumentMemory { words, address, is_value: by_value(param, false) })
}

impl ArgumentMemory {
    /// Its first bytes.
    fn bytes(&self, count: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(count);
        bytes
    }

    fn scalar(&self, element: Element) -> Option<Scalar> {
        Scalar::decode(element, &self.bytes(element.size() as usize))
    }
}

/// Takes the function's results from their places. Arrays are in place already.
fn give_back(args: &mut CallbackArgs<'_>, places: &[ArgumentMemory]) -> Result<(), String> {
    let params = args.declared().params.clone();
    let arguments: Vec<Argument> = args.plan().arguments.clone();
    for ((param, argument), place) in params.iter().zip(&arguments).zip(places) {
        if param.mode == Mode::In || param.mode == Mode::Work {
            continue;
        }
        match argument.form {
            ArgumentForm::Scalar(element) => {
                let scalar = place.scalar(element);
                args.set(&param.name, scalar.ok_or_else(|| format!("no `{}`", param.name))?)?;
            }
            ArgumentForm::Text { capacity } => {
                let bytes = place.bytes(capacity.unwrap_or_default() as usize);
                let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                let text = std::str::from_utf8(&bytes[..end]);
                let wrong =
                    |_| format!("`{}` came back as a text that is not in UTF-8", param.name);
                args.set_text(&param.name, text.map_err(wrong)?)?;
            }
            _ => {}
        }
    }
    Ok(())
}
