//! `kumi call run`: calls a routine from the shell.

mod given;
mod npy;
mod show;
mod waiting;

use super::client::ServerArgs;
use crate::error::Error;
use crate::{output, parse};
use clap::Args;
use given::Arguments;
use kumi_call::{
    Arg, Array, ArrayMut, CallError, CallOutput, FileArgument, Outcome, Printed, Remote, Resources,
    Shape, TraceContext, TraceContextError, is_given, new_trace, trace_calls, trace_context,
};
use kumi_idl::{ArgumentForm, Element, Interface, Mode, Order, Plan, PlanError, Type};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use waiting::WaitNotice;

/// Options of `kumi call run`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "An ARG is VALUE, in the order of what the routine is sent, or NAME=VALUE. \
A file is its path. Arrays are @FILE.npy, @FILE with the bytes as the routine has them, or 1,2;3,4 by rows. What is the size of an array \
or has a default may be left out."
)]
pub struct RunArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Name of the routine
    #[arg(value_name = "ROUTINE")]
    pub routine: String,
    /// Arguments of the call
    #[arg(value_name = "ARG", allow_negative_numbers = true)]
    pub arguments: Vec<String>,
    /// Write the array or file that comes back in NAME to a file instead of printing it. An array is written
    /// as .npy or as bytes; repeatable
    #[arg(short, long, value_name = "NAME=FILE")]
    pub output: Vec<String>,
    /// Time limit of the call on the server, waiting included
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    pub timeout: Option<Duration>,
    /// Through a metaserver: priority among the calls of the same user, from 0 to 9 (first)
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub priority: u8,
    /// Threads for the routine; it takes as many of the server's slots as that needs [default: those of a slot]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Option<u32>,
    /// Memory for the routine and all that it starts, as `512M`; more ends the call [default: that of a slot]
    #[arg(long, value_name = "SIZE", value_parser = parse::size)]
    pub memory: Option<u64>,
    /// Print what the routine prints to standard error, when the call is over
    #[arg(long)]
    pub printed: bool,
    /// Place of the call in a trace, as OpenTelemetry writes it (00-TRACE-SPAN-FLAGS). Without it: that of the variable
    /// TRACEPARENT, or else in a trace of its own
    #[arg(long, value_name = "TEXT", value_parser = traceparent)]
    pub traceparent: Option<TraceContext>,
    /// Longest file in MiB that may come back
    #[arg(long, value_name = "MIB", default_value_t = 16 << 10, value_parser = clap::value_parser!(u64).range(..=1 << 43))]
    pub call_files: u64,
}

/// Reads a place in a trace.
fn traceparent(text: &str) -> Result<TraceContext, TraceContextError> {
    TraceContext::parse(text.as_bytes())
}

/// An array from the command line, with its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    pub element: Element,
    /// `None`: as many elements as the routine wants, in its order.
    pub dims: Option<Vec<u64>>,
    pub order: Order,
    pub bytes: Vec<u8>,
}

impl Numbers {
    fn shape(&self) -> Shape {
        Shape { element: self.element, dims: self.dims.clone(), order: self.order }
    }
}

/// Runs the command.
pub fn run(args: &RunArgs) -> Result<(), Error> {
    let mut options = args.server.access.options()?;
    options.file_bytes = args.call_files << 20;
    // The server's logs have the place, by which the call is found there.
    let place = args.traceparent.or_else(trace_context).map_or_else(new_trace, Ok)?;
    let waiting = WaitNotice::start(&args.server.server, &options, &args.routine, place);
    let client = Remote::connect(&args.server.server, &options)?.with_priority(args.priority)?;
    let known = client.interface(&args.routine)?;
    let interface: &Interface = &known;
    let files = files(interface, &args.output)?;
    let arguments = Arguments::read(interface, &args.arguments)?;
    let plan = interface
        .plan_with_texts(&arguments.scalars, &arguments.texts, &client.limits())
        .map_err(|error| match error {
            PlanError::TooLarge { .. } => {
                CallError::TooLarge(format!("`{}`: {error}", interface.name)).into()
            }
            error => Error::Usage(error.to_string()),
        })?;
    let mut results = results(interface, &plan, &arguments.arrays)?;
    let list = list(interface, &arguments, &mut results, &files);
    let printed = CallOutput::new();
    let client = if args.printed { client.with_output(&printed) } else { client };
    let client = match Resources::new(args.threads.unwrap_or(0), args.memory.unwrap_or(0)) {
        Some(resources) => client.with_resources(resources),
        None => client,
    };
    trace_calls(Some(place));
    let outcome = client.call_within(&args.routine, list, args.timeout);
    drop(waiting);
    if outcome.as_ref().is_err_and(is_crash) {
        let server = &args.server.server;
        output::note(&format!(
            "`kumi call logs {server}` shows what `{}` has printed",
            args.routine
        ));
    }
    let shown_printed = show_printed(&printed.take());
    // That the call failed counts for more than that its output could not be printed.
    let outcome = outcome?;
    shown_printed?;
    for (index, path) in &files {
        if let Some(numbers) = &results[*index] {
            let is_npy = path.extension().is_some_and(|extension| extension == "npy");
            let written = if is_npy { npy::write(numbers) } else { numbers.bytes.clone() };
            crate::whole_file::write(path, written)
                .map_err(|source| Error::ArrayUnwritable { path: path.clone(), source })?;
        }
    }
    output::text(&shown(interface, &outcome, &results, &files))
}

/// Whether the routine crashed, in the last attempt if there were several.
fn is_crash(error: &CallError) -> bool {
    match error {
        CallError::Attempts { last, .. } => is_crash(last),
        error => matches!(error, CallError::Crashed { .. }),
    }
}

/// Prints what the routine has printed, also of a call that failed.
fn show_printed(printed: &Printed) -> Result<(), Error> {
    let mut out = std::io::stderr().lock();
    let cut: &[u8] = if printed.is_cut { b"\nkumi: the routine has printed more\n" } else { b"" };
    out.write_all(&printed.bytes).and_then(|()| out.write_all(cut)).map_err(Error::Output)
}

/// The parameters whose results go to files.
fn files(interface: &Interface, options: &[String]) -> Result<Vec<(usize, PathBuf)>, Error> {
    let one = |option: &String| {
        let wrong = |why: &str| Error::Usage(format!("-o {option}: {why}"));
        let (name, file) = option.split_once('=').ok_or_else(|| wrong("it is not NAME=FILE"))?;
        let found = interface.params.iter().position(|param| param.name == name);
        let index = found.ok_or_else(|| wrong("the routine has no such parameter"))?;
        let param = &interface.params[index];
        let is_array = param.is_array();
        if !param.mode.is_returned() || !is_array && param.ty != Type::File {
            return Err(wrong("it is no array or file that comes back"));
        }
        Ok((index, PathBuf::from(file)))
    };
    let files: Vec<(usize, PathBuf)> = options.iter().map(one).collect::<Result<_, Error>>()?;
    for (index, param) in interface.params.iter().enumerate() {
        let is_written = files.iter().any(|(written, _)| *written == index);
        if param.ty == Type::File && param.mode.is_returned() && !is_written {
            let text = format!("`{}` is a file: `-o {0}=FILE` says where it goes", param.name);
            return Err(Error::Usage(text));
        }
    }
    Ok(files)
}

/// Buffers for the arrays that come back.
fn results(
    interface: &Interface,
    plan: &Plan,
    sent: &[Option<Numbers>],
) -> Result<Vec<Option<Numbers>>, Error> {
    let mut results = Vec::with_capacity(plan.arguments.len());
    for ((param, argument), sent) in interface.params.iter().zip(&plan.arguments).zip(sent) {
        let ArgumentForm::Array(element, order) = argument.form else {
            results.push(None);
            continue;
        };
        if !param.mode.is_returned() {
            results.push(None);
            continue;
        }
        let dims = || Some(argument.axes.iter().map(|axis| axis.size).collect());
        results.push(Some(match sent {
            Some(Numbers { dims: None, bytes, .. }) => {
                Numbers { element, dims: dims(), order, bytes: bytes.clone() }
            }
            Some(numbers) => numbers.clone(),
            None => Numbers { element, dims: dims(), order, bytes: zeros(argument.bytes)? },
        }));
    }
    Ok(results)
}

/// A buffer for a result, if it is an array.
fn zeros(bytes: u64) -> Result<Vec<u8>, Error> {
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut memory = Vec::new();
    memory.try_reserve_exact(length).map_err(|_| {
        Error::Usage(format!("there is not enough memory for a result of {bytes} bytes"))
    })?;
    memory.resize(length, 0);
    Ok(memory)
}

/// The arguments for the client.
fn list<'a>(
    interface: &Interface,
    arguments: &'a Arguments,
    results: &'a mut [Option<Numbers>],
    files: &[(usize, PathBuf)],
) -> Vec<Arg<'a>> {
    let mut list = Vec::new();
    for (index, (param, result)) in interface.params.iter().zip(results).enumerate() {
        if !is_given(param) {
            continue;
        }
        if param.ty == Type::File {
            let to = files.iter().find(|(written, _)| *written == index);
            let from = arguments.files[index].clone();
            list.push(FileArgument { from, to: to.map(|(_, path)| path.clone()) }.into());
            continue;
        }
        let sent = arguments.arrays[index].as_ref().filter(|_| param.mode != Mode::Out);
        let sent = sent.map(|numbers| Array::bytes(&numbers.bytes, numbers.shape()));
        let result = result.as_mut().map(|numbers| {
            let shape = numbers.shape();
            ArrayMut::bytes(&mut numbers.bytes, shape)
        });
        list.push(match (sent, result) {
            (Some(sent), Some(result)) => Arg::InOut(sent, result),
            (Some(sent), None) => Arg::In(sent),
            (None, Some(result)) => Arg::Out(result),
            (None, None) => match (&arguments.scalars[index], &arguments.texts[index]) {
                (Some(scalar), _) => Arg::Scalar(*scalar),
                (None, Some(text)) => Arg::Text(text.as_str().into()),
                (None, None) => Arg::Default,
            },
        });
    }
    list
}

/// Prints the results that went to no file, one per line.
fn shown(
    interface: &Interface,
    outcome: &Outcome,
    results: &[Option<Numbers>],
    files: &[(usize, PathBuf)],
) -> String {
    let mut text = String::new();
    for (index, (param, result)) in interface.params.iter().zip(results).enumerate() {
        if files.iter().any(|(written, _)| *written == index) {
            continue;
        }
        let value = outcome.values.iter().find(|(of, _)| *of == index);
        let value = value.map(|(_, value)| show::value(value));
        if let Some(value) =
            value.or_else(|| result.as_ref().map(|all| show::array(&param.name, all)))
        {
            text += &format!("{} = {value}\n", param.name);
        }
    }
    text
}
