//! Reader and writer of traces in the Standard Workload Format: 18 numbers a line, `;` before comments.
//!
//! Fields that are read:
//! * 1, the job's number: a whole number.
//! * 2, submission, and 4, run time: seconds, not negative. A run time of -1 (unknown) is valid, but the job
//!   cannot be simulated: it is left out and counted.
//! * 5, allocated processors; if that is -1 (unknown) or 0: 8, requested processors. If that is unknown too,
//!   the job is left out and counted. (Allocated before requested, because the run time is that on the
//!   allocated processors.)
//! * 10, requested memory, else 7, used memory: KiB for each processor. What a job without either takes is not known.
//! * 9, requested time. A job runs for the lesser of run time and requested time, because it would be killed
//!   then. Its estimate is the greater. If it is -1 (unknown) or 0, the estimate is the run time: the job is
//!   planned as if its user knew.
//! * 12, the user; unknown users are user 0.
//!
//! Every other field must be a number and is ignored. Lines that are not in the order of submission are
//! sorted (jobs of one instant keep their order) and counted.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde::Serialize;

use crate::error::SimError;
use crate::job::{Job, LONGEST_S, SECOND, Source, Workload};

/// Numbers in a line.
const FIELDS: usize = 18;
/// Longest line; no trace has a longer one.
const LONGEST_LINE: u64 = 1 << 16;
/// This many malformed lines are reported one by one.
const MOST_TOLD: usize = 20;

/// Summary of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The file.
    pub file: String,
    /// Jobs that are simulated.
    pub jobs: u64,
    /// Malformed lines.
    pub malformed: u64,
    /// The first of them: line number, from 1, and the reason.
    pub malformed_lines: Vec<(u64, String)>,
    /// Jobs left out because their run time is unknown.
    pub unknown_run_time: u64,
    /// Jobs left out because their size is unknown.
    pub unknown_size: u64,
    /// Jobs with an unknown requested time.
    pub unknown_estimate: u64,
    /// Jobs that come after one submitted later.
    pub out_of_order: u64,
    /// `MaxProcs` of the header, else `MaxNodes`: the size of the machine that it was taken on.
    pub max_procs: Option<u32>,
}

/// Reads a trace, and uncompresses it if its name ends in `.gz`. If `strict`, the first malformed line is an
/// error.
///
/// # Errors
/// The file cannot be read, or a line is malformed and `strict` is set.
pub fn read(path: &Path, strict: bool) -> Result<Workload, SimError> {
    let unreadable = |source| SimError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let compressed = path.extension().is_some_and(|extension| extension == "gz");
    let reader: Box<dyn Read> = if compressed {
        Box::new(MultiGzDecoder::new(BufReader::new(file)))
    } else {
        Box::new(file)
    };
    let mut parser = Parser::new(path.display().to_string(), strict);
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = (&mut lines).take(LONGEST_LINE).read_until(b'\n', &mut line);
        if length.map_err(unreadable)? == 0 {
            break;
        }
        if line.len() as u64 == LONGEST_LINE && line.last() != Some(&b'\n') {
            let long = io::Error::new(io::ErrorKind::InvalidData, "a line is over 64 KiB long");
            return Err(unreadable(long));
        }
        parser.line(&String::from_utf8_lossy(&line))?;
    }
    Ok(parser.finish())
}

/// Reads a trace from memory, like [`read`]; `name` is its name in the summary.
///
/// # Errors
/// A line is malformed and `strict` is set.
pub fn parse(name: &str, text: &str, strict: bool) -> Result<Workload, SimError> {
    let mut parser = Parser::new(name.to_owned(), strict);
    text.lines().try_for_each(|line| parser.line(line))?;
    Ok(parser.finish())
}

/// The jobs as a trace of a machine with `procs` processors; `note` is a comment in its header. Times are cut to whole
/// seconds, and priorities have no field. What is not known of a job is -1.
pub fn text(jobs: &[Job], procs: u32, note: &str) -> String {
    let mut text =
        format!("; Version: 2.2\n; MaxJobs: {}\n; MaxProcs: {procs}\n; Note: {note}\n", jobs.len());
    for &Job { number, submit, service, estimate, size, user, memory: _, priority: _ } in jobs {
        let [submit, service, estimate] = [submit, service, estimate].map(|time| time / SECOND);
        let line = writeln!(
            text,
            "{number} {submit} -1 {service} {size} -1 -1 {size} {estimate} -1 1 {user} -1 -1 -1 -1 -1 -1"
        );
        debug_assert!(line.is_ok(), "writing to a string cannot fail");
    }
    text
}

struct Parser {
    strict: bool,
    number: u64,
    jobs: Vec<Job>,
    summary: Summary,
    max_nodes: Option<u32>,
}

/// A line without a job.
enum NoJob {
    UnknownRunTime,
    UnknownSize,
    Malformed(String),
}

impl Parser {
    fn new(file: String, strict: bool) -> Self {
        let summary = Summary { file, ..Summary::default() };
        Self { strict, number: 0, jobs: Vec::new(), summary, max_nodes: None }
    }

    fn line(&mut self, line: &str) -> Result<(), SimError> {
        self.number += 1;
        let line = line.trim();
        if let Some(comment) = line.strip_prefix(';') {
            self.header(comment);
            return Ok(());
        }
        if line.is_empty() {
            return Ok(());
        }
        match job(line) {
            Ok((job, known)) => {
                self.summary.unknown_estimate += u64::from(!known);
                let before = self.jobs.last().is_some_and(|last| last.submit > job.submit);
                self.summary.out_of_order += u64::from(before);
                self.jobs.push(job);
            }
            Err(NoJob::UnknownRunTime) => self.summary.unknown_run_time += 1,
            Err(NoJob::UnknownSize) => self.summary.unknown_size += 1,
            Err(NoJob::Malformed(reason)) => {
                if self.strict {
                    return Err(SimError::Trace { line: self.number, reason });
                }
                self.summary.malformed += 1;
                if self.summary.malformed_lines.len() < MOST_TOLD {
                    self.summary.malformed_lines.push((self.number, reason));
                }
            }
        }
        Ok(())
    }

    /// A header line has a name, a colon and a value; anything else is a comment.
    fn header(&mut self, comment: &str) {
        let Some((name, value)) = comment.split_once(':') else { return };
        let value = value.split_whitespace().next().and_then(|value| value.parse().ok());
        match name.trim() {
            "MaxProcs" => self.summary.max_procs = value,
            "MaxNodes" => self.max_nodes = value,
            _ => {}
        }
    }

    fn finish(mut self) -> Workload {
        self.jobs.sort_by_key(|job| job.submit);
        self.summary.jobs = self.jobs.len() as u64;
        self.summary.max_procs = self.summary.max_procs.or(self.max_nodes);
        Workload { jobs: self.jobs, horizon: None, source: Source::Swf(self.summary) }
    }
}

/// The job of a line, and whether its estimate is known.
fn job(line: &str) -> Result<(Job, bool), NoJob> {
    let mut fields = [""; FIELDS];
    let mut count = 0;
    for field in line.split_whitespace() {
        if let Some(place) = fields.get_mut(count) {
            *place = field;
        }
        count += 1;
    }
    if count != FIELDS {
        return Err(malformed(format!("it has {count} fields instead of {FIELDS}")));
    }
    for (index, field) in fields.iter().enumerate() {
        if !field.parse::<f64>().is_ok_and(f64::is_finite) {
            let shown: String = field.chars().take(20).filter(|c| !c.is_control()).collect();
            return Err(malformed(format!("field {} is '{shown}', no number", index + 1)));
        }
    }
    let number = whole(&fields, 1, u64::MAX / 2)?;
    let number = number.ok_or_else(|| malformed("field 1, the job's number, is -1".to_owned()))?;
    let submit = whole(&fields, 2, LONGEST_S)?;
    let submit = submit.ok_or_else(|| malformed("field 2, the submission, is -1".to_owned()))?;
    let run = whole(&fields, 4, LONGEST_S)?;
    let given = whole(&fields, 5, u64::from(u32::MAX))?;
    let wanted = whole(&fields, 8, u64::from(u32::MAX))?;
    let asked = whole(&fields, 9, LONGEST_S)?.filter(|&asked| asked > 0);
    let user = whole(&fields, 12, u64::from(u32::MAX))?.unwrap_or(0);
    let run = run.ok_or(NoJob::UnknownRunTime)?;
    let size = given.filter(|&size| size > 0).or(wanted.filter(|&size| size > 0));
    let size = size.ok_or(NoJob::UnknownSize)?;
    let job = Job {
        number,
        submit: submit * SECOND,
        service: asked.map_or(run, |asked| run.min(asked)) * SECOND,
        estimate: asked.map_or(run, |asked| run.max(asked)) * SECOND,
        size: size as u32,
        memory: memory(&fields),
        user: user as u32,
        priority: 1,
    };
    Ok((job, asked.is_some()))
}

/// Bytes for each processor: asked for, else used. These fields are only read for what they are worth.
fn memory(fields: &[&str; FIELDS]) -> u64 {
    let kib = [10, 7].map(|field| fields[field - 1].parse::<f64>().unwrap_or(-1.0));
    let known = kib.into_iter().find(|&kib| kib > 0.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    known.map_or(0, |kib| (kib * 1024.0) as u64)
}

fn malformed(reason: String) -> NoJob {
    NoJob::Malformed(reason)
}

/// Field `index`, counted from 1; `None` for -1, which means unknown.
fn whole(fields: &[&str; FIELDS], index: usize, most: u64) -> Result<Option<u64>, NoJob> {
    let field = fields[index - 1];
    // Some archives write whole seconds as 12.0 or 12.00.
    let digits = match field.split_once('.') {
        Some((digits, zeros)) if zeros.bytes().all(|byte| byte == b'0') => digits,
        _ => field,
    };
    let value: i64 = digits
        .parse()
        .map_err(|_| malformed(format!("field {index} is {field}, no whole number")))?;
    match value {
        -1 => Ok(None),
        value if value < 0 => Err(malformed(format!("field {index} is negative: {value}"))),
        value if value as u64 > most => {
            Err(malformed(format!("field {index} is {value}; at most {most} makes sense")))
        }
        value => Ok(Some(value as u64)),
    }
}
