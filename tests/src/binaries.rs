//! Paths of the executables under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the repository")
}

/// The folder with `kumi`, `kumid`, `libkumi.so` and the examples: `$KUMI_BIN_DIR` if `make test` has
/// built them, otherwise that of the profile of this test, built now.
///
/// # Panics
/// When the build fails.
pub fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| match std::env::var_os("KUMI_BIN_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => build(),
    })
}

/// The executable of this name.
///
/// # Panics
/// When there is none.
pub fn path(name: &str) -> PathBuf {
    let path = directory().join(name);
    assert!(path.is_file(), "there is no {}; run `make test` or `make build`", path.display());
    path
}

/// `target/<profile>/deps/<this test>` tells where the rest belongs.
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let directory = test.ancestors().nth(2).expect("tests lie in target/<profile>/deps");
    let release = directory.ends_with("release");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(repository()).args(["build", "--workspace", "--quiet", "--locked"]);
    cargo.env("CARGO_TARGET_DIR", directory.parent().expect("the profile lies in the target"));
    if release {
        cargo.arg("--release");
    }
    assert!(cargo.status().expect("cargo runs").success(), "cargo build failed");
    for folder in [
        "examples/c",
        "examples/dsm",
        "bindings/cpp",
        "examples/cpp",
        "bindings/fortran",
        "examples/fortran",
    ] {
        let mut make = Command::new("make");
        make.arg("-C").arg(repository().join(folder));
        for variable in ["LIB", "OUT"] {
            make.arg(format!("{variable}={}", directory.display()));
        }
        assert!(make.status().expect("make runs").success(), "{folder} does not build");
    }
    directory.to_owned()
}
