//! Programs of the demonstration: their options and output.

use std::path::PathBuf;

/// Length of a measuring run of a program that otherwise runs until stopped.
const MEASURED_SECONDS: &str = "0.3";

/// Number of copies of a synchronised program that run at once.
const COPIES: u32 = 3;

/// A program of the demonstration.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its name in the table.
    pub name: &'static str,
    /// Its file, beside the command.
    pub file: &'static str,
    kind: Kind,
}

/// Kind of a program's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A NAS kernel solves a problem of a class some number of times.
    Kernel,
    /// A program that synchronises in every step makes some number of steps.
    Stepper,
}

/// All programs, in the order of the table.
pub const PROGRAMS: [Known; 4] = [
    Known { name: "EP", file: "ep", kind: Kind::Kernel },
    Known { name: "CG", file: "cg", kind: Kind::Kernel },
    Known { name: "IS", file: "is", kind: Kind::Kernel },
    Known { name: "lockstep", file: "lockstep", kind: Kind::Stepper },
];

/// One program during the demonstration.
#[derive(Debug)]
pub struct Program {
    known: Known,
    class: String,
    /// Its file.
    pub path: PathBuf,
    /// Its options: first those of a short run, then those of [`Self::plan`].
    pub arguments: Vec<String>,
    /// Whether each of its runs reported a right result.
    pub verified: bool,
    /// Its time alone, in seconds.
    pub alone: Vec<f64>,
}

impl Program {
    /// A program with the options of a short run. `class` is that of the NAS kernels.
    pub fn new(known: Known, path: PathBuf, class: &str) -> Self {
        let words = match known.kind {
            Kind::Kernel => ["--class", class],
            Kind::Stepper => ["--seconds", MEASURED_SECONDS],
        };
        let arguments = words.map(str::to_owned).to_vec();
        Self { known, class: class.to_owned(), path, arguments, verified: true, alone: Vec::new() }
    }

    /// Its name in the table.
    pub fn name(&self) -> &'static str {
        self.known.name
    }

    /// The NAS problem class; `None` for other programs.
    pub fn class(&self) -> Option<&str> {
        (self.known.kind == Kind::Kernel).then_some(&self.class)
    }

    /// Number of copies that run at once: 1 for a kernel, which runs beside other kernels.
    pub fn copies(&self) -> u32 {
        if self.known.kind == Kind::Stepper { COPIES } else { 1 }
    }

    /// Options of `kumi run` for it.
    pub fn options(&self) -> &'static [&'static str] {
        match self.known.kind {
            Kind::Kernel => &[],
            // Waits never block, as in most MPI libraries.
            Kind::Stepper => &["--env", "KUMI_SPIN=infinite"],
        }
    }

    /// Name, class and number of copies for the table.
    pub fn title(&self) -> String {
        super::report::title(self.name(), self.class(), self.copies())
    }

    /// Makes the next runs take about `seconds`, by the output of the short run. Returns a sentence about it; `None` if the
    /// output does not say how long the program took.
    pub fn plan(&mut self, output: &str, seconds: f64) -> Option<String> {
        match self.known.kind {
            Kind::Kernel => {
                // The smallest class may be too short for the clock.
                let once = field(output, "Time in seconds")?.parse::<f64>().ok()?.max(1e-3);
                // At least 1, at most what even the smallest class needs: the cast cannot truncate.
                let repeat = (seconds / once).clamp(1.0, 5e3).round() as u32;
                self.arguments.extend(["--repeat".to_owned(), repeat.to_string()]);
                Some(format!("{once:.2} s, will run {repeat} times"))
            }
            Kind::Stepper => {
                let per_second: f64 = field(output, "Steps per second")?.parse().ok()?;
                let line = output.lines().find(|line| line.contains("rounds of computing"))?;
                let work: u64 = line.split_whitespace().next()?.parse().ok()?;
                let steps = (per_second * seconds).clamp(1.0, 1e9).round() as u64;
                let words = ["--steps", &steps.to_string(), "--compute-work", &work.to_string()];
                self.arguments = words.map(str::to_owned).to_vec();
                Some(format!("{per_second:.0} steps a second, will make {steps}"))
            }
        }
    }
}

/// Whether a program's last line reports a right result.
pub fn verified(output: &str) -> bool {
    let result = output.lines().rev().find(|line| line.starts_with("RESULT "));
    result.is_some_and(|line| line.split_whitespace().any(|word| word == "verified=yes"))
}

/// The value of a line ` name = value`.
fn field<'a>(output: &'a str, name: &str) -> Option<&'a str> {
    let line = output.lines().map(str::trim).find(|line| line.starts_with(name))?;
    Some(line.split_once('=')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = " CG Benchmark Completed.\n Class           =                        W\n \
                          Time in seconds =                     0.41\n\
                          RESULT name=CG class=W verified=yes seconds=0.41\n";
    const STEPPER: &str = "120 rounds of computing per step; the slowest pair made 3000 steps\n \
                           Steps per second = 10000.0\nRESULT name=lockstep class=- verified=yes\n";

    fn program(name: &str) -> Program {
        let known = PROGRAMS.into_iter().find(|known| known.name == name).unwrap();
        Program::new(known, PathBuf::from(known.file), "W")
    }

    #[test]
    fn a_kernel_repeats_itself_for_the_seconds_asked_for() {
        let mut kernel = program("CG");
        assert_eq!(kernel.arguments, ["--class", "W"]);
        assert_eq!(kernel.plan(KERNEL, 4.1).unwrap(), "0.41 s, will run 10 times");
        assert_eq!(kernel.arguments, ["--class", "W", "--repeat", "10"]);
        assert_eq!(kernel.title(), "CG.W");
        assert!(program("CG").plan("", 1.0).is_none());
    }

    #[test]
    fn a_stepper_makes_the_steps_of_the_seconds_asked_for_with_the_work_it_measured() {
        let mut stepper = program("lockstep");
        assert_eq!(stepper.arguments, ["--seconds", MEASURED_SECONDS]);
        assert_eq!(stepper.plan(STEPPER, 2.0).unwrap(), "10000 steps a second, will make 20000");
        assert_eq!(stepper.arguments, ["--steps", "20000", "--compute-work", "120"]);
        assert_eq!(stepper.title(), "3 lockstep");
        assert!(program("lockstep").plan(KERNEL, 1.0).is_none());
    }

    #[test]
    fn only_the_result_line_says_that_a_result_is_right() {
        assert!(verified(KERNEL) && verified(STEPPER));
        assert!(!verified(&KERNEL.replace("verified=yes", "verified=no")));
        assert!(!verified("verified=yes\n"));
        assert!(!verified(""));
    }
}
