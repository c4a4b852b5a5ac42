//! `kumi call check`: checks interface descriptions, and lists their routines as text or JSON.

use super::shipped::ShippedArgs;
use crate::error::Error;
use crate::output;
use clap::Args;
use kumi_idl::{Interface, MOST_TEXT, Module, ParsedText, Severity};
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

/// Options of `kumi call check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Files with interface descriptions; - is standard input
    #[arg(required_unless_present = "shipped", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub shipped: ShippedArgs,
    /// Print the canonical JSON of each file on one line, instead of a list of routines
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &CheckArgs) -> Result<(), Error> {
    let (mut errors, mut files) = (0, 0);
    for (path, text) in args.shipped.beside(&args.files)? {
        let parsed = kumi_idl::parse(&text);
        let found = tell(&path, &parsed);
        errors += found;
        files += usize::from(found > 0);
        if let Some(module) = &parsed.module {
            show(module, args.json)?;
        }
    }
    if errors == 0 { Ok(()) } else { Err(Error::Descriptions { errors, files }) }
}

/// Reads a file; of a file that is too long, only enough to notice that.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let limit = u64::try_from(MOST_TEXT + 1).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    match read {
        Ok(_) => Ok(bytes),
        Err(source) => Err(Error::DescriptionUnreadable { path: path.to_owned(), source }),
    }
}

/// Prints errors and warnings to standard error, file name first as editors expect. Returns the number of
/// errors.
pub(super) fn tell(path: &Path, parsed: &ParsedText) -> usize {
    let mut errors = std::io::stderr().lock();
    for found in &parsed.diagnostics {
        // If standard error is closed, nobody is left to tell.
        let _closed = writeln!(errors, "{}:{found}", path.display());
    }
    let severities = parsed.diagnostics.iter().map(|found| found.code.severity());
    severities.filter(|severity| *severity == Severity::Error).count()
}

fn show(module: &Module, json: bool) -> Result<(), Error> {
    let mut text = String::new();
    if json {
        let line = module.to_json().map_err(|error| Error::Output(std::io::Error::other(error)))?;
        text.push_str(&line);
        text.push('\n');
    } else {
        module.routines().for_each(|interface| list(&mut text, interface));
    }
    output::text(&text)
}

/// One line for a routine: its call, and the first line of its documentation.
fn list(text: &mut String, interface: &Interface) {
    let names: Vec<&str> = interface.params.iter().map(|param| param.name.as_str()).collect();
    let about = interface.doc.lines().next().unwrap_or_default();
    let gap = if about.is_empty() { "" } else { "  " };
    // Writing to a string does not fail.
    let _written = writeln!(text, "{}({}){gap}{about}", interface.name, names.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_a_routine() {
        let parsed =
            kumi_idl::parse(b"Define f(int n, OUT int m) \"first\\nsecond\" Calls m = g(n);");
        let mut text = String::new();
        list(&mut text, &parsed.module.unwrap().interfaces[0]);
        assert_eq!(text, "f(n, m)  first\n");
    }

    #[test]
    fn warnings_are_no_errors() {
        let path = Path::new("a.idl");
        let errors = |text: &str| tell(path, &kumi_idl::parse(text.as_bytes()));
        assert_eq!(errors("Define f(int n, int m) Calls f(n);"), 0);
        assert_eq!(errors("Define f(int n) Calls f(k); Define f(int n) Calls f(n);"), 2);
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        let missing = read(Path::new("/nowhere/a.idl")).unwrap_err();
        assert_eq!(missing.exit_code(), 66);
        assert!(missing.to_string().contains("/nowhere/a.idl cannot be read"), "{missing}");
        let folder = read(Path::new("/")).unwrap_err();
        assert_eq!(folder.exit_code(), 74);
        assert_eq!(Error::Descriptions { errors: 2, files: 1 }.exit_code(), 65);
    }
}
