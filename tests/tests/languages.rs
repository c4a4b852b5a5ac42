//! Kumi from other languages: their examples and the tests of their bindings, as jobs of four ranks on
//! two nodes.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::{binaries, command, source};
use std::collections::BTreeMap;
use std::process::Command;

/// The output of a program that runs as four ranks on two nodes and ends well.
#[track_caller]
fn four_ranks(cluster: &TestCluster, program: &str, args: &[&str]) -> String {
    let path = binaries::path(program).display().to_string();
    let mut words = vec!["run", "-n", "4", "--nodes", "2", &path];
    words.extend(args);
    cluster.kumi(&words).ok().out
}

/// Every rank speaks, two on each node, in the order in which the message passed them.
#[track_caller]
fn greets(cluster: &TestCluster, program: &str) {
    let out = four_ranks(cluster, program, &[]);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let hello = |r| format!("hello from rank {r} of 4 on node {}, turn {r}", r / 2);
    assert_eq!(lines, [0, 1, 2, 3].map(hello));
}

/// The program's own verification holds.
#[track_caller]
fn verifies(cluster: &TestCluster, program: &str, args: &[&str]) {
    let out = four_ranks(cluster, program, args);
    let last = out.lines().last().unwrap_or_default();
    let begin = format!("RESULT name={program} class=- verified=yes ");
    assert!(last.starts_with(&begin) && last.ends_with(" ranks=4 repeat=1"), "{out}");
}

#[test]
fn rust() {
    let cluster = TestCluster::up(2);
    verifies(&cluster, "string", &["--points", "1001", "--steps", "300"]);
    // One point for each rank.
    verifies(&cluster, "string", &["--points", "4", "--steps", "5"]);
}

#[test]
fn c() {
    let cluster = TestCluster::up(2);
    verifies(&cluster, "wave", &["--points", "30", "--steps", "100"]);
    // One row for each rank, which needs both neighbours'.
    verifies(&cluster, "wave", &["--points", "4", "--steps", "5"]);
    let wave = binaries::path("wave").display().to_string();
    let few = ["run", "-n", "4", "--nodes", "2", &wave, "--points", "3"];
    cluster.kumi(&few).fails(64, &["more ranks than rows"]);
}

#[test]
fn cpp() {
    let cluster = TestCluster::up(2);
    greets(&cluster, "hello-cpp");
    // Rows that do not divide evenly, an even and an odd number of steps.
    verifies(&cluster, "heat", &["--points", "30", "--steps", "100"]);
    verifies(&cluster, "heat", &["--points", "4", "--steps", "3"]);
    verifies(&cluster, "queens", &["--size", "9"]);
    verifies(&cluster, "lookup", &["--count", "3000"]);
    verifies(&cluster, "lookup", &["--count", "5", "--depth", "9"]);
    // Fewer tasks than ranks.
    verifies(&cluster, "queens", &["--size", "2"]);
    let unit = four_ranks(&cluster, "cpp-unit", &[]);
    assert_eq!(unit, "kumi.hpp holds\n".repeat(4));
    let heat = binaries::path("heat").display().to_string();
    let few = ["run", "-n", "4", "--nodes", "2", &heat, "--points", "3"];
    cluster.kumi(&few).fails(64, &["more ranks than rows"]);
}

#[test]
fn fortran() {
    let cluster = TestCluster::up(2);
    greets(&cluster, "hello-fortran");
    verifies(&cluster, "poisson", &["--points", "30"]);
    verifies(&cluster, "poisson", &["--points", "4"]);
    verifies(&cluster, "drum", &["--points", "30", "--steps", "100"]);
    // One column for each rank.
    verifies(&cluster, "drum", &["--points", "4", "--steps", "5"]);
    verifies(&cluster, "life", &["--size", "30", "--steps", "60"]);
    verifies(&cluster, "life", &["--size", "5", "--steps", "3"]);
    let unit = four_ranks(&cluster, "fortran-unit", &[]);
    assert_eq!(unit, "the module kumi holds\n".repeat(4));
    let poisson = binaries::path("poisson").display().to_string();
    let few = ["run", "-n", "4", "--nodes", "2", &poisson, "--points", "3"];
    cluster.kumi(&few).fails(64, &["more ranks than columns"]);
    let life = binaries::path("life").display().to_string();
    let few = ["run", "-n", "4", "--nodes", "2", &life, "--size", "3"];
    cluster.kumi(&few).fails(64, &["more ranks than rows"]);
}

#[test]
fn outside_a_job_they_say_how_to_start_them() {
    for program in [
        "hello-cpp",
        "heat",
        "queens",
        "lookup",
        "hello-fortran",
        "poisson",
        "life",
        "drum",
        "wave",
    ] {
        let mut alone = Command::new(binaries::path(program));
        alone.env_remove("KUMI_SINGLETON");
        command::run(alone).fails(1, &["kumi_init: ", "kumi run -n"]);
    }
    for program in ["heat", "queens", "lookup", "poisson", "life", "drum", "wave"] {
        let run = |option: &str| {
            let mut alone = Command::new(binaries::path(program));
            alone.arg(option).env_remove("KUMI_SINGLETON");
            command::run(alone)
        };
        assert!(run("--help").ok().out.contains("Usage:"));
        run("--what").fails(64, &["unknown option", "Usage:"]);
    }
}

/// How Fortran passes what C declares so, without the name; several where Fortran has a choice.
fn in_fortran(declaration: &str) -> &'static [&'static str] {
    let stars = declaration.matches('*').count();
    let spaced = declaration.replace('*', " ");
    let mut words: Vec<&str> = spaced.split_whitespace().collect();
    let constant = words[0] == "const";
    words.retain(|word| *word != "const");
    match (words[0], stars, constant) {
        ("int" | "unsigned" | "kumi_type" | "kumi_op" | "kumi_atomic", 0, false) => {
            &["integer(c_int), value"]
        }
        ("size_t", 0, false) => &["integer(c_size_t), value"],
        ("uint64_t" | "kumi_request", 0, false) => &["integer(c_int64_t), value"],
        ("uint32_t", 0, false) => &["integer(c_int32_t), value"],
        ("double", 0, false) => &["real(c_double), value"],
        ("kumi_signal_handler", 0, false) => &["type(c_funptr), value"],
        ("int64_t", 0, false) => &["integer(c_int64_t), value"],
        ("void", 1, _) | ("kumi_report", 1, true) => &["type(c_ptr), value"],
        (
            "kumi_window" | "kumi_fifo" | "kumi_completion" | "kumi_queue" | "kumi_claim"
            | "kumi_group",
            1,
            false,
        ) => &["type(c_ptr), value"],
        (
            "kumi_window" | "kumi_fifo" | "kumi_completion" | "kumi_queue" | "kumi_claim"
            | "kumi_group",
            2,
            false,
        ) => &["type(c_ptr), intent(inout)"],
        ("kumi_request", 1, false) => {
            &["integer(c_int64_t), intent(inout)", "integer(c_int64_t), intent(inout) (*)"]
        }
        ("kumi_result", 1, false) => {
            &["type(kumi_result), intent(inout)", "type(kumi_result), intent(inout) (*)"]
        }
        ("int", 1, true) => &["integer(c_int), intent(in) (*)"],
        ("size_t", 1, true) => &["integer(c_size_t), intent(in) (*)"],
        ("char", 1, true) => &["character(kind=c_char), intent(in) (*)", "type(c_ptr), value"],
        ("kumi_piece", 1, true) => &["type(kumi_piece), intent(in) (*)"],
        ("kumi_buffer", 1, true) => &["type(kumi_buffer), intent(in) (*)"],
        ("int", 1, false) => {
            &["integer(c_int), intent(inout)", "integer(c_int), intent(inout) (*)"]
        }
        ("size_t", 1, false) => {
            &["integer(c_size_t), intent(inout)", "integer(c_size_t), intent(inout) (*)"]
        }
        ("uint64_t", 1, false) => &["integer(c_int64_t), intent(inout)"],
        ("uint32_t", 1, false) => &["integer(c_int32_t), intent(inout)"],
        ("kumi_status", 1, false) => &["type(kumi_status), intent(inout)"],
        _ => panic!("{declaration}: a type this test does not know"),
    }
}

/// The parts of a list between the commas that are in no parentheses.
fn items(list: &str) -> Vec<&str> {
    let mut depth = 0;
    let outside = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    };
    list.split(outside).map(str::trim).filter(|item| !["", "void"].contains(item)).collect()
}

/// The last word of a C declaration.
fn name_of(declaration: &str) -> &str {
    let last = declaration.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next();
    last.unwrap_or_default()
}

/// A function that Fortran knows of C.
struct Bound {
    name: String,
    arguments: Vec<String>,
    result: String,
    /// How each is declared, by its name.
    declared: BTreeMap<String, String>,
}

/// The functions of C in the interfaces of a module.
fn bound(module: &str) -> Vec<Bound> {
    let joined = module.replace("&\n", "");
    let mut found: Vec<Bound> = Vec::new();
    for line in joined.lines().map(str::trim) {
        if let (true, Some(rest)) = (line.contains(" bind(c"), line.strip_prefix("function ")) {
            let (own, rest) = rest.split_once('(').expect("arguments");
            let (arguments, rest) = rest.split_once(')').expect("arguments");
            let name = rest.split_once("name='").map(|(_, rest)| rest.trim_end_matches("')"));
            let (_, result) = rest.split_once("result(").expect("a result");
            found.push(Bound {
                name: name.unwrap_or(own).to_owned(),
                arguments: items(arguments).into_iter().map(str::to_owned).collect(),
                result: result.split(')').next().expect("its name").to_owned(),
                declared: BTreeMap::new(),
            });
        } else if let (Some((kind, variables)), Some(last)) =
            (line.split_once(" :: "), found.last_mut())
        {
            for variable in items(variables) {
                let name = variable.trim_end_matches("(*)");
                let kind = format!("{kind}{}", if variable == name { "" } else { " (*)" });
                // Of procedures behind the interface it may be another one of this name.
                last.declared.entry(name.to_owned()).or_insert(kind);
            }
        }
    }
    found
}

/// A compiler cannot see whether an interface to a C function is that function's.
#[test]
fn the_interfaces_of_fortran_are_those_of_the_header() {
    let read = |path: &str| std::fs::read_to_string(binaries::repository().join(path)).expect(path);
    let headers = ["kumi.h", "kumi_onesided.h", "kumi_groups.h", "kumi_requests.h"]
        .map(|name| read(&format!("bindings/c/include/{name}")));
    let header = source::code_only(&headers.concat());
    let mut generate = Command::new("sh");
    generate.arg(binaries::repository().join("bindings/fortran/generate")).arg("atomics");
    let atomics = command::run(generate).ok().out;
    let modules = ["kumi_c", "kumi_c_requests", "kumi_groups", "kumi_started"]
        .map(|name| read(&format!("bindings/fortran/{name}.f90")));
    let mut functions = bound(&(modules.concat() + &atomics));
    functions.retain(|function| function.name != "strlen");
    assert!(functions.len() > 60, "only {} functions found", functions.len());
    for Bound { name, arguments, result, declared } in functions {
        let (before, prototype) =
            header.split_once(&format!("{name}(")).unwrap_or_else(|| panic!("no {name} in kumi.h"));
        let (parameters, _) = prototype.split_once(')').expect("parameters");
        let parameters = items(parameters);
        let names: Vec<&str> = parameters.iter().map(|parameter| name_of(parameter)).collect();
        assert_eq!(arguments, names, "{name}");
        for (argument, parameter) in arguments.iter().zip(&parameters) {
            let kind = declared.get(argument).map(String::as_str).unwrap_or_default();
            let wanted = in_fortran(parameter);
            assert!(wanted.contains(&kind), "{name}: {argument} is {kind}, not {wanted:?}");
        }
        let kind = declared.get(&result).map(String::as_str).unwrap_or_default();
        let returned = before.lines().last().expect("a type");
        let wanted = in_fortran(returned).last().expect("a kind");
        assert_eq!(format!("{kind}, value"), *wanted, "the result of {name}");
    }
}
