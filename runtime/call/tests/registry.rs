//! What a server does not offer, and what it says about it.
#![forbid(unsafe_code)]

use kumi_call::server::{Registry, RegistryError};
use kumi_idl::Interface;

#[test]
fn a_description_that_clients_do_not_read_is_not_offered() {
    let mut registry = Registry::default();
    let parsed = kumi_idl::parse(b"Define noop() Calls noop();");
    let mut interface = parsed.module.expect("a module").interfaces.remove(0);
    let room = Interface::MOST_JSON - interface.to_json().expect("its text").len();
    interface.doc = "x".repeat(room + 1);
    match registry.add(interface.clone(), &[]) {
        Err(error @ RegistryError::TooLong { bytes, .. }) => {
            assert!(
                bytes > Interface::MOST_JSON && error.to_string().contains("`noop`"),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
    // The member itself takes some.
    interface.doc.truncate(room - 16);
    registry.add(interface, &[]).expect("it is short enough");
    assert_eq!(registry.names().collect::<Vec<_>>(), ["noop"]);
}

#[test]
fn methods_of_classes_are_named_among_what_is_left_out() {
    let text = "Define f(int n) Calls f(n);
        DefClass c { DefMethod get(int n) Calls get(n); DefMethod put(int n) Calls put(n); }";
    let module = kumi_idl::parse(text.as_bytes()).module.expect("a module");
    let json = module.to_json().expect("its text");
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("a.idl", text), ("a.json", json.as_str())] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        let mut registry = Registry::default();
        let left_out = registry.add_file(&path, &[]).expect("one can be offered");
        let said: Vec<String> = left_out.iter().map(ToString::to_string).collect();
        assert!(said[0].contains("`c.get`") && said[1].contains("`c.put`"), "{said:?}");
        assert_eq!((said.len(), registry.names().collect::<Vec<_>>()), (2, vec!["f"]));
    }
    let path = folder.path().join("c.idl");
    std::fs::write(&path, "DefClass c { DefMethod get(int n) Calls get(n); }").expect("written");
    let nothing = Registry::default().add_file(&path, &[]);
    assert!(matches!(nothing, Err(RegistryError::NotRunnable(_))), "{nothing:?}");
}
