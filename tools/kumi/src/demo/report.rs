//! Report of the demonstration: a table for people, or JSON for programs.

use super::ideal;
use serde::Serialize;
use std::fmt::Write as _;

/// Everything measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// One per program, in the order in which they were run.
    pub programs: Vec<ProgramResult>,
    /// Costs of the switches while the programs ran together.
    pub switch: SwitchResult,
    /// See [`ideal::overhead_percent`].
    pub overhead_percent: f64,
}

/// One program.
#[derive(Debug, Serialize)]
pub struct ProgramResult {
    /// "EP", "CG", "IS" or "lockstep".
    pub name: String,
    /// NAS problem class; `None` for lockstep.
    pub class: Option<String>,
    /// Number of copies that ran at once: 1 for a kernel, which ran beside the other kernels.
    pub copies: u32,
    /// Whether each of its runs reported a right result.
    pub verified: bool,
    /// Seconds from `kumi run` to its return with the cluster to itself. This is the mean of two runs, one
    /// before and one after the programs ran together.
    pub alone_s: f64,
    /// Seconds from the common start to its end, all programs under gang scheduling.
    pub together_gang_s: f64,
    /// The same under plain operating-system scheduling.
    pub together_os_s: f64,
    /// `together_gang_s` over the completion time under exactly equal shares.
    pub ratio_gang: f64,
    /// The same for `together_os_s`.
    pub ratio_os: f64,
}

/// Switches while the programs ran together under gang scheduling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SwitchResult {
    /// Number of switches of the node that switched most often.
    pub count: u64,
    /// Median duration in microseconds, of the node where it is largest.
    pub p50_us: f64,
    /// 99th percentile likewise.
    pub p99_us: f64,
}

/// Times of one program, in seconds, as [`Report::new`] takes them.
#[derive(Debug)]
pub struct Times<'a> {
    /// Its name.
    pub name: &'static str,
    /// NAS problem class.
    pub class: Option<&'a str>,
    /// Number of copies that ran at once.
    pub copies: u32,
    /// Whether every run verified.
    pub verified: bool,
    /// Alone.
    pub alone: f64,
    /// From the common start, under gang scheduling.
    pub gang: f64,
    /// From the common start, under operating-system scheduling.
    pub os: f64,
}

impl Report {
    /// Computes ratios and overhead from the times.
    pub fn new(times: &[Times<'_>], switch: SwitchResult) -> Self {
        let kernels = || times.iter().filter(|time| time.copies == 1);
        let alone: Vec<f64> = kernels().map(|time| time.alone).collect();
        let gang: Vec<f64> = kernels().map(|time| time.gang).collect();
        let mut of_kernels = ideal::completion_times(&alone).into_iter();
        // Equal copies of one program that start together end together.
        let ideal = times.iter().map(|time| match time.copies {
            1 => of_kernels.next().unwrap_or(time.alone),
            copies => time.alone * f64::from(copies),
        });
        let programs = times
            .iter()
            .zip(ideal)
            .map(|(time, ideal)| ProgramResult {
                name: time.name.to_owned(),
                class: time.class.map(str::to_owned),
                copies: time.copies,
                verified: time.verified,
                alone_s: time.alone,
                together_gang_s: time.gang,
                together_os_s: time.os,
                ratio_gang: time.gang / ideal,
                ratio_os: time.os / ideal,
            })
            .collect();
        Self { programs, switch, overhead_percent: ideal::overhead_percent(&alone, &gang) }
    }

    /// Whether every result was right.
    pub fn verified(&self) -> bool {
        self.programs.iter().all(|program| program.verified)
    }

    /// The table.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "                               gang scheduling     operating system\n\
             program     verified  alone s  together s  ratio   together s  ratio\n",
        );
        for program in &self.programs {
            let _infallible = writeln!(
                text,
                "{:<10}  {:<8}  {:>7.2}  {:>10.2}  {:>5.2}   {:>10.2}  {:>5.2}",
                title(&program.name, program.class.as_deref(), program.copies),
                if program.verified { "yes" } else { "NO" },
                program.alone_s,
                program.together_gang_s,
                program.ratio_gang,
                program.together_os_s,
                program.ratio_os,
            );
        }
        let _infallible = write!(
            text,
            "ratio: to the completion time under exactly equal shares among the jobs still running\n\
             switches {}, switch time p50 {:.1} us, p99 {:.1} us, overhead of sharing {:.1} %\n",
            self.switch.count, self.switch.p50_us, self.switch.p99_us, self.overhead_percent,
        );
        text
    }

    /// One sentence about the synchronised program in the table; `None` if it did not run.
    pub fn reading(&self) -> Option<String> {
        let program = self.programs.iter().find(|program| program.copies > 1)?;
        let factor = program.together_os_s / program.together_gang_s;
        let (factor, slower) = if factor >= 1.0 {
            (factor, "operating-system scheduling")
        } else {
            (1.0 / factor, "gang scheduling, this time")
        };
        Some(format!(
            "{} copies of {}, whose ranks exchange a message every few microseconds, take {factor:.1} times as long\n\
             under {slower}. A rank can go on only while its partner runs.",
            program.copies, program.name
        ))
    }
}

/// Name and class of a program, and the number of its copies.
pub fn title(name: &str, class: Option<&str>, copies: u32) -> String {
    let name = class.map_or_else(|| name.to_owned(), |class| format!("{name}.{class}"));
    if copies == 1 { name } else { format!("{copies} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let time = |name, alone, gang, os| {
            let class = (name != "lockstep").then_some("W");
            let copies = if name == "lockstep" { 3 } else { 1 };
            Times { name, class, copies, verified: name != "IS", alone, gang, os }
        };
        let times = [
            time("EP", 4.0, 7.7, 8.0),
            time("CG", 1.0, 3.0, 9.0),
            time("lockstep", 2.0, 6.6, 19.8),
            time("IS", 2.0, 5.5, 10.0),
        ];
        Report::new(&times, SwitchResult { count: 700, p50_us: 8.25, p99_us: 31.0 })
    }

    #[test]
    fn ratios_are_to_equal_shares() {
        let report = report();
        let ratios: Vec<f64> = report.programs.iter().map(|p| p.ratio_gang).collect();
        for (ratio, want) in ratios.iter().zip([1.1, 1.0, 1.1, 1.1]) {
            assert!((ratio - want).abs() < 1e-12, "{ratios:?}");
        }
        assert!((report.programs[1].ratio_os - 3.0).abs() < 1e-12);
        assert!((report.overhead_percent - 10.0).abs() < 1e-9);
        assert!(!report.verified());
    }

    #[test]
    fn the_json_has_the_documented_fields_and_no_others() {
        let json = serde_json::to_value(report()).unwrap();
        let keys = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(keys(&json), ["overhead_percent", "programs", "switch"]);
        assert_eq!(keys(&json["switch"]), ["count", "p50_us", "p99_us"]);
        assert_eq!(
            keys(&json["programs"][0]),
            [
                "alone_s",
                "class",
                "copies",
                "name",
                "ratio_gang",
                "ratio_os",
                "together_gang_s",
                "together_os_s",
                "verified"
            ]
        );
    }

    #[test]
    fn the_reading_says_which_scheduling_was_better_for_the_synchronised_program() {
        let mut report = report();
        let reading = report.reading().unwrap();
        assert!(reading.starts_with("3 copies of lockstep"), "{reading}");
        assert!(reading.contains("3.0 times as long\nunder operating-system"), "{reading}");
        report.programs[2].together_os_s = 3.3;
        let reading = report.reading().unwrap();
        assert!(
            reading.contains("2.0 times as long\nunder gang scheduling, this time"),
            "{reading}"
        );
        report.programs.remove(2);
        assert_eq!(report.reading(), None);
    }

    #[test]
    fn the_table_shows_a_wrong_result() {
        let table = report().table();
        assert!(table.contains("IS.W        NO"), "{table}");
        assert!(table.contains("switches 700"), "{table}");
    }
}
