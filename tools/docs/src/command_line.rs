//! The reference of the command line, from its definition in clap.

use crate::region::table;
use crate::rust::Source;
use crate::{DocsError, command};
use clap::builder::ArgAction;
use clap::{Arg, Command};
use std::path::Path;

/// The generated parts of the page.
///
/// # Errors
/// When the daemon's source lacks its help text.
pub fn regions(root: &Path) -> Result<Vec<(String, String)>, DocsError> {
    let kumid = Source::read(root, "runtime/node/src/bin")?.text("HELP")?;
    let kumid = format!("```text\n{}```\n", kumid.trim_start());
    Ok(vec![("kumi".to_owned(), kumi(&command())), ("kumid".to_owned(), kumid)])
}

/// The section of every subcommand.
fn kumi(command: &Command) -> String {
    let mut text = String::from("These options go with every subcommand:\n\n");
    let global: Vec<&Arg> = command.get_arguments().filter(|arg| arg.is_global_set()).collect();
    text += &arguments(&global);
    for subcommand in command.get_subcommands() {
        section(&mut text, "kumi", subcommand);
    }
    text
}

fn section(text: &mut String, before: &str, command: &Command) {
    let name = format!("{before} {}", command.get_name());
    *text += &format!("\n## {name}\n\n");
    let about = command.get_long_about().or_else(|| command.get_about());
    *text += &sentence(&about.map(ToString::to_string).unwrap_or_default());
    *text += "\n";
    if command.has_subcommands() {
        for subcommand in command.get_subcommands() {
            section(text, &name, subcommand);
        }
        return;
    }
    let usage = command.clone().bin_name(&name).render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace("\n       ", "\n");
    *text += &format!("\n```text\n{usage}\n```\n");
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_global_set() && !arg.is_hide_set() && arg.get_id() != "help")
        .collect();
    if !own.is_empty() {
        *text += "\n";
        *text += &arguments(&own);
    }
}

/// Ends with a full stop.
fn sentence(text: &str) -> String {
    if text.is_empty() || text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

fn arguments(arguments: &[&Arg]) -> String {
    let rows: Vec<Vec<String>> =
        arguments.iter().map(|arg| vec![written(arg), meaning(arg), default(arg)]).collect();
    table(&["argument", "meaning", "default"], &rows)
}

/// An argument as it is typed.
fn written(arg: &Arg) -> String {
    let takes = arg.get_action().takes_values();
    let names = arg
        .get_value_names()
        .map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>());
    let value = names.unwrap_or_else(|| vec![arg.get_id().to_string().to_uppercase()]).join(" ");
    if arg.is_positional() {
        let many = matches!(arg.get_action(), ArgAction::Append)
            || arg.get_num_args().is_some_and(|range| range.max_values() > 1);
        return format!("`{value}{}`", if many { "..." } else { "" });
    }
    let mut forms = Vec::new();
    forms.extend(arg.get_short().map(|short| format!("-{short}")));
    forms.extend(arg.get_long().map(|long| format!("--{long}")));
    let optional = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
    let value = match (takes, optional) {
        (false, _) => String::new(),
        (true, true) => format!("[={value}]"),
        (true, false) => format!(" {value}"),
    };
    forms.iter().map(|form| format!("`{form}{value}`")).collect::<Vec<_>>().join(", ")
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string);
    let mut text = sentence(&help.unwrap_or_default().replace('\n', " "));
    let values = arg.get_possible_values();
    if arg.get_action().takes_values() && !values.is_empty() && !arg.is_hide_possible_values_set() {
        let named = values.iter().filter(|value| !value.is_hide_set()).map(|value| {
            let name = format!("`{}`", value.get_name());
            value.get_help().map_or_else(|| name.clone(), |help| format!("{name}: {help}"))
        });
        let separator =
            if values.iter().any(|value| value.get_help().is_some()) { "; " } else { ", " };
        text += &format!(" Values: {}.", named.collect::<Vec<_>>().join(separator));
    }
    if let Some(aliases) = arg.get_all_aliases().filter(|aliases| !aliases.is_empty()) {
        text += &format!(" Older name: `--{}`.", aliases.join("`, `--"));
    }
    text
}

fn default(arg: &Arg) -> String {
    let given: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    let shown = arg.get_action().takes_values() && !given.is_empty();
    let mut text = if shown { given.join(", ") } else { String::new() };
    if let Some(variable) = arg.get_env() {
        let variable = format!("`${}`", variable.to_string_lossy());
        text = if text.is_empty() { variable } else { format!("{variable}, else {text}") };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::value_parser;

    #[test]
    fn a_definition_becomes_tables() {
        let command = Command::new("kumi")
            .arg(
                Arg::new("cluster")
                    .long("cluster")
                    .global(true)
                    .env("KUMI_CLUSTER")
                    .default_value("default"),
            )
            .subcommand(
                Command::new("run")
                    .about("Run it")
                    .arg(
                        Arg::new("ranks")
                            .short('n')
                            .long("ranks")
                            .value_name("N")
                            .value_parser(value_parser!(u32))
                            .help("How many"),
                    )
                    .arg(Arg::new("ack").long("ack").value_parser(["a|b", "c"]))
                    .arg(Arg::new("label").long("label").action(ArgAction::SetTrue))
                    .arg(Arg::new("program").num_args(1..).value_name("PROGRAM").required(true)),
            );
        let text = kumi(&command);
        for row in [
            "| `--cluster CLUSTER` |  | `$KUMI_CLUSTER`, else `default` |",
            "## kumi run\n\nRun it.\n\n```text\nkumi run [OPTIONS] <PROGRAM>...\n```",
            "| `-n N`, `--ranks N` | How many. |  |",
            "Values: `a\\|b`, `c`.",
            "| `--label` |  |  |",
            "| `PROGRAM...` |  |  |",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
    }
}
