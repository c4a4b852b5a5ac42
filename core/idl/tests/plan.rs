//! Plans against sizes computed by hand.
use kumi_idl::{
    ArgumentForm, Axis, Binary, Dimension, Element, EvalError, Expr, Function, Interface, Language,
    Limits, Mode, Order, Param, Part, PlanError, Run, Scalar, Target, Type, Unary,
};

fn p(index: u32) -> Expr {
    Expr::Param(index)
}

fn op(operation: Binary, left: Expr, right: Expr) -> Expr {
    Expr::Binary(operation, Box::new(left), Box::new(right))
}

fn scalar(name: &str, mode: Mode, element: Element) -> Param {
    Param {
        name: name.to_owned(),
        mode,
        ty: Type::Number(element),
        dims: vec![],
        order: Order::Row,
        default: None,
        doc: String::new(),
    }
}

fn array(name: &str, mode: Mode, element: Element, sizes: Vec<Expr>) -> Param {
    let whole = |size| Dimension { size, start: None, end: None, step: None };
    Param { dims: sizes.into_iter().map(whole).collect(), ..scalar(name, mode, element) }
}

fn routine(params: Vec<Param>) -> Interface {
    Interface {
        version: Interface::VERSION,
        name: "test".to_owned(),
        class: String::new(),
        doc: String::new(),
        params,
        calc_order: None,
        idempotent: false,
        split: None,
        status: None,
        parallel: None,
        target: Target {
            language: Language::C,
            symbol: "test".to_owned(),
            arguments: vec![],
            result: None,
            required: vec![],
            body: String::new(),
            format: String::new(),
        },
    }
}

fn n(value: i64) -> Option<Scalar> {
    Some(Scalar::I64(value))
}

fn runs(plan: &kumi_idl::Plan, argument: usize) -> Vec<(u64, u64)> {
    plan.arguments[argument].section.runs().map(|run| (run.offset, run.length)).collect()
}

/// `dmmul` of the paper: 8n²+… bytes each way.
fn dmmul() -> Interface {
    let square = || vec![p(0), p(0)];
    let mut interface = routine(vec![
        scalar("n", Mode::In, Element::I32),
        array("A", Mode::In, Element::F64, square()),
        array("B", Mode::In, Element::F64, square()),
        array("C", Mode::Out, Element::F64, square()),
    ]);
    interface.calc_order = Some(op(Binary::Pow, p(0), Expr::Int(3)));
    interface.target.arguments = (0..4).map(p).collect();
    interface
}

#[test]
fn a_product_of_matrices() {
    let plan = dmmul().plan(&[n(10), None, None, None]).unwrap();
    assert_eq!((plan.sent, plan.returned), (4 + 1600, 800));
    assert_eq!(plan.memory, 64 + 3 * 832 - 32, "each array begins on a cache line");
    assert_eq!(plan.operations, Some(1000.0));
    assert_eq!(plan.arguments[1].axes, [Axis::whole(10), Axis::whole(10)]);
    assert_eq!(plan.arguments[3].offset, 64 + 2 * 832);
    assert_eq!(plan.arguments[1].section.single(), Some(Run { offset: 0, length: 800 }));
    assert_eq!(plan.arguments[0].form, ArgumentForm::Scalar(Element::I32));
    assert_eq!(dmmul().plan(&[n(0), None, None, None]).unwrap().sent, 4);
}

#[test]
fn wrong_values_are_told_by_parameter() {
    let dmmul = dmmul();
    let error = |scalars: &[Option<Scalar>]| dmmul.plan(scalars).unwrap_err().to_string();
    assert_eq!(error(&[n(1)]), "`test` has 4 parameters, 1 values were given");
    assert_eq!(error(&[None; 4]), "`n` has no value and no default");
    assert_eq!(error(&[n(1), n(2), None, None]), "`A` takes no scalar value");
    let fraction = Some(Scalar::F64(1.5));
    assert_eq!(error(&[fraction, None, None, None]), "`n` is of type int, which cannot hold 1.5");
    let huge = n(1 << 40);
    assert!(error(&[huge, None, None, None]).contains("cannot hold 1099511627776"));
    let negative = error(&[n(-2), None, None, None]);
    assert_eq!(negative, "`A`: the size of dimension 1, `n`, is -2");
    let limits = Limits { bytes: 2000 };
    let refused = dmmul.plan_within(&[n(10), None, None, None], &limits).unwrap_err();
    assert_eq!(refused, PlanError::TooLarge { param: "C".to_owned(), limit: 2000 });
}

#[test]
fn sizes_beyond_every_memory_are_refused() {
    let mut wide = dmmul();
    wide.params[0].ty = Type::Number(Element::I64);
    let refused = |value| wide.plan(&[n(value), None, None, None]).unwrap_err();
    assert!(matches!(refused(i64::MAX), PlanError::TooLarge { .. }));
    assert!(matches!(refused(1 << 31), PlanError::TooLarge { .. }));
    assert!(wide.plan(&[n(1 << 29), None, None, None]).is_ok());
    assert!(matches!(refused(1 << 30), PlanError::TooLarge { param, .. } if param == "A"));
}

#[test]
fn an_empty_array_with_huge_sides_is_empty() {
    let sides = || vec![p(0), p(0), p(0), Expr::Int(0)];
    let interface = routine(vec![
        scalar("n", Mode::In, Element::I64),
        array("A", Mode::In, Element::F64, sides()),
    ]);
    let plan = interface.plan(&[n(i64::MAX), None]).unwrap();
    assert_eq!((plan.arguments[1].bytes, runs(&plan, 1)), (0, vec![]));
}

#[test]
fn sections_are_runs_in_the_routines_order() {
    let dimension = |size, start, end, step| Dimension {
        size: Expr::Int(size),
        start: Some(Expr::Int(start)),
        end: Some(Expr::Int(end)),
        step: Some(Expr::Int(step)),
    };
    let of = |order, dims: &[Dimension]| {
        let param = Param { dims: dims.to_vec(), order, ..scalar("A", Mode::InOut, Element::F64) };
        let plan = routine(vec![param]).plan(&[None]).unwrap();
        assert_eq!(plan.sent, plan.returned);
        (plan.sent, runs(&plan, 0))
    };
    let rows = [dimension(4, 1, 3, 1), dimension(5, 0, 5, 1)];
    assert_eq!(of(Order::Row, &rows), (80, vec![(40, 80)]), "whole rows touch");
    let by_columns: Vec<(u64, u64)> = (0..5).map(|column| (8 + column * 32, 16)).collect();
    assert_eq!(of(Order::Column, &rows), (80, by_columns));
    let every_second = [dimension(5, 1, 5, 2)];
    assert_eq!(of(Order::Row, &every_second), (16, vec![(8, 8), (24, 8)]));
    let empty = [dimension(5, 2, 2, 1), dimension(5, 0, 5, 1)];
    assert_eq!(of(Order::Row, &empty), (0, vec![]));
    let one = [dimension(5, 2, 3, 9), dimension(2, 1, 2, 1), dimension(3, 0, 3, 1)];
    assert_eq!(of(Order::Row, &one), (24, vec![((2 * 6 + 3) * 8, 24)]));
}

#[test]
fn sections_outside_are_refused() {
    let cases = [(-1, 2, 1), (0, 6, 1), (3, 2, 1), (0, 5, 0), (0, 5, -1)];
    for (start, end, step) in cases {
        let param = Param {
            dims: vec![Dimension {
                size: Expr::Int(5),
                start: Some(Expr::Int(start)),
                end: Some(Expr::Int(end)),
                step: Some(Expr::Int(step)),
            }],
            ..scalar("x", Mode::In, Element::F64)
        };
        let error = routine(vec![param]).plan(&[None]).unwrap_err();
        let told =
            PlanError::Outside { param: "x".to_owned(), dimension: 0, start, end, step, size: 5 };
        assert_eq!(error, told);
    }
}

#[test]
fn work_memory_never_travels_and_texts_have_room() {
    let text = Param { ty: Type::String, ..array("s", Mode::Out, Element::U8, vec![Expr::Int(9)]) };
    let work = array("w", Mode::Work, Element::C128, vec![Expr::Int(3)]);
    let free = Param { ty: Type::String, ..scalar("t", Mode::In, Element::U8) };
    let plan = routine(vec![text, work, free]).plan(&[None; 3]).unwrap();
    assert_eq!((plan.memory, plan.sent, plan.returned), (64 + 48, 0, 0));
    assert_eq!(plan.arguments[0].form, ArgumentForm::Text { capacity: Some(9) });
    assert_eq!(plan.arguments[2].form, ArgumentForm::Text { capacity: None });
}

/// A vector of `size` with this scalar, and its elements.
fn size_of(size: Expr, scalars: &[(Element, Scalar)]) -> Result<u64, PlanError> {
    let mut params: Vec<Param> =
        scalars.iter().map(|(element, _)| scalar("n", Mode::In, *element)).collect();
    params.push(array("x", Mode::In, Element::I8, vec![size]));
    let mut values: Vec<Option<Scalar>> = scalars.iter().map(|(_, value)| Some(*value)).collect();
    values.push(None);
    let plan = routine(params).plan(&values)?;
    Ok(plan.arguments.last().unwrap().elements)
}

#[test]
fn expressions_are_computed_as_told() {
    let int = Expr::Int;
    let call = |function, arguments: &[i64]| {
        Expr::Call(function, arguments.iter().copied().map(Expr::Int).collect())
    };
    let cases = [
        (op(Binary::Div, int(-7), int(-2)), 3),
        (op(Binary::Rem, int(7), int(-4)), 3),
        (op(Binary::Pow, int(3), int(4)), 81),
        (op(Binary::Pow, int(-1), int(i64::MAX - 1)), 1),
        (op(Binary::Pow, int(0), int(0)), 1),
        (op(Binary::Le, int(2), int(2)), 1),
        (op(Binary::And, int(0), op(Binary::Div, int(1), int(0))), 0),
        (op(Binary::Or, int(2), op(Binary::Div, int(1), int(0))), 1),
        (op(Binary::Rem, int(i64::MIN), int(-1)), 0),
        (Expr::If(Box::new(int(0)), Box::new(int(i64::MIN)), Box::new(int(5))), 5),
        (call(Function::Min, &[4, 2, 3]), 2),
        (call(Function::Max, &[4, 2, 9]), 9),
        (call(Function::Abs, &[-4]), 4),
        (Expr::Unary(Unary::Not, Box::new(int(0))), 1),
        (Expr::Unary(Unary::Neg, Box::new(int(-6))), 6),
    ];
    for (expr, value) in cases {
        assert_eq!(size_of(expr.clone(), &[]), Ok(value), "{expr:?}");
    }
}

#[test]
fn expressions_without_value_are_typed_errors() {
    let int = Expr::Int;
    let cases = [
        (op(Binary::Add, int(i64::MAX), int(1)), EvalError::Overflow),
        (op(Binary::Mul, int(i64::MIN), int(-1)), EvalError::Overflow),
        (op(Binary::Div, int(i64::MIN), int(-1)), EvalError::Overflow),
        (op(Binary::Pow, int(2), int(63)), EvalError::Overflow),
        (op(Binary::Pow, int(2), int(1 << 33)), EvalError::Overflow),
        (op(Binary::Pow, int(2), int(-1)), EvalError::NegativePower),
        (op(Binary::Div, int(1), int(0)), EvalError::DivisionByZero),
        (op(Binary::Rem, int(1), int(0)), EvalError::DivisionByZero),
        (Expr::Real(2.0), EvalError::NotAnInteger),
        (Expr::Call(Function::Sqrt, vec![int(4)]), EvalError::NotAnInteger),
        (Expr::Call(Function::Min, vec![]), EvalError::NotANumber),
        (p(9), EvalError::NotAScalar(9)),
        (p(0), EvalError::NotAScalar(0)),
    ];
    for (expr, expected) in cases {
        let error = size_of(expr.clone(), &[]).unwrap_err();
        let PlanError::Expression { param, part, cause, .. } = error else { panic!("{error}") };
        assert_eq!((param.as_str(), part, cause), ("x", Part::Size(0), expected), "{expr:?}");
    }
    let mut deep = int(1);
    for _ in 0..Expr::MOST_DEPTH {
        deep = Expr::Unary(Unary::Neg, Box::new(deep));
    }
    let error = size_of(deep, &[]).unwrap_err().to_string();
    assert!(error.contains("nested more than 32 deep"), "{error}");
    let big = [(Element::U64, Scalar::U64(u64::MAX))];
    let error = size_of(op(Binary::Div, p(0), int(2)), &big).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`x`: the size of dimension 1, `n / 2`, has no value: a number in it is beyond 64 bits"
    );
}

#[test]
fn defaults_are_filled_in_by_need() {
    let with = |name: &str, element, default| Param {
        default: Some(default),
        ..scalar(name, Mode::In, element)
    };
    let mut interface = routine(vec![
        with("lda", Element::I32, Expr::Call(Function::Max, vec![Expr::Int(1), p(1)])),
        with("m", Element::I32, p(2)),
        scalar("n", Mode::In, Element::I32),
        with("alpha", Element::F64, op(Binary::Div, Expr::Int(1), Expr::Int(2))),
    ]);
    let plan = interface.plan(&[None, None, n(7), None]).unwrap();
    let values: Vec<_> = plan.arguments.iter().map(|argument| argument.scalar.unwrap()).collect();
    assert_eq!(values[0], Scalar::I64(7));
    assert_eq!(values[3], Scalar::F64(0.5));
    let plan = interface.plan(&[None, n(3), n(7), Some(Scalar::I64(2))]).unwrap();
    assert_eq!(plan.arguments[0].scalar, Some(Scalar::I64(3)));
    assert_eq!(plan.arguments[3].scalar, Some(Scalar::F64(2.0)));
    interface.params[2].default = Some(p(0));
    let error = interface.plan(&[None; 4]).unwrap_err();
    assert!(matches!(error, PlanError::Cycle { .. }), "{error}");
    assert!(interface.plan(&[n(1), None, None, None]).is_ok(), "a value given breaks the cycle");
}

#[test]
fn costs_are_real_numbers() {
    let mut interface = dmmul();
    let two_thirds = op(Binary::Div, Expr::Int(2), Expr::Int(3));
    interface.calc_order = Some(op(Binary::Mul, two_thirds, op(Binary::Pow, p(0), Expr::Int(3))));
    let plan = interface.plan(&[n(30), None, None, None]).unwrap();
    assert!((plan.operations.unwrap() - 18_000.0).abs() < 1e-9);
    interface.calc_order = Some(Expr::Call(Function::Log, vec![p(0)]));
    assert_eq!(interface.plan(&[n(0), None, None, None]).unwrap().operations, None);
}
