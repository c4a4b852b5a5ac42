//! What `make` does for those who install parts of the project.
#![forbid(unsafe_code)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the checkout")
}

/// What a make prints in a folder of the checkout, with a folder of programs that come first.
#[track_caller]
fn make(folder: &str, words: &[&str], programs: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut make = Command::new("make");
    make.arg("-C").arg(repository().join(folder)).args(words);
    make.env("PATH", format!("{}:{path}", programs.display()));
    for name in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS", "DESTDIR", "PROFILE", "LIB", "OUT"] {
        make.env_remove(name);
    }
    let out = make.output().expect("make");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    text
}

/// An ldconfig that notes how it was called, and knows no library; an id that is root's.
fn programs(folder: &Path) {
    // Written by another process: one that this process forks meanwhile would have a program open that is about to run.
    let write = |name: &str, text: String| {
        let mut install = Command::new("install");
        install.args(["-m", "755", "/dev/stdin"]).arg(folder.join(name)).stdin(Stdio::piped());
        let mut install = install.spawn().expect("install");
        let mut input = install.stdin.take().expect("a pipe");
        input.write_all(text.as_bytes()).expect("a program");
        drop(input);
        assert!(install.wait().expect("install").success(), "{name}");
    };
    write("ldconfig", format!("#!/bin/sh\necho \"called $*\" >> {}/calls\n", folder.display()));
    write("id", "#!/bin/sh\necho 0\n".to_owned());
}

#[test]
fn installed_libraries_are_found_by_the_loader() {
    for (folder, soname) in [("bindings/c", "libkumi.so.0"), ("bindings/grpc", "libkumi_grpc.so.1")]
    {
        let place = tempfile::tempdir().expect("a folder");
        let place = place.path();
        programs(place);
        let library = soname.split('.').next().expect("a name");
        for kind in ["so", "a"] {
            fs::write(place.join(format!("{library}.{kind}")), "built").expect("a library");
        }
        let out = format!("OUT={}", place.display());
        let prefix = format!("PREFIX={}/usr", place.display());
        let said = make(folder, &["install", &out, &prefix], place);
        let calls = fs::read_to_string(place.join("calls")).unwrap_or_default();
        assert_eq!(calls, "called \ncalled -p\n", "{folder}");
        let note = format!("Programs find {soname} in {}/usr/lib once", place.display());
        assert!(said.contains(&note), "{said}");
        assert!(place.join("usr/lib").join(soname).exists());
        // The files of a package are no libraries of this machine.
        fs::remove_file(place.join("calls")).expect("the calls");
        let below = format!("DESTDIR={}/package", place.display());
        make(folder, &["install", &out, &prefix, &below], place);
        assert!(!place.join("calls").exists());
    }
}

#[test]
fn the_wheel_needs_only_what_builds_it() {
    let place = tempfile::tempdir().expect("a folder");
    let target = format!("CARGO_TARGET_DIR={}", place.path().display());
    let steps = make("bindings/python", &["--dry-run", "wheel", &target], place.path());
    assert!(steps.contains("maturin build"), "{steps}");
    assert!(steps.contains("requirements-build.txt"), "{steps}");
    assert!(!steps.contains("requirements-test.txt"), "{steps}");
    let needs = fs::read_to_string(repository().join("bindings/python/requirements-build.txt"));
    let needs = needs.expect("what the wheel needs");
    let names = needs.lines().filter(|line| !line.starts_with('#'));
    assert_eq!(names.filter_map(|line| line.split("==").next()).collect::<Vec<_>>(), ["maturin"]);
}
