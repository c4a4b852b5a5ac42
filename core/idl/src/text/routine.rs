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

/// The options of a routine.
#[derive(Default)]
struct Options {
    required: Vec<(String, Span)>,
    calc_order: Option<(Expr, Span)>,
    language: Option<Language>,
    idempotent: bool,
    split: Option<(u32, Span)>,
    status: Option<(u32, Span)>,
    ranks: Option<(Expr, Span)>,
    broadcast: Vec<(u32, Span)>,
    columns: bool,
}

/// The target of a routine, from `Calls` or a body.
struct TargetSource {
    target: Target,
    symbol: Span,
    arguments: Vec<Span>,
    result: Span,
    code: usize,
}

/// The attributes of routines.
const ATTRIBUTES: [&str; 5] = ["idempotent", "split", "status", "order", "broadcast"];

impl<'a> Parser<'a> {
    /// `name(parameters) "text" options body`, behind `Define` or `DefMethod`. `prefix` stands before the name.
    pub(super) fn routine(&mut self, prefix: &str) -> Result<Routine, ParseFailed> {
        self.names.clear();
        let (name, place) = self.long_name("the routine's name")?;
        let (params, places) = self.params(false)?;
        let doc = self.texts().0;
        let mut options = Options::default();
        while !self.is_sign("{") && self.word() != "Calls" {
            if !self.option(&mut options, &params)? {
                return Err(self.unexpected("an option, `Calls` or a body in `{ }`"));
            }
        }
        let mut body = if self.is_sign("{") {
            self.own_body(&name, place, params.len(), &options)?
        } else {
            self.calls(&params, &options)?
        };
        self.take_sign(";");
        let (parallel, parallel_place) = self.parallel(&mut options);
        let (required, required_places) = options.required.into_iter().unzip();
        body.target.required = required;
        let order = if options.columns { Order::Column } else { Order::Row };
        let mut interface = Interface {
            version: Interface::VERSION,
            name: format!("{prefix}{name}"),
            class: String::new(),
            doc,
            params,
            calc_order: options.calc_order.as_ref().map(|(expr, _)| expr.clone()),
            idempotent: options.idempotent,
            split: options.split.map(|(index, _)| index),
            status: options.status.map(|(index, _)| index),
            parallel,
            target: body.target,
        };
        self.name_params(&mut interface);
        if order == Order::Column {
            for param in interface.params.iter_mut().filter(|param| param.dims.len() > 1) {
                param.order = order;
            }
        }
        Ok(Routine {
            interface,
            name: place,
            params: places,
            calc_order: options.calc_order.map(|(_, place)| place).unwrap_or_default(),
            split: options.split.map(|(_, place)| place).unwrap_or_default(),
            status: options.status.map(|(_, place)| place).unwrap_or_default(),
            parallel: parallel_place,
            symbol: body.symbol,
            arguments: body.arguments,
            result: body.result,
            required: required_places,
            code: body.code,
        })
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
    fn option(&mut self, options: &mut Options, params: &[Param]) -> Result<bool, ParseFailed> {
        let place = self.span;
        let word = self.word();
        match word {
            "Required" => self.required(&mut options.required)?,
            "CalcOrder" => {
                self.advance();
                let found = self.expression()?;
                self.once(&mut options.calc_order, found, place, word);
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
            "" if self.take_sign("@") => self.attribute(options, params)?,
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

    fn attribute(&mut self, options: &mut Options, params: &[Param]) -> Result<(), ParseFailed> {
        let (name, place) = self.name("an attribute, as `@idempotent`")?;
        match name {
            "idempotent" => {
                let second = core::mem::replace(&mut options.idempotent, true);
                if second {
                    self.report.add(Code::Twice, place, "this is a second `@idempotent`".into());
                }
            }
            "order" => options.columns = self.order()? == Order::Column,
            "split" | "status" | "broadcast" => {
                self.expect_sign("(", "and the parameter's name")?;
                let (param, at) = self.name("a parameter's name")?;
                self.expect_sign(")", "to close the attribute")?;
                if let Some(index) = self.index(params, param, at) {
                    if name == "broadcast" {
                        options.broadcast.push((index, at));
                        return Ok(());
                    }
                    let slot =
                        if name == "split" { &mut options.split } else { &mut options.status };
                    if slot.replace((index, at)).is_some() {
                        self.report.add(Code::Twice, place, format!("this is a second `@{name}`"));
                    }
                }
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
    fn own_body(
        &mut self,
        name: &str,
        symbol: Span,
        params: usize,
        options: &Options,
    ) -> Result<TargetSource, ParseFailed> {
        let open = self.span;
        let (code, begin) = (self.braces()?, open.end);
        let blank = code.trim().is_empty();
        if blank {
            self.report.add(Code::Target, open, "this body does nothing".into());
        }
        let target = Target {
            language: options.language.unwrap_or(Language::C),
            symbol: String::from(name.rsplit(['/', '.']).next().unwrap_or(name)),
            arguments: (0..params)
                .filter_map(|index| u32::try_from(index).ok())
                .map(Expr::Param)
                .collect(),
            result: None,
            required: Vec::new(),
            body: String::from(code),
            format: String::new(),
        };
        let arguments = alloc::vec![symbol; params];
        Ok(TargetSource { target, symbol, arguments, result: symbol, code: begin })
    }

    /// `Calls "language" result = symbol(arguments);`
    fn calls(&mut self, params: &[Param], options: &Options) -> Result<TargetSource, ParseFailed> {
        self.advance();
        let mut language = options.language.unwrap_or(Language::C);
        if !self.is_end() && self.word().is_empty() {
            let (text, place) = self.text("a language in quotes or the symbol")?;
            language = self.language(&text, place);
        }
        let (mut symbol, mut place) = self.name("the symbol to call")?;
        let (mut result, mut result_place) = (None, place);
        if self.take_sign("=") {
            result = self.index(params, symbol, place);
            result_place = place;
            (symbol, place) = self.name("the symbol to call")?;
        }
        let mut path = String::from(symbol);
        while self.take_sign(".") {
            path.push('.');
            path.push_str(self.name("the rest of the symbol")?.0);
        }
        let place = place.to(self.last);
        self.expect_sign("(", "and the arguments")?;
        let (mut arguments, mut places) = (Vec::new(), Vec::new());
        while !self.is_sign(")") {
            let (argument, place) = self.expression()?;
            arguments.push(argument);
            places.push(place);
            if !self.take_sign(",") {
                break;
            }
        }
        self.expect_sign(")", "to close the arguments")?;
        if !self.is_sign(";") {
            self.unexpected("`;` behind `Calls …(…)`");
        }
        let target = Target {
            language,
            symbol: path,
            arguments,
            result,
            required: Vec::new(),
            body: String::new(),
            format: String::new(),
        };
        Ok(TargetSource { target, symbol: place, arguments: places, result: result_place, code: 0 })
    }
}
