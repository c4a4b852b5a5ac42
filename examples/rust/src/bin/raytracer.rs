//! A ray tracer whose ranks take the next strip of the picture from a counter and put the pixels into
//! rank 0's window. No rank waits for a slower one, and rank 0 can show the picture grow.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use kumi_examples::picture::{Format, Picture};
use kumi_examples::program::{Outcome, UsageError, run, slowest};
use kumi_examples::scene::{Scene, View};
use kumi_mem::{Context, Error, Window};

/// Rows that a rank takes at a time.
const STRIP: usize = 4;
/// Where the window's pixels begin; the counter of strips is at 0.
const PIXELS: usize = 64;
/// Time between two pictures on the terminal.
const REDRAW: Duration = Duration::from_millis(100);
/// Longest side of the picture.
const LONGEST: usize = 16_384;

#[derive(Debug, Parser)]
#[command(about = "Renders mirror balls on all ranks; rank 0 shows and keeps the picture")]
struct Options {
    /// Pixels in a row
    #[arg(long, default_value_t = 640)]
    width: usize,
    /// Rows
    #[arg(long, default_value_t = 360)]
    height: usize,
    /// Rays per pixel in each direction
    #[arg(long, default_value_t = 2)]
    samples: usize,
    /// Show the picture on the terminal while it grows
    #[arg(long)]
    show: bool,
    /// Columns of the terminal for --show
    #[arg(long, default_value_t = 100)]
    columns: usize,
    /// Write the picture to this file, .ppm or .png
    #[arg(long)]
    output: Option<PathBuf>,
    /// Render this many times
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: u32,
}

/// The input of a rank.
struct Tracer<'c> {
    context: &'c Context,
    window: Window<'c>,
    scene: Scene,
    view: View,
    /// Columns of the terminal, if the picture is shown.
    columns: Option<usize>,
    shown: Option<Instant>,
}

fn main() -> ExitCode {
    run(|context, options: &Options| {
        let format = check(options)?;
        let view = View { width: options.width, height: options.height, samples: options.samples };
        // Only rank 0 has memory in the window.
        let size = if context.rank() == 0 { PIXELS + 3 * view.width * view.height } else { 0 };
        let mut tracer = Tracer {
            context,
            window: context.window(size)?,
            scene: Scene::new(),
            view,
            columns: (options.show && context.rank() == 0).then_some(options.columns),
            shown: None,
        };
        let mut outcome = Outcome {
            name: "raytracer",
            class: "-",
            verified: true,
            seconds: 0.0,
            operations: f64::from(options.repeat)
                * (view.width * view.height * view.samples * view.samples) as f64,
            repeat: options.repeat,
        };
        for repeat in 0..options.repeat {
            tracer.restart()?;
            let begin = context.time();
            tracer.render(u64::from(repeat) + 1)?;
            outcome.seconds += slowest(context, context.time() - begin)?;
        }
        if context.rank() == 0 {
            let pixels = tracer.pixels()?;
            outcome.verified = tracer.verify(&pixels);
            if let (Some(path), Some(format)) = (&options.output, format) {
                let save = save(path, format, Picture { width: view.width, pixels: &pixels });
                save.with_context(|| format!("cannot write {}", path.display()))?;
            }
            println!("{}", outcome.line(context.ranks()));
        }
        Ok(outcome.verified)
    })
}

/// Refuses impossible sizes and file names before anything is computed.
fn check(options: &Options) -> Result<Option<Format>, UsageError> {
    for (name, side) in [("width", options.width), ("height", options.height)] {
        if !(1..=LONGEST).contains(&side) {
            return Err(UsageError(format!("--{name} {side}: 1 to {LONGEST} pixels")));
        }
    }
    if !(1..=16).contains(&options.samples) {
        return Err(UsageError(format!("--samples {}: 1 to 16", options.samples)));
    }
    let Some(path) = &options.output else { return Ok(None) };
    let format = Format::of(path).ok_or_else(|| {
        UsageError(format!("--output {}: the name must end in .ppm or .png", path.display()))
    })?;
    Ok(Some(format))
}

fn save(path: &PathBuf, format: Format, picture: Picture) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    picture.write(format, &mut file)?;
    file.flush()
}

impl Tracer<'_> {
    fn strips(&self) -> u64 {
        self.view.height.div_ceil(STRIP) as u64
    }

    /// Sets the counter of strips back, with all ranks at the same point.
    fn restart(&self) -> Result<(), Error> {
        self.context.barrier()?;
        if self.context.rank() == 0 {
            self.window.store_u64(0, 0)?;
        }
        self.context.barrier()
    }

    /// Takes strips until there are none; rank 0 then waits for those of the others. `round`
    /// counts pictures from 1.
    fn render(&mut self, round: u64) -> Result<(), Error> {
        loop {
            let strip = self.window.fetch_add(0, 0, 1)?;
            if strip >= self.strips() {
                break;
            }
            // Fewer strips than rows: it fits.
            let first = strip as usize * STRIP;
            let end = (first + STRIP).min(self.view.height);
            let pixels = self.scene.render(self.view, first, end);
            self.window.put_notify(0, PIXELS + 3 * self.view.width * first, &pixels, 0)?;
            self.show(false)?;
        }
        if self.context.rank() != 0 {
            return Ok(());
        }
        let all = round * self.strips();
        while self.columns.is_some() && self.window.notified(0)? < all {
            self.context.progress()?;
            self.show(false)?;
        }
        self.window.wait_notify(0, all)?;
        self.show(true)
    }

    /// The picture as far as it has come; only rank 0 has one.
    fn pixels(&self) -> Result<Vec<u8>, Error> {
        let mut pixels = vec![0; 3 * self.view.width * self.view.height];
        self.window.read(PIXELS, &mut pixels)?;
        Ok(pixels)
    }

    /// Draws over the last picture, if it is time.
    fn show(&mut self, last: bool) -> Result<(), Error> {
        let Some(columns) = self.columns else { return Ok(()) };
        if !last && self.shown.is_some_and(|shown| shown.elapsed() < REDRAW) {
            return Ok(());
        }
        let pixels = self.pixels()?;
        let text = Picture { width: self.view.width, pixels: &pixels }.blocks(columns);
        if self.shown.is_some() {
            print!("\x1b[{}A", text.lines().count());
        }
        print!("{text}");
        std::io::stdout().flush()?;
        self.shown = Some(Instant::now());
        Ok(())
    }

    /// Computes some rows again, spread over the picture, and compares.
    fn verify(&self, pixels: &[u8]) -> bool {
        let View { width, height, .. } = self.view;
        (0..8).map(|i| i * height / 8).all(|row| {
            self.scene.render(self.view, row, row + 1) == pixels[3 * width * row..][..3 * width]
        })
    }
}
