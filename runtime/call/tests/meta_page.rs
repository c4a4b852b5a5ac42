//! The page of a metaserver as a browser shows it.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::served;
use grid::{Meta, config, get, meta};
use kumi_rpc::{ClientHello, LoadReport, RegisteredServer, ServerRegistration};

/// A Chromium of this machine.
fn chromium() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut all = std::env::split_paths(&folders).flat_map(|it| names.map(|name| it.join(name)));
    all.find(|path| path.is_file())
}

/// The page as it is after its scripts have run.
fn rendered(chromium: &PathBuf, page: SocketAddr) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let mut browser = Command::new(chromium);
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    browser.args(["--no-first-run", "--virtual-time-budget=3000", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", folder.path().display()));
    let shown = browser.arg(format!("http://{page}/")).output().expect("Chromium runs");
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    String::from_utf8(shown.stdout).expect("text")
}

/// The texts of the cells of a table, by row.
fn rows(page: &str, table: &str) -> Vec<Vec<String>> {
    let (_, rest) = page.split_once(&format!("<table id=\"{table}\">")).expect("the table");
    let (table, _) = rest.split_once("</table>").expect("its end");
    let text = |cell: &str| {
        let mut pieces = cell.split('<');
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.filter_map(|piece| Some(piece.split_once('>')?.1)).fold(first, |all, one| all + one)
    };
    let cells = |row: &str| {
        let cells = row.split("<td").skip(1).filter_map(|cell| Some(cell.split_once('>')?.1));
        cells.map(|cell| text(cell.split("</td>").next().unwrap_or_default())).collect()
    };
    table.split("<tr").skip(1).map(cells).filter(|row: &Vec<String>| !row.is_empty()).collect()
}

/// Waits until the browser shows a page that satisfies the condition.
fn until(what: &str, show: impl Fn() -> String, so: impl Fn(&str) -> bool) -> String {
    let begin = Instant::now();
    loop {
        let page = show();
        if so(&page) {
            return page;
        }
        assert!(begin.elapsed() < Duration::from_secs(120), "{what} is not shown: {page}");
    }
}

/// A server that has registered and reported its load, and then vanishes without a word.
fn vanished(meta: &Meta) {
    let mut member = RegisteredServer::new();
    member.register(&ServerRegistration {
        name: "vanished".to_owned(),
        address: "192.0.2.1:7070".to_owned(),
        site: String::new(),
        version: "1".to_owned(),
        slots: 8,
        processors: 8,
        speed: 0.0,
        offers: 1,
        key: None,
    });
    let all = common::interfaces();
    let noop = all.iter().find(|one| one.name == "noop").expect("a routine");
    let json = noop.to_json().expect("JSON");
    member.offer(twox_hash::XxHash3_64::oneshot(json.as_bytes()), &json);
    member.report(&LoadReport { load: 6.5, running: 3, waiting: 0, elsewhere: 3 });
    let mut stream = TcpStream::connect(meta.address).expect("a connection");
    stream.write_all(&ClientHello::default().encode()).expect("written");
    stream.write_all(member.out()).expect("written");
    let is_busy = |state: &kumi_call::meta::State| {
        state.servers.iter().any(|server| server.name == "vanished" && server.load == 6.5)
    };
    meta.until("its load", is_busy);
}

#[test]
fn the_page_in_a_browser() {
    let Some(chromium) = chromium() else {
        return kumi_skip::skip("the_page_in_a_browser", "there is no Chromium");
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let page = listener.local_addr().expect("its address");
    let mut shown = config("round-robin");
    shown.http = Some(Arc::new(listener));
    let meta = meta(shown);
    let server = served(meta.member("stays", 1));
    let address = server.address.to_string();
    let mut other = served(meta.member("ends", 1));
    meta.until_servers(2);
    other.stop();
    meta.until("a clean end", |state| {
        state.servers.iter().any(|one| one.state == kumi_call::meta::ServerCondition::Ended)
    });
    let grid = meta.grid();
    grid.call("crash", vec![]).expect_err("it crashes");
    grid.call("noop", vec![]).expect("it runs");
    vanished(&meta);
    meta.until("a loss", |state| {
        state.servers.iter().any(|one| one.state == kumi_call::meta::ServerCondition::Lost)
    });
    meta.until("both ends", |state| state.recent.len() == 2);
    // The browser gets what the page's own address gives.
    assert!(get(page, "/status.json").contains("\"lost\""));
    let all = until(
        "the end of both calls",
        || rendered(&chromium, page),
        |page| rows(page, "recent").len() == 2 && page.contains(">lost<"),
    );
    let servers = rows(&all, "servers");
    let of = |name: &str| {
        servers.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name}: {servers:?}"))
    };
    // Name, address, site, state, calls, elsewhere, load.
    assert_eq!((of("stays")[1].as_str(), of("stays")[3].as_str()), (address.as_str(), "up"));
    assert_eq!(of("stays")[4], "0 of 1");
    assert_eq!(of("ends")[3..7], ["ended", "–", "–", "–"]);
    assert_eq!(of("vanished")[3..7], ["lost", "–", "–", "–"]);
    let calls = rows(&all, "recent");
    let place = format!("stays ({address})");
    assert_eq!((calls[0][0].as_str(), &calls[0][2], calls[0][8].as_str()), ("noop", &place, ""));
    assert_eq!((calls[1][0].as_str(), &calls[1][2]), ("crash", &place));
    let why = &calls[1][8];
    assert!(why.starts_with(&format!("{place}: ")) && why.contains("crash"), "{why}");
}
