//! `kumi call build`: builds executables from interface descriptions.

use super::check::tell;
use super::shipped::ShippedArgs;
use crate::cluster;
use crate::error::Error;
use crate::output;
use clap::Args;
use kumi_call::generator::{self, Options};
use std::path::{Path, PathBuf};

/// The library with the `main` of executables.
const LIBRARY: &str = "libkumi_slot.a";

/// Options of `kumi call build`.
#[derive(Clone, Debug, Args)]
pub struct BuildArgs {
    /// Text files with interface descriptions
    #[arg(required_unless_present = "shipped", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub shipped: ShippedArgs,
    /// Output folder for executables and manifests
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// C compiler [default: that of the description, of CC, or cc]
    #[arg(long, value_name = "CC")]
    pub cc: Option<String>,
    /// Library to link executables with [default: libkumi_slot.a beside this program]
    #[arg(long, value_name = "FILE")]
    pub lib: Option<PathBuf>,
    /// Keep the generated C sources beside the executables
    #[arg(long)]
    pub keep: bool,
}

/// Runs the command.
pub fn run(args: &BuildArgs) -> Result<(), Error> {
    let library = match &args.lib {
        Some(library) => library.clone(),
        None => library()?,
    };
    std::fs::create_dir_all(&args.out).map_err(|source| Error::File {
        doing: "make",
        path: args.out.clone(),
        source,
    })?;
    let (out, compiler, keep) = (args.out.clone(), args.cc.clone(), args.keep);
    let options = Options { out, compiler, library, keep };
    let (mut errors, mut files, mut failed) = (0, 0, 0);
    for (path, text) in args.shipped.beside(&args.files)? {
        let parsed = kumi_idl::parse(&text);
        let found = tell(&path, &parsed);
        errors += found;
        files += usize::from(found > 0);
        let Some(module) = &parsed.module else { continue };
        for built in generator::build(module, &parsed.lines, &path, &options) {
            match built {
                Ok(manifest) => output::text(&format!("{}\n", manifest.display()))?,
                Err(error) => {
                    failed += 1;
                    output::note(&format!("{}: {error}", path.display()));
                }
            }
        }
    }
    match (errors, failed) {
        (0, 0) => Ok(()),
        (0, 1) => Err(Error::Built { text: "1 routine was not built".to_owned() }),
        (0, failed) => Err(Error::Built { text: format!("{failed} routines were not built") }),
        (errors, _) => Err(Error::Descriptions { errors, files }),
    }
}

/// The library beside this program, in a build tree or as installed.
fn library() -> Result<PathBuf, Error> {
    let found = cluster::beside(LIBRARY);
    let installed = std::env::current_exe().ok().and_then(|own| {
        let folder = own.parent().and_then(Path::parent)?;
        Some(folder.join("lib").join(LIBRARY)).filter(|path| path.is_file())
    });
    found.or_else(|error| installed.ok_or(error))
}
