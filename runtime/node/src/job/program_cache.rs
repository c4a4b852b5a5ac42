//! The folder with the programs that came to this node: which of them go, by size and by age.
//!
//! A program was last used when it came, when a job was given it, or when its file was last read, whichever is latest. The
//! system notes reads about once a day, or not at all where the file system is mounted with `noatime`.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// What the cache keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Most bytes of programs.
    pub bytes: u64,
    /// How long a program stays that nobody uses.
    pub age: Duration,
}

/// The folder. Clones are of the same.
#[derive(Clone, Debug)]
pub(super) struct ProgramCache {
    folder: PathBuf,
    limits: CacheLimits,
    /// When jobs of this daemon were given programs.
    used: Arc<Mutex<HashMap<PathBuf, SystemTime>>>,
}

/// A program in the folder.
struct CachedProgram {
    used: SystemTime,
    size: u64,
    path: PathBuf,
}

/// Whether the file is still being written.
fn is_part(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "part")
}

impl ProgramCache {
    pub(super) fn new(folder: PathBuf, limits: CacheLimits) -> Self {
        Self { folder, limits, used: Arc::default() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn limits(&self) -> CacheLimits {
        self.limits
    }

    fn used(&self) -> MutexGuard<'_, HashMap<PathBuf, SystemTime>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job is given this program now.
    pub(super) fn use_now(&self, path: &Path) {
        self.used().insert(path.to_owned(), SystemTime::now());
    }

    fn last_use(&self, path: &Path, data: &Metadata) -> io::Result<SystemTime> {
        let given = self.used().get(path).copied();
        let read = data.accessed().ok();
        Ok([given, read].into_iter().flatten().fold(data.modified()?, SystemTime::max))
    }

    /// The programs, that used longest ago first, and the bytes of those that are still being written.
    fn programs(&self) -> io::Result<(Vec<CachedProgram>, u64)> {
        let (mut programs, mut unfinished) = (Vec::new(), 0);
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let data = match fs::metadata(&path) {
                // A part that has become a program meanwhile, or was given up.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found?,
            };
            if is_part(&path) {
                unfinished += data.size();
            } else {
                let used = self.last_use(&path, &data)?;
                programs.push(CachedProgram { used, size: data.size(), path });
            }
        }
        programs
            .sort_unstable_by(|one, other| (one.used, &one.path).cmp(&(other.used, &other.path)));
        Ok((programs, unfinished))
    }

    fn remove(&self, program: &CachedProgram) -> io::Result<()> {
        // Those that run keep what they have of it.
        fs::remove_file(&program.path)?;
        self.used().remove(&program.path);
        Ok(())
    }

    /// Removes the programs that were used longest ago until there is room for so many bytes more.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn make_room(&self, bytes: u64) -> io::Result<()> {
        let (programs, unfinished) = self.programs()?;
        let limit = self.limits.bytes.saturating_sub(bytes).saturating_sub(unfinished);
        let mut kept: u64 = programs.iter().map(|program| program.size).sum();
        for program in programs {
            if kept <= limit {
                break;
            }
            self.remove(&program)?;
            kept -= program.size;
        }
        Ok(())
    }

    /// Removes programs that nobody has used for long before `now`, and what is more than the cache takes. Returns how many are
    /// gone for their age.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn clean_up(&self, now: SystemTime) -> io::Result<usize> {
        let (programs, _) = self.programs()?;
        let age = |program: &CachedProgram| now.duration_since(program.used).unwrap_or_default();
        let old = programs.iter().take_while(|program| age(program) > self.limits.age);
        let count = old.map(|program| self.remove(program)).collect::<io::Result<Vec<()>>>()?.len();
        self.make_room(0)?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, FileTimes};

    fn cache(folder: &Path, bytes: u64) -> ProgramCache {
        let limits = CacheLimits { bytes, age: Duration::from_secs(3_600) };
        ProgramCache::new(folder.to_owned(), limits)
    }

    /// A file of 100 bytes that came and was read so many seconds before `now`.
    fn file(folder: &Path, name: &str, now: SystemTime, came: u64, read: u64) {
        let file = File::create(folder.join(name)).unwrap();
        file.set_len(100).unwrap();
        let before = |seconds| now - Duration::from_secs(seconds);
        let times = FileTimes::new().set_modified(before(came)).set_accessed(before(read));
        file.set_times(times).unwrap();
    }

    fn left(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn those_used_longest_ago_make_room() {
        let (dir, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
        for (age, name) in [(30, "c"), (20, "b"), (40, "d"), (10, "a")] {
            file(dir.path(), name, now, age, age);
        }
        cache(dir.path(), 500).make_room(100).unwrap();
        assert_eq!(left(dir.path()), ["a", "b", "c", "d"]);
        // Read since it came, and given to a job.
        file(dir.path(), "c", now, 30, 5);
        let cache = cache(dir.path(), 350);
        cache.use_now(&dir.path().join("d"));
        cache.make_room(100).unwrap();
        assert_eq!(left(dir.path()), ["c", "d"]);
        // Something that is being written counts and stays.
        file(dir.path(), "e.part", now, 3_601, 3_601);
        cache.make_room(100).unwrap();
        assert_eq!(left(dir.path()), ["d", "e.part"]);
    }

    #[test]
    fn programs_that_nobody_uses_go() {
        let (dir, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
        for (name, came, read) in [
            ("old", 3_601, 3_601),
            ("read", 9_000, 3_599),
            ("new", 3_599, 9_000),
            ("given", 9_000, 9_000),
        ] {
            file(dir.path(), name, now, came, read);
        }
        file(dir.path(), "x.part", now, 9_000, 9_000);
        let cache = cache(dir.path(), 1_000);
        cache.use_now(&dir.path().join("given"));
        assert_eq!(cache.clean_up(now).unwrap(), 1);
        assert_eq!(left(dir.path()), ["given", "new", "read", "x.part"]);
        assert_eq!(cache.clean_up(now + Duration::from_secs(7_200)).unwrap(), 3);
        assert_eq!(left(dir.path()), ["x.part"]);
        assert!(cache.used().is_empty());
    }

    #[test]
    fn a_smaller_limit_holds_at_once() {
        let (dir, now) = (tempfile::tempdir().unwrap(), SystemTime::now());
        for (age, name) in [(30, "c"), (20, "b"), (10, "a")] {
            file(dir.path(), name, now, age, age);
        }
        assert_eq!(cache(dir.path(), 150).clean_up(now).unwrap(), 0);
        assert_eq!(left(dir.path()), ["a"]);
    }
}
