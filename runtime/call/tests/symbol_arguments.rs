//! Arguments and results of symbols: expressions, texts, complex numbers.
#![forbid(unsafe_code)]

mod common;

use common::{TestServer, compiled, config, served_by};
use kumi_call::server::Registry;
use kumi_call::{Arg, CallError, Client};
use kumi_idl::Scalar;

const SOURCE: &str = r#"
#include <complex.h>
#include <stdint.h>
#include <string.h>

/* x = by + i, count of them. */
void fill(int count, double *x, float by, int64_t far)
{
    for (int i = 0; i < count; i++)
        x[i] = by + i + (double)(far >> 40);
}

int pick(const char *way, int letter, double scale, int small)
{
    return strcmp(way, "north") == 0 ? letter + (int)(scale * 4) + 1000 * small : -1;
}

double complex turn(double complex z, int times, float complex w)
{
    for (int i = 0; i < times; i++)
        z *= I;
    return z + w;
}

float complex half(float complex z) { return z / 2; }

/* Fortran, 32-bit integers: the value of an expression, a text and its length. */
void fcount_(const int *n, const char *text, int *sum, size_t length)
{
    *sum = *n + (int)length * 100 + (text[0] == 'a' ? 10000 : 0);
}

/* The same symbol of a library whose integers have 64 bits. */
void FCount64(const int64_t *n, const int64_t *more, int64_t *sum) { *sum = *n + *more; }

/* A function whose result is complex, as gfortran returns it. */
double complex fdot_(const int *n, const double complex *x)
{
    double complex sum = 0;
    for (int i = 0; i < *n; i++)
        sum += x[i] * x[i];
    return sum;
}
"#;

const DESCRIPTIONS: &str = r#"
Define fill(mode_in int n, mode_in float by = 0.5, mode_out double x[n * n])
Calls "C" fill(n * n, x, by * 2, 2 ^ 40 * 3);
Define pick(mode_in string way, mode_in double scale, mode_out int found)
Calls "C" found = pick(way, way + 1, scale + 0.25, scale > 1 ? 2 : 1);
Define turn(mode_in dcomplex z, mode_in int times, mode_in scomplex w, mode_out dcomplex turned)
Calls "C" turned = turn(z, times + 1, w);
Define half(mode_in scomplex z, mode_out scomplex halved) Calls "C" halved = half(z);
Define fcount(mode_in int n, mode_out int sum) Calls "Fortran" fcount(n * n - 1, "abc", sum);
Define fdot(mode_in int n, mode_in dcomplex x[n], mode_out dcomplex sum) Calls "Fortran" sum = fdot(n, x);
"#;

/// A library whose Fortran has 64-bit integers and names of its own.
const WIDE: &str = r#"
FortranFormat "%s64";
Define far(mode_in int64 n, mode_out int64 sum) Calls "Fortran" FCount(n * n, 2, sum);
Define add(mode_in int n, mode_out int64 sum) Calls "Fortran" FCount(n + 0, 1 - n, sum);
"#;

/// A server of these routines.
fn served() -> TestServer {
    let folder = tempfile::tempdir().expect("a folder");
    let library = compiled(folder.path(), "passed", SOURCE);
    let mut registry = Registry::default();
    for (name, text) in [("passed.idl", DESCRIPTIONS), ("wide.idl", WIDE)] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        let left_out = registry.add_file(&path, std::slice::from_ref(&library));
        assert!(matches!(&left_out, Ok(none) if none.is_empty()), "{left_out:?}");
    }
    let mut served = served_by(config(), registry);
    served.keep(folder);
    served
}

/// The value returned in the last parameter.
fn result(client: &Client, routine: &str, args: Vec<Arg<'_>>) -> Scalar {
    let outcome = client.call(routine, args).expect("it runs");
    let (last, _) = outcome.values.last().expect("a value").clone();
    outcome.scalar(last).expect("a number")
}

fn complex(real: f64, imaginary: f64) -> Scalar {
    Scalar::Complex(real, imaginary)
}

#[test]
fn complex_numbers_are_passed_and_returned() {
    let server = served();
    let client = server.client();
    let args = vec![Arg::Scalar(complex(1.0, 2.0)), 0.into(), Arg::Scalar(complex(0.5, 0.25))];
    assert_eq!(result(&client, "turn", args), complex(-1.5, 1.25));
    let args = vec![Arg::Scalar(complex(3.0, -5.0))];
    assert_eq!(result(&client, "half", args), complex(1.5, -2.5));
    let z = [[1.0, 1.0], [0.0, 2.0]];
    let args = vec![2.into(), z.as_slice().into()];
    assert_eq!(result(&client, "fdot", args), complex(-4.0, 2.0));
}

#[test]
fn expressions_and_texts_are_passed() {
    let server = served();
    let client = server.client();
    let mut x = [0.0; 9];
    client.call("fill", vec![3.into(), Arg::Default, x.as_mut_slice().into()]).expect("it runs");
    assert_eq!(x, [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]);
    // A text in an expression is the code of its first letter, in upper case.
    let picked = |scale: f64| result(&client, "pick", vec!["abc".into(), scale.into()]);
    assert_eq!(picked(0.5), Scalar::I64(-1), "the text is another one");
    let north = |scale: f64| result(&client, "pick", vec!["north".into(), scale.into()]);
    let n = i64::from(b'N') + 1;
    assert_eq!((north(1.0), north(1.5)), (Scalar::I64(n + 5 + 1000), Scalar::I64(n + 7 + 2000)));
    assert_eq!(result(&client, "fcount", vec![7.into()]), Scalar::I64(48 + 300 + 10_000));
    assert_eq!(result(&client, "far", vec![(1_i64 << 20).into()]), Scalar::I64((1 << 40) + 2));
    assert_eq!(result(&client, "add", vec![(-5).into()]), Scalar::I64(1));
}

#[test]
fn what_a_type_cannot_hold_is_refused_before_it_is_sent() {
    let server = served();
    let client = server.client();
    match client.call("fcount", vec![100_000.into()]) {
        Err(CallError::Argument { text, .. }) => {
            assert!(text.contains("`n * n - 1`") && text.contains("int can hold"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}
