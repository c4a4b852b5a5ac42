//! Names the shared library, and compiles the C functions that take any number of arguments.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/variadic.c");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libkumi_grpc.so.1");
    cc::Build::new()
        .file("src/variadic.c")
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .compile("kumi_grpc_variadic");
}
