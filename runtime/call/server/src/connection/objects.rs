//! Objects of a client; each is a stream of its connection.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use kumi_idl::Type;
use kumi_rpc::{CallHead, Code, Failure, Resources};

use super::admission::admit;
use super::{AnnouncedCall, Connection};
use crate::registry::OfferedRoutine;
use crate::slots::{self, ObjectEvent, ObjectRequest, ObjectTarget, ProcessResources};
use crate::values::bad;

/// Objects by stream.
pub type Objects = HashMap<u32, ConnectionObject>;

/// An object.
pub struct ConnectionObject {
    id: u64,
    class: String,
    methods: Vec<Arc<OfferedRoutine>>,
    resources: ProcessResources,
}

impl Connection {
    /// Makes an object. The client is told when it exists.
    ///
    /// # Errors
    /// The class does not exist or is not permitted to this user, or there are too many objects.
    pub(super) fn create(&mut self, stream: u32, class: &str) -> Result<(), Failure> {
        let (shown, asked) = (self.shown_for(stream), self.asked_resources(stream));
        let span = self.announced_span(stream)?;
        self.announced = AnnouncedCall::default();
        let methods = self.methods(class)?;
        let ticket = self.caller.may_call(&self.shared, class, shown)?;
        let resources = ProcessResources::granted(&self.shared.config, asked, class, false)?;
        let id = self.shared.pool.borrow_mut().number();
        let admitted = ticket.map(|ticket| admit(&self.shared, ticket, id, class));
        let wanted = ObjectRequest {
            class,
            methods: &methods,
            owner: self.caller.owner(),
            scratch: self.scratch_for(&methods)?,
            resources,
            stream,
            news: self.news.clone(),
            ticket: admitted.transpose()?,
            span,
            log: self.open_log((id, class), true, ticket, span.as_ref()),
        };
        slots::create(&self.shared, id, wanted)?;
        let class = class.to_owned();
        self.objects.insert(stream, ConnectionObject { id, class, methods, resources });
        Ok(())
    }

    /// The folder for files of the object's calls, if its methods take any.
    fn scratch_for(&self, methods: &[Arc<OfferedRoutine>]) -> Result<Option<PathBuf>, Failure> {
        let mut params = methods.iter().flat_map(|offered| &offered.interface.params);
        if !params.any(|param| param.ty == Type::File) {
            return Ok(None);
        }
        let folder = self.shared.scratch.borrow_mut().folder_of(self.caller.owner());
        folder.map(Some).map_err(|error| {
            let text = format!("there is no folder for the files of an object: {error}");
            Failure::new(Code::Storage, 0, text)
        })
    }

    /// The object of a call, if it names one.
    pub(super) fn object_of(
        &self,
        head: &CallHead,
        offered: &Arc<OfferedRoutine>,
    ) -> Result<Option<ObjectTarget>, Failure> {
        let (name, class) = (&head.routine, &offered.interface.class);
        if head.object == 0 {
            if class.is_empty() {
                return Ok(None);
            }
            let text = match offered.interface.is_constructor() {
                true => format!("`{name}` is a class: make an object of it"),
                false => format!("`{name}` is a method of `{class}`: it is called on an object"),
            };
            return Err(bad(-1, text));
        }
        let made = self.objects.get(&head.object).ok_or_else(|| {
            let text = format!("the object on which `{name}` is called is no more");
            Failure::new(Code::ObjectLost, 0, text)
        })?;
        let method = made.methods.iter().position(|method| Arc::ptr_eq(method, offered));
        let method = method.and_then(|index| u32::try_from(index).ok()).ok_or_else(|| {
            bad(-1, format!("`{name}` is no method of `{}`, of which the object is", made.class))
        })?;
        Ok(Some(ObjectTarget { id: made.id, method }))
    }

    /// What a call has: on an object, what that has.
    ///
    /// # Errors
    /// It does not get what it asks for.
    pub(super) fn resources_of(
        &self,
        head: &CallHead,
        offered: &OfferedRoutine,
        asked: Option<Resources>,
    ) -> Result<ProcessResources, Failure> {
        match (self.objects.get(&head.object), asked) {
            (Some(made), None) => Ok(made.resources),
            (Some(made), Some(_)) => {
                let text = format!(
                    "`{}` is called on an object of `{}`, which has the threads and the memory with which it was made: ask when \
                     it is made",
                    head.routine, made.class
                );
                Err(Failure::new(Code::NoResources, 0, text))
            }
            (None, asked) => {
                let is_parallel = offered.interface.parallel.is_some();
                ProcessResources::granted(&self.shared.config, asked, &head.routine, is_parallel)
            }
        }
    }

    /// Whether one of the client's objects has a method of this name.
    pub(super) fn has_method(&self, name: &str) -> bool {
        let mut methods = self.objects.values().flat_map(|made| &made.methods);
        methods.any(|method| method.interface.name == name)
    }

    /// The failure for an unknown method of a class of which the client has an object.
    pub(super) fn no_method(&self, name: &str) -> Option<Failure> {
        let rest = |made: &ConnectionObject| name.strip_prefix(made.class.as_str());
        let is_of = |made: &&ConnectionObject| rest(made).is_some_and(|rest| rest.starts_with('.'));
        let made = self.objects.values().find(is_of)?;
        let names = made.methods.iter().map(|method| method.interface.name.as_str());
        let has: Vec<&str> = names.filter(|name| self.caller.permits(name)).collect();
        let text = format!("there is no method `{name}`; `{}` has {}", made.class, has.join(", "));
        Some(Failure::new(Code::NoSuchRoutine, 0, text))
    }

    /// Handles an event of an object.
    pub(super) fn object_event(&mut self, news: ObjectEvent) {
        let ObjectEvent { id, stream, object_event } = news;
        if self.objects.get(&stream).is_none_or(|made| made.id != id) {
            // The client has released the object.
            return;
        }
        match object_event {
            Ok(()) => self.rpc.created(stream),
            Err(failure) => {
                self.objects.remove(&stream);
                self.rpc.fail(stream, &failure);
            }
        }
    }

    /// The client releases an object.
    pub(super) fn end_object(&mut self, stream: u32) {
        if let Some(made) = self.objects.remove(&stream) {
            self.shared.pool.borrow_mut().end_object(made.id);
            let text = format!("the object of `{}` was released", made.class);
            self.rpc.fail(stream, &Failure::new(Code::Cancelled, 0, text));
        }
    }

    /// Ends all objects of a client that has left.
    pub(super) fn leave_objects(&mut self) {
        for (_, made) in self.objects.drain() {
            self.shared.pool.borrow_mut().end_object(made.id);
        }
    }
}
