//! Clients of servers and metaservers.
//!
//! ```no_run
//! use kumi_call_client::{Client, Options};
//!
//! let client = Client::connect("127.0.0.1:7070", &Options::default())?;
//! let (a, b, mut c) = ([1.0; 4], [2.0; 4], [0.0; 4]);
//! client.call("dmmul", vec![2.into(), a.as_slice().into(), b.as_slice().into(), c.as_mut_slice().into()])?;
//! # Ok::<(), kumi_call_client::CallError>(())
//! ```
#![forbid(unsafe_code)]

mod arguments;
mod context;
mod environment;
mod error;
mod grid;
mod held;
mod link;
mod local_shortcut;
mod object;
mod output;
mod queries;
mod remote;
mod resources;
#[cfg(feature = "transactions")]
pub mod transaction;
mod wait;

use arguments::{files, functions, remote_array};
use grid::routed_call;
use link::{read_buffer, wire};
use wait::{answer_handle, any, completion, wake_event};

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kumi_idl::{ArgumentForm, Interface, Limits, Plan, Scalar};
use kumi_rpc::{
    CallHead, CallMetadata, ClientHello, Code, Failure, Placement, ResultHead, Role, ServerHello,
    VERSIONS, VoucherSupport,
};

pub use answer_handle::Canceller;
pub use any::wait_any;
pub use arguments::{Arg, Array, ArrayMut, Shape, is_given};
pub use context::{new_trace, remaining, trace_calls, trace_context};
pub use error::CallError;
pub use files::FileArgument;
pub use functions::{Callback, CallbackArgs};
pub use grid::held::HeldArray;
pub use grid::{
    Grid, GridCall, GridCanceller, LogSource, LogSources, ServerIdentity, UnreachableSource,
};
pub use held::HeldNames;
pub use kumi_call_wire::lent::{LentBytes, LentBytesMut, Number};
pub use kumi_call_wire::logs as log_records;
pub use kumi_call_wire::state;
pub use kumi_call_wire::tls::TlsError;
#[cfg(feature = "tls")]
pub use kumi_call_wire::tls::{Authorities, PemError};
pub use kumi_call_wire::values::GivenValues;
pub use kumi_rpc::{LogRequest, Resources, TraceContext, TraceContextError, TraceId, Value};
pub use object::Object;
pub use output::{CallOutput, Printed};
pub use remote::{Remote, RemoteCall, RemoteCanceller};
pub use remote_array::RemoteArray;
pub use wake_event::{CallWatch, WakeEvent, WakeEvents};

use kumi_call_wire::{address, callback, layout, lent, native, nearby, random, tcp, tls, values};

use crate::callback::Function;
use answer_handle::AnswerHandle;
use arguments::CheckedCall;
#[cfg(feature = "transactions")]
pub(crate) use arguments::check;
use link::{Answer, CallParts, Functions, Link};
use wire::Wire;

/// Bytes that nobody can guess.
fn random_bytes<const LENGTH: usize>() -> Result<[u8; LENGTH], CallError> {
    let told = |error| CallError::Server(format!("the system has no random bytes: {error}"));
    random::bytes().map_err(told)
}

/// How a client connects.
#[derive(Clone)]
pub struct Options {
    /// The token that identifies the client; empty: anonymous.
    pub token: String,
    /// Its name in the server's logs.
    pub program: String,
    /// Its site, for metaservers; empty: the network of its address.
    pub site: String,
    /// Time limit for connecting.
    pub connect_time: Duration,
    /// Most bytes that a routine may pass to a function of this program.
    pub callback_bytes: u64,
    /// Most bytes of a file that comes back. A call with a longer one ends as soon as its length is known.
    pub file_bytes: u64,
    /// For `tls://`: a PEM file with the certificates of the only trusted authorities. `None`: the
    /// authorities that the system trusts.
    pub ca: Option<PathBuf>,
    /// Whether a server on this machine may share the memory of calls, so that arrays are copied only once
    /// each way.
    pub share_memory: bool,
    /// How long after its first failed attempt a call through a metaserver may go to further servers. `None`: as
    /// long as the metaserver names them.
    pub retry_time: Option<Duration>,
}

impl fmt::Debug for Options {
    /// Without the token: it is a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Options")
            .field("program", &self.program)
            .field("connect_time", &self.connect_time)
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            token: String::new(),
            program: std::env::args_os()
                .next()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            site: std::env::var("KUMI_CALL_SITE").unwrap_or_default(),
            connect_time: Duration::from_secs(10),
            callback_bytes: 1 << 30,
            file_bytes: 16 << 30,
            ca: None,
            share_memory: std::env::var_os("KUMI_CALL_SHARED").is_none_or(|value| value != "no"),
            retry_time: None,
        }
    }
}

/// A routine with what the client knows of it.
#[derive(Debug)]
pub struct KnownRoutine {
    /// The description.
    pub interface: Interface,
    functions: Arc<Vec<Function>>,
    hash: u64,
}

/// A connection to a server. Threads may share it; their calls run at the same time.
#[derive(Debug, Clone)]
pub struct Client {
    link: Arc<Link>,
    server: ServerHello,
    callback_bytes: u64,
    file_bytes: u64,
    known: Arc<Mutex<HashMap<String, Arc<KnownRoutine>>>>,
    /// Where the output of routines goes.
    output: Option<CallOutput>,
    /// What its calls ask for.
    resources: Option<Resources>,
}

/// The result of a call besides its arrays.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Scalars and texts that came back: parameter and value, in ascending order.
    pub values: Vec<(usize, Value)>,
    /// How long the call waited for a slot.
    pub waited: Duration,
    /// How long the routine ran.
    pub ran: Duration,
    /// Time for sending the arguments, including one round trip of the first byte.
    pub sending: Duration,
    /// Time for receiving the results after their first byte.
    pub receiving: Duration,
}

impl Outcome {
    /// The scalar that a parameter returned.
    #[must_use]
    pub fn scalar(&self, parameter: usize) -> Option<Scalar> {
        let (_, value) = self.values.iter().find(|(other, _)| *other == parameter)?;
        values::to_scalar(value)
    }
}

/// Route of a call to its server.
#[derive(Debug, Clone, Copy, Default)]
struct CallRoute<'a> {
    /// Time limit.
    time: Option<Duration>,
    /// The metaserver's placement, if one chose the server.
    placed: Option<&'a Placement>,
    /// The object on which the call runs.
    object: Option<&'a Arc<AnswerHandle<Arc<Link>>>>,
    /// Its place in a trace.
    trace: Option<TraceContext>,
}

impl CallRoute<'_> {
    /// A route of a call that this thread begins, with this time limit or that of the call around it.
    fn within(time: Option<Duration>, routine: &str) -> Result<Self, CallError> {
        let time = context::limit(time, routine)?;
        Ok(CallRoute { time, trace: trace_context(), ..CallRoute::default() })
    }
}

/// Locks what is complete whenever no thread has the lock, also after a panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The client waits this much longer than the call's time limit for the answer.
const GRACE: Duration = Duration::from_secs(2);

impl Client {
    /// Connects to a server at `HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`.
    ///
    /// # Errors
    /// [`CallError`]: the server cannot be reached, refuses this client, or shares no protocol version with
    /// it.
    pub fn connect(address: &str, options: &Options) -> Result<Client, CallError> {
        let deadline = Instant::now().checked_add(options.connect_time);
        let wire = Wire::open(address, options, deadline)?;
        let maps = options.share_memory && wire.is_plain();
        let port = wire.here().filter(|_| maps);
        let hello = ClientHello {
            versions: VERSIONS,
            token: options.token.clone(),
            program: options.program.clone(),
            site: options.site.clone(),
            maps_memory: maps,
        };
        let link = Link::new(wire, address);
        let server = link.hello(&hello.encode(), deadline)?;
        // If a proxy or tunnel is in use, the client keeps using it.
        let local = server.local.filter(|local| port == Some(local.port));
        let nearer = local
            .and_then(|local| local_shortcut::connect(&local.secret, &hello, address, deadline));
        let (link, server) = nearer.unwrap_or((link, server));
        Ok(Client {
            link: Arc::new(link),
            server,
            callback_bytes: options.callback_bytes,
            file_bytes: options.file_bytes,
            known: Arc::default(),
            output: None,
            resources: None,
        })
    }

    /// The same connection, whose calls send what their routines print to this receiver. Nothing comes from servers of
    /// earlier versions.
    #[must_use]
    pub fn with_output(&self, output: &CallOutput) -> Client {
        Client { output: Some(output.clone()), ..self.clone() }
    }

    /// The server's name.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server.name
    }

    /// Whether large arrays go through shared memory because the server is on this machine.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        self.server.shares_memory
    }

    /// Whether this is a metaserver. A metaserver runs nothing: [`Grid`] calls through it.
    #[must_use]
    pub fn is_metaserver(&self) -> bool {
        self.server.role == Role::Metaserver
    }

    /// Limits of a call on this server.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits { bytes: self.server.bytes }
    }

    /// Calls a routine and waits. Arguments follow the order of the parameters. Work arrays take no argument,
    /// and neither do scalars and texts that only come back: these are in the outcome.
    ///
    /// # Errors
    /// [`CallError`]. Nothing is sent if the arguments do not fit.
    pub fn call(&self, routine: &str, args: Vec<Arg<'_>>) -> Result<Outcome, CallError> {
        self.call_within(routine, args, None)
    }

    /// [`Client::call`] with a time limit.
    ///
    /// # Errors
    /// [`CallError`]. Nothing is sent if the arguments do not fit.
    pub fn call_within(
        &self,
        routine: &str,
        args: Vec<Arg<'_>>,
        time: Option<Duration>,
    ) -> Result<Outcome, CallError> {
        let known = self.interface(routine)?;
        let mut call = self.start(&known, args, time, None, &|| false)?;
        call.wait(&|| false)
    }

    /// Begins a call. When this returns, the arguments are sent and may change. Result arrays are lent until
    /// the call or its handle ends. Hence arguments are borrowed for `'static`, or lent as
    /// [`crate::LentBytesMut`].
    ///
    /// # Errors
    /// [`CallError`]. Nothing is sent if the arguments do not fit.
    pub fn call_async(
        &self,
        routine: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
    ) -> Result<Call<'static>, CallError> {
        self.begin(routine, args, time, &|| false)
    }

    /// [`Client::call_async`]. When a signal arrives while it sends, `interrupted` is asked.
    ///
    /// # Errors
    /// [`CallError`]. Nothing is sent if the arguments do not fit. [`CallError::Interrupted`] after a part of
    /// the arguments was sent also loses the connection.
    pub fn begin(
        &self,
        routine: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Call<'static>, CallError> {
        self.start(&self.interface(routine)?, args, time, None, interrupted)
    }

    /// Begins a call. `placed`: the metaserver's placement, if one chose this server.
    fn start<'a>(
        &self,
        known: &Arc<KnownRoutine>,
        args: Vec<Arg<'a>>,
        time: Option<Duration>,
        placed: Option<&Placement>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Call<'a>, CallError> {
        let (checked, functions) = arguments::check(&known.interface, args, self.server.bytes)?;
        let route = CallRoute { placed, ..CallRoute::within(time, &known.name)? };
        self.send(known, checked, functions, route, interrupted).map_err(|(error, _)| error)
    }

    /// Whether the server's version knows what a call needs.
    fn check_support(&self, checked: &CheckedCall) -> Result<(), CallError> {
        if checked.held.is_vouched() && self.server.vouchers == VoucherSupport::Unknown {
            let text =
                format!("`{}` is of a version that shows no vouchers to others", self.server());
            return Err(CallError::NoSource(text));
        }
        self.check_resources()
    }

    /// Sends a call with checked arguments. If that fails, the arguments are given back.
    #[allow(clippy::result_large_err)] // What is given back is what was given.
    fn send<'a>(
        &self,
        known: &Arc<KnownRoutine>,
        checked: CheckedCall,
        functions: Vec<(u16, Callback<'a>)>,
        route: CallRoute<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Call<'a>, (CallError, CheckedCall)> {
        let CallRoute { time, placed, object, trace } = route;
        let incoming = self.check_support(&checked);
        let incoming = match incoming.and_then(|()| checked.files.incoming(self.file_bytes)) {
            Ok(incoming) => incoming,
            Err(error) => return Err((error, checked)),
        };
        let timeout_ms =
            time.map_or(0, |time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1));
        let head = CallHead {
            hash: known.hash,
            timeout_ms,
            routine: known.interface.name.clone(),
            values: checked.given.to_wire(),
            held: checked.held.clone(),
            shared: if self.server.shares_memory { checked.shares() } else { Vec::new() },
            object: object.map_or(0, |object| object.stream),
        };
        let begun = Instant::now();
        // A deadline too far away for the wire counts as none.
        let deadline = time.and_then(|time| begun.checked_add(time.checked_add(GRACE)?));
        let parts = CallParts {
            placed,
            head: &head,
            sends: &checked.sends,
            targets: checked.targets(),
            functions: Functions { list: Arc::clone(&known.functions), most: self.callback_bytes },
            files: &checked.files.sent,
            incoming,
            output: self.output.clone(),
            metadata: CallMetadata {
                listens: self.output.is_some(),
                trace,
                resources: self.resources.filter(|_| object.is_none()),
            },
        };
        let ticket = match Link::call(Arc::clone(&self.link), parts, deadline, interrupted) {
            Ok(ticket) => ticket,
            Err(error) => return Err((error, checked)),
        };
        Ok(Call {
            ticket,
            checked,
            functions: Mutex::new(functions),
            known: Arc::clone(known),
            client: self.clone(),
            begun,
            deadline,
            _object: object.cloned(),
            lent: std::marker::PhantomData,
        })
    }
}

/// A call in progress. Dropping it cancels the call.
#[derive(Debug)]
pub struct Call<'a> {
    // First, so that it takes the result buffers back before their memory is freed.
    ticket: AnswerHandle<Arc<Link>>,
    checked: CheckedCall,
    functions: Mutex<Vec<(u16, Callback<'a>)>>,
    known: Arc<KnownRoutine>,
    client: Client,
    begun: Instant,
    deadline: Option<Instant>,
    /// It lives as long as calls on it.
    _object: Option<Arc<AnswerHandle<Arc<Link>>>>,
    lent: std::marker::PhantomData<&'a mut [u8]>,
}

impl std::ops::Deref for KnownRoutine {
    type Target = Interface;

    fn deref(&self) -> &Interface {
        &self.interface
    }
}

impl Call<'_> {
    /// When its time is over, for functions that the routine calls. The client itself waits somewhat longer.
    fn time_over(&self) -> Option<Instant> {
        self.deadline.and_then(|deadline| deadline.checked_sub(GRACE))
    }

    /// Waits for the end of the call. `interrupted` is asked when a signal arrives, and from time to time.
    ///
    /// # Errors
    /// [`CallError`]; also if the end was waited for before.
    pub fn wait(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Outcome, CallError> {
        let answer = self.next(self.deadline, interrupted)?;
        self.end(answer)
    }

    fn end(&mut self, answer: Result<Answer, Failure>) -> Result<Outcome, CallError> {
        let routine = &self.known.interface.name;
        match answer {
            Ok(Answer::Done(head, at, granted)) => {
                if let Some(granted) = granted {
                    granted.get(&self.checked.targets());
                    drop(granted);
                    // If this cannot be sent, the connection is lost, and the grant with it.
                    let _lost = self.ticket.link.flush();
                }
                let is_file = |value: &&(u16, Value)| matches!(value.1, Value::FileLength(_));
                if head.values.iter().filter(is_file).count() != self.checked.files.count() {
                    let text = "the result lacks a file";
                    return Err(CallError::Server(text.to_owned()));
                }
                self.checked.unpack();
                let outcome = self.outcome(head, at);
                if matches!(outcome, Ok(_) | Err(CallError::Status { .. })) {
                    self.checked.files.finish()?;
                }
                outcome
            }
            Ok(Answer::FileNotWritten(why)) => {
                // The client skips the rest of a file that is too long, and asks the server not to send it.
                // If the connection is lost, the next call reports that.
                let _lost = self.ticket.link.cancel(self.ticket.stream);
                Err(CallError::File(why))
            }
            other => {
                if let Err(Failure { code: Code::InterfaceChanged, .. }) = &other {
                    self.client.forget(routine);
                }
                Err(CallError::unlike(other, routine))
            }
        }
    }

    /// Waits at most this long. `None`: the call is not over, and may be waited for again.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait_for(
        &mut self,
        time: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Outcome>, CallError> {
        let until = Instant::now().checked_add(time);
        let Some(until) = until.filter(|until| self.deadline.is_none_or(|end| *until < end)) else {
            return self.wait(interrupted).map(Some);
        };
        match self.next(Some(until), interrupted) {
            Err(CallError::TimedOut(_)) => Ok(None),
            Err(error) => Err(error),
            Ok(answer) => self.end(answer).map(Some),
        }
    }

    /// Whether the call is over. Does not wait.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ticket.is_answered()
    }

    /// Asks the server to end the call. The caller still waits for it.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn cancel(&self) -> Result<(), CallError> {
        self.canceller().cancel()
    }

    /// A handle that cancels the call while another thread waits for it.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller { link: Arc::clone(&self.ticket.link), stream: self.ticket.stream }
    }

    /// A handle for waits for several calls: [`WakeEvent::wait`].
    #[must_use]
    pub fn watch(&self) -> CallWatch {
        CallWatch::of_stream(&self.ticket.link, self.ticket.stream)
    }

    /// The plan by which the call was sent.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.checked.plan
    }

    fn outcome(&self, head: ResultHead, at: Instant) -> Result<Outcome, CallError> {
        let interface = &self.known.interface;
        let values = head.values.into_iter();
        // The files were checked before: they are in place.
        let values = values.filter(|(_, value)| !matches!(value, Value::FileLength(_)));
        let values: Vec<(usize, Value)> =
            values.map(|(index, value)| (usize::from(index), value)).collect();
        let fits = values.iter().all(|(index, value)| {
            let form = self.checked.plan.arguments.get(*index).map(|argument| argument.form);
            matches!((form, value), (Some(ArgumentForm::Text { .. }), Value::Text(_)))
                || matches!(form, Some(ArgumentForm::Scalar(_))) && !matches!(value, Value::Text(_))
        });
        if !fits {
            return Err(CallError::Server("the result does not fit the description".to_owned()));
        }
        let outcome = Outcome {
            values,
            waited: Duration::from_nanos(head.waited_ns),
            ran: Duration::from_nanos(head.ran_ns),
            sending: (at - self.begun)
                .saturating_sub(Duration::from_nanos(head.ran_ns.saturating_add(head.waited_ns))),
            receiving: at.elapsed(),
        };
        if let Some(index) = interface.status
            && let Some(value) = outcome.scalar(index as usize).and_then(Scalar::integer)
            && value != 0
        {
            return Err(CallError::Status {
                routine: interface.name.clone(),
                parameter: interface.params[index as usize].name.clone(),
                value,
                outcome: Box::new(outcome),
            });
        }
        Ok(outcome)
    }
}
