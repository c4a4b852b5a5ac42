//! What is declared here against the header that is installed.

use std::mem::{align_of, offset_of, size_of};
use std::path::Path;
use std::process::Command;

use super::*;

/// Where packages put the header, beside the compiler's own search.
const FOLDERS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/pmix2/include", "/usr/local/include"];

/// Expressions in C with the values that they have here.
fn facts() -> Vec<(&'static str, i64)> {
    let number = |size: usize| i64::try_from(size).expect("a size");
    vec![
        ("sizeof(pmix_proc_t)", number(size_of::<Proc>())),
        ("offsetof(pmix_proc_t, rank)", number(offset_of!(Proc, rank))),
        ("sizeof(pmix_value_t)", number(size_of::<Value>())),
        ("_Alignof(pmix_value_t)", number(align_of::<Value>())),
        ("offsetof(pmix_value_t, data)", number(offset_of!(Value, data))),
        ("sizeof(pmix_info_t)", number(size_of::<Info>())),
        ("offsetof(pmix_info_t, flags)", number(offset_of!(Info, flags))),
        ("offsetof(pmix_info_t, value)", number(offset_of!(Info, value))),
        ("sizeof(pmix_pdata_t)", number(size_of::<PublishedData>())),
        ("offsetof(pmix_pdata_t, key)", number(offset_of!(PublishedData, key))),
        ("offsetof(pmix_pdata_t, value)", number(offset_of!(PublishedData, value))),
        ("sizeof(pmix_data_array_t)", number(size_of::<DataArray>())),
        ("offsetof(pmix_data_array_t, size)", number(offset_of!(DataArray, size))),
        ("offsetof(pmix_data_array_t, array)", number(offset_of!(DataArray, array))),
        ("sizeof(pmix_byte_object_t)", number(size_of::<ByteObject>())),
        ("sizeof(pmix_server_module_t) <= MODULE", 1),
        (
            "offsetof(pmix_server_module_t, client_connected)",
            number(offset_of!(Module, client_connected)),
        ),
        (
            "offsetof(pmix_server_module_t, client_finalized)",
            number(offset_of!(Module, client_finalized)),
        ),
        ("offsetof(pmix_server_module_t, abort)", number(offset_of!(Module, abort))),
        ("offsetof(pmix_server_module_t, fence_nb)", number(offset_of!(Module, fence))),
        ("offsetof(pmix_server_module_t, direct_modex)", number(offset_of!(Module, direct_modex))),
        ("offsetof(pmix_server_module_t, publish)", number(offset_of!(Module, publish))),
        ("offsetof(pmix_server_module_t, lookup)", number(offset_of!(Module, lookup))),
        ("offsetof(pmix_server_module_t, unpublish)", number(offset_of!(Module, unpublish))),
        ("offsetof(pmix_server_module_t, spawn)", number(offset_of!(Module, spawn))),
        ("offsetof(pmix_server_module_t, connect)", number(offset_of!(Module, others))),
        ("PMIX_MAX_NSLEN + 1", number(NSPACE_BYTES)),
        ("PMIX_MAX_KEYLEN + 1", number(KEY_BYTES)),
        ("PMIX_SUCCESS", SUCCESS.into()),
        ("PMIX_ERR_NOT_FOUND", ERR_NOT_FOUND.into()),
        ("PMIX_ERR_NOT_SUPPORTED", ERR_NOT_SUPPORTED.into()),
        ("PMIX_ERR_OUT_OF_RESOURCE", ERR_OUT_OF_RESOURCE.into()),
        ("PMIX_ERR_DUPLICATE_KEY", ERR_DUPLICATE_KEY.into()),
        ("PMIX_OPERATION_SUCCEEDED", OPERATION_SUCCEEDED.into()),
        ("PMIX_STRING", STRING.into()),
        ("PMIX_UINT16", UINT16.into()),
        ("PMIX_UINT32", UINT32.into()),
        ("PMIX_INFO", INFO.into()),
        ("PMIX_DATA_ARRAY", DATA_ARRAY.into()),
        ("PMIX_PROC_RANK", PROC_RANK.into()),
        ("PMIX_RANK_WILDCARD", RANK_WILDCARD.into()),
    ]
}

#[test]
fn declarations_agree_with_the_header() {
    let Some(folder) = FOLDERS.iter().find(|at| Path::new(at).join("pmix_server.h").is_file())
    else {
        let reason = "there is no pmix_server.h; install libpmix-dev";
        return kumi_skip::skip("declarations_agree_with_the_header", reason);
    };
    let folder_of_test = tempfile::tempdir().expect("a folder");
    let source = folder_of_test.path().join("facts.c");
    let mut text =
        "#include <pmix_server.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n"
            .to_owned();
    for (expression, _) in facts() {
        text += &format!("    printf(\"%lld\\n\", (long long)({expression}));\n");
    }
    text += "    return 0;\n}\n";
    std::fs::write(&source, text).expect("our folder");
    let program = folder_of_test.path().join("facts");
    let mut compiler = Command::new("cc");
    compiler.arg(format!("-I{folder}")).arg(format!("-DMODULE={}", size_of::<Module>()));
    compiler.arg("-o").arg(&program).arg(&source);
    assert!(compiler.status().expect("a C compiler").success());
    let output = Command::new(&program).output().expect("the program runs").stdout;
    let output = String::from_utf8(output).expect("text");
    let real: Vec<i64> = output.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(real.len(), facts().len());
    for ((expression, here), there) in facts().into_iter().zip(real) {
        assert_eq!(here, there, "{expression}");
    }
}
