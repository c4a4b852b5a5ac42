//! The figures in their smallest form: every file is there and is what its name says, and every
//! statement of the paper has the verdict and the numbers that are expected at this size.
#![forbid(unsafe_code)]

mod expected;

use kumi_sim::figures::{self, Extent, Formats, Summary, Verdict};
use kumi_sim::{Monitor, SimError};
use std::path::{Path, PathBuf};

/// A folder of this test's own, gone after it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("kumi-figures-{name}-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It may not have been made.
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

fn made(folder: &Path, formats: Formats) -> Summary {
    let monitor = Monitor::default();
    let summary = figures::make(folder, Extent::Tiny, formats, &monitor).unwrap();
    assert_eq!(monitor.permille(), 1000 * figures::simulations(Extent::Tiny) as u64);
    summary
}

/// Figures 7.10 to 7.17 and 7.23, six of 7.18, and of three distributions four each.
const FIGURES: usize = 9 + 6 + 12;

fn check_files(folder: &Path, summary: &Summary) {
    assert_eq!(summary.figures.len(), FIGURES);
    let html = std::fs::read_to_string(&summary.index).unwrap();
    let markdown = std::fs::read_to_string(folder.join("index.md")).unwrap();
    for stem in &summary.figures {
        let svg = std::fs::read_to_string(folder.join(format!("{stem}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{stem}");
        let png = std::fs::File::open(folder.join(format!("{stem}.png"))).unwrap();
        let mut reader = png::Decoder::new(std::io::BufReader::new(png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((frame.width, frame.height), (1600, 1000), "{stem}");
        assert!(pixels.iter().filter(|&&byte| byte < 100).count() > 1000, "{stem} is empty");
        assert!(html.contains(&format!("src=\"{stem}.svg\"")), "{stem}");
        assert!(html.contains(&format!("href=\"{stem}.png\"")), "{stem}");
        assert!(markdown.contains(&format!("({stem}.svg)")), "{stem}");
    }
    // Two formats of each, and the pages.
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 2 * FIGURES + 2);
    assert_eq!(html.matches("<table>").count(), html.matches("</table>").count());
    assert!(!html.contains("NaN") && !markdown.contains("NaN"));
}

#[test]
fn everything_is_drawn_and_judged() {
    let folder = Folder::new("all");
    let summary = made(&folder.0, Formats::Both);
    check_files(&folder.0, &summary);
    let statements = &summary.statements;
    expected::check("figures.tsv", statements);
    let page = std::fs::read_to_string(&summary.index).unwrap();
    assert!(page.contains(&format!("Of {} statements", statements.len())));
    // The paper's slip is told, and its rows are what counts.
    assert!(page.contains("2.355") && page.contains("its own rows do not give"));
}

#[test]
fn a_flip_in_either_direction_names_the_statement() {
    let statement = |what: &str, verdict, numbers: &str| {
        let (what, numbers) = (what.to_owned(), numbers.to_owned());
        figures::Statement { what, verdict, numbers }
    };
    let right = [
        statement("a", Verdict::Holds, "19.8 against 21"),
        statement("b", Verdict::Fails, "uniform -0.0104, inverse -"),
        statement("c", Verdict::Open, "-"),
    ];
    let file = expected::text(&right);
    let problems = |at: usize, changed: figures::Statement| {
        let mut found = right.to_vec();
        found[at] = changed;
        expected::problems(&file, &found)
    };
    assert_eq!(expected::problems(&file, &right), [""; 0]);
    for (at, verdict) in [(0, Verdict::Fails), (1, Verdict::Holds), (2, Verdict::Holds)] {
        let told = problems(at, figures::Statement { verdict, ..right[at].clone() });
        assert!(told.len() == 1 && told[0].contains(&right[at].what), "{told:?}");
    }
    // A twentieth, or a unit of the last digit.
    assert_eq!(problems(0, statement("a", Verdict::Holds, "20.7 against 20")), [""; 0]);
    assert_eq!(problems(0, statement("a", Verdict::Holds, "20.9 against 21")).len(), 1);
    assert_eq!(problems(1, statement("b", Verdict::Fails, "uniform 0.0104, inverse -")).len(), 1);
    assert_eq!(
        problems(1, statement("b", Verdict::Fails, "uniform -0.0104, inverse 0.1")).len(),
        1
    );
    // One that is judged no longer, and one that is new.
    assert_eq!(problems(2, statement("d", Verdict::Open, "-")).len(), 2);
}

#[test]
fn a_folder_that_cannot_be_made_and_a_stop_are_errors() {
    let folder = Folder::new("stop");
    let monitor = Monitor::default();
    monitor.cancel();
    let stopped = figures::make(&folder.0, Extent::Tiny, Formats::Svg, &monitor);
    assert!(matches!(stopped, Err(SimError::Cancelled)));
    let under_a_file = folder.0.join("file").join("below");
    std::fs::write(folder.0.join("file"), "").unwrap();
    let made = figures::make(&under_a_file, Extent::Tiny, Formats::Svg, &Monitor::default());
    assert!(matches!(made, Err(SimError::Unwritable { .. })));
}
