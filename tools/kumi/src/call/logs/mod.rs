//! `kumi call logs`: shows the logs of calls that servers keep for their users.

mod missing;
mod progress;
mod show;

use super::client::ServerArgs;
use crate::error::Error;
use crate::output;
use clap::Args;
use kumi_call::log_records::{CallOutcome, LogAnswer, LoggedCall};
use kumi_call::{
    CallError, Client, LogRequest, LogSource, LogSources, Remote, ServerIdentity,
    TraceContextError, TraceId,
};
use progress::Progress;
use serde::Serialize;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

/// How many calls the table has.
const LATEST: u32 = 20;
/// How often a call that goes on is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// How often a metaserver's servers are asked for a next attempt when one has failed.
const LOOKS_FOR_NEXT: u32 = 8;

/// Options of `kumi call logs`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Each user sees the own calls. Servers keep the latest calls and the last lines of each, in \
memory (--log-calls, --log-lines and --log-memory of `kumi call serve`)."
)]
pub struct LogsArgs {
    /// Server or metaserver, instead of that of --server; may be left out, also before CALL
    #[arg(value_name = "ADDR")]
    pub address: Option<String>,
    /// Call: its number as the server, or the metaserver, has it. SERVER/NUMBER is the number at a server of the metaserver.
    /// Without it: a table of the latest calls
    #[arg(value_name = "CALL")]
    pub call: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Most calls in the table [default: 20]
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub last: Option<u32>,
    /// Only the calls of this trace: its 32 hexadecimal digits
    #[arg(long, value_name = "ID", value_parser = trace_id, conflicts_with = "last")]
    pub trace: Option<TraceId>,
    /// Go on until the call has ended
    #[arg(long, short)]
    pub follow: bool,
    /// Print JSON: an object with all; with --follow, an object in each line
    #[arg(long)]
    pub json: bool,
}

/// A call, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallName {
    /// Its number at the server or the metaserver that is asked.
    Number(u64),
    /// Its number at a server of the metaserver that is asked.
    AtServer(String, u64),
}

impl FromStr for CallName {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<CallName, ParseIntError> {
        Ok(match text.rsplit_once('/') {
            None => CallName::Number(text.parse()?),
            Some((server, number)) => CallName::AtServer(server.to_owned(), number.parse()?),
        })
    }
}

impl LogsArgs {
    /// The address of the server or metaserver, and the call if one is named.
    fn which(&self) -> Result<(&str, Option<CallName>), Error> {
        let (address, call) = match (&self.address, &self.call) {
            (Some(one), None) if !is_address(one) => (None, Some(one)),
            (address, call) => (address.as_ref(), call.as_ref()),
        };
        let call = match call.map(|call| (call, call.parse())) {
            None => None,
            Some((_, Ok(call))) => Some(call),
            Some((call, Err(_))) => {
                let text = format!(
                    "{call} is no call: give its NUMBER or SERVER/NUMBER, after the ADDR of the server or metaserver"
                );
                return Err(Error::Usage(text));
            }
        };
        let wrong = |text: &str| Err(Error::Usage(text.to_owned()));
        match &call {
            None if self.follow => wrong("--follow is for one call: give its number"),
            Some(_) if self.trace.is_some() || self.last.is_some() => {
                wrong("--trace and --last are for the table: leave out the call")
            }
            _ => Ok((address.map_or(&self.server.server, String::as_str), call)),
        }
    }
}

/// Whether a word is an address rather than a call: an address has a colon, and no number of a call behind it.
fn is_address(word: &str) -> bool {
    ["unix:", "tls://", "kumi://"].iter().any(|scheme| word.starts_with(scheme))
        || word.contains(':') && !word.contains('/')
}

/// Reads the number of a trace.
fn trace_id(text: &str) -> Result<TraceId, TraceContextError> {
    TraceId::parse(text.as_bytes())
}

/// A call and its server.
#[derive(Debug, Serialize)]
struct Found {
    server: String,
    #[serde(flatten)]
    call: LoggedCall,
    /// Which server it is.
    #[serde(skip)]
    identity: ServerIdentity,
    #[serde(skip)]
    client: Client,
    /// How long the server has run.
    #[serde(skip)]
    uptime_ms: Option<u64>,
}

/// What servers have answered.
#[derive(Debug, Default, Serialize)]
struct LogAnswers {
    calls: Vec<Found>,
    /// How many calls of the user are not kept any more.
    dropped: u64,
    /// There are more calls than the answers have.
    is_cut: bool,
    /// How many servers have not answered.
    #[serde(skip)]
    unasked: usize,
    /// How long each server has run that has answered.
    #[serde(skip)]
    uptimes: Vec<(ServerIdentity, u64)>,
}

/// Shows logs of calls.
pub fn run(args: &LogsArgs) -> Result<(), Error> {
    let (address, name) = args.which()?;
    let remote = Remote::connect(address, &args.server.access.options()?)?;
    let is_metaserver = matches!(remote, Remote::Grid(_));
    let sources = match &name {
        Some(CallName::Number(call)) => remote.log_sources_of(*call)?,
        _ => remote.log_sources()?,
    };
    for source in &sources.unreachable {
        output::note(&format!("`{}` is left out: {}", source.label, source.why));
    }
    match &name {
        None => table(args, &sources, is_metaserver),
        Some(name) => call(args, &remote, sources, name),
    }
}

/// Asks servers. Those that do not answer are named.
fn ask<'a>(
    servers: impl Iterator<Item = &'a LogSource>,
    request: &LogRequest,
) -> Result<LogAnswers, Error> {
    let (mut answers, mut failed, mut is_answered) = (LogAnswers::default(), None, false);
    for LogSource { identity, label, client } in servers {
        match client.logs(request) {
            Ok(LogAnswer { calls, dropped, is_cut, uptime_ms }) => {
                is_answered = true;
                answers.dropped += dropped;
                answers.is_cut |= is_cut;
                answers.uptimes.extend(uptime_ms.map(|uptime| (identity.clone(), uptime)));
                let found = |call| Found {
                    server: label.clone(),
                    call,
                    identity: identity.clone(),
                    client: client.clone(),
                    uptime_ms,
                };
                answers.calls.extend(calls.into_iter().map(found));
            }
            Err(error) => {
                output::note(&format!("`{label}` is left out: {error}"));
                answers.unasked += 1;
                failed = Some(error);
            }
        }
    }
    match failed {
        Some(error) if !is_answered => Err(error.into()),
        _ => Ok(answers),
    }
}

/// Shows the latest calls, or those of a trace.
fn table(args: &LogsArgs, sources: &LogSources, is_metaserver: bool) -> Result<(), Error> {
    let last = args.last.unwrap_or(LATEST);
    let request = args.trace.map_or(LogRequest::Latest(last), LogRequest::Trace);
    let mut answers = ask(sources.servers.iter(), &request)?;
    answers.calls.sort_by_key(|found| std::cmp::Reverse((found.call.came_ms, found.call.call)));
    if args.trace.is_none() && answers.calls.len() > last as usize {
        answers.calls.truncate(last as usize);
        answers.is_cut = true;
    }
    let unasked = sources.unreachable.len() + answers.unasked;
    let whole = || match unasked {
        0 => Ok(()),
        count => Err(Error::LogsMissing(count)),
    };
    if args.json {
        output::json(&answers)?;
        return whole();
    }
    output::text(&show::table(&answers, output::wall_ms(), is_metaserver))?;
    if answers.dropped > 0 {
        let dropped = answers.dropped;
        output::note(&format!("{dropped} more of your calls are not kept any more"));
    }
    whole()
}

/// Shows one call, all its attempts if a metaserver has placed it.
fn call(
    args: &LogsArgs,
    remote: &Remote,
    mut sources: LogSources,
    name: &CallName,
) -> Result<(), Error> {
    let is_metaserver = matches!(remote, Remote::Grid(_));
    let (number, request, server) = match name {
        CallName::AtServer(..) if !is_metaserver => {
            let text = "this is a server, not a metaserver: give the number of the call alone";
            return Err(Error::Usage(text.to_owned()));
        }
        CallName::AtServer(server, call) => {
            (call, LogRequest::Call { call: *call, from: u64::MAX }, Some(server))
        }
        CallName::Number(call) if is_metaserver => (call, LogRequest::Placed(*call), None),
        CallName::Number(call) => (call, LogRequest::Call { call: *call, from: u64::MAX }, None),
    };
    let server = server.map(|server| missing::meant(&sources, server, *number)).transpose()?;
    let asked = |it: &&LogSource| server.as_ref().is_none_or(|server| it.identity == *server);
    let (mut shown, mut looks) = (0, 0);
    loop {
        let answers = ask(sources.servers.iter().filter(asked), &request)?;
        if shown == 0 {
            missing::check(&sources, &answers, name, *number)?;
        }
        let mut found = answers.calls;
        found.sort_by_key(|found| found.call.placed.map_or(0, |placed| placed.attempt));
        let count = found.len();
        let mut outcome = None;
        for found in found.into_iter().skip(shown) {
            outcome = attempt(args, remote, found)?;
            looks = 0;
        }
        shown = shown.max(count);
        looks += 1;
        // A call that has failed may get another place.
        let may_go_on =
            is_metaserver && server.is_none() && outcome != Some(CallOutcome::Completed);
        if !(args.follow && may_go_on) || looks > LOOKS_FOR_NEXT {
            return Ok(());
        }
        if looks == 1 {
            // The attempt may have taken longer than connections with a metaserver's pass show logs.
            sources = remote.log_sources()?;
        }
        std::thread::sleep(LOOK);
    }
}

/// Asks a server for the log of a call. If the pass that was shown there has expired, or the connection is lost, the metaserver
/// leads to the same server again. That may be another process by now, which has the number for another call.
fn ask_for_call(
    remote: &Remote,
    found: &mut Found,
    request: &LogRequest,
) -> Result<LogAnswer, Error> {
    let answer = match found.client.logs(request) {
        Err(error @ (CallError::Expired(_) | CallError::Lost(_)))
            if matches!(remote, Remote::Grid(_)) =>
        {
            let sources = remote.log_sources()?;
            let Some(again) = sources.find(&found.identity) else { return Err(error.into()) };
            found.client = again.client.clone();
            found.client.logs(request)?
        }
        answer => answer?,
    };
    if missing::is_other_process(found.uptime_ms, answer.uptime_ms) {
        return Err(missing::started_again(&found.identity, found.call.call));
    }
    found.uptime_ms = answer.uptime_ms;
    Ok(answer)
}

/// Shows an attempt, to its end if that is to be waited for. Returns how it ended.
fn attempt(
    args: &LogsArgs,
    remote: &Remote,
    mut found: Found,
) -> Result<Option<CallOutcome>, Error> {
    let (server, number) = (found.server.clone(), found.call.call);
    let (mut progress, mut all) = (Progress::new(args.follow), LoggedCall::default());
    if !args.json {
        let is_metaserver = matches!(remote, Remote::Grid(_));
        output::text(&show::heading(&server, &found.call, is_metaserver))?;
    }
    loop {
        let request = LogRequest::Call { call: number, from: progress.next };
        let calls = ask_for_call(remote, &mut found, &request)?.calls;
        let gone = || Error::NoCallLog(number.to_string());
        let mut now = calls.into_iter().next().ok_or_else(gone)?;
        let events = progress.take(&now).map_err(|error| {
            CallError::Server(format!("`{server}` has sent a wrong log: {error}"))
        })?;
        match (args.json, args.follow) {
            (false, _) => output::text(&show::events(&events))?,
            (true, true) => output::text(&show::json_lines(&server, number, &events)?)?,
            (true, false) => {
                let lines = std::mem::take(&mut now.lines);
                let (mut kept, first) =
                    (all.lines, if all.count == 0 { now.first } else { all.first });
                kept.extend(lines);
                all = LoggedCall { lines: kept, first, ..now.clone() };
            }
        }
        let is_whole = progress.is_whole(&now);
        if is_whole && (now.end.is_some() || !args.follow) {
            if args.json && !args.follow {
                output::json(&Found { call: all, ..found })?;
            }
            return Ok(now.end.map(|end| end.outcome));
        }
        if is_whole {
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_named_by_number_and_server() {
        assert_eq!("12".parse(), Ok(CallName::Number(12)));
        assert_eq!("a/b/12".parse(), Ok(CallName::AtServer("a/b".into(), 12)));
        for wrong in ["", "x", "-1", "a/", "12/x", "99999999999999999999"] {
            assert!(wrong.parse::<CallName>().is_err(), "{wrong}");
        }
    }

    /// What these words and options ask for.
    fn which(words: &[&str]) -> Result<(String, Option<CallName>), u8> {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            args: LogsArgs,
        }
        let command = <Command as clap::Parser>::try_parse_from([&["logs"], words].concat());
        let args = command.map_err(|_| 2)?.args;
        args.which().map(|(at, call)| (at.to_owned(), call)).map_err(|error| error.exit_code())
    }

    #[test]
    fn the_server_is_named_as_in_other_commands_or_first() {
        let of = |at: &str, call| Ok((at.to_owned(), call));
        assert_eq!(which(&["h:1"]), of("h:1", None));
        assert_eq!(which(&["h:1", "3"]), of("h:1", Some(CallName::Number(3))));
        assert_eq!(which(&["unix:/run/3"]), of("unix:/run/3", None));
        assert_eq!(which(&["--server", "h:1"]), of("h:1", None));
        assert_eq!(which(&["--server", "h:1", "3"]), of("h:1", Some(CallName::Number(3))));
        let at_server = CallName::AtServer("g:2".into(), 3);
        assert_eq!(which(&["--server", "h:1", "g:2/3"]), of("h:1", Some(at_server.clone())));
        assert_eq!(which(&["h:1", "g:2/3"]), of("h:1", Some(at_server)));
        let wrong: [&[&str]; 5] =
            [&["h:1", "x"], &["x"], &["h:1", "--follow"], &["h:1", "3", "-n", "4"], &["h", "h:1"]];
        for words in wrong {
            assert_eq!(which(words), Err(64), "{words:?}");
        }
    }
}
