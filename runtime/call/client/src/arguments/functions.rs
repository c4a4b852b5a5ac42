//! Functions of the program as arguments of calls.

use std::fmt;
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumi_idl::{ArgumentForm, Interface, Plan, Scalar, Type};
use kumi_rpc::Value;

use super::super::completion::PendingCallback;
use super::super::link::CallbackInvocation;
use super::super::{Answer, Call, CallError, GRACE, locked};
use crate::context::{is_over, within};
use crate::lent::{Number, numbers_of, numbers_of_mut};
use crate::values;

/// How long a client waits for the server's answer if a function has ended after the call's time.
const LATE: Duration = Duration::from_secs(30);

/// The body of a callback.
type Body<'a> = dyn FnMut(&mut CallbackArgs<'_>) -> Result<(), String> + Send + 'a;

/// A function that a routine may call while it runs. The thread that waits for the call runs it.
pub struct Callback<'a>(Box<Body<'a>>);

impl fmt::Debug for Callback<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

impl<'a> Callback<'a> {
    /// Wraps a function. If it returns an error, the server ends the routine and the call fails with that
    /// text.
    pub fn new(
        body: impl FnMut(&mut CallbackArgs<'_>) -> Result<(), String> + Send + 'a,
    ) -> Callback<'a> {
        Callback(Box::new(body))
    }
}

/// The arguments of a callback, and the place for its results.
#[derive(Debug)]
pub struct CallbackArgs<'c> {
    called: &'c mut CallbackInvocation,
    values: Vec<Option<Value>>,
}

impl CallbackArgs<'_> {
    /// The declaration of the function.
    #[must_use]
    pub fn declared(&self) -> &Interface {
        &self.called.function.declared
    }

    /// The plan of this call of the function.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.called.plan
    }

    fn index(&self, name: &str) -> Result<usize, String> {
        let found = self.declared().params.iter().position(|param| param.name == name);
        found.ok_or_else(|| format!("`{}` has no parameter `{name}`", self.declared().name))
    }

    /// A scalar argument.
    ///
    /// # Errors
    /// The function has no such argument.
    pub fn scalar(&self, name: &str) -> Result<Scalar, String> {
        let scalar = self.called.given.scalars[self.index(name)?];
        scalar.ok_or_else(|| format!("`{name}` is not a scalar argument"))
    }

    /// An integer argument.
    ///
    /// # Errors
    /// The function has no such argument.
    pub fn integer(&self, name: &str) -> Result<i64, String> {
        self.scalar(name)?.integer().ok_or_else(|| format!("`{name}` is not an integer"))
    }

    /// A real argument.
    ///
    /// # Errors
    /// The function has no such argument.
    pub fn real(&self, name: &str) -> Result<f64, String> {
        self.scalar(name)?.real().ok_or_else(|| format!("`{name}` is not a real number"))
    }

    /// A text argument.
    ///
    /// # Errors
    /// The function has no such argument.
    pub fn text(&self, name: &str) -> Result<&str, String> {
        let text = self.called.given.texts[self.index(name)?].as_deref();
        text.ok_or_else(|| format!("`{name}` is not a text argument"))
    }

    fn array_index<T: Number>(&self, name: &str) -> Result<usize, String> {
        let index = self.index(name)?;
        match self.called.plan.arguments[index].form {
            ArgumentForm::Array(element, _) if element == T::ELEMENT => Ok(index),
            _ => Err(format!("`{name}` is not an array of {}", T::ELEMENT)),
        }
    }

    /// An array in the order of the description. Elements that were not sent are 0.
    ///
    /// # Errors
    /// The function has no array of this name and type.
    pub fn array<T: Number>(&self, name: &str) -> Result<&[T], String> {
        let index = self.array_index::<T>(name)?;
        numbers_of(self.bytes(index)).ok_or_else(|| format!("`{name}` is not an array"))
    }

    /// A writable array.
    ///
    /// # Errors
    /// The function has no array of this name and type.
    pub fn array_mut<T: Number>(&mut self, name: &str) -> Result<&mut [T], String> {
        let index = self.array_index::<T>(name)?;
        numbers_of_mut(self.bytes_mut(index)).ok_or_else(|| format!("`{name}` is not an array"))
    }

    /// The bytes of an array, by parameter index.
    #[must_use]
    pub fn bytes(&self, parameter: usize) -> &[u8] {
        self.called.arrays[parameter].bytes()
    }

    /// The writable bytes of an array, by parameter index.
    pub fn bytes_mut(&mut self, parameter: usize) -> &mut [u8] {
        self.called.arrays[parameter].bytes_mut()
    }

    /// A scalar argument, by parameter index.
    #[must_use]
    pub fn scalar_at(&self, parameter: usize) -> Option<Scalar> {
        self.called.given.scalars.get(parameter).copied().flatten()
    }

    /// A text argument, by parameter index.
    #[must_use]
    pub fn text_at(&self, parameter: usize) -> Option<&str> {
        self.called.given.texts.get(parameter)?.as_deref()
    }

    /// Sets a scalar result.
    ///
    /// # Errors
    /// The function returns no scalar of this name, or its type cannot hold the value.
    pub fn set(&mut self, name: &str, scalar: Scalar) -> Result<(), String> {
        let index = self.index(name)?;
        let param = &self.declared().params[index];
        let element = param.scalar().filter(|_| param.mode.is_returned());
        let element = element.ok_or_else(|| format!("`{name}` is not a scalar result"))?;
        let fits = scalar.fit(element);
        let scalar = fits
            .ok_or_else(|| format!("`{name}` is of type {element}, which cannot hold {scalar}"))?;
        self.values[index] = Some(values::to_wire(scalar));
        Ok(())
    }

    /// Sets a text result.
    ///
    /// # Errors
    /// The function returns no text of this name.
    pub fn set_text(&mut self, name: &str, text: &str) -> Result<(), String> {
        let index = self.index(name)?;
        let param = &self.declared().params[index];
        if param.ty != Type::String || !param.mode.is_returned() {
            return Err(format!("`{name}` is not a text result"));
        }
        self.values[index] = Some(Value::Text(text.to_owned()));
        Ok(())
    }

    /// The results: values that were set, and the sent values of the others.
    fn results(self) -> Result<Vec<(u16, Value)>, String> {
        let given = &self.called.given;
        let params = &self.called.function.declared.params;
        let mut all = Vec::new();
        for ((index, param), value) in (0_u16..).zip(params).zip(self.values) {
            let at = usize::from(index);
            if !param.mode.is_returned() || (param.scalar().is_none() && param.ty != Type::String) {
                continue;
            }
            let sent = || given.scalars[at].map(values::to_wire);
            let text = || given.texts[at].clone().map(Value::Text);
            let value = value.or_else(sent).or_else(text);
            let value = value.ok_or_else(|| format!("it gave no value of `{}`", param.name))?;
            all.push((index, value));
        }
        crate::callback::check_back(&self.called.function.declared, &self.called.plan, &all)?;
        Ok(all)
    }
}

/// Runs the body on one call of the function.
fn run(called: &mut CallbackInvocation, body: &mut Body<'_>) -> Result<Vec<(u16, Value)>, String> {
    called.ready()?;
    let values = called.plan.arguments.iter().map(|_| None).collect();
    let mut args = CallbackArgs { called, values };
    body(&mut args)?;
    args.results()
}

/// Runs the function that a routine called, and sends its result to the server, unless the time of the call is over.
pub(crate) fn serve<'a>(
    mut functions: impl DerefMut<Target = Vec<(u16, Callback<'a>)>>,
    asked: PendingCallback,
) -> Result<(), CallError> {
    let PendingCallback { link, stream, called, deadline, time_over } = asked;
    let (called, ended) = match called {
        Ok(mut called) => {
            let parameter = called.function.parameter;
            let ended = match functions.iter_mut().find(|(other, _)| *other == parameter) {
                Some((_, callback)) => within(time_over, || run(&mut called, &mut *callback.0)),
                None => Err("no such function was given".to_owned()),
            };
            (Some(called), ended)
        }
        Err(why) => (None, Err(why)),
    };
    // Sending needs no lock.
    drop(functions);
    if is_over(time_over) { Ok(()) } else { link.return_from(stream, called, ended, deadline) }
}

impl Call<'_> {
    /// The function that the routine called, with where its result goes.
    pub(crate) fn pending(
        &self,
        called: Result<Box<CallbackInvocation>, String>,
    ) -> PendingCallback {
        PendingCallback {
            link: Arc::clone(&self.ticket.link),
            stream: self.ticket.stream,
            called,
            deadline: self.deadline,
            time_over: self.time_over(),
        }
    }

    fn serve(&self, called: Result<Box<CallbackInvocation>, String>) -> Result<(), CallError> {
        serve(locked(&self.functions), self.pending(called))
    }

    /// Waits for the next answer, and runs functions that the routine calls meanwhile.
    pub(crate) fn next(
        &mut self,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Result<Answer, kumi_rpc::Failure>, CallError> {
        let mut deadline = deadline;
        loop {
            match self.ticket.wait(deadline, interrupted)? {
                Ok(Answer::Callback(called)) => {
                    self.serve(called)?;
                    if deadline == self.deadline {
                        // A function that took too long has kept this thread from reading the server's answer, or gets one
                        // as soon as the server's clock says so.
                        let wait = if is_over(self.time_over()) { LATE } else { GRACE };
                        let soon = Instant::now().checked_add(wait);
                        deadline = deadline.and_then(|deadline| Some(deadline.max(soon?)));
                    }
                }
                answer => return Ok(answer),
            }
        }
    }

    /// Runs the function that the routine waits for. Returns whether there was one.
    pub(crate) fn serve_now(&self) -> Result<bool, CallError> {
        let Some(called) = self.ticket.called() else { return Ok(false) };
        self.serve(called).map(|()| true)
    }
}
