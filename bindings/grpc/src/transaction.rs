//! Transactions: recorded calls that run together, see [`kumi_call_client::transaction`].

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use kumi_call_client::transaction::{Report, RunOptions, Step, StepState, TransactionError};
use kumi_call_client::{CallError, Grid, KnownRoutine, Remote};

use crate::address;
use crate::argument::{CallSite, PassedValue, arguments, text};
use crate::attribute::{GrpcSessionAttributes, place};
use crate::call::{CallOptions, PreparedCall};
use crate::code::{Code, Failure, guard, report};
use crate::handle::{GrpcFunctionHandle, Handle};
use crate::recorded::RecordedCalls;
use crate::returned::ReturnedValue;
use crate::runtime::{Runtime, current, lock};
use crate::stack::{GrpcArgStack, stacked, typed};
use crate::typed::GrpcArgument;

/// `grpc_transaction_t_np`.
pub struct GrpcTransaction {
    /// The servers or the metaserver as the program named them: handles of other servers are refused.
    addresses: Vec<String>,
    /// The metaserver that chooses servers; `None`: the transaction does, of those that are named.
    metaserver: Option<Grid>,
    state: Mutex<State>,
    /// Its run is to end.
    is_stopped: AtomicBool,
}

/// `grpc_intermediate_t_np`: an address at which no memory is.
#[repr(C)]
#[derive(Debug)]
pub struct GrpcIntermediate {
    _private: [u8; 0],
}

enum State {
    /// Calls are added.
    Recording(Box<RecordedCalls>),
    /// A thread runs the calls. It has them, and the memory that was lent for them.
    Running,
    /// What came of each call.
    Ended(Vec<Result<(), Failure>>),
}

fn over(what: &str) -> Failure {
    Failure::new(Code::InvalidTransaction, format!("the transaction {what}: begin another"))
}

impl State {
    fn recording(&mut self) -> Result<&mut RecordedCalls, Failure> {
        match self {
            State::Recording(recorded) => Ok(recorded),
            State::Running => Err(over("runs in another thread")),
            State::Ended(_) => Err(over("has ended, or was abandoned")),
        }
    }
}

impl GrpcTransaction {
    /// Finds out whether the addresses are those of servers or of a metaserver.
    ///
    /// # Errors
    /// None can be reached.
    fn begin(runtime: &Runtime, addresses: Vec<String>) -> Result<GrpcTransaction, Failure> {
        let remote =
            match addresses.as_slice() {
                [address] => runtime.connection(address)?.client,
                several => Remote::connect(&several.join(","), &runtime.config.options).map_err(
                    |error| match error {
                        error @ (CallError::Lost(_) | CallError::TimedOut(_)) => {
                            Failure::new(Code::ServerNotFound, error.to_string())
                        }
                        error => error.into(),
                    },
                )?,
            };
        let metaserver = match remote {
            Remote::Server(_) => None,
            Remote::Grid(grid) => Some(grid),
        };
        Ok(GrpcTransaction {
            addresses,
            metaserver,
            state: Mutex::new(State::Recording(Box::default())),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Whether calls with this handle can be calls of it.
    fn check(
        &self,
        handle: &Handle,
        known: &KnownRoutine,
        options: &CallOptions,
    ) -> Result<(), Failure> {
        if !self.addresses.contains(&handle.address) {
            let text = format!(
                "the handle of `{}` is at {}, and the transaction goes to {}: make a handle there, or name that server in \
                 grpc_transaction_begin_np",
                handle.routine,
                handle.address,
                self.addresses.join(", ")
            );
            return Err(Failure::new(Code::InvalidFunctionHandle, text));
        }
        let refused = if !known.class.is_empty() {
            "is a method: make an object, and call it there"
        } else if options.resources.is_some() {
            "asks for threads or memory, which calls of transactions do not"
        } else if options.output.is_some() {
            "has a handle with a receiver of output, which calls of transactions do not have"
        } else if options.priority > 0 {
            "has a priority of its own: set that of the transaction"
        } else {
            return Ok(());
        };
        Err(Failure::argument(format!("`{}` {refused}", known.name)))
    }

    /// Records a call; returns its number.
    ///
    /// # Safety
    /// The addresses are as [`arguments`] requires, until the transaction is over.
    unsafe fn record(
        &self,
        call: &PreparedCall,
        given: &[PassedValue<'_>],
        attributes: Option<&GrpcSessionAttributes>,
    ) -> Result<c_int, Failure> {
        let known = call.known();
        let options = call.options(attributes)?;
        self.check(&call.handle, known, &options)?;
        let mut state = lock(&self.state);
        let recorded = state.recording()?;
        let site = CallSite {
            runtime: &call.runtime,
            connection: &call.connection,
            order: call.handle.order,
            keeps: true,
            intermediate: Some(&recorded.intermediate),
        };
        // SAFETY: as the caller promises.
        let read = unsafe { arguments(known, given, &site) }?;
        recorded.check_values(known, given)?;
        recorded.add(known, options.time, read)
    }

    /// Runs the calls. Functions of sessions run meanwhile.
    ///
    /// # Errors
    /// Nothing has run, or calls have failed.
    fn end(&self, runtime: &Runtime) -> Result<Code, Failure> {
        let mut recorded = {
            let mut state = lock(&self.state);
            state.recording()?;
            match std::mem::replace(&mut *state, State::Running) {
                State::Recording(recorded) => recorded,
                other => {
                    *state = other;
                    return Err(Code::InvalidTransaction.into());
                }
            }
        };
        let options = RunOptions {
            connect: runtime.config.options.clone(),
            time: runtime.config.timeout,
            ..RunOptions::default()
        };
        // Functions run for which routines of sessions wait: these may have the slots that the transaction needs. Nothing waits
        // here, since the transaction waits for its own calls between two of these looks.
        let interrupted = || {
            runtime.sessions.read_and_serve(runtime);
            self.is_stopped.load(Ordering::Acquire)
        };
        let transaction = &mut recorded.transaction;
        let ran = match &self.metaserver {
            None => transaction.run_with(&self.addresses, &options, &interrupted),
            Some(grid) => {
                let grid = grid.with_priority(recorded.priority);
                transaction.run_on_with(&grid, &options, &interrupted)
            }
        };
        let (calls, ended) = outcomes(&recorded.calls, ran);
        // The memory is the program's again before anybody hears of the end.
        drop(recorded);
        *lock(&self.state) = State::Ended(calls);
        ended
    }

    /// Gives it up: what was not recorded to its end does not run, and what runs is cancelled.
    fn abandon(&self) -> Result<Code, Failure> {
        let mut state = lock(&self.state);
        let dropped = match &*state {
            State::Recording(recorded) => {
                let abandoned = || {
                    let text = "the call did not run: its transaction was abandoned";
                    Err(Failure::new(Code::Canceled, text))
                };
                let calls = recorded.calls.iter().map(|_| abandoned()).collect();
                std::mem::replace(&mut *state, State::Ended(calls))
            }
            State::Running => {
                self.stop();
                return Ok(Code::NoError);
            }
            State::Ended(_) => return Err(over("has ended, or was abandoned")),
        };
        drop(state);
        drop(dropped);
        Ok(Code::NoError)
    }

    /// Cancels its calls if they run.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }
}

/// What came of each call and of all: results besides arrays go to their places.
fn outcomes(
    calls: &[Vec<ReturnedValue>],
    ran: Result<Report, TransactionError>,
) -> (Vec<Result<(), Failure>>, Result<Code, Failure>) {
    let error = match ran {
        Ok(report) => return told(calls, &report, false),
        Err(error) => error,
    };
    if let Some(report) = error.report() {
        return told(calls, report, matches!(error, TransactionError::Cancelled(_)));
    }
    let text = error.to_string();
    let code = match error {
        TransactionError::NoServer(_) => Code::ServerNotFound,
        TransactionError::Argument { .. } => Code::InvalidArgument,
        TransactionError::Call { source, .. } | TransactionError::Refused(source) => {
            Code::of(&source)
        }
        _ => Code::OtherErrorCode,
    };
    let failure = Failure::new(code, text);
    let none = || {
        let text = format!("no call of the transaction has run: {}", failure.detail);
        Err(Failure::new(Code::NotRun, text))
    };
    (calls.iter().map(|_| none()).collect(), Err(failure))
}

/// The same with a report on the calls.
fn told(
    calls: &[Vec<ReturnedValue>],
    all: &Report,
    is_cancelled: bool,
) -> (Vec<Result<(), Failure>>, Result<Code, Failure>) {
    let calls: Vec<_> = (0..).zip(calls).map(|(number, back)| settled(back, all, number)).collect();
    let first = calls.iter().find_map(|call| call.as_ref().err());
    let ended = match first {
        _ if is_cancelled => Err(Failure::new(
            Code::Canceled,
            format!("the transaction was abandoned while it ran: {all}"),
        )),
        None => Ok(Code::NoError),
        Some(first) => {
            let detail = if all.is_complete() { first.detail.clone() } else { all.to_string() };
            let failure = Failure::new(first.code, detail);
            report(&failure);
            Ok(failure.code.of_wait())
        }
    };
    (calls, ended)
}

/// What came of a call, whose numbers and texts go to their places.
fn settled(back: &[ReturnedValue], all: &Report, number: u32) -> Result<(), Failure> {
    let step = Step::of(number);
    let failure = all.steps.get(number as usize).and_then(|step| step.failure.as_deref());
    let code = match (all.state(step), failure) {
        (Some(StepState::Done(_)), _) => {
            let Some(outcome) = all.outcome(step) else { return Ok(()) };
            return back.iter().try_for_each(|back| back.put(outcome));
        }
        (Some(StepState::Failed(_)), Some(error)) => {
            if let CallError::Status { outcome, .. } = error {
                for back in back {
                    // A failure status tells more than a text that does not fit.
                    let _fits = back.put(outcome);
                }
            }
            Code::of(error)
        }
        (Some(StepState::Failed(_)), None) => Code::SessionFailed,
        (Some(StepState::Cancelled), _) => Code::Canceled,
        _ => Code::NotRun,
    };
    Err(Failure::new(code, all.explain(step)))
}

/// The transaction at an address of the program.
fn transaction_at(
    runtime: &Runtime,
    transaction: *const GrpcTransaction,
) -> Result<Arc<GrpcTransaction>, Failure> {
    let found = runtime.transactions.find(transaction);
    found.ok_or_else(|| Code::InvalidTransaction.into())
}

/// Records a call, and gives its number to the program.
///
/// # Safety
/// The addresses are as [`arguments`] requires, until the transaction is over; `number` is null or writable.
pub unsafe fn record(
    transaction: *const GrpcTransaction,
    call: &PreparedCall,
    given: &[PassedValue<'_>],
    attributes: Option<&GrpcSessionAttributes>,
    number: *mut c_int,
) -> Result<Code, Failure> {
    let transaction = transaction_at(&call.runtime, transaction)?;
    // SAFETY: as the caller promises.
    let recorded = unsafe { transaction.record(call, given, attributes) }?;
    if !number.is_null() {
        // SAFETY: not null, and writable as the caller promises.
        unsafe { number.write_unaligned(recorded) };
    }
    Ok(Code::NoError)
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_transaction_begin_np(
    transaction: *mut *mut GrpcTransaction,
    servers: *const c_char,
) -> c_int {
    guard(|| {
        let runtime = current()?;
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(transaction, "the place for the transaction") }?;
        let addresses = if servers.is_null() {
            runtime.config.servers.clone()
        } else {
            // SAFETY: not null; the rest as `grpc.h` asks.
            let servers = unsafe { text(servers, "the servers") }?;
            let named = servers.split(',').map(str::trim).filter(|name| !name.is_empty());
            named.map(str::to_owned).collect()
        };
        let begun = GrpcTransaction::begin(&runtime, addresses)?;
        place.write(runtime.transactions.add(begun)?);
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_transaction_priority_np(
    transaction: *mut GrpcTransaction,
    priority: c_int,
) -> c_int {
    guard(|| {
        let transaction = transaction_at(&*current()?, transaction)?;
        let within = u8::try_from(priority).ok().filter(|priority| *priority <= 9);
        let Some(priority) = within else {
            let text = format!("{priority} is no priority: there are 0 to 9");
            return Err(Failure::argument(text));
        };
        if priority > 0 && transaction.metaserver.is_none() {
            let text = "a priority is for transactions that go to a metaserver, and this one goes to servers";
            return Err(Failure::argument(text));
        }
        lock(&transaction.state).recording()?.priority = priority;
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_transaction_intermediate_np(
    transaction: *mut GrpcTransaction,
    array: *mut *mut GrpcIntermediate,
) -> c_int {
    guard(|| {
        let transaction = transaction_at(&*current()?, transaction)?;
        // SAFETY: null or writable, as `grpc.h` asks.
        let place = unsafe { place(array, "the place for the array") }?;
        let mut state = lock(&transaction.state);
        let recorded = state.recording()?;
        let address = address::fresh()?;
        let data = recorded.transaction.intermediate();
        recorded.intermediate.insert(address, data);
        place.write(std::ptr::without_provenance_mut(address));
        Ok(Code::NoError)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_transaction_call_arg_stack_np(
    transaction: *mut GrpcTransaction,
    number: *mut c_int,
    handle: *mut GrpcFunctionHandle,
    stack: *mut GrpcArgStack,
) -> c_int {
    guard(|| {
        // SAFETY: as `grpc.h` asks of the caller.
        unsafe { record(transaction, &PreparedCall::of(handle)?, &stacked(stack)?, None, number) }
    })
}

/// See `kumi_grpc_arguments.h`.
///
/// # Safety
/// As `kumi_grpc_arguments.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_grpc_transaction_call_arguments(
    transaction: *mut GrpcTransaction,
    number: *mut c_int,
    handle: *mut GrpcFunctionHandle,
    arguments: *const GrpcArgument,
    count: usize,
    attributes: *const GrpcSessionAttributes,
) -> c_int {
    guard(|| {
        // SAFETY: as the header asks of the caller.
        unsafe {
            record(
                transaction,
                &PreparedCall::of(handle)?,
                &typed(arguments, count)?,
                attributes.as_ref(),
                number,
            )
        }
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_transaction_end_np(transaction: *mut GrpcTransaction) -> c_int {
    guard(|| {
        let runtime = current()?;
        transaction_at(&runtime, transaction)?.end(&runtime)
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_transaction_get_error_np(
    transaction: *mut GrpcTransaction,
    number: c_int,
) -> c_int {
    guard(|| {
        let transaction = transaction_at(&*current()?, transaction)?;
        let state = lock(&transaction.state);
        let State::Ended(calls) = &*state else { return Ok(Code::NotCompleted) };
        let call = usize::try_from(number).ok().and_then(|number| calls.get(number));
        let none = || Failure::argument(format!("there is no call {number} in the transaction"));
        match call.ok_or_else(none)? {
            Ok(()) => Ok(Code::NoError),
            Err(failure) => {
                report(failure);
                Ok(failure.code)
            }
        }
    })
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_transaction_abandon_np(transaction: *mut GrpcTransaction) -> c_int {
    guard(|| transaction_at(&*current()?, transaction)?.abandon())
}

/// See `grpc.h`.
///
/// # Safety
/// As `grpc.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_transaction_destruct_np(transaction: *mut GrpcTransaction) -> c_int {
    guard(|| {
        let runtime = current()?;
        let gone = runtime.transactions.remove(transaction);
        let gone = gone.ok_or_else(|| Failure::from(Code::InvalidTransaction))?;
        // Another thread may run it.
        gone.stop();
        Ok(Code::NoError)
    })
}
