//! Arguments of a routine's symbol that are expressions in `Calls`: their types and values.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::expr::{EvalError, Scope};
use crate::expr_display::ExprDisplay;
use crate::model::{Binary, Element, Expr, Function, Interface, Param, Unary};
use crate::plan::PlanError;
use crate::scalar::Scalar;

/// The type as which an expression is passed. The order is that of C's conversions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Int,
    Long,
    Float,
    Double,
}

impl Kind {
    fn element(self) -> Element {
        match self {
            Kind::Int => Element::I32,
            Kind::Long => Element::I64,
            Kind::Float => Element::F32,
            Kind::Double => Element::F64,
        }
    }
}

impl Interface {
    /// The type of an argument of the symbol that is an expression: the widest type in it by C's rules, at least `int`. A
    /// constant integer gets a type that holds it. `None`: the argument is a parameter or a text.
    #[must_use]
    pub fn passed_as(&self, argument: &Expr) -> Option<Element> {
        match argument {
            Expr::Param(_) | Expr::Text(_) => None,
            other => {
                Some(constant(other).unwrap_or_else(|| kind(&self.params, other, 1)).element())
            }
        }
    }

    /// The values of the symbol's arguments, one for each; `None`: the argument is no expression.
    pub(crate) fn computed(&self, scope: Scope<'_>) -> Result<Vec<Option<Scalar>>, PlanError> {
        let value = |argument: &Expr| {
            let Some(element) = self.passed_as(argument) else { return Ok(None) };
            let failed = |cause| PlanError::Passed {
                symbol: String::from(&*self.target.symbol),
                expression: ExprDisplay { expr: argument, params: scope.params }.to_string(),
                cause,
            };
            let value = evaluate(scope, element, argument).map_err(failed)?;
            value.fit(element).map(Some).ok_or_else(|| failed(EvalError::Beyond(element)))
        };
        self.target.arguments.iter().map(value).collect()
    }
}

/// The type that holds the value of a constant integer expression.
fn constant(expr: &Expr) -> Option<Kind> {
    let mut names = false;
    expr.each_param(&mut |_| names = true);
    let value = Scope { params: &[], scalars: &[] }.integer(expr).ok().filter(|_| !names)?;
    Some(if i32::try_from(value).is_ok() { Kind::Int } else { Kind::Long })
}

fn kind(params: &[Param], expr: &Expr, depth: usize) -> Kind {
    if depth > Expr::MOST_DEPTH {
        return Kind::Int;
    }
    let below = |expr: &Expr| kind(params, expr, depth + 1);
    match expr {
        Expr::Int(value) if i32::try_from(*value).is_err() => Kind::Long,
        Expr::Int(_) | Expr::Text(_) | Expr::Unary(Unary::Not, _) => Kind::Int,
        Expr::Real(_) => Kind::Double,
        Expr::Param(index) => {
            let param = usize::try_from(*index).ok().and_then(|index| params.get(index));
            match param.and_then(Param::operand) {
                Some(Element::U32 | Element::I64 | Element::U64) => Kind::Long,
                Some(Element::F32) => Kind::Float,
                Some(Element::F64) => Kind::Double,
                _ => Kind::Int,
            }
        }
        Expr::Unary(Unary::Neg, operand) => below(operand),
        Expr::Binary(
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Rem | Binary::Pow,
            left,
            right,
        ) => below(left).max(below(right)),
        Expr::Binary(..) => Kind::Int,
        Expr::If(_, then, otherwise) => below(then).max(below(otherwise)),
        Expr::Call(Function::Log | Function::Log2 | Function::Sqrt, _) => Kind::Double,
        Expr::Call(_, arguments) => arguments.iter().map(below).max().unwrap_or(Kind::Int),
    }
}

/// Evaluates integers as sizes and all else as doubles. An integer may depend on comparisons of doubles.
fn evaluate(scope: Scope<'_>, element: Element, expr: &Expr) -> Result<Scalar, EvalError> {
    /// The largest range in which doubles hold all integers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if !element.is_integer() {
        return scope.real(expr).map(Scalar::F64);
    }
    match scope.integer(expr) {
        Err(EvalError::NotAnInteger) => {
            let value = scope.real(expr)?;
            let whole = value.abs() <= EXACT && value % 1.0 == 0.0;
            if whole { Ok(Scalar::I64(value as i64)) } else { Err(EvalError::NotAnInteger) }
        }
        other => other.map(Scalar::I64),
    }
}
