//! Linpack from C through the GridRPC interface. Measures P = (2/3 n^3 + 2 n^2) / T over loopback TCP, and
//! for the same routine called in the client's process.

use super::{ArrayTransport, Server, cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};
use std::path::Path;
use std::process::Command;

/// Bytes that are sent, and that come back.
const DESCRIPTION: &str = include_str!("../../../../examples/grpc/linpack.idl");
const SIZES: [&str; 3] = ["600", "1000", "1400"];
/// Calls in each run, of which the best counts.
const ROUNDS: &str = "3";

pub(super) fn measure(runs: usize, folder: &Path) -> Result<Vec<Record>, BenchError> {
    let (program, library) = match (cluster::program("linpack"), cluster::program("liblinpack.so"))
    {
        (Ok(program), Ok(library)) => (program, library),
        (Err(why), _) | (_, Err(why)) => {
            let why = format!("{why} (`make grpc PROFILE=release` builds it)");
            return Ok(vec![Record::unmeasured("Linpack from C", &why)]);
        }
    };
    let description = folder.join("linpack.idl");
    let failed = |source| BenchError::File { path: description.clone(), source };
    std::fs::write(&description, DESCRIPTION).map_err(failed)?;
    let server = Server::of(&["--library".into(), library, description])?;
    let mut columns = vec![(Vec::new(), Vec::new()); SIZES.len()];
    for _ in 0..runs {
        let mut command = Command::new(&program);
        command.args(["-r", ROUNDS]).args(SIZES).env("KUMI_CALL_SERVER", server.address());
        command.env("KUMI_CALL_SHARED", ArrayTransport::Tcp.shared());
        let output = cluster::output(&mut command)?;
        for (size, (called, here)) in SIZES.iter().zip(&mut columns) {
            let (one, other) = row(&output, size).ok_or_else(|| BenchError::Output {
                wanted: format!("a row for n = {size}"),
                what: format!("{command:?}"),
                output: output.clone(),
            })?;
            called.push(one);
            here.push(other);
        }
    }
    let record = |(size, (called, here)): (&&str, &(Vec<f64>, Vec<f64>))| {
        let figure = format!("Linpack from C, n = {size}");
        let here = Peer::Measured("the same routine in the client's process", here);
        Record::new(&figure, "Mflop/s", called, &here, Goal::None)
    };
    Ok(SIZES.iter().zip(&columns).map(record).collect())
}

/// Mflop/s of the call, and of the routine alone: the fifth and the seventh number of this size's row.
fn row(output: &str, size: &str) -> Option<(f64, f64)> {
    let rows = output.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let row = rows.into_iter().find(|row| row.first() == Some(&size))?;
    Some((row.get(4)?.parse().ok()?, row.get(6)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_row_is_found_by_its_size() {
        let output = "     n  clients         MB    seconds      Mflop/s       MB/s  here, Mflop/s\n   \
                      600        1        2.9     0.0700       2066.1       41.3       2200.5\n";
        assert_eq!(super::row(output, "600"), Some((2066.1, 2200.5)));
        assert_eq!(super::row(output, "1000"), None);
    }
}
