//! The election as a head takes part in it, by [`kumi_leadership`]. The same steps as `kumi-etcd` makes them.

use kumi_leadership::{Claim, LeaderKey, Step, Term, may_claim, next_step};

use crate::heads::{Channel, Stage};
use crate::store::{Answer, Ask};
use crate::world::{LEADER_LEASE, World};

impl World {
    /// What the thread of the lease does now and then.
    pub fn keep_lease(&mut self, number: usize) {
        let process = &self.heads[number];
        let local = process.clock.of_lease(self.now);
        if self.is_waiting(number, Channel::Lease) {
            return;
        }
        match process.term {
            None => self.ask(number, Channel::Lease, Ask::Look),
            Some(term) if local >= term.term.given_up() => self.head_begins_again(number),
            Some(term) if local >= term.term.renewal() => {
                let ask = Ask::KeepAlive { lease: term.lease, asked: local };
                self.ask(number, Channel::Lease, ask);
            }
            Some(_) => {}
        }
    }

    pub fn lease_answered(&mut self, number: usize, answer: &Answer) {
        let process = &mut self.heads[number];
        match *answer {
            // Every head has an address to itself, so a key of an earlier process is its own.
            Answer::Found(found, made, preferred) => self.found(number, (found, made), preferred),
            Answer::Granted(lease) => {
                if let Some(claim) = &mut process.claim {
                    claim.lease = lease;
                    self.ask(number, Channel::Lease, Ask::Make { lease });
                }
            }
            Answer::Made(made) => match (made, process.claim) {
                (Some(made), Some(claim)) => self.begin_term(number, claim, made),
                _ => process.claim = None,
            },
            Answer::KeptAlive { asked, alive: true } => {
                if let Some(term) = &mut process.term {
                    term.term.renewed(asked);
                }
            }
            Answer::KeptAlive { alive: false, .. } => self.head_begins_again(number),
            Answer::Ended => {}
            Answer::Loaded(_) | Answer::Written(_) => unreachable!("of the other channel"),
        }
    }

    fn found(&mut self, number: usize, (found, made): (Option<LeaderKey>, i64), preferred: bool) {
        let process = &mut self.heads[number];
        let local = process.clock.of_lease(self.now);
        let output = &mut process.output;
        output.follows = found.and_then(|key| usize::try_from(key.maker).ok());
        if found.is_some() {
            output.free_since = None;
        }
        match next_step(number as u64, process.claim, found) {
            Step::Follow => {}
            Step::Claim => {
                let free_since = *process.output.free_since.get_or_insert(local);
                if may_claim(preferred, LEADER_LEASE, free_since, local) {
                    process.claim = Some(Claim { lease: 0, asked: local });
                    self.ask(number, Channel::Lease, Ask::Grant);
                }
            }
            Step::Lead(claim) => self.begin_term(number, claim, made),
            Step::EndEarlier(lease) => self.ask(number, Channel::Lease, Ask::End { lease }),
        }
    }

    fn begin_term(&mut self, number: usize, claim: Claim, made: i64) {
        let process = &mut self.heads[number];
        process.claim = None;
        let term = Term::new(LEADER_LEASE, claim.asked);
        process.term = Some(HeldTerm { term, lease: claim.lease, made });
        process.stage = Stage::Load;
        self.write_table(number);
    }
}

/// A term, its lease, and the revision of the leader's key.
#[derive(Clone, Copy, Debug)]
pub struct HeldTerm {
    pub term: Term,
    pub lease: i64,
    pub made: i64,
}
