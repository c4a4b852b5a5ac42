//! A metaserver with users: their access to calls and registration, and the information that servers get.
#![forbid(unsafe_code)]

#[path = "common/authority.rs"]
mod authority;
mod common;
#[path = "common/grid.rs"]
mod grid;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use authority::Authority;
use common::{Gate, TestServer, refused, served};
use grid::{Meta, config, meta, meta_at, shown_state};
use kumi_call::meta::ServerCondition;
use kumi_call::server::{self, Listener, Membership, Registry, ServeError};
use kumi_call::users::{NewToken, Users, add, revoke};
use kumi_call::{CallError, Client, Grid, GridCall, HeldArray, Options};

/// A metaserver with users, and their file.
struct MetaWithUsers {
    meta: Meta,
    file: PathBuf,
    server_token: String,
    folder: tempfile::TempDir,
}

fn token(file: &std::path::Path, user: &str, routines: Option<&str>) -> String {
    let routines = routines.map(|pattern| vec![pattern.to_owned()]);
    add(file, &NewToken { user: user.to_owned(), routines, ..NewToken::default() })
        .expect("a token")
}

impl MetaWithUsers {
    fn new() -> MetaWithUsers {
        MetaWithUsers::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut kumi_call::meta::Config)) -> MetaWithUsers {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("users.toml");
        let server = NewToken { user: "srv".to_owned(), server: true, ..NewToken::default() };
        let server_token = add(&file, &server).expect("a token");
        let mut config = config("round-robin");
        config.users = Some(Arc::new(Users::open(&file).expect("users")));
        change(&mut config);
        MetaWithUsers { meta: meta(config), file, server_token, folder }
    }

    fn member(&self, name: &str, slots: usize) -> server::Config {
        let mut config = self.meta.member(name, slots);
        let membership = Membership {
            token: self.server_token.clone(),
            ..config.membership.take().expect("a membership")
        };
        config.membership = Some(membership);
        config
    }

    fn serve(&self, config: server::Config) -> TestServer {
        let count = self.servers();
        let server = served(config);
        self.until("a server", || self.servers() > count);
        server
    }

    fn servers(&self) -> usize {
        let state = self.state();
        state.servers.iter().filter(|server| server.state == ServerCondition::Up).count()
    }

    fn state(&self) -> kumi_call::meta::State {
        self.grid(&self.server_token).expect("a connection").status().expect("its state")
    }

    fn until(&self, what: &str, is: impl Fn() -> bool) {
        let begin = std::time::Instant::now();
        while !is() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{what} does not come");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn user(&self, user: &str) -> String {
        token(&self.file, user, None)
    }

    fn grid(&self, token: &str) -> Result<Grid, CallError> {
        let options = Options { token: token.to_owned(), ..Options::default() };
        Grid::connect(&self.meta.address.to_string(), &options)
    }
}

fn nap(grid: &Grid, ms: i32) -> GridCall {
    grid.call_async("nap", vec![ms.into()], None).expect("it begins")
}

#[test]
fn only_users_call_and_only_servers_offer() {
    let fixture = MetaWithUsers::new();
    let _server = fixture.serve(fixture.member("a", 1));
    for wrong in ["", "kumi_guessed", "pass_00"] {
        let refused = fixture.grid(wrong);
        assert!(matches!(refused, Err(CallError::NotPermitted(_))), "{wrong}: {refused:?}");
    }
    let past =
        NewToken { user: "ada".to_owned(), expires: Some(1_000_000_000), ..NewToken::default() };
    let past = add(&fixture.file, &past).expect("a token");
    assert!(matches!(fixture.grid(&past), Err(CallError::Expired(_))));
    let ada = fixture.grid(&fixture.user("ada")).expect("a connection");
    ada.call("noop", vec![]).expect("it runs");
    // A server may not call, and a caller may not register.
    let server = fixture.grid(&fixture.server_token).expect("a connection");
    assert_eq!(server.names("").expect("names"), [""; 0]);
    assert!(matches!(server.call("noop", vec![]), Err(CallError::NotPermitted(_))));
    let mut rogue = fixture.meta.member("rogue", 1);
    for token in [fixture.user("eve"), String::new()] {
        let before = fixture.state().counters.refused;
        let has_token = !token.is_empty();
        if let Some(membership) = &mut rogue.membership {
            membership.token = token;
        }
        let error = refused(rogue.clone());
        assert!(matches!(error, ServeError::Refused { .. }), "{error}");
        // The option is that of the program that says it.
        let wanted = if has_token { "`eve` may not offer" } else { "give --meta-token-file FILE" };
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(fixture.state().counters.refused > before);
        assert_eq!(fixture.servers(), 1);
    }
    // Nor may one server pass for another.
    let other = NewToken { user: "other".to_owned(), server: true, ..NewToken::default() };
    let mut thief = fixture.member("a", 1);
    if let Some(membership) = &mut thief.membership {
        membership.token = add(&fixture.file, &other).expect("a token");
        membership.address = fixture.state().servers[0].address.clone();
    }
    let before = fixture.state().counters.refused;
    assert!(refused(thief).to_string().contains("is the server of another"));
    assert!(fixture.state().counters.refused > before);
    ada.call("noop", vec![]).expect("it runs where it should");
}

#[test]
fn whose_a_server_is_outlives_the_metaserver() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("meta.db");
    let mut fixture = MetaWithUsers::with(|config| config.state = Some(path.clone()));
    let server = fixture.serve(fixture.member("a", 1));
    let address = fixture.state().servers[0].address.clone();
    drop(server);
    fixture.meta.stop();
    let mut again = config("round-robin");
    again.users = Some(Arc::new(Users::open(&fixture.file).expect("users")));
    again.state = Some(path);
    fixture.meta = meta_at(again, fixture.meta.address);
    let other = NewToken { user: "other".to_owned(), server: true, ..NewToken::default() };
    let as_it = |token: &str| {
        let mut config = fixture.member("a", 1);
        if let Some(membership) = &mut config.membership {
            token.clone_into(&mut membership.token);
            membership.address.clone_from(&address);
        }
        config
    };
    refused(as_it(&add(&fixture.file, &other).expect("a token")));
    assert!(fixture.state().counters.refused > 0);
    assert_eq!(fixture.servers(), 0);
    let _server = fixture.serve(as_it(&fixture.server_token));
    assert_eq!(fixture.servers(), 1);
}

#[test]
fn users_see_what_is_theirs() {
    let fixture = MetaWithUsers::new();
    let _server = fixture.serve(fixture.member("a", 2));
    let ada = fixture.grid(&token(&fixture.file, "ada", Some("n*"))).expect("a connection");
    let bob = fixture.grid(&fixture.user("bob")).expect("a connection");
    assert_eq!(ada.names("").expect("names"), ["nap", "negate", "noop"]);
    match ada.call("dmmul", vec![]) {
        Err(CallError::NotPermitted(text)) => {
            assert!(text.contains("`ada` may not call `dmmul`"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    match ada.call("nop", vec![]) {
        Err(CallError::RoutineNotFound(text)) => assert!(text.contains("noop"), "{text}"),
        other => panic!("{other:?}"),
    }
    ada.call("noop", vec![]).expect("it runs");
    bob.call("noop", vec![]).expect("it runs");
    fixture.until("both ends", || bob.status().expect("the state").counters.done == 2);
    let state = ada.status().expect("the state");
    let routines: Vec<&str> = state.routines.iter().map(|routine| &*routine.name).collect();
    assert!(!routines.is_empty(), "she may call some");
    assert!(routines.iter().all(|name| name.starts_with('n')), "{routines:?}");
    let users: Vec<&str> = state.recent.iter().map(|call| call.user.as_str()).collect();
    assert_eq!(users, ["ada"]);
}

#[test]
fn who_is_revoked_waits_no_longer() {
    let fixture = MetaWithUsers::new();
    let _server = fixture.serve(fixture.member("a", 1));
    let ada = fixture.grid(&fixture.user("ada")).expect("a connection");
    let bob = fixture.grid(&fixture.user("bob")).expect("a connection");
    let open = Gate::new();
    let mut runs = ada.call_async("gate", open.args(), None).expect("it begins");
    fixture.until("a call that runs", || fixture.state().running == 1);
    let (mut hers, mut his) = (nap(&ada, 1), nap(&bob, 1));
    fixture.until("calls that wait", || fixture.state().waiting == 2);
    revoke(&fixture.file, "ada", None).expect("revoked");
    assert!(matches!(hers.wait(&|| false), Err(CallError::Cancelled(_))));
    let next = ada.call("noop", vec![]);
    assert!(matches!(next, Err(CallError::NotPermitted(_))), "{next:?}");
    open.open();
    runs.wait(&|| false).expect("what runs goes on");
    his.wait(&|| false).expect("others do");
    // The same for servers.
    revoke(&fixture.file, "srv", None).expect("revoked");
    fixture.until("no server", || {
        let state = bob.status().expect("the state");
        state.servers.iter().all(|server| server.state != ServerCondition::Up)
    });
}

/// A server that only the metaserver's users reach, and that sees no token.
#[test]
fn servers_are_shown_passes_and_no_tokens() {
    let fixture = MetaWithUsers::new();
    let mut guarded = fixture.member("a", 1);
    guarded.only_sent = true;
    let server = fixture.serve(guarded);
    let direct = Client::connect(&server.address.to_string(), &Options::default());
    assert!(matches!(direct, Err(CallError::NotPermitted(_))), "{direct:?}");
    let ada = fixture.user("ada");
    let grid = fixture.grid(&ada).expect("a connection");
    (0..3).for_each(|_| drop(grid.call("noop", vec![]).expect("it runs")));
    drop(server);

    // Captures what a client shows to a server: it listens and stays silent.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut liar = fixture.member("liar", 1);
    if let Some(membership) = &mut liar.membership {
        membership.address = listener.local_addr().expect("its address").to_string();
    }
    fixture.until("no server", || fixture.servers() == 0);
    let _liar = fixture.serve(liar);
    let call = grid.call_async("noop", vec![], Some(Duration::from_secs(20))).expect("it begins");
    let (mut stream, _) = listener.accept().expect("a client");
    let mut shown = vec![0; 512];
    let count = std::io::Read::read(&mut stream, &mut shown).expect("its hello");
    let shown = String::from_utf8_lossy(&shown[..count]).into_owned();
    assert!(shown.contains("pass_") && !shown.contains("kumi_"), "{shown}");
    assert!(!shown.contains(&ada));
    drop((call, stream));

    // The pass is worthless elsewhere, and at a second use.
    let pass = &shown[shown.find("pass_").expect("a pass")..];
    let end = pass[5..].find(|c: char| !c.is_ascii_hexdigit()).map_or(pass.len(), |at| at + 5);
    let options = Options { token: pass[..end].to_owned(), ..Options::default() };
    let other = served(fixture.member("b", 1));
    let used = Client::connect(&other.address.to_string(), &options);
    assert!(matches!(used, Err(CallError::NoServer { has_not_run: true, .. })), "{used:?}");
    let at_meta = fixture.grid(&options.token);
    assert!(matches!(at_meta, Err(CallError::NotPermitted(_))), "{at_meta:?}");
}

#[test]
fn a_server_with_users_of_its_own_takes_those_who_are_both() {
    let fixture = MetaWithUsers::new();
    let own = fixture.folder.path().join("own.toml");
    token(&own, "ada", Some("noop"));
    let mut guarded = fixture.member("a", 1);
    guarded.users = Some(Arc::new(Users::open(&own).expect("users")));
    guarded.membership.iter_mut().for_each(|membership| membership.vouches = true);
    let _server = fixture.serve(guarded);
    let ada = fixture.grid(&fixture.user("ada")).expect("a connection");
    let bob = fixture.grid(&fixture.user("bob")).expect("a connection");
    ada.call("noop", vec![]).expect("it runs");
    let not = ada.call("nap", vec![1.into()]).expect_err("the server does not permit it");
    assert!(not.to_string().contains("may not call `nap`") && not.has_not_run(), "{not}");
    let nobody = bob.call("noop", vec![]).expect_err("the server does not know him");
    assert!(nobody.to_string().contains("`bob` is not a user of this server"), "{nobody}");
}

/// A metaserver that names a server without TLS gets neither arrays nor pass out of a client's encrypted way.
#[test]
fn who_calls_by_tls_is_not_led_to_a_server_without() {
    let authority = Authority::new();
    let fixture = MetaWithUsers::with(|config| config.tls = Some(authority.server("127.0.0.1")));
    let at = format!("tls://{}", fixture.meta.address);
    let ca = Some(authority.file());
    let options = Options { token: fixture.user("ada"), ca: ca.clone(), ..Options::default() };
    let grid = Grid::connect(&at, &options).expect("a connection");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let path = fixture.folder.path().join("trap");
    let unix = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    tcp.set_nonblocking(true).expect("it does not wait");
    unix.set_nonblocking(true).expect("it does not wait");
    let traps = [
        tcp.local_addr().expect("its address").to_string(),
        format!("kumi://{}", tcp.local_addr().expect("its address")),
        format!("unix:{}", path.display()),
    ];
    for (number, trap) in traps.into_iter().enumerate() {
        let mut liar = fixture.member(&format!("liar {number}"), 1);
        if let Some(membership) = &mut liar.membership {
            membership.metaservers = vec![at.clone()];
            (membership.ca, membership.address) = (ca.clone(), trap.clone());
        }
        let server = served(liar);
        let up = |count: usize| {
            let state = grid.status().expect("the state");
            state.servers.iter().filter(|server| server.state == ServerCondition::Up).count()
                == count
        };
        fixture.until("a server", || up(1));
        let error = grid.call("noop", vec![]).expect_err("it is led astray");
        assert!(error.has_not_run() && error.to_string().contains(&trap), "{error}");
        assert!(error.to_string().contains("no secure connection"), "{error}");
        let later = grid.call_async("noop", vec![], None).expect("it begins").wait(&|| false);
        let error = later.expect_err("it is led astray");
        assert!(error.to_string().contains("no secure connection"), "{error}");
        drop(server);
        fixture.until("no server", || up(0));
    }
    assert!(tcp.accept().is_err() && unix.accept().is_err(), "nobody came to the traps");
}

/// The error with which a server ends that is told to stop at once.
fn ended(config: server::Config) -> Option<ServeError> {
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).expect("a port");
    server::serve(config, Registry::default(), listener, async {}).err()
}

/// Whoever reads the key of a server's passes can call as any user.
#[test]
fn the_key_of_passes_is_not_sent_in_clear() {
    let member = |metaservers: &[&str], insecure: bool| {
        let mut config = common::config();
        let metaservers = metaservers.iter().copied().map(str::to_owned).collect();
        config.membership = Some(Membership { metaservers, insecure, ..Membership::default() });
        config
    };
    // An address of documentation, at which nobody is.
    let private = ["127.0.0.1:1", "unix:/nowhere", "tls://192.0.2.1:7071"];
    assert!(ended(member(&private, false)).is_none());
    for open in ["192.0.2.1:7071", "kumi://192.0.2.1:7071", "meta.example:7071"] {
        let refused = ended(member(&[private[2], open], false));
        let refused = refused.expect("it does not serve");
        assert!(matches!(&refused, ServeError::ClearMetaserver { address } if address == open));
        assert!(refused.to_string().contains("--insecure"), "{refused}");
    }
    assert!(ended(member(&["192.0.2.1:7071"], true)).is_none());
}

#[test]
fn a_metaserver_vouches_for_users_of_a_server_only_if_its_owner_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own.toml");
    token(&own, "ada", None);
    let member = |vouches: bool, only_sent: bool| {
        let mut config = common::config();
        config.users = Some(Arc::new(Users::open(&own).expect("users")));
        config.only_sent = only_sent;
        let metaservers = vec!["127.0.0.1:1".to_owned()];
        config.membership = Some(Membership { metaservers, vouches, ..Membership::default() });
        config
    };
    let refused = ended(member(false, false)).expect("it does not serve");
    assert!(matches!(refused, ServeError::Vouching), "{refused}");
    assert!(refused.to_string().contains("--trust-meta"), "{refused}");
    assert!(ended(member(true, false)).is_none() && ended(member(false, true)).is_none());
    let alone = server::Config { membership: None, ..member(false, false) };
    assert!(ended(alone).is_none(), "its own users show it their tokens");
}

#[test]
fn metaserver_and_servers_speak_tls() {
    let authority = Authority::new();
    let tls = || authority.server("127.0.0.1");
    let fixture = MetaWithUsers::with(|config| config.tls = Some(tls()));
    let ca = authority.file();
    let at = format!("tls://{}", fixture.meta.address);
    let options =
        Options { token: fixture.user("ada"), ca: Some(ca.clone()), ..Options::default() };
    let grid = Grid::connect(&at, &options).expect("a connection");
    let mut guarded = fixture.member("a", 1);
    (guarded.tls, guarded.only_sent) = (Some(tls()), true);
    if let Some(membership) = &mut guarded.membership {
        membership.metaservers = vec![at.clone()];
        membership.ca = Some(ca);
    }
    let _server = served(guarded);
    fixture.until("a server", || grid.status().expect("the state").servers.len() == 1);
    let (a, b, mut c) = (vec![1.5; 90_000], vec![2.0; 90_000], vec![0.0; 90_000]);
    grid.call("dmmul", vec![300.into(), (&a).into(), (&b).into(), (&mut c).into()])
        .expect("it runs");
    assert!(c.iter().all(|x| *x == 900.0));
    let state = grid.status().expect("the state");
    assert!(state.servers[0].address.starts_with("tls://"), "{state:?}");
    // Many streams at once, more than fit into the socket.
    let mut calls: Vec<GridCall> = (0..200).map(|_| nap(&grid, 0)).collect();
    calls.iter_mut().for_each(|call| drop(call.wait(&|| false).expect("it runs")));
    // A client without TLS is told so.
    match fixture.grid(&options.token) {
        Err(error @ CallError::Tls { .. }) => {
            assert!(error.to_string().contains("tls://HOST:PORT"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let elsewhere = Grid::connect(&at, &Options { ca: None, ..options });
    assert!(matches!(elsewhere, Err(CallError::Tls { .. })), "{elsewhere:?}");
}

#[test]
fn arrays_stay_for_users_of_a_metaserver() {
    let fixture = MetaWithUsers::new();
    let _servers = ["one", "two"].map(|name| {
        let mut guarded = fixture.member(name, 2);
        guarded.only_sent = true;
        fixture.serve(guarded)
    });
    let ada = fixture.grid(&fixture.user("ada")).expect("a connection");
    let bob = fixture.grid(&fixture.user("bob")).expect("a connection");
    let (x, mut y) = (HeldArray::new(), [1.0; 4]);
    ada.call("fill", vec![4.into(), 0.into(), 3.0.into(), x.stays()]).expect("it runs");
    for turn in 1..=3 {
        // Each call has a pass of its own for the same connection.
        let args = vec![4.into(), x.argument(), y.as_mut_slice().into()];
        ada.call("add", args).expect("it runs");
        assert_eq!(y, [1.0 + 3.0 * f64::from(turn); 4]);
    }
    x.fetch(0, &mut y).expect("it is hers");
    assert_eq!(y, [3.0; 4]);
    let args = vec![4.into(), x.argument(), y.as_mut_slice().into()];
    let refused = bob.call("add", args).expect_err("it is of another connection");
    assert!(matches!(refused, CallError::HeldElsewhere(_)), "{refused:?}");
}

#[test]
fn shares_are_by_weight_and_priorities_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let http = listener.local_addr().expect("its address");
    let fixture = MetaWithUsers::with(|config| config.http = Some(Arc::new(listener)));
    let _server = fixture.serve(fixture.member("a", 1));
    let (ada, bob) = (fixture.user("ada"), fixture.user("bob"));
    let text = std::fs::read_to_string(&fixture.file).expect("the file");
    let text = text.replace("name = \"ada\"\n", "name = \"ada\"\nweight = 3\n");
    let text = text.replace("name = \"bob\"\n", "name = \"bob\"\npriority = 0\n");
    // Whole at once: the metaserver may read it at any time, and an empty file has no users.
    let renewed = fixture.file.with_extension("new");
    std::fs::write(&renewed, text).expect("written");
    std::fs::rename(&renewed, &fixture.file).expect("replaced");
    let (ada, bob) = (fixture.grid(&ada).expect("it"), fixture.grid(&bob).expect("it"));
    let runs = nap(&ada, 60_000);
    fixture.until("a call that runs", || fixture.state().running == 1);
    let noop = |grid: Grid| grid.call_async("noop", vec![], None).expect("it begins");
    let mut his: Vec<GridCall> = (0..11).map(|_| nap(&bob, 0)).collect();
    // The file sets his priority: he does not overtake his other calls.
    his.push(noop(bob.with_priority(9)));
    let mut hers: Vec<GridCall> = (0..35).map(|_| nap(&ada, 0)).collect();
    hers.push(noop(ada.with_priority(9)));
    fixture.until("calls that wait", || fixture.state().waiting == 48);
    drop(runs);
    hers.iter_mut().chain(&mut his).for_each(|call| drop(call.wait(&|| false).expect("it runs")));
    fixture.until("all ends", || fixture.state().counters.done == 48);
    let state = shown_state(http, "the last call", |state| state.counters.done == 48);
    // One slot: they ended in the order of their start. The first is the cancelled one.
    let turns: Vec<(&str, &str)> = state
        .recent
        .iter()
        .rev()
        .map(|it| (it.user.as_str(), it.routine.as_str()))
        .skip(1)
        .collect();
    let mut bobs = 0;
    for (turn, (user, _)) in turns.iter().enumerate() {
        bobs += usize::from(*user == "bob");
        assert!((4 * bobs).abs_diff(turn + 1) <= 4, "after {turn}: {turns:?}");
    }
    let of = |name: &str| -> Vec<&str> {
        turns.iter().filter(|(user, _)| *user == name).map(|(_, routine)| *routine).collect()
    };
    let (hers, his) = (of("ada"), of("bob"));
    assert_eq!((hers.first(), his.last()), (Some(&"noop"), Some(&"noop")), "{turns:?}");
}
