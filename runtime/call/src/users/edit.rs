//! Changing the file of users: whole, under a lock, and never half written.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

use super::file::{
    Content, Timestamp, Token, UserEntry, UsersError, check_name, content, failed, id, shown,
};
use super::hash;

/// What every token begins with, so that people and programs that look for secrets know one.
const PREFIX: &str = "kumi_";

/// What a new token is for.
#[derive(Debug, Clone, Default)]
pub struct NewToken {
    /// The user, who is made if need be.
    pub user: String,
    /// When it expires, in seconds since 1970.
    pub expires: Option<i64>,
    /// Patterns of the routines that the user, with all tokens, may call from now on; `None`: as it was, all for a
    /// new user.
    pub routines: Option<Vec<String>>,
    /// The user is a server, which may offer routines at a metaserver and calls none unless `routines` names some.
    pub server: bool,
}

/// A token of the file, as people may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenListing {
    /// The user.
    pub user: String,
    /// By what the token is told from others; empty: the user has none.
    pub id: String,
    /// When it expires, RFC 3339.
    pub expires: Option<String>,
    /// Patterns of the routines that the user may call.
    pub routines: Vec<String>,
    /// The user is a server.
    pub server: bool,
}

/// The file under its lock; with `make` it is made if need be. Who replaces it replaces what is locked, so the lock is
/// that of the file which is there.
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
                return UsersError::Asked(text);
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

/// Makes a file for this content beside the old one, with the owner and permissions of that: its server reads it as well.
fn write(beside: &Path, old: &File, text: &str) -> io::Result<()> {
    // Who ended before has left one; or somebody has put a link here.
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

/// Puts new content in the place of the file that is locked.
fn replace(path: &Path, old: &File, content: &Content) -> Result<(), UsersError> {
    content.parsed().map_err(UsersError::Asked)?;
    let text = toml::to_string(content)
        .map_err(|error| failed("written", path)(io::Error::other(error.to_string())))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside: PathBuf = path.with_file_name(name);
    let written = write(&beside, old, &text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        // It is of no use to anybody; what is to be told is why it could not be written.
        let _gone = std::fs::remove_file(&beside);
        failed("written", path)(error)
    })
}

/// Makes a token and writes its hash to the file, which is made if need be. The token, which nobody can be told again.
///
/// # Errors
/// [`UsersError`].
pub fn add(path: &Path, new: &NewToken) -> Result<String, UsersError> {
    check_name(&new.user).map_err(UsersError::Asked)?;
    let mut lock = locked(path, true)?;
    let mut content = content(path, &mut lock)?;
    let mut random = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .map_err(failed("read", Path::new("/dev/urandom")))?;
    let token = format!("{PREFIX}{}", blake3::Hash::from_bytes(random).to_hex());
    let entry = match content.users.iter_mut().position(|entry| entry.name == new.user) {
        Some(index) => &mut content.users[index],
        None => {
            content.users.push(UserEntry {
                name: new.user.clone(),
                routines: None,
                weight: None,
                priority: None,
                run_as: None,
                server: new.server,
                tokens: Vec::new(),
            });
            content.users.last_mut().expect("it was put there")
        }
    };
    if new.server && !entry.server {
        let text = format!("`{}` is a user who calls; give servers names of their own", new.user);
        return Err(UsersError::Asked(text));
    }
    if entry.server && !new.server {
        let text = format!(
            "`{}` is a server: say --server, or give users who call names of their own",
            new.user
        );
        return Err(UsersError::Asked(text));
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

/// Takes tokens away from a user: all, or the one with this id. How many they were.
///
/// # Errors
/// [`UsersError`]; there is no such user or token.
pub fn revoke(path: &Path, user: &str, token: Option<&str>) -> Result<usize, UsersError> {
    let mut lock = locked(path, false)?;
    let mut content = content(path, &mut lock)?;
    let Some(entry) = content.users.iter_mut().find(|entry| entry.name == user) else {
        return Err(UsersError::Asked(format!("there is no user `{user}` in {}", path.display())));
    };
    let before = entry.tokens.len();
    entry.tokens.retain(|other| token.is_some_and(|token| !is(other, token)));
    let gone = before - entry.tokens.len();
    if let (0, Some(token)) = (gone, token) {
        let token = token.escape_default();
        return Err(UsersError::Asked(format!(
            "`{user}` has no token {token}; `kumi call token list` shows them"
        )));
    }
    replace(path, &lock, &content)?;
    Ok(gone)
}

fn is(token: &Token, wanted: &str) -> bool {
    token.hash().is_ok_and(|hash| id(&hash) == wanted)
}
