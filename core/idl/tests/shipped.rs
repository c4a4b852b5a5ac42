//! The descriptions that are shipped: all can be read, and their sizes are those that the libraries' manuals give.
use kumi_idl::{Interface, Limits, Module, Plan, Scalar, parse};
use std::path::Path;

fn module(name: &str) -> Module {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/call/interfaces");
    let text = std::fs::read(folder.join(name)).unwrap();
    let parsed = parse(&text);
    let shown: Vec<String> = parsed.diagnostics.iter().map(ToString::to_string).collect();
    assert!(shown.is_empty(), "{name}\n{}", shown.join("\n"));
    let module = parsed.module.unwrap();
    assert_eq!(parse(module.to_string().as_bytes()).module.as_ref(), Some(&module), "{name}");
    module
}

const FILES: [(&str, usize); 6] = [
    ("blas1.idl", 36),
    ("blas2.idl", 26),
    ("blas3.idl", 30),
    ("lapack.idl", 48),
    ("fftw.idl", 6),
    ("demo.idl", 4),
];

fn routine(name: &str) -> Interface {
    let modules = FILES.iter().flat_map(|(file, _)| module(file).interfaces);
    modules.into_iter().find(|interface| interface.name == name).unwrap()
}

/// The plan of a call with these values; for others the defaults.
fn plan(interface: &Interface, values: &[(&str, i64)], texts: &[(&str, &str)]) -> Plan {
    let value = |name: &str| {
        let found = values.iter().find(|(param, _)| *param == name)?;
        Some(Scalar::I64(found.1))
    };
    let text = |name: &str| texts.iter().find(|(param, _)| *param == name).map(|found| found.1);
    let params = || interface.params.iter();
    let scalars: Vec<Option<Scalar>> = params().map(|param| value(&param.name)).collect();
    let texts: Vec<Option<&str>> = params().map(|param| text(&param.name)).collect();
    interface.plan_with_texts(&scalars, &texts, &Limits::default()).unwrap()
}

/// Bytes in memory, to the server and back of the parameter of this name.
fn of(interface: &Interface, plan: &Plan, name: &str) -> (u64, u64, u64) {
    let index = interface.params.iter().position(|param| param.name == name).unwrap();
    let argument = &plan.arguments[index];
    (argument.bytes, argument.sent, argument.returned)
}

#[test]
fn all_of_them_are_read_and_planned() {
    for (file, routines) in FILES {
        let module = module(file);
        assert_eq!(module.interfaces.len(), routines, "{file}");
        for interface in &module.interfaces {
            assert_eq!(
                Interface::from_json(interface.to_json().unwrap().as_bytes()).as_ref(),
                Ok(interface)
            );
            let needs = |param: &kumi_idl::Param| {
                let needed = param.default.is_none() && param.mode.is_sent();
                param.scalar().filter(|_| needed).map(|_| Scalar::I64(6))
            };
            let scalars: Vec<Option<Scalar>> = interface.params.iter().map(needs).collect();
            let plan = interface.plan(&scalars);
            let plan = plan.unwrap_or_else(|error| panic!("{}: {error}", interface.name));
            assert!(plan.operations.is_some_and(|count| count > 0.0), "{}", interface.name);
            assert!(plan.memory > 0 && plan.returned > 0, "{}", interface.name);
            assert!(interface.idempotent, "{}", interface.name);
            assert_eq!(interface.status.is_some(), file == "lapack.idl" || file == "fftw.idl");
        }
    }
}

#[test]
fn a_product_with_wide_leading_dimensions() {
    let dgemm = routine("dgemm");
    let sizes = [("m", 10), ("n", 20), ("k", 30), ("alpha", 1), ("beta", 0)];
    let plain = plan(&dgemm, &sizes, &[]);
    assert_eq!(of(&dgemm, &plain, "A"), (8 * 10 * 30, 8 * 10 * 30, 0));
    assert_eq!(of(&dgemm, &plain, "B"), (8 * 30 * 20, 8 * 30 * 20, 0));
    assert_eq!(of(&dgemm, &plain, "C"), (8 * 10 * 20, 8 * 10 * 20, 8 * 10 * 20));
    assert_eq!(plain.operations, Some(12_000.0));
    let wide = [("lda", 33), ("ldc", 16)];
    let sizes: Vec<(&str, i64)> = sizes.iter().chain(&wide).copied().collect();
    let turned = plan(&dgemm, &sizes, &[("transa", "t"), ("transb", "C")]);
    assert_eq!(of(&dgemm, &turned, "A"), (8 * 33 * 10, 8 * 30 * 10, 0));
    assert_eq!(of(&dgemm, &turned, "B"), (8 * 20 * 30, 8 * 20 * 30, 0));
    assert_eq!(of(&dgemm, &turned, "C"), (8 * 16 * 20, 8 * 10 * 20, 8 * 10 * 20));
    let runs: Vec<_> =
        turned.arguments[6].section.runs().map(|run| (run.offset, run.length)).collect();
    assert_eq!(runs[..2], [(0, 240), (264, 240)], "columns of 30 in 33");
}

#[test]
#[cfg_attr(miri, ignore = "minutes, in code without unsafe blocks")]
fn vectors_with_increments() {
    let daxpy = routine("daxpy");
    let values = [("n", 5), ("alpha", 2), ("incx", -3)];
    let strided = plan(&daxpy, &values, &[]);
    assert_eq!(of(&daxpy, &strided, "x"), (8 * 13, 8 * 5, 0));
    assert_eq!(of(&daxpy, &strided, "y"), (8 * 5, 8 * 5, 8 * 5));
    let none = plan(&daxpy, &[("n", 0), ("alpha", 2)], &[]);
    assert_eq!(of(&daxpy, &none, "x"), (0, 0, 0));
    let same = plan(&daxpy, &[("n", 4), ("alpha", 2), ("incx", 0)], &[]);
    assert_eq!(of(&daxpy, &same, "x"), (8, 8, 0));
    let zdotc = routine("zdotc");
    assert_eq!(of(&zdotc, &plan(&zdotc, &[("n", 7)], &[]), "result"), (16, 0, 16));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn systems_of_equations_and_their_work() {
    let dgesv = routine("dgesv");
    let linpack = plan(&dgesv, &[("n", 600)], &[]);
    // The paper's 8 n^2 + 20 n bytes, and the factors that LAPACK gives back as well.
    assert_eq!(linpack.sent, 4 * 4 + 8 * 600 * 600 + 8 * 600);
    assert_eq!(linpack.returned, 8 * 600 * 600 + 8 * 600 + 4 * 600 + 4);
    let cubed = 600.0_f64.powi(3);
    assert!((linpack.operations.unwrap() - (2.0 / 3.0 * cubed + 2.0 * 360_000.0)).abs() < 1.0);
    let dgesvd = routine("dgesvd");
    let sizes = [("m", 10), ("n", 4)];
    let thin = plan(&dgesvd, &sizes, &[]);
    assert_eq!(of(&dgesvd, &thin, "U"), (8 * 10 * 4, 0, 8 * 10 * 4));
    assert_eq!(of(&dgesvd, &thin, "VT"), (8 * 4 * 4, 0, 8 * 4 * 4));
    assert_eq!(of(&dgesvd, &thin, "work"), (8 * (12 + 64 * 14), 0, 0));
    let none = plan(&dgesvd, &sizes, &[("jobu", "N"), ("jobvt", "A")]);
    assert_eq!(of(&dgesvd, &none, "U"), (0, 0, 0));
    assert_eq!(of(&dgesvd, &none, "VT"), (8 * 16, 0, 8 * 16));
    let zgeev = routine("zgeev");
    let values = plan(&zgeev, &[("n", 5)], &[("jobvr", "N")]);
    assert_eq!(of(&zgeev, &values, "w"), (80, 0, 80));
    assert_eq!(of(&zgeev, &values, "rwork"), (80, 0, 0));
    assert_eq!((of(&zgeev, &values, "VR"), of(&zgeev, &values, "VL")), ((0, 0, 0), (0, 0, 0)));
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn sizes_come_from_the_arrays() {
    let deduced = |name: &str, shapes: &[(&str, &[u64])]| {
        let interface = routine(name);
        let shape =
            |name: &str| shapes.iter().find(|(param, _)| *param == name).map(|found| found.1);
        let shapes: Vec<Option<&[u64]>> =
            interface.params.iter().map(|param| shape(&param.name)).collect();
        let mut scalars = vec![None; interface.params.len()];
        interface.infer_sizes(&mut scalars, &shapes);
        let plan = interface.plan(&scalars).unwrap();
        (interface, plan)
    };
    let (dgesv, planned) = deduced("dgesv", &[("A", &[6, 6]), ("B", &[6])]);
    assert_eq!(of(&dgesv, &planned, "A").0, 8 * 36);
    assert_eq!(of(&dgesv, &planned, "B").0, 8 * 6);
    let (dgesv, planned) = deduced("dgesv", &[("A", &[6, 6]), ("B", &[6, 3])]);
    assert_eq!(of(&dgesv, &planned, "B").0, 8 * 18);
    let (dgesvd, planned) = deduced("dgesvd", &[("A", &[7, 4])]);
    assert_eq!(of(&dgesvd, &planned, "U").0, 8 * 28);
    let (dmmul, planned) = deduced("dmmul", &[("A", &[5, 5])]);
    assert_eq!(of(&dmmul, &planned, "C").2, 8 * 25);
    let (dmmul, planned) = deduced("dmmul", &[("A", &[5, 5, 5]), ("B", &[4, 4])]);
    assert_eq!(of(&dmmul, &planned, "C").2, 8 * 16, "a shape that cannot be says nothing");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn transforms_and_demonstrations() {
    let fft = routine("fft3_forward");
    let planned = plan(&fft, &[("n0", 2), ("n1", 3), ("n2", 4)], &[]);
    assert_eq!(of(&fft, &planned, "x"), (16 * 24, 16 * 24, 0));
    assert_eq!(of(&fft, &planned, "y"), (16 * 24, 0, 16 * 24));
    let ep = routine("ep");
    let planned = plan(&ep, &[("count", 1 << 24)], &[]);
    assert_eq!((planned.sent, planned.returned), (16, 96));
    assert_eq!(planned.operations, Some(33_554_432.0));
    let density = routine("density_of_states");
    let planned = plan(&density, &[("n", 1000), ("count", 8)], &[]);
    assert_eq!(of(&density, &planned, "state"), (24_000, 0, 0));
    assert_eq!(of(&density, &planned, "density"), (64, 0, 64));
    assert_eq!(density.split, Some(1));
}
