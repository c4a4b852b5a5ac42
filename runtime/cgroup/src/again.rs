//! Groups that a former daemon of the node made, and whose jobs run on.

use std::fmt::Display;
use std::fs;
use std::io;
use std::time::Duration;

use super::job::JobGroups;
use super::node::{DaemonGroup, NodeGroups};
use super::unified::ControlGroup;

impl NodeGroups {
    /// The node's groups as they are, without those jobs of a former life for which `kept` does not hold.
    ///
    /// # Errors
    /// Why not, as a sentence for people.
    pub fn make_around(
        cluster: &str,
        node: impl Display,
        kept: impl Fn(&str) -> bool,
    ) -> Result<Self, String> {
        let groups = Self::make(cluster, node, DaemonGroup::Leave)?;
        for path in groups.paths() {
            let left = |error: io::Error| format!("{} cannot be cleaned: {error}", path.display());
            for entry in fs::read_dir(&path).map_err(left)?.flatten() {
                let name = entry.file_name();
                let name = name.to_str().unwrap_or_default();
                if name.starts_with("job-") && !kept(name) {
                    let group = ControlGroup::at(entry.path());
                    group.destroy(Duration::from_secs(5)).map_err(left)?;
                }
            }
        }
        Ok(groups)
    }

    /// The groups of a job that runs, which was given so much memory and weight.
    pub fn job_again(&self, name: &str, (memory, weight): (Option<u64>, u64)) -> JobGroups {
        JobGroups::again(&self.parts, name, (memory, weight))
    }
}

#[cfg(test)]
mod tests {
    use super::super::JobLimits;
    use super::*;

    #[test]
    fn jobs_that_are_kept_keep_their_groups() {
        let (test, number) = ("jobs_that_are_kept_keep_their_groups", 0);
        let name = format!("kept-{}", std::process::id());
        let first = match NodeGroups::make(&name, number, DaemonGroup::Keep) {
            Ok(groups) => groups,
            Err(reason) => return kumi_skip::skip(test, &reason),
        };
        let limits = JobLimits { weight: 3, ..JobLimits::default() };
        let [kept, gone] = ["job-1", "job-2"].map(|job| first.job(job, &limits).unwrap());
        let second = NodeGroups::make_around(&name, number, |job| job == "job-1").unwrap();
        assert_eq!(second.paths(), first.paths());
        let again = second.job_again("job-1", (None, 3));
        assert_eq!(again.main().path(), kept.main().path());
        assert_eq!(again.to_join(), kept.to_join());
        assert!(kept.main().path().exists() && !gone.main().path().exists());
        second.destroy(Duration::from_secs(1)).unwrap();
        second.remove_empty_parents();
    }
}
