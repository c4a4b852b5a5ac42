//! Atomic changes of the user file, under a lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

use super::file::{
    Content, Timestamp, Token, UserEntry, UsersError, check_name, content, failed, id, shown,
};
use super::hash;

/// Prefix of every token, by which people and secret scanners recognise it.
const PREFIX: &str = "kumi_";

/// Request for a new token.
#[derive(Debug, Clone, Default)]
pub struct NewToken {
    /// The user, created if needed.
    pub user: String,
    /// When it expires, in seconds since 1970.
    pub expires: Option<i64>,
    /// Patterns of the routines that the user may call from now on, with all tokens. `None`: unchanged, and
    /// all routines for a new user.
    pub routines: Option<Vec<String>>,
    /// The user is a server. It may offer routines at a metaserver, and calls only routines named in
    /// `routines`.
    pub server: bool,
}

/// A token of the file, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenListing {
    /// The user.
    pub user: String,
    /// The token's identifier; empty: the user has no token.
    pub id: String,
    /// When it expires, RFC 3339.
    pub expires: Option<String>,
    /// Patterns of the routines that the user may call.
    pub routines: Vec<String>,
    /// The user is a server.
    pub server: bool,
}

/// Opens and locks the file; `make` creates it if needed. Whoever replaces the file holds the lock of the old
/// one, so the loop ends with the lock of the present file.
fn locked(path: &Path, make: bool) -> Result<Flock<File>, UsersError> {
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(make).truncate(false).mode(0o600);
        let file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path).map_err(|error| {
            if error.raw_os_error() == Some(Errno::ELOOP as i32) {
                let path = path.display();
                let text = format!(
                    "{path} is a symbolic link, which would be replaced; name the file itself"
                );
                return UsersError::Request(text);
            }
            failed("written", path)(error)
        })?;
        let lock = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| failed("locked", path)(errno.into()))?;
        let (ours, there) = (lock.metadata(), std::fs::metadata(path));
        let ours = ours.map_err(failed("read", path))?;
        if there.is_ok_and(|there| there.ino() == ours.ino() && there.dev() == ours.dev()) {
            return Ok(lock);
        }
    }
}

/// Creates a file for new content, with the owner and permissions of the old one: its server must be able to
/// read it.
fn write(beside: &Path, old: &File, text: &str) -> io::Result<()> {
    // A leftover of an interrupted change, or somebody's link.
    match std::fs::remove_file(beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
    let (was, is) = (old.metadata()?, file.metadata()?);
    if (was.uid(), was.gid()) != (is.uid(), is.gid()) {
        fchown(&file, Some(was.uid()), Some(was.gid()))?;
    }
    file.set_permissions(std::fs::Permissions::from_mode(was.mode() & 0o755))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Replaces the locked file by new content.
fn replace(path: &Path, old: &File, content: &Content) -> Result<(), UsersError> {
    content.parsed().map_err(UsersError::Request)?;
    let text = toml::to_string(content)
        .map_err(|error| failed("written", path)(io::Error::other(error.to_string())))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside: PathBuf = path.with_file_name(name);
    let written = write(&beside, old, &text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        // The leftover is useless; the error to report is that of the write.
        let _gone = std::fs::remove_file(&beside);
        failed("written", path)(error)
    })
}

/// Makes a token and adds its hash to the file, which is created if needed. Returns the token, which cannot
/// be shown again.
///
/// # Errors
/// [`UsersError`].
pub fn add(path: &Path, new: &NewToken) -> Result<String, UsersError> {
    check_name(&new.user).map_err(UsersError::Request)?;
    let mut lock = locked(path, true)?;
    let mut content = content(path, &mut lock)?;
    let random = crate::random::bytes().map_err(UsersError::Random)?;
    let token = format!("{PREFIX}{}", blake3::Hash::from_bytes(random).to_hex());
    let entry = match content.users.iter_mut().position(|entry| entry.name == new.user) {
        Some(index) => &mut content.users[index],
        None => {
            content.users.push(UserEntry {
                name: new.user.clone(),
                server: new.server,
                ..UserEntry::default()
            });
            content.users.last_mut().expect("it was put there")
        }
    };
    if new.server && !entry.server {
        let text = format!("`{}` is a user who calls; give servers names of their own", new.user);
        return Err(UsersError::Request(text));
    }
    if entry.server && !new.server {
        let text = format!(
            "`{}` is a server: say --server, or give users who call names of their own",
            new.user
        );
        return Err(UsersError::Request(text));
    }
    if new.routines.is_some() {
        entry.routines.clone_from(&new.routines);
    }
    entry.tokens.push(Token {
        blake3: hash(&token).to_hex().to_string(),
        expires: new.expires.map(|at| Timestamp::Text(shown(at))),
    });
    replace(path, &lock, &content)?;
    Ok(token)
}

/// The users and tokens of the file.
///
/// # Errors
/// [`UsersError`].
pub fn list(path: &Path) -> Result<Vec<TokenListing>, UsersError> {
    let mut file = File::open(path).map_err(failed("read", path))?;
    let content = content(path, &mut file)?;
    let parsed = content.parsed();
    parsed.map_err(|reason| UsersError::Content { path: path.to_owned(), reason })?;
    let mut all = Vec::new();
    for entry in &content.users {
        let shown_as = |id: String, expires| TokenListing {
            user: entry.name.clone(),
            id,
            expires,
            routines: entry.patterns(),
            server: entry.server,
        };
        if entry.tokens.is_empty() {
            all.push(shown_as(String::new(), None));
        }
        for token in &entry.tokens {
            let expires = token.expires.as_ref().and_then(|at| at.seconds().ok()).map(shown);
            all.push(shown_as(token.hash().map(|hash| id(&hash)).unwrap_or_default(), expires));
        }
    }
    Ok(all)
}

/// Removes all tokens of a user, or the one with this identifier. Returns their number.
///
/// # Errors
/// [`UsersError`]: also if the user or token does not exist.
pub fn revoke(path: &Path, user: &str, token: Option<&str>) -> Result<usize, UsersError> {
    let mut lock = locked(path, false)?;
    let mut content = content(path, &mut lock)?;
    let Some(entry) = content.users.iter_mut().find(|entry| entry.name == user) else {
        return Err(UsersError::Request(format!(
            "there is no user `{user}` in {}",
            path.display()
        )));
    };
    let before = entry.tokens.len();
    entry.tokens.retain(|other| token.is_some_and(|token| !is(other, token)));
    let gone = before - entry.tokens.len();
    if let (0, Some(token)) = (gone, token) {
        let token = token.escape_default();
        return Err(UsersError::Request(format!(
            "`{user}` has no token {token}; `kumi call token list` shows them"
        )));
    }
    replace(path, &lock, &content)?;
    Ok(gone)
}

fn is(token: &Token, wanted: &str) -> bool {
    token.hash().is_ok_and(|hash| id(&hash) == wanted)
}
