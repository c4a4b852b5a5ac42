//! What users see of others' jobs: table `[privacy]` of cluster.toml.

use kumi_control::head;
use serde::{Deserialize, Serialize};

/// What users see of the jobs of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShowOthers {
    /// Name, user, program, nodes, state and times.
    #[default]
    All,
    /// Nodes, state and times.
    Jobs,
    /// Nothing.
    Nothing,
}

/// Privacy of users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Privacy {
    /// What users see of others' jobs: all but arguments and folders; no names and users; or nothing. Prometheus pages show
    /// the same, since they do not know who reads them.
    #[serde(default)]
    pub show_others: ShowOthers,
}

impl Privacy {
    pub(super) fn says_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl From<ShowOthers> for head::ShowOthers {
    fn from(show: ShowOthers) -> Self {
        match show {
            ShowOthers::All => Self::All,
            ShowOthers::Jobs => Self::Jobs,
            ShowOthers::Nothing => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, parse};
    use super::*;

    #[test]
    fn the_file_says_what_others_see() {
        let shown = |text: &str| parse(&format!("{GOOD}{text}")).map(|it| it.privacy.show_others);
        assert_eq!(shown("").unwrap(), ShowOthers::All);
        assert_eq!(shown("[privacy]\nshow_others = \"nothing\"\n").unwrap(), ShowOthers::Nothing);
        assert!(shown("[privacy]\nshow_others = \"some\"\n").is_err());
    }
}
