//! Callbacks on a connection: arguments as they arrive, and the results.

use std::sync::Arc;
use std::time::Instant;

use kumi_idl::{Argument, ArgumentForm, Plan};
use kumi_rpc::{CallbackHead, CallbackReturn, Value};

use super::{Answer, AnswerHandle, Link, State};
use crate::CallError;
use crate::callback::Function;
use crate::lent::{Lend, LendMut, LentBytes, LentBytesMut, bytes_of, bytes_of_mut};
use crate::values::GivenValues;

/// The functions of a call, and the most bytes of one call of them.
#[derive(Debug, Clone, Default)]
pub struct Functions {
    pub list: Arc<Vec<Function>>,
    pub most: u64,
}

/// An array of a function, in the order of its declaration.
#[derive(Debug, Default)]
pub struct Buffer {
    /// Memory with the alignment of every type.
    words: Vec<u64>,
    bytes: usize,
}

impl Buffer {
    fn zeros(bytes: u64) -> Buffer {
        // The size is within the limit of the plan.
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

/// One call of a function by a routine.
#[derive(Debug)]
pub struct CallbackInvocation {
    /// The function.
    pub function: Function,
    /// The plan of this call.
    pub plan: Plan,
    /// Scalars and texts that were sent.
    pub given: GivenValues,
    /// The arrays, one per parameter. While they arrive, they hold the packed bytes.
    pub arrays: Vec<Buffer>,
}

/// Whether an array travels as it lies in memory.
fn whole(argument: &Argument) -> bool {
    argument.section.bytes() == argument.bytes && argument.section.single().is_some()
}

impl CallbackInvocation {
    /// Prepares a callback from its head; its arrays are still to come.
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

    fn targets(&mut self) -> Vec<(u16, LentBytesMut)> {
        (0..)
            .zip(&mut self.arrays)
            .filter(|(_, array)| array.bytes > 0)
            .map(|(index, array)| (index, LentBytesMut::slice(array.bytes_mut())))
            .collect()
    }

    /// Unpacks the arrays for the function.
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
                    .scatter(packed.bytes(), array.bytes_mut(), argument.order())
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Packs the arrays that travel back.
    fn pack(&mut self) -> Result<(), String> {
        for (argument, array) in self.plan.arguments.iter().zip(&mut self.arrays) {
            if argument.returned > 0
                && matches!(argument.form, ArgumentForm::Array(..))
                && !whole(argument)
            {
                let mut packed = Buffer::zeros(argument.returned);
                argument
                    .gather(array.bytes(), argument.order(), packed.bytes_mut())
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
                let sizes = crate::layout::sizes(&called.plan, |argument| argument.sent);
                self.rpc.accept_callback(stream, &sizes);
                let called = pending.coming.insert(Box::new(called));
                // Results come after all callbacks, so their buffers wait.
                pending.called_targets = called.targets();
            }
            Err(why) => {
                self.rpc.refuse_callback(stream);
                pending.answer = Some(Ok(Answer::Callback(Err(why))));
            }
        }
    }

    /// All arguments of the callback have arrived.
    pub(super) fn called(&mut self, stream: u32) {
        if let Some(pending) = self.pending.get_mut(&stream)
            && let Some(called) = pending.coming.take()
        {
            pending.called_targets.clear();
            pending.answer = Some(Ok(Answer::Callback(Ok(called))));
        }
    }
}

impl<L: std::ops::Deref<Target = Link>> AnswerHandle<L> {
    /// The callback to run now. Does not wait.
    pub fn called(&self) -> Option<Result<Box<CallbackInvocation>, String>> {
        let mut state = self.link.lock();
        let answer = &mut state.pending.get_mut(&self.stream)?.answer;
        match answer.take_if(|answer| matches!(answer, Ok(Answer::Callback(_))))? {
            Ok(Answer::Callback(called)) => Some(called),
            _ => None,
        }
    }
}

impl Link {
    /// Sends the result of a callback to the server. Its arrays are in `called`.
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
            // Not interruptible: the server would wait for a lost answer for ever.
            self.send(stream, &out, &sends, deadline, &|| false)
        } else {
            Ok(())
        }
    }
}
