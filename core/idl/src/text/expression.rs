//! Parser of expressions. Names first become indices into a table, and parameters when all of these are known, because a size
//! may name a later parameter.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::diagnostic::{Code, Report, Span};
use super::lexer::Token;
use super::parser::{ParseFailed, Parser};
use crate::expr_display::OPERATIONS;
use crate::model::{Binary, Expr, Function, Param, Unary};
use crate::similar_names::suggestion;

/// Brackets and signs in each other that are read at most; more than an expression may be deep.
const MOST_NESTING: usize = 2 * Expr::MOST_DEPTH;

/// An expression and how deep it is.
struct Part {
    expr: Expr,
    depth: usize,
}

impl Part {
    fn leaf(expr: Expr) -> Part {
        Part { expr, depth: 1 }
    }
}

impl<'a> Parser<'a> {
    /// An expression and its place. [`Expr::Param`] in it is an index into [`Parser::names`].
    pub(super) fn expression(&mut self) -> Result<(Expr, Span), ParseFailed> {
        let start = self.span;
        self.nesting = 0;
        self.too_deep = false;
        let part = self.ternary()?;
        Ok((part.expr, start.to(self.last)))
    }

    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ParseFailed>,
    ) -> Result<T, ParseFailed> {
        if self.nesting == MOST_NESTING {
            let message = format!("this is nested more than {} deep", Expr::MOST_DEPTH);
            return Err(self.fail(Code::Size, message));
        }
        self.nesting += 1;
        let result = read(self);
        self.nesting -= 1;
        result
    }

    /// An expression of these parts, or the complaint that it is too deep and something harmless.
    fn join(&mut self, start: Span, depth: usize, expr: Expr) -> Part {
        if depth < Expr::MOST_DEPTH {
            return Part { expr, depth: depth + 1 };
        }
        if !core::mem::replace(&mut self.too_deep, true) {
            let message = format!("this is nested more than {} deep", Expr::MOST_DEPTH);
            self.report.add(Code::Size, start.to(self.last), message);
        }
        Part::leaf(Expr::Int(1))
    }

    fn ternary(&mut self) -> Result<Part, ParseFailed> {
        let start = self.span;
        let condition = self.binary(0)?;
        if !self.take_sign("?") {
            return Ok(condition);
        }
        let then = self.nested(Self::ternary)?;
        self.expect_sign(":", "and what holds otherwise")?;
        let otherwise = self.nested(Self::ternary)?;
        let depth = condition.depth.max(then.depth).max(otherwise.depth);
        let boxed = |part: Part| Box::new(part.expr);
        Ok(self.join(start, depth, Expr::If(boxed(condition), boxed(then), boxed(otherwise))))
    }

    fn binary(&mut self, least: u8) -> Result<Part, ParseFailed> {
        let start = self.span;
        let mut left = self.unary()?;
        while let Some((operation, binds)) = self.operation().filter(|(_, binds)| *binds >= least) {
            self.advance();
            let right = self.binary(binds + 1)?;
            left = self.pair(start, operation, left, right);
        }
        Ok(left)
    }

    fn pair(&mut self, start: Span, operation: Binary, left: Part, right: Part) -> Part {
        let depth = left.depth.max(right.depth);
        let expr = Expr::Binary(operation, Box::new(left.expr), Box::new(right.expr));
        self.join(start, depth, expr)
    }

    /// The operation of two operands that comes next, and how tightly it binds; powers are not among them.
    fn operation(&self) -> Option<(Binary, u8)> {
        let Token::Sign(sign) = self.token else { return None };
        let found = OPERATIONS
            .iter()
            .find(|(operation, other, _)| *other == sign && *operation != Binary::Pow);
        found.map(|(operation, _, binds)| (*operation, *binds))
    }

    fn unary(&mut self) -> Result<Part, ParseFailed> {
        let start = self.span;
        if self.take_sign("-") {
            return self.negative(start);
        }
        if self.take_sign("!") {
            let operand = self.nested(Self::unary)?;
            let expr = Expr::Unary(Unary::Not, Box::new(operand.expr));
            return Ok(self.join(start, operand.depth, expr));
        }
        // A plus says nothing; a star before a name is how other systems spell the value of an argument.
        if self.take_sign("+") || self.take_sign("*") {
            return self.nested(Self::unary);
        }
        let base = self.primary()?;
        self.power(start, base)
    }

    /// What is behind a minus: that of a number belongs to it, unless it is raised to a power.
    fn negative(&mut self, start: Span) -> Result<Part, ParseFailed> {
        let number = match self.token {
            Token::Int(value) => Some(Expr::Int(0_i64.wrapping_sub_unsigned(value))),
            Token::Real(value) => Some(Expr::Real(-value)),
            _ => None,
        };
        let operand = match number {
            Some(number) => {
                let value = self.token.clone();
                let place = self.span;
                self.advance();
                if !self.is_sign("^") && !self.is_sign("**") {
                    return Ok(Part::leaf(number));
                }
                let base = self.positive(&value, place);
                self.power(place, base)?
            }
            None => self.nested(Self::unary)?,
        };
        let expr = Expr::Unary(Unary::Neg, Box::new(operand.expr));
        Ok(self.join(start, operand.depth, expr))
    }

    fn power(&mut self, start: Span, base: Part) -> Result<Part, ParseFailed> {
        if !self.take_sign("^") && !self.take_sign("**") {
            return Ok(base);
        }
        let exponent = self.nested(Self::unary)?;
        Ok(self.pair(start, Binary::Pow, base, exponent))
    }

    fn positive(&mut self, number: &Token, place: Span) -> Part {
        Part::leaf(match number {
            Token::Real(value) => Expr::Real(*value),
            Token::Int(value) => Expr::Int(i64::try_from(*value).unwrap_or_else(|_| {
                self.report.add(Code::Lexical, place, "this number is beyond 64 bits".into());
                1
            })),
            _ => Expr::Int(1),
        })
    }

    fn primary(&mut self) -> Result<Part, ParseFailed> {
        match self.token.clone() {
            number @ (Token::Int(_) | Token::Real(_)) => {
                let place = self.span;
                self.advance();
                Ok(self.positive(&number, place))
            }
            // One only: behind a default comes what users read about the parameter.
            Token::Text(text) => {
                self.advance();
                Ok(Part::leaf(Expr::Text(text)))
            }
            Token::Word => self.named(),
            Token::Sign("(") => {
                self.advance();
                let inner = self.nested(Self::ternary)?;
                self.expect_sign(")", "to close the bracket")?;
                Ok(inner)
            }
            _ => Err(self.unexpected("a number, a parameter, a function or `(`")),
        }
    }

    /// A parameter or a function.
    fn named(&mut self) -> Result<Part, ParseFailed> {
        let (name, place) = (self.word(), self.span);
        self.advance();
        if self.take_sign("(") {
            return self.function(name, place);
        }
        if self.is_sign("[") {
            let message = format!("`{name}[…]`: sizes are of single numbers, not of an array's");
            return Err(self.fail(Code::Size, message));
        }
        let index = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push((name, place));
        Ok(Part::leaf(Expr::Param(index)))
    }

    fn function(&mut self, name: &str, place: Span) -> Result<Part, ParseFailed> {
        let mut arguments = Vec::new();
        let mut depth = 1;
        while !self.is_sign(")") {
            let argument = self.nested(Self::ternary)?;
            depth = depth.max(argument.depth);
            arguments.push(argument.expr);
            if !self.take_sign(",") {
                break;
            }
        }
        self.expect_sign(")", "to close the function's arguments")?;
        let Some(function) = Function::ALL.into_iter().find(|function| function.name() == name)
        else {
            let near = suggestion(name, Function::ALL.map(Function::name));
            let message = format!("there is no function `{name}`{near}");
            self.report.add(Code::UnknownName, place, message);
            return Ok(Part::leaf(Expr::Int(1)));
        };
        Ok(self.join(place, depth, Expr::Call(function, arguments)))
    }
}

/// The parameters by name. Of two of one name the first counts.
pub(super) fn by_name(params: &[Param]) -> BTreeMap<&str, u32> {
    let mut found = BTreeMap::new();
    for (index, param) in (0..).zip(params) {
        found.entry(param.name.as_str()).or_insert(index);
    }
    found
}

/// Turns indices into the table of names into those of parameters.
pub(super) fn resolve(
    expr: &mut Expr,
    names: &[(&str, Span)],
    params: &BTreeMap<&str, u32>,
    report: &mut Report<'_>,
) {
    match expr {
        Expr::Int(_) | Expr::Real(_) | Expr::Text(_) => {}
        Expr::Param(index) => {
            let name = usize::try_from(*index).ok().and_then(|index| names.get(index));
            let Some((name, place)) = name else { return };
            match params.get(name) {
                Some(param) => *index = *param,
                None if report.is_full() => *expr = Expr::Int(1),
                None => {
                    let near = suggestion(name, params.keys().copied());
                    let message = format!("there is no parameter `{name}`{near}");
                    report.add(Code::UnknownName, *place, message);
                    *expr = Expr::Int(1);
                }
            }
        }
        Expr::Unary(_, operand) => resolve(operand, names, params, report),
        Expr::Binary(_, left, right) => {
            resolve(left, names, params, report);
            resolve(right, names, params, report);
        }
        Expr::If(condition, then, otherwise) => {
            for part in [condition, then, otherwise] {
                resolve(part, names, params, report);
            }
        }
        Expr::Call(_, arguments) => {
            for argument in arguments {
                resolve(argument, names, params, report);
            }
        }
    }
}
