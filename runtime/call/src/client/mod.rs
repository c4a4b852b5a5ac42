//! Clients.
//!
//! ```no_run
//! use kumi_call::{Client, Options};
//!
//! let client = Client::connect("127.0.0.1:7070", &Options::default())?;
//! let (a, b, mut c) = ([1.0; 4], [2.0; 4], [0.0; 4]);
//! client.call("dmmul", vec![2.into(), a.as_slice().into(), b.as_slice().into(), c.as_mut_slice().into()])?;
//! # Ok::<(), kumi_call::CallError>(())
//! ```

mod arguments;
mod error;
mod files;
mod functions;
mod inbox;
mod link;

use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kumi_idl::{Form, Interface, Plan, Scalar};
use kumi_rpc::{CallHead, ClientHello, Failure, ResultHead, ServerHello, VERSIONS, Value};

pub use arguments::{Arg, Array, ArrayMut, Shape, is_given};
pub use error::CallError;
pub use files::Files;
pub use functions::{Callback, CallbackArgs};

use crate::callback::Function;
use crate::values;
use arguments::Checked;
use link::{Answer, FileParts, Functions, Link, Ticket};

/// How a client connects.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who it is; empty: nobody in particular.
    pub token: String,
    /// Its name in the server's logs.
    pub program: String,
    /// How long connecting may take.
    pub connect_time: Duration,
    /// Most bytes with which a routine may call a function of this program.
    pub callback_bytes: u64,
    /// Most bytes of a file that comes back.
    pub file_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            token: String::new(),
            program: std::env::args_os()
                .next()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            connect_time: Duration::from_secs(10),
            callback_bytes: 1 << 30,
            file_bytes: 1 << 40,
        }
    }
}

/// A routine as a client knows it.
#[derive(Debug)]
pub struct Known {
    /// Its description.
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
    known: Arc<Mutex<HashMap<String, Arc<Known>>>>,
}

/// What came of a call beside its arrays.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Scalars and texts that came back: parameter and value, in ascending order.
    pub values: Vec<(usize, Value)>,
    /// How long the call waited for a slot.
    pub waited: Duration,
    /// How long the routine ran.
    pub ran: Duration,
}

impl Outcome {
    /// The scalar that came back in a parameter.
    #[must_use]
    pub fn scalar(&self, parameter: usize) -> Option<Scalar> {
        let (_, value) = self.values.iter().find(|(other, _)| *other == parameter)?;
        values::to_scalar(value)
    }
}

/// How much longer than a call may take its answer is waited for.
const GRACE: Duration = Duration::from_secs(2);

fn open(address: &str, time: Duration) -> Result<OwnedFd, CallError> {
    let failed = |source| CallError::Connect { address: address.to_owned(), source };
    if let Some(path) = address.strip_prefix("unix:") {
        return UnixStream::connect(path).map(OwnedFd::from).map_err(failed);
    }
    let bare = address.strip_prefix("kumi://").unwrap_or(address);
    if !bare.contains(':') {
        return Err(CallError::Address(address.to_owned()));
    }
    let found = std::net::ToSocketAddrs::to_socket_addrs(bare).map_err(failed)?;
    let mut error = std::io::Error::from(std::io::ErrorKind::NotFound);
    for candidate in found {
        match TcpStream::connect_timeout(&candidate, time) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(failed)?;
                return Ok(stream.into());
            }
            Err(refused) => error = refused,
        }
    }
    Err(failed(error))
}

impl Client {
    /// Connects to a server at `HOST:PORT` or `unix:PATH`.
    ///
    /// # Errors
    /// [`CallError`]: it cannot be reached, does not take this client, or has no version of the protocol in common.
    pub fn connect(address: &str, options: &Options) -> Result<Client, CallError> {
        let deadline = Some(Instant::now() + options.connect_time);
        let link = Link::new(open(address, options.connect_time)?);
        let hello = ClientHello {
            versions: VERSIONS,
            token: options.token.clone(),
            program: options.program.clone(),
        };
        let server = link.hello(&hello.encode(), deadline)?;
        Ok(Client {
            link: Arc::new(link),
            server,
            callback_bytes: options.callback_bytes,
            file_bytes: options.file_bytes,
            known: Arc::default(),
        })
    }

    /// The server's name.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server.name
    }

    /// Names of the server's routines that contain `part`.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn names(&self, part: &str) -> Result<Vec<String>, CallError> {
        let stream = self.link.list(part, None)?;
        match Ticket::of(&*self.link, stream).wait(None, &|| false)? {
            Ok(Answer::Names(names)) => Ok(names),
            Ok(_) => Err(CallError::Server("the server answered something else".to_owned())),
            Err(failure) => Err(CallError::of(failure, "")),
        }
    }

    /// A routine's description; asked for once.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn interface(&self, name: &str) -> Result<Arc<Known>, CallError> {
        let cached = |known: &Mutex<HashMap<String, Arc<Known>>>| {
            known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
        };
        if let Some(known) = cached(&self.known) {
            return Ok(known);
        }
        let stream = self.link.interface(name, None)?;
        match Ticket::of(&*self.link, stream).wait(None, &|| false)? {
            Ok(Answer::Description(hash, json)) => {
                let interface = Interface::from_json(json.as_bytes())
                    .map_err(|error| CallError::Server(error.to_string()))?;
                let functions = Arc::new(crate::callback::functions(&interface));
                let known = Arc::new(Known { interface, functions, hash });
                let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(name.to_owned(), Arc::clone(&known));
                Ok(known)
            }
            Ok(_) => Err(CallError::Server("the server answered something else".to_owned())),
            Err(failure) => Err(CallError::of(failure, name)),
        }
    }

    /// Forgets a description, which has changed.
    fn forget(&self, name: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Calls a routine and waits. The arguments are those of the parameters in their order, without work arrays
    /// and without scalars and texts that only come back, which are in the outcome.
    ///
    /// # Errors
    /// [`CallError`]; of arguments that do not fit nothing is sent.
    pub fn call(&self, routine: &str, args: Vec<Arg<'_>>) -> Result<Outcome, CallError> {
        self.call_within(routine, args, None)
    }

    /// [`Client::call`], in at most so much time.
    ///
    /// # Errors
    /// [`CallError`]; of arguments that do not fit nothing is sent.
    pub fn call_within(
        &self,
        routine: &str,
        args: Vec<Arg<'_>>,
        time: Option<Duration>,
    ) -> Result<Outcome, CallError> {
        let known = self.interface(routine)?;
        let mut call = self.start(&known, args, time)?;
        call.wait(&|| false)
    }

    /// Begins a call; when this returns its arguments are sent, and may change. Arrays for results are lent until the
    /// call's end or that of the handle; hence what is borrowed here is borrowed for ever, or lent as [`crate::LentMut`].
    ///
    /// # Errors
    /// [`CallError`]; of arguments that do not fit nothing is sent.
    pub fn call_async(
        &self,
        routine: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
    ) -> Result<Call<'static>, CallError> {
        self.start(&self.interface(routine)?, args, time)
    }

    fn start<'a>(
        &self,
        known: &Arc<Known>,
        args: Vec<Arg<'a>>,
        time: Option<Duration>,
    ) -> Result<Call<'a>, CallError> {
        let (mut checked, functions) = arguments::check(&known.interface, args, self.server.bytes)?;
        let timeout_ms =
            time.map_or(0, |time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1));
        let head = CallHead {
            hash: known.hash,
            timeout_ms,
            routine: known.interface.name.clone(),
            values: checked.given.to_wire(),
        };
        let deadline = time.and_then(|time| Instant::now().checked_add(time + GRACE));
        let targets = std::mem::take(&mut checked.targets);
        let declared = Functions { list: Arc::clone(&known.functions), most: self.callback_bytes };
        let (sent, back) = (&checked.files.sent, checked.files.targets());
        let files = FileParts { sent, back, most: self.file_bytes };
        let link = Arc::clone(&self.link);
        let ticket = Link::call(link, &head, &checked.sends, targets, declared, &files, deadline)?;
        Ok(Call {
            ticket,
            checked,
            functions: Mutex::new(functions),
            known: Arc::clone(known),
            client: self.clone(),
            deadline,
            lent: std::marker::PhantomData,
        })
    }
}

/// Waits until one of the calls is over; its index. `None`: there are none.
///
/// # Errors
/// [`CallError::Interrupted`], when `interrupted` says so.
pub fn wait_any(
    calls: &[&Call<'_>],
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<usize>, CallError> {
    let mut pause = Duration::from_micros(20);
    while !calls.is_empty() {
        for call in calls {
            call.serve_now()?;
        }
        if let Some(index) = calls.iter().position(|call| call.is_over()) {
            return Ok(Some(index));
        }
        if interrupted() {
            return Err(CallError::Interrupted);
        }
        // Several connections: none of them is read for long.
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
    Ok(None)
}

/// A call that is under way. When it is dropped before its end it is cancelled.
#[derive(Debug)]
pub struct Call<'a> {
    // First, so that it takes the targets back before the memory for packed results goes.
    ticket: Ticket<Arc<Link>>,
    checked: Checked,
    functions: Mutex<Vec<(u16, Callback<'a>)>>,
    known: Arc<Known>,
    client: Client,
    deadline: Option<Instant>,
    lent: std::marker::PhantomData<&'a mut [u8]>,
}

impl std::ops::Deref for Known {
    type Target = Interface;

    fn deref(&self) -> &Interface {
        &self.interface
    }
}

impl Call<'_> {
    /// Waits for its end; `interrupted` is asked when a signal has come.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Outcome, CallError> {
        let answer = self.next(self.deadline, interrupted)?;
        self.end(answer)
    }

    fn end(&mut self, answer: Result<Answer, Failure>) -> Result<Outcome, CallError> {
        let routine = &self.known.interface.name;
        match answer {
            Ok(Answer::Done(head)) => {
                let is_file = |value: &&(u16, Value)| matches!(value.1, Value::FileLength(_));
                if head.values.iter().filter(is_file).count() != self.checked.files.count() {
                    let text = "the result lacks a file";
                    return Err(CallError::Server(text.to_owned()));
                }
                self.checked.unpack();
                self.checked.files.finish()?;
                self.outcome(head)
            }
            Ok(Answer::Unwritten(why)) => Err(CallError::File(why)),
            Ok(_) => Err(CallError::Server("the server answered something else".to_owned())),
            Err(failure) => {
                if failure.code == kumi_rpc::Code::InterfaceChanged {
                    self.client.forget(routine);
                }
                Err(CallError::of(failure, routine))
            }
        }
    }

    /// Waits for at most so long; `None`: it is not over, and may be waited for again.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait_for(
        &mut self,
        time: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Outcome>, CallError> {
        let until = Instant::now() + time;
        if self.deadline.is_some_and(|deadline| deadline <= until) {
            return self.wait(interrupted).map(Some);
        }
        match self.next(Some(until), interrupted) {
            Err(CallError::TimedOut(_)) => Ok(None),
            Err(error) => Err(error),
            Ok(answer) => self.end(answer).map(Some),
        }
    }

    /// Whether its end has come; does not wait.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ticket.is_answered()
    }

    /// Asks the server to end it; its end is waited for as ever.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn cancel(&self) -> Result<(), CallError> {
        self.ticket.cancel()
    }

    /// The plan by which it was sent.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.checked.plan
    }

    fn outcome(&self, head: ResultHead) -> Result<Outcome, CallError> {
        let interface = &self.known.interface;
        let values = head.values.into_iter();
        // Files are in place, and were expected.
        let values = values.filter(|(_, value)| !matches!(value, Value::FileLength(_)));
        let values: Vec<(usize, Value)> =
            values.map(|(index, value)| (usize::from(index), value)).collect();
        let fits = values.iter().all(|(index, value)| {
            let form = self.checked.plan.arguments.get(*index).map(|argument| argument.form);
            matches!((form, value), (Some(Form::Text { .. }), Value::Text(_)))
                || matches!(form, Some(Form::Scalar(_))) && !matches!(value, Value::Text(_))
        });
        if !fits {
            return Err(CallError::Server("the result does not fit the description".to_owned()));
        }
        let outcome = Outcome {
            values,
            waited: Duration::from_nanos(head.waited_ns),
            ran: Duration::from_nanos(head.ran_ns),
        };
        if let Some(index) = interface.status
            && let Some(value) = outcome.scalar(index as usize).and_then(Scalar::integer)
            && value != 0
        {
            return Err(CallError::Status {
                routine: interface.name.clone(),
                parameter: interface.params[index as usize].name.clone(),
                value,
            });
        }
        Ok(outcome)
    }
}
