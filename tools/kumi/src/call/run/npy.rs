//! NumPy files (`numpy.save`): a magic number, a version, a header that is a Python literal, and the numbers.

use super::Numbers;
use kumi_idl::{Element, Order};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Most bytes of a header; usual ones have about a hundred.
const MOST_HEADER: usize = 64 << 10;
/// Most dimensions of an array in NumPy.
const MOST_DIMENSIONS: usize = 64;

/// NumPy's name of an element type.
fn described(element: Element) -> &'static str {
    match element {
        Element::I8 => "|i1",
        Element::I16 => "<i2",
        Element::I32 => "<i4",
        Element::I64 => "<i8",
        Element::U8 => "|u1",
        Element::U16 => "<u2",
        Element::U32 => "<u4",
        Element::U64 => "<u8",
        Element::F32 => "<f4",
        Element::F64 => "<f8",
        Element::C64 => "<c8",
        Element::C128 => "<c16",
    }
}

/// Reads the array of a file.
///
/// # Errors
/// What is wrong with the file.
pub fn read(mut file: Vec<u8>) -> Result<Numbers, String> {
    let (header, begin) = header(&file)?;
    let (element, order, dims) = meaning(header)?;
    let count = dims.iter().try_fold(1_u64, |count, size| count.checked_mul(*size));
    let bytes = count.and_then(|count| count.checked_mul(element.size()));
    let there = file.len() - begin;
    if bytes != Some(there as u64) {
        return Err(format!(
            "an array of {element} with the shape {dims:?} does not have the {there} bytes that follow"
        ));
    }
    file.drain(..begin);
    Ok(Numbers { element, dims: Some(dims), order, bytes: file })
}

/// The header, and the offset of the numbers.
fn header(file: &[u8]) -> Result<(&str, usize), String> {
    let short = || "it ends inside its header".to_owned();
    let rest = file.strip_prefix(MAGIC).ok_or("it was not written by numpy.save")?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    let (length, begin) = match version[0] {
        1 => {
            let length = rest.first_chunk::<2>().ok_or_else(short)?;
            (usize::from(u16::from_le_bytes(*length)), 10)
        }
        2 | 3 => {
            let length = rest.first_chunk::<4>().ok_or_else(short)?;
            (usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX), 12)
        }
        other => return Err(format!("its format version {other} is unknown; 1 to 3 are known")),
    };
    if length > MOST_HEADER {
        return Err(format!("its header has {length} bytes; {MOST_HEADER} is the most"));
    }
    let header = file.get(begin..begin + length).ok_or_else(short)?;
    let header = std::str::from_utf8(header).map_err(|_| "its header is not text".to_owned())?;
    Ok((header, begin + length))
}

/// Parses a header: `{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }`, with keys in any order.
fn meaning(header: &str) -> Result<(Element, Order, Vec<u64>), String> {
    let value = |name: &str| {
        let found = header.split_once(&format!("'{name}'")).map(|(_, rest)| rest.trim_start());
        let found = found.and_then(|rest| rest.strip_prefix(':'));
        found.map(str::trim_start).ok_or_else(|| format!("its header has no `{name}`"))
    };
    let descr = value("descr")?;
    let name = descr.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    let (name, _) = name.ok_or("its elements are records; arrays of numbers can be sent")?;
    let plain = |name: &str| name.trim_start_matches(['<', '|', '=']).to_owned();
    let element = Element::ALL
        .into_iter()
        .find(|element| !name.starts_with('>') && plain(described(*element)) == plain(name));
    let element = element.ok_or_else(|| {
        format!("its elements are `{name}`; integers, float32, float64 and complex numbers, little-endian, can be sent")
    })?;
    let order = value("fortran_order")?;
    let order = match (order.starts_with("True"), order.starts_with("False")) {
        (true, _) => Order::Column,
        (_, true) => Order::Row,
        _ => return Err("its header does not give the order of its elements".to_owned()),
    };
    let shape = value("shape")?.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let (shape, _) = shape.ok_or("its header has no shape")?;
    let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
    let dims: Result<Vec<u64>, _> = sizes.map(|size| size.trim_end_matches('L').parse()).collect();
    let dims = dims.map_err(|_| format!("its shape is ({shape})"))?;
    if dims.len() > MOST_DIMENSIONS {
        return Err(format!("it has {} dimensions", dims.len()));
    }
    Ok((element, order, dims))
}

/// Writes an array as a file's bytes.
pub fn write(numbers: &Numbers) -> Vec<u8> {
    let dims = numbers.dims.as_deref().unwrap_or_default();
    let sizes: String = dims.iter().map(|size| format!("{size},")).collect();
    let order = if numbers.order == Order::Column { "True" } else { "False" };
    let descr = described(numbers.element);
    let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({sizes}), }}");
    // Numbers begin at a multiple of 64; the header ends with a newline.
    let length = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
    let mut file = MAGIC.to_vec();
    file.extend([1, 0]);
    // At most 64 dimensions of 21 characters.
    file.extend(u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
    file.extend(format!("{text:<width$}\n", width = length - 1).bytes());
    file.extend_from_slice(&numbers.bytes);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(element: Element, dims: &[u64], order: Order) -> Numbers {
        let bytes = dims.iter().product::<u64>() * element.size();
        let bytes = (0..bytes).map(|byte| byte as u8).collect();
        Numbers { element, dims: Some(dims.to_vec()), order, bytes }
    }

    #[test]
    fn what_is_written_is_read() {
        for element in Element::ALL {
            for dims in [&[][..], &[0], &[5], &[2, 3], &[1, 2, 3]] {
                for order in [Order::Row, Order::Column] {
                    let was = numbers(element, dims, order);
                    let file = write(&was);
                    assert_eq!((file.len() - was.bytes.len()) % 64, 0);
                    assert_eq!(read(file), Ok(was));
                }
            }
        }
    }

    /// As NumPy 1.24 writes `numpy.array([[1, 2]], dtype='i2')`, also with a header of version 2.
    #[test]
    fn what_numpy_writes_is_read() {
        let text = "{'descr': '<i2', 'fortran_order': False, 'shape': (1, 2), }";
        let expected = Numbers {
            element: Element::I16,
            dims: Some(vec![1, 2]),
            order: Order::Row,
            bytes: vec![1, 0, 2, 0],
        };
        let mut file = [&MAGIC[..], &[1, 0, 118, 0], format!("{text:<117}\n").as_bytes()].concat();
        file.extend([1, 0, 2, 0]);
        assert_eq!(read(file.clone()).as_ref(), Ok(&expected));
        let mut newer = [&MAGIC[..], &[2, 0, 118, 0, 0, 0], &file[10..]].concat();
        assert_eq!(read(newer.clone()), Ok(expected));
        newer.pop();
        assert!(read(newer).unwrap_err().contains("3 bytes"));
    }

    #[test]
    fn what_is_no_array_is_told() {
        let with = |text: &str| {
            let length = u16::try_from(text.len()).unwrap().to_le_bytes();
            read([&MAGIC[..], &[1, 0], &length, text.as_bytes()].concat()).unwrap_err()
        };
        assert!(with("{'descr': '>f8', 'fortran_order': False, 'shape': ()}").contains(">f8"));
        assert!(with("{'descr': '|O', 'fortran_order': False, 'shape': ()}").contains("|O"));
        assert!(with("{'descr': [('a', '<f8')], 'shape': ()}").contains("records"));
        assert!(with("{'descr': '<f8', 'fortran_order': 0, 'shape': ()}").contains("order"));
        let huge = "(4294967296, 4294967296, 2)";
        let huge = with(&format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {huge}}}"));
        assert!(huge.contains("0 bytes"), "{huge}");
        assert!(with("{}").contains("descr"));
        assert!(read(b"\x93NUMPY".to_vec()).is_err());
        assert!(read(b"\x93NUMPY\x09\0\0\0".to_vec()).is_err());
        assert!(read(b"\x93NUMPY\x02\0\xff\xff\xff\xff".to_vec()).is_err());
        assert!(read(b"hello".to_vec()).is_err());
    }
}
