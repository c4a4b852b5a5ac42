//! Routines that call functions of the client, and functions for them.

use std::sync::atomic::{AtomicUsize, Ordering};

use kumi_call::{Callback, Outcome};
use kumi_idl::Scalar;

/// The routines of `callbacks.c` for tests of servers and metaservers.
pub const TEXT: &str = r#"
Define integrate(mode_in int n, f(mode_in double x, mode_out double y), mode_out double sum)
Calls "C" integrate(n, f, sum);
Define visit(mode_in int n,
    f(mode_in int k, mode_in double a[k], mode_inout double b[k][2], mode_inout int every[k: 0, k, 2],
        mode_in string name, mode_out string said[16], mode_in char small),
    mode_inout double x[n], mode_out string said[16])
Calls "C" visit(n, f, x, said);
"#;

/// The square of x. `before` gets the number of calls so far.
pub fn square<'a>(before: impl FnMut(usize) + Send + 'a) -> Callback<'a> {
    let (mut before, mut count) = (before, 0);
    Callback::new(move |args| {
        before(count);
        count += 1;
        let x = args.real("x")?;
        args.set("y", Scalar::F64(x * x))
    })
}

/// The same with a counter.
pub fn counted(count: &AtomicUsize) -> Callback<'_> {
    square(|_| {
        count.fetch_add(1, Ordering::Relaxed);
    })
}

/// The integral of x² from 0 to 1, as the routine computes it.
pub fn is_integral(outcome: &Outcome, n: i32) {
    let sum = outcome.scalar(2).and_then(Scalar::real).expect("a sum");
    let points = (0..n).map(|i| (f64::from(i) + 0.5) / f64::from(n));
    let wanted: f64 = points.map(|x| x * x / f64::from(n)).sum();
    assert!((sum - wanted).abs() < 1e-12, "{sum}");
}
