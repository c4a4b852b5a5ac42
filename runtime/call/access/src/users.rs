//! Users who may call, from a file with the hashes of their tokens.
//!
//! A token has 256 random bits, so a plain hash is safe against guessing. The file contains only hashes. Each
//! query checks whether the file has changed, and reads it again if so. An unreadable file changes nothing.
//! See docs/guide/serving.md, "Users".

mod edit;
mod file;
mod pattern;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use blake3::Hash;
use kumi_rpc::{Code, Failure};
use thiserror::Error;

pub use edit::{NewToken, TokenListing, add, list, revoke};
pub use file::{UsersError, moment};

use file::ParsedUsers;

/// Why a client is refused. The messages are for the client and contain no token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No token was given.
    #[error("a token is wanted here: give --token-file FILE or set KUMI_CALL_TOKEN")]
    Missing,
    /// No user has this token, or not any more.
    #[error("nobody has this token here; ask the server's owner for one (`kumi call token add`)")]
    Unknown,
    /// The token has expired.
    #[error(
        "the token of `{user}` expired at {at}; ask the server's owner for a new one (`kumi call token add`)"
    )]
    Expired {
        /// The user's name.
        user: String,
        /// When, as RFC 3339.
        at: String,
    },
}

/// The failure for a refused client.
pub fn refused(refusal: &Refusal) -> Failure {
    let code = match refusal {
        Refusal::Expired { .. } => Code::Expired,
        Refusal::Missing | Refusal::Unknown => Code::NotPermitted,
    };
    Failure::new(code, 0, refusal.to_string())
}

/// A user of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Account {
    name: String,
    routines: Vec<String>,
    weight: u32,
    priority: u8,
    run_as: Option<String>,
    server: bool,
}

/// A token of the file.
#[derive(Debug, Clone)]
pub struct TokenRecord {
    hash: Hash,
    user: Arc<Account>,
    /// Seconds since 1970.
    expires: Option<i64>,
}

/// A user identified by a token, or by a trusted party.
#[derive(Debug, Clone)]
pub struct User {
    account: Arc<Account>,
    /// The hash of the shown token. `None`: a trusted party vouches for the user.
    hash: Option<Hash>,
    expires: Option<i64>,
    generation: u64,
}

impl User {
    /// The user's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.account.name
    }

    /// Whether the user may know and call this routine.
    #[must_use]
    pub fn permits(&self, routine: &str) -> bool {
        self.account.routines.iter().any(|pattern| pattern::fits(pattern, routine))
    }

    /// The user's weight when servers are scarce, at least 1.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.account.weight
    }

    /// The highest priority of the user's calls.
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.account.priority
    }

    /// The system user of the user's routines. `None`: the server's own.
    #[must_use]
    pub fn run_as(&self) -> Option<&str> {
        self.account.run_as.as_deref()
    }

    /// Whether the user may offer routines at a metaserver.
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.account.server
    }

    /// The hash of the shown token.
    pub fn token(&self) -> Option<&Hash> {
        self.hash.as_ref()
    }

    /// When the token expires, in seconds since 1970.
    #[must_use]
    pub fn expires(&self) -> Option<i64> {
        self.expires
    }
}

/// Properties of the file by which changes are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    length: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl FileStamp {
    fn of(path: &Path) -> Option<FileStamp> {
        let found = std::fs::metadata(path).ok()?;
        Some(FileStamp {
            inode: found.ino(),
            length: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }
}

#[derive(Debug)]
struct State {
    stamp: Option<FileStamp>,
    tokens: Vec<TokenRecord>,
    accounts: Vec<Arc<Account>>,
    generation: u64,
    /// The last reading failed, and that was logged.
    failing: bool,
}

/// The users of a file. Threads may share it.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    state: Mutex<State>,
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The hash of a token.
fn hash(token: &str) -> Hash {
    blake3::hash(token.as_bytes())
}

impl Users {
    /// Reads the users of a file.
    ///
    /// # Errors
    /// [`UsersError`]: the file cannot be read, others may write to it, or its content is invalid.
    pub fn open(path: &Path) -> Result<Users, UsersError> {
        let stamp = FileStamp::of(path);
        let ParsedUsers { tokens, accounts } = file::read(path)?;
        let state = State { stamp, tokens, accounts, generation: 0, failing: false };
        let state = Mutex::new(state);
        Ok(Users { path: path.to_owned(), state })
    }

    /// The user of this token.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn who(&self, token: &str) -> Result<User, Refusal> {
        self.who_at(token, now())
    }

    /// [`Users::who`] at this time in seconds since 1970.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn who_at(&self, token: &str, now: i64) -> Result<User, Refusal> {
        if token.is_empty() {
            return Err(Refusal::Missing);
        }
        self.fresh().find(hash(token), now)
    }

    /// The user of this name, for whom a trusted party vouches.
    pub fn named(&self, name: &str) -> Option<User> {
        self.fresh().named(name)
    }

    /// Whether the routines of some user run as a user of the system.
    pub fn some_run_as(&self) -> bool {
        self.fresh().accounts.iter().any(|account| account.run_as.is_some())
    }

    /// Whether the user has a valid token with this property.
    pub fn has(&self, name: &str, is: impl Fn(&Hash) -> bool) -> bool {
        let (state, now) = (self.fresh(), now());
        let is_good = |known: &TokenRecord| {
            known.user.name == name && known.expires.is_none_or(|at| now < at) && is(&known.hash)
        };
        state.tokens.iter().any(is_good)
    }

    /// The same user by the present file. A user whose token was revoked or has expired is refused. Cheap if
    /// the file has not changed.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn again(&self, user: &User) -> Result<User, Refusal> {
        let (state, now) = (self.fresh(), now());
        if state.generation == user.generation && user.expires.is_none_or(|at| now < at) {
            return Ok(user.clone());
        }
        match user.hash {
            Some(hash) => state.find(hash, now),
            None => state.named(user.name()).ok_or(Refusal::Unknown),
        }
    }

    /// Reads the file again, changed or not.
    pub fn reload(&self) {
        let mut state = self.lock();
        state.stamp = None;
        state.refresh(&self.path);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic leaves either the old list or the new.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.refresh(&self.path);
        state
    }
}

impl State {
    /// Reads the file if it has changed. An unusable file is logged once and changes nothing.
    fn refresh(&mut self, path: &Path) {
        let stamp = FileStamp::of(path);
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        let missing_still = stamp.is_none() && self.stamp.is_none() && self.failing;
        if missing_still {
            return;
        }
        self.take(path, stamp, file::read(path));
    }

    /// Takes over a new content. After an error of the system, which may pass, the next query tries again. An
    /// invalid content stays invalid until the file changes.
    fn take(
        &mut self,
        path: &Path,
        stamp: Option<FileStamp>,
        read: Result<ParsedUsers, UsersError>,
    ) {
        let said = std::mem::replace(&mut self.failing, false);
        self.stamp = stamp;
        match read {
            Ok(ParsedUsers { tokens, accounts }) => {
                (self.tokens, self.accounts) = (tokens, accounts);
                self.generation += 1;
                tracing::info!(path = %path.display(), "the users have been read again");
            }
            Err(error) => {
                if matches!(error, UsersError::File { .. }) {
                    (self.stamp, self.failing) = (None, true);
                }
                if !(said && self.failing) {
                    tracing::error!(%error, "the user file is not read; the users stay unchanged");
                }
            }
        }
    }

    /// Compares with all tokens, each in constant time.
    fn find(&self, hash: Hash, now: i64) -> Result<User, Refusal> {
        let mut found = None;
        for known in &self.tokens {
            if known.hash == hash {
                found = Some(known);
            }
        }
        let known = found.ok_or(Refusal::Unknown)?;
        if let Some(at) = known.expires.filter(|at| *at <= now) {
            let user = known.user.name.clone();
            return Err(Refusal::Expired { user, at: file::shown(at) });
        }
        Ok(User {
            account: Arc::clone(&known.user),
            hash: Some(hash),
            expires: known.expires,
            generation: self.generation,
        })
    }

    fn named(&self, name: &str) -> Option<User> {
        let account = self.accounts.iter().find(|account| account.name == name)?;
        let (account, generation) = (Arc::clone(account), self.generation);
        Some(User { account, hash: None, expires: None, generation })
    }
}

#[cfg(test)]
mod tests;
