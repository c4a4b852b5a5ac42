//! Typed stubs.

use kumi_idl::{StubLanguage, Stubs, parse, stubs};

fn of(text: &str, language: StubLanguage) -> Stubs {
    let parsed = parse(text.as_bytes());
    let module = parsed.module.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
    stubs(&module, "some file", language)
}

/// The text of the first file.
fn text(description: &str, language: StubLanguage) -> String {
    let mut made = of(description, language);
    assert_eq!(made.left_out, [], "nothing is left out");
    made.files.remove(0).text
}

const DGEMM: &str = "Define dmmul(mode_in int n, mode_in double A[n][n], mode_in double B[n][n], \
    mode_in int64 block = 64, mode_work double w[n], mode_out double C[n][n], mode_out double norm) \
    \"multiplies\" Calls \"C\" dmmul(n, A, B, block, w, C, norm);";

#[test]
fn c_has_the_types_of_the_description() {
    let text = text(DGEMM, StubLanguage::C);
    let wanted = "static inline grpc_error_t call_dmmul(grpc_function_handle_t *handle, int32_t n, const double *A, \
                  const double *B, int64_t block, double *C, double *norm)\n{\n    \
                  return grpc_call(handle, n, A, B, block, C, norm);\n}\n";
    assert!(text.contains(wanted), "{text}");
    assert!(text.contains(
        "call_dmmul_async(grpc_function_handle_t *handle, grpc_sessionid_t *session, int32_t n"
    ));
    assert!(text.contains("grpc_function_handle_default(handle, \"dmmul\")"), "{text}");
}

#[test]
fn python_leaves_out_what_follows() {
    let made = of(DGEMM, StubLanguage::Python);
    assert_eq!(made.files[0].name, "some_file_stubs.py");
    assert_eq!(made.files[1].name, "some_file_stubs.pyi");
    let head = "def dmmul(server: _call.Connection, /, A: _npt.ArrayLike, B: _npt.ArrayLike, *, n: int | None = None, \
                block: int | None = None, timeout: float | None = None, priority: int = 0) -> dmmul_results:";
    for file in &made.files {
        assert!(file.text.contains(head), "{}", file.text);
        assert!(
            file.text.contains("    C: _npt.NDArray[_np.float64]\n    norm: float\n"),
            "{}",
            file.text
        );
    }
    assert!(made.files[1].text.contains(&format!("{head} ...\n")), "{}", made.files[1].text);
    let call = "return dmmul_results(*server.call(\"dmmul\", A, B, timeout=timeout, priority=priority, \
                **_given({\"n\": n, \"block\": block})))";
    assert!(made.files[0].text.contains(call), "{}", made.files[0].text);
}

#[test]
fn java_has_a_record_of_several_results() {
    let text = text(DGEMM, StubLanguage::Java);
    assert!(text.contains("public record DmmulResults(double[] C, double norm) {}"), "{text}");
    assert!(
        text.contains("public DmmulResults dmmul(Integer n, double[] A, double[] B, Long block) {"),
        "{text}"
    );
    assert!(
        text.contains("new DmmulResults(result.doubles(\"C\"), result.real(\"norm\"))"),
        "{text}"
    );
    assert!(text.contains("public final class SomeFileStubs {"), "{text}");
}

#[test]
fn fortran_copies_what_is_sent_and_lends_what_comes_back() {
    let text = text(DGEMM, StubLanguage::Fortran);
    assert!(text.contains("    real(c_double), intent(in) :: A(:, :)\n"), "{text}");
    assert!(
        text.contains("    real(c_double), intent(inout), target, contiguous :: C(:, :)\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "    call grpc_push_in(arguments, block)\n    call grpc_push(arguments, C)\n"
        ),
        "{text}"
    );
    assert!(text.lines().all(|line| line.len() <= 132), "{text}");
}

#[test]
fn parameters_of_python_that_calls_ask_with_get_an_underscore() {
    let description = "Define f(mode_in int threads = 1, mode_in long memory = 2) Calls \"C\" f(threads, memory);";
    let python = text(description, StubLanguage::Python);
    let given = "**_given({\"threads_\": threads, \"memory_\": memory})";
    assert!(python.contains(given), "{python}");
}

#[test]
fn names_that_a_language_has_get_an_underscore() {
    let description = "Define while(mode_in int handle, mode_in int register, mode_in int timeout = 1, mode_in int output = 1, mode_out int lambda) \
        Calls \"C\" lambda = f(handle, register, timeout, output);";
    let c = text(description, StubLanguage::C);
    assert!(c.contains("(grpc_function_handle_t *handle, int32_t handle_, int32_t register_, int32_t timeout, int32_t output, int32_t *lambda)"), "{c}");
    let python = text(description, StubLanguage::Python);
    assert!(python.contains("def while_(server: _call.Connection, /, handle: int, register: int, *, timeout_: int | None = None, output: int | None = None, timeout: "), "{python}");
    assert!(python.contains("**_given({\"timeout_\": timeout_, \"output_\": output})"), "{python}");
    let java = text(description, StubLanguage::Java);
    assert!(
        java.contains(
            "public int while_(int handle, int register, Integer timeout, Integer output)"
        ),
        "{java}"
    );
}

#[test]
fn parameters_do_not_hide_fields_of_classes_for_java() {
    let description = "Define f(mode_in int client, mode_in int object) Calls \"C\" f(client, object);\n\
        DefClass c { DefState { int s; } DefMethod m(mode_in int client, mode_in int object) { s = client; } }";
    let java = text(description, StubLanguage::Java);
    let routine = "return client.prepare(\"f\")\n            .set(\"client\", client_)\n            .set(\"object\", object)";
    let method = "return object.prepare(\"m\")\n                .set(\"client\", client)\n                .set(\"object\", object_)";
    let tight = |text: &str| text.split_whitespace().collect::<String>();
    for wanted in [routine, method] {
        assert!(tight(&java).contains(&tight(wanted)), "{java}");
    }
}

#[test]
fn words_of_either_language_are_no_names_of_the_header() {
    let words = ["static_assert", "thread_local", "bitand", "char16_t", "co_await", "requires"];
    let declared: Vec<String> = words.iter().map(|word| format!("mode_in int {word}")).collect();
    let (declared, given) = (declared.join(", "), words.join(", "));
    let description = format!("Define f({declared}) Calls \"C\" f({given});");
    let c = text(&description, StubLanguage::C);
    for word in words {
        assert!(c.contains(&format!("int32_t {word}_")), "{word}: {c}");
    }
}

#[test]
fn fortran_does_not_tell_capital_letters_apart() {
    let text = text(
        "Define f(mode_in int n, mode_in int N, mode_out int F) Calls \"C\" F = f(n, N);",
        StubLanguage::Fortran,
    );
    assert!(text.contains("    integer(c_int32_t), intent(in) :: N_\n"), "{text}");
}

#[test]
fn fortran_leaves_out_what_it_has_not() {
    let made = of(
        "Define f(mode_in uint32 n) Calls \"C\" f(n);\n\
         Define g(mode_in int n, mode_in int a[n][n][n][n][n]) Calls \"C\" g(n, a);\n\
         Define h(mode_in int n) Calls \"C\" h(n);",
        StubLanguage::Fortran,
    );
    let names: Vec<&str> = made.left_out.iter().map(|it| it.routine.as_str()).collect();
    assert_eq!(names, ["f", "g"]);
    assert!(
        made.left_out[0].to_string().contains("no integers without a sign"),
        "{:?}",
        made.left_out
    );
    let text = &made.files[0].text;
    assert!(text.contains("public :: call_h\n") && !text.contains("call_f"), "{text}");
}

#[test]
fn documentation_does_not_end_its_comment() {
    let description = "Define f(mode_in int n \"n */ int x; \\\\u002a/\") \"a */ b \\\"\\\"\\\" c\" Calls \"C\" f(n);";
    let c = text(description, StubLanguage::C);
    assert_eq!(c.matches("/*").count(), c.matches("*/").count(), "{c}");
    let java = text(description, StubLanguage::Java);
    assert_eq!(java.matches("/*").count(), java.matches("*/").count(), "{java}");
    assert!(!java.contains('\\'), "{java}");
    let python = text(description, StubLanguage::Python);
    assert_eq!(python.matches("\"\"\"").count() % 2, 0, "{python}");
    assert!(!python.contains('\\'), "{python}");
}

/// A backslash is written as a slash.
#[test]
fn a_backslash_in_documentation_does_not_end_its_comment() {
    let description = r#"Define f(mode_in int n) "a *\\ b *\\/ c /\\* d" Calls "C" f(n);"#;
    let open = |line: &str| format!("Define f(mode_in int n) \"{line}\" Calls \"C\" f(n);");
    for language in [StubLanguage::C, StubLanguage::Java] {
        let plain = text(&open("a"), language);
        let made = text(description, language);
        for mark in ["/*", "*/"] {
            assert_eq!(made.matches(mark).count(), plain.matches(mark).count(), "{made}");
        }
        assert!(made.contains("a * / b"), "{made}");
    }
}

/// Each shipped description has stubs in each language.
#[test]
fn shipped_descriptions_have_stubs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../runtime/call/interfaces");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read(&path).unwrap();
        let module = parse(&text).module.unwrap();
        for (name, language) in StubLanguage::ALL {
            let made = stubs(&module, "x", language);
            assert_eq!(made.left_out, [], "{name}, {}", path.display());
            assert!(made.files.iter().all(|file| !file.text.is_empty()));
        }
    }
}
