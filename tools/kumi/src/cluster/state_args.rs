//! Options of a cluster whose state is in etcd.

use crate::error::Error;
use crate::hosts::HEAD_PORT;
use crate::parse;
use clap::Args;
use kumi_node::config::{ClusterConfig, ClusterKind, EtcdAccess};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the head's state is, and how many heads there are.
#[derive(Clone, Debug, Default, Args)]
pub struct StateArgs {
    /// Keep the table of jobs in etcd, version 3.4 or newer: etcd://HOST[:PORT],…; in a file if not given
    #[arg(long, value_name = "URL")]
    pub state: Option<String>,
    /// Heads on the first N hosts, of which one leads
    #[arg(long, value_name = "N", requires_all = ["state", "hosts"],
          value_parser = clap::value_parser!(u8).range(1..=16))]
    pub heads: Option<u8>,
    /// PEM file with the authorities that signed etcd's certificates, on each machine with a head
    #[arg(long, value_name = "FILE", requires = "state")]
    pub etcd_ca: Option<PathBuf>,
    /// Certificate (PEM) that heads show to etcd
    #[arg(long, value_name = "FILE", requires_all = ["etcd_ca", "etcd_key"])]
    pub etcd_cert: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
    /// User name at etcd
    #[arg(long, value_name = "NAME", requires_all = ["state", "etcd_password_file"])]
    pub etcd_user: Option<String>,
    /// File with the user's password, on each machine with a head
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,
    /// Whole seconds after which another head leads when the leading one is gone, 2s to 60s; 3s if not given, 30s with one head
    #[arg(long, value_name = "TIME", requires = "state", value_parser = parse::duration)]
    pub etcd_lease: Option<Duration>,
}

/// Daemons run in other folders, where a relative name would mean another file.
fn absolute(path: Option<&Path>) -> Result<Option<PathBuf>, Error> {
    let found = |path: &Path| {
        std::path::absolute(path).map_err(|source| Error::File {
            doing: "find",
            path: path.to_owned(),
            source,
        })
    };
    path.map(found).transpose()
}

impl StateArgs {
    /// Sets what the options say, and checks the whole.
    ///
    /// # Errors
    /// They do not fit the hosts, or each other.
    pub fn fill(&self, mut config: ClusterConfig) -> Result<ClusterConfig, Error> {
        config.state.clone_from(&self.state);
        let lease_s = match self.etcd_lease {
            Some(lease) if lease.subsec_nanos() != 0 => {
                return Err(Error::Usage("--etcd-lease takes whole seconds".to_owned()));
            }
            lease => lease.map(|lease| lease.as_secs()),
        };
        config.etcd = EtcdAccess {
            ca: absolute(self.etcd_ca.as_deref())?,
            certificate: absolute(self.etcd_cert.as_deref())?,
            key: absolute(self.etcd_key.as_deref())?,
            user: self.etcd_user.clone(),
            password_file: absolute(self.etcd_password_file.as_deref())?,
            prefix: None,
            lease_s,
            standby_patience_ms: None,
        };
        let count = self.heads.map_or(0, usize::from);
        if count > 0 && config.kind != ClusterKind::Hosts || count > config.nodes.len() {
            let text = format!("--heads {count} needs that many hosts in the file of --hosts");
            return Err(Error::Usage(text));
        }
        let head = |address| SocketAddr::new(address, HEAD_PORT);
        config.heads = config.nodes[..count].iter().map(|node| head(node.address)).collect();
        config.validate()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        state: StateArgs,
        #[arg(long)]
        hosts: bool,
    }

    fn config() -> ClusterConfig {
        let text = "name = \"lab\"\nkind = \"hosts\"\nhead = \"192.0.2.1:7700\"\n\
                    [[nodes]]\nname = \"a\"\naddress = \"192.0.2.1\"\nport = 7701\n\
                    [[nodes]]\nname = \"b\"\naddress = \"192.0.2.2\"\nport = 7701\n";
        ClusterConfig::parse(text, Path::new("cluster.toml")).unwrap()
    }

    fn filled(words: &str) -> Result<ClusterConfig, String> {
        let words = ["kumi"].into_iter().chain(words.split_whitespace());
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        command.state.fill(config()).map_err(|error| error.to_string())
    }

    #[test]
    fn heads_are_on_the_first_hosts() {
        let two = filled("--hosts --state etcd://x,y:1 --heads 2 --etcd-lease 5s").unwrap();
        assert_eq!(two.state.as_deref(), Some("etcd://x,y:1"));
        let heads: Vec<String> = two.heads.iter().map(ToString::to_string).collect();
        assert_eq!(heads, ["192.0.2.1:7700", "192.0.2.2:7700"]);
        assert_eq!(two.etcd.lease_s, Some(5));
        let tls = "--hosts --state etcd://x --etcd-ca ca --etcd-cert /c --etcd-key /k";
        let etcd = filled(tls).unwrap().etcd;
        assert!(etcd.ca.unwrap().is_absolute());
        assert_eq!((etcd.certificate, etcd.key), (Some("/c".into()), Some("/k".into())));
        assert_eq!(filled("").unwrap(), config());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (words, said) in [
            ("--hosts --heads 2", "--state"),
            ("--state etcd://x --heads 2", "--hosts"),
            ("--hosts --state etcd://x --heads 3", "that many hosts"),
            ("--state http://x", "etcd://HOST:PORT"),
            ("--state etcd://x --etcd-lease 1500ms", "whole seconds"),
            ("--state etcd://x --etcd-lease 1s", "lease_s"),
            ("--state etcd://x --etcd-cert c --etcd-key k", "--etcd-ca"),
            ("--state etcd://x --etcd-user u", "--etcd-password-file"),
        ] {
            let error = filled(words).unwrap_err();
            assert!(error.contains(said), "{words}: {error}");
        }
    }
}
