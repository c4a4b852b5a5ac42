//! Descriptions of routines as users write them, or as hostile or broken servers send them. `core/idl/tests/fuzzed.rs` runs
//! the same with inputs from a seed, so it needs no fuzzer.

#![allow(dead_code)] // The fuzz target uses one of them.

use kumi_idl::{Interface, Param, Scalar, parse};

/// A valid description can be used, printed and read again.
pub fn check(bytes: &[u8]) {
    let parsed = parse(bytes);
    let Some(module) = parsed.module else {
        assert!(!parsed.diagnostics.is_empty());
        return;
    };
    let methods = module.classes.iter().flat_map(|class| &class.methods);
    for interface in module.interfaces.iter().chain(methods) {
        interface.validate().unwrap();
        let json = interface.to_json().unwrap();
        assert_eq!(Interface::from_json(json.as_bytes()).unwrap(), *interface);
        let three = |param: &Param| {
            let sent = param.scalar().filter(|_| param.mode.is_sent());
            sent.map(|_| Scalar::I64(3))
        };
        let scalars: Vec<Option<Scalar>> = interface.params.iter().map(three).collect();
        // Sizes may be anything: an answer suffices.
        let _planned = interface.plan(&scalars);
    }
    let printed = module.to_string();
    let again = parse(printed.as_bytes());
    assert_eq!(again.module, Some(module), "{printed}\n{:#?}", again.diagnostics);
}

/// Arbitrary bytes: scalars for the plan, then a description as canonical JSON. Returns whether it was valid.
pub fn canonical(input: &[u8]) -> bool {
    let (scalars, json) = input.split_at(input.len().min(8));
    let Ok(interface) = Interface::from_json(json) else { return false };
    let again = interface.to_json().expect("what was read is written");
    assert_eq!(
        Interface::from_json(again.as_bytes()).expect("what was written is read"),
        interface
    );
    let one = |(index, param): (usize, &Param)| {
        let sent = param.scalar().filter(|_| param.mode.is_sent());
        let byte = *scalars.get(index % 8).unwrap_or(&0);
        // Small ones of either sign, and the largest.
        let number = if byte == 255 { i64::MAX } else { i64::from(byte.cast_signed()) };
        sent.map(|_| Scalar::I64(number))
    };
    let scalars: Vec<Option<Scalar>> = interface.params.iter().enumerate().map(one).collect();
    // Sizes may be anything: an answer suffices.
    let _planned = interface.plan(&scalars);
    true
}
