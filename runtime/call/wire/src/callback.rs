//! Functions of the client that a routine calls: their declarations, and the layout of their arguments.
//!
//! The process of the slot and the server share an *exchange*, memory like an arena. It holds the values that
//! are sent, then each array in one piece used in both directions, then the values that come back.

use std::ops::Range;

use kumi_idl::{ArgumentForm, Interface, Plan, Target, Type};
use kumi_rpc::{ArraySize, Failure, MOST_ANSWER, Value};

use crate::values::{self, GivenValues};

/// A function parameter of a routine.
#[derive(Debug, Clone)]
pub struct Function {
    /// The routine's parameter.
    pub parameter: u16,
    /// Its declaration, as a routine of its own.
    pub declared: Interface,
}

/// The function parameters of a routine.
#[must_use]
pub fn functions(interface: &Interface) -> Vec<Function> {
    (0..)
        .zip(&interface.params)
        .filter_map(|(parameter, param)| {
            let Type::Callback(params) = &param.ty else { return None };
            let target = Target { symbol: param.name.clone(), ..Target::default() };
            let declared = Interface::new(param.name.clone(), params.clone(), target);
            Some(Function { parameter, declared })
        })
        .collect()
}

/// Alignment of arrays in an exchange, in bytes.
const ALIGN: usize = 64;
/// Most bytes of a value other than a text, with its parameter and tag.
const VALUE: usize = 19;

/// The layout of one call of a function in its exchange.
#[derive(Debug)]
pub struct Places {
    /// The plan of the call.
    pub plan: Plan,
    /// The place of each parameter's array, for both directions.
    arrays: Vec<Range<usize>>,
    /// The place of the values that come back.
    pub back: Range<usize>,
}

impl Places {
    /// The layout of a call with these values, which take `head` bytes.
    ///
    /// # Errors
    /// The values do not fit, or the call needs more than `most` bytes.
    pub fn new(
        declared: &Interface,
        given: &GivenValues,
        head: usize,
        most: u64,
    ) -> Result<Places, Failure> {
        let plan = values::plan(declared, given, most)?;
        let large = || values::too_large(most, most);
        let mut end = head;
        let mut arrays = Vec::with_capacity(plan.arguments.len());
        let mut back = 2_usize;
        for argument in &plan.arguments {
            if argument.mode.is_returned() {
                let text = match argument.form {
                    ArgumentForm::Text { capacity: Some(bytes) } => usize::try_from(bytes).ok(),
                    _ => Some(0),
                };
                let room = text.and_then(|text| back.checked_add(text)?.checked_add(VALUE));
                back = room.ok_or_else(large)?;
            }
            let bytes = match argument.form {
                ArgumentForm::Array(..) => argument.sent.max(argument.returned),
                _ => 0,
            };
            let begin = end.checked_next_multiple_of(ALIGN).ok_or_else(large)?;
            let bytes = usize::try_from(bytes).ok();
            end = bytes.and_then(|bytes| begin.checked_add(bytes)).ok_or_else(large)?;
            arrays.push(begin..end);
        }
        let until = end.checked_add(back).filter(|bytes| *bytes as u64 <= most);
        let until = until.ok_or_else(large)?;
        if head > MOST_ANSWER - 2 || back > MOST_ANSWER {
            let text =
                format!("more than the {MOST_ANSWER} bytes of texts that can travel at once");
            return Err(values::bad(-1, text));
        }
        Ok(Places { plan, arrays, back: end..until })
    }

    /// Bytes of the exchange.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.back.end
    }

    /// Arrays that go to the function.
    #[must_use]
    pub fn sent(&self) -> Vec<ArraySize> {
        crate::layout::sizes(&self.plan, |argument| argument.sent)
    }

    /// Arrays that come back from it.
    #[must_use]
    pub fn returned(&self) -> Vec<ArraySize> {
        crate::layout::sizes(&self.plan, |argument| argument.returned)
    }

    /// The place of a parameter's array.
    #[must_use]
    pub fn array(&self, parameter: usize) -> Range<usize> {
        self.arrays.get(parameter).cloned().unwrap_or_default()
    }

    /// The place of a range of an array.
    #[must_use]
    pub fn range(&self, argument: u16, offset: u64, length: usize) -> (usize, usize) {
        let place = self.array(usize::from(argument));
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(place.len());
        (place.start + offset, length.min(place.len() - offset))
    }
}

/// Checks the values that a function returned: exactly the expected ones, each of its type.
///
/// # Errors
/// A message about what does not fit.
pub fn check_back(
    declared: &Interface,
    plan: &Plan,
    values: &[(u16, Value)],
) -> Result<(), String> {
    let mut rest = values.iter();
    for (index, (param, argument)) in (0_u16..).zip(declared.params.iter().zip(&plan.arguments)) {
        if !argument.mode.is_returned()
            || !matches!(argument.form, ArgumentForm::Scalar(_) | ArgumentForm::Text { .. })
        {
            continue;
        }
        let value = rest.next().filter(|(at, _)| *at == index).map(|(_, value)| value);
        let value = value.ok_or_else(|| format!("it gave no value of `{}`", param.name))?;
        match (argument.form, value) {
            (ArgumentForm::Text { capacity: Some(capacity) }, Value::Text(text)) => {
                if text.len() as u64 >= capacity || text.contains('\0') {
                    return Err(format!(
                        "the text `{}` has {} bytes or a zero byte, and there is room for {}",
                        param.name,
                        text.len(),
                        capacity.saturating_sub(1)
                    ));
                }
            }
            (ArgumentForm::Scalar(element), value) => {
                let scalar = values::to_scalar(value).and_then(|scalar| scalar.fit(element));
                if scalar.is_none() {
                    return Err(format!("`{}` is not of type {element}", param.name));
                }
            }
            _ => return Err(format!("`{}` has the wrong type", param.name)),
        }
    }
    match rest.next() {
        Some((index, _)) => Err(format!("it gave a value for parameter {index}, which takes none")),
        None => Ok(()),
    }
}
