//! Half round trips between rank 0 and another, by put-with-notify and by send and receive.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use kumi_examples::measure::percentile;
use kumi_examples::program::{UsageError, run};
use kumi_mem::{Context, Source, Tag, Window};

/// Largest message, in bytes.
const LARGEST: usize = 64 << 20;
/// Bytes that one measurement moves at most in each direction, unless --iterations says otherwise.
const VOLUME: usize = 64 << 20;

#[derive(Debug, Parser)]
#[command(about = "Half round trips between rank 0 and a peer")]
struct Options {
    /// Which operations to measure
    #[arg(long, value_enum, default_value = "both")]
    mode: Choice,
    /// Message sizes in bytes, at least 8 (a sequence number)
    #[arg(long, value_delimiter = ',', default_value = "8,64,1024,8192,65536,1048576")]
    sizes: Vec<usize>,
    /// Round trips per size [default: 10000, fewer for large messages]
    #[arg(long)]
    iterations: Option<usize>,
    /// The rank that answers
    #[arg(long, default_value_t = 1)]
    peer: u32,
    /// Print one JSON array instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choice {
    Put,
    Send,
    Both,
}

/// The two ways to bring a message over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Put,
    Send,
}

/// One line of the table; times are half round trips in nanoseconds.
struct Row {
    mode: Mode,
    bytes: usize,
    iterations: usize,
    p50: f64,
    p99: f64,
    min: f64,
    verified: bool,
    seconds: f64,
}

/// The rank at one end, and what it needs.
struct End<'c> {
    context: &'c Context,
    window: &'c Window<'c>,
    other: u32,
    /// Puts that have arrived here so far.
    arrived: u64,
}

fn main() -> ExitCode {
    run(|context, options: &Options| {
        check(context, options)?;
        let largest = options.sizes.iter().copied().max().unwrap_or(8);
        let window = context.window(largest)?;
        let mut rows = Vec::new();
        if context.rank() == 0 || context.rank() == options.peer {
            let other = if context.rank() == 0 { options.peer } else { 0 };
            let mut end = End { context, window: &window, other, arrived: 0 };
            for mode in options.mode.modes() {
                for bytes in &options.sizes {
                    let few = (VOLUME / bytes).clamp(20, 10_000);
                    rows.push(end.measure(*mode, *bytes, options.iterations.unwrap_or(few))?);
                }
            }
        }
        context.barrier()?;
        if context.rank() == 0 {
            print(&rows, options.json, context.same_node(options.peer));
            if !options.json {
                for row in &rows {
                    println!("{}", row.line(context.ranks()));
                }
            }
        }
        Ok(rows.iter().all(|row| row.verified))
    })
}

impl Choice {
    fn modes(self) -> &'static [Mode] {
        match self {
            Choice::Put => &[Mode::Put],
            Choice::Send => &[Mode::Send],
            Choice::Both => &[Mode::Put, Mode::Send],
        }
    }
}

fn check(context: &Context, options: &Options) -> Result<(), UsageError> {
    let wrong = if options.peer == 0 || options.peer >= context.ranks() {
        format!("--peer {}: there must be such a rank, other than 0", options.peer)
    } else if let Some(size) = options.sizes.iter().find(|size| !(8..=LARGEST).contains(*size)) {
        format!("--sizes {size}: a size is 8 to {LARGEST} bytes")
    } else if options.iterations == Some(0) {
        "--iterations 0: at least one".to_owned()
    } else {
        return Ok(());
    };
    Err(UsageError(wrong))
}

impl End<'_> {
    /// Round trips of one size. Both ends take part; the times of rank 0 count.
    fn measure(&mut self, mode: Mode, bytes: usize, iterations: usize) -> anyhow::Result<Row> {
        let mut data = vec![0x5a_u8; bytes];
        let mut answer = vec![0_u8; bytes];
        let warm_up = (iterations / 10).clamp(1, 200);
        let mut times = Vec::with_capacity(iterations);
        let mut verified = true;
        let mut begin = Instant::now();
        for i in 0..warm_up + iterations {
            if i == warm_up {
                begin = Instant::now();
            }
            let sent = Instant::now();
            if self.context.rank() == 0 {
                data[..8].copy_from_slice(&(i as u64).to_le_bytes());
                self.give(mode, &data)?;
                self.take(mode, &mut answer)?;
                verified &= answer[..8] == data[..8];
            } else {
                self.take(mode, &mut answer)?;
                self.give(mode, &answer)?;
            }
            if i >= warm_up {
                times.push(u64::try_from(sent.elapsed().as_nanos())?);
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        if mode == Mode::Put {
            self.window.read(0, &mut answer)?;
        }
        verified &= answer[8..].iter().all(|byte| *byte == 0x5a);
        times.sort_unstable();
        let half = |percent| percentile(&times, percent) as f64 / 2.0;
        let (p50, p99, min) = (half(50.0), half(99.0), half(0.0));
        Ok(Row { mode, bytes, iterations, p50, p99, min, verified, seconds })
    }

    fn give(&self, mode: Mode, data: &[u8]) -> Result<(), kumi_mem::Error> {
        match mode {
            Mode::Put => self.window.put_notify(self.other, 0, data, 0),
            Mode::Send => self.context.send(self.other, 0, data),
        }
    }

    /// Waits for the other's message. After a put only the sequence number is copied out of the
    /// window at rank 0: the data is where it is wanted. The peer, which sends it back, copies all.
    fn take(&mut self, mode: Mode, into: &mut [u8]) -> Result<(), kumi_mem::Error> {
        match mode {
            Mode::Put => {
                self.arrived += 1;
                self.window.wait_notify(0, self.arrived)?;
                let wanted = if self.context.rank() == 0 { 8 } else { into.len() };
                self.window.read(0, &mut into[..wanted])?;
            }
            Mode::Send => {
                self.context.recv(Source::Rank(self.other), Tag::Is(0), into)?;
            }
        }
        Ok(())
    }
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Put => "put",
            Mode::Send => "send",
        }
    }
}

impl Row {
    /// Millions of bytes per second in one direction.
    fn rate(&self) -> f64 {
        if self.p50 > 0.0 { self.bytes as f64 * 1e3 / self.p50 } else { 0.0 }
    }

    fn line(&self, ranks: u32) -> String {
        format!(
            "RESULT name=pingpong class=- verified={} seconds={:.6} mops={:.4} ranks={ranks} repeat=1 \
             mode={} bytes={} p50_us={:.3} p99_us={:.3} mb_per_s={:.1}",
            if self.verified { "yes" } else { "no" },
            self.seconds,
            self.iterations as f64 / self.seconds / 1e6,
            self.mode.name(),
            self.bytes,
            self.p50 / 1e3,
            self.p99 / 1e3,
            self.rate(),
        )
    }

    fn json(&self) -> String {
        format!(
            "{{\"mode\":\"{}\",\"bytes\":{},\"iterations\":{},\"p50_us\":{:.3},\"p99_us\":{:.3},\
             \"min_us\":{:.3},\"mb_per_s\":{:.1},\"verified\":{}}}",
            self.mode.name(),
            self.bytes,
            self.iterations,
            self.p50 / 1e3,
            self.p99 / 1e3,
            self.min / 1e3,
            self.rate(),
            self.verified,
        )
    }
}

fn print(rows: &[Row], json: bool, same_node: bool) {
    if json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        println!("[{}]", rows.join(",\n "));
        return;
    }
    println!("half round trips, {}", if same_node { "same node" } else { "two nodes" });
    println!("mode     bytes  iterations    p50 us    p99 us    min us      MB/s");
    for row in rows {
        println!(
            "{:4} {:9} {:11} {:9.3} {:9.3} {:9.3} {:9.1}",
            row.mode.name(),
            row.bytes,
            row.iterations,
            row.p50 / 1e3,
            row.p99 / 1e3,
            row.min / 1e3,
            row.rate(),
        );
    }
}
