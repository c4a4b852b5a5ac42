//! Command lines of `kumi` in documents, by the definition that the command itself uses.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Values tried in turn for a placeholder of a document (`JOB`).
const VALUES: [&str; 6] = ["1", "10ms", "dqt", "linpack:1000", "a=b", "linux"];

/// The simple commands of a piece of shell, each as its words.
pub fn words(script: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut letters = script.chars().peekable();
    let mut quote = None;
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => match letters.next() {
                Some('\n') | None => {}
                Some(c) => word.get_or_insert_default().push(c),
            },
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => {
                while letters.peek().is_some_and(|&c| c != '\n') {
                    letters.next();
                }
            }
            ('&', None) if word.as_ref().is_some_and(|word| word.ends_with('>')) => {
                word.get_or_insert_default().push('&');
            }
            (c, None) if c.is_whitespace() || ";|&()`".contains(c) => {
                words.extend(word.take());
                if c == '\n' || !c.is_whitespace() {
                    commands.push(std::mem::take(&mut words));
                }
            }
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    commands.push(words);
    let clean = commands.into_iter().map(command_only);
    clean.filter(|words| !words.is_empty()).collect()
}

/// Without a prompt, settings of variables and `sudo` before the command, and redirections.
fn command_only(words: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    let mut skip = false;
    for word in words {
        let is_setting = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        let before = ["$", "#", "sudo", "time", "nohup", "exec"].contains(&&*word) || is_setting;
        let is_redirection =
            word.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['<', '>'])
                && !word.ends_with("...");
        if skip || (kept.is_empty() && before) {
            skip = false;
        } else if is_redirection && !word.starts_with("<(") {
            skip = word.ends_with(['<', '>']);
        } else {
            kept.push(word);
        }
    }
    kept
}

/// Whether the words are a command line of `kumi`.
pub fn is_kumi(words: &[String]) -> bool {
    words.first().is_some_and(|word| word == "kumi" || word.ends_with("/kumi"))
}

/// Whether the command line is one that `kumi` accepts. Words in capitals stand for values, dots for further arguments.
///
/// # Errors
/// Parses the words with clap.
pub fn accepted(command: &Command, words: &[String]) -> Result<(), String> {
    let dots = words.iter().any(|word| is_dots(word));
    let kept: Vec<String> = words.iter().filter(|word| !is_dots(word)).cloned().collect();
    attempt(command, &kept, dots, 0)
}

fn is_dots(word: &str) -> bool {
    ["…", "...", "[…]", "[...]"].contains(&word)
}

fn attempt(command: &Command, words: &[String], dots: bool, depth: usize) -> Result<(), String> {
    let Err(error) = command.clone().try_get_matches_from(words) else { return Ok(()) };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return Ok(()),
        ErrorKind::MissingRequiredArgument | ErrorKind::MissingSubcommand if dots => return Ok(()),
        _ => {}
    }
    let said = error.to_string();
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
        return Err(said);
    };
    if depth < 4 && is_placeholder(value) {
        for stand_in in VALUES {
            let words: Vec<String> =
                words.iter().map(|word| word.replace(value, stand_in)).collect();
            if attempt(command, &words, dots, depth + 1).is_ok() {
                return Ok(());
            }
        }
    }
    Err(said)
}

/// `JOB`, `POLICY[:PRIORITY]`.
fn is_placeholder(word: &str) -> bool {
    let mut letters = word.chars();
    letters.all(|c| c.is_ascii_uppercase() || "_[]:,.-".contains(c))
        && word.contains(|c: char| c.is_ascii_uppercase())
}

/// Checks that a mention of the command in a sentence names existing subcommands and options; required ones
/// may be missing.
///
/// # Errors
/// The subcommand or option that does not exist.
pub fn mentions(command: &Command, words: &[String]) -> Result<(), String> {
    let mut current = command;
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        if let Some(option) = word.strip_prefix('-') {
            let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
            let found = current.get_arguments().chain(command.get_arguments()).find(|arg| {
                let long = arg.get_long() == Some(name)
                    || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name));
                if option.starts_with('-') { long } else { arg.get_short() == name.chars().next() }
            });
            let Some(arg) = found else {
                return Err(format!("`kumi {}` has no option {word}", current.get_name()));
            };
            let takes = arg.get_action().takes_values() && !arg.is_require_equals_set();
            if takes && !word.contains('=') && (option.starts_with('-') || option.len() == 1) {
                words.next();
            }
        } else if let Some(next) = current.find_subcommand(word) {
            current = next;
        } else if current.has_subcommands() && !is_placeholder(word) && !is_dots(word) {
            return Err(format!("there is no subcommand {word}"));
        } else if current.get_name() == "run" {
            // The rest is the program's.
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;

    #[test]
    fn shell_is_split_into_commands() {
        let found = words(
            "A=1 kumi run -n 4 'a b' \\\n  c 2>&1 >x # no\n$ sudo kumi ps | head; (echo \"x;y\") & kumi top",
        );
        let expected: [&[&str]; 5] = [
            &["kumi", "run", "-n", "4", "a b", "c"],
            &["kumi", "ps"],
            &["head"],
            &["echo", "x;y"],
            &["kumi", "top"],
        ];
        assert_eq!(found, expected);
    }

    fn check(line: &str) -> Result<(), String> {
        accepted(&command(), &words(line)[0])
    }

    #[test]
    fn command_lines_are_those_that_kumi_takes() {
        for line in [
            "kumi cluster up --local 4",
            "kumi run -n 8 --nodes 4 hello --any --thing",
            "kumi attach JOB",
            "kumi run --estimate TIME PROGRAM",
            "kumi run --kill ...",
            "kumi --help",
        ] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
        for line in [
            "kumi cluster up --locals 4",
            "kumi cluster upp",
            "kumi run -n many hello",
            "kumi attach job",
            "kumi run -n 4",
            "kumi ps --every",
        ] {
            assert!(check(line).is_err(), "{line}");
        }
    }

    #[test]
    fn mentions_may_be_parts_and_must_not_be_wrong() {
        let check = |line: &str| mentions(&command(), &words(line)[0]);
        for line in [
            "kumi run --ack per-message",
            "kumi cluster",
            "kumi cluster set --policy NAME",
            "kumi run … --x",
            "kumi call serve --python functions.py",
            "kumi run -n 4 a -z",
            "kumi COMMAND --help",
        ] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
        for line in [
            "kumi run --akc per-message",
            "kumi clusters",
            "kumi cluster set --polisy x",
            "kumi ps -z",
        ] {
            assert!(check(line).is_err(), "{line}");
        }
    }
}
