//! Why the log of a call is not found, or not all of it: which server a user means, and whether that is the process of then.

use super::{CallName, LogAnswers};
use crate::error::Error;
use crate::output;
use kumi_call::log_records::LastPlace;
use kumi_call::{LogSources, ServerIdentity};

/// The server that a user means by a name or an address.
pub(super) fn meant(
    sources: &LogSources,
    server: &str,
    number: u64,
) -> Result<ServerIdentity, Error> {
    let mut meant = sources.meant(server);
    if meant.len() > 1 {
        let calls: Vec<String> =
            meant.iter().map(|identity| format!("{}/{number}", identity.address)).collect();
        let text = format!(
            "{} servers are called `{server}`: give the address of one, as in {}",
            calls.len(),
            calls.join(" or ")
        );
        return Err(Error::Usage(text));
    }
    meant.pop().ok_or_else(|| {
        let is_it = |it: &ServerIdentity| it.name == server || it.address == server;
        match sources.unreachable.iter().find(|source| is_it(&source.identity)) {
            Some(gone) => Error::CallLogGone {
                call: format!("{server}/{number}"),
                why: format!("its server cannot be asked: {}", gone.why),
            },
            None => Error::NoCallLog(format!("{server}/{number}")),
        }
    })
}

/// Whether a server that has said how long it runs, and says it again, has been started again meanwhile.
pub(super) fn is_other_process(before: Option<u64>, now: Option<u64>) -> bool {
    before.zip(now).is_some_and(|(before, now)| now < before)
}

/// The error for a server that was started again while it was asked.
pub(super) fn started_again(server: &ServerIdentity, number: u64) -> Error {
    let ServerIdentity { name, address } = server;
    Error::CallLogGone {
        call: number.to_string(),
        why: format!("its server `{name}` at {address} was started again since"),
    }
}

/// Why the log is gone of a call that was at this place: the server is away, or is another process.
fn gone(sources: &LogSources, answers: &LogAnswers, place: &LastPlace) -> Option<String> {
    let LastPlace { name, address, ago_ms } = place;
    let is_it = |it: &ServerIdentity| it.name == *name && it.address == *address;
    let is_younger = |uptime: u64| uptime < *ago_ms;
    let server = format!("its server `{name}` at {address}");
    if let Some((_, uptime)) = answers.uptimes.iter().find(|(it, _)| is_it(it)) {
        return is_younger(*uptime).then(|| format!("{server} was started again since"));
    }
    // It is there, and has not said how long.
    if sources.servers.iter().any(|source| is_it(&source.identity)) {
        return None;
    }
    let elsewhere = answers.uptimes.iter().find(|(it, up)| it.name == *name && is_younger(*up));
    if let Some((it, _)) = elsewhere {
        return Some(format!(
            "{server} is gone; `{name}` was started again since, at {}",
            it.address
        ));
    }
    let away = sources.unreachable.iter().find(|source| is_it(&source.identity));
    Some(match away {
        Some(source) => format!("{server} cannot be asked: {}", source.why),
        None => format!("{server} is gone"),
    })
}

/// Whether all of a call was found that there is. Says what is missing beside what was found.
///
/// # Errors
/// Nothing was found.
pub(super) fn check(
    sources: &LogSources,
    answers: &LogAnswers,
    name: &CallName,
    number: u64,
) -> Result<(), Error> {
    let is_there = |place: &LastPlace| {
        answers.calls.iter().any(|found| {
            found.identity.name == place.name && found.identity.address == place.address
        })
    };
    let place = sources.placed.as_ref().filter(|place| !is_there(place));
    let why = place.and_then(|place| gone(sources, answers, place));
    match (why, answers.calls.is_empty()) {
        (Some(why), true) => Err(Error::CallLogGone { call: number.to_string(), why }),
        (Some(why), false) => {
            output::note(&format!("the log of the last attempt is gone: {why}"));
            Ok(())
        }
        (None, true) => Err(Error::NoCallLog(match name {
            CallName::Number(number) => number.to_string(),
            CallName::AtServer(server, number) => format!("{server}/{number}"),
        })),
        (None, false) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str, address: &str) -> ServerIdentity {
        ServerIdentity { name: name.to_owned(), address: address.to_owned() }
    }

    #[test]
    fn a_server_that_has_run_for_less_than_before_is_another_process() {
        assert!(is_other_process(Some(2), Some(1)));
        for (before, now) in
            [(Some(1), Some(1)), (Some(1), Some(2)), (None, Some(1)), (Some(1), None)]
        {
            assert!(!is_other_process(before, now), "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_server_that_was_started_since_has_no_log_of_the_call() {
        let place = |address: &str| LastPlace {
            name: "a".to_owned(),
            address: address.to_owned(),
            ago_ms: 1000,
        };
        let sources = LogSources::default();
        let why = |address: &str, uptimes: &[(ServerIdentity, u64)]| {
            let answers = LogAnswers { uptimes: uptimes.to_vec(), ..LogAnswers::default() };
            gone(&sources, &answers, &place(address))
        };
        assert_eq!(why("h:1", &[(identity("a", "h:1"), 1000)]), None, "it is the same");
        let again = Some("its server `a` at h:1 was started again since".to_owned());
        assert_eq!(why("h:1", &[(identity("a", "h:1"), 999)]), again);
        let moved = "its server `a` at h:1 is gone; `a` was started again since, at h:2";
        assert_eq!(why("h:1", &[(identity("a", "h:2"), 999)]).as_deref(), Some(moved));
        let gone = Some("its server `a` at h:1 is gone".to_owned());
        // Others of the name have been there before, or have another name.
        let others = [(identity("a", "h:2"), 1001), (identity("b", "h:3"), 1)];
        assert_eq!(why("h:1", &others), gone);
        assert_eq!(why("h:1", &[]), gone);
    }
}
