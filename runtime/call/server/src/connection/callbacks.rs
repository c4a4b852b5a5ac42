//! Callbacks in progress on a connection.

use std::collections::HashMap;
use std::rc::Rc;

use kumi_rpc::{ArrayPosition, CallbackReturn};

use super::held::place_in_arena;
use super::{CallStage, Connection, IncomingArguments};
use crate::callback::{Function, Places, check_back};
use crate::callback_requests::{CallbackRequest, Exchange, failed};
use crate::native::Arena;

/// A callback in progress, until it has returned and its arguments are written.
pub struct OpenCallback {
    id: u64,
    function: Function,
    places: Places,
    exchange: Rc<Exchange>,
    /// The returned values, while the returned arrays arrive.
    values: Option<Vec<u8>>,
}

/// Callbacks of a connection by stream.
pub type Callbacks = HashMap<u32, OpenCallback>;

/// The place of arriving array bytes: arena, offset, length. `None`: nowhere, or in a file.
pub fn room<'a>(
    calls: &'a HashMap<u32, CallStage>,
    incoming: &HashMap<u32, IncomingArguments>,
    callbacks: &'a Callbacks,
    place: ArrayPosition,
    length: usize,
) -> Option<(&'a Arena, usize, usize)> {
    match calls.get(&place.stream)? {
        CallStage::Receiving(job, _) if job.takes_file(place.argument) => None,
        CallStage::Receiving(job, _) => {
            let (offset, length) = place_in_arena(incoming, job, place, length);
            Some((&job.block.arena, offset, length))
        }
        // Inside the array: the range was checked.
        CallStage::Holding(array) => Some((array.arena(), place.offset as usize, length)),
        CallStage::Running(_) => {
            callbacks.get(&place.stream).map(|called| called.range(place, length))
        }
        CallStage::Sending(..) | CallStage::SendingHeld(..) => None,
    }
}

impl OpenCallback {
    /// The place of bytes of a callback's array: arena, offset, length.
    pub fn range(&self, place: ArrayPosition, length: usize) -> (&Arena, usize, usize) {
        let (offset, length) = self.places.range(place.argument, place.offset, length);
        (&self.exchange.arena, offset, length)
    }
}

impl Connection {
    /// A routine calls a function.
    pub(super) fn asked(&mut self, asked: CallbackRequest) {
        let CallbackRequest { id, stream, function, head, places, exchange } = asked;
        if !matches!(self.calls.get(&stream), Some(CallStage::Running(runs)) if *runs == id) {
            // The call has ended meanwhile.
            return;
        }
        let parameter = head.parameter;
        let called = OpenCallback { id, function, places, exchange, values: None };
        if !self.rpc.callback(stream, &head, &called.places.sent()) {
            let text = "the routine calls a function with texts that are too long to be sent";
            self.shared.pool.borrow_mut().fail(id, failed(parameter, text));
            return;
        }
        self.callbacks.insert(stream, called);
        self.written();
    }

    /// A callback has ended.
    pub(super) fn returned(&mut self, stream: u32, back: CallbackReturn) {
        let Some(called) = self.callbacks.get_mut(&stream) else { return };
        let name = &called.function.declared.name;
        let fails = |text| failed(called.function.parameter, text);
        let failure = match back {
            CallbackReturn::Failed(text) => fails(format!("the function `{name}` failed: {text}")),
            CallbackReturn::Done(values) => {
                match check_back(&called.function.declared, &called.places.plan, &values) {
                    Ok(()) => {
                        called.values = Some(CallbackReturn::values(&values));
                        let sizes = called.places.returned();
                        self.rpc.accept_return(stream, &sizes);
                        return;
                    }
                    Err(why) => {
                        self.rpc.refuse_return(stream);
                        fails(format!("what `{name}` returned does not fit: {why}"))
                    }
                }
            }
        };
        self.shared.pool.borrow_mut().fail(called.id, failure);
    }

    /// All results of a callback have arrived, so the routine goes on.
    pub(super) fn back(&mut self, stream: u32) {
        let Some(called) = self.callbacks.remove(&stream) else { return };
        let OpenCallback { id, places, exchange, values, .. } = called;
        let values = values.unwrap_or_default();
        if values.len() <= places.back.len() {
            exchange.arena.write(places.back.start, &values);
        }
        self.shared.pool.borrow_mut().resume(id, values.len() as u64);
    }

    /// The call of a stream is over, or its callback is fully written.
    pub(super) fn forget_callback(&mut self, stream: u32) {
        let runs = matches!(self.calls.get(&stream), Some(CallStage::Running(_)));
        if !runs && !self.rpc.send_queue().refers(stream) {
            self.callbacks.remove(&stream);
        }
    }
}
