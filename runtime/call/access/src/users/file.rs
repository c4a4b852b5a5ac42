//! User file: format, reading and checks.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blake3::Hash;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Account, TokenRecord};

/// Longest file in bytes.
const MOST_BYTES: u64 = 16 << 20;
/// Most tokens of a file.
const MOST_TOKENS: usize = 65_536;
/// Longest name of a user.
const MOST_NAME: usize = 64;

/// Why a user file cannot be used.
#[derive(Debug, Error)]
pub enum UsersError {
    /// It cannot be read or written.
    #[error("the user file {} cannot be {doing}: {source}; check its name and permissions", path.display())]
    File {
        /// The operation: `read`, `written`, …
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Others than its owner may write to it.
    #[error("others may write to the user file {}, and so add users: run chmod 600 on it", .0.display())]
    Writable(PathBuf),
    /// The file is not a user file.
    #[error("{} is not a user file: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The error and its position.
        reason: String,
    },
    /// The requested change is impossible.
    #[error("{0}")]
    Request(String),
    /// There is no token without random bytes.
    #[error("the system has no random bytes for a token: {0}")]
    Random(io::Error),
}

/// Content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// Its users.
    #[serde(default, rename = "user", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserEntry>,
}

/// A user of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserEntry {
    /// The user's name, which servers write to their logs.
    pub name: String,
    /// Patterns of the routines that the user may call, with `*` for any text; without it all routines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routines: Option<Vec<String>>,
    /// Share of the servers that a metaserver gives the user when others want them too; 1 if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The highest priority, 0 to 9, that the user's calls may have at a metaserver; 255 or no entry: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The system's user as whom the slots of these calls run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_as: Option<String>,
    /// May offer routines at a metaserver. It then calls only the routines in `routines`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub server: bool,
    /// The user's tokens.
    #[serde(default, rename = "token", skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<Token>,
}

/// A token of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// BLAKE3 hash of the token, 64 hexadecimal digits.
    pub blake3: String,
    /// When the token ends; without it never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// A time as people write it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Timestamp {
    Seconds(i64),
    Text(String),
    Date(toml::value::Datetime),
}

/// Checked content of a file.
#[derive(Debug)]
pub struct ParsedUsers {
    pub tokens: Vec<TokenRecord>,
    pub accounts: Vec<Arc<Account>>,
}

/// Seconds since 1970 of an RFC 3339 date and time.
#[must_use]
pub fn moment(text: &str) -> Option<i64> {
    OffsetDateTime::parse(text, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp)
}

/// A time, RFC 3339 in UTC.
pub fn shown(seconds: i64) -> String {
    let at = OffsetDateTime::from_unix_timestamp(seconds).ok();
    at.and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_else(|| format!("{seconds} s since 1970"))
}

impl Timestamp {
    pub fn seconds(&self) -> Result<i64, String> {
        let text = match self {
            Timestamp::Seconds(seconds) => return Ok(*seconds),
            Timestamp::Text(text) => text.clone(),
            Timestamp::Date(date) => date.to_string(),
        };
        moment(&text).ok_or_else(|| {
            format!("`{text}` is not a time: write 2026-12-31T23:59:59Z, or seconds since 1970")
        })
    }
}

impl Token {
    pub fn hash(&self) -> Result<Hash, String> {
        Hash::from_hex(&self.blake3).map_err(|_| "blake3 is 64 hexadecimal digits".to_owned())
    }
}

/// Whether a text may be a user's name, which appears in logs and on command lines.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-@+".contains(c);
    if name.is_empty() || name.len() > MOST_NAME || !name.chars().all(fits) || name.starts_with('-')
    {
        return Err(format!(
            "`{}` is no user's name: 1 to {MOST_NAME} of a-z, A-Z, 0-9, '.', '_', '-', '@', '+', no '-' first",
            name.escape_default()
        ));
    }
    Ok(())
}

impl UserEntry {
    /// The routines that a user may call: all by default, but none for a server.
    pub fn patterns(&self) -> Vec<String> {
        let all = || if self.server { Vec::new() } else { vec!["*".to_owned()] };
        self.routines.clone().unwrap_or_else(all)
    }
}

impl Content {
    /// Checks the content of a file.
    pub fn parsed(&self) -> Result<ParsedUsers, String> {
        let (mut names, mut hashes) = (BTreeSet::new(), BTreeSet::new());
        let (mut tokens, mut accounts) = (Vec::new(), Vec::new());
        for entry in &self.users {
            check_name(&entry.name)?;
            if !names.insert(&entry.name) {
                return Err(format!("the user `{}` is there twice", entry.name));
            }
            let of_user = |why: String| format!("user `{}`: {why}", entry.name);
            let weight = entry.weight.unwrap_or(1);
            if weight == 0 {
                return Err(of_user("a weight is at least 1".to_owned()));
            }
            let account = Arc::new(Account {
                name: entry.name.clone(),
                routines: entry.patterns(),
                weight,
                priority: entry.priority.unwrap_or(u8::MAX),
                run_as: entry.run_as.clone(),
                server: entry.server,
            });
            accounts.push(Arc::clone(&account));
            for token in &entry.tokens {
                let hash = token.hash().map_err(of_user)?;
                let expires = token.expires.as_ref().map(Timestamp::seconds);
                let expires = expires.transpose().map_err(of_user)?;
                if !hashes.insert(*hash.as_bytes()) {
                    return Err(of_user(format!("the token {} is there twice", id(&hash))));
                }
                tokens.push(TokenRecord { hash, user: Arc::clone(&account), expires });
            }
        }
        if tokens.len() > MOST_TOKENS {
            return Err(format!("{} tokens are more than {MOST_TOKENS}", tokens.len()));
        }
        Ok(ParsedUsers { tokens, accounts })
    }
}

/// The identifier of a token for people: the first digits of its hash.
pub fn id(hash: &Hash) -> String {
    hash.to_hex().chars().take(8).collect()
}

pub fn failed(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> UsersError {
    move |source| UsersError::File { doing, path: path.to_owned(), source }
}

/// Reads an open file, to which only its owner may write.
pub fn content(path: &Path, file: &mut File) -> Result<Content, UsersError> {
    let wrong = |reason: &dyn fmt::Display| UsersError::Content {
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    let about = file.metadata().map_err(failed("read", path))?;
    if !about.is_file() {
        return Err(wrong(&"it is not a regular file"));
    }
    if about.mode() & 0o022 != 0 {
        return Err(UsersError::Writable(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed("read", path))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(wrong(&format_args!("it has more than {MOST_BYTES} bytes")));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| wrong(&error))?;
    toml::from_str(text).map_err(|error| wrong(&error))
}

/// Reads and checks a file.
pub fn read(path: &Path) -> Result<ParsedUsers, UsersError> {
    let mut file = File::open(path).map_err(failed("read", path))?;
    let parsed = content(path, &mut file)?.parsed();
    parsed.map_err(|reason| UsersError::Content { path: path.to_owned(), reason })
}
