//! `kumi call token`: manages the users and tokens of a server.

use crate::error::Error;
use crate::{output, parse};
use clap::{Args, Subcommand};
use kumi_call::users::{self, NewToken};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `kumi call token …`
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token for a user and print it, once. The user file stores only its hash, and is created if
    /// needed
    Add(AddArgs),
    /// List the users of a file and the identifiers of their tokens
    List(FileArgs),
    /// Revoke all tokens of a user, or one. Servers that use the file refuse the user's next call
    Revoke(RevokeArgs),
}

/// The user file.
#[derive(Clone, Debug, Args)]
pub struct FileArgs {
    /// User file, as for `kumi call serve --tokens`
    #[arg(long, value_name = "FILE", env = "KUMI_CALL_TOKENS")]
    pub file: PathBuf,
}

/// Options of `kumi call token add`.
#[derive(Clone, Debug, Args)]
pub struct AddArgs {
    /// Name of the user
    #[arg(value_name = "USER")]
    pub user: String,
    #[command(flatten)]
    pub file: FileArgs,
    /// Validity, for example 12h or 30d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse::estimate)]
    pub expires: Option<Duration>,
    /// Routines that the user may call from now on, with all tokens. In a name, * stands for any characters.
    /// Separate several by commas, or repeat the option [default: unchanged; all for a new user]
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub routines: Vec<String>,
    /// The user is a server that offers routines at a metaserver. It calls only the routines of --routines
    #[arg(long)]
    pub server: bool,
    /// Write the token to this new file, which only its owner can read, instead of printing it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Options of `kumi call token revoke`.
#[derive(Clone, Debug, Args)]
pub struct RevokeArgs {
    /// Name of the user
    #[arg(value_name = "USER")]
    pub user: String,
    #[command(flatten)]
    pub file: FileArgs,
    /// Only the token with this identifier, as `kumi call token list` shows it
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
}

/// Runs the command.
pub fn run(command: &TokenCommand) -> Result<(), Error> {
    match command {
        TokenCommand::Add(args) => add(args),
        TokenCommand::List(args) => list(args),
        TokenCommand::Revoke(args) => {
            let gone = users::revoke(&args.file.file, &args.user, args.id.as_deref())?;
            let many = if gone == 1 { "" } else { "s" };
            output::text(&format!("{gone} token{many} of {} revoked\n", args.user))
        }
    }
}

fn add(args: &AddArgs) -> Result<(), Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let until = args.expires.map(|time| (now + time).as_secs());
    let new = NewToken {
        user: args.user.clone(),
        expires: until.and_then(|seconds| i64::try_from(seconds).ok()),
        routines: (!args.routines.is_empty()).then(|| args.routines.clone()),
        server: args.server,
    };
    let Some(path) = &args.out else {
        let token = users::add(&args.file.file, &new)?;
        return output::text(&format!("{token}\n"));
    };
    refuse_user_file(path, &args.file.file)?;
    // Before there is a token that could not be written.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| unwritten(path, source))?;
    // Two spellings of a new file may be one only to its file system, which shows once it is there.
    let written = refuse_user_file(path, &args.file.file)
        .and_then(|()| users::add(&args.file.file, &new).map_err(Error::from))
        .and_then(|token| writeln!(file, "{token}").map_err(|source| unwritten(path, source)));
    if written.is_err()
        && let Err(error) = std::fs::remove_file(path)
    {
        output::note(&format!("{} stays, and has no token: {error}", path.display()));
    }
    written
}

/// Refuses the user file as the file of a token: the change of the one would replace the other.
fn refuse_user_file(out: &Path, users: &Path) -> Result<(), Error> {
    if !is_same_file(out, users) {
        return Ok(());
    }
    let text = format!(
        "--out {} is the user file itself (--file): give the token a file of its own",
        out.display()
    );
    Err(Error::Usage(text))
}

/// Whether two paths lead to one file. Of files that are not there yet the folders are compared.
fn is_same_file(one: &Path, other: &Path) -> bool {
    if let (Ok(one), Ok(other)) = (std::fs::metadata(one), std::fs::metadata(other)) {
        return (one.dev(), one.ino()) == (other.dev(), other.ino());
    }
    let place = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some((folder, path.file_name()?.to_owned()))
    };
    place(one).is_some_and(|one| place(other) == Some(one))
}

fn unwritten(path: &Path, source: io::Error) -> Error {
    Error::File { doing: "make", path: path.to_owned(), source }
}

fn list(args: &FileArgs) -> Result<(), Error> {
    let mut text = format!("{:<20} {:<9} {:<21} ROUTINES\n", "USER", "ID", "EXPIRES");
    for shown in users::list(&args.file)? {
        let id = if shown.id.is_empty() { "none" } else { &shown.id };
        let expires = match &shown.expires {
            Some(at) => at.as_str(),
            None if shown.id.is_empty() => "",
            None => "never",
        };
        let routines = match (shown.server, shown.routines.join(",")) {
            (false, routines) => routines,
            (true, routines) if routines.is_empty() => "(a server)".to_owned(),
            (true, routines) => format!("{routines} (a server)"),
        };
        text += &format!("{:<20} {id:<9} {expires:<21} {routines}\n", shown.user);
    }
    output::text(&text)
}
