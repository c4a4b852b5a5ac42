//! The web server against browsers that are slow, gone or hostile. A thread plays the head.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumi_control::message::JobsPage;
use kumi_control::message::{ClientReply, ClientRequest, Refusal, RefusalKind, User};
use kumi_web::{Ask, Limits, Listener, Output, Picture, Question, Server, Sessions, Shared};
use kumi_web::{Visitor, Watchers, history::HistoryReader, picture::JobPicture};
use tokio::sync::{mpsc, watch};

/// How long anything may take before a test calls it hung.
const PATIENCE: Duration = Duration::from_secs(60);

struct Site {
    address: SocketAddr,
    sessions: Arc<Sessions>,
    pictures: watch::Sender<Arc<Picture>>,
    watchers: Arc<Watchers>,
    /// The local socket.
    socket: PathBuf,
    _server: Server,
    _folder: tempfile::TempDir,
}

/// Plays the head: knows job 7, whose output is a line, and refuses to kill any other.
fn head(mut questions: mpsc::Receiver<Question>) {
    // A browser that has gone needs no answer.
    while let Some(Question { user, ask }) = questions.blocking_recv() {
        match ask {
            Ask::Jobs(query, browser) => {
                assert!(query.limit <= 500);
                let _ = browser.send(JobsPage { more: query.live, ..JobsPage::default() });
            }
            Ask::Job(_, browser) => drop(browser.send(None)),
            Ask::Output(job, _, browser) => {
                let refused = Refusal { kind: RefusalKind::NoSuchJob, message: "no job".into() };
                let known = job.0 == 7;
                let _ = browser.send(if known { Ok(Output::default()) } else { Err(refused) });
            }
            Ask::Client(ClientRequest::Kill { job, .. }, browser) => {
                let message = format!("job {job} is not of {}", user.uid);
                let refused = Refusal { kind: RefusalKind::NotPermitted, message };
                let done = job.0 == 7;
                let reply = if done { ClientReply::Done } else { ClientReply::Refused(refused) };
                let _ = browser.send(reply);
            }
            Ask::Client(_, browser) => drop(browser),
            Ask::Picture => {}
        }
    }
}

fn site(limits: Limits) -> Site {
    site_with(limits, None)
}

fn site_with(limits: Limits, tls: Option<Arc<rustls::ServerConfig>>) -> Site {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, questions) = mpsc::channel(8);
    std::thread::spawn(|| head(questions));
    let (pictures, receiver) = watch::channel(Arc::new(Picture::default()));
    let (sessions, watchers) = (Arc::new(Sessions::default()), Arc::new(Watchers::default()));
    let shared = Shared {
        cluster: "lab".into(),
        sessions: Arc::clone(&sessions),
        pictures: receiver,
        questions: sender,
        watchers: Arc::clone(&watchers),
        history: Some(HistoryReader::new(&folder.path().join("none"), 1)),
    };
    let socket = folder.path().join("web.sock");
    let local = Listener::Local(UnixListener::bind(&socket).unwrap());
    let listeners = vec![Listener::Network { listener, address, tls }, local];
    let server = Server::start(shared, listeners, limits).unwrap();
    Site { address, sessions, pictures, watchers, socket, _server: server, _folder: folder }
}

fn request(line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n")
}

impl Site {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and reads until the server closes.
    fn raw(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn ask(&self, line: &str, headers: &str) -> String {
        self.raw(&request(line, headers))
    }

    /// Asks by the local socket, as the user of this test.
    fn ask_locally(&self, line: &str, headers: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request(line, headers).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn ticket(&self, uid: u32, act: bool) -> String {
        let user = User { uid, gid: uid, name: "alice".into() };
        self.sessions.issue(Visitor { user, act }).unwrap()
    }

    fn cookie_of(&self, uid: u32, act: bool) -> String {
        let session = self.sessions.redeem(&self.ticket(uid, act), None).unwrap();
        format!("Cookie: kumi-lab={session}\r\n")
    }

    fn cookie(&self, act: bool) -> String {
        self.cookie_of(1000, act)
    }

    /// A browser that watches, after its answer's header.
    fn watch(&self) -> BufReader<TcpStream> {
        self.watch_with(&self.cookie(false))
    }

    fn watch_with(&self, cookie: &str) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        let request = format!("GET /api/live HTTP/1.1\r\nHost: localhost\r\n{cookie}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        reader
    }

    fn publish(&self, number: u64, ranks: usize) {
        let user = User { uid: 1, gid: 1, name: String::new() };
        let job = JobPicture {
            job: 1,
            user,
            name: "big".into(),
            idle: false,
            parts: Vec::new(),
            loads: vec![50; ranks],
        };
        let picture =
            Picture { number, open: true, named: true, jobs: vec![job], ..Picture::default() };
        self.pictures.send_replace(Arc::new(picture));
    }

    fn until_nobody_watches(&self, mut meanwhile: impl FnMut()) {
        let begin = Instant::now();
        while self.watchers.any() {
            assert!(begin.elapsed() < PATIENCE, "somebody still watches");
            meanwhile();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn status(answer: &str) -> u16 {
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    code.unwrap_or_else(|| panic!("no status in {answer}"))
}

#[test]
fn nobody_sees_anything_without_a_session() {
    let site = site(Limits::default());
    for path in
        ["me", "live", "cluster", "jobs", "jobs/7", "jobs/7/output", "jobs/7/ranks", "history"]
    {
        let line = format!("GET /api/{path}");
        assert_eq!(status(&site.ask(&line, "")), 401, "{path}");
        let wrong = format!("Cookie: kumi-lab={}\r\n", "0".repeat(64));
        assert_eq!(status(&site.ask(&line, &wrong)), 401, "{path}");
        let other = site.cookie(false).replace("kumi-lab", "kumi-other");
        assert_eq!(status(&site.ask(&line, &other)), 401, "{path}");
    }
    assert_eq!(status(&site.ask("POST /api/jobs/7/kill", "X-Kumi-Request: 1\r\n")), 401);
    assert!(!site.watchers.any());
    // The page itself says nothing of the cluster.
    assert_eq!(status(&site.ask("GET /", "")), 200);
}

#[test]
fn a_ticket_opens_one_session() {
    let site = site(Limits::default());
    assert_eq!(status(&site.ask("GET /login?ticket=wrong", "")), 403);
    assert_eq!(status(&site.ask("GET /login", "")), 400);
    let ticket = site.ticket(1000, false);
    let answer = site.ask(&format!("GET /login?ticket={ticket}"), "");
    assert_eq!(status(&answer), 303);
    let set = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
    let cookie = format!("Cookie: {}\r\n", set.split(';').next().unwrap());
    let me = site.ask("GET /api/me", &cookie);
    assert!(me.ends_with(r#"{"cluster":"lab","user":"alice","uid":1000,"act":false}"#), "{me}");
    assert_eq!(status(&site.ask(&format!("GET /login?ticket={ticket}"), "")), 403, "used");
    let own = format!("{cookie}X-Kumi-Request: 1\r\n");
    assert_eq!(status(&site.ask("POST /api/logout", &own)), 204);
    assert_eq!(status(&site.ask("GET /api/me", &cookie)), 401);
}

#[test]
fn every_answer_has_the_policy_and_no_path_leads_out() {
    let site = site(Limits::default());
    let cookie = site.cookie(false);
    for (line, code) in [
        ("GET /", 200),
        ("GET /monitor.js", 200),
        ("GET /api/me", 200),
        ("GET /api/jobs?all=true&limit=9999", 200),
        ("GET /api/jobs?limit=many", 400),
        ("GET /api/jobs/8", 404),
        ("GET /api/jobs/8/output", 404),
        ("GET /api/jobs/7/output", 200),
        ("GET /api/jobs/seven", 400),
        ("GET /api/history?job=8", 404),
        ("GET /api/history", 500),
        ("GET /nothing", 404),
        ("GET /../../../etc/passwd", 404),
        ("GET /%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET /monitor.js/../../Cargo.toml", 404),
        ("GET //etc/passwd", 404),
        ("GET /api/jobs/..%2f..%2fetc", 400),
        ("DELETE /api/jobs/7", 403),
        ("PUT /api/me", 403),
    ] {
        let answer = site.ask(line, &cookie);
        assert_eq!(status(&answer), code, "{line}: {answer}");
        assert!(
            answer.contains("content-security-policy: default-src 'none'; script-src 'self'"),
            "{answer}"
        );
        assert!(answer.contains("x-frame-options: DENY") && answer.contains("nosniff"), "{answer}");
        assert!(!answer.contains("root:") && !answer.contains("[workspace]"), "{answer}");
    }
}

#[test]
fn only_a_session_that_acts_acts_and_the_head_decides() {
    let site = site(Limits::default());
    let (looks, acts) = (site.cookie(false), site.cookie(true));
    let own = |cookie: &str| format!("{cookie}X-Kumi-Request: 1\r\n");
    let kill = "POST /api/jobs/7/kill";
    let answer = site.ask(kill, &own(&looks));
    assert!(status(&answer) == 403 && answer.contains("--act"), "{answer}");
    assert_eq!(
        status(&site.ask(kill, &acts)),
        403,
        "a page of another origin cannot set the header"
    );
    assert_eq!(status(&site.ask(kill, &own(&acts))), 204);
    let answer = site.ask("POST /api/jobs/8/kill", &own(&acts));
    assert!(status(&answer) == 403 && answer.contains("not of 1000"), "{answer}");
    assert_eq!(status(&site.ask("GET /api/jobs/7/kill", &own(&acts))), 405);
    assert_eq!(status(&site.ask("POST /api/jobs/7/signal/300", &own(&acts))), 400);
}

#[test]
fn requests_are_bounded() {
    let site = site(Limits { head: Duration::from_millis(300), ..Limits::default() });
    let long = "POST /api/logout HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    assert_eq!(status(&site.raw(long)), 413);
    let endless =
        "POST /api/logout HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(status(&site.raw(endless)), 413);
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    assert_eq!(status(&site.raw(&head)), 431);
    let host = "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&site.raw(host)), 421);
    // Who sends a header byte by byte, or nothing, is left.
    for begun in ["", "GET / HTTP/1.1\r\nHost: local"] {
        let mut stream = site.connect();
        stream.write_all(begun.as_bytes()).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    let slow: Vec<TcpStream> = (0..300).map(|_| site.connect()).collect();
    assert_eq!(status(&site.ask("GET /", "")), 200, "they make room");
    drop(slow);
}

#[test]
fn an_address_with_many_connections_leaves_room_for_others() {
    let (server, client) = certificates();
    let site = site_with(Limits::default(), Some(server));
    let slow: Vec<TcpStream> = (0..300).map(|_| site.connect()).collect();
    // Behind all of them, in the order of arrival.
    let mut last = site.connect();
    assert_eq!(last.read(&mut [0]).unwrap(), 0, "it is one too many");
    assert_eq!(status(&site.ask_locally("GET /", "")), 200);
    drop(slow);
    let begin = Instant::now();
    let mut answer = String::new();
    while answer.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "those that are gone count on");
        let mut stream = encrypted(&site, &client);
        // It may be closed before it is written to.
        let _ = stream.write_all(request("GET /", "").as_bytes());
        let _ = stream.read_to_string(&mut answer);
    }
    assert_eq!(status(&answer), 200);
}

#[test]
fn a_stolen_session_is_of_no_use_at_the_local_socket() {
    let site = site(Limits::default());
    let own = rustix::process::geteuid().as_raw();
    let (mine, stolen) = (site.cookie_of(own, true), site.cookie_of(own + 1, true));
    assert_eq!(status(&site.ask_locally("GET /api/me", &mine)), 200);
    assert_eq!(status(&site.ask_locally("GET /api/me", &stolen)), 401);
    let kill = "POST /api/jobs/7/kill";
    let with = |cookie: &str| format!("{cookie}X-Kumi-Request: 1\r\n");
    assert_eq!(status(&site.ask_locally(kill, &with(&stolen))), 401);
    assert_eq!(status(&site.ask_locally(kill, &with(&mine))), 204);
    let ticket = site.ticket(own + 1, false);
    let login = format!("GET /login?ticket={ticket}");
    assert_eq!(status(&site.ask_locally(&login, "")), 403);
    // Where nobody knows who comes, the secret is all there is.
    assert_eq!(status(&site.ask(&login, "")), 303, "it was not used up");
    assert_eq!(status(&site.ask("GET /api/me", &stolen)), 200);
}

#[test]
fn pictures_end_with_their_session() {
    let site = site(Limits::default());
    let cookie = site.cookie(false);
    let mut reader = site.watch_with(&cookie);
    assert_eq!(
        status(&site.ask("POST /api/logout", &format!("{cookie}X-Kumi-Request: 1\r\n"))),
        204
    );
    site.publish(77, 1);
    let mut rest = String::new();
    // The connection stays for another request, and ends without one.
    reader.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("\"number\":77"), "{rest}");
    assert!(!site.watchers.any());
}

/// A server's certificate for `localhost`, and a client that trusts it.
fn certificates() -> (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

type Encrypted = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

fn encrypted(site: &Site, client: &Arc<rustls::ClientConfig>) -> Encrypted {
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let client = rustls::ClientConnection::new(Arc::clone(client), name).unwrap();
    rustls::StreamOwned::new(client, site.connect())
}

#[test]
fn rights_hold_under_tls() {
    let (server, client) = certificates();
    let site = site_with(Limits::default(), Some(server));
    let ask = |line: &str, headers: &str| {
        let mut stream = encrypted(&site, &client);
        stream.write_all(request(line, headers).as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    };
    assert_eq!(status(&ask("GET /login?ticket=wrong", "")), 403);
    let wrong = format!("Cookie: kumi-lab={}\r\n", "0".repeat(64));
    for cookie in ["", &wrong] {
        for line in ["GET /api/me", "GET /api/live", "GET /api/jobs"] {
            assert_eq!(status(&ask(line, cookie)), 401, "{line}");
        }
        let kill = format!("{cookie}X-Kumi-Request: 1\r\n");
        assert_eq!(status(&ask("POST /api/jobs/7/kill", &kill)), 401);
    }
    let answer = ask(&format!("GET /login?ticket={}", site.ticket(1000, false)), "");
    assert_eq!(status(&answer), 303);
    let set = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(set.contains("; Secure") && answer.contains("strict-transport-security"), "{answer}");
    let cookie = format!("Cookie: {}\r\n", set.split(';').next().unwrap());
    assert_eq!(status(&ask("GET /api/me", &cookie)), 200);
    assert_eq!(
        status(&ask("POST /api/jobs/7/kill", &format!("{cookie}X-Kumi-Request: 1\r\n"))),
        403
    );
}

#[test]
fn the_tls_port_answers_nothing_but_tls() {
    let (server, client) = certificates();
    let limits = Limits { handshake: Duration::from_millis(300), ..Limits::default() };
    let site = site_with(limits, Some(server));
    let cookie = site.cookie(true);
    for line in ["GET /", "GET /api/me", "POST /api/jobs/7/kill"] {
        let mut stream = site.connect();
        stream.write_all(request(line, &cookie).as_bytes()).unwrap();
        let mut answer = Vec::new();
        // It may be reset: what was sent is not read.
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.windows(5).any(|five| five == b"HTTP/"), "{answer:?}");
    }
    // Who shakes no hand, or half of one, is left.
    for begun in [&b""[..], &[22, 3, 1, 0, 200, 1, 0]] {
        let mut stream = site.connect();
        stream.write_all(begun).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    let mut stream = encrypted(&site, &client);
    stream.write_all(request("GET /", "").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "others are served");
}

#[test]
fn a_slow_browser_under_tls_is_left() {
    let (server, client) = certificates();
    let limits = Limits { stall: Duration::from_millis(300), ..Limits::default() };
    let site = site_with(limits, Some(server));
    let mut stream = encrypted(&site, &client);
    let line = request("GET /api/live", &site.cookie(false));
    stream.write_all(line.as_bytes()).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    assert!(site.watchers.any());
    let mut number = 0;
    site.until_nobody_watches(|| {
        number += 1;
        site.publish(number, 500_000);
    });
}

#[test]
fn a_slow_browser_misses_pictures() {
    let site = site(Limits::default());
    let mut reader = site.watch();
    const PICTURES: u64 = 300;
    // Together 300 MB, which no socket holds.
    for number in 1..=PICTURES {
        site.publish(number, 500_000);
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut seen, mut line) = (0, String::new());
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some(text) = line.strip_prefix("data: ") else { continue };
        seen += 1;
        if text.starts_with(&format!("{{\"number\":{PICTURES},")) {
            break;
        }
    }
    assert!(seen < PICTURES, "all of {seen} were kept for it");
}

#[test]
fn browsers_that_are_gone_or_take_nothing_leave_nothing() {
    let site = site(Limits { stall: Duration::from_millis(300), ..Limits::default() });
    let mut number = 0;
    let mut publish = || {
        number += 1;
        site.publish(number, 500_000);
    };
    drop(site.watch());
    site.until_nobody_watches(&mut publish);
    let stalled = site.watch();
    assert!(site.watchers.any());
    site.until_nobody_watches(&mut publish);
    drop(stalled);
    let own: Vec<_> = (0..Watchers::MOST_OF_USER).map(|_| site.watch()).collect();
    let refused = site.ask("GET /api/live", &site.cookie(false));
    assert_eq!(status(&refused), 503, "a user has no more");
    drop(site.watch_with(&site.cookie_of(1001, false)));
    drop(own);
    site.until_nobody_watches(&mut publish);
    drop(site.watch());
}
