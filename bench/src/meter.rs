//! Meter: the speed of a running job, window by window.
//!
//! Processors of shared machines change their speed by tens of per cent within seconds, so two
//! consecutive runs cannot show a difference of some per cent. Here the jobs keep running while the
//! compared feature is switched on and off several times a second. Their own progress tells their speed
//! in each window, and two neighbouring windows see the same machine.

use crate::cluster::Cluster;
use crate::error::BenchError;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time for a change to reach all nodes.
const SETTLE: Duration = Duration::from_millis(20);
/// Time limit for a program's first steps.
const PATIENCE: Duration = Duration::from_secs(120);
/// Progress of a window arrives at most this long after its end.
const ARRIVAL: Duration = Duration::from_millis(500);

/// A piece of time, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    from: f64,
    to: f64,
}

impl Window {
    /// Lets the last change settle, then waits for the length of the window.
    pub fn pass(length: Duration) -> Self {
        std::thread::sleep(SETTLE);
        let from = unix_time();
        std::thread::sleep(length);
        Self { from, to: unix_time() }
    }

    fn holds(&self, sample: &Sample) -> bool {
        (self.from..=self.to).contains(&sample.time)
    }
}

fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// A time, and the number of steps of a program before it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    time: f64,
    steps: f64,
}

impl Sample {
    /// Reads a line `PROGRESS <steps> <seconds since 1970>`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("PROGRESS ")?.split_whitespace();
        let steps = words.next()?.parse().ok()?;
        Some(Self { time: words.next()?.parse().ok()?, steps })
    }
}

/// A job that runs in the background, one rank on each of two nodes.
pub struct Meter<'c> {
    cluster: &'c Cluster,
    child: Child,
    samples: Arc<Mutex<Vec<Sample>>>,
    job: String,
}

impl<'c> Meter<'c> {
    /// Starts a program of the examples that shows its progress; waits until it makes steps.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(
        cluster: &'c Cluster,
        name: &str,
        options: &[&str],
        program: &Path,
        args: &[&str],
    ) -> Result<Self, BenchError> {
        let args: Vec<&str> = args.iter().copied().chain(["--progress"]).collect();
        let meter = Self::spawn(cluster, name, options, program, &args)?;
        let begin = Instant::now();
        while meter.samples().len() < 3 {
            if begin.elapsed() > PATIENCE {
                return Err(meter.nothing("its first steps"));
            }
            std::thread::sleep(SETTLE);
        }
        Ok(meter)
    }

    /// Starts any program, whose progress is unknown.
    ///
    /// # Errors
    /// When it does not start.
    pub fn spawn(
        cluster: &'c Cluster,
        name: &str,
        options: &[&str],
        program: &Path,
        args: &[&str],
    ) -> Result<Self, BenchError> {
        let options: Vec<&str> = ["--name", name].iter().chain(options).copied().collect();
        let mut child = cluster.start_with(&options, 2, program, args)?;
        let samples = Arc::new(Mutex::new(Vec::new()));
        if let Some(output) = child.stdout.take() {
            let samples = Arc::clone(&samples);
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    lock(&samples).extend(Sample::parse(&line));
                }
            });
        }
        let mut meter = Self { cluster, child, samples, job: String::new() };
        let begin = Instant::now();
        while meter.job.is_empty() {
            if begin.elapsed() > PATIENCE {
                return Err(meter.nothing("its job's number"));
            }
            std::thread::sleep(SETTLE);
            meter.job = number_of(cluster, name)?.unwrap_or_default();
        }
        Ok(meter)
    }

    fn samples(&self) -> MutexGuard<'_, Vec<Sample>> {
        lock(&self.samples)
    }

    fn nothing(&self, wanted: &str) -> BenchError {
        BenchError::Output {
            wanted: wanted.to_owned(),
            what: format!("job {}", self.job),
            output: format!("{} progress lines", self.samples().len()),
        }
    }

    /// Seconds per step in the window: of the whole steps between the first and the last progress line within
    /// it.
    ///
    /// # Errors
    /// It made less than one step.
    pub fn seconds_per_step(&self, window: Window) -> Result<f64, BenchError> {
        let seconds = seconds_per_step(&self.samples(), window);
        seconds.ok_or_else(|| self.nothing(&format!("two progress lines in {window:?}")))
    }

    /// Checks that it made progress before the window and none within it.
    ///
    /// # Errors
    /// It went on, or has not begun.
    pub fn made_no_step(&self, window: Window) -> Result<(), BenchError> {
        let samples = self.samples();
        let begun = samples.iter().any(|sample| sample.steps > 0.0 && sample.time < window.from);
        if begun && !samples.iter().any(|sample| window.holds(sample)) {
            return Ok(());
        }
        let output = format!("{} progress lines", samples.len());
        let (wanted, what) = (format!("a standstill in {window:?}"), format!("job {}", self.job));
        Err(BenchError::Output { wanted, what, output })
    }

    /// Sends all ranks of the jobs a signal.
    ///
    /// # Errors
    /// When that fails.
    pub fn signal(jobs: &[&Meter<'c>], signal: &str) -> Result<(), BenchError> {
        let Some(first) = jobs.first() else { return Ok(()) };
        let numbers = jobs.iter().map(|meter| meter.job.as_str());
        let args: Vec<&str> = ["kill", "--signal", signal].into_iter().chain(numbers).collect();
        first.cluster.kumi(&args).map(drop)
    }

    /// Lets each of the jobs run alone for a window, one after the other, while the others are stopped. Not under gang
    /// scheduling: a stopped job would keep its slices.
    ///
    /// # Errors
    /// When a signal cannot be sent.
    pub fn each_alone(jobs: &[&Meter<'c>], length: Duration) -> Result<Vec<Window>, BenchError> {
        Self::signal(jobs, "STOP")?;
        let mut alone = Vec::new();
        for job in jobs {
            Self::signal(&[job], "CONT")?;
            alone.push(Window::pass(length));
            Self::signal(&[job], "STOP")?;
        }
        Self::signal(jobs, "CONT")?;
        Ok(alone)
    }

    /// Waits until the progress of all windows passed so far is known.
    pub fn catch_up() {
        std::thread::sleep(ARRIVAL);
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        if !self.job.is_empty()
            && let Err(error) = self.cluster.kumi(&["kill", &self.job])
        {
            eprintln!("kumi-bench: {error}");
        }
        // It ends with its job, or has no job to follow.
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            eprintln!("kumi-bench: job {}: {error}", self.job);
        }
    }
}

fn lock(samples: &Mutex<Vec<Sample>>) -> MutexGuard<'_, Vec<Sample>> {
    // A sample is pushed whole or not at all.
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of the running job of this name.
fn number_of(cluster: &Cluster, name: &str) -> Result<Option<String>, BenchError> {
    let text = cluster.kumi(&["ps", "--json"])?;
    let jobs: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| BenchError::Output {
            wanted: error.to_string(),
            what: "kumi ps --json".to_owned(),
            output: text,
        })?;
    let found = jobs.as_array().into_iter().flatten().find(|job| job["name"] == name);
    Ok(found.map(|job| job["job"].to_string()))
}

fn seconds_per_step(samples: &[Sample], window: Window) -> Option<f64> {
    let mut inside = samples.iter().filter(|sample| window.holds(sample));
    let first = inside.next()?;
    let last = inside.next_back()?;
    let steps = last.steps - first.steps;
    (steps > 0.0).then(|| (last.time - first.time) / steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_steps_inside_of_the_window_count() {
        let sample = |time, steps| Sample { time, steps };
        // Slow before and after the window, 0.1 s per step within.
        let samples = [
            sample(0.0, 0.0),
            sample(1.05, 1.0),
            sample(1.15, 2.0),
            sample(1.35, 4.0),
            sample(9.0, 5.0),
        ];
        let of = |from, to| seconds_per_step(&samples, Window { from, to });
        assert!((of(1.0, 1.4).unwrap() - 0.1).abs() < 1e-12);
        assert_eq!(of(1.1, 1.2), None, "one sample shows no step");
        assert_eq!(of(2.0, 3.0), None);
    }

    #[test]
    fn reads_progress_and_nothing_else() {
        let read = Sample::parse("PROGRESS 12 1700000000.250000");
        assert_eq!(read, Some(Sample { time: 1_700_000_000.25, steps: 12.0 }));
        assert_eq!(Sample::parse("iteration 1 rest 0.5"), None);
        assert_eq!(Sample::parse("PROGRESS 12"), None);
    }
}
