//! Passes: proofs that a metaserver gives a client for one attempt of a call, to show to the server.
//!
//! A pass names the client and the attempt that it may run. It is signed (keyed BLAKE3) with a key that the server made for
//! its registration. So the server need not ask the metaserver, and tokens never reach servers. A pass for one server is
//! worthless at another. See docs/reference/call-protocol.md, "Users, and passes".

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use kumi_rpc::{SigningKey, Ticket};

use crate::signed;

/// Prefix of every pass; no token begins with it.
const PREFIX: &str = "pass_";
/// Bytes of a pass without user name and signature: ticket, serial number, routine.
const FIXED: usize = Ticket::LENGTH + 8 + 16;
/// Longest name of a user.
const MOST_USER: usize = 64;
/// Used passes that are remembered, so that none is accepted twice.
const MOST_USED: usize = 65_536;

/// Least time between two reports of load whose times are remembered.
const APART: Duration = Duration::from_secs(1);

/// A random key.
///
/// # Errors
/// The system has no random bytes.
pub fn key() -> io::Result<SigningKey> {
    crate::random::bytes().map(SigningKey)
}

/// Content of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// The ticket of the call. Of a pass for logs: attempt 0, and the number of reports of load that the metaserver had then
    /// had of the server since it registered.
    pub ticket: Ticket,
    /// Serial number among the passes of a key.
    pub serial: u64,
    routine: [u8; 16],
    /// The user of the call. Empty: the metaserver does not distinguish users.
    pub user: String,
}

fn routine_hash(name: &str) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..16]);
    first
}

/// Whether a client shows a pass rather than a token.
pub fn is_pass(shown: &str) -> bool {
    shown.starts_with(PREFIX)
}

impl Pass {
    /// A pass for an attempt of a call.
    pub fn new(ticket: Ticket, serial: u64, routine: &str, user: &str) -> Pass {
        Pass { ticket, serial, routine: routine_hash(routine), user: user.to_owned() }
    }

    /// The signed text.
    pub fn signed(&self, key: &SigningKey) -> String {
        let mut bytes = Vec::with_capacity(FIXED + self.user.len() + 32);
        self.ticket.encode(&mut bytes);
        bytes.extend_from_slice(&self.serial.to_le_bytes());
        bytes.extend_from_slice(&self.routine);
        bytes.extend_from_slice(self.user.as_bytes());
        signed::sign(PREFIX, bytes, key)
    }

    /// Reads a signed pass. `None`: it was not signed with this key.
    pub fn read(text: &str, key: &SigningKey) -> Option<Pass> {
        let signed = signed::read(PREFIX, text, FIXED + MOST_USER, key)?;
        let (ticket, rest) = signed.split_at_checked(Ticket::LENGTH)?;
        let (serial, rest) = rest.split_first_chunk::<8>()?;
        let (routine, user) = rest.split_first_chunk::<16>()?;
        Some(Pass {
            ticket: Ticket::decode(ticket).ok()?,
            serial: u64::from_le_bytes(*serial),
            routine: *routine,
            user: String::from_utf8(user.to_vec()).ok()?,
        })
    }

    /// A pass for the logs of a user's calls, given after so many reports of the server. No routine has an empty name, so it
    /// permits no call.
    pub fn for_logs(serial: u64, reports: u64, user: &str) -> Pass {
        Pass::new(Ticket { call: reports, attempt: 0 }, serial, "", user)
    }

    /// Whether it is for logs.
    pub fn is_for_logs(&self) -> bool {
        self.permits("")
    }

    /// Whether it permits a call of this routine.
    pub fn permits(&self, routine: &str) -> bool {
        self.routine == routine_hash(routine)
    }
}

/// Why a pass for logs is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPassRefusal {
    /// It was shown before.
    Used,
    /// It was given too long ago.
    Expired,
}

/// When the server has sent its reports of load. A pass names the last one that the metaserver had, so the server knows by
/// its own clock alone how old the pass is at most.
#[derive(Debug)]
struct ReportTimes {
    /// How many it has sent since it registered.
    sent: u64,
    /// After how many of them, and when; earliest first, [`APART`] and no older than passes may be.
    times: VecDeque<(u64, Instant)>,
    /// The longest age of a pass.
    longest: Duration,
}

impl ReportTimes {
    fn new(now: Instant, longest: Duration) -> ReportTimes {
        ReportTimes { sent: 0, times: VecDeque::from([(0, now)]), longest }
    }

    fn is_over(&self, at: Instant, now: Instant) -> bool {
        now.saturating_duration_since(at) >= self.longest
    }

    /// One more is sent.
    fn add(&mut self, now: Instant) {
        self.sent += 1;
        while self.times.front().is_some_and(|(_, at)| self.is_over(*at, now)) {
            self.times.pop_front();
        }
        let last = self.times.back().map(|(_, at)| *at);
        if last.is_none_or(|last| now.saturating_duration_since(last) >= APART) {
            self.times.push_back((self.sent, now));
        }
    }

    /// Whether a pass that was given after so many reports is still good.
    fn is_fresh(&self, reports: u64, now: Instant) -> bool {
        let given = self.times.iter().rev().find(|(count, _)| *count <= reports);
        reports <= self.sent && given.is_some_and(|(_, at)| !self.is_over(*at, now))
    }
}

#[derive(Debug)]
struct UsedPasses {
    key: SigningKey,
    used: BTreeSet<u64>,
    /// Passes up to this number are used up, whether shown or not.
    floor: u64,
    reports: ReportTimes,
}

/// Passes of a server.
#[derive(Debug, Default)]
pub struct Passes(RefCell<Option<UsedPasses>>);

impl Passes {
    /// Replaces the key. Passes of the old key become invalid. From now on passes for logs are good for so long.
    pub fn renew(&self, key: SigningKey, now: Instant, longest: Duration) {
        let reports = ReportTimes::new(now, longest);
        *self.0.borrow_mut() = Some(UsedPasses { key, used: BTreeSet::new(), floor: 0, reports });
    }

    /// The server sends the metaserver a report of its load.
    pub fn reported(&self, now: Instant) {
        if let Some(known) = self.0.borrow_mut().as_mut() {
            known.reports.add(now);
        }
    }

    /// Uses a pass for logs up.
    ///
    /// # Errors
    /// It was used before, or was given too long ago.
    pub fn take_for_logs(&self, pass: &Pass, now: Instant) -> Result<(), LogPassRefusal> {
        let known = self.0.borrow();
        if !known.as_ref().is_some_and(|known| known.reports.is_fresh(pass.ticket.call, now)) {
            return Err(LogPassRefusal::Expired);
        }
        drop(known);
        if self.take(pass) { Ok(()) } else { Err(LogPassRefusal::Used) }
    }

    /// Reads a pass if it is valid.
    pub fn read(&self, text: &str) -> Option<Pass> {
        self.0.borrow().as_ref().and_then(|known| Pass::read(text, &known.key))
    }

    /// Uses a pass up. False: it was used before.
    pub fn take(&self, pass: &Pass) -> bool {
        let mut known = self.0.borrow_mut();
        let Some(known) = known.as_mut() else { return false };
        if pass.serial <= known.floor || !known.used.insert(pass.serial) {
            return false;
        }
        if known.used.len() > MOST_USED
            && let Some(oldest) = known.used.pop_first()
        {
            known.floor = oldest;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(serial: u64) -> Pass {
        Pass::new(Ticket { call: 3, attempt: 1 }, serial, "dmmul", "zoe")
    }

    #[test]
    fn a_pass_is_what_was_signed() {
        let (one, other) = (key().expect("random bytes"), key().expect("random bytes"));
        let text = pass(1).signed(&one);
        assert!(is_pass(&text) && !text.contains("zoe") && text.len() < 512, "{text}");
        assert_eq!(Pass::read(&text, &one), Some(pass(1)));
        assert_eq!(Pass::read(&text, &other), None);
        assert!(pass(1).permits("dmmul") && !pass(1).permits("dmmu"));
        // Every changed byte is noticed.
        for at in PREFIX.len()..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
            let forged = String::from_utf8(forged).expect("digits");
            assert_eq!(Pass::read(&forged, &one), None, "{at}");
        }
        for wrong in ["", "pass_", "pass_0", "pass_zz", &text[..text.len() - 2], &text[5..]] {
            assert_eq!(Pass::read(wrong, &one), None, "{wrong}");
        }
        let long = Pass::new(Ticket { call: 3, attempt: 1 }, 1, "f", &"a".repeat(MOST_USER));
        let text = long.signed(&one);
        assert_eq!(Pass::read(&text, &one), Some(long));
        assert!(text.len() <= 512, "it fits where passes go");
    }

    #[test]
    fn a_pass_for_logs_is_for_nothing_else() {
        let logs = Pass::for_logs(7, 3, "zoe");
        assert!(logs.is_for_logs() && !logs.permits("dmmul") && !pass(7).is_for_logs());
        let key = key().expect("random bytes");
        assert_eq!(Pass::read(&logs.signed(&key), &key), Some(logs));
    }

    /// Passes of a server that registers now.
    fn passes(now: Instant) -> Passes {
        let passes = Passes::default();
        passes.renew(key().expect("random bytes"), now, LONGEST);
        passes
    }

    const LONGEST: Duration = Duration::from_secs(600);

    #[test]
    fn a_pass_for_logs_that_was_never_shown_expires() {
        let begin = Instant::now();
        let passes = passes(begin);
        let at = |seconds| begin + Duration::from_secs(seconds);
        let shown = |serial, reports, seconds| {
            passes.take_for_logs(&Pass::for_logs(serial, reports, "zoe"), at(seconds))
        };
        // A report at each full second.
        (1..=1000).for_each(|second| passes.reported(at(second)));
        assert_eq!(shown(1, 400, 1000), Err(LogPassRefusal::Expired));
        assert_eq!(shown(2, 401, 1000), Ok(()));
        assert_eq!(shown(2, 401, 1000), Err(LogPassRefusal::Used));
        assert_eq!(shown(3, 1000, 1599), Ok(()));
        assert_eq!(shown(4, 1000, 1600), Err(LogPassRefusal::Expired));
        assert_eq!(shown(5, 1001, 1000), Err(LogPassRefusal::Expired), "there was no such report");
        // The age of one that is given before the first report is that of the registration.
        passes.renew(key().expect("random bytes"), at(2000), LONGEST);
        assert_eq!((shown(1, 0, 2599), shown(2, 0, 2600)), (Ok(()), Err(LogPassRefusal::Expired)));
    }

    #[test]
    fn times_of_reports_are_bounded_and_never_make_a_pass_younger() {
        let begin = Instant::now();
        let passes = passes(begin);
        let at = |ms| begin + Duration::from_millis(ms);
        // Twenty a second, for an hour.
        (1..=72_000).for_each(|count| passes.reported(at(50 * count)));
        let kept = passes.0.borrow().as_ref().map(|known| known.reports.times.len());
        assert!(kept.is_some_and(|kept| kept <= 600), "{kept:?}");
        let now = at(50 * 72_000);
        let is_fresh = |reports| {
            let known = passes.0.borrow();
            known.as_ref().is_some_and(|known| known.reports.is_fresh(reports, now))
        };
        assert!(!is_fresh(60_000) && is_fresh(60_000 + 20) && is_fresh(72_000));
    }

    #[test]
    fn a_pass_is_used_once() {
        let passes = Passes::default();
        assert!(!passes.take(&pass(1)), "there is no key");
        let key = key().expect("random bytes");
        passes.renew(key, Instant::now(), LONGEST);
        assert_eq!(passes.read(&pass(1).signed(&key)), Some(pass(1)));
        assert!(passes.take(&pass(2)) && passes.take(&pass(1)));
        assert!(!passes.take(&pass(1)) && !passes.take(&pass(2)));
        let most = MOST_USED as u64;
        (3..most + 10).for_each(|serial| assert!(passes.take(&pass(serial))));
        assert!(!passes.take(&pass(1)) && !passes.take(&pass(9)), "what is forgotten is used up");
        assert!(!passes.take(&pass(most)) && passes.take(&pass(most + 10)));
        passes.renew(super::key().expect("random bytes"), Instant::now(), LONGEST);
        assert!(passes.read(&pass(1).signed(&key)).is_none());
    }
}
