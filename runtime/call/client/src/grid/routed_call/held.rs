//! Arrays of a call that stay at servers: those that it reads bind it to their server, and results get names for each attempt.

use kumi_routing::{CallEnd, Event, GiveUpReason};
use kumi_rpc::{AttemptOutcome, Code, HeldArrayName};

use super::{Place, RoutedCall, ended};
use crate::grid::held::{BoundArguments, StayingResults, StoredArray, rename};
use crate::{CallError, Client, HeldNames};

/// Results of an attempt that stay at its server.
#[derive(Debug)]
pub(super) struct AttemptKeeps {
    client: Client,
    /// Parameter, name and length of each.
    arrays: Vec<(u16, HeldArrayName, u64)>,
}

impl RoutedCall<'_> {
    /// The call reads these arrays and leaves these results. Before it asks for a place.
    pub fn hold(&mut self, bound: Option<BoundArguments>, kept: StayingResults) {
        if let Some(checked) = &self.checked {
            let stays = |(parameter, _): &(u16, _)| {
                checked.plan.arguments.get(usize::from(*parameter)).map_or(0, |it| it.returned)
            };
            let stays = kept.iter().map(stays).fold(0, u64::saturating_add);
            self.moved.1 = self.moved.1.saturating_sub(stays);
            self.placing.bytes_back = self.moved.1;
        }
        if let Some(bound) = &bound {
            self.moved.0 = self.moved.0.saturating_sub(bound.bytes());
            self.placing.bound = true;
            self.placing.input_locations = vec![bound.location()];
            let rules = self.inner.rules(self.placing.idempotent);
            let is_at = |place: &Place, address: &String| place.address == *address;
            self.routing = kumi_routing::Call::bound(rules, bound.address(), is_at);
        }
        (self.bound, self.kept) = (bound, kept);
    }

    /// Whether a metaserver can place the call.
    pub(super) fn check_metaserver(&self, meta: &Client) -> Result<(), CallError> {
        if !self.placing.bound || meta.server.binds_calls {
            return Ok(());
        }
        let text = format!(
            "`{}` is a metaserver of a version that sends no call to the server of its arrays: fetch them",
            meta.server()
        );
        Err(CallError::Server(text))
    }

    /// The metaserver has ended the request like this.
    pub(super) fn note_lost_server(&mut self, code: Code, detail: i64) {
        if let Some(bound) = &mut self.bound {
            bound.is_gone = match code {
                Code::ServerLost | Code::NoSuchRoutine => true,
                // Behind attempts the server is there and has refused them.
                Code::NoServer => detail == 0,
                _ => false,
            };
        }
    }

    /// What the error of an attempt means for the next one. A call with arrays at the server has another one only if the
    /// server is there and will take it later.
    pub(super) fn ended(&self, error: &CallError) -> AttemptOutcome {
        let is_later = matches!(error, CallError::Busy(_) | CallError::NoServer { .. });
        match ended(error) {
            AttemptOutcome::NotBegun if self.bound.is_some() && !is_later => AttemptOutcome::Failed,
            other => other,
        }
    }

    /// Whether the arrays that the call reads are gone.
    pub(super) fn has_lost_arrays(&self, end: &CallEnd<CallError>) -> bool {
        let Some(bound) = &self.bound else { return false };
        match end {
            CallEnd::Failed(error) => matches!(
                error,
                CallError::Connect { .. } | CallError::Lost(_) | CallError::NotHeld { .. }
            ),
            CallEnd::GivenUp(GiveUpReason::Because(_)) => bound.is_gone,
            CallEnd::GivenUp(GiveUpReason::Elsewhere) => true,
            CallEnd::Done | CallEnd::GivenUp(_) => false,
        }
    }

    /// The error of a call whose arrays are gone.
    pub(super) fn lost_arrays(&self, error: CallError) -> CallError {
        let has_not_run = error.has_not_run() && !self.routing.may_have_run();
        match &self.bound {
            Some(bound) => bound.lost(&self.known.interface.name, error.to_string(), has_not_run),
            None => error,
        }
    }

    /// The connection to the server of the arrays that it reads.
    pub fn bound_to(&self) -> Option<&Client> {
        self.bound.as_ref().map(BoundArguments::connection)
    }

    /// Why the call waits in vain: the server has its arrays no more.
    pub(super) fn waits_in_vain(&self) -> Option<CallError> {
        let error = self.bound.as_ref()?.client().err()?;
        Some(self.lost_arrays(error))
    }

    /// Names the results that stay. They are of this attempt: one that is given up may leave them behind.
    ///
    /// # Errors
    /// The system gives no random name.
    pub(super) fn name_results(&mut self, client: &Client) -> Result<(), CallError> {
        let Some(checked) = self.checked.as_mut().filter(|_| !self.kept.is_empty()) else {
            return Ok(());
        };
        let no_name = |error| CallError::Server(format!("an array has no name: {error}"));
        let mut names = HeldNames::new().map_err(no_name)?;
        let mut arrays = Vec::new();
        for (parameter, _) in &self.kept {
            let name = names.fresh();
            rename(&mut checked.held.keep, *parameter, name);
            let argument = checked.plan.arguments.get(usize::from(*parameter));
            arrays.push((*parameter, name, argument.map_or(0, |argument| argument.returned)));
        }
        self.keeps = Some(AttemptKeeps { client: client.plain(), arrays });
        Ok(())
    }

    /// The attempt is over: its results are those of the call, or are released.
    pub(super) fn settle_results(&mut self, event: &Event<Place, CallError>) {
        let has_run = match event {
            Event::Done | Event::Failed(CallError::Status { .. }) => true,
            Event::Failed(_)
            | Event::NotBegun(_)
            | Event::Broken(_)
            | Event::Left
            | Event::Stopped(_) => false,
            _ => return,
        };
        let Some(AttemptKeeps { client, arrays }) = self.keeps.take() else { return };
        let Some(place) = self.routing.last().filter(|_| has_run) else {
            let names: Vec<HeldArrayName> = arrays.iter().map(|(_, name, _)| *name).collect();
            // With the connection they go by themselves.
            let _lost = client.let_go(&names);
            return;
        };
        let interface = &self.known.interface;
        for ((parameter, name, bytes), (_, held)) in arrays.into_iter().zip(&self.kept) {
            let result = &interface.params[usize::from(parameter)].name;
            let made_by = format!("`{result}` of `{}`", interface.name);
            let at = (place.server.as_str(), place.address.as_str());
            let of = (client.clone(), self.placing.key.0);
            held.fill(StoredArray::new((name, bytes), at, of, made_by));
        }
    }
}
