//! Devices of a node: the key `devices` of its table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use kumi_control::head::MOST_DEVICE_NAMES;
use serde::{Deserialize, Serialize};

use super::{ConfigError, invalid};

/// Most devices of one name on a node.
const MOST: u32 = 1_024;

/// Devices of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DeviceList {
    /// So many, numbered from 0.
    Count(u32),
    /// The file of each.
    Files(Vec<PathBuf>),
}

impl DeviceList {
    /// How many there are.
    pub fn count(&self) -> u32 {
        match self {
            Self::Count(count) => *count,
            Self::Files(files) => u32::try_from(files.len()).unwrap_or(u32::MAX),
        }
    }
}

/// Checks the devices of a node.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_devices(devices: &BTreeMap<String, DeviceList>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (name, list) in devices {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if name.is_empty() || name.len() > 32 || !name.bytes().all(good) {
            return Err(format!(
                "{name:?} is not a name of devices; use 1 to 32 of a-z, 0-9 and _"
            ));
        }
        if !(1..=MOST).contains(&list.count()) {
            return Err(format!("{} devices {name} are not between 1 and {MOST}", list.count()));
        }
        let DeviceList::Files(files) = list else { continue };
        for file in files {
            let text = file.display();
            // A comma stands between files in what ranks are told.
            if !file.is_absolute() || text.to_string().contains([',', ' ', '\n']) {
                return Err(format!("{text} is not the path of a device, as /dev/{name}0"));
            }
            if !seen.insert(file) {
                return Err(format!("the device {text} is there twice"));
            }
        }
    }
    Ok(())
}

/// Checks how many names the devices of all nodes have.
pub(super) fn check_names<'a>(
    nodes: impl Iterator<Item = &'a BTreeMap<String, DeviceList>>,
) -> Result<(), ConfigError> {
    let names: BTreeSet<&String> = nodes.flat_map(BTreeMap::keys).collect();
    if names.len() > MOST_DEVICE_NAMES {
        return invalid(format!(
            "devices have {} names, and a cluster may have {MOST_DEVICE_NAMES}; give devices of one kind one name",
            names.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::ClusterConfig;
    use super::super::tests::{GOOD, parse};

    #[test]
    fn devices_are_counts_or_files() {
        let with = |text: &str| parse(&GOOD.replace("cpus = [0]", &format!("devices = {text}")));
        let config = with("{ fpga = 2, gpu = [\"/dev/a0\", \"/dev/a1\", \"/dev/a2\"] }").unwrap();
        let devices = &config.nodes[0].devices;
        assert_eq!((devices["fpga"].count(), devices["gpu"].count()), (2, 3));
        assert!(config.nodes[1].devices.is_empty());
        let dir = tempfile::tempdir().unwrap();
        config.save(dir.path()).unwrap();
        assert_eq!(ClusterConfig::load(dir.path()).unwrap(), config);
        for (text, says) in [
            ("{ Gpu = 1 }", "not a name"),
            ("{ gpu = 0 }", "not between 1 and 1024"),
            ("{ gpu = [] }", "not between 1 and 1024"),
            ("{ gpu = [\"nvidia0\"] }", "as /dev/gpu0"),
            ("{ gpu = [\"/dev/a,b\"] }", "as /dev/gpu0"),
            ("{ a = [\"/dev/x\"], b = [\"/dev/x\"] }", "twice"),
            ("{ gpu = \"all\" }", "line"),
            (
                "{ a = 1, b = 1, c = 1, d = 1, e = 1, f = 1, g = 1, h = 1 }",
                "8 names, and a cluster may have 7",
            ),
        ] {
            let error = with(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
