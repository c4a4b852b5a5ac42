//! `kumi call stubs`: writes sources by which a compiler checks calls of routines.

use super::check::tell;
use super::shipped::ShippedArgs;
use crate::error::Error;
use crate::output;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kumi_idl::{StubLanguage, stubs};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Options of `kumi call stubs`.
#[derive(Clone, Debug, Args)]
pub struct StubsArgs {
    /// Text files with interface descriptions
    #[arg(required_unless_present = "shipped", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub shipped: ShippedArgs,
    /// Language of the sources
    #[arg(short, long, value_name = "LANGUAGE", value_parser = languages())]
    pub language: StubLanguage,
    /// Output folder; a file that is there is replaced
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
}

fn languages() -> impl TypedValueParser<Value = StubLanguage> {
    PossibleValuesParser::new(StubLanguage::ALL.map(|(name, _)| name)).try_map(|given| {
        let mut all = StubLanguage::ALL.into_iter();
        let found = all.find(|(name, _)| *name == given).map(|(_, language)| language);
        found.ok_or("there are no stubs of this language")
    })
}

/// Runs the command.
pub fn run(args: &StubsArgs) -> Result<(), Error> {
    std::fs::create_dir_all(&args.out).map_err(|source| Error::File {
        doing: "make",
        path: args.out.clone(),
        source,
    })?;
    let (mut errors, mut files, mut left_out) = (0, 0, 0);
    let mut written = HashMap::new();
    for (described, text) in args.shipped.beside(&args.files)? {
        let parsed = kumi_idl::parse(&text);
        let found = tell(&described, &parsed);
        errors += found;
        files += usize::from(found > 0);
        let Some(module) = &parsed.module else { continue };
        let name = described.file_stem().unwrap_or_default().to_string_lossy();
        let made = stubs(module, &name, args.language);
        for file in &made.files {
            let path = args.out.join(&file.name);
            if let Some(other) = written.insert(file.name.clone(), described.clone()) {
                return Err(taken(&path, &other, &described));
            }
            let written = crate::whole_file::write(&path, &file.text);
            let shown = format!("{}\n", path.display());
            written.map_err(|source| Error::File { doing: "write", path, source })?;
            output::text(&shown)?;
        }
        for routine in &made.left_out {
            output::note(&format!("{}: {routine}", described.display()));
        }
        left_out += made.left_out.len();
    }
    match (errors, left_out) {
        (0, 0) => Ok(()),
        (0, 1) => Err(Error::Built { text: "1 routine has no stub".to_owned() }),
        (0, several) => Err(Error::Built { text: format!("{several} routines have no stubs") }),
        (errors, _) => Err(Error::Descriptions { errors, files }),
    }
}

/// The error for two descriptions whose stubs have one name. The first is written.
fn taken(path: &Path, first: &Path, second: &Path) -> Error {
    let text = format!(
        "{}: the stubs of both {} and {} have this name; rename one of them, or write them to folders of their own by --out",
        path.display(),
        first.display(),
        second.display()
    );
    Error::Built { text }
}
