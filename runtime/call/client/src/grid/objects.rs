//! Objects at servers that a metaserver chooses.
//!
//! The making of an object has a place, as a call has. Calls on the finished object go to its server
//! directly; the metaserver sees them only in the server's load.

use std::time::{Duration, Instant};

use kumi_routing::Event;
use kumi_rpc::{AttemptOutcome, AttemptReport};

use super::super::object::Object;
use super::super::routed_call::{Control, Place, RoutedCall, RoutedStep, nanoseconds, over};
use super::super::{CallError, GRACE, context};
use super::Grid;

impl Grid {
    /// [`super::super::Client::object`] at a server that the metaserver chooses. Calls on the object go
    /// there.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn object(&self, class: &str) -> Result<Object, CallError> {
        self.object_within(class, None, &|| false)
    }

    /// [`Grid::object`] with a time limit. When a signal arrives during the wait, `interrupted` is asked.
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
        let known = self.interface(class)?;
        if !known.is_constructor() {
            return Err(CallError::RoutineNotFound(format!(
                "there is no class `{class}`: it is a routine, which is called without an object"
            )));
        }
        let routed_call = self.route(&known, (0, 0), None);
        let deadline = time.and_then(|time| Instant::now().checked_add(time.checked_add(GRACE)?));
        let late = || deadline.is_some_and(|deadline| deadline <= Instant::now());
        match routed_call.make(class, deadline, &|| late() || interrupted()) {
            Err(CallError::Interrupted) if late() => Err(CallError::TimedOut(format!(
                "there was no place for an object of `{class}` in time"
            ))),
            made => made,
        }
    }
}

impl RoutedCall<'_> {
    /// Makes an object at any server that can.
    fn make(
        mut self,
        class: &str,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Object, CallError> {
        let (control, mut made) = (Control::default(), None);
        loop {
            match self.turn() {
                Some(RoutedStep::Start(place)) => {
                    made = self.make_at(&place, class, deadline, interrupted);
                }
                // The server does not answer before the object is there or has failed.
                Some(RoutedStep::Leave) => self.tell(Event::Stays),
                Some(RoutedStep::Over(end)) => return made.ok_or_else(|| self.error(end)),
                None => self.await_place(&control, interrupted),
            }
        }
    }

    fn make_at(
        &mut self,
        place: &Place,
        class: &str,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Option<Object> {
        let client = self.connect(place)?;
        self.tell(Event::Sent);
        let begun = Instant::now();
        match client.create(class, Some(&**place), deadline, interrupted) {
            Ok(object) => {
                let ran_ns = nanoseconds(begun.elapsed());
                self.done = Some(AttemptReport { ran_ns, ..over(place, AttemptOutcome::Done) });
                self.tell(Event::Done);
                Some(object)
            }
            Err(error) => {
                let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
                let error = match error {
                    CallError::Interrupted if is_late => client.link.unanswered(),
                    error => error,
                };
                self.inner.forget_server(&place.address, &client, &error);
                self.tell_failed(error);
                None
            }
        }
    }
}
