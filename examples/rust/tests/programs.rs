//! The programs as jobs of one rank, without a cluster: results, last lines, exit codes.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a program as a job of one rank.
fn alone(program: &str, arguments: &[&str]) -> Output {
    command(program, arguments).env("KUMI_SINGLETON", "1").output().unwrap()
}

/// A program without the variables of the job that may run this test.
fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KUMI_") {
            command.env_remove(name);
        }
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn last_line(output: &Output) -> String {
    text(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

const PROGRAMS: [&str; 8] = [
    env!("CARGO_BIN_EXE_ep"),
    env!("CARGO_BIN_EXE_ft"),
    env!("CARGO_BIN_EXE_raytracer"),
    env!("CARGO_BIN_EXE_pingpong"),
    env!("CARGO_BIN_EXE_lockstep"),
    env!("CARGO_BIN_EXE_dense"),
    env!("CARGO_BIN_EXE_primes"),
    env!("CARGO_BIN_EXE_string"),
];

#[test]
fn waves_on_a_string_are_those_that_are_known() {
    for (points, steps) in [("1", "3"), ("2", "4"), ("500", "700")] {
        let output = alone(env!("CARGO_BIN_EXE_string"), &["--points", points, "--steps", steps]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let begin = "RESULT name=string class=- verified=yes";
        assert!(last_line(&output).starts_with(begin), "{}", last_line(&output));
    }
}

#[test]
fn kernels_verify_class_s() {
    for (program, name) in [(env!("CARGO_BIN_EXE_ep"), "EP"), (env!("CARGO_BIN_EXE_ft"), "FT")] {
        let output = alone(program, &["--class", "S"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let line = last_line(&output);
        assert!(line.starts_with(&format!("RESULT name={name} class=S verified=yes")), "{line}");
        assert!(line.ends_with(" ranks=1 repeat=1"), "{line}");
        assert!(text(&output.stdout).contains(" Verification    ="), "{line}");
    }
}

#[test]
fn primes_are_counted_until_the_input_ends() {
    use std::io::Write;
    let mut command = command(env!("CARGO_BIN_EXE_primes"), &[]);
    command.env("KUMI_SINGLETON", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"10\n 2\nten\n1000\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answers = "4 primes below 10\n0 primes below 2\n168 primes below 1000\n";
    assert_eq!(text(&output.stdout), answers);
    assert!(text(&output.stderr).contains("\"ten\" is not a number"));
}

#[test]
fn dense_programs_verify() {
    for program in ["lu", "product", "sort"] {
        let output = alone(env!("CARGO_BIN_EXE_dense"), &[program, "--side", "50"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let line = last_line(&output);
        assert!(line.starts_with(&format!("RESULT name={program} class=- verified=yes")), "{line}");
    }
    let output = alone(env!("CARGO_BIN_EXE_dense"), &["reads"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("at least 2 ranks"));
}

#[test]
fn help_and_wrong_arguments() {
    for program in PROGRAMS {
        let help = command(program, &["--help"]).output().unwrap();
        assert!(help.status.success() && text(&help.stdout).contains("Usage:"), "{program}");
        let wrong = alone(program, &["--no-such-option"]);
        assert_eq!(wrong.status.code(), Some(64), "{program}");
        assert!(text(&wrong.stderr).contains("--no-such-option"), "{program}");
    }
    let wrong: [(&str, &[&str]); 6] = [
        (PROGRAMS[0], &["--class", "Q"]),
        (PROGRAMS[1], &["--repeat", "0"]),
        (PROGRAMS[2], &["--output", "picture.jpeg"]),
        (PROGRAMS[2], &["--width", "0"]),
        (PROGRAMS[3], &["--peer", "1"]),
        (PROGRAMS[4], &["--seconds", "NaN"]),
    ];
    for (program, arguments) in wrong {
        let output = alone(program, arguments);
        assert_eq!(output.status.code(), Some(64), "{program} {arguments:?}");
        assert!(text(&output.stderr).contains(arguments[1]), "{}", text(&output.stderr));
    }
}

#[test]
fn outside_a_job_they_say_how_to_start_them() {
    for program in PROGRAMS {
        let output = command(program, &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{program}");
        assert!(text(&output.stderr).contains("kumi run"), "{}", text(&output.stderr));
    }
}

#[test]
fn the_ray_tracer_writes_and_shows_its_picture() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("balls.ppm");
    let name = file.display().to_string();
    let size = ["--width", "48", "--height", "30", "--samples", "1", "--repeat", "2"];
    let mut arguments = size.to_vec();
    arguments.extend(["--show", "--columns", "24", "--output", &name]);
    let output = alone(env!("CARGO_BIN_EXE_raytracer"), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains('\u{2580}'));
    assert!(last_line(&output).starts_with("RESULT name=raytracer class=- verified=yes"));
    let picture = std::fs::read(&file).unwrap();
    assert!(picture.starts_with(b"P6\n48 30\n255\n"));
    assert_eq!(picture.len(), 13 + 48 * 30 * 3);
    assert!(picture[13..].iter().any(|byte| *byte != picture[13]), "not of one colour");
}

#[test]
fn the_ray_tracer_says_which_file_it_cannot_write() {
    let arguments = ["--width", "8", "--height", "8", "--output", "/no/such/folder/x.png"];
    let output = alone(env!("CARGO_BIN_EXE_raytracer"), &arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/no/such/folder/x.png"), "{}", text(&output.stderr));
}

#[test]
fn lockstep_counts_its_steps() {
    let output = alone(env!("CARGO_BIN_EXE_lockstep"), &["--steps", "1000"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let line = last_line(&output);
    assert!(line.starts_with("RESULT name=lockstep class=- verified=yes"), "{line}");
    assert!(line.contains(" steps=1000 steps_per_s="), "{line}");
    let past = alone(env!("CARGO_BIN_EXE_lockstep"), &["--start-at", "1"]);
    assert_eq!(past.status.code(), Some(64), "a start in the past");
}
