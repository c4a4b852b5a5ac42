//! Functions of the program that a routine calls: their arguments as they come, and what they return.

use std::sync::Arc;
use std::time::Instant;

use kumi_idl::{Argument, ArgumentForm, Order, Plan};
use kumi_rpc::{ArraySize, CallbackHead, CallbackReturn, Value};

use super::{Answer, AnswerHandle, Link, State};
use crate::callback::Function;
use crate::client::CallError;
use crate::lent::{LentBytes, LentBytesMut, bytes_of, bytes_of_mut};
use crate::values::GivenValues;

/// The functions of a call, and most bytes of a call of one of them.
#[derive(Debug, Clone, Default)]
pub struct Functions {
    pub list: Arc<Vec<Function>>,
    pub most: u64,
}

/// An array of a function, in the order that its declaration says.
#[derive(Debug, Default)]
pub struct Buffer {
    /// Its memory, for every type aligned.
    words: Vec<u64>,
    bytes: usize,
}

impl Buffer {
    fn zeros(bytes: u64) -> Buffer {
        // Within the limit of the plan that it is of.
        let bytes = bytes as usize;
        Buffer { words: vec![0; bytes.div_ceil(8)], bytes }
    }

    pub fn bytes(&self) -> &[u8] {
        &bytes_of(&self.words)[..self.bytes]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytes_of_mut(&mut self.words)[..self.bytes]
    }
}

/// A call of a function by a routine.
#[derive(Debug)]
pub struct CallbackInvocation {
    /// The function.
    pub function: Function,
    /// The plan of this call.
    pub plan: Plan,
    /// Scalars and texts that came.
    pub given: GivenValues,
    /// The arrays, one for each parameter; while they come, what travels of them.
    pub arrays: Vec<Buffer>,
}

/// Whether an array travels as it lies in memory.
fn whole(argument: &Argument) -> bool {
    argument.section.bytes() == argument.bytes && argument.section.single().is_some()
}

fn order(argument: &Argument) -> Order {
    match argument.form {
        ArgumentForm::Array(_, order) => order,
        _ => Order::Row,
    }
}

impl CallbackInvocation {
    /// What the function of a call is called with, as far as the head says; arrays are still to come.
    fn new(functions: &Functions, head: &CallbackHead) -> Result<CallbackInvocation, String> {
        let known = functions.list.iter().find(|function| function.parameter == head.parameter);
        let function = known.ok_or("the server calls what is no function")?.clone();
        let declared = &function.declared;
        let name = &declared.name;
        let misfit = |failure: kumi_rpc::Failure| format!("`{name}`: {}", failure.text);
        let given = GivenValues::from_wire(declared, &head.values).map_err(misfit)?;
        let plan = crate::values::plan(declared, &given, functions.most).map_err(misfit)?;
        let arrays = plan.arguments.iter().map(|argument| match argument.form {
            ArgumentForm::Array(..) => Buffer::zeros(argument.sent),
            _ => Buffer::default(),
        });
        let arrays = arrays.collect();
        Ok(CallbackInvocation { function, plan, given, arrays })
    }

    fn sizes(&self) -> Vec<ArraySize> {
        crate::layout::sizes(&self.plan, |argument| argument.sent)
    }

    fn targets(&mut self) -> Vec<(u16, LentBytesMut)> {
        (0..)
            .zip(&mut self.arrays)
            .filter(|(_, array)| array.bytes > 0)
            .map(|(index, array)| (index, LentBytesMut::slice(array.bytes_mut())))
            .collect()
    }

    /// Readies the arrays for the function: makes them of what travelled.
    pub fn ready(&mut self) -> Result<(), String> {
        for (argument, array) in self.plan.arguments.iter().zip(&mut self.arrays) {
            if !matches!(argument.form, ArgumentForm::Array(..))
                || argument.sent > 0 && whole(argument)
            {
                continue;
            }
            let packed = std::mem::replace(array, Buffer::zeros(argument.bytes));
            if argument.sent > 0 {
                argument
                    .scatter(packed.bytes(), array.bytes_mut(), order(argument))
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// What travels back of the arrays.
    fn pack(&mut self) -> Result<(), String> {
        for (argument, array) in self.plan.arguments.iter().zip(&mut self.arrays) {
            if argument.returned > 0
                && matches!(argument.form, ArgumentForm::Array(..))
                && !whole(argument)
            {
                let mut packed = Buffer::zeros(argument.returned);
                argument
                    .gather(array.bytes(), order(argument), packed.bytes_mut())
                    .map_err(|error| error.to_string())?;
                *array = packed;
            }
        }
        Ok(())
    }
}

impl State {
    /// A routine calls a function.
    pub(super) fn callback(&mut self, stream: u32, head: &CallbackHead) {
        let Some(pending) = self.pending.get_mut(&stream) else {
            return self.rpc.refuse_callback(stream);
        };
        match CallbackInvocation::new(&pending.functions, head) {
            Ok(called) => {
                self.rpc.accept_callback(stream, &called.sizes());
                let called = pending.coming.insert(Box::new(called));
                // Results come after all functions: their targets wait.
                pending.called_targets = called.targets();
            }
            Err(why) => {
                self.rpc.refuse_callback(stream);
                pending.answer = Some(Ok(Answer::Called(Err(why))));
            }
        }
    }

    /// All that a function is called with has come.
    pub(super) fn called(&mut self, stream: u32) {
        if let Some(pending) = self.pending.get_mut(&stream)
            && let Some(called) = pending.coming.take()
        {
            pending.called_targets.clear();
            pending.answer = Some(Ok(Answer::Called(Ok(called))));
        }
    }
}

impl<L: std::ops::Deref<Target = Link>> AnswerHandle<L> {
    /// A function that is to be called now; does not wait.
    pub fn called(&self) -> Option<Result<Box<CallbackInvocation>, String>> {
        let mut state = self.link.lock();
        let answer = &mut state.pending.get_mut(&self.stream)?.answer;
        match answer.take_if(|answer| matches!(answer, Ok(Answer::Called(_))))? {
            Ok(Answer::Called(called)) => Some(called),
            _ => None,
        }
    }
}

impl Link {
    /// Tells the server how a function has ended that the routine of a stream has called: its arrays are in `called`.
    pub fn return_from(
        &self,
        stream: u32,
        called: Option<Box<CallbackInvocation>>,
        ended: Result<Vec<(u16, Value)>, String>,
        deadline: Option<Instant>,
    ) -> Result<(), CallError> {
        let mut sends = Vec::new();
        let mut called = called;
        let ended = match (&mut called, ended) {
            (Some(called), Ok(values)) => called.pack().map(|()| values),
            (_, ended) => ended,
        };
        if let (Some(called), Ok(_)) = (&called, &ended) {
            for (index, (argument, array)) in
                (0..).zip(called.plan.arguments.iter().zip(&called.arrays))
            {
                if argument.returned > 0 && matches!(argument.form, ArgumentForm::Array(..)) {
                    sends.push((index, LentBytes::slice(array.bytes())));
                }
            }
        }
        let back = match ended {
            Ok(values) => CallbackReturn::Done(values),
            Err(why) => CallbackReturn::Failed(why),
        };
        let mut out = Vec::new();
        let mut state = self.lock();
        let wanted = match state.rpc.callback_return(stream, &back, &mut out) {
            Ok(wanted) => wanted,
            Err(too_long) => {
                let text = format!("it gave texts of {} bytes, which is too much", too_long.0);
                sends.clear();
                let failed = CallbackReturn::Failed(text);
                state.rpc.callback_return(stream, &failed, &mut out).unwrap_or(false)
            }
        };
        drop(state);
        if wanted {
            // Not interrupted: an answer that is lost would be waited for, for ever.
            self.send(stream, &out, &sends, deadline, &|| false)
        } else {
            Ok(())
        }
    }
}
