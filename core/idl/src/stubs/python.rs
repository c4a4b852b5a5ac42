//! A module for Python with a function for each routine, and its types.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Names, StubFile, Stubs, documentation, made, parts};
use crate::model::{Class, Element, Interface, Module, Param, Type};

/// Words of Python, types that annotations name, and soft words.
const WORDS: &str = "\
    False None True and as assert async await break case class continue def del elif else except \
    finally for from global if import in is lambda match nonlocal not or pass raise return try \
    type while with yield bytes complex float int str tuple";

/// Parameters of `Connection.call` itself; arguments of these names get an underscore there.
const OPTIONS: &[&str] = &["timeout", "out", "priority", "output", "threads", "memory"];

/// The imports of both files. Names begin with an underscore, which no routine's does.
const IMPORTS: &str = "from __future__ import annotations\n\nimport os as _os\nfrom collections.abc import Callable as _Callable\n\
     from typing import Any as _Any\nfrom typing import BinaryIO as _BinaryIO\nfrom typing import NamedTuple as _NamedTuple\n\n\
     import numpy as _np\nimport numpy.typing as _npt\nfrom kumi import call as _call\n";

/// What functions give of arguments that may be left out.
const GIVEN: &str = "\n\ndef _given(named: dict[str, _Any]) -> dict[str, _Any]:\n    \
     \"\"\"The arguments that are given.\"\"\"\n    return {name: value for name, value in named.items() if value is not None}\n";

pub fn stubs(module: &Module, unit: &str) -> Stubs {
    let mut source = Source { code: String::new(), types: String::new(), names: Names::new(WORDS) };
    let (routines, classes) = parts(module);
    for interface in routines {
        let name = source.names.take(&interface.name);
        source.routine(interface, &name, "");
    }
    for class in classes {
        source.class(class);
    }
    let head = format!("\"\"\"{}\"\"\"\n\n{IMPORTS}", made(unit));
    let files = [
        StubFile { name: format!("{unit}.py"), text: format!("{head}{GIVEN}{}", source.code) },
        StubFile { name: format!("{unit}.pyi"), text: format!("{head}{}", source.types) },
    ];
    Stubs { files: Vec::from(files), left_out: Vec::new() }
}

struct Source {
    code: String,
    types: String,
    names: Names,
}

impl Source {
    fn both(&mut self, text: &str) {
        self.code += text;
        self.types += text;
    }

    /// The function of a routine, or the method of an object, which is indented; and its coroutine.
    fn routine(&mut self, interface: &Interface, name: &str, indent: &str) {
        let result = self.result(interface, name);
        let asynchronous = self.names.take(&format!("{name}_async"));
        for (name, is_async) in [(name, false), (asynchronous.as_str(), true)] {
            let signature = Signature::new(interface, indent.is_empty());
            let (word, call) = match (is_async, indent.is_empty()) {
                (false, true) => ("def", format!("{}.call", signature.owner)),
                (true, true) => ("async def", format!("await {}.acall", signature.owner)),
                (false, false) => ("def", format!("{}.object.call", signature.owner)),
                (true, false) => ("async def", format!("await {}.object.acall", signature.owner)),
            };
            let gap = if indent.is_empty() { "\n\n" } else { "\n" };
            let head = format!(
                "{gap}{indent}{word} {name}({}) -> {}:",
                signature.declared.join(", "),
                result.annotation
            );
            self.types += &format!("{head} ...\n");
            self.code += &format!("{head}\n");
            self.code += &docstring(interface, indent);
            let called = match interface.class.is_empty() {
                true => interface.name.as_str(),
                false => interface.method(),
            };
            let call = format!("{call}(\"{called}\"{})", signature.given);
            self.code += &match &result.class {
                Some(class) => format!("{indent}    return {class}(*{call})\n"),
                None if result.annotation == "None" => format!("{indent}    {call}\n"),
                None => format!(
                    "{indent}    _result: {} = {call}\n{indent}    return _result\n",
                    result.annotation
                ),
            };
        }
    }

    /// The type of the results; several have a class of their own.
    fn result(&mut self, interface: &Interface, name: &str) -> ResultType {
        let back: Vec<&Param> = interface.results().collect();
        match back[..] {
            [] => ResultType { annotation: "None".to_string(), class: None },
            [one] => ResultType { annotation: result_type(one), class: None },
            _ if interface.class.is_empty() => {
                let class = self.names.take(&format!("{name}_results"));
                self.both(&results_class(&class, &back));
                ResultType { annotation: class.clone(), class: Some(class) }
            }
            // Its class is beside that of the objects, which is not complete here.
            _ => {
                let types: Vec<String> = back.iter().map(|one| result_type(one)).collect();
                let annotation = format!("tuple[{}]", types.join(", "));
                ResultType { annotation, class: None }
            }
        }
    }

    fn class(&mut self, class: &Class) {
        let name = self.names.take(&class.name);
        let outer = core::mem::replace(&mut self.names, Names::new(WORDS));
        for fixed in ["object", "end"] {
            self.names.take(fixed);
        }
        let begin = "    def __init__(self, server: _call.Connection, *, timeout: float | None = None, priority: int = 0) -> None:";
        self.both(&format!("\n\nclass {name}:\n"));
        let doc = lines(&super::comment(&class.doc), "    ");
        self.code +=
            &format!("    \"\"\"An object of the class {name} at a server.{doc}\"\"\"\n\n");
        self.types += "    object: _call.Object\n\n";
        self.code += &format!(
            "{begin}\n        self.object = server.object(\"{}\", timeout=timeout, priority=priority)\n",
            class.name
        );
        self.types += &format!("{begin} ...\n");
        for method in &class.methods {
            let name = self.names.take(method.method());
            self.routine(method, &name, "    ");
        }
        for (head, body) in [
            ("def end(self) -> None:", "self.object.end()"),
            ("def __enter__(self) -> {}:", "return self"),
            ("def __exit__(self, *_error: _Any) -> None:", "self.object.end()"),
        ] {
            let head = head.replace("{}", &name);
            self.types += &format!("\n    {head} ...\n");
            self.code += &format!("\n    {head}\n        {body}\n");
        }
        self.names = outer;
    }
}

/// The type of what a function returns.
struct ResultType {
    annotation: String,
    /// The class that several results have.
    class: Option<String>,
}

/// The parameters of a function, and what it gives to `Connection.call`.
struct Signature {
    owner: String,
    declared: Vec<String>,
    given: String,
}

impl Signature {
    fn new(interface: &Interface, is_routine: bool) -> Signature {
        let mut own = Names::new(WORDS);
        let owner = own.take(if is_routine { "server" } else { "self" });
        let options: &[(&str, &str)] = match is_routine {
            true => &[("timeout", "float | None = None"), ("priority", "int = 0")],
            false => &[("timeout", "float | None = None")],
        };
        let options: Vec<(String, String, &str)> = options
            .iter()
            .map(|(option, ty)| (own.take(option), (*option).to_string(), *ty))
            .collect();
        let mut declared = Vec::from([match is_routine {
            true => format!("{owner}: _call.Connection"),
            false => owner.clone(),
        }]);
        declared.push("/".to_string());
        let (mut given, mut optional, mut keywords) = (String::new(), String::new(), Vec::new());
        for param in interface.params.iter().filter(|param| param.mode.is_sent()) {
            let name = own.take(&param.name);
            let ty = argument_type(param);
            if interface.is_optional(param) {
                let called = match OPTIONS.contains(&param.name.as_str()) {
                    true => format!("{}_", param.name),
                    false => param.name.clone(),
                };
                let gap = if optional.is_empty() { "" } else { ", " };
                optional += &format!("{gap}\"{called}\": {name}");
                keywords.push(format!("{name}: {ty} | None = None"));
            } else {
                declared.push(format!("{name}: {ty}"));
                given += &format!(", {name}");
            }
        }
        declared.push("*".to_string());
        declared.extend(keywords);
        for (name, option, ty) in options {
            declared.push(format!("{name}: {ty}"));
            given += &format!(", {option}={name}");
        }
        if !optional.is_empty() {
            given += &format!(", **_given({{{optional}}})");
        }
        Signature { owner, declared, given }
    }
}

/// Lines after the first of a docstring.
fn lines(text: &[String], indent: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = text
        .iter()
        .map(|line| format!("{indent}{}", line.trim_end()).trim_end().to_string())
        .collect();
    format!("\n\n{}\n{indent}", lines.join("\n"))
}

fn docstring(interface: &Interface, indent: &str) -> String {
    let inner = format!("{indent}    ");
    let text = lines(&documentation(interface), &inner);
    format!("{inner}\"\"\"Calls `{}`.{text}\"\"\"\n", interface.name)
}

fn results_class(name: &str, back: &[&Param]) -> String {
    let mut own = Names::new(WORDS);
    // Methods of tuples.
    for taken in ["count", "index"] {
        own.take(taken);
    }
    let fields =
        back.iter().map(|one| format!("    {}: {}\n", own.take(&one.name), result_type(one)));
    let fields: String = fields.collect();
    format!("\n\nclass {name}(_NamedTuple):\n{fields}")
}

fn dtype(element: Element) -> &'static str {
    match element {
        Element::I8 => "int8",
        Element::I16 => "int16",
        Element::I32 => "int32",
        Element::I64 => "int64",
        Element::U8 => "uint8",
        Element::U16 => "uint16",
        Element::U32 => "uint32",
        Element::U64 => "uint64",
        Element::F32 => "float32",
        Element::F64 => "float64",
        Element::C64 => "complex64",
        Element::C128 => "complex128",
    }
}

fn scalar(element: Element) -> &'static str {
    match element {
        Element::F32 | Element::F64 => "float",
        Element::C64 | Element::C128 => "complex",
        _ => "int",
    }
}

fn argument_type(param: &Param) -> String {
    match &param.ty {
        Type::Number(element) if param.dims.is_empty() => scalar(*element).to_string(),
        Type::Number(_) => "_npt.ArrayLike".to_string(),
        Type::String => "str".to_string(),
        Type::File => "str | _os.PathLike[str] | bytes | _BinaryIO".to_string(),
        Type::Callback(params) => {
            let sent = params.iter().filter(|one| one.mode.is_sent()).map(result_type);
            let sent: Vec<String> = sent.collect();
            let back = params.iter().filter(|one| one.mode.is_returned()).map(argument_type);
            let back: Vec<String> = back.collect();
            let back = match &back[..] {
                [] => "None".to_string(),
                [one] => one.clone(),
                several => format!("tuple[{}]", several.join(", ")),
            };
            format!("_Callable[[{}], {back}]", sent.join(", "))
        }
    }
}

fn result_type(param: &Param) -> String {
    match &param.ty {
        Type::Number(element) if param.is_array() => {
            format!("_npt.NDArray[_np.{}]", dtype(*element))
        }
        Type::Number(element) => scalar(*element).to_string(),
        Type::File => "bytes".to_string(),
        Type::String | Type::Callback(_) => "str".to_string(),
    }
}
