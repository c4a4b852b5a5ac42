//! Plans of calls: the bytes of each argument that are sent, and the memory that the routine needs. Client and server compute the
//! same plan from the description and the scalar arguments, before any byte is sent or allocated.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::expr::{EvalError, Scope};
use crate::expr_display::ExprDisplay;
use crate::model::{Dimension, Element, Expr, Interface, Mode, Order, Param, Type};
use crate::scalar::{Scalar, letter};
use crate::section::{Axis, Section};

/// Limits of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of memory for all arguments together.
    pub bytes: u64,
}

impl Default for Limits {
    /// The size of an address space.
    fn default() -> Limits {
        Limits { bytes: i64::MAX.unsigned_abs() }
    }
}

/// The plan of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// One for each parameter.
    pub arguments: Vec<Argument>,
    /// Bytes of memory for the arguments, one after the other ([`Argument::offset`]), without files and texts of unknown size.
    pub memory: u64,
    /// Bytes of scalars and arrays that are sent to the server.
    pub sent: u64,
    /// Bytes of scalars and arrays that come back.
    pub returned: u64,
    /// Number of operations; `None`: not declared, or not a number for these arguments.
    pub operations: Option<f64>,
    /// Number of ranks; `None`: the routine is no job; 0: the server decides.
    pub ranks: Option<u64>,
    /// Values of the symbol's arguments, one for each; `None`: the argument is no expression.
    pub computed: Vec<Option<Scalar>>,
}

/// The plan of one argument.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// The direction of transfer.
    pub mode: Mode,
    /// Its form.
    pub form: ArgumentForm,
    /// The value of a scalar input: the caller's or the default.
    pub scalar: Option<Scalar>,
    /// The array's dimensions in the order of the description.
    pub axes: Vec<Axis>,
    /// Elements in memory.
    pub elements: u64,
    /// Bytes in memory.
    pub bytes: u64,
    /// Offset in the call's memory, a multiple of [`Argument::align`].
    pub offset: u64,
    /// Alignment in bytes, a power of two.
    pub align: u64,
    /// The part that is sent, in either direction.
    pub section: Section,
    /// Bytes that are sent to the server.
    pub sent: u64,
    /// Bytes that come back.
    pub returned: u64,
}

/// The form of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentForm {
    /// A number.
    Scalar(Element),
    /// An array of numbers in this memory order.
    Array(Element, Order),
    /// A text. The plan's totals leave out a text without a capacity.
    Text {
        /// Most bytes at the routine, including the zero at the end; `None`: as many as the caller passes.
        capacity: Option<u64>,
    },
    /// A file. The plan's totals leave out its contents.
    File,
    /// A function of the client.
    Callback,
}

/// An expression of a parameter's declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The size of this dimension, the first is 0.
    Size(usize),
    /// The first element of this dimension that is sent.
    Start(usize),
    /// The end of the elements that are sent.
    End(usize),
    /// The step between the elements that are sent.
    Step(usize),
    /// The default.
    Default,
}

impl Dimension {
    /// The expressions of the dimension with this index.
    pub(crate) fn parts(&self, at: usize) -> impl Iterator<Item = (Part, &Expr)> {
        let parts = [
            (Part::Size(at), Some(&self.size)),
            (Part::Start(at), self.start.as_ref()),
            (Part::End(at), self.end.as_ref()),
            (Part::Step(at), self.step.as_ref()),
        ];
        parts.into_iter().filter_map(|(part, expr)| Some((part, expr?)))
    }
}

impl core::fmt::Display for Part {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Part::Size(dimension) => write!(f, "the size of dimension {}", dimension + 1),
            Part::Start(dimension) => write!(f, "the begin in dimension {}", dimension + 1),
            Part::End(dimension) => write!(f, "the end in dimension {}", dimension + 1),
            Part::Step(dimension) => write!(f, "the step in dimension {}", dimension + 1),
            Part::Default => f.write_str("the default"),
        }
    }
}

/// Why a call has no plan: the arguments do not fit the description, or the description is wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The number of values is not the number of parameters.
    #[error("`{routine}` has {expected} parameters, {given} values were given")]
    Count {
        /// The routine.
        routine: String,
        /// Parameters.
        expected: usize,
        /// Values.
        given: usize,
    },
    /// A scalar has neither a value nor a default.
    #[error("`{param}` has no value and no default")]
    Missing {
        /// The parameter.
        param: String,
    },
    /// A value was passed for an array, an output or a text.
    #[error("`{param}` takes no scalar value")]
    Unexpected {
        /// The parameter.
        param: String,
    },
    /// The parameter's type cannot hold the value.
    #[error("`{param}` is of type {element}, which cannot hold {value}")]
    Misfit {
        /// The parameter.
        param: String,
        /// Its type.
        element: Element,
        /// The value.
        value: Scalar,
    },
    /// An expression has no value.
    #[error("`{param}`: {part}, `{expression}`, has no value: {cause}")]
    Expression {
        /// The parameter.
        param: String,
        /// Which of its expressions.
        part: Part,
        /// As the description spells it.
        expression: String,
        /// Why.
        cause: EvalError,
    },
    /// A size is negative.
    #[error("`{param}`: {part}, `{expression}`, is {value}")]
    Negative {
        /// The parameter.
        param: String,
        /// Which of its expressions.
        part: Part,
        /// As the description spells it.
        expression: String,
        /// Its value.
        value: i64,
    },
    /// A section is outside of its array, or goes backwards.
    #[error(
        "`{param}`: dimension {} has {size} elements, of which {start} up to {end}, {step} apart, cannot be taken",
        dimension + 1
    )]
    Outside {
        /// The parameter.
        param: String,
        /// The dimension, the first is 0.
        dimension: usize,
        /// The first element.
        start: i64,
        /// Behind the last.
        end: i64,
        /// From one to the next.
        step: i64,
        /// Elements there.
        size: i64,
    },
    /// The array has too many dimensions.
    #[error("`{param}` has {dimensions} dimensions; {} is the most", Interface::MOST_DIMENSIONS)]
    Dimensions {
        /// The parameter.
        param: String,
        /// How many.
        dimensions: usize,
    },
    /// The call needs too much memory.
    #[error("with `{param}` the call needs more than {limit} bytes of memory")]
    TooLarge {
        /// The parameter with which the limit is passed.
        param: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// Defaults depend on each other.
    #[error("the default of `{param}` needs itself")]
    Cycle {
        /// One of the parameters.
        param: String,
    },
    /// The number of ranks has no value.
    #[error("the number of ranks, `{expression}`, has no value: {cause}")]
    Ranks {
        /// As the description spells it.
        expression: String,
        /// Why.
        cause: EvalError,
    },
    /// The number of ranks is negative.
    #[error("the number of ranks, `{expression}`, is {value}")]
    NegativeRanks {
        /// As the description spells it.
        expression: String,
        /// Its value.
        value: i64,
    },
    /// An argument of the symbol has no value.
    #[error("what `{symbol}` gets, `{expression}`, has no value: {cause}")]
    Passed {
        /// The symbol.
        symbol: String,
        /// The argument as the description spells it.
        expression: String,
        /// Why.
        cause: EvalError,
    },
}

impl Interface {
    /// The plan of a call with these scalars, by parameter; `None` for arrays, outputs and what its default stands
    /// for. Without a limit but that of the address space.
    ///
    /// # Errors
    /// [`PlanError`]: what does not fit, by parameter and expression.
    pub fn plan(&self, scalars: &[Option<Scalar>]) -> Result<Plan, PlanError> {
        self.plan_within(scalars, &Limits::default())
    }

    /// [`Interface::plan`], within limits.
    ///
    /// # Errors
    /// [`PlanError`]: what does not fit, by parameter and expression, or that the call needs too much.
    pub fn plan_within(
        &self,
        scalars: &[Option<Scalar>],
        limits: &Limits,
    ) -> Result<Plan, PlanError> {
        self.plan_with_texts(scalars, &[] as &[Option<&str>], limits)
    }

    /// [`Interface::plan_within`] of a call with these texts, by parameter, whose first characters sizes may depend on.
    /// Defaults stand for texts that are not given.
    ///
    /// # Errors
    /// [`PlanError`]: what does not fit, by parameter and expression, or that the call needs too much.
    pub fn plan_with_texts(
        &self,
        scalars: &[Option<Scalar>],
        texts: &[Option<impl AsRef<str>>],
        limits: &Limits,
    ) -> Result<Plan, PlanError> {
        let scalars =
            self.values(scalars, |index| texts.get(index)?.as_ref().map(AsRef::as_ref))?;
        let scope = Scope { params: &self.params, scalars: &scalars };
        let mut plan = Plan {
            arguments: Vec::with_capacity(self.params.len()),
            memory: 0,
            sent: 0,
            returned: 0,
            operations: None,
            ranks: self.ranks_in(scope)?,
            computed: self.computed(scope)?,
        };
        for (param, scalar) in self.params.iter().zip(&scalars) {
            let mut argument = argument(scope, param, *scalar)?;
            let too_large = || PlanError::TooLarge { param: name(param), limit: limits.bytes };
            let offset = plan.memory.checked_next_multiple_of(argument.align);
            argument.offset = offset.ok_or_else(too_large)?;
            let end = argument.offset.checked_add(argument.bytes);
            plan.memory = end.filter(|end| *end <= limits.bytes).ok_or_else(too_large)?;
            // No more than the memory: no overflow.
            plan.sent += argument.sent;
            plan.returned += argument.returned;
            plan.arguments.push(argument);
        }
        let operations = self.calc_order.as_ref().and_then(|order| scope.real(order).ok());
        plan.operations = operations.filter(|count| count.is_finite() && *count >= 0.0);
        Ok(plan)
    }

    /// Every scalar that is sent, in the form that belongs to its type, defaults filled in.
    fn values<'a>(
        &'a self,
        given: &[Option<Scalar>],
        text: impl Fn(usize) -> Option<&'a str>,
    ) -> Result<Vec<Option<Scalar>>, PlanError> {
        if given.len() != self.params.len() {
            let routine = self.name.to_string();
            let (expected, given) = (self.params.len(), given.len());
            return Err(PlanError::Count { routine, expected, given });
        }
        let mut values = Vec::with_capacity(given.len());
        let mut defaults = false;
        for (index, (param, value)) in self.params.iter().zip(given).enumerate() {
            let element = param.scalar().filter(|_| param.mode.is_sent());
            values.push(match (element, value) {
                (Some(element), Some(value)) => Some(fit(param, element, *value)?),
                (Some(_), None) if param.default.is_none() => {
                    return Err(PlanError::Missing { param: name(param) });
                }
                (None, Some(_)) => return Err(PlanError::Unexpected { param: name(param) }),
                (Some(_), None) => {
                    defaults = true;
                    None
                }
                (None, None) if param.ty == Type::String && param.mode.is_sent() => {
                    let default = match &param.default {
                        Some(Expr::Text(text)) => Some(text.as_str()),
                        _ => None,
                    };
                    text(index).or(default).map(letter)
                }
                (None, None) => None,
            });
        }
        if defaults {
            crate::defaults::fill(&self.params, &mut values)?;
        }
        Ok(values)
    }
}

pub(crate) fn name(param: &Param) -> String {
    param.name.to_string()
}

pub(crate) fn fit(param: &Param, element: Element, value: Scalar) -> Result<Scalar, PlanError> {
    value.fit(element).ok_or_else(|| PlanError::Misfit { param: name(param), element, value })
}

pub(crate) fn no_value(
    scope: Scope<'_>,
    param: &Param,
    part: Part,
    expr: &Expr,
    cause: EvalError,
) -> PlanError {
    let expression = ExprDisplay { expr, params: scope.params }.to_string();
    PlanError::Expression { param: name(param), part, expression, cause }
}

/// Alignment of arrays: a cache line, and what vector instructions want.
const ARRAY_ALIGN: u64 = 64;

fn argument(
    scope: Scope<'_>,
    param: &Param,
    scalar: Option<Scalar>,
) -> Result<Argument, PlanError> {
    let mut axes = Vec::with_capacity(param.dims.len());
    if param.dims.len() > Interface::MOST_DIMENSIONS {
        return Err(PlanError::Dimensions { param: name(param), dimensions: param.dims.len() });
    }
    for (index, dimension) in param.dims.iter().enumerate() {
        axes.push(axis(scope, param, index, dimension)?);
    }
    let (form, size, align) = match &param.ty {
        Type::Number(element) if axes.is_empty() => {
            (ArgumentForm::Scalar(*element), element.size(), element.size())
        }
        Type::Number(element) => {
            (ArgumentForm::Array(*element, param.order), element.size(), ARRAY_ALIGN)
        }
        Type::String => (ArgumentForm::Text { capacity: None }, u64::from(!axes.is_empty()), 1),
        Type::File => (ArgumentForm::File, 0, 1),
        Type::Callback(_) => (ArgumentForm::Callback, 0, 1),
    };
    let mut argument = Argument {
        mode: param.mode,
        form,
        scalar: scalar.filter(|_| param.scalar().is_some()),
        elements: elements(param, &axes)?,
        bytes: 0,
        offset: 0,
        align,
        section: Section::default(),
        sent: 0,
        returned: 0,
        axes,
    };
    argument.bytes = argument
        .elements
        .checked_mul(size)
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or_else(|| too_large(param))?;
    match &mut argument.form {
        ArgumentForm::Text { capacity } if size > 0 => *capacity = Some(argument.elements),
        ArgumentForm::Scalar(_) | ArgumentForm::Array(..) => travel(&mut argument, size),
        _ => {}
    }
    Ok(argument)
}

/// What of a scalar or array travels.
fn travel(argument: &mut Argument, size: u64) {
    if argument.elements > 0 && argument.mode != Mode::Work {
        argument.section = match argument.order() {
            Order::Row => Section::new(size, argument.axes.iter().rev()),
            Order::Column => Section::new(size, argument.axes.iter()),
        };
    }
    let bytes = argument.section.bytes();
    argument.sent = if argument.mode.is_sent() { bytes } else { 0 };
    argument.returned = if argument.mode.is_returned() { bytes } else { 0 };
}

fn too_large(param: &Param) -> PlanError {
    PlanError::TooLarge { param: name(param), limit: Limits::default().bytes }
}

/// Elements in memory; of no dimensions one.
fn elements(param: &Param, axes: &[Axis]) -> Result<u64, PlanError> {
    if axes.iter().any(|axis| axis.size == 0) {
        return Ok(0);
    }
    let count = axes.iter().try_fold(1_u64, |count, axis| count.checked_mul(axis.size));
    count.ok_or_else(|| too_large(param))
}

fn axis(
    scope: Scope<'_>,
    param: &Param,
    index: usize,
    dimension: &Dimension,
) -> Result<Axis, PlanError> {
    let value = |part: Part, expr: &Expr| {
        scope.integer(expr).map_err(|cause| no_value(scope, param, part, expr, cause))
    };
    let size = value(Part::Size(index), &dimension.size)?;
    let Ok(elements) = u64::try_from(size) else {
        let expression = ExprDisplay { expr: &dimension.size, params: scope.params }.to_string();
        let part = Part::Size(index);
        return Err(PlanError::Negative { param: name(param), part, expression, value: size });
    };
    let or = |part: Part, expr: &Option<Expr>, otherwise: i64| match expr {
        Some(expr) => value(part, expr),
        None => Ok(otherwise),
    };
    let start = or(Part::Start(index), &dimension.start, 0)?;
    let end = or(Part::End(index), &dimension.end, size)?;
    let step = or(Part::Step(index), &dimension.step, 1)?;
    let outside =
        || PlanError::Outside { param: name(param), dimension: index, start, end, step, size };
    if start < 0 || end < start || end > size || step < 1 {
        return Err(outside());
    }
    // None of them is negative any more.
    let count = (end - start).unsigned_abs().div_ceil(step.unsigned_abs());
    Ok(Axis { size: elements, start: start.unsigned_abs(), count, step: step.unsigned_abs() })
}
