//! A class for Java with a method for each routine.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Names, StubFile, Stubs, documentation, made, parts};
use crate::model::{Class, Element, Interface, Module, Param, Type};

/// Words of Java, and methods of all objects.
const WORDS: &str = "\
    abstract assert boolean break byte case catch char class const continue default do double else \
    enum extends false final finally float for goto if implements import instanceof int interface \
    long native new null package private protected public record return short static strictfp \
    super switch synchronized this throw throws transient true try var void volatile while yield \
    clone equals finalize getClass hashCode notify notifyAll toString wait";

/// Names of types that the class uses.
const TYPES: &str = "\
    Byte Call Callback Double Float Integer KumiClient Long Object Override Path RemoteObject \
    Result Scalar Short String AutoCloseable";

pub fn stubs(module: &Module, unit: &str) -> Stubs {
    let name = camel(unit);
    let mut types = Names::new(WORDS);
    for taken in TYPES.split(' ').chain([name.as_str()]) {
        types.take(taken);
    }
    let mut text = format!("// {}\n\n", made(unit));
    text += "import java.nio.file.Path;\nimport kumi.call.Call;\nimport kumi.call.Callback;\nimport kumi.call.KumiClient;\n\
             import kumi.call.RemoteObject;\nimport kumi.call.Result;\nimport kumi.call.idl.Scalar;\n\n";
    text += &format!(
        "/** Typed calls of routines. Methods that end with `Call` prepare a call, for time limits and places of results. */\n\
         public final class {name} {{\n    private final KumiClient client;\n\n    \
         /** Calls through this client. */\n    public {name}(KumiClient client) {{\n        this.client = client;\n    }}\n"
    );
    let mut names = Names::new(WORDS);
    let (routines, classes) = parts(module);
    for interface in routines {
        text += &routine(interface, &mut names, &mut types, "client", "    ");
    }
    for class in classes {
        text += &object(class, &mut types);
    }
    text += "}\n";
    Stubs {
        files: Vec::from([StubFile { name: format!("{name}.java"), text }]),
        left_out: Vec::new(),
    }
}

/// The name of a class: `two_words` is `TwoWords`.
fn camel(name: &str) -> String {
    let parts = name.split('_').filter(|part| !part.is_empty()).map(|part| {
        let (first, rest) = part.split_at(1);
        first.to_ascii_uppercase() + rest
    });
    parts.collect()
}

/// Text for a documentation comment.
fn escaped(line: &str) -> String {
    line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('@', "&#64;")
}

fn javadoc(lines: &[String], indent: &str) -> String {
    let mut text = format!("{indent}/**\n");
    for line in lines {
        text += format!("{indent} * {}", escaped(line.trim())).trim_end();
        text += "\n";
    }
    text + &format!("{indent} */\n")
}

/// The class of objects of a class.
fn object(class: &Class, types: &mut Names) -> String {
    let name = types.take(&camel(&super::identifier(&class.name)));
    let mut lines = Vec::from([format!("An object of the class {} at a server.", class.name)]);
    lines.extend(super::comment(&class.doc));
    let mut text = format!("\n{}", javadoc(&lines, "    "));
    text += &format!(
        "    public static final class {name} implements AutoCloseable {{\n        private final RemoteObject object;\n\n        \
         /** Makes an object. */\n        public {name}(KumiClient client) {{\n            this.object = client.object(\"{}\");\n        }}\n",
        class.name
    );
    let mut names = Names::new(WORDS);
    names.take("close");
    for method in &class.methods {
        text += &routine(method, &mut names, types, "object", "        ");
    }
    text + "\n        @Override\n        public void close() {\n            object.close();\n        }\n    }\n"
}

/// The documentation of a routine, with the use of arguments that may be left out.
fn explained(interface: &Interface) -> Vec<String> {
    let mut lines = documentation(interface);
    if interface.params.iter().any(|param| interface.is_optional(param)) {
        lines.push(
            "null stands for a default, or for a size that follows from the shape of an array."
                .to_string(),
        );
    }
    lines
}

/// The methods of a routine: one prepares a call, one makes it.
fn routine(
    interface: &Interface,
    names: &mut Names,
    types: &mut Names,
    owner: &str,
    indent: &str,
) -> String {
    let called = match interface.class.is_empty() {
        true => interface.name.as_str(),
        false => interface.method(),
    };
    let name = names.take(called);
    let prepare = names.take(&format!("{name}Call"));
    let mut own = Names::new(WORDS);
    // The field, which a parameter of its name would hide, and the variable.
    own.take(owner);
    own.take("result");
    let (mut declared, mut given, mut sets) = (Vec::new(), Vec::new(), String::new());
    for param in interface.params.iter().filter(|param| param.mode.is_sent()) {
        let name = own.take(&param.name);
        declared.push(format!("{} {name}", argument_type(param, interface.is_optional(param))));
        sets += &format!("\n{indent}            .set(\"{}\", {name})", param.name);
        given.push(name);
    }
    let (declared, given) = (declared.join(", "), given.join(", "));
    let lines = javadoc(&explained(interface), indent);
    let back: Vec<&Param> = interface.results().collect();
    let (ty, class, body) = match back[..] {
        [] => ("void".to_string(), String::new(), format!("{prepare}({given}).call();")),
        [one] => {
            let value = result(one, &format!("{prepare}({given}).call()"));
            (result_type(one).to_string(), String::new(), format!("return {value};"))
        }
        _ => {
            let ty = types.take(&format!("{}Results", camel(&super::identifier(&interface.name))));
            let mut own = Names::new(WORDS);
            let fields =
                back.iter().map(|one| format!("{} {}", result_type(one), own.take(&one.name)));
            let fields: Vec<String> = fields.collect();
            let class = format!(
                "\n{indent}/** The results of {}. */\n{indent}public record {ty}({}) {{}}\n",
                interface.name,
                fields.join(", ")
            );
            let values: Vec<String> = back.iter().map(|one| result(one, "result")).collect();
            let body = format!(
                "Result result = {prepare}({given}).call();\n{indent}    return new {ty}({});",
                values.join(", ")
            );
            (ty, class, body)
        }
    };
    format!(
        "{class}\n{indent}/** Prepares {name}. */\n{indent}public Call {prepare}({declared}) {{\n{indent}    \
         return {owner}.prepare(\"{called}\"){sets};\n{indent}}}\n\n{lines}{indent}public {ty} {name}({declared}) {{\n{indent}    \
         {body}\n{indent}}}\n"
    )
}

/// The type of a number; of unsigned ones the next that holds them, and of 64 bits the one of as many bits.
fn scalar(element: Element, is_optional: bool) -> &'static str {
    let (plain, boxed) = match element {
        Element::I8 => ("byte", "Byte"),
        Element::I16 | Element::U8 => ("short", "Short"),
        Element::I32 | Element::U16 => ("int", "Integer"),
        Element::I64 | Element::U32 | Element::U64 => ("long", "Long"),
        Element::F32 => ("float", "Float"),
        Element::F64 => ("double", "Double"),
        Element::C64 | Element::C128 => ("Scalar", "Scalar"),
    };
    if is_optional { boxed } else { plain }
}

fn array(element: Element) -> &'static str {
    match element {
        Element::I8 | Element::U8 => "byte[]",
        Element::I16 | Element::U16 => "short[]",
        Element::I32 | Element::U32 => "int[]",
        Element::I64 | Element::U64 => "long[]",
        Element::F32 | Element::C64 => "float[]",
        Element::F64 | Element::C128 => "double[]",
    }
}

fn argument_type(param: &Param, is_optional: bool) -> &'static str {
    match &param.ty {
        Type::Number(element) if param.is_array() => array(*element),
        Type::Number(element) => scalar(*element, is_optional),
        Type::String => "String",
        Type::File => "Path",
        Type::Callback(_) => "Callback",
    }
}

fn result_type(param: &Param) -> &'static str {
    match &param.ty {
        Type::File => "byte[]",
        _ => argument_type(param, false),
    }
}

/// The expression that takes a result.
fn result(param: &Param, from: &str) -> String {
    let name = &param.name;
    let method = match &param.ty {
        Type::Number(element) if param.is_array() => match array(*element) {
            "byte[]" => "bytes",
            "short[]" => "shorts",
            "int[]" => "ints",
            "long[]" => "longs",
            "float[]" => "floats",
            _ => "doubles",
        },
        Type::Number(element) => match scalar(*element, false) {
            "Scalar" => "scalar",
            "double" => "real",
            "float" => return format!("(float) {from}.real(\"{name}\")"),
            "long" => "integer",
            narrow => return format!("({narrow}) {from}.integer(\"{name}\")"),
        },
        Type::String | Type::Callback(_) => "text",
        Type::File => "bytes",
    };
    format!("{from}.{method}(\"{name}\")")
}
