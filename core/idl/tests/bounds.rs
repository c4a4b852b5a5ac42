//! Descriptions that would make errors, modules or symbols of any size, and texts that would do something to a terminal.

use kumi_idl::{
    Element, Interface, JsonError, MOST_DIAGNOSTICS, MOST_PROBLEMS, Module, Order, ProblemKind,
    Scalar, Type, parse,
};

fn module(text: &str) -> Module {
    let parsed = parse(text.as_bytes());
    parsed.module.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
}

fn routine(text: &str) -> Interface {
    module(text).interfaces.remove(0)
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn problems_are_bounded_in_number_and_length() {
    let mut interface = routine("Define f(mode_in int n, mode_in double A[n - n]) Calls f(n, A);");
    interface.params[0].ty = Type::Number(Element::F64);
    let long = "\u{1b}".repeat(1 << 19);
    interface.params[0].name.clone_from(&long);
    for _ in 0..14 {
        let dimension = interface.params[1].dims[0].clone();
        interface.params[1].dims.push(dimension);
    }
    for _ in 0..254 {
        let again = interface.params[1].clone();
        interface.params.push(again);
    }
    let problems = interface.problems();
    assert_eq!(problems.len(), MOST_PROBLEMS);
    for problem in &problems {
        let said = problem.to_string();
        assert!(said.len() < 2000, "{} bytes", said.len());
        assert!(!said.contains('\u{1b}'), "{said}");
    }
    let json = interface.to_json().expect("its text");
    match Interface::from_json_within(json.as_bytes(), 64 << 20) {
        Err(error) => assert!(error.to_string().len() < 2000),
        Ok(_) => panic!("it is taken"),
    }
}

#[test]
fn errors_about_json_are_short_and_harmless() {
    let mut all = module("Define f(int n) Calls f(n);");
    all.interfaces[0].name = "\u{1b}[2J".repeat(10_000);
    let name = all.to_json().expect("its text");
    let field = format!(r#"{{"version":1,"\u001b{}":1}}"#, "x".repeat(100_000));
    for json in [name, field] {
        let error = Module::from_json_within(json.as_bytes(), 1 << 20).expect_err("refused");
        let said = error.to_string();
        assert!(said.len() < 1500 && !said.contains('\u{1b}'), "{said}");
    }
}

#[test]
fn a_newer_form_is_told_as_such() {
    let json = r#"{"version":2,"name":"f","params":[{"new":1}],"newer":{}}"#;
    match Interface::from_json(json.as_bytes()) {
        Err(JsonError::Invalid { routine, problem }) => {
            assert_eq!((routine.as_str(), problem.fault), ("f", ProblemKind::Version(2)));
        }
        other => panic!("{other:?}"),
    }
    let newer = r#"{"version":3,"newer":{}}"#;
    let error = Module::from_json_within(newer.as_bytes(), 1 << 20).expect_err("refused");
    assert!(error.to_string().contains("version 3 of the form"), "{error}");
    let wrong = r#"{"version":1,"name":"f","newer":{}}"#;
    let error = Interface::from_json(wrong.as_bytes()).expect_err("refused");
    assert!(matches!(error, JsonError::Form(_)), "{error}");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn what_routines_have_in_common_is_bounded_in_bytes() {
    let routines = |count: usize| -> String {
        (0..count).map(|index| format!("Define f{index}(int n) Calls f(n);\n")).collect()
    };
    let long = "x".repeat(1 << 20);
    for text in [
        format!("Library \"{long}\";\n{}", routines(4096)),
        format!("Library \"{}\";\n{}", "-lx ".repeat(65), routines(4096)),
        format!("DefClass c Required \"{long}\" {{ DefMethod f(int n) Calls f(n); }}"),
    ] {
        let parsed = parse(text.as_bytes());
        assert!(parsed.module.is_none() && parsed.diagnostics.len() <= MOST_DIAGNOSTICS + 1);
        let said = parsed.diagnostics[0].to_string();
        assert!(
            said.contains("more than 64 files and libraries, or more than 8192 bytes"),
            "{said}"
        );
    }
    let most = format!("{} ", "x".repeat(127)).repeat(64);
    assert_eq!(module(&format!("Library \"{most}\";\n{}", routines(2))).libraries.len(), 64);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn formats_of_symbols_are_bounded() {
    let text = |format: &str| {
        format!("FortranFormat \"{format}\"; Define f(int n) Calls \"Fortran\" f(n);")
    };
    let parsed = parse(text(&"%s".repeat(1 << 20)).as_bytes());
    let said = parsed.diagnostics[0].to_string();
    assert!(parsed.module.is_none() && said.contains("at most 128 bytes"), "{said}");
    let mut good = module(&text(&"%s".repeat(64)));
    let interface = &mut good.interfaces[0];
    assert_eq!(interface.target.linked(), "f".repeat(64));
    interface.target.format.push_str("%l");
    assert!(interface.validate().is_err());
}

#[test]
fn axes_that_no_memory_has_are_an_error_and_not_nothing() {
    let interface = routine("Define f(mode_in int n, mode_in double A[n][n]) Calls f(n, A);");
    let plan = interface.plan(&[Some(Scalar::I64(2)), None]).expect("a plan");
    let mut argument = plan.arguments[1].clone();
    let mut packed = [0; 32];
    argument.gather(&[1; 32], Order::Column, &mut packed).expect("it fits");
    assert_eq!(packed, [1; 32]);
    // Made by hand: axes that do not belong to the bytes.
    argument.axes[1].size = u64::MAX;
    let error = argument.gather(&[2; 32], Order::Column, &mut packed).expect_err("refused");
    assert_eq!((error.given, error.expected), (32, u64::MAX));
    assert!(argument.scatter(&packed, &mut [0; 32], Order::Row).is_err());
    assert_eq!(packed, [1; 32]);

    let nothing = interface.plan(&[Some(Scalar::I64(0)), None]).expect("a plan");
    nothing.arguments[1].gather(&[], Order::Row, &mut []).expect("nothing travels");
}
