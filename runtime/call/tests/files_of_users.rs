//! File arguments of routines that run as another system user, or in a sandbox.
#![forbid(unsafe_code)]

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{TestServer, config, eventually, library_of, served_text};
use kumi_call::server::Config;
use kumi_call::users::{NewToken, Users, add};
use kumi_call::{CallError, Client, FileArgument, Options};
use kumi_idl::Scalar;

const TEXT: &str = r#"
Define capitals(mode_in filename from, mode_out filename to, mode_out long length) Calls "C" capitals(from, to, length);
Define append(mode_inout filename path, mode_in int digit) Calls "Fortran" append(path, digit);
Define mischief(mode_in int what, mode_inout filename to) Calls "C" mischief(what, to);
Define rests(mode_in int ms, mode_in filename from, mode_out filename to) Calls "C" rests(ms, from, to);
Define reaches(mode_in string path, mode_in int how, mode_in filename with, mode_out int yes) Calls "C" yes = reaches(path, how, with);
"#;

/// A server and its folders; the folders outlive the server.
struct FileServer {
    server: TestServer,
    /// The folder of the calls' files.
    scratch: PathBuf,
    /// The test's own files.
    files: tempfile::TempDir,
    tokens: Vec<String>,
    _folder: tempfile::TempDir,
}

fn open(folder: &Path) {
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).expect("it is ours");
}

impl FileServer {
    /// Users whose routines run as these system users.
    fn new(
        base: &Path,
        users: &[(&str, Option<&str>)],
        change: impl FnOnce(&mut Config),
    ) -> FileServer {
        let folder = tempfile::tempdir_in(base).expect("a folder");
        let scratch = folder.path().join("scratch");
        std::fs::create_dir(&scratch).expect("made");
        open(folder.path());
        open(&scratch);
        let library = folder.path().join("libcallbacks.so");
        std::fs::copy(library_of("callbacks.c"), &library).expect("a copy");
        let file = folder.path().join("users.toml");
        let token = |(user, run_as): &(&str, Option<&str>)| {
            let token = add(&file, &NewToken { user: (*user).to_owned(), ..NewToken::default() });
            if let Some(run_as) = run_as {
                let text = std::fs::read_to_string(&file).expect("the file");
                let name = format!("name = \"{user}\"");
                let text = text.replace(&name, &format!("{name}\nrun_as = \"{run_as}\""));
                std::fs::write(&file, text).expect("written");
            }
            token.expect("a token")
        };
        let tokens: Vec<String> = users.iter().map(token).collect();
        let mut config = config();
        config.scratch = scratch.clone();
        config.file_bytes = 1 << 20;
        if !tokens.is_empty() {
            config.users = Some(Arc::new(Users::open(&file).expect("users")));
        }
        change(&mut config);
        let server = served_text(config, TEXT, library);
        let files = tempfile::tempdir().expect("a folder");
        FileServer { server, scratch, files, tokens, _folder: folder }
    }

    fn client(&self, user: usize) -> Client {
        let token = self.tokens.get(user).cloned().unwrap_or_default();
        let options = Options { token, ..Options::default() };
        Client::connect(&self.server.address.to_string(), &options).expect("a connection")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// A file with this text.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).expect("written");
        self.path(name)
    }

    /// The folders of calls that exist.
    fn calls(&self) -> Vec<PathBuf> {
        let folders = |path: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(path).expect("a folder");
            let paths = entries.map(|entry| entry.expect("an entry").path());
            paths.filter(|path| path.is_dir()).collect()
        };
        let owners = folders(&self.scratch).into_iter().flat_map(|server| folders(&server));
        owners.flat_map(|owner| folders(&owner)).collect()
    }

    /// All uses of a file argument.
    fn files_go_there_and_back(&self, client: &Client) {
        for text in ["", "some text", &"long ".repeat(50_000)] {
            let (from, to) = (self.file("from", text), self.path("to"));
            let args = vec![FileArgument::from(&from).into(), FileArgument::to(&to).into()];
            let outcome = client.call("capitals", args).expect("it runs");
            assert_eq!(outcome.scalar(2), Some(Scalar::I64(text.len() as i64)));
            assert_eq!(std::fs::read_to_string(&to).expect("it is there"), text.to_uppercase());
        }
        let both = self.file("both", "0");
        let args = vec![FileArgument::both(&both, &both).into(), 1.into()];
        client.call("append", args).expect("it runs");
        assert_eq!(std::fs::read_to_string(&both).expect("it is there"), "01");
        eventually("the end of the folders", || self.calls().is_empty());
    }

    /// A result that is not a regular file of its own does not come back.
    fn mischief_is_told(&self, client: &Client, secret: &Path) {
        let text = secret.to_str().expect("a name");
        for what in [0, 1, 2, 3, 6, 7] {
            let to = self.file("to", text);
            let args = vec![what.into(), FileArgument::both(&to, &to).into()];
            let error = client.call("mischief", args).expect_err("it is no file");
            assert!(matches!(error, CallError::File(_)), "{what}: {error}");
            assert_eq!(std::fs::read_to_string(&to).expect("it is there"), text);
        }
        eventually("the end of the folders", || self.calls().is_empty());
    }

    fn reaches(&self, client: &Client, path: &Path, how: i32) -> bool {
        let with = self.file("with", "");
        let path = path.to_str().expect("a name").to_owned();
        let args = vec![path.as_str().into(), how.into(), FileArgument::from(with).into()];
        client.call("reaches", args).expect("it runs").scalar(3) == Some(Scalar::I64(1))
    }
}

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        kumi_skip::skip("files_apart", "only root can have routines run as another user");
    }
    root
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

#[test]
fn files_of_another_user() {
    if !is_root() {
        return;
    }
    let fixture =
        FileServer::new(here(), &[("ada", Some("nobody")), ("bob", Some("daemon"))], |_| {});
    let (ada, bob) = (fixture.client(0), fixture.client(1));
    fixture.files_go_there_and_back(&ada);
    fixture.files_go_there_and_back(&bob);
    // A file of root on the same disk, readable by others, so that a hard link to it is possible.
    let secret = fixture.scratch.parent().expect("a folder").join("secret");
    std::fs::write(&secret, "root's").expect("written");
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o666)).expect("its mode");
    fixture.mischief_is_told(&ada, &secret);
    assert_eq!(std::fs::read(&secret).expect("it is there"), b"root's");
    // While a call runs, its folder belongs to its user, and nobody else can enter.
    let args = || {
        let (from, to) = (fixture.file("from", "text"), fixture.path("rested"));
        vec![600_000.into(), FileArgument::from(from).into(), FileArgument::to(to).into()]
    };
    let mut call = ada.call_async("rests", args(), None).expect("it is sent");
    eventually("the folder", || fixture.calls().len() == 1);
    let folder = fixture.calls().remove(0);
    let nobody = nix::unistd::User::from_name("nobody").expect("users").expect("nobody");
    let about = |path: &Path| {
        let about = std::fs::metadata(path).expect("it is there");
        (about.uid(), about.mode() & 0o777)
    };
    eventually("its end", || about(&folder) == (nobody.uid.as_raw(), 0o700));
    assert_eq!(about(&folder.join("file-1")), (nobody.uid.as_raw(), 0o600));
    assert_eq!(about(folder.parent().expect("the owner's")), (0, 0o711));
    assert!(fixture.reaches(&ada, &folder.join("file-1"), 4));
    assert!(!fixture.reaches(&bob, &folder.join("file-1"), 4));
    call.cancel().expect("it is sent");
    assert!(matches!(call.wait(&|| false), Err(CallError::Cancelled(_))));
    eventually("the end of the folder", || fixture.calls().is_empty());
}

#[test]
fn a_folder_that_the_user_cannot_enter_is_told() {
    if !is_root() {
        return;
    }
    let fixture = FileServer::new(here(), &[("ada", Some("nobody"))], |_| {});
    std::fs::set_permissions(&fixture.scratch, PermissionsExt::from_mode(0o700)).expect("ours");
    let args = vec![
        FileArgument::from(fixture.file("from", "x")).into(),
        FileArgument::to(fixture.path("to")).into(),
    ];
    match fixture.client(0).call("capitals", args) {
        Err(error @ CallError::NotRunnable(_)) => {
            let text = error.to_string();
            assert!(
                error.has_not_run() && text.contains("--scratch that everybody may enter"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(!fixture.path("to").exists());
}

#[test]
fn files_in_a_sandbox() {
    // Beside the sandbox's own folders, and inside them.
    for base in [here(), Path::new("/tmp")] {
        let users = [("ada", None), ("bob", None)];
        let fixture = FileServer::new(base, &users, |config| config.sandbox = true);
        let (ada, bob) = (fixture.client(0), fixture.client(1));
        let args = vec![
            FileArgument::from(fixture.file("from", "x")).into(),
            FileArgument::to(fixture.path("to")).into(),
        ];
        match ada.call("capitals", args) {
            Ok(_) => {}
            Err(CallError::NotRunnable(text)) if text.contains("there can be no sandbox") => {
                return kumi_skip::skip("files_in_a_sandbox", &text);
            }
            Err(other) => panic!("{other}"),
        }
        fixture.files_go_there_and_back(&ada);
        fixture.files_go_there_and_back(&bob);
        fixture.mischief_is_told(&ada, &fixture.file("secret", "ours"));
        // Only files of the owner are writable, and those of others are invisible.
        assert!(!fixture.reaches(&ada, &fixture.scratch, 2));
        let (from, to) = (fixture.file("from", "text"), fixture.path("rested"));
        let args =
            vec![600_000.into(), FileArgument::from(from).into(), FileArgument::to(to).into()];
        let mut call = ada.call_async("rests", args, None).expect("it is sent");
        eventually("the folder", || fixture.calls().len() == 1);
        let folder = fixture.calls().remove(0);
        assert!(fixture.reaches(&ada, &folder.join("file-1"), 4));
        assert!(!fixture.reaches(&bob, &folder, 0), "{}", folder.display());
        assert!(!fixture.reaches(&bob, folder.parent().expect("the owner's"), 0));
        let server = folder.ancestors().nth(2).expect("the server's");
        assert!(fixture.reaches(&bob, server, 0) && !fixture.reaches(&bob, server, 2));
        call.cancel().expect("it is sent");
        assert!(matches!(call.wait(&|| false), Err(CallError::Cancelled(_))));
    }
}
