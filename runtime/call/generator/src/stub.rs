//! Generated C source of an executable: the code of its descriptions, and for each routine a function that
//! calls it with the arguments in the arena.

use std::fmt::Write;

use kumi_idl::{Class, CodeLines, Element, Expr, Interface, Language, Mode, Module, Param, Type};

use kumi_call_ffi::passed;

/// Content of one executable: a routine, or the methods of a class.
#[derive(Debug)]
pub struct Unit<'a> {
    /// The name of the routine or class.
    pub name: &'a str,
    /// The C code of the class's state.
    pub state: &'a str,
    /// The routines.
    pub routines: Vec<&'a Interface>,
}

impl<'a> Unit<'a> {
    /// The unit of a routine that is not a method.
    pub fn of_routine(interface: &'a Interface) -> Unit<'a> {
        Unit { name: &interface.name, state: "", routines: vec![interface] }
    }

    /// The unit of a class.
    pub fn of_class(class: &'a Class) -> Unit<'a> {
        let routines = class.methods.iter().collect();
        Unit { name: &class.name, state: &class.state, routines }
    }

    /// Whether it contains a parallel routine.
    pub fn is_parallel(&self) -> bool {
        self.routines.iter().any(|interface| interface.parallel.is_some())
    }
}

/// A C source under construction, with its line number.
struct Source<'a> {
    text: String,
    /// The name of the descriptions' file in the compiler's messages.
    described: &'a str,
}

/// The source of an executable whose file is called `file`. `described` is the name of the descriptions in
/// the compiler's messages.
///
/// # Errors
/// A routine that cannot be called from C.
pub fn source(
    unit: &Unit<'_>,
    module: &Module,
    lines: &CodeLines,
    file: &str,
    described: &str,
) -> Result<String, String> {
    let mut source = Source { text: String::new(), described };
    source.line("/* Made by `kumi call build`; it is made anew with the next. */");
    for (index, code) in module.globals.iter().enumerate() {
        source.foreign(code, lines.globals.get(index).copied(), file);
    }
    source.line("#include <stddef.h>\n#include <stdint.h>");
    if !unit.state.is_empty() {
        source.foreign(unit.state, lines.states.get(unit.name).copied(), file);
    }
    for (index, interface) in unit.routines.iter().enumerate() {
        let body = lines.bodies.get(&interface.name).copied();
        source.routine(index, interface, body, file)?;
    }
    let main = if unit.is_parallel() { "kumi_slot_parallel_main" } else { "kumi_slot_main" };
    source.table(&unit.routines, main)?;
    Ok(source.text)
}

impl Source<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Adds code of a description with `#line`, so that messages name its own lines.
    fn foreign(&mut self, code: &str, line: Option<usize>, file: &str) {
        if let Some(line) = line {
            let described = quoted(self.described);
            self.line(&format!("#line {line} {described}"));
        }
        self.line(code);
        if line.is_some() {
            let next = self.text.lines().count() + 2;
            let file = quoted(file);
            self.line(&format!("#line {next} {file}"));
        }
    }

    fn routine(
        &mut self,
        index: usize,
        interface: &Interface,
        line: Option<usize>,
        file: &str,
    ) -> Result<(), String> {
        let target = &interface.target;
        let called = if target.body.is_empty() {
            if target.language == Language::Python {
                return Err("it is a function of a Python server".to_owned());
            }
            let symbol = format!("kumi_symbol_{index}");
            self.declare(&symbol, interface)?;
            symbol
        } else {
            let function = format!("kumi_body_{index}");
            let params: Result<Vec<String>, String> =
                interface.params.iter().map(|param| own(param, &param.name)).collect();
            let params = params?.join(", ");
            let params = if params.is_empty() { "void" } else { params.as_str() };
            self.line(&format!("static void {function}({params})\n{{"));
            self.foreign(&target.body, line, file);
            self.line("}");
            function
        };
        let (_, values) = arguments(interface)?;
        self.line(&format!(
            "static void kumi_call_{index}(void *const *at, const size_t *text)\n{{\n    (void)at, (void)text;"
        ));
        let result = match target.result {
            None => String::new(),
            Some(result) => {
                format!("*({} *)at[{result}] = ", returned(interface, result)?.c_name())
            }
        };
        self.line(&format!("    {result}{called}({});\n}}", values.join(", ")));
        Ok(())
    }

    /// Declares the symbol under a name of our own, so that a header may declare it too.
    fn declare(&mut self, name: &str, interface: &Interface) -> Result<(), String> {
        let (types, _) = arguments(interface)?;
        let returned = match interface.target.result {
            None => "void",
            Some(result) => returned(interface, result)?.c_name(),
        };
        let types = if types.is_empty() { "void".to_owned() } else { types.join(", ") };
        let symbol = quoted(&interface.target.linked());
        self.line("#ifdef __cplusplus\nextern \"C\"\n#endif");
        self.line(&format!("{returned} {name}({types}) __asm__({symbol});"));
        Ok(())
    }

    /// The table for `main`: each routine's description and function.
    fn table(&mut self, routines: &[&Interface], main: &str) -> Result<(), String> {
        self.line(
            "struct kumi_slot_routine {\n    const char *description;\n    size_t length;\n    \
             void (*call)(void *const *, const size_t *);\n};\n#ifdef __cplusplus\nextern \"C\"\n#endif",
        );
        self.line(&format!("int {main}(const struct kumi_slot_routine *routines, size_t count);"));
        self.line("static const struct kumi_slot_routine kumi_routines[] = {");
        for (index, interface) in routines.iter().enumerate() {
            let json = interface.to_json().map_err(|error| error.to_string())?;
            let length = json.len();
            self.line(&format!("    {{\n{},\n     {length}, kumi_call_{index}}},", pieces(&json)));
        }
        self.line("};");
        let count = routines.len();
        self.line(&format!("int main(void)\n{{\n    return {main}(kumi_routines, {count});\n}}"));
        Ok(())
    }
}

/// A C string literal. Octal escapes have three digits, so that no following digit belongs to them.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(byte));
            }
            b' '..=b'~' => quoted.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => drop(write!(quoted, "\\{byte:03o}")),
        }
    }
    quoted.push('"');
    quoted
}

/// A long text as several adjacent literals.
fn pieces(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let lines = letters.chunks(100).map(|piece| quoted(&piece.iter().collect::<String>()));
    lines.map(|line| format!("     {line}")).collect::<Vec<_>>().join("\n")
}

/// The C declaration of a parameter; without a name, its type.
fn own(param: &Param, name: &str) -> Result<String, String> {
    let spaced = |ty: &str| if name.is_empty() { ty.to_owned() } else { format!("{ty} {name}") };
    Ok(match &param.ty {
        Type::Number(element) if param.dims.is_empty() && param.mode == Mode::In => {
            spaced(element.c_name())
        }
        Type::Number(element) => format!("{} *{name}", element.c_name()),
        Type::String if param.mode == Mode::In => format!("const char *{name}"),
        Type::String => format!("char *{name}"),
        Type::File => format!("const char *{name}"),
        Type::Callback(params) => {
            // A parameter that cannot be passed to a function.
            passed(params, false).map_err(str::to_owned)?;
            let types: Result<Vec<String>, String> =
                params.iter().map(|inner| own(inner, "")).collect();
            let types = types?;
            let types = if types.is_empty() { "void".to_owned() } else { types.join(", ") };
            format!("void (*{name})({types})")
        }
    })
}

/// C types of the symbol's arguments, and their expressions.
fn arguments(interface: &Interface) -> Result<(Vec<String>, Vec<String>), String> {
    let target = &interface.target;
    let fortran = target.language == Language::Fortran;
    let (mut types, mut values, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    let mut expressions = interface.params.len()..;
    let mut add = |(ty, value): (String, String)| {
        types.push(ty);
        values.push(value);
    };
    let by_value = |ty: &str, place: usize| (ty.to_owned(), format!("*({ty} *)at[{place}]"));
    let by_address = |place: usize| ("void *".to_owned(), format!("at[{place}]"));
    for argument in &target.arguments {
        match argument {
            Expr::Param(index) => {
                let index = *index as usize;
                let param = interface.params.get(index);
                let param = param.ok_or("an argument that is not a parameter")?;
                if let Type::Callback(params) = &param.ty {
                    passed(params, fortran).map_err(str::to_owned)?;
                }
                if fortran && matches!(param.ty, Type::String | Type::File) {
                    lengths.push(format!("text[{index}]"));
                }
                match param.scalar().filter(|_| !fortran && param.mode == Mode::In) {
                    Some(element) => add(by_value(element.c_name(), index)),
                    None if target.body.is_empty() => add(by_address(index)),
                    None => {
                        let ty = own(param, "")?;
                        let value = format!("({ty})at[{index}]");
                        add((ty, value));
                    }
                }
            }
            Expr::Text(text) => {
                if fortran {
                    lengths.push(text.len().to_string());
                }
                add(("const char *".to_owned(), quoted(text)));
            }
            other => {
                let place = expressions.next().unwrap_or(usize::MAX);
                match interface.passed_as(other) {
                    Some(element) if !fortran => add(by_value(element.c_name(), place)),
                    _ => add(by_address(place)),
                }
            }
        }
    }
    for length in lengths {
        add(("size_t".to_owned(), length));
    }
    Ok((types, values))
}

fn returned(interface: &Interface, result: u32) -> Result<Element, String> {
    let param = interface.params.get(result as usize);
    param
        .and_then(Param::scalar)
        .ok_or_else(|| "it returns something other than a scalar".to_owned())
}
