//! The reference of errors: messages from the enums, exit codes from the functions that choose them.

use crate::DocsError;
use crate::region::table;
use crate::rust::{Source, Variant};
use kumi_node::exit::ExitCode;
use std::collections::BTreeMap;
use std::path::Path;

/// Where an enum is, and the function that gives its variants exit codes: region, folder, enum, folder of the function, its
/// type, its name.
const ENUMS: [(&str, &str, &str, &str, &str, &str); 15] = [
    ("command", "tools/kumi/src", "Error", "tools/kumi/src", "Error", "exit_code"),
    ("cluster", "runtime/node/src", "ClientError", "runtime/node/src", "ClientError", "exit_code"),
    ("refusals", "core/control/src", "RefusalKind", "runtime/node/src", "RefusalKind", "from"),
    (
        "configuration",
        "runtime/node/src",
        "ConfigError",
        "runtime/node/src",
        "ConfigError",
        "exit_code",
    ),
    ("demo", "tools/kumi/src/demo", "DemoError", "tools/kumi/src/demo", "DemoError", "exit_code"),
    ("simulations", "tools/sim/src", "SimError", "tools/kumi/src/sim", "", "exit_code"),
    ("calls", "runtime/call/client/src", "CallError", "tools/kumi/src/call", "", "exit_code"),
    (
        "servers",
        "runtime/call/access/src",
        "ServeError",
        "tools/kumi/src/call",
        "",
        "serve_exit_code",
    ),
    (
        "routines",
        "runtime/call/server/src",
        "RegistryError",
        "tools/kumi/src/call",
        "",
        "registry_exit_code",
    ),
    (
        "metaservers",
        "runtime/call/meta/src",
        "MetaError",
        "tools/kumi/src/call",
        "",
        "meta_exit_code",
    ),
    (
        "users",
        "runtime/call/access/src",
        "UsersError",
        "tools/kumi/src/call",
        "",
        "users_exit_code",
    ),
    ("tls", "runtime/call/wire/src", "TlsError", "tools/kumi/src/call", "", "tls_exit_code"),
    (
        "certificate files",
        "runtime/tls/src",
        "PemError",
        "tools/kumi/src/call",
        "",
        "pem_exit_code",
    ),
    ("hosts", "tools/kumi/src", "HostsError", "", "", ""),
    ("library", "runtime/mem/src", "Error", "", "", ""),
];

/// The header with the error codes of C.
const HEADER: &str = "bindings/c/include/kumi.h";

/// The generated parts of the page.
///
/// # Errors
/// When an enum or function is not where it was.
pub fn regions(root: &Path) -> Result<Vec<(String, String)>, DocsError> {
    let mut regions = vec![("exit codes".to_owned(), exit_codes(root)?)];
    let mut sources = BTreeMap::new();
    for (region, folder, of, code_folder, code_type, function) in ENUMS {
        for folder in [folder, code_folder] {
            if !folder.is_empty() && !sources.contains_key(folder) {
                sources.insert(folder, Source::read(root, folder)?);
            }
        }
        let variants = sources[folder].variants(of)?;
        let text = if code_folder.is_empty() {
            let rows = variants.iter().map(|variant| vec![name(variant), said(variant)]);
            table(&["error", "message"], &rows.collect::<Vec<_>>())
        } else {
            let codes = sources[code_folder].exit_codes(code_type, function)?;
            let rows = variants.iter().map(|variant| {
                vec![
                    name(variant),
                    said(variant),
                    numbers(codes.get(&variant.name).or_else(|| codes.get("*"))),
                ]
            });
            table(&["error", "message", "exit code"], &rows.collect::<Vec<_>>())
        };
        regions.push((region.to_owned(), text));
    }
    regions.push(("C".to_owned(), c_codes(&crate::read(root, HEADER)?)?));
    Ok(regions)
}

fn exit_codes(root: &Path) -> Result<String, DocsError> {
    let variants = Source::read_file(root, "runtime/node/src/exit.rs")?.variants("ExitCode")?;
    let mut rows = Vec::new();
    for code in ExitCode::ALL {
        let name = format!("{code:?}");
        let variant = variants.iter().find(|variant| variant.name == name);
        let doc = variant.map(|variant| variant.doc.clone()).unwrap_or_default();
        rows.push(vec![
            code.code().to_string(),
            format!("`{name}`"),
            format!("{doc}."),
            code.remedy().to_owned(),
        ]);
    }
    Ok(table(&["code", "name", "meaning", "what to do"], &rows))
}

fn name(variant: &Variant) -> String {
    format!("`{}`", variant.name)
}

/// The message, or what the variant is if another error speaks.
fn said(variant: &Variant) -> String {
    match &variant.message {
        Some(message) if message != "…" => message.replace('<', "&lt;").replace('\n', " "),
        _ => format!("{}.", variant.doc),
    }
}

/// Exit codes by number; those that another error chooses are none of these.
fn numbers(names: Option<&Vec<String>>) -> String {
    let Some(names) = names.filter(|names| !names.is_empty()) else {
        return "that of the cause".to_owned();
    };
    let number = |name: &String| {
        let code = ExitCode::ALL.into_iter().find(|code| format!("{code:?}") == *name);
        code.map_or_else(|| name.clone(), |code| code.code().to_string())
    };
    names.iter().map(number).collect::<Vec<_>>().join(", ")
}

/// The lines `KUMI_ERR_NAME = -N, /* meaning */` of the header.
fn c_codes(header: &str) -> Result<String, DocsError> {
    let line = |line: &str| {
        let (name, rest) = line.trim().strip_prefix("KUMI_ERR_")?.split_once(" = ")?;
        let (number, comment) = rest.split_once("/*")?;
        let number = number.trim().trim_end_matches(',').to_owned();
        let meaning = comment.trim_end().trim_end_matches("*/").trim();
        Some(vec![number, format!("`KUMI_ERR_{name}`"), format!("{meaning}.")])
    };
    let rows: Vec<Vec<String>> = header.lines().filter_map(line).collect();
    if rows.is_empty() {
        return Err(DocsError::Source(format!(
            "{HEADER} has no line `KUMI_ERR_NAME = -N, /* meaning */`"
        )));
    }
    Ok(table(&["code", "name", "meaning"], &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_c_are_read_from_its_header() {
        let text = c_codes("\tKUMI_OK = 0,\n\tKUMI_ERR_TAG = -8,   /* tags are 0 .. INT_MAX */\n")
            .unwrap();
        assert!(text.ends_with("| -8 | `KUMI_ERR_TAG` | tags are 0 .. INT_MAX. |\n"), "{text}");
        assert!(c_codes("int x;").is_err());
    }

    #[test]
    fn exit_codes_have_their_numbers() {
        let names = vec!["NoInput".to_owned(), "Io".to_owned(), "130".to_owned()];
        assert_eq!(numbers(Some(&names)), "66, 74, 130");
        assert_eq!(numbers(Some(&Vec::new())), "that of the cause");
    }
}
