//! Arrays in shared memory: clients on the server's machine.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{TestServer, compiled, config, eventually, served, served_at, served_text};
use kumi_call::server::{Config, Listener};
use kumi_call::users::{NewToken, Users};
use kumi_call::{
    Arg, Array, CallError, Client, FileArgument, HeldNames, Options, RemoteArray, Traffic,
};
use kumi_idl::Order;

/// Numbers of an array that is large enough.
const MANY: i32 = 50_000;
const BYTES: u64 = 8 * MANY as u64;

fn counted(change: impl FnOnce(&mut Config)) -> (TestServer, Arc<Traffic>) {
    let mut config = config();
    change(&mut config);
    let traffic = Arc::clone(&config.traffic);
    (served(config), traffic)
}

fn add(client: &Client, x: f64) {
    let from = vec![x; MANY as usize];
    let mut y: Vec<f64> = (0..MANY).map(f64::from).collect();
    client.call("add", vec![MANY.into(), (&from).into(), (&mut y).into()]).expect("it runs");
    assert!((0..MANY).zip(&y).all(|(index, y)| *y == f64::from(index) + x));
}

/// Number of mapped call memories in this process, of servers and clients together.
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a list");
    maps.lines().filter(|line| line.contains("memfd:kumi-call")).count()
}

#[test]
fn arrays_go_through_memory_that_is_used_again() {
    let (server, traffic) = counted(|_| {});
    let client = server.client();
    assert!(client.shares_memory());
    add(&client, 0.5);
    assert_eq!(Traffic::of(&traffic.in_memory), 3 * BYTES);
    add(&client, 1.5);
    // Other tests in this process may map some meanwhile; one memory per call would be many more.
    let before = mapped();
    (0..200).for_each(|count| add(&client, f64::from(count)));
    assert!(mapped() < before + 200, "{before} and now {}", mapped());
    let both = (Traffic::of(&traffic.from_clients), Traffic::of(&traffic.in_memory));
    assert_eq!(both, (404 * BYTES, 606 * BYTES));
    eventually("the last byte", || Traffic::of(&traffic.to_clients) == 202 * BYTES);
    // Short arrays are not worth it.
    let mut short = [1.0, 2.0];
    client
        .call("add", vec![2.into(), [1.0, 1.0].as_slice().into(), short.as_mut_slice().into()])
        .expect("it runs");
    assert_eq!((short, Traffic::of(&traffic.in_memory)), ([2.0, 3.0], 606 * BYTES));
}

#[test]
fn it_can_be_turned_off_at_either_end_and_is_where_a_routine_is_confined() {
    let (server, traffic) = counted(|_| {});
    let off = Options { share_memory: false, ..Options::default() };
    let client = Client::connect(&server.address.to_string(), &off).expect("a connection");
    let turned_off = |config: &mut Config| config.share_memory = false;
    let (other, others) = counted(turned_off);
    let confined = |config: &mut Config| config.sandbox = true;
    let (sandboxed, sandboxes) = counted(confined);
    let clients = [client, other.client(), sandboxed.client()];
    for (client, traffic) in clients.iter().zip([&traffic, &others, &sandboxes]) {
        assert!(!client.shares_memory());
        if !Arc::ptr_eq(traffic, &sandboxes) {
            add(client, 3.0);
            assert_eq!(Traffic::of(&traffic.from_clients), 2 * BYTES);
        }
        assert_eq!(Traffic::of(&traffic.in_memory), 0);
    }
}

#[test]
fn over_a_unix_socket_it_is_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let server = served_at(config(), Listener::unix(&path).expect("a socket"));
    let address = format!("unix:{}", path.display());
    let client = Client::connect(&address, &Options::default()).expect("a connection");
    assert!(client.shares_memory());
    add(&client, 2.0);
    drop((client, server));
}

#[test]
fn whose_routines_run_as_another_user_gets_no_memory() {
    if !nix::unistd::geteuid().is_root() {
        let test = "whose_routines_run_as_another_user_gets_no_memory";
        return kumi_skip::skip(test, "only a server of root runs routines as another user");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("users.toml");
    let ada = NewToken { user: "ada".to_owned(), ..NewToken::default() };
    let token = kumi_call::users::add(&file, &ada).expect("a token");
    let users = Users::open(&file).expect("users");
    let (server, traffic) = counted(|config| config.users = Some(Arc::new(users)));
    let options = Options { token, ..Options::default() };
    let connect = || Client::connect(&server.address.to_string(), &options).expect("a connection");
    let client = connect();
    assert!(client.shares_memory());
    add(&client, 1.0);
    let before = Traffic::of(&traffic.in_memory);
    assert_eq!(before, 3 * BYTES);
    // From now on the server may run as another user, and a connected client gets no more memory.
    let text = std::fs::read_to_string(&file).expect("the file");
    let changed = text.replace("name = \"ada\"", "name = \"ada\"\nrun_as = \"nobody\"");
    std::fs::write(&file, changed).expect("written");
    add(&client, 2.0);
    let other = connect();
    assert!(!other.shares_memory());
    add(&other, 3.0);
    assert_eq!(Traffic::of(&traffic.in_memory), before);
}

#[test]
fn a_metaserver_sends_clients_to_memory_too() {
    let meta = grid::meta(grid::config("round-robin"));
    let config = meta.member("one", 2);
    let traffic = Arc::clone(&config.traffic);
    let _server = served(config);
    meta.until_servers(1);
    let (x, mut y) = (vec![1.0; MANY as usize], vec![2.0; MANY as usize]);
    let client = meta.grid();
    client.call("add", vec![MANY.into(), (&x).into(), (&mut y).into()]).expect("it runs");
    assert!(y.iter().all(|y| *y == 3.0));
    assert_eq!(Traffic::of(&traffic.in_memory), 3 * BYTES);
}

#[test]
fn a_limit_of_connections_counts_a_client_once() {
    let (server, _) = counted(|config| config.connections = 1);
    let client = server.client();
    assert!(client.shares_memory());
    add(&client, 2.0);
    let second = Client::connect(&server.address.to_string(), &Options::default());
    assert!(matches!(second, Err(CallError::Busy(_))), "{second:?}");
    drop(client);
    eventually("room", || {
        Client::connect(&server.address.to_string(), &Options::default()).is_ok()
    });
}

#[test]
fn sections_and_orders_are_as_ever() {
    let (server, traffic) = counted(|_| {});
    let client = server.client();
    let many = 4 * MANY;
    let mut x: Vec<i32> = (0..many).collect();
    client.call("negate", vec![many.into(), (&mut x).into()]).expect("it runs");
    assert!((0..many).zip(&x).all(|(index, x)| *x == if index % 2 == 0 { -index } else { index }));
    let section = 4 * u64::from(many.unsigned_abs()).div_ceil(2);
    assert_eq!(Traffic::of(&traffic.in_memory), 2 * section, "every second travels");
    // Row-major, though the routine wants columns.
    let (n, m) = (1000, 50);
    let a: Vec<f64> = (0..n * m).map(f64::from).collect();
    let a = Array::shaped(&a, &[n as u64, m as u64], Order::Row);
    let mut y = vec![0.0; n as usize];
    client.call("addcol", vec![n.into(), m.into(), Arg::In(a), (&mut y).into()]).expect("it runs");
    assert!((0..n).zip(&y).all(|(row, y)| *y == f64::from(row * m)), "it adds the first column");
    assert_eq!(Traffic::of(&traffic.in_memory), 2 * section + 8 * (n * m) as u64);
}

#[test]
fn many_go_at_once_and_end_in_any_order() {
    let (server, _) = counted(|_| {});
    let client = server.client();
    std::thread::scope(|scope| {
        for thread in 0..4_i32 {
            let client = &client;
            scope.spawn(move || {
                for count in 0..20 {
                    add(client, f64::from(thread * 100 + count));
                }
            });
        }
    });
    let mut calls = Vec::new();
    for count in 0..6 {
        let y: &'static mut Vec<f64> = Box::leak(Box::new(vec![0.0; MANY as usize]));
        let args = vec![MANY.into(), 20.into(), f64::from(count).into(), Arg::from(y)];
        calls.push(client.call_async("fill", args, None).expect("it begins"));
    }
    for mut call in calls.into_iter().rev() {
        call.wait(&|| false).expect("it runs");
    }
}

#[test]
fn what_stays_at_the_server_goes_as_ever() {
    let (server, traffic) = counted(|_| {});
    let client = server.client();
    let name = HeldNames::new().expect("random bytes").fresh();
    let minute = Duration::from_secs(60);
    let stays = Arg::Remote(Box::new(RemoteArray::stays(name, minute)));
    client.call("fill", vec![MANY.into(), 0.into(), 7.0.into(), stays]).expect("it runs");
    let held = Arg::Remote(Box::new(RemoteArray::held(name, BYTES, "")));
    let mut y = vec![1.0; MANY as usize];
    client.call("add", vec![MANY.into(), held, (&mut y).into()]).expect("it runs");
    assert!(y.iter().all(|y| *y == 8.0));
    assert_eq!(Traffic::of(&traffic.in_memory), 0);
}

const CODE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void die(int n, const double *x, double *y) { y[0] = x[0]; abort(); }
void linger(int n, const double *x, double *y, int ms)
{
    for (int i = 0; i < n; i++) y[i] = 2 * x[i];
    usleep(1000 * ms);
}
void stamp(int n, const char *from, const double *x, double *y, const char *to)
{
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    int length = 0;
    for (int c; (c = getc(in)) != EOF; length++) putc(c, out);
    fclose(in);
    fclose(out);
    for (int i = 0; i < n; i++) y[i] = x[i] + length;
}
"#;

const TEXT: &str = r#"
Define die(mode_in int n, mode_in double x[n], mode_out double y[n]) Calls "C" die(n, x, y);
Define linger(mode_in int n, mode_in double x[n], mode_out double y[n], mode_in int ms) Calls "C" linger(n, x, y, ms);
Define stamp(mode_in int n, mode_in filename from, mode_in double x[n], mode_out double y[n], mode_out filename to)
Calls "C" stamp(n, from, x, y, to);
"#;

fn ends(folder: &Path, change: impl FnOnce(&mut Config)) -> TestServer {
    let mut config = config();
    change(&mut config);
    served_text(config, TEXT, compiled(folder, "ends", CODE))
}

fn linger(client: &Client, ms: i32, time: Option<Duration>) -> Result<Vec<f64>, CallError> {
    let x = vec![1.5; MANY as usize];
    let mut y = vec![0.0; MANY as usize];
    let args = vec![MANY.into(), (&x).into(), (&mut y).into(), ms.into()];
    client.call_within("linger", args, time).map(|_| y)
}

#[test]
fn a_call_that_crashes_or_is_stopped_leaves_the_connection_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    // Room for eight calls at a time: memory that leaks would soon be missing.
    let server = ends(folder.path(), |config| config.bytes = 8 << 20);
    let client = server.client();
    let x = vec![1.0; MANY as usize];
    let mut y = vec![0.0; MANY as usize];
    for _ in 0..6 {
        let died = client.call("die", vec![MANY.into(), (&x).into(), (&mut y).into()]);
        assert!(matches!(died, Err(CallError::Crashed { .. })), "{died:?}");
        let late = linger(&client, 60_000, Some(Duration::from_millis(50)));
        assert!(matches!(late, Err(CallError::TimedOut(_))), "{late:?}");
        assert!(linger(&client, 0, None).expect("it runs").iter().all(|y| *y == 3.0));
        // Cancelled while it runs.
        let to: &'static mut Vec<f64> = Box::leak(Box::new(vec![0.0; MANY as usize]));
        let from: &'static Vec<f64> = Box::leak(Box::new(vec![0.0; MANY as usize]));
        let args = vec![MANY.into(), from.into(), to.into(), 60_000.into()];
        let call = client.call_async("linger", args, None).expect("it begins");
        drop(call);
    }
    assert!(linger(&client, 0, None).is_ok());
}

#[test]
fn what_a_client_has_left_is_free_for_others() {
    let folder = tempfile::tempdir().expect("a folder");
    // Each call takes half of it.
    let server = ends(folder.path(), |config| config.bytes = 2 << 20);
    for _ in 0..8 {
        let client = server.client();
        eventually("room", || match linger(&client, 0, None) {
            Ok(y) => y.iter().all(|y| *y == 3.0),
            Err(CallError::Busy(_)) => false,
            Err(error) => panic!("{error}"),
        });
    }
}

#[test]
fn files_go_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = ends(folder.path(), |config| config.scratch = folder.path().to_owned());
    let client = server.client();
    assert!(client.shares_memory());
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let text = "seven!!".repeat(100_000);
    std::fs::write(&from, &text).expect("written");
    let (x, mut y) = (vec![0.5; MANY as usize], vec![0.0; MANY as usize]);
    let files = [Arg::from(FileArgument::from(&from)), FileArgument::to(&to).into()];
    let [sent, back] = files;
    let args = vec![MANY.into(), sent, (&x).into(), (&mut y).into(), back];
    client.call("stamp", args).expect("it runs");
    assert!(y.iter().all(|y| *y == 700_000.5));
    assert!(std::fs::read_to_string(&to).expect("it is there") == text);
}
