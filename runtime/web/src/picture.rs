//! What a browser sees of the cluster several times a second.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use kumi_control::message::User;
use serde::Serialize;

/// The cluster at an instant. The head makes one at a time; who is slow misses some.
#[derive(Debug, Default)]
pub struct Picture {
    /// Rises with each.
    pub number: u64,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// Cluster time in microseconds, to which slices refer.
    pub cluster_us: u64,
    /// Whether all users see that there are the jobs of all.
    pub open: bool,
    /// Whether all users see what jobs of others are called.
    pub named: bool,
    /// The cluster's owner, who sees everything.
    pub owner_uid: u32,
    /// All configured nodes, ascending.
    pub nodes: Vec<NodePicture>,
    /// Jobs with ranks, ascending.
    pub jobs: Vec<JobPicture>,
    /// Jobs that wait for nodes.
    pub queued: usize,
    /// The picture as text, for those who see everything.
    pub texts: WholeTexts,
}

/// A picture as text, without and with slices: made once, however many watch.
#[derive(Debug, Default)]
pub struct WholeTexts([OnceLock<Arc<str>>; 2]);

/// A node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodePicture {
    /// Its number.
    pub node: u32,
    /// Whether it is attached.
    pub up: bool,
    /// Whether it answered in time.
    pub fresh: bool,
    /// Use of its processors in per cent, if it has said so.
    pub busy: Option<u8>,
    /// Use of its memory in per cent.
    pub memory: Option<u8>,
    /// What its network interfaces carried, in bytes a second.
    pub network: u64,
    /// Switches a second.
    pub switches: u32,
    /// Time that they took, in hundredths of a per cent.
    pub switching: u16,
    /// Slices that began of late.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<SlicePicture>,
}

/// A slice of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlicePicture {
    /// Cluster time in microseconds at which it began.
    pub at_us: u64,
    /// Whose turn it was.
    pub jobs: Vec<u64>,
}

/// A job.
#[derive(Clone, Debug)]
pub struct JobPicture {
    /// Its number.
    pub job: u64,
    /// Whose it is.
    pub user: User,
    /// Its name.
    pub name: String,
    /// Whether it is outside the rotation, because all its ranks wait.
    pub idle: bool,
    /// Its ranks on each node: node, lowest rank, number.
    pub parts: Vec<[u32; 3]>,
    /// Load of each rank in per cent; 255 if it is not known.
    pub loads: Vec<u8>,
}

/// A job as JSON.
#[derive(Serialize)]
struct JobText<'a> {
    job: u64,
    name: &'a str,
    idle: bool,
    parts: &'a [[u32; 3]],
    /// Two hexadecimal digits for each rank.
    loads: String,
}

#[derive(Serialize)]
struct PictureText<'a> {
    number: u64,
    at_ms: u64,
    cluster_us: u64,
    queued: usize,
    nodes: Vec<NodePicture>,
    jobs: Vec<JobText<'a>>,
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

impl Picture {
    /// Whether a user sees that there is a job of another.
    fn sees(&self, viewer: &User, owner: &User) -> bool {
        self.open || self.owns(viewer, owner)
    }

    /// Whether a user sees all of a job.
    fn owns(&self, viewer: &User, owner: &User) -> bool {
        self.owns_all(viewer) || owner.is_same(viewer)
    }

    /// Whether a user sees all of all jobs.
    fn owns_all(&self, viewer: &User) -> bool {
        viewer.uid == 0 || viewer.uid == self.owner_uid
    }

    /// The picture as JSON for a user.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn text(&self, viewer: &User, slices: bool) -> Result<Arc<str>, serde_json::Error> {
        if !(self.owns_all(viewer) || (self.open && self.named)) {
            return self.make(viewer, slices);
        }
        let cache = &self.texts.0[usize::from(slices)];
        match cache.get() {
            Some(text) => Ok(Arc::clone(text)),
            None => {
                let text = self.make(viewer, slices)?;
                Ok(Arc::clone(cache.get_or_init(|| text)))
            }
        }
    }

    fn make(&self, viewer: &User, slices: bool) -> Result<Arc<str>, serde_json::Error> {
        let seen = |job: &&JobPicture| self.sees(viewer, &job.user);
        let all = self.open || self.owns_all(viewer);
        let shown: BTreeSet<u64> = self.jobs.iter().filter(seen).map(|job| job.job).collect();
        let node = |node: &NodePicture| {
            let mut node = node.clone();
            if !slices {
                node.slices.clear();
            }
            for slice in &mut node.slices {
                // Of jobs that are over nobody knows any more whose they were.
                slice.jobs.retain(|job| all || shown.contains(job));
            }
            node
        };
        let text = PictureText {
            number: self.number,
            at_ms: self.at_ms,
            cluster_us: self.cluster_us,
            queued: self.queued,
            nodes: self.nodes.iter().map(node).collect(),
            jobs: self
                .jobs
                .iter()
                .filter(seen)
                .map(|job| JobText {
                    job: job.job,
                    name: if self.named || self.owns(viewer, &job.user) { &job.name } else { "-" },
                    idle: job.idle,
                    parts: &job.parts,
                    loads: hex(&job.loads),
                })
                .collect(),
        };
        Ok(serde_json::to_string(&text)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32) -> User {
        User { uid, gid: uid, name: String::new() }
    }

    fn picture(open: bool) -> Picture {
        let job = |job, uid| JobPicture {
            job,
            user: user(uid),
            name: format!("name{job}"),
            idle: false,
            parts: vec![[0, 0, 2]],
            loads: vec![0, 255],
        };
        let slices = vec![SlicePicture { at_us: 10, jobs: vec![6, 7, 8] }];
        Picture {
            open,
            named: open,
            owner_uid: 50,
            nodes: vec![NodePicture { slices, ..NodePicture::default() }],
            jobs: vec![job(7, 1000), job(8, 1001)],
            ..Picture::default()
        }
    }

    fn text(picture: &Picture, uid: u32, slices: bool) -> serde_json::Value {
        serde_json::from_str(&picture.text(&user(uid), slices).unwrap()).unwrap()
    }

    #[test]
    fn loads_are_two_digits_each() {
        let all = text(&picture(true), 1000, false);
        assert_eq!(all["jobs"][0]["loads"], "00ff");
        assert_eq!(
            (all["jobs"].as_array().unwrap().len(), &all["jobs"][1]["name"]),
            (2, &"name8".into())
        );
        assert_eq!(all["nodes"][0].get("slices"), None);
        assert_eq!(text(&picture(true), 1000, true)["nodes"][0]["slices"][0]["at_us"], 10);
    }

    #[test]
    fn others_jobs_are_nowhere_if_they_are_hidden() {
        let closed = picture(false);
        let own = text(&closed, 1001, true);
        assert_eq!(own["jobs"].as_array().unwrap().len(), 1);
        assert_eq!(own["nodes"][0]["slices"][0]["jobs"], serde_json::json!([8]));
        assert!(!own.to_string().contains("name7"));
        for uid in [0, 50] {
            let whole = text(&closed, uid, true);
            assert_eq!(whole["nodes"][0]["slices"][0]["jobs"], serde_json::json!([6, 7, 8]));
            assert_eq!(text(&closed, uid, true)["jobs"].as_array().unwrap().len(), 2);
        }
        assert_eq!(text(&closed, 1002, true)["jobs"], serde_json::json!([]));
        let nameless = Picture { named: false, ..picture(true) };
        let seen = text(&nameless, 1001, true);
        assert_eq!([&seen["jobs"][0]["name"], &seen["jobs"][1]["name"]], ["-", "name8"]);
    }
}
