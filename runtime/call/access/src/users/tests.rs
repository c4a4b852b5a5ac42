use std::os::unix::fs::PermissionsExt;

use super::*;
use kumi_small_disk::{fill, on_a_small_disk};

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users.toml");
    (folder, path)
}

fn new(user: &str) -> NewToken {
    NewToken { user: user.to_owned(), ..NewToken::default() }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("it is written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
}

#[test]
fn a_token_is_good_until_it_is_revoked_or_expires() {
    let (_folder, path) = place();
    let ada = add(&path, &new("ada")).expect("a token");
    assert!(ada.starts_with("kumi_") && ada.len() == 69);
    let users = Users::open(&path).expect("users");
    let known = users.who(&ada).expect("it is hers");
    assert_eq!(known.name(), "ada");
    assert_eq!((known.weight(), known.priority(), known.run_as()), (1, 255, None));
    let wrong = format!("{}x", &ada[..68]);
    assert_eq!(users.who(&wrong).err(), Some(Refusal::Unknown));
    assert_eq!(users.who("").err(), Some(Refusal::Missing));
    // Changes are noticed without a request.
    let brief = NewToken { expires: Some(1_000_000_000), ..new("ada") };
    let old = add(&path, &brief).expect("a token");
    match users.who(&old) {
        Err(Refusal::Expired { user, at }) => {
            assert_eq!((user.as_str(), at.as_str()), ("ada", "2001-09-09T01:46:40Z"));
        }
        other => panic!("{other:?}"),
    }
    assert!(users.who_at(&old, 999_999_999).is_ok());
    assert!(users.again(&known).is_ok(), "the other token is as good as it was");
    let shown = list(&path).expect("a list");
    assert_eq!(shown.len(), 2);
    assert_eq!(revoke(&path, "ada", Some(&shown[0].id)).expect("revoked"), 1);
    assert_eq!(users.again(&known).err(), Some(Refusal::Unknown));
    assert_eq!(revoke(&path, "ada", None).expect("revoked"), 1);
    assert_eq!(list(&path).expect("a list")[0].id, "");
    assert!(revoke(&path, "ada", Some("00000000")).is_err());
    assert!(revoke(&path, "bob", None).is_err());
    let text = std::fs::read_to_string(&path).expect("the file");
    assert!(!text.contains("kumi_"), "{text}");
    assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(path.parent().expect("a folder")).expect("readable").count(), 1);
}

#[test]
fn what_the_file_says_of_a_user() {
    let (_folder, path) = place();
    let token = "a token by hand";
    let text = format!(
        "[[user]]\nname = 'b.o-b@x'\nroutines = ['d*', 'fft_?']\nweight = 4\npriority = 3\nrun_as = 'nobody'\n\
         [[user.token]]\nblake3 = '{0}'\nexpires = 2100-01-01T00:00:00+01:00\n\
         [[user]]\nname = 'late'\n[[user.token]]\nblake3 = '{1}'\nexpires = 17\n",
        hash(token).to_hex(),
        hash("late").to_hex(),
    );
    write(&path, &text);
    let users = Users::open(&path).expect("users");
    let user = users.who(token).expect("his");
    assert_eq!((user.weight(), user.priority(), user.run_as()), (4, 3, Some("nobody")));
    assert_eq!(user.expires(), moment("2099-12-31T23:00:00Z"));
    assert!(
        user.permits("dgesv")
            && user.permits("fft_3")
            && !user.permits("fft")
            && !user.permits("x")
    );
    assert!(matches!(users.who("late"), Err(Refusal::Expired { .. })));
    // Written content reads back the same.
    add(&path, &new("late")).expect("a token");
    assert_eq!(Users::open(&path).expect("users").who(token).expect("his").weight(), 4);
}

#[test]
fn a_broken_file_leaves_everything_as_it_was() {
    let (_folder, path) = place();
    let token = add(&path, &new("ada")).expect("a token");
    let good = std::fs::read_to_string(&path).expect("the file");
    let users = Users::open(&path).expect("users");
    let known = users.who(&token).expect("hers");
    for broken in ["[[user]", "[[user]]\nname = 'ada'\nweigth = 1\n", "[[user]]\nname = '-rf'\n"] {
        write(&path, broken);
        assert!(users.who(&token).is_ok() && users.again(&known).is_ok(), "{broken}");
        assert!(Users::open(&path).is_err(), "{broken}");
    }
    std::fs::remove_file(&path).expect("removed");
    assert!(users.who(&token).is_ok() && users.who(&token).is_ok());
    write(&path, &good);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("its mode");
    assert!(matches!(Users::open(&path), Err(UsersError::Writable(_))));
    write(&path, "");
    assert_eq!(users.again(&known).err(), Some(Refusal::Unknown), "a file without users is good");
}

#[test]
fn a_failure_that_passes_hides_no_revocation() {
    let (_folder, path) = place();
    let token = add(&path, &new("ada")).expect("a token");
    let users = Users::open(&path).expect("users");
    let known = users.who(&token).expect("hers");
    revoke(&path, "ada", None).expect("revoked");
    // Twice there is no free descriptor for a moment.
    for _ in 0..2 {
        let full = std::io::Error::from_raw_os_error(nix::errno::Errno::EMFILE as i32);
        let read = Err(file::failed("read", &path)(full));
        let mut state = users.lock();
        state.take(&path, FileStamp::of(&path), read);
        assert!(state.failing && state.find(hash(&token), 0).is_ok(), "they stay as they were");
    }
    assert_eq!(users.again(&known).err(), Some(Refusal::Unknown));
    assert!(!users.lock().failing);
    // Invalid content is checked only once.
    std::fs::write(&path, b"\xff").expect("it is written");
    assert_eq!(users.who(&token).err(), Some(Refusal::Unknown));
    let state = users.lock();
    assert!(state.stamp.is_some() && !state.failing);
}

#[test]
fn what_cannot_be_is_said_with_its_place() {
    let (_folder, path) = place();
    let digits = hash("x").to_hex();
    for (text, said) in [
        ("[[user]]\nname = 'a'\n[[user]]\nname = 'a'\n".to_owned(), "`a` is there twice"),
        ("[[user]]\nname = 'a b'\n".to_owned(), "no user's name"),
        ("[[user]]\nname = 'a'\nweight = 0\n".to_owned(), "at least 1"),
        ("[[user]]\nname = 'a'\n[[user.token]]\nblake3 = 'ab'\n".to_owned(), "64 hexadecimal"),
        (
            format!(
                "[[user]]\nname = 'a'\n[[user.token]]\nblake3 = '{digits}'\nexpires = 'soon'\n"
            ),
            "`soon` is not a time",
        ),
        ("[[user]]\nname = 'a'\npriority = 300\n".to_owned(), "line 3"),
    ] {
        write(&path, &text);
        let error = Users::open(&path).expect_err("it cannot be").to_string();
        assert!(error.contains(said) && error.contains("users.toml"), "{error}");
    }
}

#[test]
fn the_file_stays_its_servers() {
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    let (folder, path) = place();
    assert!(revoke(&path, "ada", None).is_err() && !path.exists(), "a mistyped name makes no file");
    add(&path, &new("ada")).expect("a token");
    // Root edits the file of a server that runs as another user; otherwise both are the same user.
    let user = if nix::unistd::geteuid().is_root() { Some(12_345) } else { None };
    chown(&path, user, user).expect("its owner");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("its mode");
    let was = std::fs::metadata(&path).expect("it is there");
    // An existing link is not followed.
    let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
    let beside = format!("users.toml.{}.new", std::process::id());
    write(&victim, "mine");
    symlink(&victim, folder.path().join(beside)).expect("a link");
    add(&path, &new("bob")).expect("a token");
    revoke(&path, "ada", None).expect("revoked");
    let is = std::fs::metadata(&path).expect("it is there");
    assert_eq!((is.uid(), is.gid(), is.mode()), (was.uid(), was.gid(), was.mode()));
    assert_eq!(std::fs::read_to_string(&victim).expect("the file"), "mine");
    symlink(&path, &link).expect("a link");
    let error = add(&link, &new("eve")).expect_err("it is a link").to_string();
    assert!(error.contains("symbolic link"), "{error}");
    assert_eq!(list(&link).expect("it can be read").len(), 2, "ada, who has no token, and bob");
}

#[test]
fn many_add_at_once() {
    let (_folder, path) = place();
    std::thread::scope(|scope| {
        for index in 0..8 {
            let path = &path;
            scope.spawn(move || add(path, &new(&format!("user{index}"))).expect("a token"));
        }
    });
    assert_eq!(list(&path).expect("a list").len(), 8);
}

#[test]
fn a_full_disk_changes_no_user_and_is_told() {
    on_a_small_disk(64 << 10, |disk| {
        let path = disk.join("users.toml");
        let ada = add(&path, &new("ada")).expect("a token");
        let before = std::fs::read_to_string(&path).expect("the file");
        fill(disk);
        let error = add(&path, &new("bob")).expect_err("the disk is full").to_string();
        assert!(error.contains("users.toml") && error.contains("No space left"), "{error}");
        revoke(&path, "ada", None).expect_err("the disk is full");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), before);
        let names = std::fs::read_dir(disk).expect("the disk").count();
        assert_eq!(names, 2, "no draft is left beside the file and what fills the disk");
        Users::open(&path).expect("users").who(&ada).expect("it still counts");
        std::fs::remove_file(disk.join("others")).expect("it is there");
        assert_eq!(revoke(&path, "ada", None).expect("there is room"), 1);
    });
}
