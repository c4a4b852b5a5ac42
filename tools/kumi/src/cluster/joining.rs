//! `kumi cluster token` and `kumi cluster join`: a machine becomes a node, and its key is made there.

use super::directory::DirectoryLock;
use super::host_instructions;
use super::remote_hosts::{is_own, own_addresses};
use crate::context::Context;
use crate::error::Error;
use crate::interrupts;
use crate::node::find_node;
use crate::terminal::hidden_line::{self, HiddenLine};
use crate::{output, parse};
use clap::Args;
use kumi_control::join::{JoinToken, LONGEST_TOKEN, TokenError, check_validity};
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_node::client::Client;
use kumi_node::config::NodeConfig;
use kumi_node::exit::Failure;
use kumi_node::join::{self, JoinError};
use kumi_node::paths;
use kumi_sched::NodeId;
use nix::sys::signal::Signal;
use std::io::{self, BufRead, IsTerminal, Read};
use std::time::Duration;

/// `kumi cluster token`
#[derive(Clone, Debug, Args)]
pub struct TokenArgs {
    /// The node that a machine is to be: its name or number
    #[arg(value_name = "NODE")]
    pub node: String,
    /// How long the token counts, as `2h` or `7d`
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = validity)]
    pub valid: Duration,
}

/// `kumi cluster join`
#[derive(Clone, Debug, Args)]
pub struct JoinArgs {
    /// The token of `kumi node add --token` or `kumi cluster token`; `-` reads it from standard input, and asks for it on a
    /// terminal. As an argument all users of the machine see it while the command runs
    #[arg(value_name = "TOKEN")]
    pub token: String,
}

/// How long a token counts.
pub fn validity(text: &str) -> Result<Duration, String> {
    let time = parse::estimate(text).map_err(|error| error.to_string())?;
    check_validity(milliseconds(time)).map(|()| time)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Prints a token with which a machine becomes a node that is configured already.
pub async fn token(context: &Context, args: &TokenArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let (node, name) = find_node(&mut client, &args.node).await?;
    output::text(&issue(&mut client, (node, &name), args.valid).await?)
}

/// Has the head make a token. Returns what is to be done with it.
pub async fn issue(
    client: &mut Client,
    (node, name): (NodeId, &str),
    valid: Duration,
) -> Result<String, Error> {
    let valid_ms = milliseconds(valid);
    let token = match client.ask(&ClientRequest::JoinToken { node, valid_ms }).await? {
        ClientReply::JoinToken { token, .. } => token,
        other => return Err(Error::unexpected(&other)),
    };
    let left = crate::table::elapsed(valid_ms);
    Ok(format!(
        "On the machine that is to be {name}, on which Kumi is installed, as root and within {left}:\n\
         \x20 kumi cluster join -\n\
         It asks for the token, which is not shown there:\n\
         \x20 {token}\n\
         The token counts once. Whoever has it can be {name}: show it to nobody else.\n"
    ))
}

/// The token of the command line, or of the first line of standard input.
fn read_token(word: &str) -> Result<JoinToken, Error> {
    let text = match word {
        "-" if io::stdin().is_terminal() => typed_token()?,
        "-" => piped_token()?,
        word => word.to_owned(),
    };
    JoinToken::parse(&text).map_err(|error| failure(error.into()))
}

fn unreadable(error: &io::Error) -> Error {
    Error::Usage(format!("the token cannot be read from standard input: {error}"))
}

fn piped_token() -> Result<String, Error> {
    let most = u64::try_from(LONGEST_TOKEN).unwrap_or(u64::MAX).saturating_add(2);
    let mut line = String::new();
    let read = io::stdin().lock().take(most).read_line(&mut line);
    read.map_err(|error| unreadable(&error))?;
    Ok(line)
}

fn typed_token() -> Result<String, Error> {
    let question = "paste the token and press Enter; it is not shown";
    match hidden_line::read(question, LONGEST_TOKEN).map_err(|error| unreadable(&error))? {
        HiddenLine::Typed(line) => Ok(String::from_utf8_lossy(&line).into_owned()),
        HiddenLine::TooLong => Err(failure(TokenError::NotOne.into())),
        HiddenLine::Interrupted => Err(Error::Silent(interrupts::exit_code(Signal::SIGINT))),
    }
}

fn failure(error: JoinError) -> Error {
    Error::Failure(Failure::from(error))
}

/// Makes this machine the node of a token.
pub async fn join(args: &JoinArgs) -> Result<(), Error> {
    let token = read_token(&args.token)?;
    kumi_node::config::check_name(&token.cluster)?;
    let context = Context::new(&token.cluster)?;
    let lock = DirectoryLock::new(&context)?;
    if paths::config(context.dir()).exists() {
        return Err(Error::Exists {
            what: format!(
                "this machine has files of the cluster {} already, in {}",
                context.name,
                context.dir().display()
            ),
            advice:
                "if its node is to be another one, remove them with `kumi cluster destroy` before"
                    .to_owned(),
        });
    }
    let waiting = |error: &JoinError| {
        output::note(&format!(
            "{error}\nanother head may be about to lead: this goes on for some seconds"
        ));
    };
    let (node, config) = join::join(context.dir(), &token, waiting).await.map_err(|error| {
        if !error.may_have_joined() {
            lock.abandon();
        }
        failure(error)
    })?;
    let host = config.node(node)?;
    output::text(&joined(&context, (node, host)))?;
    if !is_own(host.address, &own_addresses()?) {
        output::note(&format!(
            "this machine does not have the address {} of {}: the daemon waits for it; if it is wrong, `kumi node remove {}` \
             and add the node again",
            host.address, host.name, host.name
        ));
    }
    Ok(())
}

fn joined(context: &Context, (node, host): (NodeId, &NodeConfig)) -> String {
    format!(
        "this machine is {} now, node {node} of the cluster {}; its files are in {}\n{}",
        host.name,
        context.name,
        context.dir().display(),
        host_instructions::start_here(context, node)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_checked_on_the_command_line() {
        assert_eq!(validity("2h"), Ok(Duration::from_secs(7_200)));
        for wrong in ["1s", "31d", "soon", ""] {
            assert!(validity(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_token_is_a_wrong_command_line() {
        for wrong in ["lab", "kumi-join-abc", ""] {
            assert_eq!(read_token(wrong).unwrap_err().exit_code(), 64, "{wrong}");
        }
    }
}
