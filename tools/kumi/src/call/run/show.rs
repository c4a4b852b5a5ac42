//! Results of a call as text.

use super::Numbers;
use kumi_call::Value;
use kumi_idl::{Order, Scalar};

/// Most elements of a printed array.
const MOST: u64 = 64;

/// A scalar or text.
pub fn value(value: &Value) -> String {
    match value {
        Value::I64(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        Value::F64(value) => format!("{value:?}"),
        Value::Complex(real, imaginary) => complex(*real, *imaginary),
        Value::Text(text) => format!("{text:?}"),
        Value::FileLength(bytes) => format!("a file of {bytes} bytes"),
    }
}

fn complex(real: f64, imaginary: f64) -> String {
    format!("{real:?}{imaginary:+?}i")
}

/// An array row by row; a long array is only described.
pub fn array(name: &str, numbers: &Numbers) -> String {
    let dims = numbers.dims.as_deref().unwrap_or_default();
    let count: u64 = dims.iter().product();
    if count > MOST {
        let sizes: String = dims.iter().map(|size| format!("[{size}]")).collect();
        return format!("{}{sizes} (-o {name}=FILE.npy writes it)", numbers.element);
    }
    let mut text = String::new();
    rows(numbers, dims, &mut Vec::new(), &mut text);
    text
}

fn rows(numbers: &Numbers, dims: &[u64], at: &mut Vec<u64>, text: &mut String) {
    let Some(size) = dims.get(at.len()) else {
        *text += &element(numbers, dims, at);
        return;
    };
    text.push('[');
    for index in 0..*size {
        if index > 0 {
            *text += ", ";
        }
        at.push(index);
        rows(numbers, dims, at, text);
        at.pop();
    }
    text.push(']');
}

fn element(numbers: &Numbers, dims: &[u64], at: &[u64]) -> String {
    let fold = |place: u64, (index, size): (&u64, &u64)| place * size + index;
    let place = match numbers.order {
        Order::Row => at.iter().zip(dims).fold(0, fold),
        Order::Column => at.iter().zip(dims).rev().fold(0, fold),
    };
    let size = numbers.element.size() as usize;
    let begin = place as usize * size;
    let bytes = numbers.bytes.get(begin..begin + size).unwrap_or_default();
    match Scalar::decode(numbers.element, bytes) {
        Some(Scalar::Complex(real, imaginary)) => complex(real, imaginary),
        Some(scalar) => scalar.to_string(),
        None => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_idl::Element;

    #[test]
    fn arrays_are_shown_by_rows() {
        let mut numbers = Numbers {
            element: Element::I8,
            dims: Some(vec![2, 3]),
            order: Order::Row,
            bytes: (1..7).collect(),
        };
        assert_eq!(array("a", &numbers), "[[1, 2, 3], [4, 5, 6]]");
        numbers.order = Order::Column;
        assert_eq!(array("a", &numbers), "[[1, 3, 5], [2, 4, 6]]");
        numbers.dims = Some(vec![0]);
        assert_eq!(array("a", &numbers), "[]");
        numbers.dims = Some(vec![1000, 2]);
        assert_eq!(array("a", &numbers), "int8[1000][2] (-o a=FILE.npy writes it)");
        assert_eq!(value(&Value::Complex(1.0, -2.5)), "1.0-2.5i");
    }
}
