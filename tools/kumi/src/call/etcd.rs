//! Options of a metaserver that is one of several, with their state in etcd.

use crate::error::Error;
use crate::parse;
use clap::Args;
use kumi_call::meta::Etcd;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `kumi call meta` for etcd.
#[derive(Clone, Debug, Args)]
pub struct EtcdArgs {
    /// Keep the state in etcd, together with other metaservers of which one leads: http[s]://HOST:PORT[,…]
    #[arg(long, value_name = "URL", value_delimiter = ',', conflicts_with = "state")]
    pub etcd: Vec<String>,
    /// Prefix of all keys. Metaservers with the same prefix are one set
    #[arg(long, value_name = "PREFIX", default_value = "/kumi/call", requires = "etcd")]
    pub etcd_prefix: String,
    /// User name at etcd
    #[arg(long, value_name = "NAME", requires_all = ["etcd", "etcd_password_file"])]
    pub etcd_user: Option<String>,
    /// File with the user's password
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,
    /// PEM file with the authorities to trust for https [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "etcd")]
    pub etcd_cacert: Option<PathBuf>,
    /// Client certificate (PEM) of this metaserver
    #[arg(long, value_name = "FILE", requires_all = ["etcd", "etcd_key"])]
    pub etcd_cert: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
    /// Whole seconds after which another metaserver takes over from a leader that has gone
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse::duration, requires = "etcd")]
    pub etcd_lease: Duration,
    /// Address of this metaserver for clients and servers [default: that of --listen]
    #[arg(long, value_name = "ADDR", requires = "etcd")]
    pub advertise: Option<String>,
}

/// Bounds of a lease in seconds. etcd itself extends shorter ones.
const LEASES: std::ops::RangeInclusive<u64> = 2..=600;

impl EtcdArgs {
    /// The settings of these options for a metaserver at this address. `None`: there is only one metaserver.
    pub fn settings(&self, listen: &str, at: Option<SocketAddr>) -> Result<Option<Etcd>, Error> {
        if self.etcd.is_empty() {
            return Ok(None);
        }
        if self.etcd_lease.subsec_nanos() != 0 || !LEASES.contains(&self.etcd_lease.as_secs()) {
            let text = "--etcd-lease must be 2 to 600 whole seconds".to_owned();
            return Err(Error::Usage(text));
        }
        let advertise = match (&self.advertise, at) {
            (Some(address), _) => address.clone(),
            (None, None) => listen.to_owned(),
            (None, Some(at)) if !at.ip().is_unspecified() => at.to_string(),
            (None, Some(at)) => {
                let text = format!(
                    "{at} is not an address that others can use: give --advertise HOST:PORT"
                );
                return Err(Error::Usage(text));
            }
        };
        let password = match &self.etcd_password_file {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path)
                .map_err(|source| Error::File { doing: "read", path: path.clone(), source })?
                .trim_end_matches(['\r', '\n'])
                .to_owned(),
        };
        Ok(Some(Etcd {
            endpoints: self.etcd.clone(),
            prefix: self.etcd_prefix.trim_end_matches('/').to_owned(),
            user: self.etcd_user.clone().unwrap_or_default(),
            password,
            ca: self.etcd_cacert.clone(),
            identity: self.etcd_cert.clone().zip(self.etcd_key.clone()),
            lease: self.etcd_lease,
            advertise,
            ..Etcd::default()
        }))
    }
}
