//! Descriptions from strangers.
use kumi_idl::{Expr, Interface, JsonError, Unary};

const DMMUL: &str = r#"{"version":1,"name":"dmmul","params":[{"name":"n","mode":"in","type":{"number":"i32"}},{"name":"A","mode":"in","type":{"number":"f64"},"dims":[{"size":{"param":0}},{"size":{"param":0}}]}],"calc_order":{"binary":["pow",{"param":0},{"int":3}]},"idempotent":true,"target":{"language":"c","symbol":"dmmul","arguments":[{"param":0},{"param":1}]}}"#;

fn refused(json: &str) -> String {
    Interface::from_json(json.as_bytes()).unwrap_err().to_string()
}

fn changed(from: &str, to: &str) -> String {
    assert!(DMMUL.contains(from), "{from}");
    refused(&DMMUL.replacen(from, to, 1))
}

#[test]
fn canonical_json_comes_back_as_it_was() {
    let interface = Interface::from_json(DMMUL.as_bytes()).unwrap();
    assert_eq!(interface.to_json().unwrap(), DMMUL);
}

#[test]
fn a_module_comes_back_and_has_no_routine_twice() {
    let module = format!("{{\"version\":1,\"name\":\"m\",\"interfaces\":[{DMMUL}]}}");
    let read = |json: &str| kumi_idl::Module::from_json_within(json.as_bytes(), 10_000);
    assert_eq!(read(&module).unwrap().to_json().unwrap(), module);
    let twice = module.replace(DMMUL, &format!("{DMMUL},{DMMUL}"));
    assert!(read(&twice).unwrap_err().to_string().contains("two of the name `dmmul`"));
    assert!(read(&module.replace("\"m\"", "\"../m\"")).is_err());
    assert!(read(&module.replacen(":1", ":2", 1)).is_err());
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    assert!(changed("\"version\":1", "\"version\":2").contains("version 2 of the form; version 1"));
    assert!(changed("\"name\":\"n\"", "\"name\":\"A\"").contains("two of the name `A`"));
    assert!(changed("\"name\":\"n\"", "\"name\":\"9\"").contains("`9` is no name"));
    assert!(
        changed("{\"param\":0}}]}]", "{\"param\":7}}]}]")
            .contains("`A`, the size of dimension 2: it names parameter 7, which is not there")
    );
    assert!(
        changed("{\"param\":0}}]}]", "{\"param\":1}}]}]").contains("`A` is not a single number")
    );
    assert!(changed("{\"param\":0}}]}]", "{\"real\":1.5}}]}]").contains("only integers"));
    assert!(
        changed("\"mode\":\"in\"", "\"mode\":\"out\"").contains("`n` is not known before the call")
    );
    assert!(changed("\"i32\"", "\"f64\"").contains("`n` is no integer"));
    assert!(changed("\"dmmul\",\"arg", "\"system(\\\"\",\"arg").contains("no symbol"));
    assert!(
        changed("\"idempotent\":true", "\"idempotent\":true,\"status\":0")
            .contains("does not come back")
    );
    assert!(changed("\"idempotent\":true", "\"more\":true").contains("unknown field"));
    assert!(refused("[").contains("no interface description"));
}

#[test]
fn long_and_deep_json_is_refused() {
    let error = Interface::from_json_within(DMMUL.as_bytes(), 20).unwrap_err();
    assert_eq!(error, JsonError::TooLong { bytes: DMMUL.len(), most: 20 });
    let deep = |depth: usize| {
        let size =
            format!("{}{{\"int\":1}}{}", "{\"unary\":[\"neg\",".repeat(depth), "]}".repeat(depth));
        DMMUL.replacen("{\"size\":{\"param\":0}}", &format!("{{\"size\":{size}}}"), 1)
    };
    assert!(Interface::from_json(deep(Expr::MOST_DEPTH - 1).as_bytes()).is_ok());
    assert!(refused(&deep(Expr::MOST_DEPTH)).contains("nested more than 32 deep"));
    assert!(refused(&deep(10_000)).contains("recursion limit"));
    let many = r#"{"name":"p","mode":"in","type":{"number":"i32"}},"#.repeat(300);
    assert!(changed("\"params\":[", &format!("\"params\":[{many}")).contains("302 parameters"));
}

#[test]
fn the_deepest_expression_fits_the_readers_own_limit() {
    let mut interface = Interface::from_json(DMMUL.as_bytes()).unwrap();
    let mut deep = Expr::Int(1);
    for _ in 1..Expr::MOST_DEPTH {
        deep = Expr::Call(kumi_idl::Function::Max, vec![Expr::Int(0), deep]);
    }
    interface.params[1].dims[0].size = deep;
    let json = interface.to_json().unwrap();
    assert_eq!(Interface::from_json(json.as_bytes()), Ok(interface.clone()));
    interface.params[1].dims[0].size = Expr::Unary(Unary::Not, Box::new(Expr::Real(f64::NAN)));
    assert!(interface.validate().is_err());
}
