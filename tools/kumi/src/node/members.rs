//! `kumi node add` and `kumi node remove`.

use super::find;
use crate::cluster::{configuration, host_instructions, joining, remote_hosts};
use crate::context::Context;
use crate::error::Error;
use crate::{hosts, output};
use clap::Args;
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_node::config::NodeConfig;
use kumi_node::exit::Failure;
use kumi_node::paths;
use kumi_node::tls::{self, DAEMON_DAYS, Identity};
use kumi_sched::NodeId;
use std::time::Duration;

/// `kumi node add`
#[derive(Clone, Debug, Args)]
pub struct AddArgs {
    /// Name of the node
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Its address or host name, as in a host file
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub address: String,
    /// A further address or name at which its daemon is reached; may be given several times
    #[arg(long, value_name = "HOST[:PORT]", value_parser = word)]
    pub also: Vec<String>,
    /// Look up a host name as one of IPv6
    #[arg(long)]
    pub ipv6: bool,
    /// Processors that ranks may use, as `0-3,8` [default: all]
    #[arg(long, value_name = "LIST", value_parser = word)]
    pub cpus: Option<String>,
    /// Users whose clients the head accepts through it: names, numbers or any
    #[arg(long, value_name = "LIST", value_parser = word)]
    pub users: Option<String>,
    /// Memory that ranks may use, as `64GiB`
    #[arg(long, value_name = "SIZE", value_parser = word)]
    pub memory: Option<String>,
    /// Devices for ranks, as `gpu:2` or `gpu:/dev/nvidia0,/dev/nvidia1`; may be given several times
    #[arg(long, value_name = "NAME:LIST", value_parser = word)]
    pub devices: Vec<String>,
    /// Print a token with which its machine joins; its key is then made there
    #[arg(long)]
    pub token: bool,
    /// How long the token counts, as `2h` or `7d`
    #[arg(long, value_name = "TIME", default_value = "24h", requires = "token", value_parser = joining::validity)]
    pub valid: Duration,
}

/// `kumi node remove`
#[derive(Clone, Debug, Args)]
pub struct RemoveArgs {
    /// The node: its name or number
    #[arg(value_name = "NODE")]
    pub node: String,
    /// End the jobs that are there; otherwise it is refused while there are any
    #[arg(long)]
    pub force: bool,
}

/// A value that is one word of a host file.
fn word(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == '#') {
        true => Err("give one word without spaces and #".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// The line of a host file that says the same.
fn line(args: &AddArgs) -> String {
    let options = [("cpus", &args.cpus), ("users", &args.users), ("memory", &args.memory)];
    let given = options.iter().filter_map(|(key, value)| Some((*key, value.as_ref()?)));
    let all = given.chain(args.devices.iter().map(|value| ("devices", value)));
    let words: String = all.map(|(key, value)| format!(" {key}={value}")).collect();
    format!("{} {}{words}", args.name, args.address)
}

/// The node as the configuration has it.
fn definition(args: &AddArgs, owner_uid: u32) -> Result<NodeConfig, Error> {
    let bad = Error::Usage;
    word(&args.name).and_then(|_| word(&args.address)).map_err(bad)?;
    let look_up = |name: &str| configuration::look_up(name, args.ipv6);
    let host = hosts::one(&line(args), &look_up).map_err(bad)?;
    let node = configuration::on_host(host, owner_uid);
    Ok(NodeConfig { addresses: args.also.clone(), ..node })
}

/// Adds a node to the running cluster.
pub async fn add(context: &Context, args: &AddArgs) -> Result<(), Error> {
    let owner_uid = context.config()?.owner_uid;
    let node = definition(args, owner_uid)?;
    let definition = toml::to_string(&node).map_err(|error| Error::Usage(error.to_string()))?;
    let mut client = context.connect().await?;
    let number = match client.ask(&ClientRequest::AddNode { definition }).await? {
        ClientReply::NodeAdded { node } => node,
        other => return Err(Error::unexpected(&other)),
    };
    let name = &node.name;
    output::text(&format!("{name} is node {number} of the cluster\n"))?;
    let next = if args.token {
        joining::issue(&mut client, (number, name), args.valid).await.inspect_err(|_| {
            output::note(&format!("no token was made; `kumi cluster token {name}` makes one"));
        })?
    } else {
        certificate(context, &node, number)?
    };
    output::text(&next)
}

/// Makes the node's certificate, if the authority is here. Returns what is to be done next.
fn certificate(context: &Context, node: &NodeConfig, number: NodeId) -> Result<String, Error> {
    let name = &node.name;
    if !paths::tls(context.dir()).join("ca.key").exists() {
        return Ok(format!(
            "{name} needs a certificate: run `kumi cluster rotate {name}` where the cluster was made, with the head's cluster.toml\n"
        ));
    }
    add_if_missing(context, node, number)?;
    tls::renew(context.dir(), &context.name, &[Identity::Node(number)], DAEMON_DAYS)
        .map_err(|error| Error::Failure(Failure::from(error)))?;
    Ok(host_instructions::after_add(context, (number, node), &remote_hosts::own_addresses()?))
}

/// Puts the node into cluster.toml here, if the head that leads has it in the file of another host only.
fn add_if_missing(context: &Context, node: &NodeConfig, number: NodeId) -> Result<(), Error> {
    let config = context.config()?;
    if config.state.is_some() && config.node_count() == number.0 {
        config.add_node(context.dir(), node.clone())?;
    }
    Ok(())
}

/// Removes a node from the running cluster.
pub async fn remove(context: &Context, args: &RemoveArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let before = client.status(0).await?;
    let node = find(&before, &args.node)?;
    match client.ask(&ClientRequest::RemoveNode { node, force: args.force }).await? {
        ClientReply::Done => {}
        other => return Err(Error::unexpected(&other)),
    }
    let name = before.nodes.iter().find(|status| status.node == node).map(|status| &*status.name);
    output::text(&format!(
        "{} is no node of the cluster any more, and its certificates are refused\n\
         Stop its daemon there: systemctl disable --now kumid-node@{node}.service\n",
        crate::table::printable(name.unwrap_or_default())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_node::config::DeviceList;

    fn args(address: &str) -> AddArgs {
        AddArgs {
            name: "gamma".into(),
            address: address.into(),
            also: vec!["gamma.example".into()],
            ipv6: false,
            cpus: Some("0-1".into()),
            users: None,
            memory: Some("2GiB".into()),
            devices: vec!["gpu:2".into(), "fpga:1".into()],
            token: false,
            valid: Duration::from_secs(86_400),
        }
    }

    #[test]
    fn options_say_what_a_line_of_a_host_file_does() {
        let node = definition(&args("[fd00::7]:9000"), 0).unwrap();
        assert_eq!(node.endpoint().to_string(), "[fd00::7]:9000");
        assert_eq!((&node.cpus[..], node.memory.as_deref()), (&[0, 1][..], Some("2GiB")));
        assert_eq!(node.devices["gpu"], DeviceList::Count(2));
        assert_eq!(node.addresses, ["gamma.example"]);
        assert_eq!((node.devices.len(), node.users, node.removed), (2, None, false));
        assert_eq!(definition(&args("10.0.0.3"), 7).unwrap().users, Some(vec!["7".to_owned()]));
    }

    #[test]
    fn what_cannot_be_is_a_wrong_command_line() {
        for address in ["0.0.0.0", "10.0.0.300", "10.0.0.3 users=any", ""] {
            assert_eq!(definition(&args(address), 0).unwrap_err().exit_code(), 64, "{address}");
        }
        let wrong = AddArgs { cpus: Some("3-1".into()), ..args("10.0.0.3") };
        let error = definition(&wrong, 0).unwrap_err();
        assert!(error.to_string().contains("3-1"), "{error}");
        assert!(word("a b").is_err() && word("#").is_err() && word("x").is_ok());
    }
}
