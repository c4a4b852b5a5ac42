//! Registration of this server at a metaserver: hello, load reports, and the end of unwanted attempts.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use kumi_rpc::{
    AttemptState, ClientHello, Code, Failure, FrameStep, LoadReport, RegisteredServer,
    RegisteredServerEvent, Role, ServerRegistration, Ticket, VERSIONS,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until, timeout};

use super::load::{Load, speed};
use super::tickets::StopAction;
use super::{ServeError, Shared};
use crate::address;
use crate::socket::{Socket, connect};

/// The metaservers of a server, and its identity there.
#[derive(Clone, Default)]
pub struct Membership {
    /// Addresses of metaservers; the first that answers is used.
    pub metaservers: Vec<String>,
    /// The address for clients. Empty: the TCP address of the server. A host of `0.0.0.0` or `[::]` is
    /// replaced by the address that the metaserver sees.
    pub address: String,
    /// The site; empty: the network of the address.
    pub site: String,
    /// The token for the metaserver; empty: anonymous.
    pub token: String,
    /// For metaservers at `tls://`: a PEM file with the certificates of the only trusted authorities. `None`:
    /// the authorities that the system trusts.
    pub ca: Option<PathBuf>,
    /// Whether the metaserver says who calls, also where the server has users of its own. Whoever holds the
    /// metaserver can then call as each of them.
    pub vouches: bool,
    /// Whether token and key of passes may cross the network in clear.
    pub insecure: bool,
}

impl Membership {
    /// The first metaserver to which token and key would go in clear over a network.
    #[must_use]
    pub fn in_clear(&self) -> Option<&str> {
        self.metaservers.iter().map(String::as_str).find(|address| !address::is_private(address))
    }
}

impl fmt::Debug for Membership {
    /// Without the token: it is a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Membership")
            .field("metaservers", &self.metaservers)
            .field("address", &self.address)
            .field("site", &self.site)
            .field("ca", &self.ca)
            .field("vouches", &self.vouches)
            .field("insecure", &self.insecure)
            .finish_non_exhaustive()
    }
}

/// Time limit for connecting, and for writing.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a metaserver may be silent. It asks for a sign of life far more often.
const SILENCE: Duration = Duration::from_secs(15);
/// Bounds of the pause before the next attempt to connect.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// A new server that hears only refusals for so long ends. A file of users may be half written for a moment.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// Keeps a connection to a metaserver. It ends only if all metaservers refuse a server from its beginning on.
pub async fn run(shared: Rc<Shared>, membership: Membership) -> ServeError {
    let mut news = shared.tickets.listen();
    let speed = speed();
    let mut backoff = Backoff::default();
    let mut first = 0;
    let mut refusals = Refusals::new(Instant::now());
    loop {
        let count = membership.metaservers.len();
        for turn in 0..count {
            let at = (first + turn) % count;
            let address = &membership.metaservers[at];
            let mut attendance = MetaserverSession {
                shared: &shared,
                membership: &membership,
                member: RegisteredServer::new(),
                load: Load::default(),
                report: None,
                heard: Instant::now(),
                refusal: None,
            };
            let attended = attendance.attend(address, &mut news, speed).await;
            shared.known_servers.end();
            shared.leave.attends.set(false);
            match attended {
                Ok(()) => tracing::info!(address, "the metaserver closed the connection"),
                Err(error) => tracing::warn!(address, %error, "no connection to the metaserver"),
            }
            if attendance.report.is_some() {
                // The registration was accepted, so the pause begins at its minimum again.
                backoff = Backoff::default();
                refusals.note(None);
                first = at + 1;
                break;
            }
            refusals.note(attendance.refusal);
        }
        if let Some(error) = refusals.end(Instant::now()) {
            return error;
        }
        wait_before_retry(&mut news, backoff.next(random())).await;
    }
}

/// What the metaservers have said to a server since it began.
struct Refusals {
    began: Instant,
    /// The last refusal.
    last: Option<ServeError>,
    /// A metaserver has registered the server, or may do so later: it was away, or another one leads. So the server stays, and
    /// those who call it directly keep it.
    may_pass: bool,
}

impl Refusals {
    fn new(began: Instant) -> Refusals {
        Refusals { began, last: None, may_pass: false }
    }

    /// A metaserver has refused the server, or has not.
    fn note(&mut self, refusal: Option<ServeError>) {
        match refusal {
            Some(error) => self.last = Some(error),
            None => self.may_pass = true,
        }
    }

    /// The error with which the server ends: for a while it heard nothing but refusals.
    fn end(&mut self, now: Instant) -> Option<ServeError> {
        let for_long = now.saturating_duration_since(self.began) >= REFUSED_FOR;
        if for_long && !self.may_pass { self.last.take() } else { None }
    }
}

/// Pauses between attempts to connect: each is up to twice as long as the one before.
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff(AGAIN.0)
    }
}

impl Backoff {
    /// The next pause. `random`: any number, so that the servers of a metaserver do not all come back at once.
    fn next(&mut self, random: u32) -> Duration {
        let most = self.0;
        self.0 = (most * 2).min(AGAIN.1);
        most / 2 + (most / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

/// A number that differs from server to server. Nothing depends on it but when they come.
fn random() -> u32 {
    kumi_call_wire::random::bytes().map_or_else(|_| std::process::id(), u32::from_ne_bytes)
}

/// Waits before the next attempt. It drops news meanwhile, because the next registration reports the whole
/// state.
async fn wait_before_retry<T>(news: &mut UnboundedReceiver<T>, pause: Duration) {
    let _over = timeout(pause, async { while news.recv().await.is_some() {} }).await;
}

struct MetaserverSession<'a> {
    shared: &'a Rc<Shared>,
    membership: &'a Membership,
    member: RegisteredServer,
    load: Load,
    /// Time of the next report, and the interval. `None`: not registered yet.
    report: Option<(Instant, Duration)>,
    heard: Instant,
    /// Why it is not registered, if the metaserver has said so.
    refusal: Option<ServeError>,
}

impl MetaserverSession<'_> {
    async fn attend(
        &mut self,
        address: &str,
        news: &mut UnboundedReceiver<(Ticket, AttemptState)>,
        speed: f64,
    ) -> io::Result<()> {
        let mut socket =
            timeout(PATIENCE, connect(address, self.membership.ca.as_deref())).await??;
        // The registration includes all earlier news.
        while news.try_recv().is_ok() {}
        self.register(speed)?;
        let mut input = Vec::with_capacity(4096);
        let mut questions = self.shared.known_servers.begin();
        let mut leaving = self.shared.leave.begun.subscribe();
        let mut stays = true;
        loop {
            self.write(&mut socket).await?;
            if !stays {
                self.shared.leave.reported.notify_one();
            }
            let due = self.report.map_or(self.heard + PATIENCE, |(due, _)| due);
            tokio::select! {
                read = socket.read_buf(&mut input) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    self.heard = Instant::now();
                    self.process_input(address, &mut input)?;
                }
                reported = news.recv() => if let Some((ticket, fate)) = reported {
                    self.member.report_attempt(ticket, fate);
                },
                Some(address) = questions.recv() => self.member.ask_address(&address),
                _ = leaving.wait_for(|leaving| *leaving), if stays => {
                    stays = false;
                    self.member.leave();
                }
                () = sleep_until(due) => self.tell()?,
            }
        }
    }

    /// Sends the registration: identity, routines, and running attempts.
    fn register(&mut self, speed: f64) -> io::Result<()> {
        let Shared { config, registry, tickets, passes, .. } = &**self.shared;
        let hello = ClientHello {
            versions: VERSIONS,
            token: self.membership.token.clone(),
            program: config.name.clone(),
            site: self.membership.site.clone(),
            maps_memory: false,
        };
        self.member.out().extend_from_slice(&hello.encode());
        let routines = registry.names().filter_map(|name| registry.find(name));
        let (fit, long): (Vec<_>, Vec<_>) =
            routines.partition(|offered| RegisteredServer::fits(&offered.json));
        for offered in long {
            let routine = &offered.interface.name;
            tracing::warn!(routine, "the description is too long to be registered");
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        // Set before anybody can have a pass signed with it.
        let key = crate::pass::key()?;
        passes.renew(key, Instant::now().into_std(), config.log_pass_age);
        self.member.register(&ServerRegistration {
            name: config.name.clone(),
            address: self.membership.address.clone(),
            site: self.membership.site.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            slots: count(config.slots),
            processors: count(processors),
            speed,
            offers: u16::try_from(fit.len()).unwrap_or(u16::MAX),
            key: Some(key),
        });
        self.member.report_running(&tickets.here());
        for offered in fit.iter().take(usize::from(u16::MAX)) {
            self.member.offer(offered.hash, &offered.json);
        }
        Ok(())
    }

    async fn write(&mut self, socket: &mut Socket) -> io::Result<()> {
        let out = std::mem::take(self.member.out());
        if out.is_empty() {
            return Ok(());
        }
        timeout(PATIENCE, socket.write_all(&out)).await?
    }

    fn process_input(&mut self, address: &str, input: &mut Vec<u8>) -> io::Result<()> {
        let mut begin = 0;
        loop {
            match self.member.step(&input[begin..]).map_err(io::Error::other)? {
                FrameStep::More(_) => break,
                FrameStep::Event(count, event) => {
                    begin += count;
                    if let Some(event) = event {
                        self.take(address, event)?;
                    }
                }
            }
        }
        input.drain(..begin);
        Ok(())
    }

    fn take(&mut self, address: &str, event: RegisteredServerEvent) -> io::Result<()> {
        match event {
            RegisteredServerEvent::Hello(hello) => {
                hello.version.map_err(|failure| self.refused(address, failure))?;
                if hello.role != Role::Metaserver {
                    let error = ServeError::NotMetaserver(address.to_owned());
                    self.refusal = Some(error);
                    return Err(io::Error::other("this is a server, not a metaserver"));
                }
            }
            RegisteredServerEvent::Registered(ms) => {
                tracing::info!("registered at the metaserver");
                let between = Duration::from_millis(ms.clamp(50, 60_000).into());
                self.report = Some((Instant::now(), between));
                self.shared.leave.attends.set(true);
            }
            RegisteredServerEvent::Stop(ticket) => {
                if let StopAction::Cancel(job) = self.shared.tickets.stop(ticket) {
                    crate::slots::take_back(self.shared, job);
                }
            }
            RegisteredServerEvent::Ask(ticket) => {
                self.member.report_attempt(ticket, self.shared.tickets.fate(ticket));
            }
            RegisteredServerEvent::Expire(ticket) => self.shared.tickets.expire(ticket),
            RegisteredServerEvent::AddressState(address, is_known) => {
                self.shared.known_servers.answered(address, is_known);
            }
            RegisteredServerEvent::Ended(failure) => return Err(self.refused(address, failure)),
        }
        Ok(())
    }

    /// The metaserver ends the connection, or takes no registration.
    fn refused(&mut self, address: &str, failure: Failure) -> io::Error {
        let reason = match failure.code {
            Code::NotLeading => {
                return io::Error::other(format!("it does not lead; {:?} does", failure.text));
            }
            Code::NotPermitted if self.membership.token.is_empty() => {
                "it wants a server's token: give --meta-token-file FILE (there `kumi call token add NAME --server` makes one)"
                    .to_owned()
            }
            _ => failure.text,
        };
        if matches!(failure.code, Code::NotPermitted | Code::Expired) {
            let (address, reason) = (address.to_owned(), reason.clone());
            self.refusal = Some(ServeError::Refused { address, reason });
        }
        io::Error::other(reason)
    }

    /// Sends a due report, or fails if the metaserver is silent.
    fn tell(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let Some((_, between)) = self.report else { return Err(io::ErrorKind::TimedOut.into()) };
        if now.duration_since(self.heard) > SILENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.report = Some((now + between, between));
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let busy = self.load.busy(processors);
        let (running, waiting) = self.shared.pool.borrow().load();
        let ours = self.shared.tickets.running();
        let elsewhere = (running + waiting).saturating_sub(ours);
        let computing = (running * self.shared.config.threads) as f64;
        let waits = elsewhere.saturating_sub(running) as f64;
        let others = elsewhere.min(running) as f64;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        // Before it goes: a pass that names it is given later.
        self.shared.passes.reported(now.into_std());
        self.member.report(&LoadReport {
            load: (busy - computing).max(0.0) + others + waits,
            running: count(running),
            waiting: count(waiting),
            elsewhere: count(elsewhere),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_not_the_same_for_all() {
        let mut backoff = Backoff::default();
        let longest: Vec<u128> = (0..7).map(|_| backoff.next(u32::MAX).as_millis()).collect();
        assert_eq!(longest, [250, 500, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(backoff.next(0), AGAIN.1 / 2);
        assert!((AGAIN.1 / 2..AGAIN.1).contains(&backoff.next(u32::MAX / 3)));
    }

    #[test]
    fn a_server_gives_up_only_if_no_metaserver_may_take_it() {
        let refused = || Some(ServeError::NotMetaserver("h:1".to_owned()));
        let began = Instant::now();
        let ends = |said: Vec<Option<ServeError>>, after: Duration| {
            let mut refusals = Refusals::new(began);
            said.into_iter().for_each(|one| refusals.note(one));
            refusals.end(began + after).is_some()
        };
        assert!(ends(vec![refused(), refused()], REFUSED_FOR));
        assert!(!ends(vec![refused()], REFUSED_FOR / 2), "it may be about to change");
        assert!(!ends(vec![refused(), None], REFUSED_FOR), "the other one may come back, or lead");
        assert!(!ends(vec![None, refused(), refused()], REFUSED_FOR), "it serves others by now");
        assert!(!ends(vec![], REFUSED_FOR));
    }

    #[test]
    fn news_for_nobody_are_not_kept() {
        let (reported, mut news) = tokio::sync::mpsc::unbounded_channel();
        for index in 0..1000 {
            reported.send(index).expect("somebody listens");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let wait_before_retry = wait_before_retry(&mut news, Duration::from_millis(1));
        runtime.expect("a runtime").block_on(wait_before_retry);
        assert!(news.is_empty() && !news.is_closed());
    }
}
