//! The rules of the house that neither rustfmt nor clippy keeps.
#![forbid(unsafe_code)]

use kumi_tests::binaries::repository;
use kumi_tests::source::{self, Function, Source};
use std::collections::BTreeMap;

/// Most lines of a file.
const FILE_LINES: usize = 600;
/// Most lines of a function.
const FUNCTION_LINES: usize = 60;
/// What is longer today. The list may only shrink: see `the_exceptions_only_shrink`.
const EXCEPTIONS: &str = "tests/style-exceptions.toml";

/// Which of our crates each crate may use: dependencies point down only (ARCHITECTURE.md).
const LAYERS: &[(&str, &[&str])] = &[
    ("kumi-proto", &[]),
    ("kumi-sched", &[]),
    ("kumi-idl", &[]),
    ("kumi-verdict", &[]),
    ("kumi-control", &["kumi-sched", "kumi-verdict"]),
    ("kumi-broker", &[]),
    ("kumi-rpc", &[]),
    ("kumi-coherence", &[]),
    ("kumi-messaging", &[]),
    ("kumi-pmi", &[]),
    ("kumi-monitor", &[]),
    ("kumi-leadership", &[]),
    ("kumi-routing", &[]),
    ("kumi-net", &["kumi-proto", "kumi-verdict"]),
    ("kumi-models", &["kumi-proto", "kumi-verdict"]),
    ("kumi-mem", &["kumi-proto", "kumi-net", "kumi-verdict"]),
    ("kumi-dsm", &["kumi-coherence", "kumi-mem", "kumi-net"]),
    ("kumi-web", &["kumi-control", "kumi-monitor", "kumi-sched"]),
    (
        "kumi-node",
        &[
            "kumi-cgroup",
            "kumi-control",
            "kumi-etcd",
            "kumi-leadership",
            "kumi-metrics",
            "kumi-monitor",
            "kumi-sched",
            "kumi-net",
            "kumi-pmi",
            "kumi-verdict",
            "kumi-web",
        ],
    ),
    ("kumi-etcd", &["kumi-leadership", "kumi-tls"]),
    ("kumi-cgroup", &[]),
    ("kumi-metrics", &[]),
    ("kumi-tls", &[]),
    ("kumi-call-wire", &["kumi-idl", "kumi-rpc", "kumi-tls"]),
    ("kumi-call-ffi", &["kumi-idl"]),
    ("kumi-call-access", &["kumi-call-wire", "kumi-rpc"]),
    // A program that calls links this, and nothing of slots, servers and metaservers.
    (
        "kumi-call-client",
        &["kumi-broker", "kumi-call-wire", "kumi-idl", "kumi-routing", "kumi-rpc"],
    ),
    ("kumi-call-slot", &["kumi-call-ffi", "kumi-call-wire", "kumi-idl", "kumi-rpc"]),
    ("kumi-call-parallel", &["kumi-call-slot", "kumi-call-wire", "kumi-idl"]),
    ("kumi-call-generator", &["kumi-call-ffi", "kumi-idl"]),
    (
        "kumi-call-server",
        &[
            "kumi-call-access",
            "kumi-call-generator",
            "kumi-call-slot",
            "kumi-call-wire",
            "kumi-cgroup",
            "kumi-idl",
            "kumi-rpc",
        ],
    ),
    (
        "kumi-call-meta",
        &[
            "kumi-broker",
            "kumi-call-access",
            "kumi-call-wire",
            "kumi-etcd",
            "kumi-idl",
            "kumi-metrics",
            "kumi-rpc",
        ],
    ),
    (
        "kumi-call",
        &[
            "kumi-call-access",
            "kumi-call-client",
            "kumi-call-generator",
            "kumi-call-meta",
            "kumi-call-parallel",
            "kumi-call-server",
            "kumi-call-slot",
            "kumi-call-wire",
        ],
    ),
    ("kumi-interpose", &["kumi-dsm"]),
    ("kumi-c", &["kumi-mem", "kumi-dsm", "kumi-interpose"]),
    ("kumi-pmi-server", &["kumi-pmi"]),
    ("kumi-jia", &["kumi-mem", "kumi-dsm", "kumi-interpose"]),
    ("kumi-ofi", &["kumi-mem", "kumi-messaging"]),
    ("kumi-slot", &["kumi-call-parallel", "kumi-call-slot", "kumi-c"]),
    ("kumi-grpc", &["kumi-call-client", "kumi-call-ffi", "kumi-idl", "kumi-rpc"]),
    (
        "kumi-python",
        &["kumi-dsm", "kumi-mem", "kumi-call-client", "kumi-call-slot", "kumi-idl", "kumi-rpc"],
    ),
    ("kumi-sim", &["kumi-sched", "kumi-broker"]),
    (
        "kumi",
        &[
            "kumi-node",
            "kumi-control",
            "kumi-dsm",
            "kumi-sched",
            "kumi-verdict",
            "kumi-sim",
            "kumi-idl",
            "kumi-rpc",
            "kumi-call",
        ],
    ),
    ("kumi-docs", &["kumi", "kumi-mem", "kumi-node", "kumi-sim"]),
    ("kumi-examples", &["kumi-dsm", "kumi-mem"]),
    (
        "kumi-bench",
        &[
            "kumi-call-client",
            "kumi-control",
            "kumi-dsm",
            "kumi-mem",
            "kumi-node",
            "kumi-sched",
            "kumi-sim",
        ],
    ),
    ("kumi-tests", &["kumi-skip", "kumi-small-disk"]),
    ("kumi-small-disk", &["kumi-skip"]),
    ("kumi-skip", &[]),
];

/// Folders where `unsafe` is allowed.
const UNSAFE_FOLDERS: [&str; 12] = [
    "runtime/net/",
    "runtime/mem/",
    "runtime/dsm/",
    "bindings/",
    // Memory that processes share or lend, and calls of routines that are known by their description only.
    "runtime/call/wire/src/native/",
    "runtime/call/wire/src/lent.rs",
    "runtime/call/slot/src/native/",
    // The `main` of executables that have been linked.
    "runtime/call/parallel/src/executable.rs",
    // Promises that a server has started it.
    "runtime/call/src/bin/kumi-call-slot.rs",
    // They deny it to all of their modules but these.
    "runtime/call/wire/src/lib.rs",
    "runtime/call/slot/src/lib.rs",
    "runtime/call/parallel/src/lib.rs",
];

/// Path, or path and function, to number of lines.
fn exceptions() -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(repository().join(EXCEPTIONS)).expect(EXCEPTIONS);
    let table: toml::Table = text.parse().expect(EXCEPTIONS);
    let lines = |value: &toml::Value| value.as_integer().and_then(|n| usize::try_from(n).ok());
    table.iter().map(|(key, value)| (key.clone(), lines(value).expect(EXCEPTIONS))).collect()
}

fn functions(file: &Source) -> Vec<Function> {
    if file.path.ends_with(".rs") {
        source::rust_functions(&file.text)
    } else if file.path.ends_with(".f90") {
        source::fortran_functions(&file.text)
    } else if file.path.ends_with(".java") {
        // Records and `throws` are beyond the reader of C's functions; files are short all the same.
        Vec::new()
    } else {
        source::c_functions(&file.text)
    }
}

/// What is longer than it should be: key as in the list of exceptions, and its length.
fn too_long() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for file in source::files(&["rs", "c", "h", "cpp", "hpp", "f90", "java"]) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES {
            found.insert(file.path.clone(), lines);
        }
        for function in functions(&file).iter().filter(|f| f.lines > FUNCTION_LINES) {
            let longest = found.entry(format!("{} {}", file.path, function.name)).or_default();
            *longest = function.lines.max(*longest);
        }
    }
    found
}

#[test]
fn files_and_functions_are_short() {
    let allowed = exceptions();
    let mut wrong = Vec::new();
    for (what, lines) in too_long() {
        if allowed.get(&what).is_none_or(|&most| lines > most) {
            wrong.push(format!("{what}: {lines} lines"));
        }
    }
    assert!(
        wrong.is_empty(),
        "longer than {FILE_LINES} lines a file, {FUNCTION_LINES} a function; find the seam:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_exceptions_only_shrink() {
    let actual = too_long();
    for (what, most) in exceptions() {
        let lines = actual.get(&what).copied().unwrap_or_default();
        assert!(lines >= most, "{what} has {lines} lines now: lower or remove it in {EXCEPTIONS}");
    }
}

#[test]
fn nothing_is_left_open() {
    // Put together so that this file does not match itself.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
    let macros = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")];
    let mut wrong = Vec::new();
    for file in
        source::files(&["rs", "c", "h", "cpp", "hpp", "f90", "java", "toml", "md", "sh", "yml"])
    {
        for (index, line) in file.text.lines().enumerate() {
            if words.iter().chain(&macros).any(|word| line.contains(word)) {
                wrong.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "left open:\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_code_is_explained_and_only_where_it_may_be() {
    let mut wrong = Vec::new();
    for file in source::files(&["rs"]) {
        if UNSAFE_FOLDERS.iter().any(|folder| file.path.starts_with(folder)) {
            let lines = source::unexplained_unsafe(&file.text);
            wrong.extend(lines.iter().map(|line| format!("{}:{line}: no SAFETY", file.path)));
            continue;
        }
        if source::code_only(&file.text).contains("unsafe ") {
            wrong.push(format!("{}: unsafe code does not belong there", file.path));
        }
        let is_root = is_crate_root(&file.path);
        if is_root && !file.text.contains("#![forbid(unsafe_code)]") {
            wrong.push(format!("{}: no forbid(unsafe_code)", file.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Keys, tokens and secret names of calls, and names in etcd, come from the kernel's generator, not from a file that a
/// container may lack, nor from the seed of hash tables, which promises nothing.
#[test]
fn secrets_of_calls_and_names_in_etcd_are_random() {
    let sources = ["/dev/urandom", "/dev/random", "RandomState", "DefaultHasher"];
    let mut wrong = Vec::new();
    let folders = ["runtime/call/", "runtime/etcd/"];
    let mut counts = [0; 2];
    for file in source::files(&["rs"]) {
        let at = folders.iter().position(|folder| file.path.starts_with(folder));
        let Some(at) = at.filter(|_| file.path.contains("/src/")) else { continue };
        counts[at] += 1;
        let found = sources.iter().filter(|source| file.text.contains(**source));
        wrong.extend(found.map(|source| format!("{}: {source}", file.path)));
    }
    assert!(
        wrong.is_empty() && counts.iter().all(|count| *count > 0),
        "use kumi_call_wire::random or getrandom instead:\n{}",
        wrong.join("\n")
    );
}

fn is_crate_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], [.., "src", "lib.rs" | "main.rs"] | [.., "src", "bin", _])
}

#[test]
fn the_cores_need_no_operating_system() {
    let mut cores = 0;
    for file in source::files(&["rs"]) {
        let parts: Vec<&str> = file.path.split('/').collect();
        if let ["core", _, "src", "lib.rs"] = parts[..] {
            let declared = ["#![no_std]", "#![cfg_attr(not(test), no_std)]"];
            assert!(declared.iter().any(|line| file.text.contains(line)), "{}", file.path);
            cores += 1;
        }
    }
    let folders = std::fs::read_dir(repository().join("core")).expect("the cores");
    assert_eq!(cores, folders.count(), "a core without a src/lib.rs, or a file that was not read");
}

#[test]
fn dependencies_point_down() {
    let root: toml::Table = read_manifest("Cargo.toml");
    let members = root["workspace"]["members"].as_array().expect("members").iter();
    let mut seen = 0;
    for member in members.map(|member| member.as_str().expect("a path")) {
        let manifest = read_manifest(&format!("{member}/Cargo.toml"));
        let name = manifest["package"]["name"].as_str().expect("a name");
        let allowed = LAYERS.iter().find(|(layer, _)| *layer == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{name} has no place in LAYERS"));
        let used = manifest.get("dependencies").and_then(toml::Value::as_table);
        for used in used.into_iter().flat_map(toml::Table::keys) {
            let ours = LAYERS.iter().any(|(layer, _)| layer == used);
            assert!(!ours || allowed.contains(&used.as_str()), "{name} must not use {used}");
        }
        seen += 1;
    }
    assert_eq!(seen, LAYERS.len(), "LAYERS names a crate that does not exist");
}

fn read_manifest(path: &str) -> toml::Table {
    let text = std::fs::read_to_string(repository().join(path)).expect(path);
    text.parse().expect(path)
}

#[test]
fn the_reader_of_sources_reads_them_right() {
    let text = r##"
/// fn not_me() {
fn short() { let brace = '{'; let text = "fn inner() {{"; }
impl<'a> Thing<'a> {
    pub fn long<F>(&self, f: F) -> [u8; 2]
    where
        F: Fn(),
    {
        /* } /* nested } */ */
        let raw = r#"}"#;
        unsafe { f() }
    }
    fn declared(&self, n: [u8; 3]);
}
"##;
    let found = source::rust_functions(text);
    let named = |name: &str, line, lines| Function { name: name.to_owned(), line, lines };
    assert_eq!(found, [named("short", 3, 1), named("long", 5, 8)]);
    assert_eq!(source::unexplained_unsafe(text), [11]);
    let explained = text.replace("        unsafe", "        // SAFETY: as told.\n        unsafe");
    assert_eq!(source::unexplained_unsafe(&explained), [] as [usize; 0]);
    let text = "#include <a.h>\nstruct s { int a; };\nstatic int f(int a)\n{\n    return a;\n}\n\
                int g(void) { if (1) { return '}'; }\n return 0; }\n";
    assert_eq!(source::c_functions(text), [named("f", 3, 4), named("g", 7, 2)]);
    let text = "namespace {\nclass a : public b {\npublic:\n  a(int c) : b(c) {}\n  int size() const\n  \
                {\n    return 1;\n  }\n};\nint many[] = {1, 2};\n}\nint f(void)\n{\n}\n";
    let methods = [named("a", 4, 1), named("size", 5, 4), named("f", 12, 3)];
    assert_eq!(source::c_functions(text), methods);
    let text = "subroutine a(b)\n  ! no function\n  print *, 'a function'\ncontains\n  pure integer function c()\n\
                \u{20} end function c\nend subroutine a\n";
    assert_eq!(source::fortran_functions(text), [named("c", 5, 2), named("a", 1, 7)]);
}
