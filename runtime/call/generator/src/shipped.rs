//! Interface descriptions that are part of Kumi.

/// Descriptions of a library's routines, or of demonstrations.
#[derive(Debug)]
pub struct ShippedInterfaces {
    /// The name to ask for.
    pub name: &'static str,
    /// Its files: name and text.
    pub files: &'static [(&'static str, &'static str)],
}

macro_rules! files {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../../interfaces/", $name)))),*]
    };
}

/// All shipped descriptions. Servers bind `blas` and `lapack` to OpenBLAS when they start. The routines of
/// `fftw` and `demo` have bodies in C, from which the [generator](crate::build) makes executables.
pub const SHIPPED: [ShippedInterfaces; 4] = [
    ShippedInterfaces { name: "blas", files: files!["blas1.idl", "blas2.idl", "blas3.idl"] },
    ShippedInterfaces { name: "lapack", files: files!["lapack.idl"] },
    ShippedInterfaces { name: "fftw", files: files!["fftw.idl"] },
    ShippedInterfaces { name: "demo", files: files!["demo.idl"] },
];

/// The shipped descriptions with this name.
#[must_use]
pub fn shipped(name: &str) -> Option<&'static ShippedInterfaces> {
    SHIPPED.iter().find(|shipped| shipped.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_the_folder_is_shipped_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../interfaces");
        let entries = std::fs::read_dir(folder).expect("the folder");
        let mut there: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        let files = SHIPPED.iter().flat_map(|shipped| shipped.files);
        let mut shipped: Vec<&str> = files.map(|(name, _)| *name).collect();
        there.sort();
        shipped.sort_unstable();
        assert_eq!(shipped, there);
        assert!(super::shipped("blas").is_some() && super::shipped("blas1.idl").is_none());
    }
}
