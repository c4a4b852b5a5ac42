//! The node's devices: which job has which, and what ranks are told of theirs.
//!
//! A job has its devices from `Prepare` to `Freed`, also while it is stopped: what it has on them stays there.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use kumi_control::message::{DeviceCount, Refusal, RefusalKind};
use kumi_sched::JobId;

use crate::cgroup::DeviceNumber;
use crate::client::refusal;
use crate::config::DeviceList;

/// Name of the devices that CUDA and ROCm count.
const GPU: &str = "gpu";

/// One device of the node.
#[derive(Clone, Debug)]
struct Device {
    name: String,
    /// Its file, and the kernel's number of that.
    file: Option<(PathBuf, DeviceNumber)>,
    /// The number in the name of its file, otherwise its place among those of its name.
    number: u32,
    holder: Option<JobId>,
}

/// The node's devices, and who has them.
#[derive(Debug, Default)]
pub struct DeviceLedger {
    devices: Vec<Device>,
    /// Jobs cannot open the files of devices that they do not have.
    guarded: bool,
}

impl DeviceLedger {
    /// Of a node with these devices. `guarded`: its control groups keep jobs from the files of others.
    ///
    /// # Errors
    /// A sentence, if a file is missing or none of a device.
    pub fn new(configured: &BTreeMap<String, DeviceList>, guarded: bool) -> Result<Self, String> {
        let mut devices = Vec::new();
        for (name, list) in configured {
            let one = |number, file| Device { name: name.clone(), file, number, holder: None };
            match list {
                DeviceList::Count(count) => {
                    devices.extend((0..*count).map(|number| one(number, None)));
                }
                DeviceList::Files(files) => {
                    let numbers = numbers(files);
                    for (path, number) in files.iter().zip(numbers) {
                        devices.push(one(number, Some((path.clone(), device_number(path)?))));
                    }
                }
            }
        }
        Ok(Self { devices, guarded })
    }

    /// How many of each name there are.
    pub fn counts(&self) -> Vec<DeviceCount> {
        let mut counts = BTreeMap::new();
        for device in &self.devices {
            *counts.entry(&device.name).or_insert(0u32) += 1;
        }
        counts.into_iter().map(|(name, count)| DeviceCount { name: name.clone(), count }).collect()
    }

    /// Gives a job so many for each of its ranks here, the first free ones.
    fn take(&mut self, job: JobId, wanted: &[DeviceCount], ranks: u32) -> Result<Taken, Refusal> {
        let mut by_rank = vec![Vec::new(); usize::try_from(ranks).unwrap_or(0)];
        for DeviceCount { name, count } in wanted {
            let each = usize::try_from(*count).unwrap_or(usize::MAX);
            let needed = each.saturating_mul(by_rank.len());
            let of_name = self.devices.iter().enumerate().filter(|(_, one)| one.name == *name);
            let (free, taken): (Vec<_>, Vec<_>) =
                of_name.partition(|(_, one)| one.holder.is_none());
            let (all, free) =
                (free.len() + taken.len(), Vec::from_iter(free.iter().map(|one| one.0)));
            if free.len() < needed {
                self.free(job);
                let message = format!(
                    "the job needs {needed} devices {name} on the node, which has {all}, {} of them free; run it again",
                    free.len()
                );
                return Err(refusal(RefusalKind::NoResources, message));
            }
            for (rank, at) in free.into_iter().take(needed).enumerate() {
                self.devices[at].holder = Some(job);
                by_rank[rank / each.max(1)].push(at);
            }
        }
        Ok(self.taken(job, &by_rank))
    }

    fn taken(&self, job: JobId, by_rank: &[Vec<usize>]) -> Taken {
        let others = self.devices.iter().filter(|one| one.holder != Some(job));
        let ranks = by_rank.iter().map(|own| self.env(job, own)).collect();
        Taken {
            hidden: others.filter_map(|one| one.file.as_ref().map(|file| file.1)).collect(),
            ranks,
        }
    }

    /// What a rank is told of its devices, which are at these places.
    fn env(&self, job: JobId, own: &[usize]) -> Vec<(String, String)> {
        let mut env = Vec::new();
        let names: BTreeSet<&str> = self.devices.iter().map(|one| &*one.name).collect();
        for name in names {
            let own = own.iter().map(|&at| (at, &self.devices[at]));
            let own: Vec<_> = own.filter(|(_, one)| one.name == name).collect();
            let words = own.iter().map(|(_, one)| match &one.file {
                Some((path, _)) => path.display().to_string(),
                None => one.number.to_string(),
            });
            env.push((format!("KUMI_DEVICES_{}", name.to_uppercase()), join(words)));
            if name != GPU {
                continue;
            }
            let visible = join(own.iter().map(|&(at, one)| self.ordinal(job, at, one).to_string()));
            env.push(("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned()));
            env.push(("CUDA_VISIBLE_DEVICES".to_owned(), visible.clone()));
            env.push(("ROCR_VISIBLE_DEVICES".to_owned(), visible));
        }
        env
    }

    /// The number by which drivers know a device. They count only what the job can open.
    fn ordinal(&self, job: JobId, at: usize, device: &Device) -> u32 {
        if !self.guarded || device.file.is_none() {
            return device.number;
        }
        let before = self.devices[..at].iter();
        let before = before.filter(|one| one.name == device.name && one.holder == Some(job));
        u32::try_from(before.count()).unwrap_or(u32::MAX)
    }

    fn free(&mut self, job: JobId) {
        for device in self.devices.iter_mut().filter(|device| device.holder == Some(job)) {
            device.holder = None;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Taken {
    hidden: Vec<DeviceNumber>,
    ranks: Vec<Vec<(String, String)>>,
}

/// The devices of a job. Dropped, they are free again.
#[derive(Debug)]
pub(super) struct JobDevices {
    ledger: Rc<RefCell<DeviceLedger>>,
    job: JobId,
    taken: Taken,
}

impl JobDevices {
    /// So many for each of the job's ranks here.
    pub(super) fn take(
        ledger: &Rc<RefCell<DeviceLedger>>,
        job: JobId,
        wanted: &[DeviceCount],
        ranks: u32,
    ) -> Result<Self, Refusal> {
        let taken = ledger.borrow_mut().take(job, wanted, ranks)?;
        Ok(Self { ledger: Rc::clone(ledger), job, taken })
    }

    /// Gives a job again what it had before: the devices at these places.
    pub(super) fn adopt(ledger: &Rc<RefCell<DeviceLedger>>, job: JobId, places: &[usize]) -> Self {
        let mut devices = ledger.borrow_mut();
        for &place in places {
            // The configuration may have fewer now.
            if let Some(device) = devices.devices.get_mut(place) {
                device.holder = Some(job);
            }
        }
        let taken = devices.taken(job, &[]);
        Self { ledger: Rc::clone(ledger), job, taken }
    }

    /// Places of the job's devices among those of the node.
    pub(super) fn places(&self) -> Vec<usize> {
        let ledger = self.ledger.borrow();
        let held = ledger.devices.iter().enumerate();
        held.filter(|(_, one)| one.holder == Some(self.job)).map(|(at, _)| at).collect()
    }

    /// Numbers of the files that the job must not open.
    pub(super) fn hidden(&self) -> &[DeviceNumber] {
        &self.taken.hidden
    }

    /// What a local rank is told.
    pub(super) fn env(&self, local: usize) -> &[(String, String)] {
        self.taken.ranks.get(local).map_or(&[], Vec::as_slice)
    }
}

impl Drop for JobDevices {
    fn drop(&mut self) {
        self.ledger.borrow_mut().free(self.job);
    }
}

fn join(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(",")
}

/// Numbers of devices: those at the ends of their files' names, if each has another; otherwise their places.
fn numbers(files: &[PathBuf]) -> Vec<u32> {
    let of_name = |file: &PathBuf| {
        let name = file.file_name()?.to_str()?;
        name[name.trim_end_matches(|c: char| c.is_ascii_digit()).len()..].parse().ok()
    };
    let named: Option<Vec<u32>> = files.iter().map(of_name).collect();
    match named {
        Some(all) if all.iter().collect::<BTreeSet<_>>().len() == files.len() => all,
        _ => (0..).zip(files).map(|(place, _)| place).collect(),
    }
}

fn device_number(path: &Path) -> Result<DeviceNumber, String> {
    let data = fs::metadata(path);
    let data =
        data.map_err(|error| format!("the device {} cannot be used: {error}", path.display()))?;
    let kind = data.file_type();
    if !kind.is_char_device() && !kind.is_block_device() {
        return Err(format!("{} is not a device", path.display()));
    }
    Ok(DeviceNumber { block: kind.is_block_device(), number: data.rdev() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(guarded: bool) -> DeviceLedger {
        // Devices that every system has.
        let files = ["/dev/null", "/dev/zero", "/dev/full"].map(PathBuf::from);
        let configured = [
            ("fpga".to_owned(), DeviceList::Count(2)),
            (GPU.to_owned(), DeviceList::Files(files.to_vec())),
        ];
        DeviceLedger::new(&configured.into(), guarded).unwrap()
    }

    fn wanted(list: &[(&str, u32)]) -> Vec<DeviceCount> {
        list.iter().map(|&(name, count)| DeviceCount { name: name.to_owned(), count }).collect()
    }

    fn of<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
        env.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    #[test]
    fn each_rank_has_its_own_until_the_job_is_gone() {
        let ledger = Rc::new(RefCell::new(ledger(false)));
        assert_eq!(ledger.borrow().counts(), wanted(&[("fpga", 2), ("gpu", 3)]));
        let first = JobDevices::take(&ledger, JobId(1), &wanted(&[("gpu", 1), ("fpga", 1)]), 2);
        let first = first.unwrap();
        assert_eq!(of(first.env(0), "KUMI_DEVICES_GPU"), Some("/dev/null"));
        assert_eq!(of(first.env(1), "KUMI_DEVICES_GPU"), Some("/dev/zero"));
        assert_eq!(of(first.env(1), "KUMI_DEVICES_FPGA"), Some("1"));
        assert_eq!(of(first.env(1), "CUDA_VISIBLE_DEVICES"), Some("1"));
        assert_eq!(first.hidden().len(), 1, "/dev/full");
        let refused = JobDevices::take(&ledger, JobId(2), &wanted(&[("gpu", 2)]), 1).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::NoResources);
        assert!(refused.message.contains("has 3, 1 of them free"), "{}", refused.message);
        // What it got before it was refused is free again.
        let both = wanted(&[("gpu", 1), ("fpga", 1)]);
        assert!(JobDevices::take(&ledger, JobId(2), &both, 1).is_err());
        let second = JobDevices::take(&ledger, JobId(3), &wanted(&[("gpu", 1)]), 1).unwrap();
        assert_eq!(of(second.env(0), "ROCR_VISIBLE_DEVICES"), Some("2"));
        drop(first);
        let all = JobDevices::take(&ledger, JobId(4), &wanted(&[("gpu", 2)]), 1).unwrap();
        assert_eq!(of(all.env(0), "KUMI_DEVICES_GPU"), Some("/dev/null,/dev/zero"));
    }

    #[test]
    fn a_later_daemon_gives_them_to_nobody_else() {
        let before = Rc::new(RefCell::new(ledger(true)));
        let first = JobDevices::take(&before, JobId(1), &wanted(&[("gpu", 1)]), 1).unwrap();
        let kept = JobDevices::take(&before, JobId(2), &wanted(&[("gpu", 1)]), 1).unwrap();
        let (places, hidden) = (kept.places(), kept.hidden().to_vec());
        drop(first);
        let after = Rc::new(RefCell::new(ledger(true)));
        let kept = JobDevices::adopt(&after, JobId(2), &[&places[..], &[99]].concat());
        assert_eq!((kept.places(), kept.hidden()), (places, &hidden[..]));
        let next = JobDevices::take(&after, JobId(3), &wanted(&[("gpu", 2)]), 1).unwrap();
        assert_eq!(of(next.env(0), "KUMI_DEVICES_GPU"), Some("/dev/null,/dev/full"));
    }

    #[test]
    fn who_asks_for_none_has_none() {
        let ledger = Rc::new(RefCell::new(ledger(false)));
        let none = JobDevices::take(&ledger, JobId(1), &[], 1).unwrap();
        assert_eq!(of(none.env(0), "CUDA_VISIBLE_DEVICES"), Some(""));
        assert_eq!(of(none.env(0), "KUMI_DEVICES_FPGA"), Some(""));
        assert_eq!(none.hidden().len(), 3);
        let nowhere = Rc::new(RefCell::new(DeviceLedger::default()));
        assert_eq!(JobDevices::take(&nowhere, JobId(1), &[], 1).unwrap().env(0), []);
        assert!(JobDevices::take(&nowhere, JobId(1), &wanted(&[("gpu", 1)]), 1).is_err());
    }

    #[test]
    fn drivers_count_only_what_the_job_can_open() {
        let ledger = Rc::new(RefCell::new(ledger(true)));
        let _first = JobDevices::take(&ledger, JobId(1), &wanted(&[("gpu", 1)]), 1).unwrap();
        let second = JobDevices::take(&ledger, JobId(2), &wanted(&[("gpu", 1)]), 2).unwrap();
        assert_eq!(of(second.env(0), "CUDA_VISIBLE_DEVICES"), Some("0"));
        assert_eq!(of(second.env(1), "CUDA_VISIBLE_DEVICES"), Some("1"));
        assert_eq!(of(second.env(1), "KUMI_DEVICES_GPU"), Some("/dev/full"));
    }

    #[test]
    fn numbers_are_those_of_the_files_if_they_differ() {
        let of = |names: &[&str]| numbers(&names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["/dev/nvidia2", "/dev/nvidia7"]), [2, 7]);
        assert_eq!(of(&["/dev/a1", "/dev/b1"]), [0, 1]);
        assert_eq!(of(&["/dev/dri/renderD128", "/dev/card"]), [0, 1]);
    }

    #[test]
    fn what_is_no_device_is_told() {
        let with = |path: &str| {
            let list = DeviceList::Files(vec![path.into()]);
            DeviceLedger::new(&[("gpu".to_owned(), list)].into(), false).unwrap_err()
        };
        assert!(with("/dev/no-such-device").contains("cannot be used"));
        assert!(with("/etc/passwd").contains("is not a device"));
    }
}
