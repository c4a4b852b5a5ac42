//! `kumi call build` and `kumi call run`: routines with bodies, as executables that a server runs.
#![forbid(unsafe_code)]

use kumi_tests::binaries::{self, repository};
use std::io::{BufRead, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn kumi(arguments: &[&str]) -> Output {
    let mut command = Command::new(binaries::path("kumi"));
    command.args(arguments).env_remove("KUMI_CALL_SERVER").output().expect("kumi runs")
}

/// What it printed, what it said, and its exit code.
fn run(arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = kumi(arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// A folder with executables of descriptions.
struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    fn of(descriptions: &[&Path]) -> Result<Built, String> {
        let names = descriptions.iter().map(|path| path.to_str().expect("a name"));
        Built::with(&names.collect::<Vec<_>>())
    }

    fn with(what: &[&str]) -> Result<Built, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out");
        let mut arguments = vec!["call", "build", "-o", out.to_str().expect("a name")];
        arguments.extend(what);
        let (printed, said, code) = run(&arguments);
        let found = std::fs::read_dir(&out).expect("the folder").count();
        if code != Some(0) {
            assert_eq!(code, Some(65), "{said}");
            return Err(said);
        }
        assert_eq!(printed.lines().count() * 2, found, "{printed}");
        Ok(Built { folder })
    }

    /// Of this text, in a folder where other files lie already.
    fn of_text(text: &str, others: &[(&str, &str)]) -> Result<Built, String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in others.iter().chain(&[("own.idl", text)]) {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        Built::of(&[&folder.path().join("own.idl")])
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }

    /// What `kumi call serve` is given.
    fn manifests(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.file("")).expect("the folder");
        let paths = files.map(|entry| entry.expect("an entry").path());
        let found = paths.filter(|path| path.extension().is_some_and(|end| end == "routine"));
        found.map(|path| path.to_str().expect("a name").to_owned()).collect()
    }

    fn serve(&self) -> Server {
        let mut child = Command::new(binaries::path("kumi"))
            .args(["call", "serve", "--listen", "127.0.0.1:0", "--slots", "1"])
            .args(self.manifests())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kumi starts");
        let mut said = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("its messages"));
        stderr.read_line(&mut said).expect("a line");
        assert!(said.contains("serves"), "{said}");
        let address = said.trim().rsplit(' ').next().expect("an address").to_owned();
        Server { child, address, _stderr: stderr }
    }
}

struct Server {
    child: Child,
    address: String,
    _stderr: BufReader<std::process::ChildStderr>,
}

impl Server {
    fn run(&self, arguments: &[&str]) -> (String, String, Option<i32>) {
        run(&[&["call", "run", "--server", &self.address], arguments].concat())
    }

    /// The results of a call that goes well.
    fn results(&self, arguments: &[&str]) -> String {
        let (printed, said, code) = self.run(arguments);
        assert_eq!((code, said.as_str()), (Some(0), ""), "{arguments:?}");
        printed
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it is there");
        assert!(self.child.wait().expect("it ends").success());
    }
}

/// The number behind `name = `.
fn number(results: &str, name: &str) -> f64 {
    let line = results.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
    line.expect(results).parse().expect("a number")
}

/// The numbers of a vector.
fn numbers(results: &str, name: &str) -> Vec<f64> {
    let line = results.lines().find_map(|line| line.strip_prefix(&format!("{name} = [")));
    let cells = line.and_then(|line| line.strip_suffix(']')).expect(results).split(", ");
    cells.map(|cell| cell.parse().expect("a number")).collect()
}

#[test]
fn the_demonstrations_give_what_is_known() {
    let dos = repository().join("examples/call/dos.idl");
    let what = ["--shipped", "demo", dos.to_str().expect("a name")];
    let built = Built::with(&what).expect("they are built");
    let server = built.serve();
    let pi = number(&server.results(&["pi", "100000"]), "sum");
    assert!((pi - std::f64::consts::PI).abs() < 1e-9, "{pi}");
    // The NAS kernel EP of class S: the official sums and counts.
    let ep = server.results(&["ep", "16777216"]);
    let near = |name: &str, official: f64| (number(&ep, name) / official - 1.0).abs() < 1e-8;
    assert!(near("sx", -3.24783465203474e3) && near("sy", -6.958407078382297e3), "{ep}");
    let annuli = [6140517.0, 5865300.0, 1100361.0, 68546.0, 1648.0, 17.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(numbers(&ep, "q"), annuli);
    // Without disorder the density is that of a chain of equal atoms; in the middle, and near the edge, where it is higher.
    let dos = server.results(&["dos", "0,1.5", "disorder=0", "most=1", "atoms=100000"]);
    let densities = numbers(&dos, "density");
    assert_eq!(densities.len(), 2, "{dos}");
    for (found, energy) in densities.into_iter().zip([0.0_f64, 1.5]) {
        let exact = 1.0 / (std::f64::consts::PI * (4.0 - energy * energy).sqrt());
        assert!((found / exact - 1.0).abs() < 0.01, "{dos}");
    }
    // With it the tail of the band costs many times what its middle does.
    let dos = server.results(&["dos", "0,2.4", "wanted=200", "most=200"]);
    let chains = numbers(&dos, "chains");
    assert!(chains[0] * 4.0 < chains[1], "{dos}");
}

const DMMUL: &str = r#"
Define dmmul(mode_in int n, mode_in double A[n][n], mode_in double B[n][n], mode_out double C[n][n])
{
    for (int i = 0; i < n * n; i++) {
        C[i] = 0;
        for (int k = 0; k < n; k++)
            C[i] += A[i / n * n + k] * B[k * n + i % n];
    }
}
"#;

#[test]
fn arrays_come_from_files_and_go_there() {
    let built = Built::of_text(DMMUL, &[]).expect("it is built");
    let server = built.serve();
    let (npy, raw) = (built.file("c.npy"), built.file("c.bin"));
    let (npy, raw) = (npy.to_str().expect("a name"), raw.to_str().expect("a name"));
    let to = format!("C={npy}");
    assert_eq!(server.results(&["dmmul", "1,2;3,4", "1,0;0,2", "-o", &to]), "");
    let from = format!("@{npy}");
    assert_eq!(server.results(&["dmmul", &from, "1,0;0,1"]), "C = [[1.0, 4.0], [3.0, 8.0]]\n");
    server.results(&["dmmul", "2", &from, "1,0;0,1", "--output", &format!("C={raw}")]);
    let numbers: Vec<u8> = [1.0_f64, 4.0, 3.0, 8.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(std::fs::read(raw).expect("the numbers"), numbers);
    let from = format!("@{raw}");
    let same = server.results(&["dmmul", "n=2", "B=0,1;1,0", &from]);
    assert_eq!(same, "C = [[4.0, 1.0], [8.0, 3.0]]\n");
    let refused = |arguments: &[&str], code: i32, what: &str| {
        let (printed, said, ended) = server.run(arguments);
        assert_eq!((ended, printed.as_str()), (Some(code), ""), "{said}");
        assert!(said.contains(what), "{said}");
    };
    refused(&["dmmul", "1,2;3,4"], 64, "takes A B, or n A B");
    refused(&["dmmul", "1,2;3,4", "1,2,3"], 64, "`B` has");
    refused(&["dmmul", "1,2;3,4", "@nowhere.npy"], 66, "nowhere.npy");
    refused(&["dmmul", "1,2;3,4", &from, "-o", "n=x"], 64, "no array or file that comes back");
    refused(&["dmul"], 66, "did you mean dmmul");
    let broken = built.file("broken.npy");
    std::fs::write(&broken, "no array").expect("written");
    refused(&["dmmul", &format!("@{}", broken.display()), "1"], 65, "numpy.save");
}

#[test]
fn transforms_of_fftw_there_and_back() {
    let built = match Built::with(&["--shipped", "fftw"]) {
        Err(said) if said.contains("fftw3.h") => return kumi_skip::skip("fftw", &said),
        other => other.expect("they are built"),
    };
    let server = built.serve();
    let one = server.results(&["fft1_forward", "1,0,0,1i"]);
    assert_eq!(one, "y = [1.0+1.0i, 0.0+0.0i, 1.0-1.0i, 2.0+0.0i]\ninfo = 0\n");
    let (npy, raw) = (built.file("y.npy"), built.file("y.bin"));
    server.results(&["fft2_forward", "1,2,3;4,5,6i", "-o", &format!("y={}", npy.display())]);
    let from = format!("@{}", npy.display());
    server.results(&["fft2_backward", &from, "-o", &format!("y={}", raw.display())]);
    let bytes = std::fs::read(raw).expect("the numbers");
    let found = bytes.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().expect("8")));
    // Not scaled: six times what was there.
    let was = [1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0, 5.0, 0.0, 0.0, 6.0];
    assert_eq!(bytes.len(), 8 * was.len());
    assert!(found.zip(was).all(|(found, was)| (found - 6.0 * was).abs() < 1e-12));
}

const PASSED: &str = r#"
#include <complex.h>
#include <stdint.h>
#include <string.h>
double complex turn(double complex z, int times, float complex w)
{
    for (int i = 0; i < times; i++)
        z *= I;
    return z + w;
}
int pick(const char *way, int letter, double scale) { return strlen(way) * 1000 + letter + (int)scale; }
void fcount_(const int64_t *n, const char *text, int *sum, const char *abc, size_t length, size_t other)
{
    *sum = (int)*n + (int)(length * 100 + other * 10000) + text[1] + abc[2] - 'c';
}
"#;

const DESCRIPTIONS: &str = r#"
Module own;
Globals {
#include <string.h>
static int twice(int n) { return 2 * n; }
}
Define turn(mode_in dcomplex z, mode_in int times, mode_in scomplex w, mode_out dcomplex turned)
Required "passed.c" Calls "C" turned = turn(z, times + 1, w);
Define pick(mode_in string way, mode_in double scale, mode_out int found)
Required "passed.c" Calls "C" found = pick("\"n\"\\", way + 0, scale * 2);
Define fcount(mode_in int n, mode_in string way, mode_out int sum)
Required "passed.c" Calls "Fortran" fcount(n * n, way, sum, "abc");
Define shout(mode_in string text, mode_in int n, mode_out string answer[64], mode_out int size, mode_work int8 room[n])
{
    memset(room, 1, n);
    strcpy(answer, text);
    strcat(answer, "!");
    *size = twice(n);
}
Define crash(mode_in int n)
{
    *(volatile int *)(intptr_t)n = 1;
}
"#;

#[test]
fn what_is_passed_to_linked_routines() {
    let built = Built::of_text(DESCRIPTIONS, &[("passed.c", PASSED)]).expect("they are built");
    let server = built.serve();
    assert_eq!(server.results(&["own/turn", "1+2i", "0", "w=0.5+0.25i"]), "turned = -1.5+1.25i\n");
    let letter = i32::from(b'O');
    let found = format!("found = {}\n", 4000 + letter + 3);
    assert_eq!(server.results(&["own/pick", "own", "1.5"]), found);
    let sum = 49 + 200 + 30_000 + i32::from(b'y');
    assert_eq!(server.results(&["own/fcount", "7", "xy"]), format!("sum = {sum}\n"));
    assert_eq!(server.results(&["own/shout", "hey", "5"]), "answer = \"hey!\"\nsize = 10\n");
    let (_, said, code) = server.run(&["own/crash", "16"]);
    assert_eq!(code, Some(70), "{said}");
    assert!(said.contains("signal 11"), "{said}");
    assert_eq!(server.results(&["own/shout", "ho", "1"]), "answer = \"ho!\"\nsize = 2\n");
}

const CAPITALS: &str = r#"
Globals {
#include <ctype.h>
#include <stdio.h>
}
Define capitals(mode_in filename from, mode_out filename to, mode_out int length)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    *length = 0;
    for (int c; (c = getc(in)) != EOF; ++*length)
        putc(toupper(c), out);
    fclose(in);
    fclose(out);
}
Define calls(f(mode_in int n)) { f(1); }
"#;

#[test]
fn files_go_there_and_back() {
    let built = Built::of_text(CAPITALS, &[]).expect("it is built");
    let server = built.serve();
    let path = |name: &str| built.folder.path().join(name).display().to_string();
    let (to, out) = (path("answer"), format!("to={}", path("answer")));
    let from = built.file("capitals.routine").display().to_string();
    let results = server.results(&["capitals", &from, "-o", &out]);
    let length = std::fs::metadata(&from).expect("the file").len();
    assert_eq!(results, format!("length = {length}\n"));
    let text = std::fs::read_to_string(&from).expect("the file").to_ascii_uppercase();
    assert_eq!(std::fs::read_to_string(&to).expect("the answer"), text);
    for (arguments, code, what) in [
        (&["capitals", &from][..], 64, "`-o to=FILE`"),
        (&["capitals", "/not/there", "-o", &out], 66, "/not/there"),
        (&["calls", "main"], 64, "which a shell cannot give"),
        (
            &["capitals", &from, "-o", &out, "--call-files", "0"],
            66,
            "more than the 0 that are taken",
        ),
    ] {
        let (_, said, ended) = server.run(arguments);
        assert_eq!(ended, Some(code), "{said}");
        assert!(said.contains(what), "{said}");
    }
    assert_eq!(std::fs::read_to_string(&to).expect("the answer"), text, "what was there stays");
}

/// Passes one connection on to a server: the address for the client, and what counts the bytes that it sends.
fn counting(server: &str) -> (String, std::thread::JoinHandle<u64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let server = server.to_owned();
    let passing = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let mut there = TcpStream::connect(server).expect("the server");
        let (mut back, mut answers) =
            (client.try_clone().expect("it"), there.try_clone().expect("it"));
        let answers = std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
        let sent = std::io::copy(&mut client, &mut there).expect("passed on");
        there.shutdown(Shutdown::Write).expect("ended");
        // The client may have gone before all answers.
        let _gone = answers.join().expect("no panic");
        sent
    });
    (address, passing)
}

#[test]
fn of_a_call_that_is_too_large_nothing_is_sent() {
    let text = "Define zeros(mode_in long n, mode_out double A[n]) { for (long i = 0; i < n; i++) A[i] = 0; }";
    let built = Built::of_text(text, &[]).expect("it is built");
    let server = built.serve();
    let (address, passing) = counting(&server.address);
    let (_, said, code) = run(&["call", "info", "zeros", "--server", &address]);
    assert_eq!(code, Some(0), "{said}");
    let asked = passing.join().expect("passed on");
    let (address, passing) = counting(&server.address);
    let (printed, said, code) =
        run(&["call", "run", "--server", &address, "zeros", "1000000000000000"]);
    assert_eq!((code, printed.as_str()), (Some(78), ""), "{said}");
    assert!(said.contains("with `A` the call needs more than"), "{said}");
    assert_eq!(
        passing.join().expect("passed on"),
        asked,
        "the description is all that was asked for"
    );
}

const SMALL: &str = "Define one(mode_out int n) { n = 1; }\n";

#[test]
fn a_folder_that_cannot_be_made_is_a_fault_of_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let described = folder.path().join("own.idl");
    std::fs::write(&described, SMALL).expect("written");
    let described = described.to_str().expect("a name");
    let below = format!("{described}/out");
    for words in [&["build"][..], &["stubs", "--language", "c"]] {
        let arguments = [&["call"], words, &["-o", &below, described]].concat();
        let (_, said, code) = run(&arguments);
        assert_eq!(code, Some(74), "{said}");
        assert!(said.contains(&format!("cannot make {below}")), "{said}");
    }
}

#[test]
fn stubs_are_replaced_in_one_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("own.idl"), SMALL).expect("written");
    std::fs::write(at("own_stubs.py"), "# Older.\n").expect("written");
    // Who has opened the older one reads that to its end.
    std::fs::hard_link(at("own_stubs.py"), at("opened")).expect("another name");
    let name = |path: &Path| path.to_str().expect("a name").to_owned();
    let (out, described) = (name(folder.path()), name(&at("own.idl")));
    let stubs = ["call", "stubs", "--language", "python", "-o", &out, &described];
    let (printed, said, code) = run(&stubs);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{printed}");
    let text = |name: &str| std::fs::read_to_string(at(name)).expect("a text");
    assert!(text("own_stubs.py").contains("def one("), "{}", text("own_stubs.py"));
    assert_eq!(text("opened"), "# Older.\n");
    // What is no file in its place is told as the disk's fault.
    std::fs::remove_file(at("own_stubs.py")).expect("removed");
    std::fs::create_dir(at("own_stubs.py")).expect("a folder");
    let (_, said, code) = run(&stubs);
    assert_eq!(code, Some(74), "{said}");
    assert!(said.contains("own_stubs.py"), "{said}");
}

#[test]
fn compilers_name_the_description() {
    let wrong = "Define f(mode_in int n)\n{\n    int m = n;\n    return k;\n}\nDefine g(mode_in int n) Calls g(n);\n";
    let Err(said) = Built::of_text(wrong, &[]) else { panic!("it was built") };
    assert!(said.contains("own.idl:4:"), "{said}");
    assert!(said.contains("`f` does not compile") && said.contains("`g` does not link"), "{said}");
    assert!(said.contains("2 routines were not built"), "{said}");
    // What lies there already is somebody's.
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("f.idl"), "Define f(mode_out int n) { *n = 1; }")
        .expect("written");
    std::fs::write(folder.path().join("f"), "mine").expect("written");
    std::fs::write(folder.path().join("f.c"), "mine").expect("written");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (_, said, code) = run(&["call", "build", &path("f.idl"), "-o", &path("")]);
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("was not built by this"), "{said}");
    std::fs::remove_file(path("f")).expect("removed");
    let (printed, said, code) = run(&["call", "build", "--keep", &path("f.idl"), "-o", &path("")]);
    assert_eq!((code, said.as_str(), printed.lines().count()), (Some(0), "", 1));
    assert_eq!(std::fs::read_to_string(path("f.c")).expect("the source"), "mine");
    assert!(std::fs::read_to_string(path("f.stub.c")).expect("the source").contains("*n = 1;"));
    let complex = "Define f(g(mode_in dcomplex z)) { g(0); }";
    let Err(said) = Built::of_text(complex, &[]) else { panic!("it was built") };
    assert!(said.contains("a complex number by value"), "{said}");
}

#[test]
fn executables_are_those_that_were_built() {
    let one = "Define one(mode_out int n) { *n = 1; }";
    let built = Built::of_text(one, &[]).expect("it is built");
    let manifest = built.file("one.routine");
    let refused = || {
        let (_, said, code) =
            run(&["call", "serve", "--listen", "127.0.0.1:0", manifest.to_str().expect("a name")]);
        assert_eq!(code, Some(65), "{said}");
        said
    };
    // A manifest that somebody has changed: the executable knows its own description.
    let was = std::fs::read_to_string(&manifest).expect("the manifest");
    std::fs::write(&manifest, was.replace("\"i32\"", "\"i64\"")).expect("written");
    let (_, said, code) = built.serve().run(&["one"]);
    assert_eq!(code, Some(126), "{said}");
    assert!(said.contains("another description"), "{said}");
    std::fs::write(&manifest, was.replace("\"one\"", "\"../one\"")).expect("written");
    assert!(refused().contains("no name of a file beside it"));
    std::fs::write(&manifest, &was).expect("written");
    let mut executable = std::fs::read(built.file("one")).expect("the executable");
    executable.push(0);
    std::fs::write(built.file("one"), executable).expect("written");
    assert!(refused().contains("build both again"));
    std::fs::remove_file(built.file("one")).expect("removed");
    assert!(refused().contains("cannot be read"));
}
