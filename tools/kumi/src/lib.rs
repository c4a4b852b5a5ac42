//! `kumi`: the command with which people use a cluster. It is a library, so that the documentation can be
//! generated from it.
#![forbid(unsafe_code)]

mod attach;
mod call;
mod cli;
mod cluster;
mod completions;
mod context;
mod debug;
mod demo;
mod doctor;
mod error;
mod hosts;
mod interrupts;
mod job_descriptions;
mod kill;
mod logs;
mod loopback;
mod node;
mod output;
mod parse;
mod patience;
mod ps;
mod run;
mod sim;
mod stats;
mod submit;
mod table;
mod terminal;
mod top;
mod trace;
mod usage;
mod users;
mod wait;
mod web;
mod whole_file;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use cli::{Cli, Command};
use context::Context;
use error::Error;
use std::process::ExitCode;

/// The definition of the command line.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let read = Cli::command().try_get_matches();
    let read = read.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match read {
        Ok(read) => read,
        Err(error) => return refuse(&error),
    };
    match with_job_file(cli, &matches).and_then(execute) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if error.speaks() {
                output::note(&error.to_string());
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// Help and version are not failures. Other errors are reported like every other failure, and not with clap's
/// own exit code.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // If standard output is closed, the reader wanted that.
        let _closed = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    output::note(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
    kumi_node::exit::ExitCode::Usage.into()
}

/// The command line with what a script and a job file add to it.
fn with_job_file(mut cli: Cli, matches: &ArgMatches) -> Result<Cli, Error> {
    let file = match (&mut cli.command, matches.subcommand()) {
        (Command::Run(args), Some((_, run))) => {
            args.job.job_file.take().map(|file| ("run", file, run.clone()))
        }
        (Command::Submit(args), Some((_, submit))) => {
            args.input = submit::script_on_input(&args.command)?;
            let script = run::script_options::apply(args.clone(), &cli.cluster, submit)?;
            let (with_script, submit) = script;
            *args = with_script;
            args.job.job_file.take().map(|file| ("submit", file, submit))
        }
        _ => None,
    };
    if let Some((name, file, matches)) = file {
        let input = match &mut cli.command {
            Command::Submit(args) => args.input.take(),
            _ => None,
        };
        cli.command = run::job_file::apply(&file, &cli.cluster, name, &matches)?;
        if let Command::Submit(args) = &mut cli.command {
            // It cannot be read again.
            args.input = input;
        }
    }
    Ok(cli)
}

fn execute(cli: Cli) -> Result<(), Error> {
    if let Command::Demo(args) = &cli.command {
        return demo::run(args).map_err(|error| {
            output::note(&error.to_string());
            Error::Silent(error.exit_code())
        });
    }
    if let Command::Sim(command) = &cli.command {
        return sim::run(command);
    }
    if let Command::Call(command) = &cli.command {
        return call::run(command, &cli.cluster);
    }
    if let Command::Completions(args) = &cli.command {
        return completions::run(args);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::SetUp { what: "the runtime", source })?;
    let context = context(&cli)?;
    let result = runtime.block_on(dispatch(&context, cli.command));
    // A thread may still read standard input: it must not delay the exit.
    runtime.shutdown_background();
    result
}

/// The cluster of the command line. What makes or ends a cluster is about the user's own.
fn context(cli: &Cli) -> Result<Context, Error> {
    use cli::ClusterCommand::{Destroy, Down, Init, Up};
    match &cli.command {
        Command::Cluster(Init(_) | Up(_) | Down(_) | Destroy(_)) => Context::new(&cli.cluster),
        _ => Context::of_user(&cli.cluster),
    }
}

async fn dispatch(context: &Context, command: Command) -> Result<(), Error> {
    match command {
        Command::Cluster(command) => cluster::run(context, command).await,
        Command::Node(command) => node::run(context, command).await,
        Command::Run(args) => run::run(context, args).await,
        Command::Submit(args) => submit::run(context, args).await,
        Command::Wait(args) => wait::run(context, &args).await,
        Command::Ps(args) => ps::run(context, &args).await,
        Command::Usage(args) => usage::run(context, &args).await,
        Command::Kill(args) => kill::run(context, &args).await,
        Command::Logs(args) => logs::run(context, &args).await,
        Command::Attach(args) => attach::run(context, &args).await,
        Command::Top(args) => top::run(context, &args).await,
        Command::Web(args) => web::run(context, &args).await,
        Command::Stats(args) => stats::run(context, &args).await,
        Command::Debug(command) => debug::run(context, &command).await,
        Command::Trace(args) => trace::run(context, &args).await,
        Command::Doctor(args) => doctor::run(context, &args),
        // These have their own runtime or need none; they were handled before.
        Command::Demo(_) | Command::Sim(_) | Command::Call(_) | Command::Completions(_) => Ok(()),
    }
}
