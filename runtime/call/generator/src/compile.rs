//! Compiler and linker of generated executables.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kumi_idl::Module;

use super::{BuildError, Options};

/// System libraries that the slot's library needs.
const SYSTEM: [&str; 8] =
    ["-Wl,--gc-sections", "-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];

/// Settings for compiling and linking a module.
#[derive(Debug)]
pub(super) struct Tools<'a> {
    compiler: Vec<String>,
    linker: Vec<String>,
    options: &'a [String],
    /// The folder of the descriptions and of the files that they name.
    folder: &'a Path,
    /// The library with the slot's `main`.
    library: &'a Path,
}

fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(str::to_owned).collect()
}

impl<'a> Tools<'a> {
    pub fn new(module: &'a Module, folder: &'a Path, options: &'a Options) -> Tools<'a> {
        let own = || std::env::var("CC").ok().filter(|own| !own.trim().is_empty());
        let said = Some(module.compiler.clone()).filter(|said| !said.trim().is_empty());
        let compiler = options.compiler.clone().or(said).or_else(own);
        let compiler = words(&compiler.unwrap_or_else(|| "cc".to_owned()));
        let linker = words(&module.linker);
        let linker = if linker.is_empty() { compiler.clone() } else { linker };
        let library = &options.library;
        Tools { compiler, linker, options: &module.compile_options, folder, library }
    }

    /// Compiles a source.
    pub fn compile(&self, routine: &str, source: &Path, object: &Path) -> Result<(), BuildError> {
        let mut command = command(&self.compiler);
        command.arg("-O2").args(self.options).arg("-I").arg(self.folder);
        // Headers of the ranks' library, for parallel routines.
        command.arg("-I").arg(source.parent().unwrap_or(self.folder));
        command.arg("-c").arg(source).arg("-o").arg(object);
        run(command, routine, "compile")
    }

    /// Links the objects with the libraries that the routine requires.
    pub fn link(
        &self,
        routine: &str,
        object: &Path,
        required: &[&str],
        executable: &Path,
    ) -> Result<(), BuildError> {
        let mut command = command(&self.linker);
        command.arg("-O2").args(self.options).arg("-I").arg(self.folder);
        command.arg("-o").arg(executable).arg(object);
        for word in required {
            command.args(self.required(word));
        }
        command.arg(self.library).args(SYSTEM);
        run(command, routine, "link")
    }

    /// The linker arguments for a word of `Required` or `Library`.
    fn required(&self, word: &str) -> Vec<OsString> {
        if let Some(name) = word.strip_prefix("-l").filter(|name| !name.starts_with(':')) {
            return vec![self.found(name).into()];
        }
        let path = self.folder.join(word);
        if word.starts_with('-') || !path.exists() {
            return vec![word.into()];
        }
        let path = std::path::absolute(&path).unwrap_or(path);
        let mut words = vec![path.clone().into_os_string()];
        if word.contains(".so")
            && let Some(folder) = path.parent()
        {
            let mut option = OsString::from("-Wl,-rpath,");
            option.push(folder);
            words.push(option);
        }
        words
    }

    /// For a library without an unversioned name, which only development packages install, the versions 0 to
    /// 9 are tried, as a server does.
    fn found(&self, name: &str) -> String {
        let is_there = |file: &str| {
            let mut command = command(&self.linker);
            command.arg(format!("-print-file-name={file}")).stderr(Stdio::null());
            let said = command.output().map(|output| output.stdout).unwrap_or_default();
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            PathBuf::from(said).is_absolute()
        };
        if is_there(&format!("lib{name}.so")) || is_there(&format!("lib{name}.a")) {
            return format!("-l{name}");
        }
        let mut versions = (0..10).map(|version| format!("lib{name}.so.{version}"));
        versions
            .find(|file| is_there(file))
            .map_or(format!("-l{name}"), |file| format!("-l:{file}"))
    }
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or("cc", String::as_str));
    command.args(words.iter().skip(1)).stdin(Stdio::null());
    command
}

/// Runs a command. Its output goes to standard error.
fn run(mut command: Command, routine: &str, what: &'static str) -> Result<(), BuildError> {
    let status = command.status().map_err(|source| BuildError::Compiler {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    if status.success() {
        return Ok(());
    }
    Err(BuildError::Failed { routine: routine.to_owned(), what })
}
