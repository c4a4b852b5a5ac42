//! Tests of the state in a file: it behaves as every store, and outlives a full disk.

use proptest::prelude::*;

use super::SqliteStore;
use crate::store::Store as _;
use crate::store::tests::{Model, Step, call, estimate, histories};
use kumi_small_disk::{fill, on_a_small_disk};

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_file_keeps_what_is_noted(history in histories()) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("meta.db");
        let mut store = SqliteStore::open(&path).expect("a file");
        let mut model = Model::default();
        for step in history.iter().chain([&Step::Reopen]) {
            model.step(&mut store, step);
            assert_eq!(store.kept(), store.noted());
            if matches!(step, Step::Reopen) {
                drop(store);
                store = SqliteStore::open(&path).expect("the file");
                model.check(&store);
            }
        }
    }
}

#[test]
fn the_path_that_was_measured_last_is_the_last() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("meta.db");
    let mut store = SqliteStore::open(&path).expect("a file");
    for (from, calls) in [("a", 1), ("b", 1), ("c", 1), ("a", 2)] {
        store.path(from, "z", Some(&estimate(calls)));
    }
    store.path("b", "z", None);
    drop(store);
    let paths = SqliteStore::open(&path).expect("the file").paths().expect("paths");
    let expected =
        [("c", 1), ("a", 2)].map(|(from, n)| (from.to_owned(), "z".to_owned(), estimate(n)));
    assert_eq!(paths, expected);
}

#[test]
fn a_full_disk_loses_only_what_came_meanwhile() {
    on_a_small_disk(1 << 20, |disk| {
        let path = disk.join("meta.db");
        let mut store = SqliteStore::open(&path).expect("a file");
        let calls = |store: &SqliteStore| {
            let calls = store.calls().expect("calls").into_iter();
            calls.map(|call| call.ticket.call >> 32).collect::<Vec<_>>()
        };
        store.placed(&call(1, 1));
        fill(disk);
        let full = (2..1000).find(|&number| {
            store.placed(&call(number, 1));
            store.failing
        });
        let full = full.expect("the disk is full");
        let before = calls(&store);
        assert_eq!(before, (1..full).collect::<Vec<_>>(), "no half of a note");
        std::fs::remove_file(disk.join("others")).expect("it is there");
        store.placed(&call(full + 1, 1));
        assert!(!store.failing);
        drop(store);
        let store = SqliteStore::open(&path).expect("the file");
        assert_eq!(calls(&store), (1..full).chain([full + 1]).collect::<Vec<_>>());
    });
}

#[test]
fn tables_of_version_1_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("meta.db");
    let old = rusqlite::Connection::open(&path).expect("a file");
    old.execute_batch(
        "CREATE TABLE placed (call INTEGER PRIMARY KEY, key0 INTEGER, key1 INTEGER, attempt INTEGER,
            identity TEXT, address TEXT, server TEXT, routine TEXT, hash INTEGER, user TEXT, site TEXT, bytes_out INTEGER,
            bytes_back INTEGER, operations REAL, idempotent INTEGER, priority INTEGER, until INTEGER);
         INSERT INTO placed VALUES (7, 1, 2, 1, 'i', 'a', 's', 'f', 3, '', '', 4, 5, NULL, 1, 9, NULL);
         PRAGMA user_version = 1",
    )
    .expect("its tables");
    drop(old);
    for _ in 0..2 {
        let mut store = SqliteStore::open(&path).expect("the file");
        store.placed(&call(8, 3));
        let calls = store.calls().expect("calls").into_iter();
        let calls: Vec<_> = calls.map(|call| (call.routine, call.priority, call.bound)).collect();
        assert_eq!(calls, [("f".into(), 9, false), ("f".into(), 255, true)]);
    }
}
