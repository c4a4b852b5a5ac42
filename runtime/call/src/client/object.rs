//! Objects of classes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kumi_idl::Limits;
use kumi_rpc::Placement;

use super::answer_handle::AnswerHandle;
use super::link::{Answer, Link};
use super::{Arg, Call, CallError, CallRoute, Client, GRACE, KnownRoutine, Outcome, arguments};

/// An object of a class: a process of the server that keeps the class' state from call to call. Its calls run one after the
/// other. It ends when this and all calls on it are dropped, with [`Object::end`], and with the connection; also when one of
/// its calls crashes, is cancelled or takes too long while it runs.
///
/// ```no_run
/// use kumi_call::{Client, Options};
///
/// let client = Client::connect("127.0.0.1:7070", &Options::default())?;
/// let counter = client.object("counter")?;
/// counter.call("add", vec![3.into()])?;
/// counter.call("add", vec![4.into()])?;
/// assert_eq!(counter.call("total", vec![])?.scalar(0), Some(kumi_idl::Scalar::I64(7)));
/// # Ok::<(), kumi_call::CallError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Object {
    ticket: Arc<AnswerHandle<Arc<Link>>>,
    client: Client,
    class: String,
}

impl Client {
    /// Makes an object of a class and waits until it is there.
    ///
    /// # Errors
    /// [`CallError`]: there is no such class, or it cannot be run; or the server has as many objects as it may have.
    pub fn object(&self, class: &str) -> Result<Object, CallError> {
        self.object_within(class, None, &|| false)
    }

    /// [`Client::object`], in at most so much time; when a signal comes while it waits, `interrupted` is asked.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn object_within(
        &self,
        class: &str,
        time: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Object, CallError> {
        let deadline = time.and_then(|time| Instant::now().checked_add(time.checked_add(GRACE)?));
        self.create(class, None, deadline, interrupted)
    }

    /// Makes an object that was placed here by a metaserver, or by none.
    pub(super) fn create(
        &self,
        class: &str,
        placed: Option<&Placement>,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Object, CallError> {
        let stream = self.link.create(class, placed, deadline, interrupted)?;
        let mut ticket = AnswerHandle::of(Arc::clone(&self.link), stream);
        match ticket.wait(deadline, interrupted)? {
            Ok(Answer::Created) => {}
            Ok(_) => {
                return Err(CallError::Server("the server answered something else".to_owned()));
            }
            Err(failure) => return Err(CallError::of(failure, class)),
        }
        let (ticket, client) = (Arc::new(ticket), self.clone());
        Ok(Object { ticket, client, class: class.to_owned() })
    }
}

impl Object {
    /// Its class.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The name of the server where it is.
    #[must_use]
    pub fn server(&self) -> &str {
        self.client.server()
    }

    /// What a call on it may have at most.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.client.limits()
    }

    /// The name by which the server knows a method.
    #[must_use]
    pub fn routine(&self, method: &str) -> String {
        format!("{}.{method}", self.class)
    }

    /// A method's description; asked for once for each connection.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn interface(&self, method: &str) -> Result<Arc<KnownRoutine>, CallError> {
        self.client.interface(&self.routine(method))
    }

    /// Whether it is no more, as far as can be seen without waiting.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.ticket.is_answered()
    }

    /// Ends it, and what it runs. Does nothing after its end.
    ///
    /// # Errors
    /// The connection is lost, and the object with it.
    pub fn end(&self) -> Result<(), CallError> {
        self.ticket.link.cancel(self.ticket.stream)
    }

    /// Calls a method and waits; otherwise as [`Client::call`].
    ///
    /// # Errors
    /// [`CallError`]; of arguments that do not fit nothing is sent.
    pub fn call(&self, method: &str, args: Vec<Arg<'_>>) -> Result<Outcome, CallError> {
        self.call_within(method, args, None)
    }

    /// [`Object::call`], in at most so much time: if that is over while it runs, the object ends.
    ///
    /// # Errors
    /// [`CallError`]; of arguments that do not fit nothing is sent.
    pub fn call_within(
        &self,
        method: &str,
        args: Vec<Arg<'_>>,
        time: Option<Duration>,
    ) -> Result<Outcome, CallError> {
        self.start(method, args, time, &|| false)?.wait(&|| false)
    }

    /// Begins a call; otherwise as [`Client::call_async`].
    ///
    /// # Errors
    /// [`CallError`]; of arguments that do not fit nothing is sent.
    pub fn call_async(
        &self,
        method: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
    ) -> Result<Call<'static>, CallError> {
        self.begin(method, args, time, &|| false)
    }

    /// [`Object::call_async`]; when a signal comes while it sends, `interrupted` is asked.
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
        let client = &self.client;
        let (checked, functions) = arguments::check_any(&known, args, client.server.bytes)?;
        let way = CallRoute { time, object: Some(&self.ticket), ..CallRoute::default() };
        client.send(&known, checked, functions, way, interrupted).map_err(|(error, _)| error)
    }
}
