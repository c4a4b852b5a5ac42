//! Plans as `bindings/testvectors/plans.json` has them, by which implementations in other languages are held to this one.
//! `KUMI_WRITE_VECTORS=1 cargo test -p kumi-idl vectors` writes the file anew.

mod cases;
mod descriptions;
mod random_numbers;

use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/testvectors/plans.json");

/// An item a line, so that a difference shows where it is.
fn lines(sections: &[(&str, Vec<Value>)]) -> String {
    let mut text = String::from("{");
    for (index, (name, items)) in sections.iter().enumerate() {
        let items: Vec<String> = items.iter().map(Value::to_string).collect();
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}\n\"{name}\": [\n{}\n]", items.join(",\n")).expect("into a text");
    }
    text + "\n}\n"
}

#[test]
#[cfg_attr(miri, ignore = "minutes, in code without unsafe blocks")]
fn the_vectors_are_what_the_code_gives() {
    let (descriptions, cases) = cases::all();
    assert!(cases.len() > 220, "only {} cases", cases.len());
    let errors = cases.iter().filter(|case| case.get("error").is_some()).count();
    assert!(errors > 40 && cases.len() - errors > 100, "{errors} of {} fail", cases.len());
    let made = lines(&[("descriptions", descriptions), ("cases", cases)]);
    assert!(made.len() < 160 << 10, "{} bytes", made.len());
    if std::env::var_os("KUMI_WRITE_VECTORS").is_some() {
        std::fs::create_dir_all(Path::new(FILE).parent().expect("a folder")).expect("a folder");
        std::fs::write(FILE, &made).expect(FILE);
    }
    let text = std::fs::read_to_string(FILE).expect(FILE);
    // As values: the order of members depends on how the writer of JSON was built.
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let (made, committed) = (read(&made), read(&text));
    for section in ["descriptions", "cases"] {
        let items = |all: &Value| all[section].as_array().cloned().unwrap_or_default();
        let (made, committed) = (items(&made), items(&committed));
        for (made, committed) in made.iter().zip(&committed) {
            assert_eq!(made, committed, "if this is meant write {FILE} with KUMI_WRITE_VECTORS=1");
        }
        assert_eq!(made.len(), committed.len(), "{section}");
    }
}
