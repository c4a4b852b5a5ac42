//! A header for C with an inline function for each routine.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Names, StubFile, Stubs, documentation, is_value, made, parts, passed};
use crate::model::{Class, Interface, Mode, Module, Param, Type};

/// Words of C and C++, which has the header too, and macros that headers of C define.
const WORDS: &str = "\
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t \
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr \
    constinit continue decltype default delete do double dynamic_cast else enum explicit export \
    extern false float for friend goto if inline int long mutable namespace new noexcept not \
    not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires \
    restrict return short signed sizeof static static_assert static_cast struct switch template \
    this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned \
    using virtual void volatile wchar_t while xor xor_eq complex I";

pub fn stubs(module: &Module, unit: &str) -> Stubs {
    let guard = format!("KUMI_{}_H", unit.to_ascii_uppercase());
    let mut text = format!("/* {} */\n#ifndef {guard}\n#define {guard}\n\n", made(unit));
    text +=
        "#include <grpc.h>\n#include <stdint.h>\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    let mut names = Names::new("");
    let (routines, classes) = parts(module);
    for interface in routines {
        let name = names.take(&format!("call_{}", interface.name));
        text += &handle(interface, &mut names, &name);
        text += &calls(interface, &mut names, &name);
    }
    for class in classes {
        let name = names.take(&format!("call_{}", class.name));
        text += &object(class, &mut names, &name);
        for method in &class.methods {
            let name = names.take(&format!("{name}_{}", method.method()));
            text += &calls(method, &mut names, &name);
        }
    }
    text += "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
    Stubs { files: Vec::from([StubFile { name: format!("{unit}.h"), text }]), left_out: Vec::new() }
}

/// The function that makes the handle of a routine.
fn handle(interface: &Interface, names: &mut Names, name: &str) -> String {
    let function = names.take(&format!("{name}_handle"));
    format!(
        "\n/* Makes the handle for {name}. */\nstatic inline grpc_error_t {function}(grpc_function_handle_t *handle)\n{{\n    \
         return grpc_function_handle_default(handle, \"{}\");\n}}\n",
        interface.name
    )
}

/// The function that makes an object.
fn object(class: &Class, names: &mut Names, name: &str) -> String {
    let function = names.take(&format!("{name}_object"));
    let mut text = String::from("\n/*");
    for line in super::comment(&class.doc) {
        text += &format!(" {line}\n *");
    }
    text += &format!(
        " Makes an object; grpc_object_handle_destruct_np() ends it. */\nstatic inline grpc_error_t \
         {function}(grpc_object_handle_t_np *object)\n{{\n    return grpc_object_handle_default_np(object, \"{}\");\n}}\n",
        class.name
    );
    text
}

/// The functions that call a routine or method, waiting and not.
fn calls(interface: &Interface, names: &mut Names, name: &str) -> String {
    let lines = documentation(interface);
    let mut text = String::from("\n/*");
    for (at, line) in lines.iter().enumerate() {
        text += if at == 0 { " " } else { "\n * " };
        text += line.trim_end();
    }
    text += " */\n";
    let is_method = !interface.class.is_empty();
    let (owner, ty) = match is_method {
        true => ("object", "grpc_object_handle_t_np"),
        false => ("handle", "grpc_function_handle_t"),
    };
    for session in [None, Some("session")] {
        let mut own = Names::new(WORDS);
        let owner = own.take(owner);
        let session = session.map(|it| own.take(it));
        let mut declared = Vec::from([format!("{ty} *{owner}")]);
        let mut given = Vec::from([owner]);
        if is_method {
            given.push(format!("\"{}\"", interface.method()));
        }
        if let Some(session) = &session {
            declared.push(format!("grpc_sessionid_t *{session}"));
            given.push(session.clone());
        }
        for param in passed(interface) {
            let name = own.take(&param.name);
            declared.push(declaration(param, &name));
            given.push(name);
        }
        let (function, call) = match (session, is_method) {
            (None, false) => (String::from(name), "grpc_call"),
            (None, true) => (String::from(name), "grpc_invoke_np"),
            (Some(_), false) => (names.take(&format!("{name}_async")), "grpc_call_async"),
            (Some(_), true) => (names.take(&format!("{name}_async")), "grpc_invoke_async_np"),
        };
        text += &format!(
            "static inline grpc_error_t {function}({})\n{{\n    return {call}({});\n}}\n",
            declared.join(", "),
            given.join(", ")
        );
    }
    text
}

/// A parameter as C declares it.
fn declaration(param: &Param, name: &str) -> String {
    let read_only = if param.mode == Mode::In { "const " } else { "" };
    match &param.ty {
        Type::Number(it) if is_value(param) => format!("{} {name}", it.c_name()),
        Type::Number(it) => format!("{read_only}{} *{name}", it.c_name()),
        Type::String => format!("{read_only}char *{name}"),
        // Of the path.
        Type::File => format!("const char *{name}"),
        Type::Callback(params) => {
            let mut own = Names::new(WORDS);
            let inner = params.iter().map(|param| declaration(param, &own.take(&param.name)));
            let inner: Vec<String> = inner.collect();
            let inner = if inner.is_empty() { String::from("void") } else { inner.join(", ") };
            format!("void (*{name})({inner})")
        }
    }
}
