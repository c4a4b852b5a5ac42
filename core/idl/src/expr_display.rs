//! Display of expressions, with the fewest brackets.

use core::fmt::{self, Write};

use crate::model::{Binary, Expr, Function, Param, Unary};

/// An expression of a routine's parameters, displayed as in a description.
pub(crate) struct ExprDisplay<'a> {
    pub expr: &'a Expr,
    pub params: &'a [Param],
}

impl fmt::Display for ExprDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, self.expr, TERNARY, 1)
    }
}

const TERNARY: u8 = 1;
const UNARY: u8 = 8;
const PRIMARY: u8 = 10;

/// The operations on two operands in their order, with their signs and how tightly they bind.
pub(crate) const OPERATIONS: [(Binary, &str, u8); 14] = [
    (Binary::Add, "+", 6),
    (Binary::Sub, "-", 6),
    (Binary::Mul, "*", 7),
    (Binary::Div, "/", 7),
    (Binary::Rem, "%", 7),
    (Binary::Pow, "^", 9),
    (Binary::Lt, "<", 5),
    (Binary::Le, "<=", 5),
    (Binary::Gt, ">", 5),
    (Binary::Ge, ">=", 5),
    (Binary::Eq, "==", 4),
    (Binary::Ne, "!=", 4),
    (Binary::And, "&&", 3),
    (Binary::Or, "||", 2),
];

const _: () = {
    let mut at = 0;
    while at < OPERATIONS.len() {
        assert!(OPERATIONS[at].0 as usize == at, "they are in the order of the variants");
        at += 1;
    }
};

/// The sign of an operation, and how tightly it binds.
fn spelled(operation: Binary) -> (&'static str, u8) {
    let (_, sign, binds) = OPERATIONS[operation as usize];
    (sign, binds)
}

impl Function {
    /// All of them.
    pub const ALL: [Function; 6] = [
        Function::Min,
        Function::Max,
        Function::Abs,
        Function::Log,
        Function::Log2,
        Function::Sqrt,
    ];

    /// How descriptions spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Function::Min => "min",
            Function::Max => "max",
            Function::Abs => "abs",
            Function::Log => "log",
            Function::Log2 => "log2",
            Function::Sqrt => "sqrt",
        }
    }
}

impl ExprDisplay<'_> {
    fn write(
        &self,
        f: &mut fmt::Formatter<'_>,
        expr: &Expr,
        least: u8,
        depth: usize,
    ) -> fmt::Result {
        if depth > Expr::MOST_DEPTH {
            return f.write_str("...");
        }
        let binds = match expr {
            Expr::Int(value) if *value < 0 => UNARY,
            Expr::Real(value) if value.is_sign_negative() => UNARY,
            Expr::If(..) => TERNARY,
            Expr::Unary(..) => UNARY,
            Expr::Binary(operation, ..) => spelled(*operation).1,
            _ => PRIMARY,
        };
        if binds < least {
            f.write_char('(')?;
            self.write_open(f, expr, depth)?;
            return f.write_char(')');
        }
        self.write_open(f, expr, depth)
    }

    fn write_open(&self, f: &mut fmt::Formatter<'_>, expr: &Expr, depth: usize) -> fmt::Result {
        let below = depth + 1;
        match expr {
            Expr::Int(value) => write!(f, "{value}"),
            Expr::Real(value) => write!(f, "{value:?}"),
            Expr::Text(text) => write_text(f, text),
            Expr::Param(index) => {
                let param = usize::try_from(*index).ok().and_then(|index| self.params.get(index));
                match param {
                    Some(param) => f.write_str(&param.name),
                    None => write!(f, "#{index}"),
                }
            }
            Expr::Unary(operation, operand) => {
                f.write_str(if *operation == Unary::Neg { "-" } else { "!" })?;
                // A sign before a number would become the number's own.
                let number = matches!(**operand, Expr::Int(_) | Expr::Real(_));
                self.write(f, operand, if number { PRIMARY + 1 } else { UNARY }, below)
            }
            Expr::Binary(Binary::Pow, left, right) => {
                self.write(f, left, PRIMARY, below)?;
                f.write_char('^')?;
                self.write(f, right, UNARY, below)
            }
            Expr::Binary(operation, left, right) => {
                let (sign, binds) = spelled(*operation);
                self.write(f, left, binds, below)?;
                write!(f, " {sign} ")?;
                self.write(f, right, binds + 1, below)
            }
            Expr::If(condition, then, otherwise) => {
                self.write(f, condition, TERNARY + 1, below)?;
                f.write_str(" ? ")?;
                self.write(f, then, TERNARY, below)?;
                f.write_str(" : ")?;
                self.write(f, otherwise, TERNARY, below)
            }
            Expr::Call(function, arguments) => {
                write!(f, "{}(", function.name())?;
                for (index, argument) in arguments.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { ", " })?;
                    self.write(f, argument, TERNARY, below)?;
                }
                f.write_char(')')
            }
        }
    }
}

/// Writes a text in quotes, as in descriptions and C.
pub(crate) fn write_text(f: &mut impl Write, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for letter in text.chars() {
        match letter {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            '\r' => f.write_str("\\r")?,
            other if other.is_control() => write!(f, "\\u{{{:x}}}", u32::from(other))?,
            other => f.write_char(other)?,
        }
    }
    f.write_char('"')
}
