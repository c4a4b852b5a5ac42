//! Routines of OpenBLAS by the shipped descriptions; skipped where it is not installed (`scripts/setup`
//! installs it).
#![forbid(unsafe_code)]

mod common;

use std::path::Path;

use common::{TestServer, config, served_by};
use kumi_call::server::Registry;
use kumi_call::{Arg, Array, ArrayMut, CallError, Client};
use kumi_idl::Order::{Column, Row};
use kumi_idl::{Order, Scalar};

/// The shipped description says this in a form that does not depend on how a compiler returns complex
/// numbers.
const COMPLEX: &str = r#"
Library "-lopenblas";
Define fdotc(mode_in int n, mode_in dcomplex x[n], mode_in dcomplex y[n], mode_out dcomplex result)
Calls "Fortran" result = zdotc(n, x, 1, y, 1);
Define fdotu(mode_in int n, mode_in scomplex x[n], mode_in scomplex y[n], mode_out scomplex result)
Calls "Fortran" result = cdotu(n, x, 1, y, 1);
"#;

/// A server of the shipped descriptions. `None`: OpenBLAS is not installed.
fn served() -> Option<TestServer> {
    let mut registry = Registry::default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("interfaces");
    for name in ["blas1.idl", "blas2.idl", "blas3.idl", "lapack.idl"] {
        let left_out = registry.add_file(&folder.join(name), &[]).expect("descriptions");
        assert!(left_out.is_empty(), "{left_out:?}");
    }
    let own = tempfile::tempdir().expect("a folder");
    let path = own.path().join("complex.idl");
    std::fs::write(&path, COMPLEX).expect("written");
    registry.add_file(&path, &[]).expect("descriptions");
    let mut server = served_by(config(), registry);
    server.keep(own);
    let one = [1.0];
    let args =
        vec![1.into(), one.as_slice().into(), Arg::Default, one.as_slice().into(), Arg::Default];
    match server.client().call("ddot", args) {
        Err(CallError::NotRunnable(why)) if why.contains("cannot be opened") => {
            kumi_skip::skip("openblas", &why);
            None
        }
        other => {
            other.expect("it runs");
            Some(server)
        }
    }
}

fn scalar(client: &Client, routine: &str, args: Vec<Arg<'_>>) -> Scalar {
    let outcome = client.call(routine, args).expect("it runs");
    let (last, _) = outcome.values.last().expect("a value").clone();
    outcome.scalar(last).expect("a number")
}

/// Index of the element (i, j) of an array of m rows and n columns.
fn place(order: Order, m: usize, n: usize, i: usize, j: usize) -> usize {
    if order == Row { i * n + j } else { j * m + i }
}

/// A well-conditioned matrix.
fn matrix(order: Order, n: usize) -> Vec<f64> {
    let mut a = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..n {
            let value = ((i * 7 + j * 3) % 11) as f64 + if i == j { 40.0 } else { 0.0 };
            a[place(order, n, n, i, j)] = value;
        }
    }
    a
}

#[test]
fn products_and_sums() {
    let Some(server) = served() else { return };
    let client = server.client();
    let (x, y) = ([1.0, 2.0, 3.0], [4.0, 5.0, -6.0]);
    let args = vec![3.into(), (&x[..]).into(), Arg::Default, (&y[..]).into(), Arg::Default];
    assert_eq!(scalar(&client, "ddot", args), Scalar::F64(-4.0));
    // Only every second element is sent.
    let args = vec![2.into(), (&x[..]).into(), 2.into(), (&y[..]).into(), (-2).into()];
    assert_eq!(scalar(&client, "ddot", args), Scalar::F64(-6.0 + 12.0));
    let x = [3.0_f32, 4.0];
    let args = vec![2.into(), (&x[..]).into(), Arg::Default];
    assert_eq!(scalar(&client, "snrm2", args), Scalar::F64(5.0));
    let (x, y) = ([[1.0, 2.0], [0.0, 1.0]], [[3.0, -1.0], [2.0, 2.0]]);
    let dot = |routine: &str| {
        let mut args = vec![2.into(), (&x[..]).into(), (&y[..]).into()];
        if routine.starts_with('z') {
            args.insert(2, Arg::Default);
            args.push(Arg::Default);
        }
        scalar(&client, routine, args)
    };
    // conj(1+2i)(3-i) + conj(i)(2+2i)
    assert_eq!(dot("zdotc"), Scalar::Complex(1.0 + 2.0, -7.0 - 2.0));
    assert_eq!(dot("fdotc"), dot("zdotc"));
    assert_eq!(dot("zdotu"), Scalar::Complex(5.0 - 2.0, 5.0 + 2.0));
    let (x, y) = ([[1.0_f32, 2.0]], [[3.0_f32, -1.0]]);
    let args = vec![1.into(), (&x[..]).into(), (&y[..]).into()];
    assert_eq!(scalar(&client, "fdotu", args), Scalar::Complex(5.0, 5.0));
}

#[test]
fn matrices_of_both_orders_are_multiplied() {
    let Some(server) = served() else { return };
    let client = server.client();
    let (m, n, k) = (5, 4, 3);
    let a = |i: usize, l: usize| (i * k + l) as f64;
    let b = |l: usize, j: usize| (l * n + j) as f64 - 5.0;
    for order in [Row, Column] {
        let lay = |rows: usize, columns: usize, value: &dyn Fn(usize, usize) -> f64| {
            let mut numbers = vec![0.0; rows * columns];
            for at in 0..rows * columns {
                let (i, j) = (at / columns, at % columns);
                numbers[place(order, rows, columns, i, j)] = value(i, j);
            }
            numbers
        };
        let (a_is, b_is, mut c_is) = (lay(m, k, &a), lay(k, n, &b), lay(m, n, &|_, _| 1.0));
        let shaped = |numbers, rows, columns| {
            Arg::In(Array::shaped(numbers, &[rows as u64, columns as u64], order))
        };
        let c = ArrayMut::shaped(&mut c_is, &[m as u64, n as u64], order);
        let args = vec![
            Arg::Default,
            Arg::Default,
            (m as i32).into(),
            (n as i32).into(),
            (k as i32).into(),
            2.0.into(),
            shaped(&a_is, m, k),
            Arg::Default,
            shaped(&b_is, k, n),
            Arg::Default,
            10.0.into(),
            Arg::Out(c),
            Arg::Default,
        ];
        client.call("dgemm", args).expect("it runs");
        let expected =
            lay(m, n, &|i, j| 10.0 + 2.0 * (0..k).map(|l| a(i, l) * b(l, j)).sum::<f64>());
        assert_eq!(c_is, expected, "{order:?}");
    }
}

#[test]
fn systems_of_equations_are_solved() {
    let Some(server) = served() else { return };
    let client = server.client();
    let n = 30;
    let size = || Arg::from(n as i32);
    let shape = [n as u64, n as u64];
    for order in [Row, Column] {
        let a = matrix(order, n);
        let x: Vec<f64> = (0..n).map(|i| i as f64 - 3.0).collect();
        let row = |i: usize| (0..n).map(|j| a[place(order, n, n, i, j)] * x[j]).sum::<f64>();
        let right: Vec<f64> = (0..n).map(row).collect();
        let near = |found: &[f64]| found.iter().zip(&x).all(|(is, was)| (is - was).abs() < 1e-9);
        let (mut factors, mut pivots, mut b) = (a.clone(), vec![0_i32; n], right.clone());
        let of = |factors| Arg::Out(ArrayMut::shaped(factors, &shape, order));
        let args = vec![
            size(),
            Arg::Default,
            of(&mut factors),
            Arg::Default,
            (&mut pivots).into(),
            (&mut b).into(),
            Arg::Default,
        ];
        client.call("dgesv", args).expect("it runs");
        assert!(near(&b), "{order:?}");
        // The same in two steps: the factors come back and are sent again.
        let (mut again, mut others, mut b) = (a.clone(), vec![0_i32; n], right.clone());
        let args = vec![size(), size(), of(&mut again), Arg::Default, (&mut others).into()];
        client.call("dgetrf", args).expect("it runs");
        assert!(again == factors && others == pivots, "{order:?}");
        let args = vec![
            Arg::Default,
            size(),
            Arg::Default,
            Arg::In(Array::shaped(&again, &shape, order)),
            Arg::Default,
            (&others).into(),
            (&mut b).into(),
            Arg::Default,
        ];
        client.call("dgetrs", args).expect("it runs");
        assert!(near(&b), "{order:?}");
    }
    let (mut zeros, mut pivots, mut b) = (vec![0.0; 4], vec![0_i32; 2], vec![1.0; 2]);
    let args = vec![
        2.into(),
        Arg::Default,
        (&mut zeros).into(),
        Arg::Default,
        (&mut pivots).into(),
        (&mut b).into(),
        Arg::Default,
    ];
    match client.call("dgesv", args) {
        Err(CallError::Status { value: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
}
