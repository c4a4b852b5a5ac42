//! PMI-1 in text: lines of `name=value` with spaces between.

use alloc::format;
use alloc::string::String;

use super::MalformedCommand;
use super::command::{Command, Reply};

/// Longest line, in bytes, its end included.
pub const LONGEST_LINE: usize = 24 << 10;

/// The value of a name. One that may hold spaces is the last of its line, and reaches up to the end.
fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches(' ');
        let (found, after) = rest.split_once('=')?;
        if found == name {
            return Some(after.split(' ').next().unwrap_or_default());
        }
        rest = after.split_once(' ')?.1;
    }
}

/// The same up to the end of the line.
fn last_value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let at = value(line, name)?;
    // It is a part of the line, which goes on behind it.
    let start = at.as_ptr().addr().checked_sub(line.as_ptr().addr())?;
    line.get(start..)
}

fn needed(line: &str, name: &'static str) -> Result<String, MalformedCommand> {
    value(line, name).map(String::from).ok_or(MalformedCommand::Lacks(name))
}

fn number(line: &str, name: &'static str) -> Result<u32, MalformedCommand> {
    needed(line, name)?.parse().map_err(|_| MalformedCommand::Lacks(name))
}

/// The command in a line, without its end; none for a line inside a command of several lines.
///
/// # Errors
/// It is none that is known.
pub fn parse(line: &str, in_spawn: &mut bool) -> Result<Option<Command>, MalformedCommand> {
    if let Some(last) = spawn_line(line, in_spawn)? {
        return Ok(last.then_some(Command::Spawn { last: true }));
    }
    let command = value(line, "cmd").ok_or(MalformedCommand::Lacks("cmd"))?;
    let rest = |name: &'static str| {
        last_value(line, name).map(String::from).ok_or(MalformedCommand::Lacks(name))
    };
    Ok(Some(match command {
        "init" => Command::Init {
            version: number(line, "pmi_version")?,
            subversion: number(line, "pmi_subversion")?,
        },
        "get_maxes" => Command::Maxes,
        "get_appnum" => Command::AppNumber,
        "get_my_kvsname" => Command::SpaceName,
        "get_universe_size" => Command::UniverseSize,
        "put" => Command::Put { key: needed(line, "key")?, value: rest("value")? },
        "get" => Command::Get { key: needed(line, "key")? },
        "barrier_in" => Command::Fence,
        "publish_name" => Command::Publish { name: needed(line, "service")?, port: rest("port")? },
        "lookup_name" => Command::Lookup { name: needed(line, "service")? },
        "unpublish_name" => Command::Unpublish { name: needed(line, "service")? },
        "finalize" => Command::Finalize,
        "abort" => Command::Abort {
            code: value(line, "exitcode").and_then(|code| code.parse().ok()).unwrap_or(1),
            message: last_value(line, "message").unwrap_or_default().into(),
        },
        other => return Err(MalformedCommand::Unknown(shortened(other))),
    }))
}

/// A line of a `spawn` command: whether it ends the last of them. None for other lines.
fn spawn_line(line: &str, in_spawn: &mut bool) -> Result<Option<bool>, MalformedCommand> {
    if line == "mcmd=spawn" {
        *in_spawn = true;
        return Ok(Some(false));
    }
    if !*in_spawn {
        return match value(line, "mcmd") {
            Some(other) => Err(MalformedCommand::Unknown(shortened(other))),
            None => Ok(None),
        };
    }
    if line == "endcmd" {
        *in_spawn = false;
    }
    Ok(Some(!*in_spawn))
}

/// The beginning of a word from a rank, for a sentence.
pub(super) fn shortened(word: &str) -> String {
    word.chars().filter(|one| !one.is_control()).take(40).collect()
}

fn result(what: &str, result: &Result<(), String>, good: &str) -> String {
    match result {
        Ok(()) => format!("cmd={what} rc=0 {good}\n"),
        Err(word) => format!("cmd={what} rc=-1 msg={word}\n"),
    }
}

/// A reply as a line.
#[must_use]
pub fn write(reply: &Reply) -> String {
    match reply {
        Reply::Init { version } => {
            let subversion = u32::from(*version == 1);
            format!("cmd=response_to_init pmi_version={version} pmi_subversion={subversion} rc=0\n")
        }
        Reply::Maxes => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0\n".into(),
        Reply::AppNumber => "cmd=appnum appnum=0 rc=0\n".into(),
        Reply::SpaceName(name) => format!("cmd=my_kvsname kvsname={name} rc=0\n"),
        Reply::UniverseSize(size) => format!("cmd=universe_size size={size} rc=0\n"),
        Reply::Put(done) => result("put_result", done, "msg=success"),
        Reply::Get(Some(value)) => format!("cmd=get_result rc=0 msg=success value={value}\n"),
        Reply::Get(None) => "cmd=get_result rc=-1 msg=key_not_found value=unknown\n".into(),
        Reply::Fence => "cmd=barrier_out rc=0\n".into(),
        Reply::Publish(done) => result("publish_result", done, "msg=success"),
        Reply::Lookup(Some(port)) => format!("cmd=lookup_result rc=0 msg=success port={port}\n"),
        Reply::Lookup(None) => "cmd=lookup_result rc=-1 msg=service_not_found\n".into(),
        Reply::Unpublish(done) => result("unpublish_result", done, "msg=success"),
        Reply::SpawnRefused => "cmd=spawn_result rc=-1 msg=spawn_is_refused\n".into(),
        Reply::Finalize => "cmd=finalize_ack rc=0\n".into(),
        // Those of PMI-2 only answer what PMI-1 does not ask.
        Reply::FullInit { .. } | Reply::JobAttribute(_) | Reply::PutNode | Reply::GetNode(_) => {
            "cmd=unknown rc=-1\n".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn one(line: &str) -> Result<Option<Command>, MalformedCommand> {
        parse(line, &mut false)
    }

    #[test]
    fn lines_are_commands() {
        let put = Command::Put { key: "P0-bc".into(), value: "a b=c".into() };
        assert_eq!(one("cmd=put kvsname=kvs_0 key=P0-bc value=a b=c"), Ok(Some(put)));
        let init = Command::Init { version: 1, subversion: 1 };
        assert_eq!(one("cmd=init pmi_version=1 pmi_subversion=1"), Ok(Some(init)));
        assert_eq!(one("cmd=barrier_in"), Ok(Some(Command::Fence)));
        let abort = Command::Abort { code: -3, message: "it is over".into() };
        assert_eq!(one("cmd=abort exitcode=-3 message=it is over"), Ok(Some(abort)));
        let abort = Command::Abort { code: 1, message: String::new() };
        assert_eq!(one("cmd=abort"), Ok(Some(abort)));
        let name = Command::Publish { name: "s".into(), port: "tag#0 x".into() };
        assert_eq!(one("cmd=publish_name service=s port=tag#0 x"), Ok(Some(name)));
    }

    #[test]
    fn other_lines_are_not() {
        assert_eq!(one(""), Err(MalformedCommand::Lacks("cmd")));
        assert_eq!(one("cmd=get kvsname=x"), Err(MalformedCommand::Lacks("key")));
        assert_eq!(one("cmd=init pmi_version=x"), Err(MalformedCommand::Lacks("pmi_version")));
        assert_eq!(one("cmd=fly"), Err(MalformedCommand::Unknown("fly".into())));
        assert_eq!(one("mcmd=fly"), Err(MalformedCommand::Unknown("fly".into())));
        assert_eq!(one("key=cmd=get"), Err(MalformedCommand::Lacks("cmd")));
    }

    #[test]
    fn a_spawn_has_many_lines() {
        let mut inside = false;
        let lines = ["mcmd=spawn", "nprocs=1", "execname=/bin/x", "cmd=abort", "endcmd"];
        let all: Vec<_> = lines.iter().map(|line| parse(line, &mut inside).unwrap()).collect();
        assert_eq!(all[4], Some(Command::Spawn { last: true }));
        assert!(all[..4].iter().all(Option::is_none) && !inside);
    }

    #[test]
    fn replies_are_lines() {
        assert_eq!(
            write(&Reply::Get(Some("v w".into()))),
            "cmd=get_result rc=0 msg=success value=v w\n"
        );
        let refused = Err("too_many_values".into());
        assert_eq!(write(&Reply::Put(refused)), "cmd=put_result rc=-1 msg=too_many_values\n");
        assert!(write(&Reply::Init { version: 2 }).contains("pmi_version=2 pmi_subversion=0"));
    }
}
