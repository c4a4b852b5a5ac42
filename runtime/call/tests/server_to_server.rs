//! Arrays that go directly between servers that require tokens, passes or TLS.
#![forbid(unsafe_code)]

#[path = "common/authority.rs"]
mod authority;
mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use authority::Authority;
use common::{TestServer, config, eventually, served};
use kumi_call::server::{Config, Peers, RefusalCounters};
use kumi_call::transaction::{Report, RunOptions, Transaction};
use kumi_call::users::{NewToken, Users, add, revoke};
use kumi_call::{Arg, CallError, Client, HeldNames, Options, RemoteArray, Traffic};
use kumi_rpc::HeldArrayName;

const N: usize = 1000;
const BYTES: u64 = 8 * N as u64;

/// Servers, their addresses and counters.
struct Servers {
    served: Vec<TestServer>,
    addresses: Vec<String>,
    traffic: Vec<Arc<Traffic>>,
}

/// Two servers; with an authority they use TLS and trust its file.
fn two(tls: Option<(&Authority, &Path)>, change: impl Fn(&mut Config)) -> Servers {
    let mut all = Servers { served: vec![], addresses: vec![], traffic: vec![] };
    for _ in 0..2 {
        let mut config = config();
        if let Some((authority, trusted)) = tls {
            config.tls = Some(authority.server("127.0.0.1"));
            config.peer_ca = Some(trusted.to_owned());
        }
        change(&mut config);
        let scheme = if config.tls.is_some() { "tls://" } else { "" };
        all.traffic.push(Arc::clone(&config.traffic));
        let server = served(config);
        all.addresses.push(format!("{scheme}{}", server.address));
        all.served.push(server);
    }
    all
}

impl Servers {
    fn total(&self, counter: fn(&Traffic) -> &std::sync::atomic::AtomicU64) -> u64 {
        self.traffic.iter().map(|it| Traffic::of(counter(it))).sum()
    }

    /// Runs a transaction with calls at alternating servers: the second reads what the first makes.
    fn run(&self, token: &str, ca: Option<&Path>) -> Report {
        let connect =
            Options { token: token.to_owned(), ca: ca.map(Path::to_owned), ..Options::default() };
        let options =
            RunOptions { policy: "round-robin".to_owned(), connect, ..RunOptions::default() };
        let mut sum = vec![1.0; N];
        let mut tx = Transaction::new();
        let (n, x, y) = (N as i32, tx.intermediate(), tx.intermediate());
        let sum_data = tx.array(&mut sum);
        tx.call("fill", vec![n.into(), 0.into(), 1.0.into(), x.into()]);
        tx.call("fill", vec![n.into(), 0.into(), 10.0.into(), y.into()]);
        tx.call("add", vec![n.into(), x.into(), y.into()]);
        tx.call("add", vec![n.into(), y.into(), sum_data.into()]);
        let report = tx.run_with(&self.addresses, &options, &|| false).expect("it runs");
        drop(tx);
        assert!(sum.iter().all(|sum| *sum == 12.0), "{}", sum[0]);
        report
    }

    /// All intermediate arrays stayed at a server or went directly to the other.
    fn went_straight(&self, report: &Report) {
        let tried: Vec<u32> = report.steps.iter().map(|step| step.attempts).collect();
        assert_eq!(tried, [1; 4], "{report:?}");
        assert!(report.steps.iter().all(|step| step.helped.is_none()), "{report:?}");
        assert!(report.moved.between >= BYTES, "{:?}", report.moved);
        assert_eq!((report.moved.sent, report.moved.received), (BYTES, BYTES));
        assert_eq!(self.total(|it| &it.from_servers), report.moved.between);
        eventually("the last byte", || self.total(|it| &it.fetched) == report.moved.between);
        eventually("the result", || self.total(|it| &it.to_clients) == BYTES);
        assert_eq!(self.total(|it| &it.from_clients), BYTES);
    }

    /// It was relayed by the client, and the report says why.
    fn was_helped(&self, report: &Report, why: &str) {
        assert_eq!(self.total(|it| &it.from_servers), 0);
        assert!(self.total(|it| &it.fetched) >= BYTES);
        let told = report.steps.iter().find_map(|step| step.helped.as_deref());
        assert!(told.is_some_and(|told| told.contains(why)), "{told:?}");
    }
}

#[test]
fn servers_fetch_over_tls_from_whom_they_trust() {
    let authority = Authority::new();
    let file = authority.file();
    let all = two(Some((&authority, &file)), |_| {});
    let report = all.run("", Some(&file));
    all.went_straight(&report);
}

#[test]
fn servers_do_not_fetch_from_whom_they_do_not_trust() {
    let (authority, other) = (Authority::new(), Authority::new());
    let wrong = other.file();
    let all = two(Some((&authority, &wrong)), |_| {});
    let report = all.run("", Some(&authority.file()));
    all.was_helped(&report, "not trusted here; name the authority's certificate with --peer-ca");
    // Nor without known authorities.
    let gone = wrong.with_file_name("nothing.pem");
    let all = two(Some((&authority, &gone)), |_| {});
    let report = all.run("", Some(&authority.file()));
    all.was_helped(&report, "nothing.pem cannot be read");
}

/// The user file of a server.
struct UserFile {
    folder: tempfile::TempDir,
}

impl UserFile {
    fn new() -> UserFile {
        UserFile { folder: tempfile::tempdir().expect("a folder") }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("users.toml")
    }

    fn token(&self, user: &str) -> String {
        let new = NewToken { user: user.to_owned(), ..NewToken::default() };
        add(&self.file(), &new).expect("a token")
    }

    fn users(&self) -> Option<Arc<Users>> {
        Some(Arc::new(Users::open(&self.file()).expect("users")))
    }
}

#[test]
fn servers_that_want_tokens_give_arrays_for_vouchers() {
    let fixture = UserFile::new();
    let token = fixture.token("ada");
    let all = two(None, |config| config.users = fixture.users());
    let report = all.run(&token, None);
    all.went_straight(&report);
    // A server that reaches only some servers says so too.
    let all = two(None, |config| {
        (config.users, config.peers) = (fixture.users(), Peers::Listed(Vec::new()));
    });
    let report = all.run(&token, None);
    all.was_helped(&report, "from which this server does not fetch");
}

#[test]
fn servers_that_want_tokens_and_tls_give_arrays_for_vouchers() {
    let (fixture, authority) = (UserFile::new(), Authority::new());
    let (token, file) = (fixture.token("ada"), authority.file());
    let all = two(Some((&authority, &file)), |config| config.users = fixture.users());
    let report = all.run(&token, Some(&file));
    all.went_straight(&report);
}

/// A server that requires tokens, and counts refusals.
struct Guarded {
    server: TestServer,
    counters: Arc<RefusalCounters>,
    ada: Client,
    fixture: UserFile,
}

impl Guarded {
    fn new() -> Guarded {
        let fixture = UserFile::new();
        let token = fixture.token("ada");
        let mut config = config();
        config.users = fixture.users();
        let counters = Arc::clone(&config.counters);
        let server = served(config);
        let ada = as_who(&server, &token).expect("a connection");
        Guarded { server, counters, ada, fixture }
    }

    /// Makes it hold an array of two threes for ada.
    fn hold(&self, name: HeldArrayName) {
        let y = Arg::Remote(Box::new(RemoteArray::stays(name, MINUTE)));
        self.ada.call("fill", vec![2.into(), 0.into(), 3.0.into(), y]).expect("it runs");
    }

    /// Result of a sum at another server that fetches the array with this voucher.
    fn sum(&self, at: &Client, name: HeldArrayName, voucher: &str) -> Result<[f64; 2], CallError> {
        let mut array = RemoteArray::held(name, 16, &self.server.address.to_string());
        array.parts[0].voucher = voucher.to_owned();
        let mut y = [1.0; 2];
        let args = vec![2.into(), Arg::Remote(Box::new(array)), y.as_mut_slice().into()];
        at.call("add", args).map(|_| y)
    }
}

const MINUTE: Duration = Duration::from_secs(60);

fn as_who(server: &TestServer, token: &str) -> Result<Client, CallError> {
    let options = Options { token: token.to_owned(), ..Options::default() };
    Client::connect(&server.address.to_string(), &options)
}

#[test]
fn a_voucher_is_good_for_its_array_and_its_time_alone() {
    let guarded = Guarded::new();
    let mut names = HeldNames::new().expect("random bytes");
    let (name, other) = (names.fresh(), names.fresh());
    guarded.hold(name);
    guarded.hold(other);
    let reader = served(config());
    let at = reader.client();
    let give = |lifetime| guarded.ada.vouch(name, lifetime, None).expect("it is hers");
    let voucher = give(MINUTE);
    assert_eq!(guarded.sum(&at, name, &voucher).expect("it runs"), [4.0; 2]);
    assert_eq!(guarded.counters.refused(), 0);

    // No voucher, another array's, an expired, a forged, another server's: each is counted.
    let mut forged = voucher.clone();
    let last = forged.pop().expect("a digit");
    forged.push(if last == '0' { '1' } else { '0' });
    let another = Guarded::new();
    another.hold(name);
    let foreign = another.ada.vouch(name, MINUTE, None).expect("it is hers");
    let wrong = [
        (name, String::new(), "token"),
        (other, voucher.clone(), "for another array"),
        (name, give(Duration::ZERO), "has expired"),
        (name, forged, "not given by this server"),
        (name, foreign, "not given by this server"),
    ];
    for (count, (name, voucher, why)) in (1..).zip(wrong) {
        let error = guarded.sum(&at, name, &voucher).expect_err("it is not given");
        assert!(matches!(error, CallError::NoSource(_)) && error.has_not_run(), "{error:?}");
        assert!(error.to_string().contains(why), "{why}: {error}");
        assert_eq!(guarded.counters.refused(), count, "{why}");
    }
    // A server sends others only vouchers, and itself none.
    for text in ["a token of somebody", "voucher_", "voucher_0g"] {
        let error = guarded.sum(&at, name, text).expect_err("it is none");
        let is_none = text == "voucher_";
        assert!(is_none || matches!(error, CallError::Argument { .. }), "{text}: {error:?}");
    }
    assert_eq!(guarded.sum(&at, name, &voucher).expect("it is still good"), [4.0; 2]);

    // A removed user gives no vouchers, and earlier ones become invalid.
    guarded.fixture.token("bob");
    revoke(&guarded.fixture.file(), "ada", None).expect("it is revoked");
    eventually("the file to be read", || guarded.sum(&at, name, &voucher).is_err());
    let error = guarded.sum(&at, name, &voucher).expect_err("she is gone");
    assert!(error.to_string().contains("is no longer a user"), "{error}");
}

#[test]
fn who_shows_a_voucher_may_do_nothing_else() {
    let guarded = Guarded::new();
    let mut names = HeldNames::new().expect("random bytes");
    let (name, other) = (names.fresh(), names.fresh());
    guarded.hold(name);
    guarded.hold(other);
    let voucher = guarded.ada.vouch(name, MINUTE, None).expect("it is hers");
    let bearer = as_who(&guarded.server, &voucher).expect("a connection");
    let mut got = [0.0; 2];
    bearer.fetch(name, 0, &mut got).expect("it is for that");
    assert_eq!(got, [3.0; 2]);
    assert!(!bearer.shares_memory());
    let refused = [
        bearer.fetch(other, 0, &mut got).expect_err("it is for another"),
        bearer.names("").map(|_| ()).expect_err("nothing is listed"),
        bearer.interface("noop").map(|_| ()).expect_err("nothing is described"),
        bearer.object("counter").map(|_| ()).expect_err("no objects"),
        bearer.vouch(name, MINUTE, None).map(|_| ()).expect_err("no more vouchers"),
    ];
    for error in &refused {
        assert!(matches!(error, CallError::NotPermitted(_)), "{error:?}");
    }
    assert_eq!(guarded.counters.refused(), refused.len() as u64);
    // A request to drop the array has no effect; later answers show that.
    bearer.let_go(&[name]).expect("it is sent");
    bearer.fetch(name, 0, &mut got).expect("it is there");
    guarded.ada.fetch(name, 0, &mut got).expect("it is there");
    // There are no vouchers for arrays of others, or for unknown ones.
    let bob = as_who(&guarded.server, &guarded.fixture.token("bob"));
    let bob = bob.expect("a connection");
    for (who, name) in [(&bob, name), (&guarded.ada, names.fresh())] {
        let error = who.vouch(name, MINUTE, None).expect_err("there is none");
        assert!(matches!(error, CallError::NotHeld { yet: false, .. }), "{error:?}");
    }
}
