//! Who may call: a file of users, known by the hashes of their tokens.
//!
//! A token is 256 random bits, so a plain hash of it is enough and guessing is hopeless; the file has the hashes
//! only. The file is looked at whenever somebody is asked for, and read again when it has changed; one that cannot
//! be read leaves everything as it was. See docs/guide/calling.md, "Who may call".

mod edit;
mod file;
mod pattern;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use blake3::Hash;
use thiserror::Error;

pub use edit::{NewToken, TokenListing, add, list, revoke};
pub use file::{UsersError, moment};

use file::ParsedUsers;

/// Why somebody is not taken in. The sentences are meant for them; no token is in them.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// No token was given.
    #[error("a token is wanted here: give --token-file FILE or set KUMI_CALL_TOKEN")]
    Missing,
    /// Nobody has this token; or not any more.
    #[error("nobody has this token here; ask the server's owner for one (`kumi call token add`)")]
    Unknown,
    /// It was good until then.
    #[error(
        "the token of `{user}` expired at {at}; ask the server's owner for a new one (`kumi call token add`)"
    )]
    Expired {
        /// Whose it was.
        user: String,
        /// When, RFC 3339.
        at: String,
    },
}

/// What is said of a user in the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Account {
    name: String,
    routines: Vec<String>,
    weight: u32,
    priority: u8,
    run_as: Option<String>,
    server: bool,
}

/// A token of the file.
#[derive(Debug, Clone)]
pub(crate) struct TokenRecord {
    hash: Hash,
    user: Arc<Account>,
    /// Seconds since 1970.
    expires: Option<i64>,
}

/// Somebody who has shown a good token, or is vouched for.
#[derive(Debug, Clone)]
pub struct User {
    account: Arc<Account>,
    /// Of the token that was shown; `None`: the user is vouched for by others.
    hash: Option<Hash>,
    expires: Option<i64>,
    generation: u64,
}

impl User {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.account.name
    }

    /// Whether the user may know and call this routine.
    #[must_use]
    pub fn permits(&self, routine: &str) -> bool {
        self.account.routines.iter().any(|pattern| pattern::fits(pattern, routine))
    }

    /// The share of servers that the user has when others want them too, at least 1.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.account.weight
    }

    /// The highest priority that the user's calls may have.
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.account.priority
    }

    /// The user of the system as whom routines run; `None`: the server's own.
    #[must_use]
    pub fn run_as(&self) -> Option<&str> {
        self.account.run_as.as_deref()
    }

    /// Whether the user may offer routines at a metaserver.
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.account.server
    }

    /// By what the token is known that was shown.
    pub(crate) fn token(&self) -> Option<&Hash> {
        self.hash.as_ref()
    }

    /// When the token expires, in seconds since 1970.
    #[must_use]
    pub fn expires(&self) -> Option<i64> {
        self.expires
    }
}

/// By what a change of the file is noticed.
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
    /// The file could not be read the last time, and that has been said.
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

/// By what a token is known.
fn hash(token: &str) -> Hash {
    blake3::hash(token.as_bytes())
}

impl Users {
    /// Reads the users of a file.
    ///
    /// # Errors
    /// [`UsersError`]: it cannot be read, others may write to it, or it says what cannot be.
    pub fn open(path: &Path) -> Result<Users, UsersError> {
        let stamp = FileStamp::of(path);
        let ParsedUsers { tokens, accounts } = file::read(path)?;
        let state = State { stamp, tokens, accounts, generation: 0, failing: false };
        let state = Mutex::new(state);
        Ok(Users { path: path.to_owned(), state })
    }

    /// Whose token this is.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn who(&self, token: &str) -> Result<User, Refusal> {
        self.who_at(token, now())
    }

    /// [`Users::who`], at so many seconds since 1970.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn who_at(&self, token: &str, now: i64) -> Result<User, Refusal> {
        if token.is_empty() {
            return Err(Refusal::Missing);
        }
        self.fresh().find(hash(token), now)
    }

    /// The user of this name, for whom somebody else vouches.
    pub(crate) fn named(&self, name: &str) -> Option<User> {
        self.fresh().named(name)
    }

    /// Whether the user has a token, good now, of which this is so.
    pub(crate) fn has(&self, name: &str, is: impl Fn(&Hash) -> bool) -> bool {
        let (state, now) = (self.fresh(), now());
        let is_good = |known: &TokenRecord| {
            known.user.name == name && known.expires.is_none_or(|at| now < at) && is(&known.hash)
        };
        state.tokens.iter().any(is_good)
    }

    /// The same user as the file is now: who was revoked or has expired since is refused. Costs little where the
    /// file has not changed.
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
        // What a thread that panicked has left is either the old list or the new.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.refresh(&self.path);
        state
    }
}

impl State {
    /// Reads the file if it has changed. What cannot be used is said once, and changes nothing.
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

    /// Takes over what was read. Where the system gave nothing, which may pass, it is tried again at the next look; what
    /// the file says wrongly stays wrong until it changes.
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
                    tracing::error!(%error, "the users stay as they were");
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
