//! The fuzz target's harness with texts of any bytes, descriptions with a few bytes changed, and descriptions that are
//! printed and read again.

use kumi_idl::{
    Binary, Class, Dimension, Element, Expr, Function, Interface, Language, Mode, Module, Order,
    Parallel, Param, Target, Type, Unary, parse,
};
use proptest::prelude::*;

#[path = "../../../fuzz/descriptions.rs"]
mod descriptions;

use descriptions::check;

const TEXT: &str = r#"Module m; Library "-la"; FortranFormat "%l__"; Globals { int a; }
Define f(long mode_in int n = 3, IN double A[n+1: 0, n, 2][max(1, n)] @order(F) "a", OUT dcomplex *z, cb(int k, double x[k]), string s = "t", OUT int i)
"doc" CalcOrder 2/3*n^3 - -1.5e3 Required "b.o" @status(i) @idempotent @split(n) Calls "Fortran" g(n, A, z, cb, s, i, n ? 1 : 2);
DefClass c "d" Required "c.o" { DefState { int b; } DefMethod m(IN int n, OUT int k) { *k = n; } }
/* end */ // of it
"#;

#[test]
fn the_text_itself_is_good() {
    assert!(parse(TEXT.as_bytes()).module.is_some(), "{:#?}", parse(TEXT.as_bytes()).diagnostics);
    check(TEXT.as_bytes());
}

fn expr(scalars: u32, reals: bool) -> BoxedStrategy<Expr> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Expr::Int),
        (0..9_i64).prop_map(Expr::Int),
        (0..scalars).prop_map(Expr::Param),
    ];
    let leaf = if reals {
        let real = prop::num::f64::NORMAL | prop::num::f64::ZERO;
        prop_oneof![leaf, real.prop_map(Expr::Real)].boxed()
    } else {
        leaf.boxed()
    };
    let operations = vec![
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Rem,
        Binary::Pow,
        Binary::Lt,
        Binary::Le,
        Binary::Gt,
        Binary::Ge,
        Binary::Eq,
        Binary::Ne,
        Binary::And,
        Binary::Or,
    ];
    leaf.prop_recursive(10, 40, 3, move |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        let pair = (prop::sample::select(operations.clone()), boxed.clone(), boxed.clone());
        let unary = (prop::sample::select(vec![Unary::Neg, Unary::Not]), boxed.clone());
        let least = prop::collection::vec(inner, 2..4);
        prop_oneof![
            4 => pair.prop_map(|(operation, a, b)| Expr::Binary(operation, a, b)),
            2 => unary.prop_map(|(operation, a)| Expr::Unary(operation, a)),
            1 => (boxed.clone(), boxed.clone(), boxed).prop_map(|(a, b, c)| Expr::If(a, b, c)),
            1 => least.prop_map(|all| Expr::Call(Function::Min, all)),
        ]
    })
    .boxed()
}

/// Scalars that every routine of these tests begins with.
const SCALARS: u32 = 3;

fn param(name: String, ty: Type, mode: Mode) -> Param {
    Param { name, mode, ty, dims: vec![], order: Order::Row, default: None, doc: String::new() }
}

fn dimension() -> impl Strategy<Value = Dimension> {
    let size = || expr(SCALARS, false);
    (size(), prop::option::of((size(), size(), prop::option::of(size())))).prop_map(
        |(size, range)| match range {
            None => Dimension { size, start: None, end: None, step: None },
            Some((start, end, step)) => {
                Dimension { size, start: Some(start), end: Some(end), step }
            }
        },
    )
}

fn arrays() -> impl Strategy<Value = Vec<Param>> {
    let modes = vec![Mode::In, Mode::Out, Mode::InOut, Mode::Work];
    let one = (
        prop::sample::select(Element::ALL.to_vec()),
        prop::sample::select(modes),
        prop::collection::vec(dimension(), 1..4),
        any::<bool>(),
        "\\PC{0,8}",
    );
    prop::collection::vec(one, 0..4).prop_map(|all| {
        let named = all.into_iter().enumerate();
        named
            .map(|(index, (element, mode, dims, columns, doc))| Param {
                dims,
                doc,
                order: if columns { Order::Column } else { Order::Row },
                ..param(format!("A{index}"), Type::Number(element), mode)
            })
            .collect()
    })
}

fn interface(name: &'static str) -> impl Strategy<Value = Interface> {
    let attributes = (any::<bool>(), prop::option::of(0..SCALARS), "(?s).{0,20}");
    let default = prop::option::of(Just(Expr::Param(0)));
    let text = prop::option::of("(?s).{0,10}".prop_map(Expr::Text));
    let order = prop::option::of(expr(SCALARS, true));
    (arrays(), attributes, default, text, order, expr(SCALARS, true)).prop_map(
        move |(arrays, (idempotent, split, doc), default, text, calc_order, argument)| {
            let scalar =
                |name: &str, element| param(name.to_owned(), Type::Number(element), Mode::In);
            let mut params = vec![
                scalar("n", Element::I32),
                Param { default, ..scalar("m", Element::I64) },
                scalar("k", Element::U8),
            ];
            params.extend(arrays);
            params.push(Param {
                default: text,
                doc: "a text".to_owned(),
                ..param("s".to_owned(), Type::String, Mode::In)
            });
            params.push(param("info".to_owned(), Type::Number(Element::I32), Mode::Out));
            let info = u32::try_from(params.len() - 1).unwrap();
            let mut arguments: Vec<Expr> = (0..=info).map(Expr::Param).collect();
            arguments.push(argument);
            Interface {
                version: Interface::VERSION,
                name: name.to_owned(),
                class: String::new(),
                doc,
                params,
                calc_order,
                idempotent,
                split,
                status: Some(info),
                parallel: idempotent
                    .then(|| Parallel { ranks: Expr::Param(0), broadcast: Vec::new() }),
                target: Target {
                    language: Language::C,
                    symbol: "f".to_owned(),
                    arguments,
                    result: None,
                    required: vec!["b.o".to_owned(), "c.o".to_owned(), "-la".to_owned()],
                    body: String::new(),
                    format: String::new(),
                },
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }

    #[test]
    fn any_words(words in prop::collection::vec(prop::sample::select(
        TEXT.split_inclusive([' ', '(', ')', ',', '[', ']', ';', '"']).collect::<Vec<_>>()), 0..80)) {
        check(words.concat().as_bytes());
    }

    #[test]
    fn a_few_bytes_changed(changes in prop::collection::vec((0..TEXT.len(), 0..4_u8, any::<u8>()), 0..6)) {
        let mut bytes = TEXT.as_bytes().to_vec();
        for (at, what, byte) in changes {
            let at = at.min(bytes.len() - 1);
            match what {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, byte & 0x7f),
                _ => bytes.swap(at, usize::from(byte)),
            }
        }
        check(&bytes);
    }

    #[test]
    fn printed_and_read_again(one in interface("m/f"), mut two in interface("m/c.g"), doc in "\\PC{0,9}") {
        (two.class, two.parallel) = ("m/c".to_owned(), None);
        let class = Class {
            name: "m/c".to_owned(),
            doc,
            state: " int n; ".to_owned(),
            required: vec!["c.o".to_owned()],
            methods: vec![two],
        };
        let module = Module {
            version: Interface::VERSION,
            name: "m".to_owned(),
            libraries: vec!["-la".to_owned()],
            interfaces: vec![one],
            classes: vec![class],
            ..Module::default()
        };
        let problems = module.interfaces[0].problems();
        prop_assert_eq!(problems, vec![]);
        let printed = module.to_string();
        let again = parse(printed.as_bytes());
        prop_assert_eq!(again.module.as_ref(), Some(&module), "{}\n{:?}", printed, again.diagnostics);
        let json = module.interfaces[0].to_json().unwrap();
        let read = Interface::from_json(json.as_bytes()).unwrap();
        prop_assert_eq!(&read, &module.interfaces[0]);
    }
}

#[test]
fn canonical_descriptions_with_a_few_bytes_changed() {
    let module = parse(TEXT.as_bytes()).module.expect("it is good");
    let json = module.interfaces[0].to_json().expect("it is written").into_bytes();
    assert!(descriptions::canonical(&[&[3; 8], json.as_slice()].concat()));
    let (mut read, mut state) = (0, 1_u64);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let inputs = if cfg!(miri) { 20 } else { 4_000 };
    for _ in 0..inputs {
        let mut input: Vec<u8> = (0..8).map(|_| next() as u8).collect();
        input.extend_from_slice(&json);
        for _ in 0..next() % 4 {
            let at = 8 + (next() % json.len() as u64) as usize;
            // Another byte that occurs there: digits, names, brackets.
            input[at] = json[(next() % json.len() as u64) as usize];
        }
        read += usize::from(descriptions::canonical(&input));
    }
    assert!(read > inputs / 4, "only {read} were descriptions");
}
