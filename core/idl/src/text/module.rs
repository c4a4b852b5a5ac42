//! Parser of whole texts: modules, declarations and classes.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::check::check;
use super::diagnostic::{Code, Diagnostic, Report, Span};
use super::parser::{DECLARATIONS, ParseFailed, Parser, shortened};
use super::routine::Routine;
use crate::model::{Class, Interface, Module};
use crate::similar_names::suggestion;
use crate::validate::{MOST_NAME, ProblemKind};

/// Longest text, in bytes.
pub const MOST_TEXT: usize = 4 << 20;

/// Most routines of a text.
const MOST_ROUTINES: usize = 4096;
/// Most files and libraries that a module or class may require for all of its routines.
const MOST_SHARED: usize = 64;
/// Most bytes of those together.
const MOST_SHARED_BYTES: usize = 8 << 10;

/// The result of parsing a text.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedText {
    /// The module; `None`: there is an error.
    pub module: Option<Module>,
    /// Errors and warnings in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// The lines of its C code.
    pub lines: CodeLines,
}

/// The line numbers at which C code begins; the first line is 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CodeLines {
    /// Of [`Module::globals`].
    pub globals: Vec<usize>,
    /// Of the bodies, by the routine's name.
    pub bodies: BTreeMap<String, usize>,
    /// Of the states, by the class' name.
    pub states: BTreeMap<String, usize>,
}

/// Parses a file of descriptions. For any bytes it takes at most linear time.
#[must_use]
pub fn parse(bytes: &[u8]) -> ParsedText {
    if bytes.len() > MOST_TEXT {
        let message = format!("this has more than the {MOST_TEXT} bytes that are read");
        return unreadable("", 0, message);
    }
    let text = match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let (good, _) = bytes.split_at(error.valid_up_to());
            let text = core::str::from_utf8(good).unwrap_or_default();
            return unreadable(text, text.len(), "here is a byte that is not UTF-8".into());
        }
    };
    let mut reader = Reader {
        parser: Parser::new(text),
        module: Module { version: Interface::VERSION, ..Module::default() },
        defined: BTreeMap::new(),
        routines: Vec::new(),
        class: None,
        lines: CodeLines::default(),
    };
    while !reader.parser.is_end() {
        if reader.declaration().is_err() {
            reader.parser.skip_to_declaration();
        }
    }
    reader.finish()
}

fn unreadable(text: &str, at: usize, message: String) -> ParsedText {
    let mut parser = Parser::new("");
    parser.report = Report::new(text);
    parser.report.add(Code::Unreadable, Span { start: at, end: at }, message);
    ParsedText { module: None, diagnostics: parser.report.finish(), lines: CodeLines::default() }
}

/// Refuses more than [`MOST_SHARED`] or [`MOST_SHARED_BYTES`].
fn shared(required: &mut Vec<String>, place: Span, report: &mut Report<'_>) {
    let mut room = MOST_SHARED_BYTES;
    let fits = required.iter().take(MOST_SHARED).take_while(|word| {
        let left = room.checked_sub(word.len());
        room = left.unwrap_or(0);
        left.is_some()
    });
    let fits = fits.count();
    if fits < required.len() {
        required.truncate(fits);
        let message = format!(
            "these are more than {MOST_SHARED} files and libraries, or more than {MOST_SHARED_BYTES} bytes"
        );
        report.add(Code::Target, place, message);
    }
}

struct Reader<'a> {
    parser: Parser<'a>,
    module: Module,
    /// Routines and classes by name, and the line where each is defined.
    defined: BTreeMap<String, Span>,
    /// Each with the class that it belongs to.
    routines: Vec<(Routine, Option<usize>)>,
    /// The class at hand.
    class: Option<usize>,
    lines: CodeLines,
}

impl Reader<'_> {
    fn declaration(&mut self) -> Result<(), ParseFailed> {
        let (word, place) = (self.parser.word(), self.parser.span);
        if self.parser.take_sign(";") {
            return Ok(());
        }
        if word.is_empty() {
            return Err(self.parser.unexpected("a declaration, as `Define` or `Module`"));
        }
        self.parser.advance();
        match word {
            "Define" => self.define(None),
            "DefClass" => self.class(),
            "Module" => self.module(place),
            "Globals" => {
                let begin = self.parser.span.end;
                let code = self.parser.braces()?;
                self.lines.globals.push(self.parser.report.line(begin));
                self.module.globals.push(String::from(code));
                Ok(())
            }
            "FortranStringConvention" => {
                self.parser.name("the convention's name")?;
                let message = "this has no effect: the lengths of texts go behind the arguments";
                self.parser.report.add(Code::NoEffect, place, message.into());
                self.end()
            }
            "Library" | "CompileOptions" | "Compiler" | "Linker" | "FortranFormat" => {
                let (text, at) = self.parser.text("a text in quotes")?;
                self.setting(word, place, text, at);
                self.end()
            }
            _ => {
                let near = suggestion(word, DECLARATIONS);
                let message = format!("there is no declaration `{}`{near}", shortened(word));
                self.parser.report.add(Code::UnknownWord, place, message);
                Err(ParseFailed)
            }
        }
    }

    fn end(&mut self) -> Result<(), ParseFailed> {
        self.parser.expect_sign(";", "to end the declaration")
    }

    fn setting(&mut self, word: &str, place: Span, text: String, at: Span) {
        let words = || text.split_whitespace().map(String::from);
        let module = &mut self.module;
        let single = match word {
            "Library" => {
                module.libraries.extend(words());
                return shared(&mut module.libraries, at, &mut self.parser.report);
            }
            "CompileOptions" => return module.compile_options.extend(words()),
            "Compiler" => &mut module.compiler,
            "Linker" => &mut module.linker,
            _ => {
                if let Err(message) = crate::validate::format(&text) {
                    self.parser.report.add(Code::Target, at, message.into());
                    return;
                }
                &mut module.fortran_format
            }
        };
        if !single.is_empty() {
            self.parser.report.add(Code::Twice, place, format!("this is a second `{word}`"));
        }
        *single = text;
    }

    fn module(&mut self, place: Span) -> Result<(), ParseFailed> {
        let (name, at) = self.parser.name("the module's name")?;
        self.bounded(name, at)?;
        if !self.module.name.is_empty() {
            self.parser.report.add(Code::Twice, place, "this is a second `Module`".into());
        } else if !self.defined.is_empty() {
            let message = "`Module` comes before what is defined in it";
            self.parser.report.add(Code::Syntax, place, message.into());
        }
        self.module.name = String::from(name);
        self.end()
    }

    /// What stands before the name of a routine or class.
    fn prefix(&self, class: Option<usize>) -> String {
        match class {
            Some(class) => format!("{}.", self.module.classes[class].name),
            None if self.module.name.is_empty() => String::new(),
            None => format!("{}/", self.module.name),
        }
    }

    /// Refuses names so long that those of all routines together could be more than the text.
    fn bounded(&mut self, name: &str, place: Span) -> Result<(), ParseFailed> {
        if name.len() <= MOST_NAME {
            return Ok(());
        }
        let fault = ProblemKind::Name(shortened(name));
        self.parser.report.add(Code::Param, place, fault.to_string());
        Err(ParseFailed)
    }

    fn define(&mut self, class: Option<usize>) -> Result<(), ParseFailed> {
        if self.routines.len() == MOST_ROUTINES {
            let message = format!("a file has at most {MOST_ROUTINES} routines");
            return Err(self.parser.fail(Code::TooMany, message));
        }
        let prefix = self.prefix(class);
        let routine = self.parser.routine(&prefix)?;
        self.define_name(&routine.interface.name, routine.spans.name);
        self.routines.push((routine, class));
        Ok(())
    }

    fn define_name(&mut self, name: &str, place: Span) {
        if self.defined.insert(String::from(name), place).is_some() {
            let message = format!("`{}` is defined already", shortened(name));
            self.parser.report.add(Code::Twice, place, message);
        }
    }

    /// `DefClass name "text" options { methods }`
    fn class(&mut self) -> Result<(), ParseFailed> {
        let prefix = self.prefix(None);
        let (name, place) = self.parser.long_name("the class' name")?;
        self.bounded(&name, place)?;
        let name = format!("{prefix}{name}");
        self.define_name(&name, place);
        let doc = self.parser.texts().0;
        let mut required = Vec::new();
        let mut has_language = false;
        loop {
            match self.parser.word() {
                "Required" => self.parser.required(&mut required)?,
                "Backend" | "Shrink" => self.parser.foreign_option()?,
                "Language" if !has_language => {
                    has_language = true;
                    let start = self.parser.span;
                    self.parser.advance();
                    let (text, place) = self.parser.text("the language in quotes")?;
                    self.parser.language(&text, place);
                    let message =
                        "this has no effect on a class: each method's `Calls` says its language";
                    self.parser.report.add(Code::NoEffect, start.to(place), message.into());
                }
                _ => break,
            }
        }
        self.parser.expect_sign("{", "and the methods")?;
        let mut required: Vec<String> = required.into_iter().map(|(word, _)| word).collect();
        shared(&mut required, place, &mut self.parser.report);
        let index = self.module.classes.len();
        let class = Class { name, doc, state: String::new(), required, methods: Vec::new() };
        self.module.classes.push(class);
        self.class = Some(index);
        let result = self.members(index);
        self.class = None;
        result
    }

    fn members(&mut self, class: usize) -> Result<(), ParseFailed> {
        loop {
            let place = self.parser.span;
            if self.parser.take_sign("}") {
                self.parser.take_sign(";");
                return Ok(());
            }
            if self.parser.is_end() || self.parser.is_declaration() {
                return Err(self.parser.unexpected("`}` behind the class' last method"));
            }
            let done = match self.parser.word() {
                "DefState" => self.state(class, place),
                "DefMethod" => {
                    self.parser.advance();
                    self.define(Some(class))
                }
                _ => Err(self.parser.unexpected("`DefState`, `DefMethod` or `}`")),
            };
            if done.is_err() {
                let stop = |parser: &Parser<'_>| {
                    let word = parser.word();
                    word == "DefMethod" || word == "DefState" || parser.is_declaration()
                };
                while !self.parser.is_end() && !self.parser.is_sign("}") && !stop(&self.parser) {
                    self.parser.skip();
                }
            }
        }
    }

    fn state(&mut self, class: usize, place: Span) -> Result<(), ParseFailed> {
        self.parser.advance();
        let begin = self.parser.span.end;
        let code = self.parser.braces()?;
        let name = self.module.classes[class].name.clone();
        self.lines.states.insert(name, self.parser.report.line(begin));
        let state = &mut self.module.classes[class].state;
        if !state.is_empty() {
            let message = "a class has one state".into();
            self.parser.report.add(Code::Twice, place, message);
        }
        *state = String::from(code);
        Ok(())
    }

    /// Settings that hold for every routine go into each; then the routines are checked.
    fn finish(mut self) -> ParsedText {
        for (mut routine, class) in core::mem::take(&mut self.routines) {
            if let Some(class) = class {
                routine.interface.class.clone_from(&self.module.classes[class].name);
            }
            let target = &mut routine.interface.target;
            let shared = class.map(|class| self.module.classes[class].required.iter());
            let shared = shared.into_iter().flatten().chain(&self.module.libraries);
            target.required.extend(shared.cloned());
            if target.language == crate::model::Language::Fortran {
                target.format = self.module.fortran_format.clone();
            }
            check(&routine, &mut self.parser.report);
            if routine.spans.code > 0 {
                let line = self.parser.report.line(routine.spans.code);
                self.lines.bodies.insert(routine.interface.name.clone(), line);
            }
            match class {
                Some(class) => self.module.classes[class].methods.push(routine.interface),
                None => self.module.interfaces.push(routine.interface),
            }
        }
        let errors = self.parser.report.has_errors();
        let module = (!errors).then_some(self.module);
        ParsedText { module, diagnostics: self.parser.report.finish(), lines: self.lines }
    }
}
