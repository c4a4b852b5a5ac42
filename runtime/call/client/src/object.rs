//! Objects of classes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kumi_idl::Limits;
use kumi_rpc::{CallMetadata, Placement};

use super::answer_handle::AnswerHandle;
use super::link::{Answer, Link, no_name};
use super::{
    Arg, Call, CallError, CallOutput, CallRoute, Client, GRACE, KnownRoutine, Outcome, arguments,
    context,
};

/// An object of a class: a process of the server that keeps the state of the class between calls.
///
/// - Its calls run one after the other.
/// - It ends when this value and all its calls are dropped, by [`Object::end`], and with the connection.
/// - It also ends when one of its calls crashes, is cancelled or takes too long while it runs.
///
/// ```no_run
/// use kumi_call_client::{Client, Options};
///
/// let client = Client::connect("127.0.0.1:7070", &Options::default())?;
/// let counter = client.object("counter")?;
/// counter.call("add", vec![3.into()])?;
/// counter.call("add", vec![4.into()])?;
/// assert_eq!(counter.call("total", vec![])?.scalar(0), Some(kumi_idl::Scalar::I64(7)));
/// # Ok::<(), kumi_call_client::CallError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Object {
    ticket: Arc<AnswerHandle<Arc<Link>>>,
    client: Client,
    class: String,
}

impl Client {
    /// Makes an object of a class and waits until it exists.
    ///
    /// # Errors
    /// [`CallError`]: the class does not exist or cannot be run, or the server has as many objects as it may
    /// have.
    pub fn object(&self, class: &str) -> Result<Object, CallError> {
        self.object_within(class, None, &|| false)
    }

    /// [`Client::object`] with a time limit. When a signal arrives during the wait, `interrupted` is asked.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn object_within(
        &self,
        class: &str,
        time: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Object, CallError> {
        let time = context::limit(time, class)?;
        let deadline = time.and_then(|time| Instant::now().checked_add(time.checked_add(GRACE)?));
        self.create(class, None, deadline, interrupted)
    }

    /// Makes an object. `placed`: the metaserver's placement, if one chose this server.
    pub(super) fn create(
        &self,
        class: &str,
        placed: Option<&Placement>,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Object, CallError> {
        self.check_resources()?;
        let (trace, resources) = (context::trace_context(), self.resources);
        let metadata = CallMetadata { listens: false, trace, resources };
        let waits = (deadline, interrupted);
        let mut ticket = Link::ask(Arc::clone(&self.link), waits, |rpc, out| {
            let stream = rpc.create_with(placed, class, out).map_err(|_| no_name(class))?;
            rpc.metadata(stream, &metadata, out);
            Ok(stream)
        })?;
        match ticket.wait(deadline, interrupted)? {
            Ok(Answer::Created) => {
                let (ticket, client) = (Arc::new(ticket), self.clone());
                Ok(Object { ticket, client, class: class.to_owned() })
            }
            other => Err(CallError::unlike(other, class)),
        }
    }
}

impl Object {
    /// The name of its class.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The name of its server.
    #[must_use]
    pub fn server(&self) -> &str {
        self.client.server()
    }

    /// Limits of a call on it.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.client.limits()
    }

    /// The same object, whose calls send what their methods print to this receiver. Nothing comes from servers of earlier
    /// versions. Made by a client with a receiver, an object has that of the client.
    #[must_use]
    pub fn with_output(&self, output: &CallOutput) -> Object {
        Object { client: self.client.with_output(output), ..self.clone() }
    }

    /// The server's name of a method.
    #[must_use]
    pub fn routine(&self, method: &str) -> String {
        format!("{}.{method}", self.class)
    }

    /// The description of a method. The client asks for it once per connection.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn interface(&self, method: &str) -> Result<Arc<KnownRoutine>, CallError> {
        self.client.interface(&self.routine(method))
    }

    /// Whether the object is known to have ended. Does not wait.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.ticket.is_answered()
    }

    /// Ends the object and the call that it runs. Does nothing after its end.
    ///
    /// # Errors
    /// The connection is lost, and the object with it.
    pub fn end(&self) -> Result<(), CallError> {
        self.ticket.link.cancel(self.ticket.stream)
    }

    /// Calls a method and waits, as [`Client::call`] does.
    ///
    /// # Errors
    /// [`CallError`]. Nothing is sent if the arguments do not fit.
    pub fn call(&self, method: &str, args: Vec<Arg<'_>>) -> Result<Outcome, CallError> {
        self.call_within(method, args, None)
    }

    /// [`Object::call`] with a time limit. If the limit passes while the method runs, the object ends.
    ///
    /// # Errors
    /// [`CallError`]. Nothing is sent if the arguments do not fit.
    pub fn call_within(
        &self,
        method: &str,
        args: Vec<Arg<'_>>,
        time: Option<Duration>,
    ) -> Result<Outcome, CallError> {
        self.start(method, args, time, &|| false)?.wait(&|| false)
    }

    /// Begins a call, as [`Client::call_async`] does.
    ///
    /// # Errors
    /// [`CallError`]. Nothing is sent if the arguments do not fit.
    pub fn call_async(
        &self,
        method: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
    ) -> Result<Call<'static>, CallError> {
        self.begin(method, args, time, &|| false)
    }

    /// [`Object::call_async`]. When a signal arrives while it sends, `interrupted` is asked.
    ///
    /// # Errors
    /// As [`Client::begin`].
    pub fn begin(
        &self,
        method: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Call<'static>, CallError> {
        self.start(method, args, time, interrupted)
    }

    fn start<'a>(
        &self,
        method: &str,
        args: Vec<Arg<'a>>,
        time: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Call<'a>, CallError> {
        let known = self.interface(method)?;
        if known.class != self.class {
            let text = format!("it is no method of `{}`, of which the object is", self.class);
            return Err(CallError::Argument { routine: known.name.clone(), text });
        }
        let route =
            CallRoute { object: Some(&self.ticket), ..CallRoute::within(time, &known.name)? };
        let most = self.client.server.bytes;
        let (checked, functions) = arguments::check_any(&known, args, most)?;
        self.client.send(&known, checked, functions, route, interrupted).map_err(|(error, _)| error)
    }
}
