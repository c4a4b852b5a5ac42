//! `kumi cluster revoke` and `kumi cluster rotate`: certificates of daemons that are believed no more, and new ones.

use super::daemons::Daemon;
use super::directory::DirectoryLock;
use super::{down, remote_hosts};
use crate::cli::{RevokeArgs, RotateArgs};
use crate::context::Context;
use crate::error::Error;
use crate::output;
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_node::config::ClusterConfig;
use kumi_node::exit::Failure;
use kumi_node::tls::{self, Identity};
use kumi_sched::NodeId;

/// Seconds of a day.
const DAY: i64 = 86_400;
/// Certificates that end in fewer days are named.
const SOON: i64 = 30;

/// The daemon that somebody means: `head`, or a node's name or number.
fn daemon(config: &ClusterConfig, text: &str) -> Result<Daemon, Error> {
    if text == "head" {
        return Ok(Daemon::Head);
    }
    let named = config.members().find(|(_, node)| node.name == text).map(|(number, _)| number);
    let number = text.parse().ok().map(NodeId);
    let numbered = number.filter(|&number| config.node(number).is_ok());
    named.or(numbered).map(Daemon::Node).ok_or_else(|| {
        Error::Usage(format!(
            "the cluster {} has no node {text}; `kumi cluster status` lists its nodes",
            config.name
        ))
    })
}

/// Has the head and all nodes refuse the certificates of a node.
pub async fn revoke(context: &Context, args: &RevokeArgs) -> Result<(), Error> {
    let config = context.config()?;
    let Daemon::Node(node) = daemon(&config, &args.node)? else {
        return Err(Error::Usage(
            "the head's certificate cannot be revoked: nobody could tell the nodes; make a new \
             cluster after `kumi cluster destroy`"
                .to_owned(),
        ));
    };
    let title = Daemon::Node(node).title(&config);
    let mut client = context.connect().await?;
    match client.ask(&ClientRequest::Revoke { node }).await? {
        ClientReply::Done => {}
        other => return Err(Error::unexpected(&other)),
    }
    output::text(&format!(
        "certificates of {title} are refused from now on\nGive it a new one:  kumi cluster rotate {node}\n"
    ))
}

/// Makes new certificates and keys, and has the daemons of this machine use them.
pub fn rotate(context: &Context, args: &RotateArgs) -> Result<(), Error> {
    let config = context.config()?;
    down::check_owner(&config, "make new certificates")?;
    let _claim = DirectoryLock::new(context)?;
    let daemons = if args.daemons.is_empty() {
        Daemon::all(&config)
    } else {
        args.daemons.iter().map(|text| daemon(&config, text)).collect::<Result<_, _>>()?
    };
    let identities: Vec<Identity> = daemons.iter().map(|&daemon| identity(daemon)).collect();
    tls::renew(context.dir(), &config.name, &identities, args.days)
        .map_err(|error| Error::Failure(Failure::from(error)))?;
    let here = remote_hosts::daemons_here(&config)?;
    let mut text = String::new();
    for daemon in daemons {
        let title = daemon.title(&config);
        if here.contains(&daemon) {
            let uses = match daemon.reload(context.dir()) {
                true => "uses it",
                false => "does not run here and uses it when it starts",
            };
            text.push_str(&format!("{title} has a new certificate and {uses}\n"));
        } else {
            text.push_str(&remote_hosts::for_new_certificate(context, &config, daemon));
        }
    }
    output::text(&text)
}

fn identity(daemon: Daemon) -> Identity {
    match daemon {
        Daemon::Head => Identity::Head,
        Daemon::Node(node) => Identity::Node(node),
    }
}

/// A sentence for each certificate on this machine that ends soon.
pub fn warnings(context: &Context, now_ms: u64) -> Vec<String> {
    let now = i64::try_from(now_ms / 1000).unwrap_or(i64::MAX);
    tls::ends(context.dir())
        .into_iter()
        .filter_map(|(name, until)| warning(&name, until - now))
        .collect()
}

fn warning(name: &str, left: i64) -> Option<String> {
    let remedy = match name {
        "ca" => "make a new cluster before: nothing that it has signed is believed then",
        _ => "make a new one with `kumi cluster rotate`",
    };
    match left.div_euclid(DAY) {
        days if days >= SOON => None,
        days if days < 0 => Some(format!("the certificate tls/{name}.pem has ended; {remedy}")),
        days => Some(format!("the certificate tls/{name}.pem ends in {days} days; {remedy}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_told_a_month_before() {
        assert_eq!(warning("head", SOON * DAY), None);
        let soon = warning("head", SOON * DAY - 1).unwrap();
        assert_eq!(
            soon,
            "the certificate tls/head.pem ends in 29 days; make a new one with `kumi cluster rotate`"
        );
        assert!(warning("node-3", -1).unwrap().contains("has ended"));
        assert!(warning("ca", 0).unwrap().contains("new cluster"));
    }

    #[test]
    fn daemons_have_names_and_numbers() {
        let text = "name = \"lab\"\nkind = \"hosts\"\nhead = \"192.0.2.1:7700\"\n[[nodes]]\nname = \
                    \"alpha\"\naddress = \"192.0.2.1\"\nport = 7701\n";
        let config = ClusterConfig::parse(text, std::path::Path::new("cluster.toml")).unwrap();
        assert_eq!(daemon(&config, "head").unwrap(), Daemon::Head);
        for node in ["alpha", "0"] {
            assert_eq!(daemon(&config, node).unwrap(), Daemon::Node(NodeId(0)));
        }
        assert_eq!(daemon(&config, "1").unwrap_err().exit_code(), 64);
    }
}
