//! Prints the vectors of the control protocol of the code at hand, for `core/control/tests/versions/VERSION.txt`.
//! Run it when a version is finished, before anything is added to the next.

#[path = "../tests/versions/samples.rs"]
mod samples;
#[path = "../tests/versions/vectors.rs"]
mod vectors;

fn main() {
    print!("{}", vectors::vectors());
}
