//! Copies between orders against the plainest loop.
use kumi_idl::{Argument, ArgumentForm, Element, Interface, Order, Param};
use proptest::prelude::*;

fn argument(element: Element, order: Order, dims: &[(u64, u64, u64, u64)]) -> Argument {
    let dims: Vec<String> = dims
        .iter()
        .map(|(size, start, end, step)| {
            format!(
                r#"{{"size":{{"int":{size}}},"start":{{"int":{start}}},"end":{{"int":{end}}},"step":{{"int":{step}}}}}"#
            )
        })
        .collect();
    let json = format!(
        r#"{{"version":1,"name":"f","params":[{{"name":"A","mode":"inout","type":{{"number":"f64"}},"dims":[{}]}}],"target":{{"language":"c","symbol":"f","arguments":[]}}}}"#,
        dims.join(",")
    );
    let mut interface = Interface::from_json(json.as_bytes()).unwrap();
    interface.params[0] =
        Param { order, ty: kumi_idl::Type::Number(element), ..interface.params[0].clone() };
    interface.plan(&[None]).unwrap().arguments.remove(0)
}

/// Offsets in elements of what travels, in an array of this order, one for each in the routine's order.
fn offsets(argument: &Argument, order: Order) -> Vec<u64> {
    let ArgumentForm::Array(_, own) = argument.form else { panic!("an array") };
    let total: u64 = argument.axes.iter().map(|axis| axis.count).product();
    let rank = argument.axes.len();
    let by = |order: Order| -> Vec<usize> {
        if order == Order::Row { (0..rank).rev().collect() } else { (0..rank).collect() }
    };
    (0..total)
        .map(|number| {
            let mut index = vec![0; rank];
            let mut rest = number;
            for axis in by(own) {
                let of = argument.axes[axis];
                index[axis] = of.start + rest % of.count * of.step;
                rest /= of.count;
            }
            let (mut offset, mut stride) = (0, 1);
            for axis in by(order) {
                offset += index[axis] * stride;
                stride *= argument.axes[axis].size;
            }
            offset
        })
        .collect()
}

fn check(argument: &Argument, order: Order) {
    let ArgumentForm::Array(element, own) = argument.form else { panic!("an array") };
    let size = element.size() as usize;
    let array: Vec<u8> = (0..argument.bytes).map(|at| (at * 7 + at / 251) as u8).collect();
    let mut packed = vec![0; argument.section.bytes() as usize];
    argument.gather(&array, order, &mut packed).unwrap();
    let offsets = offsets(argument, order);
    for (piece, offset) in packed.chunks(size).zip(&offsets) {
        let at = *offset as usize * size;
        assert_eq!(piece, &array[at..at + size]);
    }
    let mut back = vec![0; array.len()];
    argument.scatter(&packed, &mut back, order).unwrap();
    let mut expected = vec![0; array.len()];
    for offset in offsets {
        let at = offset as usize * size;
        expected[at..at + size].copy_from_slice(&array[at..at + size]);
    }
    assert_eq!(back, expected);
    if order == own {
        let run = |run: kumi_idl::Run| run.offset as usize..(run.offset + run.length) as usize;
        let runs: Vec<u8> =
            argument.section.runs().flat_map(|piece| array[run(piece)].to_vec()).collect();
        assert_eq!(runs, packed, "the runs are what travels, in its order");
    }
}

#[test]
fn a_wide_transposition_is_right() {
    let elements = [Element::U8, Element::I16, Element::F32, Element::F64, Element::C128];
    let elements = if cfg!(miri) { &elements[1..2] } else { &elements[..] };
    for element in elements.iter().copied() {
        let argument = argument(element, Order::Column, &[(70, 0, 70, 1), (45, 0, 45, 1)]);
        check(&argument, Order::Row);
        check(&argument, Order::Column);
    }
}

#[test]
fn other_lengths_are_refused() {
    let argument = argument(Element::F64, Order::Row, &[(4, 0, 2, 1)]);
    let error = argument.gather(&[0; 31], Order::Row, &mut [0; 16]).unwrap_err();
    assert_eq!((error.expected, error.given), (32, 31));
    assert!(argument.scatter(&[0; 17], &mut [0; 32], Order::Row).is_err());
}

proptest! {
    #[test]
    fn any_section_in_any_order(
        axes in prop::collection::vec((0u64..7, 0u64..7, 0u64..7, 1u64..4), 1..5),
        element in prop::sample::select(Element::ALL.to_vec()),
        columns in any::<bool>(),
        callers_columns in any::<bool>(),
    ) {
        let axes: Vec<_> = axes.into_iter().map(|(size, start, end, step)| {
            let start = start.min(size);
            (size, start, end.clamp(start, size), step)
        }).collect();
        let order = |columns| if columns { Order::Column } else { Order::Row };
        check(&argument(element, order(columns), &axes), order(callers_columns));
    }
}
