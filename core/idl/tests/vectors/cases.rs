//! The vectors: descriptions, and calls of them with what comes of each.

use super::descriptions::{ODD, ROUTINES};
use super::random_numbers::RandomNumbers;
use kumi_idl::{Argument, ArgumentForm, Interface, Limits, Mode, Order, Plan, Scalar, Type};
use serde_json::{Value, json};

/// Arrays of more bytes are not copied in a vector.
const MOST_COPIED: u64 = 4096;
/// Descriptions by chance that cannot be used and are kept.
const MOST_BAD: usize = 8;
/// Runs of a section that are compared.
const MOST_RUNS: usize = 1000;

/// One call.
struct Call {
    scalars: Vec<Option<Scalar>>,
    texts: Vec<Option<String>>,
    shapes: Vec<Option<Vec<u64>>>,
    limit: u64,
}

/// Descriptions, and calls of them.
pub fn all() -> (Vec<Value>, Vec<Value>) {
    let parsed = kumi_idl::parse(ROUTINES.as_bytes());
    let module = parsed.module.expect("the routines are well described");
    let mut chance = RandomNumbers(20_261_122);
    let (mut descriptions, mut cases) = (Vec::new(), Vec::new());
    let by_chance: Vec<Interface> = (0..75).map(|_| chance.interface("by_chance")).collect();
    let mut bad = 0;
    for interface in module.routines().chain(&by_chance) {
        let json = interface.to_json().expect("finite numbers");
        let good = Interface::from_json(json.as_bytes()).is_ok();
        bad += usize::from(!good);
        if !good && bad > MOST_BAD {
            continue;
        }
        let number = descriptions.len();
        descriptions.push(json!({ "json": json, "good": good }));
        let calls = if number < module.interfaces.len() { 10 } else { 3 };
        for _ in 0..if good { calls } else { 0 } {
            let call = by(&mut chance, interface);
            cases.push(case(number, interface, &call));
        }
    }
    for odd in ODD {
        let good = Interface::from_json(odd.as_bytes()).is_ok();
        descriptions.push(json!({ "json": odd, "good": good }));
    }
    (descriptions, cases)
}

fn by(chance: &mut RandomNumbers, interface: &Interface) -> Call {
    let count = interface.params.len();
    let mut call = Call {
        scalars: vec![None; count],
        texts: vec![None; count],
        shapes: vec![None; count],
        limit: if chance.below(16) == 0 { 1 << chance.below(12) } else { 1 << 40 },
    };
    for (index, param) in interface.params.iter().enumerate() {
        let left_out = chance.below(if param.default.is_some() { 2 } else { 40 }) == 0;
        if let Some(element) = param.scalar().filter(|_| param.mode.is_sent() && !left_out) {
            call.scalars[index] = Some(chance.scalar(element));
        } else if param.mode == Mode::In && param.ty == Type::String && !left_out {
            let texts = ["T", "transposed", "N", "", "ä"];
            let text = texts[usize::try_from(chance.below(5)).expect("few")];
            call.texts[index] = Some(text.to_owned());
        } else if !param.dims.is_empty() && param.mode.is_sent() && chance.below(4) == 0 {
            let dims = param.dims.len() as u64 - chance.below(2).min(param.dims.len() as u64 - 1);
            call.shapes[index] = Some((0..dims).map(|_| chance.below(6)).collect());
        }
    }
    call
}

fn scalar(scalar: Scalar) -> Value {
    let bits = |value: f64| format!("{:016x}", value.to_bits());
    match scalar {
        Scalar::I64(value) => json!(["i", value]),
        Scalar::U64(value) => json!(["u", value]),
        Scalar::F64(value) => json!(["f", bits(value)]),
        Scalar::Complex(real, imaginary) => json!(["c", bits(real), bits(imaginary)]),
    }
}

fn case(number: usize, interface: &Interface, call: &Call) -> Value {
    let mut values = call.scalars.clone();
    let shapes: Vec<Option<&[u64]>> = call.shapes.iter().map(Option::as_deref).collect();
    interface.infer_sizes(&mut values, &shapes);
    let limits = Limits { bytes: call.limit };
    let mut case = json!({
        "of": number,
        "scalars": call.scalars.iter().map(|given| given.map(scalar)).collect::<Vec<_>>(),
        "limit": call.limit,
    });
    if call.texts.iter().any(Option::is_some) {
        case["texts"] = json!(call.texts);
    }
    if call.shapes.iter().any(Option::is_some) {
        case["shapes"] = json!(call.shapes);
    }
    match interface.plan_with_texts(&values, &call.texts, &limits) {
        Ok(planned) => case["plan"] = plan(&planned),
        Err(error) => {
            let kind = format!("{error:?}");
            let end = kind.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(kind.len());
            case["error"] = json!({ "kind": kind[..end], "message": error.to_string() });
        }
    }
    case
}

fn plan(plan: &Plan) -> Value {
    json!({
        "memory": plan.memory,
        "sent": plan.sent,
        "returned": plan.returned,
        "operations": plan.operations.map(|count| format!("{:016x}", count.to_bits())),
        "arguments": plan.arguments.iter().map(argument).collect::<Vec<_>>(),
    })
}

/// Sizes and places; axes; the section as number of runs, the first of them, and a hash of all; what is copied.
fn argument(argument: &Argument) -> Value {
    let Argument { elements, bytes, offset, align, sent, returned, .. } = *argument;
    let mut value = json!({
        "sizes": [elements, bytes, offset, align, sent, returned],
    });
    if let Some(known) = argument.scalar {
        value["scalar"] = scalar(known);
    }
    if argument.axes.is_empty() {
        return value;
    }
    let axes = argument.axes.iter().map(|axis| [axis.size, axis.start, axis.count, axis.step]);
    value["axes"] = json!(axes.collect::<Vec<_>>());
    let mut runs = argument.section.runs();
    let (count, _) = runs.size_hint();
    let first = runs.next().map(|run| [run.offset, run.length]);
    let hash = argument.section.runs().take(MOST_RUNS).fold(EMPTY, |hash, run| {
        let hash = digest(hash, &run.offset.to_le_bytes());
        digest(hash, &run.length.to_le_bytes())
    });
    value["runs"] = json!([count, first, format!("{hash:016x}")]);
    if matches!(argument.form, ArgumentForm::Array(..))
        && (1..=MOST_COPIED).contains(&argument.bytes)
    {
        value["copied"] = json!([copied(argument, Order::Row), copied(argument, Order::Column)]);
    }
    value
}

/// A hash of what travels of an array that lies in this order.
fn copied(argument: &Argument, order: Order) -> String {
    let size = |bytes: u64| usize::try_from(bytes).expect("at most MOST_COPIED");
    let array: Vec<u8> =
        (0..argument.bytes).map(|index| u8::try_from(index * 7 % 251).expect("less")).collect();
    let mut packed = vec![0; size(argument.section.bytes())];
    argument.gather(&array, order, &mut packed).expect("the lengths fit");
    format!("{:016x}", digest(EMPTY, &packed))
}

const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a.
fn digest(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
