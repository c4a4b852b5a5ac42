//! Small disks, which are file systems in memory that are soon full, and disks that break.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A small file system, which goes with the value. It must go before the folder that it is in.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
}

fn mount(command: &mut Command) -> bool {
    command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

impl SmallDisk {
    /// A file system of so many KiB at `path`, which is made; `None` and a visible skip where that is not permitted.
    ///
    /// # Panics
    /// When there is no such folder and none can be made.
    #[track_caller]
    pub fn mount(test: &str, path: &Path, kib: u32) -> Option<Self> {
        std::fs::create_dir_all(path).expect("a folder to mount at");
        let size = format!("size={kib}k,mode=755");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "none"]).arg(path);
        if !mount(&mut command) {
            kumi_skip::skip(test, "file systems may not be mounted");
            return None;
        }
        Some(Self { path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another program takes all that is left of it.
    ///
    /// # Panics
    /// When it is not full then.
    #[track_caller]
    pub fn fill(&self) {
        kumi_small_disk::fill(&self.path);
    }

    /// Bytes that are left of it.
    ///
    /// # Panics
    /// When the system does not say.
    #[must_use]
    #[track_caller]
    pub fn free(&self) -> u64 {
        kumi_small_disk::free(&self.path)
    }

    /// Gives back what [`Self::fill`] took.
    ///
    /// # Panics
    /// When nothing took it.
    #[track_caller]
    pub fn give_room(&self) {
        std::fs::remove_file(self.path.join("others")).expect("our file");
    }

    /// Gives it another size.
    ///
    /// # Panics
    /// When it cannot have that.
    #[track_caller]
    pub fn resize(&self, kib: u32) {
        let size = format!("remount,size={kib}k");
        let mut command = Command::new("mount");
        assert!(mount(command.args(["-o", &size]).arg(&self.path)), "it has no other size");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.path).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} is still mounted", self.path.display());
        }
        // A cluster whose folder this was has gone before, and could not remove it. One that is there yet does that itself.
        if let Err(error) = std::fs::remove_dir(&self.path) {
            eprintln!("{} stays: {error}", self.path.display());
        }
    }
}

/// Writes of daemons that can be made to fail: a library that is preloaded into them.
#[derive(Debug)]
pub struct FailingWrites {
    library: PathBuf,
    folder: PathBuf,
}

impl FailingWrites {
    /// Of the files below this folder. `None` and a visible skip where there is no compiler.
    ///
    /// # Panics
    /// When the compiler fails.
    #[track_caller]
    pub fn below(test: &str, folder: &Path) -> Option<Self> {
        let library = folder.with_extension("eio.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/failing_writes.c");
        let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
        compiler.args(["-shared", "-fPIC", "-O", "-o"]).arg(&library).arg(source).arg("-ldl");
        match compiler.status() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                kumi_skip::skip(test, "there is no C compiler");
                return None;
            }
            compiled => assert!(compiled.expect("a compiler").success(), "{compiler:?} failed"),
        }
        Some(Self { library, folder: folder.to_owned() })
    }

    /// The same command, whose processes and those that they start have the library.
    pub fn of(&self, own: &Command) -> Command {
        let mut command = Command::new(own.get_program());
        command.args(own.get_args());
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("LD_PRELOAD", &self.library).env("KUMI_TEST_EIO", &self.folder);
        command
    }

    fn flag(&self) -> PathBuf {
        let mut flag = self.folder.clone().into_os_string();
        flag.push(".eio");
        flag.into()
    }

    /// Breaks the disk: writes fail from now on.
    ///
    /// # Panics
    /// When it cannot.
    #[track_caller]
    pub fn break_disk(&self) {
        std::fs::write(self.flag(), "").expect("our file");
    }

    /// The disk is well again.
    ///
    /// # Panics
    /// When it was not broken.
    #[track_caller]
    pub fn mend_disk(&self) {
        std::fs::remove_file(self.flag()).expect("our file");
    }
}
