//! Job file of `--job-file`: a TOML file whose keys are the names of the long options.
//!
//! Its values become words of a command line before the user's own, so they are read and checked as options are.

use super::RunArgs;
use crate::cli::{Cli, Command};
use crate::submit::SubmitArgs;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, Parser};
use kumi_node::exit::ExitCode;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The option that names the file. A file does not name another.
const FILE: &str = "job-file";

/// Why a job file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JobFileError {
    /// It cannot be read.
    #[error("the job file {} cannot be read: {source}; check its name and permissions", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error message.
        source: io::Error,
    },
    /// It is not TOML.
    #[error("job file {}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        message: String,
    },
    /// An option in a script.
    #[error("script {}, line {line}: {message}", path.display())]
    Script {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The error.
        message: String,
    },
    /// A key or value in it.
    #[error("job file {}, line {line}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// Its error.
        source: EntryError,
    },
}

/// Why a key or value of a job file was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// No option has this name.
    #[error(
        "'{key}' is not an option of `kumi {command}`{}; `kumi {command} --help` lists them",
        did_you_mean(near)
    )]
    UnknownKey {
        /// The key.
        key: String,
        /// The option that it resembles most.
        near: Option<String>,
        /// The command.
        command: String,
    },
    /// The value is of another type than the option's.
    #[error("{key} takes {wanted}")]
    Type {
        /// The key.
        key: String,
        /// What it takes.
        wanted: &'static str,
    },
    /// The option does not take this value.
    #[error("{0}")]
    Value(String),
}

impl JobFileError {
    /// The exit code for it.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ExitCode::NotPermitted
            }
            Self::Unreadable { .. } => ExitCode::NoInput,
            Self::Syntax { .. } | Self::Script { .. } | Self::Line { .. } => ExitCode::BadConfig,
        }
    }
}

fn did_you_mean(near: &Option<String>) -> String {
    near.as_ref().map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}

/// The command `name` with what the job file says of options that the command line does not give. `matches` are those of
/// this command.
///
/// # Errors
/// The file cannot be used.
pub fn apply(
    path: &Path,
    cluster: &str,
    name: &str,
    matches: &ArgMatches,
) -> Result<Command, JobFileError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| JobFileError::Unreadable { path: path.to_owned(), source })?;
    let entries = entries(&text, name).map_err(|error| match error {
        ParseFailure::Syntax(message) => JobFileError::Syntax { path: path.to_owned(), message },
        ParseFailure::Entry(line, source) => {
            JobFileError::Line { path: path.to_owned(), line, source }
        }
    })?;
    let command = definition(name);
    let mut words: Vec<OsString> =
        ["kumi", "--cluster", cluster, name].map(OsString::from).to_vec();
    for entry in entries {
        let own = command.get_arguments().find(|arg| arg.get_long() == Some(&entry.option));
        let Some(arg) = own else { continue };
        let replaced = match arg.get_action() {
            // Of what may be repeated, the command line replaces what has the same name.
            ArgAction::Append => names(arg, matches).contains(name_of(OsStr::new(&entry.value))),
            _ => is_given(arg, matches),
        };
        if !replaced {
            words.push(entry.word().into());
        }
    }
    words.extend(own_words(name, matches));
    // Each entry and the user's words were read before, so this is for combinations of them.
    let usage = |message| JobFileError::Syntax { path: path.to_owned(), message };
    let mut command = Cli::try_parse_from(words).map_err(|error| usage(sentence(&error)))?.command;
    if let Command::Run(RunArgs { job, .. }) | Command::Submit(SubmitArgs { job, .. }) =
        &mut command
    {
        // It has been read.
        job.job_file = None;
    }
    Ok(command)
}

/// The definition of a command.
fn definition(name: &str) -> clap::Command {
    let all = Cli::command();
    all.find_subcommand(name).cloned().unwrap_or(all)
}

/// Whether the command line gives this option.
pub fn is_given(arg: &Arg, matches: &ArgMatches) -> bool {
    let id = arg.get_id().as_str();
    matches.try_contains_id(id).is_ok()
        && matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// The part before `=`.
fn name_of(value: &OsStr) -> &[u8] {
    value.as_encoded_bytes().split(|&byte| byte == b'=').next().unwrap_or_default()
}

/// The names that the command line gives this repeatable option.
fn names<'a>(arg: &Arg, matches: &'a ArgMatches) -> BTreeSet<&'a [u8]> {
    let given = matches.get_raw(arg.get_id().as_str());
    given.into_iter().flatten().map(name_of).collect()
}

/// The options that were written, as words, but for those that `before` has: of what may be repeated, values of the same name.
pub fn options(name: &str, matches: &ArgMatches, before: Option<&ArgMatches>) -> Vec<OsString> {
    let mut words = Vec::new();
    for arg in definition(name).get_arguments().filter(|arg| is_given(arg, matches)) {
        let Some(long) = arg.get_long() else { continue };
        let values = matches.get_raw(arg.get_id().as_str()).into_iter().flatten();
        let before = before.filter(|before| is_given(arg, before));
        if before.is_some() && !matches!(arg.get_action(), ArgAction::Append) {
            continue;
        }
        let known = before.map(|before| names(arg, before)).unwrap_or_default();
        let values = values.filter(|value| !known.contains(name_of(value)));
        match arg.get_action() {
            ArgAction::SetTrue => words.push(format!("--{long}").into()),
            _ => words.extend(values.map(|value| {
                let mut word = OsString::from(format!("--{long}="));
                word.push(value);
                word
            })),
        }
    }
    words
}

/// What the user wrote: options, and the program with its arguments.
pub fn own_words(name: &str, matches: &ArgMatches) -> Vec<OsString> {
    let mut words = options(name, matches, None);
    words.push("--".into());
    let command = definition(name);
    let program = command.get_arguments().filter(|arg| arg.get_long().is_none());
    for arg in program.filter(|arg| is_given(arg, matches)) {
        let values = matches.get_raw(arg.get_id().as_str()).into_iter().flatten();
        words.extend(values.map(OsStr::to_owned));
    }
    words
}

/// An option and its value.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    option: String,
    /// Empty for an option without a value.
    value: String,
    flag: bool,
}

impl Entry {
    fn word(&self) -> String {
        match self.flag {
            true => format!("--{}", self.option),
            false => format!("--{}={}", self.option, self.value),
        }
    }
}

/// What is wrong with the text of a file.
#[derive(Debug, PartialEq, Eq)]
enum ParseFailure {
    Syntax(String),
    /// In this line.
    Entry(usize, EntryError),
}

/// The options that the file gives, each of them checked alone.
fn entries(text: &str, name: &str) -> Result<Vec<Entry>, ParseFailure> {
    let table = DeTable::parse(text)
        .map_err(|error| ParseFailure::Syntax(error.to_string().trim_end().to_owned()))?;
    let run = definition(name);
    let mut all = Vec::new();
    for (key, value) in table.get_ref() {
        let option: &str = key.get_ref();
        let at = |place: usize| text[..place.min(text.len())].matches('\n').count() + 1;
        let known = run.get_arguments().find(|arg| arg.get_long() == Some(option));
        let Some(arg) = known.filter(|_| option != FILE) else {
            let unknown = EntryError::UnknownKey {
                key: option.to_owned(),
                near: near(option, &run),
                command: name.to_owned(),
            };
            return Err(ParseFailure::Entry(at(key.span().start), unknown));
        };
        for (place, entry) in of_value(arg, option, value)
            .map_err(|error| ParseFailure::Entry(at(value.span().start), error))?
        {
            let words = ["kumi", name, &entry.word(), "--", "program"];
            if let Err(error) = Cli::try_parse_from(words) {
                let error = EntryError::Value(sentence(&error));
                return Err(ParseFailure::Entry(at(place), error));
            }
            all.push(entry);
        }
    }
    Ok(all)
}

/// The entries of a key, with their places in the text.
fn of_value(
    arg: &Arg,
    option: &str,
    value: &Spanned<DeValue<'_>>,
) -> Result<Vec<(usize, Entry)>, EntryError> {
    let wrong = |wanted| EntryError::Type { key: option.to_owned(), wanted };
    let entry = |value: String| Entry { option: option.to_owned(), value, flag: false };
    let place = value.span().start;
    match (arg.get_action(), value.get_ref()) {
        (ArgAction::SetTrue, DeValue::Boolean(true)) => {
            Ok(vec![(place, Entry { flag: true, ..entry(String::new()) })])
        }
        (ArgAction::SetTrue, DeValue::Boolean(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, _) => Err(wrong("true or false")),
        (ArgAction::Append, DeValue::Array(list)) => {
            let text = |item: &Spanned<DeValue<'_>>| {
                let text = item.get_ref().as_str();
                text.map(|text| (item.span().start, entry(text.to_owned())))
            };
            let all: Option<Vec<_>> = list.iter().map(text).collect();
            all.ok_or_else(|| wrong("an array of texts NAME=VALUE"))
        }
        (ArgAction::Append, DeValue::Table(table)) => {
            let pair = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let name: &std::borrow::Cow<'_, str> = name.get_ref();
                let text = scalar(value.get_ref())?;
                Some((value.span().start, entry(format!("{name}={text}"))))
            };
            let all: Option<Vec<_>> = table.iter().map(pair).collect();
            all.ok_or_else(|| wrong("a text or a number for each name"))
        }
        (ArgAction::Append, _) => Err(wrong("a table with a value for each name, or an array")),
        (_, value) => match scalar(value) {
            Some(text) => Ok(vec![(place, entry(text))]),
            None => Err(wrong("a text, a number, true or false")),
        },
    }
}

/// A value as the word that means it on a command line.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(true) => Some("on".to_owned()),
        DeValue::Boolean(false) => Some("off".to_owned()),
        _ => None,
    }
}

/// The option with the most similar name, if one is similar.
fn near(key: &str, run: &clap::Command) -> Option<String> {
    let plain = |text: &str| text.replace('_', "-").to_lowercase();
    let wanted = plain(key);
    let options = run.get_arguments().filter_map(Arg::get_long).filter(|&long| long != FILE);
    let similar = options
        .filter(|long| **long == wanted || long.starts_with(&wanted) || wanted.starts_with(long));
    similar.min_by_key(|long| long.len().abs_diff(wanted.len())).map(str::to_owned)
}

/// A sentence on a word that is no option of this command.
pub fn no_option(name: &str, word: &str) -> String {
    let near = near(word.trim_start_matches('-'), &definition(name));
    let near = near.map(|near| format!("--{near}"));
    format!(
        "'{word}' is not an option of `kumi {name}`{}; `kumi {name} --help` lists them",
        did_you_mean(&near)
    )
}

/// The first paragraph of an error of the command line, without its label.
pub fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first).trim();
    first.split('\n').map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::OnOff;
    use clap::FromArgMatches;
    use std::time::Duration;

    /// The arguments of `kumi run --job-file FILE WORDS` with this text in the file.
    fn run(text: &str, words: &str) -> Result<RunArgs, JobFileError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.toml");
        std::fs::write(&path, text).unwrap();
        let all = format!("kumi run --job-file {} {words}", path.display());
        let matches = Cli::command().try_get_matches_from(all.split(' ')).unwrap();
        let cli = Cli::from_arg_matches(&matches).unwrap();
        let Command::Run(args) = cli.command else { panic!("not run") };
        assert_eq!(args.job.job_file.as_deref(), Some(&*path));
        match apply(&path, &cli.cluster, "run", matches.subcommand_matches("run").unwrap())? {
            Command::Run(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    const ALL: &str = r#"
ranks = 8
nodes = 4
name = "cg"
label = true
kill = false
encrypt = true
exclusive = false
estimate = "10m"
cpus-per-rank = 2
mem-per-rank = "1.5GiB"
bind = "numa"
fill = false
[env]
OMP_NUM_THREADS = 2
WORDS = "a=b c"
[resource]
gpu = 1
"#;

    #[test]
    fn keys_are_options() {
        let args = run(ALL, "./cg -n 7").unwrap();
        assert_eq!(
            (args.job.ranks, args.job.nodes, args.job.name.as_deref()),
            (8, Some(4), Some("cg"))
        );
        assert_eq!((args.label, args.kill, args.job.encrypt), (true, false, Some(OnOff::On)));
        assert_eq!(args.job.estimate, Some(Duration::from_secs(600)));
        assert_eq!(args.job.resources.mem_per_rank, Some(3 << 29));
        assert_eq!(args.job.resources.exclusive, Some(OnOff::Off));
        assert_eq!(args.job.resources.clone().resources().fill, Some(false));
        let mut env = args.job.env.clone();
        env.sort();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(env, [pair("OMP_NUM_THREADS", "2"), pair("WORDS", "a=b c")]);
        assert_eq!(args.job.resources.devices[0].count, 1);
        assert_eq!(args.program.command, ["./cg", "-n", "7"]);
    }

    #[test]
    fn the_command_line_wins() {
        let words = "-n 2 --encrypt=off --cpus-per-rank 1 --fill on --env WORDS=c --resource gpu=2 -- -odd -- x";
        let args = run(ALL, words).unwrap();
        assert_eq!(
            (args.job.ranks, args.job.nodes),
            (2, Some(4)),
            "what it does not say is the file's"
        );
        assert_eq!(
            (args.job.encrypt, args.job.resources.cpus_per_rank),
            (Some(OnOff::Off), Some(1))
        );
        assert_eq!(args.job.resources.fill, Some(OnOff::On));
        assert!(args.job.env.contains(&("WORDS".to_owned(), "c".to_owned())), "{:?}", args.job.env);
        assert_eq!(args.job.env.len(), 2, "one for each name");
        let devices: Vec<u32> =
            args.job.resources.devices.iter().map(|device| device.count).collect();
        assert_eq!(devices, [2]);
        assert_eq!(args.program.command, ["-odd", "--", "x"]);
        assert_eq!(run("", "prog").unwrap().job.ranks, 1, "an empty file says nothing");
    }

    #[test]
    fn repeated_options_may_be_arrays() {
        let args = run("env = [\"A=1\", \"B=\"]\n", "prog").unwrap();
        assert_eq!(args.job.env.len(), 2);
    }

    #[test]
    fn errors_say_in_which_line() {
        for (text, says) in [
            ("\nranks = 0", "line 2: invalid value '0' for '--ranks <N>'"),
            ("\n\nrank = 3", "line 3: 'rank' is not an option of `kumi run` (did you mean ranks?)"),
            ("cpus_per_rank = 3", "did you mean cpus-per-rank?"),
            ("weather = 3", "line 1: 'weather' is not an option of `kumi run`; "),
            ("job-file = \"x\"", "'job-file' is not an option"),
            ("cluster = \"x\"", "'cluster' is not an option"),
            ("program = \"x\"", "'program' is not an option"),
            ("label = \"yes\"", "line 1: label takes true or false"),
            ("env = \"A=1\"", "env takes a table with a value for each name, or an array"),
            ("env = [1]", "env takes an array of texts"),
            ("ranks = [1]", "ranks takes a text, a number, true or false"),
            ("[resource]\n\ngpu = 0", "line 3: "),
            ("mem-per-rank = \"2GB\"", "is not a size"),
            ("priority = true", "'on' is not a priority"),
        ] {
            let error = run(text, "prog").unwrap_err();
            let message = error.to_string();
            assert!(message.contains(says), "{text}: {message}");
            assert_eq!(error.exit_code(), ExitCode::BadConfig);
        }
        let error = run("ranks = \n", "prog").unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
        let nowhere =
            JobFileError::Unreadable { path: "x".into(), source: io::ErrorKind::NotFound.into() };
        assert_eq!(nowhere.exit_code(), ExitCode::NoInput);
    }
}
