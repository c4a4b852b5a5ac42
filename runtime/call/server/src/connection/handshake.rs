//! Identification of a client, and its access to routines.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use kumi_rpc::{CallHead, ClientHello, Code, Failure, LocalEndpoint, LogRequest, Ticket};

use super::Connection;
use crate::Shared;
use crate::owner::Caller;
use crate::registry::OfferedRoutine;

impl Connection {
    /// The client has sent its hello.
    pub(super) fn greet(&mut self, hello: &ClientHello, socket: &OwnedFd) {
        let shared = Rc::clone(&self.shared);
        let config = &shared.config;
        match self.admit(hello) {
            Ok(caller) => {
                self.caller = caller;
                let maps = hello.maps_memory && !self.caller.is_bearer();
                let comes_again = maps && !self.caller.is_for_logs();
                let local = self.nearby(socket).filter(|_| comes_again);
                let gives = maps && self.may_map();
                self.rpc.offer(gives, local);
                self.rpc.want_vouchers(self.caller.wants_vouchers(&shared));
                self.closing = !self.rpc.welcome(hello, &config.name, config.call_bytes);
            }
            Err(failure) => {
                shared.handshake_limit.refused(socket, &failure.text);
                self.rpc.refuse(failure);
                self.closing = true;
            }
        }
    }

    fn admit(&mut self, hello: &ClientHello) -> Result<Caller, Failure> {
        if self.open {
            let text = "this server wants TLS: give its address as tls://HOST:PORT";
            return Err(Failure::new(Code::TlsWanted, 0, text));
        }
        let Shared { config, known, .. } = &*self.shared;
        let caller = Caller::known(&self.shared, &hello.token)?;
        // A client that connects again through the local socket ends its first connection.
        if known.get() >= config.connections + usize::from(self.sharing.is_nearby()) {
            let text = format!("{} clients are connected already", config.connections);
            return Err(Failure::new(Code::Busy, 0, text));
        }
        known.set(known.get() + 1);
        (self.handshake_permit, self.counted) = (None, true);
        Ok(caller)
    }

    /// The address at which a client on this machine finds the server.
    fn nearby(&self, socket: &OwnedFd) -> Option<LocalEndpoint> {
        let secret = self.shared.nearby.filter(|_| self.secured.is_none())?;
        // A Unix socket has none.
        let port = crate::nearby::port_of_peer(socket).unwrap_or(0);
        Some(LocalEndpoint { secret, port })
    }

    /// Describes a routine.
    pub(super) fn describe(&mut self, name: &str) -> Result<Arc<OfferedRoutine>, Failure> {
        if !self.has_method(name) {
            let refused = self.caller.may_ask();
            refused.map_err(|refused| self.no_method(name).unwrap_or(refused))?;
        }
        self.find(name)
    }

    /// The routine of this name, if the user may call it.
    pub(super) fn find(&mut self, name: &str) -> Result<Arc<OfferedRoutine>, Failure> {
        self.caller.check(&self.shared)?;
        self.caller.allow(&self.shared, name)?;
        let found = self.shared.registry.find(name);
        found.cloned().ok_or_else(|| self.caller.unknown(&self.shared, name))
    }

    /// The ticket and the pass shown for a stream. They are used up, whatever comes of the call.
    pub(super) fn shown_for(&mut self, stream: u32) -> Option<(Ticket, String)> {
        let (of, ticket, pass) = self.ticket.take()?;
        (of == stream).then_some((ticket, pass))
    }

    /// The methods of a class, if the user may call at least one.
    pub(super) fn methods(&mut self, class: &str) -> Result<Vec<Arc<OfferedRoutine>>, Failure> {
        self.caller.check(&self.shared)?;
        let methods = self.shared.registry.methods(class);
        if methods.iter().any(|method| self.caller.permits(&method.interface.name)) {
            return Ok(methods);
        }
        self.caller.allow(&self.shared, class)?;
        Err(self.caller.no_class(&self.shared, class))
    }

    /// The routine of a call, if the client's description is up to date.
    pub(super) fn find_for(&mut self, head: &CallHead) -> Result<Arc<OfferedRoutine>, Failure> {
        let offered = self.find(&head.routine)?;
        if head.hash != offered.hash {
            let text = format!("the description of `{}` has changed", head.routine);
            return Err(Failure::new(Code::InterfaceChanged, 0, text));
        }
        Ok(offered)
    }

    /// Answers with what the user may see of the logs of calls. A pass or a token says who that is.
    pub(super) fn logs(&mut self, stream: u32, request: &LogRequest) -> Result<(), Failure> {
        self.caller.may_read_logs(&self.shared)?;
        let logs = self.shared.logs.answer(&self.caller.owner().user, request);
        let json = serde_json::to_string(&logs).map_err(|error| {
            Failure::new(Code::Busy, 0, format!("the logs cannot be written as JSON: {error}"))
        })?;
        self.rpc.logs(stream, &json);
        Ok(())
    }

    pub(super) fn names(&mut self, stream: u32, part: &str) -> Result<(), Failure> {
        self.caller.check(&self.shared)?;
        self.caller.may_ask()?;
        let fits = |name: &&str| name.contains(part) && self.caller.permits(name);
        self.rpc.names(stream, self.shared.registry.names().filter(fits));
        Ok(())
    }
}
