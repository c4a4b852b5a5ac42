//! Simulated clients: when each calls, and which routine.

use super::Plan;
use crate::calls::model::Source;
use crate::random::RandomStream;

/// One client.
#[derive(Debug)]
pub(super) struct SimulatedClient<'a> {
    pub site: usize,
    pub user: u32,
    routines: &'a [usize],
    source: &'a Source,
    draws: RandomStream,
    /// Calls made from a list.
    made: usize,
}

/// A call that is made now.
pub(super) struct NewCall {
    pub routine: usize,
    /// `None`: at the times of the routine's law.
    pub work: Option<f64>,
    pub server: Option<usize>,
}

pub(super) fn all<'a>(
    plan: &'a Plan<'a>,
    seed: u64,
    first_stream: u64,
) -> Vec<SimulatedClient<'a>> {
    let mut callers = Vec::new();
    for (clients, (site, routines)) in plan.model.clients.iter().zip(&plan.clients) {
        for _ in 0..clients.count {
            let draws = RandomStream::new(seed, first_stream + callers.len() as u64);
            let (site, user, source) = (*site, clients.user, &clients.source);
            callers.push(SimulatedClient { site, user, routines, source, draws, made: 0 });
        }
    }
    callers
}

impl SimulatedClient<'_> {
    /// Time of its next call. `first`: it has not called yet. `None`: it never calls again.
    pub fn next(&mut self, now: f64, first: bool) -> Option<f64> {
        match self.source {
            Source::Step { every_s, probability } => {
                // Clients do not step at the same times.
                let phase = if first { self.draws.unit() - 1.0 } else { 0.0 };
                Some(now + every_s * (self.steps(*probability) + phase))
            }
            Source::Think(mean) => Some(now + mean * self.draws.exponential()),
            Source::Poisson(rate) => Some(now + self.draws.exponential() / rate),
            Source::List(tasks) => tasks.get(self.made).map(|task| task.at_s.max(now)),
        }
    }

    /// Number of steps until the first with a call.
    fn steps(&mut self, probability: f64) -> f64 {
        if probability >= 1.0 {
            return 1.0;
        }
        (self.draws.unit().ln() / (1.0 - probability).ln()).ceil().max(1.0)
    }

    /// Random numbers for the work of its calls: the calls are the same under every policy.
    pub fn draws(&mut self) -> &mut RandomStream {
        &mut self.draws
    }

    pub fn call(&mut self) -> NewCall {
        let routine = match self.routines {
            [one] => *one,
            many => many[self.draws.below(many.len() as u64) as usize],
        };
        let Source::List(tasks) = self.source else {
            return NewCall { routine, work: None, server: None };
        };
        self.made += 1;
        let task = tasks.get(self.made - 1);
        NewCall {
            routine,
            work: task.map(|task| task.work),
            server: task.and_then(|task| task.server),
        }
    }

    /// It calls again without waiting for earlier calls.
    pub fn is_open(&self) -> bool {
        matches!(self.source, Source::Poisson(_) | Source::List(_))
    }

    /// It will never call again.
    pub fn is_over(&self) -> bool {
        matches!(self.source, Source::List(tasks) if self.made >= tasks.len())
    }
}
