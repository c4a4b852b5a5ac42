//! PMI-2 in text: a length of six characters, then `name=value;` as often as it takes. A semicolon in a value is doubled.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::MalformedCommand;
use super::command::{Command, Reply};
use super::one::shortened;

/// Characters of the length before each message.
pub const LENGTH: usize = 6;
/// Longest message, in bytes.
pub const LONGEST: usize = 24 << 10;

/// The names and values of a message.
fn pairs(text: &str) -> Vec<(&str, String)> {
    let (mut all, mut rest) = (Vec::new(), text);
    while let Some((name, mut after)) = rest.split_once('=') {
        let mut value = String::new();
        loop {
            let Some((part, next)) = after.split_once(';') else {
                value += after;
                after = "";
                break;
            };
            value += part;
            after = next;
            match after.strip_prefix(';') {
                Some(doubled) => {
                    value.push(';');
                    after = doubled;
                }
                None => break,
            }
        }
        all.push((name, value));
        rest = after;
    }
    all
}

/// A message: the command, and the name of the thread that wants the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The command.
    pub command: Command,
    /// Comes back with the answer.
    pub thread: Option<String>,
}

/// The message in a text without its length.
///
/// # Errors
/// It is none that is known.
pub fn parse(text: &str) -> Result<Message, MalformedCommand> {
    let pairs = pairs(text);
    let value = |wanted: &str| {
        pairs.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.clone())
    };
    let needed = |wanted: &'static str| value(wanted).ok_or(MalformedCommand::Lacks(wanted));
    let is_true = |wanted: &str| value(wanted).is_some_and(|value| value == "TRUE");
    let command = match needed("cmd")?.as_str() {
        "fullinit" => Command::FullInit,
        "job-getid" => Command::SpaceName,
        "info-getjobattr" => Command::JobAttribute { key: needed("key")? },
        "info-putnodeattr" => Command::PutNode { key: needed("key")?, value: needed("value")? },
        "info-getnodeattr" => Command::GetNode { key: needed("key")?, wait: is_true("wait") },
        "kvs-put" => Command::Put { key: needed("key")?, value: needed("value")? },
        "kvs-get" => Command::Get { key: needed("key")? },
        "kvs-fence" => Command::Fence,
        "name-publish" => Command::Publish { name: needed("name")?, port: needed("port")? },
        "name-lookup" => Command::Lookup { name: needed("name")? },
        "name-unpublish" => Command::Unpublish { name: needed("name")? },
        "spawn" => Command::Spawn { last: true },
        "finalize" => Command::Finalize,
        "abort" => Command::Abort {
            code: value("exitcode").and_then(|code| code.parse().ok()).unwrap_or(1),
            message: value("msg").unwrap_or_default(),
        },
        other => return Err(MalformedCommand::Unknown(shortened(other))),
    };
    Ok(Message { command, thread: value("thrid") })
}

fn found(value: Option<&String>) -> String {
    match value {
        Some(value) => format!("found=TRUE;value={};rc=0;", value.replace(';', ";;")),
        None => "found=FALSE;rc=0;".into(),
    }
}

fn result(result: &Result<(), String>) -> String {
    match result {
        Ok(()) => "rc=0;".into(),
        Err(word) => format!("rc=-1;errmsg={word};"),
    }
}

/// A reply with its length.
#[must_use]
pub fn write(reply: &Reply, thread: Option<&str>) -> String {
    let (command, rest) = match reply {
        Reply::FullInit { rank, size } => {
            let rest = format!(
                "pmi-version=2;pmi-subversion=0;rank={rank};size={size};appnum=0;debugged=FALSE;pmiverbose=FALSE;rc=0;"
            );
            ("fullinit", rest)
        }
        Reply::SpaceName(name) => ("job-getid", format!("jobid={name};rc=0;")),
        Reply::JobAttribute(value) => ("info-getjobattr", found(value.as_ref())),
        Reply::PutNode => ("info-putnodeattr", "rc=0;".into()),
        Reply::GetNode(value) => ("info-getnodeattr", found(value.as_ref())),
        Reply::Put(done) => ("kvs-put", result(done)),
        Reply::Get(value) => ("kvs-get", found(value.as_ref())),
        Reply::Fence => ("kvs-fence", "rc=0;".into()),
        Reply::Publish(done) => ("name-publish", result(done)),
        Reply::Unpublish(done) => ("name-unpublish", result(done)),
        Reply::Lookup(Some(port)) => {
            ("name-lookup", format!("value={};rc=0;", port.replace(';', ";;")))
        }
        Reply::Lookup(None) => ("name-lookup", "rc=-1;errmsg=service_not_found;".into()),
        Reply::SpawnRefused => ("spawn", "rc=-1;errmsg=spawn_is_refused;".into()),
        Reply::Finalize => ("finalize", "rc=0;".into()),
        // Those of PMI-1 only answer what PMI-2 does not ask.
        Reply::Init { .. } | Reply::Maxes | Reply::AppNumber | Reply::UniverseSize(_) => {
            ("unknown", "rc=-1;".into())
        }
    };
    let thread = thread.map_or_else(String::new, |thread| format!("thrid={thread};"));
    let text = format!("cmd={command}-response;{thread}{rest}");
    format!("{:>6}{text}", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_commands() {
        let message = parse("cmd=kvs-put;thrid=7;key=a;value=x;;y;;;").unwrap();
        let put = Command::Put { key: "a".into(), value: "x;y;".into() };
        assert_eq!(message, Message { command: put, thread: Some("7".into()) });
        let get = parse("cmd=info-getnodeattr;key=k;wait=TRUE;").unwrap();
        assert_eq!(get.command, Command::GetNode { key: "k".into(), wait: true });
        let abort = parse("cmd=abort;isworld=TRUE;msg=over;").unwrap();
        assert_eq!(abort.command, Command::Abort { code: 1, message: "over".into() });
    }

    #[test]
    fn other_messages_are_not() {
        assert_eq!(parse(""), Err(MalformedCommand::Lacks("cmd")));
        assert_eq!(parse(";;;=;=;"), Err(MalformedCommand::Lacks("cmd")));
        assert_eq!(parse("cmd=kvs-get;"), Err(MalformedCommand::Lacks("key")));
        assert_eq!(parse("cmd=fly;"), Err(MalformedCommand::Unknown("fly".into())));
    }

    #[test]
    fn replies_carry_their_length() {
        let text = write(&Reply::Get(Some("a;b".into())), Some("3"));
        assert_eq!(text, "    56cmd=kvs-get-response;thrid=3;found=TRUE;value=a;;b;rc=0;");
        assert_eq!(text.len(), LENGTH + 56);
        assert!(write(&Reply::GetNode(None), None).contains("found=FALSE"));
    }
}
