//! Users: tokens, their rights and validity, and isolation between users.
#![forbid(unsafe_code)]

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{TestServer, config, interfaces, library, param, read_some, routine, served_by};
use kumi_call::server::{Config, RefusalCounters, Registry};
use kumi_call::users::{NewToken, Users, add, revoke};
use kumi_call::{CallError, Client, Options};
use kumi_idl::{Element, Expr, Mode, Param, Scalar, Type};

struct ServerWithUsers {
    _folder: tempfile::TempDir,
    file: PathBuf,
    server: TestServer,
    counters: Arc<RefusalCounters>,
}

impl ServerWithUsers {
    fn new(change: impl FnOnce(&mut Config)) -> ServerWithUsers {
        let folder = tempfile::tempdir().expect("a folder");
        // Other system users open the library too.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("its mode");
        let routines = folder.path().join("libroutines.so");
        std::fs::copy(library(), &routines).expect("a copy");
        let libraries = [routines];
        let file = folder.path().join("users.toml");
        add(&file, &NewToken { user: "owner".to_owned(), ..NewToken::default() }).expect("a file");
        let mut config = config();
        config.users = Some(Arc::new(Users::open(&file).expect("users")));
        change(&mut config);
        let counters = Arc::clone(&config.counters);
        let mut registry = Registry::default();
        for interface in interfaces() {
            registry.add(interface, &libraries).expect("a routine");
        }
        // The content of its memory comes back, since it writes nothing.
        let n = Expr::Param(0);
        let size = param("n", Mode::In, Element::I32, &[]);
        let array = param("x", Mode::Out, Element::I32, &[n]);
        let mut peek = routine("peek", vec![size.clone(), array.clone()]);
        peek.target.symbol = "noop".to_owned();
        registry.add(peek, &libraries).expect("a routine");
        let pid = param("pid", Mode::Out, Element::I32, &[]);
        let mut stain = routine("stain", vec![size, array, pid]);
        stain.target.symbol = "getpid".to_owned();
        stain.target.arguments.clear();
        stain.target.result = Some(2);
        registry.add(stain, &libraries).expect("a routine");
        // A symbol of the C library, which the routines' library loads.
        for symbol in ["getuid", "getgid"] {
            let mut system = routine(symbol, vec![param("id", Mode::Out, Element::I32, &[])]);
            system.target.arguments.clear();
            system.target.result = Some(0);
            registry.add(system, &libraries).expect("a routine");
        }
        let server = served_by(config, registry);
        ServerWithUsers { _folder: folder, file, server, counters }
    }

    fn token(&self, user: &str, routines: Option<&str>) -> String {
        let routines = routines.map(|pattern| vec![pattern.to_owned()]);
        let new = NewToken { user: user.to_owned(), routines, ..NewToken::default() };
        add(&self.file, &new).expect("a token")
    }

    fn connect(&self, token: &str) -> Result<Client, CallError> {
        let options = Options { token: token.to_owned(), ..Options::default() };
        Client::connect(&self.server.address.to_string(), &options)
    }

    fn client(&self, token: &str) -> Client {
        self.connect(token).expect("a connection")
    }
}

fn pid(client: &Client) -> i64 {
    let outcome = client.call("nap", vec![0.into()]).expect("it runs");
    outcome.scalar(1).and_then(Scalar::integer).expect("a pid")
}

#[test]
fn who_has_no_good_token_is_told_why() {
    let fixture = ServerWithUsers::new(|_| {});
    match fixture.connect("") {
        Err(error @ CallError::NotPermitted(_)) => {
            assert!(error.to_string().contains("--token-file") && error.has_not_run(), "{error}");
        }
        other => panic!("{other:?}"),
    }
    match fixture.connect("kumi_guessed") {
        Err(CallError::NotPermitted(text)) => assert!(!text.contains("guessed"), "{text}"),
        other => panic!("{other:?}"),
    }
    let past =
        NewToken { user: "ada".to_owned(), expires: Some(1_000_000_000), ..NewToken::default() };
    let token = add(&fixture.file, &past).expect("a token");
    match fixture.connect(&token) {
        Err(error @ CallError::Expired(_)) => {
            let text = error.to_string();
            assert!(text.contains("`ada` expired at 2001-09-09T01:46:40Z"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.counters.refused(), 3);
    let options = Options { token, ..Options::default() };
    assert!(!format!("{options:?}").contains("kumi_"), "a token is nowhere printed");
    fixture.client(&fixture.token("ada", None)).call("noop", vec![]).expect("it runs");
    assert_eq!(fixture.counters.refused(), 3);
}

#[test]
fn a_user_knows_only_what_the_user_may_call() {
    let fixture = ServerWithUsers::new(|_| {});
    let client = fixture.client(&fixture.token("ada", Some("n*")));
    assert_eq!(client.names("").expect("names"), ["nap", "negate", "noop"]);
    assert_eq!(client.names("eg").expect("names"), ["negate"]);
    for name in ["dmmul", "there is no such routine"] {
        match client.interface(name) {
            Err(CallError::NotPermitted(text)) => {
                assert!(text.contains(&format!("`ada` may not call `{name}`")), "{text}");
                assert!(!text.contains("mean"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    match client.interface("nop") {
        Err(CallError::RoutineNotFound(text)) => assert!(text.contains("noop"), "{text}"),
        other => panic!("{other:?}"),
    }
    client.call("noop", vec![]).expect("it runs");
    // A known description is checked again at each call.
    fixture.token("ada", Some("x*"));
    assert!(matches!(client.call("noop", vec![]), Err(CallError::NotPermitted(_))));
    fixture.token("ada", Some("*"));
    client.call("noop", vec![]).expect("it runs again");
}

#[test]
fn who_is_revoked_while_connected_calls_no_more() {
    let fixture = ServerWithUsers::new(|_| {});
    let (ada, bob) = (fixture.client(&fixture.token("ada", None)), fixture.token("bob", None));
    let bob = fixture.client(&bob);
    for client in [&ada, &bob] {
        client.call("noop", vec![]).expect("it runs");
    }
    assert_eq!(revoke(&fixture.file, "ada", None).expect("revoked"), 1);
    match ada.call("noop", vec![]) {
        Err(error @ CallError::NotPermitted(_)) => assert!(error.has_not_run(), "{error}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(ada.names(""), Err(CallError::NotPermitted(_))));
    bob.call("noop", vec![]).expect("it runs");
    std::fs::write(&fixture.file, "not [ toml").expect("written");
    bob.call("noop", vec![]).expect("a broken file changes nothing");
    assert!(matches!(ada.call("noop", vec![]), Err(CallError::NotPermitted(_))));
}

#[test]
fn two_users_share_no_process_and_no_memory() {
    let fixture = ServerWithUsers::new(|config| {
        config.slots = 1;
        config.warm = 4;
    });
    let (ada, bob) = (fixture.token("ada", None), fixture.token("bob", None));
    let (hers, his) = (fixture.client(&ada), fixture.client(&bob));
    let (first, other) = (pid(&hers), pid(&his));
    assert_ne!(first, other);
    // A process serves only one user, on any connection.
    assert_eq!(pid(&hers), first);
    assert_eq!(pid(&his), other);
    assert_eq!(pid(&fixture.client(&ada)), first);
    let secret = vec![0x5ec2_e7a1_i32; 1000];
    let peek = |client: &Client| {
        let mut x = vec![-1; 1000];
        client.call("peek", vec![1000.into(), x.as_mut_slice().into()]).expect("it runs");
        x
    };
    for _ in 0..5 {
        let mut x = secret.clone();
        let array = kumi_call::Arg::from(x.as_mut_slice());
        hers.call("negate", vec![1000.into(), array]).expect("it runs");
        assert!(peek(&his).iter().all(|word| *word == 0), "what was another's");
        assert!(peek(&hers).iter().any(|word| *word != 0), "her own is where it was");
    }
}

#[test]
fn a_user_of_the_file_is_one_of_the_system() {
    let fixture = ServerWithUsers::new(|_| {});
    let token = fixture.token("ada", None);
    let text = std::fs::read_to_string(&fixture.file).expect("the file");
    let (user, said) = match nix::unistd::geteuid().is_root() {
        true => ("nobody", ""),
        false => ("root", "only a server that runs as root"),
    };
    let change = |to: &str| {
        let line = format!("name = \"ada\"\nrun_as = \"{to}\"");
        std::fs::write(&fixture.file, text.replace("name = \"ada\"", &line)).expect("written");
    };
    let client = fixture.client(&token);
    let first = pid(&client);
    change(user);
    let id = |name| client.call(name, vec![]).map(|outcome| outcome.scalar(0));
    if said.is_empty() {
        let nobody = nix::unistd::User::from_name("nobody").expect("users").expect("nobody");
        let is = |raw: u32| Some(Scalar::I64(raw.into()));
        assert_eq!(id("getuid").expect("it runs"), is(nobody.uid.as_raw()));
        assert_eq!(id("getgid").expect("it runs"), is(nobody.gid.as_raw()));
        assert_ne!(pid(&client), first, "not a process that ran as somebody else");
    } else {
        let refused = id("getuid").expect_err("it cannot").to_string();
        assert!(refused.contains(said), "{refused}");
    }
    change("no such user");
    match id("getuid") {
        Err(CallError::NotRunnable(text)) => {
            assert!(text.contains("no user `no such user`"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sandbox_has_no_network_and_no_files_to_write() {
    let path = || Param { ty: Type::String, ..param("path", Mode::In, Element::U8, &[]) };
    let mut access = routine(
        "access",
        vec![
            path(),
            param("how", Mode::In, Element::I32, &[]),
            param("no", Mode::Out, Element::I32, &[]),
        ],
    );
    access.target.arguments.pop();
    access.target.result = Some(2);
    let size = param("size", Mode::In, Element::I64, &[]);
    let text = param("text", Mode::Out, Element::U8, &[Expr::Param(2)]);
    let readlink = routine("readlink", vec![path(), text, size]);
    let mut getuid = routine("getuid", vec![param("id", Mode::Out, Element::I32, &[])]);
    getuid.target.arguments.clear();
    getuid.target.result = Some(0);
    let serve = |sandbox| {
        let mut registry = Registry::default();
        for interface in [access.clone(), readlink.clone(), getuid.clone()] {
            registry.add(interface, &[library()]).expect("a routine");
        }
        served_by(Config { sandbox, ..config() }, registry)
    };
    let (inside, outside) = (serve(true), serve(false));
    let link = |server: &TestServer, path: &'static str| {
        let mut text = vec![0_u8; 64];
        let args = vec![path.into(), text.as_mut_slice().into(), 64_i64.into()];
        let outcome = server.client().call("readlink", args);
        outcome.map(|_| String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
    };
    let own = |path| std::fs::read_link(path).expect("a namespace").display().to_string();
    let network = "/proc/self/ns/net";
    assert_eq!(link(&outside, network).expect("it runs"), own(network));
    match link(&inside, network) {
        Ok(other) => assert!(other.starts_with("net:[") && other != own(network), "{other}"),
        // Where this is not permitted, it reports that.
        Err(CallError::NotRunnable(text)) => {
            assert!(text.contains("there can be no sandbox"), "{text}");
            return kumi_skip::skip("a_sandbox_has_no_network_and_no_files_to_write", &text);
        }
        Err(other) => panic!("{other:?}"),
    }
    let writable = |server: &TestServer, path: &'static str| {
        let outcome = server.client().call("access", vec![path.into(), 2.into()]);
        outcome.expect("it runs").scalar(2) == Some(Scalar::I64(0))
    };
    let here = env!("CARGO_TARGET_TMPDIR");
    assert!(writable(&outside, here) && !writable(&inside, here));
    assert!(writable(&inside, "/tmp"));
    // Root is powerless there: its files and processes are out of reach.
    let outcome = inside.client().call("getuid", vec![]).expect("it runs");
    assert_ne!(outcome.scalar(0), Some(Scalar::I64(0)));
}

/// Bytes of call memory that a process maps.
fn mapped(pid: i64) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its maps");
    let arenas = maps.lines().filter(|line| line.contains("memfd:kumi-call"));
    let length = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
    };
    arenas.filter_map(length).sum()
}

#[test]
fn memory_that_another_user_needs_is_let_go() {
    let fixture = ServerWithUsers::new(|config| {
        config.slots = 1;
        config.bytes = 1 << 20;
    });
    let (ada, bob) = (fixture.token("ada", None), fixture.token("bob", None));
    let (hers, his) = (fixture.client(&ada), fixture.client(&bob));
    let fill = |client: &Client| {
        let mut x = vec![0; 200_000];
        let args = vec![200_000.into(), x.as_mut_slice().into()];
        let outcome = client.call("stain", args).expect("it runs");
        outcome.scalar(2).and_then(Scalar::integer).expect("a pid")
    };
    let (first, other) = (fill(&hers), fill(&his));
    assert_ne!(first, other);
    let begin = Instant::now();
    while mapped(first) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "it keeps what was given up");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(mapped(other), 1 << 20);
    assert_eq!((fill(&hers), fill(&his)), (first, other));
}

#[test]
fn strangers_wait_in_bounds() {
    let fixture = ServerWithUsers::new(|config| {
        config.unidentified = 3;
        config.hello_time = Duration::from_secs(600);
    });
    let raw_client = || TcpStream::connect(fixture.server.address).expect("a connection");
    let mut silent: Vec<TcpStream> = (0..5).map(|_| raw_client()).collect();
    for closed in &mut silent[..2] {
        closed.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        assert_eq!(read_some(closed, &mut [0; 1]).expect("its end"), 0);
    }
    assert_eq!(fixture.counters.displaced(), 2);
    // Identified clients pass, and do not count.
    let token = fixture.token("ada", None);
    let clients: Vec<Client> = (0..8).map(|_| fixture.client(&token)).collect();
    clients.iter().for_each(|client| assert!(client.call("noop", vec![]).is_ok()));
    assert!(fixture.counters.displaced() <= 5, "at most the unidentified");
    let mut late = raw_client();
    late.write_all(b"kumi").expect("it is sent");
    drop(clients);
    fixture.client(&token).call("noop", vec![]).expect("it runs");
}

#[test]
fn the_silent_are_closed() {
    let fixture = ServerWithUsers::new(|config| config.hello_time = Duration::from_millis(20));
    let mut raw_client = TcpStream::connect(fixture.server.address).expect("a connection");
    raw_client.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    assert_eq!(read_some(&mut raw_client, &mut [0; 1]).expect("its end"), 0);
    let begin = Instant::now();
    while fixture.counters.silent() < 1 {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}
