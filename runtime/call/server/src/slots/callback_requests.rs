//! Requests of running routines to call a function of their client, checked before use.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use kumi_rpc::{CallbackHead, CallbackReturn, Code, Failure, MOST_ANSWER};

use super::super::arenas::Arenas;
use super::super::budget::Reservation;
use crate::callback::{Function, Places, functions};
use crate::native::Arena;
use crate::values::GivenValues;
use kumi_call_slot::native::KEPT;

/// Memory that a slot's process made for calls of functions.
#[derive(Debug)]
pub struct Exchange {
    /// The memory.
    pub arena: Arena,
    _counted: Reservation,
}

/// A checked request to call a function of the client.
#[derive(Debug)]
pub struct CallbackRequest {
    /// The call's number.
    pub id: u64,
    /// The stream of its connection.
    pub stream: u32,
    /// The function.
    pub function: Function,
    /// The head of the message to the client.
    pub head: CallbackHead,
    /// The places of the values and arrays.
    pub places: Places,
    /// The memory.
    pub exchange: Rc<Exchange>,
}

/// A request as the process of the slot sent it, not yet checked.
#[derive(Debug, Clone, Copy)]
pub struct UncheckedCallback {
    /// The routine's parameter.
    pub parameter: u16,
    /// Bytes of values at the beginning of the exchange.
    pub head: u64,
    /// Bytes of the exchange.
    pub bytes: u64,
}

/// The failure of a call whose callback cannot be made.
pub fn failed(parameter: u16, text: impl Into<String>) -> Failure {
    Failure::new(Code::Callback, i64::from(parameter), text.into())
}

/// Callback state of a worker: the functions of its routine, and the exchange memory.
#[derive(Debug, Default)]
pub struct CallbackTracker {
    functions: Vec<Function>,
    exchange: Option<Rc<Exchange>>,
    /// Whether a callback is in progress.
    pub open: bool,
    /// The parameter of the last callback.
    parameter: u16,
}

impl CallbackTracker {
    /// The state before any callback.
    pub fn new(interface: &kumi_idl::Interface) -> CallbackTracker {
        CallbackTracker { functions: functions(interface), ..CallbackTracker::default() }
    }

    /// Prepares for a call of another routine.
    pub fn are_of(&mut self, interface: &kumi_idl::Interface) {
        self.functions = functions(interface);
    }

    /// The function for whose end the routine waits, if for any.
    pub fn waits_for(&self) -> Option<&str> {
        let mut functions = self.functions.iter().filter(|_| self.open);
        let function = functions.find(|function| function.parameter == self.parameter);
        function.map(|function| function.declared.name.as_str())
    }

    /// The call is over. An idle process keeps no memory that others could use.
    pub fn rest(&mut self) {
        self.exchange.take_if(|exchange| exchange.arena.length() > KEPT);
    }

    /// Checks a request of the process. Nothing in it is trusted.
    ///
    /// # Errors
    /// Why the call cannot go on.
    pub fn take(
        &mut self,
        request: UncheckedCallback,
        descriptor: Option<OwnedFd>,
        arenas: &mut Arenas,
        most: u64,
    ) -> Result<(Function, CallbackHead, Places, Rc<Exchange>), Failure> {
        let parameter = request.parameter;
        let wrong = |why: &str| failed(parameter, format!("the routine's process {why}"));
        if std::mem::replace(&mut self.open, true) {
            return Err(wrong("called a function while another runs"));
        }
        self.parameter = parameter;
        let known = self.functions.iter().find(|function| function.parameter == parameter);
        let function = known.ok_or_else(|| wrong("called what is no function"))?.clone();
        let length = usize::try_from(request.bytes).map_err(|_| wrong("wants too much memory"))?;
        if let Some(file) = descriptor {
            self.exchange = None;
            // Memory is made in pages, so at most one page more than needed is accepted.
            if request.bytes > most.saturating_add(4096) {
                return Err(wrong("sends more to a function than a call allows"));
            }
            let reserved = arenas.reserve(request.bytes).ok_or_else(|| {
                let text = "the server has no memory left for what the routine sends to a function";
                failed(parameter, text)
            })?;
            let arena =
                Arena::of(file, length).map_err(|_| wrong("passed memory of the wrong kind"))?;
            self.exchange = Some(Rc::new(Exchange { arena, _counted: reserved }));
        }
        let exchange = self.exchange.clone().ok_or_else(|| wrong("gave no memory"))?;
        let head = usize::try_from(request.head).ok();
        let head = head.filter(|head| *head <= MOST_ANSWER.min(exchange.arena.length()));
        let head = head.ok_or_else(|| wrong("sends values that are too long"))?;
        let values = CallbackReturn::values_of(&exchange.arena.read(0, head))
            .map_err(|_| wrong("sends values that cannot be read"))?;
        let misfit = |failure: Failure| failed(parameter, failure.text);
        let given = GivenValues::from_wire(&function.declared, &values).map_err(misfit)?;
        let places = Places::new(&function.declared, &given, head, most).map_err(misfit)?;
        if places.bytes() > exchange.arena.length() {
            return Err(wrong("passed too little memory"));
        }
        Ok((function, CallbackHead { parameter, values }, places, exchange))
    }
}
