//! The report of sample records.

use super::*;
use crate::origin::Machine;
use crate::record::{self, Goal, Peer, Record};

fn origin(profile: &str) -> Origin {
    Origin {
        date: "2026-01-02T03:04:05Z".to_owned(),
        commit: "abc123".to_owned(),
        profile: profile.to_owned(),
        machine: Machine {
            processor: "Model 5".to_owned(),
            cores: 2,
            kernel: "Linux 6.18".to_owned(),
        },
        versions: [("ray".to_owned(), "2.9".to_owned())].into(),
    }
}

fn samples(folder: &Path) {
    let mpi = Peer::Measured("Open MPI 4.1.4, mpirun -np 8 true", &[50.0]);
    let launch = Record::new(
        "launch of true, 4 nodes x 2 ranks, p50",
        "ms",
        &[25.0],
        &mpi,
        Goal::RatioAtMost(0.4),
    );
    record::write(folder, "launch", &origin("release"), &[launch]).unwrap();
    let ray = Peer::Measured("Ray actor 2.9", &[1000.0]);
    let rate = Record::new(
        "calls with 16 under way, Python",
        "1/s",
        &[11_000.0],
        &ray,
        Goal::RatioAtLeast(8.0),
    );
    let absent = Record::new(
        "calls with 16 under way, Python",
        "1/s",
        &[11_000.0],
        &Peer::Absent("no dask"),
        Goal::None,
    );
    let unmeasured = Record::unmeasured("calls from Python", "no interpreter");
    record::write(folder, "call", &origin("release"), &[rate, absent, unmeasured]).unwrap();
}

#[test]
fn the_page_has_what_was_measured_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    samples(folder.path());
    let text = page(&read(folder.path()).unwrap());
    for line in [
        "| launch | 2026-01-02T03:04:05Z | abc123 | release | Model 5, 2 cores, Linux 6.18 |",
        "- ray: 2.9",
        "| launch of true, 4 nodes x 2 ranks, p50 | 25.00 ms | 50.00 (Open MPI 4.1.4, mpirun -np 8 true) | 0.500 | ratio <= 0.4 (missed) |",
        "| calls with 16 under way, Python | 11000 1/s | 1000 (Ray actor 2.9) | 11.000 | ratio >= 8 |",
        "| calls with 16 under way, Python | 11000 1/s | absent: no dask | - | - |",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    for absent in ["lockstep", "no interpreter", "## put"] {
        assert!(!text.contains(absent), "{absent}\n{text}");
    }
}

#[test]
fn the_readme_gets_the_chosen_figures_and_keeps_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    samples(folder.path());
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("docs")).unwrap();
    let readme = root.path().join("README.md");
    std::fs::write(
        &readme,
        "# Kumi\n<!-- generated: figures -->\nold\n<!-- end of figures -->\nrest\n",
    )
    .unwrap();
    write(folder.path(), root.path()).unwrap();
    let text = std::fs::read_to_string(&readme).unwrap();
    assert!(
        text.starts_with("# Kumi\n<!-- generated: figures -->\n![Six")
            && text.ends_with("<!-- end of figures -->\nrest\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "| start a job of 8 ranks on 4 nodes | 25.00 ms | 50.00 (Open MPI 4.1.4) | 2.0 times |"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "| calls a second from Python | 11,000 a second | 1,000 (Ray actor 2.9) | 11.0 times |"
        ),
        "{text}"
    );
    assert_eq!(text.matches("\n| ").count(), 3, "a head and two rows: {text}");
    let plot = std::fs::read_to_string(root.path().join("docs/benchmarks.svg")).unwrap();
    assert!(plot.contains(">2.00<") && plot.contains(">11.00<"), "{plot}");
    std::fs::write(&readme, "# Kumi\n").unwrap();
    assert!(write(folder.path(), root.path()).unwrap_err().to_string().contains("figures"));
}

#[test]
fn records_of_debug_builds_and_of_another_shape_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    record::write(folder.path(), "launch", &origin("debug"), &[]).unwrap();
    assert!(read(folder.path()).unwrap_err().to_string().contains("debug build"));
    std::fs::write(folder.path().join("launch.json"), "[]").unwrap();
    assert!(read(folder.path()).unwrap_err().to_string().contains("launch.json"));
    std::fs::remove_file(folder.path().join("launch.json")).unwrap();
    assert_eq!(read(folder.path()).unwrap(), []);
    assert!(page(&[]).contains("no records yet"));
}

#[test]
fn a_worse_figure_goes_to_the_left() {
    let plot = plot::svg(&[("a <b>".to_owned(), 0.1), ("c".to_owned(), 10.0)]);
    assert!(
        plot.contains("a &lt;b&gt;") && plot.contains("#c8553d") && plot.contains("#1b6ca8"),
        "{plot}"
    );
}
