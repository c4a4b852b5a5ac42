//! Small disks: file systems in memory that are soon full.

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
    }
}
