//! The description of a routine as a person reads it, with a call in C and in Python.

use kumi_idl::{Interface, Mode, Param, Type};

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

fn in_c(interface: &Interface) -> String {
    let name = &interface.name;
    if interface.is_constructor() {
        return format!("grpc_object_handle_default_np(&object, \"{name}\");");
    }
    let begin = match interface.class.is_empty() {
        false => format!("grpc_invoke_np(&object, \"{}\"", interface.method()),
        true => "grpc_call(&handle".to_owned(),
    };
    let passed = interface.params.iter().filter(|param| param.mode != Mode::Work);
    let arguments = passed.map(|param| {
        let by_address = param.scalar().is_some() && param.mode.is_returned();
        format!(", {}{}", if by_address { "&" } else { "" }, param.name)
    });
    format!("{begin}{});", arguments.collect::<String>())
}

fn in_python(interface: &Interface) -> String {
    if interface.is_constructor() {
        return format!("object = server.object(\"{}\")", interface.name);
    }
    let needed = |param: &&Param| param.mode.is_sent() && !interface.is_optional(param);
    let arguments = interface.params.iter().filter(needed).map(|param| param.name.as_str());
    let arguments: Vec<&str> = arguments.collect();
    let results: Vec<&str> = interface.results().map(|param| param.name.as_str()).collect();
    let call = match interface.class.is_empty() {
        false => format!("object.{}({})", interface.method(), arguments.join(", ")),
        true => {
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

    #[test]
    fn a_text_with_a_default_may_be_left_out_of_the_example_as_of_stubs() {
        let text = of(
            "Define run(mode_in string name = \"all\", mode_in int k) Calls \"C\" run(name, k);",
        );
        assert!(text.ends_with("Python  server.call(\"run\", k)\n"), "{text}");
    }

    #[test]
    fn a_method_has_its_own_name_in_the_examples() {
        let text = of("DefClass c { DefState { int s; } DefMethod m(mode_in int k) { s = k; } }");
        assert!(text.contains("C       grpc_invoke_np(&object, \"m\", k);\n"), "{text}");
        assert!(text.ends_with("Python  object.m(k)\n"), "{text}");
    }
}
