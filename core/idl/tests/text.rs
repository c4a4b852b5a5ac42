//! The language: what is read, and what is said of what is wrong.
use kumi_idl::{Code, Element, Expr, Language, Mode, Module, Order, Scalar, Severity, Type, parse};

fn good(text: &str) -> Module {
    let parsed = parse(text.as_bytes());
    let shown: Vec<String> = parsed.diagnostics.iter().map(ToString::to_string).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
    let module = parsed.module.unwrap();
    let printed = module.to_string();
    let again = parse(printed.as_bytes());
    assert_eq!(again.module.as_ref(), Some(&module), "{printed}\n{:?}", again.diagnostics);
    module
}

/// Code, line and column of each.
fn wrong(text: &str) -> Vec<(Code, usize, usize)> {
    let parsed = parse(text.as_bytes());
    parsed.diagnostics.iter().map(|found| (found.code, found.line, found.column)).collect()
}

fn said(text: &str) -> String {
    let parsed = parse(text.as_bytes());
    parsed.diagnostics.iter().map(|found| format!("{found}\n")).collect()
}

const DMMUL: &str = r#"
Define dmmul(mode_in int n, mode_in double A[n][n], mode_in double B[n][n], mode_out double C[n][n])
"dense matrix product"
CalcOrder n^3
Required "libdmmul.o"
Calls "C" dmmul(n, A, B, C);
"#;

#[test]
fn the_form_of_the_paper() {
    let module = good(DMMUL);
    let dmmul = &module.interfaces[0];
    assert_eq!((dmmul.name.as_str(), dmmul.doc.as_str()), ("dmmul", "dense matrix product"));
    assert_eq!(dmmul.target.required, ["libdmmul.o"]);
    assert_eq!(dmmul.target.arguments, [0, 1, 2, 3].map(Expr::Param));
    assert_eq!(dmmul.params[3].mode, Mode::Out);
    let plan = dmmul.plan(&[Some(Scalar::I64(600)), None, None, None]).unwrap();
    assert_eq!((plan.sent, plan.returned), (4 + 2 * 8 * 600 * 600, 8 * 600 * 600));
    assert_eq!(plan.operations, Some(2.16e8));
}

#[test]
fn spellings_of_other_systems() {
    let module = good(
        r#"/* a library */
Module lib;
Compiler "gcc";  Linker "gcc";
CompileOptions "-O2 -g";
FortranFormat "_%s_";
Library "-lm -llib"; // linked last
Globals { #include <math.h>
static int calls; /* } */ char brace = '}'; }
Define f(long mode_in int n, IN unsigned char x[n: 2, n, 3], OUT short y[n:n-1], INOUT float *z,
         WORK double complex w[2*n+1], mode_in char *name, mode_in filename input,
         progress(IN double done, OUT int stop), mode_in float complex c, unsigned long m)
"one" " text"
Calls "FORTRAN" Sub(n, x, y, z, w, name, input, progress, c, m);
DefClass state "with a matrix" Required "state.o"
{
    DefState { double *matrix; int n; }
    DefMethod init(IN int n, IN double A[n][n]) "keeps A" { keep(n, A); }
    DefMethod norm(OUT double r) CalcOrder 1 Calls r = matrix_norm();
};
"#,
    );
    assert_eq!(module.name, "lib");
    assert_eq!(module.compile_options, ["-O2", "-g"]);
    let f = &module.interfaces[0];
    assert_eq!((f.name.as_str(), f.doc.as_str()), ("lib/f", "one text"));
    let types: Vec<&Type> = f.params.iter().map(|param| &param.ty).collect();
    let number = |element| Type::Number(element);
    assert_eq!(*types[0], number(Element::I64));
    assert_eq!(*types[1], number(Element::U8));
    assert_eq!(*types[2], number(Element::I16));
    assert_eq!(*types[4], number(Element::C128));
    assert_eq!((types[5], types[6]), (&Type::String, &Type::File));
    assert!(matches!(types[7], Type::Callback(inner) if inner[1].mode == Mode::Out));
    assert_eq!((types[8], types[9]), (&number(Element::C64), &number(Element::U64)));
    let dimension = &f.params[1].dims[0];
    assert_eq!((&dimension.start, &dimension.step), (&Some(Expr::Int(2)), &Some(Expr::Int(3))));
    assert_eq!(f.params[2].dims[0].start, None);
    assert_eq!((f.params[3].mode, f.params[3].dims.len()), (Mode::InOut, 0));
    assert_eq!((f.target.language, f.target.linked().as_str()), (Language::Fortran, "_Sub_"));
    assert_eq!(f.target.required, ["-lm", "-llib"]);
    let class = &module.classes[0];
    assert_eq!((class.name.as_str(), class.state.trim()), ("lib/state", "double *matrix; int n;"));
    assert_eq!(class.methods[0].name, "lib/state.init");
    assert_eq!((class.methods[0].class.as_str(), class.methods[0].method()), ("lib/state", "init"));
    assert_eq!((f.class.as_str(), f.method()), ("", f.name.as_str()));
    assert_eq!(class.methods[0].target.required, ["state.o", "-lm", "-llib"]);
    assert_eq!(class.methods[0].target.symbol, "init");
    assert!(class.methods[0].target.body.contains("keep(n, A)"));
    assert_eq!(class.methods[1].target.result, Some(0));
}

#[test]
fn additions() {
    let module = good(
        r#"
Define dgesv(mode_in int n "order" , mode_in int nrhs = 1, mode_inout double A[lda: 0, n][n],
    mode_in int lda = max(1, n), mode_out int32 ipiv[n], mode_inout float64 B[ldb:n][nrhs], mode_in int ldb = max(1, n),
    mode_out int info, mode_in string label = "a \"b\"\n\u{7f}", mode_in double tol = 1e-3 / 2)
"solves A X = B"
CalcOrder 2 / 3 * n^3 + 2 * n ** 2 * nrhs
@order(F) @status(info) @idempotent @split(nrhs)
Calls "Fortran" dgesv(n, nrhs, A, lda, ipiv, B, ldb, info, label, tol, n > 3 ? n - 1 : -2^2);
Define server(mode_in int n, mode_out double s) Calls "Python" package.module.function(n, s);
Define body(mode_in int n, mode_out double s[n]) { for (int i = 0; i < n; i++) { s[i] = '{'; } // }
}
"#,
    );
    let dgesv = &module.interfaces[0];
    assert_eq!((dgesv.split, dgesv.status, dgesv.idempotent), (Some(1), Some(7), true));
    let orders: Vec<Order> = dgesv.params.iter().map(|param| param.order).collect();
    let [_, _, a, _, ipiv, b, ..] = orders[..] else { panic!("orders") };
    assert_eq!((a, b, ipiv), (Order::Column, Order::Column, Order::Row));
    assert_eq!(dgesv.params[0].doc, "order");
    assert_eq!(dgesv.params[8].default, Some(Expr::Text("a \"b\"\n\u{7f}".to_owned())));
    let n = |value| Some(Scalar::I64(value));
    let mut scalars = vec![n(10), None, None, n(16), None, None, None, None, None, None];
    let plan = dgesv.plan(&scalars).unwrap();
    let a = &plan.arguments[2];
    assert_eq!((a.bytes, a.sent, a.section.runs().count()), (16 * 10 * 8, 800, 10));
    assert_eq!(plan.arguments[5].bytes, 80);
    assert!((plan.operations.unwrap() - (2000.0 / 3.0 + 200.0)).abs() < 1e-9);
    assert_eq!(plan.arguments[9].scalar, Some(Scalar::F64(0.0005)));
    scalars[3] = n(9);
    let error = dgesv.plan(&scalars).unwrap_err().to_string();
    assert!(error.starts_with("`A`: dimension 1 has 9 elements, of which 0 up to 10"), "{error}");
    assert_eq!(module.interfaces[1].target.symbol, "package.module.function");
    assert_eq!(module.interfaces[2].target.body.matches('}').count(), 2);
}

#[test]
fn sizes_depend_on_the_first_letter_of_a_text() {
    let module = good(
        r#"Define f(mode_in string trans = "N", mode_in int m, mode_in int n, mode_in double x[trans == 'n' ? n : m])
        Calls "Fortran" f(trans, m, n, x);"#,
    );
    let f = &module.interfaces[0];
    let n = |value| Some(Scalar::I64(value));
    let scalars = [None, n(3), n(5), None];
    let elements = |text: Option<&str>| {
        let texts = [text, None, None, None];
        let plan = f.plan_with_texts(&scalars, &texts, &kumi_idl::Limits::default()).unwrap();
        assert_eq!(plan.arguments[0].scalar, None);
        plan.arguments[3].elements
    };
    assert_eq!([None, Some("n"), Some("No"), Some("T"), Some("")].map(elements), [5, 5, 5, 3, 3]);
    assert_eq!(f.plan(&scalars).unwrap().arguments[3].elements, 5, "the default");
    let mut without = f.clone();
    without.params[0].default = None;
    let error = without.plan(&scalars).unwrap_err().to_string();
    assert!(error.ends_with("it needs a value of `trans`"), "{error}");
}

#[test]
fn an_error_shows_its_place() {
    let text = "Define f(mode_in int n,\n\tmode_in double A[nn][m])\nCalls f(n, A);\n";
    assert_eq!(
        said(text),
        "2:19: error E05: there is no parameter `nn`; did you mean `n`?\n    \u{20}mode_in double A[nn][m])\n    \u{20}                 ^^\n\
         2:23: error E05: there is no parameter `m`\n    \u{20}mode_in double A[nn][m])\n    \u{20}                     ^\n"
    );
}

#[test]
fn several_errors_are_told_at_once() {
    let text = "Modul m;
Define f(mode_in doubel A[n], mode_in int n, mode_in itn k, mode_on int k2)
CalcOder n^3
Calls \"C\" f(A, n);
Define g(mode_in int n mode_out int m) @idempotnet Calls h(n, m, j);
Define f(mode_in int n) Calls \"Fortan\" f(n)
Define h(mode_in int n { } ) Calls h(n);
Define i(int n) Calls i(n);
Define i(int n) Calls i(n);
";
    let found = wrong(text);
    let expected = [
        (Code::UnknownWord, 1, 1),
        (Code::UnknownWord, 2, 18),
        (Code::UnknownWord, 2, 54),
        (Code::UnknownWord, 2, 61),
        (Code::UnknownWord, 3, 1),
        (Code::Syntax, 5, 24),
        (Code::UnknownWord, 5, 41),
        (Code::UnknownName, 5, 66),
        (Code::UnknownWord, 6, 31),
        (Code::Syntax, 7, 1),
        (Code::Syntax, 7, 24),
        (Code::Twice, 9, 8),
    ];
    for place in expected {
        assert!(found.contains(&place), "{place:?} is not in\n{}", said(text));
    }
    assert!(said(text).contains("did you mean `Module`?"));
    assert!(said(text).contains("did you mean `double`?"));
    assert!(said(text).contains("did you mean `CalcOrder`?"));
}

#[test]
fn what_a_description_must_not_say() {
    let cases = [
        ("Define f(mode_in double x, mode_in int A[x]) Calls f(x, A);", Code::Size),
        ("Define f(mode_out int n, mode_in int A[n]) Calls f(n, A);", Code::Size),
        ("Define f(mode_in int n[3], mode_in int A[n]) Calls f(n, A);", Code::Size),
        ("Define f(mode_in int A[1.5]) Calls f(A);", Code::Size),
        ("Define f(mode_in int A[sqrt(4)]) Calls f(A);", Code::Size),
        ("Define f(mode_in int n, mode_in int A[B[n]]) Calls f(n, A);", Code::Size),
        ("Define f(mode_in int n = m, mode_in int m = n) Calls f(n, m);", Code::Default),
        ("Define f(mode_in int n = 1.5) Calls f(n);", Code::Default),
        ("Define f(mode_out int n = 1) Calls f(n);", Code::Default),
        ("Define f(mode_in int A[]) Calls f(A);", Code::Param),
        ("Define f(mode_in double *A) Calls f(A);", Code::Param),
        ("Define f(mode_out string s) Calls f(s);", Code::Param),
        ("Define f(mode_in file s[3]) Calls f(s);", Code::Param),
        ("Define f(g(h(int n))) Calls f(g);", Code::Param),
        ("Define f(g(mode_in file s)) Calls f(g);", Code::Param),
        ("Define f(mode_in int n, mode_in int n) Calls f(n);", Code::Twice),
        ("Define f(mode_in int n) CalcOrder n CalcOrder n Calls f(n);", Code::Twice),
        ("Define f(mode_in int n) @status(n) Calls f(n);", Code::Attribute),
        ("Define f(mode_out int n) @split(n) Calls f(n);", Code::Attribute),
        ("Define f(mode_in dcomplex z) CalcOrder z Calls f(z);", Code::Attribute),
        ("Define f(mode_out int n) Calls f(n + 1);", Code::Target),
        ("Define f(mode_out int n) Calls n = f(n);", Code::Target),
        ("Define f(mode_in int n) Calls n = f();", Code::Target),
        ("Define f(mode_in int n) Calls \"C\" a.b(n);", Code::Target),
        ("FortranFormat \"_\"; Define f(mode_in int n) Calls f(n);", Code::Target),
        ("Define f(mode_in int n) Language \"Fortran\" { n; }", Code::Target),
        ("Define f(mode_in int n) Backend \"MPI\" Calls f(n);", Code::Unsupported),
        ("#include <a.h>\nDefine f(mode_in int n) Calls f(n);", Code::Unsupported),
        ("Define f(mode_in int n) { n = 1;", Code::Unended),
        ("/* Define f(mode_in int n) Calls f(n);", Code::Unended),
        ("Define f(mode_in int n) \"open Calls f(n);", Code::Unended),
        ("Define f(mode_in int n[9223372036854775808]) Calls f(n);", Code::Lexical),
        ("Define f(mode_in int n[0x10]) Calls f(n);", Code::Lexical),
        ("Define f(mode_in int n) Calls f(n$);", Code::Lexical),
        ("Define f(mode_in int n['NN']) Calls f(n);", Code::Lexical),
        ("Define f(mode_in long double x) Calls f(x);", Code::UnknownWord),
        ("Define f(mode_in unsigned float x) Calls f(x);", Code::UnknownWord),
        ("Define f(mode_in x) Calls f(x);", Code::UnknownWord),
        ("Define f(mode_in int n) CalcOrder lg(n) Calls f(n);", Code::UnknownName),
    ];
    for (text, code) in cases {
        let parsed = parse(text.as_bytes());
        assert!(parsed.module.is_none(), "{text}");
        let errors =
            parsed.diagnostics.iter().filter(|found| found.code.severity() == Severity::Error);
        let codes: Vec<Code> = errors.map(|found| found.code).collect();
        assert!(codes.contains(&code), "{text}\n{}", said(text));
        assert!(codes.len() <= 2, "{text}\n{}", said(text));
    }
}

#[test]
fn warnings_do_not_refuse() {
    let text = "Define f(mode_in int n, mode_in int m, mode_out double C[n], IN int A[n], tell(int k)) Shrink \"yes\" Calls f(n);";
    let parsed = parse(text.as_bytes());
    assert!(parsed.module.is_some());
    assert_eq!(
        wrong(text),
        [
            (Code::Unused, 1, 37),
            (Code::Unused, 1, 56),
            (Code::Unused, 1, 69),
            (Code::Unused, 1, 75),
            (Code::NoEffect, 1, 88),
        ]
    );
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn hostile_texts_end_soon() {
    let deep = |open: &str, close: &str| {
        format!(
            "Define f(mode_in int A[{}1{}]) Calls f(A);",
            open.repeat(50_000),
            close.repeat(50_000)
        )
    };
    let long = format!("Define f(mode_in int A[1{}]) Calls f(A);", "+1".repeat(100_000));
    let cases = [
        deep("(", ")"),
        deep("-", ""),
        deep("max(1,", ")"),
        deep("1?1:", ""),
        deep("2^", ""),
        long,
        "Define f(".repeat(50_000),
        "Define f{".repeat(50_000),
        "DefClass c {".repeat(50_000),
        "DefClass c { DefMethod m(int n) ".repeat(50_000),
        "{".repeat(200_000),
        "(".repeat(200_000),
        "\"".repeat(20_001),
        "/*".repeat(200_000),
        "Define f(g(h(".repeat(50_000),
        "@".repeat(200_000),
        "Define f(mode_in int n) ".repeat(50_000),
        "é".repeat(200_000),
        format!(
            "Library \"{}\";{}",
            "-a ".repeat(10_000),
            "Define f(int n) Calls f(n);".repeat(10_000)
        ),
        format!("Module {};{}", "m".repeat(100_000), "Define f(int n) Calls f(n);".repeat(5_000)),
        format!(
            "DefClass {} {{{}}}",
            "m".repeat(100_000),
            "DefMethod f(int n) Calls f(n);".repeat(5_000)
        ),
        format!("Define f({}) Calls f({});", "int a, ".repeat(20_000), "b, ".repeat(20_000)),
    ];
    for text in cases {
        let parsed = parse(text.as_bytes());
        assert!(parsed.module.is_none());
        assert!(!parsed.diagnostics.is_empty() && parsed.diagnostics.len() <= 50);
        assert!(parsed.diagnostics.iter().all(|found| found.excerpt.len() < 1000));
    }
    let many = format!("Define f({}int z) Calls f(z);", "int a, ".repeat(50_000));
    assert!(parse(many.as_bytes()).module.is_none());
    assert_eq!(wrong("Define f(int n) Calls f(n);\n\u{e9}"), [(Code::Lexical, 2, 1)]);
    assert_eq!(parse(b"Define \xff").diagnostics[0].code, Code::Unreadable);
    assert_eq!(parse(&vec![b' '; kumi_idl::MOST_TEXT + 1]).diagnostics[0].code, Code::Unreadable);
    assert!(parse(b"").module.is_some());
}
