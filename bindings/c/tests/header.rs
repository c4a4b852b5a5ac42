//! `kumi.h` says what the Rust side does: numbers, prototypes, and a C program that uses all of it.

use std::collections::BTreeMap;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use kumi::{
    Code, KumiBuffer, KumiDsmHome, KumiPiece, KumiReport, KumiResult, KumiSignalHandler, KumiStatus,
};

/// The headers, which are one interface.
const HEADERS: [&str; 5] =
    ["kumi.h", "kumi_onesided.h", "kumi_requests.h", "kumi_groups.h", "kumi_dsm.h"];

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The headers without comments and preprocessor lines.
fn header() -> String {
    let read = |name| std::fs::read_to_string(package().join("include").join(name)).unwrap();
    let text = HEADERS.map(read).concat();
    let mut bare = String::new();
    for (i, part) in text.split("/*").enumerate() {
        bare.push_str(if i == 0 { part } else { part.split_once("*/").unwrap().1 });
    }
    bare.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ")
}

/// The folder with the libraries of this build: that of the test, or the one above.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut folders = test.ancestors().skip(1);
    folders.find(|folder| folder.join("libkumi.so").is_file()).unwrap().to_path_buf()
}

/// A fresh folder with a link to the library under the name that programs look for.
fn workplace(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // What an earlier run left; it may not be there.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(libraries().join("libkumi.so"), folder.join("libkumi.so.0"))
        .unwrap();
    std::os::unix::fs::symlink("libkumi.so.0", folder.join("libkumi.so")).unwrap();
    folder
}

/// Runs a command without the variables of a job; its success and what it printed.
fn run(command: &mut Command) -> (bool, String) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KUMI_") && name != "KUMI_SINGLETON" {
            command.env_remove(name);
        }
    }
    // Cargo's way to its libraries comes before a program's own; an older build may lie there.
    command.env_remove("LD_LIBRARY_PATH");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn error_numbers_are_those_of_the_header() {
    let text = header();
    let list = text.split_once("typedef enum kumi_error {").unwrap().1.split_once('}').unwrap().0;
    let in_header: BTreeMap<String, i32> = list
        .split(',')
        .map(|line| {
            let (name, number) = line.split_once('=').unwrap();
            (name.trim().to_owned(), number.trim().parse().unwrap())
        })
        .collect();
    let in_rust: BTreeMap<String, i32> = Code::EVERY
        .iter()
        .map(|code| {
            let mut name = String::from(if *code == Code::Ok { "KUMI" } else { "KUMI_ERR" });
            for letter in format!("{code:?}").chars() {
                if letter.is_uppercase() {
                    name.push('_');
                }
                name.push(letter.to_ascii_uppercase());
            }
            (name, *code as i32)
        })
        .collect();
    assert_eq!(in_header, in_rust);
}

#[test]
fn operations_are_those_of_the_header() {
    let text = header();
    let list = text.split_once("typedef enum kumi_op {").unwrap().1.split_once('}').unwrap().0;
    let own = || list.split(',').filter(|line| !line.contains("KUMI_OP_USER"));
    for line in own() {
        let (name, number) = line.split_once('=').unwrap();
        let op = kumi_mem::Op::from_number(number.trim().parse().unwrap()).unwrap();
        assert_eq!(name.trim(), format!("KUMI_{op:?}").to_uppercase());
    }
    let count = i32::try_from(own().count()).unwrap();
    assert!(kumi_mem::Op::from_number(0).is_none());
    assert!(kumi_mem::Op::from_number(count + 1).is_none());
}

/// The Rust type for a C parameter or result, without the parameter's name.
fn rust_type(declaration: &str) -> &'static str {
    let stars = declaration.matches('*').count();
    let spaced = declaration.replace('*', " ");
    let mut words: Vec<&str> = spaced.split_whitespace().collect();
    let constant = words[0] == "const";
    words.retain(|word| *word != "const");
    match (words[0], stars, constant) {
        ("int" | "kumi_type" | "kumi_op" | "kumi_atomic", 0, false) => "c_int",
        ("unsigned", 0, false) => "c_uint",
        ("size_t", 0, false) => "usize",
        ("uint64_t" | "kumi_request", 0, false) => "u64",
        ("uint32_t", 0, false) => "u32",
        ("double", 0, false) => "f64",
        ("void", 1, true) => "*const c_void",
        ("void", 1, false) => "*mut c_void",
        ("void", 2, false) => "*mut *mut c_void",
        ("kumi_dsm_home", 0, false) => "KumiDsmHome",
        ("char", 1, true) => "*const c_char",
        ("int", 1, false) => "*mut c_int",
        ("int", 1, true) => "*const c_int",
        ("uint64_t" | "kumi_request", 1, false) => "*mut u64",
        ("uint32_t", 1, false) => "*mut u32",
        ("size_t", 1, true) => "*const usize",
        ("kumi_status", 1, false) => "*mut KumiStatus",
        ("kumi_window", 1, false) => "*mut KumiWindow",
        ("kumi_completion", 1, false) => "*mut KumiCompletion",
        ("kumi_completion", 2, false) => "*mut *mut KumiCompletion",
        ("kumi_window", 2, false) => "*mut *mut KumiWindow",
        ("size_t", 1, false) => "*mut usize",
        ("kumi_fifo", 1, false) => "*mut KumiFifo",
        ("kumi_fifo", 2, false) => "*mut *mut KumiFifo",
        ("kumi_piece", 1, true) => "*const KumiPiece",
        ("kumi_buffer", 1, true) => "*const KumiBuffer",
        ("kumi_report", 1, true) => "*const KumiReport",
        ("kumi_result", 1, false) => "*mut KumiResult",
        ("kumi_queue", 1, false) => "*mut KumiQueue",
        ("kumi_queue", 2, false) => "*mut *mut KumiQueue",
        ("kumi_claim", 1, false) => "*mut KumiClaim",
        ("kumi_claim", 2, false) => "*mut *mut KumiClaim",
        ("kumi_group", 1, false) => "*mut KumiGroup",
        ("kumi_group", 2, false) => "*mut *mut KumiGroup",
        ("kumi_op", 1, false) => "*mut c_int",
        ("int64_t", 0, false) => "i64",
        ("kumi_combine", 0, false) => "Option<KumiCombine>",
        ("kumi_signal_handler", 0, false) => "Option<KumiSignalHandler>",
        _ => panic!("{declaration}: a type this test does not know"),
    }
}

fn prototypes_of_header() -> BTreeMap<String, String> {
    let text = header();
    let mut found = BTreeMap::new();
    for statement in text.split(['{', '}', ';']) {
        if statement.trim_start().starts_with("typedef") {
            continue;
        }
        let Some((front, parameters)) = statement.split_once('(') else { continue };
        let name_at = front.rfind("kumi_").unwrap();
        let parameters = parameters.trim_end().strip_suffix(')').unwrap();
        let parameters: Vec<_> = match parameters {
            "void" => Vec::new(),
            list => list.split(',').map(rust_type).collect(),
        };
        let result = rust_type(&front[..name_at]);
        let name = front[name_at..].to_owned();
        found.insert(name, format!("({}) -> {result}", parameters.join(", ")));
    }
    found
}

fn prototypes_of_rust() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for file in std::fs::read_dir(package().join("src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for function in text.split("extern \"C\" fn ").skip(1) {
            let (name, rest) = function.split_once('(').unwrap();
            if !name.starts_with("kumi_") {
                continue;
            }
            let (parameters, rest) = rest.split_once(')').unwrap();
            let result = rest.split_once('{').unwrap().0.trim().strip_prefix("-> ").unwrap();
            let parameters: Vec<_> = parameters
                .split(',')
                .filter_map(|parameter| Some(parameter.split_once(':')?.1.trim()))
                .collect();
            found.insert(name.to_owned(), format!("({}) -> {result}", parameters.join(", ")));
        }
    }
    found
}

#[test]
fn prototypes_are_those_of_the_header() {
    let in_header = prototypes_of_header();
    assert!(in_header.len() > 25, "{in_header:?}");
    assert_eq!(in_header, prototypes_of_rust());
}

/// What the header says of the errors of a function, with what it says of those that it names.
fn errors_of(text: &str, name: &str) -> String {
    let prototype = text.find(&format!("int {name}(")).unwrap_or_else(|| panic!("no {name}"));
    let comment = &text[text[..prototype].rfind("/*").unwrap()..prototype];
    let (_, errors) = comment.split_once("Errors:").unwrap_or_else(|| panic!("{comment}"));
    let mut all = errors.to_owned();
    let others = errors.split("those of ").skip(1);
    for other in others.filter_map(|rest| rest.strip_prefix("kumi_")?.split_once("()")) {
        all.push_str(&errors_of(text, &format!("kumi_{}", other.0)));
    }
    all
}

/// These look first whether a signal handler has failed, as `kumi_mem` does.
#[test]
fn functions_that_tell_of_signal_ports_say_so() {
    let read = |name| std::fs::read_to_string(package().join("include").join(name)).unwrap();
    let text = HEADERS.map(read).concat();
    for name in [
        "kumi_finalize",
        "kumi_message_send",
        "kumi_message_recv",
        "kumi_message_probe",
        "kumi_progress",
        "kumi_flush",
        "kumi_fence",
        "kumi_barrier",
        "kumi_group_barrier",
        "kumi_window_wait_notify",
        "kumi_window_multicast",
        "kumi_request_test",
        "kumi_request_wait",
        "kumi_request_wait_all",
        "kumi_request_wait_any",
        "kumi_request_wait_some",
        "kumi_request_test_all",
        "kumi_request_test_any",
        "kumi_request_test_some",
        "kumi_queue_poll",
        "kumi_queue_wait",
        "kumi_message_await",
        "kumi_message_claim",
        "kumi_claim_recv",
        "kumi_completion_done",
        "kumi_completion_wait",
        "kumi_completion_wait_all",
        "kumi_fifo_append",
        "kumi_fifo_try_append",
        "kumi_fifo_pop",
        "kumi_fifo_try_pop",
        "kumi_fifo_multicast",
        "kumi_fifo_try_multicast",
        "kumi_signal_send",
        "kumi_signal_try_send",
        "kumi_signal_multicast",
        "kumi_signal_try_multicast",
    ] {
        let errors = errors_of(&text, name);
        assert!(errors.contains("HANDLER") && errors.contains("DAMAGED"), "{name}: {errors}");
    }
}

/// Compiles a C program of this folder; where it is.
fn compile(name: &str, definitions: &[(&str, usize)]) -> PathBuf {
    let folder = workplace(name);
    let program = folder.join(name);
    let define = |(name, value): &(&str, usize)| format!("-DRUST_{name}={value}");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    compiler.args(definitions.iter().map(define));
    compiler.arg("-I").arg(package().join("include"));
    compiler.arg(package().join("tests").join(name).with_extension("c"));
    compiler.arg("-o").arg(&program).arg("-L").arg(&folder).args(["-lkumi", "-lpthread"]);
    compiler.arg(format!("-Wl,-rpath,{}", folder.display()));
    assert_eq!(run(&mut compiler), (true, String::new()));
    program
}

#[test]
fn a_c_program_gets_what_the_header_promises() {
    let definitions = [
        ("STATUS_SIZE", size_of::<KumiStatus>()),
        ("STATUS_TAG", offset_of!(KumiStatus, tag)),
        ("STATUS_LENGTH", offset_of!(KumiStatus, length)),
        ("USIZE", size_of::<usize>()),
        ("FIFO_OVERHEAD", kumi_mem::FIFO_OVERHEAD),
        ("FIFO_ALIGNMENT", kumi_mem::FIFO_ALIGNMENT),
        ("HANDLER", size_of::<Option<KumiSignalHandler>>()),
    ];
    let program = compile("abi", &definitions);
    let outside = run(Command::new(&program).env_remove("KUMI_SINGLETON"));
    assert_eq!(outside, (true, String::new()));
    let alone = run(Command::new(&program).arg("alone").env("KUMI_SINGLETON", "1"));
    assert_eq!(alone, (true, String::new()));
}

#[test]
fn lists_and_records_for_many_do_what_the_header_promises() {
    let definitions = [
        ("PIECE_SIZE", size_of::<KumiPiece>()),
        ("PIECE_LENGTH", offset_of!(KumiPiece, length)),
        ("BUFFER_SIZE", size_of::<KumiBuffer>()),
        ("BUFFER_LENGTH", offset_of!(KumiBuffer, length)),
    ];
    let program = compile("lists", &definitions);
    let alone = run(Command::new(&program).env("KUMI_SINGLETON", "1"));
    assert_eq!(alone, (true, String::new()));
}

#[test]
fn requests_do_what_the_header_promises() {
    let definitions = [
        ("RESULT_SIZE", size_of::<KumiResult>()),
        ("RESULT_SOURCE", offset_of!(KumiResult, source)),
        ("RESULT_TAG", offset_of!(KumiResult, tag)),
        ("RESULT_LENGTH", offset_of!(KumiResult, length)),
        ("RESULT_VALUE", offset_of!(KumiResult, value)),
        ("RESULT_WORD", offset_of!(KumiResult, word)),
        ("REPORT_SIZE", size_of::<KumiReport>()),
        ("REPORT_QUEUE", offset_of!(KumiReport, queue)),
        ("REPORT_WORD", offset_of!(KumiReport, word)),
    ];
    let program = compile("requests", &definitions);
    let alone = run(Command::new(&program).env("KUMI_SINGLETON", "1"));
    assert_eq!(alone, (true, String::new()));
}

#[test]
fn groups_do_what_the_header_promises() {
    let program = compile("groups", &[]);
    let alone = run(Command::new(&program).env("KUMI_SINGLETON", "1"));
    assert_eq!(alone, (true, String::new()));
}

#[test]
fn collectives_as_requests_do_what_the_header_promises() {
    let program = compile("started", &[]);
    let alone = run(Command::new(&program).env("KUMI_SINGLETON", "1"));
    assert_eq!(alone, (true, String::new()));
}

#[test]
fn several_threads_may_call_where_the_program_asks_for_it() {
    let program = compile("threads", &[]);
    let alone = run(Command::new(&program).env("KUMI_SINGLETON", "1"));
    assert_eq!(alone, (true, String::new()));
}

#[test]
fn what_was_freed_and_what_a_child_has_is_refused() {
    let program = compile("ends", &[]);
    let alone = run(Command::new(&program).env("KUMI_SINGLETON", "1"));
    assert_eq!(alone, (true, String::new()));
}

#[test]
fn shared_memory_does_what_the_header_promises() {
    let definitions = [
        ("HOME_SIZE", size_of::<KumiDsmHome>()),
        ("HOME_PAGES", offset_of!(KumiDsmHome, block_pages)),
        ("HOME_RANK", offset_of!(KumiDsmHome, rank)),
    ];
    let program = compile("dsm", &definitions);
    for mechanism in ["", "mprotect"] {
        let mut alone = Command::new(&program);
        let ended = run(alone.arg(mechanism).env("KUMI_SINGLETON", "1"));
        assert_eq!(ended, (true, String::new()), "{mechanism}");
    }
}

/// One line says what was wrong, and the process ends by SIGSEGV.
#[test]
fn an_access_outside_of_allocations_ends_the_process() {
    let program = compile("dsm-outside", &[]);
    let (good, text) = run(Command::new(&program).env("KUMI_SINGLETON", "1"));
    assert!(!good && text.lines().count() == 1 && text.contains("was not allocated"), "{text}");
}

#[test]
fn the_header_is_c_plus_plus_too() {
    let folder = workplace("cxx");
    let source = folder.join("header.cc");
    std::fs::write(
        &source,
        "#include <kumi_dsm.h>\nint main() { return kumi_version() == nullptr; }\n",
    )
    .unwrap();
    let mut compiler = Command::new("c++");
    compiler.args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I"]);
    let checked = run(compiler.arg(package().join("include")).arg(&source));
    assert_eq!(checked, (true, String::new()));
}

/// As root, too, whose files cargo could not replace later.
#[test]
fn installing_builds_nothing_and_tells_the_loader() {
    let folder = workplace("install");
    std::fs::write(folder.join("libkumi.a"), "").unwrap();
    // In place of the system's; what it lists is not there.
    let fake = folder.join("bin");
    std::fs::create_dir(&fake).unwrap();
    std::os::unix::fs::symlink("/bin/echo", fake.join("ldconfig")).unwrap();
    let path = format!("{}:{}", fake.display(), std::env::var("PATH").unwrap());
    let install = |library: &Path, destination: &str| {
        let mut make = Command::new("make");
        make.arg("-C").arg(package()).args([
            "--no-print-directory",
            "-s",
            "install",
            "CARGO=false",
        ]);
        make.arg(format!("OUT={}", library.display()));
        make.arg(format!("PREFIX={}", folder.join("prefix").display()));
        make.arg(format!("DESTDIR={destination}")).env("PATH", &path);
        run(make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS"))
    };
    for destination in [String::new(), folder.join("stage").display().to_string()] {
        let (good, text) = install(&folder, &destination);
        let hint = "Programs find libkumi.so.0 in ";
        assert!(good && text.contains(hint) && text.contains("LD_LIBRARY_PATH="), "{text}");
        // The list is made anew by root, for what is in its place.
        let identity = Command::new("id").arg("-u").output().unwrap().stdout;
        let refreshed = text.starts_with('\n');
        assert_eq!(refreshed, identity == b"0\n" && destination.is_empty(), "{text}");
        let at = PathBuf::from(format!("{destination}{}", folder.join("prefix").display()));
        for file in [
            "lib/libkumi.so",
            "lib/libkumi.so.0",
            "lib/libkumi.a",
            "include/kumi.h",
            "include/kumi_groups.h",
        ] {
            assert!(at.join(file).is_file(), "{file}");
        }
    }
    // Without a library it would have to be built.
    assert!(!install(&folder.join("none"), "").0);
}

/// The examples in C: their kernels' own tests, and they themselves as jobs of one rank.
#[test]
fn the_examples_hold() {
    let folder = workplace("examples");
    let mut make = Command::new("make");
    make.arg("-C").arg(package().join("../../examples/c")).arg("check");
    make.arg(format!("OUT={}", folder.display())).arg(format!("LIB={}", folder.display()));
    // The variables of a make that runs this test are not meant for that one.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    let (good, text) = run(&mut make);
    assert!(good, "{text}");
    for name in ["CG", "IS"] {
        let line = format!("RESULT name={name} class=S verified=yes");
        assert!(text.contains(&line), "{text}");
    }
}
