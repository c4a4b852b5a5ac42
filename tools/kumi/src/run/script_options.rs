//! Options in scripts: lines `#KUMI OPTIONS` at the head of a script that `kumi submit` gets.
//!
//! They become words of a command line before the user's own, as those of a job file.

use super::job_file::{self, JobFileError};
use super::program::{find_to_submit, is_script};
use crate::cli::{Cli, Command};
use crate::submit::SubmitArgs;
use clap::{ArgMatches, CommandFactory, Parser};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The head of a script has at most so many bytes.
const MOST_HEAD: u64 = 64 << 10;
/// What such a line begins with.
const MARK: &str = "#KUMI";

/// How an error names a script that has no file.
const INPUT: &str = "on standard input";

/// The arguments with the options of the script, if the program is one. What the command line says goes before.
///
/// # Errors
/// An option of the script cannot be.
pub fn apply(
    args: SubmitArgs,
    cluster: &str,
    matches: &ArgMatches,
) -> Result<(SubmitArgs, ArgMatches), JobFileError> {
    let name = args.command.first().map(String::as_str).unwrap_or_default();
    let found = match &args.input {
        Some(script) => head_of(&script[..]).map(|head| (PathBuf::from(INPUT), head)),
        // That there is none is said when the job is made.
        None => find_to_submit(name, std::env::var_os("PATH").as_deref(), Path::new(""))
            .ok()
            .filter(|path| is_script(path))
            .and_then(|path| head_of(File::open(&path).ok()?).map(|head| (path, head))),
    };
    let Some((path, head)) = found else { return Ok((args, matches.clone())) };
    let mut words = Vec::new();
    for (line, text) in lines(&head) {
        let refused = |message| JobFileError::Script { path: path.clone(), line, message };
        let given = words_of(text).map_err(|message| refused(message.to_owned()))?;
        let alone = ["kumi", "submit"].map(str::to_owned).into_iter().chain(given.clone());
        let alone = alone.chain(["--", "program"].map(str::to_owned));
        let read = Cli::command().try_get_matches_from(alone);
        let read = read.map_err(|error| refused(job_file::sentence(&error)))?;
        let own = read
            .subcommand_matches("submit")
            .ok_or_else(|| refused("it names a command".to_owned()))?;
        // What is no option counts as a program.
        let program = own.get_raw("command").and_then(|mut words| words.next());
        if let Some(word) = program.filter(|word| *word != "program") {
            return Err(refused(job_file::no_option("submit", &word.to_string_lossy())));
        }
        words.extend(job_file::options("submit", own, Some(matches)));
    }
    if words.is_empty() {
        return Ok((args, matches.clone()));
    }
    let mut all: Vec<OsString> =
        ["kumi", "--cluster", cluster, "submit"].map(OsString::from).to_vec();
    all.extend(words);
    all.extend(job_file::own_words("submit", matches));
    let usage = |error: clap::Error| JobFileError::Script {
        path: path.clone(),
        line: 1,
        message: job_file::sentence(&error),
    };
    let read = Cli::command().try_get_matches_from(&all).map_err(usage)?;
    match (Cli::try_parse_from(&all).map_err(usage)?.command, read.subcommand_matches("submit")) {
        (Command::Submit(with_script), Some(read)) => {
            Ok((SubmitArgs { input: args.input, ..with_script }, read.clone()))
        }
        _ => Ok((args, matches.clone())),
    }
}

/// The first bytes of a script; none if they cannot be read, which is told when the job is made.
fn head_of(script: impl Read) -> Option<String> {
    let mut head = Vec::new();
    script.take(MOST_HEAD).read_to_end(&mut head).ok()?;
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Lines with options and their numbers. The first line that is neither empty nor a comment ends the head.
fn lines(head: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(head.lines());
    let lines = lines.take_while(|(_, line)| line.trim().is_empty() || line.starts_with('#'));
    lines.filter_map(|(number, line)| {
        let rest = line.strip_prefix(MARK)?;
        rest.starts_with([' ', '\t']).then_some((number, rest))
    })
}

/// Words as a shell reads them: apart at blanks, but for what is quoted. Behind a word that begins with `#` is a comment.
fn words_of(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quotation mark is not closed");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    /// The arguments of `kumi submit WORDS` with a script of this text, which stands for `SCRIPT`.
    fn submit(text: &str, words: &str) -> Result<SubmitArgs, JobFileError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.sh");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let all = format!("kumi submit {words}").replace("SCRIPT", path.to_str().unwrap());
        let matches = Cli::command().try_get_matches_from(all.split(' ')).unwrap();
        let cli = Cli::from_arg_matches(&matches).unwrap();
        let Command::Submit(args) = cli.command else { panic!("not submit") };
        apply(args, "default", matches.subcommand_matches("submit").unwrap()).map(|(args, _)| args)
    }

    const SCRIPT: &str = "#!/bin/sh\n# A comment.\n#KUMI -n 8 --nodes 2   # eight\n#KUMI --name 'a job' --env A=1\n\n\
                          #KUMI --time 10m\n#KUMIS -n 3\necho\n#KUMI --nodes 7\n";

    #[test]
    fn lines_at_the_head_are_options() {
        let args = submit(SCRIPT, "SCRIPT -n 9").unwrap();
        assert_eq!((args.job.ranks, args.job.nodes), (8, Some(2)));
        assert_eq!(args.job.name.as_deref(), Some("a job"));
        assert_eq!(args.job.time, Some(Duration::from_secs(600)));
        assert_eq!(args.job.env, [("A".to_owned(), "1".to_owned())]);
        assert_eq!(args.command[1..], ["-n", "9"]);
    }

    #[test]
    fn the_command_line_goes_before_the_script() {
        let args = submit(SCRIPT, "-n 2 --env A=2 --env B=3 SCRIPT").unwrap();
        assert_eq!((args.job.ranks, args.job.nodes), (2, Some(2)));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(args.job.env, [pair("A", "2"), pair("B", "3")]);
        // Amounts of one device would be added otherwise.
        let script = "#!/bin/sh\n#KUMI --resource gpu=1 --resource fpga=1\n";
        let args = submit(script, "--resource gpu=2 SCRIPT").unwrap();
        let devices = args.job.resources.resources().devices;
        let counts: Vec<_> = devices.iter().map(|one| (one.name.as_str(), one.count)).collect();
        assert_eq!(counts, [("fpga", 1), ("gpu", 2)]);
    }

    #[test]
    fn a_script_on_standard_input_has_options_too() {
        let matches = Cli::command().try_get_matches_from(["kumi", "submit", "-n", "2", "-", "7"]);
        let matches = matches.unwrap();
        let Command::Submit(args) = Cli::from_arg_matches(&matches).unwrap().command else {
            panic!("not submit")
        };
        let apply = |text: &str| {
            let args = SubmitArgs { input: Some(text.into()), ..args.clone() };
            apply(args, "default", matches.subcommand_matches("submit").unwrap())
        };
        let (args, _) = apply(SCRIPT).unwrap();
        assert_eq!((args.job.ranks, args.job.nodes), (2, Some(2)));
        assert_eq!((args.command, args.input), (vec!["-".into(), "7".into()], Some(SCRIPT.into())));
        let error = apply("#!/bin/sh\n#KUMI -n 0\n").unwrap_err().to_string();
        assert!(error.starts_with("script on standard input, line 2: "), "{error}");
    }

    #[test]
    fn other_programs_have_no_options_in_them() {
        let args = submit("#KUMI -n 8\n", "SCRIPT").unwrap();
        assert_eq!(args.job.ranks, 1);
        assert_eq!(submit("#!/bin/sh\n", "SCRIPT").unwrap().job.ranks, 1);
    }

    #[test]
    fn errors_say_in_which_line() {
        for (line, says) in [
            ("#KUMI -n 0", "line 2: invalid value '0'"),
            (
                "#KUMI --rank 3",
                "line 2: '--rank' is not an option of `kumi submit` (did you mean --ranks?)",
            ),
            ("#KUMI --name 'a", "line 2: a quotation mark"),
        ] {
            let error = submit(&format!("#!/bin/sh\n{line}\n"), "SCRIPT").unwrap_err();
            assert!(error.to_string().contains(says), "{line}: {error}");
            assert_eq!(error.exit_code(), kumi_node::exit::ExitCode::BadConfig);
        }
    }
}
