//! What daemons and servers log, on standard error: how much is set by `KUMI_LOG`.

mod queue;

use std::{io, panic};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::exit::{ExitCode, Failure};

pub(crate) use queue::lost_lines;
pub use tracing_subscriber::filter::LevelFilter;

/// Logging until this is dropped, which waits a second at most for lines that are not written yet.
#[derive(Debug)]
#[must_use = "lines that are not written yet are lost"]
pub struct Logging(());

impl Drop for Logging {
    fn drop(&mut self) {
        queue::flush();
    }
}

/// Waits a second at most for lines that are not written yet. To be called before this process becomes another program.
pub(crate) fn flush() {
    queue::flush();
}

/// Starts logging to standard error, on a thread of its own: a disk that is full or hangs holds up nobody who logs. Lines that
/// it does not take are counted, and the log says so as soon as it can be written again.
///
/// `KUMI_LOG` is a level (`error`, `warn`, `info`, `debug`, `trace`, `off`) or a list of levels by crate, such as
/// `info,kumi_node=debug`. Without it `default` holds; so it does for a value that is neither, which is logged.
///
/// A process that logs already goes on as it does.
///
/// # Errors
/// The system has no thread for it.
pub fn start(default: LevelFilter) -> Result<Logging, Failure> {
    let writer = queue::start(io::stderr()).map_err(|error| {
        Failure::new(ExitCode::MachineLimits, format!("the log has no thread: {error}"))
    })?;
    if begin(Targets::new().with_default(default), writer) {
        flush_before_panics();
    }
    Ok(Logging(()))
}

/// As [`start`], but who logs waits until the line is written, and none is lost: for what routines of users print.
/// `targets` have levels of their own unless `KUMI_LOG` says another.
pub fn start_in_step(default: LevelFilter, targets: &[(&'static str, LevelFilter)]) {
    begin(Targets::new().with_default(default).with_targets(targets.iter().copied()), io::stderr);
}

/// Logs with this writer from now on; false if the process logs already.
fn begin<W>(default: Targets, writer: W) -> bool
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let value = std::env::var_os("KUMI_LOG");
    // What is not UTF-8 becomes no level either, and is told.
    let value = value.as_ref().map(|value| value.to_string_lossy());
    let (targets, refused) = chosen(value.as_deref(), default);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(false)
        // The queue takes every line, or counts it. Otherwise there is nowhere to say that standard error is closed.
        .log_internal_errors(false);
    let started = tracing_subscriber::registry().with(targets).with(lines).try_init().is_ok();
    if let Some(reason) = refused.filter(|_| started) {
        tracing::error!(
            "KUMI_LOG is ignored: {reason}; give a level or a list such as info,kumi_node=debug"
        );
    }
    started
}

/// A panic is told on standard error, after what was logged before.
fn flush_before_panics() {
    let former = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        queue::flush();
        former(panic);
    }));
}

/// What is logged, and why the variable's value was refused if it was.
fn chosen(value: Option<&str>, default: Targets) -> (Targets, Option<String>) {
    match value.map(parse) {
        None => (default, None),
        Some(Ok(targets)) => (targets, None),
        Some(Err(reason)) => (default, Some(reason)),
    }
}

/// Reads a list of levels, each alone or of a crate.
fn parse(value: &str) -> Result<Targets, String> {
    let words: Vec<&str> = value.split(',').map(str::trim).collect();
    for word in &words {
        // A word alone would be taken for the name of a crate: a level with a slip would silence all others. The empty
        // word would be taken for a level, and for the name of every crate.
        let (name, level) = word.split_once('=').unwrap_or(("all", word));
        if name.is_empty() || level.is_empty() || level.parse::<LevelFilter>().is_err() {
            return Err(format!("{word:?} is no level, and no level of a crate"));
        }
    }
    words.join(",").parse::<Targets>().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_level_or_levels_by_crate_are_taken_and_all_else_is_refused() {
        let chosen =
            |value, default: LevelFilter| chosen(value, Targets::new().with_default(default));
        let (targets, refused) = chosen(None, LevelFilter::INFO);
        assert!(targets.would_enable("kumi_node", &Level::INFO) && refused.is_none());
        assert!(!targets.would_enable("kumi_node", &Level::DEBUG));
        let (targets, refused) = chosen(Some("warn,kumi_node=debug"), LevelFilter::INFO);
        assert!(targets.would_enable("kumi_node::head", &Level::DEBUG) && refused.is_none());
        assert!(!targets.would_enable("kumi_call", &Level::INFO));
        let (targets, refused) = chosen(Some("info, kumi_node=debug"), LevelFilter::WARN);
        assert!(targets.would_enable("kumi_node::head", &Level::DEBUG) && refused.is_none());
        for wrong in ["kumi_node=loud", "inof", "", "info,,", "=debug", "kumi_node=", "\u{fffd}"] {
            let (targets, refused) = chosen(Some(wrong), LevelFilter::INFO);
            assert!(targets.would_enable("kumi_node", &Level::INFO), "{wrong}");
            assert!(!targets.would_enable("kumi_node", &Level::DEBUG), "{wrong}");
            assert!(refused.is_some(), "{wrong}");
        }
    }
    #[test]
    fn targets_have_their_own_level_unless_the_variable_says_another() {
        let of_routines = || {
            let targets = Targets::new().with_default(LevelFilter::WARN);
            targets.with_target("kumi_call::routine", LevelFilter::INFO)
        };
        let (targets, _) = chosen(None, of_routines());
        assert!(targets.would_enable("kumi_call::routine", &Level::INFO));
        assert!(!targets.would_enable("kumi_call", &Level::INFO));
        let (targets, _) = chosen(Some("warn"), of_routines());
        assert!(!targets.would_enable("kumi_call::routine", &Level::INFO));
    }
}
