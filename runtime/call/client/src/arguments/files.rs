//! Files as arguments of calls.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::CallError;
use super::super::link::IncomingFiles;

/// A file argument: the file that is sent, and the file that receives the result.
#[derive(Debug, Clone, Default)]
pub struct FileArgument {
    /// The file that is sent.
    pub from: Option<PathBuf>,
    /// The file that receives the result. It is replaced when the call has succeeded, and unchanged
    /// otherwise.
    pub to: Option<PathBuf>,
}

impl FileArgument {
    /// A file that is sent.
    #[must_use]
    pub fn from(path: impl Into<PathBuf>) -> FileArgument {
        FileArgument { from: Some(path.into()), to: None }
    }

    /// A file that receives the result.
    #[must_use]
    pub fn to(path: impl Into<PathBuf>) -> FileArgument {
        FileArgument { from: None, to: Some(path.into()) }
    }

    /// A file that is sent, and another or the same that receives the result.
    #[must_use]
    pub fn both(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> FileArgument {
        FileArgument { from: Some(from.into()), to: Some(to.into()) }
    }
}

/// The files of a call.
#[derive(Debug, Default)]
pub struct CallFiles {
    /// Files that are sent: parameter, file, bytes.
    pub sent: Vec<(u16, File, u64)>,
    /// Files that come back.
    back: Vec<ReceivedFile>,
}

#[derive(Debug)]
struct ReceivedFile {
    parameter: u16,
    file: Arc<File>,
    /// Temporary file beside the destination.
    temporary: PathBuf,
    target: PathBuf,
}

fn failed(path: &Path, error: &io::Error) -> CallError {
    CallError::File(format!("{}: {error}", path.display()))
}

/// The file to replace. A symbolic link stays: its target is replaced.
fn destination(path: &Path) -> Result<PathBuf, CallError> {
    let refused = |why: &str| Err(CallError::File(format!("{} {why}", path.display())));
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(failed(path, &error)),
        Ok(about) if about.is_file() => Ok(path.to_owned()),
        Ok(about) if about.is_symlink() => match path.canonicalize() {
            Ok(target) => destination(&target),
            Err(error) => refused(&format!("is a link that leads nowhere: {error}")),
        },
        // A result must not replace a device or a folder.
        Ok(_) => refused("is no file; give the name of one, or one that is free"),
    }
}

impl CallFiles {
    /// Opens a file to send and returns its length.
    pub fn send(&mut self, parameter: u16, path: &Path) -> Result<u64, CallError> {
        let file = File::open(path).map_err(|error| failed(path, &error))?;
        let about = file.metadata().map_err(|error| failed(path, &error))?;
        if !about.is_file() {
            return Err(CallError::File(format!("{} is no file", path.display())));
        }
        self.sent.push((parameter, file, about.len()));
        Ok(about.len())
    }

    /// Creates the temporary file for a result.
    ///
    /// # Errors
    /// [`CallError::File`]: the file cannot be created, or the name belongs to something that is not a file.
    pub fn receive(&mut self, parameter: u16, path: &Path) -> Result<(), CallError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let target = destination(path)?;
        let mut name = target.file_name().unwrap_or_default().to_owned();
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".kumi-{}-{next}", std::process::id()));
        let temporary = target.with_file_name(name);
        let made = OpenOptions::new().write(true).create_new(true).open(&temporary);
        let file = Arc::new(made.map_err(|error| failed(&temporary, &error))?);
        self.back.push(ReceivedFile { parameter, file, temporary, target });
        Ok(())
    }

    /// The files that receive results of at most so many bytes each, emptied of what an earlier attempt wrote.
    pub fn incoming(&self, most: u64) -> Result<IncomingFiles, CallError> {
        let target = |back: &ReceivedFile| {
            back.file.set_len(0).map_err(|error| failed(&back.temporary, &error))?;
            Ok((back.parameter, Arc::clone(&back.file)))
        };
        let files: Result<_, CallError> = self.back.iter().map(target).collect();
        Ok(IncomingFiles::new(files?, most))
    }

    /// Number of files that come back.
    pub fn count(&self) -> usize {
        self.back.len()
    }

    /// Renames the complete files to their destinations.
    pub fn finish(&mut self) -> Result<(), CallError> {
        for back in &self.back {
            std::fs::rename(&back.temporary, &back.target)
                .map_err(|error| failed(&back.target, &error))?;
        }
        self.back.clear();
        Ok(())
    }
}

impl Drop for CallFiles {
    fn drop(&mut self) {
        for back in &self.back {
            // A file that is gone already needs no removal.
            let _gone = std::fs::remove_file(&back.temporary);
        }
    }
}
