//! Whole programs in documents: Python is parsed; C, C++ and Fortran are compiled against our headers, without output.

use super::Problem;
use crate::markdown::{Block, Page};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Parses what it reads.
const PARSE: &str = "import ast, sys; ast.parse(sys.stdin.read())";

/// Programs that no compiler takes; parts of programs are marked `part`, or recognised as such: a C or C++ program has
/// `int main(`, a Fortran program `program`. `folder` takes the module files of Fortran.
pub fn wrong(pages: &[Page], root: &Path, folder: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut modules = None;
    for page in pages {
        for block in page.blocks.iter().filter(|block| !block.is_marked("part")) {
            let said = match block.language() {
                "python" => run(Command::new("python3").args(["-c", PARSE]), &block.code),
                "c" if is_program(block) => {
                    run(&mut with_headers(root, "cc", "c", "-std=c11"), &block.code)
                }
                "cpp" if is_program(block) => {
                    run(&mut with_headers(root, "c++", "c++", "-std=c++17"), &block.code)
                }
                "fortran" if is_program(block) => {
                    let made = modules.get_or_insert_with(|| make_modules(root, folder));
                    made.clone().and_then(|()| run(&mut fortran(folder), &block.code))
                }
                _ => continue,
            };
            if let Err(why) = said {
                let text = format!("this {} is not accepted: {}", block.language(), why.trim_end());
                problems.push(Problem::new(page, block.line, text));
            }
        }
    }
    problems
}

fn is_program(block: &Block) -> bool {
    match block.language() {
        "fortran" => block.code.lines().any(|line| line.starts_with("program ")),
        _ => block.code.contains("int main("),
    }
}

fn with_headers(root: &Path, compiler: &str, language: &str, standard: &str) -> Command {
    let mut command = Command::new(compiler);
    command.args(["-x", language, standard, "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]);
    for folder in ["bindings/c/include", "bindings/cpp/include", "bindings/grpc/include"] {
        command.arg("-I").arg(root.join(folder));
    }
    command.arg("-");
    command
}

fn fortran(folder: &Path) -> Command {
    let mut command = Command::new("gfortran");
    command.args(["-x", "f95", "-std=f2008", "-fsyntax-only"]);
    for modules in ["kumi-fortran", "kumi-grpc-fortran"] {
        command.arg("-I").arg(folder.join(modules));
    }
    // What it uses has been compiled; what it would write goes there too.
    command.arg("-J").arg(folder).arg("-");
    command
}

/// Whether a folder of built programs has the modules `kumi` and `kumi_grpc`.
pub fn has_modules(folder: &Path) -> bool {
    ["kumi-fortran/kumi.mod", "kumi-grpc-fortran/kumi_grpc.mod"]
        .iter()
        .all(|module| folder.join(module).is_file())
}

/// Compiles the modules `kumi` and `kumi_grpc`, unless the folder has them.
fn make_modules(root: &Path, folder: &Path) -> Result<(), String> {
    if has_modules(folder) {
        return Ok(());
    }
    let out = folder.display();
    for (bindings, target) in [
        ("bindings/fortran", format!("{out}/libkumi_fortran.a")),
        ("bindings/grpc", format!("{out}/kumi-grpc-fortran/kumi_grpc.o")),
    ] {
        let mut make = Command::new("make");
        make.arg("-C").arg(root.join(bindings));
        make.args([format!("OUT={out}"), format!("LIB={out}"), "FFLAGS=-O0".to_owned(), target]);
        run(&mut make, "")?;
    }
    Ok(())
}

/// Runs a command with this input; if it fails, returns its standard error.
fn run(command: &mut Command, input: &str) -> Result<(), String> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let name = command.get_program().to_string_lossy().into_owned();
    let cannot = |error: std::io::Error| format!("{name} cannot be run: {error}");
    let mut child = command.spawn().map_err(cannot)?;
    // It may end without having read everything.
    let written = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(cannot)?;
    if output.status.success() {
        return written.transpose().map(drop).map_err(cannot);
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository;

    fn found(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let exe = std::env::current_exe().unwrap();
        let built = exe.ancestors().nth(2).filter(|built| has_modules(built));
        let pages = [Page::parse("x.md", text)];
        let found = wrong(&pages, repository(), built.unwrap_or(folder.path()));
        found.into_iter().map(|problem| problem.text).collect()
    }

    #[test]
    fn programs_that_are_right_pass() {
        let text = "```python\nwith kumi.init():\n    pass\n```\n\n```c\n#include <kumi.h>\nint main(void) { return kumi_init(); }\n```\n\n\
                    ```cpp\n#include <kumi.hpp>\nint main() { kumi::context job; }\n```\n\n```c\nkumi_init(), …\n```\n\n\
                    ```python,part\nf(…)\n```\n\n```fortran\nprogram x\n  use kumi\n  implicit none\n  call kumi_init()\nend program\n```\n";
        assert_eq!(found(text), Vec::<String>::new());
    }

    #[test]
    fn programs_that_are_wrong_are_found() {
        for (text, why) in [
            ("```python\nwith kumi.init()\n    pass\n```\n", "SyntaxError"),
            (
                "```c\n#include <kumi.h>\nint main(void) { return kumi_innit(); }\n```\n",
                "kumi_innit",
            ),
            ("```cpp\n#include <kumi.hpp>\nint main() { kumi::contexts job; }\n```\n", "contexts"),
            (
                "```fortran\nprogram x\n  use kumi\n  implicit none\n  call kumi_innit(1, y)\nend program\n```\n",
                "y",
            ),
        ] {
            let found = found(text);
            assert!(found.len() == 1 && found[0].contains(why), "{text}: {found:?}");
        }
    }
}
