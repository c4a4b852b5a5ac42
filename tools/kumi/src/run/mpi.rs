//! Whether a program is an MPI program, and of which library.

use crate::error::Error;
use clap::ValueEnum;
use kumi_node::job::mpi::setting::{FABRIC, Fabric, MPI, MpiLibrary, MpiSetting, ONE_SIDED};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::elf;
use super::program::is_script;

/// MPI library of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MpiChoice {
    /// The one that the program is linked with; for scripts any
    Auto,
    /// Open MPI
    Openmpi,
    /// MPICH or Intel MPI
    Mpich,
    /// None
    None,
}

/// What messages of an MPI program go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FabricChoice {
    /// Kumi's channels
    Kumi,
    /// The library's own TCP
    Tcp,
    /// The library's own shared memory, on one node
    Shm,
}

impl FabricChoice {
    /// The value of `KUMI_FABRIC` for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kumi => "kumi",
            Self::Tcp => "tcp",
            Self::Shm => "shm",
        }
    }
}

/// Most libraries that are looked at for one program.
const MOST_LIBRARIES: usize = 512;
/// Folders where the loader looks.
const FOLDERS: [&str; 7] = [
    "/usr/local/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
/// Libraries of every program, which need no MPI.
const COMMON: [&str; 9] = [
    "libc.so.",
    "libm.so.",
    "libdl.so.",
    "librt.so.",
    "libpthread.so.",
    "libgcc_s.so.",
    "libstdc++.so.",
    "libgfortran.so.",
    "ld-linux",
];
/// Programs that load MPI libraries as they run.
const INTERPRETERS: [&str; 9] =
    ["python", "pypy", "julia", "Rscript", "perl", "ruby", "octave", "lua", "java"];

/// Programs that run what their arguments name.
const WRAPPERS: [&str; 26] = [
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "busybox", "env", "timeout",
    "strace", "ltrace", "nice", "nohup", "ionice", "numactl", "taskset", "chrt", "time", "stdbuf",
    "setsid", "perf", "valgrind", "gdb",
];
/// Most words of a command that are looked at.
const MOST_WORDS: usize = 64;

/// What a library's name says.
fn by_name(name: &str) -> Option<MpiLibrary> {
    const OPEN_MPI: [&str; 6] = [
        "libmpi.so.40",
        "libmpi_cxx.so.40",
        "libmpi_mpifh.so.40",
        "libmpi_use",
        "liboshmem.so",
        "libpmix.so.",
    ];
    const MPICH: [&str; 7] = [
        "libmpi.so.12",
        "libmpich",
        "libmpifort.so.12",
        "libmpicxx.so.12",
        "libmpi.so.0",
        "libpmi.so.",
        "libpmi2.so.",
    ];
    let starts = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
    if starts(&OPEN_MPI) {
        Some(MpiLibrary::OpenMpi)
    } else if starts(&MPICH) {
        Some(MpiLibrary::Mpich)
    } else {
        // The binary interface of MPI 5, which each library has.
        name.starts_with("libmpi_abi.so").then_some(MpiLibrary::Any)
    }
}

/// What was found out about a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    library: Option<MpiLibrary>,
    /// An MPICH that can send by UCX only.
    ucx_only: Option<PathBuf>,
    /// Neither the program nor its libraries name a function of one-sided communication, or load others as they run.
    no_windows: bool,
}

impl Found {
    /// A program that may load any library.
    fn any() -> Self {
        Self { library: Some(MpiLibrary::Any), ..Self::default() }
    }
}

/// Looks at a program and the libraries that it is linked with.
fn look_at(program: &Path, library_path: &str) -> Found {
    if loads_as_it_runs(program) {
        return Found::any();
    }
    let mut found = Found::default();
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![program.to_owned()]);
    let (mut files, mut complete) = (Vec::new(), true);
    while let Some(file) = waiting.pop() {
        let needs = elf::needs(&file);
        let folders = folders(&file, &needs.folders, library_path);
        files.push(file);
        for name in needs.libraries {
            let library = by_name(&name);
            found.library = found.library.or(library);
            let common = COMMON.iter().any(|start| name.starts_with(start));
            if common || !seen.insert(name.clone()) {
                continue;
            }
            let path = folders.iter().map(|folder| folder.join(&name)).find(|at| at.is_file());
            let Some(path) = path.filter(|_| seen.len() <= MOST_LIBRARIES) else {
                complete &= library.is_some();
                continue;
            };
            if library == Some(MpiLibrary::Mpich) && has_only_ucx(&path) {
                found.ucx_only = Some(path.clone());
            }
            // Of an MPI library itself all is known.
            if library.is_none() {
                waiting.push(path);
            }
        }
    }
    let names_none = || files.iter().all(|file| names_no_window(file));
    found.no_windows = found.library.is_some() && complete && names_none();
    found
}

/// Whether a file surely calls no function of one-sided communication (C: `MPI_Win_create`, Fortran: `mpi_win_create_`).
fn names_no_window(file: &Path) -> bool {
    const TELLING: [&[u8]; 3] = [b"mpi_win_", b"shmem_", b"dlopen"];
    let Some(mut names) = elf::names(file) else { return false };
    names.make_ascii_lowercase();
    !TELLING.iter().any(|part| names.windows(part.len()).any(|at| at == *part))
}

/// Looks at the program of a command, and if that is none of MPI at what its other words name: a shell runs that, or `strace`.
fn look_at_command(program: Option<&Path>, words: &[String], env: &[(String, String)]) -> Found {
    let Some(program) = program else { return Found::any() };
    let value = |name: &str| {
        let found = env.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    };
    let library_path = value("LD_LIBRARY_PATH");
    let found = look_at(program, library_path);
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    if found.library.is_some() {
        return Found { no_windows: found.no_windows && value("LD_PRELOAD").is_empty(), ..found };
    }
    let wrapper = WRAPPERS.contains(&&*name);
    // Words of a shell's line, too.
    let breaks = |one: char| one.is_whitespace() || ";&|()'\"`".contains(one);
    let parts = words.iter().flat_map(|word| word.split(breaks)).filter(|word| !word.is_empty());
    for word in parts.take(MOST_WORDS) {
        let named = wrapper || word.contains('/');
        let script = || wrapper && is_script(Path::new(word));
        let path = OsStr::new(value("PATH"));
        let found = match super::program::find(word, Some(path)) {
            // Only a wrapper runs a script or an interpreter that it is given.
            Ok(place) if named && (wrapper || !loads_as_it_runs(&place)) => {
                look_at(&place, library_path)
            }
            // A shell reads one that nobody may execute.
            _ if script() => Found::any(),
            _ => continue,
        };
        if found.library.is_some() {
            // Another of its words may name another program.
            return Found { no_windows: false, ..found };
        }
    }
    Found::default()
}

fn has_only_ucx(library: &Path) -> bool {
    let needs = elf::needs(library).libraries;
    let has = |start: &str| needs.iter().any(|name| name.starts_with(start));
    has("libucp.so") && !has("libfabric.so")
}

/// Folders where the loader looks for what `file` needs.
fn folders(file: &Path, own: &[String], library_path: &str) -> Vec<PathBuf> {
    let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let origin = real.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let own =
        own.iter().map(|folder| folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
    let path = library_path.split(':').map(str::to_owned);
    let fixed = FOLDERS.iter().map(|&folder| folder.to_owned());
    own.chain(path).chain(fixed).filter(|folder| !folder.is_empty()).map(PathBuf::from).collect()
}

/// Scripts and interpreters, which may load any library.
fn loads_as_it_runs(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    is_script(program) || INTERPRETERS.iter().any(|start| name.starts_with(start))
}

/// Puts into the environment how the program is started, if it may be an MPI program. What the command line says goes before
/// what the environment says, and that before what the program looks like. `words` are its arguments. What has no place is a
/// script.
///
/// # Errors
/// Its messages cannot go as they are to go.
pub fn prepare(
    env: &mut Vec<(String, String)>,
    (program, words): (Option<&Path>, &[String]),
    mpi: Option<MpiChoice>,
    fabric: Option<FabricChoice>,
) -> Result<(), Error> {
    if let Some(fabric) = fabric {
        super::set(env, FABRIC, fabric.word().to_owned());
    }
    let value =
        |name: &str| env.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
    let said = value(MPI).filter(|said| !said.is_empty() && *said != "auto");
    let chosen = match mpi {
        Some(MpiChoice::None) => Some("none"),
        Some(MpiChoice::Openmpi) => Some(MpiLibrary::OpenMpi.word()),
        Some(MpiChoice::Mpich) => Some(MpiLibrary::Mpich.word()),
        Some(MpiChoice::Auto) => None,
        None => said,
    };
    let chosen = chosen.map(str::to_owned);
    let mut ucx_only = None;
    let mut no_windows = false;
    if chosen.as_deref() != Some("none") {
        let found = look_at_command(program, words, env);
        let chosen = chosen.or_else(|| found.library.map(|library| library.word().to_owned()));
        (ucx_only, no_windows) = (found.ucx_only, found.no_windows);
        env.retain(|(name, _)| name != MPI);
        if let Some(chosen) = chosen {
            super::set(env, MPI, chosen);
        }
    } else {
        env.retain(|(name, _)| name != MPI);
    }
    if no_windows && env.iter().all(|(name, _)| name != ONE_SIDED) {
        super::set(env, ONE_SIDED, "no".to_owned());
    }
    let setting = MpiSetting::of(env).map_err(Error::Usage)?;
    match (setting, ucx_only) {
        (Some(setting), Some(library)) => over_ucx(env, setting.fabric, &library),
        _ => Ok(()),
    }
}

/// Debian's MPICH can send by UCX, and by nothing else.
fn over_ucx(env: &mut Vec<(String, String)>, fabric: Fabric, library: &Path) -> Result<(), Error> {
    let transports = match fabric {
        Fabric::Kumi => {
            return Err(Error::Usage(format!(
                "the program's MPICH ({}) can send by UCX only and not through Kumi; use an MPICH with libfabric (`pip install mpich`) or Open MPI, or --fabric=tcp",
                library.display()
            )));
        }
        Fabric::Tcp => "tcp,self",
        Fabric::Shm => "shm,self",
    };
    for (name, value) in [("MPIR_CVAR_CH4_NETMOD", "ucx"), ("UCX_TLS", transports)] {
        if env.iter().all(|(other, _)| other != name) {
            super::set(env, name, value.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Compiles a library or program that needs others, all in one folder.
    fn link(folder: &Path, name: &str, needed: &[&str]) -> PathBuf {
        let source = folder.join("source.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let mut cc = Command::new("cc");
        cc.current_dir(folder).args(["-o", name, "source.c", "-Wl,--no-as-needed"]);
        if name.contains(".so") {
            cc.args(["-shared", "-fPIC", &format!("-Wl,-soname,{name}")]);
        }
        cc.args(needed).arg("-Wl,-rpath,$ORIGIN");
        assert!(cc.status().unwrap().success());
        folder.join(name)
    }

    #[test]
    fn a_program_is_known_by_its_libraries() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let library = |program: &Path| look_at(program, "").library;
        link(at, "libmpi.so.40", &[]);
        link(at, "libmpi.so.12", &[]);
        link(at, "libsolver.so.1", &["./libmpi.so.40"]);
        let plain = link(at, "plain", &[]);
        assert_eq!(library(&plain), None);
        assert_eq!(library(&link(at, "a", &["./libmpi.so.40"])), Some(MpiLibrary::OpenMpi));
        assert_eq!(library(&link(at, "b", &["./libmpi.so.12"])), Some(MpiLibrary::Mpich));
        assert_eq!(library(&link(at, "c", &["./libsolver.so.1"])), Some(MpiLibrary::OpenMpi));
        let script = at.join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(library(&script), Some(MpiLibrary::Any));
        assert_eq!(library(Path::new("/usr/bin/python3")), Some(MpiLibrary::Any));
        assert_eq!(library(Path::new("/bin/true")), None);
    }

    #[test]
    fn a_program_without_one_sided_communication_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        link(at, "libmpi.so.40", &[]);
        let no_windows = |program: &Path| look_at(program, "").no_windows;
        let plain = link(at, "plain", &["./libmpi.so.40"]);
        assert!(no_windows(&plain));
        link(at, "libwindows.so.1", &["./libmpi.so.40", "-Wl,--defsym=mpi_win_create_=main"]);
        assert!(!no_windows(&link(at, "user", &["./libwindows.so.1", "./libmpi.so.40"])));
        // What it is linked with is not there.
        link(at, "libgone.so.1", &[]);
        let user = link(at, "lost", &["./libgone.so.1", "./libmpi.so.40"]);
        assert!(no_windows(&user));
        std::fs::remove_file(at.join("libgone.so.1")).unwrap();
        assert!(!no_windows(&user));
        assert!(!no_windows(Path::new("/usr/bin/python3")));
        let said = |program: &Path, env: &[(&str, &str)]| {
            let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
            let mut env: Vec<_> = env.iter().map(own).collect();
            prepare(&mut env, (Some(program), &[]), None, None).unwrap();
            env.into_iter().find(|(name, _)| name == ONE_SIDED).map(|(_, value)| value)
        };
        assert_eq!(said(&plain, &[]).as_deref(), Some("no"));
        assert_eq!(said(&plain, &[(ONE_SIDED, "yes")]).as_deref(), Some("yes"));
        assert_eq!(said(&plain, &[("LD_PRELOAD", "x.so")]), None);
        assert_eq!(said(&user, &[]), None);
    }

    #[test]
    fn what_a_shell_or_another_wrapper_runs_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        link(at, "libmpi.so.40", &[]);
        let program = link(at, "solver", &["./libmpi.so.40"]);
        let (program, plain) = (program.display().to_string(), link(at, "plain", &[]));
        let script = at.join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        let env = [("PATH".to_owned(), format!("{}:/usr/bin:/bin", at.display()))];
        let library = |first: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            look_at_command(Some(Path::new(first)), &words, &env).library
        };
        let open_mpi = Some(MpiLibrary::OpenMpi);
        assert_eq!(library("/bin/sh", &["-c", &format!("cd / && {program} 7; echo")]), open_mpi);
        assert_eq!(library("/bin/sh", &["-c", "solver > out"]), open_mpi);
        assert_eq!(library("/usr/bin/env", &["A=1", "timeout", "9", &program]), open_mpi);
        assert_eq!(library(&plain.display().to_string(), &["--run", &program]), open_mpi);
        let any = Some(MpiLibrary::Any);
        assert_eq!(library("/bin/sh", &[&script.display().to_string()]), any);
        assert_eq!(library("/bin/sh", &["-c", "echo; exit 3"]), None);
        // Not run, but read.
        assert_eq!(library("/bin/cat", &[&script.display().to_string()]), None);
    }

    #[test]
    fn an_mpich_that_cannot_send_through_kumi_gets_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        link(at, "libucp.so.0", &[]);
        link(at, "libmpich.so.12", &["./libucp.so.0"]);
        let program = link(at, "program", &["./libmpich.so.12"]);
        let run = |fabric| {
            let mut env = Vec::new();
            prepare(&mut env, (Some(&program), &[]), None, Some(fabric)).map(|()| env)
        };
        let error = run(FabricChoice::Kumi).unwrap_err();
        assert!(error.to_string().contains("UCX only") && error.exit_code() == 64, "{error}");
        let env = run(FabricChoice::Tcp).unwrap();
        assert!(env.contains(&("UCX_TLS".to_owned(), "tcp,self".to_owned())), "{env:?}");
    }

    #[test]
    fn the_command_line_goes_before_the_environment_and_that_before_the_program() {
        let run = |said: Option<&str>, choice| {
            let mut env: Vec<_> =
                said.map(|said| (MPI.to_owned(), said.to_owned())).into_iter().collect();
            prepare(&mut env, (Some(Path::new("/bin/true")), &[]), choice, None).map(|()| env)
        };
        let word = |word: &str| vec![(MPI.to_owned(), word.to_owned())];
        assert_eq!(run(None, None).unwrap(), []);
        assert_eq!(run(Some("mpich"), None).unwrap(), word("mpich"));
        assert_eq!(run(Some("mpich"), Some(MpiChoice::Openmpi)).unwrap(), word("openmpi"));
        assert_eq!(run(Some("mpich"), Some(MpiChoice::None)).unwrap(), []);
        assert_eq!(run(Some("auto"), None).unwrap(), []);
        assert!(run(Some("lam"), None).is_err());
    }
}
