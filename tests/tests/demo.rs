//! `kumi demo`: its data, and that it cleans up after itself.
#![forbid(unsafe_code)]

use kumi_tests::command::{self, RunningCommand};
use kumi_tests::{binaries, machine};
use nix::sys::signal::Signal;
use std::process::Command;

fn demo(args: &[&str]) -> Command {
    let mut command = Command::new(binaries::path("kumi"));
    command.arg("demo").args(args);
    command
}

/// What a demonstration with this process number would leave behind.
fn traces(pid: u32) -> Vec<String> {
    let name = format!("kumi-demo-{pid}");
    let mut traces = machine::namespaces(&name);
    traces.extend(machine::cgroups(&name));
    traces.extend(machine::processes(&format!("/demo-{pid}")));
    traces
}

#[test]
fn the_demonstration_verifies_and_writes_its_data() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().display().to_string();
    let args = ["--class", "S", "--nodes", "2", "--seconds", "0.3", "--json", &path];
    let run = RunningCommand::start(demo(&args));
    let pid = run.pid();
    let done = run.finish().ok();
    for name in ["EP.S", "CG.S", "IS.S", "3 lockstep", "exchange a message every few microseconds"]
    {
        assert!(done.out.contains(name), "{}", done.out);
    }
    let text = std::fs::read_to_string(file.path()).expect("our file");
    let data: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let programs = data["programs"].as_array().expect("programs");
    assert_eq!(programs.len(), 4);
    for program in programs {
        assert_eq!(program["verified"], true, "{program}");
        for field in ["alone_s", "together_gang_s", "together_os_s", "ratio_gang", "ratio_os"] {
            assert!(program[field].as_f64() > Some(0.0), "{field}: {program}");
        }
    }
    assert!(data["switch"]["count"].as_u64() > Some(0), "{data}");
    assert!(data["overhead_percent"].is_number(), "{data}");
    assert!(traces(pid).is_empty(), "left behind: {:#?}", traces(pid));
}

#[test]
fn an_interrupted_demonstration_leaves_nothing() {
    let run = RunningCommand::start(demo(&["--class", "S", "--nodes", "2"]));
    let pid = run.pid();
    command::wait_for("daemons", || {
        (machine::processes(&format!("/demo-{pid}")).len() >= 3).then_some(())
    });
    machine::signal(pid, Signal::SIGINT);
    run.finish().fails(130, &["interrupted"]);
    assert!(traces(pid).is_empty(), "left behind: {:#?}", traces(pid));
}

#[test]
fn wrong_options_are_refused() {
    command::run(demo(&["--nodes", "3"])).fails(64, &["--nodes"]);
    command::run(demo(&["--class", "Z"])).fails(64, &["Z"]);
    command::run(demo(&["--programs", "LU"])).fails(64, &["LU"]);
}
