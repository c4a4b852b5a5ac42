//! Conversion of command-line arguments to the arguments of a routine.

use super::{Numbers, npy};
use crate::error::Error;
use kumi_idl::{Element, Expr, Interface, Order, Param, Scalar, Type};
use std::path::{Path, PathBuf};

/// Input scalars, texts and arrays, by parameter.
#[derive(Debug)]
pub struct Arguments {
    pub scalars: Vec<Option<Scalar>>,
    pub texts: Vec<Option<String>>,
    pub arrays: Vec<Option<Numbers>>,
    /// Paths of files that are sent.
    pub files: Vec<Option<PathBuf>>,
}

impl Arguments {
    /// Reads the arguments, and computes sizes from arrays.
    pub fn read(interface: &Interface, arguments: &[String]) -> Result<Arguments, Error> {
        let assigned = assign(interface, arguments).map_err(Error::Usage)?;
        let count = interface.params.len();
        let (mut scalars, mut texts) = (vec![None; count], vec![None; count]);
        let mut arrays: Vec<Option<Numbers>> = Vec::with_capacity(count);
        let mut files = vec![None; count];
        for (index, (param, text)) in interface.params.iter().zip(assigned).enumerate() {
            let mut numbers = None;
            match (&param.ty, text) {
                (_, None) => {}
                (Type::Number(element), Some(text)) if param.dims.is_empty() => {
                    scalars[index] = Some(scalar(param, *element, text)?);
                }
                (Type::Number(element), Some(text)) => {
                    numbers = Some(array(param, *element, text)?);
                }
                (Type::String, Some(text)) => texts[index] = Some(text.to_owned()),
                (Type::File, Some(text)) => {
                    files[index] = Some(PathBuf::from(text.strip_prefix('@').unwrap_or(text)));
                }
                (Type::Callback(_), Some(_)) => {
                    let text = format!("`{}` is a function, which a shell cannot give", param.name);
                    return Err(Error::Usage(text));
                }
            }
            arrays.push(numbers);
        }
        for (param, numbers) in interface.params.iter().zip(&mut arrays) {
            if let Some(Numbers { dims: Some(dims), .. }) = numbers
                && dims.len() + 1 == param.dims.len()
            {
                // A vector may stand for a matrix of one column.
                dims.push(1);
            }
            if let Some(Numbers { dims: Some(dims), .. }) = numbers
                && dims.len() != param.dims.len()
            {
                let (name, given, wanted) = (&param.name, dims.len(), param.dims.len());
                let many = if given == 1 { "" } else { "s" };
                return Err(Error::Usage(format!(
                    "`{name}` has {given} dimension{many}, and the routine wants {wanted}"
                )));
            }
        }
        let shape = |numbers: &'_ Option<Numbers>| numbers.as_ref()?.dims.clone();
        let shapes: Vec<Option<Vec<u64>>> = arrays.iter().map(shape).collect();
        let shapes: Vec<Option<&[u64]>> = shapes.iter().map(Option::as_deref).collect();
        interface.infer_sizes(&mut scalars, &shapes);
        Ok(Arguments { scalars, texts, arrays, files })
    }
}

/// The text of each parameter: `NAME=VALUE` first, then the others in order. Either all inputs are given, or
/// only those without a default that are not an array's size.
fn assign<'a>(
    interface: &Interface,
    arguments: &'a [String],
) -> Result<Vec<Option<&'a str>>, String> {
    let params = &interface.params;
    let mut assigned = vec![None; params.len()];
    let mut others = Vec::new();
    // In a text or a path, `=` may stand for itself.
    let has_text = params.iter().any(|it| matches!(it.ty, Type::String | Type::File));
    for argument in arguments {
        let named = argument.split_once('=').and_then(|(name, value)| {
            let index = params.iter().position(|param| param.name == name)?;
            Some((index, value))
        });
        if let (None, false, Some((name, _))) = (named, has_text, argument.split_once('=')) {
            return Err(unknown(interface, name));
        }
        let Some((index, value)) = named else {
            others.push(argument.as_str());
            continue;
        };
        let name = &params[index].name;
        if !params[index].mode.is_sent() {
            return Err(format!("`{name}` is not sent; `-o {name}=FILE` says where it goes"));
        }
        if assigned[index].replace(value).is_some() {
            return Err(format!("`{name}` is given twice"));
        }
    }
    let open = |index: &usize| assigned[*index].is_none() && params[*index].mode.is_sent();
    let all: Vec<usize> = (0..params.len()).filter(open).collect();
    let needed = |index: &usize| params[*index].default.is_none() && !follows(interface, *index);
    let needed: Vec<usize> = all.iter().copied().filter(needed).collect();
    let chosen = if others.len() == all.len() { &all } else { &needed };
    if others.len() != chosen.len() {
        let names = |indices: &[usize]| {
            let names: Vec<&str> = indices.iter().map(|at| params[*at].name.as_str()).collect();
            names.join(" ")
        };
        let (name, count) = (&interface.name, others.len());
        return Err(format!(
            "`{name}` takes {}, or {} with what follows from arrays and has defaults; {count} arguments were given",
            if needed.is_empty() { "no arguments".to_owned() } else { names(&needed) },
            if all.is_empty() { "none".to_owned() } else { names(&all) },
        ));
    }
    for (index, value) in chosen.iter().zip(others) {
        assigned[*index] = Some(value);
    }
    Ok(assigned)
}

/// Says that a routine has no parameter of this name, and which it has.
fn unknown(interface: &Interface, name: &str) -> String {
    let sent = interface.params.iter().filter(|param| param.mode.is_sent());
    let names: Vec<&str> = sent.map(|param| param.name.as_str()).collect();
    let takes = if names.is_empty() { "no arguments".to_owned() } else { names.join(" ") };
    format!("`{}` takes no `{name}`; it takes {takes}", interface.name)
}

/// Whether a scalar is the size of a given array.
fn follows(interface: &Interface, index: usize) -> bool {
    let is = |expr: &Expr| matches!(expr, Expr::Param(other) if *other as usize == index);
    let sizes = |param: &Param| {
        param.mode.is_sent()
            && param.dims.iter().any(|dim| is(&dim.size) || dim.end.as_ref().is_some_and(is))
    };
    interface.params.iter().any(sizes)
}

/// A number in the user's notation: `3`, `-1.5e3`, `1+2i`.
fn scalar(param: &Param, element: Element, text: &str) -> Result<Scalar, Error> {
    let parsed = match element {
        Element::C64 | Element::C128 => complex(text),
        Element::F32 | Element::F64 => text.parse().ok().map(Scalar::F64),
        Element::U64 => text.parse().ok().map(Scalar::U64),
        _ => text.parse().ok().map(Scalar::I64),
    };
    let fits = parsed.filter(|scalar| scalar.fit(element).is_some());
    fits.ok_or_else(|| Error::Usage(format!("`{}` is of type {element}: {text}", param.name)))
}

fn complex(text: &str) -> Option<Scalar> {
    let Some(both) = text.strip_suffix(['i', 'j']) else {
        return text.parse().ok().map(|real| Scalar::Complex(real, 0.0));
    };
    // The imaginary part begins at the last sign that does not belong to an exponent.
    let sign = |(at, letter): (usize, char)| {
        let exponent = both[..at].ends_with(['e', 'E']);
        (matches!(letter, '+' | '-') && at > 0 && !exponent).then_some(at)
    };
    let at = both.char_indices().filter_map(sign).next_back().unwrap_or(0);
    let (real, imaginary) = both.split_at(at);
    let real = if real.is_empty() { 0.0 } else { real.parse().ok()? };
    let imaginary = match imaginary {
        "" | "+" => 1.0,
        "-" => -1.0,
        other => other.parse().ok()?,
    };
    Some(Scalar::Complex(real, imaginary))
}

/// An array: `@FILE`, or `1,2;3,4` row by row.
fn array(param: &Param, element: Element, text: &str) -> Result<Numbers, Error> {
    if let Some(path) = text.strip_prefix('@') {
        return file(Path::new(path), element);
    }
    if text.trim().is_empty() {
        let name = &param.name;
        return Err(Error::Usage(format!("`{name}` is empty: give 1,2;3,4 by rows, or @FILE")));
    }
    let rows: Vec<Vec<&str>> = text
        .split(';')
        .map(|row| row.split(',').map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let columns = rows.first().map_or(0, Vec::len);
    if rows.iter().any(|row| row.len() != columns) {
        return Err(Error::Usage(format!("`{}`: its rows are of different lengths", param.name)));
    }
    let mut bytes = Vec::new();
    for cell in rows.iter().flatten() {
        let value = scalar(param, element, cell)?;
        // Its size was made to fit above.
        debug_assert!(value.fit(element).is_some());
        let _fits = value.encode(element, &mut bytes);
    }
    let dims = if rows.len() == 1 {
        vec![columns as u64]
    } else {
        vec![rows.len() as u64, columns as u64]
    };
    Ok(Numbers { element, dims: Some(dims), order: Order::Row, bytes })
}

/// A file: in NumPy's format if its name says so, otherwise raw bytes in the routine's order.
fn file(path: &Path, element: Element) -> Result<Numbers, Error> {
    let bytes = std::fs::read(path)
        .map_err(|source| Error::ArrayUnreadable { path: path.to_owned(), source })?;
    if path.extension().is_some_and(|extension| extension == "npy") {
        return npy::read(bytes).map_err(|why| Error::NoArray { path: path.to_owned(), why });
    }
    Ok(Numbers { element, dims: None, order: Order::Row, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(text: &str) -> Interface {
        kumi_idl::parse(text.as_bytes()).module.unwrap().interfaces.remove(0)
    }

    fn assigned(interface: &Interface, arguments: &[&str]) -> Result<Vec<Option<String>>, String> {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let found = assign(interface, &arguments)?;
        Ok(found.into_iter().map(|text| text.map(str::to_owned)).collect())
    }

    #[test]
    fn arguments_are_given_in_order_or_by_name() {
        let f = interface(
            "Define f(mode_in int n, mode_in double A[n], mode_in double s = 1, mode_out double B[n]) Calls f(n, A, s, B);",
        );
        let given = |arguments: &[&str]| assigned(&f, arguments);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(given(&["1,2"]), Ok(vec![None, some("1,2"), None, None]));
        assert_eq!(given(&["2", "1,2", "3"]), Ok(vec![some("2"), some("1,2"), some("3"), None]));
        assert_eq!(given(&["s=3", "1,2"]), Ok(vec![None, some("1,2"), some("3"), None]));
        assert!(given(&[]).unwrap_err().contains("takes A, or n A s with"));
        assert!(given(&["s=3", "s=4", "1"]).unwrap_err().contains("twice"));
        assert!(given(&["B=3", "1"]).unwrap_err().contains("-o B=FILE"));
        assert_eq!(given(&["1", "y=3"]).unwrap_err(), "`f` takes no `y`; it takes n A s");
        let g = interface("Define g(mode_in string text) Calls g(text);");
        assert_eq!(assigned(&g, &["y=3"]), Ok(vec![some("y=3")]), "it is a text");
    }

    #[test]
    fn arrays_have_the_dimensions_that_the_routine_wants() {
        let f = interface("Define f(mode_in int n, mode_in double x[n]) Calls f(n, x);");
        let read = |text: &str| Arguments::read(&f, &[text.to_owned()]);
        let why = read("1,2;3,4").unwrap_err().to_string();
        assert_eq!(why, "`x` has 2 dimensions, and the routine wants 1");
        assert_eq!(read("").unwrap_err().exit_code(), 64, "nobody means an array without numbers");
        assert_eq!(read("1,2").unwrap().scalars[0], Some(Scalar::U64(2)));
    }

    #[test]
    fn numbers_are_read_as_their_type() {
        let f = interface(
            "Define f(mode_in int8 n, mode_in dcomplex z, mode_in float x[n]) Calls f(n, z, x);",
        );
        let [n, z, x] = &f.params[..] else { panic!() };
        assert_eq!(scalar(n, Element::I8, "-7").unwrap(), Scalar::I64(-7));
        assert_eq!(scalar(n, Element::I8, "200").unwrap_err().exit_code(), 64);
        assert!(scalar(n, Element::I8, "1.5").is_err());
        let complex = |text: &str| scalar(z, Element::C128, text).ok();
        assert_eq!(complex("1+2i"), Some(Scalar::Complex(1.0, 2.0)));
        assert_eq!(complex("-1e-3-2.5e+1j"), Some(Scalar::Complex(-1e-3, -25.0)));
        assert_eq!(complex("-i"), Some(Scalar::Complex(0.0, -1.0)));
        assert_eq!(complex("4"), Some(Scalar::Complex(4.0, 0.0)));
        assert_eq!(complex("i1"), None);
        let list = array(x, Element::F32, "1,2; 3,4").unwrap();
        assert_eq!((list.dims.unwrap(), list.bytes.len()), (vec![2, 2], 16));
        assert!(array(x, Element::F32, "1,2;3").is_err());
        assert_eq!(array(x, Element::F32, "@/nowhere.npy").unwrap_err().exit_code(), 66);
    }
}
