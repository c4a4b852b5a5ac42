//! The figures in their smallest form: every file is there and is what its name says, and every
//! statement of the paper is judged by numbers.
#![forbid(unsafe_code)]

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
    for about in ["7.10", "7.12", "7.15", "7.17", "7.18", "7.19", "7.20", "7.21", "7.2", "7.4"] {
        let start = format!("{about}:");
        let said = |what: &str| what.starts_with(&start) || what.starts_with(&format!("{about},"));
        assert!(statements.iter().any(|statement| said(&statement.what)), "{about}");
    }
    // Table 7.1: five policies at two loads, utilisation and TQLB of each.
    let table = statements.iter().filter(|statement| statement.what.starts_with("dqt:")).count();
    assert_eq!(table, 20);
    for statement in statements {
        let numbers = &statement.numbers;
        let known = numbers.chars().any(|letter| letter.is_ascii_digit());
        assert!(known || statement.verdict == Verdict::Open, "{}: {numbers}", statement.what);
        assert!(!numbers.contains("inf"), "{}: {numbers}", statement.what);
    }
    let all = [Verdict::Holds, Verdict::Fails, Verdict::Open].map(|which| summary.count(which));
    assert_eq!(all.iter().sum::<usize>(), statements.len());
    let page = std::fs::read_to_string(&summary.index).unwrap();
    assert!(page.contains(&format!("Of {} statements", statements.len())));
    // The paper's slip is told, and its rows are what counts.
    assert!(page.contains("2.355") && page.contains("its own rows do not give"));
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
