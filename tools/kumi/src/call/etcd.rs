//! Options of a metaserver that is one of several.

use crate::error::Error;
use crate::parse;
use clap::Args;
use kumi_call::meta::Etcd;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `kumi call meta` that have to do with etcd.
#[derive(Clone, Debug, Args)]
pub struct EtcdArgs {
    /// Keep the state in etcd, with other metaservers of which one leads: http[s]://HOST:PORT[,…]
    #[arg(long, value_name = "URL", value_delimiter = ',', conflicts_with = "state")]
    pub etcd: Vec<String>,
    /// What all keys begin with; metaservers with the same are one set
    #[arg(long, value_name = "PREFIX", default_value = "/kumi/call", requires = "etcd")]
    pub etcd_prefix: String,
    /// Who this is at etcd
    #[arg(long, value_name = "NAME", requires_all = ["etcd", "etcd_password_file"])]
    pub etcd_user: Option<String>,
    /// The file with the user's password
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,
    /// Certificates (PEM) of the authorities to trust for https [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "etcd")]
    pub etcd_cacert: Option<PathBuf>,
    /// A certificate (PEM) by which this metaserver proves who it is
    #[arg(long, value_name = "FILE", requires_all = ["etcd", "etcd_key"])]
    pub etcd_cert: Option<PathBuf>,
    /// The certificate's key
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
    /// After how long another leads when the leader has gone, in whole seconds
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse::duration, requires = "etcd")]
    pub etcd_lease: Duration,
    /// The address at which clients and servers reach this metaserver [default: that of --listen]
    #[arg(long, value_name = "ADDR", requires = "etcd")]
    pub advertise: Option<String>,
}

/// Bounds of a lease, in seconds: etcd itself makes shorter ones longer.
const LEASES: std::ops::RangeInclusive<u64> = 2..=600;

impl EtcdArgs {
    /// What they say, for a metaserver that listens there; `None`: there is one metaserver.
    pub fn settings(&self, listen: &str, at: Option<SocketAddr>) -> Result<Option<Etcd>, Error> {
        if self.etcd.is_empty() {
            return Ok(None);
        }
        if self.etcd_lease.subsec_nanos() != 0 || !LEASES.contains(&self.etcd_lease.as_secs()) {
            let text = "--etcd-lease is to be 2 to 600 whole seconds".to_owned();
            return Err(Error::Usage(text));
        }
        let advertise = match (&self.advertise, at) {
            (Some(address), _) => address.clone(),
            (None, None) => listen.to_owned(),
            (None, Some(at)) if !at.ip().is_unspecified() => at.to_string(),
            (None, Some(at)) => {
                let text = format!(
                    "{at} is no address that others could be told: give --advertise HOST:PORT"
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
        }))
    }
}
