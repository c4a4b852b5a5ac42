//! Validation of descriptions from any source.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::model::{Element, Expr, Function, Interface, Language, Mode, Param, Type};
use crate::plan::Part;

/// Most bytes of a parameter's or symbol's name, and of each part of a routine's.
pub const MOST_NAME: usize = 128;
/// Most problems that are told of a description.
pub const MOST_PROBLEMS: usize = 100;
/// Most bytes of one of [`crate::Target::required`].
pub const MOST_REQUIRED: usize = 4096;

/// A problem of a description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{fault}", PlaceDisplay(*place, name))]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The parameter's name, where the place is one.
    pub name: String,
    /// What is wrong there.
    pub fault: ProblemKind,
}

/// The place of a problem in a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The version, the routine's name or the number of its parameters.
    Routine,
    /// The parameter of this index.
    Param(usize),
    /// One of its expressions.
    Part(usize, Part),
    /// The parameter of a callback: index of the callback, index there.
    Inner(usize, usize),
    /// `CalcOrder`.
    CalcOrder,
    /// `@split`.
    Split,
    /// `@status`.
    Status,
    /// `Parallel` or `@broadcast`.
    Parallel,
    /// The symbol of `Calls`, or the body.
    Symbol,
    /// An argument of `Calls`, the first is 0.
    Argument(usize),
    /// What the symbol's result goes into.
    Result,
    /// One of `Required` and `Library`.
    Required(usize),
}

struct PlaceDisplay<'a>(Place, &'a str);

impl fmt::Display for PlaceDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Place::Routine => Ok(()),
            Place::Param(_) | Place::Inner(..) => write!(f, "`{}`: ", self.1),
            Place::Part(_, part) => write!(f, "`{}`, {part}: ", self.1),
            Place::CalcOrder => f.write_str("CalcOrder: "),
            Place::Split => f.write_str("@split: "),
            Place::Status => f.write_str("@status: "),
            Place::Parallel => f.write_str("Parallel: "),
            Place::Symbol => f.write_str("Calls: "),
            Place::Argument(index) => write!(f, "argument {} of Calls: ", index + 1),
            Place::Result => f.write_str("the result of Calls: "),
            Place::Required(_) => f.write_str("Required: "),
        }
    }
}

/// A kind of problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The description has another version.
    #[error("this is version {0} of the form; version {known} is understood", known = Interface::VERSION)]
    Version(u32),
    /// A text is no valid name.
    #[error("`{0}` is no name: letters, digits and _, at most {most} of them, no digit first", most = MOST_NAME)]
    Name(String),
    /// Two declarations have one name.
    #[error("there are two of the name `{0}`")]
    Twice(String),
    /// There are too many parameters.
    #[error("it has {0} parameters; {most} is the most", most = Interface::MOST_PARAMS)]
    Params(usize),
    /// There are too many dimensions.
    #[error("it has {0} dimensions; {most} is the most", most = Interface::MOST_DIMENSIONS)]
    Dimensions(usize),
    /// An expression is nested too deeply.
    #[error("the expression is nested more than {} deep", Expr::MOST_DEPTH)]
    Depth,
    /// An index is beyond the parameters.
    #[error("it names parameter {0}, which is not there")]
    Unknown(u32),
    /// An array, a file or a callback stands where a number is needed.
    #[error("`{0}` is not a single number")]
    NotAScalar(String),
    /// An output stands where a value is needed before the call.
    #[error("`{0}` is not known before the call: its mode does not send it")]
    NotSent(String),
    /// A size uses a real or complex number.
    #[error("`{0}` is no integer")]
    NotAnInteger(String),
    /// A size uses a real number, a text or a function of real numbers.
    #[error("only integers can stand here")]
    IntegersOnly,
    /// An expression uses a text as a number.
    #[error("a text is no number")]
    Text,
    /// A number is infinite or NaN.
    #[error("a number must be finite")]
    NotFinite,
    /// A function has too few or too many arguments.
    #[error("`{}` takes {} argument{}", .0.name(), if takes_one(*.0) { "one" } else { "two or more" }, if takes_one(*.0) { "" } else { "s" })]
    Arity(Function),
    /// A parameter that takes no default has one.
    #[error("only numbers and texts that are sent have defaults")]
    Default,
    /// Defaults depend on each other.
    #[error("its default needs itself")]
    Cycle,
    /// A type that has no arrays has dimensions.
    #[error("{0} cannot be arrays")]
    NoArray(&'static str),
    /// An output text has no size.
    #[error("a text that comes back needs a size, as in `string {0}[256]`")]
    Unbounded(String),
    /// A text has a section.
    #[error("a text has no section")]
    Section,
    /// A callback is no input, or is a parameter of a callback.
    #[error("a callback can be neither output nor parameter of a callback")]
    Callback,
    /// A file is a parameter of a callback.
    #[error("a file cannot be a parameter of a callback")]
    FileOfCallback,
    /// `@status` or the result names a parameter that is no output.
    #[error("`{0}` does not come back")]
    NotReturned(String),
    /// The result is also an argument.
    #[error("`{0}` is the result and an argument")]
    Both(String),
    /// A text is no symbol of the language.
    #[error("`{0}` is no symbol of this language")]
    Symbol(String),
    /// A routine in a language other than C has a body.
    #[error("only routines in C have a body")]
    Body,
    /// Braces, texts or comments of a body do not end.
    #[error("the body's braces do not match")]
    Braces,
    /// A format of symbols is not valid.
    #[error("{0}")]
    Format(&'static str),
    /// A name is a reserved word.
    #[error("`{0}` is a word of the language; take another name")]
    Reserved(String),
    /// The class does not fit the name of the method.
    #[error("it is no method of a class `{0}`: methods are called `class.method`")]
    Class(String),
    /// A method is a parallel routine.
    #[error("a method of a class is no job of a cluster: its object is one process")]
    ParallelMethod,
    /// A Python function is a parallel routine.
    #[error("a function of Python is no job of a cluster")]
    ParallelPython,
    /// A parallel routine has a file or a callback.
    #[error("`{0}` is a file or a function of the client, which jobs of a cluster do not get")]
    ParallelParam(String),
    /// `@broadcast` names something other than an input array.
    #[error("`{0}` is no array that is sent; scalars and texts come to all ranks anyway")]
    NotBroadcast(String),
    /// The parameters of `@broadcast` are not in their order, so the JSON is not canonical.
    #[error("the arrays that all ranks get are not in the order of the parameters")]
    BroadcastOrder,
    /// A required file or library is empty, too long, or has blanks or control characters.
    #[error("`{0}` is no file or library to link")]
    Required(String),
}

fn takes_one(function: Function) -> bool {
    !matches!(function, Function::Min | Function::Max)
}

/// The numbers that an expression may use.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Integers,
    Numbers,
}

impl Interface {
    /// Checks that the description is valid. Call this before using a description from elsewhere.
    ///
    /// # Errors
    /// The first [`Problem`].
    pub fn validate(&self) -> Result<(), Problem> {
        self.problems().into_iter().next().map_or(Ok(()), Err)
    }

    /// The first [`MOST_PROBLEMS`] problems, in the order of the description.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let mut check = Validator { params: &self.params, found: Vec::new() };
        check.routine(self);
        if self.params.len() <= Interface::MOST_PARAMS {
            check.params();
            check.attributes(self);
            check.target(self);
        }
        check.found
    }
}

struct Validator<'a> {
    params: &'a [Param],
    found: Vec<Problem>,
}

impl Validator<'_> {
    fn add(&mut self, place: Place, fault: ProblemKind) {
        let name = match place {
            Place::Param(index) | Place::Part(index, _) => self.params[index].name.as_str(),
            Place::Inner(callback, index) => match &self.params[callback].ty {
                Type::Callback(params) => params[index].name.as_str(),
                _ => "",
            },
            _ => "",
        };
        if self.found.len() < MOST_PROBLEMS {
            self.found.push(Problem { place, name: shortened(name), fault });
        }
    }

    fn routine(&mut self, interface: &Interface) {
        if interface.version != Interface::VERSION {
            self.add(Place::Routine, ProblemKind::Version(interface.version));
        }
        let mut parts = interface.name.split(['/', '.']);
        if !parts.all(is_name) || interface.name.len() > 4 * MOST_NAME {
            self.add(Place::Routine, ProblemKind::Name(shortened(&interface.name)));
        }
        let own = interface.name.strip_prefix(interface.class.as_str());
        if !(interface.class.is_empty()
            || own.is_some_and(|own| own.is_empty() || own.starts_with('.')))
        {
            self.add(Place::Routine, ProblemKind::Class(shortened(&interface.class)));
        }
        if interface.params.len() > Interface::MOST_PARAMS {
            self.add(Place::Routine, ProblemKind::Params(interface.params.len()));
        }
    }

    fn params(&mut self) {
        let params = self.params;
        let mut names = BTreeSet::new();
        for (index, param) in params.iter().enumerate() {
            if !names.insert(param.name.as_str()) {
                self.add(Place::Param(index), ProblemKind::Twice(shortened(&param.name)));
            }
            self.param(Place::Param(index), param);
            self.dimensions(index, param);
            self.default(index, param);
            if let Type::Callback(inner) = &param.ty {
                self.callback(index, inner);
            }
        }
        let needs = |index: usize| crate::defaults::needs(&params[index], params.len());
        if let Err(index) = crate::defaults::order(params.len(), needs) {
            self.add(Place::Part(index, Part::Default), ProblemKind::Cycle);
        }
    }

    /// Checks that do not depend on other parameters.
    fn param(&mut self, place: Place, param: &Param) {
        if !is_name(&param.name) {
            self.add(place, ProblemKind::Name(shortened(&param.name)));
        } else if crate::words::is_reserved(&param.name) {
            self.add(place, ProblemKind::Reserved(shortened(&param.name)));
        }
        if param.dims.len() > Interface::MOST_DIMENSIONS {
            self.add(place, ProblemKind::Dimensions(param.dims.len()));
        }
        match &param.ty {
            Type::Number(_) => {}
            Type::String if param.dims.len() > 1 => self.add(place, ProblemKind::NoArray("texts")),
            Type::String if param.dims.is_empty() && param.mode != Mode::In => {
                self.add(place, ProblemKind::Unbounded(shortened(&param.name)));
            }
            Type::String => {
                let whole =
                    |d: &crate::Dimension| d.start.is_none() && d.end.is_none() && d.step.is_none();
                if !param.dims.iter().all(whole) {
                    self.add(place, ProblemKind::Section);
                }
            }
            Type::File if !param.dims.is_empty() => self.add(place, ProblemKind::NoArray("files")),
            Type::File => {}
            Type::Callback(_) if !param.dims.is_empty() => {
                self.add(place, ProblemKind::NoArray("callbacks"));
            }
            Type::Callback(_) if param.mode != Mode::In => self.add(place, ProblemKind::Callback),
            Type::Callback(_) => {}
        }
    }

    fn dimensions(&mut self, index: usize, param: &Param) {
        for (at, dimension) in param.dims.iter().enumerate().take(Interface::MOST_DIMENSIONS) {
            for (part, expr) in dimension.parts(at) {
                self.expression(Place::Part(index, part), expr, Kind::Integers);
            }
        }
    }

    fn default(&mut self, index: usize, param: &Param) {
        let Some(expr) = &param.default else { return };
        let place = Place::Part(index, Part::Default);
        if !param.mode.is_sent() {
            return self.add(place, ProblemKind::Default);
        }
        match (&param.ty, expr) {
            (Type::String, Expr::Text(_)) => {}
            (Type::Number(element), expr) if param.dims.is_empty() => {
                let kind = if element.is_integer() { Kind::Integers } else { Kind::Numbers };
                self.expression(place, expr, kind);
            }
            _ => self.add(place, ProblemKind::Default),
        }
    }

    fn callback(&mut self, callback: usize, inner: &[Param]) {
        if inner.len() > Interface::MOST_PARAMS {
            return self.add(Place::Param(callback), ProblemKind::Params(inner.len()));
        }
        let mut names = BTreeSet::new();
        for (index, param) in inner.iter().enumerate() {
            let place = Place::Inner(callback, index);
            if !names.insert(param.name.as_str()) {
                self.add(place, ProblemKind::Twice(shortened(&param.name)));
            }
            if matches!(param.ty, Type::Callback(_)) {
                self.add(place, ProblemKind::Callback);
                continue;
            }
            if param.ty == Type::File {
                self.add(place, ProblemKind::FileOfCallback);
            }
            self.param(place, param);
            if param.default.is_some() {
                self.add(place, ProblemKind::Default);
            }
            for dimension in param.dims.iter().take(Interface::MOST_DIMENSIONS) {
                for (_, expr) in dimension.parts(0) {
                    if let Err(fault) = expression(inner, expr, Kind::Integers, 1) {
                        self.add(place, fault);
                    }
                }
            }
        }
    }

    fn attributes(&mut self, interface: &Interface) {
        if let Some(expr) = &interface.calc_order {
            self.expression(Place::CalcOrder, expr, Kind::Numbers);
        }
        if let Some(index) = interface.split
            && let Err(fault) =
                sent_scalar(self.params, index).and_then(|(param, element)| integer(param, element))
        {
            self.add(Place::Split, fault);
        }
        if let Some(index) = interface.status
            && let Err(fault) = returned_scalar(self.params, index)
                .and_then(|(param, element)| integer(param, element))
        {
            self.add(Place::Status, fault);
        }
        if let Some(parallel) = &interface.parallel {
            self.expression(Place::Parallel, &parallel.ranks, Kind::Integers);
            for fault in crate::parallel::faults(interface, parallel) {
                self.add(Place::Parallel, fault);
            }
        }
    }

    fn target(&mut self, interface: &Interface) {
        let target = &interface.target;
        let is_symbol = match target.language {
            Language::C | Language::Fortran => is_name(&target.symbol),
            Language::Python => {
                target.symbol.len() <= 4 * MOST_NAME && target.symbol.split('.').all(is_name)
            }
        };
        if !is_symbol {
            self.add(Place::Symbol, ProblemKind::Symbol(shortened(&target.symbol)));
        }
        if !target.body.is_empty() && target.language != Language::C {
            self.add(Place::Symbol, ProblemKind::Body);
        }
        if !target.body.is_empty() && !balanced(&target.body) {
            self.add(Place::Symbol, ProblemKind::Braces);
        }
        if !target.format.is_empty()
            && let Err(message) = format(&target.format)
        {
            self.add(Place::Symbol, ProblemKind::Format(message));
        }
        if target.arguments.len() > Interface::MOST_PARAMS {
            self.add(Place::Symbol, ProblemKind::Params(target.arguments.len()));
        }
        for (index, argument) in target.arguments.iter().enumerate().take(Interface::MOST_PARAMS) {
            self.argument(Place::Argument(index), argument);
        }
        if let Some(index) = target.result {
            if let Err(fault) = returned_scalar(self.params, index) {
                self.add(Place::Result, fault);
            } else if target.arguments.contains(&Expr::Param(index)) {
                let name = param(self.params, index).map(|param| shortened(&param.name));
                self.add(Place::Result, ProblemKind::Both(name.unwrap_or_default()));
            }
        }
        for (index, text) in target.required.iter().enumerate() {
            let sound = !text.is_empty() && text.len() <= MOST_REQUIRED;
            if !sound || text.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
                self.add(Place::Required(index), ProblemKind::Required(shortened(text)));
            }
        }
    }

    /// Checks an argument of the symbol: a parameter of any kind, a text, or an expression of numbers.
    fn argument(&mut self, place: Place, argument: &Expr) {
        match argument {
            Expr::Param(index) => {
                if let Err(fault) = param(self.params, *index) {
                    self.add(place, fault);
                }
            }
            Expr::Text(_) => {}
            other => self.expression(place, other, Kind::Numbers),
        }
    }

    fn expression(&mut self, place: Place, expr: &Expr, kind: Kind) {
        if let Err(fault) = expression(self.params, expr, kind, 1) {
            self.add(place, fault);
        }
    }
}

/// Checks an expression.
fn expression(params: &[Param], expr: &Expr, kind: Kind, depth: usize) -> Result<(), ProblemKind> {
    if depth > Expr::MOST_DEPTH {
        return Err(ProblemKind::Depth);
    }
    let below = |expr: &Expr| expression(params, expr, kind, depth + 1);
    match expr {
        Expr::Int(_) => Ok(()),
        Expr::Real(_) if kind == Kind::Integers => Err(ProblemKind::IntegersOnly),
        Expr::Real(value) if !value.is_finite() => Err(ProblemKind::NotFinite),
        Expr::Real(_) => Ok(()),
        Expr::Text(_) => Err(ProblemKind::Text),
        Expr::Param(index) => {
            let (param, element) = operand(params, *index)?;
            match element {
                Element::F32 | Element::F64 if kind == Kind::Numbers => Ok(()),
                _ => integer(param, element),
            }
        }
        Expr::Unary(_, operand) => below(operand),
        Expr::Binary(_, left, right) => below(left).and_then(|()| below(right)),
        Expr::If(condition, then, otherwise) => {
            below(condition).and_then(|()| below(then)).and_then(|()| below(otherwise))
        }
        Expr::Call(function, arguments) => {
            let real = matches!(function, Function::Log | Function::Log2 | Function::Sqrt);
            if real && kind == Kind::Integers {
                return Err(ProblemKind::IntegersOnly);
            }
            let arity = if takes_one(*function) { 1..=1 } else { 2..=Interface::MOST_PARAMS };
            if !arity.contains(&arguments.len()) {
                return Err(ProblemKind::Arity(*function));
            }
            arguments.iter().try_for_each(below)
        }
    }
}

fn param(params: &[Param], index: u32) -> Result<&Param, ProblemKind> {
    let param = usize::try_from(index).ok().and_then(|index| params.get(index));
    param.ok_or(ProblemKind::Unknown(index))
}

fn scalar(params: &[Param], index: u32) -> Result<(&Param, Element), ProblemKind> {
    let param = param(params, index)?;
    let element = param.scalar().ok_or_else(|| ProblemKind::NotAScalar(shortened(&param.name)))?;
    Ok((param, element))
}

/// The operand of an expression: a scalar or text input.
fn operand(params: &[Param], index: u32) -> Result<(&Param, Element), ProblemKind> {
    let text = param(params, index)?;
    if text.ty == Type::String && text.mode.is_sent() {
        return Ok((text, Element::U8));
    }
    sent_scalar(params, index)
}

fn sent_scalar(params: &[Param], index: u32) -> Result<(&Param, Element), ProblemKind> {
    let (param, element) = scalar(params, index)?;
    let sent = param.mode.is_sent();
    if sent { Ok((param, element)) } else { Err(ProblemKind::NotSent(shortened(&param.name))) }
}

fn returned_scalar(params: &[Param], index: u32) -> Result<(&Param, Element), ProblemKind> {
    let (param, element) = scalar(params, index)?;
    let returned = param.mode.is_returned();
    if returned {
        Ok((param, element))
    } else {
        Err(ProblemKind::NotReturned(shortened(&param.name)))
    }
}

fn integer(param: &Param, element: Element) -> Result<(), ProblemKind> {
    let integer = element.is_integer();
    if integer { Ok(()) } else { Err(ProblemKind::NotAnInteger(shortened(&param.name))) }
}

/// Whether the braces of C code match.
fn balanced(code: &str) -> bool {
    let mut closed = String::from(code);
    closed.push('}');
    crate::words::end_of_braces(&closed) == Some(code.len())
}

/// Checks a format of symbols.
pub(crate) fn format(format: &str) -> Result<(), &'static str> {
    if format.len() > MOST_NAME {
        return Err("a format of symbols has at most 128 bytes");
    }
    let bare = format.replace("%s", "").replace("%l", "");
    if bare.len() == format.len() {
        return Err("a format of symbols needs `%s`, or `%l` for small letters");
    }
    let letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if !bare.chars().all(letter) {
        return Err("a format of symbols has letters, digits, _, `%s` and `%l` only");
    }
    Ok(())
}

/// Whether a text is a name in C, Fortran and Python.
pub(crate) fn is_name(text: &str) -> bool {
    let letter = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'_';
    let first = text.bytes().next();
    first.is_some_and(|first| letter(first) && !first.is_ascii_digit())
        && text.len() <= MOST_NAME
        && text.bytes().all(letter)
}

/// An excerpt of a foreign text for an error message.
pub(crate) fn shortened(text: &str) -> String {
    crate::excerpt::shortened(text, 64)
}
