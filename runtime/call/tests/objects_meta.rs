//! Objects of classes at servers that a metaserver chooses.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use std::sync::Arc;

use common::{TestServer, eventually, library_of, served_text};
use grid::{Meta, config, meta, meta_at};
use kumi_call::server::{Config, Membership};
use kumi_call::users::{NewToken, Users, add};
use kumi_call::{CallError, Client, Grid, Object, Options, Remote, Value};

const CLASSES: &str = r#"
DefClass log {
    DefMethod pid(OUT int pid) Calls "C" log_pid(pid);
    DefMethod write(IN string path, IN string text) Calls "C" log_write(path, text);
    DefMethod read(OUT string text[256]) Calls "C" log_read(text);
}
DefClass broken { DefMethod nothing() Calls "C" there_is_none(); }
Define plain(OUT int pid) Calls "C" log_pid(pid);
"#;

fn serve(config: Config) -> TestServer {
    served_text(config, CLASSES, library_of("objects.c"))
}

fn servers(meta: &Meta, names: &[&str]) -> Vec<TestServer> {
    let servers = names.iter().map(|name| serve(meta.member(name, 1))).collect();
    meta.until_servers(names.len());
    servers
}

fn write(object: &Object, text: &str) -> Result<(), CallError> {
    object.call("write", vec!["".into(), text.into()]).map(|_| ())
}

fn read(object: &Object) -> String {
    match &object.call("read", vec![]).expect("it is there").values[..] {
        [(0, Value::Text(text))] => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn objects_are_made_at_servers_in_turn() {
    let meta = meta(config("round-robin"));
    let _servers = servers(&meta, &["a", "b"]);
    let remote = Remote::connect(&meta.address.to_string(), &Options::default()).expect("one");
    // More objects than slots: idle objects use none. A server that is not known to have made the last one would be passed by.
    let make = |made: u64| {
        let object = remote.object_within("log", None, &|| false).expect("a place");
        meta.until("that it is made", |state| state.counters.done == made);
        object
    };
    let objects: Vec<Object> = (1..=6).map(make).collect();
    for (object, text) in objects.iter().zip(["0", "1", "2", "3", "4", "5"]).cycle().take(12) {
        write(object, text).expect("written");
    }
    let texts: Vec<String> = objects.iter().map(read).collect();
    assert_eq!(texts, ["00", "11", "22", "33", "44", "55"]);
    let state = meta.state();
    assert_eq!((state.running, state.waiting, state.counters.hostile), (0, 0, 0));
    let done: Vec<u64> = state.servers.iter().map(|server| server.done).collect();
    assert_eq!(done, [3, 3]);
    // Slots stay free for calls.
    let grid = meta.grid();
    grid.call("plain", vec![]).expect("it runs");
}

#[test]
fn where_there_is_no_room_it_is_made_elsewhere() {
    let meta = meta(config("round-robin"));
    let few = |name: &str, most: usize| {
        let mut config = meta.member(name, 1);
        config.objects = most;
        serve(config)
    };
    let _servers = [few("none", 0), few("two", 2)];
    meta.until_servers(2);
    let grid = meta.grid();
    let objects: Vec<Object> = (0..2).map(|_| grid.object("log").expect("a place")).collect();
    assert_eq!(objects.iter().map(read).collect::<Vec<_>>(), ["", ""]);
    let error = grid.object("log").expect_err("there is no room anywhere");
    assert!(error.has_not_run(), "{error:?}");
    assert!(error.to_string().contains("objects already"), "{error}");
    let state = meta.until("no places", |state| state.running == 0 && state.waiting == 0);
    assert_eq!(state.counters.hostile, 0);
    drop(objects);
    eventually("room", || grid.object("log").is_ok());
}

#[test]
fn what_cannot_be_is_said() {
    let meta = meta(config("round-robin"));
    let _servers = servers(&meta, &["a"]);
    let grid = meta.grid();
    assert_eq!(grid.names("log").expect("names"), ["log", "log.pid", "log.read", "log.write"]);
    let error = grid.object("lug").expect_err("no class");
    assert!(
        matches!(&error, CallError::RoutineNotFound(text) if text.contains("log")),
        "{error:?}"
    );
    for (name, what) in [("log", "make an object"), ("log.read", "make an object of `log`")] {
        let error = grid.call(name, vec![]).expect_err("it is called on nothing");
        assert!(matches!(error, CallError::Argument { .. }), "{error:?}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let object = grid.object("log").expect("a place");
    let error = object.call("raed", vec![]).expect_err("no method");
    let CallError::RoutineNotFound(text) = &error else { panic!("{error:?}") };
    assert!(text.contains("`log.raed`") && text.contains("log.read"), "{text}");
    assert_eq!(read(&object), "");
    let error = grid.object("plain").expect_err("a routine");
    assert!(matches!(error, CallError::RoutineNotFound(_)), "{error:?}");
    assert!(error.to_string().contains("it is a routine"), "{error}");
    let error = grid.object("broken").expect_err("its symbol is not there");
    assert!(error.to_string().contains("there_is_none"), "{error}");
    let state = meta.until("no places", |state| state.running == 0 && state.waiting == 0);
    assert_eq!(state.counters.hostile, 0);
    grid.call("plain", vec![]).expect("the slot is free");
}

#[test]
fn a_server_that_is_lost_takes_its_objects_along() {
    let meta = meta(config("round-robin"));
    let mut servers = servers(&meta, &["a", "b"]);
    let grid = meta.grid();
    let (one, two) = (grid.object("log").expect("one"), grid.object("log").expect("two"));
    write(&one, "1").expect("written");
    write(&two, "2").expect("written");
    servers[usize::from(one.server() == "b")].stop();
    eventually("its end", || one.is_lost());
    let error = write(&one, "3").expect_err("it is gone");
    assert!(matches!(error, CallError::Lost(_) | CallError::ObjectLost(_)), "{error:?}");
    assert_eq!(read(&two), "2");
    let three = grid.object("log").expect("on the other server");
    assert_eq!(read(&three), "");
}

#[test]
fn an_object_outlives_its_metaserver() {
    let mut first = meta(config("round-robin"));
    let address = first.address;
    let _servers = servers(&first, &["a"]);
    let grid = first.grid();
    let object = grid.object("log").expect("a place");
    write(&object, "1").expect("written");
    first.stop();
    write(&object, "2").expect("the way to its server is its own");
    // A metaserver that does not know the object does not stop it.
    let again = meta_at(config("round-robin"), address);
    again.until_servers(1);
    assert_eq!(read(&object), "12");
    assert_eq!(read(&grid.object("log").expect("another")), "");
    assert_eq!(read(&object), "12");
}

#[test]
fn users_have_objects_of_what_they_may_call() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("users.toml");
    let token = |user: &str, routines: Option<&str>, server: bool| {
        let routines = routines.map(|pattern| vec![pattern.to_owned()]);
        let user = user.to_owned();
        add(&file, &NewToken { user, routines, server, expires: None }).expect("a token")
    };
    let (own, ada, eve) = (
        token("srv", None, true),
        token("ada", Some("log*"), false),
        token("eve", Some("plain"), false),
    );
    let mut with_users = config("round-robin");
    with_users.users = Some(Arc::new(Users::open(&file).expect("users")));
    let meta = meta(with_users);
    let mut member = meta.member("a", 1);
    let membership = member.membership.take().expect("one");
    member.membership = Some(Membership { token: own.clone(), ..membership });
    member.only_sent = true;
    let server = serve(member);
    let connect = |token: &str| {
        let options = Options { token: token.to_owned(), ..Options::default() };
        Grid::connect(&meta.address.to_string(), &options).expect("a connection")
    };
    let owner = connect(&own);
    eventually("a server", || owner.status().expect("its state").servers.len() == 1);
    let grid = connect(&ada);
    let object = grid.object("log").expect("a place");
    write(&object, "1").expect("no pass is needed for what is one's own");
    assert_eq!(read(&object), "1");
    let error = connect(&eve).object("log").expect_err("it may not");
    assert!(matches!(error, CallError::NotPermitted(_)), "{error:?}");
    // Without a metaserver nobody is admitted.
    let refused = Client::connect(&server.address.to_string(), &Options::default());
    assert!(matches!(refused, Err(CallError::NotPermitted(_))), "{refused:?}");
}
