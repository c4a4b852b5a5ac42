//! Beginning calls.

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

use kumi_call_client::{
    CallError, CallOutput, KnownRoutine, Object, Remote, RemoteCall, Resources,
};

use crate::argument::{Arguments, CallSite, PassedValue, arguments, text};
use crate::attribute::GrpcSessionAttributes;
use crate::code::{Code, Failure};
use crate::handle::{GrpcFunctionHandle, Handle, handle_at};
use crate::object::{GrpcObjectHandle, object_at};
use crate::runtime::{Connection, Runtime, current, lock};
use crate::session::{RunningCall, run};

/// A call with its routine, still without arguments.
pub struct PreparedCall {
    /// The library's state.
    pub runtime: Arc<Runtime>,
    /// The handle with which it is made.
    pub handle: Arc<Handle>,
    /// The connection over which it goes.
    pub connection: Connection,
    known: Arc<KnownRoutine>,
    /// The object on which it runs, and the method's short name.
    object: Option<(Object, String)>,
}

/// What a call is given besides its arguments.
pub struct CallOptions {
    /// Its time limit.
    pub time: Option<Duration>,
    /// Its priority at a metaserver.
    pub priority: u8,
    /// Threads and memory for which it asks.
    pub resources: Option<Resources>,
    /// Where what its routine prints goes.
    pub output: Option<CallOutput>,
}

/// How a call is run.
pub enum CallMode {
    /// The caller waits for its end.
    Wait,
    /// It becomes a session, whose number is written here.
    Session(*mut c_int),
}

impl PreparedCall {
    /// Looks up a handle, and the description of its routine.
    ///
    /// # Errors
    /// There is no such handle, or its server cannot be reached.
    ///
    /// # Safety
    /// `handle` is null or can be read.
    pub unsafe fn of(handle: *const GrpcFunctionHandle) -> Result<PreparedCall, Failure> {
        let runtime = current()?;
        // SAFETY: as the caller promises.
        let handle = unsafe { handle_at(&runtime, handle) }?;
        let found = runtime.known(&handle.address, &handle.routine);
        let (connection, known) = found.map_err(|failure| match failure.code {
            // The handle could only be made with a description.
            Code::ServerNotFound => Failure::new(Code::CommunicationFailed, failure.detail),
            _ => failure,
        })?;
        Ok(PreparedCall { runtime, handle, connection, known, object: None })
    }

    /// Looks up an object, and the description of a method of its class.
    ///
    /// # Errors
    /// There is no such object, it has ended, or its class has no such method.
    ///
    /// # Safety
    /// `handle` is null or can be read; `method` is null or a text of C.
    pub unsafe fn of_method(
        handle: *const GrpcObjectHandle,
        method: *const c_char,
    ) -> Result<PreparedCall, Failure> {
        let runtime = current()?;
        // SAFETY: as the caller promises.
        let made = unsafe { object_at(&runtime, handle) }?;
        // SAFETY: as the caller promises.
        let method = unsafe { text(method, "the method's name") }?;
        let known = made.method(&runtime, method)?;
        let object = Some((made.object.clone(), method.to_owned()));
        let (handle, connection) = (Arc::clone(&made.handle), made.connection.clone());
        Ok(PreparedCall { runtime, handle, connection, known, object })
    }

    /// The routine's description.
    pub fn known(&self) -> &KnownRoutine {
        &self.known
    }

    /// Begins the call.
    ///
    /// # Errors
    /// The failure of the call.
    ///
    /// # Safety
    /// The addresses are as [`arguments`] requires; the place for the session is null or writable.
    pub unsafe fn call(
        &self,
        given: &[PassedValue<'_>],
        way: &CallMode,
        attributes: Option<&GrpcSessionAttributes>,
    ) -> Result<Code, Failure> {
        if matches!(way, CallMode::Session(place) if place.is_null()) {
            return Err(Failure::null("the place for the session"));
        }
        let site = CallSite {
            runtime: &self.runtime,
            connection: &self.connection,
            order: self.handle.order,
            keeps: self.keeps(way),
            intermediate: None,
        };
        let options = self.options(attributes)?;
        // SAFETY: as the caller promises.
        let arguments = unsafe { arguments(&self.known, given, &site) }?;
        let running = self.begin(arguments, &options)?;
        match way {
            CallMode::Wait => run(&self.runtime, &self.handle, running)?,
            CallMode::Session(place) => {
                let bytes = running.call.bytes();
                let number = self.runtime.sessions.add(Arc::clone(&self.handle), bytes, running);
                // SAFETY: checked not to be null, and writable as the caller promises.
                unsafe { place.write_unaligned(number) };
            }
        }
        Ok(Code::NoError)
    }

    /// Whether the call needs its arguments after it has begun: through a metaserver they are sent when there is a server.
    fn keeps(&self, way: &CallMode) -> bool {
        let through_metaserver = matches!(self.connection.client, Remote::Grid(_));
        matches!(way, CallMode::Session(_)) && through_metaserver && self.object.is_none()
    }

    /// What the handle and the attributes say of the call.
    ///
    /// # Errors
    /// An attribute is out of range.
    pub fn options(
        &self,
        attributes: Option<&GrpcSessionAttributes>,
    ) -> Result<CallOptions, Failure> {
        Ok(CallOptions {
            time: attributes.and_then(GrpcSessionAttributes::time).or(self.handle.timeout),
            priority: attributes.map_or(Ok(0), GrpcSessionAttributes::priority)?,
            resources: self.resources(attributes)?,
            output: lock(&self.handle.output).clone(),
        })
    }

    /// Threads and memory for which the call asks.
    fn resources(
        &self,
        attributes: Option<&GrpcSessionAttributes>,
    ) -> Result<Option<Resources>, Failure> {
        let of_handle = self.handle.resources;
        let asked = attributes.map_or(Ok(of_handle), |given| given.resources(of_handle))?;
        if self.object.is_some() && asked != of_handle {
            let text = "a call on an object has the threads and the memory with which the object was made: ask for them in the \
                        attributes of its handle";
            return Err(Failure::argument(text));
        }
        Ok(asked)
    }

    fn begin(&self, arguments: Arguments, options: &CallOptions) -> Result<RunningCall, Failure> {
        let time = options.time;
        let begun = match &self.object {
            None => {
                self.remote(options)?.begin(&self.handle.routine, arguments.args, time, &|| false)
            }
            Some(_) if options.priority > 0 => {
                let text =
                    "calls on an object have no priority: they run in the order in which they come";
                return Err(Failure::argument(text));
            }
            Some((object, method)) => {
                let listening = options.output.as_ref().map(|output| object.with_output(output));
                listening
                    .as_ref()
                    .unwrap_or(object)
                    .begin(method, arguments.args, time, &|| false)
                    .map(|call| RemoteCall::Server(Box::new(call)))
            }
        };
        let call = begun.map_err(|error| {
            if matches!(error, CallError::Lost(_)) {
                self.runtime.lost(&self.handle.address, &self.connection);
            }
            Failure::from(error)
        })?;
        let connection = self.connection.clone();
        let functions = arguments.functions;
        let Arguments { back, made, copies: _copies, .. } = arguments;
        Ok(RunningCall { call, back, made, functions, connection, _copies })
    }

    /// The connection for a call of a routine with these options.
    fn remote(&self, options: &CallOptions) -> Result<Remote, Failure> {
        let mut client = self.connection.client.with_priority(options.priority)?;
        if let Some(resources) = options.resources {
            client = client.with_resources(resources);
        }
        if let Some(output) = &options.output {
            client = client.with_output(output);
        }
        Ok(client)
    }
}
