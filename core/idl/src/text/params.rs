//! Parser of parameter lists: modes, types, dimensions, defaults and callbacks.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::diagnostic::{Code, Span};
use super::expression::{by_name, resolve};
use super::lexer::Token;
use super::parser::{ParseFailed, Parser};
use crate::model::{Dimension, Element, Expr, Mode, Order, Param, Type};
use crate::similar_names::suggestion;
use crate::words::{MODES, PIECES, WORDS, is_reserved, is_type, mode};

/// The places of a parameter's parts in the text.
#[derive(Debug, Clone, Default)]
pub(super) struct ParamSpans {
    pub name: Span,
    /// Size, begin, end and step of each dimension.
    pub dims: Vec<[Span; 4]>,
    pub default: Span,
    /// The names of a callback's parameters.
    pub inner: Vec<Span>,
}

/// The words before a parameter's name: mode and type.
#[derive(Default)]
struct TypePrefix<'a> {
    words: Vec<&'a str>,
    mode: Option<Mode>,
    start: Span,
}

/// The type of words in any order, as `long unsigned int`.
fn type_of(words: &[&str]) -> Option<Type> {
    if let [word] = words
        && let Some((_, ty)) = WORDS.into_iter().find(|(name, _)| name == word)
    {
        return Some(ty);
    }
    if words.is_empty() || !words.iter().all(|word| PIECES.contains(word)) {
        return None;
    }
    let count = |piece: &str| words.iter().filter(|word| **word == piece).count();
    let counts = PIECES.map(count);
    let [signed, unsigned, char, short, int, long, float, double, complex] = counts;
    let most = counts.iter().sum::<usize>() - long;
    if counts.iter().any(|count| *count > 2) || (most > 3) || signed + unsigned > 1 {
        return None;
    }
    let integer = |plain: Element, without_sign: Element| {
        Some(Type::Number(if unsigned > 0 { without_sign } else { plain }))
    };
    match (char, short, int, long, float, double, complex) {
        (1, 0, 0, 0, 0, 0, 0) => integer(Element::I8, Element::U8),
        (0, 1, 0 | 1, 0, 0, 0, 0) => integer(Element::I16, Element::U16),
        (0, 0, 0 | 1, 1 | 2, 0, 0, 0) => integer(Element::I64, Element::U64),
        (0, 0, 0 | 1, 0, 0, 0, 0) => integer(Element::I32, Element::U32),
        _ if signed + unsigned > 0 => None,
        (0, 0, 0, 0, 1, 0, 0) => Some(Type::Number(Element::F32)),
        (0, 0, 0, 0, 0, 1, 0) => Some(Type::Number(Element::F64)),
        (0, 0, 0, 0, 1, 0, 1) => Some(Type::Number(Element::C64)),
        (0, 0, 0, 0, 0, 1, 1) => Some(Type::Number(Element::C128)),
        _ => None,
    }
}

impl<'a> Parser<'a> {
    /// `(…)`, up to and with the bracket that closes it.
    pub(super) fn params(
        &mut self,
        inside: bool,
    ) -> Result<(Vec<Param>, Vec<ParamSpans>), ParseFailed> {
        let (mut params, mut places) = (Vec::new(), Vec::new());
        self.expect_sign("(", "and the parameters")?;
        if self.take_sign(")") {
            return Ok((params, places));
        }
        loop {
            match self.param(inside) {
                Ok((param, place)) => {
                    params.push(param);
                    places.push(place);
                }
                Err(ParseFailed) => self.skip_member(),
            }
            if self.take_sign(",") {
                continue;
            }
            if self.take_sign(")") {
                return Ok((params, places));
            }
            let failed = self.unexpected("`,` and a parameter, or `)`");
            self.skip_member();
            if self.take_sign(")") {
                return Ok((params, places));
            }
            if !self.take_sign(",") {
                return Err(failed);
            }
        }
    }

    fn param(&mut self, inside: bool) -> Result<(Param, ParamSpans), ParseFailed> {
        let mut before = self.before();
        let plain = before.words.is_empty();
        let (mut stars, mut brackets) = (0_usize, 0_usize);
        while let Token::Sign(sign @ ("*" | "(")) = self.token {
            let counted = if sign == "*" { &mut stars } else { &mut brackets };
            *counted += 1;
            self.advance();
        }
        let (mut name, mut span) = self.name("a parameter's type and name")?;
        if plain && self.is_sign("(") {
            return self.callback(name, span, inside, before.mode);
        }
        if plain && self.token == Token::Word && !self.is_declaration() {
            // Two words in a row: the first was meant as a type.
            let types = WORDS.iter().map(|(name, _)| *name).chain(PIECES);
            let near = suggestion(name, types.chain(MODES.iter().map(|(name, _)| *name)));
            let message = format!("there is no type `{}`{near}", super::parser::shortened(name));
            self.report.add(Code::UnknownWord, span, message);
            before.words.push("double");
            if self.word() != "" && is_reserved(self.word()) {
                let rest = self.before();
                before.mode = before.mode.or(rest.mode);
            }
            (name, span) = self.name("a parameter's name")?;
        }
        for _ in 0..brackets {
            self.expect_sign(")", "to close the bracket around the name")?;
        }
        let ty = self.type_before(&before, name, span)?;
        let mut param = Param {
            name: String::from(name),
            mode: before.mode.unwrap_or(Mode::In),
            ty,
            dims: Vec::new(),
            order: Order::Row,
            default: None,
            doc: String::new(),
        };
        let mut places = ParamSpans { name: span, ..ParamSpans::default() };
        while self.is_sign("[") {
            let (dimension, place) = self.dimension()?;
            param.dims.push(dimension);
            places.dims.push(place);
        }
        self.pointer(&mut param, stars, before.start.to(span));
        self.behind(&mut param, &mut places)?;
        Ok((param, places))
    }

    /// Modes and the words of a type, in any order.
    fn before(&mut self) -> TypePrefix<'a> {
        let mut before = TypePrefix { start: self.span, ..TypePrefix::default() };
        loop {
            let word = self.word();
            if let Some(mode) = mode(word) {
                if before.mode.is_some() {
                    self.report.add(Code::Twice, self.span, "this is a second mode".into());
                }
                before.mode = Some(mode);
            } else if is_type(word) {
                before.words.push(word);
            } else {
                return before;
            }
            self.advance();
        }
    }

    fn type_before(
        &mut self,
        before: &TypePrefix<'_>,
        name: &str,
        span: Span,
    ) -> Result<Type, ParseFailed> {
        if let Some(ty) = type_of(&before.words) {
            return Ok(ty);
        }
        let message = if before.words.is_empty() {
            format!("`{}` has no type, as `int` or `double`", super::parser::shortened(name))
        } else {
            let words: Vec<&str> = before.words.iter().take(6).copied().collect();
            format!("there is no type `{}`", words.join(" "))
        };
        self.report.add(Code::UnknownWord, span, message);
        Err(ParseFailed)
    }

    /// Stars before the name, as in C: of an output they say what holds anyway, of characters that it is a text.
    fn pointer(&mut self, param: &mut Param, stars: usize, place: Span) {
        let character = matches!(param.ty, Type::Number(Element::I8 | Element::U8));
        match (stars, param.mode) {
            (0, _) => {}
            (1, Mode::In) if character && param.dims.is_empty() => param.ty = Type::String,
            (1, Mode::Out | Mode::InOut) if param.scalar().is_some() => {}
            _ => {
                let message = "a pointer says nothing about the size: write it as an array, `A[n]`";
                self.report.add(Code::Param, place, message.into());
            }
        }
    }

    /// `[size]`, `[size: end]`, `[size: start, end]` or `[size: start, end, step]`.
    fn dimension(&mut self) -> Result<(Dimension, [Span; 4]), ParseFailed> {
        self.advance();
        if self.is_sign("]") {
            let message = "an array needs its size, an expression of the other parameters";
            return Err(self.fail(Code::Param, message.into()));
        }
        let (size, place) = self.expression()?;
        let mut places = [place; 4];
        let mut dimension = Dimension { size, start: None, end: None, step: None };
        if self.take_sign(":") {
            let mut range = Vec::new();
            loop {
                range.push(self.expression()?);
                if range.len() == 3 || !self.take_sign(",") {
                    break;
                }
            }
            let only_end = range.len() == 1;
            let mut range = range.into_iter().map(|(expr, place)| (Some(expr), place));
            if !only_end {
                (dimension.start, places[1]) = range.next().unwrap_or((None, place));
            }
            (dimension.end, places[2]) = range.next().unwrap_or((None, place));
            (dimension.step, places[3]) = range.next().unwrap_or((None, place));
        }
        self.expect_sign("]", "to close the dimension")?;
        Ok((dimension, places))
    }

    /// What follows name and dimensions: a default, attributes, a text about it.
    fn behind(&mut self, param: &mut Param, places: &mut ParamSpans) -> Result<(), ParseFailed> {
        if self.take_sign("=") {
            let (default, place) = self.expression()?;
            param.default = Some(default);
            places.default = place;
        }
        while self.take_sign("@") {
            let (name, span) = self.name("an attribute, as `@order(F)`")?;
            if name == "order" {
                param.order = self.order()?;
            } else {
                let near = suggestion(name, ["order"]);
                let name = super::parser::shortened(name);
                let message = format!("parameters have no attribute `@{name}`{near}");
                self.report.add(Code::UnknownWord, span, message);
                if self.take_sign("(") {
                    self.skip_member();
                    self.take_sign(")");
                }
            }
        }
        param.doc = self.texts().0;
        Ok(())
    }

    /// `(F)` or `(C)`.
    pub(super) fn order(&mut self) -> Result<Order, ParseFailed> {
        self.expect_sign("(", "and `C` or `F`")?;
        let order = match self.word() {
            "C" | "row" => Order::Row,
            "F" | "FORTRAN" | "Fortran" | "column" => Order::Column,
            _ => {
                return Err(
                    self.unexpected("`C` (the last index moves fastest) or `F` (the first)")
                );
            }
        };
        self.advance();
        self.expect_sign(")", "to close the attribute")?;
        Ok(order)
    }

    /// A function of the client: `name(parameters)`.
    fn callback(
        &mut self,
        name: &'a str,
        span: Span,
        inside: bool,
        mode: Option<Mode>,
    ) -> Result<(Param, ParamSpans), ParseFailed> {
        if inside {
            let message = "a callback cannot take a callback".into();
            self.report.add(Code::Param, span, message);
            return Err(ParseFailed);
        }
        let names = self.names.len();
        let (mut params, inner) = self.params(true)?;
        let known: Vec<Param> = params.clone();
        let by_name = by_name(&known);
        for param in &mut params {
            each_expression(param, |expr| resolve(expr, &self.names, &by_name, &mut self.report));
        }
        self.names.truncate(names);
        let mut param = Param {
            name: String::from(name),
            mode: mode.unwrap_or(Mode::In),
            ty: Type::Callback(params),
            dims: Vec::new(),
            order: Order::Row,
            default: None,
            doc: String::new(),
        };
        let inner = inner.into_iter().map(|place| place.name).collect();
        let mut places = ParamSpans { name: span, inner, ..ParamSpans::default() };
        self.behind(&mut param, &mut places)?;
        Ok((param, places))
    }
}

/// Calls `change` with every expression of a parameter, but those of a callback's.
pub(super) fn each_expression(param: &mut Param, mut change: impl FnMut(&mut Expr)) {
    for dimension in &mut param.dims {
        change(&mut dimension.size);
        let others = [&mut dimension.start, &mut dimension.end, &mut dimension.step];
        for expr in others.into_iter().flatten() {
            change(expr);
        }
    }
    if let Some(default) = &mut param.default {
        change(default);
    }
}
