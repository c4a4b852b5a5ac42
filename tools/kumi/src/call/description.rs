//! The description of a routine as a person reads it, with a call in C and in Python.

use kumi_idl::{Expr, Interface, Mode, Param, Type};

/// Parameters with sizes and defaults, and an example for each language.
pub fn described(interface: &Interface) -> String {
    let mut text = format!("{}\n", interface.name);
    if interface.is_constructor() {
        text += "  a class: its methods are called on objects of it\n";
    }
    if !interface.doc.is_empty() {
        text += &format!("  {}\n", interface.doc);
    }
    if let Some(parallel) = interface.parallel_text() {
        text += &format!("  a job of {parallel} ranks\n");
    }
    let lines: Vec<(&str, String, &Param)> =
        interface.params.iter().map(|it| (mode(it), kind(interface, it), it)).collect();
    let width = lines.iter().map(|(_, kind, _)| kind.chars().count()).max().unwrap_or(0).max(10);
    for (mode, kind, param) in lines {
        text += &format!("  {mode:<6}{kind:<width$}  {}", param.name);
        if let Some(default) = &param.default {
            text += &format!(" = {}", interface.shown(default));
        }
        if !param.doc.is_empty() {
            text += &format!("  {}", param.doc);
        }
        text.push('\n');
    }
    text + &format!("C       {}\nPython  {}\n", in_c(interface), in_python(interface))
}

fn mode(param: &Param) -> &'static str {
    match param.mode {
        Mode::In => "in",
        Mode::Out => "out",
        Mode::InOut => "inout",
        Mode::Work => "work",
    }
}

/// Its type with the sizes of its dimensions.
fn kind(interface: &Interface, param: &Param) -> String {
    let name = match &param.ty {
        Type::Number(element) => element.to_string(),
        Type::String => "string".to_owned(),
        Type::File => "file".to_owned(),
        Type::Callback(inner) => {
            let names: Vec<String> =
                inner.iter().map(|one| format!("{} {}", mode(one), one.name)).collect();
            format!("callback({})", names.join(", "))
        }
    };
    let sizes =
        param.dims.iter().map(|dimension| format!("[{}]", interface.shown(&dimension.size)));
    name + &sizes.collect::<String>()
}

/// The method's name without its class.
fn method(interface: &Interface) -> Option<&str> {
    if interface.class.is_empty() || interface.is_constructor() {
        return None;
    }
    Some(interface.name.strip_prefix(&format!("{}.", interface.class)).unwrap_or(&interface.name))
}

fn in_c(interface: &Interface) -> String {
    let name = &interface.name;
    if interface.is_constructor() {
        return format!("grpc_object_handle_default_np(&object, \"{name}\");");
    }
    let begin = match method(interface) {
        Some(method) => format!("grpc_invoke_np(&object, \"{method}\""),
        None => "grpc_call(&handle".to_owned(),
    };
    let passed = interface.params.iter().filter(|param| param.mode != Mode::Work);
    let arguments = passed.map(|param| {
        let by_address = param.scalar().is_some() && param.mode.is_returned();
        format!(", {}{}", if by_address { "&" } else { "" }, param.name)
    });
    format!("{begin}{});", arguments.collect::<String>())
}

/// Whether callers in Python may leave it out: a default, or the size of an array that is sent.
fn may_be_left_out(interface: &Interface, index: usize) -> bool {
    let param = &interface.params[index];
    let sent = interface.params.iter().filter(|it| it.is_array() && it.mode.is_sent());
    let mut sizes = sent.flat_map(|it| &it.dims).flat_map(|it| [Some(&it.size), it.end.as_ref()]);
    let names_it = |expr: Option<&Expr>| matches!(expr, Some(Expr::Param(at)) if usize::try_from(*at) == Ok(index));
    param.scalar().is_some() && (param.default.is_some() || sizes.any(names_it))
}

fn in_python(interface: &Interface) -> String {
    if interface.is_constructor() {
        return format!("object = server.object(\"{}\")", interface.name);
    }
    let mut arguments: Vec<&str> = Vec::new();
    let mut results: Vec<&str> = Vec::new();
    for (index, param) in interface.params.iter().enumerate() {
        if param.mode.is_sent() && !may_be_left_out(interface, index) {
            arguments.push(&param.name);
        }
        let is_status = interface.status.is_some_and(|status| status as usize == index);
        if param.mode.is_returned() && !is_status {
            results.push(&param.name);
        }
    }
    let call = match method(interface) {
        Some(method) => format!("object.{method}({})", arguments.join(", ")),
        None => {
            let first = format!("\"{}\"", interface.name);
            let all: Vec<&str> = std::iter::once(first.as_str()).chain(arguments).collect();
            format!("server.call({})", all.join(", "))
        }
    };
    if results.is_empty() { call } else { format!("{} = {call}", results.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::described;

    /// The text of the only routine of a description.
    fn of(description: &str) -> String {
        let parsed = kumi_idl::parse(description.as_bytes());
        let module = parsed.module.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
        let methods = module.classes.into_iter().flat_map(|class| class.methods);
        module.interfaces.into_iter().chain(methods).map(|it| described(&it)).collect()
    }

    #[test]
    fn sizes_defaults_and_examples_are_shown() {
        let text = of(
            "Define solve(mode_in int n, mode_in int m = 2 * n, mode_in double A[n][n], \
             mode_inout double b[n][m], mode_work double w[n + 1], mode_out double norm, mode_out int info)\n\
             \"solves\" @status(info) Calls \"C\" solve(n, m, A, b, w, norm, info);",
        );
        let wanted = "solve\n  solves\n  in    int           n\n  in    int           m = 2 * n\n  \
             in    double[n][n]  A\n  inout double[n][m]  b\n  work  double[n + 1] w\n";
        let tight = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(tight(&text).starts_with(&tight(wanted)), "{text}");
        assert!(
            text.contains("\nC       grpc_call(&handle, n, m, A, b, &norm, &info);\n"),
            "{text}"
        );
        assert!(text.ends_with("\nPython  b, norm = server.call(\"solve\", A, b)\n"), "{text}");
    }

    #[test]
    fn what_callers_give_is_in_the_examples() {
        let text = of(
            "Define run(mode_in string name, f(mode_in double x, mode_out double y), mode_in filename from, \
             mode_in int k) Calls \"C\" run(name, f, from, k);",
        );
        assert!(text.contains("callback(in x, out y)  f\n"), "{text}");
        assert!(text.contains("grpc_call(&handle, name, f, from, k);"), "{text}");
        assert!(text.ends_with("Python  server.call(\"run\", name, f, from, k)\n"), "{text}");
    }
}
