//! Declarations of libfabric from its headers, and the library's name for the linker.

use std::env;
use std::path::{Path, PathBuf};

use bindgen::callbacks::{IntKind, ParseCallbacks};

const HEADERS: [&str; 11] = [
    "providers/fi_prov.h",
    "fabric.h",
    "fi_atomic.h",
    "fi_cm.h",
    "fi_collective.h",
    "fi_domain.h",
    "fi_endpoint.h",
    "fi_eq.h",
    "fi_errno.h",
    "fi_rma.h",
    "fi_tagged.h",
];

/// Version of the headers. Programs of all later versions know these layouts as the beginning of theirs; the other way round
/// we would read behind what an older program has.
const VERSION: (u32, u32) = (1, 17);

/// Flags are 64 bits wide in all calls, so their names are, too. Errors are `int`.
#[derive(Debug)]
struct Kinds;

impl ParseCallbacks for Kinds {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        let error =
            name.starts_with("FI_E") && !name.contains("FI_EVENT") && !name[4..].contains('_');
        Some(if error { IntKind::I32 } else { IntKind::U64 })
    }
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=KUMI_LIBFABRIC_INCLUDE");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libkumi-fi.so");
    // libfabric unloads providers when the program ends, while threads of the channel still run their code.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let folder = include_folder();
    check_version(&folder);
    let text: String = HEADERS.iter().map(|name| format!("#include <rdma/{name}>\n")).collect();
    let declarations = bindgen::Builder::default()
        .header_contents("libfabric.h", &text)
        .clang_arg(format!("-I{}", folder.display()))
        .parse_callbacks(Box::new(Kinds))
        .allowlist_type("fi_.*")
        .allowlist_type("fid.*")
        .allowlist_var("FI_.*")
        .blocklist_type("fi_mutex_cond")
        .prepend_enum_name(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .layout_tests(true)
        .derive_debug(false)
        .derive_default(true)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .rust_target(bindgen::RustTarget::stable(85, 0).unwrap_or_else(|error| panic!("{error}")))
        .generate()
        .unwrap_or_else(|error| {
            panic!("libfabric's headers in {} cannot be read: {error}", folder.display())
        });
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo gives OUT_DIR"));
    declarations.write_to_file(out.join("libfabric.rs")).expect("OUT_DIR can be written");
}

/// The folder that has `rdma/fabric.h`.
fn include_folder() -> PathBuf {
    let named = env::var_os("KUMI_LIBFABRIC_INCLUDE").map(PathBuf::from);
    let usual = ["/usr/include", "/usr/local/include"].map(PathBuf::from);
    let found = named.iter().chain(&usual).find(|folder| has_provider_header(folder));
    found.cloned().unwrap_or_else(|| {
        panic!(
            "libfabric's headers (rdma/fabric.h, rdma/providers/fi_prov.h) are neither in /usr/include nor in \
             /usr/local/include: install libfabric-dev and libclang-dev, or name their folder in KUMI_LIBFABRIC_INCLUDE"
        )
    })
}

fn has_provider_header(folder: &Path) -> bool {
    folder.join("rdma/fabric.h").is_file() && folder.join("rdma/providers/fi_prov.h").is_file()
}

fn check_version(folder: &Path) {
    let header = folder.join("rdma/fabric.h");
    println!("cargo:rerun-if-changed={}", header.display());
    let text = std::fs::read_to_string(&header)
        .unwrap_or_else(|error| panic!("{}: {error}", header.display()));
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse::<u32>().ok()).unwrap_or(0)
    };
    let found = (number("FI_MAJOR_VERSION"), number("FI_MINOR_VERSION"));
    assert!(
        found == VERSION,
        "libfabric's headers in {} are of version {}.{}, but the provider is made from those of {}.{}: name a folder with \
         them in KUMI_LIBFABRIC_INCLUDE (programs and libfabric itself may be of any later version)",
        folder.display(),
        found.0,
        found.1,
        VERSION.0,
        VERSION.1
    );
}
