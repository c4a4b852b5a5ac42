//! Routines that are jobs of a cluster: what descriptions say of them, and how many ranks a call has.

use kumi_idl::{Code, Expr, Interface, Parallel, PlanError, Scalar, parse};

const TEXT: &str = r#"
Define spread(mode_in int n, mode_in int ranks = 2, mode_in double A[n], mode_in double B[n], mode_out double sum)
"a sum"
Parallel ranks * 2
@broadcast(B)
@idempotent
{ *sum = A[0] + B[0]; }
"#;

fn described(text: &str) -> Interface {
    let parsed = parse(text.as_bytes());
    let module = parsed.module.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
    assert!(parsed.diagnostics.is_empty(), "{:?}", parsed.diagnostics);
    module.interfaces.into_iter().next().expect("a routine")
}

#[test]
fn it_is_part_of_the_description() {
    let spread = described(TEXT);
    let parallel = spread.parallel.as_ref().expect("a job");
    assert_eq!(parallel.broadcast, [3]);
    assert_eq!((spread.is_broadcast(2), spread.is_broadcast(3)), (false, true));
    let json = spread.to_json().expect("numbers are finite");
    assert!(
        json.contains(
            r#""parallel":{"ranks":{"binary":["mul",{"param":1},{"int":2}]},"broadcast":[3]}"#
        ),
        "{json}"
    );
    assert_eq!(Interface::from_json(json.as_bytes()).expect("it is one"), spread);
    // As text it says the same.
    let again = parse(TEXT.as_bytes()).module.expect("a module").to_string();
    assert_eq!(described(&again), spread, "{again}");
    // Others say nothing of it, as before there were any.
    let alone = described("Define f(mode_in int n) Calls f(n);");
    assert_eq!(alone.parallel, None);
    assert!(!alone.to_json().expect("finite").contains("parallel"));
    assert_eq!(alone.plan(&[Some(Scalar::I64(1))]).expect("a plan").ranks, None);
}

#[test]
fn ranks_follow_from_the_scalars() {
    let spread = described(TEXT);
    let plan = |ranks: Option<i64>| {
        let n = Some(Scalar::I64(4));
        spread.plan(&[n, ranks.map(Scalar::I64), None, None, None])
    };
    assert_eq!(plan(None).expect("a plan").ranks, Some(4));
    assert_eq!(plan(Some(0)).expect("a plan").ranks, Some(0));
    let scalars: Vec<_> =
        plan(Some(3)).expect("a plan").arguments.iter().map(|argument| argument.scalar).collect();
    assert_eq!(spread.ranks(&scalars), Ok(Some(6)));
    let error = plan(Some(-1)).expect_err("too few");
    assert_eq!(error.to_string(), "the number of ranks, `ranks * 2`, is -2");
    let divided = described("Define f(mode_in int n) Parallel 8 / n Calls f(n);");
    let error = divided.plan(&[Some(Scalar::I64(0))]).expect_err("no value");
    assert!(matches!(error, PlanError::Ranks { .. }), "{error}");
}

#[test]
fn what_cannot_be_is_told_at_its_place() {
    let cases = [
        ("Define f(mode_in double x) Parallel x Calls f(x);", Code::Attribute, "x Calls"),
        ("Define f(mode_out int n) Parallel n Calls f(n);", Code::Attribute, "n Calls"),
        ("Define f(mode_in int n) Parallel m Calls f(n);", Code::UnknownName, "m Calls"),
        (
            "Define f(mode_in int n) Parallel 2 Parallel 2 Calls f(n);",
            Code::Twice,
            "Parallel 2 Calls",
        ),
        ("Define f(mode_in int n) Parallel 2 @broadcast(n) Calls f(n);", Code::Attribute, ""),
        ("Define f(mode_out int n[2]) Parallel 2 @broadcast(n) Calls f(n);", Code::Attribute, ""),
        ("Define f(mode_in int n[2]) @broadcast(n) Calls f(n);", Code::Attribute, "n) Calls"),
        (
            "Define f(mode_in int n[2]) Parallel 2 @broadcast(n) @broadcast(n) Calls f(n);",
            Code::Twice,
            "",
        ),
        ("Define f(mode_in int n, g(int m)) Parallel 2 Calls f(n, g);", Code::Attribute, ""),
        ("Define f(mode_in int n) Parallel 2 Calls \"Python\" a.f(n);", Code::Attribute, ""),
        ("Define f(mode_in int n) Parallel Calls f(n);", Code::UnknownWord, ""),
        ("Define f(mode_in int n) Backend \"MPI\" Calls f(n);", Code::Unsupported, "Backend"),
    ];
    for (text, code, place) in cases {
        let parsed = parse(text.as_bytes());
        let found = parsed.diagnostics.iter().find(|diagnostic| diagnostic.code == code);
        let found = found.unwrap_or_else(|| panic!("{text}: {:?}", parsed.diagnostics));
        let column = found.column as usize - 1;
        assert!(parsed.module.is_none() && text[column..].starts_with(place), "{text}: {found}");
    }
    // Somebody else's JSON is looked at as the text is.
    let mut spread = described(TEXT);
    spread.parallel = Some(Parallel { ranks: Expr::Param(9), broadcast: vec![77] });
    assert_eq!(spread.problems().len(), 2);
    assert!(!spread.is_broadcast(3) && spread.plan(&[None; 5]).is_err());
    spread.parallel = Some(Parallel { ranks: Expr::Param(1), broadcast: vec![2, 3] });
    assert_eq!(spread.problems(), []);
    spread.parallel = Some(Parallel { ranks: Expr::Param(1), broadcast: vec![3, 2] });
    assert_eq!(spread.problems().len(), 1, "no two forms of one description");
}
