//! Layout of a call's arguments in its arena.
//!
//! Scalars and arrays lie where the plan says. Behind them are texts without a fixed size, and a packing area
//! for each array of which only a section in pieces travels.

use std::ops::Range;

use kumi_idl::{Argument, ArgumentForm, Element, Interface, Language, Plan};
use kumi_rpc::{ArraySize, Code, Failure, MOST_ANSWER, Value};

use crate::native::Arena;
use crate::values::{self, GivenValues};

/// The place of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Offset in the arena.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// Length of a text without the terminating zero.
    pub text: usize,
}

/// The layout of a call's arena.
#[derive(Debug)]
pub struct Layout {
    /// The plan.
    pub plan: Plan,
    /// The place of each parameter, and behind them those of the symbol's expressions ([`computed`]).
    pub slots: Vec<Slot>,
    /// The place of each array as it travels, in one piece.
    travels: Vec<Range<usize>>,
    /// Bytes of the arena.
    pub bytes: usize,
}

/// Most bytes of returned texts. Invalid UTF-8 becomes three times as long, and values have heads.
const MOST_TEXTS: u64 = (MOST_ANSWER as u64 - (64 << 10)) / 3;

/// Why there is no layout: the call does not fit its description or the server's limits.
pub type Refusal = Failure;

impl Layout {
    /// The layout of a call with these values.
    ///
    /// # Errors
    /// The failure for the client. Nothing has been allocated.
    pub fn new(interface: &Interface, given: &GivenValues, most: u64) -> Result<Layout, Refusal> {
        let plan = values::plan(interface, given, most)?;
        check_texts(&plan)?;
        let mut end = to_usize(plan.memory, most)?;
        let mut slots = Vec::with_capacity(plan.arguments.len());
        let mut travels = Vec::with_capacity(plan.arguments.len());
        for (argument, text) in plan.arguments.iter().zip(&given.texts) {
            let mut slot = Slot {
                offset: to_usize(argument.offset, most)?,
                bytes: to_usize(argument.bytes, most)?,
                text: 0,
            };
            // A file argument is its path.
            let capacity = match argument.form {
                ArgumentForm::Text { capacity } => Some(capacity),
                ArgumentForm::File => Some(None),
                _ => None,
            };
            if let Some(capacity) = capacity {
                // It fits a place of a fixed size: the plan was made with it.
                slot.text = text.as_ref().map_or(0, String::len);
                if capacity.is_none() {
                    slot = Slot { offset: end, bytes: slot.text + 1, text: slot.text };
                    end = add(end, slot.bytes, most)?;
                }
            }
            slots.push(slot);
            travels.push(match argument.section.single() {
                Some(run) => {
                    let begin = slot.offset + to_usize(run.offset, most)?;
                    begin..begin + to_usize(run.length, most)?
                }
                None => {
                    let begin = end;
                    end = add(end, to_usize(argument.section.bytes(), most)?, most)?;
                    begin..end
                }
            });
        }
        for _ in computed(interface) {
            let offset = add(end, end.wrapping_neg() % WORD, most)?;
            slots.push(Slot { offset, bytes: WORD, text: 0 });
            end = add(offset, WORD, most)?;
        }
        Ok(Layout { plan, slots, travels, bytes: end })
    }

    /// Arrays that come from the client.
    pub fn sent(&self) -> Vec<ArraySize> {
        sizes(&self.plan, |argument| argument.sent)
    }

    /// Arrays that go back.
    pub fn returned(&self) -> Vec<ArraySize> {
        sizes(&self.plan, |argument| argument.returned)
    }

    /// The argument of a parameter, if it is an array.
    pub fn array(&self, parameter: u16) -> Option<&Argument> {
        let argument = self.plan.arguments.get(usize::from(parameter))?;
        matches!(argument.form, ArgumentForm::Array(..)).then_some(argument)
    }

    /// The place of a range of an array as it travels.
    pub fn range(&self, argument: u16, offset: u64, length: usize) -> (usize, usize) {
        let range = &self.travels[usize::from(argument)];
        let offset = range.start + usize::try_from(offset).unwrap_or(usize::MAX - range.start);
        (offset, length.min(range.end.saturating_sub(offset)))
    }

    /// Writes scalars and texts to their places, and unpacks sections. `foreign` memory holds another
    /// connection's data, so the places of results are zeroed.
    pub fn arrange(
        &self,
        interface: &Interface,
        given: &GivenValues,
        arena: &Arena,
        foreign: bool,
    ) {
        let each = interface.params.iter().zip(&self.plan.arguments).zip(&self.slots);
        for (index, ((param, argument), slot)) in each.enumerate() {
            match (argument.form, argument.scalar) {
                (ArgumentForm::Scalar(element), Some(scalar)) => {
                    let mut bytes = Vec::with_capacity(slot.bytes);
                    if scalar.encode(element, &mut bytes) {
                        arena.write(slot.offset, &bytes);
                    }
                }
                (ArgumentForm::Scalar(_), None) => arena.write(slot.offset, &vec![0; slot.bytes]),
                (ArgumentForm::Text { .. } | ArgumentForm::File, _) => {
                    let text = given.texts[index].as_deref().unwrap_or_default();
                    let room = slot.bytes.saturating_sub(1);
                    arena.write(slot.offset, &text.as_bytes()[..text.len().min(room)]);
                    if slot.bytes > 0 {
                        arena.write(slot.offset + text.len().min(room), &[0]);
                    }
                }
                (ArgumentForm::Array(..), _) if param.mode.is_sent() => {
                    self.spread(index, arena, true);
                }
                (ArgumentForm::Array(..), _) if foreign && param.mode.is_returned() => {
                    for run in argument.section.runs() {
                        // Inside the arena, whose size was checked.
                        arena.clear(slot.offset + run.offset as usize, run.length as usize);
                    }
                }
                _ => {}
            }
        }
        let slots = &self.slots[self.plan.arguments.len()..];
        for ((argument, element), slot) in computed(interface).zip(slots) {
            let mut bytes = Vec::with_capacity(WORD);
            if let Some(value) = self.plan.computed[argument]
                && value.encode(element, &mut bytes)
            {
                arena.write(slot.offset, &bytes);
            }
        }
    }

    /// Packs sections that go back in pieces.
    pub fn pack(&self, interface: &Interface, arena: &Arena) {
        for (index, param) in interface.params.iter().enumerate() {
            if param.mode.is_returned() {
                self.spread(index, arena, false);
            }
        }
    }

    /// Copies a section between its packing area and the array.
    fn spread(&self, index: usize, arena: &Arena, to_array: bool) {
        let argument: &Argument = &self.plan.arguments[index];
        if argument.section.single().is_some() {
            return;
        }
        let mut packed = self.travels[index].start;
        for run in argument.section.runs() {
            // Inside the arena, whose size was checked.
            let (offset, length) = (run.offset as usize, run.length as usize);
            let place = self.slots[index].offset + offset;
            if to_array {
                arena.copy(packed, place, length);
            } else {
                arena.copy(place, packed, length);
            }
            packed += length;
        }
    }

    /// The scalars and texts that are returned.
    pub fn results(&self, interface: &Interface, arena: &Arena) -> Vec<(u16, Value)> {
        let each = interface.params.iter().zip(&self.plan.arguments).zip(&self.slots);
        (0_u16..)
            .zip(each)
            .filter(|(_, ((param, _), _))| param.mode.is_returned())
            .filter_map(|(index, ((_, argument), slot))| {
                let value = match argument.form {
                    ArgumentForm::Scalar(element) => {
                        let bytes = arena.read(slot.offset, slot.bytes);
                        values::to_wire(kumi_idl::Scalar::decode(element, &bytes)?)
                    }
                    ArgumentForm::Text { .. } => {
                        let bytes = arena.read(slot.offset, slot.bytes);
                        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                        Value::Text(String::from_utf8_lossy(&bytes[..end]).into_owned())
                    }
                    _ => return None,
                };
                Some((index, value))
            })
            .collect()
    }
}

/// Bytes of the place of an expression's value.
const WORD: usize = 8;

/// The symbol's expressions, and the types of their values in the arena. An integer of Fortran fills its
/// place, so that it is valid with 32 bits and with 64.
pub fn computed(interface: &Interface) -> impl Iterator<Item = (usize, Element)> {
    let target = &interface.target;
    let wide = target.language == Language::Fortran;
    target.arguments.iter().enumerate().filter_map(move |(index, argument)| {
        let element = interface.passed_as(argument)?;
        let widened = wide && element.is_integer();
        Some((index, if widened { Element::I64 } else { element }))
    })
}

/// Checks that the returned texts fit into a result's head.
fn check_texts(plan: &Plan) -> Result<(), Refusal> {
    let returned = plan.arguments.iter().filter(|argument| argument.mode.is_returned());
    let texts = returned.fold(0_u64, |sum, argument| match argument.form {
        ArgumentForm::Text { capacity: Some(capacity) } => sum.saturating_add(capacity),
        _ => sum,
    });
    if texts <= MOST_TEXTS {
        return Ok(());
    }
    let text = format!(
        "texts of up to {texts} bytes would come back, of which {MOST_TEXTS} can be sent; return \
         long texts as arrays of `char`"
    );
    Err(Failure::new(Code::TooLarge, i64::try_from(texts).unwrap_or(i64::MAX), text))
}

/// The arrays of a plan of which something travels.
pub fn sizes(plan: &Plan, bytes: impl Fn(&Argument) -> u64) -> Vec<ArraySize> {
    (0_u16..)
        .zip(&plan.arguments)
        .filter(|(_, argument)| matches!(argument.form, ArgumentForm::Array(..)))
        .map(|(index, argument)| ArraySize { argument: index, bytes: bytes(argument) })
        .filter(|size| size.bytes > 0)
        .collect()
}

fn to_usize(bytes: u64, most: u64) -> Result<usize, Refusal> {
    usize::try_from(bytes).map_err(|_| values::too_large(bytes, most))
}

fn add(end: usize, bytes: usize, most: u64) -> Result<usize, Refusal> {
    let end = end.checked_add(bytes).filter(|end| *end as u64 <= most);
    end.ok_or_else(|| values::too_large(most, most))
}
