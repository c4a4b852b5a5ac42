//! Routines that a server cannot offer, and its messages.
#![forbid(unsafe_code)]

use kumi_call::server::{Program, Registry, RegistryError};
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
    // One routine of the module has callbacks itself.
    interface.doc.truncate(room - 16);
    registry.add(interface, &[]).expect("it is short enough");
    assert_eq!(registry.names().collect::<Vec<_>>(), ["noop"]);
}

#[test]
fn methods_of_classes_are_offered_with_their_class() {
    let text = "Define f(int n) Calls f(n);
        DefClass c { DefMethod get(int n) Calls get(n); DefMethod put(int n) Calls put(n); }";
    let module = kumi_idl::parse(text.as_bytes()).module.expect("a module");
    let json = module.to_json().expect("its text");
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("a.idl", text), ("a.json", json.as_str())] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        let mut registry = Registry::default();
        assert!(registry.add_file(&path, &[]).expect("all can be offered").is_empty());
        assert_eq!(registry.names().collect::<Vec<_>>(), ["c", "c.get", "c.put", "f"]);
        let methods = registry.methods("c");
        let names: Vec<&str> = methods.iter().map(|one| one.interface.method()).collect();
        assert_eq!(names, ["get", "put"]);
        assert!(registry.methods("").is_empty() && registry.methods("f").is_empty());
        // Objects of a class are processes of one program.
        let other = Program { path: "/bin/c".into(), arguments: Vec::new(), folder: None };
        let mut more = module.classes[0].methods[0].clone();
        more.name = "c.more".to_owned();
        let twice = registry.add_program(vec![more], &other);
        assert!(matches!(twice, Err(RegistryError::DuplicateClass(class)) if class == "c"));
    }
    // Only a server describes the making of objects.
    let constructor = Interface::constructor("c", kumi_idl::Language::C);
    assert!(constructor.is_constructor() && constructor.validate().is_ok());
    let refused = Registry::default().add(constructor, &[]);
    assert!(matches!(refused, Err(RegistryError::Constructor(name)) if name == "c"));
    // A method has the name of a method.
    let wrong = json.replace("\"class\":\"c\"", "\"class\":\"d\"");
    assert_ne!(wrong, json);
    let path = folder.path().join("wrong.json");
    std::fs::write(&path, wrong).expect("it is written");
    let refused = Registry::default().add_file(&path, &[]).expect_err("it is no method");
    assert!(refused.to_string().contains("no method of a class `c`"), "{refused}");
}
