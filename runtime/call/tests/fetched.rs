//! Arrays that go straight from server to server though those want to know who asks, and who answers.
#![forbid(unsafe_code)]

#[path = "common/authority.rs"]
mod authority;
mod common;

use std::path::Path;
use std::sync::Arc;

use authority::Authority;
use common::{Served, config, eventually, served};
use kumi_call::server::Config;
use kumi_call::transaction::{Report, RunOptions, Transaction};
use kumi_call::{Options, Traffic};

const N: usize = 1000;
const BYTES: u64 = 8 * N as u64;

/// Servers, their addresses and counters.
struct Servers {
    served: Vec<Served>,
    addresses: Vec<String>,
    traffic: Vec<Arc<Traffic>>,
}

/// Two servers; over TLS if they have an authority, for which they trust the file.
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

    /// Runs a transaction whose calls are at the servers in turn: what the first makes the last reads at the other.
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

    /// All that went from call to call stayed at a server or went straight to the other.
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

    /// It went through the client, and the report says why.
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
    all.was_helped(&report, "not trusted here; give that authority's with --peer-ca");
    // Nor if it is not known whom they trust.
    let gone = wrong.with_file_name("nothing.pem");
    let all = two(Some((&authority, &gone)), |_| {});
    let report = all.run("", Some(&authority.file()));
    all.was_helped(&report, "nothing.pem cannot be read");
}
