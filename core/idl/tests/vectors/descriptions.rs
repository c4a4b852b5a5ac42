//! Descriptions that show one thing each.

/// Routines as their authors write them, and arguments for each: scalars in their order, `_` is left out.
pub const ROUTINES: &str = r#"
Define dmmul(mode_in int n, mode_in double A[n][n], mode_in double B[n][n], mode_out double C[n][n])
    "dense matrix product" CalcOrder 2 * n ^ 3 Calls "C" dmmul(n, A, B, C);
Define dgesv(mode_in int n, mode_in int nrhs = 1, mode_inout double A[lda: 0, n][n] @order(F), mode_in int lda = max(1, n),
    mode_work int ipiv[n], mode_inout double B[ldb: 0, n][nrhs] @order(F), mode_in int ldb = max(1, n), mode_out int info)
    @status(info) CalcOrder 2 / 3 * n ^ 3 Calls "Fortran" dgesv(n, nrhs, A, lda, ipiv, B, ldb, info);
Define dgemm(mode_in string transa = "N", mode_in int m, mode_in int k, mode_in double A[lda][transa == 'T' ? m : k] @order(F),
    mode_in int lda = transa == 'T' ? k : m) Calls "Fortran" dgemm(transa, m, k, A, lda);
Define strided(mode_in int n, mode_in int inc, mode_inout float x[n * abs(inc): 0, n * abs(inc), abs(inc)]) Calls strided(n, inc, x);
Define box(mode_in int n, mode_in long a, mode_in long b, mode_in long s, mode_out int x[n: a, b, s][3][n: 1, n]) Calls box(n, a, b, s, x);
Define box_f(mode_in int n, mode_in long a, mode_in long b, mode_in long s, mode_inout dcomplex x[n: a, b, s][3][n: 1, n] @order(F))
    Calls box_f(n, a, b, s, x);
Define texts(mode_in string name = "none", mode_out string answer[2 * n], mode_in int n) Calls texts(name, answer, n);
Define reals(mode_in double x = 1 / 3, mode_in float y = sqrt(2 * x), mode_in dcomplex z = 1, mode_out double r)
    CalcOrder log2(x) + log(y) - x ^ 0.5 Calls r = reals(x, y, z);
Define chain(mode_in int a = b + 1, mode_in int b = c * 2, mode_in int c = 3, mode_in int v[a]) Calls chain(a, b, c, v);
Define power(mode_in long base, mode_in long e, mode_in char v[base ^ e]) Calls power(base, e, v);
Define choice(mode_in int n, mode_in int m, mode_in int v[n > m && m != 0 ? n / m : n % (m + 1) || !n]) Calls choice(n, m, v);
Define sizes(mode_in unsigned char a, mode_in short b, mode_in unsigned int c, mode_in unsigned long d, mode_out char v[d]) Calls sizes(a, b, c, d, v);
Define follow(mode_in int n, mode_in int m, mode_in double v[n][m], mode_in double w[k: 0, n], mode_in int k = n + 1) Calls follow(n, m, v, w, k);
Define nothing() Calls nothing();
"#;

/// JSON that is no description, or one that looks like none.
pub const ODD: [&str; 45] = [
    "",
    "{}",
    "[]",
    "nul",
    r#"{"version":1,"name":"f","params":[],"idempotent":false,"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[],"target":{"language":"c","symbol":"f","arguments":[]}} x"#,
    r#"{"version":1,"name":"f","name":"g","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":2,"name":"f","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"1f","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"m/f.g","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f//g","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[],"more":1,"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"in","type":{"number":"i32"}}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"IN","type":{"number":"i32"}}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"in","type":{"number":"i33"}}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"in","type":"string"}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"out","type":"string"}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"in","type":"file"}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"in","type":"file","dims":[{"size":{"int":1}}]}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"in","type":{"callback":[{"name":"x","mode":"in","type":{"number":"f64"}}]}}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"out","type":{"callback":[]}}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"v","mode":"in","type":{"number":"i32"},"dims":[{"size":{"param":0}}]}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"v","mode":"in","type":{"number":"i32"},"dims":[{"size":{"param":4294967295}}]}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"v","mode":"in","type":{"number":"i32"},"dims":[{"size":{"int":2,"param":0}}]}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"v","mode":"in","type":{"number":"i32"},"dims":[{"size":{"int":2.0}}]}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"v","mode":"in","type":{"number":"i32"},"dims":[{"size":{"real":2.0}}]}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"v","mode":"in","type":{"number":"i32"},"dims":[{"size":{"int":9223372036854775808}}]}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"v","mode":"in","type":{"number":"i32"},"dims":[{"size":{"call":["min",[{"int":1}]]}}]}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"out","type":{"number":"i32"},"default":{"int":1}}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"in","type":{"number":"i32"},"default":{"param":0}}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"in","type":{"number":"i32"}},{"name":"n","mode":"in","type":{"number":"i32"}}],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"in","type":{"number":"i32"}}],"status":0,"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","params":[{"name":"n","mode":"out","type":{"number":"i32"}}],"status":0,"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"log.f","class":"log","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"log","class":"log","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"m/log.f","class":"m/log","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"m.log.f","class":"m","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"logf","class":"log","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","class":"log","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"log.f","class":"log.f.g","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"log.f","class":"","params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"log.f","class":1,"params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"log.f","class":null,"params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
    r#"{"version":1,"name":"f","doc":null,"params":[],"target":{"language":"c","symbol":"f","arguments":[]}}"#,
];
