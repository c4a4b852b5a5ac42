//! The headers say what the library does: codes, functions and their types, the layout of structures.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use kumi_grpc::{Code, GrpcArgument, GrpcFunctionHandle, GrpcObjectHandle};
use kumi_grpc::{GrpcHandleAttributes, GrpcSessionAttributes, GrpcSessionInfo};

const HEADERS: [&str; 3] = [
    include_str!("../include/grpc.h"),
    include_str!("../include/kumi_grpc_transaction.h"),
    include_str!("../include/kumi_grpc_arguments.h"),
];
const SOURCES: [&str; 13] = [
    include_str!("../src/attribute.rs"),
    include_str!("../src/handle.rs"),
    include_str!("../src/held.rs"),
    include_str!("../src/object.rs"),
    include_str!("../src/output.rs"),
    include_str!("../src/passing.rs"),
    include_str!("../src/report.rs"),
    include_str!("../src/runtime.rs"),
    include_str!("../src/session.rs"),
    include_str!("../src/stack.rs"),
    include_str!("../src/transaction.rs"),
    include_str!("../src/variadic.rs"),
    include_str!("../src/wait.rs"),
];

/// The headers without comments and lines of the preprocessor.
fn declarations() -> String {
    let text = HEADERS.concat();
    let mut pieces = text.split("/*");
    let mut bare = pieces.next().expect("a begin").to_owned();
    for piece in pieces {
        bare.push_str(piece.split_once("*/").expect("the end of a comment").1);
    }
    bare.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

#[test]
fn codes_are_those_of_the_header() {
    let text = declarations();
    let (_, list) = text.split_once("GRPC_NO_ERROR = 0").expect("the codes");
    let list = format!("GRPC_NO_ERROR = 0{}", list.split_once('}').expect("their end").0);
    let of_header: BTreeMap<String, i32> = list
        .split(',')
        .map(|one| {
            let (name, number) = one.split_once('=').expect("a number");
            (name.trim().to_owned(), number.trim().parse().expect("a number"))
        })
        .collect();
    let name = |code: &Code| code.name().to_str().expect("ASCII").to_owned();
    let of_rust: BTreeMap<String, i32> =
        Code::EVERY.iter().map(|code| (name(code), *code as i32)).collect();
    assert_eq!(of_header, of_rust);
    assert_eq!(of_rust.len(), Code::EVERY.len());
    for code in Code::EVERY {
        let standard = code.standard() as i32;
        assert!((0..=16).contains(&standard) || (32..=34).contains(&standard), "{code:?}");
    }
}

#[test]
fn waits_of_cpp_do_not_sleep() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/kumi_grpc");
    let parts = std::fs::read_dir(folder).expect("the folder of the headers");
    let parts = parts
        .map(|part| std::fs::read_to_string(part.expect("an entry").path()).expect("a header"));
    let all = parts.chain([include_str!("../include/kumi_grpc.hpp").to_owned()]);
    assert!(
        all.into_iter().all(|text| !text.contains("sleep_for")),
        "a wait looks again and again"
    );
}

/// A type of C as Rust has it.
fn rust_type(of_c: &str) -> String {
    let stars = of_c.matches('*').count();
    let constant = of_c.starts_with("const ");
    let words = of_c.replace('*', " ").replace("const ", "");
    let plain = match words.split_whitespace().next().expect("a type") {
        "int"
        | "grpc_error_t"
        | "grpc_sessionid_t"
        | "grpc_handle_attr_name_t_np"
        | "grpc_session_attr_name_t_np" => "c_int",
        "double" => "c_double",
        "size_t" => "usize",
        "char" => "c_char",
        "void" => "c_void",
        "grpc_function_handle_t" => "GrpcFunctionHandle",
        "grpc_object_handle_t_np" => "GrpcObjectHandle",
        "grpc_handle_attr_t_np" => "GrpcHandleAttributes",
        "grpc_session_attr_t_np" => "GrpcSessionAttributes",
        "grpc_session_info_t_np" => "GrpcSessionInfo",
        "grpc_arg_stack_t" => "GrpcArgStack",
        "grpc_held_array_t_np" => "GrpcHeldArray",
        "grpc_output_t_np" => "GrpcOutput",
        "grpc_transaction_t_np" => "GrpcTransaction",
        "grpc_intermediate_t_np" => "GrpcIntermediate",
        "kumi_grpc_argument" => "GrpcArgument",
        other => panic!("{other}: a type that this test does not know"),
    };
    match (stars, constant) {
        (0, _) => plain.to_owned(),
        (1, true) => format!("*const {plain}"),
        (1, false) => format!("*mut {plain}"),
        (_, _) => format!("*mut *mut {plain}"),
    }
}

/// Functions of the headers: their parameters; `None`: any number of them.
fn of_header() -> BTreeMap<String, Option<String>> {
    let text = declarations();
    let mut found = BTreeMap::new();
    for statement in text.split([';', '{', '}']) {
        let Some((front, parameters)) = statement.split_once('(') else { continue };
        if front.contains("typedef") || front.contains("void (") || parameters.starts_with('*') {
            continue;
        }
        let name = front.rsplit([' ', '*']).next().expect("a name").to_owned();
        let result = rust_type(front.trim().strip_suffix(name.as_str()).expect("a type").trim());
        let parameters = parameters.trim_end().strip_suffix(')').expect("the end");
        let list: Vec<String> = match parameters {
            "void" => Vec::new(),
            list => {
                let types = list.split(',').map(str::trim).filter(|one| *one != "...");
                types.map(rust_type).collect()
            }
        };
        let types = format!("({}) -> {result}", list.join(", "));
        found.insert(name, (!parameters.contains("...")).then_some(types));
    }
    found
}

/// Functions of Rust that programs see, but for those that a macro makes.
fn of_rust() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let functions = SOURCES.iter().flat_map(|text| text.split("extern \"C\" fn ").skip(1));
    for function in functions {
        let (name, rest) = function.split_once('(').expect("parameters");
        let (parameters, rest) = rest.split_once(')').expect("their end");
        let result =
            rest.split(['{', ';']).next().expect("a body").trim().trim_start_matches("-> ");
        let types = parameters.split(',').filter_map(|one| Some(one.split_once(':')?.1.trim()));
        let types = types.map(|one| one.replace("*const *mut", "*mut *mut"));
        let types = format!("({}) -> {result}", types.collect::<Vec<_>>().join(", "));
        if !name.starts_with('$') {
            found.insert(name.to_owned(), types);
        }
    }
    found
}

/// A pointer of C that reads only may be one that writes, and the reverse is an error of the header.
fn loosely(types: &str) -> String {
    types.replace("*const ", "*mut ")
}

#[test]
fn functions_are_those_of_the_header() {
    let header = of_header();
    assert!(header.len() > 50, "{header:?}");
    let private = ["kumi_grpc_prepare", "kumi_grpc_record", "kumi_grpc_start"];
    for (name, types) in of_rust() {
        if private.contains(&name.as_str()) {
            continue;
        }
        let declared = header.get(&name).unwrap_or_else(|| panic!("{name} is in no header"));
        let declared = declared.as_deref().expect("a fixed number of parameters");
        assert_eq!(loosely(declared), loosely(&types), "{name}");
    }
}

/// The functions of the standard with their types. `None`: any number of arguments.
const STANDARD: [(&str, Option<&str>); 20] = [
    ("grpc_initialize", Some("(*const c_char) -> c_int")),
    ("grpc_finalize", Some("() -> c_int")),
    ("grpc_function_handle_default", Some("(*mut GrpcFunctionHandle, *const c_char) -> c_int")),
    (
        "grpc_function_handle_init",
        Some("(*mut GrpcFunctionHandle, *const c_char, *const c_char) -> c_int"),
    ),
    ("grpc_function_handle_destruct", Some("(*mut GrpcFunctionHandle) -> c_int")),
    ("grpc_get_handle", Some("(*mut *mut GrpcFunctionHandle, c_int) -> c_int")),
    ("grpc_call", None),
    ("grpc_call_async", None),
    ("grpc_probe", Some("(c_int) -> c_int")),
    ("grpc_probe_or", Some("(*const c_int, usize, *mut c_int) -> c_int")),
    ("grpc_cancel", Some("(c_int) -> c_int")),
    ("grpc_cancel_all", Some("() -> c_int")),
    ("grpc_wait", Some("(c_int) -> c_int")),
    ("grpc_wait_and", Some("(*const c_int, usize) -> c_int")),
    ("grpc_wait_or", Some("(*const c_int, usize, *mut c_int) -> c_int")),
    ("grpc_wait_all", Some("() -> c_int")),
    ("grpc_wait_any", Some("(*mut c_int) -> c_int")),
    ("grpc_get_error", Some("(c_int) -> c_int")),
    ("grpc_get_failed_sessionid", Some("(*mut c_int) -> c_int")),
    ("grpc_error_string", Some("(c_int) -> *mut c_char")),
];

/// Every function of the standard has its types, and its line in the reference, in the same order.
#[test]
fn functions_of_the_standard_are_all_there() {
    let header = of_header();
    for (name, types) in STANDARD {
        let declared = header.get(name).unwrap_or_else(|| panic!("{name} is in no header"));
        assert_eq!(declared.as_deref(), types, "{name}");
    }
    let reference = include_str!("../../../docs/reference/c.md");
    let (_, table) = reference.split_once("| function | codes |\n|---|---|\n").expect("the table");
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    let name = |row: &&str| row.split('`').nth(1).expect("a name").to_owned();
    assert_eq!(
        rows.iter().map(name).collect::<Vec<_>>(),
        STANDARD.map(|(name, _)| name.to_owned())
    );
    // The codes that a row names exist.
    let codes: BTreeSet<&str> =
        Code::EVERY.iter().map(|code| code.name().to_str().expect("ASCII")).collect();
    for row in &rows {
        for word in row.split('`').skip(3).step_by(2).filter(|word| !word.starts_with("grpc_")) {
            let full = format!("GRPC_{}", word.trim_start_matches("GRPC_"));
            assert!(codes.contains(full.as_str()), "{word} in {row}");
        }
    }
}

/// The codes of the standard, by their numbers.
#[test]
fn codes_of_the_standard_have_its_numbers() {
    let names = [
        "NO_ERROR",
        "NOT_INITIALIZED",
        "CONFIGFILE_NOT_FOUND",
        "CONFIGFILE_ERROR",
        "SERVER_NOT_FOUND",
        "FUNCTION_NOT_FOUND",
        "INVALID_FUNCTION_HANDLE",
        "INVALID_SESSION_ID",
        "RPC_REFUSED",
        "COMMUNICATION_FAILED",
        "SESSION_FAILED",
        "NOT_COMPLETED",
        "NONE_COMPLETED",
        "OTHER_ERROR_CODE",
        "UNKNOWN_ERROR_CODE",
        "ALREADY_INITIALIZED",
        "LAST_ERROR_CODE",
    ];
    for (number, name) in names.iter().enumerate() {
        let code = Code::EVERY.get(number).expect("a code");
        let full = format!("GRPC_{name}");
        assert_eq!((code.name().to_str(), *code as usize), (Ok(full.as_str()), number));
    }
}

/// A wait has one code for every failure; what the failure was stands beside it.
#[test]
fn waits_return_codes_of_the_standard() {
    for code in Code::EVERY.iter().filter(|code| **code != Code::NoError) {
        assert_eq!(code.of_wait(), Code::SessionFailed, "{code:?}");
    }
    assert_eq!(Code::NoError.of_wait(), Code::NoError);
}

/// The shared library exports exactly the functions that the headers declare.
#[test]
fn the_library_exports_what_the_header_declares() {
    let listed = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output();
    let listed = String::from_utf8(listed.expect("nm runs").stdout).expect("text");
    let names = listed.lines().filter_map(|line| line.rsplit(' ').next());
    let ours = |name: &&str| !name.starts_with('_') && !name.starts_with("rust_");
    let exported: BTreeSet<String> = names.filter(ours).map(str::to_owned).collect();
    let declared: BTreeSet<String> = of_header().into_keys().collect();
    let private = ["kumi_grpc_prepare", "kumi_grpc_record", "kumi_grpc_start"];
    let missing: Vec<_> = declared.difference(&exported).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    let more: Vec<_> =
        exported.difference(&declared).filter(|name| !private.contains(&name.as_str())).collect();
    assert!(more.is_empty(), "exported, but in no header: {more:?}");
}

/// The library of this build.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let library = test.ancestors().map(|folder| folder.join("libkumi_grpc.so"));
    library.clone().find(|path| path.is_file()).expect("the library of this build")
}

/// Sizes of the structures that programs make.
fn sizes() -> [(&'static str, usize); 6] {
    [
        ("grpc_function_handle_t", size_of::<GrpcFunctionHandle>()),
        ("grpc_object_handle_t_np", size_of::<GrpcObjectHandle>()),
        ("grpc_handle_attr_t_np", size_of::<GrpcHandleAttributes>()),
        ("grpc_session_attr_t_np", size_of::<GrpcSessionAttributes>()),
        ("grpc_session_info_t_np", size_of::<GrpcSessionInfo>()),
        ("kumi_grpc_argument", size_of::<GrpcArgument>()),
    ]
}

/// Programs that were compiled with other sizes may not load the library. Who changes one raises the number in the name, in
/// build.rs and the makefiles.
#[test]
fn the_library_has_the_name_of_its_structures() {
    let listed = Command::new("objdump").arg("-p").arg(library()).output().expect("objdump runs");
    let listed = String::from_utf8(listed.stdout).expect("text");
    let name = listed.lines().find_map(|line| line.trim().strip_prefix("SONAME"));
    assert_eq!(name.map(str::trim), Some("libkumi_grpc.so.1"));
    assert_eq!(sizes().map(|(_, size)| size), [8, 8, 40, 24, 48, 80]);
}

/// Compiles assertions about sizes in C, C++ and with the headers alone.
#[test]
fn structures_have_the_same_layout() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let assertions: String = sizes()
        .iter()
        .map(|(name, size)| {
            format!("typedef char {name}_fits[sizeof({name}) == {size} ? 1 : -1];\n")
        })
        .collect();
    for (compiler, language, standard) in [("cc", "c", "-std=c99"), ("c++", "c++", "-std=c++17")] {
        let file = folder.join(format!("layout.{language}"));
        let text = format!("#include \"kumi_grpc_arguments.h\"\n{assertions}");
        std::fs::write(&file, text).expect("a file");
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        let mut command = Command::new(compiler);
        command.args(["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", standard]);
        command.args(["-x", language, "-I"]).arg(include).arg(&file);
        let output = command.output().expect("a compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
