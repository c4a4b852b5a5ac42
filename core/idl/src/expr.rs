//! Evaluation of expressions: sizes in checked 64-bit integers, costs and defaults in floating point.

use alloc::string::{String, ToString};

use crate::model::{Binary, Element, Expr, Function, Param, Unary};
use crate::scalar::Scalar;

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// A number is beyond 64 bits.
    #[error("a number in it is beyond 64 bits")]
    Overflow,
    /// A division or remainder by zero.
    #[error("it divides by zero")]
    DivisionByZero,
    /// An integer has a negative power.
    #[error("it has a negative power of an integer")]
    NegativePower,
    /// A fraction, a text or a function of real numbers stands where only integers are allowed.
    #[error("it is not made of integers only")]
    NotAnInteger,
    /// A text, or a function with too few arguments, stands where a number is needed.
    #[error("it is not a number")]
    NotANumber,
    /// The expression names a missing parameter, or one that is no scalar.
    #[error("it names parameter {0}, which is no scalar of this routine")]
    NotAScalar(u32),
    /// A parameter has no value.
    #[error("it needs a value of `{0}`")]
    NoValue(String),
    /// The expression is nested too deeply.
    #[error("it is nested more than {} deep", Expr::MOST_DEPTH)]
    TooDeep,
    /// The type in which the value is passed cannot hold it.
    #[error("it is more than {0} can hold")]
    Beyond(Element),
}

impl Expr {
    /// The deepest nesting of expressions.
    pub const MOST_DEPTH: usize = 32;
}

/// The parameters that expressions name, and their values.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub params: &'a [Param],
    pub scalars: &'a [Option<Scalar>],
}

impl Scope<'_> {
    /// The value of a size, a bound or a default of an integer.
    pub fn integer(&self, expr: &Expr) -> Result<i64, EvalError> {
        self.integer_at(expr, 1)
    }

    /// The value of a cost or a default of a number.
    pub fn real(&self, expr: &Expr) -> Result<f64, EvalError> {
        self.real_at(expr, 1)
    }

    fn integer_at(&self, expr: &Expr, depth: usize) -> Result<i64, EvalError> {
        if depth > Expr::MOST_DEPTH {
            return Err(EvalError::TooDeep);
        }
        let below = depth + 1;
        match expr {
            Expr::Int(value) => Ok(*value),
            Expr::Real(_) | Expr::Text(_) => Err(EvalError::NotAnInteger),
            Expr::Param(index) => self.integer_param(*index),
            Expr::Unary(Unary::Neg, operand) => {
                self.integer_at(operand, below)?.checked_neg().ok_or(EvalError::Overflow)
            }
            Expr::Unary(Unary::Not, operand) => {
                Ok(i64::from(self.integer_at(operand, below)? == 0))
            }
            Expr::Binary(operation, left, right) => {
                let left = self.integer_at(left, below)?;
                if let Some(decided) = decided(*operation, left != 0) {
                    return Ok(i64::from(decided));
                }
                integer_binary(*operation, left, self.integer_at(right, below)?)
            }
            Expr::If(condition, then, otherwise) => {
                let condition = self.integer_at(condition, below)?;
                self.integer_at(if condition != 0 { then } else { otherwise }, below)
            }
            Expr::Call(function, arguments) => self.integer_call(*function, arguments, below),
        }
    }

    fn integer_param(&self, index: u32) -> Result<i64, EvalError> {
        match self.value(index)? {
            Scalar::I64(value) => Ok(value),
            Scalar::U64(value) => i64::try_from(value).map_err(|_| EvalError::Overflow),
            Scalar::F64(_) | Scalar::Complex(..) => Err(EvalError::NotAnInteger),
        }
    }

    fn integer_call(
        &self,
        function: Function,
        arguments: &[Expr],
        depth: usize,
    ) -> Result<i64, EvalError> {
        let (first, others) = arguments.split_first().ok_or(EvalError::NotANumber)?;
        let mut value = self.integer_at(first, depth)?;
        match function {
            Function::Abs => value.checked_abs().ok_or(EvalError::Overflow),
            Function::Min | Function::Max => {
                for other in others {
                    let other = self.integer_at(other, depth)?;
                    value =
                        if function == Function::Min { value.min(other) } else { value.max(other) };
                }
                Ok(value)
            }
            Function::Log | Function::Log2 | Function::Sqrt => Err(EvalError::NotAnInteger),
        }
    }

    fn real_at(&self, expr: &Expr, depth: usize) -> Result<f64, EvalError> {
        if depth > Expr::MOST_DEPTH {
            return Err(EvalError::TooDeep);
        }
        let below = depth + 1;
        match expr {
            Expr::Int(value) => Ok(*value as f64),
            Expr::Real(value) => Ok(*value),
            Expr::Text(_) => Err(EvalError::NotANumber),
            Expr::Param(index) => match self.value(*index)? {
                Scalar::I64(value) => Ok(value as f64),
                Scalar::U64(value) => Ok(value as f64),
                Scalar::F64(value) => Ok(value),
                Scalar::Complex(..) => Err(EvalError::NotANumber),
            },
            Expr::Unary(Unary::Neg, operand) => Ok(-self.real_at(operand, below)?),
            Expr::Unary(Unary::Not, operand) => Ok(truth(self.real_at(operand, below)? == 0.0)),
            Expr::Binary(operation, left, right) => {
                let left = self.real_at(left, below)?;
                if let Some(decided) = decided(*operation, left != 0.0) {
                    return Ok(truth(decided));
                }
                Ok(real_binary(*operation, left, self.real_at(right, below)?))
            }
            Expr::If(condition, then, otherwise) => {
                let condition = self.real_at(condition, below)?;
                self.real_at(if condition != 0.0 { then } else { otherwise }, below)
            }
            Expr::Call(function, arguments) => self.real_call(*function, arguments, below),
        }
    }

    fn real_call(
        &self,
        function: Function,
        arguments: &[Expr],
        depth: usize,
    ) -> Result<f64, EvalError> {
        let (first, others) = arguments.split_first().ok_or(EvalError::NotANumber)?;
        let mut value = self.real_at(first, depth)?;
        Ok(match function {
            Function::Abs => value.abs(),
            Function::Log => libm::log(value),
            Function::Log2 => libm::log2(value),
            Function::Sqrt => libm::sqrt(value),
            Function::Min | Function::Max => {
                for other in others {
                    let other = self.real_at(other, depth)?;
                    value =
                        if function == Function::Min { value.min(other) } else { value.max(other) };
                }
                value
            }
        })
    }

    fn value(&self, index: u32) -> Result<Scalar, EvalError> {
        let param = usize::try_from(index).ok().filter(|index| *index < self.params.len());
        let param = param.ok_or(EvalError::NotAScalar(index))?;
        if self.params[param].operand().is_none() {
            return Err(EvalError::NotAScalar(index));
        }
        let value = self.scalars.get(param).copied().flatten();
        value.ok_or_else(|| EvalError::NoValue(self.params[param].name.to_string()))
    }
}

/// What `&&` and `||` are already by their left side.
fn decided(operation: Binary, left: bool) -> Option<bool> {
    match operation {
        Binary::And if !left => Some(false),
        Binary::Or if left => Some(true),
        _ => None,
    }
}

fn integer_binary(operation: Binary, left: i64, right: i64) -> Result<i64, EvalError> {
    let checked = match operation {
        Binary::Add => left.checked_add(right),
        Binary::Sub => left.checked_sub(right),
        Binary::Mul => left.checked_mul(right),
        Binary::Div | Binary::Rem if right == 0 => return Err(EvalError::DivisionByZero),
        Binary::Div => left.checked_div(right),
        // Of the least integer and -1 too, whose quotient does not exist.
        Binary::Rem => Some(left.wrapping_rem(right)),
        Binary::Pow => return integer_power(left, right),
        Binary::Lt => Some(i64::from(left < right)),
        Binary::Le => Some(i64::from(left <= right)),
        Binary::Gt => Some(i64::from(left > right)),
        Binary::Ge => Some(i64::from(left >= right)),
        Binary::Eq => Some(i64::from(left == right)),
        Binary::Ne => Some(i64::from(left != right)),
        // What the left side did not decide.
        Binary::And | Binary::Or => Some(i64::from(right != 0)),
    };
    checked.ok_or(EvalError::Overflow)
}

fn integer_power(base: i64, exponent: i64) -> Result<i64, EvalError> {
    if exponent < 0 {
        return Err(EvalError::NegativePower);
    }
    match base {
        0 | 1 if exponent > 0 => Ok(base),
        -1 => Ok(if exponent % 2 == 0 { 1 } else { -1 }),
        _ => {
            let exponent = u32::try_from(exponent).map_err(|_| EvalError::Overflow)?;
            base.checked_pow(exponent).ok_or(EvalError::Overflow)
        }
    }
}

fn real_binary(operation: Binary, left: f64, right: f64) -> f64 {
    match operation {
        Binary::Add => left + right,
        Binary::Sub => left - right,
        Binary::Mul => left * right,
        Binary::Div => left / right,
        Binary::Rem => left % right,
        Binary::Pow => libm::pow(left, right),
        Binary::Lt => truth(left < right),
        Binary::Le => truth(left <= right),
        Binary::Gt => truth(left > right),
        Binary::Ge => truth(left >= right),
        Binary::Eq => truth(left == right),
        Binary::Ne => truth(left != right),
        Binary::And | Binary::Or => truth(right != 0.0),
    }
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}
