//! Process of a call slot: opens one routine, or the methods of one class, and runs call after call.
//!
//! A server starts it and speaks to it by the messages of [`slot_protocol`].
#![deny(unsafe_code)]

pub mod check;
pub mod confine;
pub mod guard;
pub mod job;
pub mod join;
#[allow(unsafe_code)]
pub mod native;
mod server_channel;
pub mod slot_protocol;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use kumi_idl::Interface;
use kumi_rpc::TraceContext;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{dup, dup2_stdin, dup2_stdout};

use kumi_call_wire::{callback, layout, values};

use crate::confine::{Level, confine, end_with_server};
use crate::job::JobStarter;
use crate::native::{
    LinkedRoutine, Mailbox, Routine, Runner, flush, open_callback_channel, print_by_lines,
    routine_runs, show_context,
};
use crate::server_channel::ServerChannel;
use crate::slot_protocol::{CallContext, Order, Reply, Setup, TAKES_CONTEXT};

pub use crate::native::{CallbackResult, ClientFunction, Hosted, Linked, main, run};
pub use check::check;
pub use guard::guard;
pub use join::join;
pub use kumi_call_wire::layout::Slot;
pub use kumi_call_wire::native::Arena;

/// [`run`], whose caller has promised what it wants.
pub(crate) fn run_bound() -> io::Result<()> {
    let load = |interface: &Interface, _: &str, setup: &Setup| {
        let loaded = Routine::load(interface, &setup.libraries);
        loaded.map(Runner::Bound).map_err(|error| error.to_string())
    };
    run_with(&load, None)
}

/// [`run`] for routines that are linked into this executable.
pub(crate) fn run_linked(routines: &[Linked], jobs: Option<&dyn JobStarter>) -> io::Result<()> {
    let load = |interface: &Interface, json: &str, setup: &Setup| {
        let found = routines.iter().find(|routine| routine.description() == json.as_bytes());
        let found = found.ok_or_else(|| {
            let name = &interface.name;
            format!("the executable was built from another description of `{name}`; build it again")
        })?;
        if interface.parallel.is_none() {
            return LinkedRoutine::new(found, interface).map(Runner::Linked);
        }
        let starter = jobs.ok_or_else(|| {
            format!(
                "the executable of `{}` was linked without jobs; build it again",
                interface.name
            )
        })?;
        starter.job(interface, json, setup).map(|job| Runner::Job(RefCell::new(job)))
    };
    run_with(&load, jobs)
}

/// [`run`] for routines of an interpreter that hosts this process. `load` returns the function for a
/// description.
///
/// # Errors
/// As [`run`].
pub fn run_hosted<'a>(
    load: &dyn Fn(&Interface, &str) -> Result<Hosted<'a>, String>,
) -> io::Result<()> {
    run_with(&|interface, json, _| load(interface, json).map(Runner::Hosted), None)
}

/// Loads the routine of a description, given as value and as JSON, with the server's setup.
type Load<'a> = dyn Fn(&Interface, &str, &Setup) -> Result<Runner<'a>, String> + 'a;

fn run_with(load: &Load<'_>, jobs: Option<&dyn JobStarter>) -> io::Result<()> {
    // The slot must end with its server, whatever the routine does.
    end_with_server()?;
    show_context(&CallContext::default())?;
    let mut orders = ServerChannel::new(take_socket()?);
    let mut arenas = Arenas::new();
    let mut routines = Vec::new();
    loop {
        let Some((order, descriptor)) = orders.next()? else { return Ok(()) };
        match order {
            Order::Map(number, bytes) => {
                arenas.insert(number, map(descriptor, bytes));
            }
            Order::Unmap(number) => {
                arenas.remove(&number);
            }
            Order::SetUp(number, bytes) => {
                let arena = arenas.get(&number).ok_or(io::ErrorKind::InvalidData)?;
                let bytes = usize::try_from(bytes).unwrap_or(0);
                let arena = arena.as_ref().map_err(String::clone);
                let reply = match arena.and_then(|it| set_up(&it.read(0, bytes), load, jobs)) {
                    Ok((loaded, setup)) => {
                        routines = loaded;
                        let mailbox = setup.mailbox.and_then(|number| arenas.remove(&number));
                        orders.use_mailbox(mailbox.and_then(Result::ok).and_then(Mailbox::of));
                        open_callback_channel(orders.socket()?, setup.callback);
                        Reply::Done(TAKES_CONTEXT)
                    }
                    Err(why) => Reply::Failed(why),
                };
                orders.tell(&reply)?;
            }
            // A callback's return arrives only while its caller waits for it.
            Order::Return(_) => return Err(io::ErrorKind::InvalidData.into()),
            Order::Run(index, number, slots) => {
                let run = (index, number, CallContext::default());
                orders.ran(&carry_out(&routines, &arenas, run, &slots)?)?;
            }
            Order::RunWithin(index, number, slots, context) => {
                let run = (index, number, context);
                orders.ran(&carry_out(&routines, &arenas, run, &slots)?)?;
            }
        }
    }
}

/// Memory that the server has sent, by number, or why it cannot be used.
type Arenas = HashMap<u32, Result<Arc<Arena>, String>>;

/// Carries out an order to run: the routine's index, the arena's number, and the context of the call.
fn carry_out(
    routines: &[Runner<'_>],
    arenas: &Arenas,
    (index, number, context): (u32, u32, CallContext),
    slots: &[Slot],
) -> io::Result<Reply> {
    let arena = arenas.get(&number).ok_or(io::ErrorKind::InvalidData)?;
    let routine = routines.get(index as usize).ok_or(io::ErrorKind::InvalidData)?;
    let arena = match arena {
        Ok(arena) => arena,
        Err(why) => return Ok(Reply::Failed(why.clone())),
    };
    if !context.is_empty() {
        show_context(&context)?;
    }
    let reply = call(routine, arena, slots, &context);
    if !context.is_empty() {
        // What a routine has left running is in no call.
        show_context(&CallContext::default())?;
    }
    Ok(reply)
}

/// Runs the routine. Returns the reply.
fn call(routine: &Runner<'_>, arena: &Arc<Arena>, slots: &[Slot], context: &CallContext) -> Reply {
    let begin = Instant::now();
    // Its ranks cannot call functions of the client.
    let here = !matches!(routine, Runner::Job(_));
    routine_runs(here);
    let ran = match routine {
        Runner::Job(job) => return job.borrow_mut().call(arena, slots, context),
        Runner::Bound(routine) => {
            routine.call(arena, slots);
            Ok(())
        }
        Runner::Linked(linked) => {
            linked.call(arena, slots);
            Ok(())
        }
        Runner::Hosted(hosted) => hosted(arena, slots),
    };
    routine_runs(false);
    // Before the server hears of the end: what it reads until then is of this call.
    flush();
    match ran {
        Ok(()) => Reply::Done(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        Err(why) => Reply::Raised(why),
    }
}

/// Moves the socket away from standard input, so that no routine reads it. The output of routines goes to
/// standard error.
fn take_socket() -> io::Result<OwnedFd> {
    let socket = dup(io::stdin())?;
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    dup2_stdin(File::open("/dev/null")?)?;
    dup2_stdout(io::stderr())?;
    print_by_lines();
    Ok(socket)
}

/// Maps memory. An error is reported when the memory is used.
fn map(descriptor: Option<OwnedFd>, bytes: u64) -> Result<Arc<Arena>, String> {
    let mapped = descriptor.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData));
    let mapped = mapped.and_then(|file| {
        Arena::of(file, usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?)
    });
    mapped.map(Arc::new).map_err(|error| {
        format!(
            "the {bytes} bytes of the call's arguments cannot be mapped by its process: {error}"
        )
    })
}

/// Loads the routines of a setup.
fn set_up<'a>(
    json: &[u8],
    load: &Load<'a>,
    jobs: Option<&dyn JobStarter>,
) -> Result<(Vec<Runner<'a>>, Setup), String> {
    let mut setup: Setup = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let read = |json: &String| Interface::from_json(json.as_bytes());
    let interfaces: Result<Vec<Interface>, _> = setup.interfaces.iter().map(read).collect();
    let interfaces = interfaces.map_err(|error| error.to_string())?;
    let limit = |resource, most| {
        setrlimit(resource, most, most).map_err(|error| format!("a limit cannot be set: {error}"))
    };
    limit(Resource::RLIMIT_CORE, 0)?;
    // Libraries that use select() need low descriptor numbers. The server's higher limit is its own.
    getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, setup.files.min(hard), hard))
        .map_err(|error| format!("the limit of open files cannot be set: {error}"))?;
    let level = match interfaces.iter().any(|interface| interface.parallel.is_some()) {
        _ if setup.sandbox => Level::Sandbox,
        true => Level::Proxy,
        false => Level::Plain,
    };
    // The limit of a parallel routine applies to its ranks.
    if setup.memory > 0 && level != Level::Proxy {
        limit(Resource::RLIMIT_AS, setup.memory)?;
    }
    if let Some(jobs) = jobs {
        jobs.prepare(&mut setup);
    }
    let needed: Vec<PathBuf> = setup.libraries.iter().chain(&setup.folder).cloned().collect();
    let scratch = setup.scratch.as_deref();
    confine(setup.run_as.as_ref(), level, &needed, scratch, setup.room)?;
    let routines = in_trace(setup.trace.as_deref(), || {
        let each = interfaces.iter().zip(&setup.interfaces);
        each.map(|(interface, json)| load(interface, json, &setup)).collect()
    })?;
    Ok((routines, setup))
}

/// Loads routines, and makes an object of a class, in this place of a trace.
fn in_trace<T>(trace: Option<&str>, load: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let Some(text) = trace else { return load() };
    let trace = TraceContext::parse(text.as_bytes()).map_err(|error| error.to_string())?;
    let show = |context: &CallContext| show_context(context).map_err(|error| error.to_string());
    show(&CallContext { deadline_ns: None, trace: Some(trace) })?;
    let loaded = load();
    show(&CallContext::default())?;
    loaded
}
