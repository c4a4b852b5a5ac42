//! Programs of jobs on this node: a program's own path if the content is the right one, otherwise
//! the node's cache.
//!
//! The control tree fills the cache. A file there belongs to the user whose jobs run it, and nobody else can read it. Whoever
//! names a program by its hash has its content: a second user of a program gets a copy.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use kumi_control::message::{ContentHash, Program, Refusal, RefusalKind, User};

use super::program_cache::{CacheLimits, ProgramCache};
use crate::client::refusal;
use crate::paths;

/// Largest program that is distributed, in bytes.
pub const MAX_PROGRAM: u64 = 4 << 30;
/// Letters of a hash.
const HASH_LENGTH: usize = 64;
/// Most files whose hashes are remembered.
const MAX_KNOWN: usize = 4096;
/// Mode of the cache's folder: whose programs are in it can not be listed.
const FOLDER_MODE: u32 = 0o711;
/// Mode of a program that is nobody's yet.
const UNCLAIMED_MODE: u32 = 0o600;
/// Mode of a user's program.
const PROGRAM_MODE: u32 = 0o500;
/// Modes of files that somebody may execute.
const EXECUTABLE: u32 = 0o111;

/// Version of a file, by which a changed file is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    fn of(data: &fs::Metadata) -> Self {
        Self {
            device: data.dev(),
            inode: data.ino(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        }
    }
}

/// A program on its way here.
#[derive(Debug)]
struct Incoming {
    file: File,
    path: PathBuf,
    hasher: blake3::Hasher,
    offset: u64,
    total: u64,
}

/// The programs of a node.
#[derive(Debug)]
pub struct Programs {
    cache: ProgramCache,
    known: Arc<Mutex<HashMap<Version, ContentHash>>>,
    /// Held while a program is given to a user.
    giving: Arc<Mutex<()>>,
    incoming: BTreeMap<ContentHash, Incoming>,
}

impl Programs {
    /// Programs with the cache in folder `cache`, which is made if it is not there, and what it keeps.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(cache: PathBuf, limits: CacheLimits) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&cache)?;
        fs::set_permissions(&cache, fs::Permissions::from_mode(FOLDER_MODE))?;
        for entry in fs::read_dir(&cache)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "part") {
                fs::remove_file(&path)?;
            } else if path.file_name().is_some_and(|name| name.len() == HASH_LENGTH) {
                fs::set_permissions(&path, fs::Permissions::from_mode(UNCLAIMED_MODE))?;
            }
        }
        let cache = ProgramCache::new(cache, limits);
        let (known, giving) = Default::default();
        Ok(Self { cache, known, giving, incoming: BTreeMap::new() })
    }

    fn cached(&self, hash: ContentHash) -> PathBuf {
        self.cache.folder().join(paths::hex(&hash.0))
    }

    /// Removes what the cache does not keep any longer. The log says what cannot be removed; the next call tries again.
    pub fn clean_up(&self) {
        match self.cache.clean_up(SystemTime::now()) {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "programs that nobody uses are removed"),
            Err(error) => tracing::error!(%error, "programs cannot be removed"),
        }
    }

    /// Bytes of programs on their way here: in all, and of what has come already.
    fn coming(&self) -> (u64, u64) {
        let sum = |of: fn(&Incoming) -> u64| self.incoming.values().map(of).sum();
        (sum(|incoming| incoming.total), sum(|incoming| incoming.offset))
    }

    /// Makes room for a program of `total` bytes.
    fn make_room(&self, total: u64) -> Result<(), Refusal> {
        let most = self.cache.limits().bytes;
        if total > most {
            let message = format!(
                "the program has {total} bytes and the cache of a node takes {most}; the owner of the cluster can raise \
                 programs_mib under [retention]"
            );
            return Err(refusal(RefusalKind::TooLarge, message));
        }
        let (coming, came) = self.coming();
        if total.saturating_add(coming) > most {
            let message =
                "programs that are on their way take all of the node's cache; run it again";
            return Err(refusal(RefusalKind::NoResources, message));
        }
        // What has come is in the cache already.
        self.cache.make_room(total + coming - came).map_err(|error| cache_failed(&error))
    }

    /// A future that finds the file that `user` can run: `None` when this node has no such content.
    pub fn find(
        &self,
        program: &Program,
        user: &User,
    ) -> impl Future<Output = Option<PathBuf>> + use<> {
        let path = PathBuf::from(&program.path);
        let gift = Gift {
            cache: self.cache.clone(),
            program: self.cached(program.hash),
            size: program.size,
            user: user.clone(),
        };
        let (wanted, size) = (program.hash, program.size);
        let (known, giving) = (Arc::clone(&self.known), Arc::clone(&self.giving));
        async move {
            if has_content(&known, &path, wanted, size).await {
                return Some(path);
            }
            let (own, cache) = (gift.place(), gift.cache.clone());
            if !has_content(&known, &own, wanted, size).await {
                let give = move |_: &Path| {
                    let _one_at_a_time = giving.lock().unwrap_or_else(PoisonError::into_inner);
                    gift.give()
                };
                off_loop(&own, give).await?;
                if !has_content(&known, &own, wanted, size).await {
                    return None;
                }
            }
            cache.use_now(&own);
            Some(own)
        }
    }

    /// Takes a chunk of a program; whether it is complete now.
    ///
    /// # Errors
    /// When it cannot be kept, chunks are missing, or the content is not what it should be; what
    /// came so far is dropped.
    pub fn store(
        &mut self,
        hash: ContentHash,
        offset: u64,
        total: u64,
        data: &[u8],
    ) -> Result<bool, Refusal> {
        let result = self.try_store(hash, offset, total, data);
        if !matches!(result, Ok(false))
            && let Some(incoming) = self.incoming.remove(&hash)
            && result.is_err()
        {
            // Best effort: a part that stays is removed at the next start.
            let _ = fs::remove_file(&incoming.path);
        }
        result
    }

    fn try_store(
        &mut self,
        hash: ContentHash,
        offset: u64,
        total: u64,
        data: &[u8],
    ) -> Result<bool, Refusal> {
        let broken = |what: &str| {
            refusal(
                RefusalKind::Internal,
                format!("the program came damaged ({what}); run it again"),
            )
        };
        if offset == 0 {
            if total > MAX_PROGRAM {
                return Err(refusal(
                    RefusalKind::TooLarge,
                    format!("the program has {total} bytes; at most {MAX_PROGRAM} are distributed"),
                ));
            }
            self.incoming.remove(&hash);
            self.make_room(total)?;
            let path = self.cached(hash).with_extension("part");
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(UNCLAIMED_MODE);
            let file = options.open(&path).map_err(|error| cache_failed(&error))?;
            let hasher = blake3::Hasher::new();
            self.incoming.insert(hash, Incoming { file, path, hasher, offset: 0, total });
        }
        let place = self.cached(hash);
        let incoming = self.incoming.get_mut(&hash).ok_or_else(|| broken("no beginning"))?;
        let end = offset.saturating_add(data.len() as u64);
        if incoming.offset != offset || incoming.total != total || end > total {
            return Err(broken("a gap"));
        }
        if let Err(error) = incoming.file.write_all(data) {
            self.give_up(hash);
            return Err(cache_failed(&error));
        }
        incoming.hasher.update(data);
        incoming.offset = end;
        if end < total {
            return Ok(false);
        }
        if *incoming.hasher.finalize().as_bytes() != hash.0 {
            return Err(broken("another content"));
        }
        let finished = self.incoming.remove(&hash).ok_or_else(|| broken("no beginning"))?;
        // A file that is open for writing cannot be executed.
        drop(finished.file);
        fs::rename(&finished.path, &place).map_err(|error| cache_failed(&error))?;
        Ok(true)
    }
}

impl Programs {
    /// What has come of a program goes: a full disk has its room back at once.
    fn give_up(&mut self, hash: ContentHash) {
        let Some(incoming) = self.incoming.remove(&hash) else { return };
        if let Err(error) = fs::remove_file(&incoming.path) {
            tracing::error!(path = %incoming.path.display(), %error, "a part of a program is left in the cache");
        }
    }
}

fn cache_failed(error: &io::Error) -> Refusal {
    let message =
        format!("the program cannot be kept in the node's cache: {error}; free some space");
    refusal(RefusalKind::NoResources, message)
}

/// A program of the cache for a user who does not have it.
struct Gift {
    cache: ProgramCache,
    /// Where it is, or would be, while it is nobody's.
    program: PathBuf,
    size: u64,
    user: User,
}

impl Gift {
    fn with_suffix(&self, suffix: &str) -> PathBuf {
        let mut path = self.program.clone().into_os_string();
        path.push(suffix);
        path.into()
    }

    /// Where the user has it.
    fn place(&self) -> PathBuf {
        self.with_suffix(&format!("-{}", self.user.uid))
    }

    /// Gives the user the program that is nobody's, or a copy of another user's. What it then is has to be looked at:
    /// owners can change their files.
    fn give(&self) -> io::Result<()> {
        match File::open(&self.program) {
            Ok(file) => return self.hand_over(&file, &self.program),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        let others = self.with_suffix("-");
        let (Some(cache), Some(others)) = (others.parent(), others.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let others = others.as_encoded_bytes();
        for entry in fs::read_dir(cache)? {
            let entry = entry?;
            let fits = entry.file_name().as_encoded_bytes().starts_with(others);
            if fits && entry.path() != self.place() && entry.metadata()?.len() == self.size {
                return self.copy(&entry.path());
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn copy(&self, from: &Path) -> io::Result<()> {
        let source = File::open(from)?;
        // May remove the source, which stays readable here.
        self.cache.make_room(self.size)?;
        let part = self.with_suffix(&format!("-{}.part", self.user.uid));
        let mut options = OpenOptions::new();
        let mut target =
            options.write(true).create(true).truncate(true).mode(UNCLAIMED_MODE).open(&part)?;
        let copied = io::copy(&mut source.take(self.size), &mut target);
        let given = copied.and_then(|_| self.hand_over(&target, &part));
        if given.is_err() {
            // Best effort: a part that stays is removed at the next start.
            let _ = fs::remove_file(&part);
        }
        given
    }

    /// Makes a file the user's, for nobody else to read, and puts it into its place.
    fn hand_over(&self, file: &File, path: &Path) -> io::Result<()> {
        file.set_permissions(fs::Permissions::from_mode(PROGRAM_MODE))?;
        if self.user.uid != nix::unistd::geteuid().as_raw() {
            std::os::unix::fs::fchown(file, Some(self.user.uid), Some(self.user.gid))?;
        }
        fs::rename(path, self.place())
    }
}

async fn has_content(
    known: &Mutex<HashMap<Version, ContentHash>>,
    path: &Path,
    wanted: ContentHash,
    size: u64,
) -> bool {
    // A file with holes can be of any size, and would be read for ever.
    if !path.is_absolute() || size > MAX_PROGRAM {
        return false;
    }
    let Some(data) = off_loop(path, |path| fs::metadata(path)).await else { return false };
    // A submitted script need not be executable where it is: the cache has one that is.
    if !data.is_file() || data.size() != size || data.mode() & EXECUTABLE == 0 {
        return false;
    }
    let version = Version::of(&data);
    let lookup = known.lock().unwrap_or_else(PoisonError::into_inner).get(&version).copied();
    if let Some(hash) = lookup {
        return hash == wanted;
    }
    // A file that cannot be read is as good as none; so is one that changes meanwhile.
    let Some((read, hash)) = off_loop(path, move |path| hash_file(path, size)).await else {
        return false;
    };
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= MAX_KNOWN {
        known.clear();
    }
    known.insert(read, hash);
    read == version && hash == wanted
}

/// Does something with a file in a thread of its own: the path is a user's, and may lie on a file system that does not
/// answer.
async fn off_loop<T: Send + 'static>(
    path: &Path,
    what: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Option<T> {
    let owned = path.to_owned();
    tokio::task::spawn_blocking(move || what(&owned)).await.ok()?.ok()
}

fn hash_file(path: &Path, size: u64) -> io::Result<(Version, ContentHash)> {
    // A path may have become a device or a pipe since it was looked at.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(path)?;
    let before = file.metadata()?;
    if !before.is_file() || before.size() != size {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    // It may grow as fast as it is read.
    let mut content = (&file).take(size.saturating_add(1));
    loop {
        match content.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let after = Version::of(&file.metadata()?);
    if after != Version::of(&before) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((after, ContentHash(*hasher.finalize().as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_small_disk::on_a_small_disk;

    const LIMITS: CacheLimits =
        CacheLimits { bytes: MAX_PROGRAM, age: std::time::Duration::from_secs(3_600) };

    fn program(path: &Path, content: &[u8]) -> Program {
        Program {
            path: path.to_str().unwrap().to_owned(),
            hash: ContentHash(*blake3::hash(content).as_bytes()),
            size: content.len() as u64,
        }
    }

    fn own() -> User {
        User {
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            name: String::new(),
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// The user reads it, and the disk has its room back.
    #[test]
    fn a_full_disk_keeps_no_part_of_a_program() {
        on_a_small_disk(1 << 20, |disk| {
            let mut programs = Programs::new(disk.to_owned(), LIMITS).unwrap();
            let (large, part) = (vec![7; 4 << 20], 256 << 10);
            let hash = ContentHash(*blake3::hash(&large).as_bytes());
            let total = large.len() as u64;
            let stored: Result<Vec<bool>, Refusal> = (0..)
                .zip(large.chunks(part))
                .map(|(index, data)| programs.store(hash, index * part as u64, total, data))
                .collect();
            let refused = stored.unwrap_err();
            assert_eq!(refused.kind, RefusalKind::NoResources);
            let says = ["No space left", "free some space"];
            assert!(says.iter().all(|text| refused.message.contains(text)), "{}", refused.message);
            assert_eq!(fs::read_dir(disk).unwrap().count(), 0, "nothing is left");
            let small = vec![8; 512 << 10];
            let hash = ContentHash(*blake3::hash(&small).as_bytes());
            assert_eq!(programs.store(hash, 0, small.len() as u64, &small), Ok(true));
        });
    }

    /// Of two users who run the same program, each has a file that the other cannot read.
    #[tokio::test(flavor = "current_thread")]
    async fn each_user_has_a_program_that_nobody_else_reads() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache/node-0");
        fs::create_dir_all(&cache).unwrap();
        // As an earlier version left it.
        let wanted = program(&dir.path().join("nowhere"), b"one");
        let left = cache.join(paths::hex(&wanted.hash.0));
        fs::write(&left, b"one").unwrap();
        fs::set_permissions(&left, fs::Permissions::from_mode(0o755)).unwrap();
        let programs = Programs::new(cache.clone(), LIMITS).unwrap();
        assert_eq!((mode(&cache), mode(&left)), (0o711, 0o600));
        let first = programs.find(&wanted, &own()).await.unwrap();
        assert_eq!((mode(&first), left.exists()), (0o500, false));
        if !nix::unistd::geteuid().is_root() {
            let reason = "only root gives files to others";
            return kumi_skip::skip("each_user_has_a_program_that_nobody_else_reads", reason);
        }
        let other = User { uid: 65_534, gid: 65_534, name: "nobody".into() };
        let second = programs.find(&wanted, &other).await.unwrap();
        let data = fs::metadata(&second).unwrap();
        assert_eq!((data.uid(), data.gid(), mode(&second)), (65_534, 65_534, 0o500));
        assert_eq!(fs::metadata(&first).unwrap().uid(), 0);
        // A file that its owner has changed is not given to anybody.
        fs::write(&second, b"two").unwrap();
        fs::remove_file(&first).unwrap();
        assert_eq!(programs.find(&wanted, &own()).await, None);
        assert_eq!(programs.find(&wanted, &other).await, None);
        let mut programs = programs;
        assert_eq!(programs.store(wanted.hash, 0, 3, b"one"), Ok(true));
        assert_eq!(programs.find(&wanted, &other).await, Some(second));
        assert_eq!(programs.find(&wanted, &own()).await, Some(first));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn finds_by_content_wherever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut programs = Programs::new(dir.path().join("cache/node-0"), LIMITS).unwrap();
        let path = dir.path().join("prog");
        fs::write(&path, b"one").unwrap();
        let wanted = program(&path, b"one");
        assert_eq!(programs.find(&wanted, &own()).await, None, "nobody may execute it");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(programs.find(&wanted, &own()).await, Some(path.clone()));
        assert_eq!(programs.find(&wanted, &own()).await, Some(path.clone()));
        // Same size, other content.
        fs::write(&path, b"two").unwrap();
        assert_eq!(programs.find(&wanted, &own()).await, None);
        assert_eq!(programs.store(wanted.hash, 0, 3, b"on"), Ok(false));
        assert_eq!(programs.find(&wanted, &own()).await, None);
        assert_eq!(programs.store(wanted.hash, 2, 3, b"e"), Ok(true));
        let cached = programs.find(&wanted, &own()).await.unwrap();
        assert_eq!(fs::read(&cached).unwrap(), b"one");
        assert_eq!(mode(&cached), 0o500);
    }

    /// As an unprivileged user can make one without using any space.
    #[tokio::test(flavor = "current_thread")]
    async fn a_huge_file_with_holes_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let programs = Programs::new(dir.path().join("cache/node-0"), LIMITS).unwrap();
        let path = dir.path().join("holes");
        let size = MAX_PROGRAM + 1;
        if File::create(&path).unwrap().set_len(size).is_err() {
            let reason = format!("the file system does not take files of {size} bytes");
            return kumi_skip::skip("a_huge_file_with_holes_is_not_read", &reason);
        }
        let wanted = Program { size, ..program(&path, b"") };
        assert_eq!(programs.find(&wanted, &own()).await, None);
        assert!(programs.known.lock().unwrap().is_empty(), "nothing was read");
    }

    #[test]
    fn damaged_programs_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut programs = Programs::new(dir.path().join("cache"), LIMITS).unwrap();
        let hash = program(Path::new("/x"), b"abc").hash;
        for chunks in [
            &[(1, 3, &b"abc"[..])][..],
            &[(0, 3, b"ab"), (1, 3, b"c")],
            &[(0, 3, b"abcd")],
            &[(0, 3, b"xyz")],
            &[(0, 3, b"ab"), (2, 4, b"c")],
        ] {
            let results: Vec<_> =
                chunks.iter().map(|&(o, t, d)| programs.store(hash, o, t, d)).collect();
            assert!(results.last().unwrap().is_err(), "{chunks:?}");
        }
        let huge = programs.store(hash, 0, MAX_PROGRAM + 1, b"a").unwrap_err();
        assert_eq!(huge.kind, RefusalKind::TooLarge);
        assert_eq!(fs::read_dir(dir.path().join("cache")).unwrap().count(), 0);
    }

    #[test]
    fn programs_on_their_way_have_their_room() {
        let dir = tempfile::tempdir().unwrap();
        let limits = CacheLimits { bytes: 100, ..LIMITS };
        let mut programs = Programs::new(dir.path().join("cache"), limits).unwrap();
        let [one, two, three] = [b"1", b"2", b"3"].map(|text| program(Path::new("/x"), text).hash);
        let large = programs.store(one, 0, 101, b"a").unwrap_err();
        assert_eq!(large.kind, RefusalKind::TooLarge);
        assert!(large.message.contains("programs_mib"), "{}", large.message);
        assert_eq!(programs.store(one, 0, 60, b"a"), Ok(false));
        assert_eq!(programs.store(two, 0, 41, b"a").unwrap_err().kind, RefusalKind::NoResources);
        assert_eq!(programs.store(three, 0, 40, b"a"), Ok(false));
        // Again from the start.
        assert_eq!(programs.store(one, 0, 60, b"a"), Ok(false));
    }
}
