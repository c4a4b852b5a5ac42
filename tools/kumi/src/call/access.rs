//! Options for tokens and certificates.

use crate::context::Context;
use crate::error::Error;
use clap::Args;
use kumi_call::users::Users;
use kumi_call::{Options, Tls};
use kumi_node::log::{self, LevelFilter};
use kumi_node::tls;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A secret that is never printed.
#[derive(Clone)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("…")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text)
    }
}

/// Identity of a client, and the authorities that it trusts.
#[derive(Clone, Debug, Args)]
pub struct AccessArgs {
    /// Token that identifies the caller. Everybody on this machine can see it here, so prefer --token-file
    #[arg(long, value_name = "TOKEN", env = "KUMI_CALL_TOKEN", hide_env_values = true)]
    pub token: Option<Secret>,
    /// File with the token; takes precedence over --token
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// For a server at tls://HOST:PORT: PEM file with the certificates of the trusted authorities, instead of
    /// those that the system trusts
    #[arg(long, value_name = "FILE", env = "KUMI_CALL_CA")]
    pub ca: Option<PathBuf>,
}

impl AccessArgs {
    /// The connection options.
    pub fn options(&self) -> Result<Options, Error> {
        let token = match &self.token_file {
            Some(path) => std::fs::read_to_string(path).map_err(|source| Error::File {
                doing: "read",
                path: path.clone(),
                source,
            })?,
            None => self.token.as_ref().map_or_else(String::new, |secret| secret.0.clone()),
        };
        let token = token.trim().to_owned();
        Ok(Options { token, ca: self.ca.clone(), ..Options::default() })
    }
}

/// Access to a server or metaserver, and encryption.
#[derive(Clone, Debug, Args)]
pub struct GuardArgs {
    /// Admit only users of this file, made by `kumi call token`. The file is read again when it changes
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Encrypt with this certificate and its intermediate certificates (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with = "tls_cluster")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Encrypt with a certificate that the cluster's authority (--cluster) makes now. Clients trust the
    /// cluster's tls/ca.pem
    #[arg(long)]
    pub tls_cluster: bool,
    /// Another name or address by which clients call this server; repeatable
    #[arg(long, value_name = "NAME", requires = "tls_cluster")]
    pub tls_name: Vec<String>,
}

/// Names and addresses of this machine.
fn own_names(listen: Option<SocketAddr>, more: &[String]) -> Vec<String> {
    let mut names: BTreeSet<String> = more.iter().cloned().collect();
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    names.extend(nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()));
    match listen.map(|at| at.ip()) {
        Some(ip) if !ip.is_unspecified() => _ = names.insert(ip.to_string()),
        _ => names.extend(own_addresses().iter().map(IpAddr::to_string)),
    }
    names.into_iter().collect()
}

/// The addresses of all interfaces.
fn own_addresses() -> Vec<IpAddr> {
    let Ok(found) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let address = |interface: nix::ifaddrs::InterfaceAddress| {
        let storage = interface.address?;
        let v4 = storage.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    found.filter_map(address).collect()
}

impl GuardArgs {
    /// Whether connections are encrypted.
    pub fn encrypts(&self) -> bool {
        self.tls_cluster || self.tls_cert.is_some()
    }

    /// The reason why other machines must not reach it without further options. `knows`: it identifies
    /// callers without a user file.
    pub fn gap(&self, knows: bool) -> Option<&'static str> {
        match (knows || self.tokens.is_some(), self.encrypts()) {
            (true, true) => None,
            (true, false) => Some("tokens and arrays can be read on the way"),
            (false, true) => Some("nobody knows who calls"),
            (false, false) => Some("whoever reaches it can call"),
        }
    }

    /// The users of the file, if one is given.
    pub fn users(&self) -> Result<Option<Arc<Users>>, Error> {
        let users = self.tokens.as_ref().map(|path| Users::open(path));
        Ok(users.transpose()?.map(Arc::new))
    }

    /// Certificate and key, if connections are to be encrypted.
    pub fn tls(&self, cluster: &str, listen: Option<SocketAddr>) -> Result<Option<Tls>, Error> {
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            return Ok(Some(Tls::load(certificate, key)?));
        }
        if !self.tls_cluster {
            return Ok(None);
        }
        let context = Context::new(cluster)?;
        of_cluster(&context, own_names(listen, &self.tls_name)).map(Some)
    }
}

fn of_cluster(context: &Context, names: Vec<String>) -> Result<Tls, Error> {
    let dir: &Path = context.dir();
    let (certificate, key) =
        tls::issue(dir, &context.config()?.name, names).map_err(kumi_node::exit::Failure::from)?;
    Ok(Tls::of(&certificate, &key)?)
}

/// Sends the server's log to standard error. Callers hear of the end of a call when the log has what its routine printed.
pub fn log() {
    log::start_in_step(LevelFilter::WARN, &[("kumi_call::routine", LevelFilter::INFO)]);
}
