//! What symbols get for expressions, and where the C code of a text is.
use kumi_idl::{Element, EvalError, Interface, PlanError, Scalar, parse};

const PARAMS: &str = "mode_in int n, mode_in int64 wide, mode_in uint32 u, mode_in float f, mode_in double d, \
                      mode_in string way";

/// A routine that passes an expression to its symbol.
fn passing(language: &str, expression: &str) -> Interface {
    let text = format!("Define r({PARAMS}) Calls \"{language}\" s({expression}, n, \"text\");");
    let parsed = parse(text.as_bytes());
    let module = parsed.module.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
    module.interfaces.into_iter().next().unwrap()
}

/// As what it is passed, and its value with n = 3, wide = 2^40, u = 7, f = 0.5, d = 2.5 and way = "Left".
fn passed(expression: &str) -> (Element, Result<Scalar, PlanError>) {
    let interface = passing("C", expression);
    let element = interface.passed_as(&interface.target.arguments[0]).unwrap();
    let scalars = [
        Some(Scalar::I64(3)),
        Some(Scalar::I64(1 << 40)),
        Some(Scalar::I64(7)),
        Some(Scalar::F64(0.5)),
        Some(Scalar::F64(2.5)),
        None,
    ];
    let texts = [None, None, None, None, None, Some("Left")];
    let plan = interface.plan_with_texts(&scalars, &texts, &kumi_idl::Limits::default());
    let value = plan.map(|plan| {
        assert_eq!(plan.computed.len(), 3);
        assert_eq!(plan.computed[1..], [None, None], "a parameter and a text are no expressions");
        plan.computed[0].unwrap()
    });
    (element, value)
}

#[test]
fn expressions_have_the_widest_type_in_them() {
    use Element::{F32, F64, I32, I64};
    let whole = |value: i64| Scalar::I64(value);
    let cases = [
        ("n * n - 1", I32, whole(8)),
        ("-n", I32, whole(-3)),
        ("7", I32, whole(7)),
        ("2^31 - 1", I32, whole((1 << 31) - 1)),
        ("2^31", I64, whole(1 << 31)),
        ("n + wide", I64, whole((1 << 40) + 3)),
        ("n + u", I64, whole(10)),
        ("wide > n ? 1 : 2", I32, whole(1)),
        ("d > 2 ? n : 2 * n", I32, whole(3)),
        ("way == 'L'", I32, whole(1)),
        ("max(n, wide)", I64, whole(1 << 40)),
        ("f * 3", F32, Scalar::F64(1.5)),
        ("f + d", F64, Scalar::F64(3.0)),
        ("f + 0.25", F64, Scalar::F64(0.75)),
        ("sqrt(n + 1)", F64, Scalar::F64(2.0)),
        ("!d", I32, whole(0)),
    ];
    for (expression, element, value) in cases {
        assert_eq!(passed(expression), (element, Ok(value)), "{expression}");
    }
}

#[test]
fn what_has_no_value_is_told() {
    let cause = |expression: &str| match passed(expression).1 {
        Err(PlanError::Passed { symbol, cause, .. }) => {
            assert_eq!(symbol, "s");
            cause
        }
        other => panic!("{expression}: {other:?}"),
    };
    assert_eq!(cause("n / (n - 3)"), EvalError::DivisionByZero);
    assert_eq!(cause("wide * wide"), EvalError::Overflow);
    assert_eq!(cause("n * 2000000000"), EvalError::Beyond(Element::I32));
    assert_eq!(cause("f * 10^39"), EvalError::Beyond(Element::F32));
    let (_, error) = passed("n * 2000000000");
    let said = error.unwrap_err().to_string();
    assert!(said.contains("what `s` gets, `n * 2000000000`"), "{said}");
}

#[test]
fn code_is_found_again() {
    let text = "Globals {\nint x;\n}\n\nDefine f(mode_in int n)\n\n{\n  (void)n;\n}\nDefine g(mode_in int n) Calls g(n);\n\
                DefClass c {\n  DefState { int s; }\n  DefMethod m(mode_in int n) { s = n; }\n}\nGlobals { int y; }\n";
    let parsed = parse(text.as_bytes());
    assert!(parsed.module.is_some(), "{:?}", parsed.diagnostics);
    assert_eq!(parsed.lines.globals, [1, 15]);
    let bodies: Vec<(&str, usize)> =
        parsed.lines.bodies.iter().map(|(name, line)| (name.as_str(), *line)).collect();
    assert_eq!(bodies, [("c.m", 13), ("f", 7)]);
    assert_eq!(parsed.lines.states.get("c"), Some(&12));
}
