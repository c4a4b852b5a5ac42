//! Parser of a routine after its parameters: options, and `Calls` or a body.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::diagnostic::{Code, Span};
use super::expression::{by_name, resolve};
use super::params::{ParamSpans, each_expression};
use super::parser::{ParseFailed, Parser, ROUTINE, shortened};
use crate::model::{Expr, Interface, Language, Order, Param, Target};
use crate::parallel::Parallel;
use crate::similar_names::suggestion;

/// A routine, with the places of its parts in the text.
#[derive(Debug)]
pub(super) struct Routine {
    pub interface: Interface,
    pub spans: RoutineSpans,
}

/// The places of a routine's parts.
#[derive(Debug, Default)]
pub(super) struct RoutineSpans {
    pub name: Span,
    pub params: Vec<ParamSpans>,
    pub calc_order: Span,
    pub split: Span,
    pub status: Span,
    pub parallel: Span,
    pub symbol: Span,
    pub arguments: Vec<Span>,
    pub result: Span,
    pub required: Vec<Span>,
    /// The start of its body's code.
    pub code: usize,
}

/// Options of a routine that are no fields of its description.
#[derive(Default)]
struct Options {
    required: Vec<(String, Span)>,
    language: Option<Language>,
    ranks: Option<(Expr, Span)>,
    broadcast: Vec<(u32, Span)>,
    columns: bool,
}

/// The attributes of routines.
const ATTRIBUTES: [&str; 5] = ["idempotent", "split", "status", "order", "broadcast"];

impl<'a> Parser<'a> {
    /// `name(parameters) "text" options body`, behind `Define` or `DefMethod`. `prefix` stands before the name.
    pub(super) fn routine(&mut self, prefix: &str) -> Result<Routine, ParseFailed> {
        self.names.clear();
        let (name, place) = self.long_name("the routine's name")?;
        let (params, params_spans) = self.params(false)?;
        let interface = Interface::new(format!("{prefix}{name}"), params, Target::default());
        let spans = RoutineSpans { name: place, params: params_spans, ..RoutineSpans::default() };
        let mut routine = Routine { interface, spans };
        routine.interface.doc = self.texts().0;
        let mut options = Options::default();
        while !self.is_sign("{") && self.word() != "Calls" {
            if !self.option(&mut options, &mut routine)? {
                return Err(self.unexpected("an option, `Calls` or a body in `{ }`"));
            }
        }
        routine.interface.target.language = options.language.unwrap_or_default();
        if self.is_sign("{") {
            self.own_body(&name, &mut routine)?;
        } else {
            self.calls(&mut routine)?;
        }
        self.take_sign(";");
        let Routine { interface, spans } = &mut routine;
        (interface.parallel, spans.parallel) = self.parallel(&mut options);
        (interface.target.required, spans.required) = options.required.into_iter().unzip();
        self.name_params(interface);
        if options.columns {
            for param in interface.params.iter_mut().filter(|param| param.dims.len() > 1) {
                param.order = Order::Column;
            }
        }
        Ok(routine)
    }

    /// Names in the routine's expressions become parameters.
    fn name_params(&mut self, interface: &mut Interface) {
        let params = core::mem::take(&mut interface.params);
        let by_name = by_name(&params);
        let report = &mut self.report;
        let mut change = |expr: &mut Expr| resolve(expr, &self.names, &by_name, report);
        let mut named = params.clone();
        for param in &mut named {
            each_expression(param, &mut change);
        }
        interface.calc_order.iter_mut().for_each(&mut change);
        interface.parallel.iter_mut().for_each(|parallel| change(&mut parallel.ranks));
        // The arguments of a body are the parameters already.
        if interface.target.body.is_empty() {
            interface.target.arguments.iter_mut().for_each(change);
        }
        interface.params = named;
    }

    /// `name`, `module/name` or `class.name`.
    pub(super) fn long_name(&mut self, what: &str) -> Result<(String, Span), ParseFailed> {
        let (first, start) = self.name(what)?;
        let mut name = String::from(first);
        loop {
            let sign = if self.is_sign("/") { '/' } else { '.' };
            if !self.take_sign("/") && !self.take_sign(".") {
                return Ok((name, start.to(self.last)));
            }
            name.push(sign);
            name.push_str(self.name("the rest of the name")?.0);
        }
    }

    /// One option; false when there is none.
    fn option(
        &mut self,
        options: &mut Options,
        routine: &mut Routine,
    ) -> Result<bool, ParseFailed> {
        let place = self.span;
        let word = self.word();
        match word {
            "Required" => self.required(&mut options.required)?,
            "CalcOrder" => {
                self.advance();
                let (order, at) = self.expression()?;
                self.once(&mut routine.interface.calc_order, order, place, word);
                routine.spans.calc_order = at;
            }
            "Language" => {
                self.advance();
                let (text, at) = self.text("the language in quotes")?;
                let language = self.language(&text, at);
                self.once(&mut options.language, language, place, word);
            }
            "Parallel" => {
                self.advance();
                let found = self.expression()?;
                self.once(&mut options.ranks, found, place, word);
            }
            "Backend" | "Shrink" => self.foreign_option()?,
            "" if self.take_sign("@") => self.attribute(options, routine)?,
            "" => return Ok(false),
            _ if self.is_declaration() => return Ok(false),
            _ => {
                let near = suggestion(word, ROUTINE);
                let message = format!("a routine has no `{}`{near}", shortened(word));
                self.report.add(Code::UnknownWord, place, message);
                self.advance();
                self.texts();
            }
        }
        Ok(true)
    }

    fn once<T>(&mut self, place: &mut Option<T>, value: T, span: Span, what: &str) {
        if place.replace(value).is_some() {
            self.report.add(Code::Twice, span, format!("this is a second `{what}`"));
        }
    }

    /// `Required "a.o -lm" …`: words separated by blanks.
    pub(super) fn required(
        &mut self,
        required: &mut Vec<(String, Span)>,
    ) -> Result<(), ParseFailed> {
        self.advance();
        let (text, place) = self.text("files and libraries in quotes")?;
        required.extend(text.split_whitespace().map(|word| (String::from(word), place)));
        Ok(())
    }

    /// Options of other systems that mean nothing here, or nothing that can be done.
    pub(super) fn foreign_option(&mut self) -> Result<(), ParseFailed> {
        let (word, start) = (self.word(), self.span);
        self.advance();
        let (text, place) = self.text("a word in quotes")?;
        let place = start.to(place);
        if word == "Backend" && !text.eq_ignore_ascii_case("normal") {
            let message = "only the back end \"normal\" is known: a parallel routine is a job of a cluster, \
                           `Parallel 4` for one of 4 ranks";
            self.report.add(Code::Unsupported, place, message.into());
        } else {
            let message = "this has no effect: arrays have their full size at the routine";
            let normal = "this has no effect: it is how every routine runs";
            let message = if word == "Backend" { normal } else { message };
            self.report.add(Code::NoEffect, place, message.into());
        }
        Ok(())
    }

    /// How it is a job of a cluster, if it is one, and where that is said.
    fn parallel(&mut self, options: &mut Options) -> (Option<Parallel>, Span) {
        options.broadcast.sort_by_key(|(index, _)| *index);
        let place = options.broadcast.first().map(|(_, place)| *place);
        let broadcast = options.broadcast.drain(..).map(|(index, _)| index).collect();
        match (options.ranks.take(), place) {
            (Some((ranks, place)), _) => (Some(Parallel { ranks, broadcast }), place),
            (None, None) => (None, Span::default()),
            (None, Some(place)) => {
                let message =
                    "`@broadcast` is for jobs of a cluster: say `Parallel` and how many ranks";
                self.report.add(Code::Attribute, place, message.into());
                (None, place)
            }
        }
    }

    fn attribute(
        &mut self,
        options: &mut Options,
        routine: &mut Routine,
    ) -> Result<(), ParseFailed> {
        let (name, place) = self.name("an attribute, as `@idempotent`")?;
        match name {
            "idempotent" => {
                if core::mem::replace(&mut routine.interface.idempotent, true) {
                    self.report.add(Code::Twice, place, "this is a second `@idempotent`".into());
                }
            }
            "order" => options.columns = self.order()? == Order::Column,
            "split" | "status" | "broadcast" => {
                self.expect_sign("(", "and the parameter's name")?;
                let (param, at) = self.name("a parameter's name")?;
                self.expect_sign(")", "to close the attribute")?;
                let Routine { interface, spans } = routine;
                let Some(index) = self.index(&interface.params, param, at) else { return Ok(()) };
                let (slot, span) = match name {
                    "split" => (&mut interface.split, &mut spans.split),
                    "status" => (&mut interface.status, &mut spans.status),
                    _ => {
                        options.broadcast.push((index, at));
                        return Ok(());
                    }
                };
                self.once(slot, index, place, &format!("@{name}"));
                *span = at;
            }
            _ => {
                let near = suggestion(name, ATTRIBUTES);
                let message = format!("routines have no attribute `@{}`{near}", shortened(name));
                self.report.add(Code::UnknownWord, place, message);
                if self.take_sign("(") {
                    self.skip_member();
                    self.take_sign(")");
                }
            }
        }
        Ok(())
    }

    /// The parameter of this name.
    fn index(&mut self, params: &[Param], name: &str, place: Span) -> Option<u32> {
        let found = params.iter().position(|param| param.name == name);
        if found.is_none() {
            let near = suggestion(name, params.iter().map(|param| param.name.as_str()));
            let message = format!("there is no parameter `{}`{near}", shortened(name));
            self.report.add(Code::UnknownName, place, message);
        }
        found.and_then(|index| u32::try_from(index).ok())
    }

    pub(super) fn language(&mut self, text: &str, place: Span) -> Language {
        const LANGUAGES: [(&str, Language); 3] =
            [("C", Language::C), ("Fortran", Language::Fortran), ("Python", Language::Python)];
        let found = LANGUAGES.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        if found.is_none() {
            let near = suggestion(text, LANGUAGES.map(|(name, _)| name));
            let message = format!("there is no language \"{}\"{near}", shortened(text));
            self.report.add(Code::UnknownWord, place, message);
        }
        found.map_or(Language::C, |(_, language)| language)
    }

    /// `{ C code }`: a function of the routine's name with its parameters.
    fn own_body(&mut self, name: &str, routine: &mut Routine) -> Result<(), ParseFailed> {
        let open = self.span;
        let code = self.braces()?;
        if code.trim().is_empty() {
            self.report.add(Code::Target, open, "this body does nothing".into());
        }
        let Routine { interface: Interface { params, target, .. }, spans } = routine;
        target.symbol = String::from(name.rsplit(['/', '.']).next().unwrap_or(name));
        target.arguments = (0..).zip(params).map(|(index, _)| Expr::Param(index)).collect();
        target.body = String::from(code);
        spans.arguments = alloc::vec![spans.name; target.arguments.len()];
        (spans.symbol, spans.result, spans.code) = (spans.name, spans.name, open.end);
        Ok(())
    }

    /// `Calls "language" result = symbol(arguments);`
    fn calls(&mut self, routine: &mut Routine) -> Result<(), ParseFailed> {
        let Routine { interface: Interface { params, target, .. }, spans } = routine;
        self.advance();
        if !self.is_end() && self.word().is_empty() {
            let (text, place) = self.text("a language in quotes or the symbol")?;
            target.language = self.language(&text, place);
        }
        let (mut symbol, mut place) = self.name("the symbol to call")?;
        spans.result = place;
        if self.take_sign("=") {
            target.result = self.index(params, symbol, place);
            (symbol, place) = self.name("the symbol to call")?;
        }
        target.symbol.push_str(symbol);
        while self.take_sign(".") {
            target.symbol.push('.');
            target.symbol.push_str(self.name("the rest of the symbol")?.0);
        }
        spans.symbol = place.to(self.last);
        self.expect_sign("(", "and the arguments")?;
        while !self.is_sign(")") {
            let (argument, place) = self.expression()?;
            target.arguments.push(argument);
            spans.arguments.push(place);
            if !self.take_sign(",") {
                break;
            }
        }
        self.expect_sign(")", "to close the arguments")?;
        if !self.is_sign(";") {
            self.unexpected("`;` behind `Calls …(…)`");
        }
        Ok(())
    }
}
