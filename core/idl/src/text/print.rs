//! Printer: writes descriptions as text, in one of the spellings that the parser accepts.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::{self, Write};

use crate::expr_display::{ExprDisplay, write_text};
use crate::model::{Class, Expr, Interface, Module, Order, Param, Type};

impl fmt::Display for Module {
    /// The module as a text that says the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.name.is_empty() {
            writeln!(f, "Module {};", self.name)?;
        }
        for (word, text) in [
            ("Compiler", &self.compiler),
            ("Linker", &self.linker),
            ("FortranFormat", &self.fortran_format),
        ] {
            if !text.is_empty() {
                setting(f, word, text)?;
            }
        }
        for option in &self.compile_options {
            setting(f, "CompileOptions", option)?;
        }
        for library in &self.libraries {
            setting(f, "Library", library)?;
        }
        for code in &self.globals {
            writeln!(f, "Globals {{{code}}}")?;
        }
        let prefix = if self.name.is_empty() { String::new() } else { format!("{}/", self.name) };
        for interface in &self.interfaces {
            f.write_str("\nDefine ")?;
            routine(f, interface, &prefix, &self.libraries, &[])?;
        }
        for one in &self.classes {
            class(f, one, &prefix, &self.libraries)?;
        }
        Ok(())
    }
}

fn setting(f: &mut fmt::Formatter<'_>, word: &str, text: &str) -> fmt::Result {
    write!(f, "{word} ")?;
    write_text(f, text)?;
    f.write_str(";\n")
}

fn class(
    f: &mut fmt::Formatter<'_>,
    class: &Class,
    prefix: &str,
    libraries: &[String],
) -> fmt::Result {
    write!(f, "\nDefClass {}", class.name.strip_prefix(prefix).unwrap_or(&class.name))?;
    if !class.doc.is_empty() {
        f.write_str("\n")?;
        write_text(f, &class.doc)?;
    }
    required(f, &class.required)?;
    f.write_str("\n{\n")?;
    if !class.state.is_empty() {
        writeln!(f, "DefState {{{}}}", class.state)?;
    }
    let prefix = format!("{}.", class.name);
    for method in &class.methods {
        f.write_str("DefMethod ")?;
        routine(f, method, &prefix, libraries, &class.required)?;
    }
    f.write_str("}\n")
}

fn required(f: &mut fmt::Formatter<'_>, required: &[String]) -> fmt::Result {
    if required.is_empty() {
        return Ok(());
    }
    f.write_str("\nRequired ")?;
    write_text(f, &required.join(" "))
}

/// `name(parameters)` and all that follows. What the module and the class require is theirs to say.
fn routine(
    f: &mut fmt::Formatter<'_>,
    interface: &Interface,
    prefix: &str,
    libraries: &[String],
    of_class: &[String],
) -> fmt::Result {
    let Interface { name, params, target, .. } = interface;
    write!(f, "{}(", name.strip_prefix(prefix).unwrap_or(name))?;
    for (index, param) in params.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { ",\n    " })?;
        write_param(f, param, params)?;
    }
    f.write_char(')')?;
    if !interface.doc.is_empty() {
        f.write_str("\n")?;
        write_text(f, &interface.doc)?;
    }
    let own = target.required.strip_suffix(libraries).unwrap_or(&target.required);
    required(f, own.strip_suffix(of_class).unwrap_or(own))?;
    let shown = |expr: &Expr| ExprDisplay { expr, params }.to_string();
    if let Some(order) = &interface.calc_order {
        write!(f, "\nCalcOrder {}", shown(order))?;
    }
    if interface.idempotent {
        f.write_str("\n@idempotent")?;
    }
    for (attribute, index) in [("split", interface.split), ("status", interface.status)] {
        if let Some(index) = index {
            let param = Expr::Param(index);
            write!(f, "\n@{attribute}({})", shown(&param))?;
        }
    }
    if let Some(parallel) = &interface.parallel {
        write!(f, "\nParallel {}", shown(&parallel.ranks))?;
        for index in &parallel.broadcast {
            write!(f, "\n@broadcast({})", shown(&Expr::Param(*index)))?;
        }
    }
    if !target.body.is_empty() {
        return writeln!(f, "\n{{{}}}", target.body);
    }
    write!(f, "\nCalls \"{}\" ", target.language.name())?;
    if let Some(result) = target.result {
        let param = Expr::Param(result);
        write!(f, "{} = ", shown(&param))?;
    }
    write!(f, "{}(", target.symbol)?;
    for (index, argument) in target.arguments.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { ", " })?;
        write!(f, "{}", shown(argument))?;
    }
    f.write_str(");\n")
}

fn write_param(f: &mut fmt::Formatter<'_>, param: &Param, params: &[Param]) -> fmt::Result {
    match &param.ty {
        Type::Number(element) => write!(f, "{} {element} {}", param.mode.name(), param.name)?,
        Type::String => write!(f, "{} string {}", param.mode.name(), param.name)?,
        Type::File => write!(f, "{} file {}", param.mode.name(), param.name)?,
        Type::Callback(inner) => {
            write!(f, "{}(", param.name)?;
            for (index, param) in inner.iter().enumerate() {
                f.write_str(if index == 0 { "" } else { ", " })?;
                write_param(f, param, inner)?;
            }
            f.write_char(')')?;
        }
    }
    for dimension in &param.dims {
        let shown = |expr| ExprDisplay { expr, params };
        write!(f, "[{}", shown(&dimension.size))?;
        let zero = Expr::Int(0);
        match (&dimension.start, &dimension.end, &dimension.step) {
            (None, None, None) => {}
            (None, Some(end), None) => write!(f, ": {}", shown(end))?,
            (start, end, step) => {
                let end = end.as_ref().unwrap_or(&dimension.size);
                write!(f, ": {}, {}", shown(start.as_ref().unwrap_or(&zero)), shown(end))?;
                if let Some(step) = step {
                    write!(f, ", {}", shown(step))?;
                }
            }
        }
        f.write_char(']')?;
    }
    if let Some(default) = &param.default {
        write!(f, " = {}", ExprDisplay { expr: default, params })?;
    }
    if param.order == Order::Column {
        f.write_str(" @order(F)")?;
    }
    if !param.doc.is_empty() {
        f.write_char(' ')?;
        write_text(f, &param.doc)?;
    }
    Ok(())
}
