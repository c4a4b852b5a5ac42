//! Functions of the client for routines of an interpreter, called with values and bytes instead of addresses.

use kumi_idl::{Argument, ArgumentForm, Interface, Mode, Param, Scalar};
use kumi_rpc::Value;

use super::closure::{call_in, this_run};
use crate::callback::{Function, functions};
use crate::values::{self, GivenValues};

/// A function of the client. It can be called during the call that passed it.
#[derive(Debug, Clone)]
pub struct ClientFunction {
    function: Function,
    run: u64,
}

/// An array argument: its sizes, and its bytes in the order of the declaration.
pub type SizedArray = (Vec<u64>, Vec<u8>);

/// A result of a function.
#[derive(Debug, Clone, PartialEq)]
pub enum CallbackResult {
    /// A number or text.
    Value(Value),
    /// An array.
    Array(SizedArray),
}

impl ClientFunction {
    /// The functions of the present call, each with its parameter of the routine.
    #[must_use]
    pub fn of_this_call(interface: &Interface) -> Vec<(usize, ClientFunction)> {
        let run = this_run();
        let each = functions(interface).into_iter();
        each.map(|function| (usize::from(function.parameter), ClientFunction { function, run }))
            .collect()
    }

    /// The declaration of the function.
    #[must_use]
    pub fn declared(&self) -> &Interface {
        &self.function.declared
    }

    /// Calls the function with values and arrays by parameter, and waits. Returns the results, each with its
    /// parameter. If the function fails, this never returns, because the server ends the process.
    ///
    /// # Errors
    /// The arguments do not fit or the call is over, so the function was not called; or the server is gone.
    pub fn call(
        &self,
        values: &[(u16, Value)],
        arrays: &[Option<SizedArray>],
    ) -> Result<Vec<(usize, CallbackResult)>, String> {
        let declared = &self.function.declared;
        let given = GivenValues::from_wire(declared, values).map_err(|failure| failure.text)?;
        let mut memory: Vec<Vec<u8>> = Vec::new();
        let mut arguments: Vec<Argument> = Vec::new();
        let mut places = |most: u64| {
            let plan = values::plan(declared, &given, most).map_err(|failure| failure.text)?;
            arguments = plan.arguments;
            for (index, (param, argument)) in declared.params.iter().zip(&arguments).enumerate() {
                let array = arrays.get(index).and_then(Option::as_ref);
                let scalar = given.scalars[index].or(argument.scalar);
                let text = given.texts[index].as_deref();
                memory.push(place(param, argument, scalar, text, array)?);
            }
            Ok(memory.iter_mut().map(Vec::as_mut_ptr).collect())
        };
        // SAFETY: each place was made for its argument by the declaration, and lives in `memory`, which nobody else uses
        // meanwhile.
        unsafe { call_in(self.run, &self.function, &mut places) }?;
        let each = arguments.iter().zip(memory).enumerate();
        let back = each.filter(|(_, (argument, _))| argument.mode.is_returned());
        Ok(back.filter_map(|(at, (it, bytes))| Some((at, returned(it, bytes)?))).collect())
    }
}

/// Memory for an argument, with the bytes that are sent.
fn place(
    param: &Param,
    argument: &Argument,
    scalar: Option<Scalar>,
    text: Option<&str>,
    array: Option<&SizedArray>,
) -> Result<Vec<u8>, String> {
    let name = &param.name;
    // Within the limit of the plan.
    let zeros = vec![0; argument.bytes as usize];
    match (argument.form, param.mode) {
        (ArgumentForm::Array(..), Mode::In | Mode::InOut) => {
            let (sizes, bytes) = array.ok_or_else(|| format!("`{name}` is not given"))?;
            let wanted: Vec<u64> = argument.axes.iter().map(|axis| axis.size).collect();
            if *sizes != wanted || bytes.len() != zeros.len() {
                return Err(format!("`{name}` has the shape {sizes:?}, and {wanted:?} is wanted"));
            }
            Ok(bytes.clone())
        }
        (ArgumentForm::Scalar(element), Mode::In | Mode::InOut) => {
            let scalar = scalar.ok_or_else(|| format!("`{name}` is not given"))?;
            let mut bytes = Vec::new();
            let fits = scalar.fit(element).is_some_and(|fits| fits.encode(element, &mut bytes));
            if fits { Ok(bytes) } else { Err(format!("`{name}` is a {element}, not {scalar}")) }
        }
        (ArgumentForm::Text { capacity }, Mode::In | Mode::InOut) => {
            let text = text.ok_or_else(|| format!("`{name}` is not given"))?;
            let mut bytes = text.as_bytes().to_vec();
            bytes.push(0);
            if let Some(most) = capacity.map(|most| most as usize) {
                if bytes.len() > most {
                    return Err(format!("the text `{name}` has more than {} bytes", most - 1));
                }
                bytes.resize(most, 0);
            }
            Ok(bytes)
        }
        _ => Ok(zeros),
    }
}

/// The result in the memory of an argument.
fn returned(argument: &Argument, bytes: Vec<u8>) -> Option<CallbackResult> {
    Some(match argument.form {
        ArgumentForm::Array(..) => {
            CallbackResult::Array((argument.axes.iter().map(|axis| axis.size).collect(), bytes))
        }
        ArgumentForm::Scalar(element) => {
            CallbackResult::Value(values::to_wire(Scalar::decode(element, &bytes)?))
        }
        ArgumentForm::Text { .. } => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            CallbackResult::Value(Value::Text(String::from_utf8_lossy(&bytes[..end]).into_owned()))
        }
        _ => return None,
    })
}
