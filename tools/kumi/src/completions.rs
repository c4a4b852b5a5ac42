//! `kumi completions`: scripts by which a shell completes command lines of `kumi`.

use crate::error::Error;
use crate::output;
use clap_complete::Shell;

/// `kumi completions`
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell that will read the script
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script.
pub fn run(args: &CompletionsArgs) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "kumi", &mut script);
    output::text(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_learns_the_subcommands_and_their_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut crate::command(), "kumi", &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["doctor", "cluster", "force-switch"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
