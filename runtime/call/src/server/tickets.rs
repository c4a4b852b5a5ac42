//! Attempts of calls that a metaserver has sent here, by their tickets.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use kumi_rpc::{AttemptState, Ticket};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Tickets that are remembered after their end, so that none is taken twice.
const MOST_SPENT: usize = 65_536;

/// A ticket whose call is here.
#[derive(Debug)]
struct AdmittedTicket {
    /// The call's number in the pool.
    job: u64,
    /// Its arguments have come.
    runs: bool,
    /// The metaserver does not want it any more.
    stopped: bool,
    /// What became of it.
    fate: AttemptState,
}

#[derive(Debug, Default)]
struct State {
    here: BTreeMap<Ticket, AdmittedTicket>,
    /// Not taken, or not again, and what became of each; the oldest first in the queue.
    ticket_refused: BTreeMap<Ticket, AttemptState>,
    order: VecDeque<Ticket>,
    /// To the task that talks to the metaserver, if there is one.
    news: Option<UnboundedSender<(Ticket, AttemptState)>>,
}

/// All tickets of a server.
#[derive(Debug, Default)]
pub struct Tickets(RefCell<State>);

/// A ticket whose call is here; when this goes the call is not.
#[derive(Debug)]
pub struct TicketGuard {
    ticket: Ticket,
    tickets: Rc<Tickets>,
}

/// What is to be done with the call of a ticket that is not wanted any more.
#[derive(Debug, PartialEq, Eq)]
pub enum StopAction {
    /// It is not here, and the metaserver knows.
    Nothing,
    /// This call of the pool is to be cancelled.
    Cancel(u64),
}

impl State {
    fn spend(&mut self, ticket: Ticket, fate: AttemptState) {
        if self.ticket_refused.insert(ticket, fate).is_none() {
            self.order.push_back(ticket);
        }
        if self.order.len() > MOST_SPENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.ticket_refused.remove(&oldest);
        }
    }

    fn tell(&mut self, ticket: Ticket, fate: AttemptState) {
        if let Some(news) = &self.news {
            // Without a connection there is nobody to tell; the next one begins with all tickets.
            let _gone = news.send((ticket, fate));
        }
    }
}

impl Tickets {
    /// Where news of tickets come.
    pub fn listen(&self) -> UnboundedReceiver<(Ticket, AttemptState)> {
        let (news, receiver) = unbounded_channel();
        self.0.borrow_mut().news = Some(news);
        receiver
    }

    /// Takes the call of a ticket; `None`: the ticket is spent, or here already.
    pub fn admit(self: &Rc<Tickets>, ticket: Ticket, job: u64) -> Option<TicketGuard> {
        let mut state = self.0.borrow_mut();
        if state.ticket_refused.contains_key(&ticket) || state.here.contains_key(&ticket) {
            return None;
        }
        state.here.insert(
            ticket,
            AdmittedTicket { job, runs: false, stopped: false, fate: AttemptState::Unknown },
        );
        Some(TicketGuard { ticket, tickets: Rc::clone(self) })
    }

    /// The metaserver does not want a ticket any more.
    pub fn stop(&self, ticket: Ticket) -> StopAction {
        let mut state = self.0.borrow_mut();
        match state.here.get_mut(&ticket) {
            Some(here) => {
                let (job, runs) = (here.job, here.runs);
                here.stopped = true;
                if !runs {
                    // Its arguments may come for long yet: it will not run when they have.
                    state.tell(ticket, AttemptState::Unknown);
                }
                StopAction::Cancel(job)
            }
            None => {
                let fate =
                    state.ticket_refused.get(&ticket).copied().unwrap_or(AttemptState::Unknown);
                state.spend(ticket, fate);
                state.tell(ticket, fate);
                StopAction::Nothing
            }
        }
    }

    /// The metaserver does not want a ticket any more whose call has not come: it is refused then.
    pub fn expire(&self, ticket: Ticket) {
        if !self.0.borrow().here.contains_key(&ticket) {
            self.stop(ticket);
        }
    }

    /// What is with a ticket.
    pub fn fate(&self, ticket: Ticket) -> AttemptState {
        let state = self.0.borrow();
        match state.here.get(&ticket) {
            Some(here) if here.runs || !here.stopped => AttemptState::Accepted,
            Some(_) => AttemptState::Unknown,
            None => state.ticket_refused.get(&ticket).copied().unwrap_or(AttemptState::Unknown),
        }
    }

    /// All that are here, and run or may.
    pub fn here(&self) -> Vec<Ticket> {
        let state = self.0.borrow();
        let live = state.here.iter().filter(|(_, here)| here.runs || !here.stopped);
        live.map(|(ticket, _)| *ticket).collect()
    }

    /// How many of them wait for a slot or run.
    pub fn running(&self) -> usize {
        self.0.borrow().here.values().filter(|here| here.runs).count()
    }
}

impl TicketGuard {
    /// The arguments have come. False: the call is not wanted any more.
    pub fn runs(&self) -> bool {
        let mut state = self.tickets.0.borrow_mut();
        let stopped = match state.here.get_mut(&self.ticket) {
            Some(here) => {
                here.runs |= !here.stopped;
                here.stopped
            }
            None => true,
        };
        if !stopped {
            state.tell(self.ticket, AttemptState::Accepted);
        }
        !stopped
    }

    /// It is over.
    pub fn ended(&self, fate: AttemptState) {
        if let Some(here) = self.tickets.0.borrow_mut().here.get_mut(&self.ticket) {
            here.fate = fate;
        }
    }
}

impl Drop for TicketGuard {
    fn drop(&mut self) {
        let mut state = self.tickets.0.borrow_mut();
        let here = state.here.remove(&self.ticket);
        let fate = here.as_ref().map_or(AttemptState::Unknown, |here| here.fate);
        state.spend(self.ticket, fate);
        if here.is_some_and(|here| here.runs || !here.stopped) {
            state.tell(self.ticket, fate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(call: u64) -> Ticket {
        Ticket { call, attempt: 1 }
    }

    #[test]
    fn a_ticket_is_taken_once() {
        let tickets = Rc::new(Tickets::default());
        let mut news = tickets.listen();
        let held = tickets.admit(ticket(1), 5).expect("it is new");
        assert!(tickets.admit(ticket(1), 6).is_none());
        assert!(held.runs());
        assert_eq!((tickets.running(), tickets.here()), (1, vec![ticket(1)]));
        assert_eq!(tickets.stop(ticket(1)), StopAction::Cancel(5));
        assert!(!held.runs());
        assert_eq!(tickets.fate(ticket(1)), AttemptState::Accepted);
        held.ended(AttemptState::Completed(9));
        drop(held);
        assert_eq!(tickets.fate(ticket(1)), AttemptState::Completed(9));
        assert!(tickets.admit(ticket(1), 7).is_none());
        assert_eq!(tickets.stop(ticket(2)), StopAction::Nothing);
        assert!(tickets.admit(ticket(2), 8).is_none(), "it was stopped before it came");
        let told: Vec<_> = std::iter::from_fn(|| news.try_recv().ok()).collect();
        let gone = (ticket(2), AttemptState::Unknown);
        assert_eq!(
            told,
            [(ticket(1), AttemptState::Accepted), (ticket(1), AttemptState::Completed(9)), gone]
        );
    }

    #[test]
    fn a_stop_is_answered_while_arguments_come() {
        let tickets = Rc::new(Tickets::default());
        let mut news = tickets.listen();
        let held = tickets.admit(ticket(1), 5).expect("it is new");
        for _ in 0..2 {
            assert_eq!(tickets.stop(ticket(1)), StopAction::Cancel(5));
            assert!(tickets.here().is_empty(), "nobody is told that it runs");
        }
        let told: Vec<_> = std::iter::from_fn(|| news.try_recv().ok()).collect();
        assert_eq!(
            told,
            [(ticket(1), AttemptState::Unknown); 2],
            "at once, not when they have come"
        );
        assert!(tickets.admit(ticket(1), 6).is_none());
        assert!(!held.runs());
        assert_eq!(tickets.running(), 0);
        drop(held);
        assert!(tickets.admit(ticket(1), 7).is_none());
        assert!(news.try_recv().is_err(), "that has been said");
    }

    #[test]
    fn what_has_not_come_expires() {
        let tickets = Rc::new(Tickets::default());
        let mut news = tickets.listen();
        let held = tickets.admit(ticket(1), 5).expect("it is new");
        tickets.expire(ticket(1));
        assert!(news.try_recv().is_err(), "its arguments come");
        assert!(held.runs());
        tickets.expire(ticket(2));
        assert!(tickets.admit(ticket(2), 6).is_none());
        let told: Vec<_> = std::iter::from_fn(|| news.try_recv().ok()).collect();
        assert_eq!(told, [(ticket(1), AttemptState::Accepted), (ticket(2), AttemptState::Unknown)]);
    }

    #[test]
    fn memory_is_bounded() {
        let tickets = Tickets::default();
        (0..MOST_SPENT as u64 + 10).for_each(|call| {
            tickets.stop(ticket(call));
        });
        let state = tickets.0.borrow();
        assert_eq!((state.ticket_refused.len(), state.order.len()), (MOST_SPENT, MOST_SPENT));
    }
}
